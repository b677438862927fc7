"""What is made from single answers, tables and pictures: which runs belong together, and what was read for them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from . import structures, variation
from .answers import has_answers, read_answers
from .comparison import alike, described_model
from .pictures import as_png, uncertainty_picture, votes_picture
from .structures import rule_of, structure_tables
from .summary import RunSummary
from .table import Table
from .variation import variation_tables, vote_curves, way_of

Answers = dict[int, list[dict[str, Any]]]  # by the place of a run
_KindOf = Callable[[Mapping[str, Any]], str | None]
_Group = dict[str, dict[str, int]]  # kind -> task -> the place of the run
_Drawn = tuple[str, Table, Figure]  # a picture's name, to which the number of its table's is added, and that table
_Made = tuple[list[Table], list[_Drawn]]


@dataclass(frozen=True)
class Voted:
    """Tables, pictures as PNG files by their names, and the answers that both are made from."""

    tables: list[Table]
    pictures: dict[str, bytes]
    answers: Answers


def voted(places: Sequence[Sequence[Path]], runs: Sequence[RunSummary]) -> Voted:
    """MAP against sampled structures, and ways to vary an answer.

    places: of each run, where its parts lie.
    """
    here = {number: runs[number] for number, folders in enumerate(places) if has_answers(folders)}
    read: Answers = {}
    counted: Answers = {}
    tables: list[Table] = []
    figures: list[_Drawn] = []
    for kind_of, around, _, make in _MADE:
        for group in _groups(here, kind_of, around):
            numbers = {number for held in group.values() for number in held.values()}
            for number in numbers - read.keys():
                read[number] = read_answers(places[number], runs[number])
            found = {
                kind: [answer for task, number in held.items() for answer in read[number] if answer["task"] == task]
                for kind, held in group.items()
            }
            made, drawn = make(found, runs[min(numbers)])
            tables += made
            figures += drawn
            counted |= {number: read[number] for number in numbers if made}
    named = _numbered(tables)
    suffixes = {id(old): new.name.removeprefix(old.name) for old, new in zip(tables, named, strict=True)}
    pictures = {f"{name}{suffixes[id(table)]}.png": as_png(figure) for name, table, figure in figures}
    return Voted(named, pictures, counted)


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


def _structures(answers: Mapping[str, Sequence[Mapping[str, Any]]], run: RunSummary) -> _Made:
    """Those of runs that differ in their structure rule only, for each of their seeds."""
    told = f"{_described(run)}, temperature {run.settings['temperature']:g}"
    tables = [
        table for seed in run.settings["seeds"] for table in structure_tables(answers, seed, f"{told}, seed {seed}")
    ]
    scored = [(table, uncertainty_picture(table, _titled(run))) for table in tables if table.name == "uncertainty"]
    return tables, [(table.name, table, figure) for table, figure in scored if figure is not None]


def _variations(answers: Mapping[str, Sequence[Mapping[str, Any]]], run: RunSummary) -> _Made:
    """Those of runs that are MAP's but for the way in which they vary an answer."""
    tables, counted = variation_tables(answers, _described(run)), vote_curves(answers)
    return tables, [("votes", tables[0], votes_picture(counted, _titled(run)))] if counted else []


def _titled(run: RunSummary) -> str:
    """What a picture tells of its runs."""
    return f"{run.settings['model']['name']}, budget {run.settings['budget']}"


_MADE: tuple[tuple[_KindOf, tuple[str, ...], Callable[[Collection[str]], bool], Callable[..., _Made]], ...] = (
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
