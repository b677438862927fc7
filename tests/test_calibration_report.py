"""The rows of windows, the bootstrap over problems, held-out figures, and the report that they make up."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from io import StringIO
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from rich.console import Console
from scipy.special import expit, logit
from sklearn.metrics import roc_auc_score

from dystruct.decoding.terminal.calibration_table import calibration_tables
from dystruct.inference.calibration import (
    Calibration,
    CalibrationRows,
    DiagnosedWindow,
    Estimate,
    auroc,
    calibrate,
    fit_evidence,
    fit_logistic,
    log_loss,
    sample_logistic,
)
from dystruct.inference.calibration.bootstrap import ClusteredAuroc, ClusteredMean, resamples
from dystruct.inference.calibration.figures import Figures
from dystruct.inference.calibration.held_out import ALL, RIVALS, cross_fitted, folds
from dystruct.inference.calibration.picture import plot_calibration
from dystruct.inference.calibration.report import verdict
from dystruct.model import POSITION_FEATURES, diagnose

ENTROPY, OSCILLATION = (POSITION_FEATURES.index(name) for name in ("entropy", "oscillation"))


def windows(
    seed: int, problems: int, weights: dict[int, float], domains: tuple[str, ...] = ("",)
) -> list[DiagnosedWindow]:
    """Windows whose positions are wrong by a logistic law of the features; each problem has a level of its own."""
    rng = np.random.default_rng(seed)
    found = []
    for problem in range(problems):
        level = rng.normal() * 0.3 - 0.5
        for _ in range(2):
            length = int(rng.integers(2, 20))
            features = rng.normal(size=(length, 7))
            u = level + sum(weight * features[:, place] for place, weight in weights.items())
            targets = (rng.uniform(size=length) < expit(u)).astype(float)
            found.append(
                DiagnosedWindow(
                    problem, features, rng.uniform(0, 0.7, size=length - 1), targets, domains[problem % len(domains)]
                )
            )
    return found


ROWS = CalibrationRows.of(windows(0, 12, {ENTROPY: 2.0}, ("a", "b")))

# --- rows ------------------------------------------------------------------------------------------------------------


@settings(max_examples=20)
@given(seed=st.integers(0, 100), problems=st.integers(1, 6))
def test_rows_are_the_windows_end_to_end_and_psi_is_what_decoding_computes(seed: int, problems: int) -> None:
    made = windows(seed, problems, {ENTROPY: 1.0})
    rows = CalibrationRows.of(made)
    rng = np.random.default_rng(seed)
    fit = fit_evidence(CalibrationRows.of(windows(1, 5, {ENTROPY: 1.0})))
    assert len(rows.targets) == sum(len(w.targets) for w in made)
    diagnoses = [diagnose(w.features, w.gap_divergence, fit.weights) for w in made]
    np.testing.assert_allclose(fit.gap_logits(rows), np.concatenate([d.edge_logit for d in diagnoses]), atol=1e-12)
    psi = np.concatenate([d.gap_features for d in diagnoses if d.gap_features is not None])
    np.testing.assert_allclose(rows.gap_features(fit.position.weights), psi, atol=1e-12)
    differs = np.concatenate([w.targets[1:] != w.targets[:-1] for w in made])
    assert np.array_equal(rows.gap_targets, differs)
    jumps = np.concatenate([np.abs(np.diff(w.features[:, ENTROPY])) for w in made])
    np.testing.assert_allclose(rows.gap_difference("entropy"), jumps)
    chosen = [problem for problem in range(problems) if rng.uniform() < 0.5] or [0]
    some, other = rows.only(chosen), CalibrationRows.of([w for w in made if w.problem in chosen])
    for name in ("features", "targets", "gap", "divergence", "gap_targets"):
        assert np.array_equal(getattr(some, name), getattr(other, name)), name
    assert set(some.problem) == set(some.gap_problem) == set(chosen) and some.problems == problems


def test_the_fit_is_that_of_positions_and_then_of_gaps_under_it() -> None:
    fit = fit_evidence(ROWS, 1e-2, intercept=False)
    position = fit_logistic(ROWS.features, ROWS.targets, 1e-2)
    gap = fit_logistic(ROWS.gap_features(position.weights), ROWS.gap_targets, 1e-2, intercept=False)
    assert np.array_equal(fit.position.coefficients, position.coefficients)
    assert np.array_equal(fit.gap.coefficients, gap.coefficients) and fit.weights.gap_intercept == 0
    counts = np.arange(12) % 3
    repeated = [
        DiagnosedWindow(12 * copy + w.problem, w.features, w.gap_divergence, w.targets)
        for w in windows(0, 12, {ENTROPY: 2.0})
        for copy in range(w.problem % 3)
    ]
    again = fit_evidence(CalibrationRows.of(repeated), 1e-2)
    weighted = fit_evidence(ROWS, 1e-2, counts=counts, start=fit_evidence(ROWS, 1e-2))
    np.testing.assert_allclose(weighted.position.coefficients, again.position.coefficients, atol=1e-7)
    np.testing.assert_allclose(weighted.gap.coefficients, again.gap.coefficients, atol=1e-7)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"features": np.zeros((3, 6))}, "features must have shape"),
        ({"gap_divergence": np.zeros(3)}, "gap_divergence must have shape"),
        ({"targets": np.array([0, 1, 0.5])}, "targets must be 0 or 1"),
        ({"targets": np.zeros(0)}, "must have shape"),
    ],
)
def test_a_window_that_does_not_fit_together_is_refused(changes: dict[str, Any], reason: str) -> None:
    whole = {"features": np.zeros((3, 7)), "gap_divergence": np.zeros(2), "targets": np.zeros(3)}
    with pytest.raises(ValueError, match=reason):
        DiagnosedWindow(0, **{**whole, **changes})


def test_windows_without_a_gap_and_problems_of_two_domains_are_refused() -> None:
    single = DiagnosedWindow(0, np.zeros((1, 7)), np.zeros(0), np.zeros(1))
    with pytest.raises(ValueError, match="two positions"):
        CalibrationRows.of([single])
    with pytest.raises(ValueError, match="two domains"):
        CalibrationRows.of([*windows(0, 1, {}), *windows(0, 1, {}, ("other",))])


# --- the bootstrap over problems -------------------------------------------------------------------------------------


def clustered(
    seed: int, ties: bool
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.int64], NDArray[np.int64]]:
    """Scores, targets, clusters (of which the last may be empty), and counts of a resample."""
    rng = np.random.default_rng(seed)
    scores = rng.integers(0, 5, size=60).astype(float) if ties else rng.normal(size=60)
    targets = rng.integers(0, 2, size=60).astype(float)
    return scores, targets, rng.integers(0, 6, size=60), rng.integers(0, 4, size=(3, 7))


@settings(max_examples=40)
@given(seed=st.integers(0, 10**6), ties=st.booleans())
def test_a_resample_is_the_figure_of_repeated_rows(seed: int, ties: bool) -> None:
    scores, targets, cluster, counts = clustered(seed, ties)
    means = ClusteredMean.of(scores, cluster, 7).under(counts)
    areas = ClusteredAuroc.of(scores, targets, cluster, 7).under(counts)
    for mean, area, count in zip(means, areas, counts, strict=True):
        times = count[cluster]
        repeated, hits = np.repeat(scores, times), np.repeat(targets, times)
        if len(repeated):
            assert mean == pytest.approx(repeated.mean())
        if len(set(hits)) == 2:
            assert area == pytest.approx(roc_auc_score(hits, repeated))
        else:
            assert np.isnan(area)


def test_resamples_keep_the_domains_and_repeat_by_their_seed() -> None:
    domain = ["b", "a", "b", "b", "a"]
    counts = resamples(domain, 2000, 3)
    assert (counts[:, [1, 4]].sum(1) == 2).all() and (counts[:, [0, 2, 3]].sum(1) == 3).all()
    assert np.abs(counts.mean(0) - 1).max() < 0.1, "every problem is drawn as often as the others"
    assert np.array_equal(counts, resamples(domain, 2000, 3)) and not np.array_equal(counts, resamples(domain, 2000, 4))


def test_the_interval_over_problems_covers_the_truth_where_one_over_rows_does_not() -> None:
    """Means of problems vary, rows of one hardly do: 200 intervals of 95%, false alarm below 1e-4."""
    rng = np.random.default_rng(1)
    cluster = np.repeat(np.arange(40), 20)
    covered = narrow = 0
    for seed in range(200):
        values = np.repeat(rng.normal(size=40), 20) + 0.1 * rng.normal(size=800)
        found = Estimate.of(values.mean(), ClusteredMean.of(values, cluster, 40).under(resamples([""] * 40, 300, seed)))
        covered += found.low < 0 < found.high
        narrow += abs(values.mean()) < 1.96 * values.std() / np.sqrt(800)
    assert covered > 165 and narrow < 120


# --- held out --------------------------------------------------------------------------------------------------------


@given(
    sizes=st.lists(st.integers(1, 9), min_size=1, max_size=4).filter(lambda sizes: sum(sizes) > 1),
    seed=st.integers(0, 99),
)
def test_folds_hold_whole_problems_of_every_domain_alike(sizes: list[int], seed: int) -> None:
    domain = [f"{name}" for name, size in enumerate(sizes) for _ in range(size)]
    fold, order = folds(domain, seed)
    count = min(5, len(domain))
    assert set(fold) == set(range(count)) and sorted(order) == list(range(len(domain)))
    for name, size in enumerate(sizes):
        mine = np.array([other == f"{name}" for other in domain])
        assert np.ptp(np.bincount(fold[mine], minlength=count)) <= 1
        for first in range(len(domain)):  # in every beginning of the order a domain has its share, but for one problem
            share = mine[order[:first]].sum()
            assert abs(share - size * first / len(domain)) <= len(sizes)


def test_a_prediction_does_not_know_its_own_problem() -> None:
    fold, _ = folds(ROWS.domain, 0)
    before = cross_fitted(ROWS, fold, 1e-3, True)
    changed = [
        replace(w, targets=np.where(np.arange(len(w.targets)) % 2, w.targets, 0)) if fold[w.problem] == 2 else w
        for w in windows(0, 12, {ENTROPY: 2.0}, ("a", "b"))
    ]
    after = cross_fitted(CalibrationRows.of(changed), fold, 1e-3, True)
    assert before is not None and after is not None
    for kind, problem in (("position", ROWS.problem), ("gap", ROWS.gap_problem)):
        own = fold[problem] == 2
        assert own.any()
        for name in (ALL, *RIVALS[kind]):
            assert np.array_equal(before[kind][name][own], after[kind][name][own])
            assert not np.isnan(before[kind][name]).any()
            assert (before[kind][name][~own] != after[kind][name][~own]).all()


def test_a_rival_is_a_logistic_fit_on_one_feature_of_the_other_folds() -> None:
    fold, _ = folds(ROWS.domain, 0)
    found = cross_fitted(ROWS, fold, 1e-3, True, seen=lambda others: others[:6], rivals=["entropy"])
    assert found is not None and set(found["position"]) == set(found["gap"]) == {ALL, "entropy"}
    train, test = ROWS.only(np.flatnonzero(fold != 0)[:6]), fold[ROWS.problem] == 0
    column = train.features[:, [ENTROPY]]
    expected = fit_logistic(column, train.targets, 1e-3).logits(ROWS.features[test][:, [ENTROPY]])
    np.testing.assert_allclose(found["position"]["entropy"][test], expected)
    gap = fit_logistic(train.gap_difference("entropy")[:, None], train.gap_targets, 1e-3)
    tested = fold[ROWS.gap_problem] == 0
    np.testing.assert_allclose(
        found["gap"]["entropy"][tested], gap.logits(ROWS.gap_difference("entropy")[tested][:, None])
    )


def test_figures_are_those_of_the_rows() -> None:
    rng = np.random.default_rng(0)
    problem = np.repeat(np.arange(10), 30)
    targets = rng.integers(0, 2, size=300).astype(float)
    logits = targets + rng.normal(size=300)
    counts = resamples([""] * 10, 200, 0)
    found, other = Figures(logits, targets, problem, counts), Figures(-logits, targets, problem, counts)
    assert found.log_loss.value == pytest.approx(log_loss(logits, targets))
    assert found.auroc.value == pytest.approx(auroc(logits, targets))
    assert found.auroc_above(other).value == pytest.approx(2 * found.auroc.value - 1)
    assert found.log_loss_above(other).value == pytest.approx(log_loss(logits, targets) - log_loss(-logits, targets))
    for estimate in (found.log_loss, found.auroc, found.calibration_error.by_chance, found.log_loss_above(other)):
        assert estimate.low < estimate.high
    assert found.log_loss_above(other).high < 0 < found.auroc_above(other).low
    assert found.log_loss_above(found) == Estimate(0, 0, 0) == found.auroc_above(found)
    # the bins, by hand
    p = expit(logits)
    error = 0.0
    for bin in found.bins:
        inside = (p >= bin.low) & ((p < bin.high) | (bin.high == 1))
        assert (bin.count, bin.probability, bin.frequency) == (
            inside.sum(), pytest.approx(p[inside].mean()), pytest.approx(targets[inside].mean()),
        )  # fmt: skip
        error += inside.sum() * abs(p[inside].mean() - targets[inside].mean())
    assert sum(bin.count for bin in found.bins) == 300
    assert found.calibration_error.value == pytest.approx(error / 300)


def test_a_probability_that_is_right_has_no_calibration_error() -> None:
    rng = np.random.default_rng(0)
    p = rng.uniform(size=20_000)
    targets = (rng.uniform(size=20_000) < p).astype(float)
    problem, counts = np.repeat(np.arange(20), 1000), resamples([""] * 20, 50, 0)
    assert Figures(logit(p), targets, problem, counts).calibration_error.value < 0.01
    assert Figures(logit(p) + 1, targets, problem, counts).calibration_error.value > 0.1


@pytest.mark.parametrize("rows", [50, 1000])
def test_by_chance_a_calibrated_predictor_errs_as_it_does(rows: int) -> None:
    """At least 168 of 200 lie in the 95% range; with the 94% that so few draws leave, fewer have probability 1e-6."""
    problem, counts = np.zeros(rows, dtype=np.int64), np.ones((1, 1), dtype=np.int64)
    inside = 0
    for seed in range(200):
        rng = np.random.default_rng(seed)
        logits = rng.normal(size=rows)
        targets = (rng.uniform(size=rows) < expit(logits)).astype(float)
        error = Figures(logits, targets, problem, counts).calibration_error
        inside += error.by_chance.low <= error.value <= error.by_chance.high
    assert inside >= 168
    wrong = Figures(2 + logits, targets, problem, counts).calibration_error
    assert wrong.value > wrong.by_chance.high


# --- the report ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def found() -> Calibration:
    """Two domains; what is wrong follows from entropy and oscillation."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dystruct.inference.calibration.from_windows.REFITS", 60)
        return calibrate(windows(0, 40, {ENTROPY: 1.5, OSCILLATION: 1.5}, ("a", "b")), penalty=1e-4)


