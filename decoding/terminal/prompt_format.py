"""The option that says what stands around a prompt, and a model loaded with it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from ..errors import UserError, in_options
from .model_options import Source
from .options import make_option

if TYPE_CHECKING:
    from ..backbone import Backbone

PromptFormat = Annotated[
    str | None,
    make_option(
        "Input",
        "--prompt-format",
        "What stands around each prompt, with special tokens as the model's tokenizer writes them, such as "
        "'<|beginoftext|>{prompt}' for Dream's base models. For a line end, bash has $'\\n'. Default: what the model's "
        "config.json says.",
        metavar="TEXT",
    ),
]


def load_prompted(source: Source, model: str, prompt_format: str | None, chat: bool, **more: Any) -> Backbone:
    """The model called so, with a prompt format if one is given; more: further arguments of `load`. Raises UserError.

    A format is an error with chat, where the model's template says what stands around a prompt.
    """
    if prompt_format is None:
        return source.load(model, **more)
    if chat:
        raise UserError("--prompt-format and --chat exclude each other; give one of them.")
    try:
        return source.load(model, prompt_format=prompt_format, **more)
    except UserError as error:
        raise UserError(in_options(str(error), {"--prompt-format": "prompt_format"})) from error
