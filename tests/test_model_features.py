"""Features: figures of one forward pass against their formulas in plain Python."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dystruct.model import gap_features, hidden_jump, jensen_shannon, predict

logit_rows = st.lists(st.floats(-8, 8, width=32), min_size=2, max_size=12)


def softmax(row: list[float]) -> list[float]:
    total = sum(math.exp(z) for z in row)
    return [math.exp(z) / total for z in row]


def xlogy(x: float, y: float) -> float:
    return x * math.log(y) if x else 0.0


@given(logit_rows)
def test_prediction_is_the_formula(row: list[float]) -> None:
    said = predict(torch.tensor([row]))
    p = softmax(row)
    first, second = sorted(p, reverse=True)[:2]
    assert said.log_probability[0].exp().tolist() == pytest.approx(p, abs=1e-6)
    assert said.entropy.item() == pytest.approx(-sum(xlogy(x, x) for x in p), abs=2e-6)
    assert row[int(said.top)] == max(row)
    assert said.margin.item() == pytest.approx(math.log(first) - math.log(second), abs=4e-6)


@given(st.lists(st.tuples(st.floats(-8, 8, width=32), st.floats(-8, 8, width=32)), min_size=2, max_size=12))
def test_jensen_shannon_is_the_mean_divergence_to_the_middle(pairs: list[tuple[float, float]]) -> None:
    p, q = softmax([a for a, _ in pairs]), softmax([b for _, b in pairs])
    middle = [(a + b) / 2 for a, b in zip(p, q, strict=True)]
    expected = 0.5 * sum(xlogy(a, a / m) + xlogy(b, b / m) for a, b, m in zip(p, q, middle, strict=True))
    log_p = torch.tensor([p], dtype=torch.float32).log()
    log_q = torch.tensor([q], dtype=torch.float32).log()
    found = jensen_shannon(log_p, log_q)
    assert found.item() == pytest.approx(expected, abs=2e-6)
    assert found.item() == pytest.approx(jensen_shannon(log_q, log_p).item(), abs=1e-6)
    assert 0 <= found.item() <= math.log(2) + 1e-6
    assert jensen_shannon(log_p, log_p).item() <= 1e-6


def test_excluded_tokens_take_no_part() -> None:
    row = [1.0, 0.0, -1.0]
    plain = predict(torch.tensor([row]))
    padded = predict(torch.tensor([[*row, -math.inf]]))
    assert padded.entropy.item() == pytest.approx(plain.entropy.item())
    assert padded.margin.item() == pytest.approx(1.0)
    assert jensen_shannon(padded.log_probability, padded.log_probability).item() == pytest.approx(0.0, abs=1e-7)
    disjoint = torch.tensor([[0.0, -math.inf]]), torch.tensor([[-math.inf, 0.0]])
    assert jensen_shannon(*disjoint).item() == pytest.approx(math.log(2))


def test_nan_logits_stay_visible() -> None:
    said = predict(torch.tensor([[0.0, math.nan, 1.0]]))
    assert math.isnan(said.entropy.item())
    assert math.isnan(jensen_shannon(said.log_probability, said.log_probability).item())


def test_hidden_jump_is_the_mean_absolute_difference() -> None:
    hidden = torch.tensor([[[0.0, 1.0], [2.0, 0.0], [2.0, 0.5]]])
    assert hidden_jump(hidden).tolist() == [[1.5, 0.25]]


def test_gap_features_are_left_right_difference_divergence() -> None:
    psi = gap_features(torch.tensor([0.25, 0.75, 0.5]), torch.tensor([0.125, 0.5]))
    assert psi.tolist() == [[0.25, 0.75, 0.5, 0.125], [0.75, 0.5, 0.25, 0.5]]
    assert gap_features(torch.tensor([0.5]), torch.zeros(0)).shape == (0, 4)
