"""Whether a generated answer is right, by domain."""

from __future__ import annotations

from dataclasses import dataclass

from ..execution import check_allowed, run_program
from . import code, logic, maths
from .problem import Problem


@dataclass(frozen=True)
class Score:
    """Whether an answer is right; for code, the reason of its outcome (see `execution.Outcome`), else ""."""

    correct: bool
    reason: str = ""


def score(problem: Problem, text: str, *, execute_code: bool) -> Score:
    """Whether a text answers a problem: by its final value, or for code by running the problem's assertions.

    execute_code: allows to run the generated code, in a limited subprocess (see `execution`). Without it a code
    problem is an error (UserError), since nothing else says whether a body is right.
    """
    if problem.domain == "maths":
        return Score(maths.is_correct(text, problem.target))
    if problem.domain == "logic":
        return Score(logic.is_correct(text, problem.target))
    check_allowed(execute_code)
    outcome = run_program(code.program(problem, text))
    return Score(outcome.passed, outcome.reason)


def is_right(problem: Problem, text: str, *, execute_code: bool = False) -> bool:
    """Whether `text` answers the problem (see `score`)."""
    return score(problem, text, execute_code=execute_code).correct
