"""The recursion against every partition enumerated, and the laws that it must obey."""

from __future__ import annotations

import math
import subprocess
import sys
from itertools import islice

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chi2
from torch import Tensor

from dystruct.inference import SemiMarkov
from oracles import Enumerated

FALSE_ALARM = 1e-6


def window(length: int, seed: int = 0, shift: float = -0.5, spread: float = 1.5) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1000 * seed + length)
    edge_logit = shift + spread * torch.randn(1, length - 1, dtype=torch.float64, generator=generator)
    return edge_logit, 0.2 + 3 * torch.rand(1, length - 1, dtype=torch.float64, generator=generator)


def enumerate_window(edge_logit: Tensor, alpha: Tensor, bias: Tensor | None = None) -> Enumerated:
    return Enumerated(edge_logit[0].tolist(), alpha[0].tolist(), None if bias is None else bias[0].tolist())


def assert_agrees(chain: SemiMarkov, oracle: Enumerated, tolerance: float = 1e-10, *, ties: bool = True) -> None:
    """Every reduction of a chain of one window against the sum over all its partitions."""

    def near(actual: Tensor, expected: object) -> None:
        wanted = torch.tensor(expected, dtype=torch.float64)
        assert actual.shape == wanted.shape
        torch.testing.assert_close(actual, wanted, rtol=tolerance, atol=tolerance)

    near(chain.log_evidence, [oracle.log_evidence])
    near(chain.cut_marginals, [oracle.cut_marginals()])
    near(chain.block_marginals, [oracle.block_marginals()])
    near(chain.block_count, [oracle.block_count()])
    near(chain.entropy, [oracle.entropy()])
    near(chain.expected_block_length, [oracle.expected_block_length()])
    near(chain.prefix_log_evidence()[:, -1], [oracle.log_evidence])
    every = torch.tensor(oracle.cuts, dtype=torch.bool)[:, None]
    near(chain.log_joint(every)[:, 0], oracle.scores)
    near(chain.log_prob(every)[:, 0], list(oracle.log_prob.values()))

    best, fewest = oracle.best()
    found = tuple(chain.map()[0].tolist())
    assert oracle.log_prob[found] == pytest.approx(best, abs=tolerance)
    assert sum(found) == fewest or not ties

    ranked = list(chain.ranked())
    names = [tuple(cuts.tolist()) for cuts, _ in ranked]
    possible = {cuts for cuts, value in oracle.log_prob.items() if value > -math.inf}
    assert len(set(names)) == len(names) and set(names) == possible
    assert names[0] == found
    wanted = sorted((oracle.log_prob[name] for name in possible), reverse=True)
    for (_, behind), name, value in zip(ranked, names, wanted, strict=True):
        assert best + behind == pytest.approx(oracle.log_prob[name], abs=1e-9)
        assert best + behind == pytest.approx(value, abs=1e-9)


@pytest.mark.parametrize("length", range(1, 11))
def test_every_reduction_against_enumeration(length: int) -> None:
    for shift in (-2.0, 1.0):
        edge_logit, alpha = window(length, shift=shift)
        bias = torch.linspace(-1, 1, length - 1, dtype=torch.float64)[None]
        assert_agrees(SemiMarkov(edge_logit, alpha), enumerate_window(edge_logit, alpha))
        assert_agrees(SemiMarkov(edge_logit, alpha, cut_bias=bias), enumerate_window(edge_logit, alpha, bias))


logits = st.one_of(st.floats(-40, 40), st.sampled_from([-math.inf, math.inf, 0.0]))
alphas = st.one_of(st.floats(0.01, 100), st.sampled_from([1e-300, 1e-12, 1.0, 1e12, 1e300]))


@settings(max_examples=60)
@given(st.lists(st.tuples(logits, alphas), max_size=6))
def test_extreme_scores_against_enumeration(gaps: list[tuple[float, float]]) -> None:
    edge_logit, alpha = torch.tensor([[list(gap) for gap in gaps]], dtype=torch.float64).reshape(1, -1, 2).unbind(-1)
    assert_agrees(SemiMarkov(edge_logit, alpha), enumerate_window(edge_logit, alpha), tolerance=1e-9, ties=False)


