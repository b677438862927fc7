"""Ways to vary an answer: which runs are one, and their tables on records whose answers are known."""

from __future__ import annotations

import csv
import random
from pathlib import Path
from typing import Any

import pytest

from dystruct.decoding.evaluation.report import report
from dystruct.decoding.evaluation.statistics import auroc, likelihood_ratio
from dystruct.decoding.evaluation.variation import BASE, variation_tables, vote_curves, way_of
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
        {
            "task": task, "item": item, "seed": seed, "draw": draw, "value": value, "correct": value == "a",
            "forward_passes": 10 + item,
        }
        for item, value in answers.items()
    ]  # fmt: skip


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
    assert (one["gain"].value, one["passes of S"].value) == pytest.approx((0, 22)), "of two answers, 10 to 12 each"


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


def test_one_way_is_beside_no_other() -> None:
    base, drawn = records({0: "a"}), records({0: "a"}) + records({0: "b"}, draw=1)
    [table] = variation_tables({BASE: base, "draws": drawn}, "")
    assert table.name == "variation" and [row[1] for row in table.rows] == ["draws"]


def test_there_are_none_without_the_base_or_with_one_answer_an_item() -> None:
    base, drawn = records({0: "a"}), records({0: "a"}) + records({0: "b"}, draw=1)
    for runs in ({BASE: base, "draws": base}, {"draws": drawn, "seeds": drawn}, {BASE: base}):
        assert variation_tables(runs, "") == [] and vote_curves(runs) is None


def test_ways_that_share_no_item_are_not_held_against_each_other() -> None:
    base = records({0: "a", 1: "b"})
    ways = {name: records({n: "a"}) + records({n: "b"}, draw=1) for n, name in enumerate(("one", "other"))}
    [table] = variation_tables({BASE: base, **ways}, "")
    assert table.name == "variation" and [row[1] for row in table.rows] == ["one", "other"]
    assert vote_curves({BASE: base, **ways}) is None


def test_a_picture_has_the_number_of_its_table(tmp_path: Path) -> None:
    """The first pair answers all right, so that its scores tell nothing and have no picture."""
    each = {
        ("maths", n, draw): {"value": f"{n * draw}", "entropy": 1.0 + n, "map_probability": 0.5, "confidence": 0.5}
        for n in range(10)
        for draw in range(2)
    }
    for k, right in enumerate(("1" * 10, "1001101010")):
        for rule, draws in (("map", 1), ("sample", 2)):
            decoder = f"dystruct:structure={rule},r-weld={k + 3}"
            make_run(tmp_path / "runs" / f"{k}{rule}", {"maths": [right] * draws}, decoder=decoder, each=each)
    report([tmp_path / "runs"], tmp_path / "out")
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert {"uncertainty.csv", "uncertainty-2.csv", "uncertainty-2.png", "votes.png", "votes-2.png"} <= names
    assert "uncertainty.png" not in names


def test_votes_count_the_first_answers_of_what_all_ways_have() -> None:
    """Three items that all have, of which the base has the first right; a fourth that one way lacks."""
    base = records({0: "a", 1: "b", 2: "b", 3: "a"})
    answers = {0: "abbab", 1: "aabbb", 2: "bbbba"}
    drawn = [r for draw in range(5) for r in records({n: texts[draw] for n, texts in answers.items()}, draw=draw)]
    seeded = [r for seed in range(2) for r in records(dict.fromkeys(range(4), "a"), seed=seed)]
    found = vote_curves({BASE: base, "draws": drawn, "seeds": seeded})
    assert found is not None and (found.base.value, found.base.count) == (pytest.approx(1 / 3), 3)
    assert {way: [each.size for each in sizes] for way, sizes in found.ways.items()} == {
        "draws": [1, 2, 4, 5], "seeds": [1, 2]
    }  # fmt: skip
    one, *more = found.ways["draws"]
    assert one.one.value == pytest.approx(2 / 3) and one.majority is None
    # of two or four answers a tie goes to the earliest: a; b, b, a, a, b has three b
    assert [(each.majority.value, each.best.value) for each in more if each.majority and each.best] == [
        pytest.approx(pair) for pair in ((2 / 3, 2 / 3), (2 / 3, 2 / 3), (0, 1))
    ]


