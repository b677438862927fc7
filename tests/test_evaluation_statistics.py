"""The tables' statistics against independent oracles: scipy, scikit-learn, and plain counting."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom, chi2, mannwhitneyu
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss, roc_auc_score

from dystruct.decoding.evaluation.statistics import auroc, holm, likelihood_ratio, mcnemar, mean

PAIRS = st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=60)


@given(PAIRS)
def test_mcnemar_against_counting(pairs: list[tuple[bool, bool]]) -> None:
    found = mcnemar([a for a, _ in pairs], [b for _, b in pairs])
    b, c = pairs.count((True, False)), pairs.count((False, True))
    assert (found.only_first, found.only_second, found.count) == (b, c, len(pairs))
    assert (found.first_right, found.second_right) == (sum(a for a, _ in pairs), sum(b for _, b in pairs))
    differences = np.array([b - float(a) for a, b in pairs])
    assert found.difference.value == pytest.approx(differences.mean())
    if len(pairs) > 1:
        variance = (b + c - (b - c) ** 2 / len(pairs)) / (len(pairs) - 1)
        assert found.difference.error == pytest.approx(math.sqrt(variance / len(pairs)), abs=1e-12)
    two_sided = min(1.0, 2 * sum(math.comb(b + c, k) for k in range(min(b, c) + 1)) / 2 ** (b + c))
    assert found.p_exact == pytest.approx(two_sided)
    assert found.p_exact == pytest.approx(min(1.0, 2 * binom.cdf(min(b, c), b + c, 0.5)))
    if b + c:
        statistic = max(abs(b - c) - 1, 0) ** 2 / (b + c)
        assert found.statistic == pytest.approx(statistic)
        assert found.p_corrected == pytest.approx(chi2.sf(statistic, 1))
    else:
        assert (found.statistic, found.p_corrected) == (0, 1)
    swapped = mcnemar([b for _, b in pairs], [a for a, _ in pairs])
    assert (swapped.p_exact, swapped.statistic) == (found.p_exact, found.statistic)


@pytest.mark.filterwarnings("default")
def test_mcnemar_against_statsmodels() -> None:
    from statsmodels.stats.contingency_tables import mcnemar as theirs

    for b, c in ((3, 12), (0, 4), (20, 21), (7, 7)):
        found = mcnemar([True] * b + [False] * c + [True] * 5, [False] * b + [True] * c + [True] * 5)
        table = [[5, b], [c, 0]]
        exact, corrected = theirs(table, exact=True), theirs(table, exact=False, correction=True)
        assert found.p_exact == pytest.approx(exact.pvalue)
        if b != c:  # statsmodels does not keep the corrected difference from falling below 0
            assert (found.statistic, found.p_corrected) == pytest.approx((corrected.statistic, corrected.pvalue))


LEVELS = st.lists(st.integers(0, 40).map(lambda of: of / 40), max_size=12)


@given(LEVELS, st.integers(0, 40).map(lambda of: of / 40))
def test_holm_rejects_what_his_steps_reject(p: list[float], level: float) -> None:
    """Down from the smallest, each test of the m that are left at level / m, until one is not rejected."""
    rejected: set[int] = set()
    for place in sorted(range(len(p)), key=lambda place: p[place]):
        if p[place] * (len(p) - len(rejected)) > level:
            break
        rejected.add(place)
    if level < 1:  # at a level of 1 all are rejected
        assert {place for place, corrected in enumerate(holm(p)) if corrected <= level} == rejected


@given(st.lists(st.tuples(st.integers(0, 40).map(lambda of: of / 40), st.sampled_from("abc")), max_size=12))
def test_holm_corrects_each_family_by_itself(tests: list[tuple[float, str]]) -> None:
    found = holm([p for p, _ in tests], [family for _, family in tests])
    for family in "abc":
        places = [place for place, (_, other) in enumerate(tests) if other == family]
        assert [found[place] for place in places] == holm([tests[place][0] for place in places])


@pytest.mark.filterwarnings("default")
def test_holm_against_statsmodels() -> None:
    from statsmodels.stats.multitest import multipletests

    for p in ([0.01, 0.04, 0.03, 0.2], [0.5], [0.02, 0.02, 1.0, 1e-9, 0.7]):
        assert holm(p) == pytest.approx(multipletests(p, method="holm")[1])


def test_mcnemar_wants_the_same_items() -> None:
    for wrong in (([True], [True, False]), ([], [])):
        with pytest.raises(ValueError, match="same items"):
            mcnemar(*wrong)


@given(st.lists(st.integers(0, 6), min_size=2, max_size=30), st.lists(st.integers(0, 6), min_size=2, max_size=30))
def test_auroc_against_every_pair(wrong: list[int], right: list[int]) -> None:
    scores, kinds = [*wrong, *right], [True] * len(wrong) + [False] * len(right)
    found = auroc(scores, kinds)
    assert found is not None
    pairs = [(a > b) + (a == b) / 2 for a in wrong for b in right]
    assert found.value == pytest.approx(sum(pairs) / len(pairs))
    assert found.value == pytest.approx(roc_auc_score(kinds, scores))
    assert found.value == pytest.approx(mannwhitneyu(wrong, right).statistic / len(pairs))
    # DeLong's variance, from the placements of each value among the other kind's
    above = [sum((a > b) + (a == b) / 2 for b in right) / len(right) for a in wrong]
    below = [sum((a > b) + (a == b) / 2 for a in wrong) / len(wrong) for b in right]
    spread = math.sqrt(np.var(above, ddof=1) / len(wrong) + np.var(below, ddof=1) / len(right))
    assert found.low <= found.value <= found.high and found.low < found.high
    if spread:
        assert found.low == pytest.approx(max(0, found.value - 1.959964 * spread), abs=1e-6)
        assert found.high == pytest.approx(min(1, found.value + 1.959964 * spread), abs=1e-6)


def test_auroc_s_interval_covers() -> None:
    """Of 200 intervals for the AUROC of two normals, 95% cover it; fewer than 88% have a chance below 1 in 10,000."""
    generator = np.random.default_rng(0)
    truth = 0.7602499389
    covered = 0
    for _ in range(200):
        found = auroc(
            np.concatenate((generator.normal(1, 1, 40), generator.normal(0, 1, 60))), [True] * 40 + [False] * 60
        )
        assert found is not None
        covered += found.low <= truth <= found.high
    assert covered >= 176


CHANCES = (
    st.lists(st.integers(0, 20), min_size=4, max_size=4).filter(any).map(lambda parts: np.array(parts) / sum(parts))
)


@given(st.lists(st.tuples(CHANCES, CHANCES, st.integers(2, 40), st.integers(2, 40)), min_size=1, max_size=3))
def test_what_separates_by_chance_is_in_the_interval(strata: list[tuple[np.ndarray, np.ndarray, int, int]]) -> None:
    """Of any law of a score in four values under which all pairs come out alike more than once in 40 times."""
    for outcome, scores in ((1.0, (1, 0)), (0.5, (0, 0)), (0.0, (0, 1))):
        chance, truth, pairs = 1.0, 0.0, sum(m * n for _, _, m, n in strata)
        for bad, good, m, n in strata:
            below = np.tril(np.ones((4, 4)), -1)
            truth += m * n / pairs * (bad @ below @ good + bad @ good / 2)
            if outcome == 0.5:
                chance *= (bad**m) @ (good**n)
            else:
                (low, few), (high, many) = ((good, n), (bad, m)) if outcome else ((bad, m), (good, n))
                most = np.diff(np.cumsum(low) ** few, prepend=0)  # the law of the largest of the lower ones
                chance *= most @ ((1 - np.cumsum(high)).clip(0) ** many)
        kinds = [kind for _, _, m, n in strata for kind in [True] * m + [False] * n]
        values = [scores[0] if kind else scores[1] for kind in kinds]
        found = auroc(values, kinds, [s for s, (_, _, m, n) in enumerate(strata) for _ in range(m + n)])
        assert found is not None and found.value == pytest.approx(outcome)
        assert found.high - found.low > 0.02, "so few answers leave it open"
        if chance > 0.025:
            assert found.low - 1e-9 <= truth <= found.high + 1e-9


def test_more_answers_that_separate_say_more() -> None:
    lows = []
    for count in (2, 5, 20, 100):
        found = auroc([1] * count + [0] * count, [True] * count + [False] * count)
        assert found is not None and (found.value, found.high) == (1, 1)
        lows.append(found.low)
    assert lows == pytest.approx([0.025 ** (1 / count) for count in (2, 5, 20, 100)])


def test_auroc_of_one_kind_is_none() -> None:
    assert auroc([1, 2, 3], [True, True, True]) is None
    assert auroc([1, 2, 3], [True, False, False]) is None


SCORED = st.lists(st.tuples(st.integers(0, 6), st.booleans(), st.sampled_from("abc")), min_size=4, max_size=40)


@given(SCORED)
def test_auroc_within_strata_against_every_pair(answers: list[tuple[int, bool, str]]) -> None:
    """Pairs of one stratum alone count, and what is added to a stratum's scores changes nothing."""
    scores, wrong, strata = (list(column) for column in zip(*answers, strict=True))
    large = {
        stratum: [[score for score, bad, of in answers if of == stratum and bad == kind] for kind in (True, False)]
        for stratum in set(strata)
    }
    large = {stratum: kinds for stratum, kinds in large.items() if min(map(len, kinds)) > 1}
    pairs = [(a > b) + (a == b) / 2 for bad, good in large.values() for a in bad for b in good]
    found = auroc(scores, wrong, strata)
    if not pairs:
        assert found is None
        return
    assert found is not None and found.value == pytest.approx(sum(pairs) / len(pairs))
    assert (found.wrong, found.right) == tuple(sum(len(kinds[i]) for kinds in large.values()) for i in (0, 1))
    moved = [score + {"a": 0, "b": 100, "c": -50}[of] for score, _, of in answers]
    assert auroc(moved, wrong, strata) == found
    if len(set(strata)) == 1:
        assert found == auroc(scores, wrong)


