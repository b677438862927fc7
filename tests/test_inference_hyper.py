"""Hyperparameters with partitions summed out: the density against plain formulas, NUTS against grids.

Statistical tests are seeded; each would fail by chance with probability 1e-6 on a fresh seed, as far as a chain's
effective sample size is known.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import replace
from unittest import mock

import numpy as np
import pyro.poutine as poutine
import pytest
import torch
from pyro import condition
from scipy import stats
from scipy.special import logsumexp

from dystruct.inference import posterior
from dystruct.inference.concentration import GridPosterior, concentration_grid, learn_concentration
from dystruct.inference.hyper import UNKNOWNS, HyperPrior, RecordedWindows, hyper_model, sample_hyper
from dystruct.model import Context, Diagnostics, EvidenceWeights, PriorConfig, partition_law

EVIDENCE = RecordedWindows.log_evidence
Z = stats.norm.isf(0.5e-6)  # false-alarm rate 1e-6, two-sided
WEIGHTS = EvidenceWeights(
    position=torch.zeros(7), position_intercept=0.0, gap=torch.tensor([0.2, -0.5, 1.0, 2.0]), gap_intercept=-1.0
)

Windows = list[tuple[Diagnostics, Context]]


def simulated(count: int, length: int, prior: PriorConfig, seed: int = 0) -> Windows:
    """Windows of the program with a flat covariate, each of another hbar."""
    generator = torch.Generator().manual_seed(seed)
    windows = []
    for index in range(count):
        context = Context(previous_instability=index / count)
        cuts = partition_law(torch.zeros(length - 1), context, prior).sample(generator=generator)
        noise = torch.randn(length - 1, dtype=torch.float64, generator=generator)
        logit = (cuts.double() - 0.5) * prior.evidence_scale**2 + prior.evidence_scale * noise
        windows.append((Diagnostics(torch.full((length,), 0.5), logit), context))
    return windows


def with_features(lengths: tuple[int, ...], seed: int = 0) -> Windows:
    generator = torch.Generator().manual_seed(seed)
    windows = []
    for length in lengths:
        psi = torch.randn(length - 1, 4, dtype=torch.float64, generator=generator)
        diagnostics = Diagnostics(torch.full((length,), 0.5), psi @ WEIGHTS.gap - 1.0, gap_features=psi)
        windows.append((diagnostics, Context(previous_instability=0.3)))
    return windows


MIXED: Windows = [
    (Diagnostics([0.5] * 5, [0.3, -1.0, 2.0, 0.5]), Context(previous_instability=0.2)),
    (Diagnostics([0.5], []), Context()),
    (Diagnostics([0.5] * 3, [-0.7, 1.1]), Context(previous_instability=0.9)),
]


def crp_log_probability(cuts: tuple[bool, ...], alphas: list[float]) -> float:
    run, total = 1, 0.0
    for cut, alpha in zip(cuts, alphas, strict=True):
        total += math.log((alpha if cut else run) / (run + alpha))
        run = 1 if cut else run + 1
    return total


def enumerated_log_density(windows: Windows, alpha0: float, logits: list[list[float]], scale: float) -> float:
    """log p(ell | alpha0, s) by the program's definition, every partition enumerated; alpha_g from the recorded ell."""
    total = 0.0
    for (diagnostics, context), ell in zip(windows, logits, strict=True):
        recorded = diagnostics.edge_logit.tolist()
        mean = sum(recorded) / len(recorded) if recorded else 0.0
        alphas = [alpha0 * math.exp(context.previous_instability + value - mean) for value in recorded]
        scores = []
        for cuts in itertools.product((False, True), repeat=len(ell)):
            means = [scale**2 / 2 if cut else -(scale**2) / 2 for cut in cuts]
            scores.append(crp_log_probability(cuts, alphas) + float(stats.norm.logpdf(ell, means, scale).sum()))
        total += float(logsumexp(scores))
    return total


def factor(windows: Windows, **values: object) -> float:
    """The program's log density of the recorded logits, its prior left out."""
    law = HyperPrior(weights=WEIGHTS)
    data = {name: torch.as_tensor(value, dtype=torch.float64) for name, value in values.items()}
    unknown = [name for name in values if name != "gap_intercept"]
    program = condition(hyper_model, data=data)
    trace = poutine.trace(program).get_trace(RecordedWindows.of(windows), law, unknown=unknown)
    trace.compute_log_prob()
    return float(trace.nodes["edge_logits"]["log_prob_sum"])


# --- the density


