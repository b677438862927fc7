"""Partition: three descriptions of the same blocks."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dystruct.model import Partition

cut_flags = st.lists(st.booleans(), max_size=60)


@given(cut_flags)
def test_descriptions_agree_with_a_walk_over_the_window(cuts: list[bool]) -> None:
    partition = Partition.from_cuts(cuts)
    blocks, start = [], 0
    for position in range(len(cuts) + 1):
        if position == len(cuts) or cuts[position]:
            blocks.append((start, position + 1))
            start = position + 1
    assert partition.blocks == tuple(blocks)
    assert partition.ends == tuple(end for _, end in blocks)
    assert partition.count == len(blocks) == 1 + sum(cuts)
    assert partition.length == len(cuts) + 1
    assert [position for block in blocks for position in range(*block)] == list(range(partition.length))
    for position, run in enumerate(partition.run_lengths):
        (block,) = [(a, b) for a, b in blocks if a <= position < b]
        assert run == position - block[0] + 1


@given(cut_flags)
def test_descriptions_are_bijections(cuts: list[bool]) -> None:
    partition = Partition.from_cuts(cuts)
    assert partition.cuts == tuple(cuts)
    assert Partition.from_run_lengths(partition.run_lengths) == partition
    assert Partition(partition.ends) == partition and hash(Partition(partition.ends)) == hash(partition)


def test_every_window_of_six_has_thirty_two_distinct_partitions() -> None:
    assert len({Partition.from_cuts(cuts) for cuts in itertools.product((0, 1), repeat=5)}) == 32


def test_tensors_are_taken_and_become_plain_numbers() -> None:
    partition = Partition.from_cuts(torch.tensor([0, 1, 0]))
    assert partition == Partition.from_run_lengths(torch.tensor([1, 2, 1, 2])) == Partition((2, 4))
    assert Partition(tuple(torch.tensor([2, 4]))) == partition
    assert all(type(end) is int for end in partition.ends)
    assert all(type(flag) is bool for flag in partition.cuts)


def test_the_whole_window_is_one_block() -> None:
    assert Partition.whole(5) == Partition((5,)) == Partition.from_cuts([0] * 4)
    assert Partition.whole(1).cuts == ()


@pytest.mark.parametrize("ends", [(), (0, 3), (3, 3), (4, 2), (-1,), (1.5, 3)])
def test_impossible_ends_are_refused(ends: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="ends"):
        Partition(ends)


@pytest.mark.parametrize("rows", [torch.tensor([[True, False]]), np.zeros((3, 2), dtype=bool), [[1, 0]]])
def test_the_cuts_of_several_windows_are_no_partition(rows: Any) -> None:
    with pytest.raises(ValueError, match="of several windows give one row"):
        Partition.from_cuts(rows)
    assert Partition.from_cuts(rows[0]).length == 3


def test_impossible_cuts_and_run_lengths_are_refused() -> None:
    with pytest.raises(ValueError, match="cuts"):
        Partition.from_cuts([0, 2])
    for runs in ([], [2, 3], [1, 3], [1, 2, 2]):
        with pytest.raises(ValueError, match="run_lengths"):
            Partition.from_run_lengths(runs)
