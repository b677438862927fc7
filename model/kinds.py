"""What a field takes for a number: one checked conversion for whole numbers, one for real ones.

Python takes truth values for numbers, and int() cuts off what stands behind the point; nobody means either.
"""

from __future__ import annotations

import operator
from numbers import Real
from typing import Any

from torch import Tensor


def whole_number(name: str, value: Any) -> int:
    """An integer of any type, or a tensor of one without dimensions, as an int. Raises ValueError naming the field."""
    plain = _plain(value)
    try:
        if not isinstance(plain, bool | Tensor):
            return operator.index(plain)
    except TypeError:  # reported below, as a truth value is
        pass
    raise ValueError(f"{name} must be a whole number, got {value!r}.")


def real_number(name: str, value: Any) -> float:
    """A real number of any type, or a tensor of one without dimensions, as a float. Errors as in `whole_number`."""
    plain = _plain(value)
    try:
        if isinstance(plain, Real) and not isinstance(plain, bool):
            return float(plain)
    except OverflowError:  # an integer beyond the range of floats
        pass
    raise ValueError(f"{name} must be a number, got {value!r}.")


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, Tensor) and value.dim() == 0 else value
