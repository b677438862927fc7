"""A `Backbone` around a small random transformers network that speaks the scripted tests' letters."""

from __future__ import annotations

import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

from dystruct.decoding.backbone import Backbone
from scripted import EOS, MASK, VOCABULARY, Letters, uneven_weights


def random_backbone(
    *,
    layers: int = 1,
    shifted: bool = False,
    seed: int = 0,
    dtype: torch.dtype = torch.float64,
    attention: str = "sdpa",
    device: str = "cpu",
    max_length: int = 128,
) -> Backbone:
    """Attends in both directions; float64, so that the order of sums does not decide between tokens."""
    torch.manual_seed(seed)
    config = Qwen3Config(
        vocab_size=VOCABULARY, hidden_size=16, intermediate_size=24, num_hidden_layers=layers, num_attention_heads=4,
        num_key_value_heads=2, head_dim=4, max_position_embeddings=max_length, is_causal=False, initializer_range=0.4,
        attn_implementation=attention, tie_word_embeddings=False, pad_token_id=None, eos_token_id=EOS,
        bos_token_id=None,
    )  # fmt: skip
    with torch.device(device):
        network = Qwen3ForCausalLM(config).to(dtype).eval()
    with torch.no_grad():
        for layer in network.model.layers:  # what is attended to says more than the mask at the position itself
            layer.self_attn.v_proj.weight *= 4
        network.lm_head.weight *= 3  # confident enough to differ from token to token
        network.lm_head.weight[EOS] = 0  # seldom the largest
    return Backbone(
        name="random", network=network, tokenizer=Letters(), mask_id=MASK, eos_id=EOS, shifted=shifted,
        max_length=max_length, weights=uneven_weights(), calibrated=True,
    )  # fmt: skip
