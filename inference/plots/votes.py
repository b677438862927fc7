"""What several answers a prompt are worth: their majority and the best of them, against how many there are."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import NullLocator
from numpy.typing import ArrayLike, NDArray

from .style import DARK, axes, series_style

_DIGIT = 0.02  # width of a digit, of the axis
_APART = 0.06  # by how much bars of two series stand apart, of one doubling


def plot_votes(
    sizes: ArrayLike,
    majority: ArrayLike,
    best: ArrayLike,
    names: Sequence[str],
    *,
    interval: ArrayLike | None = None,
    single: float | None = None,
    single_name: str = "MAP",
    ax: Axes | None = None,
) -> Axes:
    """Accuracy (n, m), 0 to 1, of the majority of S answers, and of the best of them, at n sizes S, of m ways `names`.

    NaN where a way has not so many answers. interval (n, m, 2): lower and upper ends of the majority's, drawn as bars.
    single: the accuracy of the one answer that they are held against, a line called `single_name`. Raises ValueError
    where numbers differ.
    """
    at, voted, any_right = (np.asarray(values, dtype=float) for values in (sizes, majority, best))
    shape = (at.size, len(names))
    if at.ndim == 1 and not (np.isfinite(at) & (at > 0)).all():
        raise ValueError(f"sizes must be numbers of answers, 1 at least, got {at.tolist()}.")
    if at.ndim != 1 or 0 in shape or voted.shape != shape or any_right.shape != shape:
        raise ValueError(f"majority and best must have shape {shape}, got {voted.shape} and {any_right.shape}.")
    bars = None if interval is None else np.asarray(interval, dtype=float)
    if bars is not None and bars.shape != (*shape, 2):
        raise ValueError(f"interval must have shape {(*shape, 2)}, got {bars.shape}.")
    ax = axes(ax, 6.5, 3.8)
    if single is not None:
        ax.axhline(single, color="0.8", linewidth=4, label=single_name, zorder=0)
    for index, name in enumerate(names):
        colour, marker = series_style(index)
        x = at * 2 ** (_APART * (index - (len(names) - 1) / 2))
        ax.plot(x, any_right[:, index], color=colour, marker=marker, markerfacecolor="white", linestyle=":", zorder=2)
        ax.plot(x, voted[:, index], color=colour, marker=marker, label=name, zorder=3)
        if bars is not None:
            ax.vlines(x, bars[:, index, 0], bars[:, index, 1], color=colour, linewidth=1, zorder=2)
    ax.plot([], [], color=DARK, label="majority")
    ax.plot([], [], color=DARK, linestyle=":", label="any of them right")
    ax.set_xscale("log", base=2)
    ax.xaxis.set_minor_locator(NullLocator())
    ticks = _apart(at)
    ax.set_xticks(ticks, [f"{size:g}" for size in ticks])
    ax.set_xlabel("answers a prompt")
    ax.set_ylabel("accuracy")
    ax.set_ylim(bottom=0)
    ax.spines[["top", "right"]].set_visible(False)
    ax.legend(loc="center left", bbox_to_anchor=(1.01, 0.5), frameon=False, fontsize=9)
    return ax


def _apart(sizes: NDArray[np.float64]) -> list[float]:
    """The sizes, from the largest down, whose numbers do not overprint each other on a logarithmic axis."""
    kept: list[float] = []
    wide = np.log2(sizes.max() / sizes.min())
    for size in sorted(set(sizes.tolist()), reverse=True):
        room = _DIGIT * (1 + len(f"{kept[-1]:g}") / 2 + len(f"{size:g}") / 2) if kept else 0.0
        if not kept or np.log2(kept[-1] / size) >= room * wide:
            kept.append(size)
    return kept[::-1]