@pytest.mark.parametrize(("logit", "cut"), [(math.inf, True), (-math.inf, False)])
def test_certain_evidence_leaves_one_partition(logit: float, cut: bool) -> None:
    chain = SemiMarkov(torch.full((1, 6), logit), torch.full((1, 6), 1.5))
    assert chain.map().tolist() == [[cut] * 6]
    assert chain.sample(5, torch.Generator().manual_seed(0)).tolist() == [[[cut] * 6]] * 5
    assert chain.entropy.item() == 0.0
    assert len(list(chain.ranked())) == 1


def test_no_concentration_means_no_cut() -> None:
    chain = SemiMarkov(torch.full((1, 5), 3.0), torch.zeros(1, 5))
    assert chain.cut_marginals.tolist() == [[0.0] * 5]
    assert not chain.map().any()


def test_contradiction_is_an_error_and_its_evidence_minus_infinity() -> None:
    chain = SemiMarkov(torch.tensor([[0.0, math.inf]]), torch.tensor([[1.0, 0.0]]))
    assert chain.log_evidence.tolist() == [-math.inf]
    for ask in (chain.map, lambda: chain.cut_marginals, lambda: chain.log_prob(torch.zeros(1, 2))):
        with pytest.raises(ValueError, match="no partition of windows"):
            ask()


# --- ties -------------------------------------------------------------------------------------------------------------


def test_fewest_cuts_on_ties() -> None:
    assert SemiMarkov(torch.zeros(1, 1), torch.ones(1, 1)).map().tolist() == [[False]]
    # alpha_g = g + 1 with q = 1/2: not cutting ties, at every gap, with cutting there for the first time
    edge_logit, alpha = torch.zeros(1, 7, dtype=torch.float64), torch.arange(1.0, 8.0, dtype=torch.float64)[None]
    chain = SemiMarkov(edge_logit, alpha)
    best, fewest = enumerate_window(edge_logit, alpha).best()
    assert chain.map().sum() == fewest
    assert chain.log_prob(chain.map()).item() == pytest.approx(best, abs=1e-12)


# --- batches ----------------------------------------------------------------------------------------------------------


def test_batch_of_different_lengths_equals_one_at_a_time() -> None:
    lengths = [1, 2, 5, 9, 9]
    edge_logit = torch.full((5, 8), math.nan, dtype=torch.float64)  # what lies beyond a window is never looked at
    alpha = torch.full((5, 8), math.nan, dtype=torch.float64)
    singles = []
    for row, length in enumerate(lengths):
        ell, a = window(length, seed=row)
        edge_logit[row, : length - 1], alpha[row, : length - 1] = ell[0], a[0]
        singles.append(SemiMarkov(ell, a))
    edge_logit.requires_grad_()
    alpha.requires_grad_()
    batch = SemiMarkov(edge_logit, alpha, torch.tensor(lengths))
    gradients = torch.autograd.grad(batch.log_evidence.sum(), (edge_logit, alpha))

    for row, (length, single) in enumerate(zip(lengths, singles, strict=True)):

        def same(ours: Tensor, theirs: Tensor, pads: int) -> None:
            padded = torch.nn.functional.pad(theirs, (0, pads) * theirs.dim())
            torch.testing.assert_close(ours, padded, atol=1e-13, rtol=1e-13)

        pads = 9 - length
        same(batch.log_evidence[row], single.log_evidence[0], 0)
        same(batch.entropy[row], single.entropy[0], 0)
        same(batch.prefix_log_evidence()[row, :length], single.prefix_log_evidence()[0], 0)
        for name in ("cut_marginals", "block_marginals", "block_count", "expected_block_length"):
            same(getattr(batch, name)[row], getattr(single, name)[0], pads)
        assert torch.equal(batch.map()[row, : length - 1], single.map()[0])
        assert not batch.map()[row, length - 1 :].any()
        assert not batch.sample(50, torch.Generator().manual_seed(1))[:, row, length - 1 :].any()
        ell = single.edge_logit.clone().requires_grad_()
        a = single.concentration.clone().requires_grad_()
        wanted = torch.autograd.grad(SemiMarkov(ell, a).log_evidence.sum(), (ell, a))
        for ours, theirs in zip(gradients, wanted, strict=True):
            same(ours[row], theirs[0], pads)
        ranked = [(tuple(cuts[: length - 1]), behind) for cuts, behind in islice(batch.ranked(row), 20)]
        wanted_ranked = [(tuple(cuts), behind) for cuts, behind in islice(single.ranked(), 20)]
        assert [name for name, _ in ranked] == [name for name, _ in wanted_ranked]


