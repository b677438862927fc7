"""Training that starts from another model keeps to it, whenever it is stopped."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from dystruct.decoding import UserError
from dystruct.decoding.tiny import training
from dystruct.decoding.tiny.network import Size, export, new_network
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
