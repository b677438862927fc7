"""Training that starts from another model keeps to it, whenever stopped; what cannot be compiled is said."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
import torch
from safetensors.torch import load_file
from torch._inductor import config as inductor

from dystruct.decoding import UserError
from dystruct.decoding.tiny import training
from dystruct.decoding.tiny.batches import PHASES, encode
from dystruct.decoding.tiny.network import Size, export, new_network
from dystruct.decoding.tiny.problem import Problem
from dystruct.decoding.tiny.tokenization import build_tokenizer
from dystruct.decoding.tiny.training import CHECKPOINT, TrainingConfig, train


def test_a_run_that_is_stopped_at_once_goes_on_from_what_it_started_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokenizer = build_tokenizer(["Tom has 3 apples and buys 4.", "7 apples"] * 20, 300)
    torch.manual_seed(5)
    smaller = export(new_network(Size(32, 1, 48, 16, 300), tokenizer), tokenizer, tmp_path / "smaller")
    run = tmp_path / "run"
    run.mkdir()
    tokenizer.save(str(run / "tokenizer.json"))
    config = TrainingConfig(width=32, layers=2, intermediate=48, head=16, vocabulary=300)

    def stopped(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(training, "pool_of_rows", stopped)
    for start_from in (smaller, None):  # the second time as one who goes on
        with pytest.raises(KeyboardInterrupt):
            train(run, config, start_from=start_from, compile=False)
        begun = load_file(run / CHECKPOINT)
        grown = begun["model.model.layers.0.mlp.down_proj.weight"]
        first = load_file(smaller / "model.safetensors")["model.layers.0.mlp.down_proj.weight"]
        assert torch.equal(grown, first.float())
    with pytest.raises(UserError, match="has begun; leave --start-from out"):
        train(run, config, start_from=smaller, compile=False)


@pytest.fixture
def first_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TrainingConfig:
    """A run in `tmp_path` that is quickly at its first step."""
    tokenizer = build_tokenizer(["Tom has 3 apples and buys 4.", "7 apples"] * 20, 300)
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    rows = encode(
        tokenizer, [Problem("maths", "story", "Tom has 3 apples.", "3 apples", "3")] * 2, PHASES[0], Random(0)
    )
    monkeypatch.setattr(training, "pool_of_rows", lambda *_, **__: [rows])
    return TrainingConfig(32, 1, 48, 16, 300, autoregressive_tokens=1, windowed_tokens=0, masked_tokens=0)


@pytest.mark.filterwarnings("ignore::DeprecationWarning:torch")  # the tracer says this of its own code
@pytest.mark.parametrize("compiler", ["no-such-compiler", "false"], ids=["missing", "broken"])
def test_what_cannot_be_compiled_is_said(tmp_path: Path, first_steps: TrainingConfig, compiler: str) -> None:
    torch.compiler.reset()
    with (
        inductor.patch({"cpp.cxx": (None, compiler)}),
        pytest.raises(UserError, match=r"^The model cannot be compiled here \(.*--no-compile") as error,
    ):
        train(tmp_path, first_steps, report=lambda _: None)
    assert "\n" not in str(error.value) and str(error.value).endswith(".")
    torch.compiler.reset()
    assert train(tmp_path, first_steps, compile=False, report=lambda _: None) == tmp_path / "model"


@pytest.mark.parametrize("failure", [torch.OutOfMemoryError, KeyboardInterrupt, ZeroDivisionError])
def test_what_else_ends_a_step_is_no_fault_of_the_compiler(
    tmp_path: Path, first_steps: TrainingConfig, failure: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        raise failure

    monkeypatch.setattr(training, "_predict", fails)
    with pytest.raises(failure):
        train(tmp_path, first_steps, compile=False, report=lambda _: None)
