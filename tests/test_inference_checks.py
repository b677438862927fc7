"""Checks of the model and of its inference: they hold where they must and fail where they must.

Statistical tests are seeded; each would fail by chance with probability 1e-6 on a fresh seed.
"""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from dystruct.inference.checks import (
    PredictiveCheck,
    RankCalibration,
    autocorrelation,
    block_count,
    first_end,
    longest_block,
    predictive_check,
    rank_calibration,
)
from dystruct.model import Context, Diagnostics, PriorConfig, partition_law
from oracles import all_cuts, blocks

FALSE_ALARM = 1e-6
Z = stats.norm.isf(FALSE_ALARM / 2)
SMALL = PriorConfig(min_length=1, max_length=14, concentration=0.5, evidence_scale=2.0)
STATISTICS = ["mean_edge_logit", "max_edge_logit", "autocorrelation", "block_count", "longest_block"]


def window(logit: list[float]) -> Diagnostics:
    return Diagnostics([0.5] * (len(logit) + 1), logit)


def simulated(length: int, prior: PriorConfig, generator: torch.Generator) -> Diagnostics:
    """A window of the program with a flat covariate."""
    cuts = partition_law(torch.zeros(length - 1), Context(), prior).sample(generator=generator)
    noise = torch.randn(length - 1, dtype=torch.float64, generator=generator)
    logit = (cuts.double() - 0.5) * prior.evidence_scale**2 + prior.evidence_scale * noise
    return Diagnostics(torch.full((length,), 0.5), logit)


def assert_frequencies(seen: np.ndarray, expected: np.ndarray) -> None:
    """Chi-square test of counts; the rarest outcomes are pooled until they are expected five times."""
    order = np.argsort(expected)
    pooled = 1 + int(np.searchsorted(np.cumsum(expected[order]), 5))
    seen, expected = (np.append(x[order][:pooled].sum(), x[order][pooled:]) for x in (seen, expected))
    assert ((seen - expected) ** 2 / expected).sum() < stats.chi2.isf(FALSE_ALARM, len(seen) - 1)


# --- statistics


def test_statistics_of_cuts_are_those_of_blocks() -> None:
    partitions = all_cuts(7)
    cuts = torch.tensor(partitions)
    spans = [blocks(flags) for flags in partitions]
    assert block_count(cuts).tolist() == [len(one) for one in spans]
    assert longest_block(cuts).tolist() == [max(end - start for start, end in one) for one in spans]
    assert first_end(cuts, torch.full((len(partitions),), 7)).tolist() == [one[0][1] for one in spans]


def test_a_window_without_a_cut_ends_with_its_first_block() -> None:
    padded = torch.zeros(2, 5, dtype=torch.bool)
    padded[1, 1] = True
    assert first_end(padded, torch.tensor([3, 6])).tolist() == [3, 2]


def test_autocorrelation_is_the_textbooks() -> None:
    series = [0.3, -1.2, 2.0, 0.7, 0.1]
    mean = sum(series) / 5
    products = math.fsum((a - mean) * (b - mean) for a, b in pairwise(series))
    expected = products / math.fsum((a - mean) ** 2 for a in series)
    result = autocorrelation(torch.tensor([series, [1.0] * 5], dtype=torch.float64))
    assert result.tolist() == pytest.approx([expected, 0.0])


@given(st.floats(-1e3, 1e3), st.integers(1, 50))
def test_what_does_not_vary_has_no_autocorrelation(value: float, gaps: int) -> None:
    """Whatever the mean of equals rounds to; nor has a window without two gaps, nor what vanishes when squared."""
    series = torch.full((gaps,), value, dtype=torch.float64)
    rising = 1e-200 * torch.arange(gaps, dtype=torch.float64)
    assert autocorrelation(torch.stack((series, rising))).tolist() == [0.0, 0.0]
    assert autocorrelation(torch.zeros(3, 0)).tolist() == [0.0] * 3


# --- predictive checks


