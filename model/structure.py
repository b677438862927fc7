"""The generative program of a window's structure: its length, its cuts, the order in which its blocks are decoded.

Knows no language model and no inference algorithm. `structure_model` is the specification: run forward it generates,
conditioned it scores, enumerated it is exact; whatever computes faster must agree with it.

        hbar, remaining                covariate ell               h (instability)
              |                             |                            |
              v                             v                            |
       (window_length)              alpha_g = alpha0 exp(hbar            |
          L ~ clipped Poisson           + ell_g - mean ell)              |
              |                             |                            |
              |      .----------------------+----------------------.     |
              |      v                      v                      v     |
              '->(run_length_0) ----> (run_length_1) --> … --> (run_length_{L-2})
                     |                      |                      |     |
                     v                      v                      v     |
               [edge_logit_0]         [edge_logit_1]   …     [edge_logit_{L-2}]
                     |                      |                      |     |
                     '------ partition -----+----------------------'     |
                                 |                                       |
                                 v                                       |
                              (order) <----------------------------------'

    run_length_g   length of the current block up to and including position g+1. With m that at position g, it becomes
                   m + 1 with probability m / (m + alpha_g) (stay), 1 with alpha_g / (m + alpha_g) (cut). A cut depends
                   on the past through m alone, so run lengths, and not cuts, form a first-order Markov chain that can
                   be enumerated.
    edge_logit_g   Normal(+s²/2 if cut else -s²/2, s), observed at ell_g. Its log likelihood ratio is ell_g for every s,
                   so it is the evidence q^b (1-q)^(1-b), q = sigmoid(ell), in a form that can also be simulated.
    order          Plackett-Luce with weights exp(rho / temperature), rho(B) = -H(B) + gamma C(B)      (eq. schedule)

ell enters twice, as covariate of alpha_g and as observation: separate arguments, so that one can be held fixed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal, cast, get_args

import pyro
import pyro.distributions as dist
import torch
from pyro.poutine import Trace
from torch import Tensor

from .evidence import Diagnostics
from .kinds import real_number, whole_number
from .partition import Partition
from .priors import AnchoredOrder, ClippedPoisson, GapCRP, PlackettLuce, cut_log_probabilities

Anchoring = Literal["static", "dynamic"]

_NOT_ENUMERATED: Any = {"enumerate": None}  # config_enumerate keeps what a site has set


@dataclass(frozen=True)
class PriorConfig:
    """Hyperparameters of the structure; the defaults are the paper's.

    min_length, max_length: bounds of a window, tokens. concentration: alpha0 > 0. context_weight: gamma >= 0.
    order_temperature > 0. evidence_scale: s > 0, without influence on the posterior of one window's structure.
    anchoring: C computed once ("static") or again as blocks finish ("dynamic"), reading R9. Raises ValueError naming
    the field.
    """

    min_length: int = 8
    max_length: int = 48
    concentration: float = 1.5
    context_weight: float = 2.0
    order_temperature: float = 1.0
    evidence_scale: float = 1.0
    anchoring: Anchoring = "static"

    def __post_init__(self) -> None:
        for name in ("min_length", "max_length"):
            object.__setattr__(self, name, whole_number(name, getattr(self, name)))
        for name in ("concentration", "context_weight", "order_temperature", "evidence_scale"):
            object.__setattr__(self, name, real_number(name, getattr(self, name)))
        if not 1 <= self.min_length <= self.max_length:
            raise ValueError(
                f"min_length and max_length must satisfy 1 <= min_length <= max_length, got {self.min_length} and "
                f"{self.max_length}."
            )
        for name in ("concentration", "order_temperature", "evidence_scale"):
            if not 0 < getattr(self, name) < math.inf:
                raise ValueError(f"{name} must be positive and finite, got {getattr(self, name)}.")
        if not 0 <= self.context_weight < math.inf:
            raise ValueError(f"context_weight must be zero or positive and finite, got {self.context_weight}.")
        if self.anchoring not in get_args(Anchoring):
            raise ValueError(f"anchoring must be one of {', '.join(get_args(Anchoring))}, got {self.anchoring!r}.")

    @classmethod
    def preset(cls, name: str) -> PriorConfig:
        """The hyperparameters called `name`: "paper" (the defaults) or "dynamic" (anchoring re-evaluated)."""
        presets = {"paper": cls(), "dynamic": cls(anchoring="dynamic")}
        if name not in presets:
            raise ValueError(f"there is no preset {name!r}: choose one of {', '.join(presets)}.")
        return presets[name]


@dataclass(frozen=True)
class Context:
    """What came before a window: hbar, the previous window's mean instability in [0, 1], and the tokens left of N_max.

    remaining None means no limit. Raises ValueError naming the field.
    """

    previous_instability: float = 0.5
    remaining: int | None = None

    def __post_init__(self) -> None:
        previous = real_number("previous_instability", self.previous_instability)
        object.__setattr__(self, "previous_instability", previous)
        if not 0 <= previous <= 1:
            raise ValueError(f"previous_instability must lie in [0, 1], got {previous}.")
        if self.remaining is not None:
            object.__setattr__(self, "remaining", whole_number("remaining", self.remaining))
            if self.remaining < 1:
                raise ValueError(f"remaining must be at least 1 token, or None, got {self.remaining}: stop instead.")


@dataclass(frozen=True)
class Structure:
    """A partition of a window and the order of its blocks: order[i] is the index of the block decoded as the i-th.

    Raises ValueError unless order is a permutation of the partition's blocks.
    """

    partition: Partition
    order: tuple[int, ...]

    def __post_init__(self) -> None:
        if not isinstance(self.partition, Partition):
            raise ValueError(f"partition must be a Partition, got {self.partition!r}: make one of block ends.")
        order = tuple(whole_number("order", block) for block in self.order)
        if sorted(order) != list(range(self.partition.count)):
            raise ValueError(f"order must name each of the {self.partition.count} blocks once, got {order}.")
        object.__setattr__(self, "order", order)

    @property
    def length(self) -> int:
        """Tokens in the window, L."""
        return self.partition.length


def window_rate(context: Context, prior: PriorConfig) -> float:
    """mu = Lmin + (1 - hbar)(Lmax - Lmin), in tokens (eq. window_length); the budget caps L, not mu."""
    return prior.min_length + (1 - context.previous_instability) * (prior.max_length - prior.min_length)


def length_law(context: Context, prior: PriorConfig) -> ClippedPoisson:
    """The law of L: Poisson(mu) clipped to [Lmin, Lmax], both bounds lowered to the tokens that remain.

    min(clip(X, Lmin, Lmax), remaining) is X clipped to the lowered bounds, so capping keeps the law's form.
    """
    limit = prior.max_length if context.remaining is None else context.remaining
    return ClippedPoisson(window_rate(context, prior), min(prior.min_length, limit), min(prior.max_length, limit))


def concentrations(edge_logit: Tensor, context: Context, prior: PriorConfig) -> Tensor:
    """alpha_g = alpha0 exp(hbar + ell_g - mean ell) (L-1,) of edge logits (L-1,) (eq. crp_alpha); empty for L = 1.

    Raises ValueError for another shape, the mean being that of one window, or where alpha_g is no float above 0.
    """
    logit = torch.as_tensor(edge_logit, dtype=torch.float64)
    if logit.dim() != 1:
        raise ValueError(f"edge_logit must have shape (L-1,), got {tuple(logit.shape)}: give one window at a time.")
    centred = logit - logit.mean() if len(logit) else logit  # the mean of nothing is NaN
    alpha = prior.concentration * torch.exp(context.previous_instability + centred)
    if not bool(((alpha >= torch.finfo(alpha.dtype).tiny) & (alpha < math.inf)).all()):
        raise ValueError(
            f"edge_logit lies up to {float(centred.abs().max()):.0f} nats from its mean, and alpha_g = alpha0 exp(hbar "
            "+ ell_g - mean ell) overflows or vanishes: scale the gap weights down."
        )
    return alpha


def partition_law(edge_logit: Tensor, context: Context, prior: PriorConfig) -> GapCRP:
    """The prior law of a window's cuts (L-1,) at the `concentrations` of covariate edge logits (L-1,), same errors."""
    return GapCRP(concentrations(edge_logit, context, prior))


