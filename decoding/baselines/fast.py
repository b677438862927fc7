"""Fast-dLLM's parallel decoding: every pass commits all of a block's masked positions that are sure enough.

`threshold`: those whose confidence reaches it. `factor` f: by falling confidence c_1 >= c_2 >= …, rank r as long as
c_r >= 1 - f / (r + 1). The best one always. Its key-value caches are not part of this decoder.

Where the original goes plainly wrong, and what the default does: under a factor, where only the last masked position
falls short, it is committed all the same (left masked here); it can predict the mask and then repeat a pass for ever
(never predicted here); it decodes on behind the end token (the default ends there). `faithful` keeps what changes
tokens.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from ..errors import UserError
from ..kinds import check_flags, check_fraction, check_positive, check_whole
from ..row import Figures, Pass, Row
from ..sampling import Sampling
from .blocks import confident, fill, ranked, resolve


@dataclass(frozen=True)
class Fast:
    """Settings of Fast-dLLM's decoder: block_length in tokens, and either a threshold or a factor.

    threshold: a probability (0.9 where neither is given). Raises UserError for other values, and for both.
    """

    block_length: int = 32
    threshold: float | None = None
    factor: float | None = None
    faithful: bool = False

    widest: ClassVar[None] = None

    def __post_init__(self) -> None:
        check_flags(self)
        check_whole(self, "block_length")
        check_fraction(self, "threshold")
        check_positive(self, "factor")
        if self.threshold is not None and self.factor is not None:
            raise UserError("threshold and factor exclude each other; give one of them.")
        if self.factor is None and self.threshold is None:
            object.__setattr__(self, "threshold", 0.9)

    def decode(self, row: Row) -> Iterator[Pass]:
        """Decode one sequence, block after block."""
        passes = partial(resolve, row, choose=self._chosen, sampling=Sampling(mask_predictable=self.faithful))
        return fill(row, self.block_length, passes, faithful=self.faithful)

    def _chosen(self, figures: Figures, masked: list[int]) -> list[int]:
        if self.factor is None:
            assert self.threshold is not None
            return confident(figures, masked, self.threshold)
        order = ranked(masked, figures.confidence, figures.start)
        count = 1
        while count < len(order):
            if figures.confidence[order[count] - figures.start] < 1 - self.factor / (count + 2):
                break
            count += 1
        if self.faithful and count == len(order) - 1:
            count += 1
        return order[:count]
