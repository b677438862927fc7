"""What the study measures of a window: diagnoses, pairs of commits, and variants at equal passes."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dystruct.decoding import Pass, Row, UserError, generate
from dystruct.decoding.engine import Engine
from dystruct.decoding.generation_settings import GenerationSettings
from dystruct.decoding.passes import shown_positions
from dystruct.decoding.study.along import generator_of, places
from dystruct.decoding.study.diagnosis import Diagnosis, diagnosis
from dystruct.decoding.study.pairs import commit_pairs
from dystruct.decoding.study.variants import ALTERNATIVES, EqualPasses, apportioned, variants
from dystruct.model import PriorConfig
from random_network import random_backbone
from scripted import EOS, FIRST_LETTER, MASK, backbone, hashed, uneven_weights, written

# --- diagnoses: the engine's are the oracle --------------------------------------------------------------------------


class Diagnosing:
    """A decoder that diagnoses one window and keeps what the engine says of it."""

    def __init__(self, length: int, passes: int) -> None:
        self.widest, self.passes = length, passes

    def decode(self, row: Row) -> Iterator[Pass]:
        row.open_window(self.widest)
        for shown in shown_positions(self.widest, self.passes):
            yield Pass("diagnostic", 0, self.widest, commit=shown)
        self.predicted = row.read_predictions()
        self.features, self.gaps = row.read_diagnostics()
        shown = np.zeros((self.passes, self.widest), dtype=bool)
        for k, step in enumerate(row.steps):
            shown[k, [commit.position for commit in step.commits]] = True
        self.taken_back = (shown[:-1] & ~shown[1:]).any(axis=0)
        row.write(self.predicted)
        row.close_window(self.predicted, self.features)


@settings(max_examples=12)
@given(
    st.integers(0, 10**6), st.integers(2, 12), st.integers(1, 8), st.lists(st.integers(2, 11), max_size=4),
    st.booleans(),
)  # fmt: skip
def test_a_diagnosis_is_the_engines(seed: int, length: int, passes: int, before: list[int], shifted: bool) -> None:
    model = random_backbone(seed=seed, shifted=shifted)
    decoder = Diagnosing(length, passes)
    engine = Engine(model, decoder, GenerationSettings(length, budget=99))
    engine.run(["ab"], [[2, 3, *before]], None, {})
    found = diagnosis(model, [2, 3], before, length, passes)
    np.testing.assert_allclose(found.features, decoder.features.numpy(), atol=2e-5)
    np.testing.assert_allclose(found.gaps["first"], decoder.gaps.numpy(), atol=2e-5)
    assert found.predicted.tolist() == decoder.predicted
    assert found.taken_back.tolist() == decoder.taken_back.tolist()


def same(one: Diagnosis, other: Diagnosis) -> bool:
    return np.array_equal(one.features, other.features) and np.array_equal(one.gaps["last"], other.gaps["last"])


def test_face_value_matters_once_a_position_is_shown() -> None:
    model = backbone(hashed(3))
    assert same(*(diagnosis(model, [2], [], 9, 1, rule) for rule in ("carried", "face-value")))
    assert not same(*(diagnosis(model, [2], [], 9, 4, rule) for rule in ("carried", "face-value")))


def test_with_one_pass_all_gap_rules_agree_and_with_two_the_mean_lies_between() -> None:
    model = backbone(hashed(4))
    one, two = (diagnosis(model, [2], [], 9, passes).gaps for passes in (1, 2))
    np.testing.assert_array_equal(one["first"], one["last"])
    np.testing.assert_array_equal(one["first"], one["mean"])
    np.testing.assert_allclose(two["mean"], (two["first"] + two["last"]) / 2, rtol=1e-6)
    assert not np.allclose(two["first"], two["last"])


# --- pairs ------------------------------------------------------------------------------------------------------------

REFERENCE = [FIRST_LETTER + place % 5 for place in range(10)]
GUESS = FIRST_LETTER + 9


def leaning() -> object:
    """A model that knows the even positions, and an odd one only when its left neighbour holds its right token."""

    def wanted(known: list[int], place: int) -> int:
        place -= 1  # behind the prompt
        if place < 0 or place % 2 == 0:
            return REFERENCE[max(place, 0)]
        return REFERENCE[place] if known[place] == REFERENCE[place - 1] else GUESS

    return backbone(written(wanted, lambda known, place: 5.0 - (place - 1) % 2 - place / 100))


def test_pairs_are_judged_by_what_the_model_says() -> None:
    found = commit_pairs(leaning(), [2], [], REFERENCE, 10, np.random.default_rng(0), neighbours=99, distant=99)
    opened = [pair for pair in found if pair.state == "open"]
    assert {(p.left, p.right) for p in opened if p.kind == "neighbours"} == set(pairwise(range(10)))
    assert {(p.left, p.right) for p in opened if p.kind == "distant"} == {
        (i, j) for i in range(10) for j in range(i + 2, 10) if j - i <= 8
    }
    for pair in opened:
        both_even = pair.left % 2 == 0 == pair.right % 2
        leans = pair.left % 2 == 0 and pair.right == pair.left + 1
        assert pair.together == both_even
        assert pair.in_turn == (both_even or leans)
        assert pair.wrong_together == leans
        assert pair.right_changes == leans and (pair.right_moves > 0.01) == leans
        assert not pair.left_changes and pair.left_moves < 1e-6
        assert pair.masked == 10


def test_partly_decoded_contexts_hold_the_most_confident_reference_tokens() -> None:
    for seed in range(5):
        found = commit_pairs(leaning(), [2], [], REFERENCE, 10, np.random.default_rng(seed), neighbours=99, distant=99)
        partly = [pair for pair in found if pair.state == "partly"]
        masked = {position for pair in partly for position in (pair.left, pair.right)}
        # even positions are the more confident ones, the left ones first
        by_confidence = [0, 2, 4, 6, 8, 1, 3, 5, 7, 9]
        if partly:
            assert masked <= set(by_confidence[-partly[0].masked :])
        for pair in partly:  # an odd position's neighbour is revealed, or is the pair's left one
            known = pair.right % 2 == 0 or pair.right - 1 not in by_confidence[-pair.masked :]
            assert pair.together == (
                known and (pair.left % 2 == 0 or pair.left - 1 not in by_confidence[-pair.masked :])
            )


@given(st.integers(0, 10**6), st.integers(1, 10), st.integers(0, 4), st.integers(0, 4))
@settings(max_examples=25)
def test_as_many_pairs_are_drawn_as_asked_for(seed: int, inside: int, neighbours: int, distant: int) -> None:
    generator = np.random.default_rng(seed)
    found = commit_pairs(
        backbone(hashed(seed)), [2], [3], REFERENCE, inside, generator, neighbours=neighbours, distant=distant
    )  # fmt: skip
    opened = [pair for pair in found if pair.state == "open"]
    counts = {kind: sum(pair.kind == kind for pair in opened) for kind in ("next", "neighbours", "distant")}
    apart = sum(1 for i in range(inside) for j in range(i + 2, inside) if j - i <= 8)
    assert counts == {
        "next": int(inside > 1), "neighbours": min(neighbours, inside - 1), "distant": min(distant, apart)
    }  # fmt: skip
    assert len({(p.state, p.kind, p.left, p.right) for p in found}) == len(found)
    for pair in found:
        assert 0 <= pair.left < pair.right < inside and max(pair.rank) < pair.masked <= inside
        if pair.kind == "next":
            assert sorted(pair.rank) == [0, 1]


# --- windows along an answer ------------------------------------------------------------------------------------------


@given(st.integers(0, 10**6), st.integers(0, 120), st.integers(1, 4))
def test_windows_follow_one_another_along_the_answer(seed: int, length: int, count: int) -> None:
    model, answer = backbone(hashed(0)), "abcdefghij" * 12
    answer = answer[:length]
    tokens = [*model.tokenizer(answer, add_special_tokens=False)["input_ids"], EOS]
    every = places(model, answer, generator_of(seed, "maths", 0), 99)
    assert sum(place.inside for place in every) == len(tokens)
    assert [token for place in every for token in place.reference[: place.inside]] == tokens
    assert all(8 <= place.length <= 48 and len(place.reference) == place.length for place in every)
    assert all(b.start == a.start + a.length for a, b in pairwise(every))
    assert set(every[-1].reference[every[-1].inside :]) <= {EOS}
    some = places(model, answer, generator_of(seed, "maths", 0), count)
    assert len(some) == min(count, len(every))
    assert some == every[every.index(some[0]) :][: len(some)]


# --- variants ---------------------------------------------------------------------------------------------------------


@given(st.lists(st.tuples(st.integers(1, 20), st.floats(0, 1)), min_size=1, max_size=8), st.integers(-5, 120))
def test_passes_are_apportioned_as_a_whole(blocks: list[tuple[int, float]], total: int) -> None:
    sizes, instabilities = [size for size, _ in blocks], [h for _, h in blocks]
    found = apportioned(sizes, instabilities, total)
    assert sum(found) == min(max(total, len(sizes)), sum(sizes))
    assert all(1 <= passes <= size for passes, size in zip(found, sizes, strict=True))


def test_passes_go_where_instability_is() -> None:
    assert apportioned([10, 10], [0.6, 0.2], 8) == (6, 2)
    assert apportioned([10, 10, 10], [0.0, 0.5, 0.5], 20) == (1, 10, 9)


@pytest.mark.parametrize("passes", [2, 4, 8])
@pytest.mark.parametrize("weld", ["sequential", "joint", "off"])
def test_a_window_takes_the_same_passes_whatever_they_are_spent_on(passes: int, weld: str) -> None:
    decoder = EqualPasses(
        structure="sample", diagnostic_passes=passes, weld=weld, passes_per_token=0.75, weld_passes=1,
        prior=PriorConfig(min_length=32, max_length=32), weights=uneven_weights(),
    )  # fmt: skip
    [found] = generate(backbone(hashed(1, end_logit=-9.0)), ["ab"], decoder, max_new_tokens=64, budget=999)
    assert [len(window.steps) for window in found.windows] == [24, 24]
    assert found.passes["diagnostic"] == 2 * passes
    assert MASK not in found.tokens


def test_variants_change_what_they_name_and_nothing_else() -> None:
    found = variants([name for name in ALTERNATIVES if name != "chosen"], 0.5)
    base = found["base"]
    assert isinstance(base, EqualPasses) and base.structure == "sample" and base.passes_per_token == 0.5
    assert found["K=2"] == EqualPasses("sample", "mean", diagnostic_passes=2, passes_per_token=0.5)
    assert found["windows of 28"].prior.min_length == 28 == found["windows of 28"].prior.max_length
    assert len({repr(variant) for variant in found.values()}) == len(found)
    assert all(variant.length_rule == "mean" for name, variant in found.items() if not name.startswith("length"))


@pytest.mark.parametrize(("names", "said"), [(["R99"], "no group 'R99'"), (["chosen"], "--settings")])
def test_unknown_groups_are_refused(names: list[str], said: str) -> None:
    with pytest.raises(UserError, match=said):
        variants(names, 0.5)
