"""Published checkpoints: LLaDA and Dream layouts and masked LMs through `load`, compared with plain torch."""

from __future__ import annotations

import builtins
import importlib.util
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import huggingface_hub
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import (
    AlbertConfig,
    AutoModelForMaskedLM,
    BartConfig,
    BertConfig,
    BertForPreTraining,
    FNetConfig,
    LongformerConfig,
    ModernBertConfig,
    PreTrainedTokenizerFast,
    RobertaConfig,
)
from transformers.models.llama import modeling_llama

from checkpoints import Checkpoint, byte_pairs, dream_outputs, llada_outputs, write_dream, write_llada
from dystruct.decoding import Backbone, Block, DyStruct, UserError, generate, load
from dystruct.decoding.backbone import model_folder
from dystruct.decoding.calibration_file import fingerprint, write_calibration
from dystruct.decoding.terminal.cli import main
from dystruct.model import EvidenceWeights, PriorConfig

Outputs = Callable[..., tuple[Tensor, Tensor]]
OUTPUTS: dict[str, Outputs] = {"llada": llada_outputs, "dream": dream_outputs}
MASKED = ("bert", "roberta", "modernbert")
ALL = ("llada", "dream", *MASKED)
SHORT = DyStruct(structure="sample", prior=PriorConfig(4, 10))

pytestmark = pytest.mark.filterwarnings("ignore:Model .* has no calibrated")


def write_masked(folder: Path, kind: str, **entries: Any) -> Path:
    """A random masked LM of two layers with its tokenizer: BERT's as a vocabulary, the others' byte pairs."""
    folder.mkdir(parents=True, exist_ok=True)
    if kind == "bert":
        words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "sum", "of", "is", "1", "2", "##2", "3", "##0"]
        (folder / "vocab.txt").write_text("\n".join([*words, *"abcdefghijk"]) + "\n")
        (folder / "tokenizer_config.json").write_text('{"do_lower_case": true, "model_max_length": 48}')
        rows, special = 25, {}
    else:
        cls, sep, mask, pad = (
            ("<s>", "</s>", "<mask>", "<pad>") if kind == "roberta" else ("[CLS]", "[SEP]", "[MASK]", "[PAD]")
        )
        names = (cls, pad, sep, mask)
        pairs = byte_pairs(names)
        ids = {name: pairs.token_to_id(name) for name in names}
        ends = {"eos_token": sep} if kind == "roberta" else {}
        tokenizer = PreTrainedTokenizerFast(
            tokenizer_object=pairs, cls_token=cls, sep_token=sep, mask_token=mask, pad_token=pad, **ends
        )
        tokenizer.save_pretrained(folder)
        rows = pairs.get_vocab_size()
        special = {
            "pad_token_id": ids[pad] if kind == "modernbert" else 1,
            "eos_token_id": ids[sep],
            "bos_token_id": ids[cls],
        }
    config = {
        "bert": BertConfig, "roberta": RobertaConfig, "modernbert": ModernBertConfig, "fnet": FNetConfig,
        "longformer": LongformerConfig, "albert": AlbertConfig,
    }[kind](
        vocab_size=rows, hidden_size=32, intermediate_size=40, num_hidden_layers=2, num_attention_heads=4,
        max_position_embeddings=66 if kind == "roberta" else 64, initializer_range=0.3, **special, **entries,
    )  # fmt: skip
    torch.manual_seed(3)
    (BertForPreTraining if kind == "bert" else AutoModelForMaskedLM.from_config)(config).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Checkpoint]:
    root = tmp_path_factory.mktemp("checkpoints")
    return {
        "llada": write_llada(root / "LLaDA-8B-Instruct", chat=True),
        "dream": write_dream(root / "dream", chat=True),
    }


@pytest.fixture(scope="module")
def models(checkpoints: dict[str, Checkpoint], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Backbone]:
    folders = {kind: checkpoint.folder for kind, checkpoint in checkpoints.items()}
    folders |= {kind: write_masked(tmp_path_factory.mktemp(kind), kind) for kind in MASKED}
    return {kind: load(folder, device="cpu") for kind, folder in folders.items()}


