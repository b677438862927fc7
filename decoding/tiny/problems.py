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


def drills(start: int, count: int) -> Iterator[Problem]:
    """Plain arithmetic in the notations of the worked answers: each asks for one to four results."""
    for index in range(start, start + count):
        rng = Random(f"drill {index}")
        asked, solved = [], []
        for _ in range(rng.randint(1, 4)):
            question, result = _expression(rng)
            asked.append(question)
            solved.append(f"{question}{rng.choice(('=', ' = '))}{result}")
        yield Problem(f"Compute {', '.join(asked)}.", "\n".join(solved) + f"\n#### {result}", str(result))


def _number(rng: Random, digits: int) -> int:
    return rng.randint(10 ** (digits - 1) if digits > 1 else 1, 10**digits - 1)


def _expression(rng: Random) -> tuple[str, str]:
    operator = rng.choice("++--***/")
    currency = rng.choice(("", "", "", "$", "€", "£"))
    if operator in "+-":
        left, right = _number(rng, rng.choice((1, 2, 2, 3, 3, 4))), _number(rng, rng.choice((1, 2, 2, 3)))
        if operator == "-" and left < right:
            left, right = right, left
        result = left + right if operator == "+" else left - right
    elif operator == "*":
        left, right = _number(rng, rng.choice((1, 2, 2, 2, 3))), _number(rng, rng.choice((1, 1, 2)))
        if rng.random() < 0.15:
            right = 10 * _number(rng, 1)
        if rng.random() < 0.3:
            left, right = right, left
        result = left * right
    else:
        right, result = _number(rng, rng.choice((1, 1, 2))), _number(rng, rng.choice((1, 2, 2, 3)))
        left = right * result
    sign = rng.choice(_OPERATORS[operator])
    return f"{left}{sign}{currency}{right}", f"{currency}{result}"


def final_value(text: str) -> str | None:
    """The value behind the last ``####`` of a worked answer, without commas and currency; None if there is none."""
    found = re.findall(r"####\s*[$€£]?\s*(-?[\d,]*\.?\d+)", text)
    return found[-1].replace(",", "") if found else None


def is_correct(text: str, value: str) -> bool:
    """Whether a worked answer ends in the right value (compared as numbers)."""
    found = final_value(text)
    return found is not None and abs(float(found) - float(value.replace(",", ""))) < 1e-6 * max(1.0, abs(float(found)))
