"""Answers kept beside a summary: enough for every table that counts single answers, prolonged with it, or refused."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dystruct.decoding import UserError
from dystruct.decoding.evaluation.answers import ANSWERS, read_answers, save_answers
from dystruct.decoding.evaluation.report import report
from dystruct.decoding.evaluation.summary import RunSummary, summarise
from evaluation_runs import make_run

TASKS = ("tiny_maths", "tiny_logic")
MAP, SAMPLE, SHUFFLED = (f"dystruct:passes=share,structure={rule}" for rule in ("map", "sample", "shuffled"))
VOTED = {"structures", "uncertainty", "variation", "disagreement"}
SIGNS = {
    MAP: ["11010010110001011010"],
    SAMPLE: ["11001010010001010110", "01011011100011011000", "10000110110100011010"],
    SHUFFLED: ["01001010110100010010", "11000010010011011001", "10100111100001001010"],
}


def make_group(folder: Path, start: int = 0, end: int = 20) -> list[Path]:
    """MAP's answers beside sampled and shuffled ones, to the items from `start` to `end` of two tasks."""
    return [
        make_run(
            folder / decoder.rpartition("=")[2],
            {task: [signs[:end] for signs in draws] for task in TASKS},
            decoder=decoder,
            each=_figures(decoder),
            limit=end,
            skip=start,
        )
        for decoder, draws in SIGNS.items()
    ]


def _figures(decoder: str) -> dict[tuple[str, int, int], dict[str, Any]]:
    """Of each answer other figures, and one of two values, so that no score tells right ones from wrong ones."""
    random = np.random.default_rng(len(decoder))
    return {
        (task, item, draw): {
            "value": str(random.integers(2)),
            "confidence": random.random(),
            "entropy": random.random(),
            "map_probability": random.random(),
        }
        for task in TASKS
        for item in range(20)
        for draw in range(3)
    }


def test_what_is_kept_gives_the_same_tables(tmp_path: Path) -> None:
    """In a copy, and in place; also where a summary's file is named."""
    written = report(make_group(tmp_path / "runs"), tmp_path / "out", summaries=True)
    assert {path.stem for path in written} >= VOTED
    kept = [tmp_path / "out" / rule / ANSWERS for rule in ("map", "sample", "shuffled")]
    assert set(kept) <= set(written)
    before = [path.read_text() for path in kept]
    made = {name: (tmp_path / "out" / name).read_text() for name in ("tables.md", *(f"{voted}.csv" for voted in VOTED))}
    files = sorted((tmp_path / "out").glob("*/summary.json"))
    for paths, out in (([tmp_path / "out"], "again"), ([tmp_path / "out"], "out"), (files, "of files")):
        report(paths, tmp_path / out, summaries=True)
        assert {name: (tmp_path / out / name).read_text() for name in made} == made
        assert [(tmp_path / out / path.parent.name / ANSWERS).read_text() for path in kept] == before


@pytest.mark.parametrize("decoder", [MAP, SAMPLE])
def test_tables_that_want_answers_are_missed_in_words(tmp_path: Path, decoder: str) -> None:
    """Of runs that would have them; not of others, though they have several answers an item."""
    make_run(tmp_path / "runs" / "fixed", {task: ["10", "11"] for task in TASKS}, decoder="fixed")
    make_group(tmp_path / "runs")
    report([tmp_path / "runs"], tmp_path / "out", summaries=True)
    assert not (tmp_path / "out" / "fixed" / ANSWERS).exists()
    assert "Without tables" not in (tmp_path / "out" / "tables.md").read_text()
    (tmp_path / "out" / decoder.rpartition("=")[2] / ANSWERS).unlink()
    names = {path.stem for path in report([tmp_path / "out"], tmp_path / "again")}
    assert not names & {"structures", "uncertainty"}
    said = (tmp_path / "again" / "tables.md").read_text().splitlines()[-1]
    assert said == f"Without tables of votes and of disagreement, since their answers are not here: {decoder}."


@pytest.mark.parametrize("counted", [True, False])
def test_answers_are_prolonged_with_their_summary(tmp_path: Path, counted: bool) -> None:
    """From the items of the rest, whether or not the tables count them this time."""
    report(make_group(tmp_path / "all"), tmp_path / "whole", summaries=True)
    out = tmp_path / "kept"
    report(make_group(tmp_path / "first", 0, 2), out, summaries=True)
    make_group(tmp_path / "rest", 2, 20)
    names = ["map", "sample", "shuffled"] if counted else ["sample"]
    report([parent / name for name in names for parent in (out, tmp_path / "rest")], out, summaries=True)
    for name in names:
        assert (out / name / ANSWERS).read_text() == (tmp_path / "whole" / name / ANSWERS).read_text()
    report([out, tmp_path / "rest"], out, summaries=True)
    for name in VOTED:
        assert (out / f"{name}.csv").read_text() == (tmp_path / "whole" / f"{name}.csv").read_text()


