"""The options that say which evidence weights DyStruct takes, for the commands that decode."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Annotated, Any

import typer

from ..errors import UserError
from .options import named_path

_PANEL = "Input"

Weights = Annotated[
    Path | None,
    typer.Option(
        "--weights",
        help="DyStruct's evidence weights, a file that `dystruct calibrate` wrote, in place of the model's own.",
        metavar="FILE",
        parser=named_path,
        rich_help_panel=_PANEL,
        show_default=False,
    ),
]
ForceWeights = Annotated[
    bool,
    typer.Option(
        "--force-weights",
        help="Take evidence weights though they were fitted on another model.",
        rich_help_panel=_PANEL,
        show_default=False,
    ),
]


def weights_given(decoders: Collection[str], weights: Path | None, force_weights: bool) -> dict[str, Any]:
    """What `load_model` is to be told of them. Raises UserError if none of the named decoders takes any."""
    given: dict[str, Any] = {} if weights is None else {"weights": weights}
    if force_weights:
        given["force_weights"] = True
    for name in given:
        if "dystruct" not in decoders:
            raise UserError(f"--{name.replace('_', '-')} has no use without --decoder dystruct; leave it out.")
    return given
