"""Held-out figures of predictors, with intervals over resamples of the problems: log loss, AUROC, reliability.

A predictor is the logits that it gives to all rows. Knows nothing of where they come from.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from .bootstrap import ClusteredAuroc, ClusteredMean, Estimate
from .logistic import Array, auroc, log_losses

BINS = 10
CHANCE_DRAWS = 200


@dataclass(frozen=True)
class Bin:
    """Rows whose probability lies in [low, high): how many, their mean probability, and how often the target was 1."""

    low: float
    high: float
    count: int
    probability: float
    frequency: float


@dataclass(frozen=True)
class CalibrationError:
    """An expected calibration error, and the same of targets drawn with the probabilities that are judged.

    by_chance: its mean over such targets, with the range of 95% of them. They are drawn row by row, so for rows that
    depend on each other chance alone may do more.
    """

    value: float
    by_chance: Estimate


@dataclass(frozen=True, eq=False)
class Figures:
    """Figures of one predictor, logits (N,), on rows with targets (N,) of numbered problems (N,).

    counts (B, P): how often each problem occurs in each resample. A difference of two predictors' figures on the same
    rows is resampled as a pair.
    """

    logits: Array
    targets: Array
    problem: NDArray[np.int64]
    counts: NDArray[np.int64]

    @cached_property
    def log_loss(self) -> Estimate:
        """In nats a row."""
        return Estimate.of(self._losses.mean(), self._mean(self._losses))

    def log_loss_above(self, other: Figures) -> Estimate:
        """This log loss minus the other's, below 0 if this one is better."""
        difference = self._losses - other._losses
        return Estimate.of(difference.mean(), self._mean(difference))

    @cached_property
    def auroc(self) -> Estimate:
        """Probability that a row with target 1 gets the higher logit."""
        return Estimate.of(auroc(self.logits, self.targets), self._aurocs)

    def auroc_above(self, other: Figures) -> Estimate:
        """This AUROC minus the other's, above 0 if this one is better."""
        value = auroc(self.logits, self.targets) - auroc(other.logits, other.targets)
        return Estimate.of(value, self._aurocs - other._aurocs)

    @cached_property
    def bins(self) -> tuple[Bin, ...]:
        """The bins of equal width that hold a row."""
        probability, place = self._binned
        found = []
        for number in np.unique(place):
            inside = place == number
            found.append(
                Bin(
                    low=float(number / BINS),
                    high=float((number + 1) / BINS),
                    count=int(inside.sum()),
                    probability=float(probability[inside].mean()),
                    frequency=float(self.targets[inside].mean()),
                )
            )
        return tuple(found)

    @cached_property
    def calibration_error(self) -> CalibrationError:
        """The expected calibration error: of a row's bin, |mean probability - frequency|, on average over rows.

        It is above 0 by chance alone, and the more so in a resample, whose interval would not hold the truth.
        """
        probability, place = self._binned
        generator = np.random.default_rng(0)

        def error(targets: Array) -> float:
            return float(np.abs(np.bincount(place, probability - targets)).sum() / len(targets))

        chance = [error((generator.random(len(place)) < probability).astype(np.float64)) for _ in range(CHANCE_DRAWS)]
        return CalibrationError(error(self.targets), Estimate.of(float(np.mean(chance)), np.array(chance)))

    @cached_property
    def _losses(self) -> Array:
        return log_losses(self.logits, self.targets)

    @cached_property
    def _aurocs(self) -> Array:
        return ClusteredAuroc.of(self.logits, self.targets, self.problem, self.counts.shape[1]).under(self.counts)

    @cached_property
    def _binned(self) -> tuple[Array, NDArray[np.int64]]:
        probability = expit(self.logits)
        return probability, np.minimum((probability * BINS).astype(np.int64), BINS - 1)

    def _mean(self, values: Array) -> Array:
        return ClusteredMean.of(values, self.problem, self.counts.shape[1]).under(self.counts)
