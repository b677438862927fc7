"""A run's scored answers without their texts: what votes, agreement and scores of doubt are worked out from.

They are read from a run's items, or from the answers.csv that is kept beside its summary; both give the same.
"""

from __future__ import annotations

import csv
import hashlib
import io
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..files import save_text
from .item_record import LIKELIHOOD, MOST
from .run_record import KEY, SUMMARY, damaged, has_items, key_of
from .summary import RunSummary, scored_items

ANSWERS = "answers.csv"
_COUNTS, _FIGURES = ("useful_tokens", "forward_passes"), ("confidence", "entropy", "map_probability")
_COLUMNS = (*KEY, "correct", "value", *_COUNTS, *_FIGURES)
_DIGITS = 9  # significant ones of a figure
_HEX = 8  # of a value's hash: among 16 answers to one item two values share one with a probability of 3e-8


def has_answers(places: Sequence[Path]) -> bool:
    """Whether at all places of a run there are its items, or the answers that were kept of them."""
    folders = [_folder(place) for place in places]
    return all(folder is not None and (has_items(folder) or (folder / ANSWERS).exists()) for folder in folders)


def read_answers(places: Sequence[Path], run: RunSummary) -> list[dict[str, Any]]:
    """The answers of a run whose parts lie at `places` that its summary counts, ordered by task, item, seed and draw.

    Each has its task, item, seed and draw, whether it is correct, a hash of its value (None where it has none),
    useful_tokens and forward_passes, and, of an item's first draw, confidence, entropy and map_probability (or None).
    Raises UserError for damaged ones, and where those that the summary counts are not there or came out otherwise.
    """
    folders = [folder for place in places if (folder := _folder(place)) is not None]
    found = {key_of(answer): answer for folder in folders for answer in _read(folder)}
    counted = _counted(run)
    if any(key not in found or found[key]["correct"] != correct for key, correct in counted.items()):
        kept = next((folder for folder in folders if not has_items(folder)), folders[0])
        raise damaged(kept, f"{ANSWERS}: it has not the answers that {SUMMARY} counts")
    return [found[key] for key in sorted(counted)]


def save_answers(path: Path, answers: Sequence[Mapping[str, Any]]) -> None:
    """Write answers to a file, as `ANSWERS` beside the summary of their run."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(_COLUMNS)
    for answer in answers:
        row = {**answer, "correct": int(answer["correct"])}
        writer.writerow(["" if row[name] is None else row[name] for name in _COLUMNS])
    save_text(path, text.getvalue())


def _folder(place: Path) -> Path | None:
    """The folder of a run's place, for which its summary's file stands, too; None of a file of another name."""
    if os.path.isdir(place):
        return place
    return place.parent if place.name == SUMMARY else None


def _read(folder: Path) -> list[dict[str, Any]]:
    if has_items(folder):
        return [_answer(record) for record in scored_items(folder) if record["stop_reason"] != LIKELIHOOD]
    try:
        text = (folder / ANSWERS).read_bytes().decode("utf-8")
        lines = list(csv.reader(io.StringIO(text, newline=""), strict=True))
        if not lines or tuple(lines[0]) != _COLUMNS:
            raise ValueError(f"its columns are not {', '.join(_COLUMNS)}")
        found = [_parsed(line, number) for number, line in enumerate(lines[1:], 2)]
        if len({key_of(answer) for answer in found}) < len(found):
            raise ValueError("an answer is there twice")
    except (OSError, ValueError, csv.Error) as error:
        raise damaged(folder, f"{ANSWERS}: {error}") from error
    return found


def _counted(run: RunSummary) -> dict[tuple[Any, ...], bool]:
    """Whether each scored answer of a run is right, by task, item, seed and draw; likelihoods are none."""
    return {
        (name, item, *map(int, stream.split("/"))): sign == "1"
        for name, task in run.tasks.items()
        if LIKELIHOOD not in task.stop_reasons
        for stream, signs in task.right.items()
        for item, sign in enumerate(signs)
        if sign in "01"
    }


def _answer(record: Mapping[str, Any]) -> dict[str, Any]:
    value = record["value"]
    figures = {name: _rounded(record[name]) if record["draw"] == 0 else None for name in _FIGURES}
    hashed = None if value is None else hashlib.sha256(str(value).encode()).hexdigest()[:_HEX]
    return {**{name: record[name] for name in (*KEY, "correct", *_COUNTS)}, "value": hashed, **figures}


def _parsed(line: Sequence[str], number: int) -> dict[str, Any]:
    try:
        held = dict(zip(_COLUMNS, line, strict=True))
        figures = {name: float(held[name]) if held[name] else None for name in _FIGURES}
        counts = {name: int(held[name]) for name in (*KEY[1:], *_COUNTS)}
        known = [value for value in (*figures.values(), *counts.values()) if value is not None]
        if not all(abs(value) <= MOST for value in known):
            raise ValueError("a number is none, or too large")
        if (figures["entropy"] is None) != (figures["map_probability"] is None):
            raise ValueError("of a window's figures one is there and one is not")
        correct = {"1": True, "0": False}[held["correct"]]
    except (ValueError, KeyError) as error:
        raise ValueError(f"line {number} is no answer") from error
    return {"task": held["task"], **counts, "correct": correct, "value": held["value"] or None, **figures}


def _rounded(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.{_DIGITS}g}")
