"""Ways to vary an answer: which runs are one, and their tables on records whose answers are known."""

from __future__ import annotations

import csv
import random
from pathlib import Path
from typing import Any

import pytest

from dystruct.decoding.evaluation.report import report
from dystruct.decoding.evaluation.statistics import auroc, likelihood_ratio
from dystruct.decoding.evaluation.variation import BASE, variation_tables, way_of
from evaluation_runs import make_run


@pytest.mark.parametrize(
    ("structure", "temperature", "seeds", "way"),
    [
        ("map", 0.0, [0], BASE),
        ("sample", 0.0, [0], "sampled structures"),
        ("shuffled", 0.0, [0], "shuffled structures"),
        ("map", 0.5, [0, 1], "sampled tokens, temperature 0.5"),
        ("map", 0.5, [0], None),
        ("sample", 0.5, [0, 1], None),
        ("consensus", 0.0, [0], None),
        (None, 0.0, [0], None),
    ],
)
def test_which_runs_are_a_way(structure: str | None, temperature: float, seeds: list[int], way: str | None) -> None:
    decoder = {"structure": structure} if structure else {}
    assert way_of({"decoder_settings": decoder, "temperature": temperature, "seeds": seeds}) == way


def records(answers: dict[int, str], *, seed: int = 0, draw: int = 0, task: str = "t") -> list[dict[str, Any]]:
    return [
        {"task": task, "item": item, "seed": seed, "draw": draw, "value": value, "correct": value == "a"}
        for item, value in answers.items()
    ]


def test_a_way_is_its_draws_or_its_seeds() -> None:
    base = records({0: "a", 1: "b", 2: "b"})
    first, second = {0: "a", 1: "b", 2: "c"}, {0: "c", 1: "a", 2: "c"}
    drawn = records(first) + records(second, draw=1)
    seeded = records(first) + records(second, seed=1)
    table, *_ = variation_tables({BASE: base, "draws": drawn, "seeds": seeded}, "")
    one, other = (dict(zip(table.columns, row, strict=True)) for row in table.rows)
    assert {**one, "way": ""} == {**other, "way": ""}
    assert (one["S"], one["items"]) == (2, 3)
    values = {name: one[name].value for name in ("MAP", "one of S", "majority", "oracle best", "agree with MAP")}
    assert values == pytest.approx(
        {"MAP": 1 / 3, "one of S": 2 / 6, "majority": 1 / 3, "oracle best": 2 / 3, "agree with MAP": 2 / 6}
    )


def test_the_tables_of_runs(tmp_path: Path) -> None:
    """Wrong answers are changed by tokens and not by structures, so that the one tells them and the other does not."""
    generator, count = random.Random(7), 80
    right = "".join(generator.choice("01") for _ in range(count))

    def answers(kept: dict[str, float]) -> dict[tuple[str, int, int], dict[str, Any]]:
        return {
            ("maths", n, draw): {"value": "same" if generator.random() < kept[sign] else f"else {draw}"}
            for n, sign in enumerate(right)
            for draw in range(4)
        }

    runs, base = tmp_path / "runs", {("maths", n, 0): {"value": "same"} for n in range(count)}
    structures, shuffled = answers({"0": 0.6, "1": 0.6}), answers({"0": 0.3, "1": 0.7})
    make_run(runs / "map", {"maths": [right]}, decoder="dystruct:structure=map", each=base)
    for name, each in (("sample", structures), ("shuffled", shuffled)):
        make_run(runs / name, {"maths": [right] * 4}, decoder=f"dystruct:structure={name}", each=each)
    make_run(runs / "longer", {"maths": [right] * 4}, decoder="dystruct:structure=shuffled,r-weld=3", each=each)
    report([runs], tmp_path / "out")

    def read(name: str) -> list[dict[str, str]]:
        return list(csv.DictReader((tmp_path / "out" / f"{name}.csv").read_text().splitlines()))

    found = {row["way"]: row for row in read("variation")}
    assert list(found) == ["sampled structures", "shuffled structures"], "and no run with other settings"
    wrong = [sign == "0" for sign in right]
    scores = [
        [sum(each["maths", n, draw]["value"] != "same" for draw in range(4)) / 4 for n in range(count)]
        for each in (structures, shuffled)
    ]
    for row, score in zip(found.values(), scores, strict=True):
        area = auroc(score, wrong)
        assert area is not None and float(row["AUROC"]) == pytest.approx(area.value)
        assert float(row["agree with MAP"]) == pytest.approx(1 - sum(score) / count)
    assert float(found["sampled structures"]["AUROC"]) < 0.65 < 0.8 < float(found["shuffled structures"]["AUROC"])
    added = {row["disagreement of"]: row for row in read("disagreement")}
    ratio = likelihood_ratio(scores[0], scores[1], wrong)
    assert ratio is not None and float(added["shuffled structures"]["χ²"]) == pytest.approx(ratio.statistic)
    assert float(added["shuffled structures"]["p"]) < 1e-4 < 0.01 < float(added["sampled structures"]["p"])


def test_there_are_none_of_one_way() -> None:
    base = records({0: "a"})
    assert variation_tables({BASE: base, "draws": base}, "") == []
    assert variation_tables({"draws": base, "seeds": base, "more": base}, "") == []
