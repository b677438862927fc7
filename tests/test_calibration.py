"""The fit of the evidence weights against scikit-learn's and finite differences, and the rows that it is fitted on."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import expit
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss as sklearn_log_loss
from sklearn.metrics import roc_auc_score

from dystruct.decoding.calibrate import DiagnosedWindow, calibrate, diagnose_answers
from dystruct.decoding.errors import UserError
from dystruct.inference.calibration import auroc, fit_logistic, log_loss
from dystruct.model import PriorConfig, diagnose
from scripted import EOS, FIRST_LETTER, backbone, written


def rows(seed: int, count: int, width: int) -> tuple[np.ndarray, np.ndarray]:
    """Features whose scales differ by orders of magnitude, and targets that depend on them."""
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(count, width)) * 10.0 ** rng.uniform(-2, 2, size=width) + rng.normal(size=width)
    u = (features / features.std(axis=0)) @ rng.normal(size=width) - 0.5
    targets = (rng.uniform(size=count) < expit(u)).astype(float)
    targets[:2] = 0, 1
    return features, targets


@pytest.mark.parametrize("intercept", [True, False])
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
        assert found.intercept == 0.0


def test_the_gradient_vanishes_by_finite_differences() -> None:
    features, targets = rows(5, 100, 4)
    found = fit_logistic(features, targets, 1e-2)

    def loss(w: np.ndarray) -> float:
        return log_loss(features @ w[:-1] + w[-1], targets) + 1e-2 * float(w[:-1] @ w[:-1])

    at = np.append(found.weights, found.intercept)
    for j in range(len(at)):
        step = np.zeros_like(at)
        step[j] = 1e-5 / max(1.0, float(np.abs(features[:, j]).max()) if j < 4 else 1.0)
        assert abs(loss(at + step) - loss(at - step)) / (2 * step[j]) < 1e-4


@pytest.mark.parametrize(
    ("features", "targets", "penalty", "reason"),
    [
        (np.zeros(3), np.zeros(3), 1.0, "features must be"),
        (np.zeros((3, 2)), np.zeros(2), 1.0, "features must be"),
        (np.full((2, 1), np.nan), np.zeros(2), 1.0, "finite"),
        (np.zeros((2, 1)), np.array([0.0, 2.0]), 1.0, "0 or 1"),
        (np.zeros((2, 1)), np.zeros(2), 0.0, "penalty"),
    ],
)
def test_bad_rows_are_refused(features: np.ndarray, targets: np.ndarray, penalty: float, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        fit_logistic(features, targets, penalty)


@given(seed=st.integers(0, 1000), ties=st.booleans())
def test_the_figures_are_scikit_learns(seed: int, ties: bool) -> None:
    rng = np.random.default_rng(seed)
    scores = rng.integers(0, 4, size=40).astype(float) if ties else rng.normal(size=40)
    targets = np.append(rng.integers(0, 2, size=38), (0, 1)).astype(float)
    assert auroc(scores, targets) == pytest.approx(roc_auc_score(targets, scores), abs=1e-12)
    assert log_loss(scores, targets) == pytest.approx(sklearn_log_loss(targets, expit(scores)), abs=1e-9)


def test_auroc_of_one_kind_is_not_a_number() -> None:
    assert np.isnan(auroc(np.zeros(3), np.ones(3)))


ANSWER = "abcdefghab" * 3


def windows(wrong_at: frozenset[int]) -> list[DiagnosedWindow]:
    """Windows along ANSWER of a model that knows it, but for the letters at `wrong_at`; it ends where ANSWER does."""

    def wanted(known: list[int], place: int) -> int:
        place -= 2  # behind the prompt
        if place >= len(ANSWER):
            return EOS
        letter = ord(ANSWER[max(place, 0)]) - ord("a") + FIRST_LETTER
        return letter + 1 if place in wrong_at else letter

    prior = PriorConfig(min_length=5, max_length=9)
    return diagnose_answers(backbone(written(wanted)), ["ab"], [ANSWER], prior=prior, seed=3)


@pytest.mark.parametrize("wrong_at", [frozenset(), frozenset({0}), frozenset({3, 4, 17, 29})])
def test_targets_are_the_places_where_the_prediction_is_not_the_reference(wrong_at: frozenset[int]) -> None:
    found = windows(wrong_at)
    targets = np.concatenate([window.targets for window in found])
    assert set(np.flatnonzero(targets)) == wrong_at
    assert len(targets) >= len(ANSWER) + 1  # the windows go on until the end token
    for window in found:
        assert window.features.shape == (len(window.targets), 7)
        assert window.gap_divergence.shape == (len(window.targets) - 1,)
        assert 1 <= len(window.targets) <= 9


def test_a_tentative_commit_that_is_taken_back_is_a_target() -> None:
    # The first position is the surest while everything is masked, and the least sure once something is shown.
    def wanted(known: list[int], place: int) -> int:
        return EOS if place - 2 >= len(ANSWER) else ord(ANSWER[max(place - 2, 0)]) - ord("a") + FIRST_LETTER

    def sure(known: list[int], place: int) -> float:
        if place == 2:
            return 3.0
        return (6.0 if any(token > 1 for token in known[2:11]) else 1.0) + 0.2 * (place % 9)

    found = diagnose_answers(
        backbone(written(wanted, sure)), ["ab"], [ANSWER], prior=PriorConfig(min_length=9, max_length=9), passes=4
    )
    assert found[0].targets[0] == 1
    assert found[0].targets[1:].sum() == 0


def test_the_same_prompt_twice_is_refused() -> None:
    with pytest.raises(UserError, match="twice"):
        diagnose_answers(backbone(written(lambda known, place: EOS)), ["ab", "ab"], ["a", "b"])


@pytest.mark.parametrize("intercept", [True, False])
def test_calibration_finds_what_makes_errors_and_reports_it(intercept: bool) -> None:
    rng = np.random.default_rng(0)
    made = []
    for problem in range(40):
        features = rng.normal(size=(20, 7))
        targets = (rng.uniform(size=20) < expit(2 * features[:, 0] - 1)).astype(float)
        made.append(DiagnosedWindow(problem, features, rng.uniform(size=19), targets))
    found = calibrate(made, penalty=1e-4, intercept=intercept)
    assert found.weights.position[0] == pytest.approx(2, abs=0.5)
    assert found.weights.position[1:].abs().max() < 0.6
    assert found.weights.position_intercept == pytest.approx(-1, abs=0.5)
    assert (found.weights.gap_intercept == 0) == (not intercept)
    assert found.report["positions"] == 800 and found.report["problems"] == 40 and found.report["windows"] == 40
    assert found.report["held_out"]["auroc"] > 0.75
    assert found.report["held_out"]["auroc_alone"]["margin"] == pytest.approx(0.5, abs=0.1)
    json.dumps(found.report)
    # what it fitted is what decoding computes
    diagnostics = diagnose(made[0].features, made[0].gap_divergence, found.weights)
    u = made[0].features @ found.weights.position.numpy()
    np.testing.assert_allclose(diagnostics.instability.numpy(), expit(u - u.mean()), atol=1e-12)


def test_calibrate_writes_a_file_that_load_reads(tmp_path: Path) -> None:
    pytest.importorskip("reasoning_gym")
    from dystruct.decoding.terminal.cli import main

    target = tmp_path / "weights.json"
    with pytest.raises(SystemExit) as ended:
        main(["calibrate", str(target), "--problems", "4"])
    assert ended.value.code == 0
    from dystruct.decoding import load

    content = json.loads(target.read_text())
    assert content["provenance"]["problems"] == 4 and content["provenance"]["seed"] == 0
    model = load("tiny", weights=target)
    assert model.calibrated and model.weights.gap_intercept == content["gap_intercept"]
