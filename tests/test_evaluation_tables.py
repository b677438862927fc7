"""The paper's tables from result files alone, made by hand so that every number in them is known."""

from __future__ import annotations

import csv
import io
import json
import math
import re
from dataclasses import replace
from itertools import chain, combinations, product
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dystruct.decoding import DyStruct, UserError
from dystruct.decoding.evaluation.comparison import alike, comparable, main_runs, told_apart
from dystruct.decoding.evaluation.pools import pooled
from dystruct.decoding.evaluation.report import find_runs, report
from dystruct.decoding.evaluation.settings import RunSettings
from dystruct.decoding.evaluation.statistics import Mean, mcnemar
from dystruct.decoding.evaluation.summary import RunSummary, TaskSummary, load_summary, summarise
from dystruct.decoding.evaluation.table import Number, Table
from dystruct.decoding.evaluation.tables import all_tables
from evaluation_runs import MODEL, make_pair, make_run, on_other_items

OURS, NO_SCHEDULE = "dystruct:passes=share", "dystruct:passes=share,schedule=left-to-right"
RIGHT, OTHER = "1111111000", "1100000111"


def rows(table: Table) -> list[dict[str, str]]:
    """The table as its CSV has it, by column."""
    return list(csv.DictReader(io.StringIO(table.csv())))


def tables(*folders: Path) -> dict[str, Table]:
    return {table.name: table for table in all_tables([load_summary(folder) for folder in folders])}


@pytest.fixture
def pair(tmp_path: Path) -> list[Path]:
    return make_pair(tmp_path)


def test_the_main_table(pair: list[Path]) -> None:
    found = rows(tables(*pair)["results"])
    assert [row["decoder"] for row in found] == ["fixed", OURS], "ours come last"
    for row, right in zip(found, (OTHER, RIGHT), strict=True):
        p = right.count("1") / 10
        assert float(row["maths"]) == pytest.approx(p)
        assert float(row["maths se"]) == pytest.approx(math.sqrt(p * (1 - p) / 9))
        assert (row["passes"], row["tokens"]) == ("256", "256")
    assert (found[0]["logic"], found[0]["logic se"]) == ("1.0", "0.0")
    ours = math.hypot(math.sqrt(0.21 / 9), math.sqrt(0.25 / 3)) / 2
    assert (float(found[1]["mean"]), float(found[1]["mean se"])) == pytest.approx((0.6, ours)), "tasks count alike"
    markdown = tables(*pair)["results"].markdown()
    assert "| fixed | 256 | 256 | 14 | 50.0 ± 16.7 | 100.0 | 75.0 ± 8.3 |" in markdown
    tex = tables(*pair)["results"].latex()
    assert r"fixed & 256 & 256 & 14 & $50.0_{\pm 16.7}$ & $100.0$ & $75.0_{\pm 8.3}$ \\" in tex


def test_paired_tests_count_the_same_items(pair: list[Path]) -> None:
    found = rows(tables(*pair)["mcnemar"])
    assert [(row["first"], row["second"], row["task"]) for row in found] == [
        ("fixed", OURS, task) for task in ("maths", "logic", "all")
    ]
    for row, (first, second) in zip(
        found, ((OTHER, RIGHT), ("1111", "1100"), (OTHER + "1111", RIGHT + "1100")), strict=True
    ):
        known = mcnemar([sign == "1" for sign in first], [sign == "1" for sign in second])
        assert [int(row[name]) for name in ("items", "only first", "only second")] == [
            known.count, known.only_first, known.only_second,
        ]  # fmt: skip
        values = [float(row[name]) for name in ("χ²", "p corrected", "p exact")]
        assert values == pytest.approx([known.statistic, known.p_corrected, known.p_exact])


def test_items_that_differ_are_not_paired(tmp_path: Path, pair: list[Path]) -> None:
    other_limit = make_run(tmp_path / "less", {"maths": ["10"]}, decoder="fast", limit=2)
    other_budget = make_run(tmp_path / "budget", {"maths": [RIGHT]}, decoder="fast", budget=64)
    found = rows(tables(*pair, other_limit, other_budget)["mcnemar"])
    assert {row["first"] for row in found} == {"fixed"}


