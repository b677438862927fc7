"""Where models come from, folders and the Hub, and where they go: devices and numbers."""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import Any

import huggingface_hub
import pytest
import torch
from huggingface_hub.utils import are_progress_bars_disabled
from transformers.utils import logging

import dystruct.decoding
from checkpoint_models import (
    assert_computes,
    refused,
    rewrite,
)
from checkpoints import Checkpoint, llada_outputs
from command_line import Run
from dystruct.decoding import Backbone, load
from dystruct.decoding.backbone import loading, model_folder
from dystruct.decoding.calibration_file import fingerprint, write_calibration
from dystruct.model import EvidenceWeights
from full_memory import OUT_OF_MEMORY

pytestmark = pytest.mark.filterwarnings("ignore:Model .* has no calibrated")


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


@pytest.mark.filterwarnings("ignore:Texts of model")  # the other revision has another end token
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


@pytest.mark.parametrize("address", ["http://127.0.0.1:9/config.json", "http://nowhere.invalid/config.json"])
def test_a_hub_out_of_reach_is_asked_once(hub: Path, monkeypatch: pytest.MonkeyPatch, address: str) -> None:
    """Without a network: no second attempt, no waiting for one, and none at all for a model that is here."""
    asked: list[str] = []

    def locate(name: str, file: str, revision: str | None) -> str:
        asked.append(name)
        return address

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(huggingface_hub, "hf_hub_url", locate)
    monkeypatch.setattr(time, "sleep", lambda seconds: pytest.fail("it waits"))
    refused("GSAI-ML/LLaDA-9B", "no model of this name came from the Hugging Face Hub.*connection")
    assert asked == ["GSAI-ML/LLaDA-9B"]


def test_a_hub_that_may_not_be_asked_is_named(hub: Path) -> None:
    refused("GSAI-ML/LLaDA-9B", "HF_HUB_OFFLINE")


def test_a_folder_has_no_revisions(llada: Path) -> None:
    refused(llada, "revision has no use with the folder", revision="main")


@pytest.mark.parametrize("dtype", ["float77", "int8", torch.int8, "nn", 3])
def test_no_such_dtype(llada: Path, dtype: Any) -> None:
    refused(llada, "no dtype.*bfloat16", dtype=dtype)


def test_what_excludes_each_other(llada: Path) -> None:
    refused(llada, "exclude each other", device="cpu", device_map="auto")
    refused(llada, "exclude each other", neutral=True, weights="nowhere.json")
    refused(llada, "exclude each other", neutral=True, force_weights=True)
    refused(llada, "called dtype here", torch_dtype=torch.float64)


def test_a_device_map(llada: Path, checkpoints: dict[str, Checkpoint]) -> None:
    for device_map in ("cpu", {"": "cpu"}, {"model": "cpu", "lm_head": "cpu"}):
        model = load(llada, device_map=device_map, dtype="float32")
        assert_computes(model, checkpoints["llada"], llada_outputs)
    refused(llada, "no device map 'everywhere'; give auto, balanced", device_map="everywhere")
    refused(llada, "weights.*cannot be read.*check device_map", device_map={"": "everywhere"})


@pytest.mark.parametrize("error", OUT_OF_MEMORY.values(), ids=OUT_OF_MEMORY)
@pytest.mark.parametrize(
    ("kind", "step"),
    [
        ("llada", "transformers.LlamaForCausalLM.from_pretrained"),
        ("llada", "transformers.LlamaForCausalLM.to"),
        ("llada", "transformers.LlamaModel.forward"),
        ("bert", "transformers.AutoModelForMaskedLM.from_pretrained"),
        ("bert", "transformers.BertForMaskedLM.to"),
        ("bert", "transformers.BertForMaskedLM.forward"),
    ],
)
def test_a_device_whose_memory_is_too_small(
    models: dict[str, Backbone], monkeypatch: pytest.MonkeyPatch, kind: str, step: str, error: Exception
) -> None:
    """Wherever it shows: the files are not to blame, nor the architecture."""

    def full(*given: Any, **options: Any) -> None:
        raise error

    monkeypatch.setattr(step, full)
    message = refused(models[kind].name, "^The device's memory is too small for model", device="cpu")
    assert models[kind].name in message
    assert all(remedy in message for remedy in ("--device)", "--device-map auto", "--dtype bfloat16"))


def test_on_the_command_line_too(run: Run, llada: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*given: Any, **options: Any) -> None:
        raise OUT_OF_MEMORY["CUDA"]

    monkeypatch.setattr(dystruct.decoding, "load", load)
    monkeypatch.setattr("transformers.LlamaForCausalLM.to", full)
    run("generate", "the sum", "--model", str(llada)).refused("memory is too small for model", "--device-map auto")


def test_a_device_whose_memory_is_too_small_for_compiling(llada: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*given: Any, **options: Any) -> None:
        raise OUT_OF_MEMORY["CUDA"]

    monkeypatch.setattr(torch, "compile", lambda *given, **options: full)
    refused(llada, "^The device's memory is too small", compiled=True)


def test_an_error_that_is_not_the_memorys_stays_what_it_is(llada: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*given: Any, **options: Any) -> None:
        raise RuntimeError("Error while deserializing header")

    monkeypatch.setattr("transformers.LlamaForCausalLM.from_pretrained", broken)
    refused(llada, "weights.*cannot be read.*damaged")


def test_a_device_map_without_accelerate(llada: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loading, "has_accelerate", lambda: False)
    refused(llada, r"pip install 'dystruct\[accelerate\]'", device_map="auto")


def test_loading_says_nothing_and_leaves_transformers_reports_as_they_were(
    llada: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    before = (logging.get_verbosity(), logging.is_progress_bar_enabled(), are_progress_bars_disabled())
    load(llada)
    assert capfd.readouterr() == ("", "")
    assert (logging.get_verbosity(), logging.is_progress_bar_enabled(), are_progress_bars_disabled()) == before


def test_options_go_to_transformers(llada: Path) -> None:
    assert load(llada, attn_implementation="eager").network.config._attn_implementation == "eager"
    refused(llada, "unexpected keyword argument 'no_such_option'", no_such_option=1)
