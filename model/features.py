"""Diagnostic features of positions and gaps, from what one forward pass predicts.

A position's seven features (paper, eq. diagnostic_features) are entropy H, remask frequency R, oscillation
Omega, Jensen-Shannon divergence between successive passes, hidden jump Delta s, confidence F and margin G.
A gap's four (eq. gap_features) are the instability on its left and right, their absolute difference and
the Jensen-Shannon divergence of the two positions' first distributions.

Knows no language model: logits and hidden states come in as tensors, on any device; nothing is read back.
"""

from __future__ import annotations

import math
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
    margin: Tensor
    top: Tensor  # most probable token


class Summary(NamedTuple):
    """Entropy (...) in nats, and margin (...): log p1 - log p2 of the two largest probabilities."""

    entropy: Tensor
    margin: Tensor


def summarise(logits: Tensor, probability: Tensor, top: Tensor) -> Summary:
    """Entropy and margin of logits (..., V), whose softmax and most probable tokens (...) are known.

    With d the logits' distance to the largest, H = -log p1 - sum p d.
    """
    place = top[..., None]
    distance = logits - logits.gather(-1, place)
    margin = -distance.scatter_(-1, place, -torch.inf).amax(-1)
    first = probability.gather(-1, place)[..., 0]
    return Summary(-first.log() - _dot(probability, distance.scatter_(-1, place, 0.0)), margin)


def predict(logits: Tensor) -> Prediction:
    """Normalise logits (..., V) and summarise them; a token with logit -inf takes no part.

    Entropy in nats; margin is the difference of the two largest log probabilities.
    """
    logits = logits.float()
    log_probability, top = logits.log_softmax(-1), logits.argmax(-1)
    return Prediction(log_probability, *summarise(logits, log_probability.exp(), top), top)


def jensen_shannon(log_p: Tensor, log_q: Tensor) -> Tensor:
    """Jensen-Shannon divergence in nats (0 to log 2) of distributions given as log probabilities (..., V)."""
    p, q = log_p.exp(), log_q.exp()
    return jensen_shannon_from(p, -_dot(p, log_p.clone()), q, -_dot(q, log_q.clone()))


def jensen_shannon_from(p: Tensor, entropy_p: Tensor, q: Tensor, entropy_q: Tensor) -> Tensor:
    """Jensen-Shannon divergence (...) in nats of probabilities p and q (..., V) whose entropies (...) are known.

    JSD = H((p + q)/2) - (H(p) + H(q)) / 2, where H(s / 2) = log 2 - (sum s log s) / 2 as s = p + q sums to 2: a sweep
    over the vocabulary.
    """
    both = p + q
    return torch.rsub(_dot(both, both.log()).add_(entropy_p).add_(entropy_q), math.log(2), alpha=0.5).clamp_(0.0)


def _dot(probability: Tensor, logarithm: Tensor) -> Tensor:
    """sum p l over the last axis, 0 where p is 0 and l is -inf; a NaN stays one. Overwrites the logarithm."""
    # many times as fast as torch.special.entr and torch.xlogy
    return logarithm.clamp_(min=torch.finfo(logarithm.dtype).min).mul_(probability).sum(-1)


def hidden_jump(hidden: Tensor) -> Tensor:
    """Mean absolute difference of each hidden state to the one before: (..., n+1, d) gives (..., n)."""
    return (hidden[..., 1:, :] - hidden[..., :-1, :]).float().abs_().mean(-1)


def gap_features(instability: Tensor, divergence: Tensor) -> Tensor:
    """psi (L-1, 4) from instability h (L,) and the gaps' divergences (L-1,)."""
    left, right = instability[:-1], instability[1:]
    return torch.stack((left, right, (left - right).abs(), divergence), dim=-1)
