"""Decoders by name: NAME, or NAME:setting=value,… as the command line and a sweep's file take it.

What settings there are, and of which kind, is read from the decoders themselves. A setting is called as its option on
the command line is, or, where it has none, as in Python; one that the chosen decoder has no use for is an error and
never silently ignored.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from .baselines import DECODERS
from .dystruct import PRESETS
from .errors import UserError, in_options
from .kinds import in_digits

# Option -> setting of DyStruct and Block, a dot leading into the prior; the rivals' options are called as settings are.
DECODER_SETTINGS = {
    "--structure": "structure",
    "--length-rule": "length_rule",
    "--length-law": "length_law",
    "--alpha0": "prior.concentration",
    "--edge-base-rate": "edge_base_rate",
    "--gamma": "prior.context_weight",
    "--schedule": "schedule",
    "--passes": "passes",
    "--weld": "weld",
    "--r-weld": "weld_radius",
    "--block-length": "block_length",
}

# What has no use when a setting has one of these values: a window of one block has no cuts, order or boundaries; only a
# drawn order depends on how flat its law is.
WITHOUT_USE: tuple[tuple[str, tuple[str, ...], tuple[str, ...]], ...] = (
    (
        "structure", ("none",),
        ("prior.concentration", "edge_base_rate", "prior.context_weight", "prior.order_temperature", "prior.anchoring",
         "schedule", "weld", "weld_radius", "weld_passes"),
    ),
    ("passes", ("share",), ("min_passes", "max_passes")),
    ("weld", ("off",), ("weld_radius", "weld_passes")),
    ("schedule", ("left-to-right",), ("prior.context_weight", "prior.order_temperature", "prior.anchoring")),
    ("schedule", ("sorted",), ("prior.order_temperature",)),
    ("structure", ("map", "consensus"), ("prior.order_temperature",)),
)  # fmt: skip

_NOT_GIVEN = ("faithful", "evidence_scale")  # the one is a preset; on the other no structure depends, nor any length
_OF_THE_LENGTH = ("prior.concentration", "edge_base_rate")  # what the posterior of a length has use for without cuts
_MOST_DIGITS = 18  # of a number of passes
_FLAGS = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}


def _kinds(hint: Any) -> set[type]:
    """The types that an annotation allows, with those of its literal values."""
    if get_origin(hint) is Literal:
        return {type(value) for value in get_args(hint)}
    if get_origin(hint) in (Union, UnionType):
        return {kind for part in get_args(hint) for kind in _kinds(part)}
    return {hint}


def _settings(decoder: type, within: str = "") -> Iterator[tuple[str, type]]:
    """The settings of a decoder that a text can give, each with its kind."""
    hints = get_type_hints(decoder)
    for setting in fields(decoder):
        kinds = _kinds(hints[setting.name])
        kind = next((kind for kind in (str, bool, float, int) if kind in kinds), None)
        if is_dataclass(setting.default):
            yield from _settings(type(setting.default), f"{setting.name}.")
        elif kind is not None and setting.name not in _NOT_GIVEN:
            yield within + setting.name, kind


def _all_kinds() -> dict[str, type]:
    """Setting -> kind of its value; text where the decoders that have it differ."""
    found: dict[str, type] = {}
    for decoder in DECODERS.values():
        for setting, kind in _settings(decoder):
            found[setting] = kind if found.get(setting, kind) is kind else str
    return found


KINDS = _all_kinds()

# Option -> setting, of all decoders.
OPTIONS = {
    **DECODER_SETTINGS,
    **{
        f"--{setting.replace('_', '-')}": setting
        for name, decoder in DECODERS.items()
        if name != "dystruct"
        for setting, _ in _settings(decoder)
    },
}

# The settings that have no option.
WITHOUT_OPTION = tuple(setting for setting in KINDS if setting not in OPTIONS.values())


def named_decoder(text: str, options: Mapping[str, Any] | None = None) -> Any:
    """The decoder that NAME or NAME:setting=value,… says. Raises UserError for unknown names and refused values.

    options: further settings by option name, "--preset" among them.
    """
    name, _, listed = text.partition(":")
    _kind(name)
    given: dict[str, Any] = {}
    for item in filter(None, listed.split(",")):
        setting, sign, value = item.partition("=")
        key = _key(setting, text)
        kind = str if key == "--preset" else KINDS[OPTIONS.get(key, key)]
        if key in given:
            raise UserError(f"{setting!r} is given twice in {text!r}; give it once.")
        if not value and (sign or kind is not bool):
            raise UserError(f"{setting!r} in {text!r} has no value; give one, as in {setting}=….")
        given[key] = _value(setting, kind, value) if sign else True
    for key in options or {}:
        if key in given:
            raise UserError(f"{key} is given twice, since {text!r} has it; give it once.")
    given |= options or {}
    return decoder_of(name, given.pop("--preset", None), given)


def decoder_of(name: str, preset: str | None, given: Mapping[str, Any]) -> Any:
    """The decoder called `name` with the given settings, by option name or, where they have none, by their own.

    preset: the setting to start from. Raises UserError for an unknown name, a value that the decoder refuses, and a
    setting that it has no use for.
    """
    kind = _kind(name)
    settings = {field.name for field in fields(kind)}
    values = {OPTIONS.get(key, key): value for key, value in given.items()}
    for key, setting in zip(given, values, strict=True):
        if setting.split(".")[0] not in settings:
            if key in OPTIONS:
                raise UserError(f"{key} has no use with --decoder {name}; leave it out.")
            raise UserError(f"The decoder {kind.__name__} has no setting {key}; leave it out.")
    if preset is not None and not hasattr(kind, "preset"):
        if "faithful" not in settings:
            raise UserError(f"--preset has no use with --decoder {name}; leave it out.")
        if preset != "faithful":
            raise UserError(f"There is no preset {preset!r} of --decoder {name}; its only one is faithful.")
    passes = str(values.get("passes", ""))
    if passes.isascii() and passes.isdecimal() and len(passes) <= _MOST_DIGITS:
        values["passes"] = int(passes)
    try:
        if not hasattr(kind, "preset"):
            return kind(**values, **({} if preset is None else {"faithful": True}))
        made = kind() if preset is None else kind.preset(preset)
        prior = {key.removeprefix("prior."): values.pop(key) for key in list(values) if key.startswith("prior.")}
        if prior:
            values["prior"] = replace(made.prior, **prior)
        made = replace(made, **values)
    except ValueError as error:
        raise UserError(_refusal(str(error), given)) from error
    _check_use(made, preset, given)
    return made


def _kind(name: str) -> type:
    """The decoder called so. Raises UserError if there is none."""
    if name not in DECODERS:
        raise UserError(f"There is no decoder {name!r}; the decoders are {', '.join(DECODERS)}.")
    return DECODERS[name]


def _key(setting: str, text: str) -> str:
    """What a setting of `text` is called in `decoder_of`. Raises UserError if there is no such setting."""
    written = setting.strip().replace("-", "_")
    option = f"--{written.replace('_', '-')}"
    if option == "--preset" or option in OPTIONS:
        return option
    if written not in WITHOUT_OPTION:
        options = {setting: known.removeprefix("--") for known, setting in OPTIONS.items()}
        own = [setting for setting, _ in _settings(_kind(text.partition(":")[0]))]
        meant = [options.get(setting, setting) for setting in own if written in (setting, setting.split(".")[-1])]
        remedy = f"it is called {meant[0]} here" if meant else "`dystruct decoders` lists them"
        raise UserError(f"There is no setting {setting!r} in {text!r}; {remedy}.")
    return written


def _value(setting: str, kind: type, text: str) -> Any:
    """The value of a setting that is written as `text`. Raises UserError if it is of another kind."""
    if kind is str:
        return text
    if kind is bool:
        if text.lower() not in _FLAGS:
            raise UserError(f"{setting} must be one of {', '.join(_FLAGS)}, not {text!r}.")
        return _FLAGS[text.lower()]
    try:
        if not in_digits(text):
            raise ValueError(text)
        return kind(text)
    except ValueError as error:
        wanted = "number" if kind is float else "whole number"
        raise UserError(f"{setting} must be a {wanted}, not {text[:80]!r}.") from error


def _refusal(message: str, given: Mapping[str, Any]) -> str:
    """A decoder's error, told of what was given."""
    told = in_options(message, OPTIONS)
    others = [key for key in given if key not in OPTIONS and key.split(".")[-1] in message]
    if told != message or not others:
        return told
    blamed = ", ".join(f"{key}={given[key]}" for key in others)
    return f"{blamed} is refused ({message.rstrip('.')}); correct it."


