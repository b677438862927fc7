"""MAP against sampled structures: accuracies, votes, agreement, and whether structure uncertainty foretells errors.

Runs of DyStruct that differ in their structure rule only are put side by side: MAP, consensus, and samples of which
each prompt has several that share its token noise (`draws`). An item's answers agree where their values are equal
(see `tasks.value_of`), or where both have none.

Scores of an item, each larger where its structure is less certain: the posterior's entropy a window (nats), and
1 - P(MAP | O) a window, both on the MAP run, and the share of the sampled answers that differ from the MAP answer.
What they foretell is that the MAP answer is wrong; the baseline is the negative mean confidence of its tokens, and
beside it stands the same of the text as a whole, tokens · -log(mean confidence). For all tasks together answers are
compared within their task, so that no score gains by telling hard tasks from easy ones.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np

from .statistics import Mean, auroc, likelihood_ratio, mean
from .table import Cell, Number, Table, percentage

RULES = ("map", "consensus", "sample")
SIZES = (1, 4, 16)
_LEAST = 1e-30  # a probability that stands for 0, of which there is no logarithm
SCORES = {"entropy": "entropy", "doubt": "1 - P(MAP)", "disagreement": "disagreement"}
Record = Mapping[str, Any]


@dataclass(frozen=True)
class Items:
    """Records under one structure rule: by task and item, one for each draw, or for each seed and draw."""

    draws: dict[tuple[str, int], list[Record]]

    @classmethod
    def of(cls, records: Sequence[Record], tasks: Collection[str], seed: int | None) -> Items:
        """Those of some tasks and a seed (None: of all seeds), seeds and draws in their order."""
        draws: dict[tuple[str, int], list[Record]] = {}
        for record in sorted(records, key=lambda record: (record["item"], record["seed"], record["draw"])):
            if record["task"] in tasks and seed in (None, record["seed"]) and record["correct"] is not None:
                draws.setdefault((record["task"], record["item"]), []).append(record)
        return cls(draws)

    @property
    def tasks(self) -> set[str]:
        """Those that it has items of."""
        return {task for task, _ in self.draws}

    def differing(self, item: tuple[str, int], value: Any) -> float:
        """The share of an item's answers that are not this one."""
        draws = self.draws[item]
        return sum(record["value"] != value for record in draws) / len(draws)


@dataclass(frozen=True)
class Accuracies:
    """Of S draws a prompt: mean of the draws, majority vote, and the share of items that any draw answers right.

    Of a single draw there is only the first.
    """

    size: int
    one: Mean
    majority: Mean | None
    best: Mean | None
    agreement: Mean | None


def accuracies(samples: Items, size: int) -> Accuracies | None:
    """What the first `size` draws of each item come to; None where no item has so many."""
    groups = [draws[:size] for draws in samples.draws.values() if len(draws) >= size]
    if not groups:
        return None
    one = mean([sum(bool(r["correct"]) for r in group) / size for group in groups])
    if size == 1:
        return Accuracies(size, one, None, None, None)
    return Accuracies(
        size=size,
        one=one,
        majority=mean([bool(majority(group)["correct"]) for group in groups]),
        best=mean([any(r["correct"] for r in group) for group in groups]),
        agreement=mean([_agreement(group) for group in groups]),
    )


def majority(group: Sequence[Record]) -> Record:
    """The first record whose value is the most frequent; of equally frequent ones, that of the earliest draw.

    Records without a value do not vote, unless none has one.
    """
    votes = Counter(record["value"] for record in group if record["value"] is not None)
    if not votes:
        return group[0]
    most = max(votes.values())
    return next(record for record in group if votes.get(record["value"]) == most)


def rule_of(settings: Mapping[str, Any]) -> str | None:
    """The structure rule of a run, if it is one of those that are put side by side here."""
    rule = settings["decoder_settings"].get("structure")
    return rule if rule in RULES else None


def pools(records: Sequence[Record]) -> dict[str, list[str]]:
    """What has a row in the tables, and its tasks: each task, and all of them where there are several."""
    found = {task: [task] for task in dict.fromkeys(record["task"] for record in records)}
    return {**found, "all": list(found)} if len(found) > 1 else found


def enough(rules: Collection[str]) -> bool:
    """Whether runs under these rules have tables."""
    return {"map", "sample"} <= set(rules)


