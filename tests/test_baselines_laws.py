"""What holds for every rival decoder: limits, the end token, batches, traces, refusals, and what `faithful` changes."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dystruct.decoding import (
    DECODERS,
    AdaBlock,
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
from dystruct.decoding.terminal.scene import Scene
from dystruct.model import PriorConfig
from integer_script import integer_hashed
from scripted import EOS, FIRST_LETTER, MASK, VOCABULARY, Script, backbone, written

RIVALS: list[Decoder] = [
    Fixed(),
    Fixed(block_length=5, steps=9),
    Fixed(block_length=6, remasking="random"),
    Fixed(block_length=4, guidance=1.5),
    Fixed(defer_eos=True, end_of_turn=4),
    Fixed(suppress_eos=True, block_length=3),
    Dream(),
    Dream("origin", steps=7),
    Dream("topk_margin", alg_temp=0.3, top_p=0.9),
    Dream("maskgit_plus", top_k=3, steps=12),
    Fast(5, threshold=0.6),
    Fast(8, factor=1.5),
    Daedal(8, 4, high=0.6, low=0.3, expansion=3, eos_check_tokens=4),
    AdaBlock(6, 0.6, 0.2, delimiter_ids=(3, 5)),
    Hierarchy(7),
    Hierarchy(7, low=0.3, high=0.8, remask=0.3),
    VsbLike(12, 3, 0.5),
]
PROMPTS = ["ab", "abcdefgh", "c", "jihg"]


def decode(script: Script, prompts: list[str], decoder: Decoder, **limits) -> list[Generation]:  # type: ignore[no-untyped-def]
    return generate(backbone(script), prompts, decoder, **{"max_new_tokens": 20, "budget": 300, **limits})


def without_time(generation: Generation) -> Generation:
    return dataclasses.replace(generation, seconds=0.0)


def named(value: object) -> str:
    return repr(value) if dataclasses.is_dataclass(value) else str(value)


# --- limits, the end token, the trace --------------------------------------------------------------------------------


@settings(deadline=None, max_examples=60)
@given(
    st.sampled_from(RIVALS), st.integers(0, 10**6), st.integers(1, 24), st.integers(1, 40),
    st.sampled_from([0.0, 0.0, 1.0]), st.sampled_from([-3.0, 0.0, 2.0]),
)  # fmt: skip
def test_limits_hold_and_a_finished_sequence_holds_no_mask(  # type: ignore[no-untyped-def]
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
    check_trace(generation)


def check_trace(generation: Generation) -> None:
    """Every step changes what it says, the replay ends with the tokens, and so does what a view makes of the events."""
    replayed = list(generation.replay())
    assert replayed[-1][1] == generation.tokens
    numbers = [step.number for step, _ in replayed]
    assert numbers == sorted(set(numbers)) and numbers[-1] == generation.forward_passes
    for window in generation.windows:
        scene = Scene(window.opened)
        for event in window.events():
            if event is window.closed:
                assert tuple(MASK if token is None else token for token in scene.tokens) == window.closed.tokens
            scene.advance(event)
    before: tuple[int, ...] = ()
    for step, after in replayed:
        if step.kind == "resolve" and not step.spliced:
            freed = {remask.position for remask in step.remasked}
            for commit in step.commits:
                assert len(before) <= commit.position or before[commit.position] == MASK or commit.position in freed
        before = after


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
        generate(model, ["abc"], decoder, max_new_tokens=12, observe=lambda i, event, m=model, c=calls: c.append(  # type: ignore[misc]
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
    (faithful,) = decode(written(wanted), ["abc"], dataclasses.replace(decoder, faithful=True), max_new_tokens=16)  # type: ignore[type-var]
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
    """Of a block's six passes five read nothing back; the last brings its figures and the tokens behind the others."""
    read_with: list[int] = []
    original = Row._read

    def read(self: Row, *values: torch.Tensor) -> list[torch.Tensor]:
        read_with.extend([sum(self.passes.values())] * bool(values))
        return original(self, *values)

    with mock.patch.object(Row, "_read", read):
        decode(integer_hashed(1, end_bonus=-9.0), ["abc"], Fixed(block_length=6), max_new_tokens=18)
    assert read_with == [6, 6, 12, 12, 18, 18]


# --- each decoder's own rules -----------------------------------------------------------------------------------------


def surenesses(*probabilities: float) -> Script:
    """Position i of the response has this probability of a letter of its own, whatever else stands there."""

    def script(ids: torch.Tensor, valid: torch.Tensor) -> torch.Tensor:
        logits = torch.zeros(*ids.shape, VOCABULARY)
        logits[..., MASK] = -1e4
        for i, p in enumerate(probabilities):
            odds = torch.tensor(p / ((1 - p) / (VOCABULARY - 2)))
            logits[:, 1 + i, FIRST_LETTER + i % 10] = odds.log()
        return logits

    return script


