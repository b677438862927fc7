"""One sequence being decoded: what its coroutine (`Decoder`) knows of it and may do between passes (`Row`).

A decoder either knows beforehand how many tokens each pass commits and lets the device run ahead, or it looks behind
each pass, one read-back: at how many masks a threshold left (`Row.read_masks`), or at the pass's figures
(`Row.read_figures`), and then it commits, remasks and changes the length itself.
Positions are response positions, spans half-open. Knows nothing of structures.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor

from .backbone import Backbone
from .canvas import Canvas
from .ending import has_ended
from .errors import UserError
from .history import History, shorten
from .randomness import Streams
from .request import Figures, Pass, Shared, wanted_figures, within
from .trace import Commit, Remask, Splice, Step, StructureChosen, Window, WindowClosed, WindowOpened


class Decoder(Protocol):
    """Settings of a decoder, whose `decode` is the coroutine; its passes sample alike but for their guidance."""

    @property
    def widest(self) -> int | None:
        """The widest window that the decoder opens, in tokens; None if it has no use for the positions' features."""

    def decode(self, row: Row) -> Iterator[Pass]:
        """Decode one sequence, pass by pass; the engine refuses a pass that does not fit the row (UserError)."""


@dataclass
class Row:
    """One sequence being decoded: what its coroutine knows and may ask for."""

    prompt: str
    prompt_ids: list[int]
    max_new_tokens: int
    budget: int
    temperature: float
    streams: Streams
    model: Backbone
    slot: int
    history: History
    _canvas: Canvas
    stop: Sequence[str] = ()
    length: int = 0
    tokens: list[int] = field(default_factory=list)
    started: float = 0.0
    last_cost: int = 1  # forward passes that its last pass took
    first_diagnostic: bool = True  # no diagnostic pass of the open window has run yet
    resolved: bool = False  # whether a pass of another kind has
    kept: dict[bool, int] = field(default_factory=dict)  # where each cache's prefix ends; True: guidance's
    _played: set[int] = field(default_factory=set)  # positions that were in play since the window was cleared
    _unobserved: bool = False  # whether any pass since then was one with commit=None
    _figures: tuple[Shared, int] | None = None
    _masks: tuple[Shared, int] | None = None

    @property
    def draft(self) -> list[int]:
        """The response as far as the host knows it, masks included."""
        return self.history.draft

    @property
    def windows(self) -> list[Window]:
        """The windows that are closed."""
        return self.history.windows

    @property
    def steps(self) -> tuple[Step, ...]:
        """The open window's passes, as far as they have been read back."""
        return tuple(self.history.steps)

    @property
    def remaining(self) -> int:
        """Tokens left of max_new_tokens."""
        return self.max_new_tokens - self.length

    @property
    def passes_left(self) -> int:
        """Forward passes left of the budget."""
        return self.budget - sum(self.history.passes.values())

    @property
    def window_start(self) -> int:
        """Where the open window begins, or the last one began."""
        return 0 if self.history.opened is None else self.history.opened.start

    @property
    def is_open(self) -> bool:
        """Whether a window is open."""
        return self.history.opened is not None and self.history.opened.index == len(self.windows)

    @property
    def window(self) -> tuple[int, int]:
        """The open window's positions [start, end); UserError if none is open."""
        if not self.is_open:
            raise UserError("No window is open; call Row.open_window first.")
        return self.window_start, self.length

    @property
    def ended(self) -> bool:
        """Whether the text is known: before any mask an end token (R14) or a stop string stands in the response."""
        return has_ended(self.model, self.draft, self.stop)

    def open_window(self, length: int, previous_instability: float = 0.5, rate: float | None = None) -> WindowOpened:
        """Append `length` masks to the response; UserError if that many do not fit."""
        widest = self._canvas.widest if self._canvas.observing else self.max_new_tokens
        if self.is_open:
            raise UserError("A window is open already; call Row.close_window first.")
        if not within([(0, length)], 0, min(self.remaining, widest)):
            raise UserError(
                f"A window of {length} tokens cannot be opened, with {self.remaining} tokens left and room for "
                f"{widest} in a window; correct its length or the decoder's `widest`."
            )
        opened = WindowOpened(len(self.windows), self.length, length, previous_instability, rate)
        self.length += length
        self.first_diagnostic, self.resolved = True, False
        self.history.open(opened)
        self._clear()
        return opened

    def read_diagnostics(self) -> tuple[Tensor, Tensor]:
        """phi (L, 7) and gap divergences (L-1,) of the diagnostic passes, float64, on the CPU; masks the window again.

        The first of a window's two read-backs. UserError, as of `read_window`, where passes told nothing of features.
        """
        start, end = self._observed()
        phi = self._canvas.features(self.slot, start, end)
        gaps = self._canvas.gap_divergence[self.slot, start : end - 1]
        phi_values, gap_values = self.history.read(phi, gaps)
        self._clear()
        return phi_values.double(), gap_values.double()

    def read_predictions(self) -> list[int]:
        """What was last predicted for each position of the window: a read-back of its own."""
        start, end = self._observed()
        (values,) = self.history.read(self._canvas.predictions(self.slot, start, end))
        return [int(value) for value in values]

    def write(self, tokens: list[int]) -> None:
        """Put given tokens into the open window, in place of whatever it holds: to look at a text that is known.

        No step of the trace tells of it, so that the generation can be neither saved nor replayed.
        """
        start, end = self._span()
        self._check_tokens(tokens, end - start)
        self.history.catch_up()  # else what passes before this committed would be put over it later
        self.draft[self.window_start :] = tokens
        self._canvas.tokens[self.slot, start:end] = torch.tensor(tokens, device=self._canvas.device)

    def choose_structure(self, chosen: StructureChosen) -> None:
        """Put the window's structure on record; a longer window loses the masks behind its inferred length (R17)."""
        start, end = self.window
        length, law = chosen.ends[-1], chosen.length
        if length > end - start or (length < end - start if law is None else length not in law.lengths or self._played):
            raise UserError(
                f"A window of {end - start} tokens cannot have a structure of {length}; choose one that is as long, or "
                f"shorter with its inferred length, behind Row.read_diagnostics."
            )
        self.length = start + length
        self.history.choose(chosen, self.length)

    def read_window(self) -> tuple[list[int], Tensor]:
        """The window's tokens and phi (L, 7) of the passes that decoded it: the second read-back.

        UserError where any of them had commit=None, since these are not observed, or where the decoder has no `widest`.
        """
        start, end = self._observed()
        tokens, phi = self._canvas.tokens[self.slot, start:end], self._canvas.features(self.slot, start, end)
        values, features = self.history.read(tokens, phi)
        return [int(value) for value in values], features.double()

    def close_window(
        self, tokens: list[int], features: Tensor | None = None, mean_instability: float | None = None
    ) -> None:
        """Put the finished window on record; UserError for tokens that it does not hold."""
        start, end = self.window
        self._check_tokens(tokens, end - start)
        self.history.catch_up()
        if list(tokens) != self.draft[start:]:
            raise UserError(
                "A window is closed with tokens that its passes did not give it; close it with what Row.read_tokens or "
                "Row.read_window gives."
            )
        rows = () if features is None else tuple(map(tuple, features.tolist()))
        self.tokens.extend(tokens)
        self.history.close(WindowClosed(len(self.windows), tuple(tokens), rows, mean_instability))

    def read_tokens(self) -> list[int]:
        """The window's tokens as they stand, read back."""
        start, end = self._span()
        (values,) = self.history.read(self._canvas.tokens[self.slot, start:end])
        self.draft[self.length - len(values) :] = [int(value) for value in values]
        return self.draft[self.length - len(values) :]

    def read_figures(self) -> Figures:
        """What the last pass, one that committed nothing by itself, says of its span: one read-back."""
        request = self.history.behind.request
        assert self._figures is not None
        self.history.read()  # the passes before it come first
        shared, place = self._figures
        names = wanted_figures(request)
        positions = [position - request.start for position in request.positions]
        values = torch.full((len(names), request.end - request.start), torch.nan, dtype=torch.float64)
        values[:, positions] = shared.read(place, names, len(positions))
        looked_at = set(request.positions if request.everywhere else self.masked(request.start, request.end))
        self.history.check(values[:, [i for i in positions if i + request.start in looked_at]])
        return Figures(request.start, dict(zip(names, values.tolist(), strict=True)))

    def read_masks(self) -> int:
        """How many positions the last pass, one with a threshold, left masked in its span: one small read-back."""
        if self._masks is None:
            raise UserError("The last pass counted no masks; give it a threshold.")
        shared, place = self._masks
        return int(shared.read(place, ["masks"], 1))

    def plays_again(self, request: Pass) -> bool:
        """Whether any of a pass's positions was in play since the window was opened, or its diagnostics read."""
        return not self._played.isdisjoint(request.positions)

    def known_masks(self, request: Pass) -> int | None:
        """How many positions of a pass that remasks nothing are masked; None if the host does not know."""
        if not self.history.is_whole:
            return None
        return sum(self.draft[position] == self.model.mask_id for position in request.positions)

    def masked(self, start: int, end: int) -> list[int]:
        """The positions of a span that hold the mask."""
        return [position for position in range(start, end) if self.draft[position] == self.model.mask_id]

    def commit(self, commits: Iterable[Commit]) -> None:
        """Give positions their tokens; to be called behind a pass whose figures the decoder reads.

        A later pass's `remask`, which ranks what passes have committed by themselves, does not know their confidence.
        Behind one pass a decoder remasks, then commits, then splices; UserError otherwise.
        """
        self._check_order()
        commits = sorted(commits, key=lambda commit: commit.position)
        self._write([commit.position for commit in commits], [commit.token for commit in commits])
        self.history.behind.commits += commits

    def remask(self, remasks: Iterable[Remask]) -> None:
        """Mask positions again; to be called behind a pass whose figures the decoder reads, before it commits."""
        self._check_order(*self.history.behind.commits)
        remasks = sorted(remasks, key=lambda remask: remask.position)
        self._write([remask.position for remask in remasks], [self.model.mask_id] * len(remasks))
        self.history.behind.remasked += remasks

    def splice(self, position: int, removed: int, inserted: int, token: int | None = None) -> None:
        """Let `removed` positions of the open window give way to `inserted` of one token (None: masks)."""
        start, end = self.window
        if not (start <= position <= position + removed <= end and inserted >= 0):
            raise UserError(
                f"{removed} positions cannot give way to {inserted} at {position} in an open window of {start} to "
                f"{end}; correct what Row.splice is given."
            )
        if self._canvas.observing or (self.history.chosen is not None and self.history.chosen.length is not None):
            raise UserError(
                "Row.splice moves tokens, and neither the positions' features nor an inferred length move with them; "
                "let the decoder's `widest` be None, and its structure be without a `length`."
            )
        self._check_tokens([self.model.mask_id if token is None else token], 1)
        if self.length + inserted - removed > self.max_new_tokens:
            raise UserError(
                f"{inserted} positions cannot be inserted into a response of {self.length} tokens with a limit of "
                f"{self.max_new_tokens}; raise max_new_tokens."
            )
        self.history.catch_up()  # what passes before the last one committed is in what moves
        tail = self.draft[position + removed :]
        self.draft[position:] = [self.model.mask_id if token is None else token] * inserted + tail
        self.length = len(self.draft)
        begin = len(self.prompt_ids)
        self._canvas.splice(self.slot, begin + position, removed, self.draft[position:], len(tail))
        self.history.behind.spliced.append(Splice(position, removed, inserted, token))

    def record(self, request: Pass, outcomes: list[Tensor], masks: tuple[Shared, int] | None = None) -> None:
        """Count a pass and keep its outcome for the trace, and where `masks` are counted (the engine calls this)."""
        self._count(request)
        self._masks = masks
        self.history.record(request, outcomes)

    def offer(self, request: Pass, figures: Shared, place: int, others: Tensor | None = None) -> None:
        """Count a pass that leaves all to the decoder; its figures are at `place` (the engine calls this)."""
        self._count(request)
        self._unobserved = True
        self._figures = figures, place
        self.history.offer(request, others)

    def _check_order(self, *later: Commit) -> None:
        """UserError if behind this pass something was done that a trace has behind what is to be done."""
        if later or self.history.behind.spliced:
            raise UserError("Behind one pass remask first, then commit, then splice, as its step in the trace has it.")

    def _check_tokens(self, tokens: list[int], count: int) -> None:
        last = self.model.vocabulary - 1
        if len(tokens) != count or not all(0 <= token <= last for token in tokens):
            raise UserError(f"Give {count} tokens from 0 to {last}, not {shorten(str(tokens))}.")

    def _write(self, positions: list[int], tokens: list[int]) -> None:
        start, end = self.window
        if not within(((position, position + 1) for position in positions), start, end):
            raise UserError(
                f"The positions {shorten(str(positions))} cannot be changed: give positions of the open window, "
                f"{start} to {end}, each of them once."
            )
        self._check_tokens(tokens, len(positions))
        self.history.catch_up()  # as in `write`
        for position, token in zip(positions, tokens, strict=True):
            self.draft[position] = token
        places = torch.tensor(positions, dtype=torch.long) + len(self.prompt_ids)
        device = self._canvas.device
        self._canvas.tokens[self.slot, places.to(device)] = torch.tensor(tokens, dtype=torch.long).to(device)

    def _count(self, request: Pass) -> None:
        self._masks, self._figures, self.last_cost = None, None, request.cost
        self.first_diagnostic &= request.kind != "diagnostic"
        self.resolved |= request.kind != "diagnostic"
        self._played.update(request.positions)

    def _span(self) -> tuple[int, int]:
        offset, (start, end) = len(self.prompt_ids), self.window
        return offset + start, offset + end

    def _observed(self) -> tuple[int, int]:
        if self._unobserved or not self._canvas.observing:
            raise UserError(
                "Features are known only of passes that commit by themselves, and if the decoder has `widest`; call "
                "Row.read_tokens and close the window without features."
            )
        return self._span()

    def _clear(self) -> None:
        self._unobserved = False
        self._played.clear()
        self._canvas.clear(self.slot, *self._span())
