"""Checks that can fail: does the model describe a window, and is the inference the model's own?

    predictive check   T(replicated) against T(observed), edge logits replicated from structures of the prior or of the
                       posterior: p = P(T_rep > T_obs) + P(T_rep = T_obs) / 2
    calibration        draw (structure, edge logits) from the program, infer, rank the true structure among posterior
                       draws: if prior, likelihood and inference are one model, the rank is uniform for every statistic

Ranks of discrete statistics have ties. A tie is broken at random and the rank spread over its cell, so that it is
uniform on (0, 1) exactly, and independent from one replication to the next, whatever the statistic.

Both hold alpha_g's ell as a covariate, an argument. The paper uses one ell in both places, as covariate and as
observation; `rank_calibration(double_use=True)` does the same and is not calibrated.

Knows no language model. Statistics of edge logits (n, G) or cuts (n, G), G = L-1 gaps, are vectors (n,).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, cast, get_args

import numpy as np
import pyro.poutine as poutine
import torch
from numpy.typing import NDArray
from scipy.stats import kstest
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from dystruct.model import (
    Context,
    Diagnostics,
    GapCRP,
    PriorConfig,
    concentrations,
    edge_logit_law,
    length_law,
    partition_from_trace,
    partition_model,
)

from .posterior import posterior
from .semimarkov import SemiMarkov

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Under = Literal["prior", "posterior"]
Array = NDArray[np.float64]

# --- statistics -------------------------------------------------------------------------------------------------------


def autocorrelation(edge_logit: Tensor) -> Tensor:
    """Correlation of edge logits (..., G) with their right neighbours (...); 0 where all are equal."""
    centred = edge_logit - edge_logit.mean(-1, keepdim=True)
    total = centred.square().sum(-1)
    # equals can differ from their rounded mean, and squares of what is small vanish
    varies = (edge_logit != edge_logit[..., :1]).any(-1) & (total > 0)
    return torch.where(varies, (centred[..., :-1] * centred[..., 1:]).sum(-1) / total, 0.0)


def block_count(cuts: Tensor) -> Tensor:
    """Number of blocks (...) of cuts (..., G)."""
    return cuts.sum(-1) + 1


def longest_block(cuts: Tensor) -> Tensor:
    """Tokens (...) in the longest block of cuts (..., G)."""
    position = torch.arange(cuts.shape[-1] + 1)
    start = torch.nn.functional.pad(position[1:] * cuts, (1, 0)).cummax(-1).values
    return (position - start + 1).max(-1).values


def first_end(cuts: Tensor, lengths: Tensor) -> Tensor:
    """End (...) of the first block of cuts (..., G), the window's length (...) where it is the only one, tokens."""
    beyond = cuts.shape[-1] + 1
    ends = torch.where(cuts, torch.arange(1, beyond), beyond)
    # a column more, since a window of one token has no gap
    return torch.minimum(torch.nn.functional.pad(ends, (0, 1), value=beyond).min(-1).values, lengths)


def _predictive_statistics(edge_logit: Tensor, cuts: Tensor) -> dict[str, Tensor]:
    return {
        "mean_edge_logit": edge_logit.mean(-1),
        "max_edge_logit": edge_logit.max(-1).values,
        "autocorrelation": autocorrelation(edge_logit),
        "block_count": block_count(cuts),
        "longest_block": longest_block(cuts),
    }


