"""`dystruct train`: its options are those of a training run, and every mistake is one sentence."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from command_line import Run, helps
from dystruct.decoding.tiny import training
from dystruct.decoding.tiny.training import TrainingConfig


@pytest.fixture
def trained(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What `train` is called with, in place of a training run."""
    seen: list[dict[str, Any]] = []

    def train(folder: Path, config: TrainingConfig, *, report: Callable[[str], None], **settings: Any) -> Path:
        seen.append({"folder": folder, "config": config, **settings})
        report("step 1")
        return folder / "model"

    monkeypatch.setattr(training, "train", train)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: object())
    return seen


def test_train(run: Run, trained: list[dict[str, Any]]) -> None:
    outcome = run("train", "runs/a", "--width", "64", "--muon-rate", "0.01", "--no-compile", "--save-every", "10")
    assert outcome.status == 0, outcome.err
    assert outcome.out.splitlines()[0] == "step 1" and "runs/a/model" in outcome.out
    assert trained == [
        {
            "folder": Path("runs/a"),
            "config": TrainingConfig(width=64, muon_rate=0.01),
            "compile": False,
            "save_every": 10.0,
        }
    ]
    assert run("train", "runs/a").status == 0
    assert run("train", "runs/a", "--width", "64").status == 0
    assert [call["config"] for call in trained] == [TrainingConfig(width=64, muon_rate=0.01)] * 3
    run("train", "runs/a", "--width", "32").refused("--width 64", "another folder")


def test_train_offers_every_setting_with_its_default() -> None:
    helped = helps("train")
    for field in fields(TrainingConfig):
        assert f"Default {field.default}." in helped[f"--{field.name.replace('_', '-')}"], field.name
    for name, parameter in inspect.signature(training.train).parameters.items():
        if name not in ("folder", "config", "report"):
            assert f"Default {parameter.default}." in helped[f"--{name.replace('_', '-')}"], name


def test_train_mistakes(run: Run, trained: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch) -> None:
    Path("file").write_text("", encoding="utf-8")
    run("train", "file").refused("is a file")
    run("train", "a", "--width", "30").refused("--width 30", "--head 32")
    run("train", "a", "--layers", "0").refused("--layers", "1")
    run("train", "a", "--device", "abacus").refused("'abacus'")
    run("train").refused("argument", "--help")
    Path("a").mkdir()
    for wrong in ('{"depth": 3}', '{"width": "64"}', '{"width": 64.5}', '{"seed": true}', "[" * 10**5):
        Path("a/training.json").write_text(wrong, encoding="utf-8")
        run("train", "a").refused("training.json", "remove it")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    run("train", "b").refused("reasoning-gym", "pip install")
    assert trained == [] and sorted(os.listdir()) == ["a", "file"]


def test_training_can_be_interrupted(run: Run, trained: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*args: Any, **settings: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(training, "train", interrupted)
    outcome = run("train", "a")
    assert outcome.status == 130 and "`dystruct train a` goes on" in outcome.err
