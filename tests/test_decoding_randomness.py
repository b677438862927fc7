"""Randomness: seeds, streams, token noise, temperature (R15, R16)."""

from __future__ import annotations

import math
from collections import Counter
from unittest import mock

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chi2

from dystruct.decoding import Block, DyStruct, Generation, generate
from dystruct.decoding.randomness import Streams, gumbel_noise
from dystruct.model import PriorConfig
from plain_decoder import gumbel
from scripted import EOS, MASK, VOCABULARY, Script, backbone, hashed, uneven_weights
from watching import without_time

SAMPLED = DyStruct(structure="sample", prior=PriorConfig(4, 12))


def decode(script: Script, prompts: list[str], decoder, **limits) -> list[Generation]:
    model = backbone(script, weights=uneven_weights())
    return generate(model, prompts, decoder, **{"max_new_tokens": 20, "budget": 300, **limits})


def test_the_same_seed_gives_the_same_sequence_and_another_seed_another() -> None:
    script = hashed(4, end_logit=-4.0)
    first, again, other = (decode(script, ["abc"], SAMPLED, temperature=1.0, seed=seed)[0] for seed in (7, 7, 8))
    assert without_time(first) == without_time(again)
    assert first.tokens != other.tokens


def test_drawing_depends_on_no_global_stream() -> None:
    script = hashed(4, end_logit=-4.0)
    torch.manual_seed(0)
    (first,) = decode(script, ["abc"], SAMPLED, temperature=1.0, seed=7)
    state = torch.get_rng_state()
    torch.manual_seed(1)
    (second,) = decode(script, ["abc"], SAMPLED, temperature=1.0, seed=7)
    assert first.tokens == second.tokens and [w.structure for w in first.windows] == [
        w.structure for w in second.windows
    ]
    torch.manual_seed(0)
    assert torch.equal(state, torch.get_rng_state()), "decoding must not draw from torch's global stream"


def independent_positions(seed: int) -> Script:
    """Logits that depend on the position alone, so that tokens hang on nothing but the token noise."""
    values = torch.tensor(np.random.default_rng(seed).normal(size=(128, VOCABULARY)), dtype=torch.float32)
    values[:, EOS] = -30.0

    def script(ids: torch.Tensor, valid: torch.Tensor) -> torch.Tensor:
        return values[: ids.shape[1]].expand(len(ids), -1, -1).clone()

    return script


def test_runs_that_differ_in_their_structures_share_their_token_noise() -> None:
    script = independent_positions(0)
    decoders = [DyStruct(structure=rule, prior=PriorConfig(4, 12)) for rule in ("map", "sample", "consensus", "none")]
    decoders.append(DyStruct(structure="sample", prior=PriorConfig(2, 5), weld="off", diagnostic_passes=1))
    texts = {decode(script, ["abc"], decoder, temperature=1.0, seed=3)[0].text for decoder in [*decoders, Block(5)]}
    assert len(texts) == 1
    others = {
        decode(script, [prompt], Block(5), temperature=1.0, seed=seed)[0].text
        for prompt, seed in (("abc", 4), ("abd", 3))
    }
    assert len(others | texts) == 3


def test_every_stream_of_every_seed_and_prompt_has_a_seed_of_its_own() -> None:
    keys = []
    for seed in (0, 1, 2**40):
        for prompt in ([2], [2, 3], [3, 2]):
            streams = Streams.of(seed, prompt)
            generators = (streams.length, streams.partition, streams.order)
            keys += [*(generator.initial_seed() for generator in generators), streams.token_key]
    assert len(set(keys)) == len(keys) == 36


@given(st.integers(0, 2**63 - 1), st.integers(0, 10**6), st.integers(0, 200_000))
def test_token_noise_is_splitmix_in_plain_python(key: int, position: int, token: int) -> None:
    noise = gumbel_noise(torch.tensor([key]), torch.tensor([[position]]), token % 40 + 1)
    assert noise.dtype == torch.float64
    assert noise[0, 0, -1].item() == pytest.approx(gumbel(key, position, token % 40), rel=1e-12)


def test_token_noise_is_finite_at_the_ends_of_its_range() -> None:
    for bits in (-1, 0, 1 << 62, -(1 << 63)):
        with mock.patch("dystruct.decoding.randomness._mix", lambda x, bits=bits: torch.full_like(x, bits)):
            assert gumbel_noise(torch.tensor([1]), torch.tensor([[1]]), 3).isfinite().all()


