"""The prior laws as Pyro distributions: window length, cuts of a window, order of blocks.

    ClippedPoisson   L ~ Poisson(mu) clipped to [low, high]                                       (eq. window_length)
    GapCRP           b_g = 1 with alpha_g / (m + alpha_g), else 0; m = current block's length     (eq. prior of cuts)
    PlackettLuce     next block k with exp(w_k) / sum over the remaining of exp(w)                (reading R9, static)
    AnchoredOrder    the same with w re-evaluated as blocks finish                                (reading R9, dynamic)

Knows no window and no evidence. `sample` takes an optional torch.Generator; without one it draws from torch's global
stream, as Pyro does. Log probabilities are in nats, lengths in tokens; -inf is true -inf.
"""

from __future__ import annotations

from typing import Any

import torch
from pyro.distributions import TorchDistribution, constraints
from torch import Tensor
from torch.nn.functional import logsigmoid, one_hot

from .kinds import whole_number

_TIE = 1e-12  # nats that rounding may tell equal probabilities apart by

_LARGEST_ENUMERABLE = 16  # gaps: 2^16 cut vectors
_LARGEST_PERMUTATION = 8  # blocks: 8! = 40,320 orders


class _Permutation(constraints.Constraint):
    """Integer vectors (..., M) that hold each of 0 … M-1 once."""

    is_discrete = True
    event_dim = 1

    def check(self, value: Tensor) -> Tensor:
        return (value.sort(-1).values == torch.arange(value.shape[-1], device=value.device)).all(-1)


def cut_log_probabilities(run_length: Tensor, log_concentration: Tensor) -> tuple[Tensor, Tensor]:
    """(log alpha/(m+alpha), log m/(m+alpha)), in nats, of run length m and log alpha, broadcast together.

    As log-sigmoids of log m - log alpha, so that alpha of any size, up to overflow, gives neither NaN nor a lost digit.
    """
    log_odds_of_cut = log_concentration - run_length.to(log_concentration.dtype).log()
    return logsigmoid(log_odds_of_cut), logsigmoid(-log_odds_of_cut)


class ClippedPoisson(TorchDistribution):
    """Poisson(rate) clipped, not truncated, to [low, high]: the tails' mass sits on the two ends (reading R2).

    rate (...) tokens, positive; low and high integers, 0 <= low <= high, else ValueError. Samples are int64.
    """

    arg_constraints = {"rate": constraints.positive}
    has_enumerate_support = True

    def __init__(self, rate: Tensor | float, low: int, high: int, validate_args: bool | None = None) -> None:
        self.low, self.high = whole_number("low", low), whole_number("high", high)
        if not 0 <= self.low <= self.high:
            raise ValueError(f"bounds must satisfy 0 <= low <= high, got low={low}, high={high}.")
        self.rate = torch.as_tensor(rate, dtype=torch.float64)
        super().__init__(self.rate.shape, torch.Size(), validate_args=validate_args)

    @constraints.dependent_property(is_discrete=True, event_dim=0)
    def support(self) -> Any:
        return constraints.integer_interval(self.low, self.high)

    def log_prob(self, value: Tensor) -> Tensor:
        """Log mass of lengths `value` (...): P(X <= low) at low, P(X >= high) at high, the Poisson mass between."""
        if self._validate_args:
            self._validate_sample(value)
        if self.low == self.high:
            return torch.zeros_like(self.rate + value)
        result = torch.where(value <= self.low, self._log_sum(0, self.low), self._log_mass(value))
        # far enough beyond both the bound and the rate that what is left out is below rounding
        centre = max(self.high, float(self.rate.max()))
        upper = self._log_sum(self.high, int(centre + 12 * centre**0.5) + 60)
        return torch.where(value >= self.high, upper, result)

    def _log_mass(self, count: Tensor) -> Tensor:
        n = count.to(self.rate.dtype)  # lgamma of integers would be float32
        return n * self.rate.log() - self.rate - torch.lgamma(n + 1)

    def _log_sum(self, first: int, last: int) -> Tensor:
        """log P(first <= X <= last) (...), summed: torch's incomplete gamma is good to 1e-9 only."""
        counts = torch.arange(first, last + 1).reshape((-1,) + (1,) * self.rate.dim())
        return self._log_mass(counts).logsumexp(0)

    def sample(self, sample_shape: Any = (), *, generator: torch.Generator | None = None) -> Tensor:
        with torch.no_grad():
            counts = torch.poisson(self.rate.expand(self._extended_shape(sample_shape)), generator=generator)
            return counts.clamp(self.low, self.high).long()

    def enumerate_support(self, expand: bool = True) -> Tensor:
        """All lengths low … high, as (high-low+1, 1, …) or expanded to the batch shape."""
        values = torch.arange(self.low, self.high + 1).reshape((-1,) + (1,) * len(self.batch_shape))
        return values.expand((-1, *self.batch_shape)) if expand else values

    @property
    def mode(self) -> Tensor:
        """The most probable length of the clipped law, int64 (...); the shorter on ties, as at a whole rate."""
        return self.low + first_of_largest(self.log_prob(self.enumerate_support()))

    @property
    def mean(self) -> Tensor:
        """Expected length of the clipped law, in tokens (...)."""
        values = self.enumerate_support()
        return (self.log_prob(values).exp() * values).sum(0)


