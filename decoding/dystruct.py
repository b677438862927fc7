"""DyStruct: Algorithm 2 of the paper as one coroutine over forward passes.

Window by window: draw a length, append masks, diagnose, infer a structure (partition and order), resolve its
blocks in that order, weld their boundaries, and carry the window's mean instability on. Where the length is inferred,
too, the longest window is diagnosed, and keeps so many tokens. What structure is drawn is a rule's business
(`dystruct.inference.RULES`): MAP, a posterior sample, the consensus, none, or a control.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from typing import Any, Literal

import torch
from torch import Tensor

from dystruct.inference import (
    LENGTH_RULES,
    RULES,
    LengthPosterior,
    StructurePosterior,
    StructureRule,
    length_posterior,
    posterior,
)
from dystruct.inference.rules import LengthRule, inferred_length
from dystruct.model import (
    Context,
    Diagnostics,
    EvidenceWeights,
    Partition,
    PriorConfig,
    Structure,
    block_instability,
    diagnose,
    mean_instability,
    priorities,
    window_rate,
)

from .errors import UserError
from .filling import fill_span
from .kinds import check_choice, check_fraction, check_whole
from .passes import PassesRule, interpolated_passes, masks, quotas, shared_passes, shown_positions
from .request import within
from .row import Pass, Row
from .trace import LengthInferred, StructureChosen
from .weld import WeldRule, welds

_CHOICES = {
    "passes": ("interpolate", "share"),
    "weld": ("sequential", "joint", "off"),
    "final_instability": ("calibrated", "centred"),
    "schedule": ("priority", "sorted", "left-to-right"),
    "edge_base_rate": ("kept", "removed"),
    "length_law": ("prior", "posterior"),
}
# Of the prior: what still can be multiplied by the evidence, and what still fits into memory (in tokens)
_LARGEST = {"concentration": 1e100, "context_weight": 1e100, "max_length": 2**16}


@dataclass(frozen=True)
class DyStruct:
    """Settings of the decoder; the defaults are the paper's, read as in R1 to R17.

    structure: "map", "sample", "consensus", "none" (one block), "shuffled" (a sample's blocks in random places, as a
    control) or a StructureRule of your own. length_rule: None takes the structure rule's. length_law: what it is taken
    from, the "prior" given the window before, or the "posterior" given diagnostic passes on the longest window, which
    then keeps so many tokens (R17). diagnostic_passes: K. passes: T(B) by interpolation between min_passes and
    max_passes, or as a "share" of the budget, which diagnostic and welding passes use, too: where windows are cut into
    many blocks it may be spent before the text is whole. weld_radius in tokens, weld_passes a boundary. schedule:
    "priority" is the structure's order, which the rule "sample" draws; "sorted" the mode of its partition's order law
    under any rule, the paper's sort; "left-to-right" the ablation that ignores priorities. edge_base_rate: whether edge
    logits keep the base rate of what they were fitted on, as a logistic fit has it, or lose it, which leaves likelihood
    ratios (R8). threshold: None commits as evenly as possible over a block's passes (R11); a probability commits in
    each of them all tokens of at least this confidence, and no fewer than an even share over the passes that are left,
    so that T(B) is the most that a block takes. That reads one number a pass, where without it nothing is read inside a
    window. Raises UserError for a value that is none of these.
    """

    structure: str | StructureRule = "map"
    length_rule: str | None = None
    prior: PriorConfig = PriorConfig()
    diagnostic_passes: int = 4
    passes: PassesRule = "interpolate"
    min_passes: int = 6
    max_passes: int = 18
    weld_radius: int = 10
    weld_passes: int = 4
    weld: WeldRule = "sequential"
    final_instability: Literal["calibrated", "centred"] = "calibrated"
    schedule: Literal["priority", "sorted", "left-to-right"] = "priority"
    edge_base_rate: Literal["kept", "removed"] = "kept"
    length_law: Literal["prior", "posterior"] = "prior"
    threshold: float | None = None
    weights: EvidenceWeights | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.structure, StructureRule):
            if callable(self.structure):
                raise UserError("structure must be a name or a rule; put a function of your own into a StructureRule.")
            check_choice(self, "structure", RULES)
        check_choice(self, "length_rule", LENGTH_RULES)
        for name, choices in _CHOICES.items():
            check_choice(self, name, choices)
        if self.length_law == "posterior" and self._length_of not in LENGTH_RULES.values():
            raise UserError(
                f"length_law posterior applies one of the length rules {', '.join(LENGTH_RULES)}, and the structure "
                f"rule has its own; name one of these as the length rule."
            )
        check_whole(self, "diagnostic_passes", "min_passes", "max_passes", "weld_radius", "weld_passes")
        if self.min_passes > self.max_passes:
            raise UserError(f"min_passes ({self.min_passes}) must not exceed max_passes ({self.max_passes}).")
        check_fraction(self, "threshold")
        if self.weights is not None and not isinstance(self.weights, EvidenceWeights):
            raise UserError(f"weights must be EvidenceWeights or None, not {self.weights!r}.")
        if not isinstance(self.prior, PriorConfig):
            raise UserError(f"prior must be a PriorConfig, not {self.prior!r}.")
        for name, most in _LARGEST.items():
            if getattr(self.prior, name) > most:
                raise UserError(f"{name} must be at most {most:g}, not {getattr(self.prior, name)!r}.")

    @classmethod
    def preset(cls, name: str, **changes: Any) -> DyStruct:
        """A named setting of `PRESETS`, with single fields changed."""
        if name not in PRESETS:
            raise UserError(f"There is no preset {name!r}; the presets are {', '.join(PRESETS)}.")
        unknown = set(changes) - {field.name for field in fields(cls)}
        if unknown:
            raise UserError(f"DyStruct has no setting {sorted(unknown)[0]!r}.")
        return cls(**{**PRESETS[name], **changes})

    @property
    def widest(self) -> int:
        """The longest window, in tokens."""
        return self.prior.max_length

    def decode(self, row: Row) -> Iterator[Pass]:
        """Decode one sequence (Algorithm 2)."""
        rule, length_of = self._rule, self._length_of
        weights = self._weights(row)
        previous = 0.5
        while row.remaining > 0 and row.passes_left > 0:
            # 1. Adaptive window expansion
            context, most = Context(previous, remaining=row.remaining), min(row.remaining, self.prior.max_length)
            inferred = self.length_law == "posterior" and row.passes_left > 1
            length = most if inferred else self._length(context, row)
            if not within([(0, length)], 0, most):
                raise UserError(
                    f"The length rule of {rule.name!r} gives {length!r}; let it give a whole number of tokens, here "
                    f"from 1 to {most}, or raise the prior's max_length."
                )
            window = row.open_window(length, previous, window_rate(context, self.prior))
            start = window.start

            # 2. Diagnostic pass and partitioning (one pass at least is kept to fill the window)
            count = min(self.diagnostic_passes, row.passes_left - 1)
            before = 0
            for shown in shown_positions(length, count):
                yield Pass("diagnostic", start, start + length, commit=shown, masked=length - before)
                before = shown
            law: LengthPosterior | None = None
            if count > 0:
                diagnostics = diagnose(*row.read_diagnostics(), weights)
                if inferred:
                    law = self._length_posterior(diagnostics, context)
                    length = inferred_length(length_of, law, row.streams.length)
                    diagnostics = diagnostics.first(length)
                exact = self._posterior(diagnostics, context)
                structure = self._structure(exact, row)
                if not isinstance(structure, Structure) or structure.length != length:
                    raise UserError(
                        f"The structure rule {rule.name!r} gives {repr(structure)[:80]} for a window of {length} "
                        f"tokens; let it give a Structure of that length."
                    )
            else:
                exact = posterior(_undiagnosed(length), context, self.prior)
                structure = Structure(Partition.whole(length), (0,))

            # 3. Instability-aware scheduling
            if self.schedule == "left-to-right":
                structure = replace(structure, order=tuple(range(structure.partition.count)))
            elif self.schedule == "sorted":
                structure = exact.ordered(structure.partition)
            passes = self._passes(structure.partition, exact.diagnostics, row)
            row.choose_structure(_record(window.index, structure, exact, passes, law))

            # 4. Block-wise resolution and edge-welding
            yield from self._resolve(row, structure, start, start + length, passes)
            yield from self._weld(row, structure.partition, start)

            # 5. State update
            tokens, features = row.read_window()
            previous = mean_instability(features, weights, self.final_instability)
            row.close_window(tokens, features, previous)
            if row.ended:
                return

    @property
    def _rule(self) -> StructureRule:
        return RULES[self.structure] if isinstance(self.structure, str) else self.structure

    @property
    def _length_of(self) -> LengthRule:
        return LENGTH_RULES[self.length_rule] if self.length_rule else self._rule.length

    def _weights(self, row: Row) -> EvidenceWeights:
        weights = self.weights or row.model.weights
        if self.edge_base_rate == "kept":
            return weights
        try:
            return weights.without_base_rate()
        except ValueError as error:
            raise UserError(
                f"The base rate cannot be removed from edge logits: {str(error).removesuffix('.')}; fit weights with "
                f"`dystruct calibrate`, or keep it (edge_base_rate kept)."
            ) from error

    def _posterior(self, diagnostics: Diagnostics, context: Context) -> StructurePosterior:
        exact = posterior(diagnostics, context, self.prior)
        with _as_users_error():
            _ = exact.chain  # made once, and kept for the rule and the trace
        return exact

    def _structure(self, exact: StructurePosterior, row: Row) -> Structure:
        """What the rule chooses, or a reason why it cannot that ends this sequence and no other of the batch."""
        try:
            return self._rule.structure(exact, row.streams)
        except ValueError as error:
            window = exact.diagnostics.length
            raise UserError(
                f"The structure rule {self._rule.name!r} gives none for a window of {window} tokens: {error}"
            ) from error

    def _length(self, context: Context, row: Row) -> int:
        """What the length rule gives; errors as in `_structure`."""
        try:
            return self._length_of(context, self.prior, row.streams.length)
        except ValueError as error:
            raise UserError(f"The length rule of {self._rule.name!r} gives no length: {error}") from error

    def _length_posterior(self, diagnostics: Diagnostics, context: Context) -> LengthPosterior:
        """By windows' own concentrations, as their structures' posterior has them (R17)."""
        with _as_users_error():
            return length_posterior(diagnostics, context, self.prior, covariate="window")

    def _passes(self, partition: Partition, diagnostics: Diagnostics, row: Row) -> tuple[int, ...]:
        """T(B) for each block, not more than it has tokens (R11)."""
        instabilities = block_instability(partition, diagnostics.instability).tolist()
        sizes = [end - start for start, end in partition.blocks]
        if self.passes == "share":
            return tuple(shared_passes(sizes, instabilities, row.budget / row.max_new_tokens))
        return tuple(
            min(size, interpolated_passes(h, self.min_passes, self.max_passes))
            for size, h in zip(sizes, instabilities, strict=True)
        )

    def _resolve(self, row: Row, structure: Structure, start: int, end: int, passes: tuple[int, ...]) -> Iterator[Pass]:
        """Commit the blocks in order; when passes run short quotas grow, and the last pass fills the window (R12)."""
        blocks, masked = structure.partition.blocks, end - start
        for done, block in enumerate(structure.order):
            a, b = blocks[block]
            waiting = len(blocks) - done - 1
            allowed = min(passes[block], row.passes_left - waiting)
            if allowed < 1:  # fewer passes than blocks: everything left at once
                yield from fill_span(row, start, end, quotas(masked, row.passes_left), threshold=self.threshold)
                return
            counts = quotas(b - a, allowed)
            yield from fill_span(row, start + a, start + b, counts, block=block, threshold=self.threshold)
            masked -= b - a

    def _weld(self, row: Row, partition: Partition, start: int) -> Iterator[Pass]:
        """Remask and refine around the boundaries, as far as the budget goes; "joint" refines all of them at once."""
        todo = welds(partition, self.weld_radius, self.weld)
        groups = [todo] if self.weld == "joint" and todo else [[weld] for weld in todo]
        for group in groups:
            remask = tuple((start + weld.start, start + weld.end, weld.remask) for weld in group)
            masked = sum(weld.remask for weld in group)
            parts = tuple((first, last) for first, last, _ in remask)
            counts = quotas(masked, min(self.weld_passes, row.passes_left))
            for quota, left in zip(counts, masks(counts), strict=True):
                yield Pass("weld", parts[0][0], parts[-1][1], quota, remask, group[0].block, parts, masked=left)
                remask = ()


# The paper's settings, and its ablations: each leaves out one of the method's parts (the window of one length is as
# long as the first one would be on average). And quick, not the paper's, chosen on validation problems of the
# embedded model: short windows, one diagnostic pass, and of the passes that a token each would take only those that it
# needs.
PRESETS: dict[str, dict[str, Any]] = {
    "paper": {},
    "appendix": {"weld_radius": 4},
    "no-schedule": {"schedule": "left-to-right"},
    "no-weld": {"weld": "off"},
    "no-schedule-no-weld": {"schedule": "left-to-right", "weld": "off"},
    "fixed-windows": {"prior": PriorConfig(min_length=28, max_length=28)},
    "one-block": {"structure": "none", "length_rule": "mode"},
    "quick": {
        "prior": PriorConfig(max_length=16), "diagnostic_passes": 1, "min_passes": 16, "max_passes": 16,
        "threshold": 0.97,
    },
}  # fmt: skip


@contextmanager
def _as_users_error() -> Iterator[None]:
    """UserError where logits are such that no structure has a probability."""
    try:
        yield
    except ValueError as error:
        raise UserError(f"The weights give no structure: {error}") from error


def _undiagnosed(length: int) -> Diagnostics:
    """Diagnostics that say nothing: for the window that gets the budget's last pass."""
    return Diagnostics(torch.full((length,), 0.5), torch.zeros(length - 1))


