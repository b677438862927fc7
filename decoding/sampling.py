"""From logits to candidate tokens and their confidences, on the device.

By default a candidate is the most probable token (or, at a temperature, argmax(logits / T + Gumbel noise)), its
confidence the untempered softmax probability, and the mask token takes no part (R15). A `Sampling` says what a
decoder does otherwise. Knows no canvas. Shapes: N positions, V tokens.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from dystruct.model import summarise

NOISE_AT_ONCE = 2**23  # numbers: 66 positions of LLaDA's vocabulary


@dataclass(frozen=True)
class Sampling:
    """How a pass turns logits into candidates and confidences.

    guidance: scale s of logits = unconditional + (s + 1) (conditional - unconditional), where the unconditional ones
    come from a second forward pass with the prompt masked; 0 is none. excluded: tokens that are never predicted.
    deferred: tokens without confidence, so that a candidate among them comes last. tempered: confidences are
    taken behind the temperature, top_p and top_k, and these two shape what is drawn. mask_predictable: the mask token
    is a token like any other.
    """

    guidance: float = 0.0
    excluded: tuple[int, ...] = ()
    deferred: tuple[int, ...] = ()
    tempered: bool = False
    top_p: float | None = None
    top_k: int | None = None
    mask_predictable: bool = False

    def __post_init__(self) -> None:
        if not 0 <= self.guidance < math.inf:
            raise ValueError(f"guidance must be 0 or a positive number, got {self.guidance}.")
        if self.top_p is not None and not 0 <= self.top_p <= 1:
            raise ValueError(f"top_p must lie in [0, 1], got {self.top_p}.")
        if self.top_k is not None and self.top_k < 1:
            raise ValueError(f"top_k must be at least 1 token, got {self.top_k}.")
        if not self.tempered and not (self.top_p is None and self.top_k is None):
            raise ValueError("top_p and top_k shape tempered distributions only; give tempered=True with them.")


PLAIN = Sampling()


class Candidates(NamedTuple):
    """Of each position (N,): the candidate, its confidence, the most probable token; logits and softmax (N, V)."""

    token: Tensor
    confidence: Tensor
    top: Tensor
    logits: Tensor
    probability: Tensor


def candidates(
    logits: Tensor, sampling: Sampling, temperature: float, noise: Callable[[slice], Tensor] | None
) -> Candidates:
    """What logits (N, V) predict. noise: standard Gumbel (n, V) for n of the positions; None at temperature 0."""
    if sampling.excluded:
        logits = _without(logits, sampling.excluded)
    if sampling.tempered:
        logits = _filtered(_tempered(logits, temperature), sampling.top_p, sampling.top_k)
        temperature = 1.0
    token = logits.argmax(-1) if noise is None else _drawn(logits, temperature, noise)
    top = token
    if sampling.deferred:
        logits = _without(logits, sampling.deferred)
    if noise is not None or sampling.deferred:
        top = logits.argmax(-1)
    probability = logits.softmax(-1)
    return Candidates(token, probability.gather(-1, token[..., None])[..., 0], top, logits, probability)


def figures(said: Candidates, names: Sequence[str], held: Tensor, mask_id: int) -> list[Tensor]:
    """The named figures (N,) of positions that hold the tokens `held` (N,): see `Figures`."""
    probability, found = said.probability, {"token": said.token, "confidence": said.confidence}
    for name in names:
        if name in ("top", "top_confidence", "margin") and "top" not in found:
            top = probability.topk(2, dim=-1).values.double()
            found |= {"top": said.top, "top_confidence": top[:, 0], "margin": top[:, 0] - top[:, 1]}
        elif name == "entropy":
            found[name] = summarise(said.logits, probability, said.top).entropy
        elif name == "own":
            found[name] = probability.gather(-1, held[:, None])[:, 0]
        elif name in ("unmasked", "unmasked_confidence") and "unmasked" not in found:
            rest = said.logits.clone()
            rest[:, mask_id] = -torch.inf
            confidence, token = rest.softmax(-1).max(-1)
            # 0 where a filter leaves nothing but the mask
            found |= {"unmasked": token, "unmasked_confidence": confidence.nan_to_num()}
    return [found[name] for name in names]


def guided(conditional: Tensor, unconditional: Tensor, scale: float) -> Tensor:
    """Classifier-free guidance of logits (..., V): unconditional + (scale + 1) (conditional - unconditional)."""
    mixed = unconditional + (scale + 1) * (conditional - unconditional)
    return torch.where(conditional.isneginf(), conditional, mixed)


def _without(logits: Tensor, tokens: Sequence[int]) -> Tensor:
    """Logits in which these tokens are impossible, set one by one: a list as an index would be copied to the device."""
    logits = logits.clone()
    for token in tokens:
        logits[..., token] = -torch.inf
    return logits


def _drawn(logits: Tensor, temperature: float, noise: Callable[[slice], Tensor]) -> Tensor:
    """argmax(logits / T + noise) (N,), a part of the positions at a time: noise takes eight times a logit's memory."""
    count = max(1, NOISE_AT_ONCE // logits.shape[-1])
    token = torch.empty(len(logits), dtype=torch.long, device=logits.device)
    for part in (slice(begin, begin + count) for begin in range(0, len(logits), count)):
        token[part] = (_below(logits[part]).double() / temperature + noise(part)).argmax(-1)
    return token


def _below(logits: Tensor) -> Tensor:
    """Logits (N, V) as distances to the largest, so that no temperature makes all of them infinite."""
    return logits - logits.amax(-1, keepdim=True)


def _tempered(logits: Tensor, temperature: float) -> Tensor:
    """Logits (N, V) over a temperature, those that are -inf and the largest ones staying so at any; 0 is none."""
    if not temperature > 0:
        return logits
    return torch.where(logits.isneginf(), logits, (_below(logits).double() / temperature).to(logits.dtype))


def _filtered(logits: Tensor, top_p: float | None, top_k: int | None) -> Tensor:
    """Logits without what is neither in the nucleus of top_p (the token that crosses it stays) nor in the top_k."""
    if top_p is not None:
        ordered, order = logits.sort(dim=-1, descending=True)
        above = ordered.softmax(-1).cumsum(-1) > top_p
        outside = torch.cat((torch.zeros_like(above[..., :1]), above[..., :-1]), dim=-1)
        logits = logits.masked_fill(torch.zeros_like(outside).scatter(-1, order, outside), -torch.inf)
    if top_k is not None:
        least = logits.topk(min(top_k, logits.shape[-1]), dim=-1).values[..., -1:]
        logits = logits.masked_fill(logits < least, -torch.inf)
    return logits