def exact_cuts(
    logit: list[float], covariate: list[float], alpha0: float, evidence: bool
) -> dict[tuple[bool, ...], float]:
    """Prior or posterior probability of every partition, by the definitions."""
    mean = sum(covariate) / len(covariate)
    weights = {}
    for cuts in all_cuts(len(logit) + 1):
        weight, run = 1.0, 1
        for cut, ell, value in zip(cuts, logit, covariate, strict=True):
            alpha = alpha0 * math.exp(0.5 + value - mean)
            weight *= (alpha if cut else run) / (run + alpha)
            if evidence:
                weight /= 1 + math.exp(-ell if cut else ell)
            run = 1 if cut else run + 1
        weights[cuts] = weight
    total = sum(weights.values())
    return {cuts: weight / total for cuts, weight in weights.items()}


@pytest.mark.parametrize("under", ["prior", "posterior"])
@pytest.mark.parametrize("covariate", [None, [0.5, 0.0, -1.0, 2.0, 0.0]])
def test_replicates_follow_their_law(under: str, covariate: list[float] | None) -> None:
    logit, n = [1.0, -2.0, 0.5, 3.0, -1.0], 4000
    prior = PriorConfig(concentration=0.8, evidence_scale=1.5)
    given = None if covariate is None else torch.tensor(covariate, dtype=torch.float64)
    check = predictive_check(window(logit), Context(), prior, under=under, n=n, seed=1, covariate_logit=given)
    exact = exact_cuts(logit, covariate or logit, 0.8, evidence=under == "posterior")
    codes = torch.tensor([1, 2, 4, 8, 16])
    seen = np.bincount((check.cuts * codes).sum(-1).numpy(), minlength=32)
    expected = np.zeros(32)
    for cuts, probability in exact.items():
        expected[sum(1 << g for g, cut in enumerate(cuts) if cut)] = n * probability
    assert_frequencies(seen, expected)
    # the noise about ±s²/2 is standard normal of scale s
    noise = (check.edge_logit - torch.where(check.cuts, 1.125, -1.125)) / 1.5
    assert stats.kstest(noise.flatten().numpy(), "norm", method="exact").pvalue > FALSE_ALARM


@pytest.mark.parametrize("under", ["prior", "posterior"])
@pytest.mark.parametrize("scale", [0.3, 1.7])
def test_a_scale_moves_replicates_by_its_law_to_the_last_digit(under: str, scale: float) -> None:
    """Under one seed cuts and noise are the same for every scale, so that one of them foretells the others."""
    unit, other = (
        predictive_check(window([0.4, -1.0, 2.0, 0.3]), Context(), PriorConfig(evidence_scale=s), under=under, n=50)
        for s in (1.0, scale)
    )
    assert torch.equal(unit.cuts, other.cuts) and 0 < unit.cuts.double().mean() < 1
    sign = 2 * unit.cuts.double() - 1
    expected = sign * scale**2 / 2 + scale * (unit.edge_logit - sign / 2)
    torch.testing.assert_close(other.edge_logit, expected, rtol=0, atol=1e-14)


def test_structures_inferred_from_the_observation_follow_the_posterior() -> None:
    logit, n = [1.0, -2.0, 0.5, 3.0], 4000
    check = predictive_check(window(logit), Context(), PriorConfig(), under="prior", n=n, seed=2)
    exact = exact_cuts(logit, logit, 1.5, evidence=True)
    for name, statistic in (("block_count", len), ("longest_block", lambda spans: max(e - s for s, e in spans))):
        mean = sum(p * statistic(blocks(cuts)) for cuts, p in exact.items())
        variance = sum(p * (statistic(blocks(cuts)) - mean) ** 2 for cuts, p in exact.items())
        assert abs(float(check.observed[name].double().mean()) - mean) < Z * math.sqrt(variance / n)


