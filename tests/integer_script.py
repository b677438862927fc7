"""A scripted denoiser whose logits are an integer hash, so that they are the same to the last bit on every platform.

The logit of token v at position p of a row is u(row, p, v) · spread · 2^-23, where u is 24 bits of a hash of everything
that the row holds, of p and of v: any change of a token changes the logits everywhere. All of it is exact in
float32.
"""

from __future__ import annotations

import torch
from torch import Tensor

from scripted import EOS, MASK, VOCABULARY, Script

_ODD = 0x9E3779B97F4A7C15 - (1 << 64)
_FIRST = 0xBF58476D1CE4E5B9 - (1 << 64)
_SECOND = 0x94D049BB133111EB - (1 << 64)


def integer_hashed(seed: int, spread: int = 4, end_bonus: float = 0.0, mask_bonus: float = -1024.0) -> Script:
    """Logits from -spread to spread; what is added to those of the end and of the mask token are multiples of 1/4."""

    def script(ids: Tensor, valid: Tensor) -> Tensor:
        places = torch.arange(ids.shape[1])
        row = _mixed(seed + (_mixed(_ODD * (ids + 1) + _mixed(places + 17)) * valid.long()).sum(1))
        tokens = torch.arange(VOCABULARY)
        bits = _mixed(row[:, None, None] + _mixed(places[:, None] * 4099 + tokens))
        logits = (((bits >> 20) & 0xFFFFFF) - (1 << 23)).float() * (spread * 2.0**-23)
        logits[..., EOS] += end_bonus
        logits[..., MASK] += mask_bonus
        return logits

    return script


def _mixed(x: Tensor) -> Tensor:
    x = (x ^ ((x >> 30) & ((1 << 34) - 1))) * _FIRST
    x = (x ^ ((x >> 27) & ((1 << 37) - 1))) * _SECOND
    return x ^ ((x >> 31) & ((1 << 33) - 1))
