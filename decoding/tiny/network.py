"""The embedded model's network: transformers' Qwen3, made new, grown from a smaller one, and written as a folder."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from tokenizers import Tokenizer
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

from dystruct.model import EvidenceWeights

from ..backbone import Backbone
from ..errors import UserError
from .batches import PROMPT_FORMAT
from .tokenization import EOS, MASK, special_token


@dataclass(frozen=True)
class Size:
    """What the network is made of; sizes in numbers of channels, layers and tokens."""

    width: int = 192
    layers: int = 8
    intermediate: int = 512
    head: int = 32
    vocabulary: int = 3072


def new_network(size: Size, tokenizer: Tokenizer) -> Qwen3ForCausalLM:
    """A randomly initialised network with tied embeddings, whose logits are shifted by one (Dream's kind)."""
    eos = special_token(tokenizer, EOS)
    settings = Qwen3Config(
        vocab_size=tokenizer.get_vocab_size(),
        hidden_size=size.width,
        intermediate_size=size.intermediate,
        num_hidden_layers=size.layers,
        num_attention_heads=size.width // size.head,
        num_key_value_heads=size.width // size.head,
        head_dim=size.head,
        max_position_embeddings=1024,
        tie_word_embeddings=True,
        use_cache=False,
        eos_token_id=eos,
        pad_token_id=eos,
        bos_token_id=None,
    )
    settings.is_causal = False
    settings.mask_token_id = special_token(tokenizer, MASK)
    settings.shifted_logits = True
    settings.prompt_format = PROMPT_FORMAT
    return Qwen3ForCausalLM(settings)


@torch.no_grad()
def grow(network: Qwen3ForCausalLM, tokenizer: Tokenizer, smaller: Qwen3ForCausalLM, its: Tokenizer) -> None:
    """Start `network` from a smaller one of the same width, so that at first it computes about the same.

    Layers are copied in order, spread over the new depth; those in between are copies whose two output projections
    are zero, which pass their input on. A token that is not in the smaller one's vocabulary starts from the mean of
    its pieces there. Other widths, or fewer layers than the smaller one's, are a UserError.
    """
    new, old = network.config, smaller.config
    if (new.hidden_size, new.intermediate_size, new.head_dim) != (old.hidden_size, old.intermediate_size, old.head_dim):
        raise UserError("The model to start from has other widths; give one whose widths are those of the new model.")
    if new.num_hidden_layers < old.num_hidden_layers:
        raise UserError("The model to start from has more layers than the new model; give a shallower one.")
    source = smaller.model.embed_tokens.weight
    for token, index in tokenizer.get_vocab().items():
        known = its.token_to_id(token)
        text = tokenizer.decode([index], skip_special_tokens=False)
        pieces = [known] if known is not None else its.encode(text).ids
        if pieces:
            network.model.embed_tokens.weight[index] = source[pieces].mean(0)
    network.model.norm.load_state_dict(smaller.model.norm.state_dict())
    copied = -1
    for index, layer in enumerate(network.model.layers):
        which = index * old.num_hidden_layers // new.num_hidden_layers
        layer.load_state_dict(smaller.model.layers[which].state_dict())
        if which == copied:
            layer.self_attn.o_proj.weight.zero_()
            layer.mlp.down_proj.weight.zero_()
        copied = which


def as_backbone(network: Qwen3ForCausalLM, tokenizer: Tokenizer) -> Backbone:
    """The network in training as the decoders take it, without calibrated weights."""
    network.eval()
    return Backbone(
        name="in training",
        network=network,
        tokenizer=_wrapped(tokenizer),
        mask_id=network.config.mask_token_id,
        eos_id=network.config.eos_token_id,
        shifted=True,
        max_length=network.config.max_position_embeddings,
        weights=EvidenceWeights.neutral(),
        calibrated=False,
        prompt_format=PROMPT_FORMAT,
    )


def export(network: Qwen3ForCausalLM, tokenizer: Tokenizer, folder: Path) -> Path:
    """Write an ordinary Hugging Face folder: weights in bfloat16, config, generation config, tokenizer."""
    copy = Qwen3ForCausalLM(network.config)
    copy.load_state_dict(network.state_dict())
    copy.generation_config.eos_token_id = copy.generation_config.pad_token_id = network.config.eos_token_id
    copy.to(torch.bfloat16).save_pretrained(folder)
    _wrapped(tokenizer).save_pretrained(folder)
    return folder


def _wrapped(tokenizer: Tokenizer) -> PreTrainedTokenizerFast:
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token=EOS, pad_token=EOS, mask_token=MASK, model_max_length=1024
    )
