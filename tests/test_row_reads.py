"""What a decoder does to a row behind passes that are not read yet: it comes to what it does behind read ones."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import permutations
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dystruct.decoding import Commit, Generation, Pass, Row, UserError, generate
from dystruct.decoding.trace import Remask
from scripted import backbone, hashed

MODEL = backbone(hashed(3, end_logit=-4.0))
LENGTH = 8
MOST = 16  # tokens, with all that is inserted


@dataclass(frozen=True)
class Acting:
    """Passes that commit so many tokens by themselves, and between them others behind which a decoder acts."""

    acts: tuple[tuple[str, int], ...]
    reads: bool  # whether each pass is read at once
    widest: None = None

    def decode(self, row: Row) -> Iterator[Pass]:
        row.open_window(LENGTH)
        for act, number in self.acts:
            alone = act == "pass"
            yield Pass("resolve", 0, row.length, number if alone else None)
            if self.reads and alone:
                row.read_tokens()
            if act == "insert":
                row.splice(number, 0, 2)
            elif act == "delete":
                row.splice(number, 1, 0)
            elif act == "commit":
                row.commit([Commit(number, 5, 0.5)])
            elif act == "remask":
                row.remask([Remask(number, 5, 0.5)])
            elif act == "write":
                row.write([number] * row.length)
        yield Pass("resolve", 0, row.length, MOST)
        row.close_window(row.read_tokens())


def decoded(acts: list[tuple[str, int]], reads: bool) -> Generation:
    [found] = generate(MODEL, ["abc"], Acting(tuple(acts), reads), max_new_tokens=MOST)
    return found


passes = st.tuples(st.just("pass"), st.integers(0, 4))
splices = st.tuples(st.sampled_from(["insert", "delete"]), st.integers(0, 3))
others = st.tuples(st.sampled_from(["commit", "remask", "write"]), st.integers(2, 3))


@settings(max_examples=60, deadline=None)
@given(st.lists(st.one_of(passes, splices, others), max_size=5))
def test_reading_or_not_comes_to_the_same(acts: list[tuple[str, int]]) -> None:
    acts = [act for i, act in enumerate(acts) if act[0] != "insert" or [a for a, _ in acts[:i]].count("insert") < 4]
    read, unread = decoded(acts, reads=True), decoded(acts, reads=False)
    assert read.tokens == unread.tokens
    if all(act in ("pass", "insert") for act, _ in acts):
        unread.check()
        assert read.windows == unread.windows


def test_what_passes_committed_moves_with_a_splice() -> None:
    found = decoded([("pass", 4), ("insert", 0)], reads=False)
    committed = [{commit.position for commit in step.commits} for step in found.windows[0].steps]
    assert len(committed[0]) == 4 and len(committed[2]) == LENGTH - 4 + 2
    assert not {position + 2 for position in committed[0]} & committed[2]


@pytest.mark.parametrize("tokens", ["draft", "given"])
def test_a_window_is_not_closed_with_what_its_passes_did_not_give_it(tokens: str) -> None:
    class Closing:
        widest = None

        def decode(self, row: Row) -> Iterator[Pass]:
            row.open_window(LENGTH)
            for _ in range(4):
                yield Pass("resolve", 0, LENGTH, 2)
            row.close_window(list(row.draft) if tokens == "draft" else [5] * LENGTH)

    with pytest.raises(UserError, match=r"closed with tokens that its passes did not give it; close it with what Row"):
        generate(MODEL, ["abc"], Closing(), max_new_tokens=LENGTH)


@pytest.mark.parametrize("number", [None, LENGTH])
def test_nor_where_they_have_been_read(number: int | None) -> None:
    class Closing:
        widest = None

        def decode(self, row: Row) -> Iterator[Pass]:
            row.open_window(LENGTH)
            yield Pass("resolve", 0, LENGTH, number)
            row.read_tokens()
            row.close_window([6] * LENGTH)

    with pytest.raises(UserError, match="closed with tokens that its passes did not give it"):
        generate(MODEL, ["abc"], Closing(), max_new_tokens=LENGTH)


ACTS = {
    "remask": lambda row: row.remask([Remask(2, 5, 0.5)]),
    "commit": lambda row: row.commit([Commit(3, 5, 0.5)]),
    "splice": lambda row: row.splice(1, 0, 2),
}


@pytest.mark.parametrize("acts", list(permutations(ACTS, 3)) + list(permutations(ACTS, 2)))
def test_behind_a_pass_a_decoder_acts_in_the_order_of_its_step(acts: tuple[str, ...]) -> None:
    class Doing:
        widest = None

        def decode(self, row: Row) -> Iterator[Pass]:
            row.open_window(LENGTH)
            yield Pass("resolve", 0, LENGTH, None)
            row.commit([Commit(2, 5, 0.5)])
            yield Pass("resolve", 0, LENGTH, None)
            for act in acts:
                ACTS[act](row)
            yield Pass("resolve", 0, row.length, MOST)
            row.close_window(row.read_tokens())

    if list(acts) == [act for act in ACTS if act in acts]:
        [found] = generate(MODEL, ["abc"], Doing(), max_new_tokens=MOST)
        found.check()
    else:
        with pytest.raises(UserError, match="remask first, then commit, then splice"):
            generate(MODEL, ["abc"], Doing(), max_new_tokens=MOST)


@pytest.mark.parametrize("commit", [None, 0, 3])
@pytest.mark.parametrize("before", ["resolve", "weld"])
def test_a_diagnostic_pass_comes_before_all_others_of_its_window(before: Any, commit: int | None) -> None:
    class Probing:
        widest = LENGTH

        def decode(self, row: Row) -> Iterator[Pass]:
            for start in (0, LENGTH):
                row.open_window(LENGTH)
                if start == 0 or commit is None:
                    yield Pass("diagnostic", start, row.length, commit)
                yield Pass(before, start, row.length, LENGTH)
                if start:
                    yield Pass("diagnostic", start, row.length, commit)
                row.close_window(row.read_tokens())

    with pytest.raises(UserError, match=r"of 8 to 16 that comes behind a pass that resolves or welds"):
        generate(MODEL, ["abc"], Probing(), max_new_tokens=2 * LENGTH)
