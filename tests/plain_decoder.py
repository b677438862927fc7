"""Algorithm 2 once more, in plain Python and float64, for the decoder to be compared with.

It takes the model's script, the settings, and from a finished generation only what is drawn at random or inferred
elsewhere: each window's length, on how many positions it was diagnosed (R17), partition and order. All else it works
out from the readings: diagnostic passes (R4 to R7), T(B) and quotas (R11), resolving, welding (R13), the final features
and hbar (R3), token noise (R16). It has no budget.

A choice that hangs on a difference below 1e-4 raises `NearTie`: float32 may decide it otherwise.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import torch

from scripted import MASK, Script

WORD = 1 << 64


class NearTie(Exception):
    """Two confidences or two tokens are too close for float32."""


def mix(x: int) -> int:
    """splitmix64's finaliser."""
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) % WORD
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) % WORD
    return x ^ (x >> 31)


def gumbel(key: int, position: int, token: int) -> float:
    """Standard Gumbel noise of a token at a position, from the top 52 bits of a splitmix64 counter."""
    golden = 0x9E3779B97F4A7C15
    row = mix((key + golden * (position + 1)) % WORD)
    bits = mix((row + golden * (token + 1)) % WORD)
    return -math.log(-math.log(((bits >> 12) + 0.5) / 2**52))


@dataclass
class Said:
    """What a pass predicts for a position."""

    token: int
    confidence: float
    p: np.ndarray
    jump: float

    @property
    def entropy(self) -> float:
        return float(-sum(x * math.log(x) for x in self.p if x > 0))

    @property
    def margin(self) -> float:
        first, second = sorted(self.p, reverse=True)[:2]
        return math.log(first) - math.log(second)


@dataclass
class Visit:
    """A pass in which a position was in play: what was said of it if it was masked, and whether it was accepted."""

    said: Said | None
    accepted: bool


def divergence(p: np.ndarray, q: np.ndarray) -> float:
    middle = (p + q) / 2
    return (
        sum(float(sum(x * math.log(x / m) for x, m in zip(side, middle, strict=True) if x > 0)) for side in (p, q)) / 2
    )


def features(visits: list[Visit]) -> list[float]:
    """The seven features of a position; unmasked, it says what it said last (R6)."""
    carried: list[Said] = []
    for visit in visits:
        carried.append(carried[-1] if visit.said is None else visit.said)
    pairs = list(pairwise(carried))
    successive = max(len(visits) - 1, 1)
    return [
        carried[-1].entropy,
        sum(visit.said is not None and not visit.accepted for visit in visits) / len(visits),
        sum(a.token != b.token for a, b in pairs) / successive,
        sum(divergence(a.p, b.p) for a, b in pairs) / successive,
        carried[-1].jump,
        carried[-1].confidence,
        carried[-1].margin,
    ]


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


@dataclass
class PlainWindow:
    """What is known of a window when it is finished."""

    diagnostic_features: list[list[float]] = field(default_factory=list)
    gap_divergences: list[float] = field(default_factory=list)
    instability: list[float] = field(default_factory=list)
    edge_logit: list[float] = field(default_factory=list)
    passes: list[int] = field(default_factory=list)
    final_features: list[list[float]] = field(default_factory=list)
    mean_instability: float = 0.0
    steps: list[tuple[str, set[int], set[int]]] = field(default_factory=list)  # kind, remasked, committed


