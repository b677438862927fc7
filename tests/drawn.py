"""What was drawn, read back from a picture's axes; and a posterior that several files draw."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.container import BarContainer

from dystruct.inference import posterior
from dystruct.model import Context, Diagnostics, PriorConfig

THERE = posterior(Diagnostics([0.2, 0.9, 0.6, 0.1, 0.4], [-1.0, 2.0, 0.5, -2.0]), Context(), PriorConfig())


def tick_texts(ax: Axes, which: str = "x") -> list[str]:
    return [label.get_text() for label in (ax.get_xticklabels() if which == "x" else ax.get_yticklabels())]


def bars(ax: Axes, label: str) -> dict[float, float]:
    """Middle and height of the bars of a container."""
    [container] = [c for c in ax.containers if isinstance(c, BarContainer) and c.get_label() == label]
    return {bar.get_x() + bar.get_width() / 2: bar.get_height() for bar in container}


def line(ax: Axes, label: str) -> np.ndarray:
    [found] = [each for each in ax.lines if each.get_label() == label]
    return np.column_stack(found.get_data())
