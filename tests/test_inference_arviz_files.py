"""A tree comes back from files as it was, and either ArviZ takes it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import arviz
import numpy as np
import pytest
import torch
import xarray as xr

from dystruct.inference.arviz_tree import for_arviz, inference_tree, load_tree, save_tree
from dystruct.inference.hyper import HyperPosterior
from trees import full_tree, hyper, window


@pytest.fixture(scope="module")
def tree() -> xr.DataTree:
    return full_tree()


@pytest.fixture(scope="module")
def varied() -> xr.DataTree:
    """A tree without a constant: of one ArviZ computes 0 / 0, as of the number of blocks of a window of one token."""
    return inference_tree([window(6), window(4)], draws=100, hyper=hyper())


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


def test_errors_of_files_name_the_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match=r"must end in \.nc"):
        save_tree(inference_tree([window(3)], draws=4), tmp_path / "tree.json")
    with pytest.raises(FileNotFoundError):
        load_tree(tmp_path / "nothing.nc")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ModuleNotFoundError, match=r"dystruct\[storage\]"):
        load_tree(tmp_path / "tree.zarr")
