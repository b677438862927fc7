"""How well scores tell two kinds apart: areas under their ROC curves with intervals."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import ArrayLike

from .style import DARK, axes


def plot_auroc(areas: ArrayLike, names: Sequence[str], *, ax: Axes | None = None) -> Axes:
    """Areas under ROC curves (n, 3), each with the ends of its interval, of n scores called `names`, the first on top.

    A line marks 1/2, where a score tells nothing. Raises ValueError where numbers differ.
    """
    values = np.asarray(areas, dtype=float)
    if not len(names) or values.shape != (len(names), 3):
        raise ValueError(f"areas must have shape ({len(names)}, 3), got {values.shape}.")
    ax = axes(ax, 6.5, 0.6 + 0.35 * len(names))
    at = np.arange(len(names))[::-1]
    ax.axvline(0.5, color="0.8", linewidth=4, zorder=0)
    ax.hlines(at, values[:, 1], values[:, 2], color=DARK, linewidth=1)
    ax.plot(values[:, 0], at, "o", color=DARK)
    ax.set_yticks(at, names)
    ax.set_ylim(-0.6, len(names) - 0.4)
    ax.set_xlim(min(0.3, values.min()), 1)
    ax.set_xlabel("AUROC")
    ax.spines[["top", "right"]].set_visible(False)
    return ax
