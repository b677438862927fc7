"""What the command line says on standard error: of errors and warnings one sentence each, and that it is at work."""

from __future__ import annotations

import functools
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import typer

from ..errors import UserError


def complain(sentence: str) -> None:
    """Print a sentence on standard error."""
    typer.echo(f"dystruct: {sentence}", err=True)


def reporting(command: Callable[..., None]) -> Callable[..., None]:
    """Ends a command whose user got something wrong with one sentence and exit code 2."""

    @functools.wraps(command)
    def reported(*args: Any, **given: Any) -> None:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("default", UserWarning)
                warnings.showwarning = lambda message, *where: complain(f"warning: {message}")
                command(*args, **given)
        except UserError as error:
            sys.stdout.flush()
            complain(str(error))
            raise typer.Exit(2) from error

    return reported


@contextmanager
def memory_errors(
    count: int, alone: str = "lower --max-new-tokens, or give a smaller --dtype or a --device-map"
) -> Iterator[None]:
    """Ends with one sentence where the device's memory is too small to decode `count` prompts together.

    alone: what can be done where even one prompt is too much.
    """
    from ..backbone.placing import out_of_memory

    try:
        yield
    except UserError:
        raise
    except Exception as error:
        if not out_of_memory(error):
            raise
        what, remedy = f"{count} prompts at once", "lower --batch-size"
        if count == 1:
            what, remedy = "this prompt", alone
        raise UserError(f"The device's memory is too small for {what}; {remedy}.") from error


def status(text: str) -> AbstractContextManager[object]:
    """A sign of life on a terminal while something long is going on."""
    from rich.console import Console

    console = Console(stderr=True)
    return console.status(text) if console.is_terminal else nullcontext()