def test_answers_that_would_be_too_few_are_not_left_there(tmp_path: Path) -> None:
    out = tmp_path / "kept"
    report(make_group(tmp_path / "first", 0, 2), out, summaries=True)
    report([make_group(tmp_path / "rest", 2, 20)[1]], tmp_path / "summary alone", summaries=True)
    before, answers = ((out / "sample" / name).read_text() for name in ("summary.json", ANSWERS))
    with pytest.raises(UserError, match=r"sample/answers\.csv' has not the answers of the run whose summary"):
        report([out / "sample", tmp_path / "summary alone"], out, summaries=True)
    assert (out / "sample" / "summary.json").read_text() == before
    assert (out / "sample" / ANSWERS).read_text() == answers


def test_answers_stay_where_their_run_is_kept_without_them(tmp_path: Path) -> None:
    report(make_group(tmp_path / "runs"), tmp_path / "out", summaries=True)
    report([tmp_path / "runs" / "sample"], tmp_path / "alone", summaries=True)
    before = (tmp_path / "out" / "sample" / ANSWERS).read_text()
    report([tmp_path / "alone"], tmp_path / "out", summaries=True)
    assert (tmp_path / "out" / "sample" / ANSWERS).read_text() == before


def test_answers_that_the_summary_does_not_count_are_left_out(tmp_path: Path) -> None:
    """As where a run went on while the tables were made, or was prolonged and the command stopped in between."""
    short, long = make_group(tmp_path / "short", 0, 9), make_group(tmp_path / "long")
    for first, second in zip(short, long, strict=True):
        (first / "items.jsonl").write_bytes((second / "items.jsonl").read_bytes())
        summary, answers = summarise(second), read_answers([second], summarise(second))
        assert read_answers([first], _first(summary, 9)) == [a for a in answers if a["item"] < 9]
        save_answers(tmp_path / "short" / first.name / ANSWERS, answers)
        (first / "items.jsonl").unlink()
        assert read_answers([first], _first(summary, 9)) == [a for a in answers if a["item"] < 9]


def _first(summary: RunSummary, items: int) -> RunSummary:
    cut = {
        name: replace(task, right={stream: signs[:items] for stream, signs in task.right.items()})
        for name, task in summary.tasks.items()
    }
    return replace(summary, tasks=cut)


def test_repeats_and_likelihoods_are_no_answers_that_are_counted(tmp_path: Path) -> None:
    """The harness numbers an item's repeats and its requests as draws; the summary counts the first alone."""
    for rule in ("map", "sample"):
        run = make_run(tmp_path / "runs" / rule, {"gsm8k": ["10110100"]}, decoder=f"dystruct:structure={rule}")
        with (run / "items.jsonl").open("a") as lines:
            for line in (run / "items.jsonl").read_text().splitlines():
                lines.write(json.dumps({**json.loads(line), "draw": 1}) + "\n")
        _likelihoods(
            make_run(tmp_path / "runs" / f"likely {rule}", {"arc": ["10"]}, decoder=f"dystruct:structure={rule}")
        )
    report([tmp_path / "runs"], tmp_path / "out", summaries=True)
    assert len((tmp_path / "out" / "map" / ANSWERS).read_text().splitlines()) == 9
    report([tmp_path / "out"], tmp_path / "again")
    assert (tmp_path / "again" / "structures.csv").read_text() == (tmp_path / "out" / "structures.csv").read_text()


