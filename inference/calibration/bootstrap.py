"""Intervals of what is averaged over rows that come in clusters: the bootstrap over whole problems.

Rows of one problem depend on each other, so an interval that takes them one by one is too narrow. A resample takes
problems with replacement, within each domain as many as there are; it is the row of counts of how often each occurs.

Knows nothing of windows and weights.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .logistic import Array

LEVEL = 0.95


@dataclass(frozen=True)
class Estimate:
    """A figure with the ends of its 95% interval."""

    value: float
    low: float
    high: float

    @classmethod
    def of(cls, value: float, resampled: Array) -> Estimate:
        """From a figure and the same one in each resample (B,), those left out in which it is not a number."""
        known = resampled[~np.isnan(resampled)]
        low, high = np.quantile(known, ((1 - LEVEL) / 2, (1 + LEVEL) / 2)) if len(known) else (np.nan, np.nan)
        return cls(float(value), float(low), float(high))


def resamples(domain: Sequence[str], count: int, seed: int) -> NDArray[np.int64]:
    """Counts (count, P) of problems whose domains are given (P,), every domain's problems drawn with replacement."""
    generator = np.random.default_rng(seed)
    found = np.zeros((count, len(domain)), dtype=np.int64)
    for name in sorted(set(domain)):
        members = np.flatnonzero([other == name for other in domain])
        found[:, members] = generator.multinomial(len(members), np.full(len(members), 1 / len(members)), count)
    return found


@dataclass(frozen=True, eq=False)
class ClusteredMean:
    """A mean over rows, in parts: sums (P,) and numbers (P,) of the rows of each cluster."""

    sums: Array
    numbers: Array

    @classmethod
    def of(cls, values: Array, cluster: NDArray[np.int64], clusters: int) -> ClusteredMean:
        """Of values (N,) whose clusters are numbered 0 to clusters-1."""
        sums = np.bincount(cluster, values, clusters).astype(np.float64)
        return cls(sums, np.bincount(cluster, minlength=clusters).astype(np.float64))

    def under(self, counts: NDArray[np.int64]) -> Array:
        """The mean in each resample (B,), NaN without a row."""
        return _ratio(counts @ self.sums, counts @ self.numbers)


@dataclass(frozen=True, eq=False)
class ClusteredAuroc:
    """An AUROC in parts: wins (P, P), pairs of a row with target 1 in one cluster and a lower one with 0 in the other,
    ties counting half; positives (P,) and negatives (P,).

    Under counts c it is c·wins·c / (c·positives)(c·negatives), with no look at the rows.
    """

    wins: Array
    positives: Array
    negatives: Array

    @classmethod
    def of(cls, scores: Array, targets: Array, cluster: NDArray[np.int64], clusters: int) -> ClusteredAuroc:
        """Of scores (N,) with targets (N,) in {0, 1}, whose clusters are numbered 0 to clusters-1."""
        positive = targets == 1
        rank = np.unique(scores, return_inverse=True)[1]
        order = np.argsort(rank[positive], kind="stable")
        above, owner = rank[positive][order], cluster[positive][order]
        wins = np.zeros((clusters, clusters))
        for other in np.unique(cluster[~positive]):
            below = np.sort(rank[~positive & (cluster == other)])
            beaten = np.searchsorted(below, above, "left") + np.searchsorted(below, above, "right")
            wins[:, other] = np.bincount(owner, beaten / 2, clusters)
        count = np.bincount(cluster, minlength=clusters)
        positives = np.bincount(owner, minlength=clusters)
        return cls(wins, positives.astype(np.float64), (count - positives).astype(np.float64))

    def under(self, counts: NDArray[np.int64]) -> Array:
        """The AUROC in each resample (B,), NaN without both kinds of rows."""
        pairs = (counts @ self.positives) * (counts @ self.negatives)
        return _ratio(((counts @ self.wins) * counts).sum(1), pairs)


def _ratio(numerator: Array, denominator: Array) -> Array:
    return np.divide(numerator, denominator, out=np.full(len(numerator), np.nan), where=denominator > 0)
