"""What is said of several prompts while they are decoded, and how prompts and numbers are worded."""

from __future__ import annotations

import pytest

from dystruct.decoding import Block, generate
from dystruct.decoding.terminal.view import BatchProgress
from dystruct.decoding.wording import LONGEST_PROMPT, counted, left, shortened
from scripted import backbone, hashed


def test_progress_of_several_prompts(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    model = backbone(hashed(0, end_logit=-9.0))
    with BatchProgress(3) as progress:
        for index, tokens in ((0, 3), (1, 6), (2, 1)):
            [found] = generate(model, ["abc"], Block(3), max_new_tokens=tokens)
            progress.finished(index, found, 0.5)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.splitlines() == [
        "prompt 1 of 3 finished: 1 window, 3 tokens",
        "prompt 2 of 3 finished: 2 windows, 6 tokens",
        "prompt 3 of 3 finished: 1 window, 1 token",
    ]


def test_long_prompts_are_shortened() -> None:
    assert shortened("x" * LONGEST_PROMPT) == "x" * LONGEST_PROMPT
    short = shortened("a" * 2000 + "END")
    assert len(short) < LONGEST_PROMPT + 60 and short.endswith("END") and "1103 characters left out" in short


def test_numbers_with_nouns() -> None:
    assert [counted(n, "pass", "passes") for n in (0, 1, 2)] == ["0 passes", "1 pass", "2 passes"]
    assert counted(2, "block") == "2 blocks"


def test_times_are_told_in_the_unit_that_suits_them() -> None:
    seconds = (0.0, 0.4, 1.0, 119.0, 120.0, 7100.0, 7200.0, 172_800.0)
    assert [left(time) for time in seconds] == [
        "nothing left", "about 1 s left", "about 1 s left", "about 119 s left", "about 2 min left",
        "about 118 min left", "about 2 h left", "about 2 d left",
    ]  # fmt: skip
