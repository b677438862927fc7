"""What counts as a number among the values of settings. Python takes truth values for numbers; nobody means them.

The checks are of fields of a dataclass, by name; None is a value of those whose default it is.
"""

from __future__ import annotations

import sys
from collections.abc import Collection
from dataclasses import fields
from numbers import Integral
from typing import Any, TypeGuard

from .errors import UserError

LARGEST = 2**63 - 1  # whole number among settings


def is_number(value: Any) -> TypeGuard[int | float]:
    """Whether a value is an int or a float, and no truth value."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def is_whole(value: Any) -> TypeGuard[int]:
    """Whether a value is a whole number of any type, numpy's among them, and no truth value."""
    return isinstance(value, Integral) and not isinstance(value, bool)


def in_digits(text: str) -> bool:
    """Whether a text can be a number as people write it: Python reads other scripts' digits and 1_0, too."""
    return text.isascii() and "_" not in text


def as_tuple(value: Any) -> tuple[Any, ...] | None:
    """What a value holds, read once; None for a text, and for what holds nothing one after another."""
    if isinstance(value, str):
        return None
    try:
        held = iter(value)
    except TypeError:
        return None
    return tuple(held)


def check_whole(settings: Any, *names: str, least: int = 1, most: int = LARGEST) -> None:
    """UserError for a setting that is no whole number from `least` to `most`; one of another type becomes an int."""
    allowed = f"of at least {least}" if most == LARGEST else f"from {least} to {most}"
    for name in names:
        value = getattr(settings, name)
        if is_whole(value) and least <= value <= most:
            object.__setattr__(settings, name, int(value))
        elif not _is_left_out(settings, name):
            limit = f"at most {most}" if is_whole(value) and value > most == LARGEST else f"a whole number {allowed}"
            raise UserError(f"{name} must be {limit}, not {shortened(value)}.")


def check_choice(settings: Any, name: str, choices: Collection[str]) -> None:
    """UserError for a setting that is none of these texts."""
    value = getattr(settings, name)
    if not (isinstance(value, str) and value in choices) and not _is_left_out(settings, name):
        raise UserError(f"{name} must be one of {', '.join(choices)}, not {shortened(value)}.")


def check_fraction(settings: Any, *names: str) -> None:
    """UserError for a setting that is no number from 0 to 1."""
    for name in names:
        value = getattr(settings, name)
        if not (is_number(value) and 0 <= value <= 1) and not _is_left_out(settings, name):
            raise UserError(f"{name} must be a number from 0 to 1, not {shortened(value)}.")


def check_positive(settings: Any, *names: str, or_zero: bool = False) -> None:
    """UserError for a setting that is no positive number, or, with or_zero, 0."""
    for name in names:
        value = getattr(settings, name)
        most = LARGEST if isinstance(value, int) else sys.float_info.max
        held = is_number(value) and (0 < value <= most or (or_zero and value == 0))
        if not held and not _is_left_out(settings, name):
            raise UserError(f"{name} must be {'0 or ' * or_zero}a positive number, not {shortened(value)}.")


def check_flags(settings: Any) -> None:
    """UserError for a setting that is on or off and given as something else, such as a text."""
    for field in fields(settings):
        value = getattr(settings, field.name)
        if str(field.type) == "bool" and not isinstance(value, bool):
            raise UserError(f"{field.name} must be True or False, not {shortened(value)}.")


def shortened(value: Any) -> str:
    """A refused value as a sentence names it."""
    if isinstance(value, int) and abs(value) > 10**99:  # Python refuses to write out what has thousands of digits
        return "one of so many digits"
    return repr(value)


def _is_left_out(settings: Any, name: str) -> bool:
    """Whether a field is None and may be."""
    defaults = {field.name: field.default for field in fields(settings)}
    return getattr(settings, name) is None and defaults[name] is None
