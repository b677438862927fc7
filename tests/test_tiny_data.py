"""The embedded model's data: splits that share no question, drills that are true, rows that ask what they should."""

from __future__ import annotations

import re
from fractions import Fraction
from itertools import islice
from random import Random

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer

from dystruct.decoding.errors import UserError
from dystruct.decoding.tiny.batches import PHASES, collate, encode, pool_of_rows
from dystruct.decoding.tiny.maths import drills, equations, final_value, is_correct
from dystruct.decoding.tiny.problem import Problem
from dystruct.decoding.tiny.problems import DOMAINS, digest, problems, split_of
from dystruct.decoding.tiny.rows import IGNORE, Row, autoregressive_row, drill_row, masked_row, windowed_row
from dystruct.decoding.tiny.scoring import is_right
from dystruct.decoding.tiny.tokenization import EOS, MASK, build_tokenizer


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return build_tokenizer((f"{p.question}\n{p.answer}" for d in DOMAINS for p in problems(d, "train", 300)), 600)


@pytest.mark.parametrize("domain", DOMAINS)
def test_no_held_out_question_occurs_in_training(domain: str) -> None:
    training = {digest(problem.question) for problem in problems(domain, "train", 20_000)}
    held_out = {split: [digest(p.question) for p in problems(domain, split, 1_000)] for split in ("test", "validation")}
    assert not training & set(held_out["test"]) and not training & set(held_out["validation"])
    assert not set(held_out["test"]) & set(held_out["validation"])
    assert all(len(set(digests)) == 1_000 for digests in held_out.values())


@pytest.mark.parametrize("domain", DOMAINS)
def test_a_question_belongs_to_one_split_whatever_its_spacing(domain: str) -> None:
    for split in ("train", "test", "validation"):
        for problem in problems(domain, split, 50):
            assert problem.domain == domain
            assert split_of(problem.question) == split
            assert split_of("  " + problem.question.upper().replace(" ", "\n")) == split


@pytest.mark.parametrize("domain", DOMAINS)
def test_problems_are_a_function_of_domain_split_and_place(domain: str) -> None:
    assert problems(domain, "test", 20) == problems(domain, "test", 20)
    assert problems(domain, "test", 30)[:20] == problems(domain, "test", 20)
    assert problems(domain, "train", 50, start=7) != problems(domain, "train", 50, start=57)


def test_unknown_domains_and_splits_are_refused() -> None:
    with pytest.raises(ValueError, match="no split 'dev'; the splits are train, validation, test"):
        problems("maths", "dev", 1)
    with pytest.raises(ValueError, match="no domain 'law'; the domains are maths, code, logic"):
        problems("law", "test", 1)


@pytest.mark.parametrize("domain", ["maths", "logic"])
def test_every_reference_answer_is_right(domain: str) -> None:
    for problem in problems(domain, "test", 500):
        assert is_right(problem, problem.answer)
        assert "Give the result as your final answer" not in problem.question


def test_code_is_scored_only_where_running_it_is_allowed() -> None:
    (problem,) = problems("code", "test", 1)
    with pytest.raises(UserError, match="--execute-code"):
        is_right(problem, problem.answer)
    assert is_right(problem, problem.answer, execute_code=True)
    assert not is_right(problem, "    return None", execute_code=True)


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
        ("#### -$3", "-3", True),
        ("#### \N{MINUS SIGN}3", "-3", True),
        ("#### 12 apples.", "12", True),
        ("#### 12%, so", "12", True),
        ("#### 3/4", "0.75", True),
        ("#### 3/4", "3", False),
        ("#### 3/0", "3", False),
        ("#### .5", "0.5", True),
        ("#### 0.3333333", "0.33333333", True),
        ("#### 1234567890", "1234567891", False),
        ("#### 3.0000000001", "3", False),
        *(
            (f"#### 3{more}", "3", False)
            for more in ("*10 = 30", "e2", "-5", ":30", " 000", ".0.1", "^2", " + 4", " = 3")
        ),
        (f"#### {'9' * 5000}", "9", False),
        ("####", "3", False),
        ("12", "12", False),
        ("", "12", False),
    ],
)
def test_the_last_value_behind_the_marks_is_compared_as_a_number(text: str, value: str, right: bool) -> None:
    assert is_correct(text, value) == right


