"""What is on record of a run, as its folder has it (see `run_folder`): settings, attempts, items and traces.

Reads only, also what another process is writing at this moment: a line counts once it is complete. Knows nothing of
models, decoders and tasks. Keys of items are tuples of texts and numbers.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from ..errors import UserError
from ..json_lines import whole_lines
from ..kinds import is_whole
from ..plain import from_plain

FORMAT = "dystruct-run-1"
SUMMARY = "summary.json"  # what a run came to (see `summary`)
SAMPLES = "samples.jsonl"  # and every prompt, answer and score, where they were asked for
SCORES = "scores.json"  # in a run's folder: what the harness made of its items
KEY = ("task", "item", "seed", "draw")
Key = tuple[str, int, int, int]


def begun(folder: Path) -> bool:
    """Whether there is a run in the folder; False for a folder that there cannot be."""
    return os.path.exists(folder / "run.json")  # Path.exists raises for a name that is too long


def has_items(folder: Path) -> bool:
    """Whether a folder has a run's items, and not its summary alone."""
    return any(folder.glob("items*.jsonl"))


def read_run(folder: Path) -> dict[str, Any]:
    """The content of a folder's run.json. Raises UserError if it is none of ours."""
    path = folder / "run.json"
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if content["format"] != FORMAT:
            raise ValueError(f"its format is {content['format']!r}, not {FORMAT!r}")
        from_plain(dict[str, Any], content["settings"], "settings")
        from_plain(list[dict[str, Any]], content["environments"], "environments")
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        if isinstance(error, FileNotFoundError) and (folder / SUMMARY).exists() and not has_items(folder):
            raise UserError(
                f"The folder {str(folder)!r} has a run's summary alone, without its items; name the folder where the "
                f"run was made."
            ) from error
        raise UserError(
            f"{str(path)!r} is damaged or no record of a run ({error}); name the folder of a run."
        ) from error
    return content


def shorter(
    settings: Mapping[str, Any],
    items: Mapping[str, Sequence[Any]],
    told: Callable[[Mapping[str, Sequence[Any]]], Mapping[str, Any]],
    folder: Path,
) -> dict[str, Any] | None:
    """The settings of the same run with the limit that the one in the folder has; None unless that is lower.

    items: those of each task that are asked for now; told: what tells them in the settings.
    """
    if not begun(folder):
        return None
    held, asked = read_run(folder)["settings"].get("limit"), settings["limit"]
    if not is_whole(held) or held < 1 or (asked is not None and held >= asked):
        return None
    return {**settings, "limit": held, "tasks": told({task: found[:held] for task, found in items.items()})}


def read_items(folder: Path) -> list[dict[str, Any]]:
    """The complete lines of a folder's items, of all its parts, ordered by key. Raises UserError for damaged ones."""
    found = [line for path in sorted(folder.glob("items*.jsonl")) for line in item_lines(path.read_bytes(), path)[0]]
    found.sort(key=key_of)
    for one, next_one in pairwise(found):
        if key_of(one) == key_of(next_one):
            raise damaged(folder, f"{named(one)} is there twice")
    return found


def damaged(folder: Path, what: str) -> UserError:
    """The error of a folder whose records cannot be those of a run."""
    return UserError(f"The record in {str(folder)!r} is damaged ({what}); correct it or name another folder.")


def read_traces(folder: Path, keys: Collection[Key] | None = None) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Each item that has a trace, with it; of those with these keys, if any are given.

    Raises UserError for a trace file that is missing or too short.
    """
    for path in sorted(folder.glob("items*.jsonl")):
        traces = path.with_name(path.name.replace("items", "traces", 1))
        items = [item for item in item_lines(path.read_bytes(), path)[0] if item.get("trace")]
        items = [item for item in items if keys is None or key_of(item) in keys]
        if not items:
            continue
        try:
            with traces.open("rb") as file:
                for item in items:
                    start, length = item["trace"]
                    file.seek(start)
                    yield item, json.loads(file.read(length))
        except (OSError, ValueError, RecursionError) as error:
            raise UserError(f"{str(traces)!r} does not hold the traces of {path.name} ({error}); run again.") from error


def key_of(record: Mapping[str, Any]) -> Key:
    """What tells an item's record from all others of its run."""
    return tuple(record[name] for name in KEY)


def named(record: Mapping[str, Any]) -> str:
    """An item's key, in words."""
    return ", ".join(f"{name} {record[name]}" for name in KEY)


def item_lines(content: bytes, path: Path) -> tuple[list[dict[str, Any]], int]:
    """The complete lines of a file of items, and how many bytes they take. Raises UserError for damaged ones."""
    try:
        lines, length = whole_lines(content)
        for number, line in enumerate(lines, start=1):
            if not _is_record(line):
                raise ValueError(f"line {number}: it is no record of an item")
    except ValueError as error:
        raise UserError(f"{str(path)!r} is damaged ({error}); correct the line or name another folder.") from error
    return lines, length


def _is_record(line: Any) -> bool:
    """Whether a line has an item's key, and the place of its trace if it has one."""
    if not isinstance(line, dict) or not isinstance(line.get("task"), str):
        return False
    place = line.get("trace")
    numbers = [line.get(name) for name in KEY[1:]]
    if place is not None:
        if not isinstance(place, list) or len(place) != 2:
            return False
        numbers += place
    return all(is_whole(value) and 0 <= value < 1 << 63 for value in numbers)