def test_the_fit_finds_what_makes_errors_and_its_intervals_hold_it(found: Calibration) -> None:
    coefficients = found.report.position.coefficients
    assert list(coefficients) == [*POSITION_FEATURES, "intercept"]
    for name, coefficient in coefficients.items():
        truth = {"entropy": 1.5, "oscillation": 1.5, "intercept": -0.5}.get(name, 0.0)
        assert coefficient.value == pytest.approx(truth, abs=0.5)
        for low, high in (coefficient.laplace, coefficient.bootstrap):
            assert low < coefficient.value < high
    low, high = coefficients["oscillation"].bootstrap
    assert 1 < low < high < 2.5 and coefficients["entropy"].nuts is None
    assert np.array_equal(found.fit.position.weights, [coefficients[name].value for name in POSITION_FEATURES])
    assert found.report.position.gradient_norm < 1e-8 and found.report.gap.gradient_norm < 1e-8


def test_the_report_says_what_the_held_out_problems_say(found: Calibration) -> None:
    report = found.report
    assert report.problems == {"a": 20, "b": 20} and report.windows == 80 and report.folds == 5
    position = report.position
    assert position.rows == len(found.rows.targets) and position.rate == pytest.approx(found.rows.targets.mean())
    assert position.guess == pytest.approx(log_loss(np.full(position.rows, logit(position.rate)), found.rows.targets))
    assert position.log_loss[ALL].value < position.log_loss["entropy"].value < position.guess
    assert position.log_loss["margin"].value == pytest.approx(position.guess, abs=0.02)
    assert position.auroc["margin"].value == pytest.approx(0.5, abs=0.1)
    for name in RIVALS["position"]:
        difference = position.log_loss[ALL].value - position.log_loss[name].value
        assert position.log_loss_difference[name].value == pytest.approx(difference)
    assert position.verdict.startswith("Seven features beat entropy alone") and "40 problems" in position.verdict
    assert [point.problems for point in position.learning_curve] == [8, 16, 32]
    assert position.learning_curve[-1].log_loss == pytest.approx(position.log_loss[ALL].value)
    assert position.learning_curve[0].log_loss > position.learning_curve[-1].log_loss
    cells = {(row.fitted_on, row.tested_on): row for row in position.transfer}
    assert set(cells) == {(on, name) for on in (("a",), ("b",), ("a", "b")) for name in ("a", "b")}
    inside = np.array([name == "a" for name in found.rows.domain])[found.rows.problem]
    expected = log_loss(found.held_out["position"][ALL][inside], found.rows.targets[inside])
    assert cells[("a", "b"), "a"].log_loss == pytest.approx(expected)
    assert cells[("b",), "a"].auroc > 0.75, "one law in both domains"


