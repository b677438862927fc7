"""Fitting the evidence weights w and w_b: the paper's penalised logistic regression (eq. bce_loss).

Knows no language model: rows of features with binary targets come in. Symbols, for N rows of F features:

    J(w, b) = -1/N sum_i [d_i log sigma(w·phi_i + b) + (1 - d_i) log(1 - sigma(w·phi_i + b))] + lambda |w|²

The intercept b is not penalised; without one (the literal reading) it is held at 0 (reading R8).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import expit, log_expit
from scipy.stats import mannwhitneyu

Array = NDArray[np.float64]


@dataclass(frozen=True)
class LogisticFit:
    """Weights (F,) and intercept of a logistic regression, the loss J in nats at them, and the norm of its gradient."""

    weights: Array
    intercept: float
    loss: float
    gradient_norm: float

    def logits(self, features: Array) -> Array:
        """w·phi + b (N,) for rows (N, F)."""
        return features @ self.weights + self.intercept


def fit_logistic(features: Array, targets: Array, penalty: float = 1e-3, *, intercept: bool = True) -> LogisticFit:
    """Minimise J for features (N, F) and targets (N,) in {0, 1}; the gradient norm at the result is below 1e-8.

    Raises ValueError for wrong shapes, values that are not finite, a target that is neither 0 nor 1, or a penalty
    that is not positive (without one, separable data has no minimum).
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
    rows = np.column_stack((features, np.ones(len(features)))) if intercept else features
    # Newton's method in standardised coordinates: the features' scales differ by orders of magnitude.
    scale = np.maximum(rows.std(axis=0), 1e-6)
    if intercept:
        scale[-1] = 1.0
    rows = rows / scale
    ridge = penalty / scale**2
    if intercept:
        ridge[-1] = 0.0

    def loss(w: Array) -> float:
        u = rows @ w
        return float(-np.mean(log_expit(np.where(targets == 1, u, -u))) + ridge @ w**2)

    def gradient(w: Array) -> Array:
        return rows.T @ (expit(rows @ w) - targets) / len(targets) + 2 * ridge * w

    def hessian(w: Array) -> Array:
        p = expit(rows @ w)
        return (rows * (p * (1 - p))[:, None]).T @ rows / len(targets) + 2 * np.diag(ridge)

    start = np.zeros(rows.shape[1])
    found = minimize(loss, start, jac=gradient, hess=hessian, method="trust-exact", options={"gtol": 1e-10}).x
    for _ in range(3):  # the last digits, where the loss itself no longer changes
        found = found - np.linalg.lstsq(hessian(found), gradient(found), rcond=None)[0]
    norm = float(np.linalg.norm(gradient(found) * scale))
    weights = found / scale
    return LogisticFit(
        weights[: features.shape[1]], float(weights[-1]) if intercept else 0.0, loss(found), norm
    )  # fmt: skip


def log_loss(logits: Array, targets: Array) -> float:
    """Mean negative log likelihood, nats a row, of targets (N,) in {0, 1} under sigmoid(logits)."""
    return float(-np.mean(log_expit(np.where(np.asarray(targets) == 1, logits, -logits))))


def auroc(scores: Array, targets: Array) -> float:
    """Probability that a row with target 1 scores above one with target 0, ties counting half; NaN without both."""
    positive, negative = scores[np.asarray(targets) == 1], scores[np.asarray(targets) == 0]
    if not len(positive) or not len(negative):
        return float("nan")
    return float(mannwhitneyu(positive, negative).statistic / (len(positive) * len(negative)))
