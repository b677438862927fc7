"""DAEDAL: a response whose length adapts to how sure the model is of its end.

E is the sum of p(end token) over the last `eos_check_tokens` positions whose most probable token it is, divided by
`eos_check_tokens`. Stage 1: while E < eos_threshold, append `expansion` masks; then append eos_check_tokens / 2 end
tokens. Stage 2, block after block: commit the masked positions with confidence above `high`, or else the best one; if
E < expand_eos_threshold, the least confident of the others below `low` gives way to `expansion` masks.
max_new_tokens is the limit of the length.

Where the original goes plainly wrong, and what the default does: an expansion next to the limit pushes tokens out at
the far end (as many masks as fit are inserted here); it can take the mask for the most probable token (the mask takes
no part here); it decodes on when the text before the end token is known (the default ends there); E knows one end
token (the default takes all that the model has). `faithful` keeps these. The original's guidance fails once the
length changes, so there is none here.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from ..errors import UserError
from ..kinds import check_flags, check_fraction, check_whole
from ..row import Figures, Pass, Row
from ..sampling import Sampling
from .blocks import finish, ranked

# What E is made of.
_END = ("top", "top_confidence")


@dataclass(frozen=True)
class Daedal:
    """Settings of DAEDAL: lengths in tokens, thresholds in probability. Raises UserError for other values."""

    initial_length: int = 64
    block_length: int = 32
    high: float = 0.9
    low: float = 0.1
    expansion: int = 8
    eos_threshold: float = 0.5
    expand_eos_threshold: float = 0.9
    eos_check_tokens: int = 32
    faithful: bool = False

    widest: ClassVar[None] = None

    def __post_init__(self) -> None:
        check_flags(self)
        check_whole(self, "initial_length", "block_length", "expansion", "eos_check_tokens")
        check_fraction(self, "high", "low", "eos_threshold", "expand_eos_threshold")
        if self.low > self.high:
            raise UserError(f"low ({self.low}) must not exceed high ({self.high}).")

    def decode(self, row: Row) -> Iterator[Pass]:
        """Decode one sequence."""
        sampling = Sampling(mask_predictable=self.faithful)
        row.open_window(min(self.initial_length, row.max_new_tokens))

        # 1. Initial length; a pass at least is kept to fill it
        while row.passes_left > 1:
            yield Pass("diagnostic", 0, row.length, None, sampling=sampling, figures=_END, everywhere=True)
            certain = self._end_confidence(row, row.read_figures())
            if certain >= self.eos_threshold or row.remaining == 0:
                row.splice(row.length, 0, min(self.eos_check_tokens // 2, row.remaining), row.model.eos_id)
                break
            row.splice(row.length, 0, min(self.expansion, row.remaining))

        # 2. Denoising and insertion of masks, in the active block
        start, block = 0, 0
        while start < row.length:
            final = row.passes_left <= 1
            yield Pass(
                "resolve", 0, row.length, None, block=block, sampling=sampling, figures=_END, everywhere=True
            )  # fmt: skip
            figures = row.read_figures()
            if final:
                row.commit(map(figures.unmasked_at if self.faithful else figures.at, row.masked(0, row.length)))
                break
            masked = row.masked(start, min(start + self.block_length, row.length))
            filled = self._fill(row, figures, masked)
            weak = [p for p in masked if p not in filled and figures.confidence[p] < self.low]
            if weak and row.remaining > 0 and self._end_confidence(row, figures) < self.expand_eos_threshold:
                self._expand(row, min(weak, key=lambda position: figures.confidence[position]))
            while start < row.length and not row.masked(start, min(start + self.block_length, row.length)):
                start, block = start + self.block_length, block + 1
            if not self.faithful and row.ended:
                break
        finish(row, keep_masks=self.faithful)

    def _end_confidence(self, row: Row, figures: Figures) -> float:
        """E of the response as it stood in a pass."""
        ends = {row.model.eos_id} if self.faithful else row.model.end_ids
        found = [p for p, top in zip(figures.top_confidence, figures.top, strict=True) if top in ends]
        return sum(found[-self.eos_check_tokens :]) / self.eos_check_tokens

    def _fill(self, row: Row, figures: Figures, masked: list[int]) -> set[int]:
        """Commit the sure positions, or else the best one; returns which."""
        known = [p for p in masked if figures.token[p] != row.model.mask_id]
        commits = [figures.at(p) for p in known if figures.confidence[p] > self.high]
        if not commits and known:
            commits = [figures.at(ranked(known, figures.confidence)[0])]
        elif not commits:
            commits = [max(map(figures.unmasked_at, masked), key=lambda commit: commit.confidence)]
        row.commit(commits)
        return {commit.position for commit in commits}

    def _expand(self, row: Row, position: int) -> None:
        """Put masks in the place of one."""
        limit = row.max_new_tokens
        if self.faithful:
            inserted = min(self.expansion, limit - position)
            pushed_out = max(0, row.length - 1 + inserted - limit)
            if pushed_out:
                row.splice(row.length - pushed_out, pushed_out, 0)
        else:
            inserted = min(self.expansion, row.remaining + 1)
        row.splice(position, 1, inserted)