def gap_covariate(covariate_logit: Tensor, gaps: int) -> Tensor:
    """The ell of alpha_g as float64. Raises ValueError unless it is (gaps,)."""
    covariate = torch.as_tensor(covariate_logit, dtype=torch.float64)
    if covariate.shape != (gaps,):
        raise ValueError(f"covariate_logit must have shape ({gaps},), one a gap, got {tuple(covariate.shape)}.")
    return covariate


def edge_logit_law(cut: Tensor, scale: Tensor | float) -> dist.Normal:
    """The law of edge logits given cuts (...), bool: Normal(s²/2 at a cut, -s²/2 at a stay, s); s a number or (...)."""
    s = torch.as_tensor(scale, dtype=torch.float64)  # where() of plain numbers would be float32
    return dist.Normal(torch.where(cut, s**2 / 2, -(s**2) / 2), s)


def evidence_offset(edge_logit: Tensor, scale: Tensor | float) -> Tensor:
    """log(N(ell; +s²/2, s) + N(ell; -s²/2, s)), nats, the shape of edge_logit; differentiable in both.

    The observation's log density at a gap is log q (cut) or log(1-q) (stay) plus this, the same for both.
    """
    logit = torch.as_tensor(edge_logit, dtype=torch.float64)
    log_density = edge_logit_law(torch.tensor(True), scale).log_prob(logit)
    return torch.logaddexp(log_density, log_density - logit)


