"""Hierarchy-dLLM: every maximal run of masks in a block nominates its most confident position.

A pass commits the nominated positions with confidence above `low`, any with confidence above `high`, and always the
best one. With `remask`, a doubtful decoded position of the block counts as masked: it may be decoded again or else is
masked; a pass then commits at least one position more than are doubtful.

Which positions are doubtful. For the default, those whose token has a probability below `remask`. For the original,
those where the token that the pass predicts (the most probable one, or at a temperature the one drawn) has: it never
looks at the token that stands there. So where the model has come to prefer another token and is sure of it, the
original keeps the old one, and where the old one is merely the best of several it doubts it too; the default revises
what the model no longer believes, which is what remasking is for.

Where the original goes plainly wrong otherwise, and what the default does: it can predict the mask and then repeat a
pass for ever (never predicted here); it decodes on behind the end token (the default ends there). `faithful` keeps
these, and the original's doubt.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import ClassVar

from ..errors import UserError
from ..kinds import check_flags, check_fraction, check_whole
from ..row import Figures, Pass, Row
from ..sampling import Sampling
from ..trace import Remask
from .blocks import commit_chosen, fill, ranked, resolve


@dataclass(frozen=True)
class Hierarchy:
    """Settings of Hierarchy-dLLM: block_length in tokens, the others in probability.

    high: None commits nothing but nominated positions. remask: None revises nothing. Raises UserError for other values.
    """

    block_length: int = 32
    low: float = 0.4
    high: float | None = None
    remask: float | None = None
    faithful: bool = False

    widest: ClassVar[None] = None

    def __post_init__(self) -> None:
        check_flags(self)
        check_whole(self, "block_length")
        check_fraction(self, "low", "high", "remask")
        if self.high is not None and self.low > self.high:
            raise UserError(f"low ({self.low}) must not exceed high ({self.high}).")

    def decode(self, row: Row) -> Iterator[Pass]:
        """Decode one sequence, block after block."""
        sampling = Sampling(mask_predictable=self.faithful)
        if self.remask is None:
            passes = partial(resolve, row, choose=self._chosen, sampling=sampling)
        else:
            passes = partial(self._revise, row, sampling=sampling)
        return fill(row, self.block_length, passes, faithful=self.faithful)

    def _chosen(self, figures: Figures, masked: list[int]) -> list[int]:
        best = ranked(masked, figures.confidence, figures.start)[0]
        return sorted({best, *self._nominated(figures, masked)})

    def _nominated(self, figures: Figures, area: list[int]) -> set[int]:
        """The best position of each run that is above `low`, and all above `high`."""
        confidence = {p: figures.confidence[p - figures.start] for p in area}
        runs = [[p for _, p in run] for _, run in groupby(enumerate(area), lambda pair: pair[1] - pair[0])]
        best = {max(run, key=lambda p: confidence[p]) for run in runs}
        sure = set() if self.high is None else {p for p in area if confidence[p] > self.high}
        return {p for p in best if confidence[p] > self.low} | sure

    def _revise(self, row: Row, start: int, end: int, *, block: int, sampling: Sampling) -> Iterator[Pass]:
        """Passes over a block in which doubtful positions are decoded again."""
        assert self.remask is not None
        committed: dict[int, float] = {}
        while masked := row.masked(start, end):
            if row.passes_left <= 1:
                yield from resolve(row, start, end, self._chosen, block=block, sampling=sampling)
                return
            yield Pass(
                "resolve", start, end, None, block=block, sampling=sampling, figures=("own",), everywhere=True,
                prefix=start,
            )  # fmt: skip
            figures = row.read_figures()
            doubted = figures.confidence if self.faithful else figures.own
            doubtful = [p for p in range(start, end) if p not in masked and doubted[p - start] < self.remask]
            area = sorted(masked + doubtful)
            chosen = self._nominated(figures, area)
            missing = len(doubtful) + 1 - len(chosen)
            rest = [p for p in area if p not in chosen]
            chosen.update(ranked(rest, figures.confidence, start)[: max(0, missing)])
            kept = {p for p in doubtful if p in chosen and figures.at(p).token == row.draft[p]}
            row.remask(Remask(p, row.draft[p], committed[p]) for p in doubtful if p not in kept)
            commit_chosen(row, figures, sorted(chosen - kept))
            committed.update({p: figures.at(p).confidence for p in chosen})
