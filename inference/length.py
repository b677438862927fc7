"""Posterior of a window's length given the edge logits of a longest window (reading R17), beside the paper's law.

The paper replaces p(L | O) by the Poisson law, since O exists only once L is chosen. With a diagnostic pass over the
longest window, a window of L uses its first L-1 gaps, and

    p(L | O) ∝ p(L) Z_L / (1/2)^(L-1),

Z_L the evidence of those gaps. The division makes every gap count relative to an uninformative one (q = 1/2); without
it Z_L would fall with L whatever is observed. In the program's terms, edge logits beyond the window come from the equal
mixture of the two normals.

Knows diagnostics and the prior; all Z_L come from one recursion.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

from dystruct.model import Context, Diagnostics, PriorConfig, concentrations, length_law
from dystruct.model.priors import first_of_largest

from .arguments import check_window
from .semimarkov import SemiMarkov

Covariate = Literal["longest", "window"]
_AT_ONCE = 32  # windows in a batch, so that memory stays O(L²)


@dataclass(frozen=True, eq=False)
class LengthPosterior:
    """The law of L before and after looking at the edge logits.

    lengths (n,): tokens. prior (n,): the clipped Poisson, which is the paper's approximation. log_evidence (n,): nats
    by which the first L-1 gaps speak for L, log Z_L + (L-1) log 2. probability (n,): the posterior.
    """

    lengths: Tensor
    prior: Tensor
    log_evidence: Tensor
    probability: Tensor

    @property
    def mode(self) -> int:
        """The most probable length, tokens; the shorter on ties."""
        return int(self.lengths[first_of_largest(self.probability.log())])

    @property
    def mean(self) -> float:
        """Posterior expected length, tokens."""
        return float((self.probability * self.lengths).sum())

    def sample(self, n: int, generator: torch.Generator) -> Tensor:
        """n independent draws (n,), tokens."""
        return self.lengths[torch.multinomial(self.probability, n, replacement=True, generator=generator)]


def length_posterior(
    diagnostics: Diagnostics, context: Context, prior: PriorConfig, *, covariate: Covariate = "longest"
) -> LengthPosterior:
    """p(L | O) over the lengths that the prior and the budget allow, from diagnostics of at least the longest of them.

    covariate: the gaps over which alpha_g takes the mean of ell, those of the "longest" window, the same for every L,
    or those of each "window", as a posterior of that length alone would, and as decoding takes them. The first takes
    time O(L²) in the longest length, the second O(L³). Raises ValueError if the diagnostics are too short or the
    covariate is unknown.
    """
    check_window(diagnostics, context, prior)
    if covariate not in get_args(Covariate):
        raise ValueError(f"covariate must be one of {', '.join(get_args(Covariate))}, got {covariate!r}.")
    law = length_law(context, prior)
    if diagnostics.length < law.high:
        raise ValueError(
            f"diagnostics cover {diagnostics.length} tokens, lengths go up to {law.high}: run the diagnostic pass on "
            "the longest window."
        )
    lengths = law.enumerate_support()
    edge_logit = diagnostics.edge_logit[: law.high - 1]
    if covariate == "longest":
        chain = SemiMarkov(edge_logit[None], concentrations(edge_logit, context, prior)[None])
        evidence = chain.prefix_log_evidence()[0, lengths - 1]
    else:
        evidence = torch.cat([_of_windows(edge_logit, part, context, prior) for part in lengths.split(_AT_ONCE)])
    log_prior = law.log_prob(lengths)
    log_evidence = evidence + (lengths - 1).double() * math.log(2.0)
    return LengthPosterior(lengths, log_prior.exp(), log_evidence, (log_prior + log_evidence).softmax(0))


def _of_windows(edge_logit: Tensor, lengths: Tensor, context: Context, prior: PriorConfig) -> Tensor:
    """log Z (n,) of windows of ascending lengths (n,), nats, each with the mean of its own gaps in alpha_g."""
    gaps = int(lengths[-1]) - 1
    rows = [concentrations(edge_logit[: length - 1], context, prior) for length in lengths.tolist()]
    concentration = torch.stack([torch.nn.functional.pad(row, (0, gaps - len(row))) for row in rows])
    return SemiMarkov(edge_logit[:gaps].expand(len(lengths), -1), concentration, lengths).log_evidence