def order(generation: Generation) -> list[list[int]]:
    return [[c.position for c in step.commits] for window in generation.windows for step in window.steps]


@pytest.mark.parametrize(
    ("decoder", "expected"),
    [
        (Fixed(), [[2], [0], [1], [3], [5], [4]]),
        (Fixed(steps=4), [[0, 2], [1, 3], [5], [4]]),
        (Fixed(block_length=3, steps=4), [[0, 2], [1], [3, 5], [4]]),
        (Fixed(block_length=4, steps=3), [[0, 2], [1, 3], [4, 5]]),  # 4 and 2 tokens: two passes and one
        (Fast(6, threshold=0.75), [[0, 1, 2], [3], [5], [4]]),
        (Fast(3, threshold=0.99), [[2], [0], [1], [3], [5], [4]]),
        (Fast(6, factor=1.0), [[0, 1, 2], [3], [5], [4]]),  # 0.95, 0.9 >= 2/3, 0.8 >= 3/4, 0.7 < 4/5; 0.7, 0.6 < 2/3
        (Hierarchy(6, low=0.4), [[2], [0, 3], [1, 5], [4]]),
        (Hierarchy(6, low=0.65, high=0.85), [[0, 2], [1, 3], [5], [4]]),
        (Dream("maskgit_plus", steps=3), [[2], [0, 1], [3, 4, 5]]),  # floor(6 · 0.333), floor(5 · 0.499), all
        (AdaBlock(6, 0.75, delimiter_ids=(FIRST_LETTER + 3,), delimiter_threshold=0.5), [[0, 1, 2], [3], [5], [4]]),
    ],
    ids=named,
)  # fmt: skip
def test_what_each_pass_commits(decoder: Decoder, expected: list[list[int]]) -> None:
    script = surenesses(0.9, 0.8, 0.95, 0.7, 0.3, 0.6)
    (generation,) = generate(backbone(script), ["a"], decoder, max_new_tokens=6)
    assert order(generation) == expected


def test_adablock_ends_a_block_with_the_most_probable_delimiter_that_is_near() -> None:
    """Within a quarter of the response: of the delimiters at 1 (0.4) and 3 (0.7) the second ends the first block."""
    probabilities = [0.9, 0.4, 0.9, 0.7, *[0.9] * 12]
    for ids, threshold, first in (((3, 5), 0.5, 4), ((3, 5), 0.71, 16), ((3,), 0.3, 2), ((9,), 0.1, 16)):
        decoder = AdaBlock(16, 1.0, threshold, delimiter_ids=ids)
        (generation,) = generate(backbone(surenesses(*probabilities)), ["a"], decoder, max_new_tokens=16)
        assert generation.windows[0].steps[first].block == 1 if first < 16 else generation.block_count == 1


def test_delimiters_are_told_by_their_text_or_by_their_id() -> None:
    script = surenesses(*[0.9] * 8)
    texts, ids = (
        generate(backbone(script), ["a"], decoder, max_new_tokens=8)[0]
        for decoder in (AdaBlock(8, delimiters=("b",)), AdaBlock(8, delimiter_ids=(FIRST_LETTER + 1,)))
    )
    assert texts.block_count == 2 and texts.windows == ids.windows


def test_daedal_lengthens_until_the_end_is_certain_and_inserts_where_it_is_unsure() -> None:
    (generation,) = decode(
        integer_hashed(3, end_bonus=1.0), ["abc"],
        Daedal(4, 4, high=0.9, low=0.5, expansion=3, eos_check_tokens=4, faithful=True), max_new_tokens=18,
    )  # fmt: skip
    steps = generation.windows[0].steps
    lengthened = [step for step in steps if step.kind == "diagnostic"]
    assert all(step.spliced[0].removed == 0 and step.spliced[0].token is None for step in lengthened[:-1])
    length = 4 + 3 * (len(lengthened) - 1)
    assert lengthened[-1].spliced == (Splice(min(length, 18), 0, min(2, 18 - length), EOS),) or length >= 18
    inserted = [splice for step in steps if step.kind == "resolve" for splice in step.spliced]
    assert all(splice.removed in (0, 1) and splice.token is None for splice in inserted)
    check_trace(generation)


