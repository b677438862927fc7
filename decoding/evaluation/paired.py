"""McNemar's tests of our decoders against each other one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from .comparison import alike_but_decoder, common_items, is_ours, main_runs, ordered
from .pools import pooled
from .statistics import McNemar, holm, mcnemar
from .summary import RunSummary
from .table import Number, Table, percentage

COLUMNS = (
    "first", "second", "passes", "task", "items", "first %", "second %", "difference", "only first", "only second",
    "χ²", "p corrected", "p exact", "p Holm",
)  # fmt: skip
CAPTION = (
    "Paired McNemar tests: the difference of two accuracies (second minus first, points ± standard error of paired "
    "differences), items that only one of two decoders answers right, the statistic with continuity "
    "correction, its p-value, the exact two-sided one, and that by Holm's method for all of this table's tests of the "
    "same task and budget."
)


def paired_tests(runs: Sequence[RunSummary]) -> Table:
    """McNemar's test of each of our decoders against each other one, at equal limits, on the items that both have.

    By task and over all tasks together; under several seeds or draws, the first of each. Runs may be of more and of
    fewer items of a task, if it is known which ones those are.
    """
    tests: list[tuple[RunSummary, RunSummary, str, McNemar]] = []
    shown = ordered(main_runs(runs))
    for ours in shown:
        for other in shown:
            if not is_ours(ours) or (is_ours(other) and shown.index(other) <= shown.index(ours)):
                continue
            if alike_but_decoder(ours, other):
                tests += [(other, ours, task, found) for task, found in tested(other, ours)]
    families = [(task, ours.settings["budget"]) for _, ours, task, _ in tests]
    corrected = holm([found.p_exact for *_, found in tests], families)
    rows = tuple(
        (
            first.label, second.label, second.settings["budget"], task, found.count,
            Number(found.first_right / found.count, scale=100), Number(found.second_right / found.count, scale=100),
            percentage(found.difference), found.only_first, found.only_second, Number(found.statistic, digits=2),
            *(Number(p, digits=4, scientific=True) for p in (found.p_corrected, found.p_exact, p_holm)),
        )
        for (first, second, task, found), p_holm in zip(tests, corrected, strict=True)
    )  # fmt: skip
    return Table("mcnemar", CAPTION, COLUMNS, rows)


def tested(first: RunSummary, second: RunSummary) -> Iterator[tuple[str, McNemar]]:
    """The tests of two runs: of each task that both have, and of all of them together."""
    one, two = pooled(first), pooled(second)
    right: list[tuple[list[bool], list[bool]]] = []
    for task in (task for task in one if task in two):
        count = common_items(one[task], two[task])
        signs = [next(iter(found[task].right.values()), "")[:count] for found in (one, two)]
        both = [(a == "1", b == "1") for a, b in zip(*signs, strict=False) if {a, b} <= {"0", "1"}]
        if both:
            right.append(([a for a, _ in both], [b for _, b in both]))
            yield task, mcnemar(*right[-1])
    if len(right) > 1:
        yield "all", mcnemar(*([sign for pair in right for sign in pair[side]] for side in (0, 1)))
