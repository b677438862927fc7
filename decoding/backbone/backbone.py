"""What decoding needs to know of a language model: token ids in, hidden states and logits out.

A backbone is a network that attends in both directions, with a tokenizer and the ids of its mask and end tokens.
Some models (Dream, the embedded one) read the prediction of position i from the output at i-1: they are `shifted`.
Knows nothing of files and checkpoint formats.

Shapes: R rows, T positions, d hidden units, V tokens of the vocabulary.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from dystruct.model import EvidenceWeights

from ..errors import UserError

if TYPE_CHECKING:
    from .prefix import PrefixCache

# Base models that were made from a chat model's tokenizer carry a template that they never learnt.
_BASE_MODEL = re.compile(r"-base(-\d+b)?$", re.IGNORECASE)


@dataclass(frozen=True)
class Backbone:
    """A loaded model with all that decoding needs to know of it. Made by `load`, or by hand around one's own network.

    network: a transformers model with a head over the vocabulary, or what has of it what is used here: `base_model`,
    called with input_ids (R, T), attention_mask and use_cache=False, attending in both directions, whose output has
    last_hidden_state (R, T, d); get_output_embeddings(), which makes logits of that and has a `weight` (V, d);
    get_input_embeddings(), whose weight tells the device; `dtype`. attention_mask is None where all is valid; else as
    many ones and zeros (R, T), or, if `network.config` names sdpa or eager attention, what these add or mask (R, 1, T,
    T). With a prefix cache position_ids and transformers' past_key_values come on top.
    end_ids: every token that ends a text, eos_id among them; a chat model also ends its turn with one of its own.
    compiled: whether torch.compile makes the forward pass; not that of a prefix cache, whose shapes change too often.
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
    compiled: bool = False

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

    def hidden(
        self,
        ids: Tensor,
        valid: Tensor | None = None,
        *,
        positions: Tensor | None = None,
        cache: PrefixCache | None = None,
    ) -> Tensor:
        """Hidden states (R, T, d) that enter the output projection, for right-padded ids (R, T).

        valid: true where there is something to attend to, (R, T), or with a cache (R, positions in view); None where
        that is so everywhere. positions (R, T): of the ids, 0 to T unless given. cache: where keys and values go, and
        come from (see there).
        """
        options: dict[str, Any] = {}
        if positions is not None:
            options["position_ids"] = positions
        if cache is not None:
            options[self._cache_argument] = cache.layers
        run = self.network.base_model if cache is not None else self._base
        if self.compiled:
            ids = ids.clone(memory_format=torch.contiguous_format)  # a part of a wider one wants a program of its own
        output = run(
            input_ids=ids, attention_mask=self._mask(valid, ids.shape[1]), use_cache=cache is not None, **options
        )
        return output.last_hidden_state.to(self.device)  # a model spread over devices ends on another one

    def _mask(self, valid: Tensor | None, queries: int) -> Tensor | None:
        """The attention mask in the form that the network asks nothing of: transformers would read one (R, T) back."""
        if valid is None:
            return None
        kind = self._attention
        if kind not in ("sdpa", "eager"):
            return valid.long()
        mask = valid[:, None, None, :]
        if kind == "eager":
            dtype = self.network.dtype
            mask = torch.zeros(mask.shape, dtype=dtype, device=mask.device).masked_fill(~mask, torch.finfo(dtype).min)
        return mask.expand(-1, -1, queries, -1)

    @cached_property
    def _base(self) -> Any:
        # dynamic: one program for all lengths, where a program for each bucket of lengths would run its padding too
        return torch.compile(self.network.base_model, dynamic=True) if self.compiled else self.network.base_model

    @torch.inference_mode()
    def warm_up(self) -> None:
        """Compile the forward pass, alone and in a batch of uneven rows. Raises UserError where that fails."""
        try:
            for rows, length in ((1, 9), (2, 12)):
                ids = torch.full((rows, length), self.mask_id, device=self.device)
                self.hidden(ids)
            self.hidden(ids, torch.arange(length, device=self.device) < torch.tensor([[length], [7]]).to(self.device))
        except Exception as error:  # of the compiler, of what it calls
            raise UserError(
                f"Model {self.name!r} cannot be compiled here ({first_line(error)}); install a C++ compiler, or leave "
                f"out compiled=True (--compiled)."
            ) from error

    @cached_property
    def _cache_argument(self) -> str:
        # transformers has renamed it, and warns of the old name
        parameters = inspect.signature(self.network.base_model.forward).parameters
        return "cache" if "cache" in parameters else "past_key_values"

    @cached_property
    def _attention(self) -> str | None:
        """transformers' name of the attention, for a network all of whose layers attend to everything; else None."""
        config = getattr(self.network, "config", None)
        if not set(getattr(config, "layer_types", None) or ["full_attention"]) <= {"full_attention"}:
            return None
        return getattr(config, "_attn_implementation", None)

    def prefix_cache(self, slots: int, capacity: int) -> PrefixCache:
        """Room for the keys and values of slots of so many positions. Raises UserError if the network keeps none."""
        from .prefix import PrefixCache

        if self.compiled:
            raise UserError(
                "compiled (--compiled) has no use with a prefix cache, whose passes are not compiled; leave one out."
            )
        if self._attention not in ("sdpa", "eager"):
            raise UserError(
                f"Model {self.name!r} can keep no keys and values of a prefix: that takes a decoder network with full "
                f"attention, computed by sdpa or eager; leave the prefix cache out."
            )
        return PrefixCache(self.network.config.num_hidden_layers, slots, capacity)

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
                f"Model {self.name!r} has no chat template, so it knows no users' turns; leave out --chat (or "
                f"chat=True), or give an Instruct model."
            )
        if _BASE_MODEL.search(Path(self.name).name):
            raise UserError(
                f"Model {self.name!r} is a base model, which has not learnt to take turns; leave out --chat (or "
                f"chat=True), or give the Instruct model."
            )
        turns = [{"role": "user", "content": prompt}]
        try:
            return str(self.tokenizer.apply_chat_template(turns, add_generation_prompt=True, tokenize=False))
        except Exception as error:  # the template is a program that came with the model
            raise UserError(
                f"The chat template of model {self.name!r} fails ({first_line(error).rstrip('.')}); correct it, or "
                f"leave out --chat (or chat=True)."
            ) from error


def first_line(error: BaseException) -> str:
    """The beginning of what a library's error says."""
    return str(error).strip().split("\n")[0][:200] or type(error).__name__
