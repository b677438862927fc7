"""`dystruct show`: a recorded decoding, played on the terminal or made into a picture or a page.

It is a trace in a file of its own, or that of an item of an evaluation's run.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from ..errors import UserError
from ..files import check_file_target, save_text
from ..kinds import in_digits
from . import options
from .options import make_option

if TYPE_CHECKING:
    from ..trace import Generation

Item = Annotated[
    str | None,
    make_option(
        None,
        "--item",
        "Of the run whose folder is named: item N of a task, counted from 0, as in gsm8k:0.",
        metavar="TASK:N",
    ),
]
Seed = Annotated[
    int | None, make_option(None, "--seed", "With --item, where it has several: under this seed.", min=0, metavar="N")
]
Draw = Annotated[
    int | None, make_option(None, "--draw", "With --item, where it has several: this draw.", min=0, metavar="N")
]


def show(
    trace: options.Trace,
    item: Item = None,
    seed: Seed = None,
    draw: Draw = None,
    delay: options.Delay = None,
    svg: options.Svg = None,
    until: options.Until = None,
    width: options.Width = None,
    html: options.Html = None,
    beside: options.Beside = None,
) -> None:
    """Show a decoding that `generate --save`, `eval` or `sweep` has recorded, or make a picture or a page of it."""
    from ..wording import TokenTexts, is_inferred
    from .view import open_view, picture, replay

    for name, value, needed, target in (
        ("--until", until, "--svg", svg), ("--width", width, "--svg", svg), ("--beside", beside, "--html", html),
        ("--seed", seed, "--item", item), ("--draw", draw, "--item", item),
    ):  # fmt: skip
        if target is None and value is not None:
            raise UserError(f"{name} has no use without {needed}; leave it out.")
    if svg is not None and html is not None:
        raise UserError("--svg and --html exclude each other; give one of them.")
    if delay is not None and (svg is not None or html is not None):
        raise UserError(f"--delay has no use with {'--html' if svg is None else '--svg'}; leave it out.")
    delay = options.DELAY if delay is None else delay
    for target in (svg, html):
        if target is not None:
            check_file_target(target)
            if target.resolve() in {path.resolve() for path in (trace, beside) if path is not None}:
                raise UserError(f"{str(target)!r} is the trace that is shown; name another file to write.")
    generation = _read_trace(trace) if item is None else _read_item(trace, item, seed, draw)
    if svg is not None:
        save_text(svg, picture(generation, width=width or options.WIDTH, until=until))
        return
    if html is not None:
        try:
            generation.to_html(html, None if beside is None else _read_trace(beside))
        except ValueError as error:
            raise UserError(str(error)) from error
        return
    with open_view(TokenTexts.of(generation), is_inferred(generation.settings)) as view:
        replay(view, generation, delay if sys.stdout.isatty() else 0.0)


def _read_trace(trace: Path) -> Generation:
    """A trace whose parts fit together; UserError otherwise."""
    from ..trace import Generation

    if os.path.isfile(trace / "run.json"):  # Path.is_file raises for a name that is too long
        raise UserError(
            f"{str(trace)!r} is the folder of a run; name one of its items, as in --item gsm8k:0, or, "
            f"beside another, a trace saved with `generate --save`."
        )
    try:
        generation = Generation.load(trace)
    except OSError as error:
        raise UserError(f"The trace {str(trace)!r} cannot be read ({error.strerror}); check its name.") from error
    except ValueError as error:
        raise UserError(str(error)) from error
    return _checked(generation, f"The trace {str(trace)!r}", "save it again")


def _read_item(folder: Path, item: str, seed: int | None, draw: int | None) -> Generation:
    """The trace of an item of the run in a folder, whose parts fit together; UserError otherwise."""
    from ..evaluation.recorded import recorded

    task, sign, number = item.rpartition(":")
    if not (task and sign and number.isdecimal() and in_digits(number) and len(number) < 19):
        raise UserError(f"--item must be TASK:N with a number from 0, as in gsm8k:0, not {item!r}.")
    if not os.path.isdir(folder):
        raise UserError(f"--item needs the folder of a run, which {str(folder)!r} is not; name one, or leave it out.")
    generation = recorded(folder, task, int(number), seed=seed, draw=draw)
    return _checked(generation, f"The trace of {item} in {str(folder)!r}", "name another item")


def _checked(generation: Generation, named: str, remedy: str) -> Generation:
    from ..wording import summary
    from .view import picture

    try:
        generation.check()
    except ValueError as error:
        raise UserError(f"{named} does not fit together ({error}); {remedy}.") from error
    try:
        # Goes through every event, so that a damaged trace shows before anything is drawn.
        summary(generation)
        picture(generation, width=options.WIDTH, until=None)
    except (ValueError, TypeError, LookupError, AttributeError, AssertionError, OverflowError) as error:
        raise UserError(f"{named} does not fit together; {remedy}.") from error
    return generation