@pytest.mark.parametrize(("alpha0", "scale"), [(1.5, 1.0), (0.1, 0.4), (20.0, 2.5)])
def test_the_log_density_is_that_of_every_partition_summed(alpha0: float, scale: float) -> None:
    expected = enumerated_log_density(MIXED, alpha0, [d.edge_logit.tolist() for d, _ in MIXED], scale)
    assert factor(MIXED, concentration=alpha0, evidence_scale=scale) == pytest.approx(expected, abs=1e-10)


def test_known_hyperparameters_are_the_fixed_ones() -> None:
    law, fixed = HyperPrior(), PriorConfig(concentration=0.7, evidence_scale=1.8)
    program = condition(hyper_model, data={"concentration": torch.tensor(0.4, dtype=torch.float64)})
    trace = poutine.trace(program).get_trace(RecordedWindows.of(MIXED), law, unknown=["concentration"], fixed=fixed)
    trace.compute_log_prob()
    expected = enumerated_log_density(MIXED, 0.4, [d.edge_logit.tolist() for d, _ in MIXED], 1.8)
    assert float(trace.nodes["edge_logits"]["log_prob_sum"]) == pytest.approx(expected, abs=1e-10)
    prior = stats.lognorm.logpdf(0.4, s=1.0, scale=1.5)
    assert float(trace.nodes["concentration"]["log_prob_sum"]) == pytest.approx(prior, abs=1e-12)
    assert "evidence_scale" not in trace.nodes


def profiled_log_density(windows: Windows, alpha0: float, scale: float, weights: np.ndarray, intercept: float) -> float:
    """log p(psi): ell along w, the rest of psi by its best linear regression on ell, in coordinates that w spans."""
    psi = np.concatenate([d.gap_features.numpy() for d, _ in windows])
    norm = np.linalg.norm(weights)
    rest = np.linalg.svd(weights[None])[2][1:]  # orthonormal directions across w
    logits = [(d.gap_features.numpy() @ weights + intercept).tolist() for d, _ in windows]
    design = np.column_stack([np.concatenate(logits), np.ones(len(psi))])
    across = psi @ rest.T
    residual = across - design @ np.linalg.lstsq(design, across, rcond=None)[0]
    regression = stats.multivariate_normal(np.zeros(3), residual.T @ residual / len(psi)).logpdf(residual).sum()
    return enumerated_log_density(windows, alpha0, logits, scale) + len(psi) * math.log(norm) + float(regression)


def test_weights_are_scored_by_the_density_of_the_features() -> None:
    windows = with_features((7, 6, 5))
    points = [(1.0, 1.2, [0.1, 0.4, -1.0, 2.0], 0.3), (2.5, 0.5, [1.5, -0.2, 0.3, 0.1], -1.0)]
    mine, oracle = [], []
    for alpha0, scale, weights, intercept in points:
        values = {"concentration": alpha0, "evidence_scale": scale, "gap_weights": weights, "gap_intercept": intercept}
        mine.append(factor(windows, **values))
        oracle.append(profiled_log_density(windows, alpha0, scale, np.array(weights), intercept))
    assert mine[0] - mine[1] == pytest.approx(oracle[0] - oracle[1], abs=1e-9)


def test_no_scale_of_weights_is_favoured_without_bound() -> None:
    windows = with_features((9, 9, 9))
    small = [
        factor(windows, evidence_scale=t, gap_weights=[0.2 * t, -0.5 * t, t, 2 * t], gap_intercept=0.0)
        for t in (1e-3, 1e-6)
    ]
    assert small[0] == pytest.approx(small[1], abs=0.05)


