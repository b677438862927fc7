"""What a row's passes did (`History`): left on the device until it is read back, then steps of a trace, then windows.

Positions are response positions, spans half-open.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from .errors import UserError
from .request import Pass
from .trace import (
    Alternative,
    Commit,
    Event,
    Remask,
    Splice,
    Step,
    StructureChosen,
    Window,
    WindowClosed,
    WindowOpened,
)


@dataclass
class Log:
    """A pass's outcome on the device. Each tensor (3, width): which positions, their tokens, their confidences.

    The first is of the commits among the pass's positions, and goes on with n alternatives, if these were asked for:
    the n tokens, then their probabilities (3 + 2n, width). One more follows for each span that the pass remasked.
    """

    number: int
    request: Pass
    outcomes: list[Tensor]


@dataclass
class Changes:
    """What a decoder did behind a pass whose figures it read; others: the positions' alternatives (2n, width)."""

    number: int
    request: Pass
    others: Tensor | None = None
    remasked: list[Remask] = field(default_factory=list)
    commits: list[Commit] = field(default_factory=list)
    spliced: list[Splice] = field(default_factory=list)


@dataclass
class History:
    """What happened to a row, as far as the host knows it, told to `emit` as it comes to be known.

    draft: the response, masks included; passes: forward passes that were made, by kind; windows: those that are closed.
    opened: the open window, or the last one; steps: of the open one; chosen: its structure.
    """

    prompt: str
    mask_id: int
    emit: Callable[[Event], None] | None
    draft: list[int] = field(default_factory=list)
    passes: dict[str, int] = field(default_factory=dict)
    windows: list[Window] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    opened: WindowOpened | None = None
    chosen: StructureChosen | None = None
    _logs: list[Log] = field(default_factory=list)
    _changes: Changes | None = None

    @property
    def is_whole(self) -> bool:
        """Whether all that passes did has been read back."""
        return not self._logs

    @property
    def behind(self) -> Changes:
        """What the decoder does behind the last pass; UserError where that pass left nothing to it."""
        if self._changes is None:
            raise UserError("The last pass left nothing to the decoder; give it commit=None.")
        return self._changes

    def open(self, opened: WindowOpened) -> None:
        """A window of masks was appended."""
        self.opened = opened
        self.draft += [self.mask_id] * opened.length
        self._tell(opened)

    def choose(self, chosen: StructureChosen, end: int) -> None:
        """The open window has a structure, and ends at `end` from now on."""
        self.chosen = chosen
        del self.draft[end:]
        self._tell(chosen)

    def close(self, closed: WindowClosed) -> None:
        """The open window is finished."""
        assert self.opened is not None
        self.settle()
        self.draft[self.opened.start :] = closed.tokens
        self.windows.append(Window(self.opened, self.chosen, tuple(self.steps), closed))
        self.chosen, self.steps = None, []
        self._tell(closed)

    def record(self, request: Pass, outcomes: list[Tensor]) -> None:
        """A pass committed by itself."""
        self._logs.append(Log(self._count(request), request, outcomes))

    def offer(self, request: Pass, others: Tensor | None) -> None:
        """A pass left all to the decoder."""
        self._changes = Changes(self._count(request), request, others)

    def observed(self) -> None:
        """What passes did is read back at once where anyone is told of it."""
        if self.emit is not None:
            self.read()

    def catch_up(self) -> None:
        """What passes did is read back where it has not been: the draft is then what the canvas holds."""
        if not self.is_whole:
            self.read()

    def settle(self) -> None:
        """The decoder has done what it does behind the last pass."""
        if self._changes is None:
            return
        done, self._changes = self._changes, None
        wanted = [] if done.others is None or not done.commits else [done.others]
        others = self.read(*wanted)  # and before it what the passes before it did
        commits = with_alternatives(done.commits, done.request.positions, others[0]) if wanted else done.commits
        step = Step(
            done.number, done.request.kind, done.request.block, tuple(done.remasked), tuple(commits),
            tuple(done.spliced),
        )  # fmt: skip
        self.steps.append(step)
        self._tell(step)

    def read(self, *values: Tensor) -> list[Tensor]:
        """Bring values and the outcomes of all passes since the last reading to the host, in one transfer.

        They come as float32, in which token ids are exact up to 2^24. UserError where any is not finite.
        """
        parts = [outcome for log in self._logs for outcome in log.outcomes] + [value.float() for value in values]
        if not parts:
            return []
        flat = torch.cat([part.reshape(-1) for part in parts]).cpu()
        self.check(flat)
        sizes = [part.numel() for part in parts]
        pieces = iter([piece.reshape(part.shape) for piece, part in zip(flat.split(sizes), parts, strict=True)])
        for log in self._logs:
            step = step_of(log.number, log.request, [next(pieces) for _ in log.outcomes])
            if step.kind != "diagnostic":
                self._follow(log.request, step)
            self.steps.append(step)
            self._tell(step)
        self._logs = []
        return list(pieces)

    def check(self, values: Tensor) -> None:
        """UserError unless what came of the model's logits is finite."""
        if not values.isfinite().all():
            raise UserError(
                f"The model's logits are not finite numbers while decoding {shorten(self.prompt)!r}; check its "
                f"weights, or load it in float32."
            )

    def _count(self, request: Pass) -> int:
        self.passes[request.kind] = self.passes.get(request.kind, 0) + request.cost
        return sum(self.passes.values())

    def _follow(self, request: Pass, step: Step) -> None:
        """Bring the draft up to date with a pass that committed by itself."""
        for remask in step.remasked:
            self.draft[remask.position] = self.mask_id
        masked = sum(self.draft[position] == self.mask_id for position in request.positions)
        if request.masked is not None and masked > request.masked:
            raise UserError(
                f"A pass of {request.start} to {request.end} found {masked} positions masked and was told of "
                f"{request.masked}; give it a larger `masked`, or none."
            )
        for commit in step.commits:
            self.draft[commit.position] = commit.token

    def _tell(self, event: Event) -> None:
        if self.emit is not None:
            self.emit(event)


