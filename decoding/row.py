"""One sequence being decoded: what its coroutine asks of the engine (`Pass`) and what it may do between passes (`Row`).

A decoder either knows beforehand how many tokens each pass commits and lets the device run ahead, or it looks at a
pass's figures (`Row.read_figures`, one read-back a pass) and commits, remasks and changes the length itself.
Positions are response positions, spans half-open. Knows nothing of structures.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor

from .backbone import Backbone
from .canvas import Canvas
from .errors import UserError
from .randomness import Streams
from .sampling import PLAIN, Sampling
from .trace import (
    Commit,
    Event,
    PassKind,
    Remask,
    Splice,
    Step,
    StructureChosen,
    Window,
    WindowClosed,
    WindowOpened,
)


@dataclass(frozen=True)
class Pass:
    """One forward pass of a row.

    Logits are computed for [start, end) only. Before the pass, of each span in `remask` (start, end, count) the
    count least confident committed positions are masked again; after it the `commit` most confident masked
    positions of [start, end) get their tokens; None where the decoder itself commits by the pass's figures. A
    diagnostic pass commits tentatively (R4). `block` names what is worked on, for the trace. `parts`: the spans of
    [start, end) that are in play, where it is not in play as a whole. `visible`: the response position from which on
    the model sees nothing. Guidance takes two forward passes.
    """

    kind: PassKind
    start: int
    end: int
    commit: int | None
    remask: tuple[tuple[int, int, int], ...] = ()
    block: int | None = None
    parts: tuple[tuple[int, int], ...] = ()
    sampling: Sampling = PLAIN
    visible: int | None = None

    @property
    def cost(self) -> int:
        """Forward passes that it takes."""
        return 2 if self.sampling.guidance else 1


@dataclass(frozen=True)
class Figures:
    """What a pass says of each position of [start, start + W), whether masked or not.

    `token`, `confidence`: the candidate and its probability. `top`, `top_confidence`: the most probable token.
    `margin`: the difference of the two largest probabilities; `entropy` in nats; `own`: the probability of the token
    that the canvas holds. `unmasked`, `unmasked_confidence`: the best token other than the mask, among those.
    """

    start: int
    token: list[int]
    confidence: list[float]
    top: list[int]
    top_confidence: list[float]
    margin: list[float]
    entropy: list[float]
    own: list[float]
    unmasked: list[int]
    unmasked_confidence: list[float]

    def at(self, position: int) -> Commit:
        """The candidate at a response position, as a commit."""
        return Commit(position, self.token[position - self.start], self.confidence[position - self.start])

    def unmasked_at(self, position: int) -> Commit:
        """The best token other than the mask at a response position, as a commit."""
        i = position - self.start
        return Commit(position, self.unmasked[i], self.unmasked_confidence[i])


class Decoder(Protocol):
    """Settings of a decoder, whose `decode` is the coroutine; its passes sample alike but for their guidance."""

    @property
    def widest(self) -> int | None:
        """The widest window that the decoder opens, in tokens; None if it has no use for the positions' features."""

    def decode(self, row: Row) -> Iterator[Pass]:
        """Decode one sequence, pass by pass."""


@dataclass
class _Log:
    """A pass's outcome on the device. Each tensor (3, width): which positions, their tokens, their confidences.

    The first is of the commits in the pass's span, one more follows for each span that it remasked.
    """

    number: int
    request: Pass
    outcomes: list[Tensor]


