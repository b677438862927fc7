"""A stand-in for an accelerator, on the CPU: tensors whose values reach the host through `cpu()` alone, and counted.

A `DeviceTensor` makes everything that is computed from it a `DeviceTensor`. To turn one into Python numbers, to branch
on it, to index by a mask (whose size only the values tell) or a list, or to ask where it is nonzero raises.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import torch
from torch import Tensor

from dystruct.decoding.canvas import Canvas

READS = {
    "item", "tolist", "__bool__", "__int__", "__float__", "__index__", "numpy", "__array__", "nonzero", "argwhere",
    "equal", "allclose", "masked_select", "unique",
}  # fmt: skip


class DeviceTensor(Tensor):
    """A tensor that lives elsewhere."""

    copied: list[tuple[int, ...]] = []

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(func, "__name__", "")
        assert name not in READS, f"{name} reads a tensor of the device"
        if name in ("__getitem__", "__setitem__"):
            index = args[1] if isinstance(args[1], tuple) else (args[1],)
            assert not any(isinstance(i, Tensor) and i.dtype == torch.bool for i in index), "a mask as an index"
            assert not any(isinstance(i, list) for i in index), "a list as an index, which the device waits for"
        if name == "cpu":
            cls.copied.append(tuple(args[0].shape))
            return args[0].as_subclass(Tensor)
        return super().__torch_function__(func, types, args, kwargs or {})


@contextmanager
def counted_reads() -> Iterator[list[tuple[int, ...]]]:
    """The shapes of all that is copied to the host while canvases live on the device."""
    original = Canvas.__init__

    def make(self: Canvas, *args: Any, **options: Any) -> None:
        original(self, *args, **options)
        for name, value in vars(self).items():
            if isinstance(value, Tensor) and name != "columns":
                setattr(self, name, value.as_subclass(DeviceTensor))

    DeviceTensor.copied = []
    with mock.patch.object(Canvas, "__init__", make):
        yield DeviceTensor.copied