@pytest.fixture
def llada(checkpoints: dict[str, Checkpoint], tmp_path: Path) -> Path:
    """A LLaDA's folder to be changed."""
    return Path(shutil.copytree(checkpoints["llada"].folder, tmp_path / "model"))


@pytest.fixture
def dream(checkpoints: dict[str, Checkpoint], tmp_path: Path) -> Path:
    return Path(shutil.copytree(checkpoints["dream"].folder, tmp_path / "model"))


def rewrite(path: Path, **changes: Any) -> None:
    """Change entries of a JSON file; None takes one out."""
    content = {**json.loads(path.read_text()), **changes}
    path.write_text(json.dumps({name: value for name, value in content.items() if value is not None}))


def refused(folder: Path | str, match: str, **options: Any) -> str:
    with pytest.raises(UserError, match=match) as caught:
        load(folder, **options)
    message = str(caught.value)
    assert "\n" not in message and message.endswith("."), message
    return message


def random_ids(model: Backbone) -> tuple[Tensor, Tensor]:
    """Ids (3, 15) of rows of 15, 8 and 1 tokens, and which of them are valid."""
    ids = torch.randint(0, model.vocabulary, (3, 15), generator=torch.Generator().manual_seed(7))
    return ids, torch.arange(15) < torch.tensor([15, 8, 1])[:, None]


# --- what the networks compute ---------------------------------------------------------------------------------------