def test_the_first_items_of_longer_runs_are_paired(tmp_path: Path) -> None:
    """Of embedded tasks it is known which items a limit leaves: those that both runs have are compared."""
    ours = make_run(tmp_path / "ours", {"tiny_logic": ["110"]}, decoder=OURS, limit=3)
    other = make_run(tmp_path / "fixed", {"tiny_logic": ["0110011"]}, decoder="fixed", limit=7)
    changed = on_other_items(make_run(tmp_path / "fast", {"tiny_logic": ["0110011"]}, decoder="fast", limit=7))
    found = rows(tables(ours, other, changed)["mcnemar"])
    assert [(row["first"], row["task"], row["items"], row["only first"], row["only second"]) for row in found] == [
        ("fixed", "tiny_logic", "3", "1", "1")
    ]


def test_ablations(tmp_path: Path) -> None:
    made = [
        make_run(tmp_path / "full", {"maths": ["1110"]}, decoder=OURS),
        make_run(tmp_path / "schedule", {"maths": ["1100"]}, decoder=NO_SCHEDULE),
        make_run(tmp_path / "weld", {"maths": ["1000"]}, decoder=OURS + ",weld=off"),
        make_run(tmp_path / "both", {"maths": ["0000"]}, decoder=NO_SCHEDULE + ",weld=off"),
        make_run(tmp_path / "fixed", {"maths": ["1111"]}, decoder="fixed"),
        make_run(tmp_path / "elsewhere", {"maths": ["1111"]}, decoder="fixed", budget=64),
        make_run(tmp_path / "sample", {"maths": ["1111"]}, decoder="dystruct:passes=share,structure=sample"),
    ]
    found = tables(*made)
    assert [(row["configuration"], float(row["maths"])) for row in rows(found["ablations"])] == [
        ("full", 0.75), ("without schedule", 0.5), ("without welding", 0.25), ("without both", 0.0), ("fixed", 1.0),
    ]  # fmt: skip
    assert "ablations-2" not in found
    mains = [row["decoder"] for row in rows(found["results"])]
    assert NO_SCHEDULE not in mains and OURS in mains and "dystruct:passes=share,structure=sample" in mains


def test_every_run_is_in_a_table_under_its_own_name(tmp_path: Path) -> None:
    """Of any runs with any ways to weld: ablations are of those that weld or do not, the others are results."""
    names, made = {"sequential": ("full", "without schedule"), "off": ("without welding", "without both")}, {}
    for k, (weld, schedule) in enumerate(product(("sequential", "joint", "off"), ("priority", "left-to-right"))):
        decoder = f"{OURS},weld={weld},schedule={schedule}"
        folder = make_run(tmp_path / str(k), {"maths": ["1" * k + "0" * (6 - k)]}, decoder=decoder)
        made[decoder] = load_summary(folder), names.get(weld, ("", ""))[schedule != "priority"], k / 6

    for asked in chain.from_iterable(combinations(made, count) for count in range(1, 7)):
        found = {table.name: table for table in all_tables([made[decoder][0] for decoder in asked])}
        parts = {made[decoder][1]: made[decoder][2] for decoder in asked if made[decoder][1]}
        shown = rows(found["ablations"]) if "ablations" in found else []
        assert {row["configuration"]: float(row["maths"]) for row in shown} == (parts if len(parts) > 1 else {})
        mains = {row["decoder"]: float(row["maths"]) for row in rows(found["results"])}
        assert all(made[decoder][2] == value for decoder, value in mains.items())
        assert all(decoder in mains or (shown and made[decoder][1]) for decoder in asked)


TASKS = st.dictionaries(st.sampled_from("xyz"), st.sampled_from(("A", "B")), min_size=1)


