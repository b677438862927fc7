"""Published checkpoints: special tokens, tokenizers and chat templates."""

from __future__ import annotations

import json
import logging
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from checkpoint_models import (
    ALL,
    OUTPUTS,
    SHORT,
    refused,
    rewrite,
)
from checkpoints import Checkpoint, byte_pairs, write_dream, write_llada
from dystruct.decoding import Backbone, Block, UserError, generate, load
from dystruct.decoding.terminal.cli import main

pytestmark = pytest.mark.filterwarnings("ignore:Model .* has no calibrated")


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
    with pytest.warns(UserWarning, match="end with token 7, .* not with its tokenizer's end token"):
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


@pytest.mark.parametrize("kind", ALL)
def test_what_is_too_long_is_said_once(
    models: dict[str, Backbone],
    tmp_path: Path,
    kind: str,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Tokenizers have limits of their own and warn of them, as of a prompt that the network can take."""
    monkeypatch.setattr(logging.getLogger("transformers"), "propagate", True)
    folder = Path(shutil.copytree(models[kind].name, tmp_path / kind))
    rewrite(folder / "tokenizer_config.json", model_max_length=4)
    model = load(folder, device="cpu")
    caplog.clear()
    generate(model, ["the sum of 12 and 30"], Block(2), max_new_tokens=2)
    with pytest.raises(UserError, match=r"^The prompt has \d+ tokens"):
        generate(model, ["1 " * 2000], Block(2), max_new_tokens=2)
    assert not caplog.records


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
