"""Pictures of the checks' results, a panel a statistic.

Knows how to lay panels out and nothing of how the numbers came about.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from matplotlib.artist import Artist
from matplotlib.figure import Figure

from .plots import plot_rank_histogram, plot_replicates

if TYPE_CHECKING:
    from .checks import PredictiveCheck, RankCalibration


def _caption(name: str, p_value: float) -> str:
    return f"{name.replace('_', ' ')}\np = {p_value:.3g}"


def _legend_below(figure: Figure) -> None:
    """One legend for all panels."""
    keys: dict[str, Artist] = {}
    for panel in figure.axes:
        handles, labels = panel.get_legend_handles_labels()
        keys.update(zip(labels, handles, strict=True))
    figure.legend(list(keys.values()), list(keys), loc="outside lower center", ncols=len(keys), frameon=False)


def plot_ranks(calibration: RankCalibration) -> Figure:
    """A histogram of ranks a statistic; calibrated, all its bars end in the band with probability at least 0.99."""
    figure = Figure(figsize=(3.2 * len(calibration.ranks), 3.1), layout="constrained")
    panels = np.atleast_1d(figure.subplots(1, len(calibration.ranks), sharey=True))
    for panel, (name, rank) in zip(panels, calibration.ranks.items(), strict=True):
        plot_rank_histogram(rank, ax=panel)
        panel.set_title(_caption(name, calibration.p_values[name]), fontsize=10)
        panel.label_outer()
        panel.set_xlabel("rank of the truth")
    figure.suptitle(f"edge logits used {'twice' if calibration.double_use else 'once'}", fontsize=11)
    _legend_below(figure)
    return figure


def plot_predictive(check: PredictiveCheck) -> Figure:
    """A panel a statistic: what the model would repeat (filled), what was observed or inferred from it (black)."""
    figure = Figure(figsize=(2.6 * len(check.replicated), 2.9), layout="constrained")
    panels = np.atleast_1d(figure.subplots(1, len(check.replicated)))
    for panel, name in zip(panels, check.replicated, strict=True):
        plot_replicates(check.replicated[name].numpy(), check.observed[name].numpy(), ax=panel)
        panel.set_title(_caption(name, check.p_values[name]), fontsize=10)
    figure.suptitle(f"under the {check.under}", fontsize=11)
    _legend_below(figure)
    return figure