# --- predictive checks ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False, repr=False)
class PredictiveCheck:
    """n windows as the model would repeat one, beside the one observed.

    cuts (n, L-1): structures drawn from the prior or the posterior (`under`); edge_logit (n, L-1): drawn given them.
    replicated and observed: statistics (n,) by name. Those of structures are of one posterior draw given each
    replicate, and of n given the observation; those of the observed edge logits are n times the same number.
    """

    under: Under
    cuts: Tensor
    edge_logit: Tensor
    replicated: Mapping[str, Tensor]
    observed: Mapping[str, Tensor]

    @property
    def p_values(self) -> dict[str, float]:
        """P(T_rep > T_obs) + P(T_rep = T_obs) / 2 of each statistic.

        Near 0 the observation is unusually large, near 1 unusually small. Under the prior, that of an edge-logit
        statistic is uniform over windows that the model generates. Under the posterior the data are used twice and p
        gathers around 1/2: an extreme one says the more.
        """
        values = {}
        for name, replicate in self.replicated.items():
            larger, equal = replicate > self.observed[name], replicate == self.observed[name]
            values[name] = float(larger.double().mean() + equal.double().mean() / 2)
        return values

    def plot(self) -> Figure:
        """Histograms of the replicated statistics with the observed ones (needs matplotlib)."""
        from .check_plots import plot_predictive

        return plot_predictive(self)

    def __repr__(self) -> str:
        figures = ", ".join(f"{name} p={value:.3g}" for name, value in self.p_values.items())
        return f"PredictiveCheck(under the {self.under}, {len(self.cuts)} replicates: {figures})"


def predictive_check(
    diagnostics: Diagnostics,
    context: Context,
    prior: PriorConfig,
    *,
    under: Under,
    n: int = 1000,
    seed: int = 0,
    covariate_logit: Tensor | None = None,
) -> PredictiveCheck:
    """n replicates of the window, its structures drawn from the prior or the posterior, edge logits given those.

    alpha_g keeps one covariate throughout, the observed edge logits unless covariate_logit (L-1,) is given. Raises
    ValueError for a window of fewer than 4 tokens, n < 1, another `under` or a covariate_logit of another shape.
    """
    if under not in get_args(Under):
        raise ValueError(f"under must be 'prior' or 'posterior', got {under!r}.")
    if diagnostics.length < 4 or n < 1:
        raise ValueError(f"a check needs a window of 4 tokens and n of 1, got {diagnostics.length} and {n}.")
    generator = torch.Generator().manual_seed(seed)
    chain = posterior(diagnostics, context, prior, covariate_logit=covariate_logit).chain
    alpha = chain.concentration[0]
    inferred = chain.sample(n, generator)[:, 0]
    if under == "prior":
        cuts = GapCRP(alpha).sample(torch.Size((n,)), generator=generator)
    else:
        cuts = chain.sample(n, generator)[:, 0]
    noise = torch.randn(cuts.shape, dtype=torch.float64, generator=generator)
    edge_logit = edge_logit_law(cuts, prior.evidence_scale).mean + prior.evidence_scale * noise
    again = SemiMarkov(edge_logit, alpha.expand(n, -1)).sample(1, generator)[0]
    return PredictiveCheck(
        under=under,
        cuts=cuts,
        edge_logit=edge_logit,
        replicated=_predictive_statistics(edge_logit, again),
        observed=_predictive_statistics(diagnostics.edge_logit.expand(n, -1), inferred),
    )


# --- simulation-based calibration -------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False, repr=False)
class RankCalibration:
    """Ranks of the truth among posterior draws: ranks[statistic] (replications,), uniform on (0, 1) if calibrated.

    draws: posterior draws that each truth was ranked among. double_use: the inference took the observed edge logits as
    alpha_g's covariate too.
    """

    ranks: Mapping[str, Array]
    draws: int
    double_use: bool

    @property
    def p_values(self) -> dict[str, float]:
        """Of each statistic, rejecting below a: a calibrated inference is rejected with probability at most a.

        Two exact Kolmogorov-Smirnov tests of uniformity, of the rank (bias) and of its distance from the middle
        (posterior too narrow or too wide), with Bonferroni's correction for taking the smaller.
        """
        values = {}
        for name, rank in self.ranks.items():
            bias, spread = (kstest(x, "uniform", method="exact").pvalue for x in (rank, np.abs(2 * rank - 1)))
            values[name] = min(1.0, 2 * float(min(bias, spread)))
        return values

    @property
    def p_value(self) -> float:
        """Of all statistics together, rejecting below a: the false-alarm rate is at most a (Bonferroni again)."""
        return min(1.0, len(self.ranks) * min(self.p_values.values()))

    def plot(self) -> Figure:
        """Histograms of the ranks with the band that uniform ranks keep to (needs matplotlib)."""
        from .check_plots import plot_ranks

        return plot_ranks(self)

    def __repr__(self) -> str:
        figures = ", ".join(f"{name} p={value:.3g}" for name, value in self.p_values.items())
        windows = len(next(iter(self.ranks.values())))
        use = "twice" if self.double_use else "once"
        return f"RankCalibration({windows} windows, {self.draws} draws each, ell used {use}: {figures})"


