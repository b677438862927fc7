"""The statistics of the tables: means with standard errors, paired tests, how well a score tells wrong from right.

Pure functions of numbers; knows no runs.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
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

    only_first, only_second: items that only one of them answers right. difference: the second's accuracy minus the
    first's, with the standard error of a mean of paired differences. statistic: (|b - c| - 1)² / (b + c), with
    continuity correction; p_corrected: of it, with one degree of freedom; p_exact: two-sided binomial. Without
    discordant items the statistic is 0 and both p are 1.
    """

    count: int
    first_right: int
    second_right: int
    only_first: int
    only_second: int
    difference: Mean
    statistic: float
    p_corrected: float
    p_exact: float


@dataclass(frozen=True)
class Auroc:
    """The probability that a wrong answer scores higher than a right one (ties half), with a 95% interval.

    The interval is DeLong's, or of a score that separates the two kinds an exact one (see `auroc`).
    """

    value: float
    low: float
    high: float
    wrong: int
    right: int


@dataclass(frozen=True)
class LikelihoodRatio:
    """Whether further scores say more of wrongness than confidence alone: nested logistic regressions.

    coefficients: of the larger model, a standard deviation (within strata) of each score, the baseline's first.
    statistic: twice the difference of their log likelihoods, chi-square with as many degrees of freedom as there are
    further scores.
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


def mean_of_parts(parts: Sequence[Mean]) -> Mean:
    """The mean, with its standard error, of all values of which parts have these means. Raises ValueError of none."""
    count = sum(part.count for part in parts)
    if not count:
        raise ValueError("a mean needs at least one value")
    value = sum(part.count * part.value for part in parts) / count
    if count == 1:
        return Mean(value, None, 1)
    within = sum((part.count - 1) * part.count * (part.error or 0.0) ** 2 for part in parts)
    between = sum(part.count * (part.value - value) ** 2 for part in parts)
    return Mean(value, math.sqrt((within + between) / (count - 1) / count), count)


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
        one.size, int(one.sum()), int(two.sum()), b, c, mean(two.astype(float) - one), statistic,
        float(chi2.sf(statistic, 1)) if b + c else 1.0, exact,
    )  # fmt: skip


def holm(p: Sequence[float], families: Sequence[Hashable] | None = None) -> list[float]:
    """P-values corrected by Holm's method for the number of tests in their family: a family's error is at most p.

    families: which one each test belongs to; without, all are one. Of a family the r-th smallest of n, times n - r + 1;
    none less than one that was smaller, none above 1.
    """
    families = [None] * len(p) if families is None else families
    found = [0.0] * len(p)
    for family in dict.fromkeys(families):
        places = [place for place, other in enumerate(families) if other == family]
        least = 0.0
        for rank, place in enumerate(sorted(places, key=p.__getitem__)):
            least = max(least, min(1.0, (len(places) - rank) * p[place]))
            found[place] = least
    return found


def auroc(scores: ArrayLike, wrong: ArrayLike, strata: ArrayLike | None = None) -> Auroc | None:
    """How well a score (n,) foretells which answers are wrong (n,); None unless there are two of either kind.

    The interval is DeLong's, from the variances of the placements of each kind among the other. strata (n,): what each
    answer belongs to; answers are then compared within a stratum only, so that a score that tells hard strata from easy
    ones gains nothing by it. Strata without two of either kind are left out.

    Where all pairs of a stratum come out alike, in each of the strata, DeLong's variance is 0 and says nothing. The
    interval then has every AUROC under which this happens more than once in 40 times: m wrong and n right answers make
    k = min(m, n) independent pairs, so if a pair comes out so with probability q, all do with at most q^k. So q may be
    as low as 0.025^(1/k), and the other pairs may come out either way.
    """
    score, bad = np.asarray(scores, dtype=float), np.asarray(wrong, dtype=bool)
    parts = [_auroc(score[bad & inside], score[~bad & inside]) for inside in _within(strata, len(score))]
    known = [part for part in parts if part is not None]
    if not known:
        return None
    values, variances, counts = (np.array(column) for column in zip(*known, strict=True))
    share = counts.prod(axis=1) / counts.prod(axis=1).sum()  # of all pairs
    value, spread = float(share @ values), math.sqrt(float(share**2 @ variances))
    reach = float(norm.ppf(0.975)) * spread
    low, high = max(0.0, value - reach), min(1.0, value + reach)
    if not spread:
        alike = 0.025 ** (1 / counts.min(axis=1))
        low, high = float(share @ (alike * values)), 1 - float(share @ (alike * (1 - values)))
    m, n = counts.sum(axis=0)
    return Auroc(value, low, high, int(m), int(n))


def _auroc(wrong: NDArray[np.float64], right: NDArray[np.float64]) -> tuple[float, float, tuple[int, int]] | None:
    """AUROC of the scores of either kind, its variance, and their numbers; None unless there are two of either."""
    m, n = len(wrong), len(right)
    if m < 2 or n < 2:
        return None
    ranks = rankdata(np.concatenate((wrong, right)))
    above = (ranks[:m] - rankdata(wrong)) / n  # of each wrong answer, the share of right ones below it
    below = 1 - (ranks[m:] - rankdata(right)) / m
    return float(above.mean()), float(above.var(ddof=1) / m + below.var(ddof=1) / n), (m, n)


def _within(strata: ArrayLike | None, count: int) -> NDArray[np.bool_]:
    """Which of the answers each stratum has (strata, n); without strata all of them are in one."""
    belongs = np.zeros(count) if strata is None else np.asarray(strata)
    return np.asarray(np.unique(belongs)[:, None] == belongs)


def likelihood_ratio(
    baseline: ArrayLike, further: ArrayLike, wrong: ArrayLike, strata: ArrayLike | None = None
) -> LikelihoodRatio | None:
    """Logistic regression of wrongness (n,) on a baseline score (n,), and on further ones (n, k) beside it.

    strata (n,): what each answer belongs to, with an intercept for each in both models; strata of one kind only say
    nothing and are left out. None where the maximum is not finite: a score separates the two kinds, is constant, or
    there is but one kind.
    """
    bad = np.asarray(wrong, dtype=float)
    first = np.asarray(baseline, dtype=float).reshape(-1, 1)
    scores = np.concatenate((first, np.asarray(further, dtype=float).reshape(len(first), -1)), axis=1)
    mixed = [inside for inside in _within(strata, len(bad)) if 0 < bad[inside].sum() < inside.sum()]
    if not mixed:
        return None
    kept = np.any(mixed, axis=0)
    if (np.max([np.ptp(scores[inside], axis=0) for inside in mixed], axis=0) == 0).any():
        return None
    for inside in mixed:
        scores[inside] -= scores[inside].mean(axis=0)
    bad, scores, intercepts = bad[kept], scores[kept], np.array(mixed, dtype=float).T[kept]
    scores /= scores.std(axis=0)
    small = _logistic(np.concatenate((intercepts, scores[:, :1]), axis=1), bad)
    large = _logistic(np.concatenate((intercepts, scores), axis=1), bad)
    if small is None or large is None:
        return None
    statistic = max(0.0, 2 * (large[1] - small[1]))
    degrees = scores.shape[1] - 1
    coefficients = tuple(float(value) for value in large[0][len(mixed) :])
    return LikelihoodRatio(coefficients, statistic, degrees, float(chi2.sf(statistic, degrees)))


def _logistic(design: NDArray[np.float64], bad: NDArray[np.float64]) -> tuple[NDArray[np.float64], float] | None:
    """Coefficients (k,) and log likelihood of a logistic regression on a design (n, k); None if not finite."""

    def loss(weights: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        logits = design @ weights
        value = float((np.logaddexp(0, logits) - bad * logits).sum())
        return value, design.T @ (1 / (1 + np.exp(-np.clip(logits, -700, 700))) - bad)

    found = minimize(loss, np.zeros(design.shape[1]), jac=True, method="BFGS", options={"gtol": 1e-8})
    if np.abs(found.x).max() > 15:  # the scores are standardised: a separated kind sends them to infinity
        return None
    return found.x, -float(found.fun)
