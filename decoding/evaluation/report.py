"""`dystruct tables`: finds runs, makes every table and plot that they are enough for, and writes them to a folder."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from dystruct.inference.plots import plot_accuracy

from ..errors import UserError
from ..files import save_text
from .pools import pooled
from .run_folder import make_folder
from .statistics import mean_of_means
from .structures import rule_of, structure_tables
from .summary import RunSummary, load_summary, scored_items
from .table import Table, contents
from .tables import all_tables, comparable, merged, ordered
from .variation import variation_tables, way_of


def find_runs(paths: Sequence[Path]) -> list[Path]:
    """The results among the paths and in all folders below them. Raises UserError for a path that holds none."""
    found: list[Path] = []
    for path in paths:
        if os.path.isdir(path):  # Path.is_dir raises for a name that is too long
            inside = sorted({file.parent for name in ("run.json", "summary.json") for file in path.rglob(name)})
        else:
            inside = [path] if os.path.exists(path) else []
        if not inside:
            raise UserError(
                f"There is no result of `dystruct eval` at {str(path)!r}; name a run's folder, or one above."
            )
        found += inside
    return list(dict.fromkeys(found))


def report(paths: Sequence[Path], out: Path, *, summaries: bool = False, complete: bool = False) -> list[Path]:
    """Make all tables from the results at `paths` and write them to `out`; the files written.

    Each table as NAME.md, NAME.tex and NAME.csv, all of them in tables.md; accuracy against passes as a plot of each
    task and of their mean. summaries: write each run's summary too, to RUN/summary.json, RUN being the name of its
    folder. complete: leave out runs that still have items to go. Raises UserError, before anything is written, where
    two runs are called so, or none is complete.
    """
    found = [(place, load_summary(place)) for place in find_runs(paths)]
    found = [(place, run) for place, run in found if run.complete or not complete]
    if not found:
        raise UserError("None of these runs is complete; leave out --complete, or let them be finished.")
    places, runs = [place for place, _ in found], [run for _, run in found]
    tables = [*all_tables(runs), *_structures(places, runs), *_variations(places, runs)]
    kept = _summary_paths(places, out) if summaries else []
    make_folder(out)
    for path, run in zip(kept, runs, strict=False):
        make_folder(path.parent)
        run.save(path)
    for table in tables:
        table.save(out)
    missing = [run.label for run in runs if not run.complete]
    note = f"\nNot complete when this was made: {', '.join(missing)}.\n" if missing else ""
    save_text(out / "tables.md", "# Results\n\n" + contents(tables) + note)
    written = [out / "tables.md", *(out / f"{t.name}.{ending}" for t in tables for ending in ("md", "tex", "csv"))]
    written += kept
    tasks = list(dict.fromkeys(task for run in runs for task in pooled(run)))
    for name, of in [*((task, [task]) for task in tasks), *([("mean", tasks)] if len(tasks) > 1 else [])]:
        figure = accuracy_plot(runs, of, name)
        if figure is not None:
            written.append(out / f"accuracy-{name}.png")
            figure.savefig(written[-1], dpi=150)
    return written


def _summary_paths(places: Sequence[Path], out: Path) -> list[Path]:
    """Where the summaries of runs go, each to a folder of its run's name."""
    names = [(place if place.is_dir() else place.parent).resolve().name for place in places]
    for name in names:
        if names.count(name) > 1:
            raise UserError(f"Two of the runs are called {name!r}, and their summaries would be one file; rename one.")
    return [out / name / "summary.json" for name in names]