def test_structures_inferred_from_replicates_under_the_prior_follow_the_prior() -> None:
    """p(cuts') = sum p(cuts) p(ell | cuts) p(cuts' | ell) is the prior again."""
    logit, n = [1.0, -2.0, 0.5, 3.0], 4000
    check = predictive_check(window(logit), Context(), PriorConfig(), under="prior", n=n, seed=3)
    exact = exact_cuts(logit, logit, 1.5, evidence=False)
    expected = np.zeros(6)
    for cuts, probability in exact.items():
        expected[sum(cuts) + 1] += n * probability
    seen = np.bincount(check.replicated["block_count"].numpy(), minlength=6)
    assert_frequencies(seen[1:], expected[1:])


def test_prior_predictive_p_values_are_uniform_over_the_models_own_windows() -> None:
    prior, generator, n = PriorConfig(evidence_scale=1.5), torch.Generator().manual_seed(4), 99
    p_values: dict[str, list[float]] = {name: [] for name in STATISTICS[:3]}
    for seed in range(150):
        diagnostics = simulated(9, prior, generator)
        check = predictive_check(
            diagnostics, Context(), prior, under="prior", n=n, seed=seed, covariate_logit=torch.zeros(8)
        )
        for name, values in p_values.items():
            values.append(check.p_values[name])
    jitter = np.random.default_rng(0).uniform(size=150)
    for values in p_values.values():  # p·n is uniform on 0 … n
        position = (np.round(np.array(values) * n) + jitter) / (n + 1)
        assert stats.kstest(position, "uniform", method="exact").pvalue > FALSE_ALARM / 3


@pytest.mark.parametrize("under", ["prior", "posterior"])
def test_a_window_unlike_the_models_is_seen(under: str) -> None:
    """Edge logits that swing slowly and reach too far: no scale of the noise gives that correlation."""
    logit = [4 * math.sin(g / 4) - 2 for g in range(40)]
    check = predictive_check(
        window(logit), Context(), PriorConfig(), under=under, seed=5, covariate_logit=torch.zeros(40)
    )
    assert list(check.p_values) == STATISTICS
    assert check.p_values["autocorrelation"] < 0.002
    assert check.p_values["mean_edge_logit"] > 0.99


def test_p_values_count_ties_half() -> None:
    replicated = {"block_count": torch.tensor([1, 2, 2, 5])}
    observed = {"block_count": torch.tensor([2, 2, 1, 7])}
    check = PredictiveCheck("prior", torch.zeros(4, 3), torch.zeros(4, 3), replicated, observed)
    assert check.p_values == {"block_count": (1 + 0.5) / 4}
    assert repr(check) == "PredictiveCheck(under the prior, 4 replicates: block_count p=0.375)"


def test_checks_are_reproducible_and_leave_the_global_stream() -> None:
    state = torch.get_rng_state()
    first, again, other = (
        predictive_check(window([0.0, 1.0, -1.0]), Context(), PriorConfig(), under="posterior", n=9, seed=seed)
        for seed in (1, 1, 2)
    )
    assert torch.equal(first.edge_logit, again.edge_logit) and not torch.equal(first.edge_logit, other.edge_logit)
    ranks = [
        rank_calibration(Context(), SMALL, replications=5, draws=9, seed=seed).ranks["log_joint"] for seed in (1, 1, 2)
    ]
    assert np.array_equal(ranks[0], ranks[1]) and not np.array_equal(ranks[0], ranks[2])
    assert torch.equal(torch.get_rng_state(), state)


# --- simulation-based calibration


@pytest.mark.parametrize("flat", [True, False])
def test_the_recursion_is_calibrated_to_the_program(flat: bool) -> None:
    covariate = None if flat else torch.randn(13, generator=torch.Generator().manual_seed(0))
    calibration = rank_calibration(Context(), SMALL, replications=200, draws=99, seed=1, covariate_logit=covariate)
    assert list(calibration.ranks) == ["block_count", "first_end", "log_joint"]
    assert calibration.p_value > FALSE_ALARM
    for rank in calibration.ranks.values():
        assert rank.shape == (200,) and (rank >= 0).all() and (rank < 1).all()


