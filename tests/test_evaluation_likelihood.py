"""LLaDA's likelihood estimate against what it estimates, worked out over every mask."""

from __future__ import annotations

import math
from itertools import combinations
from statistics import fmean

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dystruct.decoding import Fixed, UserError, generate
from dystruct.decoding.backbone import Backbone
from dystruct.decoding.evaluation.likelihood import LikelihoodSettings, is_greedy, log_likelihood, masks_of
from random_network import random_backbone
from scripted import MASK, backbone, hashed, written

CONTEXT, ANSWER = [3, 5, 2], [4, 7, 6]


def negative_log(model: Backbone, ids: list[int], position: int, token: int, guidance: float = 0.0) -> float:
    """-log of a token's probability at a position of ids, the mask among the tokens, in plain steps."""

    def logits(tokens: list[int]) -> torch.Tensor:
        with torch.inference_mode():
            hidden = model.hidden(torch.tensor([tokens]))[0, position - int(model.shifted)]
            return model.logits(hidden, mask_predictable=True).double()

    found = logits(ids)
    if guidance:
        without = logits([MASK] * len(CONTEXT) + ids[len(CONTEXT) :])
        found = without + (guidance + 1) * (found - without)
    return -float(found.log_softmax(-1)[token])


def by_counts(model: Backbone, guidance: float = 0.0) -> dict[int, float]:
    """For each number k of masks, the mean over all sets of k of (n / k) times the masked tokens' -log p."""
    n = len(ANSWER)
    found = {}
    for k in range(1, n + 1):
        losses = []
        for masked in combinations(range(n), k):
            ids = CONTEXT + [MASK if j in masked else token for j, token in enumerate(ANSWER)]
            losses.append(
                n / k * sum(negative_log(model, ids, len(CONTEXT) + j, ANSWER[j], guidance) for j in masked)
            )  # fmt: skip
        found[k] = fmean(losses)
    return found


@pytest.mark.parametrize("shifted", [False, True])
@pytest.mark.parametrize("guidance", [0.0, 1.5])
def test_the_estimate_is_that_of_every_mask(shifted: bool, guidance: float) -> None:
    """3,000 samples of a bounded loss: a right estimate is within 5 standard errors but once in a million."""
    model = random_backbone(shifted=shifted)
    exact = fmean(by_counts(model, guidance).values())
    settings = LikelihoodSettings(samples=30, batch=30, guidance=guidance)
    estimates = [-log_likelihood(model, CONTEXT, ANSWER, settings, seed) for seed in range(100)]
    mean = fmean(estimates)
    error = math.sqrt(sum((x - mean) ** 2 for x in estimates) / 99 / 100)
    assert error < 0.05 * exact
    assert abs(mean - exact) < 5 * error


@pytest.mark.parametrize("shifted", [False, True])
def test_of_one_token_it_is_exact(shifted: bool) -> None:
    model = backbone(hashed(5), shifted=shifted)
    settings = LikelihoodSettings(samples=2, batch=1)
    exact = negative_log(model, [*CONTEXT, MASK], len(CONTEXT), 6)
    assert log_likelihood(model, CONTEXT, [6], settings) == pytest.approx(-exact, rel=1e-6)
    assert log_likelihood(model, CONTEXT, [], settings) == 0


def test_the_same_seed_gives_the_same_estimate() -> None:
    model = random_backbone()
    settings = LikelihoodSettings(samples=8, batch=4)
    one, two = (log_likelihood(model, CONTEXT, ANSWER, settings, seed=3) for _ in range(2))
    assert one == two != log_likelihood(model, CONTEXT, ANSWER, settings, seed=4)


@given(st.integers(1, 40), st.integers(1, 40), st.integers(0, 10_000))
def test_masked_counts_are_spread_evenly(length: int, count: int, seed: int) -> None:
    masked, share = masks_of(length, count, torch.Generator().manual_seed(seed))
    counts = masked.sum(-1)
    assert masked.shape == (count, length) and bool(((counts >= 1) & (counts <= length)).all())
    assert share.tolist() == pytest.approx((counts / length).tolist())
    if count >= length:
        assert max(counts.bincount(minlength=length + 1)[1:]) - min(counts.bincount(minlength=length + 1)[1:]) <= 2
    else:
        assert len(set(counts.tolist())) == count


@pytest.mark.parametrize("shifted", [False, True])
def test_greedy_is_what_the_fixed_decoder_gives(shifted: bool) -> None:
    """The most confident token a pass, in a response of the answer's length."""
    model = random_backbone(shifted=shifted, seed=2)
    [found] = generate(model, ["abc"], Fixed(), max_new_tokens=5)
    context, settings = model.encode("abc"), LikelihoodSettings()
    answer = list(found.tokens)
    assert is_greedy(model, context, answer, settings)
    for place in range(5):
        other = [*answer[:place], (answer[place] - 2 + 1) % 10 + 2, *answer[place + 1 :]]
        assert not is_greedy(model, context, other, settings)


def test_what_cannot_be_scored_is_told() -> None:
    model = backbone(written(lambda ids, p: 3), shifted=True)
    with pytest.raises(UserError, match="context"):
        log_likelihood(model, [], [3], LikelihoodSettings())
    with pytest.raises(UserError, match="600 tokens"):
        log_likelihood(model, [3] * 300, [4] * 300, LikelihoodSettings())
    with pytest.raises(UserError, match=r"samples of a likelihood \(128\) must be whole batches of 3"):
        LikelihoodSettings(batch=3)
    for wrong in ({"samples": 0}, {"batch": 0}, {"guidance": -1.0}, {"guidance": math.inf}):
        with pytest.raises(UserError, match=f"^{next(iter(wrong))} must be "):
            LikelihoodSettings(**wrong)
