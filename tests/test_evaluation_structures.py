"""MAP against sampled structures: votes, agreement and foretelling, on records whose answers are known."""

from __future__ import annotations

import math
import random
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from command_line import helps
from dystruct.decoding import Block, DyStruct, UserError, generate
from dystruct.decoding.evaluation.draws import DRAWN, with_draw
from dystruct.decoding.evaluation.report import report
from dystruct.decoding.evaluation.statistics import auroc, likelihood_ratio
from dystruct.decoding.evaluation.structures import Items, accuracies, majority, structure_tables
from dystruct.decoding.evaluation.table import Number
from evaluation_runs import FIGURES, make_run, on_other_items
from scripted import backbone, hashed, uneven_weights

ANSWERS = st.lists(st.sampled_from(["a", "b", "c", None]), min_size=4, max_size=6)


def records(answers: list[str | None], item: int = 0) -> list[dict[str, Any]]:
    return [
        {"task": "t", "item": item, "seed": 0, "draw": draw, "value": value, "correct": value == "a"}
        for draw, value in enumerate(answers)
    ]


@given(st.lists(ANSWERS, min_size=1, max_size=8), st.integers(1, 4))
def test_accuracies_against_counting(answers: list[list[str | None]], size: int) -> None:
    items = Items.of([record for item, given in enumerate(answers) for record in records(given, item)], ["t"], 0)
    found = accuracies(items, size)
    assert found is not None
    first = [given[:size] for given in answers]
    assert found.one.value == pytest.approx(sum(g.count("a") / size for g in first) / len(first))
    if size == 1:
        assert (found.majority, found.best, found.agreement) == (None, None, None), "of one there is nothing to choose"
        return
    assert found.best is not None and found.majority is not None
    assert found.best.value == pytest.approx(sum("a" in g for g in first) / len(first))
    won = 0
    for g in first:
        votes = [value for value in g if value is not None]
        won += bool(votes) and max(dict.fromkeys(votes), key=votes.count) == "a"
    assert found.majority.value == pytest.approx(won / len(first))
    equal = [sum(a == b for a, b in combinations(g, 2)) / (size * (size - 1) / 2) for g in first]
    assert found.agreement is not None and found.agreement.value == pytest.approx(sum(equal) / len(equal))
    assert accuracies(items, 7) is None


def test_the_majority_takes_the_earliest_of_equals() -> None:
    assert majority(records(["b", "a", "a", "b"]))["value"] == "b"
    assert majority(records([None, None, "c"]))["value"] == "c"
    assert majority(records([None, None]))["draw"] == 0


def test_the_tables(tmp_path: Path) -> None:
    """Wrong MAP answers have higher entropy here and less agreement; confidence says nothing."""
    generator, count = random.Random(3), 60
    right = "".join("1" if generator.random() < 0.5 else "0" for _ in range(count))
    each = {
        ("maths", n, 0): {"entropy": generator.gauss(2 + (sign == "0"), 1), "confidence": generator.random()}
        for n, sign in enumerate(right)
    }
    draws = ["".join(s if generator.random() < 0.7 else str(1 - int(s)) for s in right) for _ in range(4)]
    make_run(tmp_path / "runs" / "map", {"maths": [right]}, decoder="dystruct:structure=map", each=each)
    make_run(tmp_path / "runs" / "consensus", {"maths": ["1" * count]}, decoder="dystruct:structure=consensus")
    make_run(tmp_path / "runs" / "sample", {"maths": draws}, decoder="dystruct:structure=sample")
    report([tmp_path / "runs"], tmp_path / "out")
    lines = (tmp_path / "out" / "structures.csv").read_text().splitlines()
    heading, *found = [line.split(",") for line in lines]
    assert [row[:3] for row in found] == [["maths", "1", "60"], ["maths", "4", "60"]]
    by_name = dict(zip(heading, found[1], strict=True))
    assert float(by_name["MAP"]) == pytest.approx(right.count("1") / count)
    assert float(by_name["consensus"]) == 1
    assert float(by_name["oracle best"]) == pytest.approx(
        sum("1" in column for column in zip(*draws, strict=True)) / count
    )
    agree = sum(a == b == "1" for column, b in zip(zip(*draws, strict=True), right, strict=True) for a in column[1:])
    agree += sum(a == b for a, b in zip(draws[0], right, strict=True))  # a wrong answer's value names its draw
    assert float(by_name["agree with MAP"]) == pytest.approx(agree / 4 / count)

    heading, *found = [line.split(",") for line in (tmp_path / "out" / "uncertainty.csv").read_text().splitlines()]
    rows = {row[1]: dict(zip(heading, row, strict=True)) for row in found}
    assert list(rows) == [
        "token confidence", "text confidence", "entropy", "1 - P(MAP)", "disagreement", "all three of structure",
    ]  # fmt: skip
    known = auroc([each["maths", n, 0]["entropy"] for n in range(count)], [sign == "0" for sign in right])
    assert known is not None and float(rows["entropy"]["AUROC"]) == pytest.approx(known.value)
    assert float(rows["entropy"]["p"]) < 0.05 and float(rows["entropy"]["a standard deviation beside confidence"]) > 0
    whole = auroc([-20 * math.log(each["maths", n, 0]["confidence"]) for n in range(count)], [s == "0" for s in right])
    assert whole is not None and float(rows["text confidence"]["AUROC"]) == pytest.approx(whole.value)
    assert rows["1 - P(MAP)"]["p"] == "", "a constant score has no test"
    assert int(rows["entropy"]["wrong"]) == right.count("0")


