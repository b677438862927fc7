"""What the host reads back: two copies a window and row, one small one a pass for decoders that look; nothing else."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any
from unittest import mock

import pytest
import torch

from counting_device import DeviceTensor, counted_reads
from dystruct.decoding import Block, Dream, DyStruct, Fast, Fixed, Hierarchy, Pass, Row, generate
from dystruct.decoding.engine import Engine
from dystruct.decoding.generation_settings import GenerationSettings
from dystruct.decoding.terminal.generate_command import _decode_many
from dystruct.inference import SemiMarkov
from dystruct.model import PriorConfig
from random_network import random_backbone
from scripted import backbone, hashed, uneven_weights

PROMPTS = ["ab", "abcdefgh", "c"]
SAMPLED = DyStruct(structure="sample", prior=PriorConfig(4, 12))


def decode(decoder: Any, **settings: Any):
    model = backbone(hashed(6, end_logit=-4.0), weights=uneven_weights())
    return generate(model, PROMPTS, decoder, **{"max_new_tokens": 20, "budget": 300, **settings}), model


@pytest.mark.parametrize("decoder", [SAMPLED, replace(SAMPLED, weld="joint"), Block(4)])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_generation_reads_twice_a_window_and_row(decoder: Any, temperature: float) -> None:
    """Diagnostics, and the finished tokens with all that happened; a decoder without diagnostics reads once."""
    settings = {"temperature": temperature}
    with counted_reads() as copied:
        generations, _ = decode(decoder, **settings)
    windows = sum(len(generation.windows) for generation in generations)
    assert len(copied) == windows * (1 if isinstance(decoder, Block) else 2)
    assert windows > 2 * len(PROMPTS)
    on_the_cpu, _ = decode(decoder, **settings)
    assert [g.tokens for g in generations] == [g.tokens for g in on_the_cpu]


@pytest.mark.parametrize(
    ("decoder", "figures"),
    [(Fast(block_length=5, threshold=0.5), 2), (Dream(steps=9), 3), (Hierarchy(block_length=5, remask=0.3), 3)],
)
def test_a_decoder_that_looks_reads_one_small_tensor_a_pass_for_the_whole_batch(decoder: Any, figures: int) -> None:
    with counted_reads() as copied:
        generations, model = decode(decoder)
    rows = model.network.batches
    assert len(copied) == len(rows) < sum(generation.forward_passes for generation in generations)
    assert [shape[:2] for shape in copied] == [(batch, figures) for batch in rows]
    assert all(shape[2] <= 20 for shape in copied)


def test_a_threshold_reads_one_number_a_row_and_pass_for_the_whole_batch() -> None:
    """Beside the two of a window: how many masks are left, in one copy of a call with any resolving pass."""
    with counted_reads() as copied:
        generations, model = decode(replace(SAMPLED, threshold=0.5))
    windows = [window for generation in generations for window in generation.windows]
    small = [shape for shape in copied if len(shape) == 3]
    assert len(copied) - len(small) == 2 * len(windows)
    assert all(shape[1:] == (1, 1) for shape in small)
    resolving = sum(step.kind == "resolve" for window in windows for step in window.steps)
    assert len(small) <= min(len(model.network.batches), resolving) < resolving


def test_the_progress_of_several_prompts_reads_nothing() -> None:
    model = backbone(hashed(6, end_logit=-4.0), weights=uneven_weights())
    run = partial(generate, model, PROMPTS, SAMPLED, max_new_tokens=20, budget=300)
    with counted_reads() as copied:
        watched = _decode_many(run, len(PROMPTS))
    assert len(copied) == 2 * sum(len(generation.windows) for generation in watched)
    assert [g.tokens for g in watched] == [g.tokens for g in run()]


@pytest.mark.parametrize("more", [{"suppress_eos": True}, {"defer_eos": True}])
def test_tokens_are_left_out_without_a_copy_to_the_device(more: dict[str, Any]) -> None:
    with counted_reads() as copied:
        generations, _ = decode(Fixed(block_length=10, steps=8, **more))
    assert Counter(len(shape) for shape in copied) == {1: 2 * 3, 3: 2}
    assert [g.tokens for g in generations] == [g.tokens for g in decode(Fixed(block_length=10, steps=8, **more))[0]]


def test_quotas_need_no_figures() -> None:
    """Per row and block the outcomes of its passes; the figures of the last one come for the batch."""
    with counted_reads() as copied:
        generations, _ = decode(Fixed(block_length=10, steps=8))
    assert [g.forward_passes for g in generations] == [8] * 3
    assert Counter(len(shape) for shape in copied) == {1: 2 * 3, 3: 2}


def test_the_device_does_refuse_to_be_read() -> None:
    """The tests above mean something."""
    there = torch.ones(3).as_subclass(DeviceTensor)
    for read in (bool, int, torch.nonzero, torch.Tensor.tolist, torch.Tensor.item, lambda t: t[t > 0]):
        with pytest.raises(AssertionError):
            read((there + 1)[:1])


def test_observing_reads_once_more_a_pass() -> None:
    with counted_reads() as copied:
        generations, _ = decode(SAMPLED, observe=lambda index, event: None)
    windows = sum(len(generation.windows) for generation in generations)
    passes = sum(generation.forward_passes for generation in generations)
    assert len(copied) == 2 * windows + passes


def test_the_posterior_of_a_window_is_built_once() -> None:
    made = []
    original = SemiMarkov.__post_init__
    with mock.patch.object(SemiMarkov, "__post_init__", lambda self: (made.append(1), original(self))[1]):
        generations, _ = decode(SAMPLED)
    assert len(made) == sum(len(generation.windows) for generation in generations)


# --- without values ---------------------------------------------------------------------------------------------------


class Stop(Exception):
    """The end of what can be run without values."""


@dataclass(frozen=True)
class TwoWindows:
    """Two windows' passes with structures that are known beforehand; reads nothing."""

    widest: int = 8

    def decode(self, row: Row) -> Iterator[Pass]:
        for start in (0, 8):
            row.open_window(8)
            yield Pass("diagnostic", start, start + 8, 2, masked=8)
            yield Pass("diagnostic", start, start + 8, 5, masked=6)
            row._clear()
            for a, b in ((5, 8), (0, 5)):
                for masked in (b - a, 1):
                    yield Pass("resolve", start + a, start + b, max(1, masked - 1), masked=masked)
            yield Pass("weld", start + 2, start + 7, 1, ((start + 2, start + 7, 2),), masked=2)
            yield Pass("weld", start + 2, start + 7, 1, masked=1)
            row.history.opened = None
        raise Stop


