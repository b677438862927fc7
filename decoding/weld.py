"""Which positions edge-welding may touch: an interval around each boundary of neighbouring blocks (R13)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from dystruct.model import Partition

WeldRule = Literal["sequential", "joint", "off"]


@dataclass(frozen=True)
class Weld:
    """An interval [start, end) of window positions, how many of them to remask, and the block left of its boundary."""

    start: int
    end: int
    remask: int
    block: int


def welds(partition: Partition, radius: int, rule: WeldRule) -> list[Weld]:
    """The intervals to weld, left to right: [max(a, b-r), min(c, b+r)) between [a, b) and [b, c) (eq. welding).

    Of each the less confident half is remasked, at least one token. "joint" merges intervals that overlap, so that
    they can be refined together.
    """
    if rule == "off" or radius < 1:
        return []
    spans: list[tuple[int, int, int]] = []
    for block, ((a, b), (_, c)) in enumerate(zip(partition.blocks, partition.blocks[1:], strict=False)):
        start, end = max(a, b - radius), min(c, b + radius)
        if rule == "joint" and spans and start < spans[-1][1]:
            spans[-1] = (spans[-1][0], end, spans[-1][2])
        else:
            spans.append((start, end, block))
    return [Weld(start, end, max(1, (end - start) // 2), block) for start, end, block in spans]
