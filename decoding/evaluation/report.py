"""`dystruct tables`: finds runs, makes every table and picture that they are enough for, and writes them down."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence, Set
from contextlib import suppress
from functools import partial
from pathlib import Path

from ..errors import UserError
from ..files import check_file_target, save_bytes, save_text
from .against import against_table
from .answers import ANSWERS, has_answers, read_answers, save_answers
from .comparison import told_apart
from .joined import holds, joined
from .pictures import pictures
from .run_folder import make_folder
from .run_record import SUMMARY
from .summary import RunSummary, TaskSummary, load_summary
from .table import ENDINGS, contents
from .tables import all_tables
from .votes import Answers, voted, without_answers

CONTENTS, HEADING = "tables.md", "# Results\n\n"  # the file of all tables, and how it begins
_PICTURES = "Pictures"  # what it calls the list of all pictures


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
    earlier call wrote there, as tables.md tells, and this one does not is removed. Runs that share a task's items count
    as one (see `joined`). summaries: write each run's summary too, to RUN/summary.json, RUN being the name of its
    folder, and beside it the answers that tables of votes were made from (see `answers`). complete: leave out runs that
    still have items to go. against: the name of a run that each other one is compared with, in a table of its own.
    Raises UserError, before anything is written, where a file cannot be, two runs are called so, a summary of other
    items or other answers stand there, none is complete, or none is called `against`.
    """
    found = [(place, load_summary(place)) for place in find_runs(paths, out)]
    found = [(place, run) for place, run in found if run.complete or not complete]
    if not found:
        raise UserError("None of these runs is complete; leave out --complete, or let them be finished.")
    together = joined([run for _, run in found])
    runs, places = [run for run, _ in together], [[found[number][0] for number in parts] for _, parts in together]
    shown = told_apart(runs)
    tables = all_tables(shown) if against is None else [against_table(shown, against), *all_tables(shown)]
    of_answers = voted(places, shown)
    tables += of_answers.tables
    drawn = pictures(shown, [] if against is None else [against]) | of_answers.pictures
    note = _note(_PICTURES, list(drawn))
    note += _note("Not complete when this was made", [run.label for run in shown if not run.complete])
    missed = without_answers(places, shown)
    note += _note("Without tables of votes and of disagreement, since their answers are not here", missed)
    texts = {f"{table.name}.{ending}": text for table in tables for ending, text in table.files().items()}
    kept = _to_keep(places, runs, of_answers.answers, out, {CONTENTS, *texts, *drawn}) if summaries else {}
    make_folder(out)
    for path in (out / CONTENTS, *(out / name for name in (*texts, *drawn)), *kept):
        if os.path.exists(path.parent):
            check_file_target(path)
    for path, save in kept.items():
        make_folder(path.parent)
        save()
    for name, text in texts.items():
        save_text(out / name, text)
    for name, picture in drawn.items():
        save_bytes(out / name, picture)
    for path in _written_before(out):
        if path.name not in texts and path.name not in drawn:
            path.unlink()
    save_text(out / CONTENTS, HEADING + contents(tables) + note)  # the last, since it tells what an earlier call wrote
    return [out / CONTENTS, *(out / name for name in (*texts, *drawn)), *kept]


def _note(what: str, listed: Sequence[str]) -> str:
    return f"\n{what}: {'; '.join(listed)}.\n" if listed else ""


def _written_before(out: Path) -> list[Path]:
    """The files of tables and pictures that an earlier call wrote to `out`, those that are still there.

    A picture of one's own there may be called as one of ours would be; so only those in the list count.
    """
    try:
        text = (out / CONTENTS).read_text(encoding="utf-8")
    except (OSError, UnicodeError):
        return []
    if not text.startswith(HEADING):
        return []
    names = re.findall(r"^## ([\w.-]+)$", text, re.MULTILINE)
    files = [out / f"{name}.{ending}" for name in names for ending in ENDINGS]
    listed = re.findall(rf"^{_PICTURES}: (.*)\.$", text, re.MULTILINE)
    files += [out / Path(name).name for name in "; ".join(listed).split("; ") if name.endswith(".png")]
    return [path for path in files if os.path.isfile(path)]


def _to_keep(
    places: Sequence[Sequence[Path]], runs: Sequence[RunSummary], answers: Answers, out: Path, taken: Set[str]
) -> dict[Path, Callable[[], None]]:
    """What is kept of runs, in folders of their names: by path, what writes it. taken: names of files in `out`.

    Answers are kept where tables count them, and where some were kept before, which would now be too few.
    """
    found: dict[Path, Callable[[], None]] = {}
    for number, path in enumerate(_summary_paths([place for place, *_ in places], out, taken)):
        _check_kept(path, runs[number])
        beside = path.with_name(ANSWERS)
        held = answers.get(number)
        if held is None and os.path.exists(beside):
            try:
                held = read_answers(places[number] if has_answers(places[number]) else [path.parent], runs[number])
            except UserError as error:
                raise UserError(
                    f"{str(beside)!r} has not the answers of the run whose summary would lie beside it, and they are "
                    f"not among the results; keep the summaries in another folder, or remove that file."
                ) from error
        if held is not None:
            found[beside] = partial(save_answers, beside, held)
        found[path] = partial(runs[number].save, path)
    return found


def _summary_paths(places: Sequence[Path], out: Path, taken: Set[str]) -> list[Path]:
    """Where the summaries of runs go, each to a folder of its run's name. taken: names of files in `out`."""
    names = [(place if place.is_dir() else place.parent).resolve().name for place in places]
    for name in names:
        if names.count(name) > 1:
            raise UserError(
                f"Two of the runs are called {name!r}, and their summaries would be one file; leave out those "
                f"that are not finished (--complete), or rename one."
            )
        if name in taken or (os.path.exists(out / name) and not os.path.isdir(out / name)):
            raise UserError(
                f"The summary of the run {name!r} needs a folder of this name, where {str(out)!r} has a file; rename "
                f"the run."
            )
    return [out / name / SUMMARY for name in names]


def _has_all(one: TaskSummary, two: TaskSummary) -> bool:
    """Whether a run has a record of all items of a task of which another one has a record."""
    return holds(one, two) and all(
        "-" not in {new for new, old in zip(one.right.get(stream, ""), signs, strict=False) if old != "-"}
        for stream, signs in two.right.items()
    )


def _check_kept(path: Path, run: RunSummary) -> None:
    """Raise UserError if the summary at `path` is of items that the run which would take its place has not."""
    held: dict[str, TaskSummary] = {}
    with suppress(UserError):  # what is damaged may be replaced
        held = load_summary(path).tasks
    if not all(name in run.tasks and _has_all(run.tasks[name], task) for name, task in held.items()):
        raise UserError(
            f"{str(path)!r} is of items that the run in its place would not have; name it among the results, too, or "
            f"remove it."
        )