def test_the_gradient_is_that_of_the_density() -> None:
    windows = RecordedWindows.of(with_features((6, 4)))
    logit = windows.edge_logit.clone().requires_grad_()
    alpha0 = torch.tensor(1.3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(windows.log_evidence, (alpha0, logit))


# --- one dimension


@pytest.fixture(scope="module")
def windows() -> Windows:
    return simulated(count=6, length=12, prior=PriorConfig(concentration=3.0, evidence_scale=2.0))


def plain_concentration(windows: Windows, law: HyperPrior, low: float = -4, high: float = 5) -> tuple[float, float]:
    """Mean and standard deviation of log alpha0 by the trapezoid rule on another grid."""
    batch = RecordedWindows.of(windows)
    log_alpha = np.linspace(low, high, 300)
    log_density = [float(batch.log_evidence(torch.tensor(math.exp(x), dtype=torch.float64))) for x in log_alpha]
    prior = stats.norm(math.log(law.concentration_median), law.concentration_spread)
    weight = np.array(log_density) + prior.logpdf(log_alpha)
    weight = np.exp(weight - weight.max())
    mean = np.trapezoid(weight * log_alpha, log_alpha) / np.trapezoid(weight, log_alpha)
    square = np.trapezoid(weight * log_alpha**2, log_alpha) / np.trapezoid(weight, log_alpha)
    return float(mean), math.sqrt(float(square) - float(mean) ** 2)


def test_the_grid_is_fine_enough(windows: Windows) -> None:
    law = HyperPrior(concentration_median=2.0, concentration_spread=0.7)
    grid = concentration_grid(windows, law)
    mean, deviation = plain_concentration(windows, law)
    assert grid.probabilities.sum() == pytest.approx(1.0)
    assert grid.expectation(np.log) == pytest.approx(mean, abs=1e-6)
    spread = math.sqrt(grid.expectation(lambda value: (np.log(value) - mean) ** 2))
    assert spread == pytest.approx(deviation, abs=1e-6)


@pytest.mark.parametrize(
    ("logits", "count", "law", "low", "high"),
    [
        ([-2] * 8, 20, HyperPrior(concentration_median=5.0, concentration_spread=0.3), -3, 1),  # far below the prior
        ([3, -3] * 4, 20, HyperPrior(concentration_median=0.01, concentration_spread=0.3), -5, 2),  # far above it
        ([-2] * 8, 400, HyperPrior(), -15, 0),  # and farther below a wide one
        # so narrow that few points of a grid as wide as the prior meet it
        ([3, -3, -3, 3, -3, -3, 3, -3], 3000, HyperPrior(concentration_spread=4.0), -1.2, -0.6),
    ],
)
def test_the_grid_is_where_the_posterior_is(
    logits: list[float], count: int, law: HyperPrior, low: float, high: float
) -> None:
    """Of many windows that are alike, whose evidence is worked out once."""
    once = (Diagnostics([0.5] * 9, logits), Context())
    batch, many = RecordedWindows.of([once]), [once] * count
    with mock.patch.object(RecordedWindows, "log_evidence", lambda self, value: count * EVIDENCE(batch, value)):
        grid, (mean, deviation) = concentration_grid(many, law), plain_concentration(many, law, low, high)
    assert grid.expectation(np.log) == pytest.approx(mean, abs=1e-3 * deviation)
    assert math.sqrt(grid.expectation(lambda value: (np.log(value) - mean) ** 2)) == pytest.approx(deviation, rel=1e-3)
    assert max(grid.probabilities[0], grid.probabilities[-1]) < 1e-10 and grid.probabilities.max() < 0.1


def test_a_law_too_wide_for_numbers_is_refused() -> None:
    with pytest.raises(ValueError, match="smaller concentration_spread"):
        concentration_grid(MIXED, HyperPrior(concentration_spread=1e3))


def test_grid_summaries_of_a_known_law() -> None:
    values = np.exp(np.linspace(-6, 6, 2001))
    density = stats.norm.pdf(np.log(values), loc=0.2, scale=0.5)
    grid = GridPosterior(values, density / density.sum())
    law = stats.lognorm(s=0.5, scale=math.exp(0.2))
    assert grid.mean == pytest.approx(law.mean(), rel=1e-6)
    assert grid.standard_deviation == pytest.approx(law.std(), rel=1e-6)
    assert [grid.quantile(p) for p in (0.05, 0.5, 0.9)] == pytest.approx(law.ppf([0.05, 0.5, 0.9]), rel=1e-3)


def assert_same_law(draws: torch.Tensor, size: float, quantiles: dict[float, float]) -> None:
    """The share of draws below each exact quantile, with the error that `size` independent draws have."""
    for probability, value in quantiles.items():
        share = float((draws < value).double().mean())
        assert abs(share - probability) < Z * math.sqrt(probability * (1 - probability) / size)


def test_nuts_is_the_grid_in_one_dimension(windows: Windows) -> None:
    posterior = sample_hyper(windows, unknown=["concentration"], draws=100, warmup=40, chains=2, seed=1)
    assert set(posterior.draws) == {"concentration"}
    draws, size = posterior.draws["concentration"], float(posterior.effective_sample_size["concentration"])
    assert draws.shape == (2, 100) and draws.dtype == torch.float64
    assert size > 25 and float(posterior.r_hat["concentration"]) < 1.3 and sum(posterior.divergences) == 0
    grid = concentration_grid(windows)
    assert_same_law(draws, size, {p: grid.quantile(p) for p in (0.1, 0.3, 0.5, 0.7, 0.9)})
    log_mean = grid.expectation(np.log)
    deviation = math.sqrt(grid.expectation(lambda value: (np.log(value) - log_mean) ** 2))
    assert abs(float(draws.log().mean()) - log_mean) < Z * deviation / math.sqrt(size)


def scale_grid(windows: Windows) -> GridPosterior:
    """The posterior of s, standard log-normal prior: it holds nothing but the observations' own density."""
    logit = torch.cat([diagnostics.edge_logit for diagnostics, _ in windows])
    values = np.exp(np.linspace(-0.5, 2, 1501))
    density = stats.norm.logpdf(np.log(values))
    density = density + sum(stats.norm.logpdf(x, -(values**2) / 2, values) for x in logit.tolist())
    probabilities = np.exp(density - density.max())
    return GridPosterior(values, probabilities / probabilities.sum())


def test_concentration_and_scale_are_independent(windows: Windows) -> None:
    corner = {(a, s): factor(windows, concentration=a, evidence_scale=s) for a in (0.5, 4.0) for s in (0.7, 3.0)}
    both = corner[0.5, 0.7] + corner[4.0, 3.0]
    assert both == pytest.approx(corner[0.5, 3.0] + corner[4.0, 0.7], abs=1e-9)


def test_the_best_scale_has_a_formula(windows: Windows) -> None:
    square = float(torch.cat([diagnostics.edge_logit for diagnostics, _ in windows]).square().mean())
    best = math.sqrt(2 * (math.sqrt(1 + square) - 1))
    scores = [factor(windows, concentration=1.0, evidence_scale=best * by) for by in (0.99, 1.0, 1.01)]
    assert scores[1] > max(scores[0], scores[2])


def test_nuts_in_two_dimensions_has_the_margins_of_the_grids(windows: Windows) -> None:
    posterior = sample_hyper(windows, draws=50, warmup=40, chains=1, seed=2)
    for name, grid in (("concentration", concentration_grid(windows)), ("evidence_scale", scale_grid(windows))):
        size = float(posterior.effective_sample_size[name])
        assert_same_law(posterior.draws[name], size, {p: grid.quantile(p) for p in (0.25, 0.5, 0.75)})


def test_nuts_over_weights_holds_a_draw_of_each() -> None:
    law = HyperPrior(weights=WEIGHTS, weight_spread=0.5)
    posterior = sample_hyper(with_features((6, 5)), law, unknown=UNKNOWNS, draws=4, warmup=4, chains=2)
    assert {name: tuple(draws.shape) for name, draws in posterior.draws.items()} == {
        "concentration": (2, 4),
        "evidence_scale": (2, 4),
        "gap_weights": (2, 4, 4),
        "gap_intercept": (2, 4),
    }
    assert len(repr(posterior).splitlines()) == 1 + 7 and "gap_weights[3]" in repr(posterior)


# --- what a session sees


def test_chains_are_reproducible_and_leave_the_global_stream() -> None:
    state = torch.get_rng_state()
    first, again = (sample_hyper(MIXED, draws=4, warmup=2, chains=2, seed=7) for _ in range(2))
    assert torch.equal(torch.get_rng_state(), state)
    for name, draws in first.draws.items():
        assert torch.equal(draws, again.draws[name])
        assert not torch.equal(draws[0], draws[1])
    line = repr(first).splitlines()
    assert line[0].startswith("HyperPosterior(2 chains of 4 draws; ") and len(line) == 3
    assert float(first.quantile("concentration", 0.5)) > 0


def test_learned_concentration_is_the_maximum(windows: Windows) -> None:
    learned = learn_concentration(windows)
    batch = RecordedWindows.of(windows)
    values = np.exp(np.linspace(-3, 4, 351))
    evidence = [float(batch.log_evidence(torch.tensor(value, dtype=torch.float64))) for value in values]
    assert not learned.at_bound
    assert learned.log_evidence >= max(evidence) - 1e-9
    assert learned.concentration == pytest.approx(values[int(np.argmax(evidence))], rel=0.02)
    prior = learned.prior(PriorConfig(evidence_scale=2.0))
    assert prior == PriorConfig(concentration=learned.concentration, evidence_scale=2.0)


def test_windows_without_any_sign_of_a_cut_have_no_best_concentration() -> None:
    # a single gap, so that the covariate cancels: the evidence falls with alpha0 throughout
    learned = learn_concentration([(Diagnostics([0.5, 0.5], [-20.0]), Context())])
    assert learned.at_bound and learned.concentration == pytest.approx(1e-3)
    learned = learn_concentration([(Diagnostics([0.5, 0.5], [20.0]), Context())])
    assert learned.at_bound and learned.concentration == pytest.approx(1e3)


@pytest.mark.parametrize("name", ["concentration_median", "concentration_spread", "scale_median", "weight_spread"])
def test_a_prior_that_is_none_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=name):
        HyperPrior(**{name: 0.0})


