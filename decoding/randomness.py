"""Where a sequence's random numbers come from (R16): four independent streams, all functions of (seed, prompt).

Window length, partition and order each draw from a generator of their own. Token noise is a function of (seed,
prompt, position, token) alone, so a position keeps its noise whatever structure it is decoded under: two
runs that differ only in their structures share it, and so do a batch and one prompt at a time.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

_GOLDEN = 0x9E3779B97F4A7C15 - (1 << 64)  # splitmix64's increment and multipliers, as signed 64-bit integers
_FIRST = 0xBF58476D1CE4E5B9 - (1 << 64)
_SECOND = 0x94D049BB133111EB - (1 << 64)


@dataclass(frozen=True)
class Streams:
    """The generators of one sequence, and the key of its token noise."""

    length: torch.Generator
    partition: torch.Generator
    order: torch.Generator
    token_key: int

    @classmethod
    def of(cls, seed: int, prompt_ids: list[int]) -> Streams:
        """The streams of a prompt's sequence under a seed."""
        digest = zlib.crc32(np.asarray(prompt_ids, dtype=np.int64).tobytes())
        keys = np.random.SeedSequence([seed, digest]).generate_state(4, np.uint64) >> np.uint64(1)
        length, partition, order = (torch.Generator().manual_seed(int(key)) for key in keys[:3])
        return cls(length, partition, order, int(keys[3]))


def gumbel_noise(keys: Tensor, positions: Tensor, vocabulary: int) -> Tensor:
    """Standard Gumbel noise (R, W, V) in float64, a fixed function of the row's key (R,), position (R, W) and token.

    splitmix64 finalises the counters: sampling needs no more, and it is the same on every device.
    """
    row = _mix(keys[:, None] + _GOLDEN * (positions + 1))
    bits = _mix(row[..., None] + _GOLDEN * torch.arange(1, vocabulary + 1, device=positions.device))
    # 52 bits: with 53, the largest would round to 1 and its noise to infinity
    uniform = (_shift(bits, 12).double() + 0.5) * 2.0**-52
    return -torch.log(-torch.log(uniform))


def _mix(x: Tensor) -> Tensor:
    x = (x ^ _shift(x, 30)) * _FIRST
    x = (x ^ _shift(x, 27)) * _SECOND
    return x ^ _shift(x, 31)


def _shift(x: Tensor, bits: int) -> Tensor:
    """Logical shift to the right of signed 64-bit integers."""
    return (x >> bits) & ((1 << (64 - bits)) - 1)
