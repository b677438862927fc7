"""The prefix caches on the command line and among the settings of runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from dystruct.decoding import UserError
from dystruct.decoding.evaluation.settings import RunSettings
from dystruct.decoding.terminal.cli import app, main

CACHES = {"--prefix-cache": True, "--append-cache": "append"}


def test_the_prefix_caches_are_options_and_on_record() -> None:
    common = ["generate", "--max-new-tokens", "12", "--decoder", "block", "--json", "Tom has 3 apples."]
    for given, cache in ((), False), *(((option,), cache) for option, cache in CACHES.items()):
        run = CliRunner().invoke(app, [*common, *given])
        assert run.exit_code == 0
        assert json.loads(run.stdout)["settings"]["prefix_cache"] == cache


@pytest.mark.parametrize("command", [["generate", "Tom has 3 apples."], ["eval", "run", "--tasks", "tiny_logic"]])
def test_both_caches_are_refused_in_one_sentence(
    command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as refused:
        main([*command, *CACHES])
    said = " ".join(capsys.readouterr().err.split())
    assert refused.value.code == 2 and not list(tmp_path.iterdir())
    assert said.endswith("--prefix-cache and --append-cache exclude each other; give one of them.")


@pytest.mark.parametrize("option", CACHES)
def test_a_run_has_its_cache_on_record(option: str, tmp_path: Path) -> None:
    common = ["eval", str(tmp_path / "run"), "--tasks", "tiny_logic", "--limit", "1", "--max-new-tokens", "4"]
    run = CliRunner().invoke(app, [*common, "--decoder", "block", option])
    assert run.exit_code == 0, run.output
    told = json.loads((tmp_path / "run/run.json").read_text())["settings"]
    assert told["prefix_cache"] == CACHES[option]


def test_a_sweep_names_a_cache() -> None:
    for cache in (False, *CACHES.values()):
        assert RunSettings.of({"tasks": ["tiny_logic"], "prefix_cache": cache}).prefix_cache == cache
    others: tuple[Any, ...] = ("full", 1, None)
    for other in others:
        with pytest.raises(UserError, match=r"^prefix_cache must be True, False or 'append', not .*\.$"):
            RunSettings.of({"tasks": ["tiny_logic"], "prefix_cache": other})
