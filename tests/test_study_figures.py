"""The study's figures of windows whose effects are known: what is there is found, what is not is not."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from scipy.optimize import minimize_scalar
from scipy.stats import norm

from dystruct.decoding.study.evidence import diagnostic_passes, gap_divergences, gap_targets, joint_commits
from dystruct.decoding.study.instability import carried_instability, length_payoff
from dystruct.decoding.study.measured import Measured
from dystruct.decoding.study.partitions import Evidence, Learned, _density, block_distribution, learn, orders
from dystruct.decoding.study.proposals import proposal
from dystruct.inference.hyper import RecordedWindows
from dystruct.model import Context, Diagnostics, cut_log_probabilities
from study_windows import records, resample_less


@pytest.fixture(scope="module")
def measured() -> Measured:
    return Measured.of(records())


@pytest.fixture(autouse=True)
def _fewer_resamples(monkeypatch: pytest.MonkeyPatch) -> None:
    resample_less(monkeypatch)


def test_more_passes_that_say_more_are_found_better(measured: Measured) -> None:
    rows = {row["reading"]: row for row in diagnostic_passes(measured)}
    found = {name: row["auroc"]["value"] for name, row in rows.items()}
    # normal with means apart by 0.3, 1, 3 and 0 standard deviations: Phi(mean / sqrt 2)
    for name, strength in (("K = 2", 0.3), ("K = 4", 1.0), ("K = 8", 3.0), ("K = 4 face-value", 0.0)):
        assert found[name] == pytest.approx(norm.cdf(strength / math.sqrt(2)), abs=0.06)
    above = {name: row["above"] for name, row in rows.items()}
    assert above["K = 8"]["low"] > 0 and above["K = 2"]["high"] < 0
    assert above["K = 4"] == {"value": 0.0, "low": 0.0, "high": 0.0}
    positions = sum(window.length for window in measured.windows)
    assert all(row["positions"] == positions for row in rows.values())
    assert rows["K = 4"]["rate"] == np.concatenate([window.decoded_wrong for window in measured.windows]).mean()


def test_the_divergence_that_knows_is_found(measured: Measured) -> None:
    rows = {(row["target"], row["passes"]): row for row in gap_divergences(measured)}
    assert rows["wrong together", "last"]["above"]["low"] > 0.1
    assert rows["wrong together", "first"]["auroc"]["low"] < 0.5 < rows["wrong together", "first"]["auroc"]["high"]
    assert rows["wrong together", "last"]["gaps"] == 2 * 60 * 6


def test_a_target_is_foretold_by_what_is_fitted_on_it() -> None:
    raw = records()
    for record in raw:  # now the first passes know
        for window in record["windows"]:
            window["diagnoses"]["4"]["gaps"]["first"] = window["diagnoses"]["4"]["gaps"]["last"]
    measured = Measured.of(raw)
    rows = {(row["fitted_on"], row["intercept"]): row for row in gap_targets(measured)}
    own = rows["wrong together", True]["auroc"]
    assert own["wrong together"]["low"] > 0.7
    assert own["errors differ"]["low"] < 0.56
    assert rows["wrong together", True]["gaps"] == 720
    assert rows["errors differ", True]["gaps"] == sum(window.length - 1 for window in measured.windows)
    [case] = [row for row in joint_commits(measured) if row["case"] == "neighbours"]
    assert case["auroc"]["ell fitted on it"] == own["wrong together"]
    assert case["auroc"]["less confident"]["value"] == 0.5


def test_rates_of_pairs_are_counted_right(measured: Measured) -> None:
    rows = {row["case"]: row for row in joint_commits(measured)}
    pairs = [pair for window in measured.windows for pair in window.pairs]
    wrong = sum(pair["in_turn"] and not pair["together"] for pair in pairs)
    assert rows["neighbours"]["pairs"] == len(pairs) == 720
    assert rows["neighbours"]["rates"]["wrong_together"]["value"] == pytest.approx(wrong / 720, abs=1e-5)
    assert rows["neighbours"]["rates"]["together"]["value"] == pytest.approx(1 - wrong / 720, abs=1e-5)
    assert rows["neighbours in the more confident half"]["pairs"] == 720
    assert rows["2 to 8 apart"]["pairs"] == 0 and rows["2 to 8 apart"]["rates"]["together"]["value"] is None


def test_hbar_says_where_errors_are_and_centring_takes_it_away(measured: Measured) -> None:
    rows = {row["rule"]: row for row in carried_instability(measured)}
    assert all(row["windows"] == 60 for row in rows.values())
    assert rows["calibrated"]["spread"] > 5 * rows["centred"]["spread"]
    assert rows["calibrated"]["here"]["low"] > 0.6 > rows["centred"]["here"]["low"]
    assert rows["calibrated"]["next"]["low"] < 0.5 < rows["calibrated"]["next"]["high"], "the next one is drawn anew"
    first = [window for window in measured.windows if window.start == 0]
    by_hand = np.mean([window.decoded_wrong.mean() for window in first])
    assert rows["centred"]["error_rate"]["value"] == pytest.approx(by_hand, abs=1e-5)
    for row in rows.values():  # mu = 8 + 40 (1 - hbar)
        assert row["rate"] == pytest.approx(8 + 40 * (1 - row["hbar"]["value"]), abs=1e-3)
        assert row["rate_spread"] == pytest.approx(40 * row["spread"], rel=1e-9)


@pytest.mark.parametrize("payoff", [0.0, 0.5])
def test_what_short_windows_save_is_found(payoff: float) -> None:
    found = length_payoff(Measured.of(records(200, payoff=payoff, seed=3)))
    assert (found["payoff"]["low"] > 0) == (payoff > 0)
    cells = [found[name]["windows"] for name in found if name not in ("windows", "payoff")]
    assert sum(cells) == found["windows"] == 200 and len(cells) == 4


# --- partitions -------------------------------------------------------------------------------------------------------


def fixed_evidence(measured: Measured, edge_logit: Any) -> Evidence:
    return Evidence(
        measured.windows,
        [Diagnostics(np.full(window.length, 0.5), edge_logit(window)) for window in measured.windows],
    )  # fmt: skip


def test_cuts_where_commits_go_wrong_help_and_others_do_not(measured: Measured) -> None:
    def knowing(window: Any) -> np.ndarray:
        logits = np.full(window.length - 1, -3.0)
        for tried in window.pairs:
            logits[tried["left"]] = 3.0 if not tried["together"] else -3.0
        return logits

    def blind(window: Any) -> np.ndarray:
        return np.random.default_rng(window.start + window.problem).choice([-3.0, 3.0], size=window.length - 1)

    [row] = block_distribution(measured, fixed_evidence(measured, knowing), [1.5], [1.0])
    assert row["help"]["low"] > 0.3 and row["apart"]["low"] > row["inside"]["high"] and row["auroc"]["value"] > 0.95
    assert row["pairs"] == 720 and row["distant_pairs"] == 0
    [row] = block_distribution(measured, fixed_evidence(measured, blind), [1.5], [1.0])
    assert row["help"]["low"] < 0 < row["help"]["high"]


def test_blocks_are_counted_at_both_ends(measured: Measured) -> None:
    def level(value: float) -> Any:
        return lambda window: np.full(window.length - 1, value)

    [row] = block_distribution(measured, fixed_evidence(measured, level(-30.0)), [1.5], [1.0])
    assert row["map"] == {"mean": 1.0, "shares": [1, 0, 0, 0]}
    assert row["sampled"]["mean"] == pytest.approx(1) and row["sampled"]["shares"] == [1, 0, 0, 0]
    [row] = block_distribution(measured, fixed_evidence(measured, level(30.0)), [1.5], [1.0])
    mean = np.mean([window.length for window in measured.windows])
    assert row["map"]["mean"] == pytest.approx(mean) and row["sampled"]["mean"] == pytest.approx(mean)
    assert row["map"]["shares"] == [0, 0, 0, 1]
    # no evidence at all: the prior's own expected number of blocks, by its recursion over run lengths
    [row] = block_distribution(measured, fixed_evidence(measured, level(0.0)), [1.5], [1.0])
    expected = np.mean([prior_blocks(window.length, 1.5 * math.exp(0.5)) for window in measured.windows])
    assert row["sampled"]["mean"] == pytest.approx(expected, rel=1e-6)


def prior_blocks(length: int, alpha: float) -> float:
    run = np.zeros(length + 1)
    run[1], blocks = 1.0, 1.0
    for _ in range(length - 1):
        cut = cut_log_probabilities(torch.arange(1, length + 1), torch.tensor(math.log(alpha)).double())[0].exp()
        ends = run[1:] * cut.numpy()
        blocks += ends.sum()
        run[2:], run[1] = (run[1:] - ends)[:-1], ends.sum()
    return blocks


def test_the_density_of_the_logits_is_the_best_of_its_mixtures() -> None:
    x, s = np.random.default_rng(0).normal(0.2, 1.3, size=50), 2.0
    windows = [(Diagnostics(np.full(51, 0.5), s * x), Context())]

    def loss(log_v: float) -> float:  # x is N(+m, v) or N(-m, v) with s = 2 m / v
        v = math.exp(log_v)
        m = s * v / 2
        return -float(np.log(norm.pdf(x, m, math.sqrt(v)) + norm.pdf(x, -m, math.sqrt(v))).sum())

    best = -minimize_scalar(loss, bounds=(-6, 4), method="bounded", options={"xatol": 1e-9}).fun
    assert _density(windows, s) == pytest.approx(best, abs=1e-6)


def test_learning_finds_the_sharpness_that_made_the_logits() -> None:
    generator, windows = np.random.default_rng(1), []
    for _ in range(150):  # every gap cut or not with even odds, logits N(+-2, 1): log likelihood ratio 4 x
        cut = generator.uniform(size=29) < 0.4
        windows.append(Diagnostics(np.full(30, 0.5), np.where(cut, 2.0, -2.0) + generator.normal(size=29)))
    found = learn(Evidence([], windows), (1.0, 2.0, 4.0, 8.0))
    assert found.sharpness == 4.0 and not found.at_bound
    # its alpha0 is of higher evidence than its neighbours, and the gain is the sum of what it is made of
    sharp = RecordedWindows.of(Evidence([], windows).sharpened(4.0))
    here, *others = (
        float(sharp.log_evidence(torch.tensor(found.concentration * factor).double())) for factor in (1, 0.9, 1.1)
    )  # fmt: skip
    assert here > max(others)
    plain = Evidence([], windows).sharpened(1.0)
    before = float(RecordedWindows.of(plain).log_evidence(torch.tensor(1.5).double())) + _density(plain, 1.0)
    after = here + _density(Evidence([], windows).sharpened(4.0), 4.0)
    assert found.gain == pytest.approx((after - before) / 150, rel=1e-9)


def test_a_likelihood_ratio_is_the_odds_less_the_rate(measured: Measured) -> None:
    odds, ratio = (Evidence.of(measured, "errors differ", form) for form in ("odds", "ratio"))
    for fold in (0, 1):
        shifts = torch.cat(
            [
                b.edge_logit - a.edge_logit
                for window, a, b in zip(measured.windows, odds.diagnostics, ratio.diagnostics, strict=True)
                if window.fold == fold
            ]
        )
        others = [window for window in measured.windows if window.fold != fold]
        rate = np.concatenate(
            [np.diff(window.diagnoses["4"].targets[: window.inside]) != 0 for window in others]
        ).mean()  # fmt: skip
        np.testing.assert_allclose(shifts.numpy(), -math.log(rate / (1 - rate)), rtol=1e-9)


def test_orders_are_looked_at_where_there_are_several_blocks(measured: Measured) -> None:
    few = Measured(measured.windows[:20], measured.domains)
    one = orders(few, fixed_evidence(few, lambda w: np.full(w.length - 1, -30.0)), 1.5, 1.0)
    assert one["windows_of_several_blocks"] == 0 and one["not_left_to_right"] == {"static": None, "dynamic": None}
    many = orders(few, fixed_evidence(few, lambda w: np.where(np.arange(w.length - 1) == 6, 9.0, -9.0)), 1.5, 1.0)
    assert many["windows_of_several_blocks"] == 20 == many["joint_maximum_windows"]
    assert many["not_left_to_right"] == {"static": 0.0, "dynamic": 0.0}, "the first block is anchored, h is level"


def test_a_setting_at_a_bound_is_not_proposed(measured: Measured) -> None:
    bound, inner = Learned(0.01, 16.0, 9.0, at_bound=True), Learned(3.0, 2.0, 1.0, at_bound=False)
    found = proposal(measured, "errors differ", "odds", (bound, inner))
    assert (found["concentration"], found["sharpness"], found["learned"]) == (3.0, 2.0, True)
    given = proposal(measured, "errors differ", "odds", (bound,))
    assert (given["concentration"], given["sharpness"], given["learned"]) == (1.5, 1.0, False)
    np.testing.assert_allclose(np.array(found["gap"]), 2 * np.array(given["gap"]))
    assert found["gap_intercept"] == pytest.approx(2 * given["gap_intercept"])
