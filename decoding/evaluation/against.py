"""One decoder against each other one, the best first: what it is ahead by, and whether that could be luck."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations

from ..errors import UserError
from .comparison import alike_but_decoder, with_items
from .paired import tested
from .pools import mean_of_tasks, pooled
from .statistics import McNemar, holm
from .summary import RunSummary
from .table import Cell, Number, Table, number, percentage

COLUMNS = (
    "decoder", "passes", "tokens", "items", "accuracy", "passes an item", "ahead by", "only it", "only the other",
    "p exact", "p Holm",
)  # fmt: skip


def against_table(runs: Sequence[RunSummary], label: str) -> Table:
    """Every run beside the one called `label` of the same limits, by budget and accuracy, with McNemar's exact test.

    Accuracy and passes are means of the tasks; a test is of all items that both runs have, of several seeds or draws
    the first. Raises UserError if no run is called so, or several under the same limits.
    """
    shown = with_items(runs)
    chosen = [run for run in shown if run.label == label]
    if not chosen:
        known = ", ".join(map(repr, dict.fromkeys(run.label for run in shown))) or "none that has an item on record"
        raise UserError(f"No run here with an item on record is called {label!r}; these are: {known}.")
    if any(alike_but_decoder(one, two) for one, two in combinations(chosen, 2)):
        raise UserError(f"Several runs here are called {label!r} under the same limits; leave out all but one of them.")
    tasks = list(dict.fromkeys(task for run in shown for task in pooled(run)))
    ranked = sorted(shown, key=lambda run: _rank(run, tasks))
    tests = {place: test for place, run in enumerate(ranked) if (test := _test(run, chosen)) is not None}
    p_holm = holm([test.p_exact for test in tests.values()], [_limits(ranked[place]) for place in tests])
    compared = {place: _compared(tests[place], p) for place, p in zip(tests, p_holm, strict=True)}
    rows = [
        (
            run.label, run.settings["budget"], run.settings["max_new_tokens"],
            sum(task.count for task in run.tasks.values()), percentage(mean_of_tasks(run, "correct", tasks)),
            number(mean_of_tasks(run, "forward_passes", tasks), 0), *compared.get(place, (None,) * 5),
        )
        for place, run in enumerate(ranked)
    ]  # fmt: skip
    caption = (
        f"What {label} is ahead of each other decoder by under the same limits, on the items that both have, counting "
        "each item alike and of several draws the first: points ± standard error of paired differences, items that "
        "only one of the two answers right, McNemar's exact p-value, and that by Holm's method for this table's tests "
        "of the same limits. Accuracies and passes are means of the tasks, of all items and draws."
    )
    return Table("against", caption, COLUMNS, tuple(rows))


def _limits(run: RunSummary) -> tuple[str, int, int]:
    return str(run.settings["model"]["name"]), -run.settings["budget"], run.settings["max_new_tokens"]


def _rank(run: RunSummary, tasks: Sequence[str]) -> tuple[str, int, int, float]:
    accuracy = mean_of_tasks(run, "correct", tasks)
    return *_limits(run), math.inf if accuracy is None else -accuracy.value


def _test(run: RunSummary, chosen: Sequence[RunSummary]) -> McNemar | None:
    """McNemar's test of a run and, second, the chosen one that it may be compared with."""
    for ours in chosen:
        if ours is not run and alike_but_decoder(ours, run):
            found = [test for _, test in tested(run, ours)]
            return found[-1] if found else None  # of all tasks, where there are several
    return None


def _compared(test: McNemar, p_holm: float) -> tuple[Cell, ...]:
    p_values = (Number(p, digits=4, scientific=True) for p in (test.p_exact, p_holm))
    return percentage(test.difference), test.only_second, test.only_first, *p_values
