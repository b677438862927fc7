"""Ways to vary an answer, side by side: drawn structures, shuffled ones, drawn tokens. Which one tells wrong answers?

The base is MAP at temperature 0, with one answer an item. Each way gives several: runs that differ from the base in the
structure rule alone (sampled or shuffled structures, `draws`), or in temperature and seeds alone (sampled tokens).
A way's score of an item is the share of its answers that differ from the base's; what it may foretell is that the
base's answer is wrong. So drawn tokens say what drawn structures have to beat. Of all tasks together answers are
compared within their task.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import Any

import numpy as np

from .statistics import Mean, auroc, likelihood_ratio, mean
from .structures import Accuracies, Items, Record, accuracies, majority, pools
from .table import Cell, Number, Table, number, percentage

BASE = "MAP"
_STRUCTURES = {"sample": "sampled structures", "shuffled": "shuffled structures"}


def way_of(settings: Mapping[str, Any]) -> str | None:
    """What a run of DyStruct is here: the base, a way to vary its answers, or (None) neither."""
    structure, temperature = settings["decoder_settings"].get("structure"), settings["temperature"]
    if temperature == 0 and structure in tuple(_STRUCTURES):  # a decoder of one's own may have anything there
        return _STRUCTURES[structure]
    if structure != "map":
        return None
    if temperature == 0:
        return BASE
    return f"sampled tokens, temperature {temperature:.12g}" if len(settings["seeds"]) > 1 else None


def enough(ways: Collection[str]) -> bool:
    """Whether runs that vary in these ways, the base among them, have tables."""
    return BASE in ways and len(ways) > 1


@dataclass(frozen=True)
class VoteCurves:
    """What the first S answers of each way come to, for growing S, and the base's answer; of `base.count` items."""

    base: Mean
    ways: dict[str, list[Accuracies]]


def vote_curves(runs: Mapping[str, Sequence[Record]]) -> VoteCurves | None:
    """Of all tasks together and the items that the base and all ways have, from records by way; None without any.

    S are the powers of two up to how many answers a way has, and that.
    """
    if not enough(runs):
        return None
    base, found = _ways(runs, {record["task"] for record in runs[BASE]})
    both = [item for item in base.draws if all(item in items.draws for items in found.values())]
    if not found or not both:
        return None
    ways = {}
    for way, items in found.items():
        most = len(items.draws[both[0]])
        sizes = sorted({*(2**n for n in range(most.bit_length())), most})
        shared = Items({item: items.draws[item] for item in both})
        ways[way] = [counted for size in sizes if (counted := accuracies(shared, size)) is not None]
    return VoteCurves(mean(1 - _wrong(base, both)), ways)


def variation_tables(runs: Mapping[str, Sequence[Record]], described: str) -> list[Table]:
    """Tables from records by way, the base's among them; none without the base and another way.

    variation: what the answers come to, and how well their disagreement with the base's foretells errors.
    disagreement: what a way's disagreement adds to another one's.
    """
    if not enough(runs):
        return []
    rows: list[tuple[Cell, ...]] = []
    beside: list[tuple[Cell, ...]] = []
    for task, members in pools(runs[BASE]).items():
        base, found = _ways(runs, members)
        rows += (row for way, items in found.items() for row in _row(task, way, base, items))
        beside += (row for pair in permutations(found, 2) for row in _beside(task, *pair, base, found))
    first = Table(
        "variation",
        "Ways to vary an answer: accuracy in percent ± standard error of MAP's answer and of S others, what the "
        "majority gains on MAP's, the forward passes of all S, percent of equal answers, and whether the share that "
        "differs from MAP's foretells that MAP's is wrong: AUROC with DeLong's 95% interval, of all tasks within tasks "
        f"({described}).",
        (
            "task", "way", "S", "items", "MAP", "one of S", "majority", "gain", "oracle best", "passes of S", "agree",
            "agree with MAP", "AUROC", "low", "high",
        ),
        tuple(rows),
    )  # fmt: skip
    second = Table(
        "disagreement",
        "Does disagreement in one way foretell wrong MAP answers beside disagreement in another? Likelihood ratio test "
        f"of nested logistic regressions, with an intercept for each task ({described}).",
        ("task", "disagreement of", "beside that of", "items", "a standard deviation", "χ²", "df", "p"),
        tuple(beside),
    )
    return [table for table in (first, second) if table.rows]


