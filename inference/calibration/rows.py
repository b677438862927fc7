"""What the evidence weights are fitted on, and the two fits: w on positions first, then w_b on gaps under that w.

Knows nothing of where windows come from. Symbols, for windows of L positions each:

    phi (L, 7)      position features        d (L,)      1 where what was predicted did not stand
    psi (L-1, 4)    gap features under w     e (L-1,)    1 where the d of a gap's two sides differ (R8)
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import expit

from dystruct.model import GAP_FEATURES, POSITION_FEATURES, EvidenceWeights, gap_features

from .logistic import Array, LogisticFit, fit_logistic


@dataclass(frozen=True, eq=False)
class DiagnosedWindow:
    """One window's phi (L, 7), gap divergences (L-1,) in nats and targets d (L,), each 0 or 1.

    problem: which problem it belongs to; windows of one problem depend on each other. domain: the problem's. Raises
    ValueError naming the field that has another shape or value.
    """

    problem: int
    features: Array
    gap_divergence: Array
    targets: Array
    domain: str = ""

    def __post_init__(self) -> None:
        length = len(self.targets)
        for name, shape in (
            ("features", (length, len(POSITION_FEATURES))),
            ("gap_divergence", (length - 1,)),
            ("targets", (length,)),
        ):
            value = np.asarray(getattr(self, name), dtype=np.float64)
            if value.shape != shape or not length:
                raise ValueError(f"{name} must have shape {shape}, got {value.shape}.")
            object.__setattr__(self, name, value)
        if not np.isin(self.targets, (0.0, 1.0)).all():
            raise ValueError("targets must be 0 or 1.")


@dataclass(frozen=True, eq=False)
class CalibrationRows:
    """Windows end to end, N positions and G gaps in all.

    features (N, 7); targets d (N,); problem (N,) as numbers 0 to P-1, in the order of first occurrence; domain (P,) of
    each problem; window (N,): a number for each window; gap (G,): the position on each gap's left; divergence (G,).
    """

    features: Array
    targets: Array
    problem: NDArray[np.int64]
    domain: tuple[str, ...]
    window: NDArray[np.int64]
    gap: NDArray[np.int64]
    divergence: Array

    @classmethod
    def of(cls, windows: Sequence[DiagnosedWindow]) -> CalibrationRows:
        """Raises ValueError if there is no gap in any window, or a problem is of two domains."""
        if not any(len(window.targets) > 1 for window in windows):
            raise ValueError("windows must hold at least one window of two positions or more.")
        lengths = [len(window.targets) for window in windows]
        domains: dict[int, str] = {}
        for window in windows:
            if domains.setdefault(window.problem, window.domain) != window.domain:
                raise ValueError(f"problem {window.problem} is of two domains; number the problems of all together.")
        number = {problem: index for index, problem in enumerate(domains)}
        place = np.repeat(np.arange(len(windows)), lengths)
        return cls(
            features=np.concatenate([window.features for window in windows]),
            targets=np.concatenate([window.targets for window in windows]),
            problem=np.repeat([number[window.problem] for window in windows], lengths),
            domain=tuple(domains.values()),
            window=place,
            gap=np.flatnonzero(place[1:] == place[:-1]),
            divergence=np.concatenate([window.gap_divergence for window in windows]),
        )

    def only(self, problems: Collection[int]) -> CalibrationRows:
        """The rows of some problems, whose numbers stay."""
        kept = np.isin(self.problem, list(problems))
        moved = np.cumsum(kept) - 1
        inside = kept[self.gap]
        return CalibrationRows(
            features=self.features[kept],
            targets=self.targets[kept],
            problem=self.problem[kept],
            domain=self.domain,
            window=self.window[kept],
            gap=moved[self.gap[inside]],
            divergence=self.divergence[inside],
        )

    @property
    def problems(self) -> int:
        """P, of all that are numbered."""
        return len(self.domain)

    @cached_property
    def gap_targets(self) -> Array:
        """e (G,)."""
        return (self.targets[self.gap] != self.targets[self.gap + 1]).astype(np.float64)

    @cached_property
    def gap_problem(self) -> NDArray[np.int64]:
        """The problem (G,) of each gap."""
        return self.problem[self.gap]

    def gap_features(self, position_weights: Array) -> Array:
        """psi (G, 4) with h = sigmoid(u - mean u), u = phi·w, the mean taken over each window."""
        u = self.features @ position_weights
        _, start, size = np.unique(self.window, return_index=True, return_counts=True)
        h = expit(u - np.repeat(np.add.reduceat(u, start) / size, size))
        every = np.zeros(max(len(h) - 1, 0))
        every[self.gap] = self.divergence
        return gap_features(torch.from_numpy(h), torch.from_numpy(every)).numpy()[self.gap]

    def gap_difference(self, feature: str) -> Array:
        """The absolute difference (G,) of a position feature across each gap."""
        values = self.features[:, POSITION_FEATURES.index(feature)]
        return np.abs(values[self.gap] - values[self.gap + 1])


@dataclass(frozen=True, eq=False)
class EvidenceFit:
    """The fit of w, always with an intercept, which the calibrated hbar needs (R3), and the fit of w_b under that w.

    gap_rate: the mean of the gap targets e that w_b was fitted on.
    """

    position: LogisticFit
    gap: LogisticFit
    gap_rate: float

    @property
    def weights(self) -> EvidenceWeights:
        """The weights as decoding takes them; only an intercept holds the base rate of gap targets."""
        return EvidenceWeights(
            torch.from_numpy(self.position.weights), self.position.intercept,
            torch.from_numpy(self.gap.weights), self.gap.intercept, self.gap_rate if self.gap.has_intercept else None,
        )  # fmt: skip

    def position_logits(self, rows: CalibrationRows) -> Array:
        """u + b (N,) of the positions."""
        return self.position.logits(rows.features)

    def gap_logits(self, rows: CalibrationRows) -> Array:
        """ell (G,) of the gaps."""
        return self.gap.logits(rows.gap_features(self.position.weights))

    def coefficients(self) -> dict[str, dict[str, float]]:
        """The coefficients by name, of "position" and "gap"."""
        return {
            kind: dict(zip(names_of(kind, fit), fit.coefficients.tolist(), strict=True))
            for kind, fit in (("position", self.position), ("gap", self.gap))
        }


def names_of(kind: str, fit: LogisticFit) -> tuple[str, ...]:
    """The names of a fit's coefficients, kind being "position" or "gap"."""
    names = POSITION_FEATURES if kind == "position" else GAP_FEATURES
    return (*names, "intercept") if fit.has_intercept else names


def fit_evidence(
    rows: CalibrationRows,
    penalty: float = 1e-3,
    *,
    intercept: bool = True,
    counts: NDArray[Any] | None = None,
    start: EvidenceFit | None = None,
) -> EvidenceFit:
    """Fit w and w_b, each with `penalty`; intercept: whether w_b has one (R8).

    counts (P,): how often each problem occurs, default once. start: a fit near the result. Raises ValueError as
    `fit_logistic`: where no position is wrong, or all are, there is nothing to learn.
    """
    of_positions = None if counts is None else np.asarray(counts, dtype=np.float64)[rows.problem]
    of_gaps = None if counts is None else np.asarray(counts, dtype=np.float64)[rows.gap_problem]
    position = fit_logistic(
        rows.features, rows.targets, penalty, counts=of_positions, start=start.position if start else None
    )  # fmt: skip
    gap = fit_logistic(
        rows.gap_features(position.weights), rows.gap_targets, penalty, intercept=intercept, counts=of_gaps,
        start=start.gap if start else None,
    )  # fmt: skip
    return EvidenceFit(position, gap, float(np.average(rows.gap_targets, weights=of_gaps)))
