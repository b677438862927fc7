"""Word problems with worked answers: what the embedded model is trained and tested on.

The questions come from reasoning-gym's ``gsm_symbolic`` generator (GSM8K questions as templates). Two rules
keep the splits apart. The splits draw from seeds a thousand million apart (the generator seeds item ``i``
with ``seed + i``, so data sets with neighbouring seeds share items). And the hash of a question's text says
which split it may occur in (`split_of`): some templates have few different questions, which every
long stream repeats.

Knows nothing of tokens or models.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

SPLIT_SEED = {"train": 0, "validation": 1_000_000_000, "test": 2_000_000_000}
_SUFFIX = " Give the result as your final answer. Do not include units."
_OPERATORS = {"+": ("+", " + "), "-": ("-", " - "), "*": ("*", " * ", " x ", " × "), "/": ("/", " / ")}


@dataclass(frozen=True)
class Problem:
    """A question, its worked answer (ending in ``#### value``) and that value as text."""

    question: str
    answer: str
    value: str


def problems(split: str, count: int, start: int = 0) -> list[Problem]:
    """Problems of a split ("train", "validation" or "test"): those of items `start` and on that belong to it.

    A held-out split gives exactly `count` problems with different questions. The training stream gives what
    is left of `count` items (15 of 16) when the held-out questions are taken out.
    """
    if split not in SPLIT_SEED:
        raise ValueError(f"There is no split {split!r}; the splits are {', '.join(SPLIT_SEED)}.")
    if split == "train":
        return [problem for problem in _generate(start, count) if split_of(problem.question) == split]
    found: dict[bytes, Problem] = {}
    first = SPLIT_SEED[split] + start
    while len(found) < count:
        for problem in _generate(first, 4096):
            if split_of(problem.question) == split:
                found.setdefault(digest(problem.question), problem)
        first += 4096
    return list(found.values())[:count]


def _generate(seed: int, count: int) -> Iterator[Problem]:
    try:
        import reasoning_gym
    except ImportError as error:
        raise RuntimeError("The word problems need reasoning-gym: pip install 'dystruct[train]'.") from error
    dataset = reasoning_gym.create_dataset("gsm_symbolic", seed=seed, size=count)
    for index in range(count):
        item = dataset[index]
        yield Problem(item["question"].removesuffix(_SUFFIX), item["metadata"]["answer_cot"], str(item["answer"]))


def digest(question: str) -> bytes:
    """A hash of a question that ignores case and white space."""
    return hashlib.sha256(" ".join(question.lower().split()).encode()).digest()[:16]


def split_of(question: str) -> str:
    """The only split in which a question may occur: one in 32 is for test, one in 32 for validation."""
    return {0: "test", 1: "validation"}.get(digest(question)[0] % 32, "train")


@dataclass(frozen=True)
class Drill:
    """Lines of plain arithmetic, and the half-open character spans of the results in them."""

    text: str
    results: tuple[tuple[int, int], ...]


def drills(pool: int, count: int, lines: int = 12) -> Iterator[Drill]:
    """Arithmetic drills: expressions as they stand in the training answers, and a third made up likewise.

    Every value of `pool` gives other drills, all of them from the training stream.
    """
    rng = Random(f"drills {pool}")
    known = [pair for problem in problems("train", 2000, start=2000 * pool) for pair in expressions(problem.answer)]
    for _ in range(count):
        text, results = "", []
        for _ in range(lines):
            question, result = rng.choice(known) if known and rng.random() < 2 / 3 else _expression(rng)
            results.append((len(text) + len(question), len(text) + len(question) + len(result)))
            text += f"{question}{result}\n"
        yield Drill(text, tuple(results))


_EXPRESSION = re.compile(
    r"(?<![\d.*x×/+\-=])(?<![*x×/+\-=] )"  # not the end of a longer expression
    r"((\d[\d.]*)(?: ?([*x×/+\-]) ?)[€$£]?(\d[\d.]*) ?= ?)"
    r"([€$£]?(\d[\d.]*\d|\d))(?![\d%/])"
)


def expressions(answer: str) -> list[tuple[str, str]]:
    """The true equations of two numbers in a worked answer, as (text up to the result, result)."""
    found = []
    for question, left, sign, right, result, value in _EXPRESSION.findall(answer):
        if max(len(left), len(right), len(value)) > 6 or any(
            n.count(".") > 1 or n.endswith(".") for n in (left, right)
        ):
            continue
        a, b = float(left), float(right)
        if sign == "/" and b == 0:
            continue
        true = {"+": a + b, "-": a - b, "/": a / b if b else 0.0}.get(sign, a * b)
        if abs(true - float(value)) < 1e-6:
            found.append((question, result))
    return found


def _number(rng: Random, digits: int) -> int:
    return rng.randint(10 ** (digits - 1) if digits > 1 else 1, 10**digits - 1)


def _expression(rng: Random) -> tuple[str, str]:
    """An equation of whole numbers as (text up to the result, result)."""
    operator = rng.choice("+-**/")
    currency = rng.choice(("", "", "", "$", "€", "£"))
    if operator in "+-":
        left, right = _number(rng, rng.choice((1, 2, 2, 2, 3))), _number(rng, rng.choice((1, 2, 2, 3)))
        if operator == "-" and left < right:
            left, right = right, left
        result = left + right if operator == "+" else left - right
    elif operator == "*":
        left, right = _number(rng, rng.choice((1, 2, 2))), _number(rng, rng.choice((1, 1, 1, 2)))
        if rng.random() < 0.5:
            left, right = right, left
        result = left * right
    else:
        right, result = _number(rng, rng.choice((1, 1, 2))), _number(rng, rng.choice((1, 1, 2)))
        left = right * result
    sign = rng.choice(_OPERATORS[operator])
    return f"{left}{sign}{currency}{right}{rng.choice(('=', ' = '))}", f"{currency}{result}"


def final_value(text: str) -> str | None:
    """The value behind the last ``####`` of a worked answer, without commas and currency; None if there is none."""
    found = re.findall(r"####\s*[$€£]?\s*(-?[\d,]*\.?\d+)", text)
    return found[-1].replace(",", "") if found else None


def is_correct(text: str, value: str) -> bool:
    """Whether a worked answer ends in the right value (compared as numbers)."""
    found = final_value(text)
    return found is not None and abs(float(found) - float(value.replace(",", ""))) < 1e-6 * max(1.0, abs(float(found)))
