"""Blocks a window: how many, by alpha0 and sharpness of the edge evidence, which of them the windows themselves speak
for, and whether cuts fall where committing two tokens in one pass goes wrong.

What w_b was fitted on (a gap target, R8) is given; each window's edge logits come from weights that have not seen its
problem. Two forms of the evidence: `odds`, ell as it is fitted, the log odds of the target, how often it occurs
included; and `ratio`, these less the log odds of the target's rate, as `DyStruct(edge_base_rate="removed")` has them,
which leaves a likelihood ratio and so the rate of cuts to the prior alone. Sharpness s multiplies the edge logits.

Learning alpha0 and s by maximum evidence, partitions summed out. The recorded logit x of a gap is N(+m, v) if the gap
is cut and N(-m, v) if not; then s x with s = 2m / v is the log likelihood ratio of a cut, and per window

    log p(x | alpha0, s, v) = log Z(s x; alpha0) + sum over gaps log(N(s x; c²/2, c) + N(s x; -c²/2, c)) + log s,

c² = s² v. The best c solves c² + c⁴/4 = mean (s x)², so the search is over s, and alpha0 given s.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dystruct.inference import posterior
from dystruct.inference.calibration import Estimate
from dystruct.inference.calibration.bootstrap import ClusteredMean
from dystruct.inference.concentration import learn_concentration
from dystruct.inference.hyper import RecordedWindows
from dystruct.inference.semimarkov import SemiMarkov
from dystruct.model import (
    Anchoring,
    Context,
    Diagnostics,
    EvidenceWeights,
    Partition,
    PriorConfig,
    diagnose,
    evidence_offset,
    order_law,
)

from .measured import (
    FOLDS,
    Array,
    Measured,
    MeasuredWindow,
    Rows,
    estimated,
    evidence_weights,
    gap_rows,
    plain,
    position_rows,
)

Form = Literal["odds", "ratio"]
CONCENTRATIONS = (0.5, 1.0, 1.5, 2.0, 4.0, 8.0)
SHARPNESS = (0.5, 1.0, 2.0, 4.0)
FORMS: tuple[Form, ...] = ("odds", "ratio")
LEARNABLE = tuple(2.0**n for n in range(-3, 5))
DRAWS = 100
_AT_ONCE = 256  # windows in one recursion
_RANKED = 100  # windows in which the joint maximum is looked for: it ranks partitions one by one


@dataclass(frozen=True, eq=False)
class Evidence:
    """The windows' diagnostics under held-out weights; context: all behind a window of hbar = 0.5, as the first one."""

    windows: list[MeasuredWindow]
    diagnostics: list[Diagnostics]

    @classmethod
    def of(cls, measured: Measured, target: str, form: Form = "odds") -> Evidence:
        """With w_b fitted on one of GAP_TARGETS."""
        position = position_rows(measured.windows, "4").fits()
        rows = gap_rows(measured.windows, target, position)
        weights = [
            evidence_weights(at, gap, rows.targets[rows.problem % FOLDS != fold])
            for fold, (at, gap) in enumerate(zip(position, rows.fits(), strict=True))
        ]
        if form == "ratio":
            weights = [there.without_base_rate() for there in weights]
        return cls(measured.windows, [_diagnosed(window, weights[window.fold]) for window in measured.windows])

    def sharpened(self, sharpness: float) -> list[tuple[Diagnostics, Context]]:
        """The diagnostics with edge logits multiplied."""
        return [(Diagnostics(d.instability, sharpness * d.edge_logit), Context(0.5)) for d in self.diagnostics]


@dataclass(frozen=True)
class Learned:
    """alpha0 and sharpness of maximum evidence; gain: log evidence above that of alpha0 = 1.5, s = 1, nats a window.

    at_bound: the evidence still rises at the end of what was searched, for either of them.
    """

    concentration: float
    sharpness: float
    gain: float
    at_bound: bool


