"""The harness's code tasks scored by our own limited subprocess: what stands in for the metric "code_eval".

lm-evaluation-harness takes that metric from the Hub and runs programs with few limits. Here its place is taken by
`execution.run_program`, on programs that `sanitise` has made of the answers; so the harness's own task files for
HumanEval and MBPP, with their prompts and filters, work as they are, offline too, but for MBPP's filter for chat models
(see `whole_answers`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import evaluate

from ..execution import Outcome, check_allowed, run_program
from .sanitise import sanitise

METRIC = "code_eval"
TIMEOUT = 10.0  # seconds a program
_FENCED = ("mbpp_instruct", "mbpp_plus_instruct")  # whose prompts open a fence that the answer goes on with


class CodeEval:
    """The metric's interface: programs and assertions in, pass@k out."""

    def __init__(self, *, execute_code: bool) -> None:
        self.execute_code = execute_code

    def compute(
        self, references: Sequence[str], predictions: Sequence[Sequence[str]], k: Sequence[int] = (1,), **_: Any
    ) -> tuple[dict[str, float], dict[int, list[Outcome]]]:
        """pass@k over the problems, by the unbiased estimate, and the outcome of every candidate by problem.

        Raises UserError unless it was allowed to execute code.
        """
        check_allowed(self.execute_code)
        outcomes = {
            number: [score_program(candidate, reference) for candidate in candidates]
            for number, (reference, candidates) in enumerate(zip(references, predictions, strict=True))
        }
        counts = [(len(found), sum(outcome.passed for outcome in found)) for found in outcomes.values()]
        rates = {f"pass@{size}": [pass_at_k(n, c, size) for n, c in counts if n >= size] for size in k}
        return {name: sum(found) / len(found) for name, found in rates.items() if found}, outcomes


def score_program(text: str, reference: str) -> Outcome:
    """What becomes of the program in a text (see `sanitise`) followed by the assertions in `reference`."""
    return run_program(f"{sanitise(text, reference)}\n{reference}\n", timeout=TIMEOUT)


def pass_at_k(count: int, correct: int, k: int) -> float:
    """1 - C(n - c, k) / C(n, k): the probability that k of n candidates, c of them right, hold a right one."""
    return 1 - math.comb(count - correct, k) / math.comb(count, k)


def whole_answers(task: str) -> dict[str, Any]:
    """What makes a task hand over answers whole, so that `sanitise` reads them; empty where it does so anyway.

    MBPP's tasks for chat models look for fences themselves, and where an answer begins with code they take its first
    word, such as def, for the fence's language: no such answer would ever be right.
    """
    if task not in _FENCED:
        return {}
    return {"filter_list": [{"name": "whole_answer", "filter": [{"function": "take_first"}]}]}


def install(*, execute_code: bool) -> Any:
    """Put our metric in the place of the Hub's, for tasks loaded from now on; what was there before."""
    original = evaluate.load

    def load(path: str, *arguments: Any, **options: Any) -> Any:
        return CodeEval(execute_code=execute_code) if path == METRIC else original(path, *arguments, **options)

    evaluate.load = load
    return original


@contextmanager
def limited_code(*, execute_code: bool) -> Iterator[None]:
    """Our metric for the tasks that are loaded in this context."""
    original = install(execute_code=execute_code)
    try:
        yield
    finally:
        evaluate.load = original
