"""Laws of a posterior beside those of its prior: number of blocks, blocks, window length."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import PowerNorm
from matplotlib.patches import Rectangle
from numpy.typing import ArrayLike, NDArray

from ..length import LengthPosterior
from ..posterior import StructurePosterior
from ..without_evidence import without_evidence
from .style import BLUE, axes, legend_above, position_ticks, whole_numbers

_UNSEEN = 2e-3  # probability below which a number is not worth its place


def _against(
    ax: Axes, values: NDArray[np.int64], prior: ArrayLike, posterior: ArrayLike, marked: int | None, mark: str
) -> None:
    """Posterior (filled) beside prior (hatched) over whole numbers, as far as either is to be seen."""
    before, after = np.asarray(prior, dtype=float), np.asarray(posterior, dtype=float)
    ax.bar(values - 0.2, after, width=0.4, color=BLUE, label="posterior")
    ax.bar(values + 0.2, before, width=0.4, facecolor="white", edgecolor="0.3", hatch="////", label="prior")
    if marked is not None:
        ax.plot(
            marked, 0, marker="^", markersize=9, color="black", clip_on=False, linestyle="none", label=mark, zorder=4
        )
    seen = values[(before > _UNSEEN) | (after > _UNSEEN) | (values == marked)]
    ax.set_xlim(seen.min() - 0.55, seen.max() + 0.55)
    whole_numbers(ax)
    ax.set_ylabel("probability")
    ax.spines[["top", "right"]].set_visible(False)
    legend_above(ax)


def plot_block_count(there: StructurePosterior, *, ax: Axes | None = None) -> Axes:
    """The number of blocks: its posterior beside its prior, and what the MAP partition has."""
    ax = axes(ax, 5.0, 2.8)
    counts = np.arange(1, there.length + 1)
    best = there.map().partition.count
    _against(ax, counts, without_evidence(there).block_count, there.block_count, best, "MAP")
    ax.set_xlabel("blocks in the window")
    return ax


def plot_window_length(law: LengthPosterior, chosen: int | None = None, *, ax: Axes | None = None) -> Axes:
    """The window's length: its posterior given the edge logits beside the clipped Poisson law; `chosen` is marked."""
    ax = axes(ax, 7.0, 2.8)
    _against(ax, law.lengths.numpy(), law.prior, law.probability, chosen, "chosen")
    ax.set_xlabel("tokens in the window")
    return ax


def plot_block_marginals(
    there: StructurePosterior, *, tokens: Sequence[str] | None = None, ax: Axes | None = None
) -> Axes:
    """Probability of every block, its first token downwards and its last one to the right; the MAP's are framed."""
    length = there.length
    side = 2.2 + 0.17 * length
    ax = axes(ax, side + 0.6, side - 0.2)
    marginals = np.ma.masked_array(there.block_marginals.numpy(), np.tri(length, k=-1, dtype=bool))
    image = ax.imshow(
        marginals, cmap="YlGnBu", norm=PowerNorm(0.5, 0, 1), extent=(0, length, length, 0), interpolation="none"
    )
    for start, end in there.map().partition.blocks:
        frame = Rectangle((end - 1, start), 1, 1, fill=False, edgecolor="black", linewidth=1.6, clip_on=False, zorder=3)
        ax.add_patch(frame)
    frame.set_label("MAP")
    ax.legend(loc="lower left", frameon=False, fontsize=9)
    position_ticks(ax, length, tokens)
    position_ticks(ax, length, tokens, which="y")
    ax.set_xlabel("last token of the block")
    ax.set_ylabel("first token of the block")
    ax.tick_params(length=2)
    ax.spines[:].set_visible(False)
    ticks = [0, 0.01, 0.1, 0.25, 0.5, 1]  # uneven: small probabilities are to be seen too
    ax.figure.colorbar(image, ax=ax, label="probability of the block", shrink=0.8, ticks=ticks)
    return ax
