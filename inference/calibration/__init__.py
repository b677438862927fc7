"""Fitting the evidence weights w and w_b to windows whose right tokens are known, and what the fit is worth.

Knows no language model: what comes in are features with targets.
"""

from .bootstrap import Estimate
from .from_windows import Calibration, calibrate
from .logistic import LogisticFit, auroc, fit_logistic, log_loss
from .nuts import LogisticPosterior, sample_logistic
from .report import CalibrationReport, Coefficient, KindReport
from .rows import CalibrationRows, DiagnosedWindow, EvidenceFit, fit_evidence

__all__ = [
    "Calibration",
    "CalibrationReport",
    "CalibrationRows",
    "Coefficient",
    "DiagnosedWindow",
    "Estimate",
    "EvidenceFit",
    "KindReport",
    "LogisticFit",
    "LogisticPosterior",
    "auroc",
    "calibrate",
    "fit_evidence",
    "fit_logistic",
    "log_loss",
    "sample_logistic",
]
