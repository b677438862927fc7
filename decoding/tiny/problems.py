"""The problems of three domains, in three splits that share no question.

Two rules keep the splits apart. They draw from different seeds. And the hash of a question's text says which
split it may occur in (`split_of`): some templates have few different questions, which every long
stream repeats.

Knows nothing of tokens or models.
"""

from __future__ import annotations

import hashlib
from itertools import count as numbers
from random import Random

from . import code, logic, maths
from .problem import Problem

DOMAINS = {"maths": maths.make, "code": code.make, "logic": logic.make}
SPLITS = ("train", "validation", "test")


def problems(domain: str, split: str, count: int, start: int = 0) -> list[Problem]:
    """Problems of a domain ("maths", "code", "logic") and a split ("train", "validation", "test").

    A held-out split gives exactly `count` problems with different questions, from its item `start` on. The training
    stream gives what is left of `count` items (15 of 16) when the held-out questions are taken out.
    """
    if domain not in DOMAINS:
        raise ValueError(f"There is no domain {domain!r}; the domains are {', '.join(DOMAINS)}.")
    if split not in SPLITS:
        raise ValueError(f"There is no split {split!r}; the splits are {', '.join(SPLITS)}.")
    if split == "train":
        items = (_item(domain, split, index) for index in range(start, start + count))
        return [problem for problem in items if split_of(problem.question) == split]
    found: dict[bytes, Problem] = {}
    for index in numbers(start):
        if len(found) == count:
            break
        problem = _item(domain, split, index)
        if split_of(problem.question) == split:
            found.setdefault(digest(problem.question), problem)
    return list(found.values())


def _item(domain: str, split: str, index: int) -> Problem:
    return DOMAINS[domain](Random(f"{domain} {split} {index}"))


def digest(question: str) -> bytes:
    """A hash of a question that ignores case and white space."""
    return hashlib.sha256(" ".join(question.lower().split()).encode()).digest()[:16]


def split_of(question: str) -> str:
    """The only split in which a question may occur: one in 32 is for test, one in 32 for validation."""
    return {0: "test", 1: "validation"}.get(digest(question)[0] % 32, "train")
