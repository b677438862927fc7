"""Pictures of what was measured: decodings, accuracy and calibration, read back from what was drawn."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.container import ErrorbarContainer

from drawn import THERE, line, tick_texts
from dystruct.inference.checks import predictive_check
from dystruct.inference.plots import (
    pareto_front,
    plot_accuracy,
    plot_auroc,
    plot_rank_histogram,
    plot_reliability,
    plot_replicates,
    plot_sensitivity,
    plot_unmasking,
    plot_votes,
    plot_weights,
)
from dystruct.model import Context, PriorConfig

# --- decodings


def test_unmasking_shows_passes_and_welds() -> None:
    nan = float("nan")
    ax = plot_unmasking([4, 9, nan, 7], welded_from=[nan, 3, nan, 5], window_ends=[2, 4], block_ends=[1])
    once = line(ax, "committed once")
    assert once[~np.isnan(once[:, 1])].tolist() == [[0.5, 4]]
    assert line(ax, "taken back by a weld").tolist() == [[1.5, 3], [3.5, 5]]
    assert line(ax, "welded").tolist() == [[1.5, 9], [3.5, 7]]
    assert [segment.tolist() for segment in ax.collections[0].get_segments()] == [
        [[1.5, 3], [1.5, 9]], [[3.5, 5], [3.5, 7]]
    ]  # fmt: skip
    upright = [each.get_xdata()[0] for each in ax.lines if list(each.get_ydata()) == [0, 1]]
    assert upright == [1, 2, 4]
    names = [text.get_text() for text in ax.get_legend().get_texts()]
    assert names == ["end of a block", "end of a window", "committed once", "taken back by a weld", "welded"]


costs = st.lists(st.tuples(st.integers(1, 5), st.integers(0, 5)), min_size=1, max_size=9)


@given(costs)
def test_the_front_holds_exactly_what_nothing_beats(points: list[tuple[int, int]]) -> None:
    passes, accuracy = zip(*points, strict=True)
    front = pareto_front(passes, accuracy)

    def beaten(index: int) -> bool:
        here = points[index]
        return any(p <= here[0] and a >= here[1] and (p, a) != here for p, a in points)

    assert sorted(front) == [index for index in range(len(points)) if not beaten(index)]
    steps = [points[index] for index in front]
    assert steps == sorted(steps), "fewer passes first, and never less accurate behind"


def test_accuracy_shows_every_decoder_and_fills_those_on_the_front() -> None:
    passes, accuracy, names = [60, 100, 120], [0.1, 0.3, 0.2], ["fixed", "dystruct", "$fast"]
    interval = [[0.05, 0.15], [0.25, 0.35], [0.1, 0.3]]
    ax = plot_accuracy(passes, accuracy, names, interval=interval)
    shown = {each.get_label(): each for each in ax.lines}
    for name, cost, gain in zip(names, passes, accuracy, strict=True):
        assert np.column_stack(shown[name].get_data()).tolist() == [[cost, gain]]
        assert (shown[name].get_markerfacecolor() == "white") == (name == "$fast")
    assert line(ax, "Pareto front").tolist() == [[60, 0.1], [100, 0.3]]
    ends = [segment.tolist() for each in ax.collections for segment in each.get_segments()]
    assert ends == [[[cost, low], [cost, high]] for cost, (low, high) in zip(passes, interval, strict=True)]


def test_points_of_one_name_are_joined_and_grow_with_the_budget() -> None:
    names, budgets = ["a", "b", "a", "b"], [256, 64, 64, 128]
    ax = plot_accuracy([100, 20, 30, 90], [0.4, 0.2, 0.3, 0.5], names, budgets=budgets)
    joined = [np.column_stack(each.get_data()).tolist() for each in ax.lines if len(each.get_xdata()) == 2]
    assert [[30, 0.3], [100, 0.4]] in joined and [[20, 0.2], [90, 0.5]] in joined
    points = [each for each in ax.lines if len(each.get_xdata()) == 1]
    assert len({(each.get_color(), each.get_marker()) for each in points}) == 2
    size = {tuple(np.column_stack(each.get_data())[0]): each.get_markersize() for each in points}
    assert size[100, 0.4] > size[90, 0.5] > size[20, 0.2] == size[30, 0.3]
    legend = ax.get_legend()
    shown = [text.get_text() for text in legend.get_texts()]
    assert shown == ["Pareto front", "a", "b", "budget 64", "budget 128", "budget 256"]
    sizes = [handle.get_markersize() for handle in legend.legend_handles[3:]]
    assert sizes == [size[20, 0.2], size[90, 0.5], size[100, 0.4]]


@pytest.mark.parametrize(("passes", "scale"), [([20, 80], "linear"), ([20, 81], "log"), ([0, 99], "linear")])
def test_passes_far_apart_stand_by_their_doublings(passes: list[int], scale: str) -> None:
    ax = plot_accuracy(passes, [0.2, 0.4], ["a", "b"])
    assert ax.get_xscale() == scale
    if scale == "log":
        FigureCanvasAgg(ax.figure).draw()
        assert {"32", "64"} < set(tick_texts(ax)), "numbers, no powers"


@pytest.mark.parametrize("budgets", [None, [64, 64]])
def test_points_of_one_budget_are_of_one_size(budgets: list[int] | None) -> None:
    ax = plot_accuracy([100, 20], [0.4, 0.2], ["a", "b"], budgets=budgets)
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["Pareto front", "a", "b"]
    assert len({each.get_markersize() for each in ax.lines if len(each.get_xdata()) == 1}) == 1


def test_many_decoders_do_not_look_alike() -> None:
    names = [f"decoder {number}" for number in range(20)]
    ax = plot_accuracy(range(20), [0.5] * 20, names)
    assert len({(each.get_color(), each.get_marker()) for each in ax.lines if each.get_label() in names}) == 20


def test_of_more_decoders_than_a_legend_has_room_for_those_on_the_front_are_named() -> None:
    names = [f"decoder {number // 2} with a setting of a name that goes on and on" for number in range(50)]
    accuracy = [0.5] * 50
    accuracy[31] = 0.9
    ax = plot_accuracy(range(1, 51), accuracy, names)
    shown = [text.get_text() for text in ax.get_legend().get_texts()]
    assert [" ".join(text.split()) for text in shown] == ["Pareto front", names[0], names[31], "23 others"]
    assert max(len(part) for text in shown for part in text.split("\n")) <= 40
    points = {each.get_xdata()[0]: each for each in ax.lines if len(each.get_xdata()) == 1}
    looks = {name: (points[place].get_color(), points[place].get_marker()) for place, name in enumerate(names, start=1)}
    assert len(points) == 50 and len(set(looks.values())) == 3 and looks[names[2]] == looks[names[48]]
    ax = plot_accuracy(range(1, 51), accuracy, names, highlight=[names[2], "no decoder here"])
    shown = [" ".join(text.get_text().split()) for text in ax.get_legend().get_texts()]
    assert shown == ["Pareto front", names[0], names[2], names[31], "22 others"]


# --- calibration


def test_reliability_is_frequency_against_mean_probability() -> None:
    probability = [0.0, 0.05, 0.55, 0.51, 0.59, 1.0]
    ax = plot_reliability(probability, [0, 0, 1, 0, 1, 1], bins=10, label="model")
    [container] = [each for each in ax.containers if isinstance(each, ErrorbarContainer)]
    points, caps, (intervals,) = container
    assert np.column_stack(points.get_data()) == pytest.approx(np.array([[0.025, 0], [0.55, 2 / 3], [1, 1]]))
    error = (2 * 0.025 + 3 * (2 / 3 - 0.55)) / 6
    assert container.get_label() == f"model (n = 6, ECE {error:.3f})"
    for (_, low), (_, high) in intervals.get_segments():
        assert 0 <= low <= high <= 1
    assert caps, "the ends of the intervals"
    again = plot_reliability(probability, [1] * 6, ax=ax)
    assert again is ax and sum(isinstance(each, ErrorbarContainer) for each in ax.containers) == 2
    first, second = (each.lines[0] for each in ax.containers)
    assert first.get_marker() != second.get_marker() and first.get_linestyle() != second.get_linestyle()
    assert len(ax.get_legend().get_texts()) == 3


def test_a_calibrated_forecast_keeps_its_intervals() -> None:
    """Of the 90% intervals of 200 bins, how many hold the mean probability given: a false alarm in 1e6."""
    generator = np.random.default_rng(0)
    inside = 0
    for _ in range(20):
        probability = generator.uniform(size=1000)
        ax = plot_reliability(probability, generator.uniform(size=1000) < probability)
        points, _, (intervals,) = ax.containers[0]
        for mean, segment in zip(points.get_xdata(), intervals.get_segments(), strict=True):
            inside += segment[0][1] <= mean <= segment[1][1]
    assert 158 < inside < 199  # binomial(200, 0.9) leaves that range with probability 1e-6


def test_weights_stand_at_their_values() -> None:
    ax = plot_weights(["first_one", "other"], [1.5, -0.5], [[1, 2], [-1, 0]])
    assert tick_texts(ax, "y") == ["first one", "other"]
    [points] = [each for each in ax.lines if each.get_marker() == "o"]
    assert np.column_stack(points.get_data()).tolist() == [[1.5, 0], [-0.5, 1]]
    assert [segment.tolist() for segment in ax.collections[0].get_segments()] == [[[1, 0], [2, 0]], [[-1, 1], [0, 1]]]
    low, high = ax.get_ylim()
    assert low > high


def test_ranks_are_counted_in_twenty_bins() -> None:
    ranks = np.random.default_rng(0).uniform(size=300) ** 2
    ax = plot_rank_histogram(ranks)
    heights = [bar.get_height() for bar in ax.containers[0]]
    assert heights == [int(((ranks >= k / 20) & (ranks < (k + 1) / 20)).sum()) for k in range(20)]
    levels = sorted(each.get_ydata()[0] for each in ax.lines)
    assert levels[0] < levels[1] == 15 < levels[2]


def test_replicates_stand_against_the_observed() -> None:
    ax = plot_replicates(np.array([0.5, 1.5, 1.0]), np.array([1.2, 1.2, 1.2]))
    assert sum(bar.get_height() for bar in ax.containers[0]) == 3
    assert line(ax, "observed")[:, 0].tolist() == [1.2, 1.2]
    replicated = plot_replicates(np.array([1, 3, 3]), np.array([2, 2, 3])).containers[0]
    assert [(bar.get_x() + bar.get_width() / 2, bar.get_height()) for bar in replicated] == [(1, 1), (2, 0), (3, 2)]


def test_the_checks_pictures_name_what_they_show() -> None:
    check = predictive_check(THERE.diagnostics, Context(), PriorConfig(), under="prior", n=30)
    figure = check.plot()
    assert [panel.get_title().splitlines()[0] for panel in figure.axes] == [
        "mean edge logit", "max edge logit", "autocorrelation", "block count", "longest block"
    ]  # fmt: skip
    [legend] = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["replicated", "observed", "inferred from the observed"]
    FigureCanvasAgg(figure).draw()


def test_sensitivity_shows_each_task_and_the_bars_of_the_last() -> None:
    values, accuracy = [48, 16, 256], [[0.3, 0.5], [0.2, 0.4], [0.1, 0.2]]
    interval = [[0.4, 0.6], [0.3, 0.5], [0.1, 0.3]]
    ax = plot_sensitivity(values, accuracy, ["$maths", "mean"], interval=interval, default=48, setting="longest window")
    for name, own in (("$maths", [0.2, 0.3, 0.1]), ("mean", [0.4, 0.5, 0.2])):
        assert line(ax, name).tolist() == [[value, gain] for value, gain in zip([16, 48, 256], own, strict=True)]
    assert line(ax, "default")[:, 0].tolist() == [48, 48]
    ends = [segment.tolist() for each in ax.collections for segment in each.get_segments()]
    assert ends == [[[value, low], [value, high]] for value, (low, high) in zip(values, interval, strict=True)]
    assert [tick.get_text() for tick in ax.get_xticklabels()] == ["16", "48", "256"]
    assert ax.get_xscale() == "log" and ax.get_xlabel() == "longest window"
    near = plot_sensitivity([0, 0.5, 3], [[0.1], [0.2], [0.3]], ["logic"])
    assert near.get_xscale() == "linear" and [text.get_text() for text in near.get_legend().get_texts()] == ["logic"]


@pytest.mark.parametrize(
    ("values", "accuracy", "names", "interval", "told"),
    [
        ([1, 2], [[0.1], [0.2]], ["a", "b"], None, r"accuracy must have shape \(2, 2\)"),
        ([1, 2], [[0.1]], ["a"], None, r"accuracy must have shape \(2, 1\)"),
        ([], [], [], None, "accuracy must have shape"),
        ([1], [[0.1]], ["a"], [[0.1, 0.2], [0.1, 0.2]], r"interval must have shape \(1, 2\)"),
    ],
)
def test_sensitivity_says_which_numbers_differ(
    values: list[int], accuracy: list[list[float]], names: list[str], interval: Any, told: str
) -> None:
    with pytest.raises(ValueError, match=told):
        plot_sensitivity(values, accuracy, names, interval=interval)


def test_votes_show_each_way_at_its_own_sizes() -> None:
    nan = float("nan")
    sizes, majority, best = [1, 2, 4], [[0.3, 0.2], [0.4, 0.25], [0.5, nan]], [[0.3, 0.2], [0.5, 0.3], [0.9, nan]]
    interval = [[[low - 0.1, low + 0.1] for low in row] for row in majority]
    ax = plot_votes(sizes, majority, best, ["structures", "tokens"], interval=interval, single=0.35)
    for way, name in enumerate(("structures", "tokens")):
        drawn = line(ax, name)
        np.testing.assert_array_equal(drawn[:, 1], np.array(majority)[:, way])
        assert drawn[:, 0] == pytest.approx(sizes, rel=0.05), "near their sizes, so that bars stand apart"
        [dotted] = [x for x in ax.lines if x.get_linestyle() == ":" and x.get_color() == _colour(ax, name)]
        np.testing.assert_array_equal(dotted.get_ydata(), np.array(best)[:, way])
    assert line(ax, "MAP")[:, 1].tolist() == [0.35, 0.35]
    ends = np.array([each[:, 1] for bars in ax.collections for each in bars.get_segments() if len(each)])
    wanted = np.array(interval).transpose(1, 0, 2).reshape(-1, 2)
    np.testing.assert_array_equal(ends[~np.isnan(ends).any(1)], wanted[~np.isnan(wanted).any(1)])
    assert tick_texts(ax) == ["1", "2", "4"]
    FigureCanvasAgg(ax.figure).draw()


@pytest.mark.parametrize(
    ("sizes", "told"),
    [([1, 2, 16, 17], "1 2 17"), ([17, 1, 16, 5], "17 5 1"), ([3, 3], "3"), ([1, 64, 128, 154], "1 64 154")],
)
def test_numbers_of_answers_do_not_overprint_each_other(sizes: list[int], told: str) -> None:
    values = [[0.5]] * len(sizes)
    ax = plot_votes(sizes, values, values, ["structures"])
    assert sorted(tick_texts(ax), key=int) == sorted(told.split(), key=int)


@given(st.lists(st.integers(1, 400), min_size=1, max_size=20))
@settings(max_examples=10)
def test_no_two_numbers_of_answers_meet(sizes: list[int]) -> None:
    values = [[0.5]] * len(sizes)
    ax = plot_votes(sizes, values, values, ["structures"])
    FigureCanvasAgg(ax.figure).draw()
    boxes = sorted((text.get_window_extent() for text in ax.get_xticklabels()), key=lambda box: box.x0)
    assert all(first.x1 < second.x0 for first, second in pairwise(boxes))


def _colour(ax: Any, name: str) -> Any:
    return next(each.get_color() for each in ax.lines if each.get_label() == name)


def test_areas_stand_in_their_order_with_their_intervals() -> None:
    areas = [[0.7, 0.6, 0.8], [0.2, 0.1, 0.3]]
    ax = plot_auroc(areas, ["confidence", "entropy"])
    tops = dict(zip(tick_texts(ax, "y"), ax.get_yticks(), strict=True))
    assert tops["confidence"] > tops["entropy"]
    points = next(each for each in ax.lines if each.get_marker() == "o")
    assert np.column_stack(points.get_data()).tolist() == [[0.7, tops["confidence"]], [0.2, tops["entropy"]]]
    bars = {segment[0][1]: segment[:, 0].tolist() for each in ax.collections for segment in each.get_segments()}
    assert bars == {tops["confidence"]: [0.6, 0.8], tops["entropy"]: [0.1, 0.3]}
    assert ax.get_xlim()[0] <= 0.1


@pytest.mark.parametrize(
    ("draw", "told"),
    [
        (lambda: plot_votes([1, 2], [[0.1]], [[0.1], [0.2]], ["a"]), r"must have shape \(2, 1\)"),
        (lambda: plot_votes([1], [[0.1]], [[0.1]], []), "must have shape"),
        (lambda: plot_votes([1], [[0.1]], [[0.1]], ["a"], interval=[[0, 1]]), r"interval must have shape \(1, 1, 2\)"),
        (lambda: plot_auroc([[0.1, 0.2]], ["a"]), r"areas must have shape \(1, 3\)"),
        (lambda: plot_auroc([], []), "areas must have shape"),
    ],
)
def test_votes_and_areas_say_which_numbers_differ(draw: Any, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        draw()