def test_auroc_s_interval_within_strata_covers() -> None:
    """As above, with strata of different size and rate of errors, whose scores lie apart."""
    generator = np.random.default_rng(1)
    covered = 0
    for _ in range(200):
        parts = [(60, 0.7, 0.0), (40, 0.3, 3.0), (30, 0.5, -2.0)]
        kinds = [np.arange(count) < rate * count for count, rate, _ in parts]
        scores = [generator.normal(bad + level, 1) for bad, (_, _, level) in zip(kinds, parts, strict=True)]
        found = auroc(np.concatenate(scores), np.concatenate(kinds), np.repeat([0, 1, 2], [60, 40, 30]))
        assert found is not None
        covered += found.low <= 0.7602499389 <= found.high
    assert covered >= 176


def data(seed: int, effect: float, count: int = 300) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    generator = np.random.default_rng(seed)
    confidence, score = generator.normal(size=(2, count))
    wrong = generator.random(count) < 1 / (1 + np.exp(-(confidence + effect * score)))
    return confidence, score, wrong


def test_the_likelihood_ratio_against_scikit_learn() -> None:
    confidence, score, wrong = data(1, 0.5, 1000)
    found = likelihood_ratio(confidence, score[:, None], wrong)
    assert found is not None

    def of(columns: np.ndarray) -> float:
        columns = (columns - columns.mean(0)) / columns.std(0)
        fitted = LogisticRegression(C=1e10, tol=1e-9, max_iter=1000).fit(columns, wrong)
        return -log_loss(wrong, fitted.predict_proba(columns), normalize=False)

    small, large = of(confidence[:, None]), of(np.stack((confidence, score), axis=1))
    assert found.statistic == pytest.approx(2 * (large - small), abs=1e-4)
    assert found.p == pytest.approx(chi2.sf(found.statistic, 1))
    assert found.degrees == 1 and found.coefficients[1] > 0 and found.p < 0.01


