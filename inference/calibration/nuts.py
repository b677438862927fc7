"""The full posterior of one logistic regression by NUTS, as a Pyro program: what Laplace's approximation is checked by.

    p(w, b | rows) ∝ exp(-N J(w, b)),    that is
    w ~ Normal(0, 1 / sqrt(2 lambda N)),    b flat,    d_i ~ Bernoulli(sigma(w·phi_i + b))

Knows nothing of windows; takes the rows for independent, as Laplace's approximation does.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyro
import pyro.distributions as dist
import torch
from pyro.infer import MCMC, NUTS
from pyro.infer.autoguide.initialization import init_to_sample
from pyro.ops.stats import effective_sample_size, split_gelman_rubin
from torch import Tensor

from .logistic import Array, LogisticFit


def logistic_model(rows: Tensor, targets: Tensor, deviation: Tensor, centre: Tensor, spread: Tensor) -> Tensor:
    """The Pyro program over the coefficients (C,) of rows (N, C), a column of ones last where there is an intercept.

    Sites: `standard` (C,), flat; the coefficients are centre + spread · standard, so that NUTS moves in coordinates in
    which the posterior is nearly round. deviation (C,): of the normal prior of each, infinite where it is flat.
    """
    flat = dist.Normal(torch.zeros_like(centre), 1.0).to_event(1).mask(False)  # of no density, only where chains start
    coefficients = centre + spread @ pyro.sample("standard", flat)
    prior = -0.5 * (coefficients / deviation) ** 2
    pyro.factor("prior", prior.sum())
    pyro.sample("targets", dist.Bernoulli(logits=rows @ coefficients).to_event(1), obs=targets)
    return coefficients


@dataclass(frozen=True, eq=False)
class LogisticPosterior:
    """Draws (chains, draws, C) of a logistic regression's coefficients, the intercept last if there is one."""

    draws: Array
    divergences: int

    @property
    def mean(self) -> Array:
        """Posterior means (C,)."""
        return self.draws.mean((0, 1))

    @property
    def standard_deviation(self) -> Array:
        """Posterior standard deviations (C,)."""
        return self.draws.reshape(-1, self.draws.shape[-1]).std(0)

    def intervals(self, level: float = 0.95) -> Array:
        """Central intervals (C, 2)."""
        tails = ((1 - level) / 2, (1 + level) / 2)
        return np.quantile(self.draws, tails, axis=(0, 1)).T

    @property
    def r_hat(self) -> Array:
        """Split Gelman-Rubin statistics (C,)."""
        return split_gelman_rubin(torch.from_numpy(self.draws)).numpy()

    @property
    def effective_sample_size(self) -> Array:
        """Numbers (C,) of independent draws that would estimate the means as well."""
        return effective_sample_size(torch.from_numpy(self.draws)).numpy()


def sample_logistic(
    features: Array,
    targets: Array,
    fit: LogisticFit,
    penalty: float,
    *,
    draws: int = 400,
    warmup: int = 100,
    chains: int = 2,
    seed: int = 0,
) -> LogisticPosterior:
    """NUTS around `fit`, which was made of the same rows (N, F), targets (N,) and penalty.

    The global random stream is left as it was. Raises ValueError for fewer than 4 draws.
    """
    if draws < 4 or warmup < 1 or chains < 1:
        raise ValueError(f"draws must be at least 4, warmup and chains 1, got {draws}, {warmup} and {chains}.")
    rows = np.column_stack((features, np.ones(len(features)))) if fit.has_intercept else features
    deviation = np.full(rows.shape[1], (2 * penalty * len(rows)) ** -0.5)
    if fit.has_intercept:
        deviation[-1] = np.inf
    arguments = [
        torch.from_numpy(np.ascontiguousarray(value))
        for value in (rows, targets, deviation, fit.coefficients, np.linalg.cholesky(fit.covariance))
    ]
    runs, divergences = [], 0
    with torch.random.fork_rng(devices=[]):  # Pyro's samplers take no generator
        torch.default_generator.manual_seed(seed)
        for _ in range(chains):
            kernel = NUTS(
                logistic_model, adapt_mass_matrix=False, init_strategy=init_to_sample, max_tree_depth=6
            )  # fmt: skip
            sampler = MCMC(kernel, num_samples=draws, warmup_steps=warmup, disable_progbar=True)
            sampler.run(*arguments)
            runs.append(sampler.get_samples()["standard"])
            divergences += len(sampler.diagnostics()["divergences"]["chain 0"])
    standard = torch.stack(runs).numpy()
    coefficients = fit.coefficients + standard @ np.linalg.cholesky(fit.covariance).T
    return LogisticPosterior(coefficients, divergences)
