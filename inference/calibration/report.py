"""What is reported of a fit of the evidence weights, as values that become JSON.

Every interval has level 95% and comes from the bootstrap over problems, but for Laplace's and NUTS's, which take the
rows for independent and are too narrow by that. Log losses are in nats a row, held out by cross-fitting.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

from .bootstrap import Estimate
from .figures import Bin, CalibrationError

_WORDS = {
    "position": ("Seven features", "wrong positions"),
    "gap": ("The four gap features", "gaps between right and wrong"),
}


@dataclass(frozen=True)
class Coefficient:
    """A weight with its intervals; nuts is None where NUTS was not asked for."""

    value: float
    laplace: tuple[float, float]
    bootstrap: tuple[float, float]
    nuts: tuple[float, float] | None


@dataclass(frozen=True)
class Sampler:
    """What NUTS says of itself, worst over the coefficients, and how it compares with Laplace's approximation.

    mean_shift: the largest difference of a posterior mean from the fit, in Laplace's standard deviations. spread_ratio:
    the ratio of standard deviations, NUTS to Laplace, that is farthest from 1.
    """

    draws: int
    divergences: int
    r_hat: float
    effective_sample_size: float
    mean_shift: float
    spread_ratio: float


@dataclass(frozen=True)
class CurvePoint:
    """Held-out figures of fits on so many problems, by all features and by entropy alone; the difference is all minus
    entropy.
    """

    problems: int
    log_loss: float
    auroc: float
    entropy_log_loss: float
    entropy_auroc: float
    difference: Estimate


@dataclass(frozen=True)
class Transfer:
    """Held-out figures on one domain of fits on some domains, by all features and by entropy alone."""

    fitted_on: tuple[str, ...]
    tested_on: str
    log_loss: float
    auroc: float
    entropy_log_loss: float
    entropy_auroc: float
    difference: Estimate


@dataclass(frozen=True)
class KindReport:
    """What is reported of positions, or of gaps.

    rate: how often the target is 1; guess: the log loss of saying that and no more. log_loss, auroc: by all features
    (`all`) and by each rival; differences: all minus the rival, so log losses below 0 and AUROCs above 0 speak for all.
    calibration_error: the expected one, of `bins`, beside what it is by chance.
    """

    rows: int
    rate: float
    guess: float
    gradient_norm: float
    coefficients: dict[str, Coefficient]
    log_loss: dict[str, Estimate]
    auroc: dict[str, Estimate]
    log_loss_difference: dict[str, Estimate]
    auroc_difference: dict[str, Estimate]
    calibration_error: CalibrationError
    bins: tuple[Bin, ...]
    learning_curve: tuple[CurvePoint, ...]
    transfer: tuple[Transfer, ...]
    sampler: Sampler | None
    verdict: str


@dataclass(frozen=True)
class CalibrationReport:
    """The settings, problems by domain, and what holds of positions and of gaps."""

    problems: dict[str, int]
    windows: int
    penalty: float
    intercept: bool
    seed: int
    folds: int
    position: KindReport
    gap: KindReport

    def as_dict(self) -> dict[str, Any]:
        """The figures as plain data, None for what is not a number."""
        found: dict[str, Any] = _plain(asdict(self))
        return found


def verdict(kind: str, difference: Estimate, problems: int, *, log_loss: float, guess: float) -> str:
    """What the interval of log loss by all features minus log loss by entropy alone says, and what a guess would have.

    log_loss: held out, by all features; guess: of saying how often the target is 1, and no more.
    """
    who, what = _WORDS[kind]
    if difference.high < 0:
        said = "beat"
    elif difference.low > 0:
        said = "are worse than"
    else:
        said = "do not beat"
    return (
        f"{who} {said} entropy alone at telling {what}: held-out log loss {difference.value:+.4f} nats a row, "
        f"95% interval {difference.low:+.4f} to {difference.high:+.4f}, {problems} problems. They "
        f"have {log_loss:.4f}, the base rate alone {guess:.4f}."
    )


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
