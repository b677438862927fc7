"""Exact inference over all 2^(L-1) partitions of a window: one recursion, every question read off it.

A cut depends on the past only through the run length m, the number of tokens of the current block up to the position
left of the gap, so a partition is a path of a Markov chain on run lengths. Its unnormalised log probability is

    sum over gaps g of   log q_g     + log(alpha_g / (m + alpha_g)) + cut_bias_g    where the window is cut at g,
                         log(1-q_g) + log(m / (m + alpha_g))                        where it is not,

with q = sigmoid(edge_logit) (paper: CRP prior times edge evidence). The recursion runs from the last gap to the first:

    V_g(m) = combine(stay_g(m) + V_{g+1}(m+1),  cut_g(m) + V_{g+1}(1)),        V after the last gap = 0.

With combine = logaddexp, V_0(1) is the log evidence and the difference of the two arguments is the *posterior* log odds
of a cut at g after a run of m: given those odds the posterior is drawn gap after gap, as the prior is. With
combine = maximum the sign of the difference is the most probable decision and its size is what departing from it costs.

Knows tensors only: no diagnostics, no priors, no language model. Everything is float64.

Shapes: B windows, L tokens in the longest of them, G = L-1 gaps; a shorter window fills the first of its row and the
rest of the row is ignored (staying there is free and cutting impossible). Tables over gaps and run lengths are
(G, B, L), the last index being m-1. Time is O(B L^2) and memory a few tables, except for the block count (see there).
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import logsigmoid

# Nats that a cut costs when partitions are ranked: far below any difference that matters, far above rounding for
# windows of this size, so that partitions of equal probability are ranked by their number of cuts.
TIE = 1e-12

Combine = Callable[..., Tensor]


@dataclass(frozen=True, eq=False)
class SemiMarkov:
    """The posterior over partitions of B windows.

    edge_logit (B, G): log odds of a cut by the evidence, ±inf allowed. concentration (B, G): alpha_g >= 0, finite.
    lengths (B,): tokens of each window, 1 to G+1 (default G+1). cut_bias (B, G): nats added to the score of a cut,
    -inf allowed. required, forbidden (B, G) bool: gaps whose cut is fixed or excluded (see `condition`).
    Raises ValueError for shapes or values outside these.
    """

    edge_logit: Tensor
    concentration: Tensor
    # None only stands for the default: __post_init__ puts tensors in its place
    lengths: Tensor = None  # type: ignore[assignment]
    cut_bias: Tensor = None  # type: ignore[assignment]
    required: Tensor = None  # type: ignore[assignment]
    forbidden: Tensor = None  # type: ignore[assignment]
    _inside: Tensor = field(init=False)

    def __post_init__(self) -> None:
        edge_logit = torch.as_tensor(self.edge_logit, dtype=torch.float64)
        if edge_logit.dim() != 2:
            raise ValueError(f"edge_logit must have shape (B, G), got {tuple(edge_logit.shape)}: add a batch dimension")
        shape = edge_logit.shape
        device = edge_logit.device
        concentration = torch.as_tensor(self.concentration, dtype=torch.float64, device=device)
        bias = edge_logit.new_zeros(shape) if self.cut_bias is None else self.cut_bias
        bias = torch.as_tensor(bias, dtype=torch.float64, device=device)
        values = {"edge_logit": edge_logit, "concentration": concentration, "cut_bias": bias}
        for name in ("required", "forbidden"):
            value = getattr(self, name)
            if value is None:
                value = torch.zeros(shape, dtype=torch.bool, device=edge_logit.device)
            values[name] = torch.as_tensor(value, dtype=torch.bool, device=edge_logit.device)
        for name, value in values.items():
            if value.shape != shape:
                raise ValueError(f"{name} has shape {tuple(value.shape)}, edge_logit {tuple(shape)}: make them equal")
        windows, gaps = shape
        if self.lengths is None:
            lengths = torch.full((windows,), gaps + 1, device=edge_logit.device)
        else:
            given = torch.as_tensor(self.lengths, device=edge_logit.device)
            lengths = given.long()
            if lengths.shape != (windows,) or bool(((lengths < 1) | (lengths > gaps + 1) | (lengths != given)).any()):
                raise ValueError(
                    f"lengths must be {windows} integers from 1 to {gaps + 1} tokens, got {given.tolist()}"
                )
        inside = torch.arange(gaps, device=edge_logit.device) < (lengths - 1)[:, None]
        rules = {
            "edge_logit": (edge_logit.isnan(), "may be infinite but not NaN"),
            "concentration": (~(concentration >= 0) | concentration.isinf(), "must be finite and >= 0"),
            "cut_bias": (~(bias < torch.inf), "must be below +inf; use condition() to require a cut"),
            "required": (values["required"] & values["forbidden"], "and forbidden must not name the same gap"),
        }
        for name, (wrong, remedy) in rules.items():
            if bool((wrong & inside).any()):
                raise ValueError(f"{name} {remedy}")
        if concentration.requires_grad and bool(((concentration == 0) & inside).any()):
            raise ValueError("concentration must be above 0 where its gradient is wanted")
        for name, value in values.items():
            object.__setattr__(self, name, value)
        object.__setattr__(self, "lengths", lengths)
        object.__setattr__(self, "_inside", inside)

    # --- the recursion ------------------------------------------------------------------------------------------

    def _scores(self) -> tuple[Tensor, Tensor]:
        """Log scores of staying and of cutting at each gap after each run length, two tables (G, B, L)."""
        inside = self._inside.T
        edge_logit = self.edge_logit.detach().T
        concentration = self.concentration.detach().T.where(inside, 0.0)
        stay = logsigmoid(-edge_logit).masked_fill(self.required.T, -torch.inf).where(inside, 0.0)
        cut = (logsigmoid(edge_logit) + self.cut_bias.detach().T).masked_fill(self.forbidden.T | ~inside, -torch.inf)
        run = torch.arange(1, edge_logit.shape[0] + 2, dtype=torch.float64, device=edge_logit.device)
        # log(m / (m + alpha)), and log(alpha / (m + alpha)) as that plus log(alpha / m): logarithms are what costs
        stay_table = (concentration[..., None] / run).log1p_().neg_()
        cut_table = (stay_table - run.log()).add_((cut + concentration.log())[..., None])
        return stay_table.add_(stay[..., None]), cut_table

    def _recursion(self, combine: Combine, cut_cost: float = 0.0) -> tuple[Tensor, Tensor]:
        """log odds of cutting (G, B, L) and the total (B,) under `combine`, everything to the right included."""
        with torch.no_grad():
            stay_table, cut_table = self._scores()
            if cut_cost:
                cut_table -= cut_cost
            value = stay_table.new_zeros(self.edge_logit.shape[0], self.edge_logit.shape[1] + 2)
            longer, restart, here = value[:, 1:], value[:, :1], value[:, :-1]
            for stay, cut in zip(reversed(stay_table.unbind(0)), reversed(cut_table.unbind(0)), strict=True):
                stay += longer
                cut += restart
                combine(stay, cut, out=here)
                cut -= stay
            return cut_table, value[:, 0].clone()

    @cached_property
    def _posterior(self) -> tuple[Tensor, Tensor]:
        return self._recursion(torch.logaddexp)

    @cached_property
    def _best(self) -> NDArray[np.float64]:
        odds, total = self._recursion(torch.maximum, cut_cost=TIE)
        self._check_possible(total)
        return odds.cpu().numpy()

    @staticmethod
    def _check_possible(total: Tensor) -> None:
        impossible = (total == -torch.inf).nonzero().flatten().tolist()
        if impossible:
            raise ValueError(
                f"no partition of windows {impossible} has positive probability: remove a condition that contradicts "
                "an edge logit of ±inf or a concentration of 0"
            )

    @property
    def log_evidence(self) -> Tensor:
        """log of the sum of all partitions' scores (B,), nats.

        Differentiable once, in edge_logit, concentration and cut_bias; -inf where no partition is possible.
        """
        return _LogEvidence.apply(self.edge_logit, self.concentration, self.cut_bias, self)

    def prefix_log_evidence(self) -> Tensor:
        """Log evidence (B, L) of every prefix: entry l-1 is that of a window of l tokens with the first l-1 gaps."""
        with torch.no_grad():
            stay_table, cut_table = self._scores()
            filtered = stay_table.new_full((self.edge_logit.shape[0], stay_table.shape[-1]), -torch.inf)
            filtered[:, 0] = 0.0
            evidence = [filtered[:, 0].clone()]
            for stay, cut in zip(stay_table.unbind(0), cut_table.unbind(0), strict=True):
                restart = (filtered + cut).logsumexp(-1)
                filtered = torch.cat((restart[:, None], (filtered + stay)[:, :-1]), dim=-1)
                evidence.append(filtered.logsumexp(-1))
            return torch.stack(evidence, dim=-1)

    # --- probabilities ------------------------------------------------------------------------------------------

    @property
    def cut_log_odds(self) -> Tensor:
        """Posterior log odds (G, B, L) of a cut at gap g given that the block's run length left of it is m."""
        odds, total = self._posterior
        self._check_possible(total)
        return odds

    @cached_property
    def run_lengths(self) -> Tensor:
        """Posterior probability (L, B, L) of run length m at each position; beyond a window's end the run goes on."""
        odds = self.cut_log_odds
        probability = odds.new_zeros(odds.shape[0] + 1, *odds.shape[1:])
        probability[0, :, 0] = 1.0
        rows = probability.unbind(0)
        for here, following, row in zip(rows, rows[1:], odds.unbind(0), strict=False):
            cut = here * row.sigmoid()
            # 1 - sigmoid would lose small probabilities of staying
            torch.mul(here[:, :-1], (-row[:, :-1]).sigmoid(), out=following[:, 1:])
            torch.sum(cut, -1, out=following[:, 0])
        return probability

    @property
    def cut_marginals(self) -> Tensor:
        """Posterior probability of a cut at each gap (B, G): the gradient of log_evidence with respect to cut_bias."""
        return self.run_lengths[1:, :, 0].T.contiguous()

    @property
    def block_marginals(self) -> Tensor:
        """Posterior probability (B, L, L) that [s, e) is a block, at index [s, e-1]; zero where e <= s."""
        probability = self.run_lengths
        length = probability.shape[0]
        closing = torch.cat((self.cut_log_odds.sigmoid(), probability.new_zeros(probability[:1].shape)))
        closing[self.lengths - 1, torch.arange(len(self.lengths))] = 1.0
        closing *= probability
        position = torch.arange(length, device=closing.device)
        closing.masked_fill_(position[:, None, None] >= self.lengths[:, None], 0.0)
        run = (position[:, None] - position).clamp(min=0)  # m-1 at [end, start]
        marginals = closing.gather(-1, run[:, None, :].expand_as(closing)).permute(1, 2, 0)
        return marginals.triu()

    @property
    def block_count(self) -> Tensor:
        """Posterior distribution of the number of blocks (B, L), entry k-1 for k blocks; O(L^3) time, O(L^2) memory."""
        marginals = self.block_marginals
        windows, length, _ = marginals.shape
        starts = marginals.sum(-1, keepdim=True)
        transition = torch.where(starts > 0, marginals / starts, 0.0)  # probability of each end given the start
        # count[:, e, k]: probability that a block ends at e and is the k-th. 64 ends at a time, as a matrix product
        count = marginals.new_zeros(windows, length + 1, length + 1)
        count[:, 0, 0] = 1.0
        for first in range(1, length + 1, 64):
            ends = range(first, min(first + 64, length + 1))
            earlier = transition[:, :first, first - 1 : ends[-1]].mT @ count[:, :first]
            for row, end in zip(earlier.unbind(1), ends, strict=True):
                near = transition[:, None, first:end, end - 1] @ count[:, first:end]
                count[:, end, 1:] = (row + near[:, 0])[:, :-1]
        return count[torch.arange(windows), self.lengths, 1:]

    @property
    def entropy(self) -> Tensor:
        """Entropy of the posterior over partitions (B,), nats."""
        odds = self.cut_log_odds
        surprise = torch.special.entr(odds.sigmoid()) + torch.special.entr((-odds).sigmoid())
        return (self.run_lengths[:-1] * surprise).sum((0, 2))

    @property
    def expected_block_length(self) -> Tensor:
        """Expected length in tokens (B, L) of the block that holds each position; zero beyond the window."""
        marginals = self.block_marginals
        position = torch.arange(marginals.shape[-1], device=marginals.device)
        weighted = marginals * (position - position[:, None] + 1)
        opened, closed = weighted.sum(-1), weighted.sum(-2)
        held = (opened - torch.nn.functional.pad(closed, (1, -1))).cumsum(-1)
        return held.where(position < self.lengths[:, None], 0.0)

    def as_cuts(self, cuts: Tensor) -> Tensor:
        """Cuts (..., B, G) as bool. Raises ValueError for another shape, values but 0 and 1, cuts beyond a window."""
        cuts = _flags("cuts", cuts, self.edge_logit.device)
        if cuts.shape[-2:] != self._inside.shape:
            wanted = ", ".join(map(str, self._inside.shape))
            raise ValueError(f"cuts must have shape (..., {wanted}), got {tuple(cuts.shape)}")
        if bool((cuts & ~self._inside).any()):
            raise ValueError("cuts lie beyond the end of a window: clear them")
        return cuts

    def log_joint(self, cuts: Tensor) -> Tensor:
        """Log score (..., B), nats, of partitions given as cuts (..., B, G); differentiable. Errors as in `as_cuts`."""
        cuts = self.as_cuts(cuts)
        gap = torch.arange(1, cuts.shape[-1] + 1, device=cuts.device)
        last_cut = torch.nn.functional.pad((gap * cuts).cummax(-1).values, (1, 0))[..., :-1] if gap.numel() else gap
        run = (gap - last_cut).to(torch.float64)
        sign = torch.where(cuts, 1.0, -1.0).to(torch.float64)
        # logsigmoid(± log(alpha/m)) is the CRP's log probability, with finite gradients for tiny and huge alpha
        edge_logit, concentration = (value.where(self._inside, 1.0) for value in (self.edge_logit, self.concentration))
        score = logsigmoid(sign * edge_logit) + logsigmoid(sign * (concentration.log() - run.log()))
        score = score + torch.where(cuts, self.cut_bias, 0.0)
        excluded = (cuts & self.forbidden) | (~cuts & self.required)
        return score.masked_fill(excluded, -torch.inf).where(self._inside, 0.0).sum(-1)

    def log_prob(self, cuts: Tensor) -> Tensor:
        """Posterior log probability (..., B) of partitions given as cuts (..., B, G), nats."""
        log_evidence = self.log_evidence
        self._check_possible(log_evidence)
        return self.log_joint(cuts) - log_evidence

    def condition(self, required: Tensor | None = None, forbidden: Tensor | None = None) -> SemiMarkov:
        """The posterior given that some gaps (B, G) are cut or not cut; log_evidence falls by -log P(that).

        Raises ValueError for another shape, and if a condition names a gap beyond a window or contradicts another.
        """
        masks = {}
        for name, mask in (("required", required), ("forbidden", forbidden)):
            masks[name] = getattr(self, name)
            if mask is not None:
                mask = _flags(name, mask, self.edge_logit.device)
                if mask.shape != self._inside.shape:
                    raise ValueError(f"{name} must have shape {tuple(self._inside.shape)}, got {tuple(mask.shape)}")
                if bool((mask & ~self._inside).any()):
                    raise ValueError(f"{name} names a gap beyond the end of a window: clear it")
                masks[name] = masks[name] | mask
        return replace(self, **masks)

    # --- partitions ---------------------------------------------------------------------------------------------

    @staticmethod
    def _walk(odds: NDArray[np.float64], threshold: NDArray[np.float64]) -> NDArray[np.bool_]:
        """Cuts (G, n, B) of paths that cut wherever the odds (G, B, L) of their run length exceed (G, n, B)."""
        cuts = np.empty(threshold.shape, dtype=bool)
        windows = np.arange(odds.shape[1])
        run = np.zeros(threshold.shape[1:], dtype=np.intp)
        for row, bar, cut in zip(odds, threshold, cuts, strict=True):
            np.greater(row[windows, run], bar, out=cut)
            run = np.where(cut, 0, run + 1)
        return cuts

    def map(self) -> Tensor:
        """Cuts (B, G) of the most probable partition; of equally probable ones, one with the fewest cuts."""
        gaps, windows = self._best.shape[:2]
        return torch.from_numpy(self._walk(self._best, np.zeros((gaps, 1, windows)))[:, 0].T.copy())

    def sample(self, n: int, generator: torch.Generator) -> Tensor:
        """Cuts (n, B, G) of n independent draws from the posterior. Raises ValueError if n is below 0."""
        if n < 0:
            raise ValueError(f"the number of draws must not be below 0, got {n}")
        odds = self.cut_log_odds
        noise = torch.rand(odds.shape[0], n, odds.shape[1], dtype=torch.float64, generator=generator).logit()
        return torch.from_numpy(self._walk(odds.cpu().numpy(), noise.numpy()).transpose(1, 2, 0).copy())

    def ranked(self, window: int = 0) -> Iterator[tuple[NDArray[np.bool_], float]]:
        """Cuts (G,) of one window's partitions, most probable first, each with its log probability behind the first's.

        Lazy and without repetition; partitions of probability zero are left out. A partition is the best one but for
        some departures from the best decision given the run length, and each departure costs the size of its log odds:
        the children of a partition depart once more, to the right of its last departure (Lawler's partition).
        """
        odds = self._best[:, window]
        gap = np.arange(odds.shape[0])

        def path(prefix: NDArray[np.bool_]) -> tuple[NDArray[np.bool_], NDArray[np.float64], NDArray[np.intp]]:
            """Follow the best decisions after a prefix; the costs of departing from them, cheapest first."""
            fixed = len(prefix)
            cuts = np.empty(len(gap), dtype=bool)
            cuts[:fixed] = prefix
            last = np.flatnonzero(prefix)
            run = fixed - 1 - last[-1] if len(last) else fixed
            cost = np.empty(len(gap) - fixed)
            for g in range(fixed, len(gap)):
                score = odds[g, run]
                cuts[g] = score > 0
                cost[g - fixed] = abs(score)
                run = 0 if score > 0 else run + 1
            order = np.argsort(cost, kind="stable")
            return cuts, cost[order], order + fixed

        serial = 0
        heap: list[tuple[float, int, Any, int]] = []

        def push(distance: float, family: Any, child: int) -> None:
            """Queue the child-th cheapest departure from a partition."""
            nonlocal serial
            cost = family[1]
            if child < len(cost) and cost[child] < np.inf:
                heapq.heappush(heap, (distance + float(cost[child]), serial, (distance, *family), child))
                serial += 1

        family = path(np.empty(0, dtype=bool))
        at_best = int(family[0].sum())
        yield family[0], 0.0
        push(0.0, family, 0)
        while heap:
            distance, _, (before, cuts, cost, where), child = heapq.heappop(heap)
            push(before, (cuts, cost, where), child + 1)
            departure = where[child]
            prefix = cuts[: departure + 1].copy()
            prefix[departure] ^= True
            family = path(prefix)
            refund = TIE * (int(family[0].sum()) - at_best)  # what ranking charged for cuts
            yield family[0], refund - distance
            push(distance, family, 0)


