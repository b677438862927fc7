"""What the benchmarks decode: word problems with the embedded model, and random networks of any shape."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from dystruct.model import EvidenceWeights

from ..backbone import Backbone, load
from ..dystruct import DyStruct

# A draw from the posterior, with passes in proportion to length and instability: all parts of the method have work.
DECODER = DyStruct(structure="sample", passes="share")


def embedded() -> tuple[Backbone, list[str]]:
    """The embedded model and 16 word problems of different lengths for it."""
    names = ("Mia", "Noah", "Emma", "Liam")
    more = (
        "", " Each box holds 6 pens.", " On Monday it rains, so nothing is sold.",
        " Her brother has 3 times as many as she has, and gives none of them away.",
    )  # fmt: skip
    questions = [
        f"{name} has {7 + 3 * k} pens and buys {2 + k} boxes of 6 pens.{extra} How many pens does {name} have now?"
        for k, name in enumerate(names)
        for extra in more
    ]
    return load("tiny"), questions


@dataclass(frozen=True)
class Numerals:
    """A tokenizer of one number a token."""

    size: int

    def __call__(self, text: str, add_special_tokens: bool) -> dict[str, list[int]]:
        return {"input_ids": [int(number) for number in text.split()]}

    def decode(self, ids: Sequence[int], **options: Any) -> str:
        """The numbers with spaces between them."""
        return " ".join(map(str, ids))


def random_model(
    *,
    vocabulary: int = 2048,
    hidden: int = 192,
    inner: int = 512,
    layers: int = 6,
    heads: int = 6,
    key_heads: int | None = None,
    length: int = 8192,
    device: str = "cpu",
    dtype: torch.dtype = torch.float32,
) -> Backbone:
    """A Llama that attends in both directions, as LLaDA's network is, with random weights; it never ends a text."""
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=vocabulary, hidden_size=hidden, intermediate_size=inner, num_hidden_layers=layers,
        num_attention_heads=heads, num_key_value_heads=key_heads or heads, max_position_embeddings=length,
        is_causal=False, tie_word_embeddings=False, bos_token_id=None, eos_token_id=None, pad_token_id=None,
        dtype=dtype,
    )  # fmt: skip
    with torch.device("meta"):
        network = LlamaForCausalLM(config).to(dtype)
    network = network.to_empty(device=device).eval()
    generator = torch.Generator(device).manual_seed(0)
    with torch.no_grad():
        for name, weight in network.named_parameters():
            if weight.dim() > 1:
                weight.normal_(0, 0.3 if name == "lm_head.weight" else weight.shape[1] ** -0.5, generator=generator)
            else:
                weight.fill_(1)
        network.lm_head.weight[0] = 0  # the end token
        network.model.rotary_emb = type(network.model.rotary_emb)(config).to(device)  # its buffers are no weights
    return Backbone(
        name="random", network=network, tokenizer=Numerals(vocabulary), mask_id=1, eos_id=0, shifted=False,
        max_length=length, weights=EvidenceWeights.neutral(), calibrated=True,
    )  # fmt: skip


def random_prompt(model: Backbone, tokens: int, number: int = 0) -> str:
    """A prompt of so many tokens for a random model."""
    generator = torch.Generator().manual_seed(number)
    return " ".join(map(str, torch.randint(2, model.vocabulary, (tokens,), generator=generator).tolist()))
