"""How each position of a response came to its token: what a trace's passes come to, position by position.

Knows traces only; a picture of it is drawn by `dystruct.inference.plots`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from .trace import Generation, PassKind, Step, Window

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True)
class Placed:
    """What a position holds, and the forward pass that put it there; all None while it is masked.

    `number`, `kind`, `block`: of the pass that committed the token last. `confidence`: None where the token was put in
    as it is. `taken_back`: pass and token of the commit that the last weld of the position took back.
    """

    token: int | None = None
    number: int | None = None
    kind: PassKind | None = None
    block: int | None = None
    confidence: float | None = None
    taken_back: tuple[int | None, int] | None = None


@dataclass(frozen=True)
class Span:
    """Response positions [start, end) of one block; `turn` is its place in the window's order, 1 for the first."""

    block: int
    turn: int
    start: int
    end: int


def placed(windows: Sequence[Window]) -> list[Placed]:
    """What each response position holds behind the windows' last pass; positions before the first one are masked."""
    canvas: list[Placed] = []
    for window in windows:
        start, length = window.opened.start, window.length
        canvas += [Placed()] * (start - len(canvas))
        canvas[start : start + length] = [Placed()] * length
        for step in window.steps:
            if step.kind == "diagnostic":  # its commits are tentative
                canvas[start:] = [Placed()] * (len(canvas) - start)
            else:
                _change(canvas, step)
            for splice in step.spliced:
                put = Placed() if splice.token is None else Placed(splice.token, step.number, step.kind, step.block)
                canvas[splice.position : splice.position + splice.removed] = [put] * splice.inserted
    return canvas


def _change(canvas: list[Placed], step: Step) -> None:
    """What a pass that is not diagnostic masks again and commits."""
    for remask in step.remasked:
        held = canvas[remask.position]
        taken_back = (held.number, remask.token) if step.kind == "weld" else held.taken_back
        canvas[remask.position] = Placed(taken_back=taken_back)
    for commit in step.commits:
        canvas[commit.position] = replace(
            canvas[commit.position],
            token=commit.token, number=step.number, kind=step.kind, block=step.block, confidence=commit.confidence,
        )  # fmt: skip


def spans(window: Window, held: Sequence[Placed]) -> list[Span]:
    """A window's blocks from left to right: those of its structure, else the runs that its passes name.

    `held`: what all response positions hold. Positions that no pass names belong to what stands before them.
    """
    start, end = window.opened.start, window.opened.start + len(window.closed.tokens)
    if window.structure is not None:
        ends = [*(start + stop for stop in window.structure.ends[:-1]), end]
        turns = {block: turn for turn, block in enumerate(window.structure.order, start=1)}
        return [Span(b, turns[b], s, e) for b, (s, e) in enumerate(zip([start, *ends], ends, strict=False))]
    first: dict[int, float] = {}  # block -> the first pass that left a token in it
    for cell in held[start:end]:
        if cell.block is not None and cell.number is not None:
            first[cell.block] = min(cell.number, first.get(cell.block, math.inf))
    order = sorted(first, key=lambda block: first[block])
    found: list[Span] = []
    for position in range(start, end):
        named = held[position].block
        block = named if named is not None else found[-1].block if found else order[0] if order else 0
        if found and found[-1].block == block:
            found[-1] = replace(found[-1], end=position + 1)
        else:
            found.append(Span(block, order.index(block) + 1 if order else 1, position, position + 1))
    return found


def plot_generation(generation: Generation, *, tokens: bool = True, ax: Axes | None = None) -> Axes:
    """The pass that committed each position at last, over positions; ValueError for a response without a token.

    `tokens`: name the positions by their tokens, as long as there are few.
    """
    from dystruct.inference.plots import plot_unmasking  # takes matplotlib, which decoding has no other use for

    held = placed(generation.windows)
    starts = [window.opened.start for window in generation.windows]
    inner = {span.start for window in generation.windows for span in spans(window, held)} - set(starts)
    return plot_unmasking(
        [_number(cell.number) for cell in held],
        welded_from=[math.nan if cell.taken_back is None else _number(cell.taken_back[0]) for cell in held],
        window_ends=starts[1:],
        block_ends=sorted(inner),
        tokens=[generation.token_texts[token] for token in generation.tokens] if tokens else None,
        ax=ax,
    )


def _number(number: int | None) -> float:
    return math.nan if number is None else number