def _ways(runs: Mapping[str, Sequence[Record]], members: Collection[str]) -> tuple[Items, dict[str, Items]]:
    """The base's items of some tasks, and those of each way that has several answers an item."""
    found = {way: _whole(Items.of(runs[way], members, None)) for way in sorted(runs, key=_place) if way != BASE}
    several = {way: items for way, items in found.items() if any(len(draws) > 1 for draws in items.draws.values())}
    return Items.of(runs[BASE], members, None), several


def _whole(items: Items) -> Items:
    """The items that have all S answers, S being what every task has of its best served items; no further answers."""
    most: dict[str, int] = {}
    for (task, _), draws in items.draws.items():
        most[task] = max(most.get(task, 0), len(draws))
    size = min(most.values(), default=0)
    return Items({item: draws[:size] for item, draws in items.draws.items() if len(draws) >= size})


def _place(way: str) -> tuple[bool, str]:
    """Structures come before tokens."""
    return way not in _STRUCTURES.values(), way


def _row(task: str, way: str, base: Items, items: Items) -> Iterator[tuple[Cell, ...]]:
    both = [item for item in base.draws if item in items.draws]
    if not both:
        return
    size = len(items.draws[both[0]])
    found = accuracies(Items({item: items.draws[item] for item in both}), size)
    assert found is not None
    differing, wrong = _differing(base, items, both), _wrong(base, both)
    voted = np.array([bool(majority(items.draws[item][:size])["correct"]) for item in both])
    passes = mean([sum(record["forward_passes"] for record in items.draws[item][:size]) for item in both])
    area = auroc(differing, wrong, _tasks(both))
    limits = (None,) * 3 if area is None else tuple(Number(x, digits=3) for x in (area.value, area.low, area.high))
    yield (
        task, way, size, len(both), percentage(mean(1 - wrong)), percentage(found.one), percentage(found.majority),
        percentage(mean(voted - (1 - wrong))), percentage(found.best), number(passes, 0), percentage(found.agreement),
        percentage(mean(1 - differing)), *limits,
    )  # fmt: skip


def _beside(task: str, way: str, other: str, base: Items, found: Mapping[str, Items]) -> Iterator[tuple[Cell, ...]]:
    both = [item for item in base.draws if item in found[way].draws and item in found[other].draws]
    if not both:
        return
    scores = [_differing(base, found[name], both) for name in (other, way)]
    ratio = likelihood_ratio(scores[0], scores[1], _wrong(base, both), _tasks(both))
    if ratio is not None:
        yield (
            task, way, other, len(both), Number(ratio.coefficients[1], digits=2), Number(ratio.statistic, digits=2),
            ratio.degrees, Number(ratio.p, digits=4, scientific=True),
        )  # fmt: skip


def _differing(base: Items, items: Items, both: Sequence[tuple[str, int]]) -> Any:
    """Of each item, the share of its answers that differ from the base's (n,)."""
    return np.array([items.differing(item, base.draws[item][0]["value"]) for item in both])


def _wrong(base: Items, both: Sequence[tuple[str, int]]) -> Any:
    """Of each item, 1 where the base's answer is wrong, else 0 (n,)."""
    return np.array([float(not base.draws[item][0]["correct"]) for item in both])


def _tasks(both: Sequence[tuple[str, int]]) -> list[str]:
    """Of each item, its task."""
    return [task for task, _ in both]
