"""Sweeps in which something fails, and sweeps that several processes work through: each run is made once, or named."""

# ruff: noqa: F811 - fixtures that are imported
from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

import dystruct.decoding
from command_line import Run
from dystruct.decoding import UserError
from dystruct.decoding.backbone import model_folder
from dystruct.decoding.evaluation import local, sweep_making
from dystruct.decoding.evaluation.run_folder import RunFolder
from dystruct.decoding.evaluation.run_record import read_run
from sweep_runs import FILE, asked, loaded, planned  # noqa: F401 - fixtures


def failing(monkeypatch: pytest.MonkeyPatch, error: type[BaseException], *of: str) -> list[int]:
    """Lets the runs of these decoders end so; the batch sizes that were asked for."""
    asked, real = list[int](), local.generate

    def generate(model: Any, prompts: Any, decoder: Any, **settings: Any) -> Any:
        asked.append(settings["batch_size"])
        if type(decoder).__name__ in of:
            raise error
        return real(model, prompts, decoder, **settings)

    monkeypatch.setattr(local, "generate", generate)
    return asked


THREE = """
[settings]
tasks = ["tiny_logic"]
limit = 2
max_new_tokens = 4
budget = 4

[[run]]
decoder = "dystruct"

[[run]]
decoder = "fast"

[[run]]
decoder = "block"
"""


@pytest.mark.parametrize("failed", [{"Block"}, {"Fast"}, {"DyStruct", "Fast"}, {"Block", "DyStruct", "Fast"}])
def test_a_run_that_fails_does_not_stop_the_others(
    tmp_path: Path, run: Run, asked: None, monkeypatch: pytest.MonkeyPatch, failed: set[str]
) -> None:
    names = [planned_run.folder for planned_run in planned(tmp_path, THREE)]
    seen = failing(monkeypatch, torch.OutOfMemoryError, *failed)
    told = run("sweep", "sweep.toml", "out", "--batch-size", "2")
    wrong = [name for name in names if name in {kind.lower() for kind in failed}]
    assert told.status == 2 and told.out == "" and set(seen) == {2}
    said = told.err.splitlines()
    for name in names:
        reason = f"dystruct: {name}: The device's memory is too small for 2 prompts at once; lower --batch-size."
        assert (reason in said) == (name in wrong)
        assert (tmp_path / "out" / name / "summary.json").exists() == (name not in wrong)
    assert said[-1].startswith(f"dystruct: {len(wrong)} of 3 runs failed: {'; '.join(wrong)}; mend")


