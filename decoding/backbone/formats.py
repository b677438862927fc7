"""The checkpoint formats that can be loaded, in terms of transformers' own network classes; no remote code is ever run.

    format               network                                   output i predicts    tensors
    LLaDA                Llama, attending in both directions        position i          other names, `LLADA_NAMES`
    Dream                Qwen2, attending in both directions        position i + 1      the same names
    Llama, Qwen2, Qwen3  with `is_causal` false in the config       as `shifted_logits`  the same names
    masked LMs           transformers' ...ForMaskedLM               position i          the same names

Renaming is done by transformers while it loads, so that shards, quantisation and device maps work as ever.
Knows nothing of where files are.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import UserError
from .backbone import first_line

BIDIRECTIONAL = ("llama", "qwen2", "qwen3")
SUPPORTED = (
    f"llada, Dream, {', '.join(BIDIRECTIONAL)} (these three with is_causal false in their config) and masked language "
    f"models such as bert, roberta and modernbert"
)

# What a part of a tensor's name becomes, applied one after the other.
LLADA_NAMES = {
    r"^model\.transformer\.wte\.": "model.embed_tokens.",
    r"^model\.transformer\.ln_f\.": "model.norm.",
    r"^model\.transformer\.ff_out\.": "lm_head.",
    r"^model\.transformer\.blocks\.": "model.layers.",
    r"\.attn_norm\.": ".input_layernorm.",
    r"\.([qkv]_proj)\.": r".self_attn.\1.",
    r"\.attn_out\.": ".self_attn.o_proj.",
    r"\.ff_norm\.": ".post_attention_layernorm.",
    r"\.ff_proj\.": ".mlp.gate_proj.",
    r"\.up_proj\.": ".mlp.up_proj.",
    r"\.ff_out\.": ".mlp.down_proj.",
}
# Settings of a LLaDA config that have one value in all published models; with another the network would be no Llama.
LLADA_SETTINGS = {
    "block_type": "llama",
    "block_group_size": 1,
    "activation_type": "silu",
    "layer_norm_type": "rms",
    "rope": True,
    "alibi": False,
    "attention_layer_norm": False,
    "include_bias": False,
    "include_qkv_bias": False,
    "bias_for_layer_norm": False,
    "input_emb_norm": False,
    "scale_logits": False,
    "clip_qkv": None,
}


@dataclass(frozen=True)
class Format:
    """How a checkpoint is loaded.

    config: transformers' config of the network; network_class: the class that reads its weights; names: how tensors
    are renamed; shifted: whether output i predicts position i + 1; tokenizer_class: the tokenizer's, None for what
    transformers finds; turn_end: the token that ends a turn of a chat model.
    """

    config: Any
    network_class: Any
    shifted: bool = False
    names: dict[str, str] | None = None
    tokenizer_class: Any = None
    turn_end: str | None = None
    masked_lm: bool = False


def recognise(content: dict[str, Any], folder: Path, name: str) -> Format:
    """The format of the checkpoint with this config.json. Raises UserError if it is none of them, or cannot be read."""
    from transformers.models.auto.modeling_auto import MODEL_FOR_MASKED_LM_MAPPING_NAMES

    kind = content.get("model_type")
    try:
        if kind == "llada":
            return _llada(content, name)
        if kind == "Dream":
            return _dream(content)
        if kind in BIDIRECTIONAL:
            return _bidirectional(content, folder, name)
        if isinstance(kind, str) and kind in MODEL_FOR_MASKED_LM_MAPPING_NAMES:
            return _masked_lm(folder, name)
    except UserError:
        raise
    except KeyError as error:
        raise UserError(f"The config.json of {name!r} lacks the entry {error}; copy it again.") from error
    except Exception as error:  # transformers checks a config in many places and raises any kind
        raise UserError(
            f"The config.json of {name!r} cannot be read ({first_line(error)}); supported model types are {SUPPORTED}."
        ) from error
    raise UserError(f"Model {name!r} is of type {kind!r}, which is not supported; supported types are {SUPPORTED}.")


def _llada(content: dict[str, Any], name: str) -> Format:
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    for setting, only in LLADA_SETTINGS.items():
        if content.get(setting, only) != only:
            raise UserError(
                f"The config.json of {name!r} has {setting} {content[setting]!r}, which no LLaDA has that is supported "
                f"(it must be {only!r}); give another checkpoint."
            )
    heads, width = content["n_heads"], content["d_model"]
    groups = content.get("n_kv_heads") or (1 if content.get("multi_query_attention") else heads)
    config = LlamaConfig(
        vocab_size=content.get("embedding_size") or content["vocab_size"],
        hidden_size=width,
        intermediate_size=content.get("mlp_hidden_size") or int(content["mlp_ratio"] * width),
        num_hidden_layers=content["n_layers"],
        num_attention_heads=heads,
        num_key_value_heads=groups,
        max_position_embeddings=content["max_sequence_length"],
        rms_norm_eps=content["rms_norm_eps"],
        rope_parameters={"rope_type": "default", "rope_theta": content["rope_theta"]},
        tie_word_embeddings=content["weight_tying"],
        is_causal=False,
        **_special_and_stored(content),
    )
    return Format(config, LlamaForCausalLM, False, LLADA_NAMES, PreTrainedTokenizerFast, "<|eot_id|>")


def _dream(content: dict[str, Any]) -> Format:
    from transformers import Qwen2Config, Qwen2ForCausalLM, Qwen2Tokenizer

    entries = (
        "vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
        "num_key_value_heads", "hidden_act", "max_position_embeddings", "rms_norm_eps", "tie_word_embeddings",
    )  # fmt: skip
    rope = content.get("rope_parameters") or {
        "rope_type": "default",
        **(content.get("rope_scaling") or {}),
        "rope_theta": content["rope_theta"],
    }
    config = Qwen2Config(
        **{entry: content[entry] for entry in entries},
        rope_parameters=rope,
        use_sliding_window=False,  # Dream has the setting and never uses it
        is_causal=False,
        **_special_and_stored(content),
    )
    return Format(config, Qwen2ForCausalLM, True, None, Qwen2Tokenizer, "<|im_end|>")


def _special_and_stored(content: dict[str, Any]) -> dict[str, Any]:
    """Special tokens, the classes' own defaults for which mean nothing here, and how the weights are stored."""
    tokens = {f"{kind}_token_id": content.get(f"{kind}_token_id") for kind in ("bos", "eos", "pad", "mask")}
    stored = {"dtype": content.get("dtype", content.get("torch_dtype"))}
    if "quantization_config" in content:
        stored["quantization_config"] = content["quantization_config"]
    return {**tokens, **stored}


def _bidirectional(content: dict[str, Any], folder: Path, name: str) -> Format:
    from transformers import AutoModelForCausalLM

    config = _transformers_config(folder)
    if getattr(config, "is_causal", True):
        raise UserError(
            f"Model {name!r} attends causally, so it cannot fill masks; give a masked diffusion model, whose config "
            f"says is_causal false."
        )
    return Format(config, AutoModelForCausalLM, bool(content.get("shifted_logits", False)))


def _masked_lm(folder: Path, name: str) -> Format:
    from transformers import AutoModelForMaskedLM

    config = _transformers_config(folder)
    if getattr(config, "is_decoder", False) or getattr(config, "is_encoder_decoder", False):
        raise UserError(
            f"Model {name!r} is of type {config.model_type!r} and has a decoder, which attends causally, so it cannot "
            f"fill masks; supported model types are {SUPPORTED}."
        )
    return Format(config, AutoModelForMaskedLM, masked_lm=True)


def _transformers_config(folder: Path) -> Any:
    from transformers import AutoConfig

    return AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
