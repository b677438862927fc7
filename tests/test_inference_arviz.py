"""The tree holds what the posterior says, what was given, and the settings."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch
import xarray as xr
from scipy import stats

from dystruct.decoding import Block, DyStruct, generate
from dystruct.inference import StructurePosterior, posterior
from dystruct.inference.arviz_tree import inference_tree
from dystruct.inference.plots import plot_posterior, plot_ribbon, plot_structures
from dystruct.inference.records import WindowRecord, records_of_trace
from dystruct.inference.without_evidence import without_evidence
from dystruct.model import (
    GAP_FEATURES,
    POSITION_FEATURES,
    Context,
    Diagnostics,
    EvidenceWeights,
    Partition,
    PriorConfig,
    Structure,
)
from oracles import Enumerated
from scripted import backbone, hashed, uneven_weights
from trees import CALIBRATION, LENGTHS, TEXTS, full_tree, hyper, records, window


@pytest.fixture(scope="module")
def tree() -> xr.DataTree:
    return full_tree()


def enumerated(there: StructurePosterior) -> Enumerated:
    ell = there.diagnostics.edge_logit.tolist()
    mean = sum(ell) / max(len(ell), 1)
    return Enumerated(ell, [0.8 * math.exp(there.context.previous_instability + value - mean) for value in ell])


# --- what the tree says


def test_exact_quantities_are_the_posteriors(tree: xr.DataTree) -> None:
    exact = tree["exact"]
    for index, record in enumerate(records()):
        there, oracle = record.posterior, enumerated(record.posterior)
        gaps = exact.gap_window.values == index
        places = exact.position_window.values == index
        assert exact.log_evidence[index] == pytest.approx(oracle.log_evidence)
        assert exact.entropy[index] == pytest.approx(oracle.entropy(), abs=1e-12)
        assert exact.map_log_prob[index] == pytest.approx(oracle.best()[0])
        assert exact.cut_marginals[gaps].values == pytest.approx(oracle.cut_marginals())
        assert exact.expected_block_length[places].values == pytest.approx(oracle.expected_block_length())
        size = there.length
        counts = exact.block_count_probability[index]
        assert counts.sel(block=slice(1, size)).values == pytest.approx(oracle.block_count())
        table = exact.block_marginals[index].values
        assert table[:size, :size] == pytest.approx(np.array(oracle.block_marginals()))
        assert table[size:].sum() == table[:, size:].sum() == counts[size:].sum() == 0
        best = there.map()
        assert tuple(exact.map_cuts[gaps].values) == best.partition.cuts
        assert tuple(exact.consensus_cuts[gaps].values) == there.consensus().partition.cuts
        for turn, block in enumerate(best.order):
            start, end = best.partition.blocks[block]
            assert (exact.map_turn[places][start:end] == turn + 1).all()


def test_prior_quantities_are_those_without_evidence(tree: xr.DataTree) -> None:
    """An edge logit of 0 weighs cut and stay alike; alpha_g keeps the logits that were observed."""
    exact = tree["exact"]
    for index, record in enumerate(records()):
        there = record.posterior
        alpha = there.chain.concentration[0].tolist()
        oracle = Enumerated([0.0] * (there.length - 1), alpha)
        gaps = exact.gap_window.values == index
        assert exact.prior_cut_marginals[gaps].values == pytest.approx(oracle.cut_marginals())
        counts = exact.prior_block_count_probability[index].sel(block=slice(1, there.length))
        assert counts.values == pytest.approx(oracle.block_count())
        assert tree["constant_data"].concentration[gaps].values == pytest.approx(alpha)


def test_the_prior_of_a_conditioned_posterior_meets_its_conditions() -> None:
    there = window(6).condition({1: True, 3: False})
    before = without_evidence(there)
    assert before.cut_marginals[[1, 3]].tolist() == [1, 0]
    assert before.log_evidence == pytest.approx(
        without_evidence(window(6)).log_evidence + math.log(
            sum(p for cuts, p in Enumerated([0.0] * 5, there.chain.concentration[0].tolist()).prob.items()
                if cuts[1] and not cuts[3])
        )
    )  # fmt: skip
    again = without_evidence(before)
    torch.testing.assert_close(again.cut_marginals, before.cut_marginals)
    assert inference_tree([there], draws=4)["constant_data"].condition.values.tolist() == [-1, 1, -1, 0, -1]


def test_the_predictive_density_of_a_gap_leaves_it_out(tree: xr.DataTree) -> None:
    """p(ell) / p(ell without one) by two evidences: where a gap says nothing, its cut and stay weigh 1/2 each."""
    for index, record in enumerate(records()):
        there = record.posterior
        ell, alpha = there.diagnostics.edge_logit.tolist(), there.chain.concentration[0].tolist()
        whole = Enumerated(ell, alpha).log_evidence
        densities = []
        for gap in range(there.length - 1):
            silent = Enumerated([*ell[:gap], 0.0, *ell[gap + 1 :]], alpha).log_evidence
            both = sum(stats.norm.pdf(ell[gap], mean, 1.5) for mean in (1.125, -1.125))
            densities.append(whole - silent - math.log(2) + math.log(both))
        found = tree["exact"].log_predictive
        assert found[found.gap_window == index].values == pytest.approx(densities)


@pytest.mark.parametrize(
    "ell",
    [
        [-1.0, x, -1.0, -1.0, 0.0] for x in (-300.0, -38.0, 0.0, 30.0, 36.0, 38.0, 300.0)
    ] + [[40.0], [-40.0, 40.0], [60.0, 60.0, -60.0, 60.0]],
    ids=str,
)  # fmt: skip
def test_the_predictive_density_keeps_its_digits_where_a_cut_is_certain(ell: list[float]) -> None:
    gaps = len(ell)
    there = posterior(
        Diagnostics([0.5] * (gaps + 1), ell), Context(), PriorConfig(min_length=1), covariate_logit=torch.zeros(gaps)
    )
    alpha = there.chain.concentration[0].tolist()
    whole, scale, densities = Enumerated(ell, alpha).log_evidence, there.prior.evidence_scale, []
    for gap in range(gaps):
        silent = Enumerated([*ell[:gap], 0.0, *ell[gap + 1 :]], alpha).log_evidence
        both = np.logaddexp(*(stats.norm.logpdf(ell[gap], half, scale) for half in (scale**2 / 2, -(scale**2) / 2)))
        densities.append(whole - silent - math.log(2) + both)
    found = inference_tree([there], draws=4)["exact"].log_predictive.values
    assert found == pytest.approx(densities, rel=1e-13, abs=1e-12)


def test_the_predictive_density_of_a_conditioned_window_is_given_its_conditions() -> None:
    """At a gap that is cut, the density is that of a cut; elsewhere all partitions that meet the conditions count."""
    there = window(6).condition({1: True, 3: False})
    ell, alpha = there.diagnostics.edge_logit.tolist(), there.chain.concentration[0].tolist()

    def evidence(logit: list[float]) -> float:
        oracle = Enumerated(logit, alpha)
        met = sum(p for cuts, p in oracle.prob.items() if cuts[1] and not cuts[3])
        return oracle.log_evidence + math.log(met)

    densities = []
    for gap in range(5):
        silent = evidence([*ell[:gap], 0.0, *ell[gap + 1 :]])
        both = sum(stats.norm.pdf(ell[gap], mean, 1.5) for mean in (1.125, -1.125))
        densities.append(evidence(ell) - silent - math.log(2) + math.log(both))
    found = inference_tree([there], draws=4)["exact"].log_predictive.values
    assert found == pytest.approx(densities, rel=1e-12)


def test_windows_and_constant_data_are_what_was_given(tree: xr.DataTree) -> None:
    windows, given = tree["windows"], tree["constant_data"]
    assert windows.start.values.tolist() == [0, 6, 7] and windows.length.values.tolist() == [6, 1, 4]
    assert windows.rate.values == pytest.approx([1 + (1 - 0.1 * length) * 7 for length in LENGTHS])
    assert windows.remaining.values.tolist() == [20, 20, 20]
    for index, record in enumerate(records()):
        there = record.posterior
        gaps, places = given.gap_window.values == index, given.position_window.values == index
        assert given.instability[places].values == pytest.approx(there.diagnostics.instability.numpy())
        assert given.position_features[places].values == pytest.approx(there.diagnostics.position_features.numpy())
        assert given.gap_features[gaps].values == pytest.approx(there.diagnostics.gap_features.numpy())
        assert tree["observed_data"].edge_logit[gaps].values == pytest.approx(there.diagnostics.edge_logit.numpy())
        assert tuple(windows.decoded_cuts[gaps].values) == record.decoded.partition.cuts
        lengths = windows.length_posterior[index]
        assert lengths.sel(window_length=record.length.lengths.numpy()).values == pytest.approx(
            record.length.probability.numpy()
        )
        assert windows.length_prior[index].values == pytest.approx(record.length.prior.numpy())
    weights = EvidenceWeights.neutral()
    assert given.position_weights.values.tolist() == weights.position.tolist()
    assert given.gap_weights.values.tolist() == weights.gap.tolist() and given.gap_intercept == weights.gap_intercept
    assert given.position_feature.values.tolist() == list(POSITION_FEATURES)
    assert given.gap_feature.values.tolist() == list(GAP_FEATURES)


def test_coordinates_carry_token_texts(tree: xr.DataTree) -> None:
    exact = tree["exact"]
    shown = [text.replace("\0", "␀").replace("\ud800", "?") for text in TEXTS]
    assert exact.token.values.tolist() == shown
    starts = {0, 6, 7}
    assert exact.gap.values.tolist() == [p for p in range(10) if p + 1 not in starts]
    inner = [(left, right) for p, (left, right) in enumerate(pairwise(shown)) if p + 1 not in starts]
    assert list(zip(exact.left_token.values, exact.right_token.values, strict=True)) == inner
    assert exact.cut_marginals.sel(gap=8).left_token == " "
    assert all("token" not in group.coords for name, group in tree.children.items() if "draw" in group.dims)


def test_attributes_hold_the_settings(tree: xr.DataTree) -> None:
    assert tree.attrs["prior_concentration"] == 0.8 and tree.attrs["prior_anchoring"] == "static"
    assert tree.attrs["seed"] == 3 and tree.attrs["created_by"].startswith("dystruct ")
    assert json.loads(tree.attrs["settings"]) == {"decoder": "DyStruct", "budget": 256, "weights": None}
    assert tree["exact"].entropy.attrs["description"].endswith("nats")
    undescribed = {
        name for group in ("windows", "exact", "posterior", "sample_stats", "observed_data", "posterior_predictive")
        for name, values in tree[group].data_vars.items() if "description" not in values.attrs
    }  # fmt: skip
    assert undescribed == set()


def test_calibration_and_hyperparameters_have_groups(tree: xr.DataTree) -> None:
    ranks, chains = tree["calibration"], tree["hyperparameters"]
    assert ranks["rank"].sel(statistic="two").values == pytest.approx(CALIBRATION.ranks["two"])
    assert ranks.p_value.sel(statistic="one") == pytest.approx(CALIBRATION.p_values["one"])
    assert ranks.attrs == {"draws": 99, "double_use": 1}
    assert chains.concentration.values == pytest.approx(hyper().draws["concentration"].numpy())
    assert chains.gap_weights.dims == ("chain", "draw", "gap_feature") and chains.gap_weights.shape == (2, 20, 4)
    assert json.loads(chains.attrs["divergences"]) == [0, 3]
    assert not {"calibration", "hyperparameters"} & set(inference_tree([window(3)], draws=4).children)


# --- windows of a decoding


def test_windows_of_a_trace_have_the_posterior_that_decoded_them() -> None:
    prior = PriorConfig(4, 12, concentration=0.7)
    model = backbone(hashed(8, end_logit=-1.0), weights=uneven_weights())
    found = generate(model, ["abc"], DyStruct(structure="sample", prior=prior), max_new_tokens=24, budget=99)[0]
    traced = records_of_trace(found.windows, found.token_texts, prior, max_new_tokens=24)
    assert len(traced) == len(found.windows) > 1
    for record, told in zip(traced, found.windows, strict=True):
        assert record.posterior.cut_marginals.tolist() == pytest.approx(told.structure.cut_marginals)
        assert record.posterior.entropy == pytest.approx(told.structure.entropy)
        assert record.posterior.log_prob(record.decoded.partition) == pytest.approx(told.structure.log_probability)
        assert record.decoded.order == told.structure.order
        assert record.posterior.context == Context(told.opened.previous_instability, 24 - told.opened.start)
    for record, told in zip(found.records, found.windows, strict=True):
        assert record.decoded == told.decoded and record.posterior.log_prob(told.decoded) <= 0
        assert torch.equal(record.posterior.cut_marginals, told.posterior.cut_marginals)
        assert len(repr(told.structure)) < 300
        plot_posterior(record.posterior, told.decoded)
    tree = inference_tree(found.records, draws=4)
    assert tree["exact"].token.values.tolist() == [found.token_texts[token] for token in found.tokens]
    assert tree["windows"].start.values.tolist() == [window.opened.start for window in found.windows]
    plain = generate(model, ["abc"], Block(3), max_new_tokens=6)[0]
    with pytest.raises(ValueError, match="window 0 has no structure"):
        records_of_trace(plain.windows, plain.token_texts, prior)
    with pytest.raises(ValueError, match="name no prior"):
        _ = plain.records
    assert plain.windows[0].decoded is None
    for other in (replace(prior, concentration=0.71), PriorConfig()):
        with pytest.raises(ValueError, match="window 0 was decoded under another prior"):
            records_of_trace(found.windows, found.token_texts, other)
    for wrong in (found.windows[0].structure, found.windows[0].structure.ends):
        for take in (traced[0].posterior.log_prob, traced[0].posterior.log_joint):
            with pytest.raises(ValueError, match="must be a Structure or a Partition"):
                take(wrong)
        for draw in (lambda it: plot_posterior(traced[0].posterior, it), lambda it: plot_structures([it]), plot_ribbon):
            with pytest.raises(ValueError, match=r"must be a Structure, got .*its `decoded`"):
                draw(wrong)


def test_every_budget_gives_a_record_of_every_window() -> None:
    """A window that opens with one pass left is not diagnosed: its trace holds no features, and its ell are 0."""
    prior = PriorConfig(4, 12)
    model = backbone(hashed(8, end_logit=-1.0), weights=uneven_weights())
    undiagnosed = 0
    for budget in range(1, 46):
        decoder = DyStruct(structure="sample", prior=prior)
        found = generate(model, ["abc"], decoder, max_new_tokens=48, budget=budget)[0]
        records = found.records
        for record, told in zip(records, found.windows, strict=True):
            known = record.posterior.diagnostics
            assert known.edge_logit.tolist() == list(told.structure.edge_logit)
            for features, rows in (
                (known.position_features, told.structure.position_features),
                (known.gap_features, told.structure.gap_features),
            ):
                assert list(map(list, rows)) == ([] if features is None else features.tolist())
            if known.position_features is None:
                undiagnosed += 1
                assert known.gap_features is None and not known.edge_logit.any()
                assert record is records[-1]
    assert undiagnosed > 1


def test_what_one_window_lacks_is_left_out_for_all() -> None:
    with_all = WindowRecord(window(3), tokens=["a", "b", "c"], decoded=window(3).map())
    tree = inference_tree([with_all, window(4, features=False)], draws=4)
    assert "token" not in tree["exact"].coords and "decoded_cuts" not in tree["windows"]
    assert not {"position_features", "gap_features"} & set(tree["constant_data"].data_vars)
    assert tree["exact"].cut_marginals.shape == (5,)


# --- errors


def test_errors_name_the_remedy() -> None:
    with pytest.raises(ValueError, match="windows is empty"):
        inference_tree([])
    with pytest.raises(ValueError, match="draws 4"):
        inference_tree([window(3)], draws=3)
    with pytest.raises(ValueError, match="share one prior"):
        inference_tree([window(3), StructurePosterior(window(3).diagnostics, Context(), PriorConfig())])
    with pytest.raises(ValueError, match="window 1 starts at 2"):
        inference_tree([window(3), WindowRecord(window(3), start=2)])
    with pytest.raises(ValueError, match="JSON can write"):
        inference_tree([window(3)], draws=4, settings={"a": object()})
    with pytest.raises(ValueError, match="tokens has 2 tokens, the window 3"):
        WindowRecord(window(3), tokens=["a", "b"])
    with pytest.raises(ValueError, match="decoded has 4 tokens"):
        WindowRecord(window(3), decoded=Structure(Partition((4,)), (0,)))
