"""Accuracy against forward passes, with the decoders that no other one beats in both."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from textwrap import fill

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import StrMethodFormatter
from numpy.typing import ArrayLike

from .style import axes, series_style

_SIZE, _SIZES = 8, (5, 10)  # of a point; of one of the smallest and of the largest budget
_WIDE = 4  # times as many passes as the fewest, for which a linear axis has no room
_NAMED = 20  # names that a legend has room for, and a reader patience
_WIDTH = 40  # characters of a line of the legend
_OTHERS = "0.7", "o"  # how series look that have no name in the legend


def pareto_front(passes: ArrayLike, accuracy: ArrayLike) -> tuple[int, ...]:
    """Indices, by growing passes, of those that no other beats: as good in both and better in one. Equals are kept."""
    cost, gain = np.asarray(passes, dtype=float), np.asarray(accuracy, dtype=float)
    front = [
        index
        for index in range(len(cost))
        if not ((cost <= cost[index]) & (gain >= gain[index]) & ((cost < cost[index]) | (gain > gain[index]))).any()
    ]
    return tuple(sorted(front, key=lambda index: (cost[index], index)))


def plot_accuracy(
    passes: ArrayLike,
    accuracy: ArrayLike,
    names: Sequence[str],
    *,
    interval: ArrayLike | None = None,
    budgets: Sequence[int] | None = None,
    highlight: Collection[str] = (),
    ax: Axes | None = None,
) -> Axes:
    """Accuracy (n,), 0 to 1, against mean forward passes (n,) of decoders called `names`, and their Pareto front.

    Points of one name, such as a decoder's under several budgets, look alike and are joined. interval (n, 2): lower
    and upper ends of each accuracy, drawn as bars. budgets (n): forward passes that were allowed, larger ones as larger
    points. Of more than 20 names those without a point on the front are grey, but for those in `highlight`. Passes that
    differ by a factor of more than 4 stand on a logarithmic axis. Raises ValueError where numbers differ.
    """
    cost, gain = np.asarray(passes, dtype=float), np.asarray(accuracy, dtype=float)
    if cost.shape != gain.shape or cost.shape != (len(names),) or not len(names):
        raise ValueError(f"passes, accuracy and names must be {len(names)} each, got {cost.shape} and {gain.shape}.")
    bars = None if interval is None else np.asarray(interval, dtype=float)
    if bars is not None and bars.shape != (len(names), 2):
        raise ValueError(f"interval must have shape ({len(names)}, 2), got {bars.shape}.")
    if budgets is not None and len(budgets) != len(names):
        raise ValueError(f"budgets must be {len(names)}, got {len(budgets)}.")
    allowed = sorted(set(budgets or ()))
    sizes = dict(zip(allowed, np.linspace(*_SIZES, len(allowed)) if len(allowed) > 1 else [_SIZE], strict=False))
    ax = axes(ax, 7.0, 3.8)
    front = pareto_front(cost, gain)
    [joined] = ax.step(
        cost[list(front)], gain[list(front)], where="post", color="0.85", linewidth=4, label="Pareto front", zorder=1
    )
    legend = [joined] if len(front) > 1 else []  # a front of one point is no line
    every = list(dict.fromkeys(names))
    told = {*(names[index] for index in front), *highlight}
    named = every if len(every) <= _NAMED else [name for name in every if name in told]
    for name in every:
        colour, marker = series_style(named.index(name)) if name in named else _OTHERS
        own = sorted((index for index, other in enumerate(names) if other == name), key=cost.__getitem__)
        if len(own) > 1:
            ax.plot(cost[own], gain[own], color=colour, linewidth=0.8, alpha=0.5, zorder=2)
        for index in own:
            if bars is not None:
                ax.vlines(cost[index], *bars[index], color=colour, linewidth=1, zorder=2)
            ax.plot(
                cost[index], gain[index], marker, color=colour, zorder=3, markeredgewidth=1.5,
                markersize=_SIZE if budgets is None else sizes[budgets[index]],
                markerfacecolor=colour if index in front else "white", label=name if index == own[0] else None,
            )  # fmt: skip
        if name in named:
            legend.append(_entry(fill(name, _WIDTH), colour, marker, _SIZE))
    if len(named) < len(every):
        legend.append(_entry(f"{len(every) - len(named)} others", *_OTHERS, _SIZE))
    if len(sizes) > 1:
        legend += [_entry(f"budget {budget}", "0.35", "o", size) for budget, size in sizes.items()]
    if 0 < _WIDE * cost.min() < cost.max():
        ax.set_xscale("log", base=2)  # a doubling of passes is as far anywhere
        ax.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    ax.set_xlabel("forward passes a sequence")
    ax.set_ylabel("accuracy")
    ax.set_ylim(bottom=0)
    ax.spines[["top", "right"]].set_visible(False)
    ax.legend(
        handles=legend, loc="center left", bbox_to_anchor=(1.01, 0.5), frameon=False, fontsize=9,
        title="filled: on the Pareto front", title_fontsize=9, alignment="left",
    )  # fmt: skip
    return ax


def _entry(name: str, colour: str, marker: str, size: float) -> Line2D:
    """A legend's entry: of one size and not filled, whatever the points are."""
    return Line2D(
        [], [], color=colour, marker=marker, linestyle="", markersize=size, markeredgewidth=1.5,
        markerfacecolor="white", label=name,
    )  # fmt: skip
