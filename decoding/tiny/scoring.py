"""Whether a generated answer is right, by domain."""

from __future__ import annotations

from ..errors import UserError
from ..execution import run_program
from . import code, logic, maths
from .problem import Problem


def is_right(problem: Problem, text: str, *, execute_code: bool = False) -> bool:
    """Whether `text` answers the problem: by its final value, or for code by running the problem's assertions.

    execute_code: allows to run the generated code, in a limited subprocess (see `execution`). Without it a code
    problem is an error (UserError), since nothing else says whether a body is right.
    """
    if problem.domain == "maths":
        return maths.is_correct(text, problem.target)
    if problem.domain == "logic":
        return logic.is_correct(text, problem.target)
    if not execute_code:
        raise UserError("Code is scored by running it; allow that with --execute-code (execute_code=True).")
    return run_program(code.program(problem, text)).passed
