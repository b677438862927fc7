"""A scripted denoiser: a real `Backbone` around a network whose logits are a function that a test gives.

A script maps token ids (R, T) and which of them are no padding (R, T) to logits *for* each position (R, T, V). The
hidden state behind a position's prediction is that logit vector itself and the output projection is the identity, so
the hidden jump of position p is the mean absolute difference of the logits for p and for p-1. Under `shifted` the
output at i-1 carries the logits for position i. Outputs that no prediction may use are NaN.

Vocabulary: 0 is the end token, 1 the mask, then the letters a, b, c, …
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dystruct.decoding.backbone import Backbone
from dystruct.model import EvidenceWeights

EOS, MASK, FIRST_LETTER = 0, 1, 2
VOCABULARY = 12
PRIME = 7919

Script = Callable[[Tensor, Tensor], Tensor]


def hashed(seed: int, scale: float = 2.0, end_logit: float | None = None) -> Script:
    """Logits that look random and change at every position as soon as any token of the row does.

    end_logit, where given, is the end token's logit everywhere. The mask token gets the largest logit of all, so a
    decoder that could predict it would.
    """
    values = torch.tensor(np.random.default_rng(seed).normal(size=PRIME) * scale, dtype=torch.float32)

    def script(ids: Tensor, valid: Tensor) -> Tensor:
        places = torch.arange(ids.shape[1], device=ids.device)
        key = ((ids + 3) * (places * places + 7 * places + 11) * valid).sum(1) % PRIME
        tokens = torch.arange(VOCABULARY, device=ids.device)
        where = (key[:, None, None] * 5 + places[:, None] * 131 + tokens * 17) % PRIME
        logits = values.to(ids.device)[where]
        logits[..., MASK] = 9.0
        if end_logit is not None:
            logits[..., EOS] = end_logit
        return logits

    return script


def written(wanted: Callable[[list[int], int], int], sure: Callable[[list[int], int], float] | None = None) -> Script:
    """At each position a chosen token (id), with a chosen lead over the others in nats (1 + position / 100)."""

    def script(ids: Tensor, valid: Tensor) -> Tensor:
        logits = torch.zeros(*ids.shape, VOCABULARY)
        for r, row in enumerate(ids.tolist()):
            known = row[: int(valid[r].sum())]
            for p in range(len(known)):
                lead = sure(known, p) if sure else 1 + p / 100
                logits[r, p, wanted(known, p)] = lead
        return logits

    return script


class Network:
    """What a `Backbone` asks of a transformers model."""

    def __init__(self, script: Script, shifted: bool, device: str = "cpu") -> None:
        self.script, self.shifted = script, shifted
        self.batches: list[int] = []  # rows of each forward call
        self.lengths: list[int] = []  # and its positions
        self.weight = torch.zeros(VOCABULARY, VOCABULARY, device=device)

    def get_input_embeddings(self) -> Any:
        return self

    def get_output_embeddings(self) -> Any:
        return self

    def __call__(self, hidden: Tensor) -> Tensor:
        return hidden.clone()

    def base_model(self, input_ids: Tensor, attention_mask: Tensor | None, use_cache: bool) -> Any:
        self.batches.append(input_ids.shape[0])
        self.lengths.append(input_ids.shape[1])
        valid = torch.ones_like(input_ids) if attention_mask is None else attention_mask
        outputs = self.script(input_ids, valid)
        usable = valid.bool()
        if self.shifted:
            outputs = torch.cat((outputs[:, 1:], outputs[:, :1]), dim=1)
            usable = torch.cat((usable[:, 1:], torch.zeros_like(usable[:, :1])), dim=1)
        return SimpleNamespace(last_hidden_state=torch.where(usable[..., None], outputs, torch.nan))


class Letters:
    """A tokenizer of one letter a token, which drops line ends."""

    def __call__(self, text: str, add_special_tokens: bool) -> dict[str, list[int]]:
        return {"input_ids": [ord(letter) - ord("a") + FIRST_LETTER for letter in text if letter != "\n"]}

    def decode(self, ids: Sequence[int], skip_special_tokens: bool, clean_up_tokenization_spaces: bool) -> str:
        names = {EOS: "" if skip_special_tokens else "<end>", MASK: "" if skip_special_tokens else "<mask>"}
        return "".join(names.get(token, chr(ord("a") + token - FIRST_LETTER)) for token in ids)


def backbone(
    script: Script, *, shifted: bool = False, device: str = "cpu", weights: EvidenceWeights | None = None
) -> Backbone:
    """A `Backbone` that says what the script says."""
    return Backbone(
        name="scripted",
        network=Network(script, shifted, device),
        tokenizer=Letters(),
        mask_id=MASK,
        eos_id=EOS,
        shifted=shifted,
        max_length=512,
        weights=EvidenceWeights.neutral() if weights is None else weights,
        calibrated=True,
    )


def uneven_weights() -> EvidenceWeights:
    """Evidence weights under which every feature counts, and windows get several blocks of different instability."""
    return EvidenceWeights([0.6, 1.1, -0.7, 1.3, 0.2, -1.5, -0.4], -0.3, [1.0, -0.5, 2.0, 2.0], -2.6)
