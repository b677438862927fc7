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


@pytest.mark.parametrize("folder", [path for path in SWEEPS if path.name != "structures"], ids=lambda path: path.name)
def test_the_tables_are_made_from_the_summaries(folder: Path, tmp_path: Path) -> None:
    report([folder], tmp_path)
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
