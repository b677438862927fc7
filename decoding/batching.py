"""Which rows of a batch share a forward call: those of like length, where padding costs more than a call does.

In one call all rows are as long as the longest. A processor that is busy with one row pays for every position of
padding; an accelerator hardly does, as long as it waits for its weights, so there all rows go in one call.

Knows nothing of models and rows: numbers of positions in, groups of row numbers out.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

# What a call costs besides its positions, in positions: its operations are started and its weights read once more.
_CALL = {"cpu": 32}


def shared_calls(lengths: Sequence[int], device: torch.device) -> list[list[int]]:
    """The rows (numbers into lengths, ascending) of each call, such that calls and padded positions cost the least.

    Rows in the order of their length are cut where Σ (call + rows × longest) over the groups is smallest.
    """
    call = _CALL.get(device.type)
    if call is None or (max(lengths) - min(lengths)) * (len(lengths) - 1) <= call:
        return [list(range(len(lengths)))]
    order = sorted(range(len(lengths)), key=lengths.__getitem__)
    least, begins = [0], [0]  # of the first so many rows: their cost, and where the last group begins
    for end, row in enumerate(order, start=1):
        cost, begin = min((least[begin] + call + (end - begin) * lengths[row], begin) for begin in range(end))
        least.append(cost)
        begins.append(begin)
    groups, end = [], len(order)
    while end:
        groups.append(sorted(order[begins[end] : end]))
        end = begins[end]
    return groups[::-1]
