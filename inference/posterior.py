"""The posterior over a window's structure, as a notebook holds it: p(partition, order | diagnostics, context, prior).

    p(partition | O) ∝ prod over gaps of CRP(cut_g | m, alpha_g) q_g^cut (1 - q_g)^stay       (exact: semimarkov)
    p(order | partition) = the prior's order law at the diagnosed instability                 (a leaf of the program)

Knows what the partition's chain is made of and how its answers read as structures; nothing of language models or of how
a window's length was chosen (see `length`). Log probabilities are in nats, lengths in tokens, gaps count from 0.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import islice
from numbers import Number
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from dystruct.model import (
    Context,
    Diagnostics,
    Partition,
    PriorConfig,
    Structure,
    concentrations,
    evidence_offset,
    gap_covariate,
    length_law,
    order_law,
)
from dystruct.model.kinds import whole_number

from .arguments import check_window
from .consensus import Loss, consensus_partition
from .joint import JointMaximum, joint_maximum
from .picture import posterior_picture
from .semimarkov import SemiMarkov


class RankedPartition(NamedTuple):
    """A partition and its posterior log probability, nats."""

    partition: Partition
    log_prob: float

    @property
    def probability(self) -> float:
        return math.exp(self.log_prob)


@dataclass(frozen=True, eq=False, repr=False)
class StructurePosterior:
    """The exact posterior over the structures of one window of L tokens; make it with `posterior`.

    conditions maps gaps to whether they are cut (see `condition`). covariate_logit (L-1,) stands in for ell in alpha_g.
    """

    diagnostics: Diagnostics
    context: Context
    prior: PriorConfig
    covariate_logit: Tensor | None = None
    conditions: Mapping[int, bool] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_window(self.diagnostics, self.context, self.prior)
        gaps = self.length - 1
        if self.covariate_logit is not None:
            object.__setattr__(self, "covariate_logit", gap_covariate(self.covariate_logit, gaps))
        object.__setattr__(self, "conditions", _conditions(self.conditions, gaps))

    @cached_property
    def chain(self) -> SemiMarkov:
        """The posterior over partitions as a batch of one."""
        edge_logit = self.diagnostics.edge_logit
        covariate = edge_logit if self.covariate_logit is None else self.covariate_logit
        chain = SemiMarkov(edge_logit[None], concentrations(covariate, self.context, self.prior)[None])
        if self.conditions:
            masks = torch.zeros(2, 1, self.length - 1, dtype=torch.bool)
            for gap, cut in self.conditions.items():
                masks[0 if cut else 1, 0, gap] = True
            chain = chain.condition(required=masks[0], forbidden=masks[1])
        return chain

    @property
    def length(self) -> int:
        """Tokens in the window, L."""
        return self.diagnostics.length

    # --- estimates and draws ------------------------------------------------------------------------------------

    def ordered(self, partition: Partition) -> Structure:
        """The partition with its order law's mode."""
        order = order_law(partition, self.diagnostics.instability, self.prior).mode
        return Structure(partition, tuple(order.tolist()))

    def map(self) -> Structure:
        """The most probable partition (fewest cuts on ties), then the mode of its order law: the paper's maximum."""
        return self.ordered(Partition.from_cuts(self.chain.map()[0].tolist()))

    def consensus(self, loss: Loss = "hamming") -> Structure:
        """The partition of least posterior expected loss, exactly, with the mode of its order law.

        "hamming" counts the gaps whose cut differs; "vi" is the variation of information. Raises ValueError on another.
        """
        cuts = consensus_partition(self.chain, loss)[0]
        return self.ordered(Partition.from_cuts(cuts.tolist()))

    def sample(self, n: int, seed: int) -> tuple[Structure, ...]:
        """n independent draws from the posterior over structures, the same for the same seed."""
        generator = torch.Generator().manual_seed(seed)
        return self.draw(n, generator, generator)

    def draw(self, n: int, partition: torch.Generator, order: torch.Generator) -> tuple[Structure, ...]:
        """n independent draws, partitions and orders each from their own stream."""
        cuts = self.chain.sample(n, partition)[:, 0].tolist()
        partitions = [Partition.from_cuts(row) for row in cuts]
        draws: dict[Partition, list[int]] = {}
        for index, drawn in enumerate(partitions):
            draws.setdefault(drawn, []).append(index)
        structures: list[Structure | None] = [None] * n
        for drawn, indices in draws.items():
            law = order_law(drawn, self.diagnostics.instability, self.prior)
            orders = law.sample(torch.Size((len(indices),)), generator=order)
            for index, blocks in zip(indices, orders.tolist(), strict=True):
                structures[index] = Structure(drawn, tuple(blocks))
        return tuple(structure for structure in structures if structure is not None)

    def sample_cuts(self, n: int, seed: int) -> Tensor:
        """Cuts (n, L-1), bool, of n independent draws of the partition: quicker than `sample` by far."""
        return self.chain.sample(n, torch.Generator().manual_seed(seed))[:, 0]

    # --- partitions in order of probability ---------------------------------------------------------------------

    def ranked(self) -> Iterator[RankedPartition]:
        """All partitions of positive probability, most probable first, one at a time and without repetition."""
        best = None
        for cuts, behind in self.chain.ranked():
            if best is None:
                best = float(self.chain.log_prob(torch.from_numpy(cuts)[None]))
            yield RankedPartition(Partition.from_cuts(cuts.tolist()), best + behind)

    def k_best(self, k: int) -> tuple[RankedPartition, ...]:
        """The k most probable partitions, most probable first; fewer where fewer have positive probability."""
        if k < 1:
            raise ValueError(f"k must be at least 1 partition, got {k}.")
        return tuple(islice(self.ranked(), k))

    def credible_partitions(self, mass: float, limit: int = 100_000) -> tuple[RankedPartition, ...]:
        """The smallest set of partitions whose probabilities reach `mass`, most probable first.

        Raises ValueError unless 0 < mass < 1, or if the set holds more than `limit` partitions.
        """
        if not 0 < mass < 1:
            raise ValueError(f"mass must lie between 0 and 1, got {mass}.")
        chosen, reached = [], 0.0
        for partition in islice(self.ranked(), limit):
            chosen.append(partition)
            reached += partition.probability
            if reached >= mass:
                return tuple(chosen)
        if len(chosen) < limit:  # every partition is in; what is missing is rounding
            return tuple(chosen)
        raise ValueError(f"{limit} partitions reach only {reached:.3g} of {mass}: lower mass or raise limit.")

    def joint_map(self) -> Structure:
        """The most probable (partition, order) pair, which is not the order's mode given the best partition (R10).

        Proved to be the maximum wherever `joint_maximum` reports a gap of 0, which it does but for long windows full of
        cuts and for re-evaluated anchoring with several blocks.
        """
        return self.joint_maximum().structure

    def joint_maximum(self, limit: int = 1000) -> JointMaximum:
        """`joint_map` with its log probability and the proof, re-scoring at most `limit` partitions."""
        if limit < 1:
            raise ValueError(f"limit must be at least 1 partition, got {limit}.")
        return joint_maximum(self.chain, self.diagnostics.instability, self.prior, limit)

    # --- probabilities ------------------------------------------------------------------------------------------

    def log_prob(self, structure: Structure | Partition) -> float:
        """Posterior log probability of a structure, or of a partition with its order summed out, nats.

        Raises ValueError for one of another length, and for anything else.
        """
        if not isinstance(structure, Structure | Partition):
            raise ValueError(f"structure must be a Structure or a Partition, got {type(structure).__name__}.")
        partition = structure.partition if isinstance(structure, Structure) else structure
        if partition.length != self.length:
            raise ValueError(f"the structure has {partition.length} tokens, the window {self.length}: make them equal.")
        log_prob = float(self.chain.log_prob(torch.tensor(partition.cuts, dtype=torch.bool)[None]))
        if isinstance(structure, Structure):
            law = order_law(partition, self.diagnostics.instability, self.prior)
            log_prob += float(law.log_prob(torch.tensor(structure.order)))
        return log_prob

    def log_joint(self, structure: Structure | Partition) -> float:
        """log_prob + log_marginal: the log probability of the program's trace at this structure, nats."""
        return self.log_prob(structure) + self.log_marginal

    @property
    def log_evidence(self) -> float:
        """log of the sum over partitions of prior times q^cut (1-q)^stay, the posterior's normaliser, nats.

        Given conditions, only over partitions that meet them: it falls by -log of their probability.
        """
        return float(self.chain.log_evidence)

    @property
    def log_marginal(self) -> float:
        """log p(L, edge logits) of the program, nats: log_evidence, in the units of its densities, and the prior of L.

        -inf for a length that the prior excludes.
        """
        law = length_law(self.context, self.prior)
        if not law.low <= self.length <= law.high:
            return -math.inf
        offset = evidence_offset(self.diagnostics.edge_logit, self.prior.evidence_scale).sum()
        return self.log_evidence + float(offset + law.log_prob(torch.tensor(self.length)))

    @property
    def entropy(self) -> float:
        """Entropy of the posterior over partitions, nats."""
        return float(self.chain.entropy)

    @cached_property
    def cut_marginals(self) -> Tensor:
        """Posterior probability of a cut at each gap (L-1,)."""
        return self.chain.cut_marginals[0]

    @cached_property
    def block_marginals(self) -> Tensor:
        """Posterior probability (L, L) that [s, e) is a block, at index [s, e-1]."""
        return self.chain.block_marginals[0]

    @cached_property
    def block_count(self) -> Tensor:
        """Posterior distribution of the number of blocks (L,), entry k-1 for k blocks."""
        return self.chain.block_count[0]

    @cached_property
    def expected_block_length(self) -> Tensor:
        """Posterior expected length (L,), in tokens, of the block that holds each position."""
        return self.chain.expected_block_length[0]

    def condition(self, cuts: Mapping[int, bool]) -> StructurePosterior:
        """The posterior given that gaps are cut (True) or not cut (False): "what if there were a boundary here?".

        Raises ValueError if a gap is outside the window, or was given the other way before, and for values but flags.
        """
        cuts = _conditions(cuts, self.length - 1)
        clash = [gap for gap, cut in cuts.items() if self.conditions.get(gap, cut) != cut]
        if clash:
            raise ValueError(
                f"gaps {clash} are already conditioned the other way: start from the unconditioned posterior."
            )
        return replace(self, conditions={**self.conditions, **cuts})

    # --- how a notebook shows it --------------------------------------------------------------------------------

    def __repr__(self) -> str:
        best = self.map().partition
        blocks = "1 block" if best.count == 1 else f"{best.count} blocks"
        return (
            f"StructurePosterior(L={self.length} tokens; MAP {blocks}, ends={best.ends}, probability "
            f"{math.exp(self.log_prob(best)):.3g}; expected blocks {1 + float(self.cut_marginals.sum()):.2f}; "
            f"entropy {self.entropy:.2f} nats)"
        )

    def _repr_html_(self) -> str:
        best = self.map().partition
        return posterior_picture(best, self.cut_marginals.tolist(), self.diagnostics.instability.tolist(), repr(self))


