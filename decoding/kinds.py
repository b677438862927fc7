"""What counts as a number among the values of settings. Python takes truth values for numbers; nobody means them."""

from __future__ import annotations

from numbers import Integral
from typing import Any, TypeGuard


def is_number(value: Any) -> TypeGuard[int | float]:
    """Whether a value is an int or a float, and no truth value."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def is_whole(value: Any) -> TypeGuard[int]:
    """Whether a value is a whole number of any type, numpy's among them, and no truth value."""
    return isinstance(value, Integral) and not isinstance(value, bool)


def in_digits(text: str) -> bool:
    """Whether a text can be a number as people write it: Python reads other scripts' digits and 1_0, too."""
    return text.isascii() and "_" not in text
