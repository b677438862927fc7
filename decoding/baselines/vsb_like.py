"""Blocks of variable size that end where the future tells the model little: a reading of VSB's abstract alone.

A window of `block_length` masks is appended. A pass sees all of it; then, with the masks from e on hidden, passes for
e = stride, 2 stride, … predict the `stride` positions before e. The block ends at the first e where the two agree:
the mean of |p - p'| of the predicted token, taken as 1 where another one is predicted, is at most `tolerance`. The
rest of the window is taken away and the block filled by threshold decoding.

The method's authors have published no program; what their experiments did may differ in every detail.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from ..kinds import check_fraction, check_whole
from ..row import Figures, Pass, Row
from .blocks import confident, resolve


@dataclass(frozen=True)
class VsbLike:
    """Settings: block_length, of the longest block, and stride in tokens; tolerance and threshold in probability."""

    block_length: int = 32
    stride: int = 8
    tolerance: float = 0.1
    threshold: float = 0.9

    widest: ClassVar[None] = None

    def __post_init__(self) -> None:
        check_whole(self, "block_length", "stride")
        check_fraction(self, "tolerance", "threshold")

    def decode(self, row: Row) -> Iterator[Pass]:
        """Decode one sequence, block after block."""
        while row.remaining > 0 and row.passes_left > 0:
            window = row.open_window(min(self.block_length, row.remaining))
            start, end = window.start, window.start + window.length
            cuts = range(start + self.stride, end, self.stride)
            if cuts and row.passes_left > len(cuts) + 1:  # a pass at least is kept to fill the block
                yield Pass("diagnostic", start, end, None)
                full = row.read_figures()
                for cut in cuts:
                    yield Pass("diagnostic", cut - self.stride, cut, None, visible=cut)
                    if self._divergence(full, row.read_figures()) <= self.tolerance:
                        row.splice(cut, end - cut, 0)
                        end = cut
                        break
            yield from resolve(row, start, end, self._chosen)
            row.close_window(row.draft[start:])
            if row.ended:
                return

    def _chosen(self, figures: Figures, masked: list[int]) -> list[int]:
        return confident(figures, masked, self.threshold)

    def _divergence(self, full: Figures, cut: Figures) -> float:
        """Mean change of the prediction for the positions before a cut when what follows it is hidden."""
        first = cut.start - full.start
        changes = [
            abs(p - full.confidence[first + i]) if token == full.token[first + i] else 1.0
            for i, (token, p) in enumerate(zip(cut.token, cut.confidence, strict=True))
        ]
        return sum(changes) / len(changes)
