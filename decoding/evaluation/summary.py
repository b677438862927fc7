"""What a run came to, task by task: means with standard errors, which items were right, and the settings.

A summary is made from a run's folder and saved as one small JSON file, from which the tables can be made as well.
Means are over items: under several seeds or draws an item counts with the mean of its records, so that standard errors
are not made small by asking the same item twice.
"""

from __future__ import annotations

import json
import math
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ..errors import UserError
from ..files import save_json
from ..plain import as_plain, from_plain
from .item_record import MOST, check_items
from .run_record import SCORES, SUMMARY, damaged, has_items, read_items, read_run
from .settings import check_described
from .statistics import Mean, mean
from .tasks import DOMAINS, chain, items
from .tasks import digest as digest_of

FORMAT = "dystruct-summary-1"
FIGURES = (
    "correct", "useful_tokens", "wasted_tokens", "windows", "blocks", "forward_passes", "seconds", "latency", "empty",
    "repetition", "confidence", "map_probability", "entropy", "log_probability",
)  # fmt: skip


@dataclass(frozen=True)
class TaskSummary:
    """A task's items under a run's settings.

    skip: how many of the task's first items the run left out; expected: the items behind them that it was asked for;
    count: those with records. figures: by name, over the items that have it. passes: mean forward passes by kind.
    kinds: records right and in all by kind of item; stop_reasons: records. right: by "seed/draw", a sign for each of
    the task's items up to `end`: 1 right, 0 wrong, ? scored by nothing that says which, - left out, not on record or
    not scored. digest: of these items; chain: of the embedded tasks', one after another (see `tasks.chain`).
    """

    expected: int
    count: int
    figures: dict[str, Mean]
    passes: dict[str, float]
    kinds: dict[str, tuple[int, int]]
    stop_reasons: dict[str, int]
    right: dict[str, str]
    digest: str = ""
    chain: str = ""
    skip: int = 0

    @property
    def end(self) -> int:
        """How many items there are, with those that were left out."""
        return self.skip + self.expected

    @property
    def accuracy(self) -> Mean | None:
        """Right answers a record, None where none is scored."""
        return self.figures.get("correct")


@dataclass(frozen=True)
class RunSummary:
    """A run: its settings, the attempts that it took, and its tasks."""

    settings: dict[str, Any]
    environments: list[dict[str, Any]]
    tasks: dict[str, TaskSummary]

    @property
    def label(self) -> str:
        """What tables call it."""
        return str(self.settings.get("name") or self.settings["decoder"])

    @property
    def complete(self) -> bool:
        """Whether every item that was asked for is on record, and scored."""
        return all(
            task.count == task.expected and not any("-" in signs[task.skip :] for signs in task.right.values())
            for task in self.tasks.values()
        )

    def plain(self) -> dict[str, Any]:
        """What a file of it holds."""
        return {"format": FORMAT, **as_plain(self)}

    def save(self, path: Path) -> None:
        """Write it as JSON, whole or not at all."""
        save_json(path, self.plain())


@dataclass(frozen=True)
class _Scored:
    """What the harness made of an item: whether it is right (None: no metric says so), its answer, its raw values."""

    correct: bool | None
    value: str | None
    metrics: dict[str, Any]


def load_summary(path: Path) -> RunSummary:
    """The summary of a run's folder, worked out from its items if they are there, or the one that a file holds.

    A folder's summary.json beside its items stands for the folder: it may be of fewer items than are there by now.
    Raises UserError for what is neither.
    """
    folder = path.parent if path.name == SUMMARY else path
    if os.path.isdir(folder) and has_items(folder):  # Path.is_dir raises for a name that is too long
        return summarise(folder)
    if os.path.isdir(path):
        path = path / SUMMARY
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if content.pop("format") != FORMAT:
            raise ValueError(f"its format is not {FORMAT!r}")
        found: RunSummary = from_plain(RunSummary, content)
        check_described(found.settings)
        for name, task in found.tasks.items():
            _check_task(name, task, found.settings)
        return found
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise UserError(f"{str(path)!r} is no result of `dystruct eval` ({error}); name a run's folder.") from error


def _check_task(name: str, task: TaskSummary, settings: Mapping[str, Any]) -> None:
    """Raise ValueError for numbers and signs of a task that do not go together. settings: the run's."""
    if min(task.skip, task.expected, task.count) < 0 or task.count > task.expected:
        raise ValueError(f"task {name} cannot leave out {task.skip} and have {task.count} of {task.expected} items")
    if task.skip != settings.get("skip", 0):
        raise ValueError(f"task {name} leaves out {task.skip} items, the run {settings.get('skip', 0)}")
    if set(task.right) != set(_streams(settings)):
        raise ValueError(f"task {name} has not the seeds and draws of the run")
    for stream, signs in task.right.items():
        if len(signs) != task.end or not set(signs) <= set("01?-"):
            raise ValueError(f"of task {name} {stream} is not {task.end} signs of 0, 1, ? and -")
    records = sum(of for _, of in task.kinds.values())
    counts = [*task.stop_reasons.values(), *(n for right, of in task.kinds.values() for n in (right, of - right))]
    if min(counts, default=0) < 0 or records < task.count or (task.passes and not records):
        raise ValueError(f"task {name} has {records} records of {task.count} items")
    for figure, of in task.figures.items():
        known = (of.value, of.error or 0.0)
        if not all(abs(value) <= MOST for value in known) or known[1] < 0 or not 1 <= of.count <= task.count:
            raise ValueError(f"of task {name} {figure} is no mean of its items")
    if not all(0 <= value <= MOST for value in task.passes.values()):
        raise ValueError(f"task {name} cannot have such passes")
    if task.accuracy is not None and not 0 <= task.accuracy.value <= 1:
        raise ValueError(f"of task {name} no share is right")