def test_daedal_pushes_tokens_out_at_the_limit_only_if_faithful() -> None:
    """Where one position more fits, an expansion by 3 drops a token of the tail, or else inserts no more than fit."""
    kept = pushed = 0
    for seed in range(12):
        for faithful in (False, True):
            decoder = Daedal(8, 4, low=0.8, expansion=3, eos_threshold=0.0, eos_check_tokens=4, faithful=faithful)
            (generation,) = decode(integer_hashed(seed, end_bonus=-9.0), ["abc"], decoder, max_new_tokens=11)
            spliced = [s for step in generation.windows[0].steps if step.kind == "resolve" for s in step.spliced]
            kept += [(s.removed, s.inserted) for s in spliced[:1]] == [(1, 2)]
            pushed += [(s.position, s.removed, s.inserted) for s in spliced[:1]] == [(9, 1, 0)]
            assert generation.tokens.count(EOS) == (1 if faithful and spliced else 2)
    assert kept == pushed > 6


def test_hierarchy_doubts_what_the_model_no_longer_believes() -> None:
    """Once the first letter stands, the model wants another at the second place, and gets its way."""

    def wanted(known: list[int], position: int) -> int:
        settled = known[1] != MASK
        return FIRST_LETTER + (5 if position == 2 and settled else position)

    def sure(known: list[int], position: int) -> float:
        return {1: 1.0, 2: 6.0, 3: 0.5}.get(position, 0.4)

    script = written(wanted, sure)
    (plain,) = generate(backbone(script), ["a"], Hierarchy(3, low=0.9), max_new_tokens=3)
    (revising,) = generate(backbone(script), ["a"], Hierarchy(3, low=0.9, remask=0.4), max_new_tokens=3)
    (original,) = generate(backbone(script), ["a"], Hierarchy(3, low=0.9, remask=0.4, faithful=True), max_new_tokens=3)
    assert plain.tokens[1] == FIRST_LETTER + 2
    assert revising.tokens[1] == FIRST_LETTER + 5
    remasks = [remask for step in revising.windows[0].steps for remask in step.remasked]
    assert [(r.position, r.token) for r in remasks] == [(1, FIRST_LETTER + 2)] and remasks[0].confidence > 0.9
    assert original.tokens[1] == FIRST_LETTER + 2, "the other letter is probable, so the original doubts nothing"


def test_guidance_leaves_the_prompt_out_of_the_second_pass() -> None:
    def script(ids: torch.Tensor, valid: torch.Tensor) -> torch.Tensor:
        logits = torch.zeros(*ids.shape, VOCABULARY)
        blind = ids[:, 0] == MASK
        logits[~blind, :, 4], logits[~blind, :, 5] = 2.0, 1.5
        logits[blind, :, 4], logits[blind, :, 5] = 2.0, 0.0
        return logits

    for scale, token in ((0.0, 4), (0.2, 4), (0.5, 5), (3.0, 5)):
        # unguided 2 and 1.5; guided 2 and 1.5 (1 + s)
        (generation,) = generate(backbone(script), ["ab"], Fixed(guidance=scale, steps=2), max_new_tokens=4)
        assert set(generation.tokens) == {token}
        assert generation.forward_passes == (4 if scale else 2)


def test_random_orders_hang_on_the_seed_alone() -> None:
    script = surenesses(*[0.9] * 10)
    for decoder in (Fixed(remasking="random"), Dream("origin", steps=9), Dream(alg_temp=1.0)):
        first, again, other = (
            order(generate(backbone(script), ["a"], decoder, max_new_tokens=10, seed=seed)[0]) for seed in (3, 3, 4)
        )
        assert first == again != other
        assert sorted(p for step in first for p in step) == list(range(10))


def test_a_mask_that_is_predicted_stays_only_if_faithful() -> None:
    script = integer_hashed(4, mask_bonus=3.0)
    for decoder in (Fixed(block_length=5, steps=12), Dream(steps=10)):
        (plain,) = decode(script, ["abc"], decoder)
        (faithful,) = decode(script, ["abc"], dataclasses.replace(decoder, faithful=True))
        assert MASK not in plain.tokens and MASK in faithful.tokens
        assert any(c.token == MASK for w in faithful.windows for s in w.steps for c in s.commits)
        check_trace(faithful)


@pytest.mark.parametrize("decoder", [Fast(5, faithful=True), Hierarchy(5, faithful=True)], ids=named)
def test_a_decoder_that_would_go_round_in_circles_ends(decoder: Decoder) -> None:
    """The mask is the most probable token everywhere; the originals would repeat the pass for ever."""
    (generation,) = decode(integer_hashed(4, mask_bonus=50.0), ["abc"], decoder)
    assert len(generation.tokens) == 20 and MASK not in generation.tokens


