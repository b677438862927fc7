"""Pictures show the numbers that they were given: read back from what was drawn, not compared with other pictures.

Here what all of them keep to, and those of structures and of their laws.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import matplotlib as mpl
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from matplotlib import pyplot
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from drawn import THERE, bars, line, tick_texts
from dystruct.inference.length import LengthPosterior
from dystruct.inference.plots import (
    plot_accuracy,
    plot_auroc,
    plot_block_count,
    plot_block_marginals,
    plot_map_above_samples,
    plot_posterior,
    plot_rank_histogram,
    plot_reliability,
    plot_replicates,
    plot_ribbon,
    plot_structures,
    plot_unmasking,
    plot_votes,
    plot_weights,
    plot_window_length,
    visible,
)
from dystruct.inference.plots.style import MARKERS, series_style
from dystruct.inference.without_evidence import without_evidence
from dystruct.model import Partition, Structure

STRUCTURE = Structure(Partition((2, 3, 5)), (1, 2, 0))
TOKENS = ["The", " price", " is", "\n", "$5$"]
SHOWN = ["The", "␣price", "␣is", "⏎", "$5$"]
LENGTHS = LengthPosterior(
    torch.arange(3, 7), torch.tensor([0.1, 0.4, 0.4, 0.1]), torch.zeros(4), torch.tensor([0.0, 0.2, 0.5, 0.3])
)
PICTURES: dict[str, Callable[[Axes | None], Axes]] = {
    "ribbon": lambda ax: plot_ribbon(STRUCTURE, cut_marginals=[0.1, 0.5, 0.9, 0.2], tokens=TOKENS, ax=ax),
    "posterior": lambda ax: plot_posterior(THERE, tokens=TOKENS, ax=ax),
    "structures": lambda ax: plot_structures([STRUCTURE], tokens=TOKENS, ax=ax),
    "map_above_samples": lambda ax: plot_map_above_samples(THERE, 3, tokens=TOKENS, ax=ax),
    "block_count": lambda ax: plot_block_count(THERE, ax=ax),
    "block_marginals": lambda ax: plot_block_marginals(THERE, tokens=TOKENS, ax=ax),
    "window_length": lambda ax: plot_window_length(LENGTHS, 5, ax=ax),
    "unmasking": lambda ax: plot_unmasking([3, 1, 2, 9, 4], tokens=TOKENS, ax=ax),
    "reliability": lambda ax: plot_reliability([0.1, 0.9, 0.8], [0, 1, 1], ax=ax),
    "weights": lambda ax: plot_weights(["one", "two"], [1, -1], ax=ax),
    "rank_histogram": lambda ax: plot_rank_histogram(np.linspace(0.01, 0.99, 50), ax=ax),
    "replicates": lambda ax: plot_replicates(np.array([1, 2, 3]), np.array([2, 2, 1]), ax=ax),
    "accuracy": lambda ax: plot_accuracy([1, 2], [0.1, 0.2], ["one", "two"], ax=ax),
    "votes": lambda ax: plot_votes([1, 2], [[0.1], [0.2]], [[0.1], [0.3]], ["one"], ax=ax),
    "auroc": lambda ax: plot_auroc([[0.7, 0.6, 0.8]], ["one"], ax=ax),
}


def bands(ax: Axes) -> list[tuple[float, float, float, str]]:
    """(row, start, end, turn) of every block, in the order in which they were drawn."""
    rectangles = [patch for patch in ax.patches if isinstance(patch, Rectangle)]
    drawn = [patch for patch in rectangles if (patch.get_gid() or "").startswith("block")]
    numbers = {tuple(text.get_position()): text.get_text() for text in ax.texts}
    return [
        (
            band.get_y(), band.get_x(), band.get_x() + band.get_width(),
            numbers[band.get_x() + band.get_width() / 2, band.get_y() + band.get_height() / 2],
        )
        for band in drawn
    ]  # fmt: skip


# --- what all pictures keep to


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_makes_its_own_figure_or_takes_axes(name: str) -> None:
    settings = dict(mpl.rcParams)
    own = PICTURES[name](None)
    assert isinstance(own.figure, Figure)
    given_axes = Figure(figsize=(4, 3)).add_subplot()
    assert PICTURES[name](given_axes) is given_axes
    FigureCanvasAgg(own.figure).draw()  # warns, that is fails, of a missing glyph, of layouts that do not fit
    assert dict(mpl.rcParams) == settings and pyplot.get_fignums() == []


def lightness(colour: object) -> float:
    red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in to_rgb(colour))
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def test_turns_darken_towards_the_first_and_numbers_contrast() -> None:
    count = 9
    ax = plot_structures([Structure(Partition(tuple(range(1, count + 1))), tuple(range(count)))])
    shades = [lightness(band.get_facecolor()) for band in ax.patches]
    assert all(early < late for early, late in pairwise(shades))
    for shade, text in zip(shades, ax.texts, strict=True):
        darker, lighter = sorted((shade, lightness(text.get_color())))
        assert (lighter + 0.05) / (darker + 0.05) > 4.5  # WCAG's contrast for text


def test_turns_stand_where_there_is_room_for_them() -> None:
    single = Structure(Partition(tuple(range(1, 31))), tuple(range(30)))
    wide, narrow = plot_structures([single]), plot_structures([single], ax=Figure(figsize=(3, 1)).add_subplot())
    assert [text.get_text() for text in wide.texts] == [str(turn) for turn in range(1, 31)]
    assert not narrow.texts and len(narrow.patches) == 30
    [text] = plot_structures([Structure(Partition((30,)), (0,))], ax=Figure(figsize=(3, 1)).add_subplot()).texts
    assert text.get_text() == "1"


def test_series_differ_without_colour() -> None:
    markers = [series_style(index)[1] for index in range(12)]
    assert len(set(markers)) == 12 == len(MARKERS)


# --- tokens


@given(st.text(max_size=30))
def test_tokens_are_shown_on_one_line_without_spaces(text: str) -> None:
    shown = visible(text)
    assert len(shown) <= 14 and not any(character.isspace() for character in shown)
    assert bool(shown) == bool(text)


def test_signs_of_tokens() -> None:
    texts = [" a", "\n\n", "\t", "\x00", "\ud800", "中", "é$_{", "averyverylongtoken"]
    assert [visible(text) for text in texts] == [
        "␣a", "⏎⏎", "⇥", "\\u0000", "\\ud800", "\\u4e2d", "é$_{", "averyverylong…"
    ]  # fmt: skip


@pytest.mark.parametrize("name", ["ribbon", "structures", "map_above_samples", "block_marginals", "unmasking"])
def test_tokens_label_their_positions(name: str) -> None:
    ax = PICTURES[name](None)
    assert tick_texts(ax) == SHOWN and ax.get_xticks().tolist() == [0.5, 1.5, 2.5, 3.5, 4.5]
    assert not any(label.get_parse_math() for label in ax.get_xticklabels())


def test_long_windows_are_numbered() -> None:
    ax = plot_unmasking(np.arange(100), tokens=["x"] * 100)
    assert tick_texts(ax)[:3] == ["0", "12", "24"] and ax.get_xticks()[1] == 12.5


# --- structures


def test_the_ribbon_holds_blocks_marginals_and_instability() -> None:
    marginals, instability = [0.1, 0.5, 0.9, 0.2], [0.3, 0.2, 0.8, 0.7, 0.6]
    ax = plot_ribbon(STRUCTURE, cut_marginals=marginals, instability=instability, tokens=TOKENS)
    assert {(start, end, turn) for _, start, end, turn in bands(ax)} == {(2, 3, "1"), (3, 5, "2"), (0, 2, "3")}
    assert bars(ax, "probability of a cut") == pytest.approx(dict(zip((1, 2, 3, 4), marginals, strict=True)))
    assert line(ax, "instability").tolist() == [[x + 0.5, y] for x, y in enumerate(instability)]
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["instability", "probability of a cut"]
    made = {each.get_xdata()[0] for each in ax.lines if len(set(each.get_xdata())) == 1}
    assert made == {2, 3}


def test_a_posteriors_ribbon_is_its_map_unless_told() -> None:
    ax = plot_posterior(THERE)
    assert {(start, end) for _, start, end, _ in bands(ax)} == set(THERE.map().partition.blocks)
    assert list(bars(ax, "probability of a cut").values()) == pytest.approx(THERE.cut_marginals.tolist())
    assert line(ax, "instability")[:, 1].tolist() == THERE.diagnostics.instability.tolist()
    told = plot_posterior(THERE, STRUCTURE)
    assert {(start, end) for _, start, end, _ in bands(told)} == set(STRUCTURE.partition.blocks)


def test_samples_stand_under_the_map_with_their_probabilities() -> None:
    ax = plot_map_above_samples(THERE, 4, seed=3)
    expected = [THERE.map(), *THERE.sample(4, 3)]
    drawn = bands(ax)
    for row, structure in enumerate(expected):
        here = {(start, end, turn) for bottom, start, end, turn in drawn if row < bottom < row + 1}
        assert here == {
            (*structure.partition.blocks[block], str(turn + 1)) for turn, block in enumerate(structure.order)
        }
    names, shown = zip(*(label.split("   P = ") for label in tick_texts(ax, "y")), strict=True)
    assert names == ("MAP", "1", "2", "3", "4")
    exact = [np.exp(THERE.log_prob(structure.partition)) for structure in expected]
    assert [float(text) for text in shown] == pytest.approx(exact, rel=0.05)
    low, high = ax.get_ylim()
    assert low > high, "the first row is on top"
    assert len(bands(plot_map_above_samples(THERE, [STRUCTURE]))) == 3 + THERE.map().partition.count


# --- laws


def test_block_count_stands_beside_its_prior() -> None:
    ax = plot_block_count(THERE)
    for label, law in (("posterior", THERE.block_count), ("prior", without_evidence(THERE).block_count)):
        shown = bars(ax, label)
        assert [round(x) for x in shown] == [1, 2, 3, 4, 5]
        assert list(shown.values()) == pytest.approx(law.tolist())
    assert line(ax, "MAP").tolist() == [[THERE.map().partition.count, 0]]


def test_window_length_stands_beside_its_law() -> None:
    ax = plot_window_length(LENGTHS, 5)
    assert list(bars(ax, "posterior").values()) == pytest.approx([0.0, 0.2, 0.5, 0.3])
    assert list(bars(ax, "prior").values()) == pytest.approx([0.1, 0.4, 0.4, 0.1])
    assert [round(x) for x in bars(ax, "prior")] == [3, 4, 5, 6]
    assert line(ax, "chosen").tolist() == [[5, 0]]
    assert "chosen" not in {each.get_label() for each in plot_window_length(LENGTHS).lines}


def test_the_heat_map_is_the_block_marginals_with_the_map_framed() -> None:
    ax = plot_block_marginals(THERE, tokens=TOKENS)
    table = ax.images[0].get_array()
    np.testing.assert_array_equal(table.filled(0), THERE.block_marginals.numpy())
    assert table.mask.tolist() == [[end < start for end in range(5)] for start in range(5)]
    left, right, bottom, top = ax.images[0].get_extent()
    assert (left, right, bottom, top) == (0, 5, 5, 0), "first tokens run downwards"
    frames = {(patch.get_x(), patch.get_y()) for patch in ax.patches}
    assert frames == {(end - 1, start) for start, end in THERE.map().partition.blocks}
    assert tick_texts(ax, "y") == SHOWN


# --- errors


@pytest.mark.parametrize(
    ("picture", "message"),
    [
        (lambda: plot_ribbon(STRUCTURE, cut_marginals=[0.1]), r"cut_marginals must have shape \(4,\)"),
        (lambda: plot_ribbon(STRUCTURE, instability=[0.1]), r"instability must have shape \(5,\)"),
        (lambda: plot_ribbon(STRUCTURE, tokens=["a"]), "tokens must have 5 texts"),
        (lambda: plot_structures([]), "at least one structure"),
        (lambda: plot_structures([STRUCTURE, Structure(Partition((4,)), (0,))]), "of one length"),
        (lambda: plot_structures([STRUCTURE], ["a", "b"]), "name 1 structures, got 2"),
        (lambda: plot_unmasking([]), "at least one pass number"),
        (lambda: plot_unmasking([1, 2], welded_from=[1]), "welded_from must have shape"),
        (lambda: plot_reliability([0.1], [0, 1]), "of one length"),
        (lambda: plot_reliability([1.1], [0]), r"lie in \[0, 1\]"),
        (lambda: plot_reliability([0.1], [0.5]), "outcome be 0 or 1"),
        (lambda: plot_weights(["a"], [1, 2]), r"values must have shape \(1,\)"),
        (lambda: plot_rank_histogram([]), "at least one rank"),
        (lambda: plot_accuracy([1], [1, 2], ["a"]), "must be 1 each"),
        (lambda: plot_accuracy([1], [1], ["a"], budgets=[1, 2]), "budgets must be 1, got 2"),
        (lambda: plot_accuracy([1], [1], ["a"], interval=[1, 2]), r"interval must have shape \(1, 2\)"),
    ],
)
def test_errors_name_what_is_wrong(picture: Callable[[], Axes], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        picture()
