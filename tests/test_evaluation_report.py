"""The files of tables, summaries and plots: written whole, where they belong, and nothing else touched."""

from __future__ import annotations

import errno
import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from dystruct.decoding import UserError
from dystruct.decoding.evaluation.report import find_runs, report
from dystruct.decoding.evaluation.summary import load_summary
from evaluation_runs import make_pair, make_run

OURS, RIGHT = "dystruct:passes=share", "1111111000"


@pytest.fixture
def pair(tmp_path: Path) -> list[Path]:
    return make_pair(tmp_path)


def test_everything_is_written(pair: list[Path], tmp_path: Path) -> None:
    written = report([tmp_path], tmp_path / "out")
    assert all(path.stat().st_size > 0 for path in written)
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert names == {path.name for path in written}
    assert {
        "tables.md",
        "results.tex",
        "mcnemar.csv",
        "accuracy-maths.png",
        "accuracy-logic.png",
        "accuracy-mean.png",
    } <= names
    assert (tmp_path / "out" / "accuracy-maths.png").read_bytes().startswith(b"\x89PNG")


def test_the_kept_summaries_make_the_same_tables(pair: list[Path], tmp_path: Path) -> None:
    out, again = tmp_path / "out", tmp_path / "again"
    written = report(pair, out, summaries=True)
    kept = [out / folder.name / "summary.json" for folder in pair]
    assert set(kept) <= set(written)
    report([out], again)
    assert (again / "tables.md").read_text() == (out / "tables.md").read_text()
    for path in (out, out):  # of the results and of themselves, in place
        report([path], out, summaries=True)
    assert (out / "tables.md").read_text() == (again / "tables.md").read_text()


def test_summaries_of_one_name_are_refused_before_anything_is_written(pair: list[Path], tmp_path: Path) -> None:
    twin = tmp_path / "elsewhere" / pair[0].name
    shutil.copytree(pair[0], twin)
    with pytest.raises(UserError, match="Two of the runs are called"):
        report([*pair, twin], tmp_path / "out", summaries=True)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("summaries", [True, False])
def test_tables_among_the_results_do_not_count_as_results(pair: list[Path], tmp_path: Path, summaries: bool) -> None:
    out = tmp_path / "out"
    report([tmp_path], out, summaries=True)
    first = (out / "tables.md").read_text()
    report([tmp_path], out, summaries=summaries)
    assert (out / "tables.md").read_text() == first
    assert find_runs([tmp_path], out) == sorted(pair)
    with pytest.raises(UserError, match="Two of the runs are called"):
        report([tmp_path, out], out, summaries=True)  # named itself


def test_a_run_among_the_tables_is_one(pair: list[Path], tmp_path: Path) -> None:
    report([tmp_path], tmp_path / "tables", summaries=True)
    again = make_run(tmp_path / "tables" / "again", {"maths": [RIGHT]}, decoder=OURS)
    assert find_runs([tmp_path], tmp_path / "tables") == [*sorted(pair), again]


def test_a_run_that_is_named_twice_is_one(pair: list[Path], tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(pair[0])
    load_summary(pair[0]).save(pair[0] / "summary.json")
    twice = [pair[0], tmp_path / "link", pair[0] / "summary.json", tmp_path / "ours" / ".." / "fixed"]
    assert find_runs(twice) == [pair[0]]


@pytest.mark.parametrize("name", ["results.md", "accuracy-maths.png", "tables.md", "there"])
def test_a_summary_in_a_file_s_place_is_refused_before_anything_is_written(
    pair: list[Path], tmp_path: Path, name: str
) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "there").write_text("kept")
    run = pair[0].rename(tmp_path / name)
    with pytest.raises(UserError, match=rf"^The summary of the run '{name}' needs a folder .*; rename the run\.$"):
        report([run, pair[1]], out, summaries=True)
    assert [path.name for path in out.iterdir()] == ["there"]


