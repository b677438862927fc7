"""Partition of a window into contiguous blocks, and its three equivalent descriptions.

Knows no probability: only the bijections between

    ends         M half-open block ends, strictly increasing, the last one = L
    cuts         L-1 flags, one a gap, true where a block ends: cut at gap g <=> g+1 is an end
    run lengths  L lengths of the current block up to and including a position: cut at gap g <=> run length 1 at g+1

Positions and gaps count from 0; gap g lies between positions g and g+1. All lengths are in tokens.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

from .kinds import whole_number


@dataclass(frozen=True)
class Partition:
    """Contiguous blocks [0, ends[0]), [ends[0], ends[1]), … of a window of ends[-1] tokens.

    Raises ValueError if `ends` is empty, not of integers, or not strictly increasing from at least 1.
    """

    ends: tuple[int, ...]

    def __post_init__(self) -> None:
        ends = tuple(whole_number("ends", end) for end in self.ends)
        if not ends or ends[0] < 1 or any(b <= a for a, b in pairwise(ends)):
            raise ValueError(f"ends must increase strictly from at least 1, got {ends}: every block needs a token.")
        object.__setattr__(self, "ends", ends)

    @property
    def length(self) -> int:
        """Tokens in the window, L."""
        return self.ends[-1]

    @property
    def count(self) -> int:
        """Number of blocks, M."""
        return len(self.ends)

    @property
    def blocks(self) -> tuple[tuple[int, int], ...]:
        """Half-open spans (start, end) of the M blocks, left to right."""
        return tuple(zip((0, *self.ends[:-1]), self.ends, strict=True))

    @property
    def cuts(self) -> tuple[bool, ...]:
        """One flag for each of the L-1 gaps, true where a block ends (a tuple: it compares and hashes)."""
        inner = set(self.ends[:-1])
        return tuple(g + 1 in inner for g in range(self.length - 1))

    @property
    def run_lengths(self) -> tuple[int, ...]:
        """For each of the L positions, the length of its block up to and including it, in tokens."""
        return tuple(m for start, end in self.blocks for m in range(1, end - start + 1))

    @classmethod
    def from_cuts(cls, cuts: Iterable[object]) -> Partition:
        """The partition of len(cuts) + 1 tokens that ends a block at every true flag (0/1, bool or tensor)."""
        flags = list(cuts)
        try:
            known = all(flag in (0, 1) for flag in flags)
        except (RuntimeError, ValueError):  # a row of flags, which torch and numpy take for no single one
            known = False
        if not known:
            raise ValueError(f"cuts must be flags 0 or 1, one a gap, got {flags}; of several windows give one row.")
        return cls((*(g + 1 for g, flag in enumerate(flags) if flag), len(flags) + 1))

    @classmethod
    def from_run_lengths(cls, run_lengths: Iterable[int]) -> Partition:
        """The partition with these run lengths: the first is 1, each next one is one more, or 1 again."""
        runs = [whole_number("run_lengths", m) for m in run_lengths]
        if not runs or runs[0] != 1 or any(b not in (1, a + 1) for a, b in pairwise(runs)):
            raise ValueError(f"run_lengths must start at 1 and then grow by one or return to 1, got {runs}.")
        return cls((*(j for j in range(1, len(runs)) if runs[j] == 1), len(runs)))

    @classmethod
    def whole(cls, length: int) -> Partition:
        """The whole window of `length` tokens as one block."""
        return cls((length,))
