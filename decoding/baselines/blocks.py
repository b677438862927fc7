"""What decoders share that fill a response block after block, choosing by each pass's figures.

A decoder says which of a block's masked positions a pass commits; going on until the block is full, ending at
the end of the text (R14) and within the budget (R12) come from here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from ..row import Figures, Pass, Row
from ..sampling import PLAIN, Sampling

Choose = Callable[[Figures, list[int]], list[int]]


def spans(length: int, block_length: int) -> list[tuple[int, int]]:
    """Half-open blocks of `block_length` tokens, the last one shorter where they do not divide the length."""
    return [(start, min(start + block_length, length)) for start in range(0, length, block_length)]


def ranked(positions: Sequence[int], scores: Sequence[float], start: int = 0) -> list[int]:
    """Positions by falling score, ties from left to right; scores are of the positions from `start` on."""
    return sorted(positions, key=lambda position: -scores[position - start])


def confident(figures: Figures, masked: list[int], threshold: float) -> list[int]:
    """The positions whose confidence reaches a threshold, and always the best one."""
    first, *others = ranked(masked, figures.confidence, figures.start)
    return [first, *(p for p in others if figures.confidence[p - figures.start] >= threshold)]


def resolve(
    row: Row,
    start: int,
    end: int,
    choose: Choose,
    *,
    block: int | None = None,
    sampling: Sampling = PLAIN,
) -> Iterator[Pass]:
    """Passes over a block until it holds no mask, each committing what `choose(figures, masked)` names.

    The budget's last pass fills the whole response. None is kept for the blocks behind this one: how many of them the
    text will need nobody knows, and most of the response lies behind its end.
    """
    while row.masked(start, end):
        reach = row.length if row.passes_left <= 1 else end
        yield Pass("resolve", start, reach, None, block=block, sampling=sampling, prefix=start)
        figures = row.read_figures()
        masked = row.masked(start, reach)
        if row.passes_left > 0:
            commit_chosen(row, figures, choose(figures, masked))
        else:
            row.commit(figures.unmasked_at(p) if figures.at(p).token == row.model.mask_id else figures.at(p)
                       for p in masked)  # fmt: skip


def fill(row: Row, block_length: int, passes: Callable[..., Iterator[Pass]], *, faithful: bool) -> Iterator[Pass]:
    """Open the response as one window and fill it block after block, unless `faithful` only up to the text's end.

    passes: called as passes(start, end, block=…), as `resolve` is.
    """
    row.open_window(row.max_new_tokens)
    for block, (start, end) in enumerate(spans(row.length, block_length)):
        yield from passes(start, end, block=block)
        if not faithful and row.ended:
            break
    finish(row, keep_masks=faithful)


def commit_chosen(row: Row, figures: Figures, chosen: list[int]) -> None:
    """Commit the candidates at the chosen positions.

    Where all of them are the mask, which stays masked, nothing would change, and the same pass would come again for
    ever: the most confident position then gets its best other token.
    """
    if all(figures.at(position).token == row.model.mask_id for position in chosen):
        best = max(chosen, key=lambda position: figures.unmasked_at(position).confidence)
        row.commit([figures.unmasked_at(best)])
    else:
        row.commit(map(figures.at, chosen))


def finish(row: Row, *, keep_masks: bool = False) -> None:
    """Take what is still masked behind the text's end out of the response, and put the window on record."""
    for position in reversed(row.masked(0, row.length) if row.ended and not keep_masks else []):
        row.splice(position, 1, 0)
    row.close_window(list(row.draft))
