"""What happened while decoding: one record a sequence, from the windows that opened to each token committed.

Positions are response positions: 0 is the first token behind the prompt. Passes are numbered from 1 over the
whole sequence. A trace is plain data; it is saved as one JSON file (no pickle) and loads to an equal value.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from .files import save_text
from .plain import as_plain, from_plain

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from dystruct.inference import StructurePosterior
    from dystruct.inference.records import WindowRecord
    from dystruct.model import Structure

FORMAT = "dystruct-trace-1"
PassKind = Literal["diagnostic", "resolve", "weld"]


@dataclass(frozen=True)
class Alternative:
    """One of the tokens that a position might have got, and its probability."""

    token: int
    probability: float


@dataclass(frozen=True)
class Commit:
    """A masked position that got a token, and the probability that the model gave to that token.

    alternatives: if they were asked for, the most probable tokens of the pass, the most probable one first; the token
    itself is one of them unless noise or a rule chose a less probable one. Empty, too, for a token that a diagnostic
    pass shows by what an earlier one predicted.
    """

    position: int
    token: int
    confidence: float
    alternatives: tuple[Alternative, ...] = ()


@dataclass(frozen=True)
class Remask:
    """A committed position that was masked again: the token it held and that token's commit confidence."""

    position: int
    token: int
    confidence: float


@dataclass(frozen=True)
class Splice:
    """A change of the response's length: at `position`, `removed` positions gave way to `inserted` of one token.

    `token` is None where masks were inserted.
    """

    position: int
    removed: int
    inserted: int
    token: int | None


@dataclass(frozen=True)
class Step:
    """One forward pass: what was remasked, then what was committed, then how the length changed.

    A weld remasks before its pass; decoders that choose by a pass's figures do all of it behind the pass. In a
    diagnostic pass the commits are tentative: the window is masked again behind it. `block` is the block (index in
    the partition) that a resolving pass works on, or the left block of the boundary being welded. Two neighbouring
    numbers differ by 2 where guidance took a second forward pass.
    """

    number: int
    kind: PassKind
    block: int | None
    remasked: tuple[Remask, ...]
    commits: tuple[Commit, ...]
    spliced: tuple[Splice, ...] = ()


@dataclass(frozen=True)
class WindowOpened:
    """A window of `length` masks was appended at response position `start`."""

    index: int
    start: int
    length: int
    previous_instability: float
    rate: float | None


@dataclass(frozen=True)
class LengthInferred:
    """The posterior of a window's length given its diagnostic passes, which ran on the longest one (reading R17).

    `lengths` (n,) in tokens; `prior` and `probability` (n,); `log_evidence` (n,) in nats: what the edge logits inside
    a window of such a length speak for it.
    """

    lengths: tuple[int, ...]
    prior: tuple[float, ...]
    log_evidence: tuple[float, ...]
    probability: tuple[float, ...]

    @property
    def mean(self) -> float:
        """Posterior expected length, tokens."""
        return sum(length * p for length, p in zip(self.lengths, self.probability, strict=True))

    def of(self, length: int) -> float:
        """The posterior probability of a length."""
        return self.probability[self.lengths.index(length)] if length in self.lengths else 0.0


@dataclass(frozen=True)
class StructureChosen:
    """The diagnostic pass and the structure that was drawn from its posterior.

    `ends`: block ends relative to the window; `order`: blocks in decoding order; `instability` h (L,),
    `edge_logit` (L-1,), `cut_marginals` (L-1,); `block_instability` H(B), `passes` T(B) and `priority` rho(B) by block;
    `log_probability`: of the partition given the diagnostics, in nats; `entropy` of the partition posterior in nats.
    `length`: what L was chosen from, where that was its posterior; the window then ends with its last block, and what
    the diagnostic passes saw behind it is dropped.
    """

    index: int
    ends: tuple[int, ...]
    order: tuple[int, ...]
    instability: tuple[float, ...]
    edge_logit: tuple[float, ...]
    cut_marginals: tuple[float, ...]
    block_instability: tuple[float, ...]
    priority: tuple[float, ...]
    passes: tuple[int, ...]
    log_probability: float
    entropy: float
    position_features: tuple[tuple[float, ...], ...]
    gap_features: tuple[tuple[float, ...], ...]
    length: LengthInferred | None = None

    def __repr__(self) -> str:
        return (
            f"StructureChosen(index: {self.index}, ends: {self.ends}, order: {self.order}, passes: {self.passes}, log "
            f"probability: {self.log_probability:.3f}, entropy: {self.entropy:.3f})"
        )


@dataclass(frozen=True)
class WindowClosed:
    """A window is finished: its tokens, the features of the passes that decoded it, and their mean instability."""

    index: int
    tokens: tuple[int, ...]
    position_features: tuple[tuple[float, ...], ...]
    mean_instability: float | None