def test_the_pictures_of_runs_are_written_and_removed_with_them(tmp_path: Path) -> None:
    right, out = "1001101010", tmp_path / "out"
    each = {
        ("maths", n, draw): {
            "value": f"{(n * draw) % 3}", "entropy": float(n), "map_probability": 0.5, "confidence": n / 20
        }
        for n in range(10)
        for draw in range(4)
    }  # fmt: skip
    make_run(tmp_path / "runs" / "map", {"maths": [right]}, decoder="dystruct:structure=map", each=each)
    make_run(tmp_path / "other" / "sample", {"maths": [right] * 4}, decoder="dystruct:structure=sample", each=each)
    report([tmp_path / "runs", tmp_path / "other"], out)
    assert sorted(path.name for path in out.glob("*.png") if not path.name.startswith("accuracy")) == [
        "uncertainty.png", "votes.png"
    ]  # fmt: skip
    own = [out / name for name in ("votes-mine.png", "uncertainty-of-mine.png")]
    for path in own:
        path.write_text("mine")
    report([tmp_path / "runs"], out)
    assert [path.read_text() for path in own] == ["mine", "mine"]
    for path in own:
        path.unlink()
    assert not list(out.glob("votes*")) and not list(out.glob("uncertainty*"))


def test_items_without_all_their_answers_are_left_out() -> None:
    base = records({0: "a", 1: "b", 2: "b"})
    drawn = [r for draw in range(3) for r in records({0: "a", 1: "b", 2: "a"}, draw=draw)]
    short = [r for r in drawn if (r["item"], r["draw"]) != (2, 2)]
    for partial, items in ((drawn, 3), (short, 2), (short + records({0: "a"}, draw=3), 1)):
        table, *_ = variation_tables({BASE: base, "draws": partial, "seeds": drawn}, "")
        row = dict(zip(table.columns, table.rows[0], strict=True))
        assert (row["S"], row["items"]) == (3 + (items == 1), items)
        assert row["agree with MAP"].value == pytest.approx({3: 2 / 3, 2: 1, 1: 1}[items])


@pytest.mark.parametrize("missing", [{"maths"}, {"logic"}, {"maths", "logic"}])
def test_a_way_that_has_no_item_of_a_task_yet(missing: set[str], tmp_path: Path) -> None:
    """As in the middle of a sweep."""
    runs, right = tmp_path / "runs", {"maths": "1010", "logic": "0110"}
    make_run(runs / "map", {task: [signs] for task, signs in right.items()}, decoder="dystruct:structure=map")
    for name in ("sample", "shuffled"):
        make_run(
            runs / name, {task: [signs, "1100"] for task, signs in right.items()}, decoder=f"dystruct:structure={name}"
        )
    path = runs / "shuffled" / "items.jsonl"
    kept = [line for line in path.read_text().splitlines(keepends=True) if not any(f'"{m}"' in line for m in missing)]
    path.write_text("".join(kept))
    report([runs], tmp_path / "out")
    found = (tmp_path / "out" / "variation.csv").read_text()
    for task in right:
        assert f"{task},sampled structures" in found
        assert (f"{task},shuffled structures" in found) == (task not in missing)


def test_tasks_of_a_way_may_lie_in_several_runs(tmp_path: Path) -> None:
    """And of two runs of a task the one with more answers counts."""
    runs, right = tmp_path / "runs", {"maths": "1010", "logic": "0110"}
    for task, signs in right.items():
        for name, draws in (("map", 1), ("sample", 2), ("shuffled", 2)):
            make_run(runs / f"{name}-{task}", {task: [signs] * draws}, decoder=f"dystruct:structure={name}")
    make_run(runs / "zzz", {"maths": ["1010"]}, decoder="dystruct:structure=sample")
    report([runs], tmp_path / "out")
    rows = list(csv.DictReader((tmp_path / "out" / "variation.csv").read_text().splitlines()))
    assert [(row["task"], row["S"], row["items"]) for row in rows] == [
        (task, "2", str(items)) for task, items in (("logic", 4), ("maths", 4), ("all", 8)) for _ in range(2)
    ]
