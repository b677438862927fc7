"""Windows and what is inferred of them as one `xarray.DataTree`, for ArviZ and for files.

Windows stand behind one another, as in the response. A window of L tokens adds L to the dimension `position`, L-1 to
`gap` and 1 to `window`; only tables over blocks are padded, with the probability 0 that they have there.

    windows                where each window stands, the law of its length, the structure that it was decoded with
    constant_data          what inference takes as given: instability, alpha_g and its covariate, features, weights
    observed_data          edge logits
    exact                  what the recursion knows without drawing, of the posterior and of the prior
    posterior, prior       structures drawn
    posterior_predictive, prior_predictive    edge logits drawn given those structures
    log_likelihood         log density of each edge logit given a structure of the posterior
    sample_stats           log probabilities of the structures
    calibration            ranks of simulation-based calibration
    hyperparameters        chains of NUTS; the attribute `divergences` counts each one's, as JSON

Structures are drawn independently and dealt into chains: their r-hat and effective sample size check arithmetic, those
of `hyperparameters` convergence. Given a cut or a stay a log likelihood takes two values, to which the Pareto smoothing
of ArviZ's `loo` fits no tail; the leave-one-out densities that it estimates are in `exact`, as `log_predictive`.

`position` counts through the response, `gap` by the position on its left. Token texts are coordinates of all groups but
those of draws. Cuts are int8, for ArviZ 1.x summarises no booleans. Knows nothing of language models.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
import xarray as xr

from dystruct.model import GAP_FEATURES, POSITION_FEATURES, EvidenceWeights

from .checks import RankCalibration
from .hyper import HyperPosterior
from .posterior import StructurePosterior
from .records import WindowRecord
from .window_arrays import DRAW, GAP, POSITION, WINDOW, Variables, window_arrays

FIRST = {
    "chain": 0,
    "draw": 0,
    "block": 1,
    "block_start": 0,
    "block_end": 1,
    "window_length": 1,
}  # they count from here
RAGGED = ("position", "gap", "window")  # dimensions along which windows stand behind one another
DESCRIPTIONS = {
    "start": "response position of the window's first token",
    "length": "tokens in the window, L",
    "previous_instability": "mean instability of the window before, hbar",
    "remaining": "tokens left of N_max when the window opened; infinite: no limit",
    "rate": "mean of the Poisson law that is clipped to give L, mu, tokens",
    "length_prior": "probability of a window of so many tokens by its law",
    "length_posterior": "probability of a window of so many tokens given the edge logits of a longest one",
    "decoded_cuts": "cuts of the structure that the window was decoded with",
    "decoded_turn": "turn at which the position's block was decoded, 1 for the first of the window",
    "instability": "h, instability within the window",
    "concentration": "alpha_g, concentration of the cuts' prior",
    "covariate_logit": "the ell of alpha_g, nats",
    "condition": "1: a cut was required, 0: it was excluded, -1: neither",
    "edge_logit": "ell, log odds of a cut by the evidence alone, nats",
    "log_evidence": "log of the sum over partitions of prior times evidence, nats",
    "entropy": "entropy of the posterior over partitions, nats",
    "cut_marginals": "posterior probability of a cut",
    "log_predictive": "log density of the gap's edge logit given all others, nats: exact leave-one-out",
    "prior_cut_marginals": "prior probability of a cut",
    "expected_block_length": "posterior expected length of the position's block, tokens",
    "block_marginals": "posterior probability that [block_start, block_end) of the window is a block",
    "block_count_probability": "posterior probability of so many blocks",
    "prior_block_count_probability": "prior probability of so many blocks",
    "map_cuts": "cuts of the most probable partition",
    "map_turn": "turn of the position's block in the mode of its order law, given the most probable partition",
    "map_log_prob": "posterior log probability of the most probable partition, nats",
    "consensus_cuts": "cuts of the partition of least posterior expected Hamming loss",
    "cuts": "1 where a block ends at the gap, else 0",
    "turn": "turn at which the position's block is decoded, 1 for the first of the window",
    "block_count": "blocks in the window",
    "lp": "log of prior times evidence of the partitions, summed over windows, nats",
    "log_prob": "posterior log probability of the window's partition, its order summed out, nats",
    "rank": "rank of the truth among posterior draws, uniform on (0, 1) if calibrated",
    "p_value": "of a test that the ranks are uniform",
}


def inference_tree(
    windows: Sequence[WindowRecord | StructurePosterior],
    *,
    chains: int = 4,
    draws: int = 250,
    seed: int = 0,
    weights: EvidenceWeights | None = None,
    calibration: RankCalibration | None = None,
    hyper: HyperPosterior | None = None,
    settings: Mapping[str, Any] | None = None,
) -> xr.DataTree:
    """One tree of the windows of a response, with `chains` times `draws` structures drawn for each from `seed`.

    weights: those that turned features into evidence. calibration, hyper: groups of their own. settings: whatever JSON
    can write, kept as text in the root's attribute `settings`. What some windows lack (tokens, features, decoded
    structures, length posteriors) is left out for all. Raises ValueError if there is no window, fewer than 1 chain or 4
    draws, priors that differ, windows that overlap, or settings that JSON cannot write.
    """
    records = [window if isinstance(window, WindowRecord) else WindowRecord(window) for window in windows]
    if not records:
        raise ValueError("windows is empty: give at least one window's posterior.")
    if chains < 1 or draws < 4:
        raise ValueError(f"chains must be at least 1 and draws 4, got {chains} and {draws}.")
    prior = records[0].posterior.prior
    if any(record.posterior.prior != prior for record in records):
        raise ValueError("windows must share one prior: make a tree for each.")
    spans = _spans(records)
    coordinates = _coordinates(records, spans)
    generator = torch.Generator().manual_seed(seed)
    shape = (chains, draws)

    parts: dict[str, list[Variables]] = {}
    for record, (start, _) in zip(records, spans, strict=True):
        for group, variables in window_arrays(record, start, shape, generator).items():
            parts.setdefault(group, []).append(variables)
    groups = {group: _joined(rows, coordinates) for group, rows in parts.items()}
    groups["sample_stats"]["lp"] = groups["sample_stats"]["lp"].sum("window")
    if weights is not None:
        groups["constant_data"] = groups["constant_data"].assign(
            position_weights=("position_feature", weights.position.numpy()),
            position_intercept=weights.position_intercept,
            gap_weights=("gap_feature", weights.gap.numpy()),
            gap_intercept=weights.gap_intercept,
        )
        names = {name: coordinates[name] for name in ("position_feature", "gap_feature")}
        groups["constant_data"] = groups["constant_data"].assign_coords(names)
    if calibration is not None:
        groups["calibration"] = _calibration(calibration)
    if hyper is not None:
        groups["hyperparameters"] = _hyperparameters(hyper)

    for dataset in groups.values():
        for name, variable in dataset.data_vars.items():
            if name in DESCRIPTIONS:
                variable.attrs["description"] = DESCRIPTIONS[str(name)]
    tree = xr.DataTree.from_dict(groups)
    tree.attrs = {
        "created_by": f"dystruct {version('dystruct')}",
        "seed": seed,
        **{f"prior_{name}": value for name, value in asdict(prior).items()},
        "settings": _as_json(settings or {}),
    }
    return tree


def _spans(records: Sequence[WindowRecord]) -> list[tuple[int, int]]:
    """Each window's half-open span of response positions."""
    spans: list[tuple[int, int]] = []
    behind = 0
    for index, record in enumerate(records):
        start = behind if record.start is None else record.start
        if start < behind:
            raise ValueError(f"window {index} starts at {start}, inside or before the one that ends at {behind}.")
        behind = start + record.posterior.length
        spans.append((start, behind))
    return spans