@pytest.mark.parametrize("double_use", [False, True])
def test_windows_of_one_token_are_ranked_with_the_rest_and_alone(double_use: bool) -> None:
    """There all draws tie with the truth, and a tie is broken evenly."""
    alone = rank_calibration(Context(), PriorConfig(1, 1), replications=200, draws=5, double_use=double_use)
    assert alone.p_value > FALSE_ALARM
    assert rank_calibration(Context(), PriorConfig(1, 2), replications=20, draws=5).ranks["first_end"].shape == (20,)
    assert first_end(torch.zeros(4, 3, 0, dtype=torch.bool), torch.ones(3, dtype=torch.long)).tolist() == [[1] * 3] * 4


def test_using_edge_logits_twice_is_seen_to_fail() -> None:
    broken = rank_calibration(Context(), SMALL, replications=200, draws=99, seed=1, double_use=True)
    assert broken.p_value < FALSE_ALARM
    assert all(p_value < FALSE_ALARM for p_value in (broken.p_values["block_count"], broken.p_values["log_joint"]))
    # too sure of itself: the truth lies in the posterior's tails, and scores below what it draws
    rank = broken.ranks["block_count"]
    assert np.mean(np.abs(2 * rank - 1)) > 0.5 + Z * math.sqrt(1 / 12 / 200)
    assert broken.ranks["log_joint"].mean() < 0.5 - Z * math.sqrt(1 / 12 / 200)


def test_p_values_of_uniform_ranks_alarm_at_their_rate() -> None:
    """Rejecting below 0.2 happens in at most a fifth of 200 calibrated experiments, up to chance."""
    generator = np.random.default_rng(0)
    p_values = [
        RankCalibration({"one": generator.uniform(size=20), "two": generator.uniform(size=20)}, 9, False).p_value
        for _ in range(200)
    ]
    assert sum(p < 0.2 for p in p_values) <= stats.binom.isf(FALSE_ALARM, 200, 0.2)
    assert sum(p < 0.2 for p in p_values) > 10  # and the correction does not swallow everything


@pytest.mark.parametrize(
    "rank", [np.linspace(0.3, 0.7, 60), np.linspace(0, 0.6, 60), np.abs(np.linspace(-1, 1, 60)) ** 0.3]
)
def test_ranks_that_are_not_uniform_are_rejected(rank: np.ndarray) -> None:
    assert RankCalibration({"one": rank}, 9, False).p_value < 1e-3


def test_a_calibration_names_what_it_saw() -> None:
    calibration = RankCalibration({"one": np.array([0.1, 0.4, 0.7])}, 9, True)
    assert repr(calibration) == "RankCalibration(3 windows, 9 draws each, ell used twice: one p=1)"


# --- pictures and errors


def test_pictures_show_one_panel_a_statistic() -> None:
    figure = rank_calibration(Context(), SMALL, replications=20, draws=9).plot()
    assert [panel.get_title().splitlines()[0] for panel in figure.axes] == ["block count", "first end", "log joint"]
    assert all(sum(bar.get_height() for bar in panel.containers[0]) == 20 for panel in figure.axes)
    check = predictive_check(window([0.0, 1.0, -1.0, 2.0]), Context(), PriorConfig(), under="prior", n=20)
    assert len(check.plot().axes) == 5


def test_errors_name_the_remedy() -> None:
    with pytest.raises(ValueError, match="'prior' or 'posterior'"):
        predictive_check(window([0.0] * 5), Context(), PriorConfig(), under="neither")
    with pytest.raises(ValueError, match="4 tokens"):
        predictive_check(window([0.0, 1.0]), Context(), PriorConfig(), under="prior")
    with pytest.raises(ValueError, match="replications and draws"):
        rank_calibration(Context(), SMALL, draws=0)
    for wrong in (torch.zeros(5), torch.zeros(13, 1), torch.zeros(1, 13), 0.0):
        with pytest.raises(ValueError, match=r"covariate_logit must have shape \(13,\)"):
            rank_calibration(Context(), SMALL, covariate_logit=wrong)