def learn(evidence: Evidence, sharpness: Sequence[float]) -> Learned:
    """Maximise the windows' evidence over alpha0 in [0.01, 100] and some values of s."""
    found = []
    for s in sharpness:
        windows = evidence.sharpened(s)
        best = learn_concentration(windows, low=0.01, high=100)
        found.append((best.log_evidence + _density(windows, s), s, best.concentration, best.at_bound))
    plainly = evidence.sharpened(1.0)
    now = float(RecordedWindows.of(plainly).log_evidence(torch.tensor(PriorConfig().concentration).double()))
    value, s, concentration, at_bound = max(found)
    return Learned(
        concentration=concentration,
        sharpness=s,
        gain=(value - now - _density(plainly, 1.0)) / len(plainly),
        at_bound=at_bound or (s in (sharpness[0], sharpness[-1]) and len(sharpness) > 1),
    )


def block_distribution(
    measured: Measured,
    evidence: Evidence,
    concentrations: Sequence[float],
    sharpness: Sequence[float],
) -> list[dict[str, Any]]:
    """For each setting the blocks a window of the MAP and of samples, and how cuts and wrong joint commits meet.

    map, sampled: the mean and the shares of windows with 1, 2, 3, and 4 or more blocks. Of neighbours that were tried
    as a pair: `apart` and `inside`, the rate of `wrong together` among those that a sampled partition separates, and
    among those in one block; `help`, the share of the wrong ones that it separates, minus the share of all that it
    does, which is 0 if cuts know nothing of where joint commits go wrong; `map_help`, the same of the MAP partition;
    `auroc` of the cut marginal for `wrong together`. distant_help: of pairs 2 to 8 apart, by sampled partitions.
    """
    return [_setting(measured, evidence, concentration, s) for s in sharpness for concentration in concentrations]


def orders(measured: Measured, evidence: Evidence, concentration: float, sharpness: float) -> dict[str, Any]:
    """R9, R10: of sampled partitions of two blocks or more, how often the order is not left to right, C static or
    dynamic; and how often the most probable (partition, order) has another partition than the MAP.
    """
    generator = torch.Generator().manual_seed(measured.seed)
    moved: dict[Anchoring, list[bool]] = {"static": [], "dynamic": []}
    other: list[bool] = []
    for diagnostics, context in evidence.sharpened(sharpness):
        there = posterior(diagnostics, context, PriorConfig(concentration=concentration))
        partition = Partition.from_cuts(there.chain.sample(1, generator)[0, 0].tolist())
        if partition.count > 1:
            for anchoring, found in moved.items():
                prior = PriorConfig(concentration=concentration, anchoring=anchoring)
                order = order_law(partition, diagnostics.instability, prior).mode.tolist()
                found.append(order != sorted(order))
        if len(other) < _RANKED:
            other.append(there.joint_maximum(limit=100).structure.partition != there.map().partition)
    return {
        "concentration": concentration,
        "sharpness": sharpness,
        "windows_of_several_blocks": len(moved["static"]),
        "not_left_to_right": {name: float(np.mean(found)) if found else None for name, found in moved.items()},
        "joint_maximum_differs": float(np.mean(other)),
        "joint_maximum_windows": len(other),
    }


