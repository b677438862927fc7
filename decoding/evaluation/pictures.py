"""Pictures of runs: accuracy against forward passes, against each setting that was varied, and of answers' votes.

Knows summaries and tables; neither folders nor files.
"""

from __future__ import annotations

import io
from collections.abc import Collection, Sequence

import numpy as np
from matplotlib.figure import Figure

from dystruct.inference.plots import plot_accuracy, plot_auroc, plot_sensitivity, plot_votes

from ..dystruct import DyStruct
from ..plain import as_plain
from .comparison import SENSITIVITY, families, in_settings, ordered, setting_of, with_items
from .pools import mean_of_tasks, pooled
from .statistics import Mean, mean_of_means
from .summary import RunSummary
from .table import Number, Table
from .variation import BASE, VoteCurves


def pictures(runs: Sequence[RunSummary], highlight: Collection[str] = ()) -> dict[str, bytes]:
    """Every picture for which there are runs, as PNG files by their names.

    accuracy-TASK.png for each task, and accuracy-mean.png for the mean of several; sensitivity-SETTING.png. highlight:
    labels of runs that stand out among many.
    """
    found: dict[str, Figure | None] = {}
    runs = with_items(runs)
    tasks = list(dict.fromkeys(task for run in runs for task in pooled(run)))
    for name, of in [*((task, [task]) for task in tasks), *([("mean", tasks)] if len(tasks) > 1 else [])]:
        title = name if len(of) == 1 else f"mean of {', '.join(of)}"
        found[f"accuracy-{name}.png"] = accuracy_picture(runs, of, title, highlight)
    for setting, (name, _, _) in SENSITIVITY.items():
        for number, figure in enumerate(sensitivity_pictures(runs, setting), start=1):
            found[f"sensitivity-{name}{f'-{number}' if number > 1 else ''}.png"] = figure
    return {name: as_png(figure) for name, figure in found.items() if figure is not None}


def as_png(figure: Figure) -> bytes:
    """A PNG file of a picture."""
    content = io.BytesIO()
    figure.savefig(content, format="png", dpi=150)
    return content.getvalue()


def accuracy_picture(
    runs: Sequence[RunSummary], tasks: Sequence[str], title: str, highlight: Collection[str] = ()
) -> Figure | None:
    """Accuracy against forward passes, means of tasks, a point a run that has them all, larger for a larger budget.

    With intervals of two standard errors. None for fewer than two runs.
    """
    passes, accuracy, bars, names, budgets, counts = [], [], [], [], [], []
    for run in ordered(runs):
        value, cost = (mean_of_tasks(run, figure, tasks) for figure in ("correct", "forward_passes"))
        if value is None or cost is None:  # not scored, or likelihoods, which have no such figure
            continue
        passes.append(cost.value)
        accuracy.append(value.value)
        bars.append(_interval(value))
        names.append(run.label)
        budgets.append(run.settings["budget"])
        counts.append(value.count)
    if len(names) < 2:
        return None
    figure = Figure(figsize=(9.0, max(4.5, 0.28 * min(len(set(names)), 20))), layout="constrained")
    axes = plot_accuracy(
        passes, accuracy, names, interval=bars, budgets=budgets, highlight=highlight, ax=figure.add_subplot()
    )
    axes.set_title(f"{title}; {_counted(counts)} a point")
    return figure


def sensitivity_pictures(runs: Sequence[RunSummary], setting: str) -> list[Figure | None]:
    """Accuracy of each task that all have, and their mean, against a setting: one for each family of two runs or more.

    With intervals of two standard errors of the mean, and the default where one of the runs has it. None for a family
    without a scored task that all have.
    """
    return [_sensitivity(family, setting) for family in families(runs, (setting,))]


def _sensitivity(family: Sequence[RunSummary], setting: str) -> Figure | None:
    found = [{task: of.figures["correct"] for task, of in pooled(run).items() if of.accuracy} for run in family]
    tasks = [task for task in found[0] if all(task in of for of in found)]
    means = [mean for of in found if (mean := mean_of_means([of[task] for task in tasks]))]
    if not tasks:
        return None
    several = len(tasks) > 1
    accuracy = [
        [*(of[task].value for task in tasks if several), mean.value] for of, mean in zip(found, means, strict=True)
    ]
    values = [setting_of(run, setting) for run in family]
    default = in_settings(as_plain(DyStruct()), setting)
    figure = Figure(figsize=(7.0, 4.0), layout="constrained")
    axes = plot_sensitivity(
        values, accuracy, [*tasks, "mean"] if several else tasks, interval=list(map(_interval, means)),
        default=default if default in values else None, setting=SENSITIVITY[setting][1], ax=figure.add_subplot(),
    )  # fmt: skip
    settings, counts = family[0].settings, [mean.count for mean in means]
    axes.set_title(f"{settings['model']['name']}, budget {settings['budget']}; {_counted(counts)} a point", fontsize=10)
    return figure


def votes_picture(counted: VoteCurves, told: str) -> Figure:
    """The majority of S answers and the best of them against S, beside the base's one; two standard errors around."""
    sizes = sorted({each.size for found in counted.ways.values() for each in found})
    shape = len(sizes), len(counted.ways)
    voted, best, bars = np.full(shape, np.nan), np.full(shape, np.nan), np.full((*shape, 2), np.nan)
    for way, found in enumerate(counted.ways.values()):
        for each in found:
            place, majority = sizes.index(each.size), each.majority or each.one
            voted[place, way], best[place, way] = majority.value, (each.best or each.one).value
            bars[place, way] = _interval(majority)
    figure = Figure(figsize=(8.0, 4.0), layout="constrained")
    axes = plot_votes(
        sizes, voted, best, list(counted.ways), interval=bars, single=counted.base.value, single_name=BASE,
        ax=figure.add_subplot(),
    )  # fmt: skip
    axes.set_title(f"{told}; {_counted([counted.base.count])}", fontsize=10)
    return figure


def uncertainty_picture(table: Table, told: str) -> Figure | None:
    """How well each score of the table `uncertainty` tells wrong MAP answers, of all tasks; None where none does."""
    rows = [dict(zip(table.columns, row, strict=True)) for row in table.rows]
    rows = [row for row in rows if row["task"] == rows[-1]["task"] and row["AUROC"] is not None]
    if not rows:
        return None
    areas = [
        [cell.value for cell in (row["AUROC"], row["low"], row["high"]) if isinstance(cell, Number)] for row in rows
    ]
    figure = Figure(figsize=(6.5, 0.9 + 0.35 * len(rows)), layout="constrained")
    axes = plot_auroc(areas, [str(row["score"]) for row in rows], ax=figure.add_subplot())
    axes.set_title(f"{told}; {rows[0]['wrong']} wrong MAP answers told from {rows[0]['right']} right ones", fontsize=10)
    return figure


def _interval(value: Mean) -> list[float]:
    """Two standard errors around a share."""
    return [max(0.0, value.value - 2 * (value.error or 0)), min(1.0, value.value + 2 * (value.error or 0))]


def _counted(counts: Sequence[int]) -> str:
    least, most = min(counts), max(counts)
    return f"{most if least == most else f'{least} to {most}'} items"
