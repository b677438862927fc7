"""The tables that are made from single answers: which runs belong together in them, and what was read for them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from . import structures, variation
from .answers import has_answers, read_answers
from .comparison import alike, described_model
from .structures import rule_of, structure_tables
from .summary import RunSummary
from .table import Table
from .variation import variation_tables, way_of

Answers = dict[int, list[dict[str, Any]]]  # by the place of a run
_KindOf = Callable[[Mapping[str, Any]], str | None]
_Group = dict[str, dict[str, int]]  # kind -> task -> the place of the run


def voted_tables(places: Sequence[Sequence[Path]], runs: Sequence[RunSummary]) -> tuple[list[Table], Answers]:
    """The tables of MAP against sampled structures, and of ways to vary an answer; and the answers that they count.

    places: of each run, where its parts lie.
    """
    here = {number: runs[number] for number, folders in enumerate(places) if has_answers(folders)}
    read: Answers = {}
    counted: Answers = {}
    tables: list[Table] = []
    for kind_of, around, _, make in _MADE:
        for group in _groups(here, kind_of, around):
            numbers = {number for held in group.values() for number in held.values()}
            for number in numbers - read.keys():
                read[number] = read_answers(places[number], runs[number])
            found = {
                kind: [answer for task, number in held.items() for answer in read[number] if answer["task"] == task]
                for kind, held in group.items()
            }
            made = make(found, runs[min(numbers)])
            tables += made
            counted |= {number: read[number] for number in numbers if made}
    return _numbered(tables), counted


def without_answers(places: Sequence[Sequence[Path]], runs: Sequence[RunSummary]) -> list[str]:
    """What the runs are called that would have such tables, were their answers there."""
    known = {number: run for number, run in enumerate(runs) if any(task.count for task in run.tasks.values())}
    missed = {
        number
        for kind_of, around, enough, _ in _MADE
        for group in _groups(known, kind_of, around)
        if enough(group)
        for held in group.values()
        for number in held.values()
        if not has_answers(places[number])
    }
    return list(dict.fromkeys(runs[number].label for number in sorted(missed)))


def _count(run: RunSummary) -> int:
    return int(run.settings["draws"]) * len(run.settings["seeds"])


def _structures(answers: Mapping[str, Sequence[Mapping[str, Any]]], run: RunSummary) -> list[Table]:
    """Those of runs that differ in their structure rule only, for each of their seeds."""
    told = f"{_described(run)}, temperature {run.settings['temperature']:g}"
    return [
        table for seed in run.settings["seeds"] for table in structure_tables(answers, seed, f"{told}, seed {seed}")
    ]


def _variations(answers: Mapping[str, Sequence[Mapping[str, Any]]], run: RunSummary) -> list[Table]:
    """Those of runs that are MAP's but for the way in which they vary an answer."""
    return variation_tables(answers, _described(run))


_MADE: tuple[tuple[_KindOf, tuple[str, ...], Callable[[Collection[str]], bool], Callable[..., list[Table]]], ...] = (
    (rule_of, (), structures.enough, _structures),
    (way_of, ("temperature", "seeds"), variation.enough, _variations),
)


def _groups(runs: Mapping[int, RunSummary], kind_of: _KindOf, around: Sequence[str]) -> list[_Group]:
    """Runs that are alike but for their structure rule: by kind and task, the places of the runs.

    around: names of a run's own settings that may differ, too. Of several runs of one kind and task the one with the
    most answers an item, of these the first.
    """
    place_of = {id(run): number for number, run in runs.items()}
    groups: list[_Group] = []
    for group in alike([run for run in runs.values() if kind_of(run.settings) is not None], ("structure",), *around):
        groups.append({})
        for run in group:
            held = groups[-1].setdefault(str(kind_of(run.settings)), {})
            for task in run.tasks:
                if task not in held or _count(run) > _count(runs[held[task]]):
                    held[task] = place_of[id(run)]
    return groups


def _described(run: RunSummary) -> str:
    """What a table tells of its runs: the model, the decoder's settings but for the structure rule, and the budget."""
    name, _, settings = str(run.settings["decoder"]).partition(":")
    shared = [setting for setting in settings.split(",") if setting and not setting.startswith("structure=")]
    return f"{described_model(run)}, {', '.join([name, *shared])}, budget {run.settings['budget']}"


def _numbered(tables: Sequence[Table]) -> list[Table]:
    """The tables, a number behind the name of the second and each further one of a name."""
    seen: Counter[str] = Counter()
    found = []
    for table in tables:
        seen[table.name] += 1
        found.append(table if seen[table.name] == 1 else replace(table, name=f"{table.name}-{seen[table.name]}"))
    return found