def assert_computes(model: Backbone, checkpoint: Checkpoint, outputs: Outputs) -> None:
    """States and logits equal the hand-written network's, with and without padding."""
    ids, padded = random_ids(model)
    with torch.inference_mode():
        for valid in (None, padded):
            states, logits = outputs(checkpoint, ids, valid)
            hidden = model.hidden(ids, valid)
            counted = torch.ones_like(ids).bool() if valid is None else valid
            torch.testing.assert_close(hidden[counted], states[counted], atol=1e-5, rtol=1e-5)
            found = model.logits(hidden)
            assert found.shape == logits.shape and (found[..., model.mask_id] == -torch.inf).all()
            assert logits[counted].std() > 0.3, "logits that are all alike would prove nothing"
            logits[..., model.mask_id] = -torch.inf
            torch.testing.assert_close(found[counted], logits[counted], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("kind", OUTPUTS)
def test_a_published_layout_computes_its_architecture(
    models: dict[str, Backbone], checkpoints: dict[str, Checkpoint], kind: str
) -> None:
    assert_computes(models[kind], checkpoints[kind], OUTPUTS[kind])


@pytest.mark.parametrize(
    "settings",
    [
        {"tied": True, "groups": 2, "shards": 1, "mask_token_id": 5, "eos_token_id": 2, "pad_token_id": 1},
        {"groups": 1, "n_kv_heads": None, "multi_query_attention": True, "shards": 5},
        {"rope_theta": 10000.0, "rms_norm_eps": 1e-3, "mlp_hidden_size": None, "mlp_ratio": 40 / 32, "spare": 9},
        {"dtype": torch.bfloat16},
    ],
    ids=["iLLaDA: tied, fewer key-value heads", "one key-value head", "other figures", "stored in bfloat16"],
)
def test_variants_of_llada(tmp_path: Path, settings: dict[str, Any]) -> None:
    checkpoint = write_llada(tmp_path / "model", **settings)
    model = load(checkpoint.folder)
    assert model.network.dtype == torch.float32, "on the CPU, whatever is stored"
    checkpoint.config |= {"n_kv_heads": settings.get("groups", 4)}
    assert_computes(model, checkpoint, llada_outputs)


@pytest.mark.parametrize(
    "settings", [{"shards": 1}, {"rope_theta": 1e4, "use_sliding_window": True, "sliding_window": 4}]
)
def test_variants_of_dream(tmp_path: Path, settings: dict[str, Any]) -> None:
    checkpoint = write_dream(tmp_path / "model", **settings)
    assert_computes(load(checkpoint.folder), checkpoint, dream_outputs)


@pytest.mark.parametrize("kind", MASKED)
def test_a_masked_lm_is_projected_where_asked_by_its_own_head(models: dict[str, Backbone], kind: str) -> None:
    model = models[kind]
    ids, valid = random_ids(model)
    with torch.inference_mode():
        whole = model.network.network(input_ids=ids, attention_mask=valid.long()).logits
        found = model.logits(model.hidden(ids, valid)[:, 3:6])
        whole[..., model.mask_id] = -torch.inf
    assert whole.shape[-1] == model.vocabulary
    torch.testing.assert_close(found[:2], whole[:2, 3:6], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("kind", ALL)
def test_padding_and_the_rest_of_the_batch_change_nothing(models: dict[str, Backbone], kind: str) -> None:
    model = models[kind]
    ids, valid = random_ids(model)
    ids[~valid] = model.mask_id
    with torch.inference_mode():
        together = model.hidden(ids, valid)
        for r, length in enumerate((15, 8, 1)):
            alone = model.hidden(ids[r : r + 1, :length])
            torch.testing.assert_close(together[r, :length], alone[0], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("kind", ALL)
def test_attention_goes_in_both_directions(models: dict[str, Backbone], kind: str) -> None:
    model = models[kind]
    ids = torch.arange(6, 16)[None]
    last, first = ids.clone(), ids.clone()
    last[0, -1] = first[0, 0] = 20
    with torch.inference_mode():
        states = model.hidden(ids)
        for changed, inner in ((last, slice(0, 9)), (first, slice(1, 10))):
            assert ((model.hidden(changed) - states).abs().amax(-1)[0, inner] > 1e-4).all()


@pytest.mark.parametrize("kind", OUTPUTS)
def test_predictions_are_read_where_the_architecture_says(
    models: dict[str, Backbone], checkpoints: dict[str, Checkpoint], kind: str
) -> None:
    """One pass over a window of 5: token i is the most probable of Dream's output i-1, of LLaDA's output i."""
    model = models[kind]
    assert model.shifted == (kind == "dream")
    prompt = model.encode("the sum")
    _, logits = OUTPUTS[kind](checkpoints[kind], torch.tensor([prompt + [model.mask_id] * 5]))
    logits[..., model.mask_id] = -torch.inf
    start = len(prompt) - int(kind == "dream")
    (generation,) = generate(model, ["the sum"], Block(5, passes=1), max_new_tokens=5)
    assert list(generation.tokens) == logits[0, start : start + 5].argmax(-1).tolist()
    wanted = logits[0, start : start + 5].softmax(-1).amax(-1).tolist()
    found = {c.position: c.confidence for c in generation.windows[0].steps[0].commits}
    assert [found[p] for p in range(5)] == pytest.approx(wanted, rel=1e-4)


@pytest.mark.parametrize("kind", ["llada", "dream", "modernbert"])
def test_bfloat16_comes_near_and_keeps_confidences_in_float32(models: dict[str, Backbone], kind: str) -> None:
    model = load(models[kind].name, dtype="bfloat16")
    ids, valid = random_ids(model)
    with torch.inference_mode():
        near, exact = (m.logits(m.hidden(ids, valid))[valid] for m in (model, models[kind]))
    assert near.dtype == torch.float32
    kept = torch.arange(model.vocabulary) != model.mask_id
    difference = (near - exact)[:, kept].norm() / exact[:, kept].norm()
    assert 0 < difference < 0.05
    (generation,) = generate(model, ["the sum"], Block(8), max_new_tokens=8)
    confidences = [c.confidence for s in generation.windows[0].steps for c in s.commits]
    assert all(0 < c <= 1 for c in confidences)
    assert any(torch.tensor(c).bfloat16().item() != c for c in confidences)


@pytest.mark.parametrize("kind", ALL)
def test_a_whole_decoding(models: dict[str, Backbone], kind: str) -> None:
    """Two prompts together give what each gives alone; nothing is left masked."""
    options: dict[str, Any] = {"max_new_tokens": 18, "temperature": 0.7, "seed": 4}
    prompts = ["the sum of 12", "the 2"]
    together = generate(models[kind], prompts, SHORT, **options)
    for prompt, generation in zip(prompts, together, strict=True):
        assert models[kind].mask_id not in generation.tokens
        assert {"diagnostic", "resolve"} <= set(generation.passes)
        (alone,) = generate(models[kind], [prompt], SHORT, **options)
        assert alone.tokens == generation.tokens and alone.text == generation.text


# --- special tokens and texts ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "mask", "end", "turn_end", "length"),
    [
        ("llada", "<|mdm_mask|>", "<|endoftext|>", "<|eot_id|>", 256),
        ("dream", "<|mask|>", "<|endoftext|>", "<|im_end|>", 512),
    ],
)
def test_special_tokens_are_those_of_the_checkpoint(
    models: dict[str, Backbone],
    checkpoints: dict[str, Checkpoint],
    kind: str,
    mask: str,
    end: str,
    turn_end: str,
    length: int,
) -> None:
    model, tokens = models[kind], checkpoints[kind].tokens
    assert (model.mask_id, model.eos_id) == (tokens[mask], tokens[end])
    assert model.end_ids == {tokens[end], tokens[turn_end]}
    assert model.max_length == length and model.vocabulary == checkpoints[kind].config["vocab_size"]
    assert model.token_text(model.mask_id) == mask and model.decode([tokens[end], tokens[turn_end]]) == ""


def test_base_models_end_with_the_end_token_alone(tmp_path: Path) -> None:
    for write in (write_llada, write_dream):
        model = load(write(tmp_path / write.__name__).folder)
        assert model.end_ids == {model.eos_id}


def test_several_end_tokens_of_a_config(llada: Path) -> None:
    rewrite(llada / "config.json", eos_token_id=[7, 9])
    model = load(llada)
    assert model.eos_id == 7 and {7, 9} < model.end_ids
    rewrite(llada / "config.json", eos_token_id=[7, 10**6])
    refused(llada, "1000000.*outside its vocabulary")


@pytest.mark.parametrize("kind", OUTPUTS)
@pytest.mark.parametrize(("entry", "value"), [("mask_token_id", 10**4), ("eos_token_id", -1)])
def test_ids_outside_the_vocabulary(
    checkpoints: dict[str, Checkpoint], tmp_path: Path, kind: str, entry: str, value: int
) -> None:
    folder = Path(shutil.copytree(checkpoints[kind].folder, tmp_path / "model"))
    rewrite(folder / "config.json", **{entry: value})
    refused(folder, f"token id {value}.*outside its vocabulary")


def test_a_llada_without_a_mask_token_in_its_config(llada: Path) -> None:
    """Its tokenizer has none either."""
    rewrite(llada / "config.json", mask_token_id=None)
    refused(llada, "no mask token.*mask_token_id")


def test_dreams_slow_tokenizer_splits_texts_as_the_fast_one(models: dict[str, Backbone], checkpoints: Any) -> None:
    fast = byte_pairs()
    for text in ("the sum of 12", "it's 7 cups,\n\n  isn't it? é", "   spaces 123\t", "e\u0301"):
        assert models["dream"].encode(text) == fast.encode(text).ids
    ids = models["dream"].encode("the<|im_end|>sum<|mask|>")
    assert [checkpoints["dream"].tokens[t] for t in ("<|im_end|>", "<|mask|>")] == [ids[1], ids[-1]]


def test_a_dream_that_was_saved_with_a_fast_tokenizer(models: dict[str, Backbone], dream: Path) -> None:
    models["dream"].tokenizer.save_pretrained(dream)
    for name in ("vocab.json", "merges.txt", "added_tokens.json"):
        (dream / name).unlink(missing_ok=True)
    assert load(dream).encode("it's 7 cups<|im_end|>") == models["dream"].encode("it's 7 cups<|im_end|>")


@pytest.mark.parametrize(
    ("kind", "start", "end"), [("bert", "[CLS]", "[SEP]"), ("roberta", "<s>", "</s>"), ("modernbert", "[CLS]", "[SEP]")]
)
def test_a_masked_lm_reads_prompts_as_it_was_trained(
    models: dict[str, Backbone], kind: str, start: str, end: str
) -> None:
    model = models[kind]
    ids = model.encode("the sum")
    assert model.token_text(ids[0]) == start and ids.count(ids[0]) == 1
    assert model.token_text(model.eos_id) == end and model.eos_id not in ids
    assert model.decode(ids) == "the sum" and not model.shifted
    assert model.max_length == 64, "RoBERTa's first two positions are no token's"
    (generation,) = generate(model, ["the sum"], Block(8), max_new_tokens=64 - len(ids))
    assert generation.tokens


# --- chat ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (
            "llada",
            "<|startoftext|><|start_header_id|>user<|end_header_id|>\n\nthe sum<|eot_id|>"
            "<|start_header_id|>assistant<|end_header_id|>\n\n",
        ),
        (
            "dream",
            "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n<|im_start|>user\nthe sum<|im_end|>\n"
            "<|im_start|>assistant\n",
        ),
    ],
)
def test_a_prompt_as_a_users_turn(models: dict[str, Backbone], kind: str, text: str) -> None:
    model = models[kind]
    ids = model.encode("the sum", chat=True)
    assert "".join(model.token_text(token) for token in ids) == text
    assert all(isinstance(token, int) for token in ids)
    (generation,) = generate(model, ["the sum"], Block(8), max_new_tokens=8, chat=True)
    (plain,) = generate(model, [text], Block(8), max_new_tokens=8)
    assert generation.tokens == plain.tokens and generation.prompt == "the sum"
    assert generation.settings["chat"] is True and plain.settings["chat"] is False