@pytest.mark.parametrize("name", ["accuracy-mean.png", "results.tex", "tables.md", "ours/summary.json"])
def test_a_folder_in_a_file_s_place_is_refused_before_anything_is_written(
    pair: list[Path], tmp_path: Path, name: str
) -> None:
    (tmp_path / "out" / name).mkdir(parents=True)
    before = sorted((tmp_path / "out").rglob("*"))
    with pytest.raises(UserError, match=rf"{name}' is a folder; name a file to write\.$"):
        report(pair, tmp_path / "out", summaries=True)
    assert sorted((tmp_path / "out").rglob("*")) == before


def test_a_plot_is_written_whole_or_not_at_all(
    pair: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(self: Path, content: bytes) -> None:
        self.write_text("half")
        raise OSError(errno.ENOSPC, "No space left on device")

    report(pair, tmp_path / "out")
    before = (tmp_path / "out" / "accuracy-maths.png").read_bytes()
    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(UserError, match="No space left on device"):
        report(pair, tmp_path / "out")
    assert (tmp_path / "out" / "accuracy-maths.png").read_bytes() == before
    assert not list((tmp_path / "out").glob("*.partial"))


def test_what_an_earlier_call_wrote_is_removed_and_nothing_else(pair: list[Path], tmp_path: Path) -> None:
    alone, out = tmp_path / "alone", tmp_path / "out"
    report(pair, out, summaries=True)
    own = (
        "notes.md", "structures.md", "results.txt", "accuracy.png", "accuracy-mine.png", "sensitivity-notes.png",
        "votes.png", "uncertainty-2.png",
    )  # fmt: skip
    for name in own:
        (out / name).write_text("kept")
    report(pair[:1], out)
    report(pair[:1], alone)
    kept = {*own, *(folder.name for folder in pair)}
    assert {path.name for path in out.iterdir()} - {path.name for path in alone.iterdir()} == kept
    assert not (out / "mcnemar.md").exists() and not (out / "accuracy-maths.png").exists()
    (out / "tables.md").write_text("# My own\n\n## notes\n")
    report(pair, out)
    assert all((out / name).read_text() == "kept" for name in own)
    report(pair[:1], out)
    assert {path.name for path in out.iterdir()} - {path.name for path in alone.iterdir()} == kept


def test_nothing_elsewhere_is_removed(pair: list[Path], tmp_path: Path) -> None:
    """Whatever tables.md says that it came with."""
    out = tmp_path / "out"
    out.mkdir()
    (tmp_path / "notes.png").write_text("kept")
    (out / "tables.md").write_text("# Results\n\n## ../notes\n\nPictures: ../notes.png; a.png; notes.\n")
    report(pair, out)
    assert (tmp_path / "notes.png").read_text() == "kept"


@pytest.mark.parametrize(
    "other",
    [{"model": {"name": "n"}}, {"model": {"dtype": "bfloat16"}}, {"chat": True}, {"prompt_format": "a{prompt}"}],
)
def test_tables_of_one_kind_say_what_sets_them_apart(tmp_path: Path, other: dict[str, Any]) -> None:
    """What runs were run on makes a table of its own, and stands in its caption."""
    decoders = {f"r{n}": f"dystruct:{changed}" for n, changed in enumerate((
        "structure=map", "structure=sample", "structure=shuffled", "structure=sample,alpha0=2",
        "structure=sample,schedule=left-to-right",
    ))}  # fmt: skip
    for folder, changed in (("a", {}), ("b", other)):
        for name, decoder in decoders.items():
            made = make_run(tmp_path / "runs" / folder / name, {"maths": ["1100", "1010"]}, decoder=decoder)
            run = json.loads((made / "run.json").read_text())
            run["settings"] |= {**changed, "model": {**run["settings"]["model"], **changed.get("model", {})}}
            (made / "run.json").write_text(json.dumps(run))
    report([tmp_path / "runs"], tmp_path / "out")
    kinds = ("structures", "uncertainty", "variation", "alpha0", "ablations")
    texts = (tmp_path / "out" / "tables.md").read_text()
    for kind in kinds:
        captions = re.findall(rf"^## {kind}(?:-\d)?\n\n(.*)$", texts, re.MULTILINE)
        assert len(set(captions)) == 2, (kind, captions)
