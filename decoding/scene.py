"""What a decoding looks like after each of its events: one window's tokens, marks and blocks.

A `Scene` is fed the events of a trace, live or from a file, and is what the views draw. It knows no terminal
and no model. Positions in it are relative to the window: 0 is the window's first token.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from dataclasses import dataclass, field

from .trace import Event, PassKind, Step, StructureChosen, WindowClosed, WindowOpened


@dataclass(frozen=True)
class BlockFinished:
    """A block holds no mask any more: its index in the partition and the forward passes that it took."""

    block: int
    passes: int


@dataclass(frozen=True)
class Weld:
    """A finished weld: the block left of the boundary, the remasked positions' tokens before and after, its passes."""

    block: int | None
    before: dict[int, int]
    after: dict[int, int]
    passes: int

    @property
    def changes(self) -> list[tuple[int, list[int], list[int]]]:
        """Runs of neighbouring positions that got another token: first position, tokens before, tokens after."""
        runs: list[tuple[int, list[int], list[int]]] = []
        for position in sorted(self.before):
            if self.before[position] == self.after[position]:
                continue
            if not runs or runs[-1][0] + len(runs[-1][1]) != position:
                runs.append((position, [], []))
            runs[-1][1].append(self.before[position])
            runs[-1][2].append(self.after[position])
        return runs


@dataclass
class Scene:
    """One window while it is decoded.

    `tokens`: what each position holds, None where masked; `fresh`: positions committed since `rest` was last
    called; `remasked`: positions masked by the weld under way; `welded` and `changed`: positions that some weld
    masked, and those of them that hold another token since; `passes`: forward passes so far by kind.
    `inferred`: whether its structure is drawn from the posterior, so that it has a probability worth showing.
    `number`: forward passes of the whole sequence so far, those of the windows before among them.
    """

    opened: WindowOpened
    inferred: bool = True
    number: int = 0
    structure: StructureChosen | None = None
    closed: WindowClosed | None = None
    tokens: list[int | None] = field(default_factory=list)
    kind: PassKind | None = None
    active: int | None = None
    fresh: set[int] = field(default_factory=set)
    welded: set[int] = field(default_factory=set)
    changed: set[int] = field(default_factory=set)
    passes: Counter[str] = field(default_factory=Counter)
    block_passes: Counter[int] = field(default_factory=Counter)
    _firm: list[int | None] = field(default_factory=list)  # without what diagnostic passes show
    finished: set[int] = field(default_factory=set)
    _before: dict[int, int] = field(default_factory=dict)  # what the weld under way has masked
    _weld: tuple[int | None, int] = (None, 0)  # its block, and its passes so far

    def __post_init__(self) -> None:
        self.tokens = [None] * self.opened.length
        self._firm = list(self.tokens)

    @property
    def tentative(self) -> bool:
        """Whether the tokens are those of a diagnostic pass, which are masked again behind it."""
        return self.kind == "diagnostic"

    @property
    def remasked(self) -> set[int]:
        """Positions that the weld under way has masked and not filled yet."""
        return {position for position in self._before if self.tokens[position] is None}

    @property
    def ends(self) -> tuple[int, ...]:
        """Ends of the blocks; the whole window is one block where no structure was drawn."""
        return self.structure.ends if self.structure else (len(self.tokens),)

    @property
    def blocks(self) -> list[tuple[int, int]]:
        """The blocks' half-open spans from left to right."""
        return list(zip((0, *self.ends[:-1]), self.ends, strict=True))

    def block_at(self, position: int) -> int:
        """The block that a position lies in."""
        return bisect_right(self.ends, position)

    def turn(self, block: int) -> int:
        """When a block is decoded: 1 for the first one of the window."""
        return self.structure.order.index(block) + 1 if self.structure else 1

    def rest(self) -> None:
        """Forget what is fresh, once it was shown."""
        self.fresh.clear()

    def advance(self, event: Event) -> list[BlockFinished | Weld]:
        """Take the next event of this window; returns what it brought to an end."""
        if isinstance(event, StructureChosen):
            self.structure = event
            del self._firm[event.ends[-1] :]
            self._mask_all()
            self.kind = None
        elif isinstance(event, Step):
            return self._step(event)
        elif isinstance(event, WindowClosed):
            self.closed = event
            self.tokens = list(event.tokens)
            self.kind = self.active = None
            self.fresh.clear()
        return []

    def _mask_all(self) -> None:
        self.tokens = list(self._firm)
        self.fresh.clear()

    def _step(self, step: Step) -> list[BlockFinished | Weld]:
        if step.kind == "diagnostic" or self.tentative:
            self._mask_all()
        self.kind, self.active = step.kind, step.block
        cost, self.number = step.number - self.number, step.number  # two under guidance
        self.passes[step.kind] += cost
        start = self.opened.start
        for remask in step.remasked:
            position = remask.position - start
            self._before.setdefault(position, remask.token)
            self.tokens[position] = None
            self.welded.add(position)
        for commit in step.commits:
            position = commit.position - start
            self.tokens[position] = commit.token
            self.fresh.add(position)
        for splice in step.spliced:
            first, last = splice.position - start, splice.position - start + splice.removed
            for tokens in (self.tokens, self._firm):
                tokens[first:last] = [splice.token] * splice.inserted
            shift = splice.inserted - splice.removed
            self.fresh = {p + shift if p >= last else p for p in self.fresh if p < first or p >= last}
        if step.kind == "resolve":
            return self._resolved(step.block, cost)
        if step.kind == "weld":
            return self._welded(step, cost)
        return []

    def _resolved(self, block: int | None, cost: int) -> list[BlockFinished | Weld]:
        done: list[BlockFinished | Weld] = []
        block = None if self.structure is None else block
        for index, (start, end) in enumerate(self.blocks):
            if index in self.finished or block not in (index, None):
                continue
            self.block_passes[index] += cost
            if None not in self.tokens[start:end]:
                self.finished.add(index)
                done.append(BlockFinished(index, self.block_passes[index]))
        return done

    def _welded(self, step: Step, cost: int) -> list[BlockFinished | Weld]:
        block, passes = self._weld
        self._weld = (step.block if passes == 0 else block, passes + cost)
        if self.remasked:
            return []
        block, passes = self._weld
        after = {position: token for position in self._before if (token := self.tokens[position]) is not None}
        weld = Weld(block, dict(self._before), after, passes)
        self.changed |= {position for position, token in weld.before.items() if after[position] != token}
        self._before.clear()
        self._weld = (None, 0)
        return [weld]
