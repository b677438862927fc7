"""Values and laws of a window's structure against plain Python."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dystruct.inference import length_posterior, posterior
from dystruct.inference.checks import predictive_check
from dystruct.inference.hyper import RecordedWindows
from dystruct.inference.pyro_exact import enumerated_cut_marginals, enumerated_log_marginal, enumerated_map
from dystruct.model import (
    AnchoredOrder,
    Context,
    Diagnostics,
    Partition,
    PlackettLuce,
    PriorConfig,
    Structure,
    anchoring,
    block_instability,
    concentrations,
    edge_logit_law,
    evidence_offset,
    length_law,
    order_law,
    partition_law,
    partition_model,
    priorities,
    structure_model,
    window_rate,
)

logits = st.lists(st.floats(-8, 8), max_size=20)


def test_window_rate_shrinks_as_the_previous_window_was_unstable() -> None:
    prior = PriorConfig()
    assert [window_rate(Context(h), prior) for h in (0.0, 0.25, 0.5, 1.0)] == [48.0, 38.0, 28.0, 8.0]


@pytest.mark.parametrize("remaining", [1, 5, 8, 20, 48, 100])
def test_a_budget_caps_the_clipped_length(remaining: int) -> None:
    free, capped = length_law(Context(0.5), PriorConfig()), length_law(Context(0.5, remaining), PriorConfig())
    mass = dict.fromkeys(capped.enumerate_support().tolist(), 0.0)
    for n, p in zip(free.enumerate_support().tolist(), free.log_prob(free.enumerate_support()).exp(), strict=True):
        mass[min(n, remaining)] += float(p)
    assert capped.log_prob(capped.enumerate_support()).exp().tolist() == pytest.approx(list(mass.values()), rel=1e-9)


@given(logits, st.floats(0, 1), st.floats(0.1, 10))
def test_concentrations_are_the_formula(ell: list[float], hbar: float, alpha0: float) -> None:
    found = concentrations(torch.tensor(ell, dtype=torch.float64), Context(hbar), PriorConfig(concentration=alpha0))
    mean = sum(ell) / len(ell) if ell else 0.0
    assert found.tolist() == pytest.approx([alpha0 * math.exp(hbar + x - mean) for x in ell], rel=1e-12)
    law = partition_law(torch.tensor(ell, dtype=torch.float64), Context(hbar), PriorConfig(concentration=alpha0))
    assert torch.equal(law.concentration, found)


@pytest.mark.parametrize("shape", [(), (1, 4), (4, 1), (2, 3), (0, 0)])
def test_concentrations_take_one_window(shape: tuple[int, ...]) -> None:
    """A mean over a batch, or over nothing, is no window's."""
    for ask in (concentrations, partition_law):
        with pytest.raises(ValueError, match=r"edge_logit must have shape \(L-1,\), got"):
            ask(torch.zeros(shape), Context(), PriorConfig())


@pytest.mark.parametrize(
    "far", [[1500.0, 0.0, 0.0], [-1500.0, 0.0, 0.0], [1e6, -1e6], [math.nan, 0.0], [math.inf, 0.0]]
)
def test_edge_logits_too_far_apart_are_named(far: list[float]) -> None:
    """alpha_g would be infinite, or 0, which would forbid a cut in silence."""
    d, context, prior = Diagnostics([0.5] * (len(far) + 1), [0.0] * len(far)), Context(), PriorConfig(min_length=1)
    logit = torch.tensor(far, dtype=torch.float64)
    asked: list[Callable[[], object]] = [
        lambda: concentrations(logit, context, prior),
        lambda: partition_law(logit, context, prior),
        lambda: structure_model(d, context, prior, covariate_logit=logit),
        lambda: posterior(d, context, prior, covariate_logit=logit).map(),
    ]
    if logit.isfinite().all():
        seen = Diagnostics([0.5] * (len(far) + 1), logit)
        asked += [
            lambda: posterior(seen, context, prior).log_evidence,
            lambda: enumerated_map(seen, context, prior),
            lambda: length_posterior(seen, context, replace(prior, max_length=len(far) + 1)),
            lambda: RecordedWindows.of([(seen, context)]),
        ]
    for ask in asked:
        with pytest.raises(ValueError, match=r"edge_logit lies up to .* nats from its mean.*: scale the gap weights"):
            ask()


