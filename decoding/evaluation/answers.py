"""A run's answers without their texts: what votes, agreement and scores of doubt are worked out from, in a small table.

They are read from a run's items, or from the answers.csv that is kept beside its summary; both give the same.
"""

from __future__ import annotations

import csv
import hashlib
import io
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..files import save_text
from .run_folder import SUMMARY, damaged, key_of
from .summary import RunSummary, load_summary, scored_items

ANSWERS = "answers.csv"
_KEY, _FIGURES = ("task", "item", "seed", "draw"), ("confidence", "entropy", "map_probability")
_COLUMNS = (*_KEY, "correct", "value", "useful_tokens", "forward_passes", *_FIGURES)
_DIGITS = 9  # significant ones of a figure
_HEX = 8  # of a value's hash: among 16 answers to one item two values share one with a probability of 3e-8


def has_answers(places: Sequence[Path]) -> bool:
    """Whether at all places of a run there are its items, or the answers that were kept of them."""
    folders = [_folder(place) for place in places]
    return all(any(folder.glob("items*.jsonl")) or (folder / ANSWERS).exists() for folder in folders)


def read_answers(places: Sequence[Path]) -> list[dict[str, Any]]:
    """The answers of a run whose parts lie at `places`, ordered by task, item, seed and draw.

    Each has its task, item, seed and draw, whether it is correct (or None), a hash of its value (None where it has
    none), useful_tokens and forward_passes, and, of an item's first draw, confidence, entropy and map_probability (or
    None). Raises UserError for damaged ones, and for those kept that are not the ones which the summary beside counts.
    """
    return sorted((answer for place in places for answer in _read(_folder(place))), key=key_of)


def _read(folder: Path) -> list[dict[str, Any]]:
    if any(folder.glob("items*.jsonl")):
        return [_answer(record) for record in scored_items(folder) if "value" in record]  # likelihoods have none
    summary = load_summary(folder)
    try:
        lines = list(csv.reader(io.StringIO((folder / ANSWERS).read_text(encoding="utf-8")), strict=True))
        if not lines or tuple(lines[0]) != _COLUMNS:
            raise ValueError(f"its columns are not {', '.join(_COLUMNS)}")
        found = [_parsed(line, number) for number, line in enumerate(lines[1:], 2)]
        told = {key_of(answer): answer["correct"] for answer in found}
        if len(told) < len(found):
            raise ValueError("an answer is there twice")
        if {key: correct for key, correct in told.items() if correct is not None} != _right(summary):
            raise ValueError(f"they are not those that {SUMMARY} counts")
    except (OSError, ValueError, csv.Error) as error:
        raise damaged(folder, f"{ANSWERS}: {error}") from error
    return found


def _right(summary: RunSummary) -> dict[tuple[Any, ...], bool]:
    """Whether each scored answer is right, by task, item, seed and draw."""
    return {
        (name, item, *map(int, stream.split("/"))): sign == "1"
        for name, task in summary.tasks.items()
        for stream, signs in task.right.items()
        for item, sign in enumerate(signs)
        if sign in "01"
    }


def save_answers(path: Path, answers: Sequence[Mapping[str, Any]]) -> None:
    """Write answers to a file, as `ANSWERS` beside the summary of their run."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(_COLUMNS)
    for answer in answers:
        row = {**answer, "correct": _sign(answer["correct"])}
        writer.writerow(["" if row[name] is None else row[name] for name in _COLUMNS])
    save_text(path, text.getvalue())


def _folder(place: Path) -> Path:
    return place if place.is_dir() else place.parent  # a summary's file stands for its folder


def _answer(record: Mapping[str, Any]) -> dict[str, Any]:
    value = record["value"]
    figures = {name: _rounded(record[name]) if record["draw"] == 0 else None for name in _FIGURES}
    hashed = None if value is None else hashlib.sha256(str(value).encode()).hexdigest()[:_HEX]
    kept = {name: record[name] for name in (*_KEY, "correct", "useful_tokens", "forward_passes")}
    return {**kept, "value": hashed, **figures}


def _parsed(line: Sequence[str], number: int) -> dict[str, Any]:
    try:
        held = dict(zip(_COLUMNS, line, strict=True))
        figures = {name: float(held[name]) if held[name] else None for name in _FIGURES}
        if not all(value is None or math.isfinite(value) for value in figures.values()):
            raise ValueError("a figure is no number")
        return {
            "task": held["task"],
            **{name: int(held[name]) for name in ("item", "seed", "draw", "useful_tokens", "forward_passes")},
            "correct": {"1": True, "0": False, "": None}[held["correct"]],
            "value": held["value"] or None,
            **figures,
        }
    except (ValueError, KeyError) as error:
        raise ValueError(f"line {number} is no answer") from error


def _rounded(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.{_DIGITS}g}")


def _sign(correct: bool | None) -> str:
    return "" if correct is None else str(int(correct))
