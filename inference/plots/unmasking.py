"""When each token of a response came about: pass numbers over positions."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import ArrayLike

from .style import BLUE, MOST_TOKENS, VERMILLION, axes, legend_above, position_ticks, whole_numbers


def plot_unmasking(
    passes: ArrayLike,
    *,
    welded_from: ArrayLike | None = None,
    window_ends: Sequence[int] = (),
    block_ends: Sequence[int] = (),
    tokens: Sequence[str] | None = None,
    ax: Axes | None = None,
) -> Axes:
    """The forward pass that committed each of N positions at last, NaN where none did.

    welded_from (N,): the pass of the commit that a weld took back, NaN where no weld did; a line joins the two.
    window_ends, block_ends: half-open ends, drawn as lines. tokens (N,): texts. Raises ValueError on another number.
    """
    last = np.asarray(passes, dtype=float)
    if last.ndim != 1 or not len(last):
        raise ValueError(f"passes must be a row of at least one pass number, got shape {last.shape}.")
    first = np.full_like(last, np.nan) if welded_from is None else np.asarray(welded_from, dtype=float)
    if first.shape != last.shape:
        raise ValueError(f"welded_from must have shape {last.shape} like passes, got {first.shape}.")
    named = tokens is not None and len(last) <= MOST_TOKENS
    ax = axes(ax, max(5.0, 1.2 + (0.24 if named else 0.05) * len(last)), 3.4)
    position, welded = np.arange(len(last)) + 0.5, ~np.isnan(first)
    for name, ends, dashes in (("end of a block", block_ends, ":"), ("end of a window", window_ends, "-")):
        for index, end in enumerate(ends):
            ax.axvline(end, color="0.4", linewidth=1, linestyle=dashes, label="" if index else name, zorder=0)
    size = 5 if named else 3.5
    ax.plot(position[~welded], last[~welded], "o", color=BLUE, markersize=size, label="committed once", zorder=2)
    if welded.any():
        ax.vlines(position[welded], first[welded], last[welded], color=VERMILLION, linewidth=1, zorder=1)
        ax.plot(
            position[welded], first[welded], "o", markerfacecolor="white", markeredgecolor=BLUE, markersize=size,
            label="taken back by a weld", zorder=2,
        )  # fmt: skip
        ax.plot(position[welded], last[welded], "D", color=VERMILLION, markersize=size, label="welded", zorder=2)
    ax.set_xlim(0, len(last))
    whole_numbers(ax, "y")
    position_ticks(ax, len(last), tokens)
    ax.set_ylabel("forward pass")
    ax.spines[["top", "right"]].set_visible(False)
    legend_above(ax)
    return ax
