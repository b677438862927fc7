"""The joint maximum over partition and order (R10): ranked partitions re-scored with their best order, and a proof.

The paper maximises over partitions and then over orders. The pair of highest probability differs: a partition of k
blocks pays

    -log max over orders of p(order | partition)  >=  pen(k)

for its order, about log k! when blocks are alike. Blocks' mean instabilities lie within R = (max h - min h)/temperature
of each other in log weight and anchoring adds at most A to one, so that a pick among r blocks costs at least
log(1 + (r-1) e^-R), or log(1 + (r-1) e^(-R-A)) for the picks that anchoring may favour: static anchoring favours one
block, A = gamma/(2 temperature); re-evaluated anchoring any, A = gamma/temperature.

Any line a k + b <= pen(k) gives log p(partition, order) <= [log p(partition) - a k] - b. The bracket is a partition
posterior with a cut bias of -a, whose partitions come in order; when the next one's bound falls below the best pair
found, that pair is the maximum. The line is the one with the lowest bound at the start, among those with pen's slopes.

Knows the partition chain and the order laws; nothing of language models.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from dystruct.model import Partition, PriorConfig, Structure, order_law

from .semimarkov import SemiMarkov


@dataclass(frozen=True)
class JointMaximum:
    """The best pair found and its log probability: none is better by more than `gap` nats (0: the maximum)."""

    structure: Structure
    log_prob: float
    gap: float
    examined: int


def order_penalties(instability: Tensor, prior: PriorConfig) -> Tensor:
    """Lower bounds pen(k) (L,), entry k-1, of -log p(order | partition) over partitions of k blocks and all orders."""
    spread = float(instability.max() - instability.min()) / prior.order_temperature
    others = torch.arange(len(instability), dtype=torch.float64)  # r - 1 for a pick among r blocks
    plain = torch.log1p(others * math.exp(-spread))
    if prior.anchoring == "dynamic":
        return torch.log1p(others * math.exp(-spread - prior.context_weight / prior.order_temperature)).cumsum(0)
    favoured = torch.log1p(others * math.exp(-spread - 0.5 * prior.context_weight / prior.order_temperature))
    # a favoured pick saves most where most blocks remain, that is at the first pick
    return plain.cumsum(0) - plain + favoured


def joint_maximum(chain: SemiMarkov, instability: Tensor, prior: PriorConfig, limit: int) -> JointMaximum:
    """The most probable (partition, order) of a chain of one window, re-scoring at most `limit` partitions.

    Orders are their laws' modes; with re-evaluated anchoring that mode is greedy, and `gap` may then stay above 0.
    """
    penalty = order_penalties(instability, prior)
    blocks = torch.arange(1, len(instability) + 1, dtype=torch.float64)
    slope = torch.cat((penalty.new_zeros(1), penalty.diff())).unique()
    intercept = (penalty - slope[:, None] * blocks).amin(-1)

    def repeat(tensor: Tensor) -> Tensor:
        return tensor.expand(len(slope), -1)

    biased = SemiMarkov(
        repeat(chain.edge_logit),
        repeat(chain.concentration),
        cut_bias=chain.cut_bias - slope[:, None],
        required=repeat(chain.required),
        forbidden=repeat(chain.forbidden),
    )
    cuts = biased.map()
    bound = chain.log_prob(cuts[:, None])[:, 0] - slope * (1 + cuts.sum(-1)) - intercept
    line = int(bound.argmin())

    best: Structure | None = None
    best_log_prob, examined, remaining = -math.inf, 0, float(bound[line])
    for flags, behind in replace(chain, cut_bias=chain.cut_bias - slope[line]).ranked():
        remaining = float(bound[line]) + behind
        if remaining <= best_log_prob or examined == limit:
            break
        partition = Partition.from_cuts(flags.tolist())
        law = order_law(partition, instability, prior)
        order = law.mode
        log_prob = float(chain.log_prob(torch.from_numpy(flags)[None])) + float(law.log_prob(order))
        examined += 1
        if log_prob > best_log_prob:
            best, best_log_prob = Structure(partition, tuple(order.tolist())), log_prob
    else:
        remaining = best_log_prob
    assert best is not None
    return JointMaximum(best, best_log_prob, max(0.0, remaining - best_log_prob), examined)
