"""The decoders that are compared: one base, and for each reading what its alternatives change in it.

The base samples structures and takes windows of the mean length, so that it has blocks to order and boundaries to weld,
and windows differ in length by instability alone. All variants but the paper's own T(B) take the same number of
passes a token, diagnostic and welding passes included: what one part takes, the resolving passes go without.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from dystruct.inference import RULES, shuffled
from dystruct.model import (
    Diagnostics,
    EvidenceWeights,
    Partition,
    PriorConfig,
    block_instability,
)

from ..dystruct import DyStruct
from ..errors import UserError
from ..row import Row
from ..weld import welds


@dataclass(frozen=True)
class EqualPasses(DyStruct):
    """DyStruct with passes_per_token · L forward passes for a window of L tokens, whatever they are spent on.

    What diagnosing and welding leave is given to the blocks in proportion to size times instability, a pass at least
    and a pass a token at most; so a window takes more than its share where the share is used up before that, and fewer
    where every token has a pass of its own.
    """

    passes_per_token: float = 0.75

    def _passes(self, partition: Partition, diagnostics: Diagnostics, row: Row) -> tuple[int, ...]:
        sizes = [end - start for start, end in partition.blocks]
        instabilities = block_instability(partition, diagnostics.instability).tolist()
        spent = self.diagnostic_passes + sum(
            min(self.weld_passes, weld.remask) for weld in welds(partition, self.weld_radius, self.weld)
        )
        return apportioned(sizes, instabilities, round(self.passes_per_token * partition.length) - spent)


def apportioned(sizes: Sequence[int], instabilities: Sequence[float], total: int) -> tuple[int, ...]:
    """`total` passes over blocks, as near to size times instability as whole numbers in [1, size] are."""
    found = [1] * len(sizes)
    weights = [size * max(h, 1e-9) for size, h in zip(sizes, instabilities, strict=True)]
    for _ in range(total - len(sizes)):
        room = [block for block, size in enumerate(sizes) if found[block] < size]
        if not room:
            break
        found[max(room, key=lambda block: weights[block] / (found[block] + 0.5))] += 1  # Sainte-Laguë
    return tuple(found)


@dataclass(frozen=True)
class Chosen:
    """A setting of the evidence that measurements have proposed: alpha0, and weights with their sharpness in them."""

    concentration: float
    weights: EvidenceWeights


def sharpened(weights: EvidenceWeights, sharpness: float) -> EvidenceWeights:
    """Weights under which every edge logit is `sharpness` times as large."""
    return replace(weights, gap=weights.gap * sharpness, gap_intercept=weights.gap_intercept * sharpness)


Change = Callable[[EqualPasses], DyStruct]


def _with(**changes: Any) -> Change:
    return lambda base: replace(base, **changes)


def _prior(**changes: Any) -> Change:
    return lambda base: replace(base, prior=replace(base.prior, **changes))


def _interpolated(base: EqualPasses) -> DyStruct:
    return DyStruct(
        structure=base.structure, length_rule=base.length_rule, prior=base.prior, weights=base.weights
    )  # fmt: skip


BASE = "base"
# The readings that decoding can compare; each alternative beside the base.
ALTERNATIVES: Mapping[str, Mapping[str, Change]] = {
    "R2": {"length mode": _with(length_rule="mode"), "length sampled": _with(length_rule="sample")},
    "R3": {
        "hbar centred": _with(final_instability="centred"),
        "windows of 28": _prior(min_length=28, max_length=28),
    },
    "R4": {"K=2": _with(diagnostic_passes=2), "K=8": _with(diagnostic_passes=8)},
    "R8": {
        "base rate removed": _with(edge_base_rate="removed"),
        "base rate removed, MAP": _with(edge_base_rate="removed", structure="map"),
    },
    "R9": {
        "C dynamic": _prior(anchoring="dynamic"),
        "left to right": _with(schedule="left-to-right"),
        "likeliest order": _with(schedule="sorted"),
    },
    "R11": {"T(B) interpolated": _interpolated},
    "R13": {"radius 4": _with(weld_radius=4), "joint": _with(weld="joint"), "no weld": _with(weld="off")},
    "partition": {
        "one block": _with(structure="none"),
        "MAP": _with(structure="map"),
        "consensus": _with(structure="consensus"),
        "shuffled": _with(structure=shuffled(RULES["sample"])),
    },
    "chosen": {},  # filled by `variants`, from a Chosen
}


def variants(readings: Sequence[str], passes_per_token: float, chosen: Chosen | None = None) -> dict[str, DyStruct]:
    """The base and the named readings' alternatives, by name. Raises UserError for a name that is not there."""
    unknown = [reading for reading in readings if reading not in ALTERNATIVES]
    if unknown:
        raise UserError(f"There is no group {unknown[0]!r} of variants; there are {', '.join(ALTERNATIVES)}.")
    if ("chosen" in readings) != (chosen is not None):
        raise UserError("The group 'chosen' takes --settings FILE, which `report` writes; give both or neither.")
    base = EqualPasses(structure="sample", length_rule="mean", passes_per_token=passes_per_token)
    found: dict[str, DyStruct] = {BASE: base}
    for reading in readings:
        found |= {name: change(base) for name, change in ALTERNATIVES[reading].items()}
    if chosen is not None:
        prior = PriorConfig(concentration=chosen.concentration)
        there = replace(base, prior=prior, weights=chosen.weights)
        unwelded = replace(there, weld="off")  # many blocks have many boundaries, and four passes for each
        found |= {
            "no weld": replace(base, weld="off"),
            "chosen sampled": there,
            "chosen MAP": replace(there, structure="map"),
            "chosen sampled, no weld": unwelded,
            "chosen MAP, no weld": replace(unwelded, structure="map"),
            "chosen shuffled, no weld": replace(unwelded, structure=shuffled(RULES["sample"])),
        }
    return found