def block_instability(partition: Partition, instability: Tensor) -> Tensor:
    """H(B), the mean instability of each block (M,), from h (L,). Raises ValueError if h is of another length."""
    h = torch.as_tensor(instability, dtype=torch.float64)
    if h.shape != (partition.length,):
        raise ValueError(f"instability must have shape ({partition.length},) like the partition, got {tuple(h.shape)}.")
    return torch.stack([h[start:end].mean() for start, end in partition.blocks])


def anchoring(partition: Partition) -> Tensor:
    """C(B) (M,) before any block is decoded: 0.5 for the first, anchored on its left, 0 for the rest (reading R9)."""
    anchored = torch.zeros(partition.count, dtype=torch.float64)
    anchored[0] = 0.5
    return anchored


def priorities(partition: Partition, instability: Tensor, prior: PriorConfig) -> Tensor:
    """rho(B) = -H(B) + gamma C(B), (M,), before any block is decoded (eq. schedule)."""
    return prior.context_weight * anchoring(partition) - block_instability(partition, instability)


def order_law(partition: Partition, instability: Tensor, prior: PriorConfig) -> PlackettLuce | AnchoredOrder:
    """The law of the blocks' order (M,): successive picks in proportion to exp(rho / temperature) (reading R9)."""
    if prior.anchoring == "dynamic":
        mean = block_instability(partition, instability)
        return AnchoredOrder(mean, prior.context_weight, prior.order_temperature)
    return PlackettLuce(priorities(partition, instability, prior) / prior.order_temperature)


def _run_length_law(run_length: Tensor, log_concentration: Tensor, largest: int) -> dist.Categorical:
    """Categorical over the next run length 0 … largest, from the current one (…); a value is the run length itself.

    0 is never reached. It is kept so that a value needs no shift, and an enumerated 0 goes on to 1, without NaN.
    """
    log_cut, log_stay = cut_log_probabilities(run_length, log_concentration)
    values = torch.arange(largest + 1)
    stay = torch.where(values == run_length.unsqueeze(-1) + 1, log_stay.unsqueeze(-1), -torch.inf)
    return dist.Categorical(logits=torch.where(values == 1, log_cut.unsqueeze(-1), stay))


def _window_length(law: ClippedPoisson, given: int | None) -> int:
    def draw() -> Tensor:  # never enumerated: the number of the sites that follow depends on its value
        return pyro.sample("window_length", law, infer=_NOT_ENUMERATED)

    if given is None:
        return int(draw())
    # not obs=, at which Pyro warns when a program that only fixes its length is run forward
    return int(pyro.condition(draw, data={"window_length": torch.tensor(given)})())


