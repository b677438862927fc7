"""AdaBlock-dLLM: blocks that end where the model predicts a delimiter.

At a block's start, among the next floor(0.25 · max_new_tokens) positions those predicted to be a delimiter are looked
at: if the most probable one reaches `delimiter_threshold`, the block ends with it, else it has the default length.
Within a block, threshold decoding. The pass that finds the end commits already.

Where the original goes plainly wrong, and what the default does: it can predict the mask and then repeat a pass for
ever (never predicted here); it decodes on behind the end token (the default ends there). `faithful` keeps what changes
tokens.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

from ..errors import UserError
from ..kinds import check_flags, check_fraction, check_whole, is_whole
from ..row import Figures, Pass, Row
from ..sampling import Sampling
from .blocks import commit_chosen, confident, finish, resolve


@dataclass(frozen=True)
class AdaBlock:
    """Settings of AdaBlock-dLLM; lengths in tokens, thresholds in probability.

    block_length: of a block without a delimiter. delimiter_threshold: None takes 0.3, and 0.5 for a model with shifted
    logits, as the original does for LLaDA and Dream. delimiters: texts; a token that ends with one of them is a
    delimiter. delimiter_ids: exactly these tokens instead. Raises UserError for other values.
    """

    block_length: int = 32
    threshold: float = 0.9
    delimiter_threshold: float | None = None
    delimiters: tuple[str, ...] = ("\n",)
    delimiter_ids: tuple[int, ...] | None = None
    faithful: bool = False

    widest: ClassVar[None] = None

    def __post_init__(self) -> None:
        check_flags(self)
        check_whole(self, "block_length")
        check_fraction(self, "threshold", "delimiter_threshold")
        if self.delimiter_ids is not None:
            if self.delimiters != ("\n",):
                raise UserError("delimiters and delimiter_ids exclude each other; give one of them.")
            if not _several(self.delimiter_ids) or not all(map(is_whole, self.delimiter_ids)):
                raise UserError("delimiter_ids must be whole numbers, at least one of them; name some.")
        elif not _several(self.delimiters) or not all(isinstance(text, str) and text for text in self.delimiters):
            raise UserError("delimiters must be texts, at least one of them and none empty; name some.")

    def decode(self, row: Row) -> Iterator[Pass]:
        """Decode one sequence, block after block."""
        sampling = Sampling(mask_predictable=self.faithful)
        length = row.max_new_tokens
        window = int(0.25 * length)
        row.open_window(length)
        start = block = 0
        while start < length and row.passes_left > 1:
            reach = min(start + max(window, self.block_length), length)
            yield Pass("resolve", start, reach, None, block=block, sampling=sampling, prefix=start)
            figures = row.read_figures()
            end = min(start + self._length(row, figures, min(window, length - start)), length)
            commit_chosen(row, figures, self._chosen(figures, row.masked(start, end)))
            yield from resolve(row, start, end, self._chosen, block=block, sampling=sampling)
            if not self.faithful and row.ended:
                break
            start, block = end, block + 1
        else:
            yield from resolve(row, start, length, self._chosen, block=block, sampling=sampling)
        finish(row, keep_masks=self.faithful)

    def _chosen(self, figures: Figures, masked: list[int]) -> list[int]:
        return confident(figures, masked, self.threshold)

    def _length(self, row: Row, figures: Figures, window: int) -> int:
        """The block's length: up to the most probable delimiter among the first `window` positions."""
        found = [i for i in range(window) if self._delimits(row, figures.token[i])]
        best = max(found, key=lambda i: figures.confidence[i], default=None)
        threshold = self.delimiter_threshold
        if threshold is None:
            threshold = 0.5 if row.model.shifted else 0.3
        return best + 1 if best is not None and figures.confidence[best] >= threshold else self.block_length

    def _delimits(self, row: Row, token: int) -> bool:
        if self.delimiter_ids is not None:
            return token in self.delimiter_ids
        return row.model.token_text(token).endswith(tuple(self.delimiters))


def _several(value: object) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str) and len(value) > 0
