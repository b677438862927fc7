"""Logic problems with worked answers, in BIG-Bench-Hard's shapes, each ending in ``So the answer is X.``

Every line of a working is one small operation on what stands before it, so that a small model can learn it. Knows
nothing of tokens, models or splits.
"""

from __future__ import annotations

import re
from random import Random

from .logic_dates import date_arithmetic
from .logic_expressions import boolean_expressions, multistep_arithmetic
from .logic_orders import logical_deduction, navigate, web_of_lies
from .logic_stories import object_counting, tracking_shuffled_objects
from .problem import Problem

_MAKERS = {
    maker.__name__: maker
    for maker in (
        boolean_expressions,
        multistep_arithmetic,
        object_counting,
        date_arithmetic,
        tracking_shuffled_objects,
        navigate,
        web_of_lies,
        logical_deduction,
    )
}
KINDS: tuple[str, ...] = tuple(_MAKERS)
LONGEST_QUESTION, LONGEST_ANSWER = 90, 180  # in pieces
_PIECE = re.compile(r"\d|[A-Za-z]+|[^\sA-Za-z\d]|\n| (?=\d)")
_ENDING = "So the answer is"


def make(rng: Random) -> Problem:
    """A problem of a kind drawn evenly from `KINDS`; the same state of `rng` gives the same problem.

    Questions and answers beyond `LONGEST_QUESTION` and `LONGEST_ANSWER` pieces are drawn again; a piece is a word, a
    digit, a space before a digit, another sign or a line break: about what a tokenizer with single digits makes of it.
    """
    kind = rng.choice(KINDS)
    while True:
        question, working, target = _MAKERS[kind](rng)
        answer = f"{working} {_ENDING} {target}."
        if len(_PIECE.findall(question)) <= LONGEST_QUESTION and len(_PIECE.findall(answer)) <= LONGEST_ANSWER:
            return Problem("logic", kind, question, answer, target)


def final_answer(text: str) -> str | None:
    """What stands between the last ``So the answer is`` and the final full stop; None if either is missing."""
    _, ending, rest = text.rpartition(_ENDING)
    value, stop, _ = rest.rpartition(".")
    return value.strip() if ending and stop else None


def is_correct(text: str, target: str) -> bool:
    """Whether a worked answer ends in the target, but for white space and case."""
    found = final_answer(text)
    return found is not None and found.lower().split() == target.lower().split()
