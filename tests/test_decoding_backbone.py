"""Loading a model: what a real network computes through `Backbone`, and every folder that is no model of that kind."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import (
    BertConfig,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from dystruct.decoding import Backbone, Block, DyStruct, UserError, generate, load
from dystruct.decoding.tiny.tokenization import EOS, MASK, build_tokenizer
from dystruct.model import PriorConfig

KINDS: dict[str, tuple[type, type]] = {
    "qwen3": (Qwen3Config, Qwen3ForCausalLM),
    "qwen2": (Qwen2Config, Qwen2ForCausalLM),
    "llama": (LlamaConfig, LlamaForCausalLM),
}


def write_model(folder: Path, kind: str = "qwen3", *, tied: bool = True, **extra: Any) -> Path:
    """A random network of two layers with a byte tokenizer, as the embedded model's training exports it."""
    tokenizer = build_tokenizer(["the sum of 12 and 30 is 42"] * 4, 280)
    ids = {"eos_token_id": tokenizer.token_to_id(EOS), "mask_token_id": tokenizer.token_to_id(MASK)}
    config_class, network_class = KINDS[kind]
    config = config_class(
        vocab_size=tokenizer.get_vocab_size(), hidden_size=16, intermediate_size=24, num_hidden_layers=2,
        num_attention_heads=2, num_key_value_heads=1, head_dim=8, max_position_embeddings=64, tie_word_embeddings=tied,
        pad_token_id=ids["eos_token_id"], bos_token_id=None, initializer_range=0.5,
    )  # fmt: skip
    for name, value in {
        "is_causal": False,
        "shifted_logits": True,
        "prompt_format": "{prompt}\n",
        **ids,
        **extra,
    }.items():
        if value is not None:
            setattr(config, name, value)
    torch.manual_seed(0)
    network_class(config).save_pretrained(folder)
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token=EOS, pad_token=EOS, mask_token=MASK).save_pretrained(
        folder
    )
    return folder


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return {kind: write_model(tmp_path_factory.mktemp(kind), kind, tied=kind == "qwen3") for kind in KINDS}


@pytest.fixture(scope="module")
def models(folders: dict[str, Path]) -> dict[str, Backbone]:
    return {kind: load(folder, device="cpu") for kind, folder in folders.items()}


@pytest.fixture
def folder(folders: dict[str, Path], tmp_path: Path) -> Path:
    """A model's folder to be damaged."""
    return Path(shutil.copytree(folders["qwen3"], tmp_path / "model"))


def rewrite(folder: Path, **changes: Any) -> None:
    """Change entries of the config; None takes one out."""
    path = folder / "config.json"
    content = {**json.loads(path.read_text()), **changes}
    path.write_text(json.dumps({name: value for name, value in content.items() if value is not None}))


# --- what the network computes ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_loaded_is_what_the_folder_says(
    models: dict[str, Backbone], folders: dict[str, Path], kind: str
) -> None:
    model = models[kind]
    config = json.loads((folders[kind] / "config.json").read_text())
    assert (model.mask_id, model.eos_id) == (config["mask_token_id"], config["eos_token_id"])
    assert model.shifted and model.max_length == 64 and model.vocabulary == config["vocab_size"]
    assert not model.calibrated and model.name == str(folders[kind])
    assert model.encode("the sum") == model.encode("the sum\n"), "the prompt format's ending is not added twice"
    assert model.decode(model.encode("the sum")) == "the sum\n"
    assert model.token_text(model.mask_id) == MASK and model.decode([model.eos_id]) == ""
    assert model.encode(EOS) != [] and len(model.encode("the sum of 1")) > 3


