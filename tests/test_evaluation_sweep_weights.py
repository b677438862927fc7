"""Sweeps of models with fitted weights and of revisions: what stands on record is known by them."""

# ruff: noqa: F811 - fixtures that are imported
from __future__ import annotations

from pathlib import Path
from typing import Any

import huggingface_hub
import pytest

import dystruct.decoding
from command_line import Run
from dystruct.decoding.backbone import model_folder
from dystruct.decoding.calibration_file import fingerprint, write_calibration
from dystruct.decoding.evaluation import sweep_making
from dystruct.decoding.evaluation.run_record import read_items, read_run
from dystruct.decoding.plain import as_plain
from dystruct.model import EvidenceWeights
from scripted import backbone, hashed, uneven_weights
from sweep_runs import FILE, asked, loaded, planned  # noqa: F401 - fixtures


def test_weights_and_a_revision_stand_beside_the_model(tmp_path: Path) -> None:
    shared = 'model = "org/model"\nrevision = "v1"\nweights = ["a/one.json", "two.json"]'
    text = FILE.replace("[settings]", f"[settings]\n{shared}")
    text += '\n[[run]]\ndecoder = "fast"\nweights = "own.json"\nrevision = ["v1", "v2"]\n'
    found = [(run.folder, run.model, run.revision, run.weights) for run in planned(tmp_path, text)[8:]]
    assert found == [
        ("block-weights=one", "org/model", "v1", Path("a/one.json")),
        ("block-weights=two", "org/model", "v1", Path("two.json")),
        *((f"fast-revision={v}-budget={b}", "org/model", v, Path("own.json")) for v in ("v1", "v2") for b in (16, 8)),
    ]


OWN = """
[settings]
tasks = ["tiny_logic"]
weights = "own.json"
limit = 2
max_new_tokens = 4
budget = 4

[[run]]
decoder = "dystruct"

[[run]]
decoder = "block"
"""


def test_a_run_with_fitted_weights_is_known_by_them(
    tmp_path: Path, run: Run, asked: None, loaded: list[dict[str, Any]]
) -> None:
    planned(tmp_path, OWN)
    write_calibration(tmp_path / "own.json", uneven_weights(), fingerprint(model_folder("tiny")), {})
    assert run("sweep", "sweep.toml", "out").status == 0
    assert [(each["name"], each["weights"], each["revision"]) for each in loaded] == [("tiny", Path("own.json"), None)]
    held = read_run(tmp_path / "out" / "dystruct")["settings"]["model"]
    assert held["weights"] == as_plain(uneven_weights()) and held["calibrated"]
    assert run("sweep", "sweep.toml", "out", "--status").out == "dystruct: finished\nblock: finished\n"
    (tmp_path / "own.json").rename(tmp_path / "other.json")
    planned(tmp_path, OWN.replace("own.json", "other.json"))
    assert run("sweep", "sweep.toml", "out", "--status").out == "dystruct: finished\nblock: finished\n", "the same ones"

    for text, weights in ((OWN.replace('weights = "own.json"\n', ""), None), (OWN, EvidenceWeights.neutral())):
        planned(tmp_path, text)
        if weights is not None:
            write_calibration(tmp_path / "own.json", weights, fingerprint(model_folder("tiny")), {})
        run("sweep", "sweep.toml", "out", "--status").refused(
            "The run in 'out/dystruct' has model.weights.position [0.6,"
        )
        run("sweep", "sweep.toml", "out").refused("go on with its model, or name another folder")
        block = OWN[: OWN.index("[[run]]")] + OWN[OWN.rindex("[[run]]") :]
        planned(tmp_path, block if weights is not None else block.replace('weights = "own.json"\n', ""))
        assert run("sweep", "sweep.toml", "out", "--status").out == "block: finished\n", "which takes no weights"


