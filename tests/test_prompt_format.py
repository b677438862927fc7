"""What stands around a prompt: given to `load` or on the command line, and its special tokens."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import dystruct.decoding
from checkpoint_models import MASKED, OUTPUTS, refused, rewrite, write_masked
from checkpoints import DREAM_TOKENS, LLADA_TOKENS, Checkpoint
from command_line import Run
from dystruct.decoding import Backbone, Block, UserError, generate, load
from dystruct.decoding.backbone import loading

pytestmark = pytest.mark.filterwarnings("ignore:Model .* has no calibrated")
TOKENS = {"llada": LLADA_TOKENS, "dream": DREAM_TOKENS}
BEGIN = {"llada": "<|startoftext|>", "dream": "<|beginoftext|>"}


@pytest.mark.parametrize("kind", OUTPUTS)
def test_special_tokens_of_a_format_are_special_tokens(
    models: dict[str, Backbone], checkpoints: dict[str, Checkpoint], kind: str
) -> None:
    """Each of them, before and behind a prompt and within other text."""
    model, tokens = models[kind], checkpoints[kind].tokens
    text = "the sum of 12"
    bare = model.encode(text)
    for name in TOKENS[kind]:
        given = load(model.name, device="cpu", prompt_format=f"{name}{{prompt}}{name}")
        assert given.encode(text) == [tokens[name], *bare, tokens[name]]
    given = load(model.name, device="cpu", prompt_format=f"{BEGIN[kind]}Q: {{prompt}}\nA:")
    assert given.encode(text) == [tokens[BEGIN[kind]], *model.encode(f"Q: {text}\nA:")]
    assert given.decode(given.encode(text)) == f"Q: {text}\nA:" and given.tokenizer.bos_token == BEGIN[kind]


def test_a_base_model_is_prompted_with_its_first_token(dream: Path, checkpoints: dict[str, Checkpoint]) -> None:
    """As Dream's own evaluation does; nothing stands there unless it is asked for."""
    bare, begun = load(dream), load(dream, prompt_format="<|beginoftext|>{prompt}")
    assert begun.encode("7 cups") == [checkpoints["dream"].tokens["<|beginoftext|>"], *bare.encode("7 cups")]
    texts = {}
    for model in (bare, begun):
        (found,) = generate(model, ["7 cups"], Block(8), max_new_tokens=8)
        texts[found.settings["prompt_format"]] = found.tokens
    assert list(texts) == ["{prompt}", "<|beginoftext|>{prompt}"] and len(set(texts.values())) == 2
    (turn,) = generate(begun, ["7 cups"], Block(8), max_new_tokens=8, chat=True)
    (same,) = generate(bare, ["7 cups"], Block(8), max_new_tokens=8, chat=True)
    assert turn.tokens == same.tokens and turn.settings["prompt_format"] is None


def test_a_given_format_comes_before_the_configs(llada: Path, tmp_path: Path) -> None:
    rewrite(llada / "config.json", prompt_format="{prompt}\n")
    assert load(llada).prompt_format == "{prompt}\n"
    assert load(llada, prompt_format="{prompt}").prompt_format == "{prompt}"
    for kind in MASKED:
        folder = write_masked(tmp_path / kind, kind)
        first, *_ = load(folder).encode("the sum")
        assert first not in load(folder, prompt_format="{prompt}").encode("the sum")


@pytest.mark.parametrize("given", ["", "prompt", "{prompt}{prompt}", "{ prompt }", "{}", 7, ["{prompt}"]])
def test_a_format_must_name_the_prompt_once(given: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loading, "_find", lambda *given: pytest.fail("a model was looked for"))
    refused("absent", r"^prompt_format must name \{prompt\} once", prompt_format=given)


def test_a_format_is_a_text(llada: Path) -> None:
    refused(llada, "^prompt_format is a text that is no valid Unicode", prompt_format="\ud801{prompt}")


@pytest.mark.parametrize("kind", OUTPUTS)
@pytest.mark.parametrize("wrong", ["<|begin|>", "<|BEGINOFTEXT|>", "<|the|>"])
def test_what_looks_like_a_special_token_is_one(models: dict[str, Backbone], kind: str, wrong: str) -> None:
    """Else a typing error would be read letter by letter, and nothing would say so."""
    for given in (f"{wrong}{{prompt}}", f"{BEGIN[kind]}{{prompt}}{wrong}"):
        message = refused(models[kind].name, "^prompt_format has .*no token of model", prompt_format=given)
        assert repr(wrong) in message and repr(BEGIN[kind]) in message
    other = BEGIN["dream" if kind == "llada" else "llada"]
    refused(models[kind].name, "no token of model", prompt_format=other + "{prompt}")


def test_text_in_angle_brackets_is_no_special_token(llada: Path) -> None:
    for text in ("<user>{prompt}", "a <| b |> c{prompt}", "{prompt} <|", "<||>{prompt}"):
        assert load(llada, prompt_format=text).prompt_format == text


# --- on the command line ---------------------------------------------------------------------------------------------

COMMANDS = ("generate abc --quiet", "compare abc", "accuracy --domain logic", "calibrate w.json --domain logic")


@pytest.mark.parametrize("command", COMMANDS)
def test_a_format_reaches_load(run: Run, monkeypatch: pytest.MonkeyPatch, command: str) -> None:
    seen: list[Any] = []

    def recording(name: str, **given: Any) -> None:
        seen.append(given.get("prompt_format", "none"))
        raise UserError("That is all.")

    monkeypatch.setattr(dystruct.decoding, "load", recording)
    for options in ((), ("--prompt-format", "<|beginoftext|>{prompt}\n")):
        run(*command.split(), *options).refused("That is all.")
    assert seen == ["none", "<|beginoftext|>{prompt}\n"]


@pytest.mark.parametrize("command", COMMANDS)
def test_formats_that_cannot_be_are_told_by_the_options_name(
    run: Run, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.setattr(dystruct.decoding, "load", loading.load)
    run(*command.split(), "--prompt-format", "text").refused("--prompt-format must name {prompt} once")
    run(*command.split(), "--prompt-format", "<|begin|>{prompt}").refused("--prompt-format has '<|begin|>'", "'tiny'")
    run(*command.split(), "--prompt-format", "{prompt}", "--chat").refused("--prompt-format and --chat exclude")


def test_a_format_is_on_record(run: Run, dream: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dystruct.decoding, "load", loading.load)
    options = ("--model", str(dream), "--prompt-format", "<|beginoftext|>{prompt}", "--decoder", "block")
    found = json.loads(run("generate", "the sum", *options, "--max-new-tokens", "8", "--json").out)
    model = load(dream, prompt_format="<|beginoftext|>{prompt}")
    (wanted,) = generate(model, ["the sum"], Block(), max_new_tokens=8)
    compared = json.loads(run("compare", "the sum", *options, "--max-new-tokens", "8", "--json").out)
    assert compared["text"] == found["text"] == wanted.text
    for told in (found, compared):
        assert told["settings"]["prompt_format"] == "<|beginoftext|>{prompt}"
