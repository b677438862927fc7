"""What the command line reads and writes: prompts, traces and pictures, whole or not at all."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from command_line import SMALL, Run
from dystruct.decoding import DyStruct, Generation
from dystruct.decoding import generate as library_generate
from dystruct.decoding.terminal.cli import app
from scripted import backbone, hashed, uneven_weights


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


@pytest.mark.parametrize("how", [(), ("--json",), ("--quiet",)])
@pytest.mark.parametrize("as_json", [False, True])
@pytest.mark.parametrize("line", [1, 2, 3])
def test_a_prompt_that_the_model_cannot_take_is_refused_by_line(
    run: Run, line: int, as_json: bool, how: tuple[str, ...]
) -> None:
    prompts = ["abc", "bca", "c"]
    prompts[line - 1] = "a" * 600
    content = "".join((json.dumps({"prompt": text}) if as_json else text) + "\n" for text in prompts)
    Path("p.txt").write_text(content, encoding="utf-8", newline="")
    run("generate", "--file", "p.txt", *how, *SMALL).refused(f"Line {line} of p.txt has 600 tokens")
    for source in (("--file", "-"), ("-",)):
        told = run("generate", *source, *how, *SMALL, stdin=content.encode())
        told.refused(f"Line {line} of standard input has 600 tokens")


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


def test_a_closed_pipe_ends_silently(run: Run) -> None:
    run("generate", "abc", "--max-new-tokens", "200", "--save", "t.json", "--quiet", "--structure", "none")
    script = f'{sys.executable} -c \'from dystruct.decoding.terminal.cli import main; main(["show", "t.json"])\''
    found = subprocess.run(["bash", "-c", f"{script} | head -n 1"], capture_output=True, text=True, check=False)
    assert found.returncode == 0 and found.stderr == "" and found.stdout.startswith("dystruct · ")


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
        (("t.json", "--svg", "a.svg", "--delay", "0"), ("--delay has no use with --svg",)),
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


def test_a_window_of_one_block_has_no_probability_to_show(run: Run) -> None:
    """Under the rule that infers nothing: neither live nor in a replay nor in a picture."""
    for structure, many in (("none", False), ("map", True)):
        out = run("generate", "abc", *SMALL, "--structure", structure, "--save", "t.json").out
        assert out == run("show", "t.json").out
        run("show", "t.json", "--svg", "p.svg")
        for text in (out, Path("p.svg").read_text(encoding="utf-8").replace("&#160;", " ")):
            assert (re.search(r"P\S* = |P\S* \| O|entropy", text) is not None) is many


@pytest.mark.parametrize("change", ["tokens", "numbers", "useful", "texts"])
def test_a_trace_that_tells_two_stories_is_refused(run: Run, change: str) -> None:
    """Every part of it is sound by itself."""
    run("generate", "abc", *SMALL, "--save", "t.json", "--quiet")
    content = json.loads(Path("t.json").read_text(encoding="utf-8"))
    if change == "tokens":
        content["tokens"][3] = content["tokens"][3] % 9 + 2
    elif change == "numbers":
        content["windows"][0]["steps"][2]["number"] = 1
    elif change == "useful":
        content["useful_tokens"] -= 1
    else:
        content["token_texts"].popitem()
        content["token_texts"] |= {"77": "x"}
    Path("t.json").write_text(json.dumps(content), encoding="utf-8")
    run("show", "t.json").refused("does not fit together", "save it again")


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
