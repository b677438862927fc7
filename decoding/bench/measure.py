"""What the benchmarks measure with: a clock, rounds in which contestants take turns, recorded forward calls, memory.

On one thread times are of the CPU, so that what else the machine does hardly enters; on several, and on a GPU, they are
the time one waits. Ratios come from one run, of medians.
"""

from __future__ import annotations

import statistics
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, fields
from time import perf_counter, process_time
from typing import Any
from unittest import mock

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from ..backbone import Backbone


@dataclass(frozen=True)
class Clock:
    """How time is taken: `threads` of torch, and a device to wait for."""

    threads: int = 1
    device: torch.device = torch.device("cpu")

    def __post_init__(self) -> None:
        torch.set_num_threads(self.threads)

    def now(self) -> float:
        """Seconds: of the CPU on one thread, else of the wall."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
            return perf_counter()
        return process_time() if self.threads == 1 else perf_counter()

    def interleaved(
        self, contestants: Mapping[str, Callable[[], Any]], rounds: int, *, warm: bool = False
    ) -> dict[str, float]:
        """Median seconds a call of each contestant, over rounds of one call each, after one unmeasured round.

        warm: without that round, where what is called is warm already.
        """
        times: dict[str, list[float]] = {name: [] for name in contestants}
        for lap in range(rounds + (not warm)):
            for name, call in contestants.items():
                start = self.now()
                call()
                if lap or warm:
                    times[name].append(self.now() - start)
        return {name: statistics.median(values) for name, values in times.items()}


@dataclass
class Call:
    """One forward call of a network, and which of its outputs (N,) were projected behind it, if any were."""

    ids: Tensor
    valid: Tensor | None
    options: dict[str, Any]
    plan: tuple[Any, ...] | None
    projected: Tensor | None = None


@dataclass(frozen=True)
class Recording(Backbone):
    """A model that writes down what it is asked."""

    calls: list[Call] = field(default_factory=list)

    @classmethod
    def of(cls, model: Backbone) -> Recording:
        """A recording model."""
        return cls(**{field.name: getattr(model, field.name) for field in fields(Backbone)})

    def hidden(self, ids: Tensor, valid: Tensor | None = None, **options: Any) -> Tensor:
        """As the model's."""
        cache = options.get("cache")
        plan = None if cache is None else (cache.slots, cache.every, cache.index, cache.length)
        self.calls.append(Call(ids.clone(), valid, options, plan))
        return super().hidden(ids, valid, **options)

    def logits(self, hidden: Tensor, **options: Any) -> Tensor:
        """As the model's."""
        outputs = self.calls[-1].ids.numel()
        self.calls[-1].projected = torch.arange(len(hidden), device=hidden.device) % outputs
        return super().logits(hidden, **options)

    @torch.inference_mode()
    def replay(self) -> None:
        """Make the recorded calls again, and nothing else: the bare forward passes of the same shapes."""
        for call in self.calls:
            if call.plan is not None:
                cache = call.options["cache"]
                cache.slots, cache.every, cache.index, cache.length = call.plan
            hidden = super().hidden(call.ids, call.valid, **call.options)
            if call.projected is not None:
                super().logits(hidden.reshape(-1, hidden.shape[-1]).index_select(0, call.projected))


@contextmanager
def timed(clock: Clock, *places: tuple[Any, str]) -> Iterator[list[float]]:
    """The seconds spent in functions (owner, name) while this lasts, one entry a call."""
    spent: list[float] = []

    def wrapped(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **options: Any) -> Any:
            start = clock.now()
            try:
                return function(*args, **options)
            finally:
                spent.append(clock.now() - start)

        return call

    with ExitStack() as stack:
        for owner, name in places:
            stack.enter_context(mock.patch.object(owner, name, wrapped(getattr(owner, name))))
        yield spent


class Traffic(TorchDispatchMode):
    """Counts operations, copies from the device to the host, and the most bytes in large storages at one time."""

    def __init__(self, least: int = 1 << 16) -> None:
        super().__init__()
        self.least, self.operations, self.reads, self.peak = least, 0, 0, 0
        self._live: dict[int, tuple[int, int]] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        self.operations += 1
        for value in found if isinstance(found, tuple | list) else [found]:
            if isinstance(value, Tensor):
                self._see(value)
        given = args[0] if args and isinstance(args[0], Tensor) else None
        away = given is not None and given.device.type not in ("cpu", "meta")
        if away and (not isinstance(found, Tensor) or found.device.type == "cpu"):
            self.reads += func is not torch.ops.aten.sym_size.int
        return found

    def _see(self, value: Tensor) -> None:
        storage = value.untyped_storage()
        if storage.nbytes() < self.least:
            return
        size, users = self._live.get(storage.data_ptr(), (storage.nbytes(), 0))
        self._live[storage.data_ptr()] = (size, users + 1)
        weakref.finalize(value, self._gone, storage.data_ptr())
        self.peak = max(self.peak, sum(size for size, _ in self._live.values()))

    def _gone(self, place: int) -> None:
        size, users = self._live.pop(place)
        if users > 1:
            self._live[place] = (size, users - 1)