@given(st.lists(TASKS, min_size=1, max_size=8))
def test_runs_are_alike_on_the_same_items(asked: list[dict[str, str]]) -> None:
    """Every run is in one group; any two of a group agree in the items of every task that both have."""
    settings = json.loads(json.dumps(RunSettings("dystruct", ("x",)).described(MODEL, DyStruct(), {})))
    runs = [
        RunSummary(
            settings, [], {task: TaskSummary(1, 1, {}, {}, {}, {}, {}, digest) for task, digest in tasks.items()}
        )
        for tasks in asked
    ]
    groups = alike(runs, ())
    assert sorted(id(run) for group in groups for run in group) == sorted(map(id, runs))
    for one, two in chain.from_iterable(combinations(group, 2) for group in groups):
        assert all(one.tasks[task].digest == two.tasks[task].digest for task in one.tasks.keys() & two.tasks.keys())
    if not any({(task, "A"), (task, "B")} <= {item for tasks in asked for item in tasks.items()} for task in "xyz"):
        assert len(groups) == 1
    longer = [
        replace(run, tasks={task: replace(of, expected=n + 1, digest=f"{n}", chain=of.digest * 4 * (n + 1))})
        for n, run in enumerate(runs)
        for task, of in list(run.tasks.items())[:1]
    ]
    assert len(alike(longer, ())) <= 2, "where one has more items of the same than another, they are alike"


@pytest.mark.parametrize("setting", ["alpha0", "prior.max_length", "prior.min_length", "r-weld", "weld"])
def test_other_items_are_another_table(tmp_path: Path, setting: str) -> None:
    values = {"alpha0": ("1.5", "3"), "prior.max_length": ("48", "64"), "weld": ("sequential", "off")}
    one, two = values.get(setting, ("8", "12"))
    here = [make_run(tmp_path / v, {"maths": ["1100"]}, decoder=f"{OURS},{setting}={v}") for v in (one, two)]
    there = [make_run(tmp_path / f"{v}t", {"maths": ["1110"]}, decoder=f"{OURS},{setting}={v}") for v in (one, two)]
    fixed = [make_run(tmp_path / name, {"maths": ["1000"]}, decoder="fixed") for name in ("fixed", "fixed t")]
    for folder in (*there, fixed[1]):
        on_other_items(folder)

    def found(*folders: Path) -> list[list[tuple[Any, ...]]]:
        kept = ("results", "efficiency", "texts", "mcnemar")
        return [list(table.rows) for name, table in tables(*folders).items() if name not in kept]

    assert found(here[0], there[1]) == []
    assert len(main_runs([load_summary(folder) for folder in (here[0], there[1])])) == 2
    of_one, of_other = found(*here, fixed[0]), found(*there, fixed[1])
    assert len(of_one) == len(of_other) == 1
    assert found(*here, *there, *fixed) == of_one + of_other


@pytest.mark.parametrize(
    ("name", "setting", "values"),
    [
        ("alpha0", "alpha0", ("0.50", "1.50", "3.00")),
        ("longest-window", "prior.max_length", ("32", "48", "64")),
        ("shortest-window", "prior.min_length", ("4", "8", "12")),
        ("weld-radius", "r-weld", ("4", "10", "16")),
    ],
)
def test_sensitivity(tmp_path: Path, name: str, setting: str, values: tuple[str, ...]) -> None:
    folders = [
        make_run(
            tmp_path / value, {"maths": ["1" * k + "0" * (4 - k)]}, decoder=f"{OURS},{setting}={value}",
            figures={"useful_tokens": 10 * k, "wasted_tokens": 1, "blocks": k},
        )
        for k, value in enumerate(values)
    ]  # fmt: skip
    found = tables(*reversed(folders))
    [table] = [table for table in found.values() if table.name == name]
    assert [cells[0].shown for cells in table.rows if isinstance(cells[0], Number)] == list(values)
    assert [
        tuple(float(value) for key, value in list(row.items())[1:] if not key.endswith("se")) for row in rows(table)
    ] == [(k / 4, 10 * k + 1, k) for k in range(3)]
    summaries = [load_summary(folder) for folder in folders]
    assert main_runs(summaries) == [summaries[1]], "the others are in the table above"
    assert main_runs(summaries[2:]) == [summaries[2]], "which a single run has not"
    both = [summaries[0], summaries[2]]
    assert main_runs(both) == both, "nothing else is left"
    others = {"alpha0", "longest-window", "shortest-window", "weld-radius", "ablations"} - {name}
    assert not others & set(found)


