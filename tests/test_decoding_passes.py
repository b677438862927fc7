"""Passes and weld intervals: quotas, T(B) under both laws, what a diagnostic pass shows, where a weld may touch."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dystruct.decoding.passes import interpolated_passes, quotas, shared_passes, shown_positions
from dystruct.decoding.weld import welds
from dystruct.model import Partition

partitions = st.lists(st.integers(1, 30), min_size=1, max_size=8).map(
    lambda sizes: Partition(tuple(sum(sizes[: i + 1]) for i in range(len(sizes))))
)


@given(st.integers(0, 200), st.integers(0, 60))
@example(10, 0)
def test_quotas_are_even_larger_first_never_empty_and_complete(masked: int, passes: int) -> None:
    found = quotas(masked, passes)
    assert len(found) == min(masked, passes)
    assert sum(found) == (masked if passes else 0)
    assert found == sorted(found, reverse=True)
    assert not found or (found[-1] >= 1 and found[0] - found[-1] <= 1)


@given(st.integers(1, 64), st.integers(0, 10))
def test_shown_positions_are_the_floor_of_k_l_over_k_plus_1(length: int, passes: int) -> None:
    assert shown_positions(length, passes) == [
        math.floor(Fraction(k * length, passes + 1)) for k in range(1, passes + 1)
    ]


@pytest.mark.parametrize(
    ("instability", "low", "high", "passes"),
    [
        (0, 6, 18, 6),
        (1, 6, 18, 18),
        (0.5, 6, 18, 12),
        (0.125, 6, 18, 8),
        (0.375, 6, 18, 11),
        (0.5, 6, 9, 8),
        (0.3, 5, 5, 5),
    ],
)
def test_interpolated_passes_round_half_up(instability: float, low: int, high: int, passes: int) -> None:
    assert interpolated_passes(instability, low, high) == passes  # 7.5, 10.5 and 7.5 go up


@given(
    st.lists(st.tuples(st.integers(1, 30), st.floats(0, 1)), min_size=1, max_size=8),
    st.sampled_from([0.1, 0.5, 1.0, 3.0]),
)
@example([(5, 0.0), (3, 0.0)], 1.0)
def test_shared_passes_follow_the_formula_within_one_and_the_block(
    blocks: list[tuple[int, float]], rate: float
) -> None:
    sizes, instabilities = [size for size, _ in blocks], [h for _, h in blocks]
    mean = sum(n * h for n, h in blocks) / sum(sizes)
    for (size, h), passes in zip(blocks, shared_passes(sizes, instabilities, rate), strict=True):
        exact = size * rate * (h / mean if mean > 0 else 1.0)
        assert 1 <= passes <= size
        assert passes == max(1, min(size, passes))
        if 1 <= exact <= size:
            assert exact - 0.5 - 1e-9 <= passes <= exact + 0.5 + 1e-9
        else:
            assert passes == (1 if exact < 1 else size)


@given(st.lists(st.integers(4, 30), min_size=1, max_size=8), st.floats(0.1, 1))
def test_equal_blocks_share_the_budget_in_proportion_to_their_tokens(sizes: list[int], h: float) -> None:
    assert shared_passes(sizes, [h] * len(sizes), 1.0) == sizes


@given(partitions, st.integers(1, 40))
def test_a_weld_for_each_boundary_left_to_right_within_its_two_blocks(partition: Partition, radius: int) -> None:
    found = welds(partition, radius, "sequential")
    assert len(found) == partition.count - 1
    for block, weld in enumerate(found):
        (a, b), (b2, c) = partition.blocks[block], partition.blocks[block + 1]
        assert b == b2 and weld.block == block
        positions = [j for j in range(a, c) if b - radius <= j < b + radius]
        assert list(range(weld.start, weld.end)) == positions
        assert weld.remask == max(1, len(positions) // 2)


@given(partitions, st.integers(1, 40))
def test_joint_welds_cover_the_same_positions_once(partition: Partition, radius: int) -> None:
    one_by_one = {j for weld in welds(partition, radius, "sequential") for j in range(weld.start, weld.end)}
    joint = [j for weld in welds(partition, radius, "joint") for j in range(weld.start, weld.end)]
    assert len(joint) == len(set(joint)), "intervals that are refined together must not overlap"
    assert set(joint) == one_by_one
    assert joint == sorted(joint)
    for weld in welds(partition, radius, "joint"):
        assert weld.remask == max(1, (weld.end - weld.start) // 2)


@given(partitions)
def test_no_welding_when_it_is_off_or_there_is_one_block(partition: Partition) -> None:
    assert welds(partition, 10, "off") == []
    assert welds(Partition.whole(partition.length), 10, "sequential") == []
    assert welds(Partition.whole(partition.length), 10, "joint") == []
