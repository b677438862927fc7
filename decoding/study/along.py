"""Windows along known answers, one record a problem: diagnoses, pairs of commits, and the window as it is decoded.

Each window opens behind the reference's tokens, so that its own tokens can be compared with the reference one by one
(end tokens follow the answer), and what is measured in one window does not depend on errors before it. Another right
answer than the reference counts as wrong.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from torch import Tensor

from ..backbone import Backbone
from ..engine import Engine
from ..generation_settings import GenerationSettings
from ..passes import masks, quotas
from ..records import Records
from ..row import Pass, Row
from ..tiny.problem import Problem
from .diagnosis import ShownRule, diagnosis
from .pairs import commit_pairs

SHORTEST, LONGEST = 8, 48  # tokens of a window
DIAGNOSES: dict[str, tuple[int, ShownRule]] = {
    "2": (2, "carried"),
    "4": (4, "carried"),
    "8": (8, "carried"),
    "4 face-value": (4, "face-value"),
}


@dataclass(frozen=True)
class Place:
    """A window of `length` tokens at `start` of an answer; reference (L,): what should stand there.

    inside: how many of its positions belong to the answer, its end token included.
    """

    start: int
    length: int
    reference: tuple[int, ...]
    inside: int


def places(model: Backbone, answer: str, generator: np.random.Generator, count: int) -> list[Place]:
    """Up to `count` successive windows of those that follow one another along an answer, lengths drawn evenly."""
    tokens = [*model.tokenizer(answer, add_special_tokens=False)["input_ids"], model.eos_id]
    found: list[Place] = []
    while not found or found[-1].start + found[-1].length < len(tokens):
        start = found[-1].start + found[-1].length if found else 0
        length = int(generator.integers(SHORTEST, LONGEST + 1))
        wanted = tokens[start : start + length]
        padding = [model.eos_id] * (length - len(wanted))
        found.append(Place(start, length, (*wanted, *padding), len(wanted)))
    first = int(generator.integers(0, max(0, len(found) - count) + 1))
    return found[first : first + count]


def generator_of(seed: int, domain: str, index: int) -> np.random.Generator:
    """The random stream of one problem: the same whatever else is measured."""
    return np.random.default_rng([seed, zlib.crc32(domain.encode()), index])


def measure_windows(
    model: Backbone,
    records: Records,
    domain: str,
    problems: Sequence[Problem],
    *,
    seed: int = 0,
    windows: int = 2,
    neighbours: int = 4,
    distant: int = 2,
    report: Callable[[int], None] | None = None,
) -> None:
    """Append a record for each problem that has none. report: called with the problems done so far."""
    for index, problem in enumerate(problems):
        key = (domain, index)
        if key not in records:
            generator = generator_of(seed, domain, index)
            prompt_ids = model.encode(problem.question)
            found = [
                measure_window(model, prompt_ids, problem.answer, place, generator, neighbours, distant)
                for place in places(model, problem.answer, generator, windows)
            ]
            records.append(key, kind=problem.kind, windows=found)
        if report is not None:
            report(index + 1)


def measure_window(
    model: Backbone,
    prompt_ids: Sequence[int],
    answer: str,
    place: Place,
    generator: np.random.Generator,
    neighbours: int,
    distant: int,
) -> dict[str, Any]:
    """All that is measured of one window, as plain values and arrays."""
    before = model.tokenizer(answer, add_special_tokens=False)["input_ids"][: place.start]
    reference = np.array(place.reference)
    diagnoses = {}
    for name, (passes, rule) in DIAGNOSES.items():
        found = diagnosis(model, prompt_ids, before, place.length, passes, rule)
        diagnoses[name] = {
            "features": found.features,
            "wrong": (found.predicted != reference).astype(int),
            "taken_back": found.taken_back.astype(int),
            "gaps": found.gaps,
        }
    tokens, features = _resolved(model, [*prompt_ids, *before], place.length)
    pairs = commit_pairs(
        model, prompt_ids, before, place.reference, place.inside, generator, neighbours=neighbours, distant=distant
    )
    return {
        "start": place.start,
        "length": place.length,
        "inside": place.inside,
        "diagnoses": diagnoses,
        "decoded": {"features": features.numpy(), "wrong": (np.array(tokens) != reference).astype(int)},
        "pairs": [asdict(pair) for pair in pairs],
    }


@dataclass
class _OneWindow:
    """A decoder of one window, a token a pass: the most confident position first."""

    length: int
    tokens: list[int] = field(default_factory=list)
    features: Tensor | None = None

    @property
    def widest(self) -> int:
        return self.length

    def decode(self, row: Row) -> Iterator[Pass]:
        row.open_window(self.length)
        counts = quotas(self.length, self.length)
        for quota, left in zip(counts, masks(counts), strict=True):
            yield Pass("resolve", 0, self.length, quota, masked=left)
        self.tokens, self.features = row.read_window()
        row.close_window(self.tokens, self.features)


def _resolved(model: Backbone, before: list[int], length: int) -> tuple[list[int], Tensor]:
    """The window's tokens when decoded a token a pass, and phi (L, 7) of these passes."""
    decoder = _OneWindow(length)
    engine = Engine(model, decoder, GenerationSettings(length, length))
    engine.run(["the window"], [before], None, {})
    assert decoder.features is not None
    return decoder.tokens, decoder.features
