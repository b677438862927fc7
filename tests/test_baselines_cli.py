"""The rivals on the command line: options, refusals, the list of decoders and the comparison."""

from __future__ import annotations

import json
import re
from dataclasses import fields
from typing import Any

import pytest
import torch

import dystruct.decoding
from command_line import Run
from dystruct.decoding import (
    DECODERS,
    AdaBlock,
    Daedal,
    Dream,
    DyStruct,
    Fast,
    Fixed,
    Generation,
    Hierarchy,
    UserError,
    VsbLike,
)
from dystruct.decoding.named import DECODER_SETTINGS, KINDS, OPTIONS, named_decoder
from dystruct.decoding.terminal.rival_options import RIVALS


@pytest.mark.parametrize(
    ("arguments", "decoder"),
    [
        ("fixed", Fixed()),
        (
            "fixed --block-length 4 --steps 10 --guidance 0.5 --suppress-eos --defer-eos --end-of-turn 7",
            Fixed(4, 10, guidance=0.5, suppress_eos=True, defer_eos=True, end_of_turn=7),
        ),
        ("fixed --remasking random --preset faithful", Fixed(remasking="random", faithful=True)),
        (
            "dream --alg topk_margin --alg-temp 0.2 --top-p 0.9 --top-k 5 --eps 0.01 --steps 9",
            Dream("topk_margin", 9, 0.2, 0.9, 5, 0.01),
        ),
        ("fast --threshold 0.8", Fast(threshold=0.8)),
        ("fast --factor 1.5 --block-length 4", Fast(4, factor=1.5)),
        (
            "daedal --initial-length 8 --high 0.8 --low 0.2 --expansion 3 --eos-threshold 0.4 "
            "--expand-eos-threshold 0.7 --eos-check-tokens 5",
            Daedal(8, high=0.8, low=0.2, expansion=3, eos_threshold=0.4, expand_eos_threshold=0.7, eos_check_tokens=5),
        ),
        ("adablock --delimiter-threshold 0.4 --threshold 0.7", AdaBlock(32, 0.7, 0.4)),
        ("hierarchy --low 0.3 --high 0.9 --remask 0.35", Hierarchy(low=0.3, high=0.9, remask=0.35)),
        ("vsb-like --stride 4 --tolerance 0.2", VsbLike(stride=4, tolerance=0.2)),
        ("dystruct --preset no-weld", DyStruct(weld="off")),
    ],
)
def test_options_reach_their_settings(
    run: Run, monkeypatch: pytest.MonkeyPatch, arguments: str, decoder: object
) -> None:
    seen: list[Any] = []
    monkeypatch.setattr(
        dystruct.decoding, "generate", lambda model, prompts, chosen, **limits: seen.append(chosen) or []
    )
    outcome = run("generate", "abc", "--quiet", "--decoder", *arguments.split())
    assert (outcome.status, outcome.err) == (0, "")
    assert seen == [decoder]


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        ("--decoder fast --steps 5", "--steps has no use with --decoder fast"),
        ("--decoder fast --threshold 0.9 --factor 1", "--threshold and factor exclude each other"),
        ("--decoder fixed --threshold 0.9", "--threshold has no use with --decoder fixed"),
        ("--decoder fixed --alpha0 1", "--alpha0 has no use with --decoder fixed"),
        ("--decoder fixed --preset paper", "its only one is faithful"),
        ("--decoder vsb-like --preset faithful", "--preset has no use"),
        ("--decoder fixed --steps 30 --budget 20", "budget"),
        ("--decoder fixed --steps 0", "--steps must be"),
        ("--decoder dream --top-p 2", "--top-p must be"),
        ("--decoder dream --alg magic", "--alg must be"),
        ("--steps 5", "--steps has no use with --decoder dystruct"),
    ],
)
def test_options_without_use_are_refused(run: Run, arguments: str, part: str) -> None:
    run("generate", "abc", *arguments.split()).refused(part)


def test_every_setting_of_every_rival_has_its_option() -> None:
    known = {rival.setting for rival in RIVALS} | set(DECODER_SETTINGS.values())
    in_python = {"faithful", "delimiters", "delimiter_ids"}
    for name, kind in DECODERS.items():
        if name != "dystruct":
            assert {setting.name for setting in fields(kind)} <= known | in_python, name
    for rival in RIVALS:
        assert any(rival.setting in {setting.name for setting in fields(kind)} for kind in DECODERS.values())
        assert (OPTIONS[rival.option], KINDS[rival.setting]) == (rival.setting, rival.kind)


