"""Code problems: every shown body passes its assertions, and the assertions tell wrong bodies apart."""

from __future__ import annotations

import re
import statistics
from collections import defaultdict
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dystruct.decoding.tiny.code import KINDS, body_of, make, program
from dystruct.decoding.tiny.problem import Problem

SWAPS = (
    (" < ", " <= "),
    (" <= ", " < "),
    (" >= ", " > "),
    (" == ", " != "),
    (" + ", " - "),
    (" - ", " + "),
    (" += ", " -= "),
)


@pytest.fixture(scope="module")
def problems() -> list[Problem]:
    return [make(Random(seed)) for seed in range(3000)]


def passes(problem: Problem, text: str) -> bool:
    """Whether a body passes, run here: only for bodies of the templates and bounded changes of them."""
    try:
        exec(compile(program(problem, text), problem.kind, "exec"), {})
    except Exception:
        return False
    return True


def wrong_constants(answer: str) -> list[str]:
    """The answer with one number larger or one smaller than it should be, for every number that is no index."""
    numbers = re.finditer(r"(?<![\w.\[:-])\d+(?![\w\]:])", answer)
    return [answer[: n.start()] + str(int(n[0]) + change) + answer[n.end() :] for n in numbers for change in (1, -1)]


def wrong_operators(answer: str) -> list[str]:
    return [
        answer[: place.start()] + wrong + answer[place.end() :]
        for right, wrong in SWAPS
        for place in re.finditer(re.escape(right), answer)
    ]


def test_every_shown_body_passes_its_assertions(problems: list[Problem]) -> None:
    failed = {problem.kind for problem in problems[:1200] if not passes(problem, problem.answer)}
    assert not failed


def test_examples_in_docstrings_are_true(problems: list[Problem]) -> None:
    shown = 0
    for problem in problems[:1000]:
        examples = re.findall(r">>> (.*)\n    (.*)", problem.question)
        namespace: dict[str, object] = {}
        exec(f"{problem.question}\n{problem.answer}", namespace)
        for call, result in examples:
            assert repr(eval(call, namespace)) == result
            shown += 1
    assert shown > 200


def test_assertions_catch_wrong_constants_and_operators(problems: list[Problem]) -> None:
    caught: dict[str, list[bool]] = defaultdict(list)
    for number, problem in enumerate(problems[:700]):
        if "while" in problem.answer:
            continue  # a wrong loop may never end
        wrong = wrong_constants(problem.answer) + wrong_operators(problem.answer)
        for text in Random(number).sample(wrong, min(4, len(wrong))):
            caught[problem.kind].append(not passes(problem, text))
    rates = {kind: statistics.mean(found) for kind, found in caught.items() if len(found) > 10}
    assert statistics.mean(c for found in caught.values() for c in found) > 0.93
    # The rest are bodies that mean the same, such as `<` for `<=` where both branches give one value.
    assert min(rates.values()) > 0.4
    assert statistics.median(rates.values()) > 0.97


@pytest.mark.parametrize("body", ["    return None", "    pass", "    return 0", "    return []"])
def test_no_constant_body_passes(problems: list[Problem], body: str) -> None:
    assert statistics.mean(passes(problem, body) for problem in problems[:500]) < 0.005


@given(st.integers(0, 2**63))
@settings(max_examples=100, deadline=None)
def test_a_problem_has_its_shape_and_is_a_function_of_the_seed(seed: int) -> None:
    problem = make(Random(seed))
    assert problem == make(Random(seed))
    assert problem.domain == "code"
    head, *rest = problem.question.split("\n")
    assert re.fullmatch(r"def \w+\(.*\) -> .*:", head)
    assert rest[0].startswith('    """')
    assert problem.question.endswith('"""')
    assert all(line.startswith("    ") for line in rest)
    lines = problem.answer.split("\n")
    assert 1 <= len(lines) <= 12
    assert all(line.startswith("    ") and line == line.rstrip() for line in lines)
    assert problem.target.isascii() and problem.question.isascii()
    assert all(line.startswith("assert ") for line in problem.target.split("\n"))
    assert 3 <= len(problem.target.split("\n")) <= 10
    assert passes(problem, problem.answer)


def test_all_kinds_occur_and_differ(problems: list[Problem]) -> None:
    by_kind = defaultdict(list)
    for problem in problems:
        by_kind[problem.kind].append(problem)
    assert set(by_kind) == set(KINDS)
    assert len(KINDS) == len(set(KINDS)) > 60
    for kind, found in by_kind.items():
        assert len(found) > 15, kind
        assert len({problem.question for problem in found}) > 0.9 * len(found), kind
        assert len({re.sub(r"\d+|\"\w*\"", "", problem.answer) for problem in found}) > 3, kind
    assert len({problem.question for problem in problems}) > 0.98 * len(problems)


def test_answer_lengths_spread(problems: list[Problem]) -> None:
    lengths = sorted(len(problem.answer) for problem in problems)
    tenth, half, most = (lengths[int(len(lengths) * share)] for share in (0.1, 0.5, 0.9))
    assert lengths[0] < 35
    assert tenth < 60
    assert 90 < half < 180
    assert most > 230
    assert lengths[-1] > 550
    assert {problem.answer.count("\n") + 1 for problem in problems} == set(range(1, 13))


def test_one_task_is_solved_by_different_bodies(problems: list[Problem]) -> None:
    lines = {problem.answer.count("\n") + 1 for problem in problems if problem.kind == "sum_if"}
    assert lines == {1, 5, 6}  # an expression, a loop, a recursion


def test_a_generated_text_is_cut_after_the_body(problems: list[Problem]) -> None:
    for problem in problems[:50]:
        after = f"{problem.answer}\n\nprint('more')\n    indented = 1\nassert False\n"
        assert body_of(after) == problem.answer
        assert program(problem, after) == program(problem, problem.answer)
        assert passes(problem, after)


@pytest.mark.parametrize(
    ("text", "body"),
    [
        ("", ""),
        ("return 1", ""),
        ("\n    return 1\n", "\n    return 1"),
        ("    a = 1\n\n    return a   \n\n", "    a = 1\n\n    return a"),
        ("\treturn 1\nx", "\treturn 1"),
        ('    return "<|endoftext|>"\n```\n    y', '    return "<|endoftext|>"'),
    ],
)
def test_bodies(text: str, body: str) -> None:
    assert body_of(text) == body