def test_a_run_of_a_decoder_without_weights_goes_on_under_others(tmp_path: Path, run: Run, asked: None) -> None:
    planned(tmp_path, OWN.replace('weights = "own.json"\n', ""))
    assert run("sweep", "sweep.toml", "out", "--limit", "1").status == 0
    write_calibration(tmp_path / "own.json", uneven_weights(), fingerprint(model_folder("tiny")), {})
    planned(tmp_path, OWN[: OWN.index("[[run]]")] + OWN[OWN.rindex("[[run]]") :])
    assert run("sweep", "sweep.toml", "out").status == 0
    assert read_run(tmp_path / "out" / "block")["settings"]["model"]["weights"] == as_plain(uneven_weights())
    assert len(read_items(tmp_path / "out" / "block")) == 2


@pytest.mark.parametrize("known", [False, True])
def test_weights_that_cannot_be_taken_are_told_before_any_run_is_begun(
    tmp_path: Path, run: Run, asked: None, known: bool
) -> None:
    planned(tmp_path, OWN if known else OWN.replace("weights", 'model = "org/model"\nweights'))
    run("sweep", "sweep.toml", "out").refused("The calibration 'own.json' cannot be read (FileNotFoundError")
    if known:
        write_calibration(tmp_path / "own.json", uneven_weights(), "another", {})
        run("sweep", "sweep.toml", "out", "--status").refused("'own.json' was fitted on another model")
    assert not (tmp_path / "out").exists()


def test_a_model_of_the_hub_is_known_by_its_files_where_they_are_here(
    tmp_path: Path, run: Run, asked: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that another revision, or its own weights in place of given ones, do not pass for what is on record."""
    for revision in ("v1", "v2"):
        (tmp_path / revision).mkdir()
        (tmp_path / revision / "config.json").write_text("{}")
        (tmp_path / revision / "a.safetensors").write_bytes(bytes(8) + revision.encode())
    real = huggingface_hub.try_to_load_from_cache
    places: dict[str | None, str] = {name: str(tmp_path / name / "config.json") for name in ("v1", "v2")}

    def cached(name: str, file: str, revision: str | None) -> Any:
        assert file == "config.json"
        return places.get(revision) if name == "scripted" else real(name, file, revision=revision)

    monkeypatch.setattr("huggingface_hub.try_to_load_from_cache", cached)
    monkeypatch.setattr(sweep_making, "model_folder", lambda name, revision: tmp_path / revision)
    text = OWN.replace("weights", 'model = "scripted"\nrevision = "v1"\nweights')
    write_calibration(tmp_path / "own.json", uneven_weights(), fingerprint(tmp_path / "v1"), {})
    planned(tmp_path, text)
    monkeypatch.setattr(dystruct.decoding, "load", lambda name, **of: backbone(hashed(3), weights=uneven_weights()))
    assert run("sweep", "sweep.toml", "out").status == 0
    assert run("sweep", "sweep.toml", "out", "--status").out == "dystruct: finished\nblock: finished\n"
    planned(tmp_path, text.replace('weights = "own.json"\n', ""))
    run("sweep", "sweep.toml", "out", "--status").refused("has model.calibrated true, not false; go on with its model")
    planned(tmp_path, text.replace("v1", "v2"))
    run("sweep", "sweep.toml", "out", "--status").refused("'own.json' was fitted on another model")
    write_calibration(tmp_path / "own.json", uneven_weights(), fingerprint(tmp_path / "v2"), {})
    run("sweep", "sweep.toml", "out", "--status").refused("has model.fingerprint")
    planned(tmp_path, text.replace("v1", "v3"))
    assert run("sweep", "sweep.toml", "out", "--status").out == "dystruct: finished\nblock: finished\n", "by its name"
    planned(tmp_path, text.replace('"scripted"', '"not a/name/of the Hub"'))
    run("sweep", "sweep.toml", "out", "--status").refused('has model.name "scripted", not "not a/name/of the Hub"')