def test_prefix_evidence_is_that_of_shorter_windows() -> None:
    edge_logit, alpha = window(8)
    prefixes = SemiMarkov(edge_logit, alpha).prefix_log_evidence()[0]
    for length in range(1, 9):
        shorter = SemiMarkov(edge_logit[:, : length - 1], alpha[:, : length - 1])
        assert prefixes[length - 1].item() == pytest.approx(shorter.log_evidence.item(), abs=1e-12)


# --- conditions -------------------------------------------------------------------------------------------------------


def test_conditioning_is_bayes_rule() -> None:
    edge_logit, alpha = window(7)
    chain, oracle = SemiMarkov(edge_logit, alpha), enumerate_window(edge_logit, alpha)
    required = torch.tensor([[False, True, False, False, False, False]])
    forbidden = torch.tensor([[True, False, False, False, True, False]])
    given_cuts = chain.condition(required=required).condition(forbidden=forbidden)
    kept = {cuts: p for cuts, p in oracle.prob.items() if cuts[1] and not cuts[0] and not cuts[4]}
    mass = sum(kept.values())
    assert (given_cuts.log_evidence - chain.log_evidence).item() == pytest.approx(math.log(mass), abs=1e-12)
    for cuts in oracle.prob:
        probability = given_cuts.log_prob(torch.tensor([cuts])).exp().item()
        assert probability == pytest.approx(kept.get(cuts, 0.0) / mass, abs=1e-12)
    marginals = [sum(p for cuts, p in kept.items() if cuts[gap]) / mass for gap in range(6)]
    torch.testing.assert_close(given_cuts.cut_marginals[0], torch.tensor(marginals, dtype=torch.float64))
    assert max(kept, key=lambda cuts: kept[cuts]) == tuple(given_cuts.map()[0].tolist())
    assert {tuple(cuts.tolist()) for cuts, _ in given_cuts.ranked()} == set(kept)
    draws = given_cuts.sample(200, torch.Generator().manual_seed(0))[:, 0]
    assert draws[:, 1].all() and not draws[:, [0, 4]].any()


def test_requiring_a_cut_weighs_as_its_marginal() -> None:
    edge_logit, alpha = window(30)
    chain = SemiMarkov(edge_logit, alpha)
    rows = SemiMarkov(edge_logit.expand(29, -1), alpha.expand(29, -1)).condition(
        required=torch.eye(29, dtype=torch.bool)
    )
    torch.testing.assert_close((rows.log_evidence - chain.log_evidence).exp(), chain.cut_marginals[0])


# --- samples ----------------------------------------------------------------------------------------------------------


def chi_square_p_value(counts: dict[tuple[bool, ...], int], prob: dict[tuple[bool, ...], float]) -> float:
    """Upper tail of Pearson's statistic, cells expected fewer than 5 times pooled."""
    n = sum(counts.values())
    cells = {True: [0.0, 0.0]}
    table = []
    for cuts, p in prob.items():
        if n * p < 5:
            cells[True][0] += counts.get(cuts, 0)
            cells[True][1] += n * p
        else:
            table.append((counts.get(cuts, 0), n * p))
    if cells[True][1] > 0:
        table.append((int(cells[True][0]), cells[True][1]))
    statistic = sum((observed - expected) ** 2 / expected for observed, expected in table)
    return float(chi2.sf(statistic, len(table) - 1))


@pytest.mark.parametrize("seed", [0, 1])
def test_sample_frequencies(seed: int) -> None:
    edge_logit, alpha = window(8, seed=seed)
    draws = SemiMarkov(edge_logit, alpha).sample(20_000, torch.Generator().manual_seed(seed))[:, 0]
    names, counts = np.unique(draws.numpy(), axis=0, return_counts=True)
    seen = {tuple(name.tolist()): int(count) for name, count in zip(names, counts, strict=True)}
    assert chi_square_p_value(seen, enumerate_window(edge_logit, alpha).prob) > FALSE_ALARM


def test_samples_repeat_with_their_seed_and_only_with_it() -> None:
    chain = SemiMarkov(*window(20))
    draw = [chain.sample(10, torch.Generator().manual_seed(seed)) for seed in (3, 3, 4)]
    assert torch.equal(draw[0], draw[1]) and not torch.equal(draw[0], draw[2])
    before = torch.get_rng_state()
    chain.sample(3, torch.Generator().manual_seed(0))
    assert torch.equal(before, torch.get_rng_state())


# --- k best -----------------------------------------------------------------------------------------------------------


