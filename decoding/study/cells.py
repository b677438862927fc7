"""Estimates and shares as text, for tables and sentences."""

from __future__ import annotations

Estimate = dict[str, float | None]


def estimated(estimate: Estimate | None, *, sign: bool = False, digits: int = 3) -> str:
    """An estimate with its interval; empty where there is none."""
    if estimate is None or estimate["value"] is None:
        return ""
    form = f"{'+' if sign else ''}.{digits}f"
    value, low, high = (estimate[name] for name in ("value", "low", "high"))
    if low is None or high is None:
        return f"{value:{form}}"
    return f"{value:{form}} ({low:{form}} to {high:{form}})"


def percent(share: float | None) -> str:
    """A share without decimals; empty where there is none."""
    return "" if share is None else f"{100 * share:.0f}%"