def test_the_report_becomes_json_and_a_picture(found: Calibration) -> None:
    plain = json.loads(json.dumps(found.report.as_dict(), allow_nan=False))
    assert plain["position"]["log_loss"]["all"]["value"] == found.report.position.log_loss[ALL].value
    assert plain["gap"]["coefficients"]["divergence"]["nuts"] is None
    figure = plot_calibration(found)
    assert len(figure.axes) == 6
    reliability = figure.axes[0].get_legend_handles_labels()[1]
    assert any(f"ECE {found.report.position.calibration_error.value:.3f}" in label for label in reliability)
    figure.savefig("/dev/null", format="svg")


def test_where_entropy_is_all_there_is_the_report_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dystruct.inference.calibration.from_windows.REFITS", 5)
    report = calibrate(windows(3, 16, {ENTROPY: 2.0})).report
    assert report.position.log_loss_difference["entropy"].high > 0
    assert report.position.verdict.startswith(("Seven features do not beat", "Seven features are worse than"))
    assert report.position.transfer == ()


@pytest.mark.parametrize(("count", "sizes"), [(2, [1, 2]), (3, [1, 2, 3]), (5, [1, 4, 5])])
def test_of_many_domains_each_alone_all_but_each_and_all_are_tried(
    monkeypatch: pytest.MonkeyPatch, count: int, sizes: list[int]
) -> None:
    monkeypatch.setattr("dystruct.inference.calibration.from_windows.REFITS", 5)
    names = tuple("abcde"[:count])
    report = calibrate(windows(0, 4 * count, {ENTROPY: 1.0}, names)).report
    rows = report.position.transfer
    fitted = list(dict.fromkeys(row.fitted_on for row in rows))
    assert fitted == [chosen for size in sizes for chosen in combinations(names, size)]
    assert len(rows) == len(fitted) * count
    written = StringIO()
    Console(file=written, width=200).print(calibration_tables(report))
    shown = written.getvalue().split("Across domains")[1].split("\n\n")[0]
    assert len(shown.splitlines()) == 2 + (3 * count if count > 3 else len(rows))
    assert shown.count("all but ") == (count if count > 3 else 0) and f"\n{names[0]} " in shown


