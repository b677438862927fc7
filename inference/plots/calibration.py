"""Whether probabilities can be taken at their word: reliability, fitted weights, ranks, replicated statistics."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.container import ErrorbarContainer
from numpy.typing import ArrayLike
from scipy.stats import beta, binom

from .style import BLUE, DARK, axes, legend_above, series_style

RANK_BINS = 20
BAND = 0.99  # of all bins of a rank histogram together
INTERVAL = 0.9  # of the frequency in a bin of a reliability diagram


def plot_reliability(
    probability: ArrayLike,
    outcome: ArrayLike,
    *,
    bins: int = 10,
    label: str | None = None,
    ax: Axes | None = None,
) -> Axes:
    """How often what was given a probability (n,) came true, outcome (n,) being 0 or 1, in bins of equal width.

    The bars are 90% intervals of the frequency (Jeffreys); the legend holds the expected calibration error, the mean
    distance from the diagonal. A second call on the same axes adds another series. Raises ValueError on shapes or
    values outside these.
    """
    p, hit = np.asarray(probability, dtype=float), np.asarray(outcome, dtype=float)
    if p.ndim != 1 or p.shape != hit.shape or not len(p):
        raise ValueError(f"probability and outcome must be rows of one length, got {p.shape} and {hit.shape}.")
    if ((p < 0) | (p > 1)).any() or not np.isin(hit, (0, 1)).all() or bins < 1:
        raise ValueError("probability must lie in [0, 1], outcome be 0 or 1, and bins at least 1.")
    ax = axes(ax, 4.4, 4.2)
    before = sum(isinstance(container, ErrorbarContainer) for container in ax.containers)
    bin_of = np.minimum((p * bins).astype(int), bins - 1)
    count = np.bincount(bin_of, minlength=bins)
    filled = count > 0
    n, hits = count[filled], np.bincount(bin_of, hit, minlength=bins)[filled]
    mean, frequency = np.bincount(bin_of, p, minlength=bins)[filled] / n, hits / n
    low, high = (beta.ppf(q, hits + 0.5, n - hits + 0.5) for q in ((1 - INTERVAL) / 2, (1 + INTERVAL) / 2))
    error = float(np.abs(mean - frequency) @ n / n.sum())
    colour, marker = series_style(before)
    if not before:
        ax.plot([0, 1], [0, 1], color="0.6", linestyle="--", linewidth=1, label="calibrated", zorder=0)
    spread = np.clip([frequency - low, high - frequency], 0, None)  # a frequency of 0 or 1 lies outside its interval
    ax.errorbar(
        mean, frequency, spread, color=colour, marker=marker, markersize=6, linewidth=1.2, capsize=2,
        linestyle=("-", "--", "-.", ":")[before % 4], label=f"{label or 'observed'} (n = {len(p)}, ECE {error:.3f})",
    )  # fmt: skip
    ax.set_xlim(-0.02, 1.02)
    ax.set_ylim(-0.02, 1.02)
    ax.set_aspect("equal")
    ax.set_xlabel("probability given")
    ax.set_ylabel("frequency observed")
    ax.spines[["top", "right"]].set_visible(False)
    ax.legend(frameon=False, fontsize=9, loc="upper left")
    return ax


def plot_weights(
    names: Sequence[str], values: ArrayLike, interval: ArrayLike | None = None, *, ax: Axes | None = None
) -> Axes:
    """Weights (F,) of the features `names` as points, first on top, with intervals (F, 2) as bars.

    Raises ValueError where numbers differ.
    """
    weights = np.asarray(values, dtype=float)
    bars = None if interval is None else np.asarray(interval, dtype=float)
    if weights.shape != (len(names),) or (bars is not None and bars.shape != (len(names), 2)):
        raise ValueError(f"values must have shape ({len(names)},) and interval ({len(names)}, 2), one row a name.")
    ax = axes(ax, 5.0, 0.8 + 0.3 * len(names))
    row = np.arange(len(names))
    ax.axvline(0, color="0.6", linewidth=1, zorder=0)
    if bars is not None:
        ax.hlines(row, bars[:, 0], bars[:, 1], color=BLUE, linewidth=2.5)
    ax.plot(weights, row, "o", color="white", markeredgecolor=BLUE, markeredgewidth=1.5)
    ax.set_yticks(row, [name.replace("_", " ") for name in names])
    ax.set_ylim(len(names) - 0.5, -0.5)
    ax.set_xlabel("weight")
    ax.spines[["top", "right"]].set_visible(False)
    return ax


def plot_rank_histogram(rank: ArrayLike, *, ax: Axes | None = None) -> Axes:
    """Ranks (n,) in (0, 1) of the truth among posterior draws.

    Calibrated, all bars end in the grey band with probability at least 0.99. Raises ValueError without a rank.
    """
    ranks = np.asarray(rank, dtype=float)
    if ranks.ndim != 1 or not len(ranks):
        raise ValueError(f"rank must be a row of at least one rank, got shape {ranks.shape}.")
    own, ax = ax is None, axes(ax, 3.8, 2.8)
    tail = (1 - BAND) / RANK_BINS / 2
    low, high = binom.ppf(tail, len(ranks), 1 / RANK_BINS), binom.isf(tail, len(ranks), 1 / RANK_BINS)
    ax.axhspan(low, high, color="0.88", label=f"{BAND:.0%} band of uniform ranks", zorder=0)
    for level, style in ((low, "--"), (len(ranks) / RANK_BINS, "-"), (high, "--")):
        ax.axhline(level, color="black", linewidth=1, linestyle=style, zorder=3)
    ax.hist(ranks, bins=RANK_BINS, range=(0, 1), color=BLUE, edgecolor="white", linewidth=0.5, zorder=2)
    ax.set_xlim(0, 1)
    ax.set_xlabel("rank of the truth")
    ax.set_ylabel(f"windows of {len(ranks)}")
    ax.spines[["top", "right"]].set_visible(False)
    if own:
        legend_above(ax)
    return ax


def plot_replicates(replicated: ArrayLike, observed: ArrayLike, *, ax: Axes | None = None) -> Axes:
    """A statistic of replicated windows (n,), filled, against that of the one observed.

    observed (n,): n times the same number is a line; whole numbers that differ are outlined, as a histogram beside.
    """
    copies, seen = np.asarray(replicated), np.asarray(observed)
    own, ax = ax is None, axes(ax, 4.0, 2.6)
    if copies.dtype.kind == "f":
        ax.hist(copies, bins=30, color=BLUE, alpha=0.6, label="replicated")
        ax.axvline(seen[0], color="black", linewidth=1.8, label="observed")
    else:
        steps = (np.arange(min(copies.min(), seen.min()), max(copies.max(), seen.max()) + 2) - 0.5).tolist()
        ax.hist(copies, bins=steps, color=BLUE, alpha=0.6, label="replicated")
        ax.hist(seen, bins=steps, histtype="step", color=DARK, linewidth=1.8, label="inferred from the observed")
    ax.set_yticks([])
    ax.spines[["top", "right", "left"]].set_visible(False)
    if own:
        legend_above(ax)
    return ax
