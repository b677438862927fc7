"""Structure rules: how the decoder turns what it knows of a window into a length and a structure.

MAP and sampled structures are the same decode loop with a different rule. A rule is two functions, so that a notebook
can write its own:

    length(context, prior, generator) -> L            before the window exists
    structure(exact, streams) -> Structure            after its diagnostic pass, from the posterior given it, which
                                                      has the diagnostics, too; streams of the partition and order

Knows which estimate each rule is; nothing of how it is computed, nor of what is done with it.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

import torch

from dystruct.model import Context, Partition, PriorConfig, Structure, length_law, order_law, window_rate

from .length import LengthPosterior
from .posterior import StructurePosterior


class Streams(Protocol):
    """Seeded streams of one sequence (R16): partitions and orders draw from their own."""

    @property
    def partition(self) -> torch.Generator: ...

    @property
    def order(self) -> torch.Generator: ...


LengthRule = Callable[[Context, PriorConfig, torch.Generator], int]
StructureFunction = Callable[[StructurePosterior, Streams], Structure]


def _capped(length: int, context: Context) -> int:
    """The length, or what is left of the budget where that is less, tokens."""
    return length if context.remaining is None else min(length, context.remaining)


def sample_length(context: Context, prior: PriorConfig, generator: torch.Generator) -> int:
    """A draw from the clipped Poisson law, capped by what remains: the paper's rule, tokens."""
    return _capped(int(length_law(replace(context, remaining=None), prior).sample(generator=generator)), context)


def mode_length(context: Context, prior: PriorConfig, generator: torch.Generator) -> int:
    """The mode of the clipped Poisson law, capped by what remains, tokens; draws nothing."""
    return _capped(int(length_law(replace(context, remaining=None), prior).mode), context)


def mean_length(context: Context, prior: PriorConfig, generator: torch.Generator) -> int:
    """mu rounded half up, capped by what remains, tokens; draws nothing. mu lies in [Lmin, Lmax]."""
    return _capped(math.floor(window_rate(context, prior) + 0.5), context)


LENGTH_RULES: dict[str, LengthRule] = {"sample": sample_length, "mode": mode_length, "mean": mean_length}


def inferred_length(rule: LengthRule, law: LengthPosterior, generator: torch.Generator) -> int:
    """What one of `LENGTH_RULES` takes from the posterior of L in place of its law (reading R17), tokens.

    A draw, the mode (the shorter on ties), or the mean rounded half up. Raises ValueError for another rule, which says
    nothing of the posterior.
    """
    if rule is sample_length:
        return int(law.sample(1, generator))
    if rule is mode_length:
        return law.mode
    if rule is mean_length:
        return math.floor(law.mean + 0.5)
    raise ValueError(f"a posterior of lengths needs one of the length rules {', '.join(LENGTH_RULES)}.")


def _takes(function: object, count: int) -> bool:
    """Whether it can be called with so many arguments, as far as that can be told."""
    if not callable(function):
        return False
    try:
        inspect.signature(function).bind(*range(count))
    except TypeError:
        return False
    except ValueError:  # written in C, without a signature
        pass
    return True


@dataclass(frozen=True)
class StructureRule:
    """A name, a length rule and a function from a window's posterior to a structure; ValueError for other functions."""

    name: str
    length: LengthRule
    structure: StructureFunction

    def __post_init__(self) -> None:
        for name, taken in (("length", "context, prior, generator"), ("structure", "exact, streams")):
            if not _takes(getattr(self, name), taken.count(",") + 1):
                raise ValueError(f"{name} of the rule {self.name!r} must be a function of ({taken}).")

    def with_length(self, rule: str | LengthRule) -> StructureRule:
        """The same rule with another length rule, by name or as a function. Raises ValueError on an unknown name."""
        if isinstance(rule, str):
            if rule not in LENGTH_RULES:
                raise ValueError(f"there is no length rule {rule!r}: choose one of {', '.join(LENGTH_RULES)}.")
            rule = LENGTH_RULES[rule]
        return replace(self, length=rule)


MAP = StructureRule("map", mode_length, lambda exact, streams: exact.map())
"""The most probable partition, then the most probable order; the mode of the length law."""

SAMPLE = StructureRule(
    "sample", sample_length, lambda exact, streams: exact.draw(1, streams.partition, streams.order)[0]
)
"""Length from its prior, partition and order from their posterior."""

CONSENSUS = StructureRule("consensus", mode_length, lambda exact, streams: exact.consensus())
"""The partition of least expected Hamming loss over cuts, then the most probable order; the mode of the length law."""


def shuffled(rule: StructureRule) -> StructureRule:
    """A rule whose blocks keep their sizes and lose their places: the control for whether places matter.

    The blocks of the rule's partition in an order drawn at random, so that cuts stand where the evidence did not put
    them and are as many; then an order of resolution from the order law of what came of it. Raises ValueError for what
    is no rule, and its `structure` where the rule's gives no structure.
    """
    if not isinstance(rule, StructureRule):
        raise ValueError(f"what is shuffled must be a StructureRule, not {rule!r}.")

    def structure(exact: StructurePosterior, streams: Streams) -> Structure:
        found = rule.structure(exact, streams)
        if not isinstance(found, Structure):
            raise ValueError(f"the rule {rule.name!r} gives {repr(found)[:80]}, which is no Structure.")
        partition = found.partition
        sizes = torch.tensor([end - start for start, end in partition.blocks])
        sizes = sizes[torch.randperm(len(sizes), generator=streams.partition)]
        moved = Partition(tuple(sizes.cumsum(0).tolist()))
        law = order_law(moved, exact.diagnostics.instability, exact.prior)
        return Structure(moved, tuple(law.sample(generator=streams.order).tolist()))

    return StructureRule(f"shuffled {rule.name}", rule.length, structure)


SHUFFLED = replace(shuffled(SAMPLE), name="shuffled")
"""A sampled partition's blocks in random places: beside it "sample" shows what its cuts are worth."""


def fixed(partition: Partition | None = None) -> StructureRule:
    """A structure that no diagnostics change: the whole window as one block, or a partition that also sets the length.

    A window that the budget cuts short loses the blocks beyond its end. Order: the mode of the order law. The rule's
    `structure` raises ValueError for a window longer than the partition; so does this for what is no partition.
    """
    if partition is not None and not isinstance(partition, Partition):
        raise ValueError(f"partition must be a Partition or None, not {partition!r}.")

    def whole(context: Context, prior: PriorConfig, generator: torch.Generator) -> int:
        assert partition is not None
        return _capped(partition.length, context)

    def structure(exact: StructurePosterior, streams: Streams) -> Structure:
        window = exact.length
        if partition is None:
            chosen = Partition.whole(window)
        elif window > partition.length:
            raise ValueError(
                f"the window has {window} tokens, the fixed partition {partition.length}: use its own length."
            )
        else:
            chosen = Partition((*(end for end in partition.ends if end < window), window))
        return exact.ordered(chosen)

    if partition is None:
        return StructureRule("none", mean_length, structure)
    return StructureRule("fixed", whole, structure)


FIXED = fixed()
"""The whole window as one block, whatever the diagnostics say; the mean of the length law."""

RULES: dict[str, StructureRule] = {
    "map": MAP, "sample": SAMPLE, "consensus": CONSENSUS, "none": FIXED, "shuffled": SHUFFLED,
}  # fmt: skip