KEYS = [(task, item) for task in "xy" for item in range(4)]
GIVEN = st.dictionaries(st.sampled_from(KEYS), st.lists(st.sampled_from("abc"), min_size=1, max_size=5))
ONE = st.dictionaries(st.sampled_from(KEYS), st.lists(st.sampled_from("abc"), min_size=1, max_size=1))


@given(ONE, ONE | st.none(), GIVEN)
def test_a_row_is_of_the_same_items_throughout(
    best: dict[Any, list[str]], consensus: dict[Any, list[str]] | None, drawn: dict[Any, list[str]]
) -> None:
    """In the middle of a sweep, too, where each rule has other items; a task that lacks one has no row."""
    given = {"map": best, "sample": drawn} | ({} if consensus is None else {"consensus": consensus})
    told = {"entropy": None, "confidence": None, "map_probability": None}  # without which there is no score
    runs = {
        rule: [{**record, **told, "task": task} for (task, item), a in of.items() for record in records([*a], item)]
        for rule, of in given.items()
    }
    found = {}
    for table in structure_tables(runs, 0, "")[:1]:
        found = {row[:2]: dict(zip(table.columns, row, strict=True)) for row in table.rows}
    common = {task for task, _ in best} & {task for task, _ in drawn}
    pooled = {**{task: {task} for task in common}, **({"all": common} if len(common) > 1 else {})}
    wanted = {}
    for name, members in pooled.items():
        others = [] if consensus is None or not members <= {task for task, _ in consensus} else [consensus]
        for size in (1, 4):
            items = [key for key in drawn if key[0] in members and len(drawn[key]) >= size and key in best]
            items = [key for key in items if all(key in of for of in others)]
            if {task for task, _ in items} == members:
                wanted[name, size] = items, others
    assert found.keys() == wanted.keys()
    for (name, size), (items, others) in wanted.items():
        row = found[name, size]
        assert row["items"] == len(items)
        assert row["MAP"].value == pytest.approx(sum(best[key] == ["a"] for key in items) / len(items))
        one = sum(drawn[key][:size].count("a") / size for key in items) / len(items)
        assert row["one sample"].value == pytest.approx(one)
        agree = sum(drawn[key][:size].count(best[key][0]) / size for key in items) / len(items)
        assert row["agree with MAP"].value == pytest.approx(agree)
        assert (row["consensus"] is None) == (not others)
        for of in others:
            assert row["consensus"].value == pytest.approx(sum(of[key] == ["a"] for key in items) / len(items))


def test_other_items_are_not_put_beside(tmp_path: Path) -> None:
    """Runs on other data have tables of their own; item 0 here and item 0 there are two items."""
    rules = {"map": ["1100"], "sample": ["1010"] * 2, "shuffled": ["0110"] * 2}
    for place in ("here", "there"):
        for rule, right in rules.items():
            run = make_run(tmp_path / place / rule, {"maths": right}, decoder=f"dystruct:structure={rule}")
            if place == "there":
                on_other_items(run)
    mixed = [tmp_path / "here" / "map", tmp_path / "there" / "sample", tmp_path / "there" / "shuffled"]
    for name, paths in (
        ("one", [tmp_path / "here"]),
        ("two", [tmp_path / p for p in ("here", "there")]),
        ("no", mixed),
    ):
        report(paths, tmp_path / name)
    for table in ("structures", "uncertainty", "variation"):
        one = (tmp_path / "one" / f"{table}.csv").read_text()
        assert [(tmp_path / "two" / f"{table}{number}.csv").read_text() for number in ("", "-2")] == [one, one]
        assert not (tmp_path / "no" / f"{table}.csv").exists()


