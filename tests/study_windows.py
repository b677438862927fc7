"""Records of the study whose effects are known, for the tests of what is made from them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from dystruct.decoding.study import evidence
from dystruct.decoding.study import measured as study_measured

LENGTH = 20


def records(problems: int = 60, *, together: float = 3.0, payoff: float = 0.0, seed: int = 0) -> list[dict[str, Any]]:
    """Windows in which entropy says where errors are: well at K = 8, fairly at 4, hardly at 2, not at face value.

    A pair is wrong together, the more the larger the `last` divergence of its gap is, with slope `together`. Windows
    go in twos; unstable ones have more errors, and behind these long windows have `payoff` more errors a token.
    """
    generator = np.random.default_rng(seed)
    found = []
    for number in range(problems):
        windows = []
        unstable = generator.uniform() < 0.5
        for place in range(2):
            length = LENGTH if place == 0 else int(generator.choice([14, 40]))
            rate = 0.6 if unstable and place == 0 else 0.2
            if place == 1 and unstable and length == 40:
                rate += payoff
            wrong = (generator.uniform(size=length) < rate).astype(int)
            gaps = {rule: generator.uniform(0, 0.7, size=length - 1) for rule in ("first", "last", "mean")}
            diagnoses = {}
            for name, strength in (("2", 0.3), ("4", 1.0), ("8", 3.0), ("4 face-value", 0.0)):
                features = generator.normal(size=(length, 7))
                features[:, 0] += strength * wrong
                diagnoses[name] = {
                    "features": features.tolist(), "wrong": wrong.tolist(), "taken_back": [0] * length,
                    "gaps": {rule: values.tolist() for rule, values in gaps.items()},
                }  # fmt: skip
            decoded = generator.normal(size=(length, 7))
            decoded[:, 0] += wrong
            windows.append({
                "start": 0 if place == 0 else LENGTH, "length": length, "inside": length, "diagnoses": diagnoses,
                "decoded": {"features": decoded.tolist(), "wrong": wrong.tolist()},
                "pairs": [pair(generator, left, gaps["last"][left], together) for left in range(0, 12, 2)],
            })  # fmt: skip
        found.append({"key": ["maths" if number % 3 else "logic", number], "windows": windows})
    return sorted(found, key=lambda record: record["key"])


def pair(generator: np.random.Generator, left: int, divergence: float, together: float) -> dict[str, Any]:
    wrong = generator.uniform() < 1 / (1 + math.exp(-together * 4 * (divergence - 0.45)))
    return {
        "kind": "neighbours", "state": "open", "left": left, "right": left + 1, "together": not wrong, "in_turn": True,
        "right_changes": bool(wrong), "left_changes": False, "confidence": [0.5, 0.6], "rank": [3, 4], "masked": 12,
    }  # fmt: skip


def resample_less(monkeypatch: pytest.MonkeyPatch) -> None:
    """Intervals of fewer resamples: quick, and good enough for effects that are as clear as these."""
    monkeypatch.setattr(study_measured, "RESAMPLES", 200)
    monkeypatch.setattr(evidence, "SLOPE_RESAMPLES", 10)
