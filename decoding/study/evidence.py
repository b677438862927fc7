"""What the readings of the evidence are worth: R4, R5, R6 and R8, from windows along known answers.

Every score is held out (see `measured`); every difference is taken on the same rows.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dystruct.inference.calibration import Estimate, LogisticFit, fit_logistic

from .diagnosis import GAP_RULES
from .measured import DEFAULT_TARGET, GAP_TARGETS, Array, Measured, Rows, gap_rows, plain, position_rows

SLOPE_RESAMPLES = 200


def diagnostic_passes(measured: Measured) -> list[dict[str, Any]]:
    """R4, R6: what u is worth by K, and where a shown position's prediction is taken at face value.

    auroc: of u against its own d, whose rate is `rate`. decoded: of the same u against the tokens that are wrong in the
    window as decoded (a token a pass), the same target for all; refitted: of u fitted on that target. above: the
    difference of `refitted` to K = 4.
    """
    refitted = {
        name: (rows := position_rows(measured.windows, name, "decoded"), rows.scored_by(rows.fits()))
        for name in measured.windows[0].diagnoses
    }
    base = measured.figures(*refitted["4"])
    found = []
    for name in measured.windows[0].diagnoses:
        own = position_rows(measured.windows, name)
        u = own.scored_by(own.fits())
        common, score = refitted[name]
        again = measured.figures(common, score)
        found.append(
            {
                "reading": f"K = {name}",
                "positions": len(own.targets),
                "rate": float(own.targets.mean()),
                "auroc": plain(measured.figures(own, u).auroc),
                "decoded_rate": float(common.targets.mean()),
                "decoded": plain(measured.figures(common, u).auroc),
                "refitted": plain(again.auroc),
                "above": plain(again.auroc_above(base)),
            }
        )
    return found


def gap_divergences(measured: Measured) -> list[dict[str, Any]]:
    """R5: the AUROC of ell by the passes whose distributions a gap's divergence is taken of; above: minus `first`'s."""
    fits = _position_fits(measured)
    found = []
    for target in (DEFAULT_TARGET, "wrong together"):
        first = None
        for rule in GAP_RULES:
            rows = gap_rows(measured.windows, target, fits, rule=rule)
            figures = measured.figures(rows, rows.scored_by(rows.fits()))
            first = figures if first is None else first
            alone = measured.figures(rows, rows.features[:, 3])
            found.append(
                {
                    "target": target,
                    "passes": rule,
                    "gaps": len(rows.targets),
                    "auroc": plain(figures.auroc),
                    "above": plain(figures.auroc_above(first)),
                    "divergence_alone": plain(alone.auroc),
                }
            )
    return found


def gap_targets(measured: Measured) -> list[dict[str, Any]]:
    """R8: for each target that w_b may be fitted on, with an intercept or without, the AUROC of ell on every target."""
    fits = _position_fits(measured)
    rows = {target: gap_rows(measured.windows, target, fits) for target in GAP_TARGETS}
    found = []
    for fitted_on, own in rows.items():
        for intercept in (True, False):
            weights = own.fits(intercept=intercept)
            found.append(
                {
                    "fitted_on": fitted_on,
                    "intercept": intercept,
                    "gaps": len(own.targets),
                    "rate": float(own.targets.mean()),
                    "auroc": {
                        target: plain(measured.figures(there, there.scored_by(weights)).auroc)
                        for target, there in rows.items()
                    },
                }
            )
    return found


def joint_commits(measured: Measured) -> list[dict[str, Any]]:
    """R8: where two tokens committed in one pass go wrong, and whether ell says so, by kind of pair and context.

    rates: of pairs that are right together, right in turn, wrong together though right in turn, and the other way
    round; of predictions that change when the other one is revealed. auroc: of ell fitted on the default target and on
    `wrong together`, of the gap's divergence and of the less confident prediction; slope: of a logistic regression of
    `wrong together` on ell, a nat. Only neighbours have a gap between them, so only they have these.
    """
    fits = _position_fits(measured)
    rows = gap_rows(measured.windows, "wrong together", fits)
    default = rows.scored_by(gap_rows(measured.windows, DEFAULT_TARGET, fits).fits())
    own = rows.scored_by(rows.fits())
    pairs = [pair for window in measured.windows for pair in window.pairs]
    problem = np.repeat([window.problem for window in measured.windows], [len(w.pairs) for w in measured.windows])
    kinds = np.array([pair["kind"] for pair in pairs])
    likely = np.array([max(pair["rank"]) < pair["masked"] / 2 for pair in pairs])
    states = np.array([pair["state"] for pair in pairs])
    confidence = np.array([min(pair["confidence"]) for pair in pairs])
    together, turn = (np.array([pair[name] for pair in pairs], dtype=float) for name in ("together", "in_turn"))
    changes = np.array([pair["right_changes"] for pair in pairs], dtype=float)
    neighbours = kinds == "neighbours"
    cases = {
        "neighbours": neighbours,
        "neighbours, window open": neighbours & (states == "open"),
        "neighbours, window partly decoded": neighbours & (states == "partly"),
        "neighbours in the more confident half": neighbours & likely,
        "2 to 8 apart": kinds == "distant",
        "the two most confident": kinds == "next",
    }
    found = []
    for name, here in cases.items():
        rates = {
            "together": together,
            "in_turn": turn,
            "wrong_together": turn * (1 - together),
            "wrong_in_turn": together * (1 - turn),
            "right_changes": changes,
        }
        case: dict[str, Any] = {
            "pairs": int(here.sum()),
            "case": name,
            "rates": {rate: plain(measured.mean(values[here], problem[here])) for rate, values in rates.items()},
        }
        inside = here[neighbours]
        if name.startswith("neighbours") and 0 < rows.targets[inside].sum() < inside.sum():
            there = rows.where(inside)
            scores = {
                "ell": default[inside],
                "ell fitted on it": own[inside],
                "divergence": there.features[:, 3],
                "less confident": -confidence[here],
            }
            case["auroc"] = {score: plain(measured.figures(there, values).auroc) for score, values in scores.items()}
            case["slope"] = plain(_slope(measured, there, default[inside]))
        found.append(case)
    return found


def _position_fits(measured: Measured) -> tuple[LogisticFit, ...]:
    return position_rows(measured.windows, "4").fits()


def _slope(measured: Measured, rows: Rows, score: Array) -> Estimate:
    """The slope of a logistic regression of the targets on one score."""
    whole = fit_logistic(score[:, None], rows.targets, 1e-9)
    slopes = []
    for counts in measured.counts[:SLOPE_RESAMPLES]:
        weights = counts[rows.problem]
        if len(set(rows.targets[weights > 0])) == 2:
            slopes.append(
                fit_logistic(score[:, None], rows.targets, 1e-9, counts=weights, start=whole).weights[0]
            )  # fmt: skip
    return Estimate.of(float(whole.weights[0]), np.array(slopes))
