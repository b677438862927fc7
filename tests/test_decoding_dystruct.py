"""Algorithm 2 under any rule, limits and budget: what holds of every finished sequence, and what single settings do."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from itertools import groupby, pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dystruct.decoding import Block, DyStruct, Generation, UserError, Window, generate
from dystruct.inference import RULES, StructureRule, fixed
from dystruct.model import EvidenceWeights, Partition, PriorConfig, Structure
from scripted import EOS, FIRST_LETTER, MASK, backbone, hashed, uneven_weights, written

priors = st.builds(
    lambda low, more, concentration, anchoring: PriorConfig(low, low + more, concentration, anchoring=anchoring),
    st.integers(1, 8),
    st.integers(0, 12),
    st.sampled_from([0.05, 1.5, 20.0]),
    st.sampled_from(["static", "dynamic"]),
)
rules: st.SearchStrategy[str | StructureRule] = st.one_of(
    st.sampled_from(list(RULES)),
    st.sampled_from([RULES["map"].with_length("sample"), RULES["sample"].with_length("mean")]),
)
_INFERRED = {"length_law": "posterior", "length_rule": "sample"}
decoders = st.builds(
    DyStruct,
    structure=rules,
    length_rule=st.sampled_from([None, "sample", "mode", "mean"]),
    prior=priors,
    diagnostic_passes=st.integers(1, 5),
    passes=st.sampled_from(["interpolate", "share"]),
    min_passes=st.integers(1, 4),
    max_passes=st.integers(4, 9),
    weld_radius=st.integers(1, 6),
    weld_passes=st.integers(1, 4),
    weld=st.sampled_from(["sequential", "joint", "off"]),
    final_instability=st.sampled_from(["calibrated", "centred"]),
    schedule=st.sampled_from(["priority", "sorted", "left-to-right"]),
).flatmap(lambda made: st.sampled_from([made, dataclasses.replace(made, **_INFERRED)]))


def decode(script, decoder, *, prompt: str = "abc", tokens: int = 30, budget: int = 500, seed: int = 0) -> Generation:
    model = backbone(script, weights=uneven_weights())
    return generate(model, [prompt], decoder, max_new_tokens=tokens, budget=budget, seed=seed)[0]


def check_window(window: Window, decoder: DyStruct) -> None:
    """What the steps of a window may touch, and in which order."""
    chosen, start = window.structure, window.opened.start
    assert chosen is not None and chosen.ends[-1] == window.length
    law = chosen.length
    assert window.length == window.opened.length if law is None else window.length in law.lengths
    assert law is None or law.lengths[-1] == window.opened.length
    blocks = list(zip((0, *chosen.ends[:-1]), chosen.ends, strict=True))
    assert sorted(chosen.order) == list(range(len(blocks)))
    kinds = [kind for kind, _ in groupby(step.kind for step in window.steps)]
    assert kinds == [kind for kind in ("diagnostic", "resolve", "weld") if kind in kinds]
    assert "resolve" in kinds
    everything = range(start, start + window.length)
    resolved = [step.block for step in window.steps if step.kind == "resolve"]
    assert resolved == [None] * len(resolved) or [block for block, _ in groupby(resolved)] == list(chosen.order)
    for step in window.steps:
        touched = {change.position for change in (*step.remasked, *step.commits)}
        assert len(touched - {r.position for r in step.remasked}) + len(step.remasked) == len(touched)
        assert len({commit.position for commit in step.commits}) == len(step.commits)
        allowed = set(everything)
        if step.kind == "diagnostic":
            allowed = set(range(start, start + window.opened.length))
        elif step.kind == "resolve" and step.block is not None:
            a, b = blocks[step.block]
            allowed = set(everything[a:b])
        elif step.kind == "weld":
            assert step.block is not None
            near = set()
            for (a, b), (_, c) in pairwise(blocks):
                if decoder.weld == "joint" or a == blocks[step.block][0]:
                    near |= set(everything[max(a, b - decoder.weld_radius) : min(c, b + decoder.weld_radius)])
            allowed = near
        assert touched <= allowed
        assert step.commits or step.kind == "diagnostic"


def check(generation: Generation, decoder: DyStruct | Block, tokens: int, budget: int) -> None:
    """What holds of every finished sequence."""
    assert MASK not in generation.tokens
    assert generation.forward_passes <= budget and len(generation.tokens) <= tokens
    steps = [step for window in generation.windows for step in window.steps]
    assert Counter(step.kind for step in steps) == Counter(generation.passes)
    assert [step.number for step in steps] == list(range(1, len(steps) + 1))
    position = 0
    for index, window in enumerate(generation.windows):
        assert (window.opened.index, window.opened.start, window.closed.index) == (index, position, index)
        position += window.length
        assert window.closed.tokens == generation.tokens[window.opened.start : position]
        assert EOS not in window.closed.tokens or window is generation.windows[-1]
        if isinstance(decoder, DyStruct):
            check_window(window, decoder)
    assert position == len(generation.tokens) > 0

    canvas: list[int] = []
    for step, after in generation.replay():
        if step.kind == "diagnostic":
            shown = [p for p in range(len(canvas), len(after)) if after[p] != MASK]
            assert shown == [commit.position for commit in step.commits]
            assert list(after[: len(canvas)]) == canvas, "a diagnostic pass changes nothing that stands"
            continue
        before = canvas + [MASK] * (len(after) - len(canvas))
        for remask in step.remasked:
            assert before[remask.position] == remask.token
            before[remask.position] = MASK
        for commit in step.commits:
            assert before[commit.position] == MASK, "only masked positions are committed"
            assert 0 < commit.confidence <= 1
            before[commit.position] = commit.token
        assert before == list(after)
        canvas = before
    assert canvas == list(generation.tokens)

    useful = generation.tokens.index(EOS) if EOS in generation.tokens else len(generation.tokens)
    assert (generation.useful_tokens, generation.wasted_tokens) == (useful, len(generation.tokens) - useful)
    assert generation.text == "".join(chr(ord("a") + token - FIRST_LETTER) for token in generation.tokens[:useful])
    if generation.stop_reason == "eos":
        assert useful < len(generation.tokens)
    elif generation.stop_reason == "length":
        assert useful == len(generation.tokens) == tokens
    else:
        assert generation.stop_reason == "budget"
        assert useful == len(generation.tokens) < tokens and generation.forward_passes == budget


@settings(deadline=None, max_examples=80)
@given(decoders, st.integers(0, 10**6), st.integers(1, 40), st.integers(1, 60), st.sampled_from([-4.0, 1.0]))
def test_every_finished_sequence_is_lawful(decoder: DyStruct, seed: int, tokens: int, budget: int, end: float) -> None:
    generation = decode(hashed(seed, end_logit=end), decoder, tokens=tokens, budget=budget, seed=seed)
    check(generation, decoder, tokens, budget)


@settings(deadline=None, max_examples=30)
@given(
    st.integers(1, 9),
    st.none() | st.integers(1, 12),
    st.integers(1, 30),
    st.integers(1, 40),
    st.sampled_from([-4.0, 1.0]),
)
def test_block_decoding_is_lawful(length: int, passes: int | None, tokens: int, budget: int, end: float) -> None:
    decoder = Block(length, passes)
    generation = decode(hashed(tokens, end_logit=end), decoder, tokens=tokens, budget=budget)
    check(generation, decoder, tokens, budget)
    for window in generation.windows:
        assert window.opened.length == min(length, tokens - window.opened.start)
        assert window.structure is None and window.closed.mean_instability is None


@settings(deadline=None, max_examples=30)
@given(decoders, st.integers(0, 10**6))
def test_with_budget_enough_blocks_take_their_passes_and_every_boundary_is_welded(decoder: DyStruct, seed: int) -> None:
    generation = decode(hashed(seed, end_logit=-4.0), decoder)
    for window in generation.windows:
        chosen = window.structure
        assert chosen is not None
        kinds = Counter((step.kind, step.block) for step in window.steps)
        sizes = [end - start for start, end in zip((0, *chosen.ends[:-1]), chosen.ends, strict=True)]
        assert kinds["diagnostic", None] == decoder.diagnostic_passes
        assert [kinds["resolve", block] for block in range(len(sizes))] == list(chosen.passes)
        assert all(1 <= passes <= size for passes, size in zip(chosen.passes, sizes, strict=True))
        welded = {block for kind, block in kinds if kind == "weld"}
        boundaries = set(range(len(sizes) - 1))
        assert welded == {"sequential": boundaries, "joint": boundaries & {0}, "off": set()}[decoder.weld]


def test_a_budget_of_one_pass_fills_one_window_at_once() -> None:
    generation = decode(hashed(3, end_logit=-4.0), DyStruct(prior=PriorConfig(8, 8)), tokens=30, budget=1)
    assert generation.passes == {"resolve": 1} and generation.stop_reason == "budget"
    assert len(generation.tokens) == 8 and MASK not in generation.tokens


def test_fewer_passes_than_blocks_fill_the_window_all_the_same() -> None:
    decoder = DyStruct(structure=fixed(Partition((2, 4, 6, 8, 10))), diagnostic_passes=1)
    for budget in range(2, 8):
        generation = decode(hashed(3, end_logit=-4.0), decoder, tokens=10, budget=budget)
        assert len(generation.tokens) == 10 and MASK not in generation.tokens
        assert generation.forward_passes == budget


# --- structures ----------------------------------------------------------------------------------------------------


def test_blocks_are_decoded_in_the_order_of_their_priority() -> None:
    partition = Partition((3, 7, 9, 14, 16))
    orders = set()
    for seed in range(12):
        generation = decode(hashed(seed, end_logit=-4.0), DyStruct(structure=fixed(partition)), tokens=16)
        (window,) = generation.windows
        assert window.structure is not None
        rho = window.structure.priority
        assert list(window.structure.order) == sorted(range(5), key=lambda block: -rho[block])
        resolved = [step.block for step in window.steps if step.kind == "resolve"]
        assert [block for block, _ in groupby(resolved)] == list(window.structure.order)
        orders.add(window.structure.order)
    assert len(orders) > 3 and all(order[0] == 0 for order in orders), "anchored on its left, the first block leads"


@pytest.mark.parametrize("budget", [24, 48, 96])
def test_passes_shared_in_proportion_to_tokens_and_instability(budget: int) -> None:
    decoder = DyStruct(structure=fixed(Partition((9, 13, 24))), passes="share", diagnostic_passes=2, weld="off")
    window = decode(hashed(1, end_logit=-4.0), decoder, tokens=96, budget=budget).windows[0]
    assert window.structure is not None
    h = window.structure.instability
    mean = sum(h) / 24
    wanted = []
    for a, b in ((0, 9), (9, 13), (13, 24)):
        share = (b - a) * budget / 96 * (sum(h[a:b]) / (b - a)) / mean
        wanted.append(min(b - a, max(1, math.floor(share + 0.5))))
    assert list(window.structure.passes) == wanted
    assert [sum(step.block == block for step in window.steps) for block in range(3)] == wanted


def test_left_to_right_changes_the_order_and_nothing_before_it() -> None:
    decoder = DyStruct(structure="sample", prior=PriorConfig(12, 20))
    script = hashed(5, end_logit=-4.0)
    ours = decode(script, decoder, seed=2).windows[0]
    ablated = decode(
        script, DyStruct(structure="sample", prior=PriorConfig(12, 20), schedule="left-to-right"), seed=2
    ).windows[0]
    assert ours.structure is not None and ablated.structure is not None
    assert ours.structure.order != ablated.structure.order == tuple(range(len(ours.structure.ends)))
    assert ours.structure.ends == ablated.structure.ends
    assert ours.structure.position_features == ablated.structure.position_features


@pytest.mark.parametrize("rule", ["sample", "shuffled", "map"])
def test_a_sorted_schedule_is_the_order_of_priorities_and_changes_nothing_before_it(rule: str) -> None:
    script, prior = hashed(5, end_logit=-4.0), PriorConfig(12, 20, concentration=4.0)
    drawn = [decode(script, DyStruct(rule, prior=prior), seed=seed).windows[0].structure for seed in range(8)]
    ranked = [
        decode(script, DyStruct(rule, prior=prior, schedule="sorted"), seed=seed).windows[0].structure
        for seed in range(8)
    ]
    for chosen, before in zip(ranked, drawn, strict=True):
        assert chosen is not None and before is not None and chosen.ends == before.ends
        wanted = sorted(range(len(chosen.ends)), key=lambda block: -chosen.priority[block])
        assert list(chosen.order) == wanted
    assert (ranked == drawn) == (rule == "map"), "which is sorted anyway"


def test_a_sorted_schedule_under_anchoring_counted_anew_is_left_to_right() -> None:
    prior = PriorConfig(12, 20, concentration=4.0, anchoring="dynamic")
    found = decode(hashed(5, end_logit=-4.0), DyStruct("sample", prior=prior, schedule="sorted"), seed=2)
    orders = [window.structure.order for window in found.windows if window.structure is not None]
    assert any(len(order) > 1 for order in orders)
    assert all(order == tuple(range(len(order))) for order in orders)


def test_a_fixed_partition_longer_than_the_longest_window_is_an_error_of_the_user() -> None:
    decoder = DyStruct(structure=fixed(Partition.whole(20)), prior=PriorConfig(4, 12))
    with pytest.raises(UserError, match=r"gives 20;.*max_length"):
        decode(hashed(0), decoder, tokens=30)
    assert len(decode(hashed(0, end_logit=-4.0), decoder, tokens=12).tokens) == 12


@pytest.mark.parametrize("length", [0, -1, 31, 8.0, True, None, "8"])
def test_a_rule_whose_length_does_not_fit_is_an_error_of_the_user(length: Any) -> None:
    rule = StructureRule("wrong", lambda context, prior, generator: length, RULES["map"].structure)
    with pytest.raises(UserError, match=r"^The length rule of 'wrong' gives .* here from 1 to 30, .*\.$"):
        decode(hashed(0, end_logit=-4.0), DyStruct(structure=rule), tokens=30)


@pytest.mark.parametrize("schedule", ["priority", "sorted", "left-to-right"])
@pytest.mark.parametrize(
    "given", [None, "map", Partition((8,)), *(Structure(Partition.whole(n), (0,)) for n in (1, 7, 9, 80))]
)  # fmt: skip
def test_a_rule_that_gives_no_structure_of_the_window_is_an_error_of_the_user(given: Any, schedule: Any) -> None:
    rule = StructureRule("wrong", lambda context, prior, generator: 8, lambda *told: given)
    with pytest.raises(UserError, match=r"^The structure rule 'wrong' gives .* for a window of 8 tokens; .*\.$"):
        decode(hashed(0, end_logit=-4.0), DyStruct(structure=rule, schedule=schedule), tokens=30)


@pytest.mark.parametrize("rule", RULES)
def test_weights_under_which_no_structure_can_be_told_are_an_error_of_the_user(rule: str) -> None:
    weights = dataclasses.replace(uneven_weights(), gap=[0.0, 0.0, 1e5, 1e5])
    with pytest.raises(
        UserError, match=r"^The weights give no structure: edge_logit .*: scale the gap weights down\.$"
    ):
        decode(hashed(0, end_logit=-4.0), DyStruct(rule, weights=weights), tokens=30)


def test_a_decoder_draws_its_length_from_the_rule_that_it_is_told() -> None:
    prior = PriorConfig(8, 49)
    for rule, length in (("mode", 28), ("mean", 29)):
        opened = decode(hashed(0, end_logit=-4.0), DyStruct(length_rule=rule, prior=prior), tokens=60).windows[0].opened
        assert (opened.rate, opened.length) == (28.5, length)
    drawn = {
        decode(hashed(0, end_logit=-4.0), DyStruct(length_rule="sample", prior=prior), tokens=60, budget=1, seed=seed)
        .windows[0].opened.length
        for seed in range(8)
    }  # fmt: skip
    assert len(drawn) > 2


def test_lengths_are_drawn_from_their_own_stream() -> None:
    """Whatever partitions and orders draw, a seed gives the same window lengths (hbar is held at 0.5)."""
    lengths = set()
    for rule in ("map", "sample", "none"):
        decoder = DyStruct(
            structure=rule, length_rule="sample", prior=PriorConfig(5, 60), diagnostic_passes=1, weld="off"
        )
        decoder = dataclasses.replace(decoder, weights=EvidenceWeights([0.0] * 7, 0.0, [0.0] * 4, 0.0))
        generation = decode(hashed(0, end_logit=-4.0), decoder, tokens=150, seed=4)
        lengths.add(tuple(window.opened.length for window in generation.windows))
    assert len(lengths) == 1 and len(set(*lengths)) > 1


# --- welding -------------------------------------------------------------------------------------------------------


def copies_its_right_neighbour(row: list[int], position: int) -> int:
    """A b, unless the token on the right is a d; the last position of three is a d."""
    if position == 4:
        return FIRST_LETTER + 3
    right = row[position + 1] if position + 1 < len(row) else MASK
    return FIRST_LETTER + (3 if right == FIRST_LETTER + 3 else 1)


def test_welding_mends_a_token_that_was_committed_without_its_neighbour() -> None:
    # prompt aa, window of 3: block [0, 2) decoded first says bb; block [2, 3) says d; the boundary is then [1, 3)
    decoder = DyStruct(structure=fixed(Partition((2, 3))), weld_radius=1)
    script = written(copies_its_right_neighbour, lambda row, position: 1.0 if position == 3 else 2.0)
    without = decode(script, DyStruct(structure=fixed(Partition((2, 3))), weld="off"), prompt="aa", tokens=3)
    assert without.text == "bbd"
    welded = decode(script, decoder, prompt="aa", tokens=3)
    assert welded.text == "bdd"
    (step,) = [step for step in welded.windows[0].steps if step.kind == "weld"]
    assert [(r.position, r.token) for r in step.remasked] == [(1, FIRST_LETTER + 1)]
    assert [(c.position, c.token) for c in step.commits] == [(1, FIRST_LETTER + 3)]


def test_a_weld_remasks_the_less_confident_half_of_its_interval() -> None:
    leads = {2: 3.0, 3: 1.0, 4: 2.0, 5: 0.5, 6: 0.25, 7: 4.0}
    script = written(lambda row, position: FIRST_LETTER + position % 3, lambda row, position: leads.get(position, 1.0))
    decoder = DyStruct(structure=fixed(Partition((3, 6))), weld_radius=2)
    (window,) = decode(script, decoder, prompt="aa", tokens=6).windows
    remasked = [[r.position for r in step.remasked] for step in window.steps if step.kind == "weld"]
    # interval [1, 5) with leads 1, 2, 0.5, 0.25: positions 3 and 4 are the less confident half, refined in two passes
    assert remasked == [[3, 4], []]


# --- the end of the text -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("where", [0, 2, 7])
@pytest.mark.parametrize("decoder", [Block(4), DyStruct(structure=fixed(), prior=PriorConfig(4, 4))])
def test_the_text_ends_before_the_first_end_token(where: int, decoder: DyStruct | Block) -> None:
    # letters behind the end token are decoded and wasted; a second end token changes nothing
    def wanted(row: list[int], position: int) -> int:
        return EOS if position in (3 + where, 3 + where + 1) else FIRST_LETTER + position % 5

    generation = decode(written(wanted), decoder, prompt="abc", tokens=20)
    letters = "abcde"
    assert generation.text == "".join(letters[position % 5] for position in range(3, 3 + where))
    assert generation.stop_reason == "eos"
    assert generation.useful_tokens == where
    decoded = (where // 4 + 1) * 4
    assert len(generation.tokens) == decoded and generation.wasted_tokens == decoded - where


# --- settings ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "changes",
    [
        {"structure": "best"},
        {"length_rule": "median"},
        {"passes": "all"},
        {"weld": "on"},
        {"schedule": "random"},
        {"final_instability": "raw"},
        {"diagnostic_passes": 0},
        {"weld_radius": -1},
        {"weld_passes": 1.5},
        {"min_passes": 9, "max_passes": 3},
    ],
)
def test_a_setting_that_cannot_be_is_refused_by_name(changes: dict[str, object]) -> None:
    with pytest.raises(UserError, match=next(iter(changes))):
        DyStruct(**changes)


def test_presets() -> None:
    assert DyStruct.preset("paper") == DyStruct()
    assert DyStruct.preset("appendix", weld="joint") == DyStruct(weld_radius=4, weld="joint")
    with pytest.raises(UserError, match="paper, appendix"):
        DyStruct.preset("none")
    with pytest.raises(UserError, match="'radius'"):
        DyStruct.preset("paper", radius=3)


@pytest.mark.parametrize("changes", [{"block_length": 0}, {"passes": 0}, {"block_length": 2.0}])
def test_block_refuses_what_cannot_be(changes: dict[str, object]) -> None:
    with pytest.raises(UserError, match=next(iter(changes))):
        Block(**changes)