def _conditions(cuts: Mapping[int, bool], gaps: int) -> dict[int, bool]:
    """Whether gaps are cut, by gap. Raises ValueError for gaps beyond so many and for values but flags."""
    if not isinstance(cuts, Mapping):
        raise ValueError(f"conditions must say of each gap whether it is cut, as in {{2: True}}, got {cuts!r}.")
    found: dict[int, bool] = {}
    for gap, cut in cuts.items():
        place = whole_number("a gap", gap)
        if not 0 <= place < gaps:
            has = f"{gaps + 1} tokens has gaps 0 to {gaps - 1}" if gaps else "one token has no gaps"
            raise ValueError(f"conditions name gap {place}: a window of {has}.")
        if not isinstance(cut, Number | Tensor | np.bool_) or torch.as_tensor(cut).numel() != 1 or cut not in (0, 1):
            raise ValueError(f"gap {place} must be cut (True) or not cut (False), got {cut!r}.")
        if found.setdefault(place, bool(cut)) != cut:
            raise ValueError(f"conditions name gap {place} twice, and differ.")
    return found


def posterior(
    diagnostics: Diagnostics,
    context: Context = Context(),  # noqa: B008 - frozen
    prior: PriorConfig = PriorConfig(),  # noqa: B008 - frozen
    *,
    covariate_logit: Tensor | None = None,
) -> StructurePosterior:
    """The exact posterior over the structures of the window that `diagnostics` describe, given its length.

    covariate_logit (L-1,) is the ell of alpha_g where it is not to be the observed edge logits. Raises ValueError on a
    wrong shape.
    """
    return StructurePosterior(diagnostics, context, prior, covariate_logit)
