"""The Pyro program: forward it generates, conditioned it scores, enumerated it is exact.

The oracles are plain Python over all partitions. Statistical tests are seeded; each would fail by chance with
probability 1e-6 on a fresh seed.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Sequence

import pyro
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pyro import poutine
from pyro.infer import TraceEnum_ELBO, config_enumerate, infer_discrete
from scipy import stats

from dystruct.model import (
    Context,
    Diagnostics,
    Partition,
    PriorConfig,
    Structure,
    partition_from_trace,
    partition_model,
    structure_from_trace,
    structure_model,
    structure_sites,
)

FALSE_ALARM = 1e-6


def window(length: int, seed: int, shift: float = 0.0) -> Diagnostics:
    generator = torch.Generator().manual_seed(seed)
    h = torch.rand(length, dtype=torch.float64, generator=generator)
    return Diagnostics(h, shift + 1.5 * torch.randn(length - 1, dtype=torch.float64, generator=generator))


def log_length(length: int, context: Context, prior: PriorConfig) -> float:
    mu = prior.min_length + (1 - context.previous_instability) * (prior.max_length - prior.min_length)
    limit = prior.max_length if context.remaining is None else min(context.remaining, prior.max_length)
    drawn = [min(max(n, prior.min_length), limit) for n in range(400)]
    mass = [math.exp(n * math.log(mu) - mu - math.lgamma(n + 1)) for n in range(400)]
    return math.log(math.fsum(p for n, p in zip(drawn, mass, strict=True) if n == length))


def log_partition(partition: Partition, covariate: Sequence[float], context: Context, prior: PriorConfig) -> float:
    total, m = 0.0, 1
    for g, cut in enumerate(partition.cuts):
        mean = sum(covariate) / len(covariate)
        alpha = prior.concentration * math.exp(context.previous_instability + covariate[g] - mean)
        total += math.log(alpha / (m + alpha) if cut else m / (m + alpha))
        m = 1 if cut else m + 1
    return total


def log_evidence(partition: Partition, ell: Sequence[float], s: float) -> float:
    return sum(
        -(((x - (s * s / 2 if cut else -s * s / 2)) / s) ** 2) / 2 - math.log(s * math.sqrt(2 * math.pi))
        for x, cut in zip(ell, partition.cuts, strict=True)
    )


def log_order(structure: Structure, h: Sequence[float], prior: PriorConfig) -> float:
    blocks = structure.partition.blocks
    mean = [sum(h[a:b]) / (b - a) for a, b in blocks]
    total, finished = 0.0, set()  # type: tuple[float, set[int]]
    for pick in structure.order:
        seen = finished if prior.anchoring == "dynamic" else set()
        rho = {
            k: prior.context_weight * ((k == 0 or k - 1 in seen) + (k + 1 in seen)) / 2 - mean[k]
            for k in range(len(blocks))
            if k not in finished
        }
        total += rho[pick] / prior.order_temperature
        total -= math.log(sum(math.exp(r / prior.order_temperature) for r in rho.values()))
        finished.add(pick)
    return total


def partitions(length: int) -> list[Partition]:
    return [Partition.from_cuts(cuts) for cuts in itertools.product((0, 1), repeat=length - 1)]


def log_joint(partition: Partition, d: Diagnostics, context: Context, prior: PriorConfig) -> float:
    """log p(L) + log p(partition) + log p(ell | partition): the order is left out, as it sums to one."""
    ell = d.edge_logit.tolist()
    score = log_partition(partition, ell, context, prior) + log_evidence(partition, ell, prior.evidence_scale)
    return log_length(partition.length, context, prior) + score


def nothing(*arguments: object, **keywords: object) -> None:
    """A guide without sites: every latent site of the model is enumerated."""


def log_probability(trace: poutine.Trace) -> torch.Tensor:
    return torch.as_tensor(trace.log_prob_sum())


def enumerated_evidence(d: Diagnostics, context: Context, prior: PriorConfig) -> float:
    # strict_enumeration_warning: a window of one token has nothing to enumerate
    enumeration = TraceEnum_ELBO(max_plate_nesting=0, strict_enumeration_warning=False)
    return -float(enumeration.loss(partition_model, nothing, d, context, prior))


@st.composite
def scored_structures(draw: st.DrawFn) -> tuple[Structure, Diagnostics, Context, PriorConfig]:
    cuts = draw(st.lists(st.booleans(), max_size=14))
    length = len(cuts) + 1
    partition = Partition.from_cuts(cuts)
    order = tuple(draw(st.permutations(range(partition.count))))
    prior = PriorConfig(
        min_length=draw(st.integers(1, length)),
        max_length=draw(st.integers(length, 30)),
        concentration=draw(st.floats(0.05, 20)),
        context_weight=draw(st.floats(0, 4)),
        order_temperature=draw(st.floats(0.2, 3)),
        evidence_scale=draw(st.floats(0.3, 3)),
        anchoring=draw(st.sampled_from(("static", "dynamic"))),
    )
    context = Context(draw(st.floats(0, 1)), draw(st.one_of(st.none(), st.integers(length, 60))))
    ell = draw(st.lists(st.floats(-6, 6), min_size=length - 1, max_size=length - 1))
    h = draw(st.lists(st.floats(0, 1), min_size=length, max_size=length))
    return (
        Structure(partition, order),
        Diagnostics(torch.tensor(h).double(), torch.tensor(ell).double()),
        context,
        prior,
    )


@settings(max_examples=60)
@given(scored_structures())
def test_the_trace_scores_a_structure_as_prior_times_evidence(
    case: tuple[Structure, Diagnostics, Context, PriorConfig],
) -> None:
    structure, d, context, prior = case
    conditioned = pyro.condition(structure_model, data=structure_sites(structure))
    trace = poutine.trace(conditioned).get_trace(d, context, prior)
    expected = log_joint(structure.partition, d, context, prior) + log_order(structure, d.instability.tolist(), prior)
    found = log_probability(trace)
    assert found.dtype == torch.float64
    assert abs(found.item() - expected) <= 1e-10
    assert structure_from_trace(trace) == trace.nodes["_RETURN"]["value"] == structure


def test_the_covariate_and_the_observation_are_separate() -> None:
    d, context, prior = window(8, seed=5), Context(0.3), PriorConfig()
    covariate = [0.5, -1.0, 0.0, 2.0, 1.0, 0.0, -0.5]
    partition = Partition((3, 4, 8))
    data = structure_sites(Structure(partition, (0, 1, 2)))
    trace = poutine.trace(pyro.condition(partition_model, data=data)).get_trace(
        d, context, prior, covariate_logit=torch.tensor(covariate, dtype=torch.float64)
    )
    score = log_partition(partition, covariate, context, prior) + log_evidence(partition, d.edge_logit.tolist(), 1.0)
    assert log_probability(trace).item() == pytest.approx(log_length(8, context, prior) + score, abs=1e-10)


@pytest.mark.parametrize("length", range(1, 9))
def test_the_enumerated_evidence_is_the_sum_over_all_partitions(length: int) -> None:
    d, context, prior = window(length, seed=length), Context(0.7), PriorConfig(min_length=1, max_length=12)
    scores = torch.tensor([log_joint(p, d, context, prior) for p in partitions(length)], dtype=torch.float64)
    evidence = enumerated_evidence(d, context, prior)
    assert evidence == pytest.approx(scores.logsumexp(0).item(), abs=1e-10)


@pytest.mark.parametrize("shift", [-1.0, 1.0])
def test_the_inferred_mode_is_the_best_partition_by_score(shift: float) -> None:
    d, context, prior = window(8, seed=3, shift=shift), Context(0.4), PriorConfig()
    best = max(log_joint(p, d, context, prior) for p in partitions(8))
    mode = infer_discrete(config_enumerate(partition_model), first_available_dim=-1, temperature=0)
    partition = Partition.from_run_lengths(int(run) for run in mode(d, context, prior))
    assert log_joint(partition, d, context, prior) == pytest.approx(best, abs=1e-10)


def test_the_scale_of_the_observation_does_not_move_the_posterior() -> None:
    d, context = window(6, seed=9), Context(0.5)
    posteriors = []
    for s in (0.2, 1.0, 4.0):
        prior = PriorConfig(min_length=1, evidence_scale=s)
        evidence = enumerated_evidence(d, context, prior)
        posteriors.append([log_joint(p, d, context, prior) - evidence for p in partitions(6)])
    assert posteriors[0] == pytest.approx(posteriors[1], abs=1e-9)
    assert posteriors[2] == pytest.approx(posteriors[1], abs=1e-9)


def test_a_window_of_eighty_tokens_can_be_enumerated() -> None:
    d, context, prior = window(80, seed=1), Context(0.5), PriorConfig(max_length=90)
    evidence = enumerated_evidence(d, context, prior)
    assert math.isfinite(evidence)
    assert evidence >= log_joint(Partition.whole(80), d, context, prior)


# --- running it


def test_forward_runs_have_the_prior_of_partitions() -> None:
    context, prior, covariate = Context(0.2), PriorConfig(min_length=1), [0.5, -1.0, 0.5]
    pyro.set_rng_seed(0)
    logit = torch.tensor(covariate, dtype=torch.float64)
    counts = Counter(
        structure_model(None, context, prior, length=4, covariate_logit=logit).partition for _ in range(600)
    )
    expected = {p: 600 * math.exp(log_partition(p, covariate, context, prior)) for p in partitions(4)}
    assert sum(expected.values()) == pytest.approx(600)
    assert min(expected.values()) >= 5
    statistic = sum((counts[p] - e) ** 2 / e for p, e in expected.items())
    assert statistic <= stats.chi2.isf(FALSE_ALARM, len(expected) - 1)


def test_generated_edge_logits_follow_the_cuts() -> None:
    prior, s = PriorConfig(evidence_scale=1.5), 1.5
    pyro.set_rng_seed(1)
    standardised = []
    for _ in range(12):
        trace = poutine.trace(structure_model).get_trace(None, Context(0.5), prior, length=40)
        for g, cut in enumerate(partition_from_trace(trace).cuts):
            logit = torch.as_tensor(trace.nodes[f"edge_logit_{g}"]["value"]).item()
            standardised.append((logit - (s if cut else -s) * s / 2) / s)
    assert stats.kstest(standardised, "norm").pvalue > FALSE_ALARM


def test_the_length_is_drawn_within_bounds_and_budget() -> None:
    pyro.set_rng_seed(2)
    prior = PriorConfig(min_length=3, max_length=6)
    assert {structure_model(None, Context(0.5), prior).length for _ in range(80)} == {3, 4, 5, 6}
    assert {structure_model(None, Context(0.5, remaining=2), prior).length for _ in range(5)} == {2}


def test_without_diagnostics_instability_is_level_unless_given() -> None:
    pyro.set_rng_seed(3)
    prior = PriorConfig(min_length=2, context_weight=0.0, order_temperature=1e-3)
    data = {"run_length_0": torch.tensor(1), "edge_logit_0": torch.tensor(0.0)}
    program = pyro.condition(structure_model, data=data)
    orders = {program(None, Context(), prior, length=2).order for _ in range(40)}
    assert orders == {(0, 1), (1, 0)}
    told = torch.tensor([0.9, 0.1])
    assert {program(None, Context(), prior, length=2, instability=told).order for _ in range(5)} == {(1, 0)}


def test_a_window_of_one_token_is_one_block() -> None:
    assert structure_model(None, Context(0.5, remaining=1), PriorConfig()) == Structure(Partition.whole(1), (0,))
    d = Diagnostics(torch.tensor([0.5]), torch.zeros(0))
    with pyro.poutine.trace() as traced:
        structure_model(d, Context(0.5, remaining=1), PriorConfig())
    assert log_probability(traced.trace).item() == 0.0


# --- refusals


def test_the_order_is_not_enumerated_and_says_so() -> None:
    with pytest.raises(ValueError, match="enumerate partition_model"):
        infer_discrete(config_enumerate(structure_model), first_available_dim=-1)(
            window(8, 0), Context(), PriorConfig()
        )


def test_contradicting_arguments_are_refused() -> None:
    d = window(10, seed=0)
    with pytest.raises(ValueError, match="length 9 contradicts diagnostics of 10 tokens"):
        structure_model(d, Context(), PriorConfig(), length=9)
    with pytest.raises(ValueError, match=r"a window of 7 tokens lies outside the prior's \[8, 48\]"):
        structure_model(None, Context(), PriorConfig(), length=7)
    with pytest.raises(ValueError, match=r"outside the prior's \[4, 4\]"):
        structure_model(d, Context(remaining=4), PriorConfig())
    with pytest.raises(ValueError, match=r"covariate_logit must have shape \(9,\), one a gap, got \(10,\)"):
        structure_model(d, Context(), PriorConfig(), covariate_logit=torch.zeros(10))
