"""Tiny random checkpoints in the layouts of LLaDA and Dream, file by file, and what their networks compute.

The files are written without transformers: configs with the published models' keys, tensors under their names in
shards with an index, the tokenizer files that come with them, and the remote code that nobody may run. The networks
are written out in plain torch from the architectures' definitions, as an oracle for what is loaded.

Shapes: R rows, T positions, d hidden units, V tokens.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from torch import Tensor

SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
TEXTS = ["the sum of 12 and 30 is 42", "it's 7 cups of tea, isn't it?"] * 3
LLADA_TOKENS = (
    "<|startoftext|>", "<|endoftext|>", "[CLS]", "[gMASK]", "<|mdm_mask|>", "<|start_header_id|>", "<|end_header_id|>",
    "<|eot_id|>",
)  # fmt: skip
DREAM_TOKENS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|beginoftext|>", "<|mask|>")
LLADA_TEMPLATE = (
    "{% for message in messages %}{% set content = '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n' + "
    "message['content'] | trim + '<|eot_id|>' %}{% if loop.index0 == 0 %}{% set content = bos_token + content %}"
    "{% endif %}{{ content }}{% endfor %}{% if add_generation_prompt %}"
    "{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}"
)
DREAM_TEMPLATE = (
    "{% if messages[0]['role'] != 'system' %}<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n{% endif %}"
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


@dataclass
class Checkpoint:
    """A written checkpoint: its folder, the entries of its config, its tensors, and its special tokens' ids."""

    folder: Path
    config: dict[str, Any]
    tensors: dict[str, Tensor]
    tokens: dict[str, int] = field(default_factory=dict)


