"""Plain data: what JSON gives back, and what a value is made of again."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dystruct.decoding import AdaBlock, Block, Generation, generate
from dystruct.decoding.baselines import DECODERS
from dystruct.decoding.plain import as_plain, from_plain
from scripted import backbone, hashed

numbers = st.integers(-(2**53), 2**53) | st.floats(allow_nan=False)
leaves = st.none() | st.booleans() | numbers | st.text()
arrays = st.lists(numbers.map(float), max_size=3).map(np.array) | st.lists(numbers.map(float), max_size=3).map(
    lambda found: torch.tensor(found, dtype=torch.float64)
)
values = st.recursive(
    leaves | arrays | st.floats(allow_nan=False).map(np.float64) | st.integers(0, 9).map(np.int64),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(st.text() | st.integers(), inner, max_size=3).filter(
            lambda found: len({str(key) for key in found}) == len(found)
        )
    ),
    max_leaves=8,
)


@dataclass(frozen=True)
class Inner:
    """A part."""

    share: float
    kind: Literal["a", "b"] = "a"


@dataclass(frozen=True)
class Outer:
    """A value with parts of every kind, and a field that is none of its value."""

    inner: tuple[Inner, ...]
    names: dict[int, str]
    wide: int | None = None
    either: bool | Literal["x"] | Inner = False
    pair: tuple[int, str] = (0, "")
    many: list[Inner] = field(default_factory=list)
    beside: list[int] = field(default_factory=list, compare=False)


outers = st.builds(
    Outer,
    st.lists(st.builds(Inner, numbers, st.sampled_from(["a", "b"])), max_size=3).map(tuple),
    st.dictionaries(st.integers(), st.text(), max_size=3),
    st.none() | st.integers(),
    st.booleans() | st.just("x") | st.builds(Inner, numbers),
    st.tuples(st.integers(), st.text()),
    st.lists(st.builds(Inner, numbers), max_size=3),
    st.lists(st.integers()),
)


@given(values)
def test_json_gives_plain_data_back_as_it_is(value: Any) -> None:
    plain = as_plain(value)
    assert json.loads(json.dumps(plain)) == plain
    assert as_plain(plain) == plain


@given(outers)
def test_a_value_comes_back_from_its_plain_data(value: Outer) -> None:
    plain = as_plain(value)
    assert set(plain) == {"inner", "names", "wide", "either", "pair", "many"}
    assert from_plain(Outer, json.loads(json.dumps(plain))) == value


def test_floats_keep_the_digits_that_count() -> None:
    given_values = {
        "a": (1.23456, np.float32(0.5)),
        7: np.array([123456.0, 2e-9]),
        "n": 123456,
        "t": True,
        "s": "1.23456",
    }
    assert as_plain(given_values, 3) == {
        "a": [1.23, 0.5],
        "7": [123000.0, 2e-9],
        "n": 123456,
        "t": True,
        "s": "1.23456",
    }


def test_what_json_has_no_form_for_is_refused_by_json() -> None:
    with pytest.raises(TypeError, match="not JSON serializable"):
        json.dumps(as_plain({"a": [object()]}))


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        ({"names": {"1": 2}}, r"^names\['1'\] is of type int, not str$"),
        ({"inner": [{"share": 0.5}, {"share": True}]}, r"^inner\[1\]\.share is of type bool, not float$"),
        ({"inner": [{"share": 0.5, "kind": "c"}]}, r"^inner\[0\]\.kind is 'c', which is none of 'a', 'b'$"),
        ({"either": None}, r"^either is of type NoneType, not bool$"),
        ({"either": "y"}, r"^either is of type str, not bool$"),
        ({"pair": [1]}, r"^pair has 1 values, not 2$"),
        ({"pair": [1, "a", "b"]}, r"^pair has 3 values, not 2$"),
        ({"pair": [1, 2]}, r"^pair\[1\] is of type int, not str$"),
        ({"many": {}}, r"^many is of type dict, not list"),
        ({"many": [{"share": "x"}]}, r"^many\[0\]\.share is of type str, not float$"),
        ({"inner": [{}]}, r"^inner\[0\] lacks the key 'share'$"),
        ({"beside": []}, r"^it has the unknown key 'beside'$"),
        ({"inner": [{"share": 10**400}]}, r"^inner\[0\]\.share is larger than any float$"),
        ({"inner": [{"share": -(10**400)}]}, r"^inner\[0\]\.share is larger than any float$"),
        *(
            (
                {"names": {"1": "a", key: "b"}},
                rf"^names has the key '{key}', which is not written as one of type int is$",
            )
            for key in ("01", " 1 ", "1_0", "\u0661", "x", "")
        ),
        ({"names": {"1": "\ud800"}}, r"^names\['1'\] is no valid Unicode$"),
        ({"names": {"\udfff": "a"}}, r"^a key of names is no valid Unicode$"),
    ],
)
def test_damage_is_told_with_its_place(damage: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        from_plain(Outer, {"inner": [], "names": {}, **damage})


@pytest.mark.parametrize("data", ["\ud800", ["a", "\udfff"], {"a": ["\ud800"]}, {"\ud800": 1}])
def test_what_no_file_can_hold_is_told_wherever_it_stands(data: Any) -> None:
    with pytest.raises(ValueError, match=r"^(a key of )?settings.* is no valid Unicode$"):
        from_plain(dict[str, Any], {"a": data}, "settings")


@pytest.mark.parametrize("value", [{1: "a", "1": "b"}, [{None: 1, "None": 2}], {"a": {True: 1, "True": 2}}])
def test_keys_that_would_be_one_are_refused(value: Any) -> None:
    with pytest.raises(ValueError, match=r"^two of the keys .* are the same text$"):
        as_plain(value)


@pytest.mark.parametrize("decoder", [kind() for kind in DECODERS.values()], ids=list(DECODERS))
def test_a_decoders_settings_are_plain_data(decoder: Any) -> None:
    assert json.loads(json.dumps(as_plain(decoder))) == as_plain(decoder)


@pytest.mark.parametrize("decoder", [AdaBlock(delimiters=("a", "b")), Block(4)])
def test_a_generations_settings_are_those_of_its_file(decoder: Any) -> None:
    (generation,) = generate(backbone(hashed(1)), ["ab"], decoder, max_new_tokens=4)
    assert json.loads(json.dumps(generation.settings)) == generation.settings
    plain = generation.plain()
    assert plain.pop("format") == "dystruct-trace-1"
    assert from_plain(Generation, plain) == generation