def test_the_likelihood_ratio_s_false_alarms() -> None:
    """Scores that say nothing come out below 0.05 in 5% of 150 cases; 11% or more have a chance below 1 in 400."""
    alarms = 0
    for seed in range(150):
        found = likelihood_ratio(*(lambda c, s, w: (c, s[:, None], w))(*data(seed, 0.0, 200)))
        assert found is not None
        alarms += found.p < 0.05
    assert 1 <= alarms < 17


def stratified(seed: int, effect: float, count: int = 300) -> tuple[np.ndarray, ...]:
    """As `data`, but in three strata whose scores and errors rise together; a fourth is all wrong."""
    generator = np.random.default_rng(seed)
    strata = generator.integers(0, 4, count)
    confidence, score = generator.normal(size=(2, count)) + strata
    chance = 1 / (1 + np.exp(2 - 2 * strata - effect * (score - strata)))
    return confidence, score, (generator.random(count) < chance) | (strata == 3), strata


def test_the_likelihood_ratio_within_strata() -> None:
    confidence, score, wrong, strata = stratified(4, 0.5, 800)
    found = likelihood_ratio(confidence, score, wrong, strata)
    assert found is not None
    kept = strata < 3

    def of(*columns: np.ndarray) -> float:
        design = np.stack((*((strata == s).astype(float) for s in range(3)), *columns), axis=1)[kept]
        fitted = LogisticRegression(C=1e10, tol=1e-9, max_iter=2000, fit_intercept=False).fit(design, wrong[kept])
        return -log_loss(wrong[kept], fitted.predict_proba(design), normalize=False)

    assert found.statistic == pytest.approx(2 * (of(confidence, score) - of(confidence)), abs=1e-4)
    assert found.degrees == 1 and found.p < 0.01
    apart = likelihood_ratio(confidence, score - 5.0 * strata, wrong, strata)
    assert apart is not None and apart.statistic == pytest.approx(found.statistic, abs=1e-6)
    constant = likelihood_ratio(confidence, strata.astype(float), wrong, strata)
    assert constant is None, "a score that only tells the strata"


