"""Accuracy against the value of one setting, all else equal."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import NullLocator
from numpy.typing import ArrayLike

from .style import DARK, axes, series_style

_WIDE = 8  # times the smallest value, from which values stand at even ratios


def plot_sensitivity(
    values: ArrayLike,
    accuracy: ArrayLike,
    names: Sequence[str],
    *,
    interval: ArrayLike | None = None,
    default: float | None = None,
    setting: str = "value",
    ax: Axes | None = None,
) -> Axes:
    """Accuracy (n, m), 0 to 1, of m tasks called `names`, the last of them in front, at n values of a setting.

    interval (n, 2): lower and upper ends of the last task's, drawn as bars. default: the value that a line marks.
    setting: the label below. Values that are far apart stand at even ratios. Raises ValueError where numbers differ.
    """
    at, gain = np.asarray(values, dtype=float), np.asarray(accuracy, dtype=float)
    if at.ndim != 1 or not len(at) or not len(names) or gain.shape != (len(at), len(names)):
        raise ValueError(f"accuracy must have shape ({at.size}, {len(names)}), got {gain.shape}.")
    bars = None if interval is None else np.asarray(interval, dtype=float)
    if bars is not None and bars.shape != (len(at), 2):
        raise ValueError(f"interval must have shape ({len(at)}, 2), got {bars.shape}.")
    order = np.argsort(at)
    ax = axes(ax, 5.5, 3.6)
    if default is not None:
        ax.axvline(default, color="0.8", linewidth=4, label="default", zorder=0)
    for index, name in enumerate(names[:-1]):
        colour, marker = series_style(index)
        ax.plot(at[order], gain[order, index], color=colour, marker=marker, markersize=5, linewidth=1, label=name)
    ax.plot(at[order], gain[order, -1], color=DARK, marker="o", linewidth=2, label=names[-1], zorder=4)
    if bars is not None:
        ax.vlines(at, bars[:, 0], bars[:, 1], color=DARK, linewidth=1, zorder=3)
    if at.min() > 0 and at.max() >= _WIDE * at.min():
        ax.set_xscale("log")
    ax.xaxis.set_minor_locator(NullLocator())
    ax.set_xticks(at[order], [f"{value:g}" for value in at[order]])
    ax.set_xlabel(setting)
    ax.set_ylabel("accuracy")
    ax.set_ylim(bottom=0)
    ax.spines[["top", "right"]].set_visible(False)
    ax.legend(loc="center left", bbox_to_anchor=(1.01, 0.5), frameon=False, fontsize=9)
    return ax
