"""The passes that fill a span of masks: by quotas alone, or all confident tokens at once with the quotas as a floor."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from .passes import masks
from .row import Pass, Row


def fill_span(
    row: Row, start: int, end: int, counts: Sequence[int], *, block: int | None = None, threshold: float | None = None
) -> Iterator[Pass]:
    """The passes that commit all sum(counts) masks of a span, so many each, the most confident first (R11).

    threshold: a probability; a pass commits all masks of at least this confidence, and no fewer than an even share over
    the passes that are left, so that len(counts) is the most that the span takes. That reads one number a pass; without
    it nothing is read.
    """
    if threshold is None:
        for quota, left in zip(counts, masks(counts), strict=True):
            yield Pass("resolve", start, end, quota, block=block, masked=left)
        return
    left = sum(counts)
    for passes in range(len(counts), 0, -1):
        share = -(-left // passes)
        yield Pass("resolve", start, end, share, block=block, masked=left, threshold=threshold)
        left = row.read_masks()
        if left == 0:
            return