def test_vsb_like_ends_a_block_where_the_future_says_nothing() -> None:
    def deaf(ids: torch.Tensor, valid: torch.Tensor) -> torch.Tensor:
        return integer_hashed(1, end_bonus=-9.0)(torch.zeros_like(ids), torch.zeros_like(ids))

    (independent,) = decode(deaf, ["ab"], VsbLike(12, 4))
    assert [len(window.closed.tokens) for window in independent.windows] == [4] * 5
    (dependent,) = decode(integer_hashed(1, end_bonus=-9.0), ["ab"], VsbLike(12, 4, tolerance=0.0))
    assert [len(window.closed.tokens) for window in dependent.windows] == [12, 8]


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_deferred_ends_come_last(temperature: float) -> None:
    """At a temperature too; the original then forgets the end token."""

    def script(ids: torch.Tensor, valid: torch.Tensor) -> torch.Tensor:
        logits = integer_hashed(2, spread=2)(torch.zeros_like(ids), torch.zeros_like(ids))
        logits[..., EOS] = -9.0
        logits[:, 3:6, EOS] = 12.0
        return logits

    settings = {"max_new_tokens": 12, "temperature": temperature}
    for decoder, last in ((Fixed(defer_eos=True), True), (Fixed(), False)):
        (generation,) = decode(script, ["ab"], decoder, **settings)
        steps = [c.token for s in generation.windows[0].steps for c in s.commits]
        assert (steps.index(EOS) > len(steps) - 4) is last
    (faithful,) = decode(script, ["ab"], Fixed(defer_eos=True, end_of_turn=4, faithful=True), **settings)
    steps = [c.token for s in faithful.windows[0].steps for c in s.commits]
    assert (steps.index(EOS) < 3) is (temperature > 0)


# --- refusals ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "part"),
    [
        (lambda: Fixed(block_length=0), "block_length"),
        (lambda: Fixed(steps=True), "steps"),
        (lambda: Fixed(remasking="none"), "remasking"),
        (lambda: Fixed(guidance=-1.0), "guidance"),
        (lambda: Fixed(remasking="random", defer_eos=True), "defer_eos has no use"),
        (lambda: Fixed(end_of_turn=3), "end_of_turn has no use"),
        (lambda: Fixed(defer_eos=True, suppress_eos=True), "defer_eos has no use"),
        (lambda: Dream(alg="magic"), "alg"),
        (lambda: Dream(alg="origin", alg_temp=0.1), "alg_temp has no use"),
        (lambda: Dream(alg_temp=-1.0), "alg_temp"),
        (lambda: Dream(top_p=1.5), "top_p"),
        (lambda: Dream(top_k=0), "top_k"),
        (lambda: Dream(eps=0.0), "eps"),
        (lambda: Fast(threshold=0.9, factor=1.0), "exclude each other"),
        (lambda: Fast(threshold=2.0), "threshold"),
        (lambda: Fast(factor=0.0), "factor"),
        (lambda: Daedal(low=0.9, high=0.1), "low"),
        (lambda: Daedal(expansion=0), "expansion"),
        (lambda: AdaBlock(delimiters=("x",), delimiter_ids=(1,)), "exclude each other"),
        (lambda: AdaBlock(delimiters=()), "delimiters"),
        (lambda: Hierarchy(low=0.9, high=0.2), "low"),
        (lambda: Hierarchy(remask=-0.1), "remask"),
        (lambda: VsbLike(stride=0), "stride"),
        (lambda: VsbLike(tolerance=3.0), "tolerance"),
    ],
)  # fmt: skip
def test_settings_without_use_or_out_of_range_are_refused(make, part: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(UserError, match=part) as caught:
        make()
    assert str(caught.value).endswith(".") and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("decoder", "limits", "part"),
    [
        (Fixed(steps=20), {"budget": 10}, "budget"),
        (Fixed(guidance=1.0, steps=20), {"budget": 30}, "budget"),
        (Fixed(guidance=1.0), {"budget": 1}, "budget"),
        (Fixed(block_length=2, steps=5), {}, "number of blocks"),
        (Fixed(block_length=6, faithful=True), {}, "divides"),
        (Fixed(block_length=5, steps=7, faithful=True), {}, "divide"),
        (Fixed(defer_eos=True, end_of_turn=99), {}, "vocabulary"),
        (Dream(steps=30), {"budget": 10}, "budget"),
    ],
    ids=named,
)
def test_settings_that_do_not_fit_the_limits_are_refused(decoder: Decoder, limits: dict[str, int], part: str) -> None:
    with pytest.raises(UserError, match=part):
        decode(integer_hashed(0), ["abc"], decoder, **limits)


# --- the ablations ----------------------------------------------------------------------------------------------------


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
        yield Pass("resolve", 1, 6, None, block=1)
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


def test_every_decoder_has_a_name() -> None:
    assert set(DECODERS) == {
        "dystruct", "block", "fixed", "dream", "fast", "daedal", "adablock", "hierarchy", "vsb-like",
    }  # fmt: skip
    assert PriorConfig() == DyStruct().prior
