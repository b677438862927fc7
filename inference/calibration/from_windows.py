"""From diagnosed windows to evidence weights and the report of what they are worth.

The weights come from all problems; every held-out figure from fits on the other folds' problems. The learning curve and
the table of domains repeat the cross-fitting with fits that see fewer problems, or those of some domains only.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from .bootstrap import LEVEL, resamples
from .figures import Figures
from .held_out import ALL, RIVALS, Predictions, cross_fitted, folds, learnable, targets_of
from .logistic import Array, LogisticFit, auroc, log_loss
from .nuts import LogisticPosterior, sample_logistic
from .report import CalibrationReport, Coefficient, CurvePoint, KindReport, Sampler, Transfer, verdict
from .rows import CalibrationRows, DiagnosedWindow, EvidenceFit, fit_evidence, names_of

RESAMPLES = 1000  # for the figures, where a resample is a row of a matrix product
REFITS = 200  # for the weights, where it is a fit
SMALLEST_CURVE = 8  # problems, where the learning curve begins

_Seen = Callable[[NDArray[np.int64]], Collection[int]]


@dataclass(frozen=True, eq=False)
class Calibration:
    """The fit on all problems, its report, and behind that the rows and their held-out logits by kind and predictor."""

    fit: EvidenceFit
    report: CalibrationReport
    rows: CalibrationRows
    held_out: Predictions


def calibrate(
    windows: Sequence[DiagnosedWindow],
    *,
    penalty: float = 1e-3,
    intercept: bool = True,
    seed: int = 0,
    nuts: bool = False,
) -> Calibration:
    """Fit w and w_b on all windows and report what the fit is worth.

    intercept: whether w_b has one (R8). seed: of folds, resamples and NUTS, which runs if `nuts`. Raises ValueError for
    fewer than two problems, and where no position is wrong, or all are, in the problems that a fit sees.
    """
    rows = CalibrationRows.of(windows)
    work = _Work(rows, penalty, intercept, seed)
    held_out = work.cross_fitted() if learnable(rows) else None
    if held_out is None:
        raise ValueError("the problems that a fit sees must hold right and wrong positions; take more problems.")
    fit = fit_evidence(rows, penalty, intercept=intercept)
    refits = work.refits(fit)
    curve, transfer = list(work.curve()), list(work.transfer())

    def of(kind: str, fitted: LogisticFit, features: Array) -> KindReport:
        targets = targets_of(rows, kind)[0]
        figures = {name: work.figures(kind, logits) for name, logits in held_out[kind].items()}
        posterior = sample_logistic(features, targets, fitted, penalty, seed=seed) if nuts else None
        rate = float(targets.mean())
        above = {name: figures[ALL].log_loss_above(figures[name]) for name in RIVALS[kind]}
        guess = -rate * math.log(rate) - (1 - rate) * math.log1p(-rate)
        return KindReport(
            rows=len(targets),
            rate=rate,
            guess=guess,
            gradient_norm=fitted.gradient_norm,
            coefficients=_coefficients(names_of(kind, fitted), fitted, refits[kind], posterior),
            log_loss={name: found.log_loss for name, found in figures.items()},
            auroc={name: found.auroc for name, found in figures.items()},
            log_loss_difference=above,
            auroc_difference={name: figures[ALL].auroc_above(figures[name]) for name in RIVALS[kind]},
            calibration_error=figures[ALL].calibration_error,
            bins=figures[ALL].bins,
            learning_curve=tuple(work.curve_point(kind, count, found) for count, found in curve),
            transfer=tuple(
                work.transferred(kind, on, name, found) for on, found in transfer for name in work.domains
            ),
            sampler=None if posterior is None else _sampler(posterior, fitted),
            verdict=verdict(
                kind, above["entropy"], rows.problems, log_loss=figures[ALL].log_loss.value, guess=guess
            ),
        )  # fmt: skip

    report = CalibrationReport(
        problems={name: rows.domain.count(name) for name in work.domains},
        windows=len(windows),
        penalty=penalty,
        intercept=intercept,
        seed=seed,
        folds=len(set(work.fold.tolist())),
        position=of("position", fit.position, rows.features),
        gap=of("gap", fit.gap, rows.gap_features(fit.position.weights)),
    )
    return Calibration(fit, report, rows, held_out)


class _Work:
    """The rows with their folds and resamples, and what is done again and again with them."""

    def __init__(self, rows: CalibrationRows, penalty: float, intercept: bool, seed: int) -> None:
        self.rows, self.penalty, self.intercept, self.seed = rows, penalty, intercept, seed
        self.domains = sorted(set(rows.domain))
        self.fold, self.order = folds(rows.domain, seed)
        self.counts = resamples(rows.domain, RESAMPLES, seed)

    def cross_fitted(self, seen: _Seen | None = None, rivals: Collection[str] | None = None) -> Predictions | None:
        return cross_fitted(self.rows, self.fold, self.penalty, self.intercept, seen=seen, rivals=rivals)

    def figures(self, kind: str, logits: Array, domain: str | None = None) -> Figures:
        """Figures of logits of all rows, or of those of one domain."""
        targets, problem = targets_of(self.rows, kind)
        if domain is None:
            return Figures(logits, targets, problem, self.counts)
        inside = np.array([name == domain for name in self.rows.domain])[problem]
        return Figures(logits[inside], targets[inside], problem[inside], self.counts)

    def refits(self, fit: EvidenceFit) -> dict[str, Array]:
        """The coefficients (B, C) of fits on resamples of the problems."""
        found: dict[str, list[Array]] = {"position": [], "gap": []}
        for counts in resamples(self.rows.domain, REFITS, self.seed):
            if learnable(self.rows.only(np.flatnonzero(counts))):
                again = fit_evidence(self.rows, self.penalty, intercept=self.intercept, counts=counts, start=fit)
                found["position"].append(again.position.coefficients)
                found["gap"].append(again.gap.coefficients)
        return {kind: np.array(rows) for kind, rows in found.items()}

    def curve(self) -> Iterator[tuple[int, Predictions]]:
        """Numbers of problems, doubled up to the most that a fit can see, with predictions by fits on so many."""
        most = len(self.fold) - int(np.bincount(self.fold).max())
        doubled = [SMALLEST_CURVE * 2**power for power in range(most.bit_length())]
        for count in (*(count for count in doubled if 1.5 * count <= most), most):

            def first(others: NDArray[np.int64], count: int = count) -> Collection[int]:
                return self.order[np.isin(self.order, others)][:count]

            if (found := self.cross_fitted(first, ["entropy"])) is not None:
                yield count, found

    def transfer(self) -> Iterator[tuple[tuple[str, ...], Predictions]]:
        """Of several domains each alone, all but each, and all, with predictions by fits on these."""
        count = len(self.domains)
        for size in sorted({1, count - 1, count}) if count > 1 else ():
            for chosen in combinations(self.domains, size):

                def inside(others: NDArray[np.int64], chosen: tuple[str, ...] = chosen) -> Collection[int]:
                    return [problem for problem in others if self.rows.domain[problem] in chosen]

                if (found := self.cross_fitted(inside, ["entropy"])) is not None:
                    yield chosen, found

    def curve_point(self, kind: str, count: int, found: Predictions) -> CurvePoint:
        every, entropy = (self.figures(kind, found[kind][name]) for name in (ALL, "entropy"))
        return CurvePoint(count, *_pair(every, entropy), every.log_loss_above(entropy))

    def transferred(self, kind: str, on: tuple[str, ...], domain: str, found: Predictions) -> Transfer:
        every, entropy = (self.figures(kind, found[kind][name], domain) for name in (ALL, "entropy"))
        return Transfer(on, domain, *_pair(every, entropy), every.log_loss_above(entropy))


def _pair(every: Figures, entropy: Figures) -> tuple[float, float, float, float]:
    """Log loss and AUROC of both, without intervals."""
    return (
        log_loss(every.logits, every.targets), auroc(every.logits, every.targets),
        log_loss(entropy.logits, entropy.targets), auroc(entropy.logits, entropy.targets),
    )  # fmt: skip


def _coefficients(
    names: Sequence[str], fit: LogisticFit, refits: Array, posterior: LogisticPosterior | None
) -> dict[str, Coefficient]:
    tails = ((1 - LEVEL) / 2, (1 + LEVEL) / 2)
    bootstrap = np.quantile(refits, tails, axis=0).T
    laplace, sampled = fit.laplace_intervals(LEVEL), None if posterior is None else posterior.intervals(LEVEL)
    return {
        name: Coefficient(
            value=float(fit.coefficients[i]),
            laplace=_ends(laplace[i]),
            bootstrap=_ends(bootstrap[i]),
            nuts=None if sampled is None else _ends(sampled[i]),
        )
        for i, name in enumerate(names)
    }


def _ends(interval: Array) -> tuple[float, float]:
    low, high = interval.tolist()
    return low, high


def _sampler(posterior: LogisticPosterior, fit: LogisticFit) -> Sampler:
    deviation = np.sqrt(np.diag(fit.covariance))
    ratio = posterior.standard_deviation / deviation
    return Sampler(
        draws=int(np.prod(posterior.draws.shape[:2])),
        divergences=posterior.divergences,
        r_hat=float(posterior.r_hat.max()),
        effective_sample_size=float(posterior.effective_sample_size.min()),
        mean_shift=float(np.abs((posterior.mean - fit.coefficients) / deviation).max()),
        spread_ratio=float(ratio[np.argmax(np.abs(np.log(ratio)))]),
    )
