"""What the pictures share: colours, axes, token texts as tick labels.

Colours are Okabe and Ito's, distinct for colour-blind readers; what they tell apart differs in shape, filling or
lightness too, so that a grey print says the same. Nothing here touches pyplot or matplotlib's settings.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties, findfont, get_font
from matplotlib.ticker import MaxNLocator

BLUE, VERMILLION, GREEN, PINK, SKY, ORANGE = "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00"
SERIES = (BLUE, VERMILLION, GREEN, PINK, SKY, ORANGE)
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*", "<", ">", "h", "d")
DARK = "0.2"

SIGNS = {" ": "␣", "\n": "⏎", "\t": "⇥", "\r": "↵"}
LONGEST_TOKEN = 14  # characters of a token that are shown
MOST_TOKENS = 64  # positions up to which each is named by its token


def axes(ax: Axes | None, width: float, height: float) -> Axes:
    """`ax`, or the axes of a new figure of so many inches."""
    if ax is not None:
        return ax
    figure = Figure(figsize=(width, height), layout="constrained")
    return figure.add_subplot()


def series_style(index: int) -> tuple[str, str]:
    """Colour and marker of the index-th series; the first 12 differ in their markers, the first 72 in either."""
    return SERIES[index % len(SERIES)], MARKERS[(index + index // len(MARKERS)) % len(MARKERS)]


@lru_cache(maxsize=4)
def _glyphs(font: str) -> frozenset[int]:
    return frozenset(get_font(font).get_charmap())


def visible(text: str) -> str:
    """A token's text on one line: spaces, line ends and tabs as signs, what has no sign or glyph as its code."""
    glyphs = _glyphs(findfont(FontProperties()))

    def sign(character: str) -> str:
        shown = SIGNS.get(character, character)
        if shown == character and (unicodedata.category(character)[0] in "CZ" or ord(character) not in glyphs):
            return f"\\u{ord(character):04x}"
        return shown

    signs = "".join(map(sign, text))
    return signs if len(signs) <= LONGEST_TOKEN else signs[: LONGEST_TOKEN - 1] + "…"


def position_ticks(ax: Axes, length: int, tokens: Sequence[str] | None, *, which: str = "x") -> None:
    """Name the positions 0 to length-1, which stand at the middle of unit cells, by their tokens or by numbers.

    Raises ValueError if there are not as many tokens as positions.
    """
    if tokens is not None and len(tokens) != length:
        raise ValueError(f"tokens must have {length} texts, one a position, got {len(tokens)}.")
    axis = ax.xaxis if which == "x" else ax.yaxis
    if tokens is None or length > MOST_TOKENS:
        step = max(1, round(length / 12)) if length <= 24 else int(np.ceil(length / 12 / 4) * 4)
        positions = range(0, length, step)
        axis.set_ticks([p + 0.5 for p in positions], [str(p) for p in positions])
        axis.set_label_text("position")
        return
    labels = [visible(token) for token in tokens]
    upright = which == "x" and max(map(len, labels)) > 2
    axis.set_ticks(
        np.arange(length) + 0.5, labels, fontsize=8, rotation=90 if upright else 0,
        parse_math=False,  # a token may hold dollar signs
    )  # fmt: skip


def whole_numbers(ax: Axes, which: str = "x") -> None:
    """Ticks at whole numbers only."""
    (ax.xaxis if which == "x" else ax.yaxis).set_major_locator(MaxNLocator(integer=True))


def legend_above(ax: Axes) -> None:
    """The legend in one line above the axes, where it hides nothing."""
    handles, labels = ax.get_legend_handles_labels()
    ax.legend(handles, labels, loc="lower left", bbox_to_anchor=(0, 1), ncols=len(labels), frameon=False, fontsize=9)
