"""Keys and values of what stands before a window, kept while only the window itself is run.

A causal model's keys never change once they are computed. Those of a model that attends in both directions do, with
every token that is committed behind them; to keep them is an approximation, which Fast-dLLM made known. Here they are
computed with the whole canvas in view, at a window's first pass, and hold until its last, or, where the cache is
appended to, once and for all: those of the prompt with the first window in view, those of a window with the next one.

The keys and values of S slots lie at the slots' own canvas positions, in one transformers `Cache` whose layers write
and read them there. So rows of different prefix lengths share a forward call.

Shapes: R rows, T positions, H heads of D units, C positions of a slot.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import Cache, DynamicLayer


class PrefixCache:
    """The keys and values of S slots of C canvas positions (and a scratch one), for all layers of a network.

    Before a forward call say what it runs: `whole` rows or a `segment` of each.
    """

    def __init__(self, layers: int, slots: int, capacity: int) -> None:
        self.shape = (slots, capacity + 1)
        self.slots: Tensor = torch.empty(0)
        self.every = True
        self.index: Tensor | None = None
        self.length = 0
        self.layers = Cache(layers=[_Layer(self) for _ in range(layers)])

    def forget(self, slot: int) -> None:
        """A slot goes to another row; what a failed one left may be NaN, which a weight of 0 does not take away."""
        for layer in self.layers.layers:
            if layer.is_initialized:
                layer.keys[slot] = layer.values[slot] = 0

    def whole(self, slots: Tensor) -> None:
        """The next forward call runs rows of these slots (R,) from their first position; what it computes is kept."""
        self.slots, self.index = slots, None

    def segment(self, slots: Tensor, every: bool, index: Tensor, length: int) -> None:
        """The next one runs canvas positions (R, T) of rows, which attend to what is kept of their first `length`.

        every: the slots are all that there are, in order, so that what is kept need not be gathered.
        """
        self.slots, self.every, self.index, self.length = slots, every, index, length


class _Layer(DynamicLayer):
    """One layer's keys and values (S, C + 1, H, D)."""

    def __init__(self, owner: PrefixCache) -> None:
        super().__init__()
        self.owner = owner

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Make room."""
        for name, states in (("keys", key_states), ("values", value_states)):
            shape = (*self.owner.shape, states.shape[1], states.shape[3])
            setattr(self, name, torch.zeros(shape, dtype=states.dtype, device=states.device))
        self.is_initialized = True

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        """Keep states (R, H, T, D); returns all that the call's queries attend to."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        return self._keep(self.keys, key_states), self._keep(self.values, value_states)

    def _keep(self, kept: Tensor, states: Tensor) -> Tensor:
        owner, slots = self.owner, self.owner.slots.to(kept.device)
        if owner.index is None:
            kept[slots, : states.shape[2]] = states.transpose(1, 2)
            return states
        kept[slots[:, None], owner.index.to(kept.device)] = states.transpose(1, 2)
        seen = kept[:, : owner.length] if owner.every else kept[slots, : owner.length]
        return seen.transpose(1, 2)

    def get_seq_length(self) -> int:
        """0: positions and masks of a call are given, not counted."""
        return 0
