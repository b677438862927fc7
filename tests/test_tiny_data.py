"""The embedded model's data: splits that share no question, drills that are true, rows that ask what they should."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dystruct.decoding.tiny.problems import (
    digest,
    drills,
    expressions,
    final_value,
    is_correct,
    problems,
    split_of,
)
from dystruct.decoding.tiny.rows import IGNORE, autoregressive_row, drill_row, masked_row
from dystruct.decoding.tiny.tokenization import EOS, MASK, build_tokenizer


def test_no_held_out_question_occurs_in_training() -> None:
    training = {digest(problem.question) for problem in problems("train", 20_000)}
    held_out = {split: [digest(p.question) for p in problems(split, 1_000)] for split in ("test", "validation")}
    assert not training & set(held_out["test"]) and not training & set(held_out["validation"])
    assert not set(held_out["test"]) & set(held_out["validation"])
    assert all(len(set(digests)) == 1_000 for digests in held_out.values())


def test_a_question_belongs_to_one_split_whatever_its_spacing() -> None:
    for split in ("train", "test", "validation"):
        for problem in problems(split, 50):
            assert split_of(problem.question) == split
            assert split_of("  " + problem.question.upper().replace(" ", "\n")) == split


def test_problems_are_a_function_of_split_and_place() -> None:
    assert problems("test", 20) == problems("test", 20)
    assert problems("train", 50, start=7) != problems("train", 50, start=57)


def test_an_unknown_split_is_refused() -> None:
    with pytest.raises(ValueError, match="no split 'dev'; the splits are train, validation, test"):
        problems("dev", 1)


def test_every_reference_answer_is_correct() -> None:
    for problem in problems("test", 500):
        assert is_correct(problem.answer, problem.value)
        assert "Give the result as your final answer" not in problem.question


@pytest.mark.parametrize(
    ("text", "value", "right"),
    [
        ("so 3\n#### 12", "12", True),
        ("#### 7\n#### 12", "12", True),
        ("#### 12\n#### 7", "12", False),
        ("#### $1,200", "1200", True),
        ("#### 12.0", "12", True),
        ("#### 12.5", "12", False),
        ("#### -3", "-3", True),
        ("####", "3", False),
        ("12", "12", False),
        ("", "12", False),
    ],
)
def test_the_last_value_behind_the_marks_is_compared_as_a_number(text: str, value: str, right: bool) -> None:
    assert is_correct(text, value) == right


def test_without_marks_there_is_no_value() -> None:
    assert final_value("the answer is 4") is None


def test_expressions_are_true_equations_that_stand_in_the_answer() -> None:
    answer = "He has 21 + 32 = 53 and 4*12=48.\nThen 2 + 3 + 4 = 9, 10/4=2, 8/100 = $32, 6 x €1.5 = €9.0 left"
    assert expressions(answer) == [("21 + 32 = ", "53"), ("4*12=", "48"), ("6 x €1.5 = ", "€9.0")]


def value(number: str) -> float:
    return float(number.strip("€$£ "))


def test_drills_are_true_and_their_spans_are_the_results() -> None:
    for drill in drills(3, 40):
        lines = drill.text.splitlines()
        assert len(lines) == len(drill.results) == 12
        for line, (start, end) in zip(lines, drill.results, strict=True):
            question, result = line.split("=")
            assert drill.text[start:end] == result.strip()
            sign = next(s for s in "+-*/x×" if s in question)
            left, right = (value(number) for number in question.split(sign))
            true = {"+": left + right, "-": left - right, "/": left / right if right else 0}.get(sign, left * right)
            assert value(result) == pytest.approx(true, abs=1e-6)


words = st.lists(st.integers(10, 90), min_size=1, max_size=30)


@given(words, words)
def test_autoregressive_rows_ask_for_the_answer_and_one_end(prompt: list[int], answer: list[int]) -> None:
    row = autoregressive_row(prompt, answer, 0)
    assert row.ids == [*prompt, *answer, 0]
    assert row.labels == [IGNORE] * len(prompt) + [*answer, 0]


@given(words, words, st.integers(0, 10_000))
def test_masked_rows_hide_what_they_ask_for_and_nothing_else(prompt: list[int], answer: list[int], seed: int) -> None:
    row = masked_row(prompt, answer, 0, 1, Random(seed))
    assert len(row.ids) == len(row.labels) and row.ids[: len(prompt)] == prompt
    asked = [label != IGNORE for label in row.labels]
    assert any(asked) and not any(asked[: len(prompt)])
    assert asked == [token == 1 for token in row.ids]
    response = [label if hidden else token for token, label, hidden in zip(row.ids, row.labels, asked, strict=True)]
    response = response[len(prompt) :]
    assert response == (answer + [0] * 200)[: len(response)]


def test_masked_rows_cover_every_kind_of_window() -> None:
    answer = list(range(10, 60))
    made = [masked_row([5], answer, 0, 1, Random(seed)) for seed in range(600)]
    lengths = [len(row.ids) - 1 for row in made]
    assert min(lengths) < 25 and max(lengths) > 120
    cut = sum(length < len(answer) for length in lengths) / len(made)
    clean = sum(row.labels[1] == IGNORE and row.labels[2] == IGNORE for row in made) / len(made)
    assert 0.2 < cut < 0.7 and clean > 0.3


@given(st.integers(0, 1000))
def test_drill_rows_ask_for_results_only(seed: int) -> None:
    ids, results = list(range(10, 30)), [[3, 4], [9], [15, 16, 17]]
    row = drill_row(ids, results, None, Random(seed))
    assert row.ids == ids
    assert [i for i, label in enumerate(row.labels) if label != IGNORE] == [3, 4, 9, 15, 16, 17]
    masked = drill_row(ids, results, 1, Random(seed))
    asked = [i for i, label in enumerate(masked.labels) if label != IGNORE]
    assert asked and set(asked) <= {3, 4, 9, 15, 16, 17}
    assert all((masked.ids[i] == 1) == (i in asked) for i in range(20))
    assert all(masked.labels[i] == ids[i] for i in asked)


def test_the_tokenizer_splits_digits_and_knows_every_byte() -> None:
    tokenizer = build_tokenizer((problem.question for problem in problems("train", 200)), 400)
    for text in ("12345 apples", "ÿ☃ 7 × €8\n\t", "<|mask|>"):
        assert tokenizer.decode(tokenizer.encode(text).ids, skip_special_tokens=False) == text
    tokens = tokenizer.encode("costs 12345").tokens
    assert tokens[-5:] == ["1", "2", "3", "4", "5"]
    assert tokenizer.token_to_id(EOS) == 0 and tokenizer.token_to_id(MASK) == 1
