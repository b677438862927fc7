"""Where a text ends: before an end token of the model (R14), or before a stop string.

Stop strings are looked for in the text, so one may begin and end inside tokens. Of several, the one that is complete
first counts: what comes later then changes nothing, and decoders that fill a response in different orders agree.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from .errors import UserError
from .kinds import as_tuple

if TYPE_CHECKING:
    from .backbone import Backbone

By = Literal["eos", "stop"]


@dataclass(frozen=True)
class Ending:
    """The text that tokens hold, how many of them it takes, and what ends it: None if neither does.

    A token that holds the text's last characters and a stop string's first ones is one of the text's.
    """

    text: str
    length: int
    by: By | None


def ending(model: Backbone, tokens: Sequence[int], stop: Sequence[str]) -> Ending:
    """Where the text of a response's tokens, none of them masked, ends."""
    length = model.text_length(tokens)
    text = model.decode(tuple(tokens[:length]))
    complete = [(at + len(wanted), at) for wanted in stop if (at := text.find(wanted)) >= 0]
    if not complete:
        return Ending(text, length, "eos" if length < len(tokens) else None)
    text = text[: min(complete)[1]]
    needed = bisect_left(range(length), True, key=lambda count: model.decode(tuple(tokens[:count])).startswith(text))
    return Ending(text, needed, "stop")


def has_ended(model: Backbone, tokens: Sequence[int], stop: Sequence[str]) -> bool:
    """Whether the text ends within a response's first tokens: those before its first mask count, whatever follows."""
    known = tokens[: next((place for place, token in enumerate(tokens) if token == model.mask_id), len(tokens))]
    length = model.text_length(known)
    return length < len(known) or (bool(stop) and ending(model, known, stop).by is not None)


def checked_stop(stop: Sequence[str]) -> tuple[str, ...]:
    """Stop strings as a tuple; UserError unless they are a list of valid texts, none of them empty."""
    found = as_tuple(stop)
    if found is None or not all(isinstance(wanted, str) for wanted in found):
        raise UserError(f"stop must be a list of texts, not {stop!r}; put a single one into a list.")
    if "" in found:
        raise UserError("A stop string is empty; give the text before which to stop, or leave it out.")
    for wanted in found:
        check_unicode("A stop string", wanted)
    return found


def check_unicode(name: str, text: str) -> None:
    """UserError, which calls the text by this name, if it holds half of a surrogate pair, which no tokenizer takes."""
    if any("\ud800" <= character <= "\udfff" for character in text):
        raise UserError(f"{name} is a text that is no valid Unicode: {ascii(text)[:80]}; correct it.")


def with_stop_tokens(model: Backbone, stop: Sequence[str]) -> Backbone:
    """The model with further end tokens: the special tokens among the stop strings, which no text shows."""
    found = set()
    for wanted in stop:
        ids = model.tokenizer(wanted, add_special_tokens=False)["input_ids"]
        if len(ids) == 1 and ids[0] != model.mask_id and model.token_text(ids[0]) == wanted and not model.decode(ids):
            found.add(int(ids[0]))
    return replace(model, end_ids=model.end_ids | found) if found else model