Coordinates = dict[str, tuple[tuple[str, ...], Any]]


def _coordinates(records: Sequence[WindowRecord], spans: Sequence[tuple[int, int]]) -> Coordinates:
    position = np.concatenate([np.arange(*span) for span in spans])
    inner = np.concatenate([np.arange(start, end - 1) for start, end in spans])
    sizes = [end - start for start, end in spans]
    index = np.arange(len(records))
    coordinates: Coordinates = {
        "window": (WINDOW, index),
        "position": (POSITION, position),
        "position_window": (POSITION, np.repeat(index, sizes)),
        "gap": (GAP, inner),
        "gap_window": (GAP, np.repeat(index, np.array(sizes) - 1)),
        "position_feature": (("position_feature",), np.array(POSITION_FEATURES)),
        "gap_feature": (("gap_feature",), np.array(GAP_FEATURES)),
    }
    if all(record.tokens is not None for record in records):
        texts = [[_storable(text) for text in record.tokens or ()] for record in records]
        coordinates["token"] = (POSITION, np.array([text for row in texts for text in row], dtype=str))
        coordinates["left_token"] = (GAP, np.array([text for row in texts for text in row[:-1]], dtype=str))
        coordinates["right_token"] = (GAP, np.array([text for row in texts for text in row[1:]], dtype=str))
    return coordinates


def _storable(text: str) -> str:
    """A token's text with a sign for what netCDF's strings cannot hold: NUL, at which they end, and lone surrogates."""
    return text.replace("\0", "␀").encode("utf-8", "replace").decode("utf-8")


