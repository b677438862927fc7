"""A Hugging Face masked language model behind the interface that a `Backbone` asks of its network.

A masked LM is an encoder and a head of its own kind between the encoder's states and the logits: transforms, norms,
a bias. The head is not known by name here. A copy of the model is made that shares all weights and has the states
themselves in the place of its encoder; so the model's own code runs the head, and only on the positions asked for.
Whether that copy really computes the model's logits, and whether padding leaves the other positions alone, is
checked on a short input when the model is loaded.

Shapes: R rows, T positions, d hidden units, V tokens.
"""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import UserError
from .backbone import first_line


class MaskedNetwork:
    """A transformers ...ForMaskedLM as a network of `base_model` and output projection."""

    def __init__(self, network: Any) -> None:
        self.network = network
        self._head = _Head(network)

    def get_input_embeddings(self) -> Any:
        """The token embedding."""
        return self.network.get_input_embeddings()

    def get_output_embeddings(self) -> _Head:
        """The head, from states (..., T, d) to logits (..., T, V)."""
        return self._head

    def base_model(self, input_ids: Tensor, attention_mask: Tensor | None, use_cache: bool) -> Any:
        """The encoder's output, with its last states (R, T, d); it has no cache to use."""
        del use_cache
        return self.network.base_model(input_ids=input_ids, attention_mask=attention_mask)


class _Head:
    """The model with given states in the place of its encoder."""

    def __init__(self, network: Any) -> None:
        self.weight = network.get_output_embeddings().weight  # (V, ...)
        self._rest = copy.copy(network)
        self._rest._modules = {**network._modules, network.base_model_prefix: _Given(network.base_model)}

    def __call__(self, hidden: Tensor) -> Tensor:
        return self._rest(inputs_embeds=hidden).logits


class _Given(nn.Module):
    """Stands for an encoder: gives back what it is given, and has the encoder's parts, which some heads use."""

    def __init__(self, encoder: nn.Module) -> None:
        super().__init__()
        self.__dict__["encoder"] = encoder

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["encoder"], name)

    def forward(self, *inputs: Any, inputs_embeds: Tensor, **options: Any) -> Any:
        from transformers.modeling_outputs import BaseModelOutput

        return BaseModelOutput(last_hidden_state=inputs_embeds)


@torch.inference_mode()
def adapt(network: Any, mask_id: int, name: str) -> MaskedNetwork:
    """The network behind a `Backbone`'s interface. Raises UserError if it does not fit behind it."""
    try:
        adapted = MaskedNetwork(network)
        ids = (torch.arange(6, device=network.get_input_embeddings().weight.device) * 7 + mask_id + 1)[None]
        ids = ids % adapted.get_output_embeddings().weight.shape[0]
        padded = nn.functional.pad(ids, (0, 3), value=mask_id)
        valid = (torch.arange(9, device=ids.device) < 6)[None].long()
        whole = network(input_ids=ids).logits
        states = adapted.base_model(ids, None, False).last_hidden_state
        beside_padding = adapted.base_model(padded, valid, False).last_hidden_state[:, :6]
        logits = adapted.get_output_embeddings()(states[:, 2:4])
        asked = whole[:, 2:4]
        same = logits.shape == asked.shape and _close(logits, asked)
    except Exception as error:  # an architecture that was never meant to be used like this
        raise UserError(
            f"Masked language model {name!r} of type {network.config.model_type!r} cannot be used "
            f"({first_line(error)}); give one such as bert, roberta or modernbert."
        ) from error
    if not same:
        raise UserError(
            f"Masked language model {name!r} of type {network.config.model_type!r} makes its logits from more than "
            f"its encoder's last states; give one such as bert, roberta or modernbert."
        )
    if not _close(beside_padding, states):
        raise UserError(
            f"Masked language model {name!r} of type {network.config.model_type!r} does not keep padding apart, so a "
            f"batch would change its answers; give one such as bert, roberta or modernbert."
        )
    return adapted


def _close(found: Tensor, wanted: Tensor) -> bool:
    """Equal up to rounding in their dtype, which a leak exceeds by far."""
    tolerance = torch.finfo(wanted.dtype).eps ** 0.5
    difference, size = (found.float() - wanted.float()).norm(), wanted.float().norm()
    return bool(difference <= tolerance * size)
