"""Each rival decoder's own rules, what `faithful` changes of them, and the settings that it refuses."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from dystruct.decoding import (
    AdaBlock,
    Daedal,
    Decoder,
    Dream,
    Fast,
    Fixed,
    Generation,
    Hierarchy,
    Splice,
    UserError,
    VsbLike,
    generate,
)
from integer_script import integer_hashed
from rivals import check_trace, decode, named
from scripted import EOS, FIRST_LETTER, MASK, VOCABULARY, Script, backbone, written

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
    listed = AdaBlock(8, delimiters=["b"])  # type: ignore[arg-type]
    (same,) = generate(backbone(script), ["a"], listed, max_new_tokens=8)
    assert same.windows == texts.windows


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


def ends(token: int) -> Script:
    """The end of a turn (token 9) is what the model says of the last places, or another token that it is given."""

    def script(ids: torch.Tensor, valid: torch.Tensor) -> torch.Tensor:
        logits = integer_hashed(2, spread=2)(torch.zeros_like(ids), torch.zeros_like(ids))
        logits[..., [EOS, 9]] = -9.0
        logits[:, 4:, token] = 12.0
        return logits

    return script


@pytest.mark.parametrize(
    "decoder", [Fixed(suppress_eos=True), Fixed(defer_eos=True), Daedal(6, 4, eos_check_tokens=2)], ids=named
)
def test_all_end_tokens_of_a_model_count_and_for_the_originals_one(decoder: Decoder) -> None:
    """A chat model ends its turn with a token of its own, which the originals' options on the end do not know."""

    def decoded(token: int, faithful: bool) -> list[list[int]]:
        model = dataclasses.replace(backbone(ends(token)), end_ids=frozenset({9}))
        own = dataclasses.replace(decoder, faithful=faithful)
        (generation,) = generate(model, ["ab"], own, max_new_tokens=12)
        return [[c.position for c in step.commits] for step in generation.windows[0].steps[:4]]

    assert decoded(9, faithful=False) == decoded(EOS, faithful=False) == decoded(EOS, faithful=True)
    assert decoded(9, faithful=True) != decoded(EOS, faithful=True)


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
        *((lambda value=value: AdaBlock(delimiters=value), "delimiters") for value in ((), "x", ("x", ""), (1,), 5)),
        *((lambda value=value: AdaBlock(delimiter_ids=value), "delimiter_ids") for value in ((), "x", ("x",), 5)),
        (lambda: Hierarchy(low=0.9, high=0.2), "low"),
        (lambda: Hierarchy(remask=-0.1), "remask"),
        (lambda: VsbLike(stride=0), "stride"),
        (lambda: VsbLike(tolerance=3.0), "tolerance"),
    ],
)  # fmt: skip
def test_settings_without_use_or_out_of_range_are_refused(make, part: str) -> None:
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
        # predicted to be the mask, a position stays masked: more steps than positions can each take a pass
        (Dream(alg="origin", steps=30, faithful=True), {"max_new_tokens": 4, "budget": 10}, "30 forward passes"),
    ],
    ids=named,
)
def test_settings_that_do_not_fit_the_limits_are_refused(decoder: Decoder, limits: dict[str, int], part: str) -> None:
    with pytest.raises(UserError, match=part):
        decode(integer_hashed(0), ["abc"], decoder, **limits)