def _joined(parts: Sequence[Variables], coordinates: Coordinates) -> xr.Dataset:
    """The variables that all windows have, behind one another, tables over blocks filled up with zeros."""
    variables: Variables = {}
    for name in parts[0]:
        if any(name not in part for part in parts):
            continue
        dims = parts[0][name][0]
        axis = next(i for i, dim in enumerate(dims) if dim in RAGGED)
        arrays = [part[name][1] for part in parts]
        largest = np.max([array.shape for array in arrays], axis=0)
        largest[axis] = 0
        arrays = [np.pad(a, [(0, max(0, n - m)) for n, m in zip(largest, a.shape, strict=True)]) for a in arrays]
        variables[name] = (dims, np.concatenate(arrays, axis=axis))
    dataset = xr.Dataset(variables)
    # ArviZ 1.x stacks variables of unlike dimensions, which only works for coordinates that are dimensions
    known = {
        name: value
        for name, value in coordinates.items()
        if set(value[0]) <= set(dataset.dims) and (name in dataset.dims or "draw" not in dataset.dims)
    }
    for name, first in FIRST.items():
        if name in dataset.dims:
            known[name] = ((name,), first + np.arange(dataset.sizes[name]))
    return dataset.assign_coords(known)


def _calibration(calibration: RankCalibration) -> xr.Dataset:
    names = list(calibration.ranks)
    return xr.Dataset(
        {
            "rank": (("statistic", "replication"), np.stack([calibration.ranks[name] for name in names])),
            "p_value": (("statistic",), np.array([calibration.p_values[name] for name in names])),
        },
        coords={"statistic": names, "replication": np.arange(len(calibration.ranks[names[0]]))},
        attrs={"draws": calibration.draws, "double_use": int(calibration.double_use)},
    )


def _hyperparameters(hyper: HyperPosterior) -> xr.Dataset:
    variables: Variables = {
        name: ((*DRAW, "gap_feature") if name == "gap_weights" else DRAW, values.detach().numpy())
        for name, values in hyper.draws.items()
    }
    # an attribute, for ArviZ summarises a group only if all its variables were drawn; a text, for netCDF makes a number
    # of a list of one
    dataset = xr.Dataset(variables, attrs={"divergences": json.dumps(hyper.divergences)})
    known = {"gap_feature": np.array(GAP_FEATURES), **{name: np.arange(dataset.sizes[name]) for name in DRAW}}
    return dataset.assign_coords({name: values for name, values in known.items() if name in dataset.dims})


def _as_json(settings: Mapping[str, Any]) -> str:
    try:
        return json.dumps(settings, sort_keys=True, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise ValueError(f"settings must be what JSON can write ({error}): give numbers, texts, lists.") from error


# --- for ArviZ and for files ------------------------------------------------------------------------------------------


def for_arviz(tree: xr.DataTree) -> Any:
    """What the installed ArviZ takes: the tree itself from 1.0 on, an `InferenceData` of its groups before."""
    import arviz  # it takes a second to import, and building a tree does not need it

    convert = getattr(arviz, "from_datatree", None)
    return tree if convert is None else convert(tree)


def save_tree(tree: xr.DataTree, path: str | os.PathLike[str]) -> None:
    """Write a tree as netCDF (.nc) or zarr (.zarr); what stands there is replaced only when all is written.

    Raises ValueError for another ending, ModuleNotFoundError if what writes the format is not installed.
    """
    target = Path(path)
    engine = _engine(target)
    partial = target.with_name(target.name + ".partial")
    try:
        if engine == "zarr":
            tree.to_zarr(partial, mode="w", zarr_format=2)  # format 3 has no settled strings
            if target.is_dir():
                shutil.rmtree(target)
        else:
            tree.to_netcdf(partial, engine=engine)
        os.replace(partial, target)
    finally:
        if partial.is_dir():
            shutil.rmtree(partial)
        else:
            partial.unlink(missing_ok=True)


def load_tree(path: str | os.PathLike[str]) -> xr.DataTree:
    """Read what `save_tree` wrote, into memory. Raises as `save_tree` does, and OSError where there is nothing."""
    source = Path(path)
    with xr.open_datatree(source, engine=_engine(source)) as tree:
        return tree.load()


def _engine(path: Path) -> Literal["h5netcdf", "zarr"]:
    engines: dict[str, Literal["h5netcdf", "zarr"]] = {".nc": "h5netcdf", ".zarr": "zarr"}
    engine = engines.get(path.suffix)
    if engine is None:
        raise ValueError(f"{str(path)!r} must end in .nc (netCDF) or .zarr.")
    if importlib.util.find_spec(engine) is None:
        raise ModuleNotFoundError(f"{engine} is not installed: pip install 'dystruct[storage]'.")
    return engine