def _likelihoods(run: Path) -> None:
    """Turn a run's records into likelihoods."""
    likelihood = {"likelihood": -1.5, "greedy": False, "passes": {}, "stop_reason": "likelihood"}
    kept = ("task", "item", "seed", "draw", "kind", "correct", "reason", "value", "text")
    records = map(json.loads, (run / "items.jsonl").read_text().splitlines())
    lines = ({**{name: record[name] for name in kept}, **likelihood} for record in records)
    (run / "items.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


def _unscored(run: Path) -> None:
    """Take back what a run's records say is right, as they are before the harness has scored them."""
    records = map(json.loads, (run / "items.jsonl").read_text().splitlines())
    lines = (json.dumps({**record, "correct": None, "value": None}) + "\n" for record in records)
    (run / "items.jsonl").write_text("".join(lines))


@pytest.mark.parametrize("emptied", [lambda run: (run / "items.jsonl").write_text(""), _likelihoods, _unscored])
@pytest.mark.parametrize("which", [(0,), (1, 2)])
def test_runs_without_answers_yet_are_as_if_they_were_not_there(
    tmp_path: Path, emptied: Callable[[Path], Any], which: tuple[int, ...]
) -> None:
    """Begun, of likelihoods, or not scored."""
    runs = make_group(tmp_path / "runs")
    for place in which:
        emptied(runs[place])
    rest = [run for place, run in enumerate(runs) if place not in which]
    made, alone = (
        {path.name: path.read_bytes() for path in report(paths, tmp_path / "out") if path.stem in (*VOTED, "votes")}
        for paths in (runs, rest)
    )
    assert made == alone


def test_a_file_of_another_name_has_no_answers(tmp_path: Path) -> None:
    """It lies beside those of another run, perhaps."""
    runs = make_group(tmp_path / "runs")
    summarise(runs[0]).save(runs[1] / "old map.json")
    names = {path.stem for path in report([runs[1] / "old map.json", *runs[1:]], tmp_path / "out")}
    assert not names & VOTED


def test_an_unfinished_run_does_not_replace_what_is_kept(tmp_path: Path) -> None:
    runs = make_group(tmp_path / "runs")
    report(runs, tmp_path / "out", summaries=True)
    before = {path: path.read_bytes() for path in (tmp_path / "out").rglob("*.*") if path.is_file()}
    lines = (runs[1] / "items.jsonl").read_bytes().splitlines(keepends=True)
    (runs[1] / "items.jsonl").write_bytes(b"".join(lines[:9]))
    with pytest.raises(UserError, match="is of items that the run in its place would not have"):
        report(runs, tmp_path / "out", summaries=True)
    assert {path: path.read_bytes() for path in (tmp_path / "out").rglob("*.*") if path.is_file()} == before


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (lambda text: "", "its columns are not task, item"),
        (lambda text: text.replace("seed,draw", "draw,seed", 1), "its columns are not task, item"),
        (lambda text: text.replace(",1,", ",0,", 1), "not the answers that summary.json counts"),
        (lambda text: text[: text.rindex("tiny_maths")], "not the answers that summary.json counts"),
        (lambda text: text + text.splitlines()[-1] + "\n", "an answer is there twice"),
        (lambda text: text + "tiny_maths,1\n", "line 42 is no answer"),
        (lambda text: re.sub(r",0\.\d+", ",nan", text, count=1), "line 2 is no answer"),
        (lambda text: text.replace("tiny_maths,0,", "tiny_maths,x,", 1), "line 22 is no answer"),
        (lambda text: text.replace(",1,", ",2,", 1), "line 2 is no answer"),
        (lambda text: re.sub(r",0\.\d+\n", ",\n", text, count=1), "line 2 is no answer"),
        (lambda text: text.replace(",20,", f",{10**400},", 1), "line 2 is no answer"),
        (lambda text: text + '"', "unexpected end of data"),
    ],
)
def test_damaged_answers_are_refused(tmp_path: Path, damage: Callable[[str], str], says: str) -> None:
    report(make_group(tmp_path / "runs"), tmp_path / "out", summaries=True)
    path = tmp_path / "out" / "map" / ANSWERS
    path.write_text(damage(path.read_text()))
    with pytest.raises(UserError, match=f"map' is damaged .*{says}"):
        report([tmp_path / "out"], tmp_path / "again")
    assert not (tmp_path / "again").exists()


@given(
    values=st.lists(st.one_of(st.none(), st.text(max_size=5)), min_size=4, max_size=4),
    figures=st.lists(st.one_of(st.none(), st.floats(-1e6, 1e6)), min_size=4, max_size=4),
    signs=st.lists(st.sampled_from("01"), min_size=4, max_size=4),
)
def test_they_are_read_as_they_were_saved(
    tmp_path_factory: pytest.TempPathFactory, values: list[str | None], figures: list[float | None], signs: list[str]
) -> None:
    """Two values are equal afterwards if and only if they were, and what had none has none."""
    folder = tmp_path_factory.mktemp("answers")
    each = {
        ("tiny_maths", item, 0): {"value": value, "confidence": figure}
        for item, (value, figure) in enumerate(zip(values, figures, strict=True))
    }
    run = make_run(folder / "run", {"tiny_maths": ["".join(signs)]}, limit=4, decoder=MAP, each=each)
    made = read_answers([run], summarise(run))
    kept = folder / "kept"
    kept.mkdir()
    summarise(run).save(kept / "summary.json")
    save_answers(kept / ANSWERS, made)
    assert read_answers([kept], summarise(run)) == made
    hashes = [answer["value"] for answer in made]
    assert [a == b for a in hashes for b in hashes] == [a == b for a in values for b in values]
    for answer, figure in zip(made, figures, strict=True):
        assert answer["confidence"] == (None if figure is None else pytest.approx(figure, rel=1e-8))
