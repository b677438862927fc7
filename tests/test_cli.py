"""The command line: every option reaches its place, and every mistake ends as one sentence with exit code 2."""

from __future__ import annotations

import inspect
import json
import os
import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.main import get_command
from typer.testing import CliRunner

import dystruct.decoding
from command_line import SMALL, Run, helps
from dystruct.decoding import Block, DecodingFailed, DyStruct, UserError
from dystruct.decoding import generate as library_generate
from dystruct.decoding.backbone import loading
from dystruct.decoding.device import check_device
from dystruct.decoding.named import DECODER_SETTINGS
from dystruct.decoding.terminal.cli import app, main
from dystruct.model import PriorConfig


def test_help_comes_without_torch() -> None:
    code = (
        "import sys, dystruct.decoding.terminal.cli as cli\n"
        "try: cli.main(['generate', '--help'])\n"
        "except SystemExit as exit: assert exit.code == 0\n"
        "assert not {'torch', 'transformers', 'pyro'} & set(sys.modules), 'heavy imports'"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stderr
    assert "--max-new-tokens" in found.stdout


def test_version(run: Run) -> None:
    outcome = run("--version")
    assert (outcome.status, outcome.out) == (0, f"dystruct {version('dystruct')}\n")


def test_without_a_command_the_help_is_shown(run: Run) -> None:
    outcome = run()
    assert outcome.status == 2 and "generate" in outcome.out and "train" in outcome.out


def test_help_states_the_real_defaults() -> None:
    helped = helps("generate")
    decoder, prior = DyStruct(), PriorConfig()
    for option, setting in DECODER_SETTINGS.items():
        holder = Block() if setting == "block_length" else prior if setting.startswith("prior.") else decoder
        value = getattr(holder, setting.removeprefix("prior."))
        if value is not None:
            shown = f"{value:g}" if isinstance(value, float) else str(value)
            assert f"Default {shown}." in helped[option], option
    low, high = prior.min_length, prior.max_length
    assert f"mu = {low} + (1 - hbar)({high} - {low})" in helped["--length-rule"]
    assert f"T(B) = {decoder.min_passes} + H(B)({decoder.max_passes} - {decoder.min_passes})" in helped["--passes"]
    shown_help = CliRunner().invoke(app, ["generate", "--help"], env={"COLUMNS": "300"}).output
    for option in ("--alpha0", "--gamma", "--length-rule", "--r-weld", "--passes"):
        assert helped[option] in " ".join(shown_help.split()), "no part of an equation is taken for markup"


def test_every_help_tells_the_default_of_its_own_command() -> None:
    """`--batch-size` has one default with `generate` and another with `accuracy`, say."""
    told = 0
    for name, command in get_command(app).commands.items():
        for parameter in command.params:
            shown = re.search(r"Default (\S+)\.(?: |$)", parameter.help or "")
            if shown is not None and parameter.default is not None:
                value = {"on": True, "off": False}.get(shown[1], shown[1])
                assert type(parameter.default)(value) == parameter.default, (name, parameter.opts)
                told += 1
    assert told > 30


def test_plain_output(run: Run) -> None:
    outcome = run("generate", "abc", *SMALL)
    assert outcome.status == 0 and outcome.err == ""
    assert outcome.out.startswith("dystruct · model scripted · structure map · temperature 0 · seed 0\nprompt: abc\n")
    assert "window 1: opens at token 0" in outcome.out
    assert "\nuseful tokens: 20, " in outcome.out
    assert "\x1b" not in outcome.out


def test_quiet_prints_the_text_alone(run: Run, calls: list[dict[str, Any]]) -> None:
    text = json.loads(run("generate", "abc", *SMALL, "--json").out)["text"]
    outcome = run("generate", "abc", *SMALL, "--quiet")
    assert (outcome.out, outcome.err) == (text + "\n", "")
    assert "observe" not in calls[1], "nothing is read back for nobody"


def test_json_prints_one_line_a_prompt_and_nothing_else(run: Run) -> None:
    one = run("generate", "abc", *SMALL, "--json", "--structure", "sample", "--seed", "5")
    assert one.err == "" and one.out.count("\n") == 1
    record = json.loads(one.out)
    assert record["prompt"] == "abc" and len(record["text"]) == 20 and record["model"] == "scripted"
    counts = record["counts"]
    assert counts["forward_passes"] == sum(counts["passes"].values())
    assert counts["tokens"] == counts["useful_tokens"] + counts["wasted_tokens"] == 20
    assert record["settings"]["structure"] == "sample" and record["settings"]["seed"] == 5
    Path("p.txt").write_text("abc\nbca\n", encoding="utf-8")
    two = run("generate", "--file", "p.txt", *SMALL, "--json", "--structure", "sample", "--seed", "5")
    assert two.err == "" and [json.loads(line)["prompt"] for line in two.out.splitlines()] == ["abc", "bca"]
    assert json.loads(two.out.splitlines()[0])["text"] == record["text"]


def test_several_prompts_are_decoded_together(run: Run, calls: list[dict[str, Any]]) -> None:
    outcome = run("generate", "--file", "-", *SMALL, "--batch-size", "2", stdin=b"abc\nbca\ncab\n")
    assert outcome.status == 0
    assert len(calls) == 1 and calls[0]["prompts"] == ["abc", "bca", "cab"] and calls[0]["batch_size"] == 2
    progress = sorted(re.sub(r"\d+ windows?", "", line) for line in outcome.err.splitlines())
    assert progress == [f"prompt {number} of 3 finished: , 20 tokens" for number in (1, 2, 3)]
    assert [line for line in outcome.out.splitlines() if line.startswith("prompt ")] == [
        "prompt 1 of 3: abc",
        "prompt 2 of 3: bca",
        "prompt 3 of 3: cab",
    ]
    assert "in all: 3 prompts, 60 useful tokens" in outcome.out


@pytest.mark.parametrize("how", [(), ("--json",), ("--quiet",)])
@pytest.mark.parametrize("failing", [(0,), (1, 2), (0, 1, 2)])
def test_of_several_prompts_those_that_fail_take_no_other_with_them(
    how: tuple[str, ...], failing: tuple[int, ...], run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was decoded is printed and saved under its prompt's number; then comes the error."""

    def spoilt(*given: Any, **settings: Any) -> Any:
        found = library_generate(*given, **settings)
        failures = {index: UserError(f"The logits are spoilt at {index}.") for index in failing}
        raise DecodingFailed({i: each for i, each in enumerate(found) if i not in failing}, failures)

    whole = run("generate", "--file", "-", *SMALL, "--json", stdin=b"abc\nbca\ncab\n").out
    texts = [json.loads(line)["text"] for line in whole.splitlines()]
    monkeypatch.setattr(dystruct.decoding, "generate", spoilt)
    outcome = run("generate", "--file", "-", *SMALL, *how, "--save", "kept", stdin=b"abc\nbca\ncab\n")
    left = [index for index in range(3) if index not in failing]
    assert outcome.status == 2 and f"The logits are spoilt at {failing[0]}." in outcome.err
    assert [text in outcome.out for text in texts] == [index in left for index in range(3)]
    if left:
        assert f"{len(failing)} of 3 prompts failed" in outcome.err
        assert sorted(path.name for path in Path("kept").iterdir()) == [f"{index + 1}.json" for index in left]
    else:
        assert not Path("kept").exists() and outcome.out == ""
    if not how:
        assert [f"prompt {index + 1} of 3: " in outcome.out for index in range(3)] == [i in left for i in range(3)]


def test_prompts_as_json_lines_and_on_standard_input(run: Run, calls: list[dict[str, Any]]) -> None:
    lines = '\ufeff{"prompt": "ab", "id": 1}\r\n{"prompt": "ba"}\n'.encode()
    assert run("generate", "-", *SMALL, "--quiet", stdin=lines).status == 0
    assert run("generate", "--file", "-", *SMALL, "--quiet", stdin=b"abc").status == 0
    assert [call["prompts"] for call in calls] == [["ab", "ba"], ["abc"]]


def test_every_option_reaches_its_setting(run: Run, calls: list[dict[str, Any]]) -> None:
    outcome = run(
        "generate", "abc", "--structure", "consensus", "--length-rule", "mean", "--alpha0", "0.5", "--gamma", "0",
        "--passes", "share", "--weld", "joint", "--r-weld", "3", "--max-new-tokens", "16", "--budget", "40",
        "--seed", "7", "--temperature", "0.5", "--batch-size", "3", "--stop", "x", "--stop", "\n", "--quiet",
        "--alternatives", "2",
    )  # fmt: skip
    assert outcome.status == 0, outcome.err
    prior = PriorConfig(concentration=0.5, context_weight=0.0)
    expected = DyStruct("consensus", "mean", prior, passes="share", weld="joint", weld_radius=3)
    settings = {
        "max_new_tokens": 16,
        "budget": 40,
        "seed": 7,
        "temperature": 0.5,
        "batch_size": 3,
        "chat": False,
        "prefix_cache": False,
        "alternatives": 2,
        "stop": ("x", "\n"),
    }
    assert calls == [{"prompts": ["abc"], "decoder": expected, **settings}]


def test_defaults_are_those_of_the_library(run: Run, calls: list[dict[str, Any]]) -> None:
    run("generate", "abc", "--quiet")
    run("generate", "abc", "--quiet", "--preset", "appendix", *SMALL)
    run("generate", "abc", "--quiet", "--preset", "appendix", "--r-weld", "2", *SMALL)
    run("generate", "abc", "--quiet", "--decoder", "block", *SMALL)
    run("generate", "abc", "--quiet", "--decoder", "block", "--block-length", "5", "--passes", "2", *SMALL)
    decoders = [call.pop("decoder") for call in calls]
    assert decoders == [DyStruct(), DyStruct(weld_radius=4), DyStruct(weld_radius=2), Block(), Block(5, 2)]
    library = inspect.signature(library_generate).parameters
    assert {name: library[name].default for name in calls[0] if name != "prompts"} == {
        name: value for name, value in calls[0].items() if name != "prompts"
    }


@pytest.mark.parametrize("command", ["generate abc", "compare abc", "accuracy", "calibrate w.json"])
def test_where_the_model_comes_from_and_goes_reaches_load(
    run: Run, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    seen: list[Any] = []

    def recording(name: str, **options: Any) -> None:
        seen.append((name, {key: value for key, value in options.items() if key != "neutral"}))
        raise UserError("That is all.")

    monkeypatch.setattr(dystruct.decoding, "load", recording)
    for options in ("", "--model m --device cpu --dtype bfloat16", "--model o/m --revision v2 --device-map auto"):
        run(*command.split(), *options.split()).refused("That is all.")
    none = {"device": None, "device_map": None, "dtype": None, "revision": None}
    assert seen == [
        ("tiny", none),
        ("m", {**none, "device": "cpu", "dtype": "bfloat16"}),
        ("o/m", {**none, "revision": "v2", "device_map": "auto"}),
    ]


def test_what_load_refuses_is_told_in_the_options_names(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dystruct.decoding, "load", loading.load)
    run("generate", "abc", "--revision", "v2").refused("--revision has no use with the folder 'tiny'")
    run("generate", "abc", "--dtype", "float7").refused("'float7'", "bfloat16")
    run("generate", "abc", "--device-map", "far").refused("'far'", "auto")
    run("generate", "abc", "--chat").refused("no chat template", "leave out --chat")


def test_the_text_ends_before_a_stop_string(run: Run) -> None:
    free = json.loads(run("generate", "abc", *SMALL, "--json").out)
    found = json.loads(run("generate", "abc", *SMALL, "--json", "--stop", free["text"][5:8], "--stop", "zzz").out)
    assert found["text"] == free["text"][:5] and found["stop_reason"] == "stop"
    assert found["counts"]["useful_tokens"] == 5 and found["settings"]["stop"] == [free["text"][5:8], "zzz"]
    shown = run("generate", "abc", *SMALL, "--stop", free["text"][5:8]).out
    assert "stopped: before a stop string" in shown and "the stop string and what was decoded behind it" in shown
    only = ("--decoder", "block", "--json")
    whole = json.loads(run("compare", "abc", *SMALL, *only).out)["text"]
    compared = json.loads(run("compare", "abc", *SMALL, *only, "--stop", whole[4:6]).out)
    assert compared["text"] == whole[: whole.index(whole[4:6])] and compared["stop_reason"] == "stop"
    two = run("generate", "-", *SMALL, "--stop", free["text"][5:8], stdin=b"abc\nabc\n")
    assert two.err.count("finished") == 2, "progress counts a text that a stop string ends"


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        ((), ("--file",)),
        (("abc", "--file", "p.txt"), ("either", "--file")),
        (("",), ("prompt is empty",)),
        ((" \n",), ("prompt is empty",)),
        (("\udcff",), ("UTF-8",)),
        (("abc", "--colour"), ("No such option", "--colour", "--help")),
        (("abc", "def"), ("def", "--help")),
        (("abc", "--decoder", "magic"), ("'magic'", "dystruct, block")),
        (("abc", "--preset", "magic"), ("'magic'", "paper, appendix")),
        (("abc", "--structure", "magic"), ("--structure", "'magic'", "map, sample, consensus, none")),
        (("abc", "--length-rule", "magic"), ("--length-rule", "'magic'", "sample, mode, mean")),
        (("abc", "--passes", "magic"), ("--passes", "interpolate, share")),
        (("abc", "--weld", "magic"), ("--weld", "sequential, joint, off")),
        (("abc", "--alpha0", "0"), ("--alpha0", "positive")),
        (("abc", "--alpha0", "nan"), ("--alpha0", "positive")),
        (("abc", "--gamma", "-1"), ("--gamma", "positive")),
        (("abc", "--r-weld", "0"), ("--r-weld", "1")),
        (("abc", "--max-new-tokens", "0"), ("--max-new-tokens", "1")),
        (("abc", "--max-new-tokens", "-3"), ("--max-new-tokens", "1")),
        (("abc", "--max-new-tokens", "many"), ("--max-new-tokens",)),
        (("abc", "--max-new-tokens", "600"), ("context", "512")),
        (("abc", "--budget", "0"), ("--budget", "1")),
        (("abc", "--batch-size", "0"), ("--batch-size", "1")),
        (("abc", "--seed", "-1"), ("--seed", "0")),
        (("abc", "--temperature", "-0.1"), ("--temperature", "0")),
        (("abc", "--temperature", "nan"), ("temperature",)),
        (("abc", "--device", "abacus"), ("'abacus'",)),
        (("abc", "--device", "cpu", "--device-map", "auto"), ("--device and --device-map exclude each other",)),
        (("abc", "--stop", ""), ("stop string is empty",)),
        (("abc", "--json", "--quiet"), ("--json", "--quiet")),
        (("abc", "--decoder", "block", "--structure", "map"), ("--structure has no use with --decoder block",)),
        (("abc", "--decoder", "block", "--alpha0", "1"), ("--alpha0 has no use with --decoder block",)),
        (("abc", "--decoder", "block", "--gamma", "1"), ("--gamma has no use with --decoder block",)),
        (("abc", "--decoder", "block", "--r-weld", "1"), ("--r-weld has no use with --decoder block",)),
        (("abc", "--decoder", "block", "--weld", "off"), ("--weld has no use with --decoder block",)),
        (("abc", "--decoder", "block", "--length-rule", "mode"), ("--length-rule has no use with --decoder block",)),
        (("abc", "--decoder", "block", "--preset", "paper"), ("--preset has no use with --decoder block",)),
        (("abc", "--decoder", "block", "--passes", "share"), ("--passes", "whole number")),
        (("abc", "--decoder", "block", "--block-length", "0"), ("--block-length", "1")),
        (("abc", "--block-length", "4"), ("--block-length has no use with --decoder dystruct",)),
        (("abc", "--structure", "none", "--alpha0", "1"), ("--alpha0 has no use with --structure none",)),
        (("abc", "--structure", "none", "--r-weld", "1"), ("--r-weld has no use with --structure none",)),
        (("abc", "--weld", "off", "--r-weld", "1"), ("--r-weld has no use with --weld off",)),
        (("--file", "nowhere.txt"), ("'nowhere.txt'", "No such file")),
        (("--file", "."), ("'.'", "directory")),
        (("abc", "--save", "nowhere/t.json"), ("no folder 'nowhere'",)),
        (("abc", "--save", "."), ("'.' is a folder",)),
        (("abc", "--save", ""), ("--save", "name is empty")),
    ],
    ids=lambda value: " ".join(value).encode("ascii", "backslashreplace").decode() or "nothing",
)  # fmt: skip
def test_mistakes_are_refused(
    run: Run, calls: list[dict[str, Any]], arguments: tuple[str, ...], parts: tuple[str, ...]
) -> None:
    Path("p.txt").write_text("abc\n", encoding="utf-8")
    run("generate", *arguments).refused(*parts)
    assert sorted(os.listdir()) == ["p.txt"], "nothing is written"


def test_interruption(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*args: Any, **settings: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(dystruct.decoding, "generate", interrupted)
    outcome = run("generate", "abc", "--save", "t.json")
    assert (outcome.status, outcome.out, outcome.err) == (130, "", "dystruct: interrupted.\n")
    assert os.listdir() == []


@pytest.mark.parametrize("command", [["eval", "out", "--tasks", "tiny_logic"], ["sweep", "sweep.toml", "out"]])
def test_what_goes_on_says_so_when_it_is_interrupted(
    run: Run, command: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from dystruct.decoding.evaluation import local

    def interrupted(*args: Any, **settings: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(local, "run_local", interrupted)
    monkeypatch.setattr(local, "check_prompts", lambda *_: None)  # the model here is none that could read them
    monkeypatch.chdir(tmp_path)
    Path("sweep.toml").write_text('[settings]\ntasks = ["tiny_logic"]\n[[run]]\nname = "block"\ndecoder = "block"\n')
    outcome = run(*command)
    assert (outcome.status, outcome.out) == (130, "")
    assert outcome.err.endswith("dystruct: interrupted; the same command goes on where it was.\n")


def test_user_errors_from_the_model_are_shown(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(name: str, **options: Any) -> None:
        raise UserError(f"The folder {name!r} is no model; give another.")

    monkeypatch.setattr(dystruct.decoding, "load", broken)
    run("generate", "abc", "--model", "x").refused("The folder 'x' is no model; give another.")


def test_what_cannot_be_scored_is_said_before_the_model_is_loaded(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def loaded(name: str, **options: Any) -> None:
        raise AssertionError("nothing is loaded")

    monkeypatch.setattr(dystruct.decoding, "load", loaded)
    run("accuracy", "--domain", "code").refused("--execute-code")


def test_real_errors_keep_their_traceback(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(name: str, **options: Any) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(dystruct.decoding, "load", broken)
    with pytest.raises(ZeroDivisionError):
        main(["generate", "abc"])


def test_memory_and_warnings_are_one_sentence(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    import warnings

    def greedy(*args: Any, **settings: Any) -> None:
        warnings.warn("The weights are neutral.", stacklevel=1)
        raise torch.OutOfMemoryError

    monkeypatch.setattr(dystruct.decoding, "generate", greedy)
    for command, remedy in (
        ("generate abc", "--max-new-tokens"),
        ("generate - --batch-size 9", "for 2 prompts at once; lower --batch-size"),
        ("compare abc", "--max-new-tokens"),
    ):
        outcome = run(*command.split(), stdin=b"abc\nbca\n")
        assert outcome.status == 2
        warned, said = outcome.err.splitlines()
        assert warned == "dystruct: warning: The weights are neutral." and remedy in said


def test_devices() -> None:
    check_device("cpu")
    if not torch.cuda.is_available():
        with pytest.raises(UserError, match="no device 'cuda'"):
            check_device("cuda")