def test_without_marks_there_is_no_value() -> None:
    assert final_value("the answer is 4") is None


@given(st.fractions(-(10**12), 10**12).map(lambda x: x.limit_denominator(1000)), st.sampled_from(["", "$", "€"]))
def test_a_number_is_read_as_it_is_written(number: Fraction, currency: str) -> None:
    sign = "-" if number < 0 else ""
    for written in (f"{abs(number.numerator)}", f"{abs(number.numerator):,}"):
        text = f"so\n#### {sign}{currency}{written}" + (f"/{number.denominator}" if number.denominator > 1 else "")
        assert final_value(text) == number and final_value(f"#### 5\n{text} units.\nNo more") == number
        assert final_value(f"{text} + 1") is None


def test_equations_are_taken_whole_with_their_units() -> None:
    answer = "He has 21 + 32 = 53 and 4*12=48.\nThen 2 + 3 + 4 = 9, $6 x €1.5 = €9.0 left, 20 cats - 3 = 17 and x = 4"
    assert equations(answer) == [
        ("21 + 32 = ", "53"),
        ("4*12=", "48"),
        ("2 + 3 + 4 = ", "9"),
        ("$6 x €1.5 = ", "€9.0"),
        ("20 cats - 3 = ", "17"),
    ]


def test_made_up_drills_are_true_and_the_spans_are_the_results() -> None:
    for drill in islice(drills(Random(3), []), 40):
        lines = drill.text.splitlines()
        assert len(lines) == len(drill.results) == 12
        for line, (start, end) in zip(lines, drill.results, strict=True):
            question, result = line.split("=")
            assert drill.text[start:end] == result.strip()
            plain = re.sub("[$€£]", "", question).replace("x", "*").replace("×", "*")
            assert eval(plain) == float(re.sub("[$€£]", "", result))  # digits and signs that this package made


def test_drills_are_mostly_equations_of_the_answers_they_are_given() -> None:
    example = Problem("maths", "k", "q", "so 7 cats + 4 = 11", "11")
    text = "".join(drill.text for drill in islice(drills(Random(1), [example]), 20))
    assert 0.5 < text.count("7 cats + 4 = 11\n") / text.count("\n") < 0.8


words = st.lists(st.integers(10, 90), min_size=1, max_size=30)


@given(words, words)
def test_autoregressive_rows_ask_for_the_answer_and_one_end(prompt: list[int], answer: list[int]) -> None:
    row = autoregressive_row(prompt, answer, 0)
    assert row.ids == [*prompt, *answer, 0]
    assert row.labels == [IGNORE] * len(prompt) + [*answer, 0]
    sees = collate([row], 0).attends[0, 0]
    assert torch.equal(sees, torch.ones_like(sees).tril())


@given(words, words, st.integers(0, 10_000))
def test_masked_rows_hide_what_they_ask_for_and_nothing_else(prompt: list[int], answer: list[int], seed: int) -> None:
    row = masked_row(prompt, answer, 0, 1, Random(seed))
    assert len(row.ids) == len(row.labels) and row.ids[: len(prompt)] == prompt
    asked = [label != IGNORE for label in row.labels]
    assert any(asked) and not any(asked[: len(prompt)])
    assert asked == [token == 1 for token in row.ids]
    response = [label if hidden else token for token, label, hidden in zip(row.ids, row.labels, asked, strict=True)]
    response = response[len(prompt) :]
    assert response == (answer + [0] * 300)[: len(response)]
    assert collate([row], 0).attends.all()


