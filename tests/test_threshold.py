"""DyStruct's threshold: confident tokens at once, of the others an even share; the passes stay those of T(B) (R11)."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from command_line import SMALL, Run
from dystruct.decoding import DyStruct, Generation, UserError, generate
from dystruct.decoding.passes import quotas
from dystruct.model import PriorConfig
from scripted import backbone, hashed, uneven_weights

DECODER = DyStruct(structure="sample", prior=PriorConfig(4, 12), passes="share")


def decoded(
    decoder: DyStruct, prompts: tuple[str, ...] = ("abc", "de"), seed: int = 3, **more: int
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
    """Of each pass of a block: fewer than the share never; more only what reaches the threshold."""
    for generation in decoded(dataclasses.replace(DECODER, threshold=threshold), seed=seed):
        for window in generation.windows:
            assert window.structure is not None
            steps = [step for step in window.steps if step.kind == "resolve"]
            for block, planned in enumerate(window.structure.passes):
                own = [step for step in steps if step.block == block]
                if not own:  # fewer passes than blocks were left
                    continue
                assert len(own) <= planned
                left = sum(len(step.commits) for step in own)
                for k, step in enumerate(own):
                    confidences = sorted((commit.confidence for commit in step.commits), reverse=True)
                    share = -(-left // (len(own) - k))
                    assert len(confidences) >= share
                    assert all(confidence >= threshold for confidence in confidences[share:])
                    left -= len(confidences)
                assert left == 0
                if threshold == 0:
                    assert not any(step.commits for step in own[1:]), "all is confident in the first pass"


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