def test_edge_logits_almost_too_far_apart_agree_with_the_program() -> None:
    seen, context, prior = Diagnostics([0.5] * 4, [900.0, 0.0, 0.5]), Context(), PriorConfig(min_length=1)
    there = posterior(seen, context, prior)
    assert enumerated_map(seen, context, prior) == there.map().partition == Partition((1, 4))
    assert enumerated_log_marginal(seen, context, prior) == pytest.approx(there.log_marginal, rel=1e-14)


@pytest.mark.parametrize("wrong", [[0.0, 1.0], [[0.0, 0.0, 0.0]], [[0.0], [0.0], [0.0]], 0.0, [0.0] * 4], ids=str)
def test_a_covariate_has_one_entry_a_gap_whoever_takes_it(wrong: Any) -> None:
    d, context, prior = Diagnostics([0.5] * 4, [0.0, 1.0, 0.0]), Context(), PriorConfig(min_length=1)
    asked: dict[Callable[..., object], dict[str, object]] = {
        partition_model: {},
        structure_model: {},
        posterior: {},
        predictive_check: {"under": "prior"},
        enumerated_log_marginal: {},
        enumerated_cut_marginals: {},
        enumerated_map: {},
    }
    for ask, more in asked.items():
        for given_as in (wrong, torch.tensor(wrong)):
            with pytest.raises(ValueError, match=r"^covariate_logit must have shape \(3,\), one a gap, got"):
                ask(d, context, prior, covariate_logit=given_as, **more)
    with pytest.raises(ValueError, match="covariate_logit must have shape"):
        structure_model(None, context, prior, length=4, covariate_logit=wrong)


@given(st.lists(st.booleans(), min_size=1, max_size=6), st.floats(0.01, 5))
def test_edge_logits_lie_about_half_a_square_to_the_last_digit(cuts: list[bool], s: float) -> None:
    for scale in (s, torch.tensor(s, dtype=torch.float64)):
        law = edge_logit_law(torch.tensor(cuts), scale)
        assert law.mean.dtype == law.stddev.dtype == torch.float64
        assert law.mean.tolist() == pytest.approx([s * s / 2 if cut else -s * s / 2 for cut in cuts], rel=1e-15)
        assert law.stddev.tolist() == [s] * len(cuts)


@given(st.floats(-60, 60), st.floats(0.05, 5))
def test_the_offset_is_differentiable_in_edge_logit_and_scale(ell: float, s: float) -> None:
    """log N(ell; -s²/2, s) + log(1 + exp(ell)), differentiated by hand."""
    logit, scale = (torch.tensor(value, dtype=torch.float64, requires_grad=True) for value in (ell, s))
    slopes = torch.autograd.grad(evidence_offset(logit, scale), (logit, scale))
    q = 1 / (1 + math.exp(-ell))
    tolerance = 1e-13 * (1 + (ell / s) ** 2) * (1 + 1 / s)
    assert slopes[0].item() == pytest.approx(q - ell / s**2 - 0.5, abs=tolerance)
    assert slopes[1].item() == pytest.approx(ell**2 / s**3 - s / 4 - 1 / s, abs=tolerance)


@given(st.floats(-30, 30), st.floats(0.05, 5))
def test_the_observation_weighs_a_cut_as_the_edge_probability_does_for_every_scale(ell: float, s: float) -> None:
    def log_normal(mean: float) -> float:
        return -(((ell - mean) / s) ** 2) / 2 - math.log(s) - math.log(2 * math.pi) / 2

    # the squares of (ell ± s²/2)/s cancel to ell: keep the rounding of that subtraction in view
    tolerance = 1e-13 * (1 + (ell / s) ** 2 + s**2)
    assert log_normal(s * s / 2) - log_normal(-s * s / 2) == pytest.approx(ell, abs=tolerance)
    offset = evidence_offset(torch.tensor(ell, dtype=torch.float64), s).item()
    log_q, log_not_q = -math.log1p(math.exp(-ell)), -ell - math.log1p(math.exp(-ell))
    assert log_normal(s * s / 2) == pytest.approx(log_q + offset, abs=tolerance)
    assert log_normal(-s * s / 2) == pytest.approx(log_not_q + offset, abs=tolerance)


