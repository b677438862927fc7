"""`compiled`: the same texts from one program for all lengths, off unless asked for, and clear where it cannot be had.

Compiling for real takes a minute. Here a small network is traced, and what was traced runs as it is: that is all
that decides about programs and their shapes. The compiler itself is tried with DYSTRUCT_SLOW=1.
"""

from __future__ import annotations

import dataclasses
import functools
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers.modeling_outputs import BaseModelOutput

import dystruct.decoding
from command_line import Run
from dystruct.decoding import Block, DyStruct, UserError, generate, load
from dystruct.decoding.backbone import Backbone
from dystruct.decoding.terminal.cli import main
from dystruct.model import PriorConfig
from random_network import random_backbone
from scripted import EOS, VOCABULARY

PROMPTS = ["ab", "abcdefgh", "c", "jihg", "a" * 50]
SAMPLED = DyStruct(structure="sample", prior=PriorConfig(3, 9))

# PyTorch's tracer says this of its own code, in every process that compiles.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:torch")


class Means(torch.nn.Module):
    """Every position is its token, its place and the mean of all: a network that attends to everything."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.tokens, self.places = torch.nn.Embedding(VOCABULARY, 16), torch.nn.Embedding(128, 16)
        self.head = torch.nn.Linear(16, VOCABULARY, bias=False)
        self.head.weight.data[EOS] = 0
        self.base_model = self.run

    def run(self, input_ids: torch.Tensor, attention_mask: torch.Tensor | None, use_cache: bool) -> Any:
        states = self.tokens(input_ids)
        weight = torch.ones_like(states[..., :1]) if attention_mask is None else attention_mask[..., None]
        mean = (states * weight).sum(1, keepdim=True) / weight.sum(1, keepdim=True)
        return BaseModelOutput(torch.tanh(states + 2 * mean + self.places.weight[: input_ids.shape[1]]))

    def get_input_embeddings(self) -> torch.nn.Module:
        return self.tokens

    def get_output_embeddings(self) -> torch.nn.Module:
        return self.head


@pytest.fixture
def traced(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """torch.compile without its compiler."""
    torch.compiler.reset()
    monkeypatch.setattr(torch, "compile", functools.partial(torch.compile, backend="eager"))
    yield
    torch.compiler.reset()


def compiled(model: Backbone) -> Backbone:
    return dataclasses.replace(model, compiled=True)


def told(model: Backbone, decoder: Any, **settings: Any) -> list[Any]:
    found = generate(model, PROMPTS, decoder, max_new_tokens=12, **settings)
    return [(g.tokens, g.passes) for g in found]


def test_nothing_is_compiled_unless_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "compile", lambda *_, **__: pytest.fail("nobody asked for it"))
    model = load("tiny")
    assert not model.compiled
    generate(model, ["Tom has 3 apples."], Block(2), max_new_tokens=2)


@pytest.mark.usefixtures("traced")
def test_a_warm_model_compiles_nothing_more_and_gives_the_same_texts() -> None:
    """Whatever the lengths, batches and decoders: a further program is an error here."""
    model = dataclasses.replace(random_backbone(), network=Means().double().eval())
    ours = compiled(model)
    ours.warm_up()
    for decoder, batch_size in ((Block(4), 1), (Block(4), 3), (SAMPLED, 2)):
        wanted = told(model, decoder, batch_size=batch_size)
        with torch._dynamo.config.patch(error_on_recompile=True):
            assert told(ours, decoder, batch_size=batch_size) == wanted
        assert len({tokens for tokens, _ in wanted}) == len(PROMPTS)


def test_loading_warms_up(monkeypatch: pytest.MonkeyPatch) -> None:
    warm: list[Backbone] = []
    monkeypatch.setattr(Backbone, "warm_up", lambda model: warm.append(model))
    model = load("tiny", compiled=True)
    assert model.compiled and warm == [model]


def test_what_cannot_be_compiled_is_said_when_it_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any, **__: Any) -> Any:
        raise RuntimeError("no compiler found\nand a long story")

    monkeypatch.setattr(torch, "compile", fails)
    with pytest.raises(UserError) as error:
        load("tiny", compiled=True)
    assert str(error.value) == (
        "Model 'tiny' cannot be compiled here (no compiler found); install a C++ compiler, or leave out compiled=True "
        "(--compiled)."
    )


def test_a_prefix_cache_is_not_compiled() -> None:
    with pytest.raises(
        UserError, match=r"^compiled \(--compiled\) has no use with a prefix cache, .*; leave one out\.$"
    ):
        generate(compiled(random_backbone()), PROMPTS, Block(4), max_new_tokens=4, prefix_cache=True)


@pytest.mark.skipif("DYSTRUCT_SLOW" not in os.environ, reason="compiles, a minute or two: set DYSTRUCT_SLOW=1")
def test_the_compiler_gives_the_same_texts() -> None:
    prompts = ["Tom has 3 apples and buys 4.", "How many days are in 3 weeks?", "Mia has 5 pens."]
    models = load("tiny"), load("tiny", compiled=True)
    with torch._dynamo.config.patch(error_on_recompile=True):
        texts = [[g.text for g in generate(m, prompts, SAMPLED, max_new_tokens=24, batch_size=2)] for m in models]
    assert texts[0] == texts[1]


def test_the_command_line_asks_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    warm: list[Backbone] = []
    monkeypatch.setattr(Backbone, "warm_up", lambda model: warm.append(model))
    monkeypatch.setattr(torch, "compile", lambda network, **_: network)
    with pytest.raises(SystemExit) as done:
        main(["generate", "--compiled", "--max-new-tokens", "2", "Tom has 3 apples."])
    assert not done.value.code and len(warm) == 1


@pytest.mark.parametrize("cache", ["--prefix-cache", "--append-cache"])
@pytest.mark.parametrize("command", [["generate", "abc"], ["eval", "out", "--tasks", "tiny_logic"]], ids=lambda c: c[0])
def test_a_prefix_cache_is_refused_before_a_model_is_loaded(
    run: Run, monkeypatch: pytest.MonkeyPatch, command: list[str], cache: str
) -> None:
    monkeypatch.setattr(dystruct.decoding, "load", lambda *_, **__: pytest.fail("nothing is loaded"))
    run(*command, "--compiled", cache).refused(f"--compiled has no use with {cache}, whose passes are not compiled")
    assert not os.listdir()


@pytest.mark.parametrize("cache", ["true", '"append"', '[false, "append"]'])
def test_a_sweep_with_a_prefix_cache_is_refused_before_a_model_is_loaded(
    run: Run, monkeypatch: pytest.MonkeyPatch, cache: str
) -> None:
    loaded: list[str] = []
    monkeypatch.setattr(dystruct.decoding, "load", lambda name, **_: loaded.append(name) or pytest.fail(name))
    shared = '[settings]\ntasks = ["tiny_logic"]\ndecoder = "block"\n[[run]]\nname = "exact"\n'
    Path("sweep.toml").write_text(f'{shared}[[run]]\nname = "cached"\nprefix_cache = {cache}\n', encoding="utf-8")
    told = run("sweep", "sweep.toml", "out", "--compiled")
    told.refused("--compiled has no use with the prefix_cache of run 'cached", "--only")
    assert not loaded and os.listdir() == ["sweep.toml"]
    assert run("sweep", "sweep.toml", "out", "--compiled", "--status").status == 0
    with pytest.raises(pytest.fail.Exception):
        run("sweep", "sweep.toml", "out", "--compiled", "--only", "exact")
    assert loaded == ["tiny"]