def test_efficiency_and_texts(pair: list[Path]) -> None:
    found = tables(*pair)
    fixed, *_, ours = rows(found["efficiency"])
    assert (float(fixed["passes an item"]), float(ours["passes an item"]), ours["task"]) == (64, 30, "logic")
    assert float(ours["useful tokens a pass"]) == pytest.approx(20 / 30)
    assert ours["by kind"] == "diagnostic 8.0, resolve 20.0, weld 2.0"
    assert rows(found["texts"])[0]["stopped by"] == "eos 10"


def test_several_seeds_count_an_item_once(tmp_path: Path) -> None:
    """Means of an item's records; the standard error is that of the items."""
    draws = ["1100", "1000", "1100", "1000"]
    folder = make_run(tmp_path / "run", {"maths": draws}, decoder="dystruct:structure=sample")
    task = summarise(folder).tasks["maths"]
    shares = [1.0, 0.5, 0.0, 0.0]
    middle = sum(shares) / 4
    error = math.sqrt(sum((x - middle) ** 2 for x in shares) / 3 / 4)
    assert task.accuracy is not None and (task.accuracy.value, task.accuracy.error) == pytest.approx((middle, error))
    assert task.right == {f"0/{draw}": signs for draw, signs in enumerate(draws)}
    assert (task.count, task.kinds, task.accuracy.count) == (4, {"k": (6, 16)}, 4)


