"""Structure rules: what each chooses, what it draws from, and how lengths are capped."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from itertools import permutations
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dystruct.inference import (
    CONSENSUS,
    LENGTH_RULES,
    MAP,
    RULES,
    SAMPLE,
    SHUFFLED,
    StructureRule,
    fixed,
    posterior,
    shuffled,
)
from dystruct.model import Context, Diagnostics, Partition, PriorConfig, length_law, order_law


@dataclass
class Streams:
    """What the decode loop hands to a rule."""

    partition: torch.Generator
    order: torch.Generator


def streams(seed: int = 0) -> Streams:
    return Streams(torch.Generator().manual_seed(seed), torch.Generator().manual_seed(seed + 1))


def window(length: int = 20) -> Diagnostics:
    generator = torch.Generator().manual_seed(length)
    return Diagnostics(
        torch.rand(length, dtype=torch.float64, generator=generator),
        torch.randn(length - 1, dtype=torch.float64, generator=generator),
    )


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_rules_are_the_posteriors_estimates() -> None:
    there = posterior(window(), Context(), PriorConfig())
    assert MAP.structure(there, streams()) == there.map()
    assert CONSENSUS.structure(there, streams()) == there.consensus()
    assert SAMPLE.structure(there, streams()) == there.draw(1, streams().partition, streams().order)[0]


@pytest.mark.parametrize("name", ["map", "consensus", "none"])
def test_deterministic_rules_draw_nothing(name: str) -> None:
    used, unused = streams(), streams()
    rule = RULES[name]
    rule.structure(posterior(window(), Context(), PriorConfig()), used)
    rule.length(Context(), PriorConfig(), used.partition)
    assert torch.equal(used.partition.get_state(), unused.partition.get_state())
    assert torch.equal(used.order.get_state(), unused.order.get_state())


def test_every_rule_is_named_by_its_key_and_handles_one_token() -> None:
    assert list(RULES) == ["map", "sample", "consensus", "none", "shuffled"]
    for name, rule in RULES.items():
        assert rule.name == name
        assert rule.structure(posterior(window(1), Context(), PriorConfig()), streams()).partition == Partition.whole(1)


def test_sampled_structures_vary_with_the_stream() -> None:
    drawn = {
        SAMPLE.structure(posterior(window(), Context(), PriorConfig()), streams(seed)).partition for seed in range(20)
    }
    assert len(drawn) > 5


@pytest.mark.parametrize("made", [lambda a, b, c, d: None, lambda: None, "map", None])
def test_a_rule_of_other_functions_is_refused_when_made(made: Any) -> None:
    with pytest.raises(ValueError, match=r"^structure of the rule 'own' must be a function of \(exact, streams\)\.$"):
        StructureRule("own", MAP.length, made)
    with pytest.raises(ValueError, match=r"^length of the rule 'own' must be a function of \(context, prior, gen"):
        StructureRule("own", made, MAP.structure)


def test_what_is_made_of_a_rule_or_a_partition_asks_for_one() -> None:
    given: Any
    for given in ("map", None, lambda exact, streams: None):
        with pytest.raises(ValueError, match="what is shuffled must be a StructureRule"):
            shuffled(given)
    for given in ((4, 9), "map"):
        with pytest.raises(ValueError, match="partition must be a Partition or None"):
            fixed(given)
    nothing: Any = lambda exact, streams: None  # noqa: E731 - of any type
    wrong = shuffled(StructureRule("own", MAP.length, nothing))
    with pytest.raises(ValueError, match="the rule 'own' gives None, which is no Structure"):
        wrong.structure(posterior(window(), Context(), PriorConfig()), streams())


# --- the control ------------------------------------------------------------------------------------------------------


def sizes(partition: Partition) -> tuple[int, ...]:
    return tuple(end - start for start, end in partition.blocks)


@given(st.integers(1, 24), st.integers(0, 99), st.sampled_from(["map", "sample", "consensus", "none"]))
def test_shuffled_blocks_keep_their_sizes(length: int, seed: int, name: str) -> None:
    exact = posterior(window(length), Context(), PriorConfig(concentration=6.0))
    straight = RULES[name].structure(exact, streams(seed)).partition
    moved = shuffled(RULES[name]).structure(exact, streams(seed))
    assert sorted(sizes(moved.partition)) == sorted(sizes(straight))
    assert moved.partition.length == length and sorted(moved.order) == list(range(straight.count))


def test_shuffled_blocks_lose_their_places() -> None:
    """Blocks of 2, 3 and 5 tokens for sure: each of their six orders comes up.

    Of 600 draws 100 each with a standard deviation of 9.1: 5 of them, a false alarm in three hundred thousand.
    """
    edges = torch.full((9,), -30.0)
    edges[[1, 4]] = 30.0
    exact = posterior(Diagnostics(torch.full((10,), 0.5), edges), Context(), PriorConfig())
    drawn = Counter(sizes(SHUFFLED.structure(exact, streams(seed)).partition) for seed in range(600))
    assert set(drawn) == set(permutations((2, 3, 5)))
    assert all(abs(count - 100) < 46 for count in drawn.values())


@pytest.mark.parametrize("rule", [SAMPLE, SHUFFLED], ids=lambda rule: rule.name)
def test_shuffled_blocks_are_ordered_as_sampled_ones_are(rule: StructureRule) -> None:
    """Of two level blocks the anchored one comes first with odds exp(1) to 1: orders are drawn, not the likeliest."""
    edges = torch.full((9,), -30.0)
    edges[4] = 30.0
    exact = posterior(Diagnostics(torch.full((10,), 0.5), edges), Context(), PriorConfig())
    stream = streams()
    first = sum(rule.structure(exact, stream).order == (0, 1) for _ in range(400)) / 400
    # 0.731 with a standard deviation of 0.022: 5 of them, a false alarm in a million
    assert first == pytest.approx(math.e / (1 + math.e), abs=0.11)


# --- lengths ----------------------------------------------------------------------------------------------------------


def test_default_length_rules() -> None:
    """R2: a MAP structure uses the mode of the clipped law, a sampled one a draw, the whole window mu rounded."""
    prior, context = PriorConfig(), Context(previous_instability=0.2)  # mu = 40: P(X >= 48) makes 48 the mode
    assert MAP.length(context, prior, generator()) == 48
    assert CONSENSUS.length(context, prior, generator()) == 48
    assert RULES["none"].length(context, prior, generator()) == 40
    drawn = {SAMPLE.length(context, prior, generator(seed)) for seed in range(30)}
    assert len(drawn) > 5
    assert SAMPLE.length(context, prior, generator(3)) == SAMPLE.length(context, prior, generator(3))


def test_the_mean_is_rounded_half_up() -> None:
    prior = PriorConfig(min_length=1, max_length=2)
    assert LENGTH_RULES["mean"](Context(previous_instability=0.5), prior, generator()) == 2


@pytest.mark.parametrize("name", LENGTH_RULES)
@pytest.mark.parametrize("hbar", [0.0, 0.5, 1.0])
def test_lengths_stay_within_the_prior_and_the_budget(name: str, hbar: float) -> None:
    prior = PriorConfig()
    for seed in range(20):
        free = LENGTH_RULES[name](Context(hbar), prior, generator(seed))
        assert prior.min_length <= free <= prior.max_length
        for remaining in (1, 5, 30):
            capped = LENGTH_RULES[name](Context(hbar, remaining), prior, generator(seed))
            assert capped == min(free, remaining)


def test_sampled_lengths_follow_the_clipped_law() -> None:
    """Mean of 2,000 draws within 6 standard errors (false alarm 1e-8)."""
    context, prior, stream = Context(0.4), PriorConfig(), generator()
    draws = torch.tensor([SAMPLE.length(context, prior, stream) for _ in range(2000)], dtype=torch.float64)
    assert abs(draws.mean() - length_law(context, prior).mean) < 6 * draws.std() / 2000**0.5


def test_a_length_rule_can_be_replaced() -> None:
    assert SAMPLE.with_length("mean").length(Context(), PriorConfig(), generator()) == 28
    assert SAMPLE.with_length("mean").structure is SAMPLE.structure
    assert MAP.with_length(lambda context, prior, generator: 12).length(Context(), PriorConfig(), generator()) == 12
    with pytest.raises(ValueError, match="choose one of sample, mode, mean"):
        MAP.with_length("median")


# --- fixed ------------------------------------------------------------------------------------------------------------


def test_a_fixed_partition_sets_length_and_blocks() -> None:
    rule, partition = fixed(Partition((4, 9, 12))), Partition((4, 9, 12))
    assert rule.length(Context(), PriorConfig(), generator()) == 12
    structure = rule.structure(posterior(window(12), Context(), PriorConfig()), streams())
    assert structure.partition == partition
    law = order_law(partition, window(12).instability, PriorConfig())
    assert structure.order == tuple(law.mode.tolist())


@pytest.mark.parametrize(("remaining", "ends"), [(9, (4, 9)), (10, (4, 9, 10)), (2, (2,))])
def test_a_fixed_partition_is_cut_short_by_the_budget(remaining: int, ends: tuple[int, ...]) -> None:
    rule = fixed(Partition((4, 9, 12)))
    length = rule.length(Context(remaining=remaining), PriorConfig(), generator())
    assert length == remaining
    assert rule.structure(posterior(window(length), Context(), PriorConfig()), streams()).partition.ends == ends


def test_a_window_longer_than_its_fixed_partition_is_an_error() -> None:
    with pytest.raises(ValueError, match="the window has 13 tokens, the fixed partition 12"):
        fixed(Partition((4, 12))).structure(posterior(window(13), Context(), PriorConfig()), streams())
