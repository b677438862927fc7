"""Block decoding: windows of one fixed length, appended one after the other, a token a pass by default.

Each window is one block, resolved by low-confidence remasking: every pass commits the masked positions with the
highest confidence, or all that are confident enough. Nothing is diagnosed, inferred or ever revised, so that this is
what is left of DyStruct without its structure.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ..filling import fill_span
from ..kinds import check_fraction, check_whole
from ..passes import quotas
from ..row import Pass, Row


@dataclass(frozen=True)
class Block:
    """Settings: block_length in tokens, and the passes for each block (None: as many as it has tokens).

    threshold: None commits as evenly as possible over a block's passes; a probability commits in each of them all
    tokens of at least this confidence, as in `DyStruct`. Raises UserError for other values.
    """

    block_length: int = 8
    passes: int | None = None
    threshold: float | None = None

    def __post_init__(self) -> None:
        check_whole(self, "block_length", "passes")
        check_fraction(self, "threshold")

    @property
    def widest(self) -> int:
        """The longest window, in tokens."""
        return self.block_length

    def decode(self, row: Row) -> Iterator[Pass]:
        """Decode one sequence, block after block, until an end token or a limit."""
        while row.remaining > 0 and row.passes_left > 0:
            window = row.open_window(min(self.block_length, row.remaining))
            counts = quotas(window.length, min(self.passes or window.length, row.passes_left))
            yield from fill_span(row, window.start, window.start + window.length, counts, threshold=self.threshold)
            tokens, features = row.read_window()
            row.close_window(tokens, features)
            if row.ended:
                return
