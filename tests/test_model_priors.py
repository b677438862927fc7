"""Prior laws against plain Python: they sum to one, score, sample and take their modes as their definitions say.

Statistical tests are seeded; each would fail by chance with probability 1e-6 on a fresh seed.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence

import pyro
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from dystruct.model import AnchoredOrder, ClippedPoisson, GapCRP, PlackettLuce, cut_log_probabilities

FALSE_ALARM = 1e-6

weights = st.lists(st.floats(-4, 4), min_size=1, max_size=5)


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def assert_frequencies(draws: Iterable[object], probability: dict[object, float]) -> None:
    """Chi-square test of draws against exact probabilities; outcomes expected fewer than 5 times are pooled."""
    counts = Counter(draws)
    assert set(counts) <= set(probability), "a draw has probability zero"
    total = sum(counts.values())
    likely = [outcome for outcome, p in probability.items() if p * total >= 5]
    observed = [counts[outcome] for outcome in likely]
    expected = [probability[outcome] * total for outcome in likely]
    rest = total - sum(expected)
    if rest > 1:
        observed.append(total - sum(observed))
        expected.append(rest)
    statistic = sum((o - e) ** 2 / e for o, e in zip(observed, expected, strict=True))
    assert statistic <= stats.chi2.isf(FALSE_ALARM, len(expected) - 1)


def rows(values: torch.Tensor) -> list[tuple[int, ...]]:
    return [tuple(int(x) for x in row) for row in values.tolist()]


# --- window length


def poisson_mass(n: int, rate: float) -> float:
    return math.exp(n * math.log(rate) - rate - math.lgamma(n + 1))


def clipped_mass(n: int, rate: float, low: int, high: int) -> float:
    clipped = [min(max(k, low), high) for k in range(400)]
    return math.fsum(poisson_mass(k, rate) for k, c in enumerate(clipped) if c == n)


bounds = st.tuples(st.integers(0, 40), st.integers(0, 20)).map(lambda pair: (pair[0], pair[0] + pair[1]))


@settings(max_examples=40)
@given(st.floats(0.5, 60), bounds)
def test_clipped_poisson_is_a_poisson_with_its_tails_on_the_ends(rate: float, ends: tuple[int, int]) -> None:
    low, high = ends
    law = ClippedPoisson(rate, low, high)
    support = law.enumerate_support()
    assert support.tolist() == list(range(low, high + 1))
    expected = [clipped_mass(n, rate, low, high) for n in range(low, high + 1)]
    found = law.log_prob(support).exp().tolist()
    assert found == pytest.approx(expected, rel=1e-10, abs=1e-300)
    assert sum(found) == pytest.approx(1.0, abs=1e-12)
    assert found[int(law.mode) - low] == pytest.approx(max(found), rel=1e-11)
    assert law.mean.item() == pytest.approx(sum(n * p for n, p in zip(range(low, high + 1), expected, strict=True)))


def test_the_mode_jumps_to_an_end_near_it_as_reading_two_says() -> None:
    assert [int(ClippedPoisson(rate, 8, 48).mode) for rate in (8.0, 28.5, 46.0)] == [8, 28, 48]


def test_of_two_lengths_alike_the_mode_is_the_shorter() -> None:
    """At a whole rate two masses are the same, and only rounding tells them apart."""
    rates = range(2, 60)
    assert [int(ClippedPoisson(float(rate), 0, 200).mode) for rate in rates] == [rate - 1 for rate in rates]
    law = ClippedPoisson(torch.tensor([9.0, 32.0, 36.0]), 0, 100)
    assert law.mode.tolist() == [8, 31, 35]


def test_clipped_poisson_samples_have_its_masses() -> None:
    law = ClippedPoisson(12.0, 8, 15)
    draws = law.sample((20_000,), generator=seeded())
    assert draws.dtype == torch.int64
    assert_frequencies(draws.tolist(), {n: clipped_mass(n, 12.0, 8, 15) for n in range(8, 16)})


def test_clipped_poisson_has_batches_and_a_degenerate_case() -> None:
    law = ClippedPoisson(torch.tensor([4.0, 9.0]), 3, 10)
    assert law.sample((5,)).shape == (5, 2) and law.enumerate_support().shape == (8, 2)
    assert law.enumerate_support(expand=False).shape == (8, 1)
    assert law.log_prob(torch.tensor([3, 10])).exp().tolist() == pytest.approx(
        [clipped_mass(3, 4.0, 3, 10), clipped_mass(10, 9.0, 3, 10)]
    )
    assert ClippedPoisson(4.0, 5, 5).log_prob(torch.tensor(5)).item() == 0.0
    assert law.expand((3, 2)).sample().shape == (3, 2)


@pytest.mark.parametrize(("low", "high"), [(-1, 3), (5, 4)])
def test_bad_bounds_are_refused(low: int, high: int) -> None:
    with pytest.raises(ValueError, match="bounds"):
        ClippedPoisson(3.0, low, high)


def test_values_outside_the_support_are_refused() -> None:
    for law, value in (
        (ClippedPoisson(3.0, 2, 6), torch.tensor(7)),
        (GapCRP(torch.ones(2)), torch.tensor([0.0, 2.0])),
        (PlackettLuce(torch.zeros(3)), torch.tensor([0, 0, 1])),
        (AnchoredOrder(torch.zeros(3), 1.0), torch.tensor([0, 1, 3])),
    ):
        with pytest.raises(ValueError, match="support"):
            law.log_prob(value)


# --- cuts


def crp_mass(cuts: Sequence[int], alpha: Sequence[float]) -> float:
    mass, m = 1.0, 1
    for cut, a in zip(cuts, alpha, strict=True):
        mass *= a / (m + a) if cut else m / (m + a)
        m = 1 if cut else m + 1
    return mass


@settings(max_examples=40)
@given(st.lists(st.floats(1e-3, 1e3), max_size=7))
def test_gap_crp_scores_every_partition_and_sums_to_one(alpha: list[float]) -> None:
    law = GapCRP(torch.tensor(alpha, dtype=torch.float64))
    support = law.enumerate_support()
    assert sorted(rows(support)) == sorted(itertools.product((0, 1), repeat=len(alpha)))
    expected = [crp_mass(cuts, alpha) for cuts in rows(support)]
    assert law.log_prob(support).exp().tolist() == pytest.approx(expected, rel=1e-10)
    assert law.log_prob(support).logsumexp(0).item() == pytest.approx(0.0, abs=1e-12)


def test_gap_crp_samples_have_its_masses() -> None:
    alpha = [0.5, 3.0, 1.0, 1.5]
    draws = GapCRP(torch.tensor(alpha)).sample((20_000,), generator=seeded())
    assert draws.dtype == torch.bool
    assert_frequencies(rows(draws), {c: crp_mass(c, alpha) for c in itertools.product((0, 1), repeat=4)})


def test_gap_crp_has_batches_and_no_gap() -> None:
    alpha = torch.tensor([[0.5, 3.0, 1.0], [2.0, 0.1, 7.0]])
    law = GapCRP(alpha)
    cuts = law.sample((4,), generator=seeded())
    assert cuts.shape == (4, 2, 3)
    scores = law.log_prob(cuts)
    for i, j in itertools.product(range(4), range(2)):
        assert scores[i, j].item() == pytest.approx(math.log(crp_mass(cuts[i, j].tolist(), alpha[j].tolist())))
    assert law.enumerate_support().shape == (8, 2, 3) and law.enumerate_support(expand=False).shape == (8, 1, 3)
    alone = GapCRP(torch.ones(0))
    assert alone.sample().shape == (0,) and alone.log_prob(alone.sample()).item() == 0.0
    with pytest.raises(ValueError, match="17 gaps"):
        GapCRP(torch.ones(17)).enumerate_support()


@settings(max_examples=40)
@given(st.integers(1, 4096), st.floats(-700, 700))
def test_cut_probabilities_stay_exact_for_concentrations_of_any_size(m: int, log_alpha: float) -> None:
    cut, stay = cut_log_probabilities(torch.tensor(m), torch.tensor(log_alpha, dtype=torch.float64))
    odds = log_alpha - math.log(m)
    # log(1 + exp(x)) without overflow, and without torch
    softplus = max(odds, 0.0) + math.log1p(math.exp(-abs(odds)))
    assert cut.item() == pytest.approx(odds - softplus, rel=1e-12, abs=1e-12)
    assert stay.item() == pytest.approx(-softplus, rel=1e-12, abs=1e-300)


def test_cut_probabilities_at_the_limits_are_zero_and_minus_infinity() -> None:
    cut, stay = cut_log_probabilities(torch.tensor(3), torch.tensor([torch.inf, -torch.inf], dtype=torch.float64))
    assert cut.tolist() == [0.0, -math.inf] and stay.tolist() == [-math.inf, 0.0]


# --- orders


def plackett_luce_mass(order: Sequence[int], log_weights: Sequence[float]) -> float:
    mass, remaining = 1.0, list(range(len(log_weights)))
    for pick in order:
        mass *= math.exp(log_weights[pick]) / sum(math.exp(log_weights[k]) for k in remaining)
        remaining.remove(pick)
    return mass


def anchored_mass(order: Sequence[int], h: Sequence[float], gamma: float, temperature: float) -> float:
    mass, finished = 1.0, set()  # type: tuple[float, set[int]]
    for pick in order:
        weight = {}
        for k in set(range(len(h))) - finished:
            sides = (k == 0 or k - 1 in finished) + (k + 1 in finished)
            weight[k] = math.exp((gamma * sides / 2 - h[k]) / temperature)
        mass *= weight[pick] / sum(weight.values())
        finished.add(pick)
    return mass


@settings(max_examples=40)
@given(weights)
def test_plackett_luce_scores_every_order_and_sums_to_one(w: list[float]) -> None:
    law = PlackettLuce(torch.tensor(w, dtype=torch.float64))
    orders = law.enumerate_support()
    assert sorted(rows(orders)) == sorted(itertools.permutations(range(len(w))))
    expected = [plackett_luce_mass(order, w) for order in rows(orders)]
    assert law.log_prob(orders).exp().tolist() == pytest.approx(expected, rel=1e-10)
    assert law.log_prob(orders).logsumexp(0).item() == pytest.approx(0.0, abs=1e-12)
    assert law.mode.tolist() == sorted(range(len(w)), key=lambda k: -w[k])  # sorted is stable
    assert law.log_prob(law.mode).item() >= law.log_prob(orders).max().item() - 1e-12


@settings(max_examples=40)
@given(st.lists(st.floats(0, 1), min_size=1, max_size=5), st.floats(0, 4), st.floats(0.2, 3))
def test_anchored_order_scores_every_order_and_sums_to_one(h: list[float], gamma: float, temperature: float) -> None:
    law = AnchoredOrder(torch.tensor(h, dtype=torch.float64), gamma, temperature)
    orders = law.enumerate_support()
    expected = [anchored_mass(order, h, gamma, temperature) for order in rows(orders)]
    assert law.log_prob(orders).exp().tolist() == pytest.approx(expected, rel=1e-10)
    assert law.log_prob(orders).logsumexp(0).item() == pytest.approx(0.0, abs=1e-12)
    assert law.log_prob(law.mode).exp().item() == pytest.approx(anchored_mass(law.mode.tolist(), h, gamma, temperature))


def test_anchored_order_without_context_weight_is_plackett_luce() -> None:
    h = torch.tensor([0.3, 0.9, 0.1, 0.5], dtype=torch.float64)
    orders = PlackettLuce(h).enumerate_support()
    assert torch.allclose(AnchoredOrder(h, 0.0, 0.7).log_prob(orders), PlackettLuce(-h / 0.7).log_prob(orders))
    assert torch.equal(AnchoredOrder(h, 0.0).mode, PlackettLuce(-h).mode)


def test_strong_anchoring_decodes_from_left_to_right() -> None:
    assert AnchoredOrder(torch.tensor([0.9, 0.1, 0.5, 0.2]), 2.0).mode.tolist() == [0, 1, 2, 3]


def test_the_greedy_anchored_order_can_miss_the_most_probable_one() -> None:
    # block 1 is a little ahead of block 0 at first, but beginning with it leaves 0 and 2 equally anchored
    law = AnchoredOrder(torch.tensor([0.83, 0.04, 0.18]), 1.5)
    orders = law.enumerate_support()
    assert law.mode.tolist() == [1, 0, 2]
    assert rows(orders)[int(law.log_prob(orders).argmax())] == (0, 1, 2)


@pytest.mark.parametrize(
    ("law", "mass"),
    [
        (PlackettLuce(torch.tensor([0.5, -1.0, 0.0, 1.2])), lambda o: plackett_luce_mass(o, [0.5, -1.0, 0.0, 1.2])),
        (
            AnchoredOrder(torch.tensor([0.2, 0.9, 0.4, 0.1]), 1.5),
            lambda o: anchored_mass(o, [0.2, 0.9, 0.4, 0.1], 1.5, 1),
        ),
    ],
)
def test_orders_are_sampled_with_their_masses(
    law: PlackettLuce | AnchoredOrder, mass: Callable[[Sequence[int]], float]
) -> None:
    draws = law.sample((20_000,), generator=seeded())
    assert_frequencies(rows(draws), {order: mass(order) for order in itertools.permutations(range(4))})


def test_orders_have_batches_and_refuse_to_enumerate_many_blocks() -> None:
    w = torch.tensor([[0.5, -1.0, 0.0], [2.0, 1.0, 0.3]])
    orders = PlackettLuce(w).sample((4,), generator=seeded())
    scores = PlackettLuce(w).log_prob(orders)
    assert scores.shape == (4, 2)
    expected = math.log(plackett_luce_mass(orders[3, 1].tolist(), w[1].tolist()))
    assert scores[3, 1].item() == pytest.approx(expected, rel=1e-6)
    assert PlackettLuce(w).mode.tolist() == [[0, 2, 1], [0, 1, 2]]
    assert PlackettLuce(w).enumerate_support().shape == (6, 2, 3)
    for law in (PlackettLuce(torch.zeros(9)), AnchoredOrder(torch.zeros(9), 1.0)):
        with pytest.raises(ValueError, match="9 blocks"):
            law.enumerate_support()
    with pytest.raises(ValueError, match="temperature"):
        AnchoredOrder(torch.zeros(3), 1.0, temperature=0.0)


# --- randomness


@pytest.mark.parametrize(
    "law",
    [
        ClippedPoisson(12.0, 8, 48),
        GapCRP(torch.full((20,), 2.0)),
        PlackettLuce(torch.zeros(20)),
        AnchoredOrder(torch.zeros(20), 2.0),
    ],
)
def test_a_generator_fixes_the_draw_and_leaves_the_global_stream_alone(law: ClippedPoisson | GapCRP) -> None:
    before = torch.random.get_rng_state()
    assert torch.equal(law.sample((5,), generator=seeded(3)), law.sample((5,), generator=seeded(3)))
    assert torch.equal(torch.random.get_rng_state(), before)
    pyro.set_rng_seed(4)
    first = law()
    pyro.set_rng_seed(4)
    assert torch.equal(law(), first)