def test_subjects_are_pooled(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run", {"bbh_cot_fewshot_a": ["1100"], "bbh_cot_fewshot_b": ["10"], "gsm8k": ["1"]})
    found = pooled(load_summary(folder))
    assert list(found) == ["bbh", "gsm8k"] and found["bbh"].right == {"0/0": "110010"}
    accuracy = found["bbh"].accuracy
    assert accuracy is not None and (accuracy.value, accuracy.count) == (0.5, 6)
    assert accuracy.error == pytest.approx(math.sqrt(4**2 * (1 / 3) / 4 + 2**2 * 0.5 / 2) / 6)


def test_runs_task_by_task_are_one(tmp_path: Path, pair: list[Path]) -> None:
    """A decoder's runs of one task each give the tables that one run of all of them gives."""
    apart = [
        make_run(tmp_path / f"{name} {task}", {task: right}, decoder=decoder, figures=figures)
        for name, decoder, figures, asked in (
            ("fixed", "fixed", {"forward_passes": 64}, {"maths": [OTHER], "logic": ["1" * 4]}),
            ("ours", OURS, {}, {"maths": [RIGHT], "logic": ["1100"]}),
        )
        for task, right in asked.items()
    ]
    whole = {name: table.markdown() for name, table in tables(*pair).items()}
    assert {name: table.markdown() for name, table in tables(*apart).items()} == whole
    twice = rows(tables(*pair, *apart)["results"])
    assert [row["decoder"] for row in twice] == ["fixed", "fixed", OURS, OURS], "the same task twice is two runs"


def test_a_saved_summary_gives_the_same_tables(pair: list[Path], tmp_path: Path) -> None:
    for folder in pair:
        load_summary(folder).save(folder / "summary.json")
    whole = {name: table.markdown() for name, table in tables(*pair).items()}
    for folder in pair:
        (folder / "items.jsonl").unlink()
    assert {name: table.markdown() for name, table in tables(*pair).items()} == whole
    alone = tables(*(folder / "summary.json" for folder in pair))
    assert {name: table.markdown() for name, table in alone.items()} == whole


def test_a_run_that_is_not_finished_is_told(tmp_path: Path, pair: list[Path]) -> None:
    lines = (pair[1] / "items.jsonl").read_bytes().splitlines(keepends=True)
    (pair[1] / "items.jsonl").write_bytes(b"".join(lines[:7]))
    found = load_summary(pair[1])
    assert not found.complete and found.tasks["maths"].right["0/0"] == "1111111---"
    report(pair, tmp_path / "out")
    assert "Not complete when this was made: " + OURS in (tmp_path / "out" / "tables.md").read_text()
    of_ours = rows(tables(*pair)["results"])[1]
    assert (of_ours["items"], of_ours["logic"], of_ours["mean"]) == ("7", "", ""), "no mean without all tasks"
    (pair[1] / "items.jsonl").write_bytes(b"")
    assert [row["decoder"] for row in rows(tables(*pair)["results"])] == ["fixed"], "nothing to show of it yet"


def test_runs_that_are_not_finished_are_left_out(tmp_path: Path, pair: list[Path]) -> None:
    report(pair[:1], tmp_path / "one")
    lines = (pair[1] / "items.jsonl").read_bytes().splitlines(keepends=True)
    (pair[1] / "items.jsonl").write_bytes(b"".join(lines[:7]))
    out = tmp_path / "out"
    report(pair, out, summaries=True, complete=True)
    assert (out / "tables.md").read_text() == (tmp_path / "one" / "tables.md").read_text()
    assert [path.parent.name for path in out.glob("*/summary.json")] == [pair[0].name]
    with pytest.raises(UserError, match="None of these runs is complete"):
        report(pair[1:], tmp_path / "none", complete=True)
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize(
    "tasks", [({"maths", "logic"}, {"logic"}), ({"logic"}, {"maths", "logic"}), ({"logic"}, {"maths"})]
)
def test_runs_of_different_tasks_are_paired_where_they_meet(tmp_path: Path, tasks: tuple[set[str], set[str]]) -> None:
    for name, decoder, asked in zip(("a", "b"), ("fixed", OURS), tasks, strict=True):
        make_run(tmp_path / "runs" / name, {task: ["1100"] for task in sorted(asked)}, decoder=decoder)
    report([tmp_path / "runs"], tmp_path / "out")
    both = tasks[0] & tasks[1]
    path = tmp_path / "out" / "mcnemar.csv"
    assert path.exists() == bool(both)
    assert not both or {row["task"] for row in csv.DictReader(path.read_text().splitlines())} == both


def test_other_evidence_weights_or_dtypes_make_another_run(tmp_path: Path) -> None:
    folders = [make_run(tmp_path / name, {"maths": ["1100"]}, decoder=OURS) for name in ("a", "b", "c")]
    for folder, changed in zip(folders[1:], ({"weights": {"gap": [1.0]}}, {"dtype": "bfloat16"}), strict=True):
        run = json.loads((folder / "run.json").read_text())
        run["settings"]["model"] |= changed
        (folder / "run.json").write_text(json.dumps(run))
    keys = [json.dumps(comparable(load_summary(folder), ())) for folder in folders]
    assert len(set(keys)) == 3


def test_latex_is_balanced_and_escaped() -> None:
    table = Table(
        "t", "50% of α_0 & more", ("a_b", "c"), (("x&y", Number(0.00001, digits=4, scientific=True)),), (("g", 2),)
    )
    text = table.latex()
    assert r"50\% of $\alpha$\_0 \& more" in text and r"\multicolumn{2}{c}{g}" in text and "1.0e-05" in text
    assert text.count("{") == text.count("}")
    assert sorted(re.findall(r"\\begin{(\w+)}", text)) == sorted(re.findall(r"\\end{(\w+)}", text))
    assert "| g a_b | g c |" in table.markdown()


def test_a_table_s_shape_is_checked() -> None:
    with pytest.raises(ValueError, match="1 cells for 2 columns"):
        Table("t", "", ("a", "b"), (("x",),))
    with pytest.raises(ValueError, match="do not span"):
        Table("t", "", ("a", "b"), (), (("g", 3),))


def test_what_is_no_result_is_told(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no result of `dystruct eval` at"):
        find_runs([tmp_path])
    with pytest.raises(UserError, match="is no result of `dystruct eval`"):
        load_summary(tmp_path / ("x" * 300))
    (tmp_path / "summary.json").write_text('{"format": "other"}')
    with pytest.raises(UserError, match="is no result of `dystruct eval`"):
        load_summary(tmp_path / "summary.json")


def test_no_accuracy_before_the_harness_has_scored(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run", {"gsm8k": ["11"]}, each={("gsm8k", n, 0): {"correct": None} for n in range(2)})
    found: RunSummary = load_summary(folder)
    assert found.tasks["gsm8k"].accuracy is None and not found.complete
    scores = {"0": {"correct": True, "value": "5", "metrics": {}}, "1": {"correct": False, "value": "", "metrics": {}}}
    (folder / "scores.json").write_text(json.dumps({"gsm8k": scores}))
    scored: Any = load_summary(folder).tasks["gsm8k"].accuracy
    assert scored == Mean(0.5, 0.5, 2)


def test_no_accuracy_where_the_harness_has_nothing_that_says_right_or_wrong(tmp_path: Path) -> None:
    """The run is whole all the same, and its other figures are shown."""
    folders = [
        make_run(tmp_path / name, {"mc2": ["11"]}, decoder=decoder)
        for name, decoder in (("fixed", "fixed"), ("ours", OURS))
    ]
    scores = {"mc2": {str(n): {"correct": None, "value": "", "metrics": {"acc": 0.3}} for n in range(2)}}
    for folder in folders:
        (folder / "scores.json").write_text(json.dumps(scores))
        found = load_summary(folder)
        assert found.complete and found.tasks["mc2"].accuracy is None and found.tasks["mc2"].right == {"0/0": "??"}
    made = tables(*folders)
    assert [row["mc2"] for row in rows(made["results"])] == ["", ""] and "mcnemar" not in made
    assert [row["accuracy"] for row in rows(made["efficiency"])] == ["", ""]


def test_tables_need_a_folder_that_can_be_made(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", {"tiny_logic": ["10"]})
    (tmp_path / "file").write_text("kept")
    with pytest.raises(UserError, match="is a file"):
        report([run], tmp_path / "file")
    for summaries in (False, True):
        with pytest.raises(UserError, match="cannot be made"):
            report([run], tmp_path / ("x" * 300), summaries=summaries)
    with pytest.raises(UserError, match="There is no result"):
        report([tmp_path / ("x" * 300)], tmp_path / "out")
    assert (tmp_path / "file").read_text() == "kept" and not (tmp_path / "out").exists()


def test_runs_of_several_models_are_told_apart(tmp_path: Path) -> None:
    one = [load_summary(path) for path in make_pair(tmp_path)]
    assert told_apart(one) == one, "there is one model"
    other = [replace(run, settings={**run.settings, "model": {**run.settings["model"], "name": "n"}}) for run in one]
    assert [run.label for run in told_apart([*one, *other])] == [f"{run.label}, {m}" for m in "mn" for run in one]
    chatting = [replace(run, settings={**run.settings, "chat": True}) for run in one]
    formed = [replace(run, settings={**run.settings, "prompt_format": "a{prompt}"}) for run in one]
    labels = [run.label for run in told_apart([*one, *chatting, *formed])]
    mine = [run.label for run in one]
    assert labels == [*mine, *(f"{n}, chat" for n in mine), *(f"{n}, prompt format 'a{{prompt}}'" for n in mine)]
    coarse = [replace(run, settings={**run.settings, "model": {**run.settings["model"], "dtype": "b"}}) for run in one]
    assert [run.label for run in told_apart([*one, *coarse])][2:] == [f"{run.label}, b" for run in one]
