"""Fitting one logistic regression: the paper's penalised loss (eq. bce_loss), its minimum and the curvature there.

Knows no language model and no window: rows of features with binary targets come in. Symbols, for N rows of F features:

    J(w, b) = -1/N sum_i [d_i log sigma(w·phi_i + b) + (1 - d_i) log(1 - sigma(w·phi_i + b))] + lambda |w|²

The features enter as they are, without standardisation, so lambda weighs a feature by its unit. The intercept b is not
penalised; without one (the literal reading) it is held at 0 (reading R8). With counts c_i the rows are weighted,
1/N sum_i becoming sum_i c_i / sum_i c_i: what a bootstrap sample is.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import expit, log_expit
from scipy.stats import mannwhitneyu, norm

Array = NDArray[np.float64]

GRADIENT_NORM = 1e-8


@dataclass(frozen=True, eq=False)
class LogisticFit:
    """Weights (F,) and intercept of a logistic regression, the loss J in nats at them, and the norm of its gradient.

    covariance: of Laplace's approximation to the posterior exp(-N J), the inverse of N times J's Hessian, (F+1, F+1)
    with the intercept last, (F, F) without one. It takes the rows for independent.
    """

    weights: Array
    intercept: float
    loss: float
    gradient_norm: float
    covariance: Array

    def logits(self, features: Array) -> Array:
        """w·phi + b (N,) for rows (N, F)."""
        return features @ self.weights + self.intercept

    @property
    def has_intercept(self) -> bool:
        """Whether b was fitted, and not held at 0."""
        return len(self.covariance) > len(self.weights)

    @property
    def coefficients(self) -> Array:
        """What was fitted, in the covariance's order: the weights, and behind them the intercept if there is one."""
        return np.append(self.weights, self.intercept) if self.has_intercept else self.weights

    def laplace_intervals(self, level: float = 0.95) -> Array:
        """Central intervals (…, 2) of the coefficients under Laplace's approximation."""
        reach = norm.ppf((1 + level) / 2) * np.sqrt(np.diag(self.covariance))
        return np.column_stack((self.coefficients - reach, self.coefficients + reach))


def fit_logistic(
    features: Array,
    targets: Array,
    penalty: float = 1e-3,
    *,
    intercept: bool = True,
    counts: Array | None = None,
    start: LogisticFit | None = None,
) -> LogisticFit:
    """Minimise J for features (N, F) and targets (N,) in {0, 1}; the gradient norm at the result is below 1e-8.

    counts (N,): how often each row occurs, default once. start: a fit near the result, of the same features; it saves
    time and changes nothing else. Raises ValueError for wrong shapes, values that are not finite, targets that are
    neither 0 nor 1 or all the same (then no intercept is best), counts that are negative, a penalty that is not
    positive (without one, separable data has no minimum), and where the gradient norm is not reached.
    """
    features, targets = np.asarray(features, dtype=np.float64), np.asarray(targets, dtype=np.float64)
    if features.ndim != 2 or targets.shape != (len(features),) or not len(targets):
        raise ValueError(f"features must be (N, F) and targets (N,), got {features.shape} and {targets.shape}.")
    if not np.isfinite(features).all():
        raise ValueError("features must be finite, but hold NaN or infinity.")
    if not np.isin(targets, (0.0, 1.0)).all():
        raise ValueError("targets must be 0 or 1.")
    if not penalty > 0:
        raise ValueError(f"penalty must be positive, got {penalty}.")
    counts = np.ones(len(targets)) if counts is None else np.asarray(counts, dtype=np.float64)
    if counts.shape != targets.shape or not (counts >= 0).all() or not counts.sum() > 0:
        raise ValueError(f"counts must be {targets.shape}, none negative and not all zero.")
    if intercept and len(set(targets[counts > 0])) < 2:
        raise ValueError("targets must hold both 0 and 1, or no intercept is the best; take more rows.")
    loss = _Loss(features, targets, penalty, intercept, counts / counts.sum())
    begin = np.zeros(loss.rows.shape[1]) if start is None else start.coefficients * loss.scale
    found = minimize(
        loss.value, begin, jac=loss.gradient, hess=loss.hessian, method="trust-exact", options={"gtol": 1e-9}
    ).x
    for _ in range(3):  # the last digits, where the loss itself no longer changes
        found = found - np.linalg.lstsq(loss.hessian(found), loss.gradient(found), rcond=None)[0]
    norm = float(np.linalg.norm(loss.gradient(found) * loss.scale))
    if not norm < GRADIENT_NORM:
        raise ValueError(f"the fit has stopped at a gradient norm of {norm:.1e}; raise the penalty, now {penalty}.")
    covariance = np.linalg.inv(counts.sum() * loss.hessian(found)) / np.outer(loss.scale, loss.scale)
    weights = found / loss.scale
    return LogisticFit(
        weights=weights[: features.shape[1]],
        intercept=float(weights[-1]) if intercept else 0.0,
        loss=loss.value(found),
        gradient_norm=norm,
        covariance=covariance,
    )


class _Loss:
    """J and its derivatives in coordinates v = scale · w, which make columns of like size: the features' scales differ
    by orders of magnitude. shares (N,): the rows' weights, which sum to one.
    """

    def __init__(self, features: Array, targets: Array, penalty: float, intercept: bool, shares: Array) -> None:
        self.targets, self.shares = targets, shares
        rows = np.column_stack((features, np.ones(len(features)))) if intercept else features
        self.scale = np.maximum(rows.std(axis=0), 1e-6)
        self.ridge = penalty / self.scale**2
        if intercept:
            self.scale[-1], self.ridge[-1] = 1.0, 0.0
        self.rows = rows / self.scale

    def value(self, v: Array) -> float:
        u = self.rows @ v
        return float(-self.shares @ log_expit(np.where(self.targets == 1, u, -u)) + self.ridge @ v**2)

    def gradient(self, v: Array) -> Array:
        return self.rows.T @ (self.shares * (expit(self.rows @ v) - self.targets)) + 2 * self.ridge * v

    def hessian(self, v: Array) -> Array:
        p = expit(self.rows @ v)
        return (self.rows * (self.shares * p * (1 - p))[:, None]).T @ self.rows + 2 * np.diag(self.ridge)


def log_losses(logits: Array, targets: Array) -> Array:
    """Negative log likelihood (N,), nats, of targets (N,) in {0, 1} under sigmoid(logits)."""
    return -log_expit(np.where(np.asarray(targets) == 1, logits, -np.asarray(logits)))


def log_loss(logits: Array, targets: Array) -> float:
    """Mean of `log_losses`, nats a row."""
    return float(np.mean(log_losses(logits, targets)))


def auroc(scores: Array, targets: Array) -> float:
    """Probability that a row with target 1 scores above one with target 0, ties counting half; NaN without both."""
    positive, negative = scores[np.asarray(targets) == 1], scores[np.asarray(targets) == 0]
    if not len(positive) or not len(negative):
        return float("nan")
    return float(mannwhitneyu(positive, negative).statistic / (len(positive) * len(negative)))
