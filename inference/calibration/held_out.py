"""Predictions for problems that a fit has not seen, by all features and by one feature alone.

Folds hold whole problems, of every domain alike. A rival is a logistic regression on one feature, fitted with the same
penalty on the same problems, so that its log loss can be compared. A gap's rival feature is the absolute difference of
a position feature across it, or the divergence of its two distributions.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

import numpy as np
from numpy.typing import NDArray

from dystruct.model import POSITION_FEATURES

from .logistic import Array, fit_logistic
from .rows import CalibrationRows, fit_evidence

KINDS = ("position", "gap")
ALL = "all"  # all features together, beside the rivals
RIVALS = {"position": ("entropy", "confidence", "margin"), "gap": ("entropy", "confidence", "margin", "divergence")}
FOLDS = 5

Predictions = dict[str, dict[str, Array]]


def folds(domain: Sequence[str], seed: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The fold (P,) of each problem, and an order (P,) of all in whose beginnings the domains have like parts.

    Raises ValueError for fewer than two problems.
    """
    if len(domain) < 2:
        raise ValueError("there must be two problems at least, or nothing is left to test a fit on.")
    generator = np.random.default_rng(seed)
    turn, fold, done = np.zeros(len(domain)), np.zeros(len(domain), dtype=np.int64), 0
    for name in sorted(set(domain)):
        members = generator.permutation(np.flatnonzero([other == name for other in domain]))
        turn[members] = np.arange(len(members)) / len(members)
        fold[members] = (done + np.arange(len(members))) % min(FOLDS, len(domain))
        done += len(members)
    return fold, np.argsort(turn, kind="stable")


def learnable(rows: CalibrationRows) -> bool:
    """Whether there are positions, and gaps, of both kinds."""
    return len(np.unique(rows.targets)) == 2 and len(np.unique(rows.gap_targets)) == 2


def targets_of(rows: CalibrationRows, kind: str) -> tuple[Array, NDArray[np.int64]]:
    """Targets of the positions or gaps, and the problem of each."""
    return (rows.targets, rows.problem) if kind == "position" else (rows.gap_targets, rows.gap_problem)


def cross_fitted(
    rows: CalibrationRows,
    fold: NDArray[np.int64],
    penalty: float,
    intercept: bool,
    *,
    seen: Callable[[NDArray[np.int64]], Collection[int]] | None = None,
    rivals: Collection[str] | None = None,
) -> Predictions | None:
    """Logits of every position (N,) and gap (G,), by fits on problems of the other folds; None where one cannot be.

    seen: which of the other folds' problems a fit sees; default all. rivals: which to fit beside ALL; default RIVALS.
    """
    chosen = {kind: RIVALS[kind] if rivals is None else [n for n in RIVALS[kind] if n in rivals] for kind in KINDS}
    found = {
        kind: {name: np.full(len(targets_of(rows, kind)[0]), np.nan) for name in (ALL, *chosen[kind])} for kind in KINDS
    }
    for number in np.unique(fold):
        others = np.flatnonzero(fold != number)
        train = rows.only(others if seen is None else seen(others))
        if not learnable(train):
            return None
        tested = np.flatnonzero(fold == number)
        test = rows.only(tested)
        fit = fit_evidence(train, penalty, intercept=intercept)
        for kind in KINDS:
            place = np.isin(targets_of(rows, kind)[1], tested)
            found[kind][ALL][place] = fit.position_logits(test) if kind == "position" else fit.gap_logits(test)
            for name in chosen[kind]:
                rival = fit_logistic(_column(train, kind, name), targets_of(train, kind)[0], penalty)
                found[kind][name][place] = rival.logits(_column(test, kind, name))
    return found


def _column(rows: CalibrationRows, kind: str, name: str) -> Array:
    """A rival's one feature (N, 1) or (G, 1)."""
    if kind == "position":
        return rows.features[:, [POSITION_FEATURES.index(name)]]
    return (rows.divergence if name == "divergence" else rows.gap_difference(name))[:, None]
