"""Decoders by name: every setting of DyStruct and of its prior can be given, alone and with others."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, replace
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dystruct.decoding import DECODERS, DyStruct, UserError, generate
from dystruct.decoding.named import KINDS, OPTIONS, WITHOUT_OPTION, WITHOUT_USE, decoder_of, named_decoder
from dystruct.inference import RULES
from dystruct.model import PriorConfig
from scripted import backbone, hashed, uneven_weights

VALUES = (
    9,
    20,
    0.25,
    2.5,
    "sample",
    "mode",
    "share",
    "joint",
    "centred",
    "left-to-right",
    "removed",
    "dynamic",
    "posterior",
)
NO_TEXT = {"prior", "weights"}  # whose values are neither numbers nor words
NO_USE = {"evidence_scale"}  # on which no text depends


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
    return own + [f"prior.{setting.name}" for setting in fields(PriorConfig) if setting.name not in NO_USE]


def _name(setting: str) -> str:
    """How a text calls a setting."""
    return next((option.removeprefix("--") for option, name in OPTIONS.items() if name == setting), setting)


@pytest.mark.parametrize("setting", _settings())
def test_every_setting_can_be_given_by_its_name(setting: str) -> None:
    accepted = list(_accepted(setting))
    assert accepted, f"no value of VALUES is one of {setting}; add one"
    drawn = "structure=sample," if setting == "prior.order_temperature" else ""  # has no use with a most probable order
    for value, decoder in accepted:
        for name in (_name(setting), _name(setting).replace("-", "_")):
            made = named_decoder(f"dystruct:{drawn}{name}={value}")
            assert made == (replace(decoder, structure="sample") if drawn else decoder)


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
    "name",
    ["nothing", "prior", "weights", "prior.evidence_scale", "prior.x", "x.y"],
)
def test_a_setting_that_there_is_not_is_one_clear_error(name: str) -> None:
    with pytest.raises(UserError, match=rf"^There is no setting '{name}' in .*; `dystruct decoders` lists them\.$"):
        named_decoder(f"dystruct:{name}=1")


def test_a_setting_by_its_name_in_python_is_told_the_one_here() -> None:
    renamed = {setting: option for option, setting in OPTIONS.items() if option != f"--{setting.replace('_', '-')}"}
    assert {"weld_radius", "prior.concentration", "prior.context_weight"} == set(renamed)
    for setting, option in renamed.items():
        with pytest.raises(UserError, match=rf"no setting '{setting}' in .*; it is called {option[2:]} here\.$"):
            named_decoder(f"dystruct:{setting}=1")


def test_a_setting_of_the_prior_by_its_own_name_alone_is_told_the_whole_one() -> None:
    called = {setting: option.removeprefix("--") for option, setting in OPTIONS.items()}
    of_prior = [setting for setting in KINDS if setting.startswith("prior.")]
    assert len(of_prior) > 5
    for setting in of_prior:
        alone = setting.removeprefix("prior.")
        with pytest.raises(UserError, match=rf"'{alone}' in .*; it is called {called.get(setting, setting)} here\.$"):
            named_decoder(f"dystruct:{alone}=1")


@pytest.mark.parametrize("decoder", [name for name in DECODERS if name != "dystruct"])
def test_only_dystruct_has_what_has_no_option(decoder: str) -> None:
    for setting in WITHOUT_OPTION:
        with pytest.raises(UserError, match=f"has no setting {setting}; leave it out"):
            decoder_of(decoder, None, {setting: 1})


USELESS = [
    (setting, value, useless) for setting, values, without in WITHOUT_USE for value in values for useless in without
]


@pytest.mark.parametrize(("setting", "value", "useless"), USELESS)
def test_a_setting_that_another_leaves_without_use_is_refused(setting: str, value: str, useless: str) -> None:
    for other, _ in _accepted(useless):
        for listed in (f"{setting}={value},{_name(useless)}={other}", f"{_name(useless)}={other},{setting}={value}"):
            with pytest.raises(UserError, match=rf"{_name(useless)} has no use with (--)?{setting}[ =]{value}; leave"):
                named_decoder(f"dystruct:{listed}")


@pytest.mark.parametrize(("setting", "value", "useless"), USELESS)
def test_what_is_refused_would_change_nothing(setting: str, value: str, useless: str) -> None:
    """Neither a token nor a pass, nor what is drawn; where the other setting does not have this value it does."""
    model = backbone(hashed(1), weights=replace(uneven_weights(), gap_base_rate=0.1))

    def decoded(decoder: DyStruct) -> Any:
        (found,) = generate(model, ["abc"], decoder, max_new_tokens=60, temperature=1.0)
        return found.tokens, [window.steps for window in found.windows]

    inner = useless.removeprefix("prior.")
    useful = False
    for concentration in (3.0, 20.0):  # some blocks and many
        start = DyStruct(structure="sample", prior=PriorConfig(concentration=concentration, context_weight=9.0))
        without = decoded(replace(start, **{setting: value}))
        for other, _ in _accepted(useless):
            change = {useless: other} if inner == useless else {"prior": replace(start.prior, **{inner: other})}
            changed = replace(start, **change)
            useful = useful or decoded(changed) != decoded(start)
            assert decoded(replace(changed, **{setting: value})) == without
    assert useful


@pytest.mark.parametrize("structure", RULES)
@pytest.mark.parametrize("length_law", ["prior", "posterior"])
def test_no_text_depends_on_the_scale_of_the_evidence(
    structure: str, length_law: Literal["prior", "posterior"]
) -> None:
    """So nobody can give it; a change of the concentration, which one can, shows that a prior does count here."""
    model = backbone(hashed(1), weights=uneven_weights())

    def decoded(**prior: float) -> Any:
        decoder = DyStruct(structure=structure, length_law=length_law, prior=PriorConfig(**prior))
        (found,) = generate(model, ["abc"], decoder, max_new_tokens=60, temperature=1.0)
        return found.tokens, found.windows

    assert decoded(evidence_scale=7.0) == decoded(evidence_scale=0.1) == decoded()
    assert decoded(concentration=5.0) != decoded()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("gamma=3,schedule=left-to-right", "--gamma has no use with --schedule left-to-right"),
        ("passes=share,max_passes=48", "max_passes has no use with --passes share"),
        ("prior.order_temperature=2", "prior.order_temperature has no use with structure map, the default"),
        (
            "preset=quick,prior.order_temperature=2",
            "prior.order_temperature has no use with structure map, the default",
        ),
        ("preset=one-block,weld_passes=2", "weld_passes has no use with --preset one-block"),
    ],
)
def test_what_leaves_a_setting_without_use_is_told(text: str, message: str) -> None:
    with pytest.raises(UserError, match=f"^{message}; leave it out\\.$"):
        named_decoder(f"dystruct:{text}")
