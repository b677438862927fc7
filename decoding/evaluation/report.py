"""`dystruct tables`: finds runs, makes every table and picture that they are enough for, and writes them down."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..errors import UserError
from ..files import check_file_target, save_bytes, save_text
from .against import against_table
from .comparison import alike, told_apart
from .joined import holds, joined
from .pictures import pictures
from .run_folder import SUMMARY, make_folder
from .structures import rule_of, structure_tables
from .summary import RunSummary, TaskSummary, load_summary, scored_items
from .table import ENDINGS, Table, contents
from .tables import all_tables
from .variation import variation_tables, way_of

CONTENTS, HEADING = "tables.md", "# Results\n\n"  # the file of all tables, and how it begins


def find_runs(paths: Sequence[Path], out: Path | None = None) -> list[Path]:
    """The results among the paths and in all folders below them, each once.

    out: a folder of tables. Summaries that were kept in it are copies of runs, and count only where it is named itself
    or something in it. Raises UserError for a path that holds no result.
    """
    found: dict[Path, Path] = {}
    for path in paths:
        if os.path.isdir(path):  # Path.is_dir raises for a name that is too long
            inside = sorted({file.parent for name in ("run.json", SUMMARY) for file in path.rglob(name)})
        else:
            inside = [path] if os.path.exists(path) else []
        if out is not None and out.resolve() not in (path.resolve(), *path.resolve().parents):
            inside = [place for place in inside if not _is_kept(place, out)]
        if not inside:
            raise UserError(
                f"There is no result of `dystruct eval` at {str(path)!r}; name a run's folder, or one above."
            )
        for place in inside:
            resolved = place.resolve()
            found.setdefault(resolved.parent if resolved.name == SUMMARY else resolved, place)
    return list(found.values())


def _is_kept(place: Path, out: Path) -> bool:
    """Whether a folder is one of those that `report` keeps summaries in."""
    return place.resolve().parent == out.resolve() and not (place / "run.json").exists()


def report(
    paths: Sequence[Path], out: Path, *, summaries: bool = False, complete: bool = False, against: str | None = None
) -> list[Path]:
    """Make all tables from the results at `paths` and write them to `out`; the files written.

    Each table as NAME.md, NAME.tex and NAME.csv, all of them in tables.md, and every picture (see `pictures`). What an
    earlier call wrote there and this one does not is removed. Runs that share a task's items count as one (see
    `joined`). summaries: write each run's summary too, to RUN/summary.json, RUN being the name of its folder. complete:
    leave out runs that still have items to go. against: the name of a run that each other one is compared with, in a
    table of its own. Raises UserError, before anything is written, where a file cannot be, two runs are called so, a
    summary of other items stands there, none is complete, or none is called `against`.
    """
    found = [(place, load_summary(place)) for place in find_runs(paths, out)]
    found = [(place, run) for place, run in found if run.complete or not complete]
    if not found:
        raise UserError("None of these runs is complete; leave out --complete, or let them be finished.")
    together = joined([run for _, run in found])
    runs, places = [run for run, _ in together], [[found[number][0] for number in parts] for _, parts in together]
    shown = told_apart(runs)
    tables = all_tables(shown) if against is None else [against_table(shown, against), *all_tables(shown)]
    tables += [*_structures(places, shown), *_variations(places, shown)]
    note = _note("Not complete when this was made", [run.label for run in shown if not run.complete])
    voting = [
        run.label for folders, run in zip(places, shown, strict=True) if _answers(run) > 1 and not _with_lines(folders)
    ]
    note += _note("Without tables of votes and of disagreement, since their items are not here", voting)
    texts = {f"{table.name}.{ending}": text for table in tables for ending, text in table.files().items()}
    drawn = pictures(shown)
    kept = _summary_paths([place for place, *_ in places], out, {CONTENTS, *texts, *drawn}) if summaries else []
    make_folder(out)
    for path in (out / CONTENTS, *(out / name for name in (*texts, *drawn)), *(p for p in kept if p.parent.exists())):
        check_file_target(path)
    for path, run in zip(kept, runs, strict=False):
        _check_kept(path, run)
    for path, run in zip(kept, runs, strict=False):
        make_folder(path.parent)
        run.save(path)
    for name, text in texts.items():
        save_text(out / name, text)
    for name, picture in drawn.items():
        save_bytes(out / name, picture)
    for path in _written_before(out):
        if path.name not in texts and path.name not in drawn:
            path.unlink()
    save_text(out / CONTENTS, HEADING + contents(tables) + note)  # the last, since it tells what an earlier call wrote
    return [out / CONTENTS, *(out / name for name in (*texts, *drawn)), *kept]


def _note(what: str, labels: Sequence[str]) -> str:
    return f"\n{what}: {', '.join(labels)}.\n" if labels else ""


def _written_before(out: Path) -> list[Path]:
    """The files of tables and pictures that an earlier call wrote to `out`, those that are still there."""
    try:
        text = (out / CONTENTS).read_text(encoding="utf-8")
    except (OSError, UnicodeError):
        return []
    if not text.startswith(HEADING):
        return []
    names = re.findall(r"^## ([\w.-]+)$", text, re.MULTILINE)
    files = [out / f"{name}.{ending}" for name in names for ending in ENDINGS]
    files += [path for kind in ("accuracy", "sensitivity") for path in sorted(out.glob(f"{kind}-*.png"))]
    return [path for path in files if path.is_file()]


def _summary_paths(places: Sequence[Path], out: Path, taken: Set[str]) -> list[Path]:
    """Where the summaries of runs go, each to a folder of its run's name. taken: names of files in `out`."""
    names = [(place if place.is_dir() else place.parent).resolve().name for place in places]
    for name in names:
        if names.count(name) > 1:
            raise UserError(
                f"Two of the runs are called {name!r}, and their summaries would be one file; leave out those "
                f"that are not finished (--complete), or rename one."
            )
        if name in taken or ((out / name).exists() and not (out / name).is_dir()):
            raise UserError(
                f"The summary of the run {name!r} needs a folder of this name, where {str(out)!r} has a file; rename "
                f"the run."
            )
    return [out / name / SUMMARY for name in names]


