"""The canvas against a plain-Python model of what a pass commits and remasks: readings R4, R13 and R15."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dystruct.decoding.canvas import Canvas, Fresh, Quotas, Region
from scripted import MASK, VOCABULARY

CAPACITY = 14
SLOTS = 3
# few values, so that ties are common; float32 holds them exactly
levels = st.sampled_from([0.125, 0.25, 0.5, 0.75, 1.0])
a_token = st.integers(2, VOCABULARY - 1)


@dataclass
class Place:
    """A position as the readings describe it: its token, how sure it was, and what was last predicted for it."""

    token: int = MASK
    commit_confidence: float = 0.0
    predicted: int = 0
    confidence: float = 0.0


def plain_commit(
    places: list[Place], fresh: list[tuple[int, float]], count: int, tentative: bool, threshold: float | None
) -> set[int]:
    """Commit in place; which were committed. `fresh`: a token and its probability for each place."""
    confident = 0
    for place, (token, confidence) in zip(places, fresh, strict=True):
        if place.token == MASK:
            place.predicted, place.confidence = token, confidence
            confident += threshold is not None and confidence >= threshold
    count = max(count, confident)
    eligible = [j for j, place in enumerate(places) if tentative or place.token == MASK]
    chosen = set(sorted(eligible, key=lambda j: (-places[j].confidence, j))[:count])
    for j, place in enumerate(places):
        if j in chosen:
            place.token = place.predicted
            if not tentative:
                place.commit_confidence = place.confidence
        elif tentative:
            place.token = MASK
    return chosen


def plain_remask(places: list[Place], count: int) -> set[int]:
    committed = [j for j, place in enumerate(places) if place.token != MASK]
    chosen = set(sorted(committed, key=lambda j: (places[j].commit_confidence, j))[:count])
    for j in chosen:
        places[j].token = MASK
    return chosen


@st.composite
def scenes(draw: st.DrawFn) -> tuple[list[tuple[int, int]], list[list[dict[str, object]]]]:
    """A window a slot, and rounds of work: some slots, each with a span to remask and to commit in."""
    windows = []
    for _ in range(SLOTS):
        start = draw(st.integers(0, CAPACITY - 1))
        windows.append((start, draw(st.integers(start + 1, CAPACITY))))
    rounds = []
    for _ in range(draw(st.integers(1, 6))):
        work = []
        for slot in draw(st.lists(st.integers(0, SLOTS - 1), min_size=1, max_size=SLOTS, unique=True)):
            low, high = windows[slot]
            tentative = draw(st.booleans())
            threshold = draw(st.none() | levels)
            start = low if tentative else draw(st.integers(low, high - 1))
            end = high if tentative else draw(st.integers(start + 1, high))
            work.append(
                {
                    "slot": slot,
                    "span": (start, end),
                    "remask": draw(st.integers(0, 4)),
                    "commit": draw(st.integers(0, 6)),
                    "tentative": tentative,
                    "threshold": threshold,
                    "fresh": [(draw(a_token), draw(levels)) for _ in range(end - start)],
                }
            )
        rounds.append(work)
    return windows, rounds


def padded(rows: list[list[float]], dtype: torch.dtype) -> torch.Tensor:
    width = max(map(len, rows))
    return torch.tensor(
        [[*row, *[7] * (width - len(row))] for row in rows], dtype=dtype
    )  # 7: padding says something, too


@settings(deadline=None, max_examples=150)
@given(scenes())
def test_commits_and_remasks_are_those_of_the_plain_model(scene) -> None:
    windows, rounds = scene
    canvas = Canvas(SLOTS, CAPACITY, MASK, torch.device("cpu"))
    canvas.reserve(CAPACITY, VOCABULARY)
    model = [[Place(token=3) for _ in range(CAPACITY)] for _ in range(SLOTS)]
    for slot, (start, end) in enumerate(windows):
        canvas.place(slot, [3] * CAPACITY)
        canvas.clear(slot, start, end)
        model[slot][start:end] = [Place() for _ in range(end - start)]
    for work in rounds:
        region = canvas.region([item["slot"] for item in work], [item["span"] for item in work])
        remasked, old, _ = canvas.remask(region, torch.tensor([[item["remask"]] for item in work]))
        for i, item in enumerate(work):
            start, end = item["span"]
            before = [place.token for place in model[item["slot"]][start:end]]
            chosen = plain_remask(model[item["slot"]][start:end], item["remask"])
            assert set(remasked[i].nonzero()[:, 0].tolist()) == chosen
            assert [int(old[i, j]) for j in chosen] == [before[j] for j in chosen]
        shape = region.inside.shape
        token = padded([[t for t, _ in item["fresh"]] for item in work], torch.long)
        confidence = padded([[c for _, c in item["fresh"]] for item in work], torch.float32)
        probability = torch.zeros(shape.numel(), VOCABULARY).softmax(-1)
        zeros = torch.zeros(shape.numel())
        fresh = Fresh(token.flatten(), confidence.flatten(), zeros, zeros, zeros, probability)
        thresholds = [item["threshold"] for item in work]
        quotas = Quotas(
            torch.tensor([[item["commit"]] for item in work]),
            torch.tensor([[item["tentative"]] for item in work]),
            torch.tensor([[torch.inf if limit is None else limit] for limit in thresholds])
            if any(thresholds)
            else None,
        )
        accepted, tokens, confidences, left = canvas.commit(region, fresh, quotas)
        assert (left is None) == (quotas.thresholds is None)
        for i, item in enumerate(work):
            start, end = item["span"]
            places = model[item["slot"]][start:end]
            chosen = plain_commit(places, item["fresh"], item["commit"], item["tentative"], item["threshold"])
            assert left is None or int(left[i]) == sum(place.token == MASK for place in places)
            assert set(accepted[i].nonzero()[:, 0].tolist()) == chosen
            for j in chosen:
                assert (int(tokens[i, j]), float(confidences[i, j])) == (places[j].predicted, places[j].confidence)
        for slot in range(SLOTS):
            assert canvas.tokens[slot, :CAPACITY].tolist() == [place.token for place in model[slot]]


def one_region(canvas: Canvas, width: int) -> Region:
    return canvas.region([0], [(0, width)])


def saying(token: list[int], confidence: list[float]) -> Fresh:
    zeros = torch.zeros(len(token))
    return Fresh(
        torch.tensor(token),
        torch.tensor(confidence),
        zeros,
        zeros,
        zeros,
        torch.zeros(len(token), VOCABULARY).softmax(-1),
    )


def test_a_span_is_what_its_places_are() -> None:
    """Whether a region is looked at where it is or copied: all that a canvas holds is the same behind each pass."""
    generator = torch.Generator().manual_seed(0)
    canvases = [Canvas(2, CAPACITY, MASK, torch.device("cpu")) for _ in range(2)]
    for canvas in canvases:
        canvas.reserve(8, VOCABULARY)
        canvas.clear(1, 3, 11)
    for number in range(8):
        start, width = (3, 8) if number < 3 else (5, 4)
        tentative = torch.tensor([[number < 3]]) if number < 4 else None
        quotas = Quotas(torch.tensor([[2]]), tentative, torch.tensor([[0.9]]) if number > 5 else None)
        figures = [torch.rand(width, generator=generator) for _ in range(4)]
        token = torch.randint(2, VOCABULARY, (width,), generator=generator)
        probability = torch.randn(width, VOCABULARY, generator=generator).softmax(-1)
        fresh = Fresh(token, *figures, probability)
        found = []
        for canvas, known in zip(canvases, (True, False), strict=True):
            region = canvas.region([1], [(start, start + width)])
            assert region.span is not None
            region = region if known else replace(region, span=None)
            remasked = canvas.remask(region, torch.tensor([[number % 3]]))
            found.append([*remasked, *filter(torch.is_tensor, canvas.commit(region, fresh, quotas))])
        for mine, other in zip(*found, strict=True):
            assert torch.equal(mine, other)
        for name in ("tokens", "commit_confidence", "figures", "previous"):
            assert torch.equal(getattr(canvases[0], name), getattr(canvases[1], name)), name
    assert canvases[0].features(1, 3, 11).abs().sum() > 0


def test_ties_go_to_the_left_when_committing_and_when_remasking() -> None:
    canvas = Canvas(1, 6, MASK, torch.device("cpu"))
    canvas.reserve(6, VOCABULARY)
    region = one_region(canvas, 6)
    said = saying([2, 3, 4, 5, 6, 7], [0.5, 0.9, 0.9, 0.5, 0.9, 0.5])
    accepted, *_ = canvas.commit(region, said, Quotas(torch.tensor([[2]])))
    assert accepted[0].tolist() == [False, True, True, False, False, False]
    canvas.commit(region, said, Quotas(torch.tensor([[6]])))
    remasked, _, _ = canvas.remask(region, torch.tensor([[2]]))
    assert remasked[0].tolist() == [True, False, False, True, False, False]


def test_a_tentative_commit_is_taken_back_when_others_are_surer() -> None:
    canvas = Canvas(1, 3, MASK, torch.device("cpu"))
    canvas.reserve(3, VOCABULARY)
    region, tentative = one_region(canvas, 3), torch.tensor([[True]])
    canvas.commit(region, saying([2, 3, 4], [0.5, 0.25, 0.25]), Quotas(torch.tensor([[1]]), tentative))
    assert canvas.tokens[0, :3].tolist() == [2, MASK, MASK]
    # the shown position is not predicted afresh: its 1.0 must not count, its 0.5 does
    canvas.commit(region, saying([9, 5, 6], [1.0, 0.75, 0.75]), Quotas(torch.tensor([[2]]), tentative))
    assert canvas.tokens[0, :3].tolist() == [MASK, 5, 6]


def test_a_slot_that_is_used_again_remembers_nothing() -> None:
    canvas = Canvas(1, 4, MASK, torch.device("cpu"))
    canvas.reserve(4, VOCABULARY)
    canvas.place(0, [2, 3])
    canvas.clear(0, 2, 4)
    canvas.commit(canvas.region([0], [(2, 4)]), saying([5, 6], [0.5, 0.5]), Quotas(torch.tensor([[2]])))
    canvas.place(0, [4])
    assert canvas.tokens[0].tolist() == [4, MASK, MASK, MASK, MASK]
    canvas.clear(0, 1, 4)
    assert torch.equal(canvas.features(0, 1, 4), torch.zeros(3, 7))


@given(
    st.lists(st.tuples(st.one_of(st.just(MASK), a_token), levels), min_size=0, max_size=8),
    st.integers(0, 8),
    st.integers(0, 8),
    st.integers(0, 4),
)
def test_a_splice_is_that_of_a_list(held: list[tuple[int, float]], first: int, removed: int, inserted: int) -> None:
    first = min(first, len(held))
    removed = min(removed, len(held) - first)
    canvas = Canvas(2, CAPACITY, MASK, torch.device("cpu"), observing=False)
    for slot in (0, 1):
        canvas.place(slot, [token for token, _ in held])
        canvas.commit_confidence[slot, : len(held)] = torch.tensor([confidence for _, confidence in held])
    moved = held[first + removed :]
    canvas.splice(0, first, removed, [5] * inserted + [token for token, _ in moved], len(moved))
    expected = held[:first] + [(5, 0.0)] * inserted + moved
    assert canvas.tokens[0].tolist() == [t for t, _ in expected] + [MASK] * (CAPACITY + 1 - len(expected))
    assert canvas.commit_confidence[0, : len(expected)].tolist() == [c for _, c in expected]
    assert canvas.tokens[1, : len(held)].tolist() == [token for token, _ in held]


def test_a_window_wider_than_what_was_reserved_is_refused() -> None:
    canvas = Canvas(1, 4, MASK, torch.device("cpu"))
    canvas.reserve(2, VOCABULARY)
    with pytest.raises(ValueError, match="reserve"):
        canvas.commit(one_region(canvas, 4), saying([2] * 4, [0.5] * 4), Quotas(torch.tensor([[1]])))
