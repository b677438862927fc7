"""`dystruct decoders` lists the decoders with their settings; `dystruct compare` runs several on one prompt."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..ending import check_unicode
from ..errors import UserError
from . import options
from .model_options import Chat, Model, WeightedSource
from .prompt_format import PromptFormat, load_prompted
from .reporting import memory_errors, status

if TYPE_CHECKING:
    from ..trace import Generation

COMPARED = ("dystruct", "block", "fixed", "dream", "fast", "daedal", "adablock", "hierarchy", "vsb-like")

# What a decoder does where a setting is not given.
UNSET = {
    "dystruct": {"length_rule": "what suits --structure", "threshold": "even quotas", "weights": "the model's"},
    "block": {"passes": "one a token", "threshold": "even quotas"},
    "fixed": {"block_length": "the whole response", "steps": "one a token", "end_of_turn": "none"},
    "dream": {
        "steps": "as many as --budget", "alg_temp": "no draw, the most confident", "top_p": "all tokens",
        "top_k": "all tokens",
    },
    "fast": {"threshold": "0.9, unless --factor is given", "factor": "--threshold instead"},
    "adablock": {"delimiter_threshold": "0.3, with shifted logits 0.5", "delimiter_ids": "by delimiters"},
    "hierarchy": {"high": "nominated ones only", "remask": "none is doubted"},
}  # fmt: skip

Compared = Annotated[
    list[str] | None,
    typer.Option(
        "--decoder",
        help="A decoder to run, with settings after a colon, as in fast:threshold=0.8,block-length=16; once for each. "
        f"Default: {', '.join(COMPARED)}.",
        metavar="NAME",
        show_default=False,
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON line a decoder and nothing else.")]


def decoders() -> None:
    """List the decoders with their options and defaults."""
    from .. import DECODERS
    from ..dystruct import PRESETS

    for name, kind in DECODERS.items():
        opening = " ".join((sys.modules[kind.__module__].__doc__ or "").split("\n\n")[0].split())
        typer.echo(f"{name}: {opening.partition('. ')[0].rstrip('.')}.")
        presets = list(PRESETS) if name == "dystruct" else ["faithful"] if _is_faithful(kind) else []
        if presets:
            typer.echo(f"  --preset: {', '.join(presets)}")
        for setting, default in _settings(kind):
            if setting != "faithful":
                unset = f"unset ({UNSET[name][setting]})" if default is None else None
                typer.echo(f"  {_option(setting)}: {unset or ('off' if default is False else default)}")
        typer.echo("")
    typer.echo("Settings without dashes are given behind the decoder's name, as in compare, eval and a sweep's file:")
    typer.echo("dystruct:structure=sample,diagnostic_passes=1")


def compare(
    *,
    prompt: Annotated[str, typer.Argument(metavar="PROMPT", help="The text to answer.", show_default=False)],
    decoder: Compared = None,
    model: Model = "tiny",
    chat: Chat = False,
    prompt_format: PromptFormat = None,
    source: WeightedSource,
    tokens: options.Tokens,
    seed: options.Seed = 0,
    as_json: AsJson = False,
) -> None:
    """Decode a text for PROMPT with several decoders and show text, tokens, passes and time of each."""
    if not prompt.strip():
        raise UserError("The prompt is empty; give the text to answer.")
    check_unicode("The prompt", prompt)
    names = list(decoder or COMPARED)
    source.check_use(names)
    with status("starting"):
        from .. import Block, generate
        from ..ending import checked_stop
        from ..named import named_decoder

        chosen = [named_decoder(name) for name in names]
        stops = checked_stop(tokens.stop or ())
    backbone = load_prompted(source, model, prompt_format, chat)
    with memory_errors(1):
        generate(backbone, [prompt], Block(1), max_new_tokens=1)  # so that the first one is not timed while it warms up
    found: list[Generation] = []
    try:
        for number, (name, settings) in enumerate(zip(names, chosen, strict=True), start=1):
            try:
                with status(f"decoding with {name}, {number} of {len(names)}"), memory_errors(1):
                    (generation,) = generate(
                        backbone, [prompt], settings, max_new_tokens=tokens.max_new_tokens, budget=tokens.budget,
                        temperature=tokens.temperature, stop=stops, seed=seed, chat=chat,
                    )  # fmt: skip
            except UserError as error:
                raise UserError(f"{name}: {error}") from error
            found.append(generation)
            if as_json:
                typer.echo(json.dumps(_figures(name, generation)))
    finally:  # what ends one decoder takes nothing from those before it
        if found and not as_json:
            caption = f"model {backbone.name} · temperature {tokens.temperature:g} · seed {seed}"
            _show(caption, names[: len(found)], found)


def _figures(name: str, generation: Generation) -> dict[str, Any]:
    return {
        "decoder": name,
        "text": generation.text,
        "useful_tokens": generation.useful_tokens,
        "wasted_tokens": generation.wasted_tokens,
        "forward_passes": generation.forward_passes,
        "seconds": generation.seconds,
        "stop_reason": generation.stop_reason,
        "settings": generation.settings,
    }


def _show(caption: str, names: list[str], generations: list[Generation]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from ..wording import literal

    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=120)
    table = Table(show_lines=True, title=Text(caption), title_justify="left")
    table.add_column("decoder", style="bold", overflow="fold", max_width=24)
    for heading in ("tokens", "passes", "seconds"):
        table.add_column(heading, justify="right")
    table.add_column("ended")
    table.add_column("text", overflow="fold", ratio=1)
    for name, generation in zip(names, generations, strict=True):
        a_setting_a_line = Text(name.replace(":", "\n").replace(",", "\n"))
        table.add_row(
            a_setting_a_line, str(generation.useful_tokens), str(generation.forward_passes),
            f"{generation.seconds:.2f}", generation.stop_reason, Text(literal(generation.text)),
        )  # fmt: skip
    console.print(table)


def _is_faithful(kind: Any) -> bool:
    return any(setting.name == "faithful" for setting in fields(kind))


def _settings(kind: Any, within: str = "") -> Iterator[tuple[str, Any]]:
    """The names and defaults of a decoder's settings, and of those within them."""
    for setting in fields(kind):
        if is_dataclass(setting.default):
            yield from _settings(setting.default, f"{setting.name}.")
        else:
            yield within + setting.name, setting.default


def _option(setting: str) -> str:
    """How a setting is given: by its option, or in Python and, most of them, behind the decoder's name."""
    from ..named import OPTIONS, WITHOUT_OPTION

    for option, name in OPTIONS.items():
        if name == setting:
            return option
    return setting if setting in WITHOUT_OPTION else f"{setting} (in Python)"
