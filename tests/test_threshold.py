"""DyStruct's threshold: confident tokens at once, at least an even share, and at most T(B) passes a block (R11)."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from command_line import SMALL, Run
from dystruct.decoding import Block, DyStruct, Generation, UserError, generate
from dystruct.decoding.passes import quotas
from dystruct.model import PriorConfig
from scripted import MASK, backbone, hashed, uneven_weights

DECODER = DyStruct(structure="sample", prior=PriorConfig(4, 12), passes="share")


def decoded(
    decoder: DyStruct | Block, prompts: tuple[str, ...] = ("abc", "de"), seed: int = 3, **more: int
) -> list[Generation]:
    model = backbone(hashed(seed, end_logit=-4.0), weights=uneven_weights())
    return generate(model, prompts, decoder, **{"max_new_tokens": 24, "budget": 12, **more})


@given(masked=st.integers(1, 60), passes=st.integers(1, 60))
def test_an_even_share_of_what_is_left_is_the_quota(masked: int, passes: int) -> None:
    """Where nothing is confident, sharing the rest anew in each pass gives the quotas of R11."""
    counts, left = [], masked
    for k in range(min(masked, passes)):
        counts.append(-(-left // (min(masked, passes) - k)))
        left -= counts[-1]
    assert counts == quotas(masked, passes)


@settings(deadline=None, max_examples=20)
@given(seed=st.integers(0, 10**6))
def test_a_threshold_that_nothing_reaches_changes_nothing(seed: int) -> None:
    even, never = (decoded(dataclasses.replace(DECODER, threshold=t), seed=seed) for t in (None, 1.0))
    assert [(g.tokens, g.passes) for g in even] == [(g.tokens, g.passes) for g in never]


@settings(deadline=None, max_examples=20)
@given(seed=st.integers(0, 10**6), threshold=st.sampled_from([0.0, 0.2, 0.4, 0.6]))
def test_passes_commit_what_is_confident_and_no_less_than_a_share(seed: int, threshold: float) -> None:
    """Of each pass of a block: fewer than the share never, more only what reaches the threshold; none does nothing."""
    decoder = dataclasses.replace(DECODER, threshold=threshold, passes="interpolate", min_passes=2, max_passes=5)
    for generation in decoded(decoder, seed=seed, budget=500):
        for window in generation.windows:
            assert window.structure is not None
            steps = [step for step in window.steps if step.kind == "resolve"]
            ends = window.structure.ends
            sizes = [end - start for start, end in zip((0, *ends), ends, strict=False)]
            for block, (size, planned) in enumerate(zip(sizes, window.structure.passes, strict=True)):
                own = [step for step in steps if step.block == block]
                assert 1 <= len(own) <= planned
                left = size
                for k, step in enumerate(own):
                    confidences = sorted((commit.confidence for commit in step.commits), reverse=True)
                    share = -(-left // (planned - k))
                    assert len(confidences) >= share >= 1
                    assert all(confidence >= threshold for confidence in confidences[share:])
                    left -= len(confidences)
                assert left == 0
                if threshold == 0:
                    assert len(own) == 1, "all is confident in the first pass"


@settings(deadline=None, max_examples=20)
@given(seed=st.integers(0, 10**6), threshold=st.sampled_from([0.2, 0.4, 0.6]), budget=st.integers(1, 20))
def test_a_budget_is_kept_and_the_text_is_whole(seed: int, threshold: float, budget: int) -> None:
    decoder = dataclasses.replace(DECODER, threshold=threshold)
    for generation in decoded(decoder, seed=seed, budget=budget):
        assert generation.forward_passes <= budget
        assert generation.stop_reason != "budget" or generation.forward_passes == budget
        assert MASK not in generation.tokens
        steps = [step for window in generation.windows for step in window.steps if step.kind == "resolve"]
        assert all(step.commits for step in steps)


def test_a_row_with_a_threshold_is_alone_in_its_batch() -> None:
    decoder = dataclasses.replace(DECODER, threshold=0.4)
    prompts = ("abc", "de", "fghi")
    together = decoded(decoder, prompts, batch_size=3)
    alone = [decoded(decoder, (prompt,))[0] for prompt in prompts]
    assert [g.tokens for g in together] == [g.tokens for g in alone]
    assert len({g.tokens for g in together}) == 3


def test_what_a_threshold_may_be(run: Run) -> None:
    for value in (1.5, -0.1, "high"):
        with pytest.raises(UserError, match=rf"^threshold must be a number from 0 to 1, not {value!r}\.$"):
            DyStruct(threshold=value)  # type: ignore[arg-type]
    made = run("generate", "abc", *SMALL, "--json", "--threshold", "0.9")
    assert made.status == 0, made.err
    assert '"threshold": 0.9' in made.out
    run("generate", "abc", *SMALL, "--threshold", "2").refused("--threshold must be a number from 0 to 1, not 2.0.")


@settings(deadline=None, max_examples=20)
@given(seed=st.integers(0, 10**6), threshold=st.sampled_from([None, 0.0, 0.2, 0.4, 0.6]), length=st.integers(1, 12))
def test_blocks_are_dystruct_without_its_diagnosis(seed: int, threshold: float | None, length: int) -> None:
    """Windows of one length and one block commit the same tokens in the same passes, but for the diagnostic ones."""
    prior = PriorConfig(length, length)
    whole = DyStruct(
        structure="none", prior=prior, diagnostic_passes=1, passes="interpolate", min_passes=length, max_passes=length,
        threshold=threshold,
    )  # fmt: skip
    ours = decoded(whole, seed=seed, budget=500)
    for one, other in zip(ours, decoded(Block(length, threshold=threshold), seed=seed, budget=500), strict=True):
        assert one.tokens == other.tokens
        assert one.passes["resolve"] == other.passes["resolve"] == other.forward_passes
        for window, plain in zip(one.windows, other.windows, strict=True):
            own = [step for step in window.steps if step.kind == "resolve"]
            assert [step.commits for step in own] == [step.commits for step in plain.steps]