def test_strata_are_no_false_alarm() -> None:
    """Of 150 as above 5% alarm, where hard strata have high scores that say nothing inside; without strata most do."""
    alarms = {True: 0, False: 0}
    for seed in range(150):
        confidence, score, wrong, strata = stratified(seed, 0.0, 200)
        for told in alarms:
            found = likelihood_ratio(confidence, score, wrong, strata if told else None)
            assert found is not None
            alarms[told] += found.p < 0.05
    assert 1 <= alarms[True] < 17 and alarms[False] > 120


def test_what_has_no_finite_maximum_is_none() -> None:
    confidence, score, wrong = data(2, 0.0)
    assert likelihood_ratio(confidence, wrong.astype(float)[:, None], wrong) is None
    assert likelihood_ratio(confidence, score[:, None], np.ones(300)) is None
    assert likelihood_ratio(np.ones(300), score[:, None], wrong) is None


@given(st.lists(st.floats(-1e3, 1e3), min_size=2, max_size=40))
def test_a_mean_with_its_error(values: list[float]) -> None:
    found = mean(values)
    middle = math.fsum(values) / len(values)
    assert found.value == pytest.approx(middle, abs=1e-9)
    spread = math.sqrt(math.fsum((x - middle) ** 2 for x in values) / (len(values) - 1) / len(values))
    assert found.error == pytest.approx(spread, abs=1e-9)


def test_a_mean_of_few() -> None:
    assert mean([random.random()]).error is None
    with pytest.raises(ValueError, match="at least one"):
        mean([])