@pytest.mark.parametrize("lengths", [(2,), (1, 2, 1), (2, 3, 4)])
@pytest.mark.parametrize("ask", [sample_hyper, lambda *a, **k: hyper_model(RecordedWindows.of(a[0]), *a[1:], **k)])
def test_gap_weights_cannot_be_learned_from_gaps_that_are_all_alike(
    lengths: tuple[int, ...], ask: Callable[..., object]
) -> None:
    """Their ell would have a standard deviation of 0 for every w_b."""
    psi = torch.tensor([0.2, 0.5, 0.3, 0.1])
    alike = [
        (Diagnostics([0.5] * length, [0.4] * (length - 1), gap_features=psi.expand(length - 1, 4)), Context())
        for length in lengths
    ]
    with pytest.raises(ValueError, match=r"gap_weights need two gaps or more whose gap_features differ"):
        ask(alike, HyperPrior(weights=WEIGHTS), unknown=["gap_weights"])


def test_windows_are_pairs_or_posteriors_and_read_once() -> None:
    wanted = RecordedWindows.of(MIXED)
    posteriors = [posterior(*pair, PriorConfig(concentration=9.0)) for pair in MIXED]
    for windows in (iter(MIXED), posteriors, iter(posteriors), [posteriors[0], *MIXED[1:]]):
        found = RecordedWindows.of(windows)
        assert torch.equal(found.edge_logit, wanted.edge_logit) and torch.equal(found.lengths, wanted.lengths)
        assert torch.equal(found.relative_concentration, wanted.relative_concentration)
    assert learn_concentration(posteriors) == learn_concentration(MIXED)
    for given in (posteriors[0].condition({1: True}), replace(posteriors[0], covariate_logit=torch.zeros(4))):
        with pytest.raises(ValueError, match="without conditions and covariates"):
            learn_concentration([given])
    with pytest.raises(ValueError, match="put a single one into a list"):
        learn_concentration(posteriors[0])  # type: ignore[arg-type]
    for wrong in (MIXED[0][0], MIXED[0][::-1], (MIXED[0][0],)):
        with pytest.raises(ValueError, match="windows must be pairs of Diagnostics and Context, or posteriors"):
            learn_concentration([wrong])


