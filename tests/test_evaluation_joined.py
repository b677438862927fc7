"""Runs that share a task's items are in all tables the one run that they are."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from command_line import Run
from dystruct.decoding import UserError
from dystruct.decoding.backbone import model_folder
from dystruct.decoding.calibration_file import read_calibration
from dystruct.decoding.evaluation import summary, tasks
from dystruct.decoding.evaluation.checks import check_run
from dystruct.decoding.evaluation.joined import joined
from dystruct.decoding.evaluation.local import check_prompts, run_local
from dystruct.decoding.evaluation.report import report
from dystruct.decoding.evaluation.settings import RunSettings, identity
from dystruct.decoding.evaluation.statistics import mean, mean_of_parts
from dystruct.decoding.evaluation.summary import RunSummary, load_summary, summarise
from dystruct.decoding.evaluation.sweep import read_sweep
from dystruct.decoding.evaluation.sweep_state import state
from dystruct.decoding.tiny.problem import Problem
from evaluation_runs import make_run, with_the_embedded_models_weights
from scripted import backbone, hashed

TASKS = {"tiny_maths": ("110100101", "000111010"), "tiny_logic": ("010101011", "111111000")}


def part(folder: Path, start: int, end: int, **settings: Any) -> Path:
    """A run of the items from `start` to `end` of `TASKS`, whose figures are all different."""
    random = np.random.default_rng(0)
    each = {
        (task, item, draw): {
            "kind": f"kind {item % 3}",
            "useful_tokens": int(random.integers(50)),
            "confidence": float(random.random()) if item % 4 else None,
            "passes": {"resolve": int(random.integers(9))} | ({"weld": 2} if item > 5 else {}),
            "stop_reason": "eos" if random.random() < 0.5 else "length",
        }
        for task in TASKS
        for item in range(9)
        for draw in range(2)
    }
    right = {task: [signs[:end] for signs in draws] for task, draws in TASKS.items()}
    return make_run(folder, right, decoder="dystruct:structure=sample", each=each, limit=end, skip=start, **settings)


def flat(value: Any) -> Any:
    """Plain data with its numbers ready to be compared; without attempts, which differ in number."""
    if isinstance(value, float):
        return pytest.approx(value)
    if isinstance(value, dict):
        return {key: flat(inner) for key, inner in value.items() if key != "environments"}
    return value


@given(
    st.lists(st.lists(st.floats(-10, 10), min_size=1, max_size=5), min_size=1, max_size=4),
)
def test_the_mean_of_parts_is_that_of_all_their_values(parts: list[list[float]]) -> None:
    found, wanted = mean_of_parts(list(map(mean, parts))), mean([value for part in parts for value in part])
    assert asdict(found) == {
        "value": pytest.approx(wanted.value, abs=1e-9),
        "error": None if wanted.error is None else pytest.approx(wanted.error, abs=1e-9),
        "count": wanted.count,
    }


def test_no_parts_have_no_mean() -> None:
    with pytest.raises(ValueError, match="at least one"):
        mean_of_parts([])


@pytest.mark.parametrize("ends", [[4, 9], [1, 2, 9], [8, 9], [3, 5, 7, 9]])
def test_parts_make_the_whole_in_any_order(tmp_path: Path, ends: list[int]) -> None:
    whole = summarise(part(tmp_path / "whole", 0, 9))
    parts = [summarise(part(tmp_path / str(end), start, end)) for start, end in zip([0, *ends], ends, strict=False)]
    for given_runs in (parts, parts[::-1]):
        [(run, places)] = joined(given_runs)
        assert sorted(places) == list(range(len(parts)))
        assert run.plain() == flat(whole.plain()) | {"environments": run.environments}
        assert len(run.environments) == len(parts)
        assert run.complete


def test_a_part_alone_says_which_items_it_has(tmp_path: Path) -> None:
    alone = summarise(part(tmp_path, 4, 9))
    task = alone.tasks["tiny_maths"]
    assert (task.skip, task.expected, task.count, task.end) == (4, 5, 5, 9)
    assert task.right["0/0"] == "----00101"
    assert alone.complete
    assert task.accuracy == mean([(int(a) + int(b)) / 2 for a, b in zip("00101", "11010", strict=True)])
    assert not replace(alone, tasks={"tiny_maths": replace(task, count=4)}).complete


@pytest.mark.parametrize(
    ("spans", "used"),
    [
        (((0, 4), (4, 9), (0, 9), (2, 6)), [2]),
        (((0, 4), (2, 6), (4, 9)), [0, 2]),
        (((0, 4), (0, 4), (4, 9), (4, 9)), [0, 2]),
        (((0, 3), (0, 6), (3, 9)), [0, 2]),
        (((0, 9), (4, 9)), [0]),
        (((4, 6), (0, 4), (4, 9)), [1, 2]),
        (((4, 9), (4, 6), (0, 4)), [0, 2]),
    ],
)
def test_items_that_another_run_has_count_once(
    tmp_path: Path, spans: tuple[tuple[int, int], ...], used: list[int]
) -> None:
    runs = [summarise(part(tmp_path / f"{place}", *span)) for place, span in enumerate(spans)]
    [(run, places)] = joined(runs)
    assert sorted(places) == used
    assert run.plain() == flat(summarise(part(tmp_path / "whole", 0, 9)).plain()) | {"environments": run.environments}


def test_a_run_that_is_not_complete_stays_as_it_is(tmp_path: Path) -> None:
    """It neither joins nor takes the place of one that is."""
    runs = [summarise(part(tmp_path / name, *span)) for name, span in (("a", (0, 4)), ("b", (4, 9)), ("c", (0, 9)))]
    for place in (1, 2):
        unfinished = {name: replace(task, count=task.count - 1) for name, task in runs[place].tasks.items()}
        given_runs = [replace(run, tasks=unfinished) if run is runs[place] else run for run in runs]
        found = joined(given_runs)
        assert (given_runs[place], [place]) in found
        assert sorted(places for _, of in found for places in of) == ([0, 1, 2] if place == 2 else [1, 2])


def test_a_setting_that_is_not_on_record_has_its_default(tmp_path: Path) -> None:
    runs = [summarise(part(tmp_path / "a", 0, 4)), summarise(part(tmp_path / "b", 4, 9))]
    before = {name: value for name, value in runs[0].settings["decoder_settings"].items() if name != "threshold"}
    older = replace(runs[0], settings={**runs[0].settings, "decoder_settings": before})
    newer = replace(runs[0], settings={**runs[1].settings, "decoder_settings": before}, tasks=runs[1].tasks)
    for parts in ([older, runs[1]], [runs[0], newer]):
        [(run, _)] = joined(parts)
        assert run.tasks["tiny_maths"].count == 9 and run.settings["decoder_settings"]["threshold"] is None


def test_a_part_says_so_in_the_tables(tmp_path: Path) -> None:
    make_run(tmp_path / "fixed", {task: [draws[0]] for task, draws in TASKS.items()}, decoder="fixed")
    part(tmp_path / "ours", 4, 9)
    report([tmp_path], tmp_path / "out")
    text = (tmp_path / "out" / "tables.md").read_text()
    assert "structure=sample, from item 5 |" in text and "| fixed |" in text


@pytest.mark.parametrize("spans", [((0, 4), (5, 9)), ((0, 5), (4, 9)), ((0, 4), (0, 4))])
def test_runs_with_a_gap_or_an_overlap_stay_apart(tmp_path: Path, spans: tuple[tuple[int, int], ...]) -> None:
    runs = [summarise(part(tmp_path / str(place), *span)) for place, span in enumerate(spans)]
    assert joined(runs) == [(runs[0], [0]), (runs[1], [1])]


@pytest.mark.parametrize("other", [{"budget": 64}, {"name": "another"}, {"temperature": 0.5}, {"split": "validation"}])
def test_runs_of_other_settings_stay_apart(tmp_path: Path, other: dict[str, Any]) -> None:
    runs = [summarise(part(tmp_path / "a", 0, 4)), summarise(part(tmp_path / "b", 4, 9, **other))]
    assert len(joined(runs)) == 2


def test_runs_on_other_items_stay_apart(tmp_path: Path) -> None:
    runs = [summarise(part(tmp_path / "a", 0, 4)), summarise(part(tmp_path / "b", 4, 9))]
    maths = replace(runs[1].tasks["tiny_maths"], chain="0" * 36, digest="other")
    other = replace(runs[1], tasks={**runs[1].tasks, "tiny_maths": maths})
    assert len(joined([runs[0], other])) == 2


def test_tables_and_summaries_are_of_the_whole(tmp_path: Path) -> None:
    """Those that need the items, and those that are made anew from summaries and parts."""
    for rule in ("sample", "map"):
        shared = {"decoder": f"dystruct:structure={rule}"}
        draws = {"sample": 2, "map": 1}[rule]
        for name, start, end in (("whole", 0, 9), ("first", 0, 4), ("second", 4, 9)):
            right = {task: [signs[:end] for signs in found[:draws]] for task, found in TASKS.items()}
            make_run(tmp_path / name / rule, right, limit=end, skip=start, **shared)
    parts = [tmp_path / "first", tmp_path / "second"]
    report([tmp_path / "whole"], tmp_path / "one", summaries=True)
    report(parts, tmp_path / "two", summaries=True)
    report([tmp_path / "one", tmp_path / "second"], tmp_path / "three", summaries=True)
    texts = [(tmp_path / name / "tables.md").read_text() for name in ("one", "two")]
    assert texts[0] == texts[1]
    assert "## structures" in texts[0]
    kept = [summarise_kept(tmp_path / name / rule) for name in ("one", "two", "three") for rule in ("sample", "map")]
    assert kept[:2] == [flat(found) for found in kept[2:4]] == [flat(found) for found in kept[4:]]


def test_a_summary_is_not_replaced_by_one_of_fewer_items(tmp_path: Path) -> None:
    part(tmp_path / "a" / "run", 0, 4)
    part(tmp_path / "b" / "run", 4, 9)
    report([tmp_path / "a"], tmp_path / "kept", summaries=True)
    report([tmp_path / "kept", tmp_path / "b"], tmp_path / "kept", summaries=True)
    before = {path: path.read_bytes() for path in (tmp_path / "kept").rglob("*.*") if path.is_file()}
    for name, start, end in (("b", 4, 9), ("c", 0, 5), ("d", 1, 9)):
        if name != "b":
            part(tmp_path / name / "run", start, end)
        with pytest.raises(UserError, match="is of items that the run in its place would not have; name it among"):
            report([tmp_path / name], tmp_path / "kept", summaries=True)
    with pytest.raises(UserError, match="keeps the summary of a run whose items are not there"):
        part(tmp_path / "kept" / "run", 4, 9)
    assert {path: path.read_bytes() for path in (tmp_path / "kept").rglob("*.*") if path.is_file()} == before
    (tmp_path / "kept" / "run" / "summary.json").write_text("damaged")
    report([tmp_path / "b"], tmp_path / "kept", summaries=True)
    assert load_summary(tmp_path / "kept" / "run").tasks["tiny_maths"].count == 5


@pytest.mark.parametrize(
    "damage",
    [
        {"skip": -1}, {"skip": True}, {"skip": "a"}, {"skip": None}, {"skip": 1.5}, {"skip": 5}, {"expected": 0},
        {"expected": "5"}, {"count": 99}, {"count": None}, {"chain": 3}, {"digest": None}, {"right": {"0/0": "01"}},
        {"right": {"0/0": "x" * 9}}, {"right": {"0/0": 3}}, {"right": []}, {"right": 7},
    ],
    ids=str,
)  # fmt: skip
def test_a_summary_whose_numbers_do_not_go_together_is_refused(tmp_path: Path, damage: dict[str, Any]) -> None:
    summarise(part(tmp_path / "a", 4, 9)).save(tmp_path / "summary.json")
    content = json.loads((tmp_path / "summary.json").read_text())
    content["tasks"]["tiny_logic"] |= damage
    (tmp_path / "summary.json").write_text(json.dumps(content))
    with pytest.raises(UserError, match="is no result of `dystruct eval`"):
        load_summary(tmp_path / "summary.json")


@pytest.mark.parametrize("skip", [-1, True, "a", 7])
def test_a_run_with_items_that_it_leaves_out_is_damaged(tmp_path: Path, skip: object) -> None:
    run = json.loads((part(tmp_path, 4, 9) / "run.json").read_text())
    run["settings"]["skip"] = skip
    (tmp_path / "run.json").write_text(json.dumps(run))
    with pytest.raises(UserError, match="damaged"):
        summarise(tmp_path)


def summarise_kept(folder: Path) -> dict[str, Any]:
    found = load_summary(folder)
    return {name: value for name, value in found.plain().items() if name != "environments"}


@pytest.fixture
def letters(monkeypatch: pytest.MonkeyPatch) -> None:
    found = [Problem("logic", "k", text, "", "a") for text in ("ab", "cd", "ef", "gh", "ha")]
    for module in (tasks, summary):
        monkeypatch.setattr(
            module, "items", lambda task, split="test", limit=None: found if limit is None else found[:limit]
        )


def run_of(folder: Path, **settings: Any) -> RunSummary:
    asked = RunSettings(
        decoder="block:block-length=4", tasks=("tiny_logic",), max_new_tokens=8, budget=8, batch_size=2, **settings
    )
    run_local(asked, backbone(hashed(3)), {"name": "scripted"}, folder)
    return summarise(folder)


@pytest.mark.usefixtures("letters")
def test_decoding_leaves_the_items_out_and_changes_no_other(tmp_path: Path) -> None:
    whole, first, rest = run_of(tmp_path / "a"), run_of(tmp_path / "b", limit=2), run_of(tmp_path / "c", skip=2)
    [(run, _)] = joined([rest, first])
    assert run.tasks["tiny_logic"].right == whole.tasks["tiny_logic"].right
    assert run.tasks["tiny_logic"].figures["useful_tokens"] == flat(whole.tasks["tiny_logic"].figures["useful_tokens"])
    assert run_of(tmp_path / "d", skip=2, limit=3).tasks["tiny_logic"].count == 1
    assert run_of(tmp_path / "d", skip=2).tasks["tiny_logic"].right == rest.tasks["tiny_logic"].right
    with pytest.raises(UserError, match="has skip 2, which there is not now"):
        run_of(tmp_path / "d")
    for skip, limit, told in (
        (7, None, "has 5 test items; leave out fewer than 5"),
        (3, 3, "Of 3 items 3 cannot be left out"),
    ):
        with pytest.raises(UserError, match=told):
            run_of(tmp_path / "e", skip=skip, limit=limit)
    with pytest.raises(UserError, match="harness"):
        check_run(RunSettings(tasks=("gsm8k",), skip=1))


@pytest.mark.usefixtures("letters")
def test_a_prompt_that_is_left_out_may_be_as_long_as_it_likes(monkeypatch: pytest.MonkeyPatch) -> None:
    first, *others = tasks.items("tiny_logic")
    monkeypatch.setattr(tasks, "items", lambda *asked: [replace(first, question="a" * 100_000), *others])
    model = backbone(hashed(3))
    asked = RunSettings(tasks=("tiny_logic",), decoder="block", max_new_tokens=8, skip=1)
    check_prompts(asked, model)
    with pytest.raises(UserError, match="Item tiny_logic:0 has 100000 tokens"):
        check_prompts(replace(asked, skip=0), model)


@pytest.mark.usefixtures("letters")
def test_a_sweep_knows_how_many_are_left(tmp_path: Path) -> None:
    weights, calibrated = read_calibration(None, model_folder("tiny"))
    model = replace(backbone(hashed(3)), weights=weights, calibrated=calibrated)
    told = identity(model, model_folder("tiny"))
    (tmp_path / "sweep.toml").write_text('[settings]\ntasks = ["tiny_logic"]\nlimit = 4\n[[run]]\ndecoder = "block"\n')
    for skip, count in ((None, 4), (0, 4), (3, 1)):
        [planned] = read_sweep(tmp_path / "sweep.toml", skip=skip)
        assert planned.settings.skip == (skip or 0)
        run_local(planned.settings, model, told, tmp_path / f"{skip}" / planned.folder)
        found = summarise(tmp_path / f"{skip}" / planned.folder)
        assert found.tasks["tiny_logic"].count == count
    assert state(planned, tmp_path / "nowhere").done == 0
    for begun, skip, what in (("None", 3, "has no skip, which is 3 now"), ("3", 0, "has skip 3, which there is not")):
        [planned] = read_sweep(tmp_path / "sweep.toml", skip=skip)
        with pytest.raises(UserError, match=what):
            state(planned, tmp_path / begun)
    [planned] = read_sweep(tmp_path / "sweep.toml", limit=5, skip=4)
    with pytest.raises(UserError, match="has no skip, which is 4 now"):
        state(planned, tmp_path / "None")


@pytest.mark.usefixtures("letters")
def test_the_commands_leave_items_out(tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    with_the_embedded_models_weights(monkeypatch)
    small = ("--tasks", "tiny_logic", "--decoder", "block", "--max-new-tokens", "8", "--budget", "8")
    assert run("eval", "whole/block", *small).status == 0
    assert run("eval", "first/block", *small, "--limit", "2").status == 0
    (tmp_path / "sweep.toml").write_text(
        '[settings]\ntasks = ["tiny_logic"]\nmax_new_tokens = 8\nbudget = 8\nbatch_size = 3\n[[run]]\n'
        'decoder = "block"\n'
    )
    assert run("sweep", "sweep.toml", "rest", "--skip", "2").status == 0
    assert "finished" in run("sweep", "sweep.toml", "rest", "--skip", "2", "--status").out
    for out, given_runs in (("one", ["whole"]), ("two", ["rest", "first"])):
        assert run("tables", *given_runs, "--out", out).status == 0
    tables = [(tmp_path / out / "results.csv").read_text() for out in ("one", "two")]
    assert tables[0] == tables[1] and ",5," in tables[0]
    run("eval", "whole/block", *small, "--skip", "2").refused("has no skip, which is 2 now; leave it out, or name")
    run("eval", "rest/block", *small).refused("has skip 2, which there is not now; give it, or name")
