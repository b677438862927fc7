"""Consensus partitions: the partition of least posterior expected loss, exactly, from marginals.

MAP is the consensus under 0-1 loss and can be untypical. Two losses that count how wrong a partition is:

    hamming(c, p) = number of gaps where one has a cut and the other has not
        E = sum over gaps of P(cut) (1 - c_g) + (1 - P(cut)) c_g, so a gap is cut where P(cut) > 1/2

    vi(c, p) = (1/L) [ sum_i f(|c_i|) + sum_j f(|p_j|) - 2 sum_ij f(|c_i ∩ p_j|) ],   f(n) = n log n      (nats)
        variation of information H(c|p) + H(p|c). Its expectation is a sum over the blocks [s, e) of c of
        f(e - s) - 2 E sum_j f(|[s, e) ∩ p_j|), plus a constant, so that the best c is a shortest path.

The expectation W(s, e) = E sum_j f(|[s, e) ∩ p_j|) needs only block marginals P(x, y): a piece [x, y) of [s, e) is a
whole block, a block that begins before s, one that ends after e, or both, and each case is a cumulative sum of P. So
all of W takes O(L^2); no samples are needed.

Knows tensors: a SemiMarkov chain of B windows, its marginals, cuts (B, G).
"""

from __future__ import annotations

from typing import Literal, get_args

import torch
from torch import Tensor

from .semimarkov import TIE, SemiMarkov

Loss = Literal["hamming", "vi"]


def _information(length: int, like: Tensor) -> Tensor:
    """f(e - s) (L, L) at [s, e-1], zero where e <= s."""
    position = torch.arange(length, device=like.device)
    tokens = (position - position[:, None] + 1).clamp(min=0).to(like.dtype)
    return torch.special.xlogy(tokens, tokens)


def expected_overlap_information(block_marginals: Tensor) -> Tensor:
    """W (..., L, L) at [s, e-1]: expected sum of n log n over the pieces into which the random partition cuts [s, e).

    block_marginals (..., L, L) as in SemiMarkov; nats times tokens; zero where e <= s. In place where it can be: 4,096
    tokens fit.
    """
    information = _information(block_marginals.shape[-1], block_marginals)
    unfinished = block_marginals.flip(-1).cumsum_(-1).flip(-1)  # a block begins at s and reaches or passes e
    total = unfinished.cumsum(-2).mul_(information)  # [s, e) lies within one block
    reaching = unfinished.mul_(information).flip(-2).cumsum_(-2).flip(-2)
    total[..., :-1, :] += reaching[..., 1:, :]  # a piece begins after s and reaches e
    del unfinished, reaching
    begun = block_marginals.cumsum(-2).mul_(information).cumsum_(-1)
    total[..., 1:] += begun[..., :-1]  # a piece begins at or before s and ends before e
    del begun
    whole = (block_marginals * information).flip(-2).cumsum_(-2).flip(-2).cumsum_(-1)
    total[..., :-1, 1:] += whole[..., 1:, :-1]  # a block lies strictly within [s, e)
    return total.triu_()


def _block_losses(chain: SemiMarkov) -> tuple[Tensor, Tensor]:
    """What a block [s, e) adds to L times the expected variation of information (B, L, L), and the constant (B,)."""
    marginals = chain.block_marginals
    information = _information(marginals.shape[-1], marginals)
    constant = (marginals * information).sum((-2, -1))
    return expected_overlap_information(marginals).mul_(-2).add_(information), constant


def expected_variation_of_information(chain: SemiMarkov, cuts: Tensor) -> Tensor:
    """Posterior expected variation of information (..., B), nats, of partitions given as cuts (..., B, G).

    Raises ValueError for another shape or for cuts beyond a window.
    """
    cuts = chain.as_cuts(cuts)
    losses, constant = _block_losses(chain)
    position = torch.arange(losses.shape[-1], device=cuts.device)
    starts = torch.nn.functional.pad(position[1:] * cuts, (1, 0)).cummax(-1).values  # of the block at each position
    closes = torch.nn.functional.pad(cuts, (0, 1)) | (position == chain.lengths[:, None] - 1)
    window = torch.arange(len(losses), device=cuts.device)[:, None]
    return (constant + losses[window, starts, position].where(closes, 0.0).sum(-1)) / chain.lengths


def consensus_partition(chain: SemiMarkov, loss: Loss = "hamming") -> Tensor:
    """Cuts (B, G) of the partitions of least expected loss, with the fewest cuts on ties.

    Raises ValueError on an unknown loss.
    """
    if loss == "hamming":
        return chain.cut_marginals > 0.5
    if loss not in get_args(Loss):
        raise ValueError(f"loss must be one of {', '.join(get_args(Loss))}, got {loss!r}.")
    losses = _block_losses(chain)[0].mT.contiguous().add_(TIE)  # at [e-1, s]
    windows, length, _ = losses.shape
    best = losses.new_zeros(windows, length + 1)
    start = torch.zeros(windows, length + 1, dtype=torch.long)
    for end in range(1, length + 1):
        best[:, end], start[:, end] = (best[:, :end] + losses[:, end - 1, :end]).min(-1)
    cuts = torch.zeros_like(chain.required)
    for window, end in enumerate(chain.lengths.tolist()):
        end = int(start[window, end])
        while end > 0:
            cuts[window, end - 1] = True
            end = int(start[window, end])
    return cuts
