"""The form of an item's record: what every one has beside its key, and of which kind it is.

A record is of a decoded text, with its figures, or of a likelihood, which the harness asks for and which has none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_type_hints

from ..plain import from_plain
from .figures import Figures
from .run_record import damaged, named

LIKELIHOOD = "likelihood"  # the stop reason of such a record
_OF_WINDOWS = ("map_probability", "entropy", "log_probability")  # None together, where no window has a structure
MOST = 1e15  # no figure is larger, and sums of squares of such ones are still numbers


@dataclass(frozen=True)
class _Scored:
    """What was decoded, and what came of it; correct and value are None where it is not scored, or answers nothing."""

    kind: str
    correct: bool | None
    reason: str
    value: str | None
    text: str


@dataclass(frozen=True)
class _Likelihood:
    """A log likelihood in nats, and whether greedy decoding gives what it is of."""

    likelihood: float
    greedy: bool
    passes: dict[str, int]
    stop_reason: str


_SCORED = get_type_hints(_Scored)
_KINDS = {False: _SCORED | get_type_hints(Figures), True: _SCORED | get_type_hints(_Likelihood)}


def check_items(records: Sequence[Mapping[str, Any]], folder: Path) -> None:
    """Raise UserError that names the first record of a folder that has not the form of one, and what is wrong."""
    for record in records:
        try:
            _check(record)
        except ValueError as error:
            raise damaged(folder, f"{named(record)}: {error}") from error


def _check(record: Mapping[str, Any]) -> None:
    """Raise ValueError for what a record lacks, and for a value that is of another kind or no number."""
    likelihood = record.get("stop_reason") == LIKELIHOOD
    kinds = _KINDS[likelihood]
    for name, kind in kinds.items():
        if name not in record:
            raise ValueError(f"it lacks the key {name!r}")
        value = from_plain(kind, record[name], name)
        figures = value.values() if isinstance(value, dict) else [value]
        if name != LIKELIHOOD and any(
            isinstance(figure, int | float) and not abs(figure) <= MOST for figure in figures
        ):
            raise ValueError(f"{name} cannot be {str(record[name])[:40]}")
    if not likelihood and len({record[name] is None for name in _OF_WINDOWS}) > 1:
        raise ValueError(f"some of {', '.join(_OF_WINDOWS)} are there and some are not")
