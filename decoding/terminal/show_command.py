"""`dystruct show`: a recorded decoding, played on the terminal or made into a picture or a page."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import UserError
from ..files import check_file_target, save_text
from . import options

if TYPE_CHECKING:
    from ..trace import Generation


def show(
    trace: options.Trace,
    delay: options.Delay = None,
    svg: options.Svg = None,
    until: options.Until = None,
    width: options.Width = None,
    html: options.Html = None,
    beside: options.Beside = None,
) -> None:
    """Show a decoding that `dystruct generate --save` has recorded, or make a picture or a page of it."""
    from ..wording import TokenTexts, is_inferred
    from .view import open_view, picture, replay

    for name, value, needed, target in (
        ("--until", until, "--svg", svg), ("--width", width, "--svg", svg), ("--beside", beside, "--html", html),
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
    generation = _read_trace(trace)
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
    from ..wording import summary
    from .view import picture

    try:
        generation = Generation.load(trace)
    except OSError as error:
        raise UserError(f"The trace {str(trace)!r} cannot be read ({error.strerror}); check its name.") from error
    except ValueError as error:
        raise UserError(str(error)) from error
    try:
        generation.check()
    except ValueError as error:
        raise UserError(f"The trace {str(trace)!r} does not fit together ({error}); save it again.") from error
    try:
        # Goes through every event, so that a damaged trace shows before anything is drawn.
        summary(generation)
        picture(generation, width=options.WIDTH, until=None)
    except (ValueError, TypeError, LookupError, AttributeError, AssertionError, OverflowError) as error:
        raise UserError(f"The trace {str(trace)!r} does not fit together; save it again.") from error
    return generation
