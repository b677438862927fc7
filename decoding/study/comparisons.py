"""Variants compared with the base on the same problems: what each costs and whether it is right more often.

Differences are means over problems of variant minus base, with bootstrap intervals over problems; right answers also
have McNemar's exact test of the problems that only one of the two gets right.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dystruct.inference.calibration import Estimate
from dystruct.inference.calibration.bootstrap import ClusteredMean, resamples

from ..evaluation.statistics import mcnemar
from .measured import RESAMPLES, Array, plain
from .variants import BASE

FREE = ("right", "passes", "useful", "wasted", "windows", "length", "blocks", "reordered")
ALONG = ("right", "wrong_share", "passes", "blocks", "reordered", "mended", "spoilt")


def compared(records: Sequence[dict[str, Any]], *, along: bool, seed: int = 0) -> list[dict[str, Any]]:
    """A row a variant over all domains, and one a variant and domain; only problems that the base has too.

    Per problem (free) or window (along): right; forward passes; useful and wasted tokens; windows and their mean
    length; blocks a window; the share of windows not decoded left to right; the share of wrong tokens; tokens that
    welds mended and spoilt. `difference` is to the base, `mcnemar` its p-value for right ones.
    """
    names = ALONG if along else FREE
    found: dict[str, dict[tuple[str, int], list[dict[str, float]]]] = {}
    for record in records:
        variant, domain, number = record["key"]
        values = [_window(window) for window in record["windows"]] if along else [_problem(record)]
        found.setdefault(variant, {})[domain, number] = values
    base = found.get(BASE, {})
    rows = []
    for variant in sorted(found, key=lambda name: (name != BASE, name)):
        shared = sorted(found[variant].keys() & base.keys())
        domains = sorted({domain for domain, _ in shared})
        for domain in [None, *domains]:
            keys = [key for key in shared if domain in (None, key[0])]
            row: dict[str, Any] = {"variant": variant, "domain": domain, "problems": len(keys)}
            there, here = ([side[key] for key in keys] for side in (found[variant], base))
            counts = resamples([key[0] for key in keys], RESAMPLES, seed)
            for name in names:
                parts, other = _parts(there, name), _parts(here, name)
                value, against = _value(parts), _value(other)
                row[name] = plain(Estimate.of(value, parts.under(counts)))
                if variant != BASE:
                    row[f"{name}_difference"] = plain(
                        Estimate.of(value - against, parts.under(counts) - other.under(counts))
                    )
            if variant != BASE:
                row["mcnemar"] = _mcnemar(there, here)
            rows.append(row)
    return rows


def _problem(record: dict[str, Any]) -> dict[str, float]:
    windows = record["windows"]
    return {
        "right": record["right"],
        "passes": record["passes"],
        "useful": record["useful"],
        "wasted": record["wasted"],
        "windows": len(windows),
        "length": float(np.mean([window["length"] for window in windows])),
        "blocks": float(np.mean([window["blocks"] for window in windows])),
        "reordered": float(np.mean([1 - window["in_order"] for window in windows])),
    }


def _window(window: dict[str, Any]) -> dict[str, float]:
    return {
        "right": float(window["wrong"] == 0),
        "wrong_share": window["wrong"] / window["inside"],
        "passes": window["passes"],
        "blocks": window["blocks"],
        "reordered": 1 - window["in_order"],
        "mended": window["mended"],
        "spoilt": window["spoilt"],
    }


def _parts(problems: Sequence[Sequence[dict[str, float]]], name: str) -> ClusteredMean:
    sums: Array = np.array([sum(row[name] for row in rows) for rows in problems], dtype=float)
    return ClusteredMean(sums, np.array([len(rows) for rows in problems], dtype=float))


def _value(parts: ClusteredMean) -> float:
    return float(parts.sums.sum() / parts.numbers.sum()) if parts.numbers.sum() else float("nan")


def _mcnemar(there: Sequence[Sequence[dict[str, float]]], here: Sequence[Sequence[dict[str, float]]]) -> dict[str, Any]:
    base, variant = ([bool(row["right"]) for rows in side for row in rows] for side in (here, there))
    if not base:  # nothing that both have
        return {"gained": 0, "lost": 0, "p": 1.0}
    found = mcnemar(base, variant)
    return {"gained": found.only_second, "lost": found.only_first, "p": round(found.p_exact, 5)}
