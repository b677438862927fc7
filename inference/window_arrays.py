"""What is known and inferred of one window as named arrays, each with the names of its dimensions.

Knows the names of the dimensions, not who reads them (see `arviz_tree`). Windows can stand behind one another along
`position` (L), `gap` (L-1) and `window` (1); tables over blocks or lengths may be filled up with zeros.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import logsigmoid

from dystruct.model import Structure, edge_logit_law, evidence_offset, length_law, window_rate

from .posterior import StructurePosterior
from .records import WindowRecord
from .without_evidence import without_evidence

Variables = dict[str, tuple[tuple[str, ...], NDArray[Any]]]

GAP, POSITION, WINDOW = ("gap",), ("position",), ("window",)
DRAW = ("chain", "draw")


def window_arrays(
    record: WindowRecord, start: int, shape: tuple[int, int], generator: torch.Generator
) -> dict[str, Variables]:
    """The variables of a window whose first token is `start`, by group; `shape` chains and draws from the generator."""
    there = record.posterior
    before = without_evidence(there)
    logit, scale = there.diagnostics.edge_logit, there.prior.evidence_scale
    groups: dict[str, Variables] = {
        "windows": _window(record, start),
        "constant_data": _given(there),
        "observed_data": {"edge_logit": (GAP, logit.numpy())},
        "exact": _exact(there, before),
    }
    for name, source in (("posterior", there), ("prior", before)):
        structures = source.draw(shape[0] * shape[1], generator, generator)
        cuts = torch.tensor([structure.partition.cuts for structure in structures], dtype=torch.bool)
        cuts = cuts.reshape(*shape, there.length - 1)
        turns = np.array([_turns(structure) for structure in structures]).reshape(*shape, there.length)
        groups[name] = {
            "cuts": ((*DRAW, *GAP), _int8(cuts)),
            "turn": ((*DRAW, *POSITION), turns),
            "block_count": ((*DRAW, *WINDOW), cuts.sum(-1, keepdim=True).numpy() + 1),
        }
        noise = torch.randn(cuts.shape, dtype=torch.float64, generator=generator)
        replicated = edge_logit_law(cuts, scale).mean + scale * noise
        groups[f"{name}_predictive"] = {"edge_logit": ((*DRAW, *GAP), replicated.numpy())}
        if source is there:
            evidence = logsigmoid(torch.where(cuts, logit, -logit)) + evidence_offset(logit, scale)
            groups["log_likelihood"] = {"edge_logit": ((*DRAW, *GAP), evidence.numpy())}
            groups["sample_stats"] = {
                "log_prob": ((*DRAW, *WINDOW), there.chain.log_prob(cuts[..., None, :]).numpy()),
                "lp": ((*DRAW, *WINDOW), there.chain.log_joint(cuts[..., None, :]).numpy()),
            }
    return groups


def _window(record: WindowRecord, start: int) -> Variables:
    there = record.posterior
    context = there.context
    if record.length is not None:  # what it came from, which knows how much was left of the response
        before = _by_length(record.length.lengths, record.length.prior)
    else:
        law = length_law(context, there.prior)
        lengths = law.enumerate_support()
        before = _by_length(lengths, law.log_prob(lengths).exp())
    variables: Variables = {
        "start": (WINDOW, np.array([start])),
        "length": (WINDOW, np.array([there.length])),
        "previous_instability": (WINDOW, np.array([context.previous_instability])),
        "remaining": (WINDOW, np.array([np.inf if context.remaining is None else float(context.remaining)])),
        "rate": (WINDOW, np.array([window_rate(context, there.prior)])),
        "length_prior": before,
    }
    if record.length is not None:
        variables["length_posterior"] = _by_length(record.length.lengths, record.length.probability)
    if record.decoded is not None:
        variables["decoded_cuts"] = (GAP, _int8(record.decoded.partition.cuts))
        variables["decoded_turn"] = (POSITION, _turns(record.decoded))
    return variables


def _by_length(lengths: Tensor, probability: Tensor) -> tuple[tuple[str, ...], NDArray[Any]]:
    """Probabilities (n,) of lengths (n,) as a row over all lengths from 1."""
    row = np.zeros((1, int(lengths.max())))
    row[0, lengths.numpy() - 1] = probability.numpy()
    return (*WINDOW, "window_length"), row


def _given(there: StructurePosterior) -> Variables:
    diagnostics = there.diagnostics
    covariate = diagnostics.edge_logit if there.covariate_logit is None else there.covariate_logit
    condition = np.full(there.length - 1, -1)
    for gap, cut in there.conditions.items():
        condition[gap] = cut
    variables: Variables = {
        "instability": (POSITION, diagnostics.instability.numpy()),
        "covariate_logit": (GAP, covariate.numpy()),
        "concentration": (GAP, there.chain.concentration[0].numpy()),
        "condition": (GAP, _int8(condition)),
    }
    if diagnostics.position_features is not None:
        variables["position_features"] = ((*POSITION, "position_feature"), diagnostics.position_features.numpy())
    if diagnostics.gap_features is not None:
        variables["gap_features"] = ((*GAP, "gap_feature"), diagnostics.gap_features.numpy())
    return variables


def _exact(there: StructurePosterior, before: StructurePosterior) -> Variables:
    best = there.map()
    figures = {
        "log_evidence": there.log_evidence,
        "entropy": there.entropy,
        "map_log_prob": there.log_prob(best.partition),
    }
    return {
        **{name: (WINDOW, np.array([figure])) for name, figure in figures.items()},
        "cut_marginals": (GAP, there.cut_marginals.numpy()),
        "log_predictive": (GAP, _log_predictive(there).numpy()),
        "prior_cut_marginals": (GAP, before.cut_marginals.numpy()),
        "map_cuts": (GAP, _int8(best.partition.cuts)),
        "consensus_cuts": (GAP, _int8(there.consensus().partition.cuts)),
        "map_turn": (POSITION, _turns(best)),
        "expected_block_length": (POSITION, there.expected_block_length.numpy()),
        "block_count_probability": ((*WINDOW, "block"), there.block_count[None].numpy()),
        "prior_block_count_probability": ((*WINDOW, "block"), before.block_count[None].numpy()),
        "block_marginals": ((*WINDOW, "block_start", "block_end"), there.block_marginals[None].numpy()),
    }


def _log_predictive(there: StructurePosterior) -> Tensor:
    """Log density (L-1,) of each edge logit given all others, nats: exact leave-one-out, alpha_g held fixed.

    Given run length m before the gap, the log odds of a cut without the gap's own evidence are lower by ell, and its
    density f(m) is q at a cut and 1-q at a stay times one factor. The density given all others is then the harmonic
    mean of f under the posterior of m. Going by the odds of a cut itself would lose all digits as it becomes certain.
    """
    logit = there.diagnostics.edge_logit
    odds = there.chain.cut_log_odds[:, 0] - logit[:, None]
    cut, stay = (logsigmoid(sign * odds) + logsigmoid(sign * logit)[:, None] for sign in (1, -1))
    run_lengths = there.chain.run_lengths[:-1, 0]
    harmonic = -(run_lengths.log() - torch.logaddexp(cut, stay)).logsumexp(-1)
    return harmonic + evidence_offset(logit, there.prior.evidence_scale)


def _turns(structure: Structure) -> NDArray[np.int64]:
    """At each position (L,), when its block is decoded: 1 for the first of the window."""
    turns = 1 + np.argsort(structure.order)
    return np.repeat(turns, [end - start for start, end in structure.partition.blocks])


def _int8(flags: Any) -> NDArray[np.int8]:
    return np.asarray(flags, dtype=np.int8)