def first_of_largest(log_probability: Tensor) -> Tensor:
    """The first index (...) along dimension 0 of the largest log probability (n, ...), up to rounding, nats."""
    return (log_probability >= log_probability.max(0).values - _TIE).int().argmax(0)


class GapCRP(TorchDistribution):
    """Sequential Chinese-restaurant cuts: gap g is cut with probability alpha_g / (m + alpha_g).

    m is the length of the current block up to and including the position left of the gap. concentration alpha
    (..., L-1), positive; values are cut flags (..., L-1), samples bool. L = 1 (no gap) is allowed.
    """

    arg_constraints = {"concentration": constraints.independent(constraints.positive, 1)}
    support = constraints.independent(constraints.boolean, 1)
    has_enumerate_support = True

    def __init__(self, concentration: Tensor, validate_args: bool | None = None) -> None:
        self.concentration = torch.as_tensor(concentration, dtype=torch.float64)
        super().__init__(self.concentration.shape[:-1], self.concentration.shape[-1:], validate_args=validate_args)

    def log_prob(self, value: Tensor) -> Tensor:
        """Log mass (...) of cut flags (..., L-1)."""
        if self._validate_args:
            self._validate_sample(value)
        cuts = value.bool()
        after = torch.arange(1, cuts.shape[-1] + 1)  # the position right of each gap
        starts = torch.where(cuts, after, 0)
        if cuts.shape[-1] > 0:  # start of the block left of each gap: the last cut strictly before it
            starts = torch.nn.functional.pad(starts.cummax(-1).values[..., :-1], (1, 0))
        log_cut, log_stay = cut_log_probabilities(after - starts, self.concentration.log())
        return torch.where(cuts, log_cut, log_stay).sum(-1)

    def sample(self, sample_shape: Any = (), *, generator: torch.Generator | None = None) -> Tensor:
        with torch.no_grad():
            shape = self._extended_shape(sample_shape)
            uniform = torch.rand(shape, dtype=torch.float64, generator=generator)
            cuts = torch.zeros(shape, dtype=torch.bool)
            run_length = torch.ones(shape[:-1], dtype=torch.float64)
            for g in range(shape[-1]):
                alpha = self.concentration[..., g]
                cuts[..., g] = uniform[..., g] * (run_length + alpha) < alpha
                run_length = torch.where(cuts[..., g], 1.0, run_length + 1.0)
            return cuts

    def enumerate_support(self, expand: bool = True) -> Tensor:
        """All 2^(L-1) cut vectors, (2^(L-1), 1…, L-1) or expanded. Raises ValueError beyond 16 gaps."""
        gaps = self.event_shape[0]
        if gaps > _LARGEST_ENUMERABLE:
            raise ValueError(f"{gaps} gaps have 2^{gaps} cut vectors: enumerate partition_model's run lengths.")
        codes = torch.arange(2**gaps).unsqueeze(-1)
        values = (codes >> torch.arange(gaps)).bitwise_and(1).bool()
        values = values.reshape((2**gaps,) + (1,) * len(self.batch_shape) + (gaps,))
        return values.expand((-1, *self.batch_shape, gaps)) if expand else values


def _gumbel(shape: torch.Size, generator: torch.Generator | None) -> Tensor:
    return -torch.empty(shape, dtype=torch.float64).exponential_(generator=generator).log()


def _permutations(count: int) -> Tensor:
    if count > _LARGEST_PERMUTATION:
        raise ValueError(f"{count} blocks have {count}! orders: draw samples instead of enumerating them.")
    orders = torch.zeros((1, 0), dtype=torch.long)
    for _ in range(count):  # append, to every partial order, each block that it lacks
        missing = 1 - one_hot(orders, count).sum(1) if count else orders
        rows, block = missing.nonzero(as_tuple=True)
        orders = torch.cat((orders[rows], block.unsqueeze(-1)), -1)
    return orders


