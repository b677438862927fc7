"""Decoders by name: every setting of DyStruct and of its prior can be given, alone and with others."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dystruct.decoding import DECODERS, DyStruct, UserError
from dystruct.decoding.named import OPTIONS, WITHOUT_OPTION, decoder_of, named_decoder
from dystruct.model import PriorConfig

VALUES = (9, 20, 0.25, 2.5, "sample", "mode", "share", "joint", "centred", "left-to-right", "removed", "dynamic")
NO_TEXT = {"prior", "weights"}  # whose values are neither numbers nor words


def _changed(setting: str, value: Any) -> DyStruct:
    """DyStruct with one setting changed, in Python."""
    inner = setting.removeprefix("prior.")
    if inner != setting:
        return DyStruct(prior=replace(PriorConfig(), **{inner: value}))
    return replace(DyStruct(), **{setting: value})


def _accepted(setting: str) -> Iterator[tuple[Any, DyStruct]]:
    """Those of `VALUES` that the setting takes and that are not its default, each with the decoder."""
    for value in VALUES:
        try:
            decoder = _changed(setting, value)
        except (ValueError, TypeError):
            continue
        if decoder != DyStruct():
            yield value, decoder


def _settings() -> list[str]:
    own = [setting.name for setting in fields(DyStruct) if setting.name not in NO_TEXT]
    return own + [f"prior.{setting.name}" for setting in fields(PriorConfig)]


def _name(setting: str) -> str:
    """How a text calls a setting."""
    return next((option.removeprefix("--") for option, name in OPTIONS.items() if name == setting), setting)


@pytest.mark.parametrize("setting", _settings())
def test_every_setting_can_be_given_by_its_name(setting: str) -> None:
    accepted = list(_accepted(setting))
    assert accepted, f"no value of VALUES is one of {setting}; add one"
    for value, decoder in accepted:
        for name in (_name(setting), _name(setting).replace("-", "_")):
            assert named_decoder(f"dystruct:{name}={value}") == decoder


@given(st.integers(1, 80), st.integers(1, 80), st.integers(1, 80), st.integers(1, 80), st.booleans())
def test_settings_that_depend_on_each_other_are_taken_together(
    shortest: int, longest: int, fewest: int, most: int, backwards: bool
) -> None:
    """Whatever comes first, only what all of them come to is checked."""
    listed = [
        f"prior.min_length={shortest}", f"prior.max_length={longest}", f"min_passes={fewest}", f"max_passes={most}"
    ]  # fmt: skip
    text = "dystruct:" + ",".join(listed[::-1] if backwards else listed)
    if shortest <= longest and fewest <= most:
        prior = PriorConfig(min_length=shortest, max_length=longest)
        assert named_decoder(text) == DyStruct(prior=prior, min_passes=fewest, max_passes=most)
    else:
        with pytest.raises(UserError, match=r"(min_length=\d+|min_passes=\d+).* is refused .*; correct it\.$"):
            named_decoder(text)


@pytest.mark.parametrize(
    "name", ["nothing", "prior", "weights", "weld_radius", "prior.concentration", "prior.x", "x.y"]
)
def test_a_setting_that_there_is_not_is_one_clear_error(name: str) -> None:
    with pytest.raises(UserError, match=rf"^There is no setting '{name}' in .*; `dystruct decoders` lists them\.$"):
        named_decoder(f"dystruct:{name}=1")


@pytest.mark.parametrize("decoder", [name for name in DECODERS if name != "dystruct"])
def test_only_dystruct_has_what_has_no_option(decoder: str) -> None:
    for setting in WITHOUT_OPTION:
        with pytest.raises(UserError, match=f"has no setting {setting}; leave it out"):
            decoder_of(decoder, None, {setting: 1})


def test_a_setting_that_the_text_leaves_without_use_is_refused() -> None:
    with pytest.raises(UserError, match=r"^--gamma has no use with schedule=left-to-right; leave it out\.$"):
        named_decoder("dystruct:gamma=3,schedule=left-to-right")