def test_what_failed_is_mended_by_the_command_that_its_sentence_names(
    tmp_path: Path, run: Run, asked: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    planned(tmp_path, THREE)
    with monkeypatch.context() as once:
        failing(once, torch.OutOfMemoryError, "Fast")
        assert run("sweep", "sweep.toml", "out", "--batch-size", "2").status == 2
        alone = run("sweep", "sweep.toml", "out", "--batch-size", "1")
        assert "fast: The device's memory is too small for this prompt; give a --device-map, or" in alone.err
    seen = failing(monkeypatch, KeyboardInterrupt)
    again = run("sweep", "sweep.toml", "out", "--batch-size", "1")
    assert again.status == 0 and "3 runs, 2 of them finished, 1 to go." in again.err and seen == [1]
    sizes = [attempt["batch_size"] for attempt in read_run(tmp_path / "out" / "fast")["environments"]]
    assert sizes == [2, 1, 1]


def test_an_interrupt_stops_all_runs(tmp_path: Path, run: Run, asked: None, monkeypatch: pytest.MonkeyPatch) -> None:
    planned(tmp_path, THREE)
    failing(monkeypatch, KeyboardInterrupt, "Fast")
    told = run("sweep", "sweep.toml", "out")
    assert told.status == 130 and "goes on where it was" in told.err
    assert not (tmp_path / "out" / "block").exists()


def test_of_processes_that_were_launched_together_none_goes_on_alone(
    tmp_path: Path, run: Run, asked: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others wait for it at the end of the run that failed."""
    planned(tmp_path, THREE)
    failing(monkeypatch, torch.OutOfMemoryError, "Fast")
    monkeypatch.setattr(sweep_making, "process_count", lambda: 2)
    told = run("sweep", "sweep.toml", "out")
    assert told.status == 2 and told.err.splitlines()[-1].startswith("dystruct: fast: The device's memory")
    assert not (tmp_path / "out" / "block").exists()


def test_a_run_that_another_process_makes_is_left_to_it(tmp_path: Path, run: Run, asked: None) -> None:
    """So several processes with a device each may work through one sweep."""
    planned(tmp_path, THREE)
    with RunFolder(tmp_path / "out" / "fast", {}, {}):
        (tmp_path / "out" / "fast" / "run.json").unlink()  # as in the moment after it was begun
        told = run("sweep", "sweep.toml", "out")
    assert (
        told.status == 0 and "dystruct: fast: another process is making this run; it is left to that one." in told.err
    )
    assert (tmp_path / "out" / "block" / "summary.json").exists()
    assert not (tmp_path / "out" / "fast" / "summary.json").exists()


def test_a_run_that_another_process_has_made_meanwhile_is_left_as_it_is(
    tmp_path: Path, run: Run, asked: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    planned(tmp_path, THREE)
    assert run("sweep", "sweep.toml", "other", "--only", "block").status == 0
    real = local.generate

    def generate(model: Any, prompts: Any, decoder: Any, **settings: Any) -> Any:
        if type(decoder).__name__ == "Fast":
            shutil.copytree(tmp_path / "other" / "block", tmp_path / "out" / "block")
        return real(model, prompts, decoder, **settings)

    monkeypatch.setattr(local, "generate", generate)
    told = run("sweep", "sweep.toml", "out")
    assert told.status == 0 and "dystruct: block: another process has made this run.\n" in told.err
    assert len(read_run(tmp_path / "out" / "block")["environments"]) == 1


def test_each_model_is_loaded_once(
    tmp_path: Path, run: Run, asked: None, loaded: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Runs go by models, in the order in which the file names these; a large one takes minutes to load."""
    planned(tmp_path, THREE.replace("[settings]", '[settings]\nmodel = ["one", "tiny"]'))
    monkeypatch.setattr(sweep_making, "model_folder", lambda name, revision: model_folder("tiny"))
    told = run("sweep", "sweep.toml", "out")
    assert told.status == 0 and [each["name"] for each in loaded] == ["one", "tiny"]
    begun = re.findall(r"run \d of 6, (\S+): 2 items", told.err)
    assert begun == [f"{name}-model={model}" for model in ("one", "tiny") for name in ("dystruct", "fast", "block")]


def test_some_runs_alone_are_made(tmp_path: Path, run: Run, asked: None) -> None:
    planned(tmp_path, THREE)
    assert run("sweep", "sweep.toml", "out", "--only", "block", "--only", "dystruct").status == 0
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["block", "dystruct"]
    assert run("sweep", "sweep.toml", "out", "--status", "--only", "fast").out == "fast: not begun\n"
    run("sweep", "sweep.toml", "out", "--only", "fast", "--only", "fats").refused(
        "The sweep has no run 'fats'; its runs are dystruct; fast; block."
    )
    # what is wrong with other runs is no matter of these
    planned(tmp_path, THREE.replace('"block"', '"block"\nbudget = 5'))
    assert run("sweep", "sweep.toml", "out", "--only", "fast").status == 0
    run("sweep", "sweep.toml", "out").refused("has budget 4, not 5")


def test_processes_that_were_launched_together_have_no_embedded_tasks(
    tmp_path: Path, run: Run, asked: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    planned(tmp_path, THREE)
    monkeypatch.setenv("WORLD_SIZE", "2")
    run("sweep", "sweep.toml", "out").refused(
        "The embedded tasks are decoded by one process; start it without torchrun"
    )
    run("eval", "out", "--tasks", "tiny_logic").refused("start it without torchrun")
    assert not (tmp_path / "out").exists()


def test_a_second_model_that_is_not_there_stops_its_own_runs_only(
    tmp_path: Path, run: Run, asked: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    planned(tmp_path, THREE.replace("[settings]", '[settings]\nmodel = ["tiny", "none"]'))
    known = dystruct.decoding.load

    def load(name: str, **options: Any) -> Any:
        if name == "none":
            raise UserError("There is no model folder 'none'.")
        return known(name, **options)

    monkeypatch.setattr(dystruct.decoding, "load", load)
    told = run("sweep", "sweep.toml", "out")
    assert told.status == 2 and "3 of 6 runs failed: dystruct-model=none; fast-model=none; block-model=none" in told.err
    assert all((tmp_path / "out" / f"{name}-model=tiny" / "summary.json").exists() for name in ("fast", "block"))
    planned(tmp_path, THREE.replace("[settings]", '[settings]\nmodel = ["none", "tiny"]'))
    told = run("sweep", "sweep.toml", "other")
    assert told.status == 2 and (
        told.err.splitlines()[-1] == "dystruct: dystruct-model=none: There is no model folder 'none'."
    )
    assert not (tmp_path / "other").exists()


def test_what_is_wrong_with_a_prompt_format_is_told_before_anything_is_run(
    tmp_path: Path, run: Run, asked: None
) -> None:
    planned(tmp_path, THREE + f'prompt_format = "{{prompt}}{"a" * 20_000}"\n')
    told = run("sweep", "sweep.toml", "out")
    assert told.status == 2 and "block: Item " in told.err
    assert not (tmp_path / "out" / "dystruct").exists()


def test_prompt_formats_in_a_list_have_a_folder_each(tmp_path: Path) -> None:
    runs = planned(tmp_path, THREE + 'prompt_format = ["{prompt}\\n", "{prompt} "]\n')
    assert [one.folder for one in runs[2:]] == ["block-prompt_format=1", "block-prompt_format=2"]
