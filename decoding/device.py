"""Checks the name of a device that a user gave."""

from __future__ import annotations

import torch

from .errors import UserError


def check_device(name: str) -> None:
    """Raise UserError unless torch knows a device of this name and this machine has it."""
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise UserError(f"There is no device {name!r}; give cpu, cuda or cuda:0.") from error
    if device.type == "cpu":
        return
    here = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    if here is None or here.type != device.type or (device.index or 0) >= torch.accelerator.device_count():
        raise UserError(f"This machine has no device {name!r} that torch can use; leave --device out, or give cpu.")
