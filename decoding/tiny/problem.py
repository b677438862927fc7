"""A problem with a worked answer: what the embedded model is trained and tested on, whatever its domain."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Problem:
    """One problem: what is asked, one right answer, and what any right answer must meet.

    domain: "maths", "code" or "logic". kind: the template it was made from. `target` is the final value as text
    (maths, logic) or a program of assertions that a right function body passes (code).
    """

    domain: str
    kind: str
    question: str
    answer: str
    target: str
