"""Diagnostic features of positions and gaps, from what one forward pass predicts.

A position's seven features (paper, eq. diagnostic_features) are entropy H, remask frequency R, oscillation
Omega, Jensen-Shannon divergence between successive passes, hidden jump Delta s, confidence F and margin G.
A gap's four (eq. gap_features) are the instability on its left and right, their absolute difference and
the Jensen-Shannon divergence of the two positions' first distributions.

Knows no language model: logits and hidden states come in as tensors, on any device; nothing is read back.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

POSITION_FEATURES = (
    "entropy",
    "remask_frequency",
    "oscillation",
    "divergence",
    "hidden_jump",
    "confidence",
    "margin",
)
GAP_FEATURES = ("instability_left", "instability_right", "instability_difference", "divergence")


class Prediction(NamedTuple):
    """What a pass says of each position: log distribution (..., V) and three figures (...), in nats and probability."""

    log_probability: Tensor
    entropy: Tensor
    top: Tensor  # most probable token
    margin: Tensor


def predict(logits: Tensor) -> Prediction:
    """Normalise logits (..., V) and summarise them; a token with logit -inf takes no part.

    Entropy in nats; margin is the difference of the two largest log probabilities.
    """
    log_probability = torch.log_softmax(logits.float(), dim=-1)
    entropy = torch.special.entr(log_probability.exp()).sum(-1)
    best = log_probability.topk(2, dim=-1)
    return Prediction(log_probability, entropy, best.indices[..., 0], best.values[..., 0] - best.values[..., 1])


def jensen_shannon(log_p: Tensor, log_q: Tensor) -> Tensor:
    """Jensen-Shannon divergence in nats (0 to log 2) of distributions given as log probabilities (..., V)."""
    p, q = log_p.exp(), log_q.exp()
    # JSD = H((p+q)/2) - (H(p) + H(q))/2; entr is 0 at 0, and a NaN stays one
    mixed = torch.special.entr(0.5 * (p + q)) - 0.5 * (torch.special.entr(p) + torch.special.entr(q))
    return mixed.sum(-1).clamp(0.0)


def hidden_jump(hidden: Tensor) -> Tensor:
    """Mean absolute difference of each hidden state to the one before: (..., n+1, d) gives (..., n)."""
    return (hidden[..., 1:, :] - hidden[..., :-1, :]).float().abs().mean(-1)


def gap_features(instability: Tensor, divergence: Tensor) -> Tensor:
    """psi (L-1, 4) from instability h (L,) and the gaps' divergences (L-1,)."""
    left, right = instability[:-1], instability[1:]
    return torch.stack((left, right, (left - right).abs(), divergence), dim=-1)
