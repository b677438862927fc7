"""What holds for every rival decoder: limits, the end token, batches, traces, and what the engine offers them."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dystruct.decoding import (
    DECODERS,
    Commit,
    Daedal,
    Decoder,
    Dream,
    DyStruct,
    Fast,
    Fixed,
    Generation,
    Hierarchy,
    Pass,
    Remask,
    Row,
    Splice,
    UserError,
    VsbLike,
    generate,
)
from dystruct.model import PriorConfig
from integer_script import integer_hashed
from rivals import PROMPTS, RIVALS, check_trace, decode, named
from scripted import EOS, FIRST_LETTER, MASK, backbone, written
from watching import noted_reads, without_time

# --- limits, the end token, the trace ---------------------------------------------------------------------------------


@settings(deadline=None, max_examples=60)
@given(
    st.sampled_from(RIVALS), st.integers(0, 10**6), st.integers(1, 24), st.integers(1, 40),
    st.sampled_from([0.0, 0.0, 1.0]), st.sampled_from([-3.0, 0.0, 2.0]),
)  # fmt: skip
def test_limits_hold_and_a_finished_sequence_holds_no_mask(
    decoder, seed, length, budget, temperature, end_bonus
) -> None:
    script = integer_hashed(seed, end_bonus=end_bonus)
    limits = {"max_new_tokens": length, "budget": budget, "temperature": temperature, "seed": seed}
    needed = min(getattr(decoder, "steps", None) or 0, length)
    if budget < max(needed, 2 if getattr(decoder, "guidance", 0) else 1) or (
        isinstance(decoder, Fixed) and decoder.steps and decoder.steps < -(-length // (decoder.block_length or length))
    ):
        with pytest.raises(UserError, match=r"budget|steps"):
            decode(script, ["abc"], decoder, **limits)
        return
    (generation,) = decode(script, ["abc"], decoder, **limits)
    assert MASK not in generation.tokens
    assert 1 <= len(generation.tokens) <= length
    assert 1 <= generation.forward_passes <= budget
    useful = generation.tokens.index(EOS) if EOS in generation.tokens else len(generation.tokens)
    assert (generation.useful_tokens, generation.wasted_tokens) == (useful, len(generation.tokens) - useful)
    if generation.stop_reason == "length":
        assert len(generation.tokens) == length
    elif generation.stop_reason == "budget":
        assert len(generation.tokens) < length and generation.forward_passes == budget
    else:
        assert generation.stop_reason == "eos" or isinstance(decoder, Daedal), "none but it finds its own length"
    check_trace(generation)


@settings(deadline=None, max_examples=60)
@given(
    st.sampled_from([rival for rival in RIVALS if not isinstance(rival, Fixed | Dream)]),
    st.integers(0, 10**6), st.integers(2, 30), st.sampled_from([-9.0, 0.0, 2.0]),
)  # fmt: skip
def test_those_that_take_the_passes_they_need_do_not_plan_with_the_budget(decoder, seed, budget, end_bonus) -> None:
    """Up to the budget's last pass a text is the same under any. VsbLike asks whether a window's cuts can be tried."""
    script = integer_hashed(seed, end_bonus=end_bonus)
    (free,), (bound,) = (decode(script, ["abc"], decoder, budget=many) for many in (300, budget))
    (steps, others) = ([step for window in found.windows for step in window.steps] for found in (free, bound))
    kept = budget - (5 if isinstance(decoder, VsbLike) else 1)
    assert steps[: max(0, kept)] == others[: max(0, kept)]
    if free.forward_passes <= kept:
        assert bound.tokens == free.tokens


@pytest.mark.parametrize("decoder", RIVALS, ids=named)
def test_a_batch_is_one_prompt_at_a_time_and_watching_changes_nothing(decoder: Decoder) -> None:
    script, seen = integer_hashed(5, end_bonus=1.0), {}
    limits = {"max_new_tokens": 12, "temperature": 0.7}
    together = decode(script, PROMPTS, decoder, batch_size=2, **limits)
    watched = decode(
        script, PROMPTS, decoder, batch_size=4, observe=lambda i, e: seen.setdefault(i, []).append(e), **limits
    )
    for index, prompt in enumerate(PROMPTS):
        (alone,) = decode(script, [prompt], decoder, batch_size=1, **limits)
        assert without_time(together[index]) == without_time(alone) == without_time(watched[index])
        assert seen[index] == [event for window in alone.windows for event in window.events()]


@pytest.mark.parametrize("decoder", RIVALS, ids=named)
def test_traces_and_settings_are_plain_data(decoder: Decoder, tmp_path: Path) -> None:
    (generation,) = decode(integer_hashed(8), ["abc"], decoder)
    generation.save(tmp_path / "trace.json")
    assert Generation.load(tmp_path / "trace.json") == generation or generation.settings["decoder"] == "AdaBlock"
    assert json.loads(json.dumps(generation.settings))["decoder"] == type(decoder).__name__


def test_events_come_live() -> None:
    """When a step is told, no later forward pass has been made; the end of a block that quotas fill is no exception."""
    for decoder in (Fast(4), Daedal(8, 4, eos_check_tokens=4), Fixed(block_length=4)):
        model, calls = backbone(integer_hashed(6, end_bonus=-4.0)), []
        generate(model, ["abc"], decoder, max_new_tokens=12, observe=lambda i, event, m=model, c=calls: c.append(
            (len(m.network.batches), getattr(event, "number", None))
        ))  # fmt: skip
        assert calls and all(number in (None, made) for made, number in calls)


@pytest.mark.parametrize("decoder", [Fixed(block_length=4), Fast(4), Hierarchy(4, remask=0.3)], ids=named)
def test_decoding_ends_with_the_block_that_holds_the_end(decoder: Decoder) -> None:
    def wanted(known: list[int], position: int) -> int:
        return EOS if position == 3 + 5 else FIRST_LETTER + position % 10

    (generation,) = decode(written(wanted), ["abc"], decoder, max_new_tokens=16)
    assert len(generation.tokens) == 8 and generation.useful_tokens == 5 and generation.stop_reason == "eos"
    assert generation.windows[0].opened.length == 16
    (faithful,) = decode(written(wanted), ["abc"], dataclasses.replace(decoder, faithful=True), max_new_tokens=16)
    assert len(faithful.tokens) == 16 and faithful.text == generation.text


def test_what_is_committed_behind_the_end_counts_as_wasted() -> None:
    """Dream fills the response in any order: what it has committed behind the end stays, and no mask does."""

    def wanted(known: list[int], position: int) -> int:
        return EOS if position == 3 + 2 else FIRST_LETTER

    def sure(known: list[int], position: int) -> float:
        return {3: 3.0, 4: 4.0, 5: 2.0, 8: 5.0, 10: 6.0}.get(position, 1.0)

    (generation,) = decode(written(wanted, sure), ["abc"], Dream(), max_new_tokens=10)
    assert generation.tokens == (FIRST_LETTER, FIRST_LETTER, EOS, FIRST_LETTER, FIRST_LETTER)
    assert generation.wasted_tokens == 3


def test_quotas_let_the_device_run_ahead_until_the_end_of_a_block() -> None:
    """Of a block's six passes five read nothing back; behind the last come its figures and the others' commits."""
    with noted_reads(lambda past, values: sum(past.passes.values()) if values or not past.is_whole else None) as notes:
        decode(integer_hashed(1, end_bonus=-9.0), ["abc"], Fixed(block_length=6), max_new_tokens=18)
    assert [passes for passes in notes if passes is not None] == [6, 12, 18]


# --- what the engine offers to a decoder that chooses by itself -------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Editor:
    """Commits, remasks and changes the length by its own lights."""

    widest: None = None

    def decode(self, row: Row) -> Iterator[Pass]:
        row.open_window(4)
        yield Pass("resolve", 0, 4, None)
        figures = row.read_figures()
        assert figures.at(2) == Commit(2, figures.token[2], figures.confidence[2])
        row.commit([figures.at(0), figures.at(2)])
        row.splice(1, 1, 3)
        assert row.length == 6 and row.masked(0, 6) == [1, 2, 3, 5]
        yield Pass("resolve", 1, 6, None, block=1, figures=("own",), everywhere=True)
        figures = row.read_figures()
        assert figures.start == 1 and figures.own[3] > 0
        row.remask([Remask(0, row.draft[0], 0.5)])
        row.commit([figures.at(1)])
        row.splice(5, 1, 2, EOS)
        yield Pass("resolve", 0, 7, 3)
        assert row.read_tokens() == row.draft and MASK not in row.draft
        row.close_window(row.draft)


def test_a_decoder_can_commit_remask_and_change_the_length() -> None:
    model = backbone(integer_hashed(1, end_bonus=-9.0))
    two = generate(model, ["ab", "abc"], Editor(), max_new_tokens=7)
    for generation in two:
        assert generation.tokens[5:] == (EOS, EOS) and len(generation.tokens) == 7
        assert [len(step.commits) for step in generation.windows[0].steps] == [2, 1, 3]
        assert generation.windows[0].steps[1].spliced == (Splice(5, 1, 2, EOS),)
        check_trace(generation)
    with pytest.raises(UserError, match="max_new_tokens"):
        generate(model, ["ab"], Editor(), max_new_tokens=6)


# --- names and ablations ----------------------------------------------------------------------------------------------


def test_ablations_leave_out_one_part_each() -> None:
    paper = DyStruct()
    assert DyStruct.preset("paper") == paper
    assert DyStruct.preset("no-schedule") == dataclasses.replace(paper, schedule="left-to-right")
    assert DyStruct.preset("no-weld") == dataclasses.replace(paper, weld="off")
    assert DyStruct.preset("no-schedule-no-weld") == dataclasses.replace(paper, schedule="left-to-right", weld="off")
    assert DyStruct.preset("one-block", weld_radius=3).structure == "none"
    fixed = DyStruct.preset("fixed-windows")
    assert (fixed.prior.min_length, fixed.prior.max_length) == (28, 28)
    (generation,) = decode(integer_hashed(1, end_bonus=-9.0), ["ab"], fixed, max_new_tokens=60)
    assert [window.opened.length for window in generation.windows] == [28, 28, 4]
    (generation,) = decode(integer_hashed(1), ["ab"], DyStruct.preset("one-block"), max_new_tokens=60)
    assert all(len(window.structure.ends) == 1 for window in generation.windows if window.structure)


def test_quick_takes_at_most_a_pass_a_token_and_one_a_window() -> None:
    (generation,) = decode(integer_hashed(1, end_bonus=-9.0), ["ab"], DyStruct.preset("quick"), max_new_tokens=60)
    for window in generation.windows:
        kinds = [step.kind for step in window.steps]
        assert window.opened.length <= 16 and kinds.count("diagnostic") == 1
        assert 1 <= kinds.count("resolve") <= window.opened.length


def test_every_decoder_has_a_name() -> None:
    assert set(DECODERS) == {
        "dystruct", "block", "fixed", "dream", "fast", "daedal", "adablock", "hierarchy", "vsb-like",
    }  # fmt: skip
    assert PriorConfig() == DyStruct().prior