def test_all_tasks_together() -> None:
    """Accuracies are as of one task; scores foretell errors inside the tasks, by as many pairs as these have."""
    generator = random.Random(5)

    def record(task: str, item: int, draw: int) -> dict[str, Any]:
        value = generator.choice("abc" if task == "x" else "abbbcc")
        told = {name: generator.random() for name in ("entropy", "confidence", "map_probability")}
        told["useful_tokens"] = generator.randrange(1, 90)
        return {"task": task, "item": item, "seed": 0, "draw": draw, "value": value, "correct": value == "a", **told}

    two = {
        rule: [record(task, item, draw) for task in ("x", "y") for item in range(20) for draw in range(draws)]
        for rule, draws in (("map", 1), ("sample", 4))
    }
    one = {
        rule: [{**r, "task": "all", "item": r["item"] + 20 * (r["task"] == "y")} for r in found]
        for rule, found in two.items()
    }
    (apart, foretold), (together, _) = structure_tables(two, 0, ""), structure_tables(one, 0, "")
    rows = [row for row in apart.rows if row[0] == "all"]
    assert len(rows) * 3 == len(apart.rows)
    for row, wanted in zip(rows, together.rows, strict=True):
        for cell, known in zip(row, wanted, strict=True):
            value, target = (x.value if isinstance(x, Number) else x for x in (cell, known))
            assert value == (pytest.approx(target) if isinstance(target, float) else target)

    by_name = {row[:2]: dict(zip(foretold.columns, row, strict=True)) for row in foretold.rows}
    for score in ("token confidence", "entropy", "disagreement"):
        parts = [by_name[task, score] for task in ("x", "y")]
        pairs = [part["wrong"] * part["right"] for part in parts]
        wanted = sum(n * part["AUROC"].value for n, part in zip(pairs, parts, strict=True)) / sum(pairs)
        assert by_name["all", score]["AUROC"].value == pytest.approx(wanted)
    wrong = [not r["correct"] for r in two["map"]]
    ratio = likelihood_ratio(
        [-r["confidence"] for r in two["map"]], [r["entropy"] for r in two["map"]], wrong, ["x"] * 20 + ["y"] * 20
    )
    assert ratio is not None and by_name["all", "entropy"]["χ²"].value == pytest.approx(ratio.statistic)


def test_there_are_none_without_both_rules() -> None:
    assert structure_tables({"map": [{**FIGURES, "task": "t"}]}, 0, "") == []


def test_draws_differ_in_structure_and_share_the_tokens_noise() -> None:
    model = backbone(hashed(3, end_logit=-50.0), weights=uneven_weights())
    decoder = DyStruct(structure="sample", passes="share")

    def run(draw: int, seed: int = 0) -> Any:
        [found] = generate(model, ["abcde"], with_draw(decoder, draw), max_new_tokens=60, budget=120, seed=seed)
        return found

    [plain] = generate(model, ["abcde"], decoder, max_new_tokens=60, budget=120)
    assert run(0).windows == plain.windows
    shapes = [[(w.opened.length, w.structure.ends) for w in run(draw).windows] for draw in range(4)]
    assert all(a != b for a, b in combinations(shapes, 2))
    assert run(2).windows == run(2).windows != run(2, seed=1).windows
    assert run(2).settings["structure"] == "sample"


def test_draws_are_draws_from_the_posterior() -> None:
    """Over 400 draws of one window's partition, the mean number of cuts is the sum of the cut marginals (5 errors)."""
    from dystruct.decoding.randomness import Streams
    from dystruct.inference import posterior
    from dystruct.model import Context, Diagnostics, PriorConfig

    exact = posterior(Diagnostics([0.5] * 9, [0.4, -1.0, 0.1, 0.7, -0.3, 0.2, 0.9, -0.6]), Context(), PriorConfig())
    cuts = []
    for draw in range(400):
        rule: Any = with_draw(DyStruct(structure="sample"), draw).structure
        if draw:
            cuts.append(rule.structure(exact, Streams.of(0, [1, 2])).partition.count - 1.0)
    values = torch.tensor(cuts)
    error = float(values.std()) / len(cuts) ** 0.5
    assert abs(float(values.mean()) - float(exact.cut_marginals.sum())) < 5 * error


def test_only_drawn_structures_have_draws() -> None:
    assert all(f"structure={rule}" in helps("eval")["--draws"] for rule in DRAWN)
    assert with_draw(Block(), 0) == Block()
    for decoder in (Block(), DyStruct(structure="map")):
        with pytest.raises(UserError, match="structure=sample or dystruct:structure=shuffled"):
            with_draw(decoder, 1)
