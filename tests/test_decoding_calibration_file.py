"""The calibration file: it comes back as it was, belongs to one model, and is refused when damaged."""

from __future__ import annotations

import json
import re
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file

from dystruct.decoding import UserError, calibration, calibration_file
from dystruct.decoding.backbone import model_folder
from dystruct.decoding.calibration_file import FILE_NAME, fingerprint, read_calibration, write_calibration
from dystruct.inference.calibration import from_windows
from dystruct.model import EvidenceWeights

finite = st.floats(-1e6, 1e6)
a_fit = st.builds(
    EvidenceWeights,
    st.lists(finite, min_size=7, max_size=7), finite, st.lists(finite, min_size=4, max_size=4), finite,
    st.none() | st.floats(0, 1, exclude_min=True, exclude_max=True),
)  # fmt: skip
WEIGHTS = EvidenceWeights([1.0, 2, 3, 4, 5, 6, 7], 0.5, [1.0, 2, 3, 4], -0.5, 0.25)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    folder.mkdir()
    save_file({"weight": torch.arange(8.0)}, folder / "model.safetensors")
    return folder


def same(a: EvidenceWeights, b: EvidenceWeights) -> bool:
    return (
        torch.equal(a.position, b.position)
        and torch.equal(a.gap, b.gap)
        and (a.position_intercept, a.gap_intercept, a.gap_base_rate)
        == (b.position_intercept, b.gap_intercept, b.gap_base_rate)
    )


@settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(a_fit)
def test_weights_come_back_exactly(folder: Path, weights: EvidenceWeights) -> None:
    write_calibration(folder / FILE_NAME, weights, fingerprint(folder), {"seed": 3})
    found, calibrated = read_calibration(None, folder)
    assert calibrated and same(found, weights)
    assert sorted(child.name for child in folder.iterdir()) == [FILE_NAME, "model.safetensors"]
    content = json.loads((folder / FILE_NAME).read_text())
    assert content["provenance"] == {"seed": 3} and content["standardisation"] is None
    assert content["version"] == version("dystruct")


def test_without_a_file_the_weights_are_neutral_and_say_so(folder: Path) -> None:
    found, calibrated = read_calibration(None, folder)
    assert not calibrated and same(found, EvidenceWeights.neutral())


def test_a_named_file_takes_the_place_of_the_folders(folder: Path, tmp_path: Path) -> None:
    write_calibration(folder / FILE_NAME, EvidenceWeights.neutral(), fingerprint(folder), {})
    write_calibration(tmp_path / "mine.json", WEIGHTS, fingerprint(folder), {})
    assert same(read_calibration(tmp_path / "mine.json", folder)[0], WEIGHTS)
    assert same(read_calibration(str(tmp_path / "mine.json"), folder)[0], WEIGHTS)


def refused(path: Path | None, folder: Path, match: str) -> None:
    with pytest.raises(UserError, match=match) as caught:
        read_calibration(path, folder)
    message = str(caught.value)
    assert "\n" not in message and message.endswith(".") and "dystruct calibrate" in message


def test_a_named_file_that_is_absent(folder: Path, tmp_path: Path) -> None:
    refused(tmp_path / "absent.json", folder, "absent.json.*cannot be read")


@pytest.mark.parametrize(
    "tensors",
    [{"weight": torch.arange(8.0) + 1}, {"weight": torch.arange(9.0)}, {"other": torch.arange(8.0)}],
    ids=["values", "shape", "name"],
)
def test_a_fit_of_another_model_is_refused(folder: Path, tensors: dict[str, torch.Tensor]) -> None:
    write_calibration(folder / FILE_NAME, WEIGHTS, fingerprint(folder), {})
    save_file(tensors, folder / "model.safetensors")
    refused(None, folder, "another model.*force")
    found, calibrated = read_calibration(None, folder, force=True)
    assert calibrated and same(found, WEIGHTS)


def test_force_does_not_mend_a_damaged_file(folder: Path) -> None:
    (folder / FILE_NAME).write_text("{}")
    with pytest.raises(UserError, match="cannot be read"):
        read_calibration(None, folder, force=True)
    (folder / FILE_NAME).unlink()
    assert not read_calibration(None, folder, force=True)[1]


