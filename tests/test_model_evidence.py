"""Evidence: instability, edge logits and the mean instability of a finished window."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

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
    weights = EvidenceWeights(position, draw(numbers), gap, draw(numbers))
    return phi, divergence, weights


@given(windows())
def test_diagnose_is_the_formula(window: tuple[list[list[float]], list[float], EvidenceWeights]) -> None:
    phi, divergence, weights = window
    found = diagnose(phi, divergence, weights)
    w, w_b = weights.position.tolist(), weights.gap.tolist()
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


# --- the neutral default ----------------------------------------------------------------------------------------------

nats = st.floats(0, 20)


def features_of(entropy: list[float], margin: list[float]) -> Tensor:
    """phi (L, 7) of which only entropy and margin are not 0."""
    phi = torch.zeros(len(entropy), 7, dtype=torch.float64)
    phi[:, POSITION_FEATURES.index("entropy")] = torch.tensor(entropy, dtype=torch.float64)
    phi[:, POSITION_FEATURES.index("margin")] = torch.tensor(margin, dtype=torch.float64)
    return phi


def neutral_probability(entropy: float, margin: float) -> float:
    return mean_instability(features_of([entropy], [margin]), EvidenceWeights.neutral())


def test_neutral_instability_is_of_standardised_entropy_and_margin() -> None:
    assert neutral_probability(0.6, 6) == pytest.approx(0.5)
    for entropy, margin in ((1.4, 6), (0.6, 1)):  # each a scale from its centre, to the unstable side
        assert neutral_probability(entropy, margin) == pytest.approx(sigmoid(1))
    assert neutral_probability(1.4, 11) == pytest.approx(0.5)
    typical = diagnose(features_of([0.6] * 3, [6.0] * 3), [0.0] * 2, EvidenceWeights.neutral())
    assert typical.instability.tolist() == pytest.approx([0.5] * 3)


@given(nats, nats, nats, nats)
def test_neutral_instability_rises_with_entropy_and_falls_with_margin(a: float, b: float, c: float, d: float) -> None:
    (low, high), (narrow, wide) = sorted((a, b)), sorted((c, d))
    assert neutral_probability(low, wide) <= neutral_probability(high, narrow)
    within = diagnose(features_of([low, high], [wide, narrow]), [0.0], EvidenceWeights.neutral()).instability
    assert within[0] <= within[1]
    if high - low > 1e-3 or wide - narrow > 1e-3:
        assert neutral_probability(low, wide) < neutral_probability(high, narrow) and within[0] < within[1]


def test_neutral_instability_seldom_saturates_where_predictions_are_a_language_models() -> None:
    """Windows of predictions whose margins are as wide and as varied as measured; entropy computed from probabilities.

    Behind the predicted token each one is half as likely as the one before.
    """
    generator = torch.Generator().manual_seed(0)
    plain = dataclasses.replace(EvidenceWeights.neutral(), position=features_of([1.0], [-1.0])[0])
    h: dict[str, list[float]] = {"standardised": [], "plain": []}
    for _ in range(60):
        margin = torch.empty(28, dtype=torch.float64).exponential_(1 / 6, generator=generator).clamp(max=20)
        others = -math.log(2) * torch.arange(30, dtype=torch.float64).expand(28, -1)
        log_p = torch.cat((margin[:, None], others), dim=-1).log_softmax(-1)
        phi = features_of((-(log_p.exp() * log_p).sum(-1)).tolist(), margin.tolist())
        for name, weights in (("standardised", EvidenceWeights.neutral()), ("plain", plain)):
            h[name] += diagnose(phi, [0.0] * 27, weights).instability.tolist()
    outside = {name: np.mean([not 0.05 < x < 0.95 for x in values]) for name, values in h.items()}
    assert outside["standardised"] < 0.1 < 0.4 < outside["plain"]


def test_neutral_edges() -> None:
    weights = EvidenceWeights.neutral()
    assert weights.gap_base_rate is None
    gap = dict(zip(GAP_FEATURES, weights.gap.tolist(), strict=True))
    assert gap == {
        "instability_left": 0.0,
        "instability_right": 0.0,
        "instability_difference": 2.0,
        "divergence": 2.0,
    }
    featureless = diagnose(torch.zeros(2, 7), torch.zeros(1), weights)
    assert torch.sigmoid(featureless.edge_logit).item() == pytest.approx(0.12, abs=0.005)


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=7, max_size=7))
def test_numbers_in_lists_and_arrays_keep_every_digit(values: list[float]) -> None:
    neutral = EvidenceWeights.neutral()
    for given_as in (values, tuple(values), np.array(values), torch.tensor(values, dtype=torch.float64)):
        assert dataclasses.replace(neutral, position=given_as).position.tolist() == values
    single = torch.tensor(values).clamp(-1e30, 1e30)  # float32 comes as what it is
    assert dataclasses.replace(neutral, position=single).position.tolist() == single.tolist()


def test_diagnostics_take_lists_arrays_and_tensors_and_keep_float64() -> None:
    h, ell = [0.25, 0.5, 0.75], [-1.0, 2.0]
    kept = Diagnostics(instability=h, edge_logit=ell)
    for build in (np.array, torch.tensor, lambda values: torch.tensor(values, requires_grad=True)):
        other = Diagnostics(build(h), build(ell))
        assert other.instability.dtype == other.edge_logit.dtype == torch.float64
        assert not other.edge_logit.requires_grad
        assert torch.equal(other.instability, kept.instability) and torch.equal(other.edge_logit, kept.edge_logit)
    assert Diagnostics(instability=[0.5], edge_logit=[]).length == 1


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
        Diagnostics(**{**good, **changed})


@pytest.mark.parametrize("make", [torch.tensor, np.array])
def test_a_buffer_that_is_filled_again_changes_nothing(make: Any) -> None:
    h, logit, weights = make([0.5, 0.5]), make([1.0]), make([1.0] * 7)
    if isinstance(h, torch.Tensor):
        h, logit, weights = h.double(), logit.double(), weights.double()
    seen, made = Diagnostics(h, logit), EvidenceWeights(weights, 0.0, weights[:4], 0.0)
    for buffer in (h, logit, weights):
        buffer[:] = 0.0
    assert (seen.instability.tolist(), seen.edge_logit.tolist()) == ([0.5, 0.5], [1.0])
    assert made.position.tolist() == [1.0] * 7 and made.gap.tolist() == [1.0] * 4


def test_bad_weights_rules_and_features_are_refused() -> None:
    neutral = EvidenceWeights.neutral()
    with pytest.raises(ValueError, match="position must have shape"):
        dataclasses.replace(neutral, position=torch.zeros(6))
    with pytest.raises(ValueError, match="gap_intercept must be finite"):
        dataclasses.replace(neutral, gap_intercept=float("nan"))
    with pytest.raises(ValueError, match="rule must be"):
        mean_instability(torch.zeros(2, 7), neutral, "median")
    with pytest.raises(ValueError, match="position_features is empty"):
        mean_instability(torch.zeros(0, 7), neutral)
    with pytest.raises(ValueError, match="gap_divergence must have shape"):
        diagnose(torch.zeros(3, 7), torch.zeros(3), neutral)
