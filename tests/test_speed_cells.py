"""What a pass computes over the vocabulary: its masked positions, in memory that does not grow with the passes."""

from __future__ import annotations

import weakref
from itertools import pairwise
from typing import Any
from unittest import mock

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from dystruct.decoding import Block, Daedal, Dream, DyStruct, Fast, Fixed, Generation, Hierarchy, VsbLike, generate
from dystruct.decoding.backbone import Backbone
from dystruct.model import PriorConfig
from scripted import MASK, VOCABULARY, backbone, hashed, uneven_weights

PRIOR = PriorConfig(4, 12)


def projected(decoder: Any, prompts: list[str], **settings: Any) -> tuple[list[int], list[Generation]]:
    """How many positions each output projection was asked for."""
    sizes: list[int] = []
    original = Backbone.logits

    def logits(self: Backbone, hidden: Tensor, **options: Any) -> Tensor:
        assert hidden.dim() == 2
        sizes.append(len(hidden))
        return original(self, hidden, **options)

    model = backbone(hashed(3, end_logit=-4.0), weights=uneven_weights())
    with mock.patch.object(Backbone, "logits", logits):
        found = generate(model, prompts, decoder, **{"max_new_tokens": 20, "budget": 300, **settings})
    return sizes, found


def masked_in_play(generation: Generation) -> list[int]:
    """The masked positions of each pass's span, from the trace: those that it commits and those that it leaves."""
    found = []
    for window in generation.windows:
        before = dict.fromkeys(range(window.opened.start, window.opened.start + window.opened.length), MASK)
        shown: set[int] = set()
        start = window.opened.start
        blocks = [(0, window.opened.length)]
        if window.structure is not None:
            ends = window.structure.ends
            blocks = list(zip((0, *ends[:-1]), ends, strict=True))
        for step in window.steps:
            if step.kind == "diagnostic":
                found.append(window.opened.length - len(shown))
                shown = {commit.position for commit in step.commits}
                continue
            before |= dict.fromkeys((remask.position for remask in step.remasked), MASK)
            a, b = blocks[step.block or 0] if step.kind == "resolve" else (0, window.opened.length)
            found.append(sum(before[p] == MASK for p in range(start + a, start + b)))
            before |= {commit.position: commit.token for commit in step.commits}
    return found


@pytest.mark.parametrize("weld", ["sequential", "joint"])
@pytest.mark.parametrize("budget", [300, 12])
def test_only_masked_positions_of_the_block_are_projected(weld: Any, budget: int) -> None:
    decoder = DyStruct(structure="sample", prior=PRIOR, weld=weld, weld_radius=2)
    sizes, (generation,) = projected(decoder, ["abc"], budget=budget)
    assert sizes == masked_in_play(generation)


@pytest.mark.parametrize("decoder", [Block(5, passes=3), Dream(steps=7)])
def test_so_it_is_with_other_decoders(decoder: Any) -> None:
    sizes, (generation,) = projected(decoder, ["abc"])
    assert sizes == masked_in_play(generation) and min(sizes) < max(sizes)


def test_blocks_of_a_response_are_projected_one_at_a_time() -> None:
    for decoder in (Fast(block_length=5, threshold=0.9), Fixed(block_length=5, steps=12)):
        sizes, (generation,) = projected(decoder, ["abc"])
        starts = [n for n, size in enumerate(sizes) if size == 5]
        assert len(sizes) == generation.forward_passes and len(starts) >= 4 and max(sizes) == 5
    # what looks at committed positions too is given them: the end's score, and doubts about what is decoded
    sizes, _ = projected(Daedal(initial_length=8), ["abc"])
    assert all(later >= earlier for earlier, later in pairwise(sizes))
    sizes, _ = projected(Hierarchy(block_length=5, remask=0.3), ["abc"])
    assert set(sizes) == {5}
    sizes, _ = projected(VsbLike(block_length=8, stride=2), ["abc"])
    assert max(sizes) == 8


def test_no_row_is_padded_over_the_vocabulary() -> None:
    """Rows of a batch that work on spans of different lengths: as many positions as one after the other."""
    decoder, prompts = DyStruct(structure="sample", prior=PRIOR), ["ab", "abcdefgh", "c"]
    together, _ = projected(decoder, prompts, batch_size=3)
    alone = [projected(decoder, [prompt])[0] for prompt in prompts]
    assert sum(together) == sum(map(sum, alone)) and len(together) == max(map(len, alone))


# --- memory -----------------------------------------------------------------------------------------------------------


class Peak(TorchDispatchMode):
    """The most bytes that storages of a size that only the vocabulary explains held at once."""

    def __init__(self, least: int) -> None:
        super().__init__()
        self.least, self.live, self.peak = least, {}, 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        for value in found if isinstance(found, (tuple, list)) else [found]:
            if isinstance(value, Tensor) and value.untyped_storage().nbytes() >= self.least:
                storage = value.untyped_storage()
                size, users = self.live.get(storage.data_ptr(), (storage.nbytes(), 0))
                self.live[storage.data_ptr()] = (size, users + 1)
                weakref.finalize(value, self._gone, storage.data_ptr())
        self.peak = max(self.peak, sum(size for size, _ in self.live.values()))
        return found

    def _gone(self, place: int) -> None:
        size, users = self.live.pop(place)
        if users > 1:
            self.live[place] = (size, users - 1)


LARGE, WINDOW = 20_000, 12


def peak(diagnostic_passes: int, prompts: list[str] | None = None) -> float:
    """In units of one window's distributions, WINDOW x LARGE float32 numbers."""
    small = hashed(3, end_logit=-4.0)

    def script(ids: Tensor, valid: Tensor) -> Tensor:  # the network's own output is not what is measured
        return small(ids, valid)

    def logits(self: Backbone, hidden: Tensor, **options: Any) -> Tensor:
        wide = hidden.new_full((len(hidden), LARGE), -30.0)
        wide[:, :VOCABULARY] = hidden
        wide[:, MASK] = -torch.inf
        return wide

    model = backbone(script, weights=uneven_weights())
    decoder = DyStruct(prior=PriorConfig(WINDOW, WINDOW), diagnostic_passes=diagnostic_passes, structure="none")
    mode = Peak(LARGE * 4)
    with mock.patch.object(Backbone, "logits", logits), mock.patch.object(Backbone, "vocabulary", LARGE), mode:
        generate(model, prompts or ["abc"], decoder, max_new_tokens=2 * WINDOW, budget=300)
    return mode.peak / (WINDOW * LARGE * 4)


def test_memory_does_not_grow_with_the_diagnostic_passes() -> None:
    few, many = peak(1), peak(9)
    assert few == many
    # what is kept of the last pass, the logits, their logarithms and exponentials, and what a sweep makes of them
    assert many < 8
    assert peak(4, ["abc", "ab", "c"]) <= 3 * many
