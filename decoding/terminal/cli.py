"""The command line: `dystruct generate`, `show`, `decoders`, `compare`, `calibrate`, `accuracy`, `train`, `eval`, …

Puts the commands together; each has a module of its own. torch and transformers are imported by the commands that
need them, so that `--help` comes at once. What a user got wrong ends as one sentence on standard error and exit
code 2.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from importlib.metadata import version as installed_version
from typing import Annotated, Any, NoReturn

import typer

from .compare_commands import compare, decoders
from .eval_command import evaluate
from .generate_command import generate
from .measure_commands import accuracy, calibrate
from .reporting import complain, reporting
from .show_command import show
from .signatures import spread
from .sweep_command import sweep
from .tables_command import tables
from .train_command import train

app = typer.Typer(
    name="dystruct",
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Dynamically structured decoding of masked diffusion language models.",
)


_RESUMING = ("eval", "sweep", "calibrate")


def main(arguments: list[str] | None = None) -> NoReturn:
    """Run the command line and exit: 0 when done, 2 when the user has to correct something, 130 when interrupted."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # what a terminal cannot show is a "?", no traceback
    usage_error: type[Any] = typer.BadParameter.__bases__[0]
    try:
        status = app(args=arguments, prog_name="dystruct", standalone_mode=False)
        sys.stdout.flush()
    except usage_error as error:
        where = error.ctx.command_path if error.ctx else "dystruct"
        complain(f"{error.format_message().rstrip('.')}; see `{where} --help`.")
        status = 2
    except (KeyboardInterrupt, typer.Abort):
        status = 130
    except BrokenPipeError:
        # Nobody reads on: what is still buffered goes nowhere, instead of failing again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        status = 141
    if status == 130:
        command = next(iter(sys.argv[1:] if arguments is None else arguments), None)
        complain("interrupted; the same command goes on where it was." if command in _RESUMING else "interrupted.")
    sys.exit(status or 0)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"dystruct {installed_version('dystruct')}")
        raise typer.Exit()


@app.callback(invoke_without_command=True)
def _root(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    if context.invoked_subcommand is None:
        typer.echo(context.get_help(), nl=False)
        raise typer.Exit(2)


COMMANDS: dict[str, Callable[..., None]] = {
    "generate": generate,
    "show": show,
    "decoders": decoders,
    "compare": compare,
    "calibrate": calibrate,
    "accuracy": accuracy,
    "train": train,
    "eval": evaluate,
    "sweep": sweep,
    "tables": tables,
}
for name, command in COMMANDS.items():
    app.command(name)(reporting(spread(command)))
