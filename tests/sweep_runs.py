"""What the tests of sweeps share: a file of five runs, two items, and a model with the weights of the embedded one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from command_line import Run
from dystruct.decoding.evaluation import tasks
from dystruct.decoding.evaluation.sweep import PlannedRun, read_sweep
from dystruct.decoding.tiny.problem import Problem
from evaluation_runs import with_the_embedded_models_weights

FILE = """
[settings]
tasks = ["tiny_logic"]
limit = 2
budget = [16, 8]
max_new_tokens = 12

[[run]]
name = "alpha"
decoder = "dystruct:structure=sample,alpha0={alpha0},prior.max_length={longest}"
alpha0 = [1.0, 2.0]
longest = 32
draws = 2

[[run]]
decoder = "block"
budget = 4
seeds = [0, 1]
"""


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> None:
    found = [Problem("logic", "k", text, "", "a") for text in ("ab", "cd")]
    monkeypatch.setattr(tasks, "items", lambda task, split="test", limit=None: found[:limit])


@pytest.fixture(autouse=True)
def loaded(run: Run, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    return with_the_embedded_models_weights(monkeypatch)


def planned(tmp_path: Path, text: str = FILE) -> list[PlannedRun]:
    (tmp_path / "sweep.toml").write_text(text)
    return read_sweep(tmp_path / "sweep.toml")
