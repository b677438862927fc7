"""The results that come along: their tables are what `dystruct tables` makes of the summaries beside them."""

from __future__ import annotations

from pathlib import Path

import pytest

from dystruct.decoding.evaluation import tasks
from dystruct.decoding.evaluation.report import find_runs, report
from dystruct.decoding.evaluation.summary import load_summary
from dystruct.decoding.evaluation.sweep import read_sweep

FOLDER = Path(tasks.__file__).parent
SWEEPS = sorted(path.parent for path in (FOLDER / "results").glob("*/tables.md"))
TUNED = "DyStruct, tuned"


@pytest.mark.parametrize("folder", SWEEPS, ids=lambda path: path.name)
def test_the_tables_are_made_from_the_summaries(folder: Path, tmp_path: Path) -> None:
    report([folder], tmp_path, against=TUNED if folder.name == "main" else None)
    assert (tmp_path / "tables.md").read_text() == (folder / "tables.md").read_text()


@pytest.mark.parametrize("folder", SWEEPS, ids=lambda path: path.name)
def test_the_runs_are_those_of_the_sweep(folder: Path) -> None:
    """Each with the settings that the file declares now, on the items that come along now, and whole."""
    planned = {run.folder: run.settings for run in read_sweep(FOLDER / "sweeps" / f"{folder.name}.toml")}
    for place in find_runs([folder]):
        found, wanted = load_summary(place), planned[place.name]
        limit = found.settings["limit"]
        assert found.complete
        assert (found.settings["decoder"], found.settings["budget"]) == (wanted.decoder, wanted.budget)
        for task, summary in found.tasks.items():
            asked = tasks.items(task, wanted.split, limit)
            assert (summary.count, summary.digest) == (limit, tasks.digest(asked))


@pytest.mark.parametrize("budget", [64, 128, 256])
def test_the_text_shows_what_the_tables_have(budget: int) -> None:
    """Its tables of a budget are those rows, without the columns that are the same in all of them."""
    made = _cells((FOLDER / "results" / "main" / "tables.md").read_text().split("## results\n")[0])
    held = [row[:1] + row[3:] for row in made if row[1] in ("passes", str(budget))]
    text = (FOLDER / "results" / "README.md").read_text()
    assert _cells(text.split(f"(budget {budget}):\n\n")[1].split("\n\n")[0].replace("**", "")) == held


def _cells(text: str) -> list[list[str]]:
    """The rows of a Markdown table, its heading first, each as its cells."""
    found = [[cell.strip() for cell in line[1:-1].split("|")] for line in text.splitlines() if line.startswith("|")]
    return [row for row in found if not set("".join(row)) <= set(":-")]
