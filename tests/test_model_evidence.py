"""Evidence: instability, edge logits and the mean instability of a finished window."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dystruct.model import (
    GAP_FEATURES,
    POSITION_FEATURES,
    Diagnostics,
    EvidenceWeights,
    diagnose,
    mean_instability,
)

numbers = st.floats(-5, 5, allow_nan=False)


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


@st.composite
def windows(draw: st.DrawFn) -> tuple[list[list[float]], list[float], EvidenceWeights]:
    length = draw(st.integers(1, 12))
    phi = draw(st.lists(st.lists(numbers, min_size=7, max_size=7), min_size=length, max_size=length))
    divergence = draw(st.lists(st.floats(0, math.log(2)), min_size=length - 1, max_size=length - 1))
    position = draw(st.lists(numbers, min_size=7, max_size=7))
    gap = draw(st.lists(numbers, min_size=4, max_size=4))
    weights = EvidenceWeights(torch.tensor(position), draw(numbers), torch.tensor(gap), draw(numbers))
    return phi, divergence, weights


@given(windows())
def test_diagnose_is_the_formula(window: tuple[list[list[float]], list[float], EvidenceWeights]) -> None:
    phi, divergence, weights = window
    found = diagnose(phi, divergence, weights)
    w, w_b = weights.position.tolist(), weights.gap.tolist()
    phi = torch.tensor(phi).tolist()  # lists of floats become float32 tensors in torch, here as there
    divergence = torch.tensor(divergence).tolist()
    u = [sum(a * b for a, b in zip(row, w, strict=True)) for row in phi]
    h = [sigmoid(x - sum(u) / len(u)) for x in u]
    assert found.length == len(phi)
    assert found.instability.tolist() == pytest.approx(h, abs=1e-12)
    for g, jsd in enumerate(divergence):
        psi = [h[g], h[g + 1], abs(h[g] - h[g + 1]), jsd]
        ell = sum(a * b for a, b in zip(psi, w_b, strict=True)) + weights.gap_intercept
        assert float(found.edge_logit[g]) == pytest.approx(ell, abs=1e-12)
        assert found.gap_features is not None and found.gap_features[g].tolist() == pytest.approx(psi, abs=1e-12)
    assert found.position_features is not None and found.position_features.tolist() == phi


@given(windows())
def test_mean_instability_is_the_formula(window: tuple[list[list[float]], list[float], EvidenceWeights]) -> None:
    phi, _, weights = window
    features = torch.tensor(phi, dtype=torch.float64)
    w, intercept = weights.position.tolist(), weights.position_intercept
    u = [sum(a * b for a, b in zip(row, w, strict=True)) for row in phi]
    calibrated = sum(sigmoid(x + intercept) for x in u) / len(u)
    centred = sum(sigmoid(x - sum(u) / len(u)) for x in u) / len(u)
    assert mean_instability(features, weights) == pytest.approx(calibrated, abs=1e-12)
    assert mean_instability(features, weights, "centred") == pytest.approx(centred, abs=1e-12)


def test_centred_instability_of_a_mirrored_window_is_one_half_however_unstable_it_is() -> None:
    weights = dataclasses.replace(EvidenceWeights.neutral(), position_intercept=3.0)
    phi = torch.zeros(4, 7, dtype=torch.float64)
    phi[:, POSITION_FEATURES.index("entropy")] = torch.tensor([1.0, 2.0, 3.0, 4.0])
    assert mean_instability(phi, weights, "centred") == pytest.approx(0.5)
    assert mean_instability(phi, weights) > 0.98


def test_neutral_weights_have_the_documented_signs() -> None:
    weights = EvidenceWeights.neutral()
    named = dict(zip(POSITION_FEATURES, weights.position.tolist(), strict=True))
    assert named.pop("entropy") == 1 and named.pop("margin") == -1 and set(named.values()) == {0.0}
    gap = dict(zip(GAP_FEATURES, weights.gap.tolist(), strict=True))
    assert gap == {
        "instability_left": 0.0,
        "instability_right": 0.0,
        "instability_difference": 2.0,
        "divergence": 2.0,
    }
    featureless = diagnose(torch.zeros(2, 7), torch.zeros(1), weights)
    assert torch.sigmoid(featureless.edge_logit).item() == pytest.approx(0.12, abs=0.005)


def test_diagnostics_take_lists_arrays_and_tensors_and_keep_float64() -> None:
    h, ell = [0.25, 0.5, 0.75], [-1.0, 2.0]
    kept = Diagnostics(instability=h, edge_logit=ell)  # type: ignore[arg-type]
    for build in (np.array, torch.tensor, lambda values: torch.tensor(values, requires_grad=True)):
        other = Diagnostics(build(h), build(ell))  # type: ignore[arg-type]
        assert other.instability.dtype == other.edge_logit.dtype == torch.float64
        assert not other.edge_logit.requires_grad
        assert torch.equal(other.instability, kept.instability) and torch.equal(other.edge_logit, kept.edge_logit)
    assert Diagnostics(instability=[0.5], edge_logit=[]).length == 1  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"instability": [0.5, 0.5, 1.5]}, r"instability must lie in \[0, 1\]"),
        ({"instability": [0.5, float("nan"), 0.5]}, "instability must be finite"),
        ({"instability": []}, "instability is empty"),
        ({"instability": [[0.5]]}, r"instability must have shape \(any\), got \(1, 1\)"),
        ({"edge_logit": [0.0]}, r"edge_logit must have shape \(2\), got \(1,\)"),
        ({"edge_logit": [0.0, float("inf")]}, "edge_logit must be finite"),
        ({"position_features": torch.zeros(3, 6)}, r"position_features must have shape \(3, 7\)"),
        ({"gap_features": torch.zeros(3, 4)}, r"gap_features must have shape \(2, 4\)"),
    ],
)
def test_bad_diagnostics_name_the_field(changed: dict[str, object], message: str) -> None:
    good: dict[str, object] = {"instability": [0.5, 0.5, 0.5], "edge_logit": [0.0, 0.0]}
    with pytest.raises(ValueError, match=message):
        Diagnostics(**{**good, **changed})  # type: ignore[arg-type]


def test_bad_weights_rules_and_features_are_refused() -> None:
    neutral = EvidenceWeights.neutral()
    with pytest.raises(ValueError, match="position must have shape"):
        dataclasses.replace(neutral, position=torch.zeros(6))
    with pytest.raises(ValueError, match="gap_intercept must be finite"):
        dataclasses.replace(neutral, gap_intercept=float("nan"))
    with pytest.raises(ValueError, match="rule must be"):
        mean_instability(torch.zeros(2, 7), neutral, "median")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="position_features is empty"):
        mean_instability(torch.zeros(0, 7), neutral)
    with pytest.raises(ValueError, match="gap_divergence must have shape"):
        diagnose(torch.zeros(3, 7), torch.zeros(3), neutral)
