"""Collects what the evidence weights are fitted on: diagnostic passes over answers that are known, and fits them.

For each problem the windows follow one another along the reference answer: a window opens behind a correct
beginning, its diagnostic passes run, and then the reference's tokens take their places. So each position has a
reference token (end tokens behind the answer) and no realignment is needed.

Targets. A position's d is 1 if what is predicted for it at last differs from the reference, or if a tentative
commit of it was taken back during the diagnostic pass. A gap's is 1 where the d of its two sides differ (R8).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from dystruct.inference.calibration import Array, LogisticFit, auroc, fit_logistic, log_loss
from dystruct.model import POSITION_FEATURES, EvidenceWeights, PriorConfig, gap_features

from .backbone import Backbone
from .engine import Engine
from .errors import UserError
from .passes import shown_positions
from .row import Pass, Row


@dataclass(frozen=True)
class DiagnosedWindow:
    """One window's phi (L, 7), gap divergences (L-1,) and targets d (L,), and the problem that it belongs to."""

    problem: int
    features: Array
    gap_divergence: Array
    targets: Array


@dataclass(frozen=True)
class Calibration:
    """Fitted weights and the report of the fit: counts, coefficients, held-out figures beside simple rivals'."""

    weights: EvidenceWeights
    report: dict[str, Any]


@dataclass
class _Recorder:
    """A decoder that diagnoses windows along known answers; window lengths from 8 to 48, drawn uniformly."""

    answers: dict[tuple[int, ...], list[int]]
    prior: PriorConfig
    passes: int
    found: dict[tuple[int, ...], list[tuple[Array, Array, Array]]] = field(default_factory=dict)

    @property
    def widest(self) -> int:
        return self.prior.max_length

    def decode(self, row: Row) -> Iterator[Pass]:
        key = tuple(row.prompt_ids)
        answer = self.answers[key]
        rows = self.found.setdefault(key, [])
        low, high = self.prior.min_length, self.prior.max_length
        while row.length < len(answer) and row.remaining > 0:
            length = int(torch.randint(low, high + 1, (), generator=row.streams.length))
            window = row.open_window(min(length, row.remaining))
            start, end = window.start, window.start + window.length
            for shown in shown_positions(window.length, self.passes):
                yield Pass("diagnostic", start, end, commit=shown)
            predictions = row.read_predictions()
            features, gaps = row.read_diagnostics()
            reference = (answer[start:end] + [row.model.eos_id] * window.length)[: window.length]
            taken_back = _taken_back(row, start, window.length)
            wrong = np.array(predictions) != np.array(reference)
            rows.append((features.numpy(), gaps.numpy(), (wrong | taken_back).astype(np.float64)))
            row.write(reference)
            row.close_window(reference, features)


def _taken_back(row: Row, start: int, length: int) -> NDArray[np.bool_]:
    """Which positions (L,) of the open window were shown after one diagnostic pass and not after the next."""
    shown = np.zeros((len(row.steps), length), dtype=bool)
    for k, step in enumerate(row.steps):
        shown[k, [commit.position - start for commit in step.commits]] = True
    return np.asarray((shown[:-1] & ~shown[1:]).any(axis=0))


def diagnose_answers(
    model: Backbone,
    prompts: Sequence[str],
    answers: Sequence[str],
    *,
    prior: PriorConfig | None = None,
    passes: int = 4,
    seed: int = 0,
    batch_size: int = 16,
) -> list[DiagnosedWindow]:
    """Run the diagnostic passes of windows along each reference answer; prompts must differ."""
    prior = prior or PriorConfig()
    prompt_ids = [model.encode(prompt) for prompt in prompts]
    keys = [tuple(ids) for ids in prompt_ids]
    if len(set(keys)) < len(keys):
        raise UserError("The same prompt occurs twice among the calibration items; give each once.")
    references = [[*model.tokenizer(answer, add_special_tokens=False)["input_ids"], model.eos_id] for answer in answers]
    recorder = _Recorder(dict(zip(keys, references, strict=True)), prior, passes)
    longest = max(len(reference) for reference in references) + prior.max_length
    engine = Engine(
        model, recorder, max_new_tokens=longest, budget=10**9, temperature=0.0, seed=seed, batch_size=batch_size
    )  # fmt: skip
    engine.run(prompts, prompt_ids, None, {})
    return [DiagnosedWindow(index, *window) for index, key in enumerate(keys) for window in recorder.found[key]]


def calibrate(windows: Sequence[DiagnosedWindow], *, penalty: float = 1e-3, intercept: bool = True) -> Calibration:
    """Fit w and w_b on all windows; the report's held-out figures come from a fit on every other problem."""
    fitted = _fit(windows, penalty, intercept)
    train = [window for window in windows if window.problem % 2 == 0]
    test = [window for window in windows if window.problem % 2 == 1]
    report: dict[str, Any] = {
        "positions": int(sum(len(window.targets) for window in windows)),
        "windows": len(windows),
        "problems": len({window.problem for window in windows}),
        "penalty": penalty,
        "intercept": intercept,
        "gradient_norm": {"position": fitted[0].gradient_norm, "gap": fitted[1].gradient_norm},
    }
    if train and test:
        report["held_out"] = _held_out(_fit(train, penalty, intercept), test)
    position, gap = fitted
    weights = EvidenceWeights(
        torch.from_numpy(position.weights), position.intercept, torch.from_numpy(gap.weights), gap.intercept
    )  # fmt: skip
    return Calibration(weights, report)


def _fit(windows: Sequence[DiagnosedWindow], penalty: float, intercept: bool) -> tuple[LogisticFit, LogisticFit]:
    features = np.concatenate([window.features for window in windows])
    targets = np.concatenate([window.targets for window in windows])
    # The centred score has no use for w's intercept, but the calibrated one (R3) does.
    position = fit_logistic(features, targets, penalty, intercept=True)
    psi, gap_targets = _gap_rows(windows, position)
    return position, fit_logistic(psi, gap_targets, penalty, intercept=intercept)


def _gap_rows(windows: Sequence[DiagnosedWindow], position: LogisticFit) -> tuple[Array, Array]:
    """psi (N, 4) under these position weights, and the gaps' targets (N,)."""
    rows, targets = [], []
    for window in windows:
        u = torch.from_numpy(window.features @ position.weights)
        psi = gap_features(torch.sigmoid(u - u.mean()), torch.from_numpy(window.gap_divergence))
        rows.append(psi.numpy())
        targets.append((window.targets[1:] != window.targets[:-1]).astype(np.float64))
    return np.concatenate(rows), np.concatenate(targets)


def _held_out(fits: tuple[LogisticFit, LogisticFit], windows: Sequence[DiagnosedWindow]) -> dict[str, Any]:
    position, gap = fits
    features = np.concatenate([window.features for window in windows])
    targets = np.concatenate([window.targets for window in windows])
    psi, gap_targets = _gap_rows(windows, position)
    rivals = {"entropy": 1.0, "confidence": -1.0, "margin": -1.0}
    return {
        "positions": len(targets),
        "error_rate": float(targets.mean()),
        "log_loss": log_loss(position.logits(features), targets),
        "auroc": auroc(position.logits(features), targets),
        "auroc_alone": {
            name: auroc(sign * features[:, POSITION_FEATURES.index(name)], targets) for name, sign in rivals.items()
        },
        "gap_rate": float(gap_targets.mean()),
        "gap_log_loss": log_loss(gap.logits(psi), gap_targets),
        "gap_auroc": auroc(gap.logits(psi), gap_targets),
    }
