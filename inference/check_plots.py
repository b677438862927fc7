"""Pictures of the checks' results; the only use of matplotlib beside them.

Knows how to draw and nothing of how the numbers came about.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from matplotlib.figure import Figure
from scipy.stats import binom

if TYPE_CHECKING:
    from .checks import PredictiveCheck, RankCalibration

_BINS = 20
_BAND = 0.99  # of all bins of a panel together


def _caption(name: str, p_value: float) -> str:
    return f"{name.replace('_', ' ')}\np = {p_value:.3g}"


def plot_ranks(calibration: RankCalibration) -> Figure:
    """A histogram of ranks a statistic; calibrated, all its bars end in the band with probability at least 0.99."""
    figure = Figure(figsize=(3.2 * len(calibration.ranks), 2.8), layout="constrained")
    panels = np.atleast_1d(figure.subplots(1, len(calibration.ranks), sharey=True))
    for panel, (name, rank) in zip(panels, calibration.ranks.items(), strict=True):
        tail = (1 - _BAND) / _BINS / 2
        low, high = binom.ppf(tail, len(rank), 1 / _BINS), binom.isf(tail, len(rank), 1 / _BINS)
        panel.axhspan(low, high, color="0.9", zorder=0)
        panel.axhline(len(rank) / _BINS, color="0.5", linewidth=1, zorder=1)
        panel.hist(rank, bins=_BINS, range=(0, 1), color="C0", alpha=0.8, zorder=2)
        panel.set_title(_caption(name, calibration.p_values[name]), fontsize=10)
        panel.set_xlabel("rank of the truth")
    panels[0].set_ylabel(f"windows of {len(rank)}")
    figure.suptitle(f"edge logits used {'twice' if calibration.double_use else 'once'}", fontsize=11)
    return figure


def plot_predictive(check: PredictiveCheck) -> Figure:
    """A panel a statistic: what the model would repeat (filled), what was observed or inferred from it (outlined)."""
    figure = Figure(figsize=(2.6 * len(check.replicated), 2.6), layout="constrained")
    for panel, name in zip(figure.subplots(1, len(check.replicated)), check.replicated, strict=True):
        replicated, observed = check.replicated[name].numpy(), check.observed[name].numpy()
        if replicated.dtype.kind == "f":
            panel.hist(replicated, bins=30, color="C0", alpha=0.6)
            panel.axvline(observed[0], color="black")
        else:
            steps = np.arange(min(replicated.min(), observed.min()), max(replicated.max(), observed.max()) + 2) - 0.5
            panel.hist(replicated, bins=steps, color="C0", alpha=0.6)
            panel.hist(observed, bins=steps, histtype="step", color="black")
        panel.set_title(_caption(name, check.p_values[name]), fontsize=10)
        panel.set_yticks([])
    figure.suptitle(f"under the {check.under}", fontsize=11)
    return figure