def test_a_disk_that_is_full_leaves_what_was_there(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_calibration(folder / FILE_NAME, WEIGHTS, fingerprint(folder), {})

    def full(self: Path, *args: Any, **settings: Any) -> int:
        with self.open("w") as file:
            file.write("half")
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_text", full)
        with pytest.raises(UserError, match=r"calibration\.json.*No space left"):
            write_calibration(folder / FILE_NAME, EvidenceWeights.neutral(), fingerprint(folder), {})
    assert same(read_calibration(None, folder)[0], WEIGHTS)
    assert sorted(child.name for child in folder.iterdir()) == [FILE_NAME, "model.safetensors"]


def test_a_shard_more_is_another_model(folder: Path) -> None:
    before = fingerprint(folder)
    save_file({"more": torch.ones(2)}, folder / "more.safetensors")
    assert fingerprint(folder) != before


def weights_of(changed: str | None = None) -> dict[str, torch.Tensor]:
    """A model of an embedding, which fills the first sample, a matrix and a norm, one of them changed."""
    tensors = {"embed": torch.zeros(200, 200), "layers.0.matrix": torch.ones(90, 90), "layers.0.norm": torch.ones(90)}
    return {name: tensor + 1 if name == changed else tensor for name, tensor in tensors.items()}


@pytest.mark.parametrize("shards", [1, 2])
@pytest.mark.parametrize("changed", weights_of())
def test_a_fine_tune_of_any_tensor_is_another_model(
    folder: Path, monkeypatch: pytest.MonkeyPatch, changed: str, shards: int
) -> None:
    def saved(tensors: dict[str, torch.Tensor]) -> str:
        for shard in range(shards):
            part = {name: tensor for place, (name, tensor) in enumerate(tensors.items()) if place % shards == shard}
            save_file(part, folder / f"model-{shard}.safetensors", {"format": "pt"})
        return fingerprint(folder)

    (folder / "model.safetensors").unlink()
    saved(weights_of())
    together = sum(path.stat().st_size for path in folder.iterdir())
    monkeypatch.setattr(calibration_file, "SMALL", together - 1)
    before = saved(weights_of())
    write_calibration(folder / FILE_NAME, WEIGHTS, before, {})
    assert saved(weights_of()) == before and read_calibration(None, folder)[1]
    assert saved(weights_of(changed)) != before
    refused(None, folder, "another model.*force")


def test_the_embedded_model_has_the_fingerprint_that_is_on_record() -> None:
    folder = model_folder("tiny")
    size = sum(path.stat().st_size for path in folder.glob("*.safetensors"))
    assert size <= calibration_file.SMALL
    assert fingerprint(folder) == json.loads((folder / FILE_NAME).read_text())["model"]


@pytest.mark.parametrize(
    "header",
    [
        b"", b"{", b"[]", b"7", b"\xff", b'{"a": 3}', b'{"a": {}}', b'{"a": {"data_offsets": [0]}}',
        b'{"a": {"data_offsets": [-9, 2]}}', b'{"a": {"data_offsets": [5, 2]}}', b'{"a": {"data_offsets": [0, 1e999]}}',
        b'{"a": {"data_offsets": ["x", null]}}', b'{"a": {"data_offsets": [0, 99999999999999999999]}}', b"[" * 10**5,
    ],
)  # fmt: skip
def test_a_damaged_header_has_a_fingerprint(folder: Path, monkeypatch: pytest.MonkeyPatch, header: bytes) -> None:
    monkeypatch.setattr(calibration_file, "SMALL", 0)
    found = set()
    for length in (len(header), 2**63):
        (folder / "model.safetensors").write_bytes(length.to_bytes(8, "little") + header + b"data")
        found.add(fingerprint(folder))
    assert len(found) == 2


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "7", '"x"', "{}", '{"format": "other"}', b"\xff\xfe\x00"])
def test_something_else_is_refused(folder: Path, text: str | bytes) -> None:
    (folder / FILE_NAME).write_bytes(text if isinstance(text, bytes) else text.encode())
    refused(None, folder, "cannot be read")


@pytest.mark.parametrize(
    "value", [None, "x", [], {}, [1.0, 2.0], float("nan"), float("inf"), pytest.param(10**400, id="huge")]
)
@pytest.mark.parametrize(
    "path",
    [
        ("model",),
        ("format",),
        ("position",),
        ("gap",),
        ("position_intercept",),
        ("gap_intercept",),
        ("position", "entropy"),
        ("gap", "divergence"),
    ],
)
def test_a_damaged_entry_is_refused(folder: Path, path: tuple[str, ...], value: Any) -> None:
    write_calibration(folder / FILE_NAME, WEIGHTS, fingerprint(folder), {})
    content = json.loads((folder / FILE_NAME).read_text())
    holder = content
    for key in path[:-1]:
        holder = holder[key]
    holder[path[-1]] = value
    (folder / FILE_NAME).write_text(json.dumps(content))
    refused(None, folder, "calibration")
    del holder[path[-1]]
    (folder / FILE_NAME).write_text(json.dumps(content))
    refused(None, folder, "cannot be read")


@pytest.mark.parametrize("value", ["x", [], 0, 1, 1.5, float("nan"), pytest.param(10**400, id="huge")])
def test_a_base_rate_that_is_none_is_refused(folder: Path, value: Any) -> None:
    write_calibration(folder / FILE_NAME, WEIGHTS, fingerprint(folder), {})
    content = json.loads((folder / FILE_NAME).read_text())
    (folder / FILE_NAME).write_text(json.dumps(content | {"gap_base_rate": value}))
    refused(None, folder, "cannot be read")


def test_the_example_of_fitting_in_python_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(from_windows, "REFITS", 5)
    [example] = re.findall(r"^```python\n(.*?)^```", calibration.__doc__ or "", flags=re.DOTALL | re.MULTILINE)
    names: dict[str, Any] = {}
    exec(compile(example, "example", "exec"), names)
    assert names["found"].report.position.verdict in capsys.readouterr().out
    model = names["model"]
    assert model.calibrated and same(model.weights, names["found"].fit.weights)
    content = json.loads((tmp_path / "weights.json").read_text())
    assert content["provenance"] == {"problems": "sums", "count": 10}
