"""alpha0 alone, without sampling: its posterior on a grid, and the value of maximum evidence."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar
from torch import Tensor

from dystruct.model import PriorConfig

from .hyper import HyperPrior, ObservedWindow, RecordedWindows

_LARGEST = 600.0  # |log alpha0|, up to which the recursion has numbers to spare


@dataclass(frozen=True, eq=False, repr=False)
class GridPosterior:
    """A posterior on a grid: values (N,) of the parameter, increasing, with probabilities (N,), which sum to one."""

    values: NDArray[np.float64]
    probabilities: NDArray[np.float64]

    def expectation(self, function: Callable[[NDArray[np.float64]], NDArray[np.float64]]) -> float:
        """Posterior expectation of a function of the parameter, which is given all values (N,) at once."""
        return float(self.probabilities @ function(self.values))

    def __repr__(self) -> str:
        mean, deviation, size = self.mean, self.standard_deviation, len(self.values)
        span = f"{self.values[0]:.3g} to {self.values[-1]:.3g}"
        return f"GridPosterior({size} values from {span}; mean {mean:.3g}, standard deviation {deviation:.2g})"

    @property
    def mean(self) -> float:
        """Posterior mean of the parameter."""
        return self.expectation(lambda values: values)

    @property
    def standard_deviation(self) -> float:
        """Posterior standard deviation of the parameter."""
        return math.sqrt(self.expectation(lambda values: (values - self.mean) ** 2))

    def quantile(self, probability: float) -> float:
        """Posterior quantile, interpolated linearly in the log of the parameter."""
        below = np.cumsum(self.probabilities) - self.probabilities / 2  # each value stands in the middle of its cell
        return float(np.exp(np.interp(probability, below, np.log(self.values))))


def concentration_grid(
    windows: Iterable[ObservedWindow], law: HyperPrior | None = None, *, points: int = 401
) -> GridPosterior:
    """The posterior of alpha0 on a grid even in log alpha0, as wide as the posterior: to where it falls by 30 nats.

    The oracle for `sample_hyper`: as exact as the grid is fine. Raises ValueError for fewer than 3 points, and
    for a law so wide that alpha0 has no number.
    """
    if points < 3:
        raise ValueError(f"points must be at least 3, got {points}.")
    batch, law = RecordedWindows.of(windows), HyperPrior() if law is None else law

    def log_density(logs: Tensor) -> Tensor:
        evidence = torch.stack([batch.log_evidence(value) for value in logs.exp()])
        # a density over log alpha0 is alpha0 times that over alpha0
        return evidence + law.concentration.log_prob(logs.exp()) + logs

    logs = torch.linspace(*_reach(log_density, law), points, dtype=torch.float64)
    return GridPosterior(logs.exp().numpy(), log_density(logs).softmax(0).numpy())


def _reach(log_density: Callable[[Tensor], Tensor], law: HyperPrior) -> tuple[float, float]:
    """Between which log alpha0 a density is not negligible; it is looked for where the prior is, and farther on."""
    middle, half = math.log(law.concentration_median), 6 * law.concentration_spread
    low, high, narrowed = middle - half, middle + half, 0
    while narrowed < 3:  # as often as it takes to enclose it, then closer
        if max(-low, high) > _LARGEST:
            raise ValueError("alpha0 could be too large or small for a number: give a smaller concentration_spread.")
        logs = torch.linspace(low, high, 65, dtype=torch.float64)
        density = log_density(logs)
        held = (density > density.max() - 30).nonzero()
        first, last = int(held.min()), int(held.max())
        if first == 0 or last == len(logs) - 1:
            low, high = low - half * (first == 0), high + half * (last == len(logs) - 1)
        else:
            low, high, narrowed = float(logs[first - 1]), float(logs[last + 1]), narrowed + 1
    return low, high


@dataclass(frozen=True)
class LearnedConcentration:
    """alpha0 of maximum evidence and the windows' log evidence there, nats.

    at_bound: the evidence still rises at the end of the searched range, so it names no alpha0, only a direction.
    """

    concentration: float
    log_evidence: float
    at_bound: bool

    def prior(self, base: PriorConfig | None = None) -> PriorConfig:
        """`base`, or the paper's hyperparameters, with this alpha0."""
        return replace(PriorConfig() if base is None else base, concentration=self.concentration)


def learn_concentration(
    windows: Iterable[ObservedWindow], *, low: float = 1e-3, high: float = 1e3
) -> LearnedConcentration:
    """alpha0 in [low, high] that maximises the log evidence of the windows, each partition summed out.

    The search is over log alpha0. Raises ValueError unless 0 < low < high.
    """
    if not 0 < low < high < math.inf:
        raise ValueError(f"low and high must satisfy 0 < low < high, both finite, got {low} and {high}.")
    batch = RecordedWindows.of(windows)

    def loss(log_concentration: float) -> float:
        return -float(batch.log_evidence(torch.tensor(log_concentration, dtype=torch.float64).exp()))

    # a coarse look first: the evidence is flat towards both ends, and nothing says that it has a single peak
    coarse = np.linspace(math.log(low), math.log(high), 33)
    losses = [loss(value) for value in coarse]
    best = int(np.argmin(losses))
    around = (coarse[max(best - 1, 0)], coarse[min(best + 1, len(coarse) - 1)])
    found = minimize_scalar(loss, bounds=around, method="bounded", options={"xatol": 1e-6})
    if found.fun < losses[best]:
        return LearnedConcentration(math.exp(found.x), -float(found.fun), at_bound=False)
    at_bound = best in (0, len(coarse) - 1)
    return LearnedConcentration(math.exp(coarse[best]), -losses[best], at_bound)