def _setting(measured: Measured, evidence: Evidence, concentration: float, sharpness: float) -> dict[str, Any]:
    prior = PriorConfig(concentration=concentration)
    generator = torch.Generator().manual_seed(measured.seed)
    windows = evidence.sharpened(sharpness)
    best: list[int] = []
    counts = np.zeros(4)
    sampled: list[float] = []
    rows: list[tuple[int, bool, float, float, float]] = []  # problem, neighbours, wrong, apart: sampled, in the MAP
    for first in range(0, len(windows), _AT_ONCE):
        chain = _chain(windows[first : first + _AT_ONCE], prior)
        cuts, drawn, marginals = chain.map(), chain.sample(DRAWS, generator), chain.cut_marginals
        best += (1 + cuts.sum(-1)).tolist()
        law = chain.block_count
        counts += torch.cat((law[:, :3].sum(0), law[:, 3:].sum().view(1))).numpy()
        sampled += (1 + marginals.sum(-1)).tolist()
        for n, window in enumerate(evidence.windows[first : first + _AT_ONCE]):
            for pair in window.pairs:
                if pair["kind"] != "next":
                    between = slice(pair["left"], pair["right"])
                    neighbours = pair["kind"] == "neighbours"
                    apart = marginals[n, pair["left"]] if neighbours else drawn[:, n, between].any(-1).double().mean()
                    event = float(pair["in_turn"] and not pair["together"])
                    rows.append((window.problem, neighbours, event, float(apart), float(cuts[n, between].any())))
    problem, wrong, separated, separated_map = _columns([row for row in rows if row[1]])
    far, far_wrong, far_separated, _ = _columns([row for row in rows if not row[1]])
    return {
        "concentration": concentration,
        "sharpness": sharpness,
        "windows": len(windows),
        "map": {"mean": float(np.mean(best)), "shares": _shares(np.bincount(np.minimum(best, 4), minlength=5)[1:])},
        "sampled": {"mean": float(np.mean(sampled)), "shares": _shares(counts)},
        "pairs": len(wrong),
        "apart": plain(measured.mean(wrong, problem, separated)),
        "inside": plain(measured.mean(wrong, problem, 1 - separated)),
        "help": plain(_help(measured, wrong, separated, problem)),
        "map_help": plain(_help(measured, wrong, separated_map, problem)),
        "auroc": plain(measured.figures(Rows(separated[:, None], wrong, problem), separated).auroc),
        "distant_pairs": len(far),
        "distant_help": plain(_help(measured, far_wrong, far_separated, far)),
    }


def _columns(
    rows: Sequence[tuple[int, bool, float, float, float]],
) -> tuple[NDArray[np.int64], Array, Array, Array]:
    """Problem, wrong together, apart in samples, apart in the MAP: each (N,)."""
    wrong, separated, separated_map = np.array([row[2:] for row in rows], dtype=float).reshape(-1, 3).T
    return np.array([row[0] for row in rows], dtype=np.int64), wrong, separated, separated_map


def _help(measured: Measured, wrong: Array, apart: Array, problem: NDArray[np.int64]) -> Estimate:
    """Share of the wrong pairs that are apart, minus the share of all pairs that are."""
    of_wrong: ClusteredMean = measured.parts(apart, problem, wrong)
    of_all = measured.parts(apart, problem)
    value = estimated(of_wrong, measured.counts).value - estimated(of_all, measured.counts).value
    return Estimate.of(value, of_wrong.under(measured.counts) - of_all.under(measured.counts))


def _chain(windows: Sequence[tuple[Diagnostics, Context]], prior: PriorConfig) -> SemiMarkov:
    recorded = RecordedWindows.of(windows)
    return SemiMarkov(
        recorded.edge_logit, prior.concentration * recorded.relative_concentration, recorded.lengths
    )  # fmt: skip


def _density(windows: Sequence[tuple[Diagnostics, Context]], sharpness: float) -> float:
    """What the equation adds to log Z, nats, at the best c."""
    logits: Tensor = torch.cat([diagnostics.edge_logit for diagnostics, _ in windows])
    scale = torch.sqrt(2 * (torch.sqrt(1 + (logits**2).mean()) - 1))
    return float(evidence_offset(logits, scale).sum()) + len(logits) * math.log(sharpness)


def _diagnosed(window: MeasuredWindow, weights: EvidenceWeights) -> Diagnostics:
    found = window.diagnoses["4"]
    return diagnose(found.features, found.gaps["first"], weights)


def _shares(counts: Array | NDArray[np.int64]) -> list[float]:
    return [round(float(count / counts.sum()), 4) for count in counts]