def test_k_best_does_not_depend_on_k() -> None:
    chain = SemiMarkov(*window(40, shift=-1.0))
    long, again = list(islice(chain.ranked(), 300)), list(islice(chain.ranked(), 30))
    assert [tuple(cuts) for cuts, _ in long[:30]] == [tuple(cuts) for cuts, _ in again]
    assert len({tuple(cuts) for cuts, _ in long}) == 300
    log_prob = chain.log_prob(torch.from_numpy(np.stack([cuts for cuts, _ in long]))[:, None])[:, 0]
    assert bool((log_prob.diff() <= 1e-10).all())
    behind = torch.tensor([behind for _, behind in long], dtype=torch.float64)
    torch.testing.assert_close(log_prob - log_prob[0], behind, atol=1e-9, rtol=0)
    draws = chain.sample(2000, torch.Generator().manual_seed(0))
    unlisted = [cuts for cuts in draws[:, 0] if tuple(cuts.tolist()) not in {tuple(c.tolist()) for c, _ in long}]
    assert float(chain.log_prob(torch.stack(unlisted)[:, None]).max()) <= float(log_prob[-1]) + 1e-10


# --- invariances ------------------------------------------------------------------------------------------------------


def test_a_constant_added_to_cut_and_stay_alike_changes_only_the_evidence() -> None:
    """Shifting ell adds as much to the log odds of a cut as an opposite cut bias takes away."""
    edge_logit, alpha = window(12)
    plain = SemiMarkov(edge_logit, alpha)
    shifted = SemiMarkov(edge_logit + 0.8, alpha, cut_bias=torch.full_like(edge_logit, -0.8))
    torch.testing.assert_close(shifted.block_marginals, plain.block_marginals, atol=1e-13, rtol=0)
    assert torch.equal(shifted.map(), plain.map())
    constant = (torch.nn.functional.softplus(edge_logit) - torch.nn.functional.softplus(edge_logit + 0.8)).sum()
    torch.testing.assert_close(shifted.log_evidence - plain.log_evidence, constant[None])


