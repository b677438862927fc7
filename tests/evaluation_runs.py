"""Run folders made by hand, for the tests of what is made from them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import dystruct.decoding
from dystruct.decoding.backbone import Backbone, model_folder
from dystruct.decoding.calibration_file import read_calibration
from dystruct.decoding.evaluation.run_folder import RunFolder
from dystruct.decoding.evaluation.settings import RunSettings
from dystruct.decoding.evaluation.tasks import DOMAINS, digest, items
from dystruct.decoding.named import named_decoder

MODEL = {"name": "m", "fingerprint": "f", "dtype": "float32", "calibrated": True, "weights": {}}
FIGURES: dict[str, Any] = {
    "kind": "k", "reason": "", "text": "t", "useful_tokens": 20, "wasted_tokens": 4, "windows": 2, "blocks": 3,
    "forward_passes": 30, "passes": {"diagnostic": 8, "resolve": 20, "weld": 2}, "seconds": 0.5, "latency": 2.0,
    "empty": False, "repetition": 0.0, "stop_reason": "eos", "confidence": 0.9, "map_probability": 0.3, "entropy": 2.0,
    "log_probability": -1.5,
}  # fmt: skip


def make_run(
    folder: Path,
    right: Mapping[str, Sequence[str]],
    *,
    decoder: str = "dystruct",
    figures: Mapping[str, Any] | None = None,
    each: Mapping[tuple[str, int, int], Mapping[str, Any]] | None = None,
    **settings: Any,
) -> Path:
    """A run's folder. right: by task, a text of signs 0 and 1 for each draw; each: figures by (task, item, draw)."""
    asked = RunSettings(decoder=decoder, tasks=tuple(right), draws=len(next(iter(right.values()))), **settings)
    tasks = {task: {"items": len(draws[0]), "digest": _digest(task, len(draws[0]))} for task, draws in right.items()}
    described = asked.described(MODEL, named_decoder(decoder), tasks)
    with RunFolder(folder, described, {"python": "3"}) as records:
        for task, draws in right.items():
            for item in range(asked.skip, len(draws[0])):
                for draw, signs in enumerate(draws):
                    correct = signs[item] == "1"
                    told = {
                        **FIGURES,
                        "correct": correct,
                        "value": "right" if correct else f"wrong {draw}",
                        **(figures or {}),
                    }
                    told |= (each or {}).get((task, item, draw), {})
                    key = {"task": task, "item": item, "seed": asked.seeds[0], "draw": draw}
                    records.add({**key, **told})
    return folder


def make_pair(folder: Path) -> list[Path]:
    """Folders of two runs on the same items, of `fixed` and of ours."""
    return [
        make_run(
            folder / "fixed",
            {"maths": ["1100000111"], "logic": ["1" * 4]},
            decoder="fixed",
            figures={"forward_passes": 64},
        ),
        make_run(folder / "ours", {"maths": ["1111111000"], "logic": ["1100"]}, decoder="dystruct:passes=share"),
    ]


def with_the_embedded_models_weights(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Lets the scripted model have the weights by which a sweep knows runs of "tiny"; what it was loaded with."""
    scripted, asked = dystruct.decoding.load("tiny"), list[dict[str, Any]]()

    def load(name: str, **options: Any) -> Backbone:
        asked.append({"name": name, **options})
        weights, calibrated = read_calibration(options.get("weights"), model_folder("tiny"))
        return replace(scripted, weights=weights, calibrated=calibrated)

    monkeypatch.setattr(dystruct.decoding, "load", load)
    return asked


def on_other_items(folder: Path) -> Path:
    """A run's folder, changed so that its items are other ones."""
    recorded = (folder / "run.json").read_text()
    (folder / "run.json").write_text(re.sub(r'"digest": ?"[^"]*', lambda found: found[0] + " other", recorded))
    return folder


def _digest(task: str, count: int) -> str:
    return digest(items(task, "test", count)) if task in DOMAINS else f"{task} {count}"