@given(words, words, st.integers(0, 10_000))
def test_windowed_rows_show_each_window_what_a_decoder_would(prompt: list[int], answer: list[int], seed: int) -> None:
    row = windowed_row(prompt, answer, 0, 1, Random(seed))
    sees = collate([row], 0).attends[0, 0]
    text = prompt + answer + [0]
    first = len(text)
    assert row.ids[:first] == text and row.labels[:first] == [IGNORE] * len(prompt) + [*answer, 0]
    assert torch.equal(sees[:first, :first], torch.ones(first, first, dtype=torch.bool).tril())
    assert not sees[:first, first:].any()
    covered = []
    for window in range(1, max(row.windows) + 1):
        places = [i for i, w in enumerate(row.windows) if w == window]
        assert places == list(range(places[0], places[-1] + 1)) and sees[places][:, places].all()
        begins = row.positions[places[0]]
        covered += [row.positions[i] for i in places]
        for i in places:
            # It sees the text in front of its window, its window, and nothing else.
            assert sees[i].nonzero().flatten().tolist() == [*range(begins), *places]
            token = (text + [0] * 8)[row.positions[i]]
            assert row.ids[i] in (token, 1)
            asked = row.ids[i] == 1 and i > places[0]
            assert row.labels[i] == (token if asked else IGNORE)
    assert covered == list(range(len(prompt), len(prompt) + len(covered))) and len(covered) > len(answer)


def test_padding_changes_nothing_and_is_seen_by_none() -> None:
    rows = [Row.causal([5, 6, 7], [IGNORE, 6, 7]), Row.bidirectional([5, 1], [IGNORE, 9])]
    batch = collate(rows, 0)
    assert batch.ids.tolist() == [[5, 6, 7], [5, 1, 0]]
    assert batch.attends[1, 0].tolist() == [[True, True, False], [True, True, False], [False, False, True]]
    assert batch.places.tolist() == [[0, 0], [0, 1], [1, 0]] and batch.targets.tolist() == [6, 7, 9]


@pytest.mark.parametrize("phase", PHASES)
def test_a_pool_is_a_function_of_its_number_and_fills_its_batches(tokenizer: Tokenizer, phase: str) -> None:
    def made(pool: int, mix: dict[str, float], drill_share: float) -> list[list[Row]]:
        return pool_of_rows(
            tokenizer, phase, pool, seed=0, batch_tokens=4000, mix=mix, drill_share=drill_share
        )  # fmt: skip

    mix = {"maths": 0.05, "code": 0.02, "logic": 0.03}
    batches = made(2, mix, 0.3)
    assert batches == made(2, mix, 0.3) != made(3, mix, 0.3)
    widths = [len(batch) * max(len(row.ids) for row in batch) for batch in batches]
    assert max(widths) <= 4000
    assert all(any(label != IGNORE for label in row.labels[1:]) for batch in batches for row in batch)
    plain = sum(len(row.ids) for batch in made(2, mix, 0.0) for row in batch)
    drilled = sum(len(row.ids) for batch in batches for row in batch)
    share = 0.3 if phase == "autoregressive" else 0.15
    assert (drilled - plain) / drilled == pytest.approx(share, abs=0.02)


def test_drill_places_are_those_of_the_results(tokenizer: Tokenizer) -> None:
    batches = pool_of_rows(
        tokenizer, "autoregressive", 0, seed=0, batch_tokens=2000, mix={"maths": 0.02}, drill_share=0.5
    )  # fmt: skip
    words = encode(tokenizer, problems("maths", "train", 41), "autoregressive", Random(0))
    seen = 0
    for row in (row for batch in batches for row in batch if row not in words):
        asked = tokenizer.decode([label for label in row.labels if label != IGNORE])
        assert not set(asked) - set("0123456789.$€£ ")
        seen += 1
    assert seen > 5


def test_masked_rows_cover_every_kind_of_window() -> None:
    answer = list(range(10, 60))
    made = [masked_row([5], answer, 0, 1, Random(seed)) for seed in range(600)]
    lengths = [len(row.ids) - 1 for row in made]
    assert min(lengths) < 20 and max(lengths) > 200
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
    tokenizer = build_tokenizer((problem.question for problem in problems("maths", "train", 200)), 400)
    for text in ("12345 apples", "ÿ☃ 7 × €8\n\t", "<|mask|>"):
        assert tokenizer.decode(tokenizer.encode(text).ids, skip_special_tokens=False) == text
    tokens = tokenizer.encode("costs 12345").tokens
    assert tokens[-5:] == ["1", "2", "3", "4", "5"]
    assert tokenizer.token_to_id(EOS) == 0 and tokenizer.token_to_id(MASK) == 1