@pytest.mark.parametrize("kind", KINDS)
def test_the_hidden_states_are_those_that_enter_the_output_projection(models: dict[str, Backbone], kind: str) -> None:
    model = models[kind]
    ids = torch.tensor([model.encode("the sum of 12 and 30")])
    with torch.inference_mode():
        hidden = model.hidden(ids)
        logits = model.logits(hidden)
        plain = model.network(input_ids=ids, use_cache=False).logits
    assert logits.dtype == torch.float32
    assert (logits[..., model.mask_id] == -torch.inf).all(), "the mask token is never a prediction"
    others = [v for v in range(model.vocabulary) if v != model.mask_id]
    torch.testing.assert_close(logits[..., others], plain[..., others], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("padding", [0, 3])
def test_attention_goes_in_both_directions(models: dict[str, Backbone], kind: str, padding: int) -> None:
    model = models[kind]
    ids = torch.arange(5, 15)[None]
    changed = ids.clone()
    changed[0, -1] = 20
    ids, changed = (torch.nn.functional.pad(row, (0, padding)) for row in (ids, changed))
    valid = (torch.arange(10 + padding) < 10)[None] if padding else None
    with torch.inference_mode():
        difference = (model.hidden(ids, valid) - model.hidden(changed, valid)).abs().amax(-1)[0, :10]
    assert (difference > 1e-3).all(), "a change of the last token must reach the first position"


@pytest.mark.parametrize("kind", KINDS)
def test_padding_and_the_rest_of_the_batch_change_nothing(models: dict[str, Backbone], kind: str) -> None:
    model = models[kind]
    rows = [list(range(5, 9)), list(range(20, 32)), [7]]
    ids = torch.full((3, 12), model.mask_id)
    for r, row in enumerate(rows):
        ids[r, : len(row)] = torch.tensor(row)
    lengths = torch.tensor([len(row) for row in rows])
    with torch.inference_mode():
        together = model.hidden(ids, torch.arange(12) < lengths[:, None])
        for r, row in enumerate(rows):
            alone = model.hidden(torch.tensor([row]))
            torch.testing.assert_close(together[r, : len(row)], alone[0], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("shifted", [True, False])
def test_predictions_are_read_where_the_config_says(folder: Path, shifted: bool) -> None:
    """One pass over a window of 4: token i is the most probable of the output at i-1, or at i."""
    rewrite(folder, shifted_logits=shifted)
    model = load(folder)
    prompt = model.encode("the sum")
    ids = torch.tensor([prompt + [model.mask_id] * 4])
    with torch.inference_mode():
        logits = model.network(input_ids=ids, use_cache=False).logits[0].float().clone()
        logits[:, model.mask_id] = -torch.inf
    first = len(prompt) - int(shifted)
    (generation,) = generate(model, ["the sum"], Block(4, passes=1), max_new_tokens=4)
    assert list(generation.tokens) == logits[first : first + 4].argmax(-1).tolist()
    confidences = {c.position: c.confidence for c in generation.windows[0].steps[0].commits}
    wanted = logits[first : first + 4].softmax(-1).amax(-1).tolist()
    assert [confidences[position] for position in range(4)] == pytest.approx(wanted, rel=1e-4)


@pytest.mark.filterwarnings("ignore:Model .* has no calibrated")
@pytest.mark.parametrize("kind", KINDS)
def test_a_batch_of_prompts_decodes_as_each_alone(models: dict[str, Backbone], kind: str) -> None:
    prompts = ["the sum", "of 12 and 30 is", "4"]
    decoder = DyStruct(structure="sample", prior=PriorConfig(4, 10))
    options = {"max_new_tokens": 16, "temperature": 1.0, "seed": 5}
    together = generate(models[kind], prompts, decoder, **options)
    for prompt, generation in zip(prompts, together, strict=True):
        (alone,) = generate(models[kind], [prompt], decoder, **options)
        assert generation.text == alone.text and generation.tokens == alone.tokens


def test_bfloat16_gives_confidences_in_float32(folders: dict[str, Path]) -> None:
    model = load(folders["qwen3"], dtype=torch.bfloat16)
    assert model.network.dtype == torch.bfloat16
    (generation,) = generate(model, ["the sum"], Block(8), max_new_tokens=8)
    confidences = [c.confidence for s in generation.windows[0].steps for c in s.commits]
    assert all(0 < c <= 1 for c in confidences)
    assert any(torch.tensor(c).bfloat16().item() != c for c in confidences)


# --- folders that are no model ---------------------------------------------------------------------------------------


def refused(folder: Path | str, match: str, **options: Any) -> str:
    with pytest.raises(UserError, match=match) as caught:
        load(folder, **options)
    message = str(caught.value)
    assert "\n" not in message and message.endswith("."), message
    assert Path(folder).name in message, "the sentence names the thing"
    return message


def test_no_folder(tmp_path: Path) -> None:
    refused(tmp_path / "absent", "no model folder.*config.json")


def test_no_config(folder: Path) -> None:
    (folder / "config.json").unlink()
    refused(folder, "no config.json")


@pytest.mark.parametrize(
    ("text", "match"),
    [(text, "is damaged.*copy them again") for text in ("", "{", "[]", "3", "\x00\x01")]
    + [(text, "llama, qwen2, qwen3") for text in ('{"model_type": "no-such"}', "{}")],
)
def test_a_config_that_cannot_be_read(folder: Path, text: str, match: str) -> None:
    (folder / "config.json").write_text(text)
    refused(folder, match)


@pytest.mark.parametrize(
    "changes",
    [
        {"hidden_size": "wide"},
        {"hidden_size": -4},
        {"num_attention_heads": 0},
        {"vocab_size": 1.5},
        {"max_position_embeddings": "long"},
        {"num_hidden_layers": None, "layer_types": ["strange"]},
        {"hidden_act": "no-such"},
        {"rope_parameters": 3},
        {"prompt_format": "no place for it"},
        {"prompt_format": "{prompt}{prompt}"},
        {"mask_token_id": "one"},
        {"eos_token_id": "end"},
        {"dtype": "float77"},
    ],
)
def test_a_config_with_a_wrong_entry(folder: Path, changes: dict[str, Any]) -> None:
    rewrite(folder, **changes)
    refused(folder, "config|supported|weights")


def test_a_model_of_another_kind(folder: Path, tmp_path: Path) -> None:
    BertConfig(is_decoder=True).save_pretrained(folder)
    refused(folder, "'bert'.*llama, qwen2, qwen3")


@pytest.mark.parametrize("value", [True, None])
def test_a_causal_model(folder: Path, value: bool | None) -> None:
    rewrite(folder, is_causal=value)
    refused(folder, "causally.*is_causal false")


@pytest.mark.parametrize("kind", ["mask", "eos"])
def test_no_mask_or_end_token(folder: Path, kind: str) -> None:
    rewrite(folder, **{f"{kind}_token_id": None})
    assert load(folder).mask_id == 1, "the tokenizer's is taken where the config names none"
    path = folder / "tokenizer_config.json"
    content = json.loads(path.read_text())
    content.pop(f"{kind}_token")
    path.write_text(json.dumps(content))
    refused(folder, f"no {kind} token.*{kind}_token_id")


@pytest.mark.parametrize("value", [-1, 10**3, 10**6])
@pytest.mark.parametrize("kind", ["mask", "eos"])
def test_a_token_id_outside_the_vocabulary(folder: Path, kind: str, value: int) -> None:
    rewrite(folder, **{f"{kind}_token_id": value})
    refused(folder, f"{value}.*outside its vocabulary")


def test_another_end_token_of_the_tokenizer_is_told(folder: Path) -> None:
    """Which of the two is right nobody knows; a list in the config may have both."""
    own = load(folder).eos_id
    rewrite(folder, eos_token_id=own + 3)
    with pytest.warns(UserWarning, match=rf"end with token {own + 3}, .* not with its tokenizer's end token {own}, "):
        load(folder)
    rewrite(folder, eos_token_id=[own + 3, own])
    assert load(folder).end_ids == {own + 3, own}


def test_mask_and_end_token_must_differ(folder: Path) -> None:
    rewrite(folder, mask_token_id=0, eos_token_id=0)
    refused(folder, "mask.*end")


@pytest.mark.parametrize("text", ["", "{", "{}", '{"model": 3}', "null", "\x00"])
def test_a_tokenizer_that_cannot_be_read(folder: Path, text: str) -> None:
    (folder / "tokenizer.json").write_text(text)
    refused(folder, "tokenizer")


def test_no_tokenizer(folder: Path) -> None:
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (folder / name).unlink()
    refused(folder, "tokenizer")


def test_no_weights(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    refused(folder, "weights.*safetensors")


@pytest.mark.parametrize("keep", [0, 4, 60, 0.5, 0.99])
def test_weights_cut_short(folder: Path, keep: float) -> None:
    path = folder / "model.safetensors"
    whole = path.read_bytes()
    path.write_bytes(whole[: keep if isinstance(keep, int) else int(len(whole) * keep)])
    refused(folder, "weights.*safetensors")


def test_weights_that_are_something_else(folder: Path) -> None:
    (folder / "model.safetensors").write_bytes(b"\xff" * 5000)
    refused(folder, "weights.*safetensors")


@pytest.mark.parametrize(
    "name", ["model.layers.1.mlp.up_proj.weight", "model.norm.weight", "model.embed_tokens.weight"]
)
def test_a_tensor_is_missing(folder: Path, name: str) -> None:
    path = folder / "model.safetensors"
    tensors = load_file(path)
    del tensors[name]
    save_file(tensors, path, {"format": "pt"})
    refused(folder, "lack.*safetensors")


def test_the_output_projection_is_missing_where_it_is_not_tied(folders: dict[str, Path], tmp_path: Path) -> None:
    folder = Path(shutil.copytree(folders["llama"], tmp_path / "model"))
    tensors = load_file(folder / "model.safetensors")
    del tensors["lm_head.weight"]
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    refused(folder, "lack.*lm_head.weight")


def test_a_tensor_of_another_shape(folder: Path) -> None:
    path = folder / "model.safetensors"
    tensors = load_file(path)
    tensors["model.norm.weight"] = torch.ones(5)
    save_file(tensors, path, {"format": "pt"})
    refused(folder, "weights.*safetensors")


def test_a_tokenizer_with_more_tokens_than_the_model(folder: Path) -> None:
    """Its ids would index beyond the embedding while decoding."""
    wide = build_tokenizer(["the sum of twelve and thirty is forty two"] * 4, 290)
    PreTrainedTokenizerFast(tokenizer_object=wide, eos_token=EOS, pad_token=EOS, mask_token=MASK).save_pretrained(
        folder
    )
    refused(folder, "tokenizer.*token ids up to")


@pytest.mark.parametrize("device", ["nowhere", "cuda:99", "xpu"])
def test_a_device_that_is_not_there(folder: Path, device: str) -> None:
    with pytest.raises(UserError, match=device):
        load(folder, device=device)
