"""The same posterior from Pyro's own exact inference on the same program: specification and oracle of the recursion.

`partition_model` marks its run lengths for parallel enumeration with one Markov step of history, so TraceEnum_ELBO with
an empty guide gives the exact log evidence, its marginals the exact cut marginals, and infer_discrete exact draws
(temperature 1) and the exact maximum (temperature 0). Slow (tens of milliseconds a window of 48): not for decoding.

Knows Pyro and the program; nothing of the recursion. Draws use Pyro's global random state, as the program does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from pyro import poutine
from pyro.infer import TraceEnum_ELBO, infer_discrete
from torch import Tensor

from dystruct.model import Context, Diagnostics, Partition, PriorConfig, partition_from_trace, partition_model


def _program(
    diagnostics: Diagnostics, context: Context, prior: PriorConfig, covariate_logit: Tensor | None
) -> Callable[[], Any]:
    return lambda: partition_model(diagnostics, context, prior, covariate_logit=covariate_logit)


def _empty_guide() -> None:
    """Every latent site is enumerated in the model, none is left to a guide."""


def _elbo() -> TraceEnum_ELBO:
    # a window of one token has nothing to enumerate, of which Pyro would warn
    return TraceEnum_ELBO(max_plate_nesting=0, strict_enumeration_warning=False)


def enumerated_log_marginal(
    diagnostics: Diagnostics, context: Context, prior: PriorConfig, *, covariate_logit: Tensor | None = None
) -> float:
    """log p(L, edge logits) of the program, nats: StructurePosterior.log_marginal by enumeration."""
    program = _program(diagnostics, context, prior, covariate_logit)
    return -float(_elbo().loss(program, _empty_guide))


def enumerated_cut_marginals(
    diagnostics: Diagnostics, context: Context, prior: PriorConfig, *, covariate_logit: Tensor | None = None
) -> Tensor:
    """Posterior probability of a cut at each gap (L-1,): the marginal probability that a run length returns to 1."""
    program = _program(diagnostics, context, prior, covariate_logit)
    marginals = _elbo().compute_marginals(program, _empty_guide)
    gaps = range(diagnostics.length - 1)
    return torch.tensor([float(marginals[f"run_length_{gap}"].probs[..., 1]) for gap in gaps], dtype=torch.float64)


def _decode(program: Callable[[], Any], temperature: int) -> Partition:
    decoded = infer_discrete(program, first_available_dim=-1, temperature=temperature, strict_enumeration_warning=False)
    return partition_from_trace(poutine.trace(decoded).get_trace())


def enumerated_map(
    diagnostics: Diagnostics, context: Context, prior: PriorConfig, *, covariate_logit: Tensor | None = None
) -> Partition:
    """A most probable partition, by infer_discrete at temperature 0."""
    return _decode(_program(diagnostics, context, prior, covariate_logit), temperature=0)


def enumerated_samples(
    n: int, diagnostics: Diagnostics, context: Context, prior: PriorConfig, *, covariate_logit: Tensor | None = None
) -> tuple[Partition, ...]:
    """n independent partitions from the posterior, by infer_discrete at temperature 1, one enumeration each."""
    program = _program(diagnostics, context, prior, covariate_logit)
    return tuple(_decode(program, temperature=1) for _ in range(n))
