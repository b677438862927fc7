"""Rows of like length share a forward call: the cheapest division there is, and no text depends on it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dystruct.decoding import Block, DyStruct, Fixed, generate
from dystruct.decoding import batching as module
from dystruct.decoding.batching import shared_calls
from dystruct.model import PriorConfig
from random_network import random_backbone

CPU = torch.device("cpu")
CALL = 32


def divisions(rows: Sequence[int]) -> Iterator[list[list[int]]]:
    """Every way to put rows into groups."""
    if not rows:
        yield []
        return
    first, *rest = rows
    for groups in divisions(rest):
        yield [[first], *groups]
        for i, group in enumerate(groups):
            yield [*groups[:i], [first, *group], *groups[i + 1 :]]


def cost(groups: Sequence[Sequence[int]], lengths: Sequence[int]) -> int:
    return sum(CALL + len(group) * max(lengths[row] for row in group) for group in groups)


@given(st.lists(st.integers(1, 200), min_size=1, max_size=6))
def test_no_division_is_cheaper(lengths: list[int]) -> None:
    groups = shared_calls(lengths, CPU)
    assert sorted(row for group in groups for row in group) == list(range(len(lengths)))
    assert all(group == sorted(group) for group in groups)
    assert cost(groups, lengths) == min(cost(other, lengths) for other in divisions(range(len(lengths))))


@given(st.lists(st.integers(1, 500), min_size=1, max_size=20))
def test_an_accelerator_gets_all_rows_at_once(lengths: list[int]) -> None:
    assert shared_calls(lengths, torch.device("cuda")) == [list(range(len(lengths)))]
    assert shared_calls(lengths[:1] * len(lengths), CPU) == [list(range(len(lengths)))]


@pytest.mark.parametrize("prefix_cache", [False, True, "append"])
@pytest.mark.parametrize(
    "decoder",
    [DyStruct(structure="sample", prior=PriorConfig(3, 9)), Block(4), Fixed(block_length=5, steps=10, guidance=1.5)],
)
def test_texts_do_not_depend_on_the_calls(decoder: Any, prefix_cache: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """From every row by itself to all in one call."""
    prompts = ["ab", "abcdefgh" * 4, "c", "jihg" * 5, "abcdefgi" * 4]
    model = random_backbone(layers=2, shifted=True, seed=5)
    calls: list[tuple[int, int]] = []
    model.network.model.embed_tokens.register_forward_hook(lambda m, given, out: calls.append(tuple(given[0].shape)))
    found, positions, made = [], [], []
    for call in (0, 8, 1 << 20):
        monkeypatch.setattr(module, "_CALL", {"cpu": call})
        generations = generate(
            model, prompts, decoder, max_new_tokens=10, batch_size=4, temperature=0.5, prefix_cache=prefix_cache
        )
        found.append([(g.tokens, g.passes, g.stop_reason) for g in generations])
        positions.append(sum(rows * length for rows, length in calls))
        made.append(len(calls))
        calls.clear()
    assert found[0] == found[1] == found[2]
    assert positions == sorted(positions) and positions[0] < positions[-1]
    assert made == sorted(made, reverse=True) and made[0] > made[-1]
