"""Runs decoders in batches: one forward pass at a time for all rows, whatever each of them is doing.

A decoder is a coroutine over forward passes: it is given a `Row` and yields one `Pass` after another. The
engine collects a pass from every row, makes one forward call, commits on the device and resumes the rows.
A finished row's slot goes to the next prompt. Budget, random streams, trace and observation come from here.

Knows nothing of structures. Spans in a `Pass` are response positions, half-open.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Protocol

import torch
from torch import Tensor

from dystruct.model import hidden_jump, predict

from .backbone import Backbone
from .canvas import Canvas, Fresh, Region
from .errors import UserError
from .randomness import Streams, gumbel_noise
from .trace import (
    Commit,
    Event,
    Generation,
    PassKind,
    Remask,
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
    positions of [start, end) get their tokens. A diagnostic pass commits tentatively (R4). `block` names what is
    worked on, for the trace. `parts`: the spans of [start, end) that are in play, where it is not in play as a whole.
    """

    kind: PassKind
    start: int
    end: int
    commit: int
    remask: tuple[tuple[int, int, int], ...] = ()
    block: int | None = None
    parts: tuple[tuple[int, int], ...] = ()


class Decoder(Protocol):
    """Settings of a decoder, whose `decode` is the coroutine."""

    @property
    def widest(self) -> int:
        """The widest window that the decoder opens, in tokens."""

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
class Row:
    """One sequence being decoded: what its coroutine knows and may ask for."""

    prompt: str
    prompt_ids: list[int]
    max_new_tokens: int
    budget: int
    streams: Streams
    model: Backbone
    slot: int
    _canvas: Canvas
    _emit: Callable[[Event], None] | None
    length: int = 0
    passes: dict[str, int] = field(default_factory=dict)
    windows: list[Window] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)
    started: float = 0.0
    first_diagnostic: bool = True  # no diagnostic pass of the open window has run yet
    _opened: WindowOpened | None = None
    _chosen: StructureChosen | None = None
    _steps: list[Step] = field(default_factory=list)
    _logs: list[_Log] = field(default_factory=list)

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
        widest = self._canvas.widest
        if not 1 <= length <= min(self.remaining, widest):
            raise UserError(
                f"A window of {length} tokens cannot be opened, with {self.remaining} tokens left and room for "
                f"{widest} in a window (of DyStruct, its prior's max_length); correct the length rule or that limit."
            )
        self._opened = WindowOpened(len(self.windows), self.length, length, previous_instability, rate)
        self.length += length
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

    def close_window(self, tokens: list[int], features: Tensor, mean_instability: float | None = None) -> None:
        """Put the finished window on record."""
        assert self._opened is not None
        closed = WindowClosed(
            self._opened.index, tuple(tokens), tuple(map(tuple, features.tolist())), mean_instability
        )  # fmt: skip
        self.windows.append(Window(self._opened, self._chosen, tuple(self._steps), closed))
        self.tokens.extend(tokens)
        self._chosen, self._steps = None, []
        self._notify(closed)

    def record(self, request: Pass, outcomes: list[Tensor]) -> None:
        """Count a pass and keep its outcome for the trace (the engine calls this)."""
        self.passes[request.kind] = self.passes.get(request.kind, 0) + 1
        self.first_diagnostic &= request.kind != "diagnostic"
        self._logs.append(_Log(sum(self.passes.values()), request, outcomes))
        if self._emit is not None:
            self._read()

    def _span(self) -> tuple[int, int]:
        assert self._opened is not None, "a window must be open"
        start = len(self.prompt_ids) + self._opened.start
        return start, start + self._opened.length

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


def _in_play(region: Region, requests: Sequence[Pass]) -> Region:
    """The region without what lies between the parts of a pass."""
    if not any(request.parts for request in requests):
        return region
    playing = torch.zeros(region.inside.shape, dtype=torch.bool)
    for row, request in zip(playing, requests, strict=True):
        for start, end in request.parts or ((request.start, request.end),):
            row[start - request.start : end - request.start] = True
    return replace(region, inside=playing.to(region.inside.device, non_blocking=True))


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


