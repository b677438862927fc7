"""Alternatives of a commit: the pass's most probable tokens, which change nothing and are shown by the replay page."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from dystruct.decoding import Block, DyStruct, Generation, UserError, generate
from dystruct.decoding.baselines import Daedal, Dream, Fast, Fixed
from dystruct.decoding.replay.record import record
from scripted import backbone, hashed
from watching import without_time

DECODERS = [
    DyStruct(structure="sample"),
    DyStruct(structure="sample", passes="share"),
    Block(4),
    Fixed(block_length=8, steps=8),
    Fast(block_length=8),
    Dream(steps=8),
    Daedal(),
]
PROMPTS = ["abc", "hgfedcba"]


def decoded(decoder: object, alternatives: int, temperature: float = 0.0) -> list[Generation]:
    return generate(
        backbone(hashed(3)), PROMPTS, decoder, max_new_tokens=24, temperature=temperature, alternatives=alternatives
    )


def without(generation: Generation) -> Generation:
    """The same without its alternatives, and without the texts of tokens that stand there only."""
    bare = generation.plain()
    for window in bare["windows"]:
        for commit in (commit for step in window["steps"] for commit in step["commits"]):
            commit.pop("alternatives", None)
    return bare


@pytest.mark.parametrize("decoder", DECODERS, ids=lambda decoder: type(decoder).__name__)
@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_they_change_nothing_and_hold_what_was_committed(decoder: object, temperature: float) -> None:
    seen = 0
    for bare, full in zip(decoded(decoder, 0, temperature), decoded(decoder, 3, temperature), strict=True):
        plain, told = without(bare), without(full)
        for content in (plain, told):
            del content["token_texts"], content["seconds"]
        assert plain == told
        commits = [commit for window in full.windows for step in window.steps for commit in step.commits]
        for commit in commits:
            shares = [other.probability for other in commit.alternatives]
            assert len(shares) <= 3 and shares == sorted(shares, reverse=True) and all(0 < p <= 1 for p in shares)
            assert sum(shares) <= 1 + 1e-5
            assert all(other.token in full.token_texts for other in commit.alternatives)
            if temperature == 0 and shares and commit.confidence == pytest.approx(shares[0], rel=1e-5):
                seen += commit.alternatives[0].token == commit.token
        kept = [c for w in full.windows for s in w.steps if s.kind != "diagnostic" for c in s.commits]
        assert all(commit.alternatives for commit in kept)
    assert temperature or seen


def test_at_temperature_0_the_first_one_is_committed() -> None:
    """Where neither noise nor a rule of the decoder's own chooses."""
    for generation in decoded(Block(4), 2):
        for commit in (c for w in generation.windows for s in w.steps for c in s.commits):
            first = commit.alternatives[0]
            assert (first.token, first.probability) == (commit.token, pytest.approx(commit.confidence, rel=1e-6))


def test_they_survive_the_file_and_reach_the_page(tmp_path: Path) -> None:
    (generation, _) = decoded(DyStruct(structure="sample"), 2)
    generation.save(tmp_path / "trace.json")
    loaded = Generation.load(tmp_path / "trace.json")
    assert loaded == generation
    shown = record(loaded)
    steps = [step for window in loaded.windows for step in window.steps]
    for step, packed in zip(steps, shown["steps"], strict=True):
        told = packed[7] if len(packed) > 7 else [[]] * len(step.commits)
        assert [len(values) for values in told] == [2 * len(commit.alternatives) for commit in step.commits]
    assert any(len(packed) > 7 for packed in shown["steps"])


def test_a_trace_without_them_is_as_it_was(tmp_path: Path) -> None:
    (generation, _) = decoded(DyStruct(), 0)
    generation.save(tmp_path / "trace.json")
    assert "alternatives" not in (tmp_path / "trace.json").read_text()
    assert all(len(packed) == 7 for packed in record(generation)["steps"])
    assert without_time(Generation.load(tmp_path / "trace.json")) == without_time(generation)


@pytest.mark.parametrize("number", [-1, 1.5, 10**6])
def test_a_number_that_cannot_be_is_named(number: float) -> None:
    with pytest.raises(UserError, match=f"alternatives must be .*, not {number}"):
        generate(backbone(hashed(3)), ["abc"], Block(4), alternatives=number)


def test_a_damaged_alternative_is_named(tmp_path: Path) -> None:
    (generation, _) = decoded(Block(4), 1)
    content = generation.plain()
    content["windows"][0]["steps"][0]["commits"][0]["alternatives"] = [{"token": 1}]
    (tmp_path / "trace.json").write_text(json.dumps(content))
    with pytest.raises(ValueError, match=r"alternatives\[0\] lacks the key 'probability'"):
        Generation.load(tmp_path / "trace.json")
    unknown = replace(generation, token_texts={})
    with pytest.raises(ValueError, match="does not fit together"):
        record(unknown)
