"""One decoder against each other one: the ranks, the differences and the corrected tests, of numbers made by hand."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest

from command_line import Run
from dystruct.decoding import UserError
from dystruct.decoding.evaluation.against import against_table
from dystruct.decoding.evaluation.statistics import holm, mcnemar
from dystruct.decoding.evaluation.summary import RunSummary, load_summary
from evaluation_runs import make_run

SIGNS = {"ours": "1111111000", "fast": "1100000111", "fixed": "1111111111", "slow": "0000000001"}


@pytest.fixture
def runs(tmp_path: Path) -> list[RunSummary]:
    """Four runs of ten and four items under one budget, two of them under another one, too."""
    made = [
        make_run(tmp_path / f"{name} {budget}", {"maths": [SIGNS[name]], "logic": [SIGNS[name][:4]]}, decoder="fixed",
                 name=name, budget=budget, figures={"forward_passes": budget // 2})
        for name, budget in (("ours", 64), ("fast", 64), ("fixed", 64), ("slow", 64), ("slow", 256), ("ours", 256))
    ]  # fmt: skip
    return [load_summary(folder) for folder in made]


def rows(runs: list[RunSummary], name: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(against_table(runs, name).csv())))


def test_the_best_come_first_under_each_budget(runs: list[RunSummary]) -> None:
    found = [(row["decoder"], row["passes"], row["items"], row["passes an item"]) for row in rows(runs, "ours")]
    assert found == [
        ("ours", "256", "14", "128.0"), ("slow", "256", "14", "128.0"), ("fixed", "64", "14", "32.0"),
        ("ours", "64", "14", "32.0"), ("fast", "64", "14", "32.0"), ("slow", "64", "14", "32.0"),
    ]  # fmt: skip
    markdown = against_table(runs, "ours").markdown()
    assert "| ours | 64 | 256 | 14 | 85.0 ± 7.6 | 32 |  |  |  |  |  |" in markdown


@pytest.mark.parametrize("name", SIGNS)
def test_each_is_tested_against_the_one_of_its_budget(runs: list[RunSummary], name: str) -> None:
    """Any decoder may be the one; the tests of a budget are one family."""
    ours = [sign == "1" for sign in SIGNS[name] + SIGNS[name][:4]]
    held = [row for row in rows(runs, name) if row["passes"] == "64" and row["decoder"] != name]
    tests = [mcnemar([s == "1" for s in SIGNS[row["decoder"]] + SIGNS[row["decoder"]][:4]], ours) for row in held]
    corrected = holm([test.p_exact for test in tests])
    assert len(held) == 3
    for row, test, p in zip(held, tests, corrected, strict=True):
        assert float(row["ahead by"]) == pytest.approx(test.difference.value)
        assert float(row["ahead by se"] or 0) == pytest.approx(test.difference.error)
        assert (row["only it"], row["only the other"]) == (str(test.only_second), str(test.only_first))
        assert (float(row["p exact"]), float(row["p Holm"])) == pytest.approx((test.p_exact, p))


def test_under_other_limits_there_is_nothing_to_compare(runs: list[RunSummary]) -> None:
    """Nor with a run of other items."""
    empty = {(row["decoder"], row["passes"]) for row in rows(runs, "fast") if not row["ahead by"]}
    assert empty == {("fast", "64"), ("ours", "256"), ("slow", "256")}


def test_without_all_tasks_there_is_no_mean_and_no_rank(runs: list[RunSummary], tmp_path: Path) -> None:
    begun = make_run(tmp_path / "begun", {"maths": ["1111111111"], "logic": [""]}, decoder="fixed", name="begun",
                     budget=64)  # fmt: skip
    one = make_run(tmp_path / "one task", {"maths": ["1111111111"]}, decoder="fixed", name="one task", budget=64)
    for last in rows([*runs, load_summary(begun), load_summary(one)], "ours")[-2:]:
        assert (last["accuracy"], last["passes an item"], last["items"]) == ("", "", "10")
        assert (last["only it"], last["only the other"]) == ("0", "3")


def test_one_of_two_of_a_name_is_not_picked(runs: list[RunSummary], tmp_path: Path) -> None:
    other = make_run(tmp_path / "other", {"maths": [SIGNS["slow"]]}, decoder="fixed", name="fast", budget=64)
    with pytest.raises(UserError, match="Several runs here are called 'fast' under the same limits"):
        against_table([*runs, load_summary(other)], "fast")
    assert [row["decoder"] for row in rows([*runs, load_summary(other)], "ours")].count("fast") == 2


def test_the_name_is_that_of_a_run(runs: list[RunSummary], tmp_path: Path, run: Run) -> None:
    with pytest.raises(
        UserError, match="No run here with an item on record is called 'theirs'; these are: 'ours', 'fast', 'fixed'"
    ):
        against_table(runs, "theirs")
    asked = ("tables", str(tmp_path), "--out", str(tmp_path / "out"), "--against")
    run(*asked, "theirs").refused("No run here with an item on record is called 'theirs'; these are: ")
    assert not (tmp_path / "out").exists()
    assert run(*asked, "ours").status == 0
    assert (tmp_path / "out" / "tables.md").read_text().startswith("# Results\n\n## against\n")
