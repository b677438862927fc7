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


class Summary(NamedTuple):
    """A distribution (..., V), its entropy (...) in nats, and its margin (...): log p1 - log p2 of the two largest."""

    probability: Tensor
    entropy: Tensor
    margin: Tensor


def summarise(log_probability: Tensor, top: Tensor) -> Summary:
    """Probabilities, entropy and margin of log distributions (..., V) whose most probable tokens are top (...)."""
    probability = log_probability.exp()
    first = log_probability.gather(-1, top[..., None])
    second = log_probability.scatter(-1, top[..., None], -torch.inf).amax(-1)
    return Summary(probability, _entropy(probability, log_probability), first[..., 0] - second)


def predict(logits: Tensor) -> Prediction:
    """Normalise logits (..., V) and summarise them; a token with logit -inf takes no part.

    Entropy in nats; margin is the difference of the two largest log probabilities.
    """
    log_probability = torch.log_softmax(logits.float(), dim=-1)
    top = log_probability.argmax(-1)
    _, entropy, margin = summarise(log_probability, top)
    return Prediction(log_probability, entropy, top, margin)


def jensen_shannon(log_p: Tensor, log_q: Tensor) -> Tensor:
    """Jensen-Shannon divergence in nats (0 to log 2) of distributions given as log probabilities (..., V)."""
    p, q = log_p.exp(), log_q.exp()
    return jensen_shannon_from(p, _entropy(p, log_p), q, _entropy(q, log_q))


def jensen_shannon_from(p: Tensor, entropy_p: Tensor, q: Tensor, entropy_q: Tensor) -> Tensor:
    """Jensen-Shannon divergence (...) in nats of probabilities p and q (..., V) whose entropies (...) are known.

    JSD = H((p + q) / 2) - (H(p) + H(q)) / 2: one sweep over the vocabulary.
    """
    middle = (p + q).mul_(0.5)
    return (_entropy(middle, middle.log()) - 0.5 * (entropy_p + entropy_q)).clamp(0.0)


def _entropy(probability: Tensor, log_probability: Tensor) -> Tensor:
    """-sum p log p over the last axis, 0 log 0 being 0; a NaN stays one."""
    # a product with the clamped logarithm, many times as fast as torch.special.entr
    finite = log_probability.clamp(min=torch.finfo(log_probability.dtype).min)
    return finite.mul_(probability).sum(-1).neg_()


def hidden_jump(hidden: Tensor) -> Tensor:
    """Mean absolute difference of each hidden state to the one before: (..., n+1, d) gives (..., n)."""
    return (hidden[..., 1:, :] - hidden[..., :-1, :]).float().abs().mean(-1)


def gap_features(instability: Tensor, divergence: Tensor) -> Tensor:
    """psi (L-1, 4) from instability h (L,) and the gaps' divergences (L-1,)."""
    left, right = instability[:-1], instability[1:]
    return torch.stack((left, right, (left - right).abs(), divergence), dim=-1)