Event = WindowOpened | StructureChosen | Step | WindowClosed


@dataclass(frozen=True)
class Labels:
    """What a window says itself with: the texts of tokens, which of them end a text, the settings of its run."""

    token_texts: Mapping[int, str] = field(default_factory=dict)
    end_tokens: tuple[int, ...] = ()
    settings: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Window:
    """One expansion step: how it opened, its structure (None for a decoder that draws none), its passes, its end.

    A generation's windows know its token texts and show them in a notebook; one by itself shows token ids. These
    labels are no part of a window's value, nor of what is saved.
    """

    opened: WindowOpened
    structure: StructureChosen | None
    steps: tuple[Step, ...]
    closed: WindowClosed
    labels: Labels = field(default_factory=Labels, repr=False, compare=False)

    @property
    def length(self) -> int:
        """With how many tokens it was resolved: those that it opened with, or the fewer that were inferred (R17)."""
        chosen = self.structure
        return self.opened.length if chosen is None or chosen.length is None else chosen.ends[-1]

    @property
    def block_count(self) -> int:
        """The blocks of its structure; without one, those that its passes name, and 1 where they name none."""
        if self.structure is not None:
            return len(self.structure.ends)
        return max(1, len({step.block for step in self.steps if step.block is not None}))

    @property
    def posterior(self) -> StructurePosterior | None:
        """The exact posterior that its structure came from, computed anew; None without one, or without a prior.

        A decoder of one's own need not have the prior that its settings name: what is computed has to give the recorded
        cut marginals again, else it is None.
        """
        from dystruct.inference import posterior
        from dystruct.inference.records import agrees
        from dystruct.model import Context, Diagnostics, PriorConfig

        chosen = self.structure
        if chosen is None:
            return None
        try:
            exact = posterior(
                Diagnostics(chosen.instability, chosen.edge_logit),  # type: ignore[arg-type] # takes lists, too
                Context(self.opened.previous_instability),
                PriorConfig(**self.labels.settings["prior"]),
            )
        except (KeyError, ValueError, TypeError):
            return None
        return exact if agrees(exact, chosen.cut_marginals) else None

    @property
    def decoded(self) -> Structure | None:
        """The structure that it was decoded with, as the posterior, its pictures and its checks take one."""
        from dystruct.model import Partition, Structure

        chosen = self.structure
        return None if chosen is None else Structure(Partition(chosen.ends), chosen.order)

    def events(self) -> Iterator[Event]:
        """The window's events in the order in which they happened."""
        yield self.opened
        diagnostic = [step for step in self.steps if step.kind == "diagnostic"]
        yield from diagnostic
        if self.structure is not None:
            yield self.structure
        yield from (step for step in self.steps if step.kind != "diagnostic")
        yield self.closed

    def __repr__(self) -> str:
        return (
            f"Window(index: {self.opened.index}, start: {self.opened.start}, tokens: {len(self.closed.tokens)}, "
            f"blocks: {self.block_count}, steps: {len(self.steps)})"
        )

    def _repr_html_(self) -> str:
        from .replay.notebook import window_picture  # knows traces itself

        return window_picture(self)


