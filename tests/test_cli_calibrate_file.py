"""`dystruct calibrate --file`: problems of one's own."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dystruct.decoding
from command_line import Run
from dystruct.decoding.calibration import Known
from dystruct.decoding.terminal.problem_file import read_problems
from dystruct.inference.calibration import from_windows

LETTERS = "abcdefghij"


def line(**entries: Any) -> str:
    return json.dumps({"question": "ab", "answer": "cd", **entries})


def write(path: str, *lines: str) -> None:
    Path(path).write_text("".join(f"{text}\n" for text in lines))


texts = st.text(st.characters(codec="utf-8"), max_size=12).filter(str.strip)


@settings(max_examples=40)
@given(
    st.lists(st.tuples(texts, texts, st.none() | texts), max_size=6, unique_by=lambda problem: problem[0].split()[0]),
    st.sampled_from(["\n", "\r\n"]),
)
def test_problems_are_those_of_the_file(
    tmp_path_factory: pytest.TempPathFactory, asked: list[tuple[str, str, str | None]], line_end: str
) -> None:
    path = tmp_path_factory.mktemp("problems") / "gsm8k.jsonl"
    lines = [
        {"more": [1], "question": question, "answer": answer, **({} if domain is None else {"domain": domain})}
        for question, answer, domain in asked
    ]
    for ascii_only, last in ((True, ""), (False, line_end)):
        text = line_end.join(json.dumps(entries, ensure_ascii=ascii_only) for entries in lines) + (
            last if lines else ""
        )
        path.write_bytes(text.encode())
        known = [Known(question, answer, domain or "gsm8k") for question, answer, domain in asked]
        assert read_problems(path, len(asked)) == known


def test_a_report_by_the_domains_of_the_file(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(from_windows, "REFITS", 5)
    write(
        "mine.jsonl", *(line(question="a" + x, answer=LETTERS[n:], domain="xyz"[n % 2]) for n, x in enumerate("abcdef"))
    )
    outcome = run("calibrate", "w.json", "--file", "mine.jsonl", "--save", "r.json")
    assert outcome.status == 0, outcome.err
    assert "3 x, 3 y problems" in outcome.out and "making" not in outcome.err
    assert json.loads(Path("r.json").read_text())["problems"] == {"x": 3, "y": 3}
    assert sorted(os.listdir()) == ["mine.jsonl", "r.json", "w.json"]


@pytest.mark.parametrize(
    ("last", "says"),
    [
        ("{", "Line 6 of p.jsonl is broken JSON"),
        ("", "Line 6 of p.jsonl is broken JSON"),
        ("ab", "Line 6 of p.jsonl is broken JSON"),
        ("[" * 100_000, "Line 6 of p.jsonl is broken JSON (it cannot be parsed)"),
        ("[]", "Line 6 of p.jsonl is no problem"),
        ('{"prompt": "ab", "answer": "cd"}', "Line 6 of p.jsonl is no problem"),
        ('{"question": "zz"}', "Line 6 of p.jsonl is no problem"),
        (line(question="zz", answer=7), "Line 6 of p.jsonl is no problem"),
        (line(question="zz", domain=None), "Line 6 of p.jsonl is no problem"),
        (line(question=" \n"), "Line 6 of p.jsonl has an empty question"),
        (line(question="zz", answer=""), "Line 6 of p.jsonl has an empty answer"),
        (line(question="zz", domain=" "), "Line 6 of p.jsonl has an empty domain"),
        (line(question="\ud801"), "The question in line 6 of p.jsonl is a text that is no valid Unicode"),
        (line(question="zz", answer="\ud801"), "The answer in line 6 of p.jsonl"),
        (line(question="b  b\n"), "Line 6 of p.jsonl asks the question of line 2 again"),
    ],
)
def test_a_line_that_is_no_problem_is_named(run: Run, monkeypatch: pytest.MonkeyPatch, last: str, says: str) -> None:
    monkeypatch.setattr(dystruct.decoding, "load", lambda *given, **options: pytest.fail("a model was loaded"))
    write("p.jsonl", *(line(question=f"{letter} b") for letter in "abcde"), last)
    run("calibrate", "w.json", "--file", "p.jsonl").refused(says)
    assert os.listdir() == ["p.jsonl"]


def test_files_that_hold_no_problems_or_too_few(run: Run) -> None:
    write("one.jsonl", line())
    write("none.jsonl")
    Path("latin.jsonl").write_bytes(line().encode() + b"\n\xff\n")
    run("calibrate", "w.json", "--file", "one.jsonl").refused("There is 1 problem in one.jsonl", "give 2 at least")
    run("calibrate", "w.json", "--file", "none.jsonl").refused("0 problems in none.jsonl")
    run("calibrate", "w.json", "--file", "latin.jsonl").refused("Line 2 of latin.jsonl is not UTF-8")
    for name in ("absent.jsonl", ".", "-"):
        run("calibrate", "w.json", "--file", name).refused(f"{name!r} cannot be read")
    run("calibrate", "w.json", "--file", "").refused("empty")


def test_what_does_not_go_with_a_file(run: Run) -> None:
    write("p.jsonl", line())
    for option in (("--domain", "maths"), ("--problems", "150")):
        run("calibrate", "w.json", "--file", "p.jsonl", *option).refused(f"{option[0]} has no use with --file")
    for names in (("p.jsonl",), ("w.json", "--save", "./p.jsonl")):
        run("calibrate", *names, "--file", "p.jsonl").refused("different files")
    assert Path("p.jsonl").read_text() == line() + "\n"


def test_problems_too_long_for_the_model_are_named(run: Run) -> None:
    write("p.jsonl", *(line(question="a" + letter, answer=LETTERS * 10 * n) for n, letter in enumerate("abcdef", 1)))
    outcome = run("calibrate", "w.json", "--file", "p.jsonl")
    assert outcome.status == 2 and "The calibration problem 'af' takes 650 tokens" in outcome.err


def test_windows_of_other_problems_are_not_gone_on_with(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    problems = [line(question="a" + letter) for letter in "abcdef"]
    write("p.jsonl", *problems)

    def killed(*given: Any, **settings: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("dystruct.inference.calibration.calibrate", killed)
    assert run("calibrate", "w.json", "--file", "p.jsonl").status == 130
    write("p.jsonl", *problems[::-1])
    outcome = run("calibrate", "w.json", "--file", "p.jsonl")
    assert outcome.status == 2 and "'w.json.windows' was begun with digest" in outcome.err
    outcome = run("calibrate", "w.json", "--file", "p.jsonl", "--chat")
    assert outcome.status == 2 and "no chat template" in outcome.err
