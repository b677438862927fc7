"""The options of the decoder: their names, what they mean, their defaults and equations.

One is None unless it was given, so that one which the chosen decoder has no use for is an error and never silently
ignored; `DECODER_SETTINGS` says which setting of the decoder each one is, and `decoder_of` makes the decoder. The
rivals have more of them, in `rival_options`.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Annotated, Any

from ..errors import UserError
from .options import in_options, make_option
from .rival_options import RIVALS, SETTING_OF
from .signatures import OptionGroup

# Option -> field of the decoder's settings; a dot leads into its prior.
DECODER_SETTINGS = {
    "--structure": "structure",
    "--length-rule": "length_rule",
    "--alpha0": "prior.concentration",
    "--edge-base-rate": "edge_base_rate",
    "--gamma": "prior.context_weight",
    "--passes": "passes",
    "--weld": "weld",
    "--r-weld": "weld_radius",
    "--block-length": "block_length",
}

# What has no use when a setting has this value: a window of one block has no cuts, order or boundaries.
WITHOUT_USE = (
    ("structure", "none", ("--alpha0", "--edge-base-rate", "--gamma", "--weld", "--r-weld")),
    ("weld", "off", ("--r-weld",)),
    ("schedule", "left-to-right", ("--gamma",)),
)

_MOST_DIGITS = 18  # of a number of passes

_STRUCTURE = "Decoder and structure"

Decoder = Annotated[
    str,
    make_option(
        _STRUCTURE,
        "--decoder",
        "dystruct; or block, windows of one length and no structure; or a rival, listed by `dystruct decoders`. "
        "Default {default}.",
        metavar="NAME",
    ),
]
Preset = Annotated[
    str | None,
    make_option(
        _STRUCTURE,
        "--preset",
        "paper; appendix, the same with r_weld 4; an ablation: no-schedule, no-weld, no-schedule-no-weld, "
        "fixed-windows or one-block. Default paper. With a rival: faithful, as the original with all its oddities.",
        metavar="NAME",
    ),
]
Structure = Annotated[
    str | None,
    make_option(
        _STRUCTURE,
        "--structure",
        "Partition and order of a window. map: the most probable; sample: a draw from the posterior; consensus: the "
        "partition that agrees best with all others; none: one block. "
        "p(P | O) ∝ prod_g prior(b_g) q_g^b_g (1 - q_g)^(1 - b_g). Default map.",
        metavar="RULE",
    ),
]
LengthRule = Annotated[
    str | None,
    make_option(
        _STRUCTURE,
        "--length-rule",
        "How L ~ Poisson(mu) clipped to 8..48, mu = 8 + (1 - hbar)(48 - 8), gives a window's length: sample, mode or "
        "mean. Default: what suits --structure (map, consensus: mode; sample: sample; none: mean).",
        metavar="RULE",
    ),
]
Alpha0 = Annotated[
    float | None,
    make_option(
        _STRUCTURE,
        "--alpha0",
        "Concentration alpha0 > 0, larger cuts more: alpha_g = alpha0 exp(hbar + ell_g - mean ell). Default 1.5.",
        metavar="X",
    ),
]
EdgeBaseRate = Annotated[
    str | None,
    make_option(
        _STRUCTURE,
        "--edge-base-rate",
        "Whether edge logits keep the base rate r of edges in what they were fitted on. kept: ell as fitted, log odds; "
        "removed: ell - logit r, log likelihood ratios, which cut more. Default kept.",
        metavar="RULE",
    ),
]
Gamma = Annotated[
    float | None,
    make_option(
        _STRUCTURE,
        "--gamma",
        "Weight of a block's anchoring in its priority: rho(B) = -H(B) + gamma C(B). Default 2.",
        metavar="X",
    ),
]
Passes = Annotated[
    str | None,
    make_option(
        _STRUCTURE,
        "--passes",
        "Passes of a block. interpolate: T(B) = 6 + H(B)(18 - 6); share: T(B) = |B| (budget / max-new-tokens) "
        "H(B) / mean H. Default interpolate. With --decoder block a number; default one a token.",
        metavar="RULE",
    ),
]
WeldRule = Annotated[
    str | None,
    make_option(
        _STRUCTURE,
        "--weld",
        "Welding of the boundaries of blocks: sequential, from left to right; joint, all of a window at once; off. "
        "Default sequential.",
        metavar="RULE",
    ),
]
WeldRadius = Annotated[
    int | None,
    make_option(
        _STRUCTURE,
        "--r-weld",
        "Radius r of welding, in tokens: at the boundary b of blocks a..b and b..c the tokens from max(a, b - r) to "
        "min(c, b + r) are refined. Default 10.",
        min=1,
        metavar="N",
    ),
]
BlockLength = Annotated[
    int | None,
    make_option(
        _STRUCTURE,
        "--block-length",
        "With --decoder block: a window's tokens. Default 8. With a rival: a block's.",
        min=1,
        metavar="N",
    ),
]


@dataclass(frozen=True)
class DecoderOptions(OptionGroup):
    """The settings of DyStruct and of Block."""

    structure: Structure = None
    length_rule: LengthRule = None
    alpha0: Alpha0 = None
    edge_base_rate: EdgeBaseRate = None
    gamma: Gamma = None
    passes: Passes = None
    weld: WeldRule = None
    r_weld: WeldRadius = None
    block_length: BlockLength = None

    def given(self) -> dict[str, Any]:
        """Those that were given, by option."""
        return {f"--{name.replace('_', '-')}": value for name, value in vars(self).items() if value is not None}


def decoder_of(name: str, preset: str | None, given: dict[str, Any]) -> Any:
    """The decoder called `name` with the given options (by option name) as its settings.

    preset: the setting to start from. Raises UserError for an unknown name, a value that the decoder refuses, and an
    option that it has no use for.
    """
    from .. import DECODERS

    if name not in DECODERS:
        raise UserError(f"There is no decoder {name!r}; the decoders are {', '.join(DECODERS)}.")
    kind = DECODERS[name]
    settings = {field.name for field in fields(kind)}
    names = {**DECODER_SETTINGS, **SETTING_OF}
    for option in given:
        if names[option].split(".")[0] not in settings:
            raise UserError(f"{option} has no use with --decoder {name}; leave it out.")
    if preset is not None and not hasattr(kind, "preset"):
        if "faithful" not in settings:
            raise UserError(f"--preset has no use with --decoder {name}; leave it out.")
        if preset != "faithful":
            raise UserError(f"There is no preset {preset!r} of --decoder {name}; its only one is faithful.")
    values = {names[option]: value for option, value in given.items()}
    passes = str(values.get("passes", ""))
    if passes.isdecimal() and len(passes) <= _MOST_DIGITS:
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
        raise UserError(in_options(str(error), names)) from error
    _check_use(made, preset, given)
    return made


def _check_use(made: Any, preset: str | None, given: dict[str, Any]) -> None:
    """Raise UserError for a given option of no use with what the decoder's other settings came to be."""
    for setting, value, without in WITHOUT_USE:
        if getattr(made, setting, None) != value:
            continue
        reason = f"--{setting} {value}" if f"--{setting}" in given else f"--preset {preset}"
        for useless in without:
            if useless in given:
                raise UserError(f"{useless} has no use with {reason}; leave it out.")


