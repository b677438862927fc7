"""Runs that share a task's items, put together as the one run that they are: the first 200 here, the next 300 there.

Knows summaries; neither tables nor folders.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace

from .comparison import common_items, comparable
from .statistics import mean_of_parts
from .summary import RunSummary, TaskSummary


def joined(runs: Sequence[RunSummary]) -> list[tuple[RunSummary, list[int]]]:
    """The runs, each with the places in `runs` of those that it is made of, in the order of the first of these.

    Runs that have the same name, settings and tasks are one where the items of one follow on those of another. One
    whose items are a part of another's is left out.
    """
    groups: dict[str, list[int]] = {}
    for place, run in enumerate(runs):
        same = [run.label, run.settings["draws"], sorted(run.tasks), comparable(run, (), "limit", "skip")]
        groups.setdefault(json.dumps(same, sort_keys=True), []).append(place)
    found: list[tuple[RunSummary, list[int]]] = []
    for places in groups.values():
        found += _joined(runs, places)
    return sorted(found, key=lambda each: min(each[1]))


def _joined(runs: Sequence[RunSummary], places: Sequence[int]) -> list[tuple[RunSummary, list[int]]]:
    """The same of runs that differ in their items only."""
    found: list[tuple[RunSummary, list[int]]] = []
    for place in sorted(places, key=lambda place: [(task.skip, -task.end) for task in runs[place].tasks.values()]):
        run = runs[place]
        for number, (before, of) in enumerate(found):
            if _all(before, run, lambda one, two: one.end == two.skip):
                found[number] = _together(before, run), [*of, place]
                break
            spans = [[(task.skip, task.end) for task in each.tasks.values()] for each in (before, run)]
            if _all(before, run, lambda one, two: one.skip <= two.skip and two.end <= one.end) and spans[0] != spans[1]:
                break
        else:
            found.append((run, [place]))
    return found


def _all(one: RunSummary, two: RunSummary, holds: Callable[[TaskSummary, TaskSummary], bool]) -> bool:
    """Whether something holds of each task of two runs, which is of the same items in both."""
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
