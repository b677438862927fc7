"""How many forward passes a block gets, and how many tokens each pass commits (readings R4, R11).

Pure arithmetic on the host: sizes in tokens, counts in passes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

PassesRule = Literal["interpolate", "share"]


def interpolated_passes(instability: float, low: int, high: int) -> int:
    """T(B) = Tmin + H(B)(Tmax - Tmin), rounded half up."""
    return math.floor(low + instability * (high - low) + 0.5)


def shared_passes(sizes: Sequence[int], instabilities: Sequence[float], passes_per_token: float) -> list[int]:
    """T(B) = |B| · (budget / N_max) · H(B) / mean H for each block, at least 1 and at most |B|.

    The mean is over the window's blocks, weighted by their sizes; passes_per_token is budget / N_max.
    """
    mean = sum(size * h for size, h in zip(sizes, instabilities, strict=True)) / sum(sizes)
    return [
        max(1, min(size, math.floor(size * passes_per_token * (h / mean if mean > 0 else 1.0) + 0.5)))
        for size, h in zip(sizes, instabilities, strict=True)
    ]


def quotas(masked: int, passes: int) -> list[int]:
    """Tokens to commit in each of at most `passes` passes: as even as possible, larger first, none of them empty."""
    passes = min(passes, masked)
    base, extra = divmod(masked, max(passes, 1))
    return [base + 1] * extra + [base] * (passes - extra)


def masks(counts: Sequence[int]) -> list[int]:
    """How many tokens are still masked in each of the passes that commit `counts`, all of them together."""
    return [sum(counts[done:]) for done in range(len(counts))]


def shown_positions(length: int, passes: int) -> list[int]:
    """Positions shown after each diagnostic pass k = 1..K of a window of L: floor(k L / (K + 1)) (R4)."""
    return [k * length // (passes + 1) for k in range(1, passes + 1)]