def partition_model(
    diagnostics: Diagnostics | None,
    context: Context,
    prior: PriorConfig,
    *,
    length: int | None = None,
    covariate_logit: Tensor | None = None,
) -> tuple[Tensor, ...]:
    """`structure_model` without its last site `order`; returns the run length at each of the L positions.

    The order is a leaf whose law sums to one, so this program is `structure_model` with the order summed out. It is
    what `TraceEnum_ELBO` and `infer_discrete` take: run lengths are marked for parallel enumeration, with one Markov
    step of history. Arguments and errors as in `structure_model`.
    """
    if diagnostics is not None:
        if length not in (None, diagnostics.length):
            raise ValueError(f"length {length} contradicts diagnostics of {diagnostics.length} tokens: leave it out.")
        length = diagnostics.length
    law = length_law(context, prior)
    if length is not None and not law.low <= length <= law.high:
        raise ValueError(
            f"a window of {length} tokens lies outside the prior's [{law.low}, {law.high}]: widen PriorConfig's "
            "min_length and max_length, or Context's remaining."
        )
    length = _window_length(law, length)

    if covariate_logit is None:
        flat = torch.zeros(length - 1, dtype=torch.float64)
        covariate_logit = flat if diagnostics is None else diagnostics.edge_logit
    log_concentration = concentrations(gap_covariate(covariate_logit, length - 1), context, prior).log()

    run_lengths = [torch.tensor(1)]
    for g in pyro.markov(range(length - 1)):
        step = _run_length_law(run_lengths[-1], log_concentration[g], largest=g + 2)
        run_length = pyro.sample(f"run_length_{g}", step, infer={"enumerate": "parallel"})
        run_lengths.append(run_length)
        observed = None if diagnostics is None else diagnostics.edge_logit[g]
        pyro.sample(f"edge_logit_{g}", edge_logit_law(run_length == 1, prior.evidence_scale), obs=observed)
    return tuple(run_lengths)


def structure_model(
    diagnostics: Diagnostics | None,
    context: Context,
    prior: PriorConfig,
    *,
    length: int | None = None,
    instability: Tensor | None = None,
    covariate_logit: Tensor | None = None,
) -> Structure:
    """The generative program of a window's structure (graph above); returns the structure that it drew.

    Diagnostics of L tokens fix the length (scored under its prior) and observe the edge logits. With None, the length
    is drawn, or fixed by `length`, and edge logits are generated (prior predictive). covariate_logit (L-1,), the ell of
    alpha_g, is the diagnostics' unless given, and flat without diagnostics; likewise instability (L,), 0.5 throughout
    without diagnostics. To enumerate, use `partition_model`: the order depends on the whole partition and is a leaf.
    Raises ValueError if L is outside the prior's bounds or a covariate has another length.
    """
    runs = partition_model(diagnostics, context, prior, length=length, covariate_logit=covariate_logit)
    if any(run.dim() for run in runs):
        raise ValueError("order depends on the whole partition and cannot be enumerated: enumerate partition_model.")
    partition = Partition.from_run_lengths(int(run) for run in runs)
    if instability is None:
        level = torch.full((partition.length,), 0.5, dtype=torch.float64)
        instability = level if diagnostics is None else diagnostics.instability
    order = pyro.sample("order", order_law(partition, instability, prior), infer=_NOT_ENUMERATED)
    return Structure(partition, tuple(order.tolist()))


def _site_value(trace: Trace, name: str) -> Tensor:
    return cast(Tensor, trace.nodes[name]["value"])


def partition_from_trace(trace: Trace) -> Partition:
    """The partition that a trace of `structure_model` or `partition_model` holds."""
    gaps = int(_site_value(trace, "window_length")) - 1
    return Partition.from_run_lengths((1, *(int(_site_value(trace, f"run_length_{g}")) for g in range(gaps))))


def structure_from_trace(trace: Trace) -> Structure:
    """The structure that a trace of `structure_model` holds."""
    return Structure(partition_from_trace(trace), tuple(_site_value(trace, "order").tolist()))


def structure_sites(structure: Structure) -> dict[str, Tensor]:
    """The values of the sites `run_length_g` and `order` at this structure: what `pyro.condition` takes to score it."""
    runs = structure.partition.run_lengths
    sites = {f"run_length_{g}": torch.tensor(run) for g, run in enumerate(runs[1:])}
    return {**sites, "order": torch.tensor(structure.order)}
