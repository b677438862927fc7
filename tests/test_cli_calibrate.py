"""`dystruct calibrate`, and the evidence weights that the other commands take."""

from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path
from typing import Any

import pytest

import dystruct.decoding
from command_line import SMALL, Run
from dystruct.decoding import calibration
from dystruct.decoding.backbone import loading, model_folder
from dystruct.decoding.calibration import collected
from dystruct.decoding.calibration_file import fingerprint, read_calibration, write_calibration
from dystruct.decoding.errors import UserError
from dystruct.decoding.terminal import measure_commands
from dystruct.decoding.tiny import problems
from dystruct.decoding.tiny.problem import Problem
from dystruct.inference import calibration as inference_calibration
from dystruct.inference.calibration import from_windows
from dystruct.model import EvidenceWeights
from scripted import EOS, backbone, hashed, uneven_weights, written

WEIGHTS = EvidenceWeights([1.0, 2, 3, 4, 5, 6, 7], 0.5, [1.0, 2, 3, 4], -0.5)


@pytest.fixture
def letters(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """Problems in the alphabet of the scripted model; the calls that ask for them."""
    calls: list[tuple[Any, ...]] = []

    def made(domain: str, split: str, count: int, start: int = 0) -> list[Problem]:
        calls.append((domain, split, count, start))
        first = {"maths": "a", "code": "b", "logic": "c"}[domain]
        return [Problem(domain, "k", first + "abcdefghij"[n], "abcdefghij"[n:] * 2, "") for n in range(count)]

    monkeypatch.setattr(problems, "problems", made)
    monkeypatch.setattr(measure_commands, "_need_problems", lambda domain: None)
    monkeypatch.setattr(from_windows, "REFITS", 10)
    return calls


def test_calibrate_writes_weights_report_and_picture(run: Run, letters: list[tuple[Any, ...]]) -> None:
    arguments = ("--problems", "4", "--penalty", "0.01", "--seed", "3", "--save", "r.json", "--svg", "p.svg")
    outcome = run("calibrate", "w.json", *arguments)
    assert outcome.status == 0, outcome.err
    assert letters == [(domain, "validation", 4, 0) for domain in ("maths", "code", "logic")]
    assert sorted(os.listdir()) == ["p.svg", "r.json", "w.json"]
    report = json.loads(Path("r.json").read_text())
    assert report["problems"] == {"code": 4, "logic": 4, "maths": 4} and report["trajectory"] == "reference"
    assert (report["penalty"], report["seed"], report["diagnostic_passes"]) == (0.01, 3, 4)
    lines = outcome.out.splitlines()
    for kind in ("position", "gap"):
        said = " ".join(line.strip() for line in lines)
        assert report[kind]["verdict"] in said
    assert max(map(len, lines)) <= 130 and any(line.startswith("entropy alone") for line in lines)
    weights, calibrated = read_calibration("w.json", model_folder("tiny"))
    assert calibrated
    found = {name: entry["value"] for name, entry in report["position"]["coefficients"].items()}
    assert found.pop("intercept") == weights.position_intercept
    assert list(found.values()) == weights.position.tolist()
    provenance = json.loads(Path("w.json").read_text())["provenance"]
    assert provenance["problems"] == report["problems"] and provenance["positions"] == report["position"]["rows"]
    assert provenance["held_out"]["gap"]["verdict"] == report["gap"]["verdict"]
    put = {name: provenance[name] for name in ("split", "chat", "prompt_format")}
    assert put == {"split": "validation", "chat": False, "prompt_format": "{prompt}\n"} and "file" not in provenance
    assert Path("p.svg").read_text().lstrip().startswith("<?xml")


def test_domains_settings_and_trajectory(run: Run, letters: list[tuple[Any, ...]]) -> None:
    options = ("--domain", "logic", "--domain", "maths", "--problems", "3", "--no-intercept", "--json")
    reference = json.loads(run("calibrate", "w.json", *options, "--diagnostic-passes", "2", "--save", "r.json").out)
    assert reference == json.loads(Path("r.json").read_text())
    assert [call[0] for call in letters] == ["logic", "maths"]
    assert reference["problems"] == {"logic": 3, "maths": 3} and reference["diagnostic_passes"] == 2
    assert "intercept" not in reference["gap"]["coefficients"] and "intercept" in reference["position"]["coefficients"]
    own = json.loads(run("calibrate", "w.json", *options, "--trajectory", "own").out)
    assert own["trajectory"] == "own" == json.loads(Path("w.json").read_text())["provenance"]["trajectory"]
    assert own["position"]["rows"] > reference["position"]["rows"], "the scripted model never ends"


@pytest.mark.parametrize("trajectory", ["reference", "own"])
def test_a_calibration_that_is_killed_goes_on_where_it_was(
    run: Run, letters: list[tuple[Any, ...]], monkeypatch: pytest.MonkeyPatch, trajectory: str
) -> None:
    monkeypatch.setattr(collected, "TOGETHER", 2)
    name = {"reference": "windows_along_reference", "own": "windows_on_own_trajectory"}[trajectory]
    real, made = getattr(calibration, name), []
    stop_at = 0

    def counted(model: Any, known: list[calibration.Known], **settings: Any) -> Any:
        made.append([problem.prompt for problem in known])
        if len(made) == stop_at:
            raise KeyboardInterrupt
        return real(model, known, **settings)

    monkeypatch.setattr(calibration, name, counted)
    options = ("--problems", "3", "--domain", "maths", "--domain", "logic", "--trajectory", trajectory, "--json")
    whole = run("calibrate", "whole.json", *options)
    assert whole.status == 0 and os.listdir() == ["whole.json"], whole.err
    assert [line.split(",")[0] for line in whole.err.splitlines() if "done" in line] == [
        f"dystruct: {done} of 6 problems done" for done in (2, 4, 6)
    ]
    parts, stop_at = list(made), 3
    assert [len(part) for part in parts] == [2, 2, 2]
    made.clear()
    assert run("calibrate", "w.json", *options).status == 130
    assert sorted(os.listdir()) == ["w.json.windows", "whole.json"]
    with open("w.json.windows", "rb+") as file:
        file.seek(-40, os.SEEK_END)
        file.truncate()  # as a kill amid the second part's line leaves it
    other = run("calibrate", "w.json", *options, "--seed", "7")
    assert other.status == 2 and "'w.json.windows' was begun with seed 0, not 7; give the same" in other.err
    made.clear()
    stop_at = 0
    again = run("calibrate", "w.json", *options)
    assert again.status == 0 and made == parts[1:], "the first part is not observed again"
    assert again.out == whole.out and Path("w.json").read_bytes() == Path("whole.json").read_bytes()
    assert sorted(os.listdir()) == ["w.json", "whole.json"]


def test_what_calibrate_refuses_it_refuses_before_it_works(run: Run, letters: list[tuple[Any, ...]]) -> None:
    run("calibrate", "w.json", "--domain", "physics").refused("--domain", "'physics'", "logic")
    run("calibrate", "w.json", "--trajectory", "other").refused("--trajectory", "'other'", "own")
    run("calibrate", "w.json", "--save", "w.json").refused("different files")
    for option in ("--save", "--svg", "--file"):
        run("calibrate", "w.json", option, "./w.json.windows").refused("'w.json.windows' is where the windows are kept")
    run("calibrate", "none/w.json").refused("no folder 'none'")
    run("calibrate", "w.json", "--svg", ".").refused("is a folder")
    run("calibrate", "w.json", "--problems", "1").refused("--problems")
    assert letters == [] and os.listdir() == []


def test_a_model_without_errors_is_not_calibrated(
    run: Run, letters: list[tuple[Any, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    # every answer is empty, and the model says so
    nothing = [Problem("maths", "k", "a" + letter, "", "") for letter in "abc"]
    monkeypatch.setattr(problems, "problems", lambda *given: nothing)
    model = backbone(written(lambda known, place: EOS))
    monkeypatch.setattr(dystruct.decoding, "load", lambda name, **options: model)
    outcome = run("calibrate", "w.json", "--domain", "maths")
    assert outcome.status == 2 and os.listdir() == ["w.json.windows"]
    assert "The weights cannot be fitted, and 'w.json.windows' keeps what was diagnosed: the problems" in outcome.err
    assert "take more problems" in outcome.err


def test_windows_are_kept_until_the_weights_are_fitted(
    run: Run, letters: list[tuple[Any, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    real, penalties = inference_calibration.calibrate, []

    def fit(*given: Any, penalty: float, **settings: Any) -> Any:
        penalties.append(penalty)
        if penalty < 1e-3:
            raise ValueError("the fit has stopped; raise the penalty.")
        return real(*given, penalty=penalty, **settings)

    monkeypatch.setattr(inference_calibration, "calibrate", fit)
    options = ("--problems", "3", "--domain", "maths")
    failed = run("calibrate", "w.json", *options, "--penalty", "0.0001")
    assert failed.status == 2 and failed.err.endswith(
        "keeps what was diagnosed: the fit has stopped; raise the penalty.\n"
    )
    assert os.listdir() == ["w.json.windows"]
    monkeypatch.setattr(calibration, "windows_along_reference", lambda *given, **settings: pytest.fail("it has them"))
    assert run("calibrate", "w.json", *options, "--penalty", "0.01").status == 0
    assert os.listdir() == ["w.json"] and penalties == [0.0001, 0.01]


def test_of_two_equal_calibrations_both_end_well(
    run: Run, letters: list[tuple[Any, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other one has fitted the windows, and removed them, while this one was fitting them."""
    real = inference_calibration.calibrate

    def fit(*given: Any, **settings: Any) -> Any:
        Path("w.json.windows").unlink()
        return real(*given, **settings)

    monkeypatch.setattr(inference_calibration, "calibrate", fit)
    assert run("calibrate", "w.json", "--problems", "3", "--domain", "maths").status == 0
    assert os.listdir() == ["w.json"]


@pytest.mark.parametrize("content", ['{"question": "ab"}', '{"question": "ab"}\n{"question"', "notes"])
def test_a_file_of_one_s_own_is_no_place_for_windows(run: Run, letters: list[tuple[Any, ...]], content: str) -> None:
    Path("w.json.windows").write_text(content)
    outcome = run("calibrate", "w.json", "--problems", "3", "--domain", "maths")
    assert outcome.status == 2 and "'w.json.windows' is no file of measurements" in outcome.err
    assert Path("w.json.windows").read_text() == content and os.listdir() == ["w.json.windows"]


# --- weights from a file ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", ["generate abc --quiet", "compare abc --decoder dystruct", "accuracy"])
def test_weights_reach_load(run: Run, monkeypatch: pytest.MonkeyPatch, command: str) -> None:
    seen: list[dict[str, Any]] = []

    def recording(name: str, **options: Any) -> None:
        seen.append({key: options[key] for key in ("weights", "force_weights") if key in options})
        raise UserError("That is all.")

    monkeypatch.setattr(dystruct.decoding, "load", recording)
    for given in ("", "--weights w.json", "--force-weights"):
        run(*command.split(), *given.split()).refused("That is all.")
    assert seen == [{}, {"weights": Path("w.json")}, {"force_weights": True}]
    command = command.replace("--decoder dystruct", "")
    for option in ("--weights w.json", "--force-weights"):
        run(*command.split(), "--decoder", "block", *option.split()).refused(option.split()[0], "no use")


def test_weights_of_another_model_are_taken_only_by_force(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dystruct.decoding, "load", loading.load)
    write_calibration(tmp_path / "own.json", WEIGHTS, fingerprint(model_folder("tiny")), {})
    write_calibration(tmp_path / "other.json", WEIGHTS, "0" * 32, {})
    run("generate", "abc", "--weights", "other.json").refused("'other.json'", "another model", "--force-weights")
    forced = json.loads(run("generate", "abc", *SMALL, "--json", "--weights", "other.json", "--force-weights").out)
    own = json.loads(run("generate", "abc", *SMALL, "--json", "--weights", "own.json").out)
    assert forced["text"] == own["text"] and forced["counts"] == own["counts"]
    model = loading.load("tiny", weights="other.json", force_weights=True)
    assert model.calibrated and model.weights.gap_intercept == WEIGHTS.gap_intercept


@pytest.mark.parametrize(
    "command",
    ["generate - --quiet --batch-size 1", "compare abc --decoder dystruct --decoder dystruct:structure=sample --json"],
)
def test_a_model_without_weights_of_its_own_is_warned_of_once(
    run: Run, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    raw = dataclasses.replace(backbone(hashed(3, end_logit=-50.0), weights=uneven_weights()), calibrated=False)
    monkeypatch.setattr(dystruct.decoding, "load", lambda name, **options: raw)
    outcome = run(*command.split(), *SMALL, stdin=b"abc\nbca\n")
    assert outcome.status == 0
    assert outcome.err.count("has no calibrated evidence weights, so neutral ones are used") == 1