def _check_kept(path: Path, run: RunSummary) -> None:
    """Raise UserError if the summary at `path` is of items that the run which would take its place has not."""
    held: dict[str, TaskSummary] = {}
    with suppress(UserError):  # what is damaged may be replaced
        held = load_summary(path).tasks
    if not all(name in run.tasks and holds(run.tasks[name], task) for name, task in held.items()):
        raise UserError(
            f"{str(path)!r} is of items that the run in its place would not have; name it among the results, too, or "
            f"remove it."
        )


_Held = dict[str, dict[str, tuple[list[Path], RunSummary]]]  # of a group of runs: kind -> task -> the run


def _structures(places: Sequence[list[Path]], runs: Sequence[RunSummary]) -> list[Table]:
    """The tables of MAP against sampled structures, for every set of runs that differ in their structure rule only."""
    tables: list[Table] = []
    for group in _groups(places, runs, rule_of):
        [(_, run), *_] = next(iter(group.values())).values()
        for seed in run.settings["seeds"]:
            told = f"{_described(run)}, temperature {run.settings['temperature']:g}, seed {seed}"
            tables += structure_tables(_records(group), seed, told)
    return _numbered(tables)


def _variations(places: Sequence[list[Path]], runs: Sequence[RunSummary]) -> list[Table]:
    """The tables of ways to vary an answer, for every set of runs that are MAP's but for the way."""
    tables: list[Table] = []
    for group in _groups(places, runs, way_of, "temperature", "seeds"):
        [(_, run), *_] = next(iter(group.values())).values()
        tables += variation_tables(_records(group), _described(run))
    return _numbered(tables)


def _groups(
    places: Sequence[list[Path]],
    runs: Sequence[RunSummary],
    kind_of: Callable[[Mapping[str, Any]], str | None],
    *around: str,
) -> list[_Held]:
    """Runs with their items that are alike but for their structure rule; by kind and task.

    around: names of a run's own settings that may differ, too (temperature, seeds).

    Of several of one kind and task the one with the most answers an item, of these the first.
    """
    place_of = {
        id(run): folders
        for folders, run in zip(places, runs, strict=True)
        if kind_of(run.settings) is not None and _with_lines(folders)
    }
    groups: list[_Held] = []
    for group in alike([run for run in runs if id(run) in place_of], ("structure",), *around):
        groups.append({})
        for run in group:
            held = groups[-1].setdefault(str(kind_of(run.settings)), {})
            for task in run.tasks:
                if task not in held or _answers(run) > _answers(held[task][1]):
                    held[task] = place_of[id(run)], run
    return groups


def _with_lines(places: Sequence[Path]) -> bool:
    """Whether the items of a run are there, and not its summary alone."""
    return all(folder.is_dir() and any(folder.glob("items*.jsonl")) for folder in places)


def _answers(run: RunSummary) -> int:
    return run.settings["draws"] * len(run.settings["seeds"])


def _described(run: RunSummary) -> str:
    """What a table tells of its runs: the decoder's settings as given, but for the structure rule, and the budget."""
    name, _, settings = str(run.settings["decoder"]).partition(":")
    shared = [setting for setting in settings.split(",") if setting and not setting.startswith("structure=")]
    return f"model {run.settings['model']['name']}, {', '.join([name, *shared])}, budget {run.settings['budget']}"


def _records(group: _Held) -> dict[str, list[dict[str, Any]]]:
    """The records of each kind, each task's from its run's folders."""
    read = {place: scored_items(place) for held in group.values() for places, _ in held.values() for place in places}
    return {
        kind: [
            record
            for task, (places, _) in held.items()
            for place in places
            for record in read[place]
            if record["task"] == task
        ]
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
