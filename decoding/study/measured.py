"""Records of windows as the analyses want them: arrays, problems numbered, fits that never saw what they predict.

Two folds: the problems of even and of odd numbers. Whatever is fitted for one fold is fitted on the other, so every
figure is held out and every row is used. Knows no language model.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from dystruct.inference.calibration import Estimate, LogisticFit, fit_logistic
from dystruct.inference.calibration.bootstrap import ClusteredMean, resamples
from dystruct.inference.calibration.figures import Figures
from dystruct.model import EvidenceWeights, gap_features

from ..errors import UserError

Array = NDArray[np.float64]
FOLDS = 2
PENALTY = 1e-3
RESAMPLES = 500


@dataclass(frozen=True, eq=False)
class Diagnosed:
    """One reading's diagnosis of a window: phi (L, 7), d (L,), whether wrong (L,), the gaps' divergences by rule."""

    features: Array
    targets: Array
    wrong: Array
    gaps: dict[str, Array]


@dataclass(frozen=True, eq=False)
class MeasuredWindow:
    """A window of a numbered problem; see `along` for what was measured. inside: its positions that are answer."""

    problem: int
    start: int
    length: int
    inside: int
    diagnoses: dict[str, Diagnosed]
    decoded_features: Array
    decoded_wrong: Array
    pairs: list[dict[str, Any]]

    @property
    def fold(self) -> int:
        """Which fold its problem is in."""
        return self.problem % FOLDS


@dataclass(frozen=True, eq=False)
class Measured:
    """All windows, and the domain of each problem."""

    windows: list[MeasuredWindow]
    domains: list[str]
    seed: int = 0

    @cached_property
    def counts(self) -> NDArray[np.int64]:
        """How often each problem occurs in each resample (B, P)."""
        return resamples(self.domains, RESAMPLES, self.seed)

    @classmethod
    def of(cls, records: Sequence[dict[str, Any]]) -> Measured:
        """From the records of `measure_windows`, in the order of their keys."""
        if not records:
            raise UserError("The files hold no record yet; measure some problems first.")
        windows = [
            MeasuredWindow(
                problem=number,
                start=window["start"],
                length=window["length"],
                inside=window["inside"],
                diagnoses={name: _diagnosed(found) for name, found in window["diagnoses"].items()},
                decoded_features=np.array(window["decoded"]["features"], dtype=float),
                decoded_wrong=np.array(window["decoded"]["wrong"], dtype=float),
                pairs=window["pairs"],
            )
            for number, record in enumerate(records)
            for window in record["windows"]
        ]
        return cls(windows, [record["key"][0] for record in records])

    # --- figures with intervals -----------------------------------------------------------------------------------

    def figures(self, rows: Rows, scores: Array) -> Figures:
        """AUROC and differences of AUROCs of scores for the rows, resampled by problem."""
        return Figures(scores, rows.targets, rows.problem, self.counts)

    def mean(self, values: Array, problem: NDArray[np.int64], weights: Array | None = None) -> Estimate:
        """A (weighted) mean over rows."""
        return estimated(self.parts(values, problem, weights), self.counts)

    def parts(self, values: Array, problem: NDArray[np.int64], weights: Array | None = None) -> ClusteredMean:
        """A (weighted) mean over rows, in parts by problem."""
        weights = np.ones(len(values)) if weights is None else weights
        size = len(self.domains)
        sums, numbers = np.bincount(problem, weights * values, size), np.bincount(problem, weights, size)
        return ClusteredMean(sums.astype(float), numbers.astype(float))


@dataclass(frozen=True, eq=False)
class Rows:
    """Features (N, F), targets (N,) in {0, 1}, and the problem (N,) of each row."""

    features: Array
    targets: Array
    problem: NDArray[np.int64]

    @classmethod
    def joined(cls, parts: Sequence[tuple[Array, Array, int]]) -> Rows:
        """From (features, targets, problem) of windows."""
        return cls(
            np.concatenate([features for features, _, _ in parts]),
            np.concatenate([targets for _, targets, _ in parts]),
            np.repeat([problem for *_, problem in parts], [len(targets) for _, targets, _ in parts]),
        )

    def where(self, chosen: NDArray[np.bool_]) -> Rows:
        """Some of the rows."""
        return Rows(self.features[chosen], self.targets[chosen], self.problem[chosen])

    def fits(self, *, intercept: bool = True) -> tuple[LogisticFit, ...]:
        """For each fold, the fit on the other. Raises UserError where the rows are too few for one."""
        folds = self.problem % FOLDS
        try:
            return tuple(
                fit_logistic(self.features[folds != fold], self.targets[folds != fold], PENALTY, intercept=intercept)
                for fold in range(FOLDS)
            )
        except ValueError as error:
            raise UserError(f"The records are too few to fit on ({error}); measure more problems.") from error

    def scored_by(self, fits: Sequence[LogisticFit]) -> Array:
        """Logits (N,) of the rows under fits that have not seen them."""
        found = np.empty(len(self.targets))
        for fold in range(FOLDS):
            here = self.problem % FOLDS == fold
            found[here] = fits[fold].logits(self.features[here])
        return found


def position_rows(windows: Sequence[MeasuredWindow], name: str, target: str = "d") -> Rows:
    """phi of a diagnosis with d, or with whether the window as decoded is wrong (`decoded`): answer positions only."""
    return Rows.joined(
        [
            (
                window.diagnoses[name].features[: window.inside],
                (window.diagnoses[name].targets if target == "d" else window.decoded_wrong)[: window.inside],
                window.problem,
            )
            for window in windows
        ]
    )


def gap_psi(window: MeasuredWindow, name: str, fits: Sequence[LogisticFit], rule: str = "first") -> Array:
    """psi (L-1, 4) of a window under position weights that have not seen it."""
    found = window.diagnoses[name]
    u = torch.from_numpy(found.features @ fits[window.fold].weights)
    return gap_features(torch.sigmoid(u - u.mean()), torch.from_numpy(found.gaps[rule])).numpy()


GAP_TARGETS: dict[str, Callable[[MeasuredWindow], tuple[list[int], list[float]]]] = {
    "errors differ": lambda window: _every_gap(window, lambda d: np.not_equal(d[1:], d[:-1])),
    "error begins": lambda window: _every_gap(window, lambda d: np.greater(d[1:], d[:-1])),
    "wrong together": lambda window: _tried_gaps(window, lambda pair: pair["in_turn"] and not pair["together"]),
    "right changes": lambda window: _tried_gaps(window, lambda pair: pair["right_changes"]),
}
DEFAULT_TARGET = "errors differ"


def gap_rows(
    windows: Sequence[MeasuredWindow], target: str, fits: Sequence[LogisticFit], *, name: str = "4", rule: str = "first"
) -> Rows:
    """psi with one of GAP_TARGETS: of all gaps within the answer, or of those whose neighbours were tried as a pair."""
    parts = []
    for window in windows:
        gaps, targets = GAP_TARGETS[target](window)
        parts.append((gap_psi(window, name, fits, rule)[gaps], np.array(targets, dtype=float), window.problem))
    return Rows.joined(parts)


def evidence_weights(position: LogisticFit, gap: LogisticFit, gap_targets: Array) -> EvidenceWeights:
    """The two fits as what decoding takes; gap_targets: those that the second was fitted on."""
    return EvidenceWeights(
        torch.from_numpy(position.weights), position.intercept, torch.from_numpy(gap.weights), gap.intercept,
        float(gap_targets.mean()),
    )  # fmt: skip


def estimated(parts: ClusteredMean, counts: NDArray[np.int64]) -> Estimate:
    """A mean with its interval over resamples."""
    number = parts.numbers.sum()
    return Estimate.of(parts.sums.sum() / number if number else np.nan, parts.under(counts))


def plain(estimate: Estimate) -> dict[str, float | None]:
    """An estimate as JSON has it; null where there is no number."""
    values = {"value": estimate.value, "low": estimate.low, "high": estimate.high}
    return {name: None if np.isnan(value) else round(value, 5) for name, value in values.items()}


def _every_gap(window: MeasuredWindow, jumps: Callable[[Array], NDArray[np.bool_]]) -> tuple[list[int], list[float]]:
    found = jumps(window.diagnoses["4"].targets[: window.inside])
    return list(range(len(found))), found.astype(float).tolist()


def _tried_gaps(window: MeasuredWindow, event: Callable[[Any], Any]) -> tuple[list[int], list[float]]:
    pairs = [pair for pair in window.pairs if pair["kind"] == "neighbours"]
    return [pair["left"] for pair in pairs], [float(event(pair)) for pair in pairs]


def _diagnosed(found: dict[str, Any]) -> Diagnosed:
    wrong = np.array(found["wrong"], dtype=float)
    return Diagnosed(
        features=np.array(found["features"], dtype=float),
        targets=np.maximum(wrong, np.array(found["taken_back"], dtype=float)),
        wrong=wrong,
        gaps={rule: np.array(values, dtype=float) for rule, values in found["gaps"].items()},
    )
