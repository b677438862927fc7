"""What the tests of the command line share: runs of it with a scripted model, and how each ended."""

from __future__ import annotations

import io
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

import dystruct.decoding
from dystruct.decoding import Generation
from dystruct.decoding.terminal.cli import app, main
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
            assert part in self.err, self.err


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Run:
    """Runs the command line in an empty folder, with a scripted model in the place of the embedded one."""
    monkeypatch.chdir(tmp_path)
    for name in ("FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)
    model = backbone(hashed(3, end_logit=-50.0), weights=uneven_weights())
    monkeypatch.setattr(dystruct.decoding, "load", lambda name, **options: model)

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


def helps(command: str) -> dict[str, str]:
    """The help of each option of a command."""
    found = get_command(app).commands[command].params
    return {parameter.opts[0]: parameter.help for parameter in found}
