"""Whole numbers stay whole and real ones real: what is neither is refused by the name of its field."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch

from dystruct.model import ClippedPoisson, Context, EvidenceWeights, Partition, PriorConfig, Structure

WHOLE: dict[str, Callable[[Any], Any]] = {
    "min_length": lambda value: PriorConfig(min_length=value).min_length,
    "max_length": lambda value: PriorConfig(min_length=1, max_length=value).max_length,
    "remaining": lambda value: Context(remaining=value).remaining,
    "low": lambda value: ClippedPoisson(5.0, value, 9).low,
    "high": lambda value: ClippedPoisson(5.0, 1, value).high,
    "ends": lambda value: Partition((1, value)).ends[-1],
    "run_lengths": lambda value: Partition.from_run_lengths([1, 2, value]).length,
    "order": lambda value: len(Structure(Partition((1, 2, 3, 4)), (0, 1, 2, value)).order) - 1,
}
REAL: dict[str, Callable[[Any], Any]] = {
    "concentration": lambda value: PriorConfig(concentration=value).concentration,
    "context_weight": lambda value: PriorConfig(context_weight=value).context_weight,
    "order_temperature": lambda value: PriorConfig(order_temperature=value).order_temperature,
    "evidence_scale": lambda value: PriorConfig(evidence_scale=value).evidence_scale,
    "previous_instability": lambda value: Context(value).previous_instability,
}
for name in ("position_intercept", "gap_intercept"):
    REAL[name] = lambda value, name=name: getattr(replace(EvidenceWeights.neutral(), **{name: value}), name)
NEITHER = [True, False, np.True_, torch.tensor(True), "3", None, 3j, [3], torch.tensor([3]), torch.tensor([3, 3])]


@pytest.mark.parametrize("field", WHOLE)
def test_whole_numbers_of_any_type_become_ints(field: str) -> None:
    for three in (3, np.int64(3), torch.tensor(3)):
        found = WHOLE[field](three)
        assert found == 3 and type(found) is int


@pytest.mark.parametrize("field", WHOLE)
@pytest.mark.parametrize("value", [*NEITHER, 2.9, 3.0, np.float64(3), torch.tensor(3.0), math.nan, math.inf], ids=str)
def test_what_is_no_whole_number_is_refused_and_not_cut_off(field: str, value: Any) -> None:
    if field == "remaining" and value is None:  # no limit
        return
    with pytest.raises(ValueError, match=f"^{field} must be a whole number, got "):
        WHOLE[field](value)


@pytest.mark.parametrize("field", REAL)
def test_real_numbers_of_any_type_become_floats(field: str) -> None:
    for half in (0.5, np.float32(0.5), torch.tensor(0.5), Fraction(1, 2)):
        found = REAL[field](half)
        assert found == 0.5 and type(found) is float
    for one in (1, np.int64(1), torch.tensor(1)):
        found = REAL[field](one)
        assert found == 1 and type(found) is float


@pytest.mark.parametrize("field", REAL)
@pytest.mark.parametrize("value", [*NEITHER, 10**400], ids=lambda value: str(value)[:9])
def test_what_is_no_number_is_refused(field: str, value: Any) -> None:
    with pytest.raises(ValueError, match=f"^{field} must be a number, got "):
        REAL[field](value)
