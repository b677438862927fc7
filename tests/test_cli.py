"""The command line: every option reaches its place, and every mistake ends as one sentence with exit code 2."""

from __future__ import annotations

import inspect
import io
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import fields
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.main import get_command
from typer.testing import CliRunner

import dystruct.decoding
from dystruct.decoding import Block, DyStruct, Generation, UserError
from dystruct.decoding import generate as library_generate
from dystruct.decoding.device import check_device
from dystruct.decoding.terminal import options as cli_options
from dystruct.decoding.terminal.cli import app, main
from dystruct.decoding.tiny import training
from dystruct.decoding.tiny.training import TrainingConfig
from dystruct.model import PriorConfig
from scripted import backbone, hashed, uneven_weights

Run = Callable[..., "Outcome"]
SMALL = ("--max-new-tokens", "20")


class Outcome:
    """How a run of the command line ended, and what it printed."""

    def __init__(self, status: int, out: str, err: str) -> None:
        self.status, self.out, self.err = status, out, err

    def refused(self, *parts: str) -> None:
        """One sentence on standard error that holds `parts`, nothing on standard output, exit code 2."""
        assert self.status == 2, self.err
        assert self.out == ""
        assert re.fullmatch(r"dystruct: [^\n]+[.?]\n", self.err), self.err
        for part in parts:
            assert part in self.err


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Run:
    """Runs the command line in an empty folder, with a scripted model in the place of the embedded one."""
    monkeypatch.chdir(tmp_path)
    for name in ("FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)
    model = backbone(hashed(3, end_logit=-50.0), weights=uneven_weights())
    monkeypatch.setattr(dystruct.decoding, "load", lambda name, *, device: model)

    def run(*arguments: str, stdin: bytes = b"") -> Outcome:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        with pytest.raises(SystemExit) as exit:
            main(list(arguments))
        captured = capsys.readouterr()
        assert isinstance(exit.value.code, int)
        return Outcome(exit.value.code, captured.out, captured.err)

    return run


@pytest.fixture
def calls(run: Run, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What `generate` is called with, while it does its work."""
    seen: list[dict[str, Any]] = []
    real = dystruct.decoding.generate

    def spying(model: Any, prompts: list[str], decoder: Any, **settings: Any) -> list[Generation]:
        seen.append({"prompts": prompts, "decoder": decoder, **settings})
        return real(model, prompts, decoder, **settings)

    monkeypatch.setattr(dystruct.decoding, "generate", spying)
    return seen


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


def helps(command: str) -> dict[str, str]:
    """The help of each option of a command."""
    found = get_command(app).commands[command].params  # type: ignore[attr-defined]
    return {parameter.opts[0]: parameter.help for parameter in found}


def test_help_states_the_real_defaults() -> None:
    helped = helps("generate")
    decoder, prior = DyStruct(), PriorConfig()
    for option, setting in cli_options.DECODER_SETTINGS.items():
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


def test_prompts_as_json_lines_and_on_standard_input(run: Run, calls: list[dict[str, Any]]) -> None:
    lines = '\ufeff{"prompt": "ab", "id": 1}\r\n{"prompt": "ba"}\n'.encode()
    assert run("generate", "-", *SMALL, "--quiet", stdin=lines).status == 0
    assert run("generate", "--file", "-", *SMALL, "--quiet", stdin=b"abc").status == 0
    assert [call["prompts"] for call in calls] == [["ab", "ba"], ["abc"]]


def test_every_option_reaches_its_setting(run: Run, calls: list[dict[str, Any]]) -> None:
    outcome = run(
        "generate", "abc", "--structure", "consensus", "--length-rule", "mean", "--alpha0", "0.5", "--gamma", "0",
        "--passes", "share", "--weld", "joint", "--r-weld", "3", "--max-new-tokens", "16", "--budget", "40",
        "--seed", "7", "--temperature", "0.5", "--batch-size", "3", "--quiet",
    )  # fmt: skip
    assert outcome.status == 0, outcome.err
    prior = PriorConfig(concentration=0.5, context_weight=0.0)
    expected = DyStruct("consensus", "mean", prior, passes="share", weld="joint", weld_radius=3)
    settings = {"max_new_tokens": 16, "budget": 40, "seed": 7, "temperature": 0.5, "batch_size": 3, "chat": False}
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
    ],
    ids=lambda value: " ".join(value).encode("ascii", "backslashreplace").decode() or "nothing",
)  # fmt: skip
def test_mistakes_are_refused(
    run: Run, calls: list[dict[str, Any]], arguments: tuple[str, ...], parts: tuple[str, ...]
) -> None:
    Path("p.txt").write_text("abc\n", encoding="utf-8")
    run("generate", *arguments).refused(*parts)
    assert sorted(os.listdir()) == ["p.txt"], "nothing is written"


@pytest.mark.parametrize(
    ("content", "parts"),
    [
        (b"", ("no prompt in standard input",)),
        (b"\n", ("no prompt in standard input",)),
        (b"abc\n\nabc\n", ("Line 2 of standard input", "empty")),
        (b"abc\n \n", ("Line 2 of standard input", "empty")),
        (b"abc\nabc\xff\n", ("Line 2 of standard input", "not UTF-8")),
        (b'{"prompt": "a"}\n{"prompt": "b"\n', ("Line 2 of standard input", "broken JSON")),
        (b'{"prompt": "a"}\nabc\n', ("Line 2 of standard input", "broken JSON")),
        (b'{"prompt": "a"}\n\n', ("Line 2 of standard input", "broken JSON")),
        (b'{"prompt": "a"}\n["b"]\n', ("Line 2 of standard input", 'under "prompt"')),
        (b'{"text": "a"}\n', ("Line 1 of standard input", 'under "prompt"')),
        (b'{"prompt": 3}\n', ("Line 1 of standard input", 'under "prompt"')),
        (b'{"prompt": " "}\n', ("Line 1 of standard input", "empty")),
        (b'abc\n{"prompt": "b"}\n', ("Line 2 of standard input", "one form")),
        (b'{"prompt": ' * 5000, ("Line 1 of standard input", "broken JSON")),
    ],
)
def test_malformed_files_are_refused_by_line(run: Run, content: bytes, parts: tuple[str, ...]) -> None:
    run("generate", "--file", "-", stdin=content).refused(*parts)


def test_other_braces_are_plain_text(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    from dystruct.decoding.terminal.prompts import read_prompts

    Path("p.txt").write_text("set x = 3\n{x + 1, x + 2}: how many\u2028elements?", encoding="utf-8")
    assert read_prompts("p.txt") == ["set x = 3", "{x + 1, x + 2}: how many\u2028elements?"]


def test_save_and_show(run: Run) -> None:
    saved = run("generate", "abc", *SMALL, "--save", "t.json", "--structure", "sample")
    assert saved.err == "saved t.json\n" and os.listdir() == ["t.json"]
    generation = Generation.load("t.json")
    assert generation.prompt == "abc" and len(generation.tokens) == 20
    shown = run("show", "t.json")
    assert (shown.status, shown.out) == (0, saved.out), "a replay says the same as the decoding did"
    assert run("generate", "bca", *SMALL, "--save", "t.json", "--quiet").err == ""
    assert Generation.load("t.json").prompt == "bca"


def test_several_traces_go_to_a_new_folder(run: Run) -> None:
    prompts = "\n".join(["abc", "bca"] * 5).encode()
    outcome = run("generate", "-", "--max-new-tokens", "4", "--save", "traces", "--quiet", stdin=prompts)
    assert outcome.status == 0, outcome.err
    assert sorted(os.listdir("traces")) == [f"{number:02d}.json" for number in range(1, 11)]
    assert Generation.load("traces/02.json").prompt == "bca"
    assert os.listdir() == ["traces"]
    run("generate", "-", "--save", "traces", stdin=prompts).refused("not empty")
    run("generate", "-", "--save", "traces/02.json", stdin=prompts).refused("is a file")


def test_a_failed_save_leaves_what_was_there(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    run("generate", "abc", *SMALL, "--save", "t.json", "--quiet")

    def full(self: Path, *args: Any, **settings: Any) -> int:
        with self.open("w") as file:
            file.write("half")
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_text", full)
        outcome = run("generate", "bca", *SMALL, "--save", "t.json", "--quiet")
        outcome.refused("'t.json'", "No space left on device")
        outcome = run("generate", "-", *SMALL, "--save", "traces", "--quiet", stdin=b"abc\nbca\n")
        outcome.refused("'traces'", "No space left on device")
    assert os.listdir() == ["t.json"] and Generation.load("t.json").prompt == "abc"


def test_interruption(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*args: Any, **settings: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(dystruct.decoding, "generate", interrupted)
    outcome = run("generate", "abc", "--save", "t.json")
    assert (outcome.status, outcome.out, outcome.err) == (130, "", "dystruct: interrupted.\n")
    assert os.listdir() == []


def test_a_closed_pipe_ends_silently(run: Run) -> None:
    run("generate", "abc", "--max-new-tokens", "200", "--save", "t.json", "--quiet", "--structure", "none")
    script = f'{sys.executable} -c \'from dystruct.decoding.terminal.cli import main; main(["show", "t.json"])\''
    found = subprocess.run(["bash", "-c", f"{script} | head -n 1"], capture_output=True, text=True, check=False)
    assert found.returncode == 0 and found.stderr == "" and found.stdout.startswith("dystruct · ")


def test_user_errors_from_the_model_are_shown(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(name: str, *, device: str | None) -> None:
        raise UserError(f"The folder {name!r} is no model; give another.")

    monkeypatch.setattr(dystruct.decoding, "load", broken)
    run("generate", "abc", "--model", "x").refused("The folder 'x' is no model; give another.")


def test_real_errors_keep_their_traceback(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(name: str, *, device: str | None) -> None:
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
    outcome = run("generate", "abc")
    assert outcome.status == 2
    assert outcome.err.splitlines()[0] == "dystruct: warning: The weights are neutral."
    assert "--batch-size" in outcome.err.splitlines()[1]


def test_show_makes_pictures(run: Run) -> None:
    run("generate", "abc", *SMALL, "--save", "t.json", "--quiet")
    assert run("show", "t.json", "--svg", "p.svg").status == 0
    assert run("show", "t.json", "--svg", "half.svg", "--until", "5", "--width", "70").status == 0
    assert sorted(os.listdir()) == ["half.svg", "p.svg", "t.json"]
    assert Path("p.svg").read_text(encoding="utf-8").startswith("<svg")
    assert "summary" in Path("p.svg").read_text(encoding="utf-8")
    assert "summary" not in Path("half.svg").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (("nowhere.json",), ("'nowhere.json'", "No such file")),
        (("other.json",), ("other.json", "dystruct-trace")),
        (("cut.json",), ("cut.json",)),
        (("bytes.json",), ("bytes.json",)),
        (("odd.json",), ("odd.json",)),
        (("t.json", "--until", "3"), ("--until has no use without --svg",)),
        (("t.json", "--width", "80"), ("--width has no use without --svg",)),
        (("t.json", "--svg", "nowhere/p.svg"), ("no folder 'nowhere'",)),
        (("t.json", "--delay", "-1"), ("--delay",)),
    ],
)
def test_show_refuses_what_is_no_trace(run: Run, arguments: tuple[str, ...], parts: tuple[str, ...]) -> None:
    run("generate", "abc", *SMALL, "--save", "t.json", "--quiet")
    trace = Path("t.json").read_text(encoding="utf-8")
    Path("other.json").write_text("{}", encoding="utf-8")
    Path("cut.json").write_text(trace[: len(trace) // 2], encoding="utf-8")
    Path("bytes.json").write_bytes(b"\xff\xfe\x00")
    damaged = json.loads(trace)
    damaged["windows"][0]["steps"][-1]["commits"][0]["position"] = 10_000
    Path("odd.json").write_text(json.dumps(damaged), encoding="utf-8")
    before = sorted(os.listdir())
    run("show", *arguments).refused(*parts)
    assert sorted(os.listdir()) == before


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
    Path("a/training.json").write_text('{"depth": 3}', encoding="utf-8")
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


def test_devices() -> None:
    check_device("cpu")
    if not torch.cuda.is_available():
        with pytest.raises(UserError, match="no device 'cuda'"):
            check_device("cuda")


@pytest.mark.parametrize("field", ["order", "block_instability", "passes", "ends"])
def test_a_trace_whose_parts_do_not_fit_is_refused_before_anything_is_shown(tmp_path: Path, field: str) -> None:
    model = backbone(hashed(3), weights=uneven_weights())
    (generation,) = library_generate(model, ["abcab"], DyStruct(structure="sample"), max_new_tokens=20)
    path = tmp_path / "trace.json"
    generation.save(path)
    content = json.loads(path.read_text())
    content["windows"][0]["structure"][field] = []
    path.write_text(json.dumps(content))
    result = CliRunner().invoke(app, ["show", str(path)])
    assert result.exit_code == 2 and not result.stdout
    assert "save it again" in result.stderr


def test_a_trace_nested_without_end_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_text("[" * 100_000)
    result = CliRunner().invoke(app, ["show", str(path)])
    assert result.exit_code == 2 and "save it again" in result.stderr


def test_a_name_that_no_file_can_have_is_refused(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["generate", "abc", "--save", str(tmp_path / ("n" * 300))])
    assert result.exit_code == 2 and "choose another name" in result.stderr