def _record(
    index: int, structure: Structure, exact: StructurePosterior, passes: tuple[int, ...], law: LengthPosterior | None
) -> StructureChosen:
    """The structure with what the exact posterior says of it, and the law of its length, for the trace."""
    partition, diagnostics = structure.partition, exact.diagnostics
    return StructureChosen(
        index=index,
        ends=partition.ends,
        order=structure.order,
        instability=_floats(diagnostics.instability),
        edge_logit=_floats(diagnostics.edge_logit),
        cut_marginals=_floats(exact.cut_marginals),
        block_instability=_floats(block_instability(partition, diagnostics.instability)),
        priority=_floats(priorities(partition, diagnostics.instability, exact.prior)),
        passes=passes,
        log_probability=float(exact.log_prob(partition)),
        entropy=float(exact.entropy),
        position_features=_rows(diagnostics.position_features),
        gap_features=_rows(diagnostics.gap_features),
        length=None if law is None else _inferred(law),
    )


def _inferred(law: LengthPosterior) -> LengthInferred:
    prior, log_evidence, probability = map(_floats, (law.prior, law.log_evidence, law.probability))
    return LengthInferred(tuple(law.lengths.tolist()), prior, log_evidence, probability)


def _floats(values: Tensor) -> tuple[float, ...]:
    return tuple(values.tolist())


def _rows(values: Tensor | None) -> tuple[tuple[float, ...], ...]:
    return () if values is None else tuple(map(tuple, values.tolist()))