def rank_calibration(
    context: Context,
    prior: PriorConfig,
    *,
    replications: int = 500,
    draws: int = 99,
    seed: int = 0,
    covariate_logit: Tensor | None = None,
    double_use: bool = False,
) -> RankCalibration:
    """Simulation-based calibration of the recursion against the Pyro program (Talts et al. 2018).

    Each replication draws a window's length from its law, and its structure and edge logits by running the program
    forward; then `draws` partitions from the recursion's posterior. Ranked: block count, first end and log joint
    (the order is a leaf whose posterior is its prior law). alpha_g's covariate is the first L-1 of covariate_logit
    (max_length - 1,), flat by default, in the simulation and, unless double_use, in the inference. The global random
    stream is left as it was. Raises ValueError if replications or draws is below 1 or covariate_logit too short.
    """
    if replications < 1 or draws < 1:
        raise ValueError(f"replications and draws must be at least 1, got {replications} and {draws}.")
    law = length_law(context, prior)
    flat = torch.zeros(law.high - 1, dtype=torch.float64)
    covariate = flat if covariate_logit is None else torch.as_tensor(covariate_logit, dtype=torch.float64)
    if covariate.dim() != 1 or len(covariate) < len(flat):
        raise ValueError(
            f"covariate_logit must have shape ({len(flat)},), the gaps of the longest window, or be longer, got "
            f"{tuple(covariate.shape)}."
        )
    generator = torch.Generator().manual_seed(seed)
    lengths = law.sample(torch.Size((replications,)), generator=generator)

    truths: list[Tensor] = []
    logits: list[Tensor] = []
    concentration: list[Tensor] = []
    with torch.random.fork_rng(devices=[]):  # a Pyro program takes no generator
        # a stream of its own: sharing the seed would repeat the same numbers in truths and in posterior draws
        torch.default_generator.manual_seed(int(torch.randint(2**62, (), generator=generator)))
        for length in lengths.tolist():
            shared = covariate[: length - 1]
            trace = poutine.trace(partition_model).get_trace(
                None, context, prior, length=length, covariate_logit=shared
            )
            observed = [float(cast(Tensor, trace.nodes[f"edge_logit_{g}"]["value"])) for g in range(length - 1)]
            logits.append(torch.tensor(observed, dtype=torch.float64))
            truths.append(torch.tensor(partition_from_trace(trace).cuts, dtype=torch.bool))
            concentration.append(concentrations(logits[-1] if double_use else shared, context, prior))

    edge_logit, alpha, truth = (pad_sequence(rows, batch_first=True) for rows in (logits, concentration, truths))
    chain = SemiMarkov(edge_logit, alpha, lengths)
    cuts = torch.cat((truth[None], chain.sample(draws, generator)))
    statistics = {
        "block_count": block_count(cuts),
        "first_end": first_end(cuts, lengths),
        # the same partition must tie with itself, whatever the order of the sum
        "log_joint": chain.log_joint(cuts).round(decimals=9),
    }
    ranks = {}
    for name, value in statistics.items():
        below, ties = (value[1:] < value[0]).sum(0), (value[1:] == value[0]).sum(0)
        cell = torch.rand(replications, dtype=torch.float64, generator=generator) * (ties + 1)
        ranks[name] = ((below + cell) / (draws + 1)).numpy()
    return RankCalibration(ranks, draws, double_use)
