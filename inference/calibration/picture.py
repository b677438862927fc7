"""The calibration report as a picture: reliability, weights and learning curve, positions above and gaps below."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from scipy.special import expit

from ..plots import plot_reliability, plot_weights
from ..plots.style import series_style
from .from_windows import Calibration
from .held_out import ALL, targets_of
from .report import KindReport

_TITLES = {"position": "positions", "gap": "gaps"}


def plot_calibration(calibration: Calibration) -> Figure:
    """Two rows of three panels: held-out reliability by all features and by entropy alone; the weights, each times the
    standard deviation of its feature, with bootstrap intervals; held-out log loss by the number of problems fitted on.
    """
    figure = Figure(figsize=(14, 8.4), layout="constrained")
    rows, fit, report = calibration.rows, calibration.fit, calibration.report
    features = {"position": rows.features, "gap": rows.gap_features(fit.position.weights)}
    for line, (kind, found) in enumerate((("position", report.position), ("gap", report.gap))):
        reliability, weights, curve = (figure.add_subplot(2, 3, 3 * line + column) for column in (1, 2, 3))
        targets, _ = targets_of(rows, kind)
        for name, label in ((ALL, "all features"), ("entropy", "entropy alone")):
            plot_reliability(expit(calibration.held_out[kind][name]), targets, label=label, ax=reliability)
        reliability.set_title(f"{_TITLES[kind]}: held-out reliability", fontsize=10)
        deviation = features[kind].std(axis=0)
        names = [name for name in found.coefficients if name != "intercept"]
        values = np.array([found.coefficients[name].value for name in names])
        interval = np.array([found.coefficients[name].bootstrap for name in names])
        plot_weights(names, values * deviation, interval * deviation[:, None], ax=weights)
        weights.set_xlabel("weight × standard deviation of the feature, 95% interval")
        weights.set_title(f"{_TITLES[kind]}: weights", fontsize=10)
        _plot_curve(found, curve)
        curve.set_title(f"{_TITLES[kind]}: learning curve", fontsize=10)
    return figure


def _plot_curve(found: KindReport, ax: Axes) -> None:
    counts = [point.problems for point in found.learning_curve]
    for index, (label, losses) in enumerate(
        (
            ("all features", [point.log_loss for point in found.learning_curve]),
            ("entropy alone", [point.entropy_log_loss for point in found.learning_curve]),
        )
    ):
        colour, marker = series_style(index)
        ax.plot(counts, losses, color=colour, marker=marker, linestyle=("-", "--")[index], label=label)
    ax.axhline(found.guess, color="0.6", linestyle=":", linewidth=1, label="base rate")
    ax.set_xscale("log", base=2)
    ax.set_xticks(counts, [str(count) for count in counts])
    ax.minorticks_off()
    ax.set_xlabel("problems fitted on")
    ax.set_ylabel("held-out log loss, nats")
    ax.spines[["top", "right"]].set_visible(False)
    ax.legend(frameon=False, fontsize=9, loc="center right")
