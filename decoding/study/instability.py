"""R3: whether the mean instability hbar of a finished window moves the next window's length, and whether it should.

What could be carried on from a window, all by weights that have not seen its problem:

    calibrated   mean of sigmoid(u + intercept) over phi of the passes that decoded it     (the default)
    centred      mean of sigmoid(u - mean u) over the same                                 (the literal reading)
    diagnosed    mean of sigmoid(u + intercept) over phi of its diagnostic passes
    refitted     as calibrated, with weights fitted on phi and errors of decoded windows
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import expit

from dystruct.inference.calibration import Estimate
from dystruct.model import Context, PriorConfig, window_rate

from .measured import Array, Measured, MeasuredWindow, Rows, estimated, plain, position_rows

RULES = ("calibrated", "centred", "diagnosed", "refitted")
SHORT = 28  # tokens; up to here a window is a short one


def carried_instability(measured: Measured) -> list[dict[str, Any]]:
    """Each rule's hbar of windows that another one follows: its spread, in tokens of mu, and what it foretells.

    error_rate: the share of the window's tokens that came out wrong, which a calibrated hbar should equal. here, next:
    the AUROC of hbar for a share above the median, in the window itself and in the one behind it (which opens behind
    right tokens).
    """
    followed, hbar = _hbar(measured)
    problem = np.array([window.problem for window, _ in followed])
    error = np.array([window.decoded_wrong.mean() for window, _ in followed])
    here = (error > np.median(error)).astype(float)
    next_error = np.array([after.decoded_wrong[: after.inside].mean() for _, after in followed])
    behind = (next_error > np.median(next_error)).astype(float)
    found = []
    for rule in RULES:
        values = hbar[rule]
        rates = np.array([window_rate(Context(value), PriorConfig()) for value in values])
        there = values[:, None]
        found.append(
            {
                "rule": rule,
                "windows": len(values),
                "hbar": plain(measured.mean(values, problem)),
                "spread": float(values.std()),
                "error_rate": plain(measured.mean(error, problem)),
                "rate": float(rates.mean()),
                "rate_spread": float(rates.std()),
                "here": plain(measured.figures(Rows(there, here, problem), values).auroc),
                "next": plain(measured.figures(Rows(there, behind, problem), values).auroc),
            }
        )
    return found


def length_payoff(measured: Measured) -> dict[str, Any]:
    """Whether short windows pay more behind an unstable window: error rates of the following window, two by two.

    Windows follow one whose calibrated hbar is below or above the median, and have up to 28 tokens or more (lengths are
    drawn, so neither chose the other). payoff: by how much more a long one's error rate exceeds a short one's
    behind unstable windows than behind stable ones; the rule of R3 pays if it is above 0.
    """
    followed, hbar = _hbar(measured)
    problem = np.array([window.problem for window, _ in followed])
    unstable = hbar["calibrated"] > np.median(hbar["calibrated"])
    long = np.array([after.length > SHORT for _, after in followed])
    wrong = np.array([after.decoded_wrong[: after.inside].mean() for _, after in followed])
    cells: dict[str, Any] = {"windows": len(wrong)}
    value, resampled = 0.0, np.zeros(len(measured.counts))
    for name, sign, chosen in (
        ("stable, short", 1, ~unstable & ~long),
        ("stable, long", -1, ~unstable & long),
        ("unstable, short", -1, unstable & ~long),
        ("unstable, long", 1, unstable & long),
    ):
        parts = measured.parts(wrong[chosen], problem[chosen])
        estimate = estimated(parts, measured.counts)
        cells[name] = {"windows": int(chosen.sum()), "wrong": plain(estimate)}
        value += sign * estimate.value
        resampled += sign * parts.under(measured.counts)
    cells["payoff"] = plain(Estimate.of(value, resampled))
    return cells


def _hbar(measured: Measured) -> tuple[list[tuple[MeasuredWindow, MeasuredWindow]], dict[str, Array]]:
    """Windows that lie in the answer as a whole, each with the one behind it; hbar of the former by rule."""
    followed = [
        (window, after)
        for window, after in zip(measured.windows, measured.windows[1:], strict=False)
        if window.problem == after.problem and after.start == window.start + window.length
    ]
    fits = position_rows(measured.windows, "4").fits()
    decoded = Rows.joined(
        [(window.decoded_features, window.decoded_wrong, window.problem) for window in measured.windows]
    ).fits()
    hbar = {rule: np.empty(len(followed)) for rule in RULES}
    for n, (window, _) in enumerate(followed):
        fit, again = fits[window.fold], decoded[window.fold]
        u = window.decoded_features @ fit.weights
        hbar["calibrated"][n] = expit(u + fit.intercept).mean()
        hbar["centred"][n] = expit(u - u.mean()).mean()
        hbar["diagnosed"][n] = expit(fit.logits(window.diagnoses["4"].features)).mean()
        hbar["refitted"][n] = expit(again.logits(window.decoded_features)).mean()
    return followed, hbar
