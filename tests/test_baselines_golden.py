"""Each decoder's `faithful` preset gives, token for token, what the original's own code gave (golden/make.py)."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from dystruct.decoding import DECODERS, Generation, generate
from integer_script import integer_hashed
from scripted import EOS, MASK, backbone

FOLDER = Path(__file__).parent / "golden"
NAMES = ("fixed", "fast", "dream", "daedal", "adablock", "hierarchy")
CASES = {name: json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8")) for name in NAMES}


def decode(name: str, case: dict[str, Any], **changes: Any) -> Generation:
    settings = {key: tuple(value) if isinstance(value, list) else value for key, value in case["settings"].items()}
    model = backbone(integer_hashed(**case["script"]), shifted=case.get("shifted", name == "dream"))
    (generation,) = generate(
        model, [case["prompt"]], DECODERS[name](**settings, **changes), max_new_tokens=case["max_new_tokens"],
        budget=1000, temperature=case["temperature"], seed=case["seed"],
    )  # fmt: skip
    return generation


@pytest.mark.parametrize("name", NAMES)
def test_a_faithful_decoder_gives_the_originals_tokens(name: str) -> None:
    """And takes no more forward passes: those that would change nothing are left out."""
    wrong = [
        (i, generation.tokens, case["tokens"])
        for i, case in enumerate(CASES[name])
        if (generation := decode(name, case, faithful=True)).tokens != tuple(case["tokens"])
        or generation.forward_passes > case["passes"]
    ]
    assert not wrong, f"{len(wrong)} of {len(CASES[name])} cases: {wrong[:3]}"


def before_the_end(tokens: list[int] | tuple[int, ...]) -> list[int]:
    return list(tokens[: tokens.index(EOS)] if EOS in tokens else tokens)


@pytest.mark.parametrize("name", ["fixed", "fast", "dream", "adablock", "hierarchy"])
def test_where_the_original_does_nothing_wrong_the_default_gives_its_text(name: str) -> None:
    """With a mask that is never predicted, and without the rules that the modules' heads name."""
    compared = 0
    for case in CASES[name]:
        settings = case["settings"]
        if case["script"]["mask_bonus"] > -1000 or settings.get("factor") or settings.get("remask"):
            continue
        if settings.get("defer_eos") and case["temperature"] > 0:
            continue
        compared += 1
        assert before_the_end(decode(name, case).tokens) == before_the_end(case["tokens"])
    assert compared >= 10


@pytest.mark.parametrize("name", NAMES)
def test_golden_cases_are_many_and_varied(name: str) -> None:
    cases = CASES[name]
    assert len(cases) >= 40
    assert Counter(case["temperature"] for case in cases).keys() == {0.0, 0.5, 1.0}
    assert len({tuple(case["tokens"]) for case in cases}) > len(cases) * 0.75
    assert sum(EOS in case["tokens"] for case in cases) >= 10
    for option in cases[0]["settings"]:
        assert len({str(case["settings"].get(option)) for case in cases}) > 1 or option == "delimiter_ids"


def test_only_originals_that_end_by_the_clock_leave_masks() -> None:
    left = {name: sum(MASK in case["tokens"] for case in CASES[name]) for name in NAMES}
    assert left["fixed"] > 5 and left["dream"] > 5
    assert {name for name, count in left.items() if count} == {"fixed", "dream"}
