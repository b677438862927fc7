"""Runs that share a task's items, put together as the one run that they are: the first 200 here, the next 300 there.

Knows summaries; neither tables nor folders.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from .agreement import filled
from .comparison import common_items, comparable
from .settings import decoder_kind, defaults_of
from .statistics import mean_of_parts
from .summary import RunSummary, TaskSummary

_Part = tuple[RunSummary, list[int]]  # a run, and the places of those that it is made of


def joined(runs: Sequence[RunSummary]) -> list[_Part]:
    """The runs, each with the places in `runs` of those that it is made of, in the order of the first of these.

    Complete runs that have the same name, settings and tasks are one where the items of one follow on those of another.
    A complete run whose items are a part of another's is left out. One that is not complete stays as it is. A setting
    of a decoder that is not on record is put there with its default.
    """
    groups: dict[str, list[_Part]] = {}
    for place, run in enumerate(map(_with_defaults, runs)):
        same = comparable(run, (), "limit", "skip")
        key = [run.label, run.settings["draws"], sorted(run.tasks), same] if run.complete else [place]
        groups.setdefault(json.dumps(key, sort_keys=True), []).append((run, [place]))
    found = [part for parts in groups.values() for part in _largest(_chained(parts))]
    return sorted(found, key=lambda part: min(part[1]))


def holds(one: TaskSummary, two: TaskSummary) -> bool:
    """Whether one run has all items of a task that another one has."""
    return common_items(one, two) > 0 and one.skip <= two.skip and two.end <= one.end


def _follows(one: TaskSummary, two: TaskSummary) -> bool:
    return common_items(one, two) > 0 and one.end == two.skip


def _with_defaults(run: RunSummary) -> RunSummary:
    kind = decoder_kind(run.settings)
    return run if kind is None else replace(run, settings=filled(run.settings, defaults_of(kind())))


def _chained(parts: Sequence[_Part]) -> list[_Part]:
    """Parts, with each put behind one at whose end it begins, longer ones first."""
    found: list[_Part] = []
    for run, places in sorted(parts, key=lambda part: [(task.skip, -task.end) for task in part[0].tasks.values()]):
        for number, (before, of) in enumerate(found):
            if all(_follows(task, run.tasks[name]) for name, task in before.tasks.items()):
                found[number] = _together(before, run), [*of, *places]
                break
        else:
            found.append((run, places))
    return found


def _largest(parts: Sequence[_Part]) -> list[_Part]:
    """Parts without those whose items another one has all; two single runs on the same items both stay."""
    found: list[_Part] = []
    for run, places in sorted(parts, key=lambda part: (-sum(_counts(part[0])), len(part[1]))):
        above = [of for of, _ in found if all(holds(task, run.tasks[name]) for name, task in of.tasks.items())]
        if not above or (len(places) == 1 and all(_counts(of) == _counts(run) for of in above)):
            found.append((run, places))
    return found


def _counts(run: RunSummary) -> list[int]:
    return [task.count for task in run.tasks.values()]


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
