"""What decoding needs to know of a language model: token ids in, hidden states and logits out.

A backbone is a network that attends in both directions, with a tokenizer and the ids of its mask and end tokens.
Some models (Dream, the embedded one) read the prediction of position i from the output at i-1: they are `shifted`.
Knows nothing of files and checkpoint formats.

Shapes: R rows, T positions, d hidden units, V tokens of the vocabulary.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from dystruct.model import EvidenceWeights

from ..errors import UserError

# Base models that were made from a chat model's tokenizer carry a template that they never learnt.
_BASE_MODEL = re.compile(r"-base(-\d+b)?$", re.IGNORECASE)


@dataclass(frozen=True)
class Backbone:
    """A loaded model with all that decoding needs to know of it. Made by `load`.

    end_ids: every token that ends a text, eos_id among them; a chat model also ends its turn with one of its own.
    """

    name: str
    network: Any  # a transformers ...ForCausalLM, or what has its interface
    tokenizer: Any  # a transformers tokenizer
    mask_id: int
    eos_id: int
    shifted: bool
    max_length: int
    weights: EvidenceWeights
    calibrated: bool
    prompt_format: str = "{prompt}"
    end_ids: frozenset[int] = frozenset()

    def __post_init__(self) -> None:
        object.__setattr__(self, "end_ids", frozenset(self.end_ids) | {self.eos_id})
        for name, token in (("mask", self.mask_id), ("end", self.eos_id), *(("end", end) for end in self.end_ids)):
            if not 0 <= token < self.vocabulary:
                raise UserError(
                    f"The {name} token id {token} of model {self.name!r} is outside its vocabulary of "
                    f"{self.vocabulary} tokens; correct the id in the model's config.json."
                )
        if self.mask_id in self.end_ids:
            raise UserError(
                f"Model {self.name!r} has the same token {self.mask_id} as its mask and its end; correct "
                f"mask_token_id or eos_token_id in its config.json."
            )

    @property
    def vocabulary(self) -> int:
        """V: rows of the output projection."""
        return int(self.network.get_output_embeddings().weight.shape[0])

    @property
    def device(self) -> torch.device:
        """Where the token ids go and the hidden states and logits come from."""
        return self.network.get_input_embeddings().weight.device

    def hidden(self, ids: Tensor, valid: Tensor | None = None) -> Tensor:
        """Hidden states (R, T, d) that enter the output projection, for right-padded ids (R, T).

        valid: (R, T), true where a token is not padding; None when nothing is padded.
        """
        mask = None if valid is None else valid.long()
        output = self.network.base_model(input_ids=ids, attention_mask=mask, use_cache=False)
        return output.last_hidden_state.to(self.device)  # a model spread over devices ends on another one

    def logits(self, hidden: Tensor, *, mask_predictable: bool = False) -> Tensor:
        """Float32 logits (..., V) of hidden states (..., d); the mask is never predicted (R15) unless allowed."""
        logits = self.network.get_output_embeddings()(hidden).to(self.device).float()
        if not mask_predictable:
            logits[..., self.mask_id] = -torch.inf
        return logits

    def text_length(self, tokens: Sequence[int]) -> int:
        """How many tokens come before the first one that ends the text; all of them, where none does (R14)."""
        return next((place for place, token in enumerate(tokens) if token in self.end_ids), len(tokens))

    def encode(self, prompt: str, *, chat: bool = False) -> list[int]:
        """Token ids of a prompt in the model's prompt format (whose ending is not added twice).

        chat: as a user's turn in the model's chat template instead; UserError if it is a base model.
        """
        if chat:
            text = self._as_turn(prompt)
        else:
            head, tail = self.prompt_format.split("{prompt}")
            text = head + prompt + ("" if tail and prompt.endswith(tail) else tail)
        return list(self.tokenizer(text, add_special_tokens=False)["input_ids"])

    def decode(self, ids: list[int] | tuple[int, ...]) -> str:
        """The text of token ids."""
        return str(self.tokenizer.decode(list(ids), skip_special_tokens=True, clean_up_tokenization_spaces=False))

    def token_text(self, token: int) -> str:
        """The text of one token; special tokens by their name."""
        return str(self.tokenizer.decode([token], skip_special_tokens=False, clean_up_tokenization_spaces=False))

    def _as_turn(self, prompt: str) -> str:
        if not getattr(self.tokenizer, "chat_template", None):
            raise UserError(
                f"Model {self.name!r} has no chat template, so it cannot chat; leave chat out, or give an Instruct "
                f"model."
            )
        if _BASE_MODEL.search(Path(self.name).name):
            raise UserError(
                f"Model {self.name!r} is a base model, which has not learnt to chat; leave chat out, or give the "
                f"Instruct model."
            )
        turns = [{"role": "user", "content": prompt}]
        try:
            return str(self.tokenizer.apply_chat_template(turns, add_generation_prompt=True, tokenize=False))
        except Exception as error:  # the template is a program that came with the model
            raise UserError(
                f"The chat template of model {self.name!r} fails ({first_line(error)}); correct it, or leave chat out."
            ) from error


def first_line(error: BaseException) -> str:
    """The beginning of what a library's error says."""
    return str(error).strip().split("\n")[0][:200] or type(error).__name__