def test_the_verdict_is_the_intervals() -> None:
    for low, high, said in ((-0.2, -0.1, "beat"), (-0.1, 0.1, "do not beat"), (0.1, 0.2, "are worse than")):
        sentence = verdict("position", Estimate((low + high) / 2, low, high), 30, log_loss=0.4, guess=0.5)
        assert sentence.startswith(f"Seven features {said} entropy alone at telling wrong positions: ")
        assert (
            f"95% interval {low:+.4f} to {high:+.4f}, 30 problems. They have 0.4000, the base rate alone 0.5000."
            in sentence
        )
    assert verdict("gap", Estimate(0, -1, 1), 3, log_loss=1, guess=1).startswith(
        "The four gap features do not beat entropy alone"
    )


def test_nuts_is_part_of_the_report_where_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dystruct.inference.calibration.from_windows.REFITS", 5)
    quick = partial(sample_logistic, draws=100, warmup=30, chains=1)
    monkeypatch.setattr("dystruct.inference.calibration.from_windows.sample_logistic", quick)
    report = calibrate(windows(0, 8, {ENTROPY: 1.5}), penalty=0.02, nuts=True, intercept=False).report
    for found in (report.position, report.gap):
        assert found.sampler is not None and found.sampler.draws == 100
        assert found.sampler.r_hat < 1.1 and found.sampler.divergences == 0
        assert found.sampler.mean_shift < 1 and 0.6 < found.sampler.spread_ratio < 1.6
        for coefficient in found.coefficients.values():
            assert coefficient.nuts is not None
            assert coefficient.nuts[0] < coefficient.value < coefficient.nuts[1]
    assert "intercept" in report.position.coefficients and "intercept" not in report.gap.coefficients


@pytest.mark.parametrize(
    ("made", "reason"),
    [
        (windows(0, 1, {}), "two problems"),
        ([DiagnosedWindow(n, np.zeros((4, 7)), np.zeros(3), np.zeros(4)) for n in range(4)], "right and wrong"),
        (
            [DiagnosedWindow(n, np.zeros((4, 7)), np.zeros(3), np.array([0, 0, 0, n == 0])) for n in range(4)],
            "right and wrong",
        ),
    ],
    ids=["one problem", "no error", "errors in one problem"],
)
def test_where_nothing_can_be_learned_that_is_said(made: list[DiagnosedWindow], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        calibrate(made)
