"""What a decoder asks of the engine, one forward pass at a time (`Pass`), and what it may be told of it (`Figures`).

Positions are response positions, spans half-open.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import get_args, get_type_hints

from torch import Tensor

from .errors import UserError
from .kinds import is_whole
from .sampling import PLAIN, Sampling
from .trace import Commit, PassKind


@dataclass(frozen=True)
class Pass:
    """One forward pass of a row.

    Logits are computed for positions of [start, end) only. Before the pass, of each span in `remask` (start, end,
    count) the count least confident committed positions are masked again; after it the `commit` most confident masked
    positions of [start, end) get their tokens; None where the decoder itself commits by the pass's figures, and remasks
    (`Row.remask`), so that such a pass has neither `remask` nor `threshold`. A diagnostic pass commits tentatively
    (R4). `block` names what is worked on, for the trace. `parts`: the spans of
    [start, end) that are in play, where it is not in play as a whole, in ascending order. `visible`: the response
    position from which on the model sees nothing. Guidance takes two forward passes. `threshold`: every masked position
    of at least this confidence is committed, and no fewer than `commit`; how many are left the decoder reads behind it
    (`Row.read_masks`).

    What saves work: `masked`, where commit is a number: how many of the positions in play are masked in the pass, or
    at most, if the decoder knows; only these are projected. `figures`: which figures the decoder reads beside token and
    confidence; of masked positions only, unless `everywhere`. `prefix`: with a prefix cache, keys and values of what
    is before this response position are those of the row's first pass with this prefix, or with one before it; None is
    the open window's start.
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
    masked: int | None = None
    figures: tuple[str, ...] = ()
    everywhere: bool = False
    prefix: int | None = None
    threshold: float | None = None

    def __post_init__(self) -> None:
        if self.commit is None and (self.remask or self.threshold is not None):
            raise UserError(
                "A pass with commit=None neither commits nor remasks by itself; leave remask and threshold out and "
                "call Row.commit and Row.remask behind it, or say how many it commits."
            )
        unknown = set(self.figures) - set(FIGURES)
        if unknown:
            raise UserError(f"There is no figure {sorted(unknown)[0]!r} of a pass; there are {', '.join(FIGURES)}.")

    @property
    def cost(self) -> int:
        """Forward passes that it takes."""
        return 2 if self.sampling.guidance else 1

    @property
    def positions(self) -> list[int]:
        """The response positions in play."""
        return [position for start, end in self.parts or ((self.start, self.end),) for position in range(start, end)]


class Figures:
    """What a pass says of each position of [start, start + W): lists of W numbers, those that it was asked for.

    `token`, `confidence`: the candidate and its probability. `top`, `top_confidence`: the most probable token.
    `margin`: the difference of the two largest probabilities; `entropy` in nats; `own`: the probability of the token
    that the canvas holds. `unmasked`, `unmasked_confidence`: the best token other than the mask, among those. A figure
    of a position that the pass did not look at is NaN, a token -1; one that was not asked for raises UserError.
    """

    token: list[int]
    confidence: list[float]
    top: list[int]
    top_confidence: list[float]
    margin: list[float]
    entropy: list[float]
    own: list[float]
    unmasked: list[int]
    unmasked_confidence: list[float]

    def __init__(self, start: int, values: dict[str, list[float]]) -> None:
        self.start = start
        for name, found in values.items():
            setattr(self, name, [-1 if x != x else int(x) for x in found] if name in _TOKENS else found)

    def __getattr__(self, name: str) -> list[float]:
        if name in FIGURES:
            raise UserError(f"The pass was not asked for the figure {name!r}; name it in the pass's figures.")
        raise AttributeError(name)

    def at(self, position: int) -> Commit:
        """The candidate at a response position, as a commit."""
        i = self._place(position)
        return Commit(position, self.token[i], self.confidence[i])

    def unmasked_at(self, position: int) -> Commit:
        """The best token other than the mask at a response position, as a commit."""
        i = self._place(position)
        return Commit(position, self.unmasked[i], self.unmasked_confidence[i])

    def _place(self, position: int) -> int:
        place, width = position - self.start, len(self.token)
        if not 0 <= place < width:
            raise UserError(
                f"The pass says nothing of position {position}, only of {self.start} to {self.start + width - 1}; ask "
                f"for a wider pass."
            )
        return place


FIGURES = tuple(get_type_hints(Figures))
ALWAYS = ("token", "confidence")
_TOKENS = ("token", "top", "unmasked")


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


def wanted_figures(request: Pass) -> tuple[str, ...]:
    """The figures to read of a pass: where the mask may be predicted, also the best token other than it."""
    more = request.figures
    if request.sampling.mask_predictable:
        more += ("unmasked", "unmasked_confidence")
    return tuple(name for name in FIGURES if name in ALWAYS + more)


def misfit(request: Pass, window: tuple[int, int], passes_left: int, *, resolved: bool) -> str | None:
    """Why a pass of a row whose open window is [start, end) cannot be made; None if it can.

    resolved: whether any but diagnostic passes of the window were made.
    """
    first, last = window
    begin = 0 if request.commit is None else first
    counts = [request.commit, request.prefix, *(count for *_, count in request.remask)]
    if request.kind not in get_args(PassKind):
        return f"is of a kind other than {', '.join(get_args(PassKind))}"
    if request.kind == "diagnostic" and resolved:
        return "comes behind a pass that resolves or welds the window, which it would mask again"
    if not within([(request.start, request.end)], begin, last):
        return f"is not a span of {begin} to {last}, which are open to it"
    if not within(request.parts, request.start, request.end):
        return f"has parts {request.parts}, which are not ascending, disjoint spans of it"
    if not within([(start, end) for start, end, _ in request.remask], first, last):
        return f"remasks {request.remask}, which are not ascending, disjoint spans of the open window"
    if not all(count is None or (is_whole(count) and count >= 0) for count in counts):
        return "has a commit, a prefix or a number to remask that is not a whole number of at least 0"
    width = len(request.positions)
    if request.masked is not None and not (is_whole(request.masked) and 1 <= request.masked <= width):
        return f"says that {request.masked} of its {width} positions are masked"
    if request.visible is not None and not (is_whole(request.visible) and request.end <= request.visible <= last):
        return f"sees the response up to {request.visible}, which is not from its own end to the response's, {last}"
    if request.cost > passes_left:
        return f"takes more of the budget than the {passes_left} forward passes that are left"
    return None


def within(spans: Iterable[tuple[int, int]], first: int, last: int) -> bool:
    """Whether half-open spans are not empty, ascend without overlap and lie in [first, last)."""
    for start, end in spans:
        if not (is_whole(start) and is_whole(end) and first <= start < end <= last):
            return False
        first = end
    return True
