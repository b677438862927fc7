"""Measurements that are killed and gone on with: nothing lost, nothing twice, nothing measured again."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from dystruct.decoding import UserError
from dystruct.decoding.json_lines import Held
from dystruct.decoding.study import decodings
from dystruct.decoding.study.__main__ import app
from dystruct.decoding.study.along import LONGEST, SHORTEST, measure_windows
from dystruct.decoding.study.decodings import decode_problems, decode_windows
from dystruct.decoding.study.records import open_records, read_records
from dystruct.decoding.study.variants import variants
from dystruct.decoding.tiny.problem import Problem
from dystruct.model import PriorConfig
from scripted import backbone, hashed, uneven_weights

SETTINGS = {"study": "test", "seed": 1}
FIRST = b'{"format": "dystruct-study-1", "study": "test", "seed": 1}\n'
NO_KEYS = (b"[[1]]", b'[{"a": 1}]', b"[null]", b"[true]", b"[0.5]", b"7", b"null")
QUESTIONS = ["ab", "cdef", "gab"]
PROBLEMS = [Problem("logic", "letters", question, "abcdefghij" * 2, "x") for question in QUESTIONS]


def model() -> Any:
    return backbone(hashed(2, end_logit=1.0), weights=uneven_weights())


def lines(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_what_is_written_is_read(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    with open_records(path, SETTINGS) as records:
        records.append(("b", 2), value=1.23456789)
        records.append(("a", 10), value=None)
        records.append(("a", 9), value=[0.1 + 0.2])
        with pytest.raises(ValueError, match="already"):
            records.append(("a", 9), value=0)
    settings, found = read_records([path])
    assert settings["seed"] == 1
    assert [(*record["key"], record["value"]) for record in found] == [
        ("a", 9, [0.3]),
        ("a", 10, None),
        ("b", 2, 1.23457),
    ]


def test_a_file_cut_at_any_byte_is_gone_on_with(tmp_path: Path) -> None:
    def measure(path: Path) -> int:
        made = 0
        with open_records(path, SETTINGS) as records:
            for n in range(4):
                if ("é", n) not in records:
                    made += 1
                    records.append(("é", n), value=n * n)
        return made

    whole = tmp_path / "whole.jsonl"
    assert measure(whole) == 4
    content = whole.read_bytes()
    for cut in range(len(content) + 1):
        path = tmp_path / "cut.jsonl"
        path.write_bytes(content[:cut])
        kept = max(0, content[:cut].count(b"\n") - 1)
        assert measure(path) == 4 - kept
        assert path.read_bytes() == content
        assert measure(path) == 0


@pytest.mark.parametrize("kind", ["windows", "along", "free"])
def test_a_study_that_is_killed_goes_on_where_it_was(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decodings, "is_right", lambda problem, text, execute_code: len(text) % 2 == 0)

    def study(path: Path) -> int:
        """Measure; returns the forward passes that it took."""
        there = model()
        with open_records(path, SETTINGS) as records:
            if kind == "windows":
                measure_windows(there, records, "logic", PROBLEMS, seed=3)
            elif kind == "along":
                decode_windows(there, records, variants(["R13"], 0.5), "logic", PROBLEMS, seed=3)
            else:
                decode_problems(
                    there, records, variants(["R4"], 0.5), "logic", PROBLEMS, seed=3, max_new_tokens=24, batch_size=2
                )  # fmt: skip
        return len(there.network.batches)

    whole = tmp_path / "whole.jsonl"
    passes = study(whole)
    content = whole.read_text()
    assert len(lines(whole)) == 1 + {"windows": 3, "along": 12, "free": 9}[kind]
    for kept in (1, len(lines(whole)) // 2):
        path = tmp_path / f"{kept}.jsonl"
        path.write_text("".join(content.splitlines(keepends=True)[:kept]) + content.splitlines()[kept][:40])
        took = study(path)
        assert lines(path) == lines(whole)
        assert took <= passes and (kept == 1 or took < passes)
        assert study(path) == 0
    _, found = read_records([whole])
    assert len({tuple(record["key"]) for record in found}) == len(found) == len(lines(whole)) - 1


def test_problems_may_be_added_later(tmp_path: Path) -> None:
    few, all_at_once = tmp_path / "few.jsonl", tmp_path / "all.jsonl"
    for path, counts in ((few, (1, 3)), (all_at_once, (3,))):
        for count in counts:
            with open_records(path, SETTINGS) as records:
                measure_windows(model(), records, "logic", PROBLEMS[:count])
    assert lines(few) == lines(all_at_once)


def test_a_decoded_window_is_counted_by_hand(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    with open_records(path, SETTINGS) as records:
        decode_windows(model(), records, variants(["R13"], 0.5), "logic", PROBLEMS)
    _, found = read_records([path])
    for record in found:
        for window in record["windows"]:
            assert 0 <= window["wrong"] <= window["inside"] <= window["length"]
            assert 0 <= window["mended"] + window["spoilt"] <= window["remasked"] <= window["inside"]
            if record["key"][0] == "no weld" or window["blocks"] == 1:
                assert window["remasked"] == 0
    assert any(window["remasked"] for record in found for window in record["windows"])


def test_two_processes_do_not_write_one_file(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    with (
        open_records(path, SETTINGS),
        pytest.raises(Held, match="Another process"),
        open_records(path, SETTINGS),
    ):
        pass
    with open_records(path, SETTINGS):
        pass


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b'{"format": "dystruct-study-1", "study": "test", "seed": 2}\n', "seed 2, not 1"),
        (b'{"format": "other"}\n', "no file of measurements"),
        (b"\x7b\n", "no file of measurements"),
        (b'{"format": "dystruct-study-1"}\n{"value": 3}\n', "no file of measurements"),
        (b'{"question": "one line"}', "no file of measurements"),
        (b'{"question": "a line"}\n{"question": "another"}', "no file of measurements"),
        (b'{"format": "dystruct-study-1", "study": "other", "se', "no file of measurements"),
        (b"\xff\n", "line 1: 'utf-8' codec"),
        (b"\xff", "no file of measurements"),
        (b"[" * 100_000 + b"\n", "no file of measurements"),
        (b"[]\n", "no file of measurements"),
        (FIRST + b'"\xff"\n', "line 2: 'utf-8' codec"),
        *((FIRST + b'{"key": %b}\n' % key, "line 2: it is no record") for key in NO_KEYS),
    ],
)
def test_other_files_are_left_alone(content: bytes, said: str, tmp_path: Path) -> None:
    """With what stands behind their last line end, too."""
    path = tmp_path / "r.jsonl"
    for written in (content, content + b'{"key": ["logic'):
        path.write_bytes(written)
        with pytest.raises(UserError, match=said if written == content else None), open_records(path, SETTINGS):
            pass
        assert path.read_bytes() == written
    if "seed 2" not in said:
        path.write_bytes(content)
        with pytest.raises(UserError, match="no file of measurements"):
            read_records([path])


@given(content=st.binary() | st.builds(lambda cut, more: FIRST[:cut] + more, st.integers(0, len(FIRST)), st.binary()))
def test_no_whole_line_is_ever_lost(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    """Whatever a file holds, opening it either is an error and changes nothing, or keeps its lines."""
    path = tmp_path_factory.mktemp("any") / "r.jsonl"
    path.write_bytes(content)
    try:
        with open_records(path, SETTINGS):
            pass
    except UserError:
        assert path.read_bytes() == content
    else:
        assert FIRST.startswith(content) or content.startswith(FIRST)
        assert path.read_bytes() == (content[: content.rfind(b"\n") + 1] or FIRST)


@pytest.mark.parametrize(
    ("name", "said"), [("pipe", "is no regular file"), (".", "cannot be written"), ("x" * 300, "cannot be written")]
)
def test_records_are_written_to_files_alone(tmp_path: Path, name: str, said: str) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UserError, match=rf"{said}.*; choose another"), open_records(tmp_path / name, SETTINGS):
        pass


def test_records_are_ordered_by_keys_of_texts_and_numbers(tmp_path: Path) -> None:
    path, keys = tmp_path / "r.jsonl", [("b",), (10,), ("a", 1), (9, "a"), ("a", "b"), ()]
    with open_records(path, SETTINGS) as records:
        for key in keys:
            records.append(key)
    assert [record["key"] for record in read_records([path])[1]] == [[], [9, "a"], [10], ["a", 1], ["a", "b"], ["b"]]


def test_records_that_do_not_go_together_are_refused(tmp_path: Path) -> None:
    paths = [tmp_path / name for name in ("a", "b", "c")]
    for path, seed, key in zip(paths, (1, 1, 2), (0, 0, 1), strict=True):
        with open_records(path, {"seed": seed}) as records:
            records.append(("maths", key), value=0)
    with pytest.raises(UserError, match="twice"):
        read_records(paths[:2])
    with pytest.raises(UserError, match="other settings"):
        read_records([paths[0], paths[2]])
    with pytest.raises(UserError, match="cannot be read"):
        read_records([tmp_path / "none"])


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["windows", "{}/r", "--domains", "maths,art"], "--domains"),
        (["decode", "{}/r", "--free", "--groups", "R3"], "--execute-code"),
        (["decode", "{}/r", "--along", "--groups", "R33"], "no group 'R33'"),
        (["decode", "{}/r", "--along", "--groups", "chosen", "--settings", "{}/none"], "cannot be read"),
        (["windows", "{}/none/r", "--domains", "logic", "--problems", "1"], "cannot be written"),
        (["report", "{}/r.json", "--windows", "{}/none"], "cannot be read"),
        (["report", "{}/r.json", "--tables", "{}/none.md"], "cannot be read"),
    ],
)
def test_mistakes_end_in_one_sentence(arguments: list[str], said: str, tmp_path: Path) -> None:
    run = CliRunner().invoke(app, [argument.format(tmp_path) for argument in arguments])
    assert run.exit_code == 2
    assert said in run.stderr and run.stderr.count("\n") == 1
    assert not (tmp_path / "r").exists()


def test_windows_are_long_enough_for_the_priors_bounds() -> None:
    """The lengths that the study draws are those that a decoder draws."""
    assert (PriorConfig().min_length, PriorConfig().max_length) == (SHORTEST, LONGEST)
