"""LLaDA's decoder: a response of fixed length, filled block after block by quotas.

Of a block's m masks the passes commit floor(m / S) each, the first m mod S one more: those of highest confidence
(`low_confidence`) or drawn at random. Nothing is ever revised. With guidance s, logits are
unconditional + (s + 1) (conditional - unconditional), the unconditional ones with the prompt masked.

Where the original goes plainly wrong, and what the default does: it can predict the mask, which then counts as
committed but stays masked (never predicted here); it decodes on behind the end token (the default ends with the
block that holds it); passes that commit nothing are made (skipped); at a temperature, `defer_eos` leaves the end
token its confidence (the default defers it at every temperature); its options on the end know one end token (the
default takes all that the model has). `faithful` keeps all of these that change tokens, and like the original takes
only block lengths and steps that divide.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch

from ..errors import UserError
from ..kinds import check_flags, check_positive, check_whole
from ..passes import masks, quotas
from ..row import Pass, Row
from ..sampling import Sampling
from .blocks import finish, ranked, spans


@dataclass(frozen=True)
class Fixed:
    """Settings of LLaDA's decoder.

    block_length in tokens (None: the whole response). steps: passes in all, guidance's second ones not counted (None: a
    token a pass, as far as the budget goes). guidance: the scale s, 0 for none. suppress_eos: no end token is ever
    predicted. defer_eos: end tokens and `end_of_turn` (a token id) have no confidence, so they come last.
    Raises UserError for a value that is none of these and for a setting without use.
    """

    block_length: int | None = None
    steps: int | None = None
    remasking: Literal["low_confidence", "random"] = "low_confidence"
    guidance: float = 0.0
    suppress_eos: bool = False
    defer_eos: bool = False
    end_of_turn: int | None = None
    faithful: bool = False

    widest: ClassVar[None] = None

    def __post_init__(self) -> None:
        check_flags(self)
        check_whole(self, "block_length", "steps")
        if self.remasking not in ("low_confidence", "random"):
            raise UserError(f"remasking must be low_confidence or random, not {self.remasking!r}.")
        check_positive(self, "guidance", or_zero=True)
        if self.defer_eos and self.remasking == "random":
            raise UserError("defer_eos has no use with random remasking, which looks at no confidence; leave it out.")
        check_whole(self, "end_of_turn", least=0)
        if self.end_of_turn is not None and not self.defer_eos:
            raise UserError("end_of_turn has no use without defer_eos; leave it out.")
        if self.defer_eos and self.suppress_eos and self.end_of_turn is None:
            raise UserError("defer_eos has no use with suppress_eos, which never predicts it; leave one of them out.")

    def decode(self, row: Row) -> Iterator[Pass]:
        """Decode one sequence, block after block."""
        program = self._program(row)
        sampling = self._sampling(row)
        row.open_window(row.max_new_tokens)
        for block, (start, end, counts) in enumerate(program):
            if self.faithful or self.remasking == "random":
                yield from self._looking(row, block, start, end, counts, sampling)
            else:
                # the device runs ahead; the last pass fills the block whatever its figures say
                for quota, masked in zip(counts[:-1], masks(counts), strict=False):
                    yield Pass(
                        "resolve", start, end, quota, block=block, sampling=sampling, masked=masked, prefix=start
                    )  # fmt: skip
                yield Pass("resolve", start, end, None, block=block, sampling=sampling, prefix=start)
                figures = row.read_figures()
                row.commit(map(figures.at, row.masked(start, end)))
            if not self.faithful and row.ended:
                break
        finish(row, keep_masks=self.faithful)

    def _looking(
        self, row: Row, block: int, start: int, end: int, counts: list[int], sampling: Sampling
    ) -> Iterator[Pass]:
        """A block whose masks only the host can tell; what earlier blocks left masked competes with its own."""
        first = 0 if self.faithful else start
        for quota in counts:
            yield Pass("resolve", first, end, None, block=block, sampling=sampling, prefix=first)
            figures = row.read_figures()
            if self.remasking == "random":
                scores, origin = torch.rand(row.length, generator=row.streams.order).tolist(), 0
            else:
                scores, origin = figures.confidence, first
            row.commit(map(figures.at, ranked(row.masked(first, end), scores, origin)[:quota]))

    def _sampling(self, row: Row) -> Sampling:
        ends = (row.model.eos_id,) if self.faithful else tuple(sorted(row.model.end_ids))
        deferred: tuple[int, ...] = ()
        if self.defer_eos:
            turn = () if self.end_of_turn is None else (self.end_of_turn,)
            deferred = turn if self.faithful and row.temperature > 0 else ends + turn
        if not all(0 <= token < row.model.vocabulary for token in deferred):
            raise UserError(
                f"end_of_turn {self.end_of_turn} is outside the vocabulary of {row.model.vocabulary} tokens; give the "
                f"id that the tokenizer has for it."
            )
        return Sampling(
            guidance=self.guidance,
            excluded=ends if self.suppress_eos else (),
            deferred=deferred,
            mask_predictable=self.faithful,
        )

    def _program(self, row: Row) -> list[tuple[int, int, list[int]]]:
        """Each block's start, end and quotas; UserError where the steps do not fit."""
        length, cost = row.max_new_tokens, 2 if self.guidance else 1
        blocks = spans(length, self.block_length or length)
        affordable = row.budget // cost
        if affordable < 1:
            raise UserError("Guidance takes two forward passes; give a budget of at least 2.")
        steps = self.steps or min(length, affordable)
        if self.steps is not None and steps < len(blocks):
            raise UserError(f"steps ({steps}) must be at least the number of blocks, {len(blocks)}; raise it.")
        if self.faithful and (length % (self.block_length or length) or steps % len(blocks)):
            raise UserError(
                f"The original takes only a block_length that divides max_new_tokens ({length}) and steps ({steps}) "
                f"that the {len(blocks)} blocks divide; correct them or leave out faithful."
            )
        if steps < len(blocks):  # one pass each, and the budget's last one fills what is left
            return [(a, b, [b - a]) for a, b in [*blocks[: steps - 1], (blocks[steps - 1][0], length)]]
        program = [
            (start, end, quotas(end - start, steps * end // length - steps * start // length)) for start, end in blocks
        ]
        needed = sum(len(counts) for _, _, counts in program)
        if needed > affordable:
            raise UserError(
                f"{needed} steps{' with guidance' if self.guidance else ''} take {needed * cost} forward passes, more "
                f"than the budget of {row.budget}; raise the budget or lower steps."
            )
        return program
