"""Learning what is continuous: alpha0, the evidence scale s and the gap weights w_b, from recorded windows.

Partitions are summed out exactly by the recursion, so what is left is small and smooth, and NUTS applies:

    alpha0 ~ LogNormal      s ~ LogNormal      w_b, intercept ~ Normal around given weights
    log p(ell | alpha0, s) = sum over windows log Z(ell; alpha0) + sum over gaps log(N(ell; s²/2, s) + N(ell; -s²/2, s))

Z is the evidence of a window's partition chain; alpha_g = alpha0 exp(hbar + ell_g - mean ell) takes the recorded ell
as a covariate. alpha0 stands in the first sum only and s in the second only, so the two are independent a posteriori,
and the s of largest likelihood solves s² + s⁴/4 = mean ell².

With w_b unknown, what is observed is psi, and ell = psi·w_b + intercept is another statistic of it for every w_b. The
density of ell alone would grow without bound as w_b and s go to 0. If psi given ell is a linear regression that the
cuts do not enter (as for normal psi whose mean a cut shifts), then with that regression at its maximum

    log p(psi | alpha0, s, w_b) = log p(ell | alpha0, s) + N log sd(ell) + constant,     N gaps in all windows,

which no rescaling of the features changes.

Knows nothing of where windows come from. gamma is not here: the order of blocks is never observed.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pyro
import pyro.distributions as dist
import torch
from pyro.infer import MCMC, NUTS
from pyro.infer.autoguide.initialization import init_to_sample
from pyro.ops.stats import effective_sample_size, split_gelman_rubin
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from dystruct.model import Context, Diagnostics, EvidenceWeights, PriorConfig, concentrations, evidence_offset
from dystruct.model.kinds import real_number

from .posterior import StructurePosterior
from .semimarkov import SemiMarkov

# What was observed of a window, and before it; or its posterior, of which the same is taken.
ObservedWindow = tuple[Diagnostics, Context] | StructurePosterior

UNKNOWNS = ("concentration", "evidence_scale", "gap_weights")


@dataclass(frozen=True, eq=False)
class HyperPrior:
    """Priors of what may be unknown.

    concentration, evidence_scale: alpha0 and s are log-normal with this median and this standard deviation of the log.
    weights: w_b and its intercept are normal around these, every coordinate with standard deviation weight_spread.
    Raises ValueError naming a field that is not positive and finite, or weights that are no EvidenceWeights.
    """

    concentration_median: float = 1.5
    concentration_spread: float = 1.0
    scale_median: float = 1.0
    scale_spread: float = 1.0
    weights: EvidenceWeights | None = None
    weight_spread: float = 1.0

    def __post_init__(self) -> None:
        for name in ("concentration_median", "concentration_spread", "scale_median", "scale_spread", "weight_spread"):
            object.__setattr__(self, name, real_number(name, getattr(self, name)))
            if not 0 < getattr(self, name) < math.inf:
                raise ValueError(f"{name} must be positive and finite, got {getattr(self, name)}.")
        if not isinstance(self.weights, EvidenceWeights | None):
            raise ValueError(f"weights must be EvidenceWeights or None, got {self.weights!r}.")

    @cached_property
    def concentration(self) -> dist.LogNormal:
        """The law of alpha0."""
        return _log_normal(self.concentration_median, self.concentration_spread)

    @cached_property
    def evidence_scale(self) -> dist.LogNormal:
        """The law of s."""
        return _log_normal(self.scale_median, self.scale_spread)


def _log_normal(median: float, spread: float) -> dist.LogNormal:
    location, scale = torch.tensor([math.log(median), spread], dtype=torch.float64)
    return dist.LogNormal(location, scale)


@dataclass(frozen=True, eq=False)
class RecordedWindows:
    """B windows side by side, for one recursion; make it with `of`. Rows are filled up to the longest, G gaps.

    edge_logit, relative_concentration = alpha_g / alpha0 and inside (a gap of the window): (B, G); lengths (B,) tokens;
    gap_features (B, G, 4), or None if not all windows have them.
    """

    edge_logit: Tensor
    relative_concentration: Tensor
    inside: Tensor
    lengths: Tensor
    gap_features: Tensor | None

    @classmethod
    def of(cls, observed: Iterable[ObservedWindow]) -> RecordedWindows:
        """From each window's diagnostics and context, or its posterior, whose prior is left aside.

        Raises ValueError if there is none, or no gap in any, and for a posterior that is conditioned.
        """
        if not isinstance(observed, Iterable):
            raise ValueError(f"windows must be a list, got {observed!r}: put a single one into a list.")
        windows = [_seen(window) for window in observed]
        if not any(diagnostics.length > 1 for diagnostics, _ in windows):
            raise ValueError("windows must hold at least one window of two tokens or more, or nothing can be learned.")
        unit = PriorConfig(concentration=1.0)
        logits = [diagnostics.edge_logit for diagnostics, _ in windows]
        relative = [concentrations(diagnostics.edge_logit, context, unit) for diagnostics, context in windows]
        lengths = torch.tensor([diagnostics.length for diagnostics, _ in windows])
        features = [diagnostics.gap_features for diagnostics, _ in windows]
        known = [rows for rows in features if rows is not None]
        return cls(
            edge_logit=pad_sequence(logits, batch_first=True),
            relative_concentration=pad_sequence(relative, batch_first=True, padding_value=1.0),
            inside=torch.arange(int(lengths.max()) - 1) < lengths[:, None] - 1,
            lengths=lengths,
            gap_features=pad_sequence(known, batch_first=True) if len(known) == len(features) else None,
        )

    def log_evidence(self, concentration: Tensor, edge_logit: Tensor | None = None) -> Tensor:
        """Sum over windows of log Z at alpha0, scalar, nats; differentiable once in alpha0 and a given ell (B, G)."""
        logit = self.edge_logit if edge_logit is None else edge_logit
        return SemiMarkov(logit, concentration * self.relative_concentration, self.lengths).log_evidence.sum()


def _seen(window: ObservedWindow) -> tuple[Diagnostics, Context]:
    """What was observed of a window, and before it."""
    if isinstance(window, StructurePosterior):
        if window.conditions or window.covariate_logit is not None:
            raise ValueError("windows must be posteriors as they were observed, without conditions and covariates.")
        return window.diagnostics, window.context
    if isinstance(window, tuple) and len(window) == 2:
        diagnostics, context = window
        if isinstance(diagnostics, Diagnostics) and isinstance(context, Context):
            return diagnostics, context
    raise ValueError(f"windows must be pairs of Diagnostics and Context, or posteriors, got {window!r}.")


def _check_unknown(unknown: Collection[str]) -> None:
    if isinstance(unknown, str) or not unknown or not set(unknown) <= set(UNKNOWNS):
        raise ValueError(f"unknown must be a list of some of {', '.join(UNKNOWNS)}, got {unknown!r}.")


def hyper_model(
    windows: RecordedWindows,
    law: HyperPrior,
    *,
    unknown: Collection[str] = ("concentration", "evidence_scale"),
    fixed: PriorConfig | None = None,
) -> None:
    """The Pyro program over what is `unknown`, a part of UNKNOWNS; alpha0 and s that are known are `fixed`'s.

    Sites: concentration, evidence_scale, gap_weights (4,), gap_intercept, and the factor edge_logits, the log density
    of what was recorded (module's equations). Raises ValueError on a name not in UNKNOWNS, or if gap_weights is unknown
    and the windows have no gap features, or the same at every gap, or the law no weights.
    """
    _check_unknown(unknown)
    given = PriorConfig() if fixed is None else fixed
    known = {name: torch.tensor(getattr(given, name), dtype=torch.float64) for name in UNKNOWNS[:2]}
    alpha0, scale = (
        pyro.sample(name, getattr(law, name)) if name in unknown else value for name, value in known.items()
    )
    if "gap_weights" not in unknown:
        log_density = windows.log_evidence(alpha0)
        log_density = log_density + evidence_offset(windows.edge_logit[windows.inside], scale).sum()
    else:
        if windows.gap_features is None or law.weights is None:
            raise ValueError("gap_weights need diagnostics with gap_features, and HyperPrior's weights to centre on.")
        features = windows.gap_features[windows.inside]
        if bool((features == features[0]).all()):
            raise ValueError("gap_weights need two gaps or more whose gap_features differ: give more windows.")
        spread = torch.tensor(law.weight_spread, dtype=torch.float64)
        weights = pyro.sample("gap_weights", dist.Normal(law.weights.gap, spread).to_event(1))
        centre = torch.tensor(law.weights.gap_intercept, dtype=torch.float64)
        intercept = pyro.sample("gap_intercept", dist.Normal(centre, spread))
        edge_logit = windows.gap_features @ weights + intercept
        observed = edge_logit[windows.inside]
        log_density = windows.log_evidence(alpha0, edge_logit) + evidence_offset(observed, scale).sum()
        log_density = log_density + len(observed) * observed.std(correction=0).log()
    pyro.factor("edge_logits", log_density)


@dataclass(frozen=True, eq=False, repr=False)
class HyperPosterior:
    """Draws of NUTS: draws[site] is (chains, draws, ...); divergences of each chain."""

    draws: Mapping[str, Tensor]
    divergences: tuple[int, ...]

    @property
    def mean(self) -> dict[str, Tensor]:
        """Posterior mean of each site."""
        return {name: values.mean((0, 1)) for name, values in self.draws.items()}

    @property
    def standard_deviation(self) -> dict[str, Tensor]:
        """Posterior standard deviation of each site."""
        return {name: values.flatten(0, 1).std(0) for name, values in self.draws.items()}

    def quantile(self, site: str, probability: float) -> Tensor:
        """Posterior quantile of a site."""
        return self.draws[site].flatten(0, 1).quantile(probability, dim=0)

    @property
    def r_hat(self) -> dict[str, Tensor]:
        """Split Gelman-Rubin statistic of each site: near 1 where chains, and their halves, agree."""
        return {name: split_gelman_rubin(values) for name, values in self.draws.items()}

    @property
    def effective_sample_size(self) -> dict[str, Tensor]:
        """Number of independent draws that would estimate the mean of each site as well."""
        return {name: effective_sample_size(values) for name, values in self.draws.items()}

    def __repr__(self) -> str:
        chains, draws = next(iter(self.draws.values())).shape[:2]
        lines = [f"HyperPosterior({chains} chains of {draws} draws; {sum(self.divergences)} divergences)"]
        figures = (self.mean, self.standard_deviation, self.r_hat, self.effective_sample_size)
        for name in self.draws:
            for index, (mean, deviation, r_hat, size) in enumerate(
                zip(*(figure[name].reshape(-1).tolist() for figure in figures), strict=True)
            ):
                label = name if self.draws[name].dim() == 2 else f"{name}[{index}]"
                lines.append(f"  {label:16s} {mean:8.3f} ± {deviation:.3f}   r-hat {r_hat:.3f}   ESS {size:.0f}")
        return "\n".join(lines)


def sample_hyper(
    windows: Iterable[ObservedWindow],
    law: HyperPrior | None = None,
    *,
    unknown: Collection[str] = ("concentration", "evidence_scale"),
    fixed: PriorConfig | None = None,
    draws: int = 200,
    warmup: int = 100,
    chains: int = 4,
    seed: int = 0,
) -> HyperPosterior:
    """NUTS over what is `unknown` in `hyper_model`, chains one after another, each from its own draw of the prior.

    With gap_weights unknown there is a second mode, where cuts and stays have changed places; chains that ended in
    different modes show it in r-hat. The global random stream is left as it was. Errors as in `hyper_model`, and
    ValueError for fewer than 4 draws.
    """
    if draws < 4 or warmup < 1 or chains < 1:
        raise ValueError(f"draws must be at least 4, warmup and chains 1, got {draws}, {warmup} and {chains}.")
    _check_unknown(unknown)  # here, too, for to what is raised inside a program Pyro adds its sites
    arguments: dict[str, Any] = {"unknown": unknown, "fixed": fixed}
    batch, law = RecordedWindows.of(windows), HyperPrior() if law is None else law
    runs, divergences = [], []
    with torch.random.fork_rng(devices=[]):  # Pyro's samplers take no generator
        torch.default_generator.manual_seed(seed)
        for _ in range(chains):
            # a full mass matrix, for weights, intercept and scale are strongly correlated; early trees are kept small
            # because they are long where the step is not yet adapted, and later ones never come near the limit
            kernel = NUTS(hyper_model, full_mass=True, init_strategy=init_to_sample, max_tree_depth=5)
            sampler = MCMC(kernel, num_samples=draws, warmup_steps=warmup, disable_progbar=True)
            sampler.run(batch, law, **arguments)
            runs.append(sampler.get_samples())
            divergences.append(len(sampler.diagnostics()["divergences"]["chain 0"]))
    return HyperPosterior({name: torch.stack([run[name] for run in runs]) for name in runs[0]}, tuple(divergences))
