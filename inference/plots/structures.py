"""Structures drawn over the tokens of a window: the ribbon of one, and the MAP above samples.

A block is a band whose number is its turn, 1 for the block that is decoded first; the earlier, the darker.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle
from numpy.typing import ArrayLike

from dystruct.model import Structure

from ..posterior import StructurePosterior
from .style import DARK, VERMILLION, axes, legend_above, position_ticks

_TURNS = colormaps["YlGnBu"]  # light to dark without a turn in lightness
_WHITE_ON = 0.6775  # from here on white is easier to read than black
_WIDTH, _MARGIN, _DIGIT = 0.24, 1.6, 0.08  # inches of a token, beside them, and of a digit


def _bands(ax: Axes, structure: Structure, bottom: float, height: float) -> None:
    """A row of blocks at this height, each with its turn, where there is room for it."""
    inches = ax.get_window_extent().width / ax.figure.dpi / structure.length
    for turn, block in enumerate(structure.order):
        start, end = structure.partition.blocks[block]
        late = turn / max(structure.partition.count - 1, 1)
        shade = 0.75 - 0.65 * late
        band = Rectangle((start, bottom), end - start, height, facecolor=_TURNS(shade), edgecolor="black", linewidth=1)
        band.set_gid(f"block {block}")
        ax.add_patch(band)
        if (end - start) * inches > _DIGIT * len(str(turn + 1)):
            ax.text(
                (start + end) / 2, bottom + height / 2, str(turn + 1), ha="center", va="center_baseline",
                fontsize=8, color="white" if shade > _WHITE_ON else "black",
            )  # fmt: skip


def plot_ribbon(
    structure: Structure,
    *,
    cut_marginals: ArrayLike | None = None,
    instability: ArrayLike | None = None,
    tokens: Sequence[str] | None = None,
    ax: Axes | None = None,
) -> Axes:
    """One structure of L tokens as a ribbon under what speaks for it.

    cut_marginals (L-1,): bars between the tokens. instability (L,): a line over them. tokens (L,): their texts. Raises
    ValueError on another number of any of them, and for what is no Structure.
    """
    _check(structure)
    length = structure.length
    bare = cut_marginals is None and instability is None
    ax = axes(ax, _MARGIN + _WIDTH * length, 1.1 if bare else 2.6)
    if cut_marginals is not None:
        marginals = _numbers("cut_marginals", cut_marginals, length - 1)
        ax.bar(np.arange(1, length), marginals, width=0.45, color=DARK, label="probability of a cut", zorder=2)
    if instability is not None:
        levels = _numbers("instability", instability, length)
        ax.plot(
            np.arange(length) + 0.5, levels, color=VERMILLION, marker="o", markersize=4, markerfacecolor="white",
            linewidth=1.2, label="instability", zorder=3,
        )  # fmt: skip
    _bands(ax, structure, -0.34, 0.28)
    for end in structure.partition.ends[:-1]:  # the cuts that were made, among the bars of those that might have been
        ax.plot([end, end], [-0.06, 0 if bare else 1], color="black", linewidth=0.8, linestyle=(0, (1, 2)), zorder=1)
    ax.set_xlim(0, length)
    ax.set_ylim(-0.36, -0.04 if bare else 1.05)
    ax.set_yticks([-0.2] if bare else [-0.2, 0, 0.5, 1], ["turn"] if bare else ["turn", "0", "0.5", "1"])
    if not bare:
        ax.axhline(0.5, color="0.6", linewidth=0.8, linestyle=":", zorder=0)
        legend_above(ax)
    position_ticks(ax, length, tokens)
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)
    return ax


def _check(structure: object) -> None:
    if not isinstance(structure, Structure):
        raise ValueError(
            f"structure must be a Structure, got {type(structure).__name__}; a traced window's is its `decoded`."
        )


def _numbers(name: str, values: ArrayLike, size: int) -> np.ndarray:
    row = np.asarray(values, dtype=float)
    if row.shape != (size,):
        raise ValueError(f"{name} must have shape ({size},) for this structure, got {row.shape}.")
    return row


def plot_posterior(
    there: StructurePosterior,
    structure: Structure | None = None,
    *,
    tokens: Sequence[str] | None = None,
    ax: Axes | None = None,
) -> Axes:
    """The ribbon of a structure, the MAP unless given, under its posterior's cut marginals and the instability."""
    return plot_ribbon(
        there.map() if structure is None else structure,
        cut_marginals=there.cut_marginals,
        instability=there.diagnostics.instability,
        tokens=tokens,
        ax=ax,
    )


def plot_structures(
    structures: Sequence[Structure],
    labels: Sequence[str] | None = None,
    *,
    tokens: Sequence[str] | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Structures of one length as rows of bands, the first on top, each with its label on the left.

    Raises ValueError if there is none, if lengths or the number of labels differ, and for what is no Structure.
    """
    for structure in structures:
        _check(structure)
    if not structures or len({structure.length for structure in structures}) > 1:
        raise ValueError("structures must hold at least one structure, all of one length.")
    names = [str(row + 1) for row in range(len(structures))] if labels is None else list(labels)
    if len(names) != len(structures):
        raise ValueError(f"labels must name {len(structures)} structures, got {len(names)}.")
    length = structures[0].length
    ax = axes(ax, _MARGIN + _WIDTH * length, 0.9 + 0.26 * len(structures))
    for row, structure in enumerate(structures):
        _bands(ax, structure, row + 0.1, 0.8)
    ax.set_xlim(0, length)
    ax.set_ylim(len(structures), 0)
    ax.set_yticks(np.arange(len(structures)) + 0.5, names)
    ax.set_title("numbers: turns of the blocks, 1 is decoded first", loc="left", fontsize=9)
    position_ticks(ax, length, tokens)
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)
    return ax


def plot_map_above_samples(
    there: StructurePosterior,
    samples: int | Sequence[Structure] = 12,
    *,
    seed: int = 0,
    tokens: Sequence[str] | None = None,
    ax: Axes | None = None,
) -> Axes:
    """The MAP structure above draws from the posterior, each with the probability of its partition.

    samples: how many to draw from `seed`, or those to show.
    """
    best = there.map()
    drawn = there.sample(samples, seed) if isinstance(samples, int) else tuple(samples)
    structures = (best, *drawn)
    names = ["MAP", *(str(row + 1) for row in range(len(drawn)))]
    labels = [
        f"{name}   P = {np.exp(there.log_prob(structure.partition)):.2g}"
        for name, structure in zip(names, structures, strict=True)
    ]
    ax = plot_structures(structures, labels, tokens=tokens, ax=ax)
    ax.axhline(1, color="black", linewidth=1.5)
    return ax