def _flags(name: str, value: Any, device: torch.device) -> Tensor:
    """A tensor of flags as bool. Raises ValueError for values but 0 and 1: probabilities and places are no cuts."""
    tensor = torch.as_tensor(value, device=device)
    if tensor.dtype != torch.bool and not bool(((tensor == 0) | (tensor == 1)).all()):
        raise ValueError(f"{name} must be flags, 0 or 1 at each gap")
    return tensor.bool()


class _LogEvidence(torch.autograd.Function):
    """The total of the recursion, with Fisher's identity as its gradient: the posterior mean of the score's gradient.

    Differentiating the recursion itself gives NaN where two scores of -inf meet; these expectations do not.
    """

    @staticmethod
    def forward(ctx: Any, edge_logit: Tensor, concentration: Tensor, cut_bias: Tensor, chain: SemiMarkov) -> Tensor:
        ctx.chain = chain
        return chain._posterior[1].clone()

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *gradients: Any) -> Any:
        chain: SemiMarkov = ctx.chain
        inside, cut = chain._inside, chain.cut_marginals
        edge_logit = (cut - chain.edge_logit.sigmoid()).where(inside, 0.0)
        odds, here = chain.cut_log_odds, chain.run_lengths[:-1]
        alpha = chain.concentration.detach().T[..., None]
        run = torch.arange(1, odds.shape[-1] + 1, dtype=torch.float64, device=odds.device)
        # the division first: both may be tiny, their ratio is not
        slope = (odds.sigmoid() / alpha * run - (-odds).sigmoid()) / (run + alpha)
        concentration = (here * slope).sum(-1).T.where(inside, 0.0)
        gradient = gradients[0][:, None]
        return gradient * edge_logit, gradient * concentration, gradient * cut, None
