"""Pictures of runs, read back from what was drawn."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from drawn import line
from dystruct.decoding.evaluation.pictures import accuracy_picture, pictures, sensitivity_pictures
from dystruct.decoding.evaluation.summary import RunSummary, summarise
from evaluation_runs import make_pair, make_run

RIGHT = {0.5: ("1000", "11"), 1.5: ("1100", "10"), 3.0: ("0000", "00")}


def runs(folder: Path, **settings: int) -> list[RunSummary]:
    return [
        summarise(
            make_run(
                folder / str(value), {"maths": [maths], "logic": [logic]},
                decoder=f"dystruct:alpha0={value}", **settings,
            )
        )
        for value, (maths, logic) in RIGHT.items()
    ]  # fmt: skip


def test_accuracy_against_a_setting(tmp_path: Path) -> None:
    [figure] = sensitivity_pictures(runs(tmp_path)[::-1], "prior.concentration")
    assert figure is not None
    [axes] = figure.axes
    for name, wanted in (("maths", [0.25, 0.5, 0]), ("logic", [1, 0.5, 0]), ("mean", [0.625, 0.5, 0])):
        assert line(axes, name).tolist() == [list(pair) for pair in zip(RIGHT, wanted, strict=True)]
    assert line(axes, "default")[0, 0] == 1.5
    assert axes.get_xlabel() == "concentration α0" and axes.get_title() == "m, budget 256; 6 items a point"
    found = {
        segment[0][0]: (segment[0][1], segment[1][1]) for each in axes.collections for segment in each.get_segments()
    }
    summary = summarise(tmp_path / "0.5")
    error = (sum((task.figures["correct"].error or 0) ** 2 for task in summary.tasks.values())) ** 0.5 / 2
    assert found[0.5] == pytest.approx((0.625 - 2 * error, min(1.0, 0.625 + 2 * error)))
    assert found[3.0] == (0, 0)


def test_a_picture_for_each_family_of_runs(tmp_path: Path) -> None:
    every = [*runs(tmp_path / "a"), *runs(tmp_path / "b", budget=64)]
    assert len(sensitivity_pictures(every, "prior.concentration")) == 2
    assert sensitivity_pictures(every, "weld_radius") == []
    found = pictures(every)
    assert list(found) == [
        "accuracy-maths.png", "accuracy-logic.png", "accuracy-mean.png", "sensitivity-alpha0.png",
        "sensitivity-alpha0-2.png",
    ]  # fmt: skip
    assert all(content.startswith(b"\x89PNG") for content in found.values())


def test_runs_that_have_only_begun_are_in_no_picture(tmp_path: Path) -> None:
    found = runs(tmp_path)
    empty = {name: replace(task, count=0, figures={}) for name, task in found[0].tasks.items()}
    begun = replace(found[0], tasks=empty)
    assert pictures([begun, *found[1:]]) == pictures(found[1:])
    unscored = {name: replace(task, figures={}) for name, task in found[0].tasks.items()}
    assert sensitivity_pictures([replace(found[0], tasks=unscored), *found[1:]], "prior.concentration") == [None]


def test_one_task_has_no_mean_and_no_default_that_no_run_has(tmp_path: Path) -> None:
    found = [
        summarise(make_run(tmp_path / str(value), {"maths": ["10"]}, decoder=f"dystruct:alpha0={value}"))
        for value in (0.5, 3.0)
    ]
    [figure] = sensitivity_pictures(found, "prior.concentration")
    assert figure is not None
    assert [each.get_label() for each in figure.axes[0].lines] == ["maths"]


def test_accuracy_against_passes_counts_its_items(tmp_path: Path) -> None:
    found = [summarise(folder) for folder in make_pair(tmp_path)]
    figure = accuracy_picture(found, ["maths", "logic"], "mean")
    assert figure is not None and figure.axes[0].get_title() == "mean; 14 items a point"
    assert accuracy_picture(found[:1], ["maths"], "maths") is None
