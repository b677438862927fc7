"""Runs that share a task's items, put together as the one run that they are: the first 200 here, the next 300 there.

Knows summaries; neither tables nor folders.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace

from ..errors import UserError
from ..named import named_decoder
from .agreement import filled
from .comparison import common_items, comparable
from .settings import defaults_of
from .statistics import mean_of_parts
from .summary import RunSummary, TaskSummary

_Part = tuple[RunSummary, list[int]]  # a run, and the places of those that it is made of


def joined(runs: Sequence[RunSummary]) -> list[_Part]:
    """The runs, each with the places in `runs` of those that it is made of, in the order of the first of these.

    Complete runs that have the same name, settings and tasks are one where the items of one follow on those of another.
    A complete run whose items are a part of another's is left out. One that is not complete stays as it is.
    """
    groups: dict[str, list[_Part]] = {}
    for place, run in enumerate(runs):
        same = [place] if not run.complete else _same(run)
        groups.setdefault(json.dumps(same, sort_keys=True), []).append((run, [place]))
    found = [part for parts in groups.values() for part in _largest(_chained(parts))]
    return sorted(found, key=lambda part: min(part[1]))


def _same(run: RunSummary) -> list[object]:
    """What runs share that differ in their items only. A setting that is not on record has its default."""
    settings = run.settings
    with suppress(UserError):  # of a decoder of one's own
        settings = filled(settings, defaults_of(named_decoder(settings["decoder"])))
    run = replace(run, settings=settings)
    return [run.label, settings["draws"], sorted(run.tasks), comparable(run, (), "limit", "skip")]


def _chained(parts: Sequence[_Part]) -> list[_Part]:
    """Parts, with each put behind one at whose end it begins."""
    found: list[_Part] = []
    for run, places in sorted(parts, key=lambda part: [task.skip for task in part[0].tasks.values()]):
        for number, (before, of) in enumerate(found):
            if _on_same_items(before, run, lambda one, two: one.end == two.skip):
                found[number] = _together(before, run), [*of, *places]
                break
        else:
            found.append((run, places))
    return found


def _largest(parts: Sequence[_Part]) -> list[_Part]:
    """Parts without those whose items another one has all; two single runs on the same items both stay."""
    found: list[_Part] = []
    for run, places in sorted(parts, key=lambda part: (-sum(_counts(part[0])), len(part[1]))):
        holders = [
            other
            for other, _ in found
            if _on_same_items(other, run, lambda one, two: one.skip <= two.skip and two.end <= one.end)
        ]
        if not holders or (len(places) == 1 and all(_counts(other) == _counts(run) for other in holders)):
            found.append((run, places))
    return found


def _counts(run: RunSummary) -> list[int]:
    return [task.count for task in run.tasks.values()]


def _on_same_items(one: RunSummary, two: RunSummary, holds: Callable[[TaskSummary, TaskSummary], bool]) -> bool:
    """Whether two runs number the same items alike, and something holds of each of their tasks."""
    pairs = [(task, two.tasks[name]) for name, task in one.tasks.items()]
    return all(common_items(*pair) and holds(*pair) for pair in pairs)


def _together(one: RunSummary, two: RunSummary) -> RunSummary:
    """A run and the one whose items follow on its own."""
    settings = {name: value for name, value in two.settings.items() if name != "skip"}
    if "skip" in one.settings:
        settings["skip"] = one.settings["skip"]
    tasks = {name: _all_items(task, two.tasks[name]) for name, task in one.tasks.items()}
    return RunSummary(settings, [*one.environments, *two.environments], tasks)


def _all_items(one: TaskSummary, two: TaskSummary) -> TaskSummary:
    parts = (one, two)
    figures = dict.fromkeys(name for part in parts for name in part.figures)
    records = [sum(of for _, of in part.kinds.values()) for part in parts]
    passes = dict.fromkeys(name for part in parts for name in part.passes)
    kinds = {}
    for kind in sorted({*one.kinds, *two.kinds}):
        counts = [part.kinds.get(kind, (0, 0)) for part in parts]
        kinds[kind] = (sum(right for right, _ in counts), sum(of for _, of in counts))
    return replace(
        two,
        skip=one.skip,
        expected=one.expected + two.expected,
        count=one.count + two.count,
        figures={name: mean_of_parts([p.figures[name] for p in parts if name in p.figures]) for name in figures},
        passes={
            name: sum(n * part.passes.get(name, 0.0) for n, part in zip(records, parts, strict=True)) / sum(records)
            for name in sorted(passes)
        },
        kinds=kinds,
        stop_reasons=dict(sorted((Counter(one.stop_reasons) + Counter(two.stop_reasons)).items())),
        right={key: signs + two.right[key][two.skip :] for key, signs in one.right.items()},
    )