class Engine:
    """Decodes prompts with one model and one decoder, `batch_size` at a time."""

    def __init__(
        self,
        model: Backbone,
        decoder: Decoder,
        *,
        max_new_tokens: int,
        budget: int,
        temperature: float,
        seed: int,
        batch_size: int,
    ) -> None:
        self.model, self.decoder = model, decoder
        self.max_new_tokens, self.budget = max_new_tokens, budget
        self.temperature, self.seed, self.batch_size = temperature, seed, batch_size

    @torch.inference_mode()
    def run(
        self,
        prompts: Sequence[str],
        prompt_ids: Sequence[list[int]],
        observe: Callable[[int, Event], None] | None,
        settings: dict[str, Any],
    ) -> list[Generation]:
        """Decode all prompts; results in their order."""
        capacity = max(len(ids) for ids in prompt_ids) + self.max_new_tokens
        slots = min(self.batch_size, len(prompts))
        self.canvas = Canvas(slots, capacity, self.model.mask_id, self.model.device)
        self.canvas.reserve(min(self.decoder.widest, self.max_new_tokens), self.model.vocabulary)
        waiting = list(range(len(prompts)))
        active: dict[int, tuple[int, Row, Iterator[Pass]]] = {}  # slot -> (prompt index, row, coroutine)
        done: dict[int, Generation] = {}
        while waiting or active:
            for slot in range(slots):
                if slot not in active and waiting:
                    index = waiting.pop(0)
                    row = self._row(prompts[index], prompt_ids[index], slot, index, observe)
                    active[slot] = (index, row, iter(self.decoder.decode(row)))
            requests: list[tuple[Row, Pass]] = []
            for slot, (index, row, coroutine) in list(active.items()):
                request = next(coroutine, None)
                if request is None:
                    done[index] = self._finish(row, settings)
                    del active[slot]
                else:
                    requests.append((row, request))
            if requests:
                self._forward(requests)
        return [done[index] for index in range(len(prompts))]

    def _row(
        self, prompt: str, ids: list[int], slot: int, index: int, observe: Callable[[int, Event], None] | None
    ) -> Row:
        self.canvas.place(slot, ids)
        emit = None if observe is None else lambda event: observe(index, event)
        return Row(
            prompt, ids, self.max_new_tokens, self.budget, Streams.of(self.seed, ids), self.model, slot, self.canvas, emit,
            started=time.perf_counter(),
        )  # fmt: skip

    def _forward(self, requests: list[tuple[Row, Pass]]) -> None:
        """One forward pass for all requests, and what it commits."""
        canvas, device = self.canvas, self.model.device
        slots = [row.slot for row, _ in requests]
        offsets = [len(row.prompt_ids) for row, _ in requests]
        spans = [(o + p.start, o + p.end) for o, (_, p) in zip(offsets, requests, strict=True)]
        region = canvas.region(slots, spans)
        remasked = self._remask(requests, offsets)
        lengths = [o + row.length for o, (row, _) in zip(offsets, requests, strict=True)]
        fresh = self._predict(requests, region, lengths, offsets)
        diagnostic = [request.kind == "diagnostic" for _, request in requests]
        first = [
            i for i, (row, p) in enumerate(requests) if diagnostic[i] and row.first_diagnostic and p.end - p.start > 1
        ]
        if first:
            rows = torch.tensor(first).to(device, non_blocking=True)
            some = Region(region.slots[rows], region.index[rows], region.inside[rows])
            canvas.observe_gaps(some, fresh.log_probability[rows])
        region = _in_play(region, [request for _, request in requests])
        commits = torch.tensor([[request.commit] for _, request in requests]).to(device, non_blocking=True)
        tentative = torch.tensor(diagnostic)[:, None].to(device, non_blocking=True)
        outcome = torch.stack([value.double() for value in canvas.commit(region, fresh, commits, tentative)], dim=1)
        for i, (row, request) in enumerate(requests):
            row.record(request, [outcome[i, :, : request.end - request.start], *remasked.get(i, [])])

    def _remask(self, requests: list[tuple[Row, Pass]], offsets: list[int]) -> dict[int, list[Tensor]]:
        """Mask what the requests ask to be masked again; the outcomes (3, width) by request."""
        spans = [(i, *span) for i, (_, request) in enumerate(requests) for span in request.remask]
        if not spans:
            return {}
        slots = [requests[i][0].slot for i, *_ in spans]
        region = self.canvas.region(slots, [(offsets[i] + start, offsets[i] + end) for i, start, end, _ in spans])
        counts = torch.tensor([[count] for *_, count in spans]).to(self.model.device, non_blocking=True)
        outcome = torch.stack([value.double() for value in self.canvas.remask(region, counts)], dim=1)
        found: dict[int, list[Tensor]] = {}
        for k, (i, start, end, _) in enumerate(spans):
            found.setdefault(i, []).append(outcome[k, :, : end - start])
        return found

    def _predict(
        self, requests: list[tuple[Row, Pass]], region: Region, lengths: list[int], offsets: list[int]
    ) -> Fresh:
        model, device = self.model, self.model.device
        longest = max(lengths)
        valid = None
        if min(lengths) < longest:
            valid = (torch.arange(longest) < torch.tensor(lengths)[:, None]).to(device, non_blocking=True)
        hidden = model.hidden(self.canvas.tokens[region.slots[:, 0], :longest], valid)
        # The output that predicts a position, and the one before the region's first for its hidden jump.
        sources = torch.where(region.inside, region.index, 0) - int(model.shifted)
        sources = torch.cat((sources[:, :1] - 1, sources), dim=1).clamp(min=0)
        states = hidden.gather(1, sources[..., None].expand(-1, -1, hidden.shape[-1]))
        logits = model.logits(states[:, 1:])
        prediction = predict(logits)
        token = prediction.top
        if self.temperature > 0:
            keys = torch.tensor([row.streams.token_key for row, _ in requests]).to(device, non_blocking=True)
            places = region.index - torch.tensor(offsets)[:, None].to(device, non_blocking=True)
            # below the largest logit, so that no temperature makes all of them infinite
            scores = (logits - logits.amax(-1, keepdim=True)).double() / self.temperature
            token = (scores + gumbel_noise(keys, places, logits.shape[-1])).argmax(-1)
        confidence = prediction.log_probability.gather(-1, token[..., None])[..., 0].exp()
        return Fresh(
            token, confidence, prediction.entropy, prediction.margin, hidden_jump(states), prediction.log_probability
        )

    def _finish(self, row: Row, settings: dict[str, Any]) -> Generation:
        eos = self.model.eos_id
        tokens = row.tokens
        useful = tokens.index(eos) if eos in tokens else len(tokens)
        reason: Literal["eos", "length", "budget"] = "length"
        if useful < len(tokens):
            reason = "eos"
        elif row.remaining > 0:
            reason = "budget"
        return Generation(
            prompt=row.prompt,
            text=self.model.decode(tokens[:useful]),
            tokens=tuple(tokens),
            token_texts={token: self.model.token_text(token) for token in sorted(_occurring(row.windows))},
            useful_tokens=useful,
            wasted_tokens=len(tokens) - useful,
            passes=dict(row.passes),
            stop_reason=reason,
            seconds=time.perf_counter() - row.started,
            windows=tuple(row.windows),
            model=self.model.name,
            mask_token=self.model.mask_id,
            settings=settings,
        )


def _occurring(windows: list[Window]) -> set[int]:
    """Every token id that a pass committed or remasked, or that a window ended with."""
    found: set[int] = set()
    for window in windows:
        found.update(window.closed.tokens)
        for step in window.steps:
            found.update(commit.token for commit in step.commits)
            found.update(remask.token for remask in step.remasked)
    return found


def _shorten(text: str) -> str:
    return text if len(text) <= 40 else text[:37] + "..."