def _check_use(made: Any, preset: str | None, given: Mapping[str, Any]) -> None:
    """Raise UserError for a given setting of no use with what the decoder's other settings came to be."""
    keys = {OPTIONS.get(key, key): key for key in given}
    for setting, values, without in WITHOUT_USE:
        value = getattr(made, setting, None)
        if value not in values:
            continue
        if setting in keys:
            reason = f"--{setting} {value}" if keys[setting] == f"--{setting}" else f"{setting}={value}"
        else:
            by_preset = preset is not None and setting in PRESETS[preset]
            reason = f"--preset {preset}" if by_preset else f"{setting} {value}, the default"
        used = _OF_THE_LENGTH if getattr(made, "length_law", None) == "posterior" else ()
        for useless in without:
            if useless in keys and useless not in used:
                raise UserError(f"{keys[useless]} has no use with {reason}; leave it out.")
    prior = getattr(made, "prior", None)
    of_length = [key for key in ("--length-rule", "--length-law") if key in given]
    if of_length and prior is not None and prior.min_length == prior.max_length:
        bounds = [key for key in ("prior.min_length", "prior.max_length") if key in given]
        reason = ", ".join(f"{key}={given[key]}" for key in bounds) or f"--preset {preset}"
        raise UserError(f"{of_length[0]} has no use with {reason}, where windows have one length; leave it out.")