@pytest.mark.parametrize("prefix_cache", [False, True, "append"])
@pytest.mark.parametrize("shifted", [False, True])
@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_a_networks_own_code_reads_nothing_either(prefix_cache: Any, shifted: bool, attention: str) -> None:
    """On the meta device, with rows of different lengths: transformers would read a two-dimensional mask."""
    model = random_backbone(layers=2, shifted=shifted, device="meta", dtype=torch.float32, attention=attention)
    asked = GenerationSettings(16, budget=99, temperature=0.5, batch_size=3, prefix_cache=prefix_cache)
    engine = Engine(model, TwoWindows(), asked)
    calls: list[tuple[int, ...]] = []
    model.network.model.embed_tokens.register_forward_hook(lambda m, inputs, out: calls.append(tuple(inputs[0].shape)))
    with pytest.raises(Stop):
        engine.run(PROMPTS, [[2, 3], [2, 3, 4, 5, 6, 7, 8, 9], [4]], None, {})
    first = 8 + 8  # tokens of the longest prompt and of the first window
    window = 8 + 1 + shifted
    second = window + 8 if prefix_cache == "append" else first + 8
    passes = [first] * 8 + [first + 8] * 8 if not prefix_cache else [first, *[window] * 7, second, *[window] * 7]
    assert calls == [(3, length) for length in passes]
