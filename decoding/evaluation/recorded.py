"""The generation of an item of a run, from its trace on record: to be looked at, replayed, and made a page of."""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path
from typing import Any

from ..errors import UserError
from ..trace import Generation
from .item_record import LIKELIHOOD
from .run_record import damaged, key_of, named, read_items, read_run, read_traces

_SHOWN = 8  # numbers that a sentence lists


def recorded(
    folder: str | os.PathLike[str], task: str, item: int, *, seed: int | None = None, draw: int | None = None
) -> Generation:
    """The generation of an item of the run in a folder, with its trace.

    seed, draw: which of an item's generations, where it has several; of the harness's tasks draw is which of the item's
    requests. Raises UserError for a folder without a run, an item that is not on record or has no trace, a seed or a
    draw that is missing or not on record, and a trace that is damaged.
    """
    folder = Path(folder)
    settings, lines = read_run(folder)["settings"], read_items(folder)
    held = list(dict.fromkeys(line["task"] for line in lines))
    if task not in held:
        raise UserError(
            f"The run in {str(folder)!r} has no item of a task {task!r} on record; it has "
            f"{', '.join(held) or 'none of any yet'}."
        )
    lines = [line for line in lines if line["task"] == task]
    for name, value in (("item", item), ("seed", seed), ("draw", draw)):
        numbers = sorted({line[name] for line in lines})
        if value is None and len(numbers) > 1:
            raise UserError(
                f"Item {item} of {task} has several {name}s, {_told(numbers)}; give one ({name}=N, or --{name} N)."
            )
        if value is not None and value not in numbers:
            what = f"The run in {str(folder)!r}" if name == "item" else f"Item {item} of {task}"
            which = f"item {value} of {task}" if name == "item" else f"{name} {value}"
            raise UserError(f"{what} has no {which} on record; it has {_told(numbers)}.")
        lines = [line for line in lines if value in (None, line[name])]
    [line] = lines
    if not line.get("trace"):
        if line.get("stop_reason") == LIKELIHOOD:
            raise UserError(f"Item {item} of {task} is scored by a likelihood, for which no text is decoded.")
        remedy = "make it in another folder with them" if settings.get("traces") is False else "name another item"
        raise UserError(f"Item {item} of {task} in {str(folder)!r} was decoded without a trace; {remedy}.")
    return _generation(line, folder)


def _generation(line: dict[str, Any], folder: Path) -> Generation:
    [(_, trace)] = read_traces(folder, [key_of(line)])
    try:
        return Generation.of(trace)
    except ValueError as error:
        raise damaged(folder, f"the trace of {named(line)}: {error}") from error


def _told(numbers: Collection[int]) -> str:
    """Numbers in ascending order, in words."""
    least, most = min(numbers), max(numbers)
    if len(numbers) > 2 and most - least + 1 == len(numbers):
        return f"{least} to {most}"
    shown = ", ".join(map(str, sorted(numbers)[:_SHOWN]))
    return shown if len(numbers) <= _SHOWN else f"{shown}, … {most}"
