"""`generate`: prompts in, texts and traces out."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields, is_dataclass
from importlib.metadata import version
from typing import Any

from .backbone import Backbone
from .dystruct import DyStruct
from .ending import check_unicode, with_stop_tokens
from .engine import Engine, Finished
from .errors import UserError
from .generation_settings import Caching, GenerationSettings
from .kinds import as_tuple
from .plain import as_plain
from .row import Decoder
from .trace import Event, Generation


def generate(
    model: Backbone,
    prompts: Sequence[str],
    decoder: Decoder | None = None,
    *,
    max_new_tokens: int = 256,
    budget: int = 256,
    temperature: float = 0.0,
    stop: Sequence[str] = (),
    seed: int = 0,
    batch_size: int = 8,
    chat: bool = False,
    prefix_cache: Caching = False,
    alternatives: int = 0,
    observe: Callable[[int, Event], None] | None = None,
    finished: Finished | None = None,
) -> list[Generation]:
    """Decode a text for each prompt; results in the prompts' order, each with its trace.

    decoder: `DyStruct()` by default. max_new_tokens: N_max, in tokens (R1). budget: forward passes a sequence, of all
    kinds (R12). temperature: of the tokens; 0 takes the most probable one (R15). stop: texts before which a text ends,
    as it does before an end token; of several, the one that is complete first counts; one that is a special token of
    the model, which no text shows, is a further end token. Decoders that work window by window or block by block end
    with the one that completes it. seed: of every random stream (R16); the text of a prompt depends on neither its
    place in the list nor the batch size, but for sums whose last digits differ with it: in bfloat16 and on a GPU they
    do so enough that a near tie may fall otherwise. So several texts of one prompt take a call for each seed. chat:
    give each prompt as a user's turn, in the chat template of an Instruct model. prefix_cache: compute the keys and
    values of what stands before a window, or before a block of a decoder that has no windows, at its first pass and
    keep them until its last, and run only what follows; quicker, and an approximation, since the model attends in both
    directions. "append": at a window's first pass compute only those of the window before it, and never again what
    stands before that, so that a token costs about as much at the end of a long text as at its beginning; a coarser
    approximation. alternatives: how many of the most probable tokens the trace has for each commit, for a look behind
    it; they change nothing. observe: called with the prompt's index and each event as it happens, at the cost of one
    read-back a pass. finished: called with the prompt's index, its generation and its share of the wall time in seconds
    as soon as it is done, while others go on.

    Raises UserError for a prompt that is no valid text, empty or too long, a limit below 1, an empty stop string, chat
    with a base model, and a prefix cache of another kind, or with a model that can keep none. Where the model's logits
    for a prompt are not numbers, the other prompts are decoded to their ends; then DecodingFailed, a UserError, has
    what they gave.
    """
    if not isinstance(model, Backbone):
        raise UserError(f"model must be a loaded model, as load('tiny') gives, not {model!r}.")
    decoder = DyStruct() if decoder is None else decoder
    if not callable(getattr(decoder, "decode", None)) or isinstance(decoder, type | bytes):
        raise UserError(f"decoder must be a decoder, as DyStruct() is, not {decoder!r}.")
    prompts = checked_prompts(prompts)
    asked = GenerationSettings(
        max_new_tokens, budget, temperature, stop, seed, batch_size, chat, prefix_cache, alternatives
    )
    if alternatives > model.vocabulary:
        raise UserError(f"alternatives must be at most the vocabulary's {model.vocabulary}, not {alternatives!r}.")
    for name, call in (("observe", observe), ("finished", finished)):
        if call is not None and not callable(call):
            raise UserError(f"{name} must be a function or None, not {call!r}.")
    if not prompts:
        return []
    prompt_ids = [
        encoded(model, prompt, chat, max_new_tokens, name)
        for name, prompt in zip(prompt_names(len(prompts)), prompts, strict=True)
    ]
    uses_weights = isinstance(decoder, DyStruct) and decoder.weights is None
    if uses_weights and not model.calibrated:
        warnings.warn(
            f"Model {model.name!r} has no calibrated evidence weights, so neutral ones are used; fit them with "
            f"`dystruct calibrate`.",
            stacklevel=2,
        )
    settings = {
        "version": version("dystruct"),
        "decoder": type(decoder).__name__,
        **_settings(decoder),
        "max_new_tokens": max_new_tokens,
        "budget": budget,
        "temperature": temperature,
        "stop": list(asked.stop),
        "seed": seed,
        "chat": chat,
        "prompt_format": None if chat else model.prompt_format,
        "prefix_cache": prefix_cache,
    }
    engine = Engine(with_stop_tokens(model, asked.stop), decoder, asked)
    return engine.run(prompts, prompt_ids, observe, settings, finished)


def checked_prompts(prompts: Iterable[str]) -> list[str]:
    """The prompts as a list. Raises UserError for anything but several texts."""
    found = as_tuple(prompts)
    if found is None:
        raise UserError("prompts must be a list of texts; put the one prompt into a list.")
    for place, prompt in enumerate(found):
        if not isinstance(prompt, str):
            raise UserError(f"prompts[{place}] must be a text, not {prompt!r}.")
        check_unicode(f"prompts[{place}]", prompt)
    return list(found)


def prompt_names(count: int) -> list[str]:
    """What the errors of `encoded` call each of so many prompts: by its place, where there are several."""
    return ["The prompt"] if count == 1 else [f"prompts[{place}]" for place in range(count)]


def encoded(model: Backbone, prompt: str, chat: bool, max_new_tokens: int, name: str) -> list[int]:
    """The token ids of a prompt. Raises UserError for one that is empty or too long, and for chat with a base model.

    name: what the prompt is called, at the beginning of an error about it.
    """
    if not prompt.strip():
        raise UserError(f"{name} is empty; give the text to answer.")
    ids = model.encode(prompt, chat=chat)
    if not ids:
        raise UserError(f"{name} has no token in the vocabulary of model {model.name!r}; give another text.")
    if len(ids) + max_new_tokens > model.max_length:
        room = model.max_length - len(ids)
        remedy = f"ask for at most {room} new tokens" if room > 0 else "shorten it"
        raise UserError(
            f"{name} has {len(ids)} tokens and {max_new_tokens} new ones are asked for, but the context of model "
            f"{model.name!r} is {model.max_length} tokens; {remedy}."
        )
    return ids


def _settings(value: Any) -> dict[str, Any]:
    """A decoder's settings as plain data; none of a decoder that is no dataclass."""
    found: dict[str, Any] = {}
    for field in fields(value) if is_dataclass(value) else ():
        setting = getattr(value, field.name)
        named = is_dataclass(setting) and hasattr(setting, "name")  # a rule, which is functions
        plain = setting.name if named else as_plain(setting)
        try:
            json.dumps(plain)
        except (TypeError, ValueError):  # a function, or what else a decoder of one's own may have
            plain = repr(setting)
        found[field.name] = plain
    return found
