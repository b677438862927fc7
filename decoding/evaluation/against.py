"""One decoder against each other one, the best first: what it is ahead by, and whether that could be luck."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ..errors import UserError
from .comparison import circumstances, with_items
from .paired import tested
from .pools import pooled
from .statistics import McNemar, Mean, holm, mean_of_means
from .summary import RunSummary
from .table import Cell, Number, Table, number, percentage

COLUMNS = (
    "decoder", "passes", "tokens", "items", "accuracy", "passes an item", "ahead by", "only it", "only the other",
    "p exact", "p Holm",
)  # fmt: skip


def against_table(runs: Sequence[RunSummary], label: str) -> Table:
    """Every run beside the one called `label` of the same limits, by budget and accuracy, with McNemar's exact test.

    Accuracy and passes are means of the tasks; a test is of all items that both runs have, of several seeds or draws
    the first. Raises UserError if no run is called so.
    """
    shown = with_items(runs)
    if label not in {run.label for run in shown}:
        known = ", ".join(map(repr, dict.fromkeys(run.label for run in shown)))
        raise UserError(f"No run here is called {label!r}; these are: {known}.")
    ranked = sorted(shown, key=_rank)
    found = [_test(run, label, shown) for run in ranked]
    corrected: dict[int, float] = {}
    for limits in dict.fromkeys(map(_limits, ranked)):
        family = {i: test.p_exact for i, test in enumerate(found) if test is not None and _limits(ranked[i]) == limits}
        corrected |= zip(family, holm(list(family.values())), strict=True)
    rows = [
        (
            run.label, run.settings["budget"], run.settings["max_new_tokens"],
            sum(task.count for task in run.tasks.values()), percentage(_mean(run, "correct")),
            number(_mean(run, "forward_passes"), 0), *_compared(test, corrected.get(place)),
        )
        for place, (run, test) in enumerate(zip(ranked, found, strict=True))
    ]  # fmt: skip
    caption = (
        f"What {label} is ahead of each other decoder by under the same limits: points ± standard error of paired "
        "differences, items that only one of the two answers right, McNemar's exact p-value, and that by Holm's method "
        "for this table's tests of the same limits. Accuracies and passes are means of the tasks."
    )
    return Table("against", caption, COLUMNS, tuple(rows))


def _limits(run: RunSummary) -> tuple[str, int, int]:
    return str(run.settings["model"]["name"]), -run.settings["budget"], run.settings["max_new_tokens"]


def _mean(run: RunSummary, figure: str) -> Mean | None:
    """A figure's mean over a run's tasks, each counting alike; None if one of them lacks it."""
    return mean_of_means([task.figures.get(figure) for task in pooled(run).values()])


def _rank(run: RunSummary) -> tuple[str, int, int, float]:
    accuracy = _mean(run, "correct")
    return *_limits(run), math.inf if accuracy is None else -accuracy.value


def _test(run: RunSummary, label: str, runs: Sequence[RunSummary]) -> McNemar | None:
    """McNemar's test of a run and, second, the one called `label` that it may be compared with."""
    for ours in runs:
        alike = circumstances(ours, "limit", "skip") == circumstances(run, "limit", "skip")
        if ours.label == label and ours is not run and alike:
            found = [test for _, test in tested(run, ours)]
            return found[-1] if found else None  # of all tasks, where there are several
    return None


def _compared(test: McNemar | None, corrected: float | None) -> tuple[Cell, ...]:
    if test is None or corrected is None:
        return (None,) * 5
    return (
        percentage(test.difference), test.only_second, test.only_first,
        *(Number(p, digits=4, scientific=True) for p in (test.p_exact, corrected)),
    )  # fmt: skip