def byte_pairs(special: tuple[str, ...] = ()) -> Tokenizer:
    """A small byte-level tokenizer that splits texts as Qwen2's does."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(SPLIT), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=290, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(TEXTS, trainer)
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in special])
    return tokenizer


def write_llada(
    folder: Path,
    *,
    tied: bool = False,
    heads: int = 4,
    groups: int = 4,
    chat: bool = False,
    shards: int = 3,
    spare: int = 4,
    dtype: torch.dtype = torch.float32,
    **entries: Any,
) -> Checkpoint:
    """A LLaDA checkpoint; `spare` rows of the embedding belong to no token of the tokenizer."""
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = byte_pairs(LLADA_TOKENS)
    tokens = {token: tokenizer.token_to_id(token) for token in LLADA_TOKENS}
    rows, width, inner, layers = tokenizer.get_vocab_size() + spare, 8 * heads, 40, 2
    config: dict[str, Any] = {
        "activation_type": "silu", "alibi": False, "alibi_bias_max": 8.0, "architectures": ["LLaDAModelLM"],
        "attention_dropout": 0.0, "attention_layer_norm": False, "attention_layer_norm_with_affine": True,
        "auto_map": {
            "AutoConfig": "configuration_llada.LLaDAConfig",
            "AutoModelForCausalLM": "modeling_llada.LLaDAModelLM",
            "AutoModel": "modeling_llada.LLaDAModelLM",
        },
        "bias_for_layer_norm": False, "block_group_size": 1, "block_type": "llama", "d_model": width,
        "embedding_dropout": 0.0, "embedding_size": rows, "eos_token_id": tokens["<|endoftext|>"],
        "flash_attention": False, "include_bias": False, "include_qkv_bias": False, "init_cutoff_factor": None,
        "init_device": "meta", "init_fn": "mitchell", "init_std": 0.02, "input_emb_norm": False,
        "layer_norm_type": "rms", "layer_norm_with_affine": True, "mask_token_id": tokens["<|mdm_mask|>"],
        "max_sequence_length": 256, "mlp_hidden_size": inner, "mlp_ratio": 4, "model_type": "llada",
        "multi_query_attention": None, "n_heads": heads, "n_kv_heads": groups, "n_layers": layers,
        "pad_token_id": tokens["<|endoftext|>"], "precision": "amp_bf16", "residual_dropout": 0.0,
        "rms_norm_eps": 1e-05, "rope": True, "rope_full_precision": True, "rope_theta": 500000.0,
        "scale_logits": False, "transformers_version": "4.46.3", "use_cache": False, "vocab_size": rows,
        "weight_tying": tied,
    } | entries  # fmt: skip
    draw = _Drawing(1, dtype)
    tensors = {"model.transformer.wte.weight": draw(rows, width, scale=0.2 if tied else 1.0)}
    for n in range(layers):
        block = f"model.transformer.blocks.{n}"
        tensors |= {
            f"{block}.attn_norm.weight": draw.norm(width),
            f"{block}.q_proj.weight": draw(width, width),
            f"{block}.k_proj.weight": draw(8 * groups, width),
            f"{block}.v_proj.weight": draw(8 * groups, width),
            f"{block}.attn_out.weight": draw(width, width),
            f"{block}.ff_norm.weight": draw.norm(width),
            f"{block}.ff_proj.weight": draw(inner, width),
            f"{block}.up_proj.weight": draw(inner, width),
            f"{block}.ff_out.weight": draw(width, inner),
        }
    tensors["model.transformer.ln_f.weight"] = draw.norm(width)
    if not tied:
        tensors["model.transformer.ff_out.weight"] = draw(rows, width)
    _write(folder, config, tensors, shards)
    generation = {"_from_model_config": True, "bos_token_id": tokens["<|startoftext|>"], "transformers_version": "4.46"}
    _json(folder / "generation_config.json", {**generation, "eos_token_id": tokens["<|endoftext|>"]})
    tokenizer.save(str(folder / "tokenizer.json"))
    special = {
        "bos_token": "<|startoftext|>", "cls_token": "[CLS]", "eos_token": "<|endoftext|>", "pad_token": "<|endoftext|>"
    }  # fmt: skip
    _json(folder / "special_tokens_map.json", special)
    settings = {
        **special, "add_bos_token": False, "add_eos_token": False, "added_tokens_decoder": _decoder(tokens),
        "clean_up_tokenization_spaces": False, "fast_tokenizer": True, "gmask_token": "[gMASK]", "merges_file": None,
        "model_max_length": 10**30, "tokenizer_class": "PreTrainedTokenizerFast", "trust_remote_code": True,
    }  # fmt: skip
    _json(folder / "tokenizer_config.json", settings | ({"chat_template": LLADA_TEMPLATE} if chat else {}))
    _remote_code(folder, "configuration_llada", "modeling_llada")
    return Checkpoint(folder, config, tensors, tokens)


def write_dream(
    folder: Path,
    *,
    chat: bool = False,
    shards: int = 2,
    dtype: torch.dtype = torch.float32,
    **entries: Any,
) -> Checkpoint:
    """A Dream checkpoint, whose tokenizer ships as the vocabulary and merges of a slow one."""
    folder.mkdir(parents=True, exist_ok=True)
    pairs = json.loads(byte_pairs().to_str())["model"]
    tokens = {token: len(pairs["vocab"]) + i for i, token in enumerate(DREAM_TOKENS)}
    rows, width, inner, layers = len(pairs["vocab"]) + len(tokens) + 6, 32, 48, 2
    end = tokens["<|endoftext|>"]
    config: dict[str, Any] = {
        "architectures": ["DreamModel"], "attention_dropout": 0.0,
        "auto_map": {"AutoConfig": "configuration_dream.DreamConfig", "AutoModel": "modeling_dream.DreamModel"},
        "bos_token_id": end, "eos_token_id": end, "hidden_act": "silu", "hidden_size": width,
        "initializer_range": 0.02, "intermediate_size": inner, "mask_token_id": tokens["<|mask|>"],
        "max_position_embeddings": 512, "max_window_layers": 28, "model_type": "Dream", "num_attention_heads": 4,
        "num_hidden_layers": layers, "num_key_value_heads": 2, "pad_token_id": end, "rms_norm_eps": 1e-06,
        "rope_scaling": None, "rope_theta": 1000000.0, "sliding_window": None, "tie_word_embeddings": False,
        "torch_dtype": str(dtype).removeprefix("torch."), "transformers_version": "4.46.2", "use_cache": True,
        "use_mrope": False, "use_sliding_window": False, "vocab_size": rows,
    } | entries  # fmt: skip
    draw = _Drawing(2, dtype)
    tensors = {"model.embed_tokens.weight": draw(rows, width, scale=1.0)}
    for n in range(layers):
        layer = f"model.layers.{n}"
        tensors |= {
            f"{layer}.input_layernorm.weight": draw.norm(width),
            f"{layer}.post_attention_layernorm.weight": draw.norm(width),
            f"{layer}.self_attn.o_proj.weight": draw(width, width),
            f"{layer}.mlp.gate_proj.weight": draw(inner, width),
            f"{layer}.mlp.up_proj.weight": draw(inner, width),
            f"{layer}.mlp.down_proj.weight": draw(width, inner),
        }
        for part, size in (("q_proj", width), ("k_proj", width // 2), ("v_proj", width // 2)):
            tensors[f"{layer}.self_attn.{part}.weight"] = draw(size, width)
            tensors[f"{layer}.self_attn.{part}.bias"] = draw(size)
    tensors |= {"model.norm.weight": draw.norm(width), "lm_head.weight": draw(rows, width)}
    _write(folder, config, tensors, shards)
    generation = {"alg": "origin", "alg_temp": None, "eps": 0.001, "mask_token_id": None, "output_history": False,
                  "steps": 512, "bos_token_id": end, "eos_token_id": end, "pad_token_id": end}  # fmt: skip
    _json(folder / "generation_config.json", {"_from_model_config": True, **generation})
    _json(folder / "vocab.json", pairs["vocab"])
    merges = "".join(f"{left} {right}\n" for left, right in pairs["merges"])
    (folder / "merges.txt").write_text("#version: 0.2\n" + merges, encoding="utf-8")
    _json(folder / "added_tokens.json", tokens)
    special = {"bos_token": "<|beginoftext|>", "eos_token": "<|endoftext|>", "mask_token": "<|mask|>",
               "pad_token": "<|endoftext|>", "additional_special_tokens": list(DREAM_TOKENS)}  # fmt: skip
    _json(folder / "special_tokens_map.json", special)
    settings = {
        **special, "add_bos_token": False, "add_prefix_space": False, "added_tokens_decoder": _decoder(tokens),
        "auto_map": {"AutoTokenizer": ["tokenization_dream.DreamTokenizer", None]}, "errors": "replace",
        "clean_up_tokenization_spaces": False, "model_max_length": 131072, "split_special_tokens": False,
        "tokenizer_class": "DreamTokenizer", "unk_token": None,
    }  # fmt: skip
    _json(folder / "tokenizer_config.json", settings | ({"chat_template": DREAM_TEMPLATE} if chat else {}))
    _remote_code(folder, "configuration_dream", "modeling_dream", "tokenization_dream", "generation_utils")
    return Checkpoint(folder, config, tensors, tokens)


class _Drawing:
    """Random tensors of one stream, stored in one dtype; of a size that keeps logits of order one."""

    def __init__(self, seed: int, dtype: torch.dtype) -> None:
        self._generator, self._dtype = torch.Generator().manual_seed(seed), dtype

    def __call__(self, *shape: int, scale: float = 0.2) -> Tensor:
        return (torch.randn(*shape, generator=self._generator) * scale).to(self._dtype)

    def norm(self, size: int) -> Tensor:
        return (1 + torch.randn(size, generator=self._generator) / 4).to(self._dtype)


def _write(folder: Path, config: dict[str, Any], tensors: dict[str, Tensor], shards: int) -> None:
    _json(folder / "config.json", config)
    if shards == 1:
        save_file(tensors, folder / "model.safetensors", {"format": "pt"})
        return
    places = {name: f"model-{i * shards // len(tensors) + 1:05d}-of-{shards:05d}.safetensors"
              for i, name in enumerate(sorted(tensors))}  # fmt: skip
    for file in set(places.values()):
        part = {name: tensors[name] for name, place in places.items() if place == file}
        save_file(part, folder / file, {"format": "pt"})
    size = sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())
    _json(folder / "model.safetensors.index.json", {"metadata": {"total_size": size}, "weight_map": places})


def _decoder(tokens: dict[str, int]) -> dict[str, Any]:
    flags = {"lstrip": False, "normalized": False, "rstrip": False, "single_word": False, "special": True}
    return {str(token): {"content": text, **flags} for text, token in tokens.items()}


def _remote_code(folder: Path, *modules: str) -> None:
    for module in modules:
        (folder / f"{module}.py").write_text("raise SystemExit('remote code was run')\n")


def _json(path: Path, content: Any) -> None:
    path.write_text(json.dumps(content, indent=2), encoding="utf-8")


# --- the networks, by hand -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Shape:
    """heads and groups of key-value heads, base of the rotation, epsilon of the norms."""

    heads: int
    groups: int
    theta: float
    epsilon: float


def llada_outputs(checkpoint: Checkpoint, ids: Tensor, valid: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """States (R, T, d) after the last norm and logits (R, T, V) of a LLaDA, for ids (R, T)."""
    tensors = _part(checkpoint.tensors, "model.transformer.")
    config = checkpoint.config
    shape = _Shape(config["n_heads"], config["n_kv_heads"], config["rope_theta"], config["rms_norm_eps"])
    x = tensors["wte.weight"][ids]
    for n in range(config["n_layers"]):
        weights = _part(tensors, f"blocks.{n}.")
        q, k, v = (_normed(x, weights["attn_norm.weight"], shape) @ weights[f"{part}_proj.weight"].T for part in "qkv")
        x = x + _attended(q, k, v, shape, valid) @ weights["attn_out.weight"].T
        y = _normed(x, weights["ff_norm.weight"], shape)
        x = x + _gated(y, weights["ff_proj.weight"], weights["up_proj.weight"], weights["ff_out.weight"])
    states = _normed(x, tensors["ln_f.weight"], shape)
    return states, states @ tensors.get("ff_out.weight", tensors["wte.weight"]).T


def dream_outputs(checkpoint: Checkpoint, ids: Tensor, valid: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """States (R, T, d) after the last norm and logits (R, T, V), those at i for position i + 1, of a Dream."""
    tensors = _part(checkpoint.tensors, "")
    config = checkpoint.config
    shape = _Shape(
        config["num_attention_heads"], config["num_key_value_heads"], config["rope_theta"], config["rms_norm_eps"]
    )
    x = tensors["model.embed_tokens.weight"][ids]
    for n in range(config["num_hidden_layers"]):
        weights = _part(tensors, f"model.layers.{n}.")
        y = _normed(x, weights["input_layernorm.weight"], shape)
        q, k, v = (
            y @ weights[f"self_attn.{part}_proj.weight"].T + weights[f"self_attn.{part}_proj.bias"] for part in "qkv"
        )
        x = x + _attended(q, k, v, shape, valid) @ weights["self_attn.o_proj.weight"].T
        y = _normed(x, weights["post_attention_layernorm.weight"], shape)
        x = x + _gated(y, *(weights[f"mlp.{part}_proj.weight"] for part in ("gate", "up", "down")))
    states = _normed(x, tensors["model.norm.weight"], shape)
    return states, states @ tensors["lm_head.weight"].T


def _part(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): value.float() for name, value in tensors.items() if name.startswith(prefix)}


def _normed(x: Tensor, weight: Tensor, shape: _Shape) -> Tensor:
    return weight * x / ((x * x).mean(-1, keepdim=True) + shape.epsilon).sqrt()


def _gated(x: Tensor, gate: Tensor, up: Tensor, down: Tensor) -> Tensor:
    y = x @ gate.T
    return (y / (1 + (-y).exp()) * (x @ up.T)) @ down.T


def _attended(q: Tensor, k: Tensor, v: Tensor, shape: _Shape, valid: Tensor | None) -> Tensor:
    """Every position attends to every valid one, one row and head after the other."""
    size = q.shape[-1] // shape.heads
    rows = []
    for r in range(q.shape[0]):
        heads = []
        for h in range(shape.heads):
            g = h * shape.groups // shape.heads
            query = _rotated(q[r, :, h * size : (h + 1) * size], shape.theta)
            key = _rotated(k[r, :, g * size : (g + 1) * size], shape.theta)
            scores = query @ key.T / size**0.5
            if valid is not None:
                scores[:, ~valid[r]] = -torch.inf
            weights = (scores - scores.amax(-1, keepdim=True)).exp()
            heads.append(weights / weights.sum(-1, keepdim=True) @ v[r, :, g * size : (g + 1) * size])
        rows.append(torch.cat(heads, dim=-1))
    return torch.stack(rows)


def _rotated(x: Tensor, theta: float) -> Tensor:
    """Dimension i and i + d/2 as a complex number, turned by position × theta^(-2i/d)."""
    half = x.shape[-1] // 2
    angles = torch.arange(len(x))[:, None] * theta ** -(torch.arange(half) / half)
    turned = torch.complex(x[:, :half], x[:, half:]) * torch.polar(torch.ones_like(angles), angles)
    return torch.cat((turned.real, turned.imag), dim=-1)
