"""What passes leave on the device, what decoders do behind them, and how both come to be steps of a trace.

Positions are response positions, spans half-open.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from torch import Tensor

from .request import Pass
from .trace import Alternative, Commit, Remask, Splice, Step


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


class Shared:
    """Figures (R, n, W) on the device, a part of which each row of a batch reads: the first brings all of it over."""

    def __init__(self, names: list[str], values: Tensor) -> None:
        self.names, self.values = names, values
        self._here: Tensor | None = None

    def read(self, row: int, names: Sequence[str], width: int) -> Tensor:
        """A row's figures of these names (n, width) on the host."""
        if self._here is None:
            self._here = self.values.cpu()
        return self._here[row, [self.names.index(name) for name in names], :width]


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
