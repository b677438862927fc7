"""Maths problems: reasoning-gym's ``gsm_symbolic`` (GSM8K questions as templates) and drills of its own equations.

A worked answer ends in ``#### value``. Knows nothing of tokens, models or splits.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from random import Random
from typing import Any

from ..errors import UserError
from .problem import Problem

_SUFFIX = " Give the result as your final answer. Do not include units."


@cache
def _templates() -> dict[int, Any]:
    try:
        with warnings.catch_warnings():
            # What reasoning-gym imports compares with literals by "is": nothing that who makes problems could mend.
            warnings.simplefilter("ignore", SyntaxWarning)
            from reasoning_gym.arithmetic.gsm_symbolic.gsm_symbolic import (
                GSMSymbolicDataset,
                GSMSymbolicDatasetConfig,
                tasks_ok,
            )
    except ImportError as error:
        raise UserError("The maths problems need reasoning-gym: pip install 'dystruct[train]'.") from error
    makers = GSMSymbolicDataset(GSMSymbolicDatasetConfig(seed=0, size=1)).generators
    return {index: makers[index] for index in tasks_ok}


def make(rng: Random) -> Problem:
    """A problem of a template drawn evenly from the 85 in use; the same state of `rng` gives the same problem."""
    templates = _templates()
    kind = rng.choice(list(templates))
    item = templates[kind](rng, 1.0)
    return Problem(
        domain="maths",
        kind=f"gsm_symbolic_{kind:02d}",
        question=item["question"].removesuffix(_SUFFIX),
        answer=item["metadata"]["answer_cot"],
        target=str(item["answer"]),
    )


_SIGN = "[-\N{MINUS SIGN}]"
# Behind the number there may be a unit or a full stop, but nothing that makes another number of it.
_NUMERAL = r"\d[\d,]{0,99}(?:\.\d{1,99})?|\.\d{1,99}"
_FINAL = re.compile(
    rf"####[ \t]*({_SIGN}?[ \t]*[$€£]?[ \t]*{_SIGN}?)({_NUMERAL})(?:[ \t]*/[ \t]*(\d{{1,99}}))?"
    rf"(?![\d,]|\.\d|[eE][-+]?\d|[ \t]*(?:[*×/^:+=\d]|{_SIGN}))"
)


def final_value(text: str) -> Fraction | None:
    """The number behind the last ``####`` of a worked answer; None if there is none, or more than a number."""
    end = _FINAL.match(text, max(0, text.rfind("####")))
    if end is None:
        return None
    sign, number, divisor = end.groups()
    if divisor is not None and not int(divisor):
        return None
    value = Fraction(number.replace(",", "")) / int(divisor or 1)
    return -value if re.search(_SIGN, sign) else value


def is_correct(text: str, target: str) -> bool:
    """Whether a worked answer ends in the right number: exactly a whole one, another one up to a millionth."""
    found, wanted = final_value(text), Fraction(target.replace(",", ""))
    if found is None or wanted.denominator == 1:
        return found == wanted
    return abs(found - wanted) < Fraction(1, 10**6) * max(Fraction(1), abs(wanted))


@dataclass(frozen=True)
class Drill:
    """Lines of plain arithmetic, and the half-open character spans of the results in them."""

    text: str
    results: tuple[tuple[int, int], ...]


_NUMBER = r"[$€£]?\d[\d.]*"
_UNIT = r"(?:%| ?[a-z/]+(?: [a-z/]+){0,2})?"
_EQUATION = re.compile(
    rf"((?<![\d.])\(?{_NUMBER}{_UNIT}(?: ?[-+*/x×] ?\(?{_NUMBER}{_UNIT}\)?)+ ?= ?)([$€£]?(?:\d[\d.]*\d|\d))"
)


def equations(answer: str) -> list[tuple[str, str]]:
    """The equations of a worked answer, units and all, as (text up to the result, result)."""
    return _EQUATION.findall(answer)


def drills(rng: Random, examples: Sequence[Problem], lines: int = 12) -> Iterator[Drill]:
    """Endless arithmetic drills: equations as they stand in the examples' answers, and a third made up likewise."""
    known = [pair for problem in examples for pair in equations(problem.answer)]
    while True:
        text, results = "", []
        for _ in range(lines):
            question, result = rng.choice(known) if known and rng.random() < 2 / 3 else _made_up(rng)
            results.append((len(text) + len(question), len(text) + len(question) + len(result)))
            text += f"{question}{result}\n"
        yield Drill(text, tuple(results))


def _whole(rng: Random, digits: int) -> int:
    return rng.randint(10 ** (digits - 1) if digits > 1 else 1, 10**digits - 1)


def _made_up(rng: Random) -> tuple[str, str]:
    """An equation of whole numbers, sums of up to four terms among them, as (text up to the result, result)."""
    operator = rng.choice("++-**/")
    currency = rng.choice(("", "", "", "$", "€", "£"))
    spaces = rng.choice(("", " ", " "))
    if operator == "+":
        terms = [_whole(rng, rng.choice((1, 2, 2, 2, 3))) for _ in range(rng.choice((2, 2, 3, 3, 4)))]
        sign, value = "+", sum(terms)
    elif operator == "-":
        terms = sorted((_whole(rng, rng.choice((1, 2, 2, 3))) for _ in range(2)), reverse=True)
        sign, value = "-", terms[0] - terms[1]
    elif operator == "*":
        terms = [_whole(rng, rng.choice((1, 2, 2))), _whole(rng, rng.choice((1, 1, 1, 2)))]
        rng.shuffle(terms)
        sign, value = rng.choice(("*", "x", "×")), terms[0] * terms[1]
    else:
        divisor, value = _whole(rng, rng.choice((1, 1, 2))), _whole(rng, rng.choice((1, 1, 2)))
        terms, sign = [divisor * value, divisor], "/"
    question = f"{spaces}{sign}{spaces}".join(f"{currency}{term}" for term in terms)
    return f"{question}{spaces}={spaces}", f"{currency}{value}"