def test_mirrored_windows() -> None:
    """Huge alpha with as large a bias against cuts leaves (n-1)! a block, closed or not: symmetric. The CRP is not."""
    edge_logit, _ = window(9)
    alpha = torch.full_like(edge_logit, 1e14)
    bias = torch.full_like(edge_logit, -math.log(1e14))

    def mirrored(alpha: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
        there = SemiMarkov(edge_logit, alpha, cut_bias=bias).block_marginals[0]
        back = SemiMarkov(edge_logit.flip(-1), alpha, cut_bias=bias).block_marginals[0]
        return there, back.flip(0, 1).mT

    there, back = mirrored(alpha, bias)
    torch.testing.assert_close(there, back, atol=1e-11, rtol=0)
    there, back = mirrored(torch.full_like(edge_logit, 1.5), torch.zeros_like(edge_logit))
    assert float((there - back).abs().max()) > 0.01


# --- large windows ----------------------------------------------------------------------------------------------------

LARGE = """
import resource, torch
from itertools import islice
from dystruct.inference import SemiMarkov
torch.set_num_threads(2)
generator = torch.Generator().manual_seed(0)
edge_logit = torch.randn(1, 4095, dtype=torch.float64, generator=generator) - 1
chain = SemiMarkov(edge_logit, torch.full_like(edge_logit, 1.5))
evidence, best, marginals = chain.log_evidence, chain.map(), chain.cut_marginals
draws = chain.sample(20, generator)
assert bool(evidence.isfinite().all())
assert float(chain.log_prob(best)) >= float(chain.log_prob(draws[0]))
assert [tuple(c) for c, _ in islice(chain.ranked(), 2)][0] == tuple(best[0].tolist())
# 20 draws of about 1,400 cuts: their mean count is within 6 standard deviations (false alarm 1e-8) of the exact one
spread = float((marginals * (1 - marginals)).sum().sqrt()) / 20**0.5
assert abs(float(draws.sum((1, 2)).double().mean() - marginals.sum())) < 6 * spread
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20)
"""


def test_four_thousand_tokens_fit() -> None:
    done = subprocess.run([sys.executable, "-c", LARGE], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) < 1.5  # GiB at the peak, Python and torch included


def test_far_gaps_do_not_underflow() -> None:
    """One certain cut in the middle of 599 gaps that are almost never cut."""
    edge_logit = torch.full((1, 599), -60.0, dtype=torch.float64)
    edge_logit[0, 300] = 60.0
    chain = SemiMarkov(edge_logit, torch.full_like(edge_logit, 1e-3))
    assert chain.map().nonzero().tolist() == [[0, 300]]
    assert chain.cut_marginals[0, 300].item() == pytest.approx(1.0)
    assert chain.block_count[0, 1].item() == pytest.approx(1.0)


# --- arguments --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"edge_logit": torch.zeros(3)}, "edge_logit must have shape"),
        ({"edge_logit": torch.tensor([[0.0, math.nan]])}, "edge_logit may be infinite but not NaN"),
        ({"concentration": torch.ones(1, 3)}, "concentration has shape"),
        ({"concentration": torch.tensor([[1.0, -1.0]])}, "concentration must be finite"),
        ({"concentration": torch.tensor([[1.0, math.inf]])}, "concentration must be finite"),
        ({"concentration": torch.tensor([[1.0, 0.0]], requires_grad=True)}, "concentration must be above 0"),
        ({"cut_bias": torch.tensor([[0.0, math.inf]])}, "cut_bias must be below"),
        ({"lengths": torch.tensor([4])}, "lengths must be 1 integers from 1 to 3"),
        ({"lengths": torch.tensor([0])}, "lengths must be"),
        ({"lengths": [2.9]}, r"lengths must be .*, got \[2\.9"),
        ({"lengths": torch.tensor([math.nan])}, "lengths must be"),
        ({"lengths": 2}, "lengths must be"),
        (
            {"required": torch.ones(1, 2, dtype=torch.bool), "forbidden": torch.ones(1, 2, dtype=torch.bool)},
            "required and forbidden",
        ),
    ],
)
def test_wrong_arguments(arguments: dict[str, Tensor], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SemiMarkov(**{"edge_logit": torch.zeros(1, 2), "concentration": torch.ones(1, 2), **arguments})


@pytest.mark.parametrize("wrong", ["probabilities", "ends", "nan"])
def test_what_are_no_flags_are_no_cuts(wrong: str) -> None:
    edge_logit, alpha = window(6)
    chain = SemiMarkov(edge_logit, alpha)
    cuts = {
        "probabilities": chain.cut_marginals,
        "ends": torch.tensor([[2, 4, 6, 0, 0]]),
        "nan": torch.full((1, 5), math.nan),
    }[wrong]
    for ask in (chain.as_cuts, chain.log_joint, chain.log_prob, chain.condition):
        with pytest.raises(ValueError, match="must be flags, 0 or 1 at each gap"):
            ask(cuts)
    for kind in (torch.bool, torch.int64, torch.float32):
        best = chain.map()
        assert torch.equal(chain.log_prob(best.to(kind)), chain.log_prob(best))


@pytest.mark.parametrize("shape", [(), (5,), (1, 5), (2, 1), (2, 4), (1, 2, 5)])
def test_a_condition_has_the_shape_of_the_gaps(shape: tuple[int, ...]) -> None:
    chain = SemiMarkov(torch.zeros(2, 5), torch.ones(2, 5), torch.tensor([6, 3]))
    for name in ("required", "forbidden"):
        with pytest.raises(ValueError, match=rf"^{name} must have shape \(2, 5\), got"):
            chain.condition(**{name: torch.zeros(shape, dtype=torch.bool)})


def test_lists_keep_every_digit() -> None:
    chain = SemiMarkov([[0.1, 0.2]], [[0.3, 0.7]], cut_bias=[[0.1, 0.9]])  # type: ignore[arg-type]
    assert (chain.edge_logit.tolist(), chain.concentration.tolist()) == ([[0.1, 0.2]], [[0.3, 0.7]])
    assert chain.cut_bias.tolist() == [[0.1, 0.9]]


def test_wrong_questions() -> None:
    with pytest.raises(ValueError, match="must not be below 0, got -1"):
        SemiMarkov(*window(3)).sample(-1, torch.Generator())
    chain = SemiMarkov(torch.zeros(1, 3), torch.ones(1, 3), torch.tensor([2]))
    with pytest.raises(ValueError, match="cuts must have shape"):
        chain.log_prob(torch.zeros(1, 2))
    beyond = torch.tensor([[False, True, False]])
    with pytest.raises(ValueError, match="cuts lie beyond"):
        chain.log_prob(beyond)
    with pytest.raises(ValueError, match="required names a gap beyond"):
        chain.condition(required=beyond)
