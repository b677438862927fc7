"""Derivatives of the log evidence, against derivatives of its definition, finite differences and Fisher's identity."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from dystruct.inference import SemiMarkov
from oracles import all_cuts


def window(length: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(length)
    edge_logit = 1.5 * torch.randn(1, length - 1, dtype=torch.float64, generator=generator) - 0.5
    return edge_logit, 0.2 + 3 * torch.rand(1, length - 1, dtype=torch.float64, generator=generator)


def enumerated_log_evidence(edge_logit: Tensor, alpha: Tensor, bias: Tensor) -> Tensor:
    """The definition in torch, for its derivatives: log of the sum over all partitions, of one window's (G,) scores."""
    scores = []
    for cuts in all_cuts(len(edge_logit) + 1):
        run, score = 1, 0.0 * edge_logit.sum()
        for gap, cut in enumerate(cuts):
            a = alpha[gap]
            if cut:
                score = score + edge_logit[gap].sigmoid().log() + (a / (run + a)).log() + bias[gap]
            else:
                score = score + (-edge_logit[gap]).sigmoid().log() + (run / (run + a)).log()
            run = 1 if cut else run + 1
        scores.append(score)
    return torch.stack(scores).logsumexp(0)


@pytest.mark.parametrize("length", [1, 2, 7])
def test_gradients_against_differentiated_enumeration_and_finite_differences(length: int) -> None:
    edge_logit, alpha = window(length)
    bias = 0.3 * edge_logit.sin()
    inputs = [tensor.clone().requires_grad_() for tensor in (edge_logit, alpha, bias)]

    def log_evidence(edge_logit: Tensor, alpha: Tensor, bias: Tensor) -> Tensor:
        return SemiMarkov(edge_logit, alpha, cut_bias=bias).log_evidence

    ours = torch.autograd.grad(log_evidence(*inputs).sum(), inputs)
    theirs = torch.autograd.grad(enumerated_log_evidence(*(tensor[0] for tensor in inputs)), inputs, allow_unused=True)
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, torch.zeros_like(a) if b is None else b, atol=1e-12, rtol=1e-12)
    assert length == 1 or torch.autograd.gradcheck(log_evidence, inputs)
    torch.testing.assert_close(ours[2], SemiMarkov(edge_logit, alpha, cut_bias=bias).cut_marginals, atol=1e-14, rtol=0)


def test_gradients_stay_right_beside_infinite_scores() -> None:
    edge_logit = torch.tensor([[0.3, math.inf, -0.7, -math.inf, 1.1]], dtype=torch.float64)
    alpha = torch.tensor([[1.0, 2.0, 1e-300, 1e300, 0.5]], dtype=torch.float64)
    inputs = [tensor.clone().requires_grad_() for tensor in (edge_logit, alpha, torch.zeros_like(edge_logit))]
    chain = SemiMarkov(inputs[0], inputs[1], cut_bias=inputs[2])
    chain = chain.condition(forbidden=torch.tensor([[False, False, False, False, True]]))
    ours = torch.autograd.grad(chain.log_evidence.sum(), inputs)
    assert all(bool(gradient.isfinite().all()) for gradient in ours)

    def value(index: int, gap: int, step: float) -> float:
        moved = [tensor.detach().clone() for tensor in inputs]
        moved[index][0, gap] += step
        return float(SemiMarkov(moved[0], moved[1], cut_bias=moved[2], forbidden=chain.forbidden).log_evidence)

    for index, gap in [(0, 0), (0, 2), (0, 4), (1, 0), (1, 1), (1, 4), (2, 0), (2, 1), (2, 2), (2, 4)]:
        slope = (value(index, gap, 1e-4) - value(index, gap, -1e-4)) / 2e-4
        assert float(ours[index][0, gap]) == pytest.approx(slope, abs=1e-6)
    assert ours[0][0, [1, 3]].tolist() == [0.0, 0.0]  # q is certain there: nothing changes
    log_joint = chain.log_joint(chain.map()).sum()
    assert all(bool(gradient.isfinite().all()) for gradient in torch.autograd.grad(log_joint, inputs))


@pytest.mark.parametrize("padding", [0.0, 1.0, 1e-300])
def test_what_lies_beyond_a_window_has_no_gradient(padding: float) -> None:
    edge_logit = torch.tensor([[0.5, -1.0], [0.3, -math.inf]], dtype=torch.float64, requires_grad=True)
    concentration = torch.tensor([[1.0, 2.0], [0.5, padding]], dtype=torch.float64, requires_grad=True)
    chain = SemiMarkov(edge_logit, concentration, torch.tensor([3, 2]))
    cuts = torch.tensor([[True, False], [True, False]])
    for total in (chain.log_joint(cuts).sum(), chain.log_evidence.sum()):
        gradients = torch.autograd.grad(total, (edge_logit, concentration))
        assert all(bool(gradient.isfinite().all()) and gradient[1, 1] == 0 for gradient in gradients)
        assert all(bool((gradient[:, 0] != 0).all()) for gradient in gradients)


def test_log_joint_is_differentiable_and_consistent_with_the_marginals() -> None:
    """Fisher's identity: the posterior mean of the score's gradient is the gradient of the log evidence."""
    edge_logit, alpha = window(6)
    inputs = [tensor.clone().requires_grad_() for tensor in (edge_logit, alpha)]
    chain = SemiMarkov(*inputs)
    every = torch.tensor(all_cuts(6))[:, None]
    expected = (chain.log_prob(every).exp().detach() * chain.log_joint(every)).sum()
    for a, b in zip(
        torch.autograd.grad(expected, inputs), torch.autograd.grad(chain.log_evidence.sum(), inputs), strict=True
    ):
        torch.testing.assert_close(a, b, atol=1e-12, rtol=1e-12)
