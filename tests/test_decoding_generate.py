"""What `generate` asks of its arguments, what it records of them, and its warning of a model never calibrated."""

from __future__ import annotations

import dataclasses
import json
import warnings
from collections.abc import Iterator
from typing import Any

import pytest

from dystruct.decoding import Block, DyStruct, Pass, Row, UserError, generate
from dystruct.inference import RULES
from dystruct.model import EvidenceWeights, PriorConfig
from scripted import backbone, hashed

MODEL = backbone(hashed(0, end_logit=-4.0))


@pytest.mark.parametrize(
    ("name", "value"),
    [(name, value) for name in ("max_new_tokens", "budget", "batch_size") for value in (0, -3, 2.0, "7", None)]
    + [("seed", -1), ("seed", 0.5), ("seed", None)]
    + [("temperature", value) for value in (-0.1, float("nan"), float("inf"), "warm", None)],
)
def test_a_limit_that_cannot_be_is_refused_by_name(name: str, value: Any) -> None:
    with pytest.raises(UserError, match=f"^{name} must be .*{value!r}\\.$"):
        generate(MODEL, ["abc"], Block(), **{name: value})


@pytest.mark.parametrize("prompt", ["", "  ", "\n\t"])
def test_an_empty_prompt_is_refused_and_nothing_is_decoded(prompt: str) -> None:
    before = len(MODEL.network.batches)
    with pytest.raises(UserError, match="empty"):
        generate(MODEL, ["abc", prompt], Block())
    assert len(MODEL.network.batches) == before


def test_a_prompt_of_which_the_tokenizer_knows_nothing_is_refused() -> None:
    class Deaf:
        def __call__(self, text: str, add_special_tokens: bool) -> dict[str, list[int]]:
            return {"input_ids": []}

    with pytest.raises(UserError, match="no token"):
        generate(dataclasses.replace(MODEL, tokenizer=Deaf()), ["abc"], Block())


def test_one_text_instead_of_a_list_is_refused() -> None:
    with pytest.raises(UserError, match="list"):
        generate(MODEL, "abc", Block())


def test_no_prompts_give_no_texts() -> None:
    assert generate(MODEL, [], Block()) == []


@pytest.mark.parametrize(
    ("length", "remedy"), [(500, "ask for at most 12 new tokens"), (512, "shorten it"), (600, "shorten it")]
)
def test_a_prompt_that_does_not_fit_the_context_is_refused_with_what_would(length: int, remedy: str) -> None:
    with pytest.raises(UserError, match=f"{length} tokens.*'scripted' is 512 tokens; {remedy}"):
        generate(MODEL, ["a" * length], Block(), max_new_tokens=13)
    if length == 500:
        (generation,) = generate(MODEL, ["a" * length], Block(), max_new_tokens=12)
        assert len(generation.tokens) == 12


def test_the_settings_tell_how_a_text_was_made_and_can_be_written() -> None:
    weights = EvidenceWeights.neutral()
    decoder = DyStruct(
        structure=RULES["sample"].with_length("mean"), prior=PriorConfig(4, 9), weights=weights, weld="joint"
    )
    (generation,) = generate(MODEL, ["abc"], decoder, max_new_tokens=9, budget=50, temperature=0.5, seed=3)
    settings = generation.settings
    assert settings["decoder"] == "DyStruct" and settings["structure"] == "sample" and settings["weld"] == "joint"
    assert settings["prior"]["max_length"] == 9 and settings["weights"]["position"] == weights.position.tolist()
    assert [settings[name] for name in ("max_new_tokens", "budget", "temperature", "seed")] == [9, 50, 0.5, 3]
    assert json.loads(json.dumps(settings)) == settings
    assert generation.model == "scripted"
    assert "".join(generation.token_texts[t] for t in generation.tokens) == generation.text


class LeftToRight:
    """A decoder of one's own: all that the engine asks is `widest` and `decode`."""

    widest = 1

    def decode(self, row: Row) -> Iterator[Pass]:
        while row.remaining > 0 and row.passes_left > 0:
            window = row.open_window(1)
            yield Pass("resolve", window.start, window.start + 1, 1)
            row.close_window(*row.read_window())


def test_a_decoder_of_ones_own_need_only_be_a_coroutine_over_passes() -> None:
    (own,) = generate(MODEL, ["abc"], LeftToRight(), max_new_tokens=10)
    (block,) = generate(MODEL, ["abc"], Block(1), max_new_tokens=10)
    assert own.tokens == block.tokens and own.settings["decoder"] == "LeftToRight"


def test_the_default_decoder_is_dystruct() -> None:
    (default,) = generate(MODEL, ["abc"], max_new_tokens=10)
    (named,) = generate(MODEL, ["abc"], DyStruct(), max_new_tokens=10)
    assert default.tokens == named.tokens and default.settings == named.settings


def test_a_model_never_calibrated_is_warned_of_only_where_its_weights_are_used() -> None:
    raw = dataclasses.replace(MODEL, calibrated=False)
    with pytest.warns(UserWarning, match="'scripted' has no calibrated.*dystruct calibrate"):
        generate(raw, ["abc"], DyStruct(), max_new_tokens=4)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        generate(raw, ["abc"], Block(), max_new_tokens=4)
        generate(raw, ["abc"], DyStruct(weights=EvidenceWeights.neutral()), max_new_tokens=4)
        generate(MODEL, ["abc"], DyStruct(), max_new_tokens=4)


# --- what a decoder of one's own may not ask for ----------------------------------------------------------------------


@pytest.mark.parametrize("more", [{"remask": ((0, 4, 2),)}, {"threshold": 0.5}, {"remask": ((0, 1, 0),), "parts": ()}])
@pytest.mark.parametrize("kind", ["resolve", "weld", "diagnostic"])
def test_a_pass_whose_commits_are_the_decoders_own_does_nothing_by_itself(kind: Any, more: dict[str, Any]) -> None:
    """What it remasked by itself would be on no record; a number of commits may stand beside either."""
    with pytest.raises(UserError, match=r"^A pass with commit=None .*Row\.remask.*\.$"):
        Pass(kind, 0, 4, None, **more)
    assert Pass(kind, 0, 4, 0, **more).commit == 0
