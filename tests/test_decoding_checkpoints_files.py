"""Published checkpoints: no remote code is run, and files that do not fit are refused in a sentence."""

from __future__ import annotations

import builtins
import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import (
    BartConfig,
    BertConfig,
)
from transformers.models.llama import modeling_llama

from checkpoint_models import (
    OUTPUTS,
    refused,
    rewrite,
    write_masked,
)
from checkpoints import Checkpoint
from dystruct.decoding import load


@pytest.mark.parametrize("kind", OUTPUTS)
def test_remote_code_is_neither_run_nor_asked_for(
    checkpoints: dict[str, Checkpoint], monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    folder = checkpoints[kind].folder
    assert list(folder.glob("modeling_*.py")), "the layout comes with code"
    monkeypatch.setattr(builtins, "input", lambda *text: pytest.fail("a prompt appeared"))
    network = load(folder).network
    assert type(network).__module__.startswith("transformers.models.")


def test_an_auto_map_is_ignored_in_other_formats_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write_masked(tmp_path, "bert")
    code = dict.fromkeys(("AutoConfig", "AutoModel", "AutoModelForMaskedLM"), "modeling_bert.Own")
    rewrite(folder / "config.json", auto_map=code)
    (folder / "modeling_bert.py").write_text("raise SystemExit('remote code was run')\n")
    monkeypatch.setattr(builtins, "input", lambda *text: pytest.fail("a prompt appeared"))
    assert load(folder).mask_id == 4


def test_a_network_that_is_causal_all_the_same_is_found_out(llada: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Older versions of transformers take no notice of is_causal."""

    def heedless(config: Any, inputs_embeds: Tensor, **options: Any) -> Tensor:
        return torch.ones(inputs_embeds.shape[1], inputs_embeds.shape[1], dtype=torch.bool).tril()[None, None]

    monkeypatch.setattr(modeling_llama, "create_causal_mask", heedless)
    refused(llada, "attends causally here.*transformers 5.2")


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("block_type", "sequential"),
        ("alibi", True),
        ("rope", False),
        ("include_qkv_bias", True),
        ("layer_norm_type", "default"),
        ("activation_type", "swiglu"),
        ("attention_layer_norm", True),
        ("scale_logits", True),
        ("clip_qkv", 8.0),
    ],
)
def test_a_llada_of_another_architecture(llada: Path, setting: str, value: Any) -> None:
    rewrite(llada / "config.json", **{setting: value})
    refused(llada, f"{setting} {re.escape(repr(value))}.*must be")


@pytest.mark.parametrize(
    "entry", ["d_model", "n_heads", "n_layers", "rope_theta", "max_sequence_length", "weight_tying"]
)
def test_an_entry_is_missing_from_a_llada_config(llada: Path, entry: str) -> None:
    rewrite(llada / "config.json", **{entry: None})
    refused(llada, f"lacks the entry '{entry}'")


@pytest.mark.parametrize(
    "changes",
    [
        {"d_model": "wide"},
        {"n_heads": 0},
        {"n_heads": 3},
        {"n_kv_heads": 2},
        {"n_layers": 3},
        {"embedding_size": 7},
        {"max_sequence_length": "long"},
        {"vocab_size": None, "embedding_size": None},
    ],
)
def test_a_wrong_entry_in_a_llada_config(llada: Path, changes: dict[str, Any]) -> None:
    rewrite(llada / "config.json", **changes)
    refused(llada, "config.json|weights|tokenizer")


@pytest.mark.parametrize("entry", ["hidden_size", "num_key_value_heads", "rope_theta"])
def test_an_entry_is_missing_from_a_dream_config(dream: Path, entry: str) -> None:
    rewrite(dream / "config.json", **{entry: None})
    refused(dream, f"lacks the entry '{entry}'")


def test_unknown_types_are_answered_with_the_known_ones(llada: Path) -> None:
    rewrite(llada / "config.json", model_type="llada2_moe")
    message = refused(llada, "'llada2_moe', which is not supported")
    for known in ("llada", "Dream", "llama", "qwen2", "qwen3", "bert", "roberta", "modernbert"):
        assert known in message


def test_a_shard_is_missing(llada: Path) -> None:
    next(llada.glob("*00002-of-00003.safetensors")).unlink()
    refused(llada, "weights.*cannot be read.*00002-of-00003.*copy")


def test_a_tensor_is_missing_or_one_too_many(llada: Path) -> None:
    path = next(llada.glob("*00001-of-00003.safetensors"))
    tensors = load_file(path)
    whole = dict(tensors)
    name = "model.transformer.blocks.0.attn_out.weight"
    del tensors[name]
    save_file(tensors, path, {"format": "pt"})
    refused(llada, "lack 1 tensors, model.layers.0.self_attn.o_proj.weight")
    index = llada / "model.safetensors.index.json"
    places = json.loads(index.read_text())["weight_map"] | {name.replace("weight", "bias"): path.name}
    rewrite(index, weight_map=places)
    save_file({**whole, name.replace("weight", "bias"): torch.zeros(32)}, path, {"format": "pt"})
    refused(llada, "have 1 tensors that its architecture has not, model.layers.0.self_attn.o_proj.bias")


@pytest.mark.parametrize("kind", OUTPUTS)
def test_the_tokenizer_files_are_missing(checkpoints: dict[str, Checkpoint], tmp_path: Path, kind: str) -> None:
    folder = Path(shutil.copytree(checkpoints[kind].folder, tmp_path / "model"))
    for name in ("tokenizer.json", "vocab.json", "merges.txt"):
        (folder / name).unlink(missing_ok=True)
    refused(folder, "tokenizer.*copy")


@pytest.mark.parametrize(
    ("config", "match"),
    [
        (BartConfig(), "'bart' and has a decoder"),
        (BertConfig(is_decoder=True), "'bert' and has a decoder"),
    ],
)
def test_models_with_a_decoder_fill_no_masks(tmp_path: Path, config: Any, match: str) -> None:
    config.save_pretrained(tmp_path)
    refused(tmp_path, match)


def test_a_masked_lm_that_lets_padding_through(tmp_path: Path) -> None:
    refused(write_masked(tmp_path, "fnet"), "'fnet' does not keep padding apart")


def test_a_masked_lm_with_a_head_out_of_reach(tmp_path: Path) -> None:
    refused(write_masked(tmp_path, "longformer", attention_window=4), "'longformer' cannot be used")


def test_a_masked_lm_without_a_mask_token(tmp_path: Path) -> None:
    folder = write_masked(tmp_path, "roberta")
    rewrite(folder / "tokenizer_config.json", mask_token=None)
    refused(folder, "no mask token")
