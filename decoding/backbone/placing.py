"""Where a model goes: devices, device maps and dtypes that a user names, and whether it fits there."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from ..device import check_device
from ..errors import UserError

_MAPS = ("auto", "balanced", "balanced_low_0", "sequential")  # accelerate's
_IN_WORDS = ("out of memory", "can't allocate memory", "cannot allocate memory")


def checked_device(device: str | torch.device | None) -> str:
    """A device's name, by default CUDA's if there is one, else the CPU's. Raises UserError if it is not here."""
    name = str(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    check_device(name)
    return name


def checked_map(device_map: Any) -> Any:
    """A device map as accelerate takes it. Raises UserError for a name that it does not know."""
    if isinstance(device_map, str) and device_map not in _MAPS:
        try:
            check_device(device_map)
        except UserError as error:
            raise UserError(
                f"There is no device map {device_map!r}; give {', '.join(_MAPS)}, a device of this machine, or in "
                f"Python a dictionary."
            ) from error
    return device_map


def checked_dtype(dtype: torch.dtype | str | None) -> torch.dtype | None:
    """A dtype that weights may have, from its name. Raises UserError for another."""
    found = getattr(torch, dtype, None) if isinstance(dtype, str) else dtype
    if dtype is not None and not (isinstance(found, torch.dtype) and found.is_floating_point):
        raise UserError(f"There is no dtype {str(dtype)!r} of a model; give float32, bfloat16 or float16.")
    return found


def has_accelerate() -> bool:
    """Whether accelerate is installed."""
    return importlib.util.find_spec("accelerate") is not None


@contextmanager
def memory_errors(name: str) -> Iterator[None]:
    """Ends with one sentence where the device's memory is too small for the model.

    Also behind a sentence that takes the error for one of another kind, since it came out of a library.
    """
    try:
        yield
    except Exception as error:
        if not out_of_memory(error):
            raise
        raise UserError(
            f"The device's memory is too small for model {name!r}; give another device (--device), several of them "
            f"(--device-map auto), or a smaller dtype (--dtype bfloat16)."
        ) from error


def out_of_memory(error: BaseException | None) -> bool:
    """Whether the error is that, or came of it; the CPU, MPS and a GPU that is full say so in words only."""
    if error is None:
        return False
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    said = str(error).lower()
    return any(words in said for words in _IN_WORDS) or out_of_memory(error.__cause__)