def step_of(number: int, request: Pass, outcomes: list[Tensor]) -> Step:
    """The step of a pass that committed by itself, of its outcomes on the host (see `Log`)."""
    commits = [Commit(*found) for found in _chosen(request.positions, outcomes[0][:3])]
    if len(outcomes[0]) > 3:
        commits = with_alternatives(commits, request.positions, outcomes[0][3:])
    remasks = [
        Remask(*found)
        for (start, end, _), outcome in zip(request.remask, outcomes[1:], strict=True)
        for found in _chosen(range(start, end), outcome)
    ]
    return Step(number, request.kind, request.block, tuple(remasks), tuple(commits))


def with_alternatives(commits: Sequence[Commit], positions: Sequence[int], others: Tensor) -> list[Commit]:
    """Commits with the alternatives (2n, width) of a pass's positions, where it predicted any."""
    tokens, probabilities = others.T.chunk(2, dim=1)
    found = {
        position: tuple(Alternative(int(token), share) for token, share in zip(*both, strict=True) if share > 0)
        for position, *both in zip(positions, tokens.tolist(), probabilities.tolist(), strict=True)
        if both[0][0] >= 0
    }
    return [replace(commit, alternatives=found.get(commit.position, ())) for commit in commits]


def _chosen(positions: Sequence[int], outcome: Tensor) -> list[tuple[int, int, float]]:
    """(position, token, confidence) of the positions that an outcome (3, width) marks."""
    marked, tokens, confidences = outcome.tolist()
    return [(positions[i], int(tokens[i]), confidences[i]) for i, mark in enumerate(marked) if mark]


def shorten(text: str) -> str:
    """A text, or its beginning, for an error."""
    return text if len(text) <= 40 else text[:37] + "..."