@given(st.lists(st.tuples(st.floats(0, 1), st.booleans()), min_size=1, max_size=20), st.floats(0, 4))
def test_priorities_are_the_formula(window: list[tuple[float, bool]], gamma: float) -> None:
    h = [value for value, _ in window]
    partition = Partition.from_cuts([cut for _, cut in window[1:]])
    prior = PriorConfig(context_weight=gamma, order_temperature=0.5)
    instability = torch.tensor(h, dtype=torch.float64)
    mean = [sum(h[a:b]) / (b - a) for a, b in partition.blocks]
    rho = [-m + gamma * (0.5 if a == 0 else 0.0) for m, (a, _) in zip(mean, partition.blocks, strict=True)]
    assert block_instability(partition, instability).tolist() == pytest.approx(mean, abs=1e-12)
    assert priorities(partition, instability, prior).tolist() == pytest.approx(rho, abs=1e-12)
    law = order_law(partition, instability, prior)
    assert isinstance(law, PlackettLuce)
    assert law.log_weights.tolist() == pytest.approx([2 * r for r in rho], abs=1e-12)


def test_anchoring_follows_reading_nine() -> None:
    assert anchoring(Partition.whole(9)).tolist() == [0.5]
    assert anchoring(Partition((2, 4, 9))).tolist() == [0.5, 0.0, 0.0]
    dynamic = order_law(Partition((2, 4, 9)), torch.full((9,), 0.5), PriorConfig.preset("dynamic"))
    assert isinstance(dynamic, AnchoredOrder)
    # gamma C - H: the first block anchored left; after block 1, both its neighbours anchored by it
    none, second = torch.zeros(3, dtype=torch.bool), torch.tensor([False, True, False])
    assert dynamic.log_weights(none).tolist() == [0.5, -0.5, -0.5]
    assert dynamic.log_weights(second).tolist() == [1.5, -math.inf, 0.5]


@given(st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.booleans()), min_size=1, max_size=20))
def test_the_likeliest_block_is_the_leftmost_when_anchoring_is_counted_anew(window: list[tuple[float, bool]]) -> None:
    """A finished neighbour counts gamma / 2 = 1, more than instabilities can differ by."""
    instability = torch.tensor([h for h, _ in window], dtype=torch.float64)
    ends = [n for n, (_, cut) in enumerate(window[:-1], start=1) if cut]
    law = order_law(Partition((*ends, len(window))), instability, PriorConfig.preset("dynamic"))
    assert law.mode.tolist() == list(range(len(ends) + 1))


def test_the_orders_of_the_papers_figures() -> None:
    # two blocks, H = 0.27 and 0.52: left to right; three, H = 0.21, 0.59, 0.18: the ends before the middle
    two = torch.tensor([0.27] * 5 + [0.52] * 12)
    assert order_law(Partition((5, 17)), two, PriorConfig()).mode.tolist() == [0, 1]
    three = torch.tensor([0.21] * 5 + [0.59] * 5 + [0.18] * 5)
    assert order_law(Partition((5, 10, 15)), three, PriorConfig()).mode.tolist() == [0, 2, 1]


def test_structures_hold_a_permutation_of_their_blocks() -> None:
    partition = Partition((2, 5))
    assert Structure(partition, tuple(torch.tensor([1, 0]))) == Structure(partition, (1, 0))
    assert Structure(partition, (1, 0)).length == 5
    for order in ((0,), (0, 0), (1, 2), (0, 1, 2)):
        with pytest.raises(ValueError, match="order must name each of the 2 blocks once"):
            Structure(partition, order)


def test_presets_are_known_by_name() -> None:
    assert PriorConfig.preset("paper") == PriorConfig()
    assert PriorConfig.preset("dynamic") == PriorConfig(anchoring="dynamic")
    with pytest.raises(ValueError, match="no preset 'fast'"):
        PriorConfig.preset("fast")
    with pytest.raises(TypeError):
        PriorConfig(alpha=1.0)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("min_length", 0),
        ("min_length", 49),
        ("concentration", 0.0),
        ("concentration", math.inf),
        ("context_weight", -1.0),
        ("order_temperature", 0.0),
        ("evidence_scale", math.nan),
        ("anchoring", "sometimes"),
    ],
)
def test_bad_hyperparameters_name_the_field(field: str, value: object) -> None:
    with pytest.raises(ValueError, match=field):
        PriorConfig(**{field: value})


def test_bad_contexts_and_lengths_name_the_field() -> None:
    for h in (-0.1, 1.1, math.nan):
        with pytest.raises(ValueError, match="previous_instability"):
            Context(h)
    with pytest.raises(ValueError, match="remaining"):
        Context(0.5, remaining=0)
    with pytest.raises(ValueError, match=r"instability must have shape \(5,\)"):
        block_instability(Partition.whole(5), torch.zeros(4))
