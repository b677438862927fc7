"""What a tree draws follows the posterior and the prior, and is scored as they score it.

Statistical tests are seeded; each would fail by chance with probability 1e-6 on a fresh seed.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
import xarray as xr
from scipy import stats

from dystruct.inference.arviz_tree import inference_tree
from dystruct.inference.without_evidence import without_evidence
from dystruct.model import Partition
from trees import PRIOR, full_tree, records, window

FALSE_ALARM = 1e-6


@pytest.fixture(scope="module")
def tree() -> xr.DataTree:
    return full_tree()


@pytest.mark.parametrize("group", ["posterior", "prior"])
def test_structures_follow_their_law(group: str) -> None:
    there = window(6)
    drawn = inference_tree([there], chains=4, draws=500)[group]
    law = {"posterior": there, "prior": without_evidence(there)}[group]
    assert drawn.cuts.dtype == np.int8 and drawn.cuts.shape == (4, 500, 5)
    frequency = drawn.cuts.mean(("chain", "draw")).values
    for share, probability in zip(frequency, law.cut_marginals.tolist(), strict=True):
        assert stats.binomtest(round(share * 2000), 2000, probability).pvalue > FALSE_ALARM / 5
    assert (drawn.block_count.isel(window=0) == drawn.cuts.sum("gap") + 1).all()


def test_turns_number_the_blocks_of_each_draw(tree: xr.DataTree) -> None:
    drawn = tree["posterior"]
    index = tree["exact"].position_window.values
    cut = {(gap, row) for row, gap in enumerate(drawn.gap.values)}
    for chain, draw in ((0, 0), (3, 99), (1, 50)):
        turns, cuts = drawn.turn[chain, draw].values, drawn.cuts[chain, draw].values
        for number in range(3):
            inside = turns[index == number]
            assert sorted(set(inside)) == list(range(1, int(drawn.block_count[chain, draw, number]) + 1))
        for gap, row in cut:  # a block has one turn, neighbours have two
            assert (turns[gap] != turns[gap + 1]) == bool(cuts[row])


def test_draws_are_scored_as_the_posterior_scores_them(tree: xr.DataTree) -> None:
    stats_of, drawn = tree["sample_stats"], tree["posterior"]
    index = tree["exact"].gap_window.values
    for chain, draw in ((0, 0), (2, 7)):
        cuts = drawn.cuts[chain, draw].values
        for number, record in enumerate(records()):
            partition = Partition.from_cuts(cuts[index == number])
            assert stats_of.log_prob[chain, draw, number] == pytest.approx(record.posterior.log_prob(partition))
    joint = stats_of.log_prob.sum("window") + tree["exact"].log_evidence.sum()
    np.testing.assert_allclose(stats_of.lp, joint)


def test_predictive_groups_are_edge_logits_given_the_structures(tree: xr.DataTree) -> None:
    for group in ("posterior", "prior"):
        cuts, replicated = tree[group].cuts, tree[f"{group}_predictive"].edge_logit
        assert replicated.dims == cuts.dims and replicated.shape == (4, 100, 8)
        noise = (replicated - xr.where(cuts == 1, 1.125, -1.125)) / 1.5
        assert stats.kstest(noise.values.ravel(), "norm", method="exact").pvalue > FALSE_ALARM / 2
    mean = xr.where(tree["posterior"].cuts == 1, 1.125, -1.125)
    density = stats.norm.logpdf(tree["observed_data"].edge_logit, mean, 1.5)
    np.testing.assert_allclose(tree["log_likelihood"].edge_logit, density)


def test_a_scale_moves_replicates_by_its_law_to_the_last_digit() -> None:
    """Under one seed cuts and noise are the same for every scale, so that one of them foretells the other."""
    unit, other = (
        inference_tree([replace(window(6), prior=replace(PRIOR, evidence_scale=s))], draws=20) for s in (1.0, 0.3)
    )
    for group in ("posterior", "prior"):
        sign = 2.0 * unit[group].cuts - 1
        assert (unit[group].cuts == other[group].cuts).all()
        noise = unit[f"{group}_predictive"].edge_logit - sign / 2
        expected = sign * 0.3**2 / 2 + 0.3 * noise
        np.testing.assert_allclose(other[f"{group}_predictive"].edge_logit, expected, rtol=0, atol=1e-14)


def test_a_seed_gives_the_same_tree_and_the_global_stream_is_left() -> None:
    state = torch.get_rng_state()
    first, again, other = (inference_tree([window(6)], draws=5, seed=seed) for seed in (1, 1, 2))
    assert first.identical(again) and not (first["posterior"].cuts == other["posterior"].cuts).all()
    assert torch.equal(torch.get_rng_state(), state)