@dataclass
class _Changes:
    """What a decoder did behind a pass whose figures it read."""

    number: int
    request: Pass
    remasked: list[Remask] = field(default_factory=list)
    commits: list[Commit] = field(default_factory=list)
    spliced: list[Splice] = field(default_factory=list)


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
    _canvas: Canvas
    _emit: Callable[[Event], None] | None
    length: int = 0
    draft: list[int] = field(default_factory=list)  # the response as far as the host knows it, masks included
    passes: dict[str, int] = field(default_factory=dict)
    windows: list[Window] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)
    started: float = 0.0
    first_diagnostic: bool = True  # no diagnostic pass of the open window has run yet
    _opened: WindowOpened | None = None
    _chosen: StructureChosen | None = None
    _steps: list[Step] = field(default_factory=list)
    _logs: list[_Log] = field(default_factory=list)
    _figures: Tensor | None = None
    _changes: _Changes | None = None

    @property
    def remaining(self) -> int:
        """Tokens left of max_new_tokens."""
        return self.max_new_tokens - self.length

    @property
    def passes_left(self) -> int:
        """Forward passes left of the budget."""
        return self.budget - sum(self.passes.values())

    def open_window(self, length: int, previous_instability: float = 0.5, rate: float | None = None) -> WindowOpened:
        """Append `length` masks to the response; UserError if that many do not fit."""
        widest = self._canvas.widest if self._canvas.observing else self.max_new_tokens
        if not 1 <= length <= min(self.remaining, widest):
            raise UserError(
                f"A window of {length} tokens cannot be opened, with {self.remaining} tokens left and room for "
                f"{widest} in a window (of DyStruct, its prior's max_length); correct the length rule or that limit."
            )
        self._opened = WindowOpened(len(self.windows), self.length, length, previous_instability, rate)
        self.length += length
        self.draft += [self.model.mask_id] * length
        self.first_diagnostic = True
        self._clear()
        self._notify(self._opened)
        return self._opened

    def read_diagnostics(self) -> tuple[Tensor, Tensor]:
        """phi (L, 7) and gap divergences (L-1,) of the diagnostic passes, float64, on the CPU; masks the window again.

        The first of a window's two read-backs.
        """
        start, end = self._span()
        phi = self._canvas.features(self.slot, start, end).double()
        gaps = self._canvas.gap_divergence[self.slot, start : end - 1].double()
        phi_values, gap_values = self._read(phi, gaps)
        self._clear()
        return phi_values, gap_values

    def read_predictions(self) -> list[int]:
        """What was last predicted for each position of the window: a read-back of its own."""
        start, end = self._span()
        (values,) = self._read(self._canvas.prediction[self.slot, start:end].double())
        return [int(value) for value in values]

    @property
    def steps(self) -> tuple[Step, ...]:
        """The open window's passes, as far as they have been read back."""
        return tuple(self._steps)

    def write(self, tokens: list[int]) -> None:
        """Put given tokens into the open window, in place of whatever it holds."""
        start, end = self._span()
        self._canvas.tokens[self.slot, start:end] = torch.tensor(tokens, device=self._canvas.device)

    def choose_structure(self, chosen: StructureChosen) -> None:
        """Put the window's structure on record."""
        self._chosen = chosen
        self._notify(chosen)

    def read_window(self) -> tuple[list[int], Tensor]:
        """The window's tokens and phi (L, 7) of the passes that decoded it: the second read-back."""
        start, end = self._span()
        tokens = self._canvas.tokens[self.slot, start:end].double()
        phi = self._canvas.features(self.slot, start, end).double()
        values, features = self._read(tokens, phi)
        return [int(value) for value in values], features

    def close_window(
        self, tokens: list[int], features: Tensor | None = None, mean_instability: float | None = None
    ) -> None:
        """Put the finished window on record."""
        assert self._opened is not None
        self.settle()
        rows = () if features is None else tuple(map(tuple, features.tolist()))
        closed = WindowClosed(self._opened.index, tuple(tokens), rows, mean_instability)
        self.draft[self._opened.start :] = tokens
        self.windows.append(Window(self._opened, self._chosen, tuple(self._steps), closed))
        self.tokens.extend(tokens)
        self._chosen, self._steps = None, []
        self._notify(closed)

    def read_tokens(self) -> list[int]:
        """The window's tokens as they stand, read back."""
        start, end = self._span()
        (values,) = self._read(self._canvas.tokens[self.slot, start:end].double())
        self.draft[self.length - len(values) :] = [int(value) for value in values]
        return self.draft[self.length - len(values) :]

    def read_figures(self) -> Figures:
        """What the last pass, one that committed nothing by itself, says of its span: one read-back."""
        assert self._figures is not None and self._changes is not None, "the pass must be one with commit=None"
        (values,) = self._read(self._figures)
        token, confidence, top, top_confidence, margin, entropy, own, unmasked, unmasked_confidence = values.tolist()
        return Figures(
            self._changes.request.start, _whole(token), confidence, _whole(top), top_confidence, margin, entropy, own,
            _whole(unmasked), unmasked_confidence,
        )  # fmt: skip

    def masked(self, start: int, end: int) -> list[int]:
        """The positions of a span that hold the mask."""
        return [position for position in range(start, end) if self.draft[position] == self.model.mask_id]

    def commit(self, commits: Iterable[Commit]) -> None:
        """Give positions their tokens; to be called behind a pass whose figures the decoder reads.

        A later pass's `remask`, which ranks what passes have committed by themselves, does not know their confidence.
        """
        commits = sorted(commits, key=lambda commit: commit.position)
        self._write([commit.position for commit in commits], [commit.token for commit in commits])
        self._behind().commits += commits

    def remask(self, remasks: Iterable[Remask]) -> None:
        """Mask positions again; to be called behind a pass whose figures the decoder reads."""
        remasks = sorted(remasks, key=lambda remask: remask.position)
        self._write([remask.position for remask in remasks], [self.model.mask_id] * len(remasks))
        self._behind().remasked += remasks

    def splice(self, position: int, removed: int, inserted: int, token: int | None = None) -> None:
        """Let `removed` positions of the open window give way to `inserted` of one token (None: masks)."""
        assert self._opened is not None and self._opened.start <= position
        if self.length + inserted - removed > self.max_new_tokens:
            raise UserError(
                f"{inserted} positions cannot be inserted into a response of {self.length} tokens with a limit of "
                f"{self.max_new_tokens}; raise max_new_tokens."
            )
        tail = self.draft[position + removed :]
        padding = [self.model.mask_id] * max(0, removed - inserted)
        self.draft[position:] = [self.model.mask_id if token is None else token] * inserted + tail
        self.length = len(self.draft)
        first = len(self.prompt_ids) + position
        new = torch.tensor(self.draft[position:] + padding, device=self._canvas.device)
        self._canvas.tokens[self.slot, first : first + len(new)] = new
        self._behind().spliced.append(Splice(position, removed, inserted, token))

    def record(self, request: Pass, outcomes: list[Tensor]) -> None:
        """Count a pass and keep its outcome for the trace (the engine calls this)."""
        self._count(request)
        self._logs.append(_Log(sum(self.passes.values()), request, outcomes))
        if self._emit is not None:
            self._read()

    def offer(self, request: Pass, figures: Tensor) -> None:
        """Count a pass that leaves all to the decoder and keep its figures (9, W) (the engine calls this)."""
        self._count(request)
        self._figures, self._changes = figures, _Changes(sum(self.passes.values()), request)

    def settle(self) -> None:
        """Put on record what the decoder did behind its last pass (the engine calls this)."""
        if self._changes is None:
            return
        self._read()  # the passes before it come first
        done, self._changes, self._figures = self._changes, None, None
        step = Step(
            done.number, done.request.kind, done.request.block, tuple(done.remasked), tuple(done.commits),
            tuple(done.spliced),
        )  # fmt: skip
        self._steps.append(step)
        self._notify(step)

    def _behind(self) -> _Changes:
        assert self._changes is not None, "the last pass must be one with commit=None"
        return self._changes

    def _write(self, positions: list[int], tokens: list[int]) -> None:
        for position, token in zip(positions, tokens, strict=True):
            self.draft[position] = token
        places = torch.tensor(positions, dtype=torch.long) + len(self.prompt_ids)
        device = self._canvas.device
        self._canvas.tokens[self.slot, places.to(device)] = torch.tensor(tokens, dtype=torch.long).to(device)

    def _count(self, request: Pass) -> None:
        self.passes[request.kind] = self.passes.get(request.kind, 0) + request.cost
        self.first_diagnostic &= request.kind != "diagnostic"

    def _span(self) -> tuple[int, int]:
        assert self._opened is not None, "a window must be open"
        offset = len(self.prompt_ids)
        return offset + self._opened.start, offset + self.length

    def _clear(self) -> None:
        self._canvas.clear(self.slot, *self._span())

    def _notify(self, event: Event) -> None:
        if self._emit is not None:
            self._emit(event)

    def _read(self, *values: Tensor) -> list[Tensor]:
        """Bring values and the outcomes of all passes since the last reading to the host, in one transfer."""
        parts = [outcome for log in self._logs for outcome in log.outcomes] + list(values)
        if not parts:
            return []
        flat = torch.cat([part.reshape(-1) for part in parts]).cpu()
        if not flat.isfinite().all():
            raise UserError(
                f"The model's logits are not finite numbers while decoding {_shorten(self.prompt)!r}; check its "
                f"weights, or load it in float32."
            )
        sizes = [part.numel() for part in parts]
        pieces = iter([piece.reshape(part.shape) for piece, part in zip(flat.split(sizes), parts, strict=True)])
        for log in self._logs:
            step = _step(log.number, log.request, [next(pieces) for _ in log.outcomes])
            self._steps.append(step)
            self._notify(step)
        self._logs = []
        return list(pieces)


def _step(number: int, request: Pass, outcomes: list[Tensor]) -> Step:
    commits = [Commit(*found) for found in _chosen(request.start, outcomes[0])]
    remasks = [
        Remask(*found)
        for (start, _, _), outcome in zip(request.remask, outcomes[1:], strict=True)
        for found in _chosen(start, outcome)
    ]
    return Step(number, request.kind, request.block, tuple(remasks), tuple(commits))


def _chosen(start: int, outcome: Tensor) -> list[tuple[int, int, float]]:
    """(position, token, confidence) of the positions that an outcome (3, width) marks."""
    marked, tokens, confidences = outcome.tolist()
    return [(start + i, int(tokens[i]), confidences[i]) for i, mark in enumerate(marked) if mark]


def _whole(values: list[float]) -> list[int]:
    return [int(value) for value in values]


def _shorten(text: str) -> str:
    return text if len(text) <= 40 else text[:37] + "..."
