"""The command line's options that say what is decoded, how far, and what is kept and shown of it.

A help says {default} where each command puts its own default (see `signatures.spread`). The model's options stand in
`model_options`, the decoder's in `decoder_options`, those of a single command beside it.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from ..errors import UserError
from .signatures import OptionGroup


def named_path(text: str) -> Path:
    """A path from the command line, where an empty one would mean the folder that one is in."""
    if not text:
        raise typer.BadParameter("The name is empty, give one")
    return Path(text)


def make_option(panel: str | None, name: str, help: str, metavar: str | None = None, **settings: Any) -> Any:
    """What `typer` shall know of an option. panel: under which heading the help lists it."""
    return typer.Option(name, help=help, metavar=metavar, rich_help_panel=panel, show_default=False, **settings)


_INPUT, _TOKENS, _OUTPUT = "Input", "Tokens and passes", "Output"

Prompt = Annotated[str | None, typer.Argument(metavar="[PROMPT]", help="The text to answer.", show_default=False)]
PromptFile = Annotated[
    str | None,
    make_option(
        _INPUT, "--file", 'Prompts, one a line, or JSON lines with a "prompt" key; - is standard input.', metavar="PATH"
    ),
]
Stop = Annotated[
    list[str] | None,
    make_option(
        _TOKENS,
        "--stop",
        "End the text before this one; once for each. For a line end, bash has $'\\n'.",
        metavar="TEXT",
    ),
]
MaxNewTokens = Annotated[
    int,
    make_option(_TOKENS, "--max-new-tokens", "Limit N_max of the new tokens. Default {default}.", min=1, metavar="N"),
]
Budget = Annotated[
    int,
    make_option(
        _TOKENS, "--budget", "Limit of a prompt's forward passes, of all kinds. Default {default}.", min=1, metavar="N"
    ),
]
Temperature = Annotated[
    float,
    make_option(
        _TOKENS,
        "--temperature",
        "T of the tokens: argmax(logits / T + Gumbel noise); 0 takes the most probable one. Default {default}.",
        min=0.0,
        metavar="X",
    ),
]
Seed = Annotated[
    int, make_option(_TOKENS, "--seed", "Seed of all random streams. Default {default}.", min=0, metavar="N")
]
BatchSize = Annotated[
    int,
    make_option(
        _TOKENS,
        "--batch-size",
        "Prompts decoded together; texts do not depend on it, but for near ties that may fall otherwise in bfloat16 "
        "or on a GPU. Default {default}.",
        min=1,
        metavar="N",
    ),
]
PrefixCache = Annotated[
    bool,
    make_option(
        _TOKENS,
        "--prefix-cache",
        "Compute keys and values of what stands before a window at its first pass and keep them until its last: "
        "quicker, and an approximation.",
    ),
]
AppendCache = Annotated[
    bool,
    make_option(
        _TOKENS,
        "--append-cache",
        "A prefix cache in which a window's first pass computes anew only what the window before it holds: quicker "
        "still for long texts, and a coarser approximation.",
    ),
]


def caching(prefix_cache: bool, append_cache: bool, *, compiled: bool) -> bool | Literal["append"]:
    """What `generate` takes for the two options. Raises UserError for both, and for one of them with --compiled."""
    if prefix_cache and append_cache:
        raise UserError("--prefix-cache and --append-cache exclude each other; give one of them.")
    if compiled and (prefix_cache or append_cache):
        option = "--prefix-cache" if prefix_cache else "--append-cache"
        raise UserError(f"--compiled has no use with {option}, whose passes are not compiled; leave one out.")
    return "append" if append_cache else prefix_cache


Alternatives = Annotated[
    int,
    make_option(
        _TOKENS,
        "--alternatives",
        "How many of the most probable tokens the trace has for each commit; the replay page shows them. Default "
        "{default}.",
        min=0,
        metavar="N",
    ),
]

Save = Annotated[
    Path | None,
    make_option(
        _OUTPUT,
        "--save",
        "Save the trace to this file; of several prompts, numbered traces to this new folder.",
        metavar="PATH",
        parser=named_path,
    ),
]
AsJson = Annotated[
    bool,
    make_option(_OUTPUT, "--json", "Print one JSON line a prompt, with text, counts and settings, and nothing else."),
]
Quiet = Annotated[bool, make_option(_OUTPUT, "--quiet", "Print the text and nothing else.")]

Trace = Annotated[
    Path,
    typer.Argument(
        metavar="TRACE",
        help="A trace that --save wrote; or, with --item, the folder of a run.",
        show_default=False,
        parser=named_path,
    ),
]
DELAY = 0.04
Delay = Annotated[
    float | None,
    make_option(
        None,
        "--delay",
        f"Seconds to wait behind every forward pass, on a terminal. Default {DELAY}.",
        min=0.0,
        max=60.0,
        metavar="X",
    ),
]
Svg = Annotated[
    Path | None,
    make_option(
        None, "--svg", "Write the view as an SVG picture to this file instead.", metavar="PATH", parser=named_path
    ),
]
Html = Annotated[
    Path | None,
    make_option(
        None,
        "--html",
        "Write a page to this file instead, which shows the decoding pass by pass in a browser and loads nothing.",
        metavar="PATH",
        parser=named_path,
    ),
]
Beside = Annotated[
    Path | None,
    make_option(
        None,
        "--beside",
        "With --html: another trace, shown in step with this one.",
        metavar="TRACE",
        parser=named_path,
    ),
]
Until = Annotated[
    int | None,
    make_option(None, "--until", "With --svg: the view as it stood after this forward pass.", min=0, metavar="N"),
]
WIDTH = 96
Width = Annotated[
    int | None,
    make_option(
        None,
        "--width",
        f"With --svg: the picture's width in characters. Default {WIDTH}.",
        min=40,
        max=400,
        metavar="N",
    ),
]


@dataclass(frozen=True)
class Limits(OptionGroup):
    """How far a text may go."""

    max_new_tokens: MaxNewTokens = 256
    budget: Budget = 256


@dataclass(frozen=True)
class Tokens(Limits):
    """How far a text may go, what its tokens are drawn with, and what ends it."""

    temperature: Temperature = 0.0
    stop: Stop = None
