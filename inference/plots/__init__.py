"""Pictures of structures, posteriors, calibration and decodings (matplotlib): each takes `ax` and returns its axes.

Without `ax` a figure of its own is made, `ax.figure`; pyplot is not involved.
"""

from .accuracy import pareto_front, plot_accuracy
from .auroc import plot_auroc
from .calibration import plot_rank_histogram, plot_reliability, plot_replicates, plot_weights
from .marginals import plot_block_count, plot_block_marginals, plot_window_length
from .sensitivity import plot_sensitivity
from .structures import plot_map_above_samples, plot_posterior, plot_ribbon, plot_structures
from .style import visible
from .unmasking import plot_unmasking
from .votes import plot_votes

__all__ = [
    "pareto_front",
    "plot_accuracy",
    "plot_auroc",
    "plot_block_count",
    "plot_block_marginals",
    "plot_map_above_samples",
    "plot_posterior",
    "plot_rank_histogram",
    "plot_reliability",
    "plot_replicates",
    "plot_ribbon",
    "plot_sensitivity",
    "plot_structures",
    "plot_unmasking",
    "plot_votes",
    "plot_weights",
    "plot_window_length",
    "visible",
]