def structure_tables(runs: Mapping[str, Sequence[Record]], seed: int, described: str) -> list[Table]:
    """The tables for runs by structure rule (map, consensus, sample); none without map and sample."""
    if not enough(runs):
        return []
    rows: list[tuple[Cell, ...]] = []
    foretold: list[tuple[Cell, ...]] = []
    every = {record["task"] for record in runs["map"]}
    both = Items.of(runs["map"], every, seed).tasks & Items.of(runs["sample"], every, seed).tasks
    for task, members in pools([record for record in runs["map"] if record["task"] in both]).items():
        found = {rule: Items.of(records, members, seed) for rule, records in runs.items()}
        rows += _accuracy_rows(task, members, found)
        foretold += _score_rows(task, found)
    columns = (
        "task", "S", "items", "MAP", "consensus", "one sample", "majority", "oracle best", "samples agree",
        "agree with MAP",
    )  # fmt: skip
    first = Table(
        "structures",
        f"MAP against sampled structures: accuracy in percent ± standard error, S structures a prompt with shared "
        f"token noise, and percent of equal answers ({described}).",
        columns,
        tuple(rows),
    )
    second = Table(
        "uncertainty",
        "Does structure uncertainty foretell that the MAP answer is wrong? AUROC with DeLong's 95% interval, and the "
        f"likelihood ratio test of the score beside mean token confidence; of all tasks, within tasks ({described}).",
        (
            "task",
            "score",
            "wrong",
            "right",
            "AUROC",
            "low",
            "high",
            "a standard deviation beside confidence",
            "χ²",
            "df",
            "p",
        ),
        tuple(foretold),
    )
    return [first, second] if rows else []


def _accuracy_rows(task: str, members: Collection[str], found: Mapping[str, Items]) -> list[tuple[Cell, ...]]:
    """A row for each number of draws that some items of each member have, of the items that every rule has.

    A consensus that lacks a member is left out, not the member.
    """
    found = {rule: items for rule, items in found.items() if rule != "consensus" or items.tasks >= set(members)}
    rows: list[tuple[Cell, ...]] = []
    for size in SIZES:
        shared = Items({
            item: draws[:size]
            for item, draws in found["sample"].draws.items()
            if len(draws) >= size and all(item in items.draws for items in found.values())
        })  # fmt: skip
        sampled = accuracies(shared, size)
        if sampled is None or shared.tasks != set(members):
            continue
        single = {
            rule: mean([bool(items.draws[item][0]["correct"]) for item in shared.draws])
            for rule, items in found.items()
        }
        with_map = [1 - shared.differing(item, found["map"].draws[item][0]["value"]) for item in shared.draws]
        rows.append(
            (
                task, size, sampled.one.count, percentage(single["map"]), percentage(single.get("consensus")),
                percentage(sampled.one), percentage(sampled.majority), percentage(sampled.best),
                percentage(sampled.agreement), percentage(mean(with_map)),
            )
        )  # fmt: skip
    return rows


def _score_rows(task: str, found: Mapping[str, Items]) -> list[tuple[Cell, ...]]:
    """A row for token confidence, one for the whole text's, one for each score of structure, one for all of these."""
    known = []
    for item in found["sample"].draws:
        best = _first(found["map"], item)
        if best is not None and best["confidence"] is not None and best["map_probability"] is not None:
            differing = found["sample"].differing(item, best["value"])
            doubt = 1 - best["map_probability"]
            whole = -best["useful_tokens"] * math.log(max(best["confidence"], _LEAST))
            known.append((item[0], not best["correct"], -best["confidence"], whole, best["entropy"], doubt, differing))
    if not known:
        return []
    strata, *columns = zip(*known, strict=True)
    wrong, baseline, whole, *scores = (np.asarray(column, dtype=float) for column in columns)
    rows = [
        _score_row(task, "token confidence", baseline, wrong, strata, None, None),
        _score_row(task, "text confidence", whole, wrong, strata, baseline, whole[:, None]),
    ]
    for name, score in zip(SCORES.values(), scores, strict=True):
        rows.append(_score_row(task, name, score, wrong, strata, baseline, score[:, None]))
    return [*rows, _score_row(task, "all three of structure", None, wrong, strata, baseline, np.stack(scores, axis=1))]


def _score_row(
    task: str, name: str, score: Any, wrong: Any, strata: Any, baseline: Any, further: Any
) -> tuple[Cell, ...]:
    counts = int(wrong.sum()), int((1 - wrong).sum())
    area = None if score is None else auroc(score, wrong, strata)
    limits = (
        (None, None, None) if area is None else tuple(Number(x, digits=3) for x in (area.value, area.low, area.high))
    )
    ratio = None if baseline is None else likelihood_ratio(baseline, further, wrong, strata)
    if ratio is None:
        return (task, name, *counts, *limits, None, None, None, None)
    slope = Number(ratio.coefficients[1], digits=2) if ratio.degrees == 1 else None
    return (
        task, name, *counts, *limits, slope, Number(ratio.statistic, digits=2), ratio.degrees,
        Number(ratio.p, digits=4, scientific=True),
    )  # fmt: skip


def _first(items: Items, item: tuple[str, int]) -> Record | None:
    return items.draws[item][0] if item in items.draws else None


def _agreement(group: Sequence[Record]) -> float:
    """The share of pairs of answers that are equal."""
    pairs = list(combinations([record["value"] for record in group], 2))
    return sum(a == b for a, b in pairs) / len(pairs)