def _streams(settings: Mapping[str, Any]) -> list[str]:
    """What tells the answers to an item from each other: its seed and draw."""
    return [f"{seed}/{draw}" for seed in settings["seeds"] for draw in range(settings["draws"])]


def save_summary(folder: Path) -> RunSummary:
    """The summary of a run's folder, written to its summary.json unless that is what stands there.

    Raises UserError as `summarise` does.
    """
    summary, path = summarise(folder), folder / SUMMARY
    try:
        held = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        held = None
    if held != summary.plain():
        summary.save(path)
    return summary


def summarise(folder: Path) -> RunSummary:
    """The summary of a run's folder. Raises UserError for what is none, and for damaged records."""
    run = read_run(folder)
    settings, tasks = run["settings"], {}
    try:
        check_described(settings)
        records = scored_items(folder)
        for record in records:
            described = settings["tasks"].get(record["task"])
            end = 0 if described is None else described.get("items", math.inf)
            if not settings.get("skip", 0) <= record["item"] < (math.inf if end is None else end):
                raise ValueError(f"the run has no task {record['task']}, item {record['item']}")
        for task, described in settings["tasks"].items():
            found = [record for record in records if record["task"] == task]
            summary = summarise_task(found, described.get("items"), settings, described.get("digest", ""))
            tasks[task] = replace(summary, chain=_chain(task, settings, summary.digest))
    except UserError:
        raise
    except KeyError as error:
        raise damaged(folder, f"its settings have no {error}") from error
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise damaged(folder, str(error)) from error
    return RunSummary(settings, run["environments"], tasks)


def _chain(task: str, settings: Mapping[str, Any], digest: str) -> str:
    """The chain of an embedded task's items; empty of other tasks, and where the items have changed since."""
    if task not in DOMAINS:
        return ""
    with suppress(UserError):  # of a split, or a limit, that they have not
        asked = items(task, settings["split"], settings["limit"])
        return chain(asked) if digest_of(asked) == digest else ""
    return ""


def scored_items(folder: Path) -> list[dict[str, Any]]:
    """A run's records, with what the harness made of them where it scored them (`scores.json`).

    Raises UserError for records that have not the form of one.
    """
    records, path = read_items(folder), folder / SCORES
    if path.exists():
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            scores = from_plain(dict[str, dict[str, _Scored]], content, SCORES)
        except (OSError, ValueError, RecursionError) as error:
            raise damaged(folder, str(error)) from error
        for record in records:
            found = scores.get(record["task"], {}).get(str(record["item"]))
            record |= {} if found is None else vars(found)
    check_items(records, folder)
    return records


def summarise_task(
    records: Sequence[Mapping[str, Any]], expected: int | None, settings: Mapping[str, Any], digest: str = ""
) -> TaskSummary:
    """The summary of one task's records. expected: its items, as far as the run knew how many there are."""
    by_item: dict[int, list[Mapping[str, Any]]] = {}
    for record in records:
        by_item.setdefault(record["item"], []).append(record)
    skip = settings.get("skip", 0)
    expected = len(by_item) if expected is None else expected - skip
    figures = {}
    for name in FIGURES:
        values = [_values(group, name) for group in by_item.values()]
        known = [sum(found) / len(found) for found in values if found]
        if known:
            figures[name] = mean(known)
    kinds: dict[str, tuple[int, int]] = {}
    for kind, of in sorted(Counter(record["kind"] for record in records).items()):
        kinds[kind] = (sum(bool(r["correct"]) for r in records if r["kind"] == kind), of)
    passes = sorted({name for record in records for name in record["passes"]})
    signs = {(f"{r['seed']}/{r['draw']}", r["item"]): _sign(r) for r in records}
    right = {
        stream: "".join(signs.get((stream, item), "-") for item in range(skip + expected))
        for stream in _streams(settings)
    }
    return TaskSummary(
        expected=expected,
        count=len(by_item),
        figures=figures,
        passes={name: sum(r["passes"].get(name, 0) for r in records) / len(records) for name in passes},
        kinds=kinds,
        stop_reasons=dict(sorted(Counter(record["stop_reason"] for record in records).items())),
        right=right,
        digest=digest,
        skip=skip,
    )


def _values(group: Sequence[Mapping[str, Any]], name: str) -> list[float]:
    return [float(record[name]) for record in group if record.get(name) is not None]


def _sign(record: Mapping[str, Any]) -> str:
    if record["correct"] is None:
        return "?" if "metrics" in record else "-"  # the harness has scored it, or has not yet
    return "1" if record["correct"] else "0"