@dataclass(frozen=True)
class Generation:
    """The text decoded for one prompt, its figures, and the trace of how it came about.

    `tokens`: all response tokens, those behind the text's end included; `useful_tokens` make the text,
    `wasted_tokens` are the others, from the end token or a stop string on. `token_texts`: the text of every token id
    that occurs in the trace, the tentative and the remasked ones included. `passes`: forward passes by kind.
    `stop_reason`: "eos" (an end token, one of `end_tokens`), "stop" (a stop string), "length" (max_new_tokens),
    "budget" (too few forward passes were left for another pass) or "decoder" (the decoder ended of itself). `seconds`:
    wall time from this sequence's first pass to its last, shared with whatever else was in its batch.
    """

    prompt: str
    text: str
    tokens: tuple[int, ...]
    token_texts: dict[int, str]
    useful_tokens: int
    wasted_tokens: int
    passes: dict[str, int]
    stop_reason: Literal["eos", "stop", "length", "budget", "decoder"]
    seconds: float
    windows: tuple[Window, ...]
    model: str = ""
    mask_token: int = -1
    settings: dict[str, Any] = field(default_factory=dict)
    end_tokens: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        labels = Labels(self.token_texts, self.end_tokens, self.settings)
        object.__setattr__(self, "windows", tuple(replace(window, labels=labels) for window in self.windows))

    @property
    def forward_passes(self) -> int:
        """All forward passes, of every kind."""
        return sum(self.passes.values())

    @property
    def block_count(self) -> int:
        """The number of blocks of all windows."""
        return sum(window.block_count for window in self.windows)

    @property
    def records(self) -> tuple[WindowRecord, ...]:
        """Its windows as analysis takes them (`inference_tree`): posterior, tokens, structure.

        ValueError for a decoder without structures, and where the prior that the settings name is not the windows'.
        """
        from dystruct.inference.records import records_of_trace
        from dystruct.model import PriorConfig

        try:
            prior = PriorConfig(**self.settings["prior"])
        except (KeyError, ValueError, TypeError) as error:
            raise ValueError(
                "the decoding's settings name no prior: take one whose decoder infers structures."
            ) from error
        return records_of_trace(
            self.windows, self.token_texts, prior, max_new_tokens=self.settings.get("max_new_tokens")
        )

    def replay(self) -> Iterator[tuple[Step, tuple[int, ...]]]:
        """Each pass with the response's tokens after it (masks where nothing is committed), window by window."""
        canvas: list[int] = []
        for window in self.windows:
            start, end = window.opened.start, window.opened.start + window.opened.length
            canvas[start:end] = [self.mask_token] * window.opened.length
            for step in window.steps:
                if step.kind == "diagnostic":
                    canvas[start:] = [self.mask_token] * (len(canvas) - start)
                    self._splice(canvas, step)
                    shown = list(canvas)
                    for commit in step.commits:
                        shown[commit.position] = commit.token
                    yield step, tuple(shown)
                    continue
                if window.length < window.opened.length:
                    del canvas[start + window.length :]
                for remask in step.remasked:
                    canvas[remask.position] = self.mask_token
                for commit in step.commits:
                    canvas[commit.position] = commit.token
                self._splice(canvas, step)
                yield step, tuple(canvas)

    def check(self) -> None:
        """ValueError, which says where, unless the windows' passes lead to the tokens and the figures count them."""
        from .trace_check import check_trace  # knows traces itself

        check_trace(self)

    def _splice(self, canvas: list[int], step: Step) -> None:
        """Change a canvas's length as a step did."""
        for splice in step.spliced:
            token = self.mask_token if splice.token is None else splice.token
            canvas[splice.position : splice.position + splice.removed] = [token] * splice.inserted

    def plain(self) -> dict[str, Any]:
        """The generation as plain data, in the form of its file; alternatives only where there are any."""
        data = {"format": FORMAT, **as_plain(self)}
        for window in data["windows"]:
            for commit in (commit for step in window["steps"] for commit in step["commits"]):
                if not commit["alternatives"]:
                    del commit["alternatives"]
        return data

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the generation as JSON; a file that stands there is replaced only when all is written.

        Symbolic links are followed. UserError if something else than a file stands there, as a device or a pipe, and if
        nothing can be written there.
        """
        save_text(path, json.dumps(self.plain(), allow_nan=True))

    def to_html(self, path: str | os.PathLike[str], beside: Generation | None = None) -> None:
        """Write the replay page: one file that shows this generation pass by pass, and another one in step with it.

        A file that stands there is replaced when all is written. ValueError if a trace's parts do not fit together;
        UserError if nothing can be written there.
        """
        from .replay import replay_page  # knows traces itself

        save_text(path, replay_page(self, beside))

    def plot_unmasking(self, *, tokens: bool = True, ax: Axes | None = None) -> Axes:
        """Draw when each position got its token: the number of the forward pass over the positions.

        Welds are marked, ends of blocks and windows are lines. `tokens`: name the positions by their tokens, as long as
        there are few. Makes a figure of its own without `ax`. ValueError for a response without a token.
        """
        from .unmasking import plot_generation  # knows traces itself

        return plot_generation(self, tokens=tokens, ax=ax)

    def __repr__(self) -> str:
        text = self.text if len(self.text) <= 60 else self.text[:59] + "…"
        return (
            f"Generation({text!r}, useful tokens: {self.useful_tokens}, windows: {len(self.windows)}, "
            f"passes: {self.forward_passes}, stop reason: {self.stop_reason})"
        )

    def _repr_html_(self) -> str:
        from .replay.notebook import generation_picture  # knows traces itself

        return generation_picture(self)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Generation:
        """Read what `save` wrote; ValueError if the file is something else or damaged."""
        try:
            return cls.of(json.loads(Path(path).read_text(encoding="utf-8")))
        except (ValueError, RecursionError) as error:
            raise ValueError(f"{path} is no trace that this version can read ({error}); save it again.") from error

    @classmethod
    def of(cls, data: Any) -> Generation:
        """The generation that `plain` gave as plain data; ValueError if it is something else."""
        if not isinstance(data, dict) or data.get("format") != FORMAT:
            raise ValueError(f"it does not say that it is {FORMAT!r}")
        try:
            return from_plain(cls, {name: value for name, value in data.items() if name != "format"})
        except (TypeError, KeyError, RecursionError) as error:
            raise ValueError(str(error)) from error
