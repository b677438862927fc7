"""What a notebook asks of a posterior, against enumeration and against the program's own traces."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import islice, pairwise
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pyro
import pytest
import torch
from pyro import poutine

from dystruct.inference import StructurePosterior, posterior
from dystruct.model import (
    Context,
    Diagnostics,
    Partition,
    PriorConfig,
    Structure,
    concentrations,
    order_law,
    structure_model,
    structure_sites,
)
from oracles import Enumerated, best_pair, order_log_prob

SHORT = PriorConfig(min_length=1)


def diagnostics(length: int, seed: int = 0, shift: float = -0.5) -> Diagnostics:
    generator = torch.Generator().manual_seed(1000 * seed + length)
    instability = torch.rand(length, dtype=torch.float64, generator=generator)
    return Diagnostics(instability, shift + torch.randn(length - 1, dtype=torch.float64, generator=generator))


def enumerated(window: Diagnostics, context: Context, prior: PriorConfig) -> Enumerated:
    ell = window.edge_logit.tolist()
    mean = sum(ell) / len(ell) if ell else 0.0
    alpha = [prior.concentration * math.exp(context.previous_instability + value - mean) for value in ell]
    return Enumerated(ell, alpha)


def test_a_teacher_needs_only_two_lists() -> None:
    there = posterior(
        Diagnostics(instability=[0.2, 0.8, 0.4], edge_logit=[1.0, -1.0]),
        Context(previous_instability=0.5),
        PriorConfig(),
    )
    assert there.length == 3
    assert there.cut_marginals.shape == (2,)
    assert there.block_count.shape == (3,)
    assert there.map().partition.ends == (1, 3)
    assert there.map().partition.cuts == (True, False)


@pytest.mark.parametrize("length", [1, 2, 5, 8])
def test_answers_against_enumeration(length: int) -> None:
    window, context = diagnostics(length), Context(previous_instability=0.3)
    there, oracle = posterior(window, context, SHORT), enumerated(window, context, SHORT)
    assert there.log_evidence == pytest.approx(oracle.log_evidence, abs=1e-12)
    assert there.entropy == pytest.approx(oracle.entropy(), abs=1e-12)
    for actual, wanted in [
        (there.cut_marginals, oracle.cut_marginals()),
        (there.block_marginals, oracle.block_marginals()),
        (there.block_count, oracle.block_count()),
        (there.expected_block_length, oracle.expected_block_length()),
    ]:
        torch.testing.assert_close(actual, torch.tensor(wanted, dtype=torch.float64), atol=1e-12, rtol=0)
    for cuts, log_prob in oracle.log_prob.items():
        assert there.log_prob(Partition.from_cuts(cuts)) == pytest.approx(log_prob, abs=1e-12)
    assert there.log_prob(there.map().partition) == pytest.approx(max(oracle.log_prob.values()), abs=1e-12)
    for loss in ("hamming", "vi"):
        found = there.consensus(loss).partition.cuts
        least = min(oracle.expected_loss(cuts, loss) for cuts in oracle.cuts)
        assert oracle.expected_loss(found, loss) == pytest.approx(least, abs=1e-12)


@pytest.mark.parametrize("anchoring", ["static", "dynamic"])
@pytest.mark.parametrize("length", [1, 2, 9, 30])
def test_log_joint_is_the_traces_log_probability(length: int, anchoring: str) -> None:
    prior = replace(SHORT, anchoring=anchoring, evidence_scale=0.7, order_temperature=0.5)
    window, context = diagnostics(length), Context(previous_instability=0.8)
    there = posterior(window, context, prior)
    for structure in there.sample(5, seed=1):
        with poutine.trace() as tracer, pyro.condition(data=structure_sites(structure)):
            structure_model(window, context, prior)
        assert there.log_joint(structure) == pytest.approx(float(tracer.trace.log_prob_sum()), abs=1e-10)


def test_the_evidence_scale_changes_nothing_but_the_marginal() -> None:
    window = diagnostics(12)
    one, other = (posterior(window, Context(), PriorConfig(evidence_scale=s)) for s in (1.0, 3.0))
    torch.testing.assert_close(one.block_marginals, other.block_marginals)
    assert one.log_evidence == other.log_evidence
    assert one.log_marginal != other.log_marginal


def test_log_marginal_outside_the_priors_lengths_is_minus_infinity() -> None:
    assert posterior(diagnostics(4), Context(), PriorConfig()).log_marginal == -math.inf


def test_a_covariate_stands_in_for_ell_in_alpha_only() -> None:
    window = diagnostics(6)
    flat = torch.zeros(5)
    there = posterior(window, Context(0.2), SHORT, covariate_logit=flat)
    alpha = concentrations(flat, Context(0.2), SHORT).tolist()
    oracle = Enumerated(window.edge_logit.tolist(), alpha)
    assert there.log_evidence == pytest.approx(oracle.log_evidence, abs=1e-12)
    with pytest.raises(ValueError, match="covariate_logit must have shape"):
        posterior(window, Context(), SHORT, covariate_logit=torch.zeros(4))


# --- orders -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("anchoring", ["static", "dynamic"])
def test_log_prob_of_a_structure_adds_its_order(anchoring: str) -> None:
    prior = replace(SHORT, anchoring=anchoring, order_temperature=0.6)
    window = diagnostics(6, shift=1.0)
    there = posterior(window, Context(), prior)
    for structure in there.sample(20, seed=0):
        cuts = structure.partition.cuts
        wanted = order_log_prob(structure.order, cuts, window.instability.tolist(), 2.0, 0.6, anchoring == "dynamic")
        assert there.log_prob(structure) - there.log_prob(structure.partition) == pytest.approx(wanted, abs=1e-12)


@pytest.mark.parametrize("temperature", [0.2, 1.0, 5.0])
@pytest.mark.parametrize("shift", [-1.0, 0.5, 2.0])
def test_joint_map_is_the_best_of_all_pairs(temperature: float, shift: float) -> None:
    prior = PriorConfig(min_length=1, order_temperature=temperature)
    for length in (1, 2, 6):
        window = diagnostics(length, shift=shift)
        there = posterior(window, Context(), prior)
        wanted = best_pair(enumerated(window, Context(), prior), window.instability.tolist(), 2.0, temperature, False)
        found = there.joint_maximum()
        assert found.gap == 0.0
        assert found.log_prob == pytest.approx(wanted, abs=1e-10)
        assert there.log_prob(there.joint_map()) == pytest.approx(wanted, abs=1e-10)


@pytest.mark.parametrize("shift", [-1.0, 0.5, 2.0])
def test_joint_map_with_anchoring_evaluated_again_keeps_its_bound(shift: float) -> None:
    prior = PriorConfig(min_length=1, anchoring="dynamic")
    window = diagnostics(6, shift=shift)
    wanted = best_pair(enumerated(window, Context(), prior), window.instability.tolist(), 2.0, 1.0, True)
    found = posterior(window, Context(), prior).joint_maximum()
    assert found.log_prob <= wanted + 1e-10
    assert wanted <= found.log_prob + found.gap + 1e-10


def test_joint_map_stopped_early_reports_a_gap_that_holds() -> None:
    window = diagnostics(8, shift=1.5)
    there = posterior(window, Context(), SHORT)
    best = there.joint_maximum(limit=10_000)
    assert best.gap == 0.0
    assert best.examined > 1
    early = there.joint_maximum(limit=1)
    assert early.examined == 1
    assert early.gap > 0.0
    assert best.log_prob <= early.log_prob + early.gap + 1e-10


def test_joint_map_differs_from_the_best_order_of_the_best_partition() -> None:
    window = diagnostics(10, shift=-0.5)
    there = posterior(window, Context(), SHORT)
    assert there.joint_map().partition.count < there.map().partition.count
    assert there.log_prob(there.joint_map()) > there.log_prob(there.map())


# --- draws ------------------------------------------------------------------------------------------------------------


def test_samples_repeat_and_leave_global_random_state_alone() -> None:
    there = posterior(diagnostics(20), Context(), PriorConfig())
    before = torch.get_rng_state()
    assert there.sample(30, seed=5) == there.sample(30, seed=5)
    assert there.sample(30, seed=5) != there.sample(30, seed=6)
    assert torch.equal(before, torch.get_rng_state())
    assert torch.equal(there.sample_cuts(7, seed=5), there.sample_cuts(7, seed=5))


def test_partitions_and_orders_draw_from_their_own_streams() -> None:
    there = posterior(diagnostics(20, shift=0.5), Context(), PriorConfig())

    def draw(partition: int, order: int) -> tuple[Structure, ...]:
        return there.draw(20, torch.Generator().manual_seed(partition), torch.Generator().manual_seed(order))

    one, other = draw(0, 1), draw(0, 2)
    assert [s.partition for s in one] == [s.partition for s in other]
    assert one != other


def test_orders_of_samples_follow_the_order_law() -> None:
    """Among draws of one partition, the share whose first block is the first: 6 standard errors, false alarm 1e-8."""
    window = diagnostics(3, shift=4.0)
    there = posterior(window, Context(), SHORT)
    pieces = [s for s in there.sample(4000, seed=0) if s.partition.count == 3]
    law = order_law(pieces[0].partition, window.instability, SHORT)
    orders = law.enumerate_support()
    exact = float(law.log_prob(orders).exp()[orders[:, 0] == 0].sum())
    share = sum(s.order[0] == 0 for s in pieces) / len(pieces)
    assert abs(share - exact) < 6 * math.sqrt(exact * (1 - exact) / len(pieces))


# --- partitions in order ----------------------------------------------------------------------------------------------


def test_k_best_is_ordered_distinct_and_stable_in_k() -> None:
    there = posterior(diagnostics(24), Context(), PriorConfig())
    best = there.k_best(50)
    assert best[:7] == there.k_best(7)
    assert best[0].partition == there.map().partition
    assert len({ranked.partition for ranked in best}) == 50
    assert all(a.log_prob >= b.log_prob - 1e-10 for a, b in pairwise(best))
    for ranked in best:
        assert ranked.log_prob == pytest.approx(there.log_prob(ranked.partition), abs=1e-9)
    assert len(posterior(diagnostics(3), Context(), SHORT).k_best(100)) == 4
    with pytest.raises(ValueError, match="k must be at least 1"):
        there.k_best(0)


@pytest.mark.parametrize("mass", [0.05, 0.5, 0.95, 1 - 1e-9])
def test_credible_partitions_are_the_smallest_set(mass: float) -> None:
    window = diagnostics(8)
    there, oracle = posterior(window, Context(), SHORT), enumerated(window, Context(), SHORT)
    chosen = there.credible_partitions(mass)
    smallest, reached = 0, 0.0
    for probability in sorted(oracle.prob.values(), reverse=True):
        if reached >= mass:
            break
        reached, smallest = reached + probability, smallest + 1
    assert len(chosen) == smallest
    assert sum(ranked.probability for ranked in chosen) >= mass - 1e-12


def test_credible_partitions_that_are_too_many_are_an_error() -> None:
    there = posterior(diagnostics(40), Context(), PriorConfig())
    with pytest.raises(ValueError, match="5 partitions reach only"):
        there.credible_partitions(0.9, limit=5)
    for mass in (0.0, 1.0):
        with pytest.raises(ValueError, match="mass must lie between"):
            there.credible_partitions(mass)


# --- conditions -------------------------------------------------------------------------------------------------------


def test_what_if_there_were_a_boundary_here() -> None:
    window = diagnostics(7)
    there, oracle = posterior(window, Context(), SHORT), enumerated(window, Context(), SHORT)
    given = there.condition({2: True}).condition({4: False})
    kept = {cuts: p for cuts, p in oracle.prob.items() if cuts[2] and not cuts[4]}
    assert given.log_evidence - there.log_evidence == pytest.approx(math.log(sum(kept.values())), abs=1e-12)
    assert given.map().partition.cuts == max(kept, key=lambda cuts: kept[cuts])
    assert {ranked.partition.cuts for ranked in given.ranked()} == set(kept)
    structure = given.map()
    assert given.log_joint(structure) == pytest.approx(there.log_joint(structure), abs=1e-10)
    assert all(s.partition.cuts[2] and not s.partition.cuts[4] for s in given.sample(50, seed=0))
    joint = given.joint_map().partition.cuts
    assert joint[2] and not joint[4]
    with pytest.raises(ValueError, match="already conditioned the other way"):
        given.condition({2: False})
    with pytest.raises(ValueError, match="gaps 0 to 5"):
        there.condition({6: True})
    with pytest.raises(ValueError, match="a window of one token has no gaps"):
        posterior(diagnostics(1), Context(), SHORT).condition({0: True})


@pytest.mark.parametrize("kind", [int, np.int64, torch.tensor])
@pytest.mark.parametrize("flag", [bool, int, np.bool_, torch.tensor])
def test_gaps_and_flags_of_any_type_say_the_same(kind: Any, flag: Any) -> None:
    there = posterior(diagnostics(7), Context(), SHORT).condition({kind(2): flag(True), kind(4): flag(False)})
    assert there.conditions == {2: True, 4: False}
    with pytest.raises(ValueError, match="already conditioned the other way"):
        there.condition({kind(4): flag(True)})


@pytest.mark.parametrize(
    ("cuts", "part"),
    [
        ({2: None}, "gap 2 must be cut"),
        ({2: "no"}, "gap 2 must be cut"),
        ({2: 0.5}, "gap 2 must be cut"),
        ({2: torch.tensor([True, False])}, "gap 2 must be cut"),
        ({2: np.array([1, 0])}, "gap 2 must be cut"),
        ({2.0: True}, "a gap must be a whole number"),
        ({torch.tensor(2): True, torch.tensor(2): False}, "gap 2 twice"),
        ([2], "as in {2: True}"),
    ],
)
def test_a_condition_that_is_none_is_refused(cuts: Any, part: str) -> None:
    with pytest.raises(ValueError, match=part):
        posterior(diagnostics(7), Context(), SHORT).condition(cuts)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ((diagnostics(4), PriorConfig()), "context must be a Context, got a PriorConfig: name the argument"),
        ((diagnostics(4), PriorConfig(), Context()), "context must be a Context"),
        ((diagnostics(4), Context(), Context()), "prior must be a PriorConfig, got a Context"),
        (([0.2, 0.3],), "diagnostics must be a Diagnostics, got a list"),
    ],
)
def test_arguments_that_have_changed_places_are_told(arguments: Any, named: str) -> None:
    with pytest.raises(ValueError, match=named):
        posterior(*arguments)


# --- how it is shown --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("length", [1, 2, 28])
def test_it_shows_itself(length: int) -> None:
    there = posterior(diagnostics(length), Context(), PriorConfig())
    assert "\n" not in repr(there)
    assert f"L={length} tokens" in repr(there)
    picture = ElementTree.fromstring(there._repr_html_())
    titles = [element.text for element in picture.iter("title")]
    assert len(titles) == length + (length - 1)  # a token each, a gap each
    assert picture.find(".//figcaption") is not None


def test_a_structure_of_another_length_is_an_error() -> None:
    there: StructurePosterior = posterior(diagnostics(4), Context(), SHORT)
    with pytest.raises(ValueError, match="the structure has 5 tokens, the window 4"):
        there.log_prob(Partition.whole(5))


def test_ranked_is_lazy() -> None:
    there = posterior(diagnostics(48), Context(), PriorConfig())
    assert len(list(islice(there.ranked(), 3))) == 3  # of 2^47
