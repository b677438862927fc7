"""A setting of the evidence that measurements propose, as a file that `decode --settings` takes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dystruct.inference.calibration import fit_logistic
from dystruct.model import EvidenceWeights, PriorConfig

from ..errors import UserError
from .measured import FOLDS, PENALTY, Measured, evidence_weights, gap_rows, position_rows
from .partitions import Form, Learned
from .variants import Chosen, sharpened


def proposal(measured: Measured, target: str, form: Form, learned: Sequence[Learned]) -> dict[str, Any]:
    """Weights fitted on all windows, w_b on a gap target and in a form, a learned sharpness in them; and alpha0.

    Of the learned settings the first that is not at a bound; else alpha0 is the paper's and s = 1.
    """
    found = next((setting for setting in learned if not setting.at_bound), None)
    concentration, sharpness = (
        (PriorConfig().concentration, 1.0) if found is None else (found.concentration, found.sharpness)
    )
    rows = position_rows(measured.windows, "4")
    position = fit_logistic(rows.features, rows.targets, PENALTY)
    gaps = gap_rows(measured.windows, target, [position] * FOLDS)
    gap = fit_logistic(gaps.features, gaps.targets, PENALTY)
    weights = evidence_weights(position, gap, gaps.targets)
    weights = sharpened(weights.without_base_rate() if form == "ratio" else weights, sharpness)
    return {
        "target": target,
        "form": form,
        "learned": found is not None,
        "concentration": concentration,
        "sharpness": sharpness,
        "position": weights.position.tolist(),
        "position_intercept": weights.position_intercept,
        "gap": weights.gap.tolist(),
        "gap_intercept": weights.gap_intercept,
    }


def read_proposal(path: Path) -> Chosen:
    """Read what `report` wrote; UserError if it is something else."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        weights = EvidenceWeights(
            content["position"], content["position_intercept"], content["gap"], content["gap_intercept"]
        )  # fmt: skip
        return Chosen(float(content["concentration"]), weights)
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise UserError(f"The settings {str(path)!r} cannot be read ({error}); write them with `report`.") from error
