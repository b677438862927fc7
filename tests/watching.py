"""What tests watch of a decoding beside its result: read-backs from the device; and a result without the clock."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import torch

from dystruct.decoding import Generation
from dystruct.decoding.history import History


def without_time(generation: Generation) -> Generation:
    """The generation with the one field that no two runs share set to 0."""
    return dataclasses.replace(generation, seconds=0.0)


@contextmanager
def noted_reads(note: Callable[[History, tuple[torch.Tensor, ...]], Any]) -> Iterator[list[Any]]:
    """What `note` says of each read-back, given the row's history and the values that it asks for."""
    notes: list[Any] = []
    original = History.read

    def read(self: History, *values: torch.Tensor) -> list[torch.Tensor]:
        notes.append(note(self, values))
        return original(self, *values)

    with mock.patch.object(History, "read", read):
        yield notes