def named_decoder(text: str) -> Any:
    """The decoder that NAME or NAME:setting=value,… says. Raises UserError for unknown names and refused values.

    A setting is called as its option is, or, where DyStruct's has none, as in Python.
    """
    name, _, listed = text.partition(":")
    given: dict[str, Any] = {}
    in_python: dict[str, Any] = {}
    preset = None
    for item in filter(None, listed.split(",")):
        setting, sign, value = item.partition("=")
        option = f"--{setting.strip().replace('_', '-')}"
        if (field := setting.strip().replace("-", "_")) in IN_PYTHON:
            if field in in_python:
                raise UserError(f"{setting!r} is given twice in {text!r}; give it once.")
            in_python[field] = _value(setting, IN_PYTHON[field], value)
            continue
        if option != "--preset" and option not in _KINDS:
            raise UserError(f"There is no setting {setting!r} in {text!r}; `dystruct decoders` lists them.")
        if option in given or (option == "--preset" and preset is not None):
            raise UserError(f"{setting!r} is given twice in {text!r}; give it once.")
        if not value and (sign or _KINDS.get(option) is not bool):
            raise UserError(f"{setting!r} in {text!r} has no value; give one, as in {setting}=….")
        if option == "--preset":
            preset = value
        else:
            given[option] = _value(setting, _KINDS[option], value) if sign else True
    decoder = decoder_of(name, preset, given)
    for setting, value in in_python.items():
        decoder = _changed(decoder, setting, value)
    return decoder


def _changed(decoder: Any, setting: str, value: Any) -> Any:
    """The decoder with a setting, or one of its prior, changed."""
    holder, _, name = setting.rpartition(".")
    inner: Any = getattr(decoder, holder, None) if holder else decoder
    if not hasattr(inner, name):
        raise UserError(f"The decoder {type(decoder).__name__} has no setting {setting}; leave it out.")
    try:
        inner = replace(inner, **{name: value})
        return replace(decoder, **{holder: inner}) if holder else inner
    except ValueError as error:
        raise UserError(f"{setting}={value} is refused ({str(error).rstrip('.')}); correct it.") from error


# Option -> the kind of its value.
_KINDS: dict[str, Any] = {
    **dict.fromkeys(DECODER_SETTINGS, str),
    "--alpha0": float,
    "--gamma": float,
    "--r-weld": int,
    "--block-length": int,
    **{rival.option: rival.kind for rival in RIVALS},
}
# Setting that has no option -> the kind of its value.
IN_PYTHON: dict[str, Any] = {
    "prior.min_length": int,
    "prior.max_length": int,
    "prior.order_temperature": float,
    "prior.evidence_scale": float,
    "prior.anchoring": str,
    "diagnostic_passes": int,
    "min_passes": int,
    "max_passes": int,
    "weld_passes": int,
    "final_instability": str,
    "schedule": str,
}
_FLAGS = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}


def _value(setting: str, kind: Any, text: str) -> Any:
    """The value of a setting that is written as `text`. Raises UserError if it is of another kind."""
    if kind is str:
        return text
    if kind is bool:
        if text.lower() not in _FLAGS:
            raise UserError(f"{setting} must be one of {', '.join(_FLAGS)}, not {text!r}.")
        return _FLAGS[text.lower()]
    try:
        return kind(text)
    except ValueError as error:
        wanted = "number" if kind is float else "whole number"
        raise UserError(f"{setting} must be a {wanted}, not {text[:80]!r}.") from error
