"""The penalised logistic fit against scikit-learn's, finite differences, repeated rows, Laplace and NUTS."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import trapezoid
from scipy.special import expit
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss as sklearn_log_loss
from sklearn.metrics import roc_auc_score

from dystruct.inference.calibration import LogisticFit, auroc, fit_logistic, log_loss, sample_logistic


def rows(seed: int, count: int, width: int) -> tuple[np.ndarray, np.ndarray]:
    """Features whose scales differ by orders of magnitude, and targets that depend on them."""
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(count, width)) * 10.0 ** rng.uniform(-2, 2, size=width) + rng.normal(size=width)
    u = (features / features.std(axis=0)) @ rng.normal(size=width) - 0.5
    targets = (rng.uniform(size=count) < expit(u)).astype(float)
    targets[:2] = 0, 1
    return features, targets


def same(a: LogisticFit, b: LogisticFit) -> None:
    deviation = np.sqrt(np.diag(a.covariance))
    np.testing.assert_allclose(a.coefficients, b.coefficients, atol=1e-6 * deviation.max())
    np.testing.assert_allclose(
        a.covariance / np.outer(deviation, deviation), b.covariance / np.outer(deviation, deviation), atol=1e-6
    )
    assert a.loss == pytest.approx(b.loss, abs=1e-12)


@pytest.mark.parametrize("intercept", [True, False])
@settings(max_examples=40)
@given(seed=st.integers(0, 1000), count=st.integers(20, 200), width=st.integers(1, 7), power=st.integers(-5, 0))
def test_the_fit_is_scikit_learns(intercept: bool, seed: int, count: int, width: int, power: int) -> None:
    features, targets = rows(seed, count, width)
    penalty = 10.0**power
    found = fit_logistic(features, targets, penalty, intercept=intercept)
    assert found.gradient_norm < 1e-8
    # scikit-learn minimises |w|²/2 + C · (sum of losses): our mean loss + lambda |w|² with C = 1 / (2 lambda N)
    theirs = LogisticRegression(
        C=1 / (2 * penalty * count), fit_intercept=intercept, solver="newton-cholesky", tol=1e-12, max_iter=1000
    ).fit(features, targets)

    def loss(w: np.ndarray, b: float) -> float:
        return log_loss(features @ w + b, targets) + penalty * float(w @ w)

    assert found.loss == pytest.approx(loss(found.weights, found.intercept), abs=1e-12)
    assert found.loss <= loss(theirs.coef_[0], float(np.ravel(theirs.intercept_)[0])) + 1e-9
    scale = features.std(axis=0)
    np.testing.assert_allclose(found.weights * scale, theirs.coef_[0] * scale, atol=2e-4, rtol=2e-4)
    if not intercept:
        assert found.intercept == 0.0 and not found.has_intercept


@pytest.mark.parametrize("intercept", [True, False])
def test_gradient_and_covariance_are_the_losss_by_finite_differences(intercept: bool) -> None:
    features, targets = rows(5, 100, 4)
    found = fit_logistic(features, targets, 1e-2, intercept=intercept)

    def loss(w: np.ndarray) -> float:
        b = float(w[4]) if intercept else 0.0
        return log_loss(features @ w[:4] + b, targets) + 1e-2 * float(w[:4] @ w[:4])

    at, size = found.coefficients, len(found.coefficients)
    steps = np.diag(1e-3 / np.maximum(1.0, [*np.abs(features).max(0), 1.0][:size]))
    gradient = [(loss(at + s) - loss(at - s)) / (2 * s.sum()) for s in steps]
    np.testing.assert_allclose(gradient, 0, atol=1e-5)
    hessian = [
        [
            (loss(at + s + t) - loss(at + s - t) - loss(at - s + t) + loss(at - s - t)) / (4 * s.sum() * t.sum())
            for t in steps
        ]
        for s in steps
    ]
    np.testing.assert_allclose(100 * np.array(hessian) @ found.covariance, np.eye(size), atol=2e-3)
    low, high = found.laplace_intervals(0.95).T
    np.testing.assert_allclose((high - low) / 2, 1.959964 * np.sqrt(np.diag(found.covariance)), rtol=1e-6)
    np.testing.assert_allclose((high + low) / 2, at)


@settings(max_examples=40)
@given(seed=st.integers(0, 1000), intercept=st.booleans())
def test_counts_are_repeated_rows_and_a_start_changes_nothing(seed: int, intercept: bool) -> None:
    features, targets = rows(seed, 40, 3)
    counts = np.random.default_rng(seed).integers(0, 4, size=40)
    counts[:2] = 1
    found = fit_logistic(features, targets, 1e-2, intercept=intercept, counts=counts)
    same(
        found, fit_logistic(np.repeat(features, counts, axis=0), np.repeat(targets, counts), 1e-2, intercept=intercept)
    )
    start = fit_logistic(features, targets, 1e-2, intercept=intercept)
    same(found, fit_logistic(features, targets, 1e-2, intercept=intercept, counts=counts, start=start))


def test_units_do_not_matter_but_for_the_penalty() -> None:
    """Without a penalty to speak of, a feature in another unit gets the weight that makes up for it."""
    features, targets = rows(2, 300, 3)
    unit = np.array([1e3, 1.0, 1e-2])
    found, other = fit_logistic(features, targets, 1e-12), fit_logistic(features * unit, targets, 1e-12)
    np.testing.assert_allclose(other.weights * unit, found.weights, rtol=1e-4)


def test_targets_that_are_separated_have_a_fit_and_a_constant_feature_gets_no_weight() -> None:
    features = np.column_stack((np.arange(20.0), np.full(20, 7.0)))
    found = fit_logistic(features, (features[:, 0] > 9).astype(float), 1e-4)
    assert found.weights[0] > 1 and found.gradient_norm < 1e-8
    assert found.weights[1] == pytest.approx(0, abs=1e-8)


@pytest.mark.parametrize(
    ("features", "targets", "penalty", "counts", "reason"),
    [
        (np.zeros(3), np.zeros(3), 1.0, None, "features must be"),
        (np.zeros((3, 2)), np.zeros(2), 1.0, None, "features must be"),
        (np.zeros((0, 2)), np.zeros(0), 1.0, None, "features must be"),
        (np.full((2, 1), np.nan), np.array([0.0, 1.0]), 1.0, None, "finite"),
        (np.zeros((2, 1)), np.array([0.0, 2.0]), 1.0, None, "0 or 1"),
        (np.zeros((2, 1)), np.array([0.0, 1.0]), 0.0, None, "penalty"),
        (np.zeros((2, 1)), np.ones(2), 1.0, None, "both 0 and 1"),
        (np.zeros((2, 1)), np.array([0.0, 1.0]), 1.0, np.array([1.0, 0.0]), "both 0 and 1"),
        (np.zeros((2, 1)), np.array([0.0, 1.0]), 1.0, np.array([1.0, -1.0]), "counts"),
        (np.zeros((2, 1)), np.array([0.0, 1.0]), 1.0, np.ones(3), "counts"),
    ],
)
def test_bad_rows_are_refused(
    features: np.ndarray, targets: np.ndarray, penalty: float, counts: np.ndarray | None, reason: str
) -> None:
    with pytest.raises(ValueError, match=reason):
        fit_logistic(features, targets, penalty, counts=counts)


@settings(max_examples=40)
@given(seed=st.integers(0, 1000), ties=st.booleans())
def test_the_figures_are_scikit_learns(seed: int, ties: bool) -> None:
    rng = np.random.default_rng(seed)
    scores = rng.integers(0, 4, size=40).astype(float) if ties else rng.normal(size=40)
    targets = np.append(rng.integers(0, 2, size=38), (0, 1)).astype(float)
    assert auroc(scores, targets) == pytest.approx(roc_auc_score(targets, scores), abs=1e-12)
    assert log_loss(scores, targets) == pytest.approx(sklearn_log_loss(targets, expit(scores)), abs=1e-9)


def test_auroc_of_one_kind_is_not_a_number() -> None:
    assert np.isnan(auroc(np.zeros(3), np.ones(3)))


# --- the full posterior ----------------------------------------------------------------------------------------------


def test_nuts_agrees_with_the_posterior_by_quadrature_where_laplace_is_far_off() -> None:
    """12 rows of target 1 and one weight: the posterior is skewed, so that its mean is no mode."""
    features, targets, penalty = np.linspace(0.2, 2, 12)[:, None], np.ones(12), 0.005
    fit = fit_logistic(features, targets, penalty, intercept=False)
    grid = np.linspace(-5, 25, 4001)
    logits = features * grid
    log_density = -(np.logaddexp(0, np.where(targets[:, None] == 1, -logits, logits)).sum(0)) - 12 * penalty * grid**2
    density = np.exp(log_density - log_density.max())
    density /= trapezoid(density, grid)
    mean = trapezoid(density * grid, grid)
    deviation = np.sqrt(trapezoid(density * (grid - mean) ** 2, grid))
    found = sample_logistic(features, targets, fit, penalty, draws=250, warmup=60, chains=2, seed=1)
    error = deviation / np.sqrt(found.effective_sample_size[0])
    assert mean - fit.weights[0] > 3.5 * error, "Laplace's mean would be told from the right one"
    assert abs(found.mean[0] - mean) < 3.5 * error
    assert found.standard_deviation[0] == pytest.approx(deviation, rel=0.2)
    assert found.divergences == 0 and found.r_hat[0] < 1.05


def test_nuts_agrees_with_laplace_where_there_are_many_rows_and_leaves_the_random_stream() -> None:
    rng = np.random.default_rng(3)
    features = rng.normal(size=(1500, 3)) * [0.1, 1, 10]
    targets = (rng.uniform(size=1500) < expit(features @ [3, -0.5, 0.02] + 0.5)).astype(float)
    fit = fit_logistic(features, targets, 1e-3)
    torch.manual_seed(5)
    before = torch.get_rng_state()
    found = sample_logistic(features, targets, fit, 1e-3, draws=150, warmup=40, chains=2)
    assert torch.equal(torch.get_rng_state(), before)
    deviation = np.sqrt(np.diag(fit.covariance))
    assert found.draws.shape == (2, 150, 4) and found.divergences == 0
    assert (np.abs(found.mean - fit.coefficients) / deviation).max() < 0.3
    np.testing.assert_allclose(found.standard_deviation / deviation, 1, atol=0.2)
    np.testing.assert_allclose(found.intervals(), fit.laplace_intervals(), atol=0.5 * deviation.max(), rtol=0.1)
    assert found.r_hat.max() < 1.05
    again = sample_logistic(features, targets, fit, 1e-3, draws=4, warmup=1, chains=1, seed=3)
    assert np.array_equal(
        again.draws, sample_logistic(features, targets, fit, 1e-3, draws=4, warmup=1, chains=1, seed=3).draws
    )
    with pytest.raises(ValueError, match="draws"):
        sample_logistic(features, targets, fit, 1e-3, draws=3)