@pytest.mark.parametrize("name", ["LLaDA-8B-Base", "Dream-v0-Base-7B"])
def test_a_base_model_refuses_to_chat(checkpoints: dict[str, Checkpoint], tmp_path: Path, name: str) -> None:
    """Also one that carries the template of the model that its tokenizer is from."""
    model = load(shutil.copytree(checkpoints["llada"].folder, tmp_path / name))
    with pytest.raises(UserError, match=f"{name}.*base model"):
        generate(model, ["the sum"], Block(8), max_new_tokens=8, chat=True)
    model = load(write_dream(tmp_path / "own").folder)
    with pytest.raises(UserError, match=r"no chat template.*Instruct"):
        generate(model, ["the sum"], Block(8), max_new_tokens=8, chat=True)


def test_chat_on_the_command_line(
    models: dict[str, Backbone], checkpoints: dict[str, Checkpoint], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ("--decoder", "block", "--max-new-tokens", "8", "--device", "cpu", "--json")

    def run(folder: Path, *chat: str) -> tuple[int, str, str]:
        capsys.readouterr()
        with pytest.raises(SystemExit) as exit:
            main(["generate", "the sum", "--model", str(folder), *options, *chat])
        return int(exit.value.code or 0), *capsys.readouterr()

    for chat in (True, False):
        (generation,) = generate(models["dream"], ["the sum"], Block(), max_new_tokens=8, chat=chat)
        status, out, _ = run(checkpoints["dream"].folder, *(["--chat"] if chat else []))
        record = json.loads(out)
        assert status == 0 and (record["text"], record["settings"]) == (generation.text, generation.settings)
    base = write_llada(tmp_path / "model").folder
    status, out, err = run(base, "--chat")
    assert (status, out) == (2, "") and "has no chat template" in err
    with pytest.raises(SystemExit):
        main(["compare", "the sum", "--model", str(base), "--max-new-tokens", "8", "--chat"])
    assert "has no chat template" in capsys.readouterr().err


@pytest.mark.parametrize("template", ["{% for %}", "{{ raise_exception('no user') }}", "{{ messages[3].content }}"])
def test_a_chat_template_that_fails(llada: Path, template: str) -> None:
    rewrite(llada / "tokenizer_config.json", chat_template=template)
    model = load(llada)
    with pytest.raises(UserError, match=r"chat template of model .* fails"):
        model.encode("the sum", chat=True)


def test_the_end_of_a_turn_ends_the_text(models: dict[str, Backbone], checkpoints: dict[str, Checkpoint]) -> None:
    """LLaDA-Instruct closes its answer with EoT; what follows is no part of it."""
    model, tokens = models["llada"], checkpoints["llada"].tokens
    turn_end = tokens["<|eot_id|>"]
    head = model.network.get_output_embeddings()
    hook = head.register_forward_hook(
        lambda module, inputs, logits: logits.index_fill(-1, torch.tensor([turn_end]), 99.0)
    )
    try:
        for decoder in (Block(8), SHORT):
            (generation,) = generate(model, ["the sum"], decoder, max_new_tokens=40)
            assert generation.tokens[0] == turn_end and generation.stop_reason == "eos"
            assert generation.text == "" and generation.useful_tokens == 0 and len(generation.windows) == 1
    finally:
        hook.remove()


# --- no remote code --------------------------------------------------------------------------------------------------


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


# --- files that do not fit -------------------------------------------------------------------------------------------


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


# --- where models come from, and where they go -----------------------------------------------------------------------


@pytest.fixture
def hub(checkpoints: dict[str, Checkpoint], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The Hub's cache with two revisions of GSAI-ML/LLaDA-8B-Instruct; the second has another end token."""
    repository = tmp_path / "hub" / "models--GSAI-ML--LLaDA-8B-Instruct"
    (repository / "refs").mkdir(parents=True)
    for reference, digit in (("main", "a"), ("other", "b")):
        (repository / "refs" / reference).write_text(digit * 40)
        shutil.copytree(checkpoints["llada"].folder, repository / "snapshots" / (digit * 40))
    rewrite(repository / "snapshots" / ("b" * 40) / "config.json", eos_token_id=9)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.chdir(tmp_path)
    return repository


def test_a_model_of_the_hub(hub: Path, models: dict[str, Backbone], checkpoints: dict[str, Checkpoint]) -> None:
    model = load("GSAI-ML/LLaDA-8B-Instruct")
    assert model.name == "GSAI-ML/LLaDA-8B-Instruct" and model.eos_id == models["llada"].eos_id
    assert_computes(model, checkpoints["llada"], llada_outputs)
    assert load(model.name, revision="other").eos_id == 9
    assert load(model.name, revision="b" * 40).eos_id == 9
    assert model_folder(model.name) == hub / "snapshots" / ("a" * 40)


def test_calibrated_weights_of_a_model_of_the_hub(hub: Path, tmp_path: Path) -> None:
    name, path = "GSAI-ML/LLaDA-8B-Instruct", tmp_path / "weights.json"
    write_calibration(path, EvidenceWeights.neutral(), fingerprint(model_folder(name)), {})
    assert not load(name).calibrated and load(name, weights=path).calibrated


def test_names_that_lead_nowhere(hub: Path, tmp_path: Path) -> None:
    for name in ("GSAI-ML/LLaDA-9B", "absent"):
        message = refused(name, f"no model folder '{name}'.*Hugging Face Hub.*connection")
        assert len(message) < 400
    refused("GSAI-ML/LLaDA-8B-Instruct", "'gone'.*Hugging Face Hub", revision="gone")
    for name in ("./absent", "a/b/c", str(tmp_path / "absent"), "", "two words", "-x/y"):
        refused(name, "no model folder.*config.json|no model: it has no config.json")
    (hub / "snapshots" / ("a" * 40) / "config.json").unlink()
    refused("GSAI-ML/LLaDA-8B-Instruct", "no model folder.*Hugging Face Hub")


def test_a_folder_has_no_revisions(llada: Path) -> None:
    refused(llada, "revision has no use with the folder", revision="main")


@pytest.mark.parametrize("dtype", ["float77", "int8", torch.int8, "nn", 3])
def test_no_such_dtype(llada: Path, dtype: Any) -> None:
    refused(llada, "no dtype.*bfloat16", dtype=dtype)


def test_device_and_device_map_exclude_each_other(llada: Path) -> None:
    refused(llada, "exclude each other", device="cpu", device_map="auto")


def test_a_device_map(llada: Path, checkpoints: dict[str, Checkpoint], monkeypatch: pytest.MonkeyPatch) -> None:
    if importlib.util.find_spec("accelerate") is None:
        refused(llada, "pip install accelerate", device_map="auto")
        return
    for device_map in ("cpu", {"": "cpu"}, {"model": "cpu", "lm_head": "cpu"}):
        model = load(llada, device_map=device_map, dtype="float32")
        assert_computes(model, checkpoints["llada"], llada_outputs)
    refused(llada, "weights.*cannot be read", device_map="everywhere")


def test_options_go_to_transformers(llada: Path) -> None:
    assert load(llada, attn_implementation="eager").network.config._attn_implementation == "eager"
    refused(llada, "unexpected keyword argument 'no_such_option'", no_such_option=1)