class PlainDecoder:
    """One sequence; positions of the canvas count the prompt, those of results do not."""

    def __init__(
        self, script: Script, prompt: list[int], settings, weights, *, rate=1.0, temperature=0.0, key=0
    ) -> None:
        self.script, self.settings = script, settings
        self.position_weights, self.gap_weights = weights.position.numpy(), weights.gap.numpy()
        self.position_intercept, self.gap_intercept = weights.position_intercept, weights.gap_intercept
        self.rate, self.temperature, self.key = rate, temperature, key
        self.canvas, self.prompt = list(prompt), len(prompt)

    def predict(self, positions: list[int]) -> dict[int, Said]:
        ids = torch.tensor([self.canvas])
        logits = self.script(ids, torch.ones_like(ids))[0].double().numpy()
        said = {}
        for j in positions:
            open_logits = np.where(np.arange(len(logits[j])) == MASK, -np.inf, logits[j])
            p = np.exp(open_logits - open_logits.max())
            p /= p.sum()
            score = open_logits
            if self.temperature > 0:
                noise = [gumbel(self.key, j - self.prompt, v) for v in range(len(p))]
                score = open_logits / self.temperature + noise
            if np.diff(np.sort(score)[-2:])[0] < 1e-4:
                raise NearTie
            before = logits[j - 1]
            said[j] = Said(int(score.argmax()), float(p[score.argmax()]), p, float(np.abs(logits[j] - before).mean()))
        return said

    @staticmethod
    def first(values: dict[int, float], count: int, sign: int) -> set[int]:
        """The positions of the `count` smallest sign·value, the leftmost of equals."""
        ranked = sorted(values, key=lambda j: (sign * values[j], j))
        if 0 < count < len(ranked):
            gap = abs(values[ranked[count]] - values[ranked[count - 1]])
            if 0 < gap < 1e-4:
                raise NearTie
        return set(ranked[:count])

    def decode_window(self, diagnosed: int, ends: tuple[int, ...], order: tuple[int, ...]) -> PlainWindow:
        s = self.settings
        found = PlainWindow()
        start, length = len(self.canvas), ends[-1]
        places = range(start, start + diagnosed)
        self.canvas += [MASK] * diagnosed

        visits: dict[int, list[Visit]] = {j: [] for j in places}
        last: dict[int, Said] = {}
        for k in range(1, s.diagnostic_passes + 1):
            masked = [j for j in places if self.canvas[j] == MASK]
            said = self.predict(masked)
            last |= said
            if k == 1:
                found.gap_divergences = [divergence(said[j].p, said[j + 1].p) for j in places[:-1]]
            count = math.floor(k * diagnosed / (s.diagnostic_passes + 1))
            shown = self.first({j: last[j].confidence for j in places}, count, -1)
            for j in places:
                visits[j].append(Visit(said.get(j), j in shown))
                self.canvas[j] = last[j].token if j in shown else MASK
            found.steps.append(("diagnostic", set(), {j - self.prompt for j in shown}))
        for j in places:
            self.canvas[j] = MASK
        found.diagnostic_features = [features(visits[j]) for j in places]

        u = [float(np.dot(row, self.position_weights)) for row in found.diagnostic_features]
        h = found.instability = [sigmoid(x - sum(u) / diagnosed) for x in u]
        found.edge_logit = [
            float(np.dot([a, b, abs(a - b), d], self.gap_weights)) + self.gap_intercept
            for a, b, d in zip(h, h[1:], found.gap_divergences, strict=False)
        ]
        del self.canvas[start + length :]
        places, h = places[:length], h[:length]
        blocks = list(zip((0, *ends[:-1]), ends, strict=True))
        means = [sum(h[a:b]) / (b - a) for a, b in blocks]
        for (a, b), mean in zip(blocks, means, strict=True):
            if s.passes == "share":
                passes = max(1, round_half_up((b - a) * self.rate * mean / (sum(h) / length)))
            else:
                passes = round_half_up(s.min_passes + mean * (s.max_passes - s.min_passes))
            found.passes.append(min(passes, b - a))

        visits = {j: [] for j in places}
        commit_confidence: dict[int, float] = {}

        def refine(kind: str, inside: list[int], passes: int, remasked: set[int]) -> None:
            for j in remasked:
                self.canvas[j] = MASK
            masked = [j for j in inside if self.canvas[j] == MASK]
            passes = min(passes, len(masked))
            base, extra = divmod(len(masked), max(passes, 1))
            for k in range(passes):
                masked = [j for j in inside if self.canvas[j] == MASK]
                if not masked:
                    return
                said = self.predict(masked)
                count = base + (k < extra)
                if kind == "resolve" and s.threshold is not None:
                    if any(abs(said[j].confidence - s.threshold) < 1e-4 for j in masked):
                        raise NearTie
                    sure = sum(said[j].confidence >= s.threshold for j in masked)
                    count = max(sure, math.ceil(len(masked) / (passes - k)))
                chosen = self.first({j: said[j].confidence for j in masked}, count, -1)
                for j in inside:
                    visits[j].append(Visit(said.get(j), j in chosen))
                for j in chosen:
                    self.canvas[j], commit_confidence[j] = said[j].token, said[j].confidence
                before = {j - self.prompt for j in remasked} if k == 0 else set()
                found.steps.append((kind, before, {j - self.prompt for j in chosen}))

        for block in order:
            a, b = blocks[block]
            refine("resolve", list(range(start + a, start + b)), found.passes[block], set())

        intervals = []
        for (a, b), (_, c) in pairwise(blocks):
            low, high = max(a, b - s.weld_radius), min(c, b + s.weld_radius)
            intervals.append(list(range(start + low, start + high)))
        if s.weld == "joint":
            groups: list[list[int]] = []
            for interval in intervals:
                if groups and interval[0] <= groups[-1][-1]:
                    groups[-1] = sorted({*groups[-1], *interval})
                else:
                    groups.append(interval)
            if groups:
                chosen = set().union(
                    *(self.first({j: commit_confidence[j] for j in g}, max(1, len(g) // 2), 1) for g in groups)
                )
                refine("weld", [j for g in groups for j in g], s.weld_passes, chosen)
        elif s.weld == "sequential":
            for interval in intervals:
                chosen = self.first({j: commit_confidence[j] for j in interval}, max(1, len(interval) // 2), 1)
                refine("weld", interval, s.weld_passes, chosen)

        found.final_features = [features(visits[j]) for j in places]
        u = [float(np.dot(row, self.position_weights)) for row in found.final_features]
        offset = self.position_intercept if s.final_instability == "calibrated" else -sum(u) / length
        found.mean_instability = sum(sigmoid(x + offset) for x in u) / length
        return found


def round_half_up(x: float) -> int:
    if abs(x + 0.5 - round(x + 0.5)) < 1e-6:
        raise NearTie
    return math.floor(x + 0.5)
