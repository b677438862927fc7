"""Mistakes that one sentence answers, before anything is computed or overwritten."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dystruct.decoding
from command_line import SMALL, Run
from dystruct.decoding import Block, DyStruct, Generation, UserError, generate, load
from dystruct.decoding.backbone import loading
from dystruct.decoding.bench import __main__ as bench
from dystruct.decoding.bench import agreement
from dystruct.decoding.files import save_text
from scripted import backbone, hashed

MODEL = backbone(hashed(0))


@pytest.fixture
def saved(run: Run) -> Path:
    """A trace on file, in the current folder."""
    run("generate", "abc", *SMALL, "--save", "t.json", "--quiet")
    return Path("t.json")


# --- files ---------------------------------------------------------------------------------------------------------


def test_a_pipe_is_never_replaced(run: Run, saved: Path) -> None:
    os.mkfifo("pipe")
    run("generate", "abc", *SMALL, "--save", "pipe").refused("'pipe'", "no regular file")
    run("show", "t.json", "--svg", "pipe").refused("no regular file")
    with pytest.raises(UserError, match="no regular file"):
        save_text(Path("pipe"), "text")
    with pytest.raises(ValueError, match="no regular file"):
        Generation.load(saved).save("pipe")
    assert stat.S_ISFIFO(os.stat("pipe").st_mode) and sorted(os.listdir()) == ["pipe", "t.json"]


@pytest.mark.parametrize("there", [True, False])
def test_a_symbolic_link_is_written_through(run: Run, saved: Path, there: bool) -> None:
    Path("far").mkdir()
    for name in ("trace.json", "page.svg"):
        if there:
            Path("far", name).write_text("what stood here", encoding="utf-8")
        Path(name).symlink_to(Path("far", name))
    assert run("generate", "bca", *SMALL, "--save", "trace.json", "--quiet").status == 0
    assert run("show", "t.json", "--svg", "page.svg").status == 0
    assert Path("trace.json").is_symlink() and Generation.load("far/trace.json").prompt == "bca"
    assert Path("page.svg").is_symlink() and Path("far/page.svg").read_text(encoding="utf-8").startswith("<svg")
    assert sorted(os.listdir("far")) == ["page.svg", "trace.json"], "nothing half-written is left"


@pytest.mark.parametrize(
    "arguments", [("--html", "t.json"), ("--svg", "./t.json"), ("--html", "other.json", "--beside", "other.json")]
)
def test_a_picture_does_not_replace_the_trace(run: Run, saved: Path, arguments: tuple[str, ...]) -> None:
    before = saved.read_bytes()
    Path("other.json").write_bytes(before)
    run("show", "t.json", *arguments).refused("the trace that is shown")
    assert saved.read_bytes() == Path("other.json").read_bytes() == before


@pytest.mark.parametrize("name", ["x" * 300, f"{'x' * 300}/y", "x/" * 3000 + "y"])
@pytest.mark.parametrize(
    "command",
    [
        "show {}", "show {} --item t:0", "show t.json --svg {}", "show t.json --html {}",
        "show t.json --html p.html --beside {}",
        "generate abc --model {}", "generate abc --save {}", "generate --file {}", "generate abc --weights {}",
        "compare abc --model {}", "compare abc --decoder dystruct --weights {}",
        "accuracy --domain logic --model {}", "accuracy --domain logic --save {}",
        "calibrate {}", "calibrate w.json --domain logic --model {}", "calibrate w.json --file {}",
        "calibrate w.json --save {}", "calibrate w.json --svg {}",
        "train {}", "train a --start-from {}",
        "eval out --tasks tiny_logic --model {}", "eval out --tasks tiny_logic --weights {}",
        "sweep {} out", "tables {} --out out",
    ],
)  # fmt: skip
def test_a_name_that_no_file_can_have_is_refused(
    run: Run, saved: Path, monkeypatch: pytest.MonkeyPatch, command: str, name: str
) -> None:
    if "--model" in command or "--weights" in command:
        monkeypatch.setattr(dystruct.decoding, "load", loading.load)
    run(*command.format(name).split()).refused()
    assert os.listdir() == ["t.json"]


@pytest.mark.parametrize("arguments", [("train", ""), ("calibrate", ""), ("accuracy", "--save", "")])
def test_a_name_that_is_empty_is_refused(run: Run, arguments: tuple[str, ...]) -> None:
    run(*arguments).refused("empty")
    assert os.listdir() == []


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (("opened", "length"), 10**12),
        (("opened", "length"), 500_000),
        (("opened", "length"), -1),
        (("structure", "instability"), [float("inf")] * 20),
        (("structure", "log_probability"), 1e308),
    ],
)
def test_a_trace_of_absurd_numbers_is_refused(run: Run, saved: Path, place: tuple[str, str], value: Any) -> None:
    content = json.loads(saved.read_text(encoding="utf-8"))
    part = content["windows"][0][place[0]]
    part[place[1]] = value[: len(part[place[1]])] if isinstance(value, list) else value
    saved.write_text(json.dumps(content), encoding="utf-8")
    run("show", "t.json").refused("does not fit together")


@pytest.mark.parametrize("arguments", [(), ("--svg", "p.svg"), ("--html", "p.html")])
@pytest.mark.parametrize(
    ("path", "value", "says"),
    [
        (("model",), "\ud801", "(model is no valid Unicode)"),
        (("text",), "\ud801", "(text is no valid Unicode)"),
        (("settings", "decoder"), "\ud801", "(settings['decoder'] is no valid Unicode)"),
        (("seconds",), 10**400, "(seconds is larger than any float)"),
        (("token_texts", "01"), "a", "(token_texts has the key '01', "),
        (("windows", 0, "structure", "order"), [5, 5], "(windows[0].structure.order does not name each of the "),
        (("windows", 0, "structure", "ends"), [99], "(windows[0].structure.ends are not those of blocks of "),
        (("windows", 0, "structure", "ends"), [20, 99], "(windows[0].structure.ends are not those of blocks of "),
        (("windows", 0, "structure", "ends"), [], "(windows[0].structure.ends are not those of blocks of "),
        (("windows", 0, "structure", "passes"), [], "(windows[0].structure.passes holds 0 values, not "),
        (("windows", 0, "structure", "cut_marginals"), [], "(windows[0].structure.cut_marginals holds 0 values, not "),
        (
            ("windows", 0, "steps", 5, "commits", 0, "position"),
            10**9,
            "(windows[0].steps[5] changes a position outside ",
        ),
        (("windows", 0, "steps", 5, "commits", 0, "position"), -1, "(windows[0].steps[5] changes a position outside "),
        (
            ("windows", 0, "steps", 5, "spliced"),
            [{"position": 10**9, "removed": 0, "inserted": 0, "token": None}],
            "(windows[0].steps[5] splices beyond its window)",
        ),
        (
            ("windows", 0, "steps", 5, "commits", 0, "alternatives"),
            [{"token": 10**30, "probability": 0.5}],
            f"(it has no text of token {10**30})",
        ),
    ],
)
def test_a_damaged_trace_is_told_with_its_place(
    run: Run, saved: Path, path: tuple[Any, ...], value: Any, says: str, arguments: tuple[str, ...]
) -> None:
    content = holder = json.loads(saved.read_text(encoding="utf-8"))
    for key in path[:-1]:
        holder = holder[key]
    holder[path[-1]] = value
    saved.write_text(json.dumps(content), encoding="utf-8")
    run("show", "t.json", *arguments).refused("t.json", says, "save it again")
    assert os.listdir() == ["t.json"]


# --- prompts and stop strings --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("prompts", "settings", "part"),
    [
        ([3], {}, r"prompts\[0\] must be a text"),
        (["abc", None], {}, r"prompts\[1\] must be a text"),
        (None, {}, "prompts must be a list"),
        (np.array("abc"), {}, "prompts must be a list"),
        (["abc", "a\ud800"], {}, r"prompts\[1\].* no valid Unicode"),
        (["abc"], {"stop": None}, "stop must be a list"),
        (["abc"], {"stop": np.array("abc")}, "stop must be a list"),
        (["abc"], {"stop": [3]}, "stop must be a list"),
        (["abc"], {"stop": ["\udfff"]}, "no valid Unicode"),
        (["abc"], {"decoder": "dystruct"}, "decoder must be a decoder"),
        (["abc"], {"decoder": DyStruct}, "decoder must be a decoder"),
    ],
)
def test_what_generate_cannot_decode_is_refused(prompts: Any, settings: dict[str, Any], part: str) -> None:
    with pytest.raises(UserError, match=part) as caught:
        generate(MODEL, prompts, **{"decoder": Block(), **settings})
    str(caught.value).encode()


@pytest.mark.parametrize("model", ["tiny", None, load])
def test_generate_takes_a_loaded_model(model: Any) -> None:
    with pytest.raises(UserError, match=r"model must be a loaded model, as load\('tiny'\) gives"):
        generate(model, ["abc"])


def test_compare_refuses_what_is_no_unicode(run: Run) -> None:
    run("compare", "a\udc80").refused("no valid Unicode")
    run("compare", "abc", "--stop", "\udc80").refused("no valid Unicode")


# --- benchmarks ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("program", "arguments", "part"),
    [
        (bench, ("--threads", "0"), "--threads"),
        (bench, ("--rounds", "0"), "--rounds"),
        (bench, ("--rounds", "x"), "--rounds"),
        (bench, ("--out", "nowhere/b.json"), "no folder 'nowhere'"),
        (agreement, ("runs", "--threads", "-1"), "--threads"),
        (agreement, ("runs", "--problems", "0"), "--problems"),
        (agreement, ("runs", "--decoders", "block", "block"), "twice"),
        (agreement, ("file/runs",), "'file/runs'"),
        (bench, ("--out", "x" * 300), "choose another name"),
        (agreement, ("x" * 300,), "cannot be made"),
    ],
)
def test_benchmarks_refuse_before_they_measure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any, program: Any, arguments: tuple[str, ...], part: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("file").write_text("", encoding="utf-8")
    monkeypatch.setattr(agreement, "load", lambda *_: pytest.fail("it loads a model"))
    monkeypatch.setattr(agreement.torch, "set_num_threads", lambda _: None)
    with pytest.raises(SystemExit) as exit:
        program.main(list(arguments))
    assert exit.value.code == 2 and part in capsys.readouterr().err
    assert os.listdir() == ["file"]
