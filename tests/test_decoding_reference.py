"""Whole decodes against the plain decoder: every commit and remask, both sets of features, T(B), hbar, the text."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, reject, settings
from hypothesis import strategies as st

from dystruct.decoding import DyStruct, Generation, generate
from dystruct.decoding.randomness import Streams
from dystruct.inference import fixed, length_posterior
from dystruct.model import Context, Diagnostics, Partition, PriorConfig
from plain_decoder import NearTie, PlainDecoder
from scripted import MASK, backbone, hashed, uneven_weights

PRIOR = PriorConfig(min_length=1, max_length=16)
decoders = st.builds(
    DyStruct,
    structure=st.sampled_from(["map", "sample", "consensus", "none"]),
    length_rule=st.sampled_from(["mode", "mean", "sample"]),
    length_law=st.sampled_from(["prior", "prior", "posterior"]),
    prior=st.just(PRIOR),
    diagnostic_passes=st.integers(1, 5),
    passes=st.sampled_from(["interpolate", "share"]),
    min_passes=st.integers(1, 3),
    max_passes=st.integers(3, 9),
    weld_radius=st.integers(1, 10),
    weld_passes=st.integers(1, 4),
    weld=st.sampled_from(["sequential", "joint", "off"]),
    final_instability=st.sampled_from(["calibrated", "centred"]),
    schedule=st.sampled_from(["priority", "sorted", "left-to-right"]),
    threshold=st.sampled_from([None, None, 0.3, 0.6]),
)


def compare(
    script, prompt: str, decoder: DyStruct, generation: Generation, temperature: float, seed: int, rate: float
) -> None:
    ids = [ord(letter) - ord("a") + 2 for letter in prompt]
    plain = PlainDecoder(
        script, ids, decoder, uneven_weights(), rate=rate, temperature=temperature, key=Streams.of(seed, ids).token_key
    )
    previous = 0.5
    for window in generation.windows:
        chosen = window.structure
        assert chosen is not None
        assert window.opened.start == len(plain.canvas) - plain.prompt
        assert window.opened.previous_instability == pytest.approx(previous, abs=1e-4)
        mu = PRIOR.min_length + (1 - previous) * (PRIOR.max_length - PRIOR.min_length)
        assert window.opened.rate == pytest.approx(mu, abs=2e-3)
        assert chosen.ends[-1] == window.length
        wanted = plain.decode_window(window.opened.length, chosen.ends, chosen.order)
        features, length = np.array(wanted.diagnostic_features), window.length
        assert np.array(chosen.position_features) == pytest.approx(features[:length], abs=2e-5)
        assert [row[3] for row in chosen.gap_features] == pytest.approx(wanted.gap_divergences[: length - 1], abs=2e-5)
        assert chosen.instability == pytest.approx(wanted.instability[:length], abs=1e-4)
        assert chosen.edge_logit == pytest.approx(wanted.edge_logit[: length - 1], abs=1e-3)
        assert (chosen.length is None) == (decoder.length_law == "prior")
        if chosen.length is not None:
            remaining = 24 - window.opened.start
            assert window.opened.length == min(PRIOR.max_length, remaining)
            law = length_posterior(
                Diagnostics(wanted.instability, wanted.edge_logit),
                Context(previous, remaining),
                PRIOR,
                covariate="window",
            )
            assert list(chosen.length.lengths) == law.lengths.tolist()
            assert chosen.length.prior == pytest.approx(law.prior.tolist(), abs=1e-3)
            assert chosen.length.log_evidence == pytest.approx(law.log_evidence.tolist(), abs=5e-3)
            assert chosen.length.probability == pytest.approx(law.probability.tolist(), abs=5e-3)
        assert list(chosen.passes) == wanted.passes
        found = [(s.kind, {r.position for r in s.remasked}, {c.position for c in s.commits}) for s in window.steps]
        assert found == wanted.steps
        assert np.array(window.closed.position_features) == pytest.approx(np.array(wanted.final_features), abs=2e-5)
        previous = wanted.mean_instability
        assert window.closed.mean_instability == pytest.approx(previous, abs=1e-4)
    assert list(generation.tokens) == plain.canvas[plain.prompt :]


@settings(deadline=None, max_examples=60, derandomize=True, suppress_health_check=list(HealthCheck))
@given(
    st.integers(0, 10**6),
    decoders,
    st.booleans(),
    st.sampled_from([0.0, 0.0, 0.7]),
    st.text("abcdefghij", min_size=2, max_size=5),
)
def test_a_decode_is_the_plain_decoders(
    seed: int, decoder: DyStruct, shifted: bool, temperature: float, prompt: str
) -> None:
    script = hashed(seed, end_logit=-4.0)
    model = backbone(script, shifted=shifted, weights=uneven_weights())
    (generation,) = generate(
        model, [prompt], decoder, max_new_tokens=24, budget=1000, temperature=temperature, seed=seed
    )
    try:
        compare(script, prompt, decoder, generation, temperature, seed, 1000 / 24)
    except NearTie:
        reject()
    assert MASK not in generation.tokens


@pytest.mark.parametrize("seed", range(4))
def test_what_lies_between_the_intervals_of_a_joint_weld_is_not_in_play(seed: int) -> None:
    """In blocks longer than two radii, those between two intervals take part in no weld: none of its passes count."""
    decoder = DyStruct(structure=fixed(Partition((3, 9, 14))), prior=PRIOR, weld="joint", weld_radius=1 + seed % 2)
    script = hashed(seed, end_logit=-4.0)
    model = backbone(script, shifted=seed % 2 == 1, weights=uneven_weights())
    (generation,) = generate(model, ["abc"], decoder, max_new_tokens=28, budget=1000)
    compare(script, "abc", decoder, generation, 0.0, 0, 1000 / 28)