def accuracy_plot(runs: Sequence[RunSummary], tasks: Sequence[str], title: str) -> Figure | None:
    """Accuracy against forward passes, means of tasks, a point a run that has them all, larger for a larger budget.

    With intervals of two standard errors. None for fewer than two runs.
    """
    passes, accuracy, bars, names, budgets = [], [], [], [], []
    for run in ordered(merged(runs)):
        found = pooled(run)
        figures = [found[task].figures if task in found else {} for task in tasks]
        value = mean_of_means([of.get("correct") for of in figures])
        if value is None:
            continue
        passes.append(sum(of["forward_passes"].value for of in figures) / len(figures))
        accuracy.append(value.value)
        bars.append([max(0.0, value.value - 2 * (value.error or 0)), min(1.0, value.value + 2 * (value.error or 0))])
        names.append(run.label)
        budgets.append(run.settings["budget"])
    if len(names) < 2:
        return None
    figure = Figure(figsize=(9.0, max(4.5, 0.28 * len(set(names)))), layout="constrained")
    axes = plot_accuracy(passes, accuracy, names, interval=bars, budgets=budgets, ax=figure.add_subplot())
    axes.set_title(title)
    return figure


_Held = dict[str, dict[str, tuple[Path, RunSummary]]]  # of a group of runs: kind -> task -> the run


def _structures(places: Sequence[Path], runs: Sequence[RunSummary]) -> list[Table]:
    """The tables of MAP against sampled structures, for every set of runs that differ in their structure rule only."""
    tables: list[Table] = []
    for group in _groups(places, runs, rule_of):
        [(_, run), *_] = next(iter(group.values())).values()
        for seed in run.settings["seeds"]:
            told = f"{_described(run)}, temperature {run.settings['temperature']:g}, seed {seed}"
            tables += structure_tables(_records(group), seed, told)
    return _numbered(tables)


def _variations(places: Sequence[Path], runs: Sequence[RunSummary]) -> list[Table]:
    """The tables of ways to vary an answer, for every set of runs that are MAP's but for the way."""
    tables: list[Table] = []
    for group in _groups(places, runs, way_of, "temperature", "seeds"):
        [(_, run), *_] = next(iter(group.values())).values()
        tables += variation_tables(_records(group), _described(run))
    return _numbered(tables)


def _groups(
    places: Sequence[Path],
    runs: Sequence[RunSummary],
    kind_of: Callable[[Mapping[str, Any]], str | None],
    *around: str,
) -> list[_Held]:
    """Runs with their items that are alike but for their structure rule and settings around it; by kind and task.

    Of several of one kind and task the one with the most answers an item, of these the first.
    """
    groups: dict[str, _Held] = {}
    for place, run in zip(places, runs, strict=True):
        kind = kind_of(run.settings)
        if kind is not None and place.is_dir() and any(place.glob("items*.jsonl")):
            group = groups.setdefault(json.dumps(comparable(run, ("structure",), *around), sort_keys=True), {})
            held = group.setdefault(kind, {})
            for task in run.tasks:
                if task not in held or _answers(run) > _answers(held[task][1]):
                    held[task] = place, run
    return list(groups.values())


def _answers(run: RunSummary) -> int:
    return run.settings["draws"] * len(run.settings["seeds"])


def _described(run: RunSummary) -> str:
    """What a table tells of its runs: settings of the decoder that are not the default, but for the structure rule."""
    name, _, settings = str(run.settings["decoder"]).partition(":")
    shared = [setting for setting in settings.split(",") if setting and not setting.startswith("structure=")]
    return f"{', '.join([name, *shared])}, budget {run.settings['budget']}"


def _records(group: _Held) -> dict[str, list[dict[str, Any]]]:
    """The records of each kind, each task's from its run's folder."""
    read = {place: scored_items(place) for held in group.values() for place, _ in held.values()}
    return {
        kind: [record for task, (place, _) in held.items() for record in read[place] if record["task"] == task]
        for kind, held in group.items()
    }


def _numbered(tables: Sequence[Table]) -> list[Table]:
    """The tables, a number behind the name of the second and each further one of a name."""
    seen: Counter[str] = Counter()
    found = []
    for table in tables:
        seen[table.name] += 1
        found.append(table if seen[table.name] == 1 else replace(table, name=f"{table.name}-{seen[table.name]}"))
    return found