class PlackettLuce(TorchDistribution):
    """Orders of M blocks drawn one after another, the next in proportion to exp(log_weights) among those that remain.

    log_weights (..., M), finite; values are orders (..., M): value[i] is the block decoded as the i-th.
    """

    arg_constraints = {"log_weights": constraints.real_vector}
    support = _Permutation()
    has_enumerate_support = True

    def __init__(self, log_weights: Tensor, validate_args: bool | None = None) -> None:
        self.log_weights = torch.as_tensor(log_weights, dtype=torch.float64)
        super().__init__(self.log_weights.shape[:-1], self.log_weights.shape[-1:], validate_args=validate_args)

    def log_prob(self, value: Tensor) -> Tensor:
        """Log mass (...) of orders (..., M): the sum over picks of w - logsumexp of the weights that remain."""
        if self._validate_args:
            self._validate_sample(value)
        shape = torch.broadcast_shapes(value.shape, self.log_weights.shape)
        weights = self.log_weights.expand(shape).gather(-1, value.expand(shape))
        remaining = weights.flip(-1).logcumsumexp(-1).flip(-1)
        return (weights - remaining).sum(-1)

    def sample(self, sample_shape: Any = (), *, generator: torch.Generator | None = None) -> Tensor:
        with torch.no_grad():  # sorting Gumbel-perturbed weights picks successively in proportion to exp(weight)
            keys = self.log_weights + _gumbel(self._extended_shape(sample_shape), generator)
            return keys.argsort(-1, descending=True)

    def enumerate_support(self, expand: bool = True) -> Tensor:
        """All M! orders, (M!, 1…, M) or expanded. Raises ValueError beyond 8 blocks."""
        count = self.event_shape[0]
        values = _permutations(count).reshape((-1,) + (1,) * len(self.batch_shape) + (count,))
        return values.expand((-1, *self.batch_shape, count)) if expand else values

    @property
    def mode(self) -> Tensor:
        """The most probable order (..., M): weights sorted downwards, the leftmost block first on ties."""
        return self.log_weights.argsort(stable=True, dim=-1, descending=True)


class AnchoredOrder(TorchDistribution):
    """Plackett-Luce with anchoring re-evaluated: next block k in proportion to exp((gamma C_k - H_k) / temperature).

    C_k is 0.5 for a left neighbour that is finished (the first block's always is) plus 0.5 for a finished right one;
    nothing stands right of the last block. instability H (M,); context_weight gamma; temperature > 0.
    """

    arg_constraints = {"instability": constraints.real_vector}
    support = _Permutation()
    has_enumerate_support = True

    def __init__(
        self, instability: Tensor, context_weight: float, temperature: float = 1.0, validate_args: bool | None = None
    ) -> None:
        self.instability = torch.as_tensor(instability, dtype=torch.float64)
        if self.instability.dim() != 1 or not temperature > 0:
            raise ValueError("AnchoredOrder takes instability of shape (M,) and a temperature above 0.")
        self.context_weight, self.temperature = float(context_weight), float(temperature)
        super().__init__(torch.Size(), self.instability.shape, validate_args=validate_args)

    def log_weights(self, finished: Tensor) -> Tensor:
        """Log weights (..., M) of the next block, given which are finished (..., M); -inf for those."""
        left, right = torch.ones_like(finished), torch.zeros_like(finished)
        left[..., 1:] = finished[..., :-1]
        right[..., :-1] = finished[..., 1:]
        anchoring = 0.5 * (left.double() + right.double())
        weights = (self.context_weight * anchoring - self.instability) / self.temperature
        return weights.masked_fill(finished, -torch.inf)

    def log_prob(self, value: Tensor) -> Tensor:
        """Log mass (...) of orders (..., M)."""
        if self._validate_args:
            self._validate_sample(value)
        finished = torch.zeros(value.shape, dtype=torch.bool)
        total = torch.zeros(value.shape[:-1], dtype=torch.float64)
        for pick in value.unsqueeze(-2).unbind(-1):
            total = total + self.log_weights(finished).log_softmax(-1).gather(-1, pick).squeeze(-1)
            finished = finished.scatter(-1, pick, True)
        return total

    def _pick_in_turn(self, noise: Tensor) -> Tensor:
        """Orders (..., M) that take at each step the largest log weight plus that step's noise (M steps, ..., M)."""
        finished = torch.zeros(noise.shape[1:], dtype=torch.bool)
        picks = []
        for step_noise in noise:
            picks.append((self.log_weights(finished) + step_noise).argmax(-1, keepdim=True))
            finished = finished.scatter(-1, picks[-1], True)
        return torch.cat(picks, -1)

    def sample(self, sample_shape: Any = (), *, generator: torch.Generator | None = None) -> Tensor:
        with torch.no_grad():
            steps = torch.Size((*self.event_shape, *self._extended_shape(sample_shape)))
            return self._pick_in_turn(_gumbel(steps, generator))

    def enumerate_support(self, expand: bool = True) -> Tensor:
        """All M! orders (M!, M). Raises ValueError beyond 8 blocks."""
        return _permutations(self.event_shape[0])

    @property
    def mode(self) -> Tensor:
        """The greedy order (M,): at each step the block of largest weight, the leftmost on ties.

        This is the paper's rule with C re-evaluated. Unlike the static law's sort it can miss the most probable order,
        because a pick changes the weights that follow; that one would need a search over 2^M sets of finished blocks.
        """
        return self._pick_in_turn(torch.zeros((*self.event_shape, *self.event_shape), dtype=torch.float64))
