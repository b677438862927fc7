"""Slow and obvious: every partition of a small window enumerated, every formula in plain Python floats."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import permutations, product

Cuts = tuple[bool, ...]


def all_cuts(length: int) -> list[Cuts]:
    """All 2^(L-1) partitions of a window, as cut flags."""
    return list(product((False, True), repeat=length - 1))


def blocks(cuts: Cuts) -> list[tuple[int, int]]:
    ends = [gap + 1 for gap, cut in enumerate(cuts) if cut] + [len(cuts) + 1]
    return list(zip([0, *ends], ends, strict=False))


def log(x: float) -> float:
    return math.log(x) if x > 0 else -math.inf


def log_sigmoid(x: float) -> float:
    if x == -math.inf:
        return -math.inf
    return -math.log1p(math.exp(-x)) if x >= 0 else x - math.log1p(math.exp(x))


def log_sum_exp(values: Sequence[float]) -> float:
    top = max(values)
    return top if top == -math.inf else top + math.log(math.fsum(math.exp(value - top) for value in values))


def log_score(cuts: Cuts, edge_logit: Sequence[float], alpha: Sequence[float], bias: Sequence[float]) -> float:
    """CRP prior times evidence of one partition, gap after gap."""
    total, run = 0.0, 1
    for cut, ell, a, b in zip(cuts, edge_logit, alpha, bias, strict=True):
        if cut:
            total += log_sigmoid(ell) + log(a) - math.log(run + a) + b
            run = 1
        else:
            total += log_sigmoid(-ell) + math.log(run) - math.log(run + a)
            run += 1
    return total


class Enumerated:
    """The posterior over the partitions of one window, by summing over all of them."""

    def __init__(
        self, edge_logit: Sequence[float], alpha: Sequence[float], bias: Sequence[float] | None = None
    ) -> None:
        self.length = len(edge_logit) + 1
        self.cuts = all_cuts(self.length)
        bias = [0.0] * len(edge_logit) if bias is None else bias
        self.scores = [log_score(cuts, edge_logit, alpha, bias) for cuts in self.cuts]
        self.log_evidence = log_sum_exp(self.scores)
        self.log_prob = {c: score - self.log_evidence for c, score in zip(self.cuts, self.scores, strict=True)}
        self.prob = {cuts: math.exp(value) for cuts, value in self.log_prob.items()}

    def cut_marginals(self) -> list[float]:
        return [math.fsum(p for c, p in self.prob.items() if c[gap]) for gap in range(self.length - 1)]

    def block_marginals(self) -> list[list[float]]:
        table = [[0.0] * self.length for _ in range(self.length)]
        for cuts, p in self.prob.items():
            for start, end in blocks(cuts):
                table[start][end - 1] += p
        return table

    def block_count(self) -> list[float]:
        counts = [0.0] * self.length
        for cuts, p in self.prob.items():
            counts[sum(cuts)] += p
        return counts

    def entropy(self) -> float:
        return -math.fsum(p * self.log_prob[cuts] for cuts, p in self.prob.items() if p > 0)

    def expected_block_length(self) -> list[float]:
        expected = [0.0] * self.length
        for cuts, p in self.prob.items():
            for start, end in blocks(cuts):
                for position in range(start, end):
                    expected[position] += p * (end - start)
        return expected

    def best(self) -> tuple[float, int]:
        """Log probability of the most probable partition and the fewest cuts of those that have it."""
        top = max(self.log_prob.values())
        return top, min(sum(cuts) for cuts, value in self.log_prob.items() if value > top - 1e-11)

    def expected_loss(self, cuts: Cuts, loss: str) -> float:
        distance = {"hamming": hamming, "vi": variation_of_information}[loss]
        return math.fsum(p * distance(cuts, other) for other, p in self.prob.items())


def hamming(a: Cuts, b: Cuts) -> float:
    return float(sum(x != y for x, y in zip(a, b, strict=True)))


def variation_of_information(a: Cuts, b: Cuts) -> float:
    """H(a|b) + H(b|a) in nats, from the joint distribution of the two block labels of a random position."""
    length = len(a) + 1
    total = 0.0
    for s, e in blocks(a):
        for x, y in blocks(b):
            overlap = min(e, y) - max(s, x)
            if overlap > 0:
                total -= overlap / length * (math.log(overlap / (e - s)) + math.log(overlap / (y - x)))
    return total


def order_log_prob(
    order: Sequence[int], cuts: Cuts, instability: Sequence[float], gamma: float, temperature: float, dynamic: bool
) -> float:
    """Successive picks in proportion to exp((gamma C - H) / temperature); C once, or again after every pick."""
    spans = blocks(cuts)
    mean = [sum(instability[s:e]) / (e - s) for s, e in spans]
    total, finished = 0.0, set()
    for pick in order:
        weights = {}
        for block in set(range(len(spans))) - finished:
            anchored = 0.5 * (block == 0)
            if dynamic:
                anchored += 0.5 * (block - 1 in finished) + 0.5 * (block + 1 in finished)
            weights[block] = (gamma * anchored - mean[block]) / temperature
        total += weights[pick] - log_sum_exp(list(weights.values()))
        finished.add(pick)
    return total


def best_pair(
    enumerated: Enumerated, instability: Sequence[float], gamma: float, temperature: float, dynamic: bool
) -> float:
    """Log probability of the most probable (partition, order), over all partitions and all their orders."""
    return max(
        log_prob + order_log_prob(order, cuts, instability, gamma, temperature, dynamic)
        for cuts, log_prob in enumerated.log_prob.items()
        for order in permutations(range(sum(cuts) + 1))
    )