def test_token_noise_is_gumbel_and_uncorrelated() -> None:
    """Kolmogorov-Smirnov on 80,000 values and correlations of neighbours in each direction: false alarm below 1e-6."""
    noise = gumbel_noise(torch.arange(20) * 12345, torch.arange(40).expand(20, 40), 100).numpy()
    uniform = np.sort(np.exp(-np.exp(-noise)).ravel())
    count = len(uniform)
    distance = max(
        np.abs(uniform - np.arange(count) / count).max(), np.abs(uniform - np.arange(1, count + 1) / count).max()
    )
    assert distance < math.sqrt(-math.log(0.5e-6 / 2) / (2 * count))
    for axis in range(3):
        a, b = np.delete(noise, 0, axis).ravel(), np.delete(noise, -1, axis).ravel()
        assert abs(np.corrcoef(a, b)[0, 1]) < 5.5 / math.sqrt(len(a))


@pytest.mark.parametrize("temperature", [0.5, 1.7])
def test_tokens_are_drawn_from_the_tempered_softmax_and_confidence_is_not_tempered(temperature: float) -> None:
    """Chi-square over 1,500 draws at each of 4 positions: false alarm 1e-6, in each of two tests."""
    script = independent_positions(1)
    prompts = [f"{a}{b}{c}" for a in "abcdefghij" for b in "abcdefghij" for c in "abcdefghijklmno"]
    generations = decode(script, prompts, Block(4, passes=1), temperature=temperature, max_new_tokens=4, batch_size=500)
    logits = script(torch.zeros(1, 7, dtype=torch.long), torch.ones(1, 7))[0, 3:7].double().numpy()
    logits[:, MASK] = -np.inf
    plain = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    tempered = np.exp(logits / temperature) / np.exp(logits / temperature).sum(1, keepdims=True)
    statistic, freedom = 0.0, 0
    for position in range(4):
        counts = Counter(generation.tokens[position] for generation in generations)
        expected = tempered[position] * len(prompts)
        rare = expected < 5  # pooled, so that the chi-square law holds
        cells = [(counts[v], expected[v]) for v in range(VOCABULARY) if not rare[v]]
        if expected[rare].sum() >= 5:
            cells.append((sum(counts[v] for v in np.flatnonzero(rare)), expected[rare].sum()))
        statistic += sum((seen - wanted) ** 2 / wanted for seen, wanted in cells)
        freedom += len(cells) - 1
        assert counts[MASK] == 0
    assert statistic < chi2.isf(1e-6, freedom)
    for generation in generations[:50]:
        for commit in generation.windows[0].steps[0].commits:
            assert commit.confidence == pytest.approx(plain[commit.position, commit.token], rel=1e-5)


def test_temperature_zero_takes_the_most_probable_token_but_never_the_mask() -> None:
    script = hashed(9, end_logit=-4.0)  # in which the mask has the largest logit everywhere
    for decoder in (SAMPLED, Block(4, passes=1)):
        (generation,) = decode(script, ["abc"], decoder)
        assert MASK not in generation.tokens
        assert all(c.token != MASK for w in generation.windows for s in w.steps for c in s.commits)
    ids = torch.tensor([[2, 3, 4, *[MASK] * 4]])
    best = script(ids, torch.ones_like(ids))[0, 3:]
    best[:, MASK] = -torch.inf
    (generation,) = decode(script, ["abc"], Block(4, passes=1), max_new_tokens=4)
    assert list(generation.tokens) == best.argmax(-1).tolist()


@pytest.mark.parametrize("temperature", [5e-324, 1e-300, 1e-9])
def test_a_temperature_next_to_zero_takes_the_most_probable_token(temperature: float) -> None:
    def below(ids: torch.Tensor, valid: torch.Tensor) -> torch.Tensor:
        return hashed(9)(ids, valid) - 100  # so that no logit is above zero

    decoder = Block(4, passes=1)
    (cold,), (zero,) = (decode(below, ["abc"], decoder, temperature=t, max_new_tokens=4) for t in (temperature, 0.0))
    assert cold.tokens == zero.tokens