def test_decoders_lists_all_of_them_with_their_defaults(run: Run) -> None:
    outcome = run("decoders")
    assert outcome.status == 0
    *parts, ending = re.split(r"\n\n", outcome.out.strip())
    listed = dict(part.split("\n", 1) for part in parts)
    assert named_decoder(ending.splitlines()[-1]) == DyStruct(structure="sample", diagnostic_passes=1)
    headings = {heading.partition(":")[0]: body for heading, body in listed.items()}
    assert list(headings) == list(DECODERS)
    assert "--threshold: 0.9" in headings["adablock"] and "--block-length: 32" in headings["fast"]
    assert "--alpha0: 1.5" in headings["dystruct"] and "no-schedule" in headings["dystruct"]
    assert "--threshold: unset (0.9, unless" in headings["fast"] and "--suppress-eos: off" in headings["fixed"]
    assert "none" not in headings["hierarchy"].split("unset")[0] and "--guidance: 0.0" in headings["fixed"]
    assert "--preset: faithful" in headings["daedal"] and "preset" not in headings["vsb-like"]


def test_compare_shows_text_tokens_passes_and_time(run: Run) -> None:
    outcome = run(
        "compare", "abc", "--max-new-tokens", "12", "--decoder", "fixed:steps=4,block-length=6", "--decoder",
        "fast:factor=1.5", "--decoder", "dystruct:preset=no-weld",
    )  # fmt: skip
    assert (outcome.status, outcome.err) == (0, "")
    for word in ("model scripted", "decoder", "tokens", "passes", "seconds", "ended", "text", "length"):
        assert word in outcome.out
    for word in ("fixed", "steps=4", "block-length=6", "fast", "factor=1.5", "dystruct", "preset=no-weld"):
        assert f"│ {word} " in outcome.out, "a setting a line leaves room for the text"


def test_compare_as_json_lines(run: Run) -> None:
    outcome = run("compare", "abc", "--json", "--max-new-tokens", "12")
    found = [json.loads(line) for line in outcome.out.splitlines()]
    assert outcome.status == 0 and [line["decoder"] for line in found] == list(DECODERS)
    assert all(line["useful_tokens"] == 12 and line["forward_passes"] > 0 for line in found)
    assert found[2]["settings"]["decoder"] == "Fixed" and found[2]["text"]


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (("",), "empty"),
        (("abc", "--decoder", "magic"), "'magic'"),
        (("abc", "--decoder", "fast:colour=3"), "'colour'"),
        (("abc", "--decoder", "fast:steps=3"), "--steps has no use"),
        (("abc", "--budget", "20", "--decoder", "fixed:steps=30"), "fixed:steps=30"),
    ],
)
def test_mistakes_in_a_comparison(run: Run, arguments: tuple[str, ...], part: str) -> None:
    run("compare", *arguments).refused(part)


@pytest.mark.parametrize("as_json", [False, True])
@pytest.mark.parametrize("at", range(3))
@pytest.mark.parametrize(
    "ending", [UserError("It cannot be."), torch.OutOfMemoryError(), KeyboardInterrupt()], ids=repr
)
def test_what_ends_a_comparison_leaves_what_was_found(
    run: Run, monkeypatch: pytest.MonkeyPatch, ending: BaseException, at: int, as_json: bool
) -> None:
    names, real = ("block:passes=4", "fixed:steps=4", "fast:factor=1.5"), dystruct.decoding.generate
    refused = named_decoder(names[at])

    def ends(model: Any, prompts: list[str], decoder: Any, **settings: Any) -> list[Generation]:
        if decoder == refused:
            raise ending
        return real(model, prompts, decoder, **settings)

    monkeypatch.setattr(dystruct.decoding, "generate", ends)
    asked = [part for name in names for part in ("--decoder", name)]
    told = run("compare", "abc", "--max-new-tokens", "8", *asked, *["--json"] * as_json)
    shown = [name for name in names if name.partition(":")[2] in told.out or name in told.out]
    assert shown == list(names[:at]) and bool(told.out) == bool(at)
    if isinstance(ending, KeyboardInterrupt):
        assert (told.status, told.err) == (130, "dystruct: interrupted.\n")
    else:
        assert told.status == 2 and re.fullmatch(rf"dystruct: {names[at]}: [^\n]+\.\n", told.err), told.err