def test_errors_name_the_remedy() -> None:
    with pytest.raises(ValueError, match=r"unknown must be a list of some of .*, got 'concentration'\.$"):
        sample_hyper(MIXED, unknown="concentration")
    with pytest.raises(ValueError, match="two tokens or more"):
        learn_concentration([])
    with pytest.raises(ValueError, match="two tokens or more"):
        concentration_grid([(Diagnostics([0.5], []), Context())])
    with pytest.raises(ValueError, match="unknown must be a list of some of"):
        sample_hyper(MIXED, unknown=["gamma"])
    with pytest.raises(ValueError, match="unknown must be a list of some of"):
        sample_hyper(MIXED, unknown=[])
    with pytest.raises(ValueError, match="gap_features"):
        sample_hyper(MIXED, HyperPrior(weights=WEIGHTS), unknown=["gap_weights"])
    with pytest.raises(ValueError, match="HyperPrior's weights"):
        sample_hyper(with_features((4,)), unknown=["gap_weights"])
    for weights in (3.0, WEIGHTS.gap, "neutral"):
        with pytest.raises(ValueError, match=r"^weights must be EvidenceWeights or None"):
            HyperPrior(weights=weights)
    for field in ("concentration_median", "concentration_spread", "scale_median", "scale_spread", "weight_spread"):
        for value in (0.0, math.inf, "1", True, torch.ones(2)):
            with pytest.raises(ValueError, match=f"^{field} must be"):
                HyperPrior(**{field: value})
    with pytest.raises(ValueError, match="draws must be at least 4"):
        sample_hyper(MIXED, draws=3)
    with pytest.raises(ValueError, match="points"):
        concentration_grid(MIXED, points=2)
    with pytest.raises(ValueError, match="low and high"):
        learn_concentration(MIXED, low=2.0, high=1.0)
