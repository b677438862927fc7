"""The statistics of the tables: means with standard errors, paired tests, how well a score tells wrong from right.

Pure functions of numbers; knows no runs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import minimize
from scipy.stats import binomtest, chi2, norm, rankdata


@dataclass(frozen=True)
class Mean:
    """A mean of n independent values with its standard error, None of fewer than two."""

    value: float
    error: float | None
    count: int


@dataclass(frozen=True)
class McNemar:
    """Paired comparison of two decoders on the same items.

    only_first, only_second: items that only one of them answers right. statistic: (|b - c| - 1)² / (b + c), with
    continuity correction; p_corrected: of it, with one degree of freedom; p_exact: two-sided binomial. Without
    discordant items the statistic is 0 and both p are 1.
    """

    count: int
    first_right: int
    second_right: int
    only_first: int
    only_second: int
    statistic: float
    p_corrected: float
    p_exact: float


@dataclass(frozen=True)
class Auroc:
    """The probability that a wrong answer scores higher than a right one (ties half), with a 95% interval (DeLong)."""

    value: float
    low: float
    high: float
    wrong: int
    right: int


@dataclass(frozen=True)
class LikelihoodRatio:
    """Whether further scores say more of wrongness than confidence alone: nested logistic regressions.

    coefficients: of the larger model, a standard deviation of each score, the baseline's first. statistic: twice the
    difference of their log likelihoods, chi-square with as many degrees of freedom as there are further scores.
    """

    coefficients: tuple[float, ...]
    statistic: float
    degrees: int
    p: float


def mean(values: ArrayLike) -> Mean:
    """The mean of independent values. Raises ValueError of none."""
    numbers = np.asarray(values, dtype=float)
    if not numbers.size:
        raise ValueError("a mean needs at least one value")
    error = float(numbers.std(ddof=1) / math.sqrt(numbers.size)) if numbers.size > 1 else None
    return Mean(float(numbers.mean()), error, int(numbers.size))


def mean_of_means(parts: Sequence[Mean | None]) -> Mean | None:
    """The mean of independent means, each counting alike; None if one is missing."""
    known = [part for part in parts if part is not None]
    if not known or len(known) < len(parts):
        return None
    errors = [part.error for part in known if part.error is not None]
    error = math.hypot(*errors) / len(known) if len(errors) == len(known) else None
    return Mean(sum(part.value for part in known) / len(known), error, sum(part.count for part in known))


def mcnemar(first: Sequence[bool], second: Sequence[bool]) -> McNemar:
    """McNemar's test of two decoders' rightness on the same items, in the same order."""
    one, two = np.asarray(first, dtype=bool), np.asarray(second, dtype=bool)
    if one.shape != two.shape or not one.size:
        raise ValueError(f"both need the same items, at least one, not {one.size} and {two.size}")
    b, c = int((one & ~two).sum()), int((~one & two).sum())
    statistic = max(abs(b - c) - 1, 0) ** 2 / (b + c) if b + c else 0.0
    exact = float(binomtest(b, b + c).pvalue) if b + c else 1.0
    return McNemar(
        one.size, int(one.sum()), int(two.sum()), b, c, statistic, float(chi2.sf(statistic, 1)) if b + c else 1.0, exact
    )  # fmt: skip


def auroc(scores: ArrayLike, wrong: ArrayLike) -> Auroc | None:
    """How well a score (n,) foretells which answers are wrong (n,); None unless there are two of either kind.

    The interval is DeLong's, from the variances of the placements of each kind among the other.
    """
    score, bad = np.asarray(scores, dtype=float), np.asarray(wrong, dtype=bool)
    positive, negative = score[bad], score[~bad]
    m, n = len(positive), len(negative)
    if m < 2 or n < 2:
        return None
    ranks = rankdata(np.concatenate((positive, negative)))
    above = (ranks[:m] - rankdata(positive)) / n  # of each wrong answer, the share of right ones below it
    below = 1 - (ranks[m:] - rankdata(negative)) / m
    value = float(above.mean())
    spread = math.sqrt(above.var(ddof=1) / m + below.var(ddof=1) / n)
    reach = float(norm.ppf(0.975)) * spread
    return Auroc(value, max(0.0, value - reach), min(1.0, value + reach), m, n)


def likelihood_ratio(baseline: ArrayLike, further: ArrayLike, wrong: ArrayLike) -> LikelihoodRatio | None:
    """Logistic regression of wrongness (n,) on a baseline score (n,), and on further ones (n, k) beside it.

    None where the maximum is not finite: a score separates the two kinds, is constant, or there is but one kind.
    """
    bad = np.asarray(wrong, dtype=float)
    if not len(bad):
        return None
    first = np.asarray(baseline, dtype=float).reshape(-1, 1)
    more = np.asarray(further, dtype=float).reshape(len(first), -1)
    scores = np.concatenate((first, more), axis=1)
    if bad.min() == bad.max() or (np.ptp(scores, axis=0) == 0).any():
        return None
    scores = (scores - scores.mean(axis=0)) / scores.std(axis=0)
    small, large = _logistic(scores[:, :1], bad), _logistic(scores, bad)
    if small is None or large is None:
        return None
    statistic = max(0.0, 2 * (large[1] - small[1]))
    degrees = more.shape[1]
    coefficients = tuple(float(value) for value in large[0][1:])
    return LikelihoodRatio(coefficients, statistic, degrees, float(chi2.sf(statistic, degrees)))


def _logistic(scores: NDArray[np.float64], bad: NDArray[np.float64]) -> tuple[NDArray[np.float64], float] | None:
    """Coefficients (1 + k,), the intercept first, and log likelihood of a logistic regression; None if not finite."""
    design = np.concatenate((np.ones((len(scores), 1)), scores), axis=1)

    def loss(weights: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        logits = design @ weights
        value = float((np.logaddexp(0, logits) - bad * logits).sum())
        return value, design.T @ (1 / (1 + np.exp(-np.clip(logits, -700, 700))) - bad)

    found = minimize(loss, np.zeros(design.shape[1]), jac=True, method="BFGS", options={"gtol": 1e-8})
    if np.abs(found.x).max() > 15:  # the scores are standardised: a separated kind sends them to infinity
        return None
    return found.x, -float(found.fun)
