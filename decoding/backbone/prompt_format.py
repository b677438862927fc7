"""What stands around a prompt: a text with {prompt} in it, special tokens written as the tokenizer writes them."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from ..ending import check_unicode
from ..errors import UserError
from .backbone import Backbone

_SPECIAL = re.compile(r"<\|[^|<>\s]+\|>")


def with_prompt_format(model: Backbone, prompt_format: str | None) -> Backbone:
    """The model with another prompt format; None: with its own. Raises UserError for one that it cannot have."""
    if prompt_format is None:
        return model
    check_prompt_format(prompt_format)
    check_special_tokens(prompt_format, model.tokenizer, model.name)
    return replace(model, prompt_format=prompt_format)


def check_prompt_format(prompt_format: str) -> None:
    """Raise UserError for what is no text that names {prompt} once."""
    if not isinstance(prompt_format, str) or prompt_format.count("{prompt}") != 1:
        raise UserError(
            f"prompt_format must name {{prompt}} once, as '<|beginoftext|>{{prompt}}' does, not {prompt_format!r}."
        )
    check_unicode("prompt_format", prompt_format)


def check_special_tokens(prompt_format: str, tokenizer: Any, name: str) -> None:
    """Raise UserError if what looks like a special token is none, which the model would read letter by letter."""
    for token in _SPECIAL.findall(prompt_format):
        ids = tokenizer(token, add_special_tokens=False)["input_ids"]
        if tokenizer.convert_ids_to_tokens(ids) != [token]:
            begins = getattr(tokenizer, "bos_token", None)
            raise UserError(
                f"prompt_format has {token!r}, which is no token of model {name!r}; write its special tokens as its "
                f"tokenizer has them" + (f", such as {begins!r}." if begins else ".")
            )
