"""The tree holds what the posterior says, comes back from files as it was, and either ArviZ takes it.

Statistical tests are seeded; each would fail by chance with probability 1e-6 on a fresh seed.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
from itertools import pairwise
from pathlib import Path

import arviz
import numpy as np
import pytest
import torch
import xarray as xr
from scipy import stats

from dystruct.decoding import Block, DyStruct, generate
from dystruct.inference import StructurePosterior, posterior
from dystruct.inference.arviz_tree import for_arviz, inference_tree, load_tree, save_tree
from dystruct.inference.checks import RankCalibration
from dystruct.inference.hyper import HyperPosterior
from dystruct.inference.length import length_posterior
from dystruct.inference.records import WindowRecord, records_of_trace
from dystruct.inference.without_evidence import without_evidence
from dystruct.model import Context, Diagnostics, EvidenceWeights, Partition, PriorConfig, Structure
from oracles import Enumerated
from scripted import backbone, hashed, uneven_weights

FALSE_ALARM = 1e-6
PRIOR = PriorConfig(min_length=1, max_length=8, concentration=0.8, evidence_scale=1.5)
LENGTHS = (6, 1, 4)
TEXTS = ["A", " b", "\n", "c\0d", "\ud800", "é中", "$x$", "", " ", "\t", "end"]


def window(length: int, context: Context = Context(0.3), features: bool = True) -> StructurePosterior:  # noqa: B008
    generator = torch.Generator().manual_seed(length)
    ell = torch.randn(length - 1, dtype=torch.float64, generator=generator)
    h, phi, psi = (torch.rand(shape, generator=generator) for shape in ((length,), (length, 7), (length - 1, 4)))
    return posterior(Diagnostics(h, ell, phi if features else None, psi if features else None), context, PRIOR)


def records() -> list[WindowRecord]:
    texts = iter(TEXTS)
    found = []
    for length in LENGTHS:
        there = window(length, Context(0.1 * length, 20))
        longest = window(8, Context(0.1 * length, 20)).diagnostics
        law = length_posterior(longest, there.context, PRIOR)
        found.append(
            WindowRecord(there, tokens=[next(texts) for _ in range(length)], decoded=there.sample(1, 5)[0], length=law)
        )
    return found


def hyper() -> HyperPosterior:
    generator = torch.Generator().manual_seed(0)
    draws = {
        "concentration": torch.rand(2, 20, generator=generator, dtype=torch.float64),
        "gap_weights": torch.rand(2, 20, 4, generator=generator, dtype=torch.float64),
    }
    return HyperPosterior(draws, (0, 3))


CALIBRATION = RankCalibration({"one": np.linspace(0.1, 0.9, 7), "two": np.linspace(0.2, 0.3, 7)}, 99, True)


@pytest.fixture(scope="module")
def tree() -> xr.DataTree:
    return inference_tree(
        records(), draws=100, seed=3, weights=EvidenceWeights.neutral(), calibration=CALIBRATION, hyper=hyper(),
        settings={"decoder": "DyStruct", "budget": 256, "weights": None},
    )  # fmt: skip


@pytest.fixture(scope="module")
def varied() -> xr.DataTree:
    """A tree without a constant: of one ArviZ computes 0 / 0, as of the number of blocks of a window of one token."""
    return inference_tree([window(6), window(4)], draws=100, hyper=hyper())


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
    assert given.position_weights.sel(position_feature="entropy") == 1
    assert given.gap_weights.sel(gap_feature="divergence") == 2 and given.gap_intercept == -2


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


# --- what is drawn


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


def test_a_seed_gives_the_same_tree_and_the_global_stream_is_left() -> None:
    state = torch.get_rng_state()
    first, again, other = (inference_tree([window(6)], draws=5, seed=seed) for seed in (1, 1, 2))
    assert first.identical(again) and not (first["posterior"].cuts == other["posterior"].cuts).all()
    assert torch.equal(torch.get_rng_state(), state)


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
    tree = inference_tree(traced, draws=4)
    assert tree["exact"].token.values.tolist() == [found.token_texts[token] for token in found.tokens]
    assert tree["windows"].start.values.tolist() == [window.opened.start for window in found.windows]
    plain = generate(model, ["abc"], Block(3), max_new_tokens=6)[0]
    with pytest.raises(ValueError, match="window 0 has no structure"):
        records_of_trace(plain.windows, plain.token_texts, prior)


def test_what_one_window_lacks_is_left_out_for_all() -> None:
    with_all = WindowRecord(window(3), tokens=["a", "b", "c"], decoded=window(3).map())
    tree = inference_tree([with_all, window(4, features=False)], draws=4)
    assert "token" not in tree["exact"].coords and "decoded_cuts" not in tree["windows"]
    assert not {"position_features", "gap_features"} & set(tree["constant_data"].data_vars)
    assert tree["exact"].cut_marginals.shape == (5,)


# --- files


@pytest.mark.parametrize("ending", [".nc", ".zarr"])
def test_what_is_saved_loads_identical(tree: xr.DataTree, tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"tree{ending}"
    smallest = inference_tree([window(1)], draws=4, hyper=HyperPosterior({"concentration": torch.ones(1, 4)}, (2,)))
    save_tree(smallest, path)
    assert load_tree(path).identical(smallest) and smallest["exact"].cut_marginals.shape == (0,)
    save_tree(tree, path)
    loaded = load_tree(path)
    assert loaded.identical(tree)
    assert loaded["posterior"].cuts.dtype == np.int8
    assert [child.name for child in tmp_path.iterdir()] == [path.name], "nothing but the file is left"


@pytest.mark.parametrize("ending", [".nc", ".zarr"])
def test_saving_replaces_only_when_all_is_written(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"tree{ending}"
    small = inference_tree([window(2)], draws=4)
    save_tree(small, path)
    broken = small.copy()
    broken["exact"].attrs["unwritable"] = object()
    with pytest.raises(TypeError):
        save_tree(broken, path)
    assert load_tree(path).identical(small)
    assert [child.name for child in tmp_path.iterdir()] == [path.name]


# --- ArviZ


def test_the_installed_arviz_takes_the_tree(varied: xr.DataTree) -> None:
    data = for_arviz(varied)
    interval = {"hdi_prob": 0.9} if hasattr(arviz, "from_datatree") else {"ci_prob": 0.9}
    rows = arviz.summary(data, var_names=["cuts", "block_count", "turn"], round_to="none", **interval)
    assert list(rows.index[:2]) == ["cuts[0]", "cuts[1]"] and len(rows) == 8 + 2 + 10
    means = varied["posterior"].cuts.mean(("chain", "draw")).values
    assert rows["mean"].to_numpy()[:8].astype(float) == pytest.approx(means)
    assert "gap_weights[divergence]" in arviz.summary(data, group="hyperparameters", **interval).index
    assert len(arviz.summary(data, group="prior", var_names=["cuts"], **interval)) == 8
    assert arviz.rhat(data, var_names=["block_count"]).block_count.sizes == {"window": 2}


@pytest.mark.skipif(not hasattr(arviz, "waic"), reason="ArviZ 1.x has no waic")
def test_waic_comes_near_exact_leave_one_out() -> None:
    tree = inference_tree([window(8), window(7)], draws=500)
    estimate = arviz.waic(for_arviz(tree))
    assert abs(estimate.elpd_waic - float(tree["exact"].log_predictive.sum())) < estimate.p_waic / 2


IN_ARVIZ_1 = """
import importlib.util, sys
import arviz, numpy, xarray
assert importlib.util.find_spec("torch") is None and arviz.__version__.startswith("1."), arviz.__version__
tree = xarray.open_datatree(sys.argv[1], engine="h5netcdf").load()
assert xarray.open_datatree(sys.argv[2], engine="zarr").load().identical(tree)
assert arviz.convert_to_datatree(tree) is tree
drawn, interval = tree["posterior"], {"ci_kind": "hdi", "ci_prob": 0.9}
rows = arviz.summary(tree, var_names=["cuts", "block_count", "turn"], round_to="none", **interval)
numpy.testing.assert_allclose(rows["mean"].astype(float)[:8], drawn.cuts.mean(("chain", "draw")))
assert list(rows.index[:2]) == ["cuts[0]", "cuts[1]"] and len(rows) == 8 + 2 + 10
assert "gap_weights[divergence]" in arviz.summary(tree, group="hyperparameters", **interval).index
assert len(arviz.summary(tree, group="prior", var_names=["cuts"], **interval)) == 8
assert arviz.hdi(tree, var_names="block_count", prob=0.9).block_count.sizes == {"window": 2, "ci_bound": 2}
weights = -tree["log_likelihood"].edge_logit  # importance ratios have two values: nothing to smooth
weights = weights - numpy.log(numpy.exp(weights).sum(("chain", "draw")))
estimate = arviz.loo(tree, log_weights=weights, pareto_k=0 * weights.isel(chain=0, draw=0, drop=True))
assert abs(estimate.elpd - float(tree["exact"].log_predictive.sum())) < 0.3, estimate.elpd
print("arviz", arviz.__version__)
"""


def newer_python() -> Path | None:
    """A Python on this machine that ArviZ 1.x runs on, other than one whose command is only a stand-in."""
    found = [Path(folder) for folder in os.environ.get("PATH", "").split(os.pathsep) if folder]
    found += sorted((Path.home() / ".pyenv" / "versions").glob("3.1[2-9]*/bin"))
    for candidate in (folder / f"python3.{minor}" for minor in range(12, 20) for folder in found):
        works = [candidate, "-c", "import ensurepip, venv"]
        if candidate.exists() and subprocess.run(works, capture_output=True, check=False).returncode == 0:
            return candidate
    return None


@pytest.mark.skipif("DYSTRUCT_SLOW" not in os.environ, reason="installs ArviZ 1.x, a minute: set DYSTRUCT_SLOW=1")
def test_arviz_1_reads_the_same_tree_without_torch(varied: xr.DataTree, tmp_path: Path) -> None:
    python = newer_python()
    if python is None:
        pytest.skip("there is no Python 3.12 or newer on this machine, which ArviZ 1.x needs")
    subprocess.run([python, "-m", "venv", tmp_path / "venv"], check=True)
    inside = tmp_path / "venv" / "bin" / "python"
    constraints = Path(__file__).parent.parent / "constraints.txt"
    packages = ["arviz>=1.1,<2", "h5netcdf[h5py]", "zarr"]
    subprocess.run(
        [inside, "-m", "pip", "install", "-q", "-q", "--no-compile", "-c", constraints, *packages], check=True
    )
    files = [tmp_path / "tree.nc", tmp_path / "tree.zarr"]
    for file in files:
        save_tree(varied, file)
    run = subprocess.run([inside, "-W", "error", "-c", IN_ARVIZ_1, *files], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    assert run.stdout.startswith("arviz 1.")


def test_arviz_1_is_handed_the_tree_itself(tree: xr.DataTree, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(arviz, "from_datatree", raising=False)
    assert for_arviz(tree) is tree


# --- errors


def test_errors_name_the_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
    with pytest.raises(ValueError, match=r"must end in \.nc"):
        save_tree(inference_tree([window(3)], draws=4), tmp_path / "tree.json")
    with pytest.raises(FileNotFoundError):
        load_tree(tmp_path / "nothing.nc")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ModuleNotFoundError, match=r"dystruct\[storage\]"):
        load_tree(tmp_path / "tree.zarr")
