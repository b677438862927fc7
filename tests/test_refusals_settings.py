"""Settings of decoders, of `generate` and of runs: what they may be is told when they are made."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path
from typing import Any, get_args, get_type_hints

import numpy as np
import pytest

from command_line import SMALL, Run
from dystruct.decoding import DECODERS, Block, DyStruct, Fixed, UserError, generate
from dystruct.decoding.evaluation.likelihood import LikelihoodSettings
from dystruct.decoding.evaluation.settings import RunSettings
from dystruct.decoding.generation_settings import GenerationSettings
from dystruct.decoding.named import _kinds, decoder_of, named_decoder
from dystruct.inference import LENGTH_RULES, RULES
from dystruct.model import PriorConfig
from scripted import backbone, hashed

MODEL = backbone(hashed(0))
CHOSEN = [name for name, hint in get_type_hints(DyStruct).items() if str in _kinds(hint)]  # from among some texts


@pytest.mark.parametrize(
    ("preset", "option"),
    [
        *(("one-block", option) for option in ("--alpha0", "--gamma", "--weld", "--edge-base-rate", "--r-weld")),
        ("no-weld", "--r-weld"),
        ("no-schedule-no-weld", "--r-weld"),
        ("no-schedule", "--gamma"),
    ],
)
def test_an_option_without_use_in_a_preset_is_refused(preset: str, option: str) -> None:
    value = {"--weld": "joint", "--edge-base-rate": "removed"}.get(option, 3)
    with pytest.raises(UserError, match=f"^{option} has no use with --preset {preset}; leave it out\\.$"):
        decoder_of("dystruct", preset, {option: value})


def test_settings_of_a_name_and_options_come_to_the_same(run: Run) -> None:
    made = named_decoder("dystruct:schedule=left-to-right,alpha0=2", {"--r-weld": 3, "--preset": "quick"})
    assert made == named_decoder("dystruct:preset=quick,schedule=left-to-right,alpha0=2,r-weld=3")
    for again in ("r-weld=4", "r_weld=3", "preset=paper"):
        with pytest.raises(UserError, match=r"is given twice, since 'dystruct:.*' has it; give it once"):
            named_decoder(f"dystruct:{again}", {"--r-weld": 3, "--preset": "quick"})
    for verb in (("generate", "abc"), ("accuracy", "--domain", "logic")):
        run(*verb, "--decoder", "block:block-length=4", "--block-length", "8").refused("--block-length is given twice")
        run(*verb, "--decoder", "nothing:block-length=4").refused("There is no decoder 'nothing'")
        run(*verb, "--decoder", "block:r-weld=4").refused("--r-weld has no use with --decoder block")
        run(*verb, "--decoder", "block:block-length=4", "--weights", "w.json").refused("--weights has no use without")
    assert run("generate", "abc", *SMALL, "--decoder", "block:block-length=4", "--quiet").status == 0


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("preset=fixed-windows,length-rule={}", "--preset fixed-windows"),
        ("length-rule={},prior.max_length=8", "prior.max_length=8"),
        ("prior.max_length=20,length-rule={},prior.min_length=20", "prior.min_length=20, prior.max_length=20"),
    ],
)
def test_windows_of_one_length_have_no_use_for_a_length_rule(text: str, reason: str) -> None:
    for rule in LENGTH_RULES:
        with pytest.raises(UserError, match=f"^--length-rule has no use with {reason}, where windows have one length"):
            named_decoder(f"dystruct:{text.format(rule)}")
        again = named_decoder(f"dystruct:preset=fixed-windows,length-rule={rule},prior.min_length=8")
        assert (again.length_rule, again.prior.min_length) == (rule, 8)


@pytest.mark.parametrize("structure", RULES)
def test_a_length_rule_changes_nothing_where_windows_have_one_length(structure: str) -> None:
    """Nor do the streams that partition, order and tokens are drawn from."""
    decoder = DyStruct.preset("fixed-windows", structure=structure)
    found = [
        generate(MODEL, ["abc"], replace(decoder, length_rule=rule), max_new_tokens=60, temperature=1.0)[0].windows
        for rule in (None, *LENGTH_RULES)
    ]
    assert all(windows == found[0] for windows in found)


def test_an_option_that_gives_a_preset_a_use_again_is_taken() -> None:
    made = decoder_of("dystruct", "no-weld", {"--weld": "joint", "--r-weld": 3})
    assert (made.weld, made.weld_radius) == ("joint", 3)
    assert decoder_of("dystruct", "one-block", {"--structure": "map", "--alpha0": 3.0}).prior.concentration == 3.0


@pytest.mark.parametrize(
    ("text", "suppressed"),
    [("fixed:suppress-eos", True), ("fixed:suppress-eos=Yes", True), ("fixed", False)]
    + [(f"fixed:suppress-eos={word}", False) for word in ("no", "false", "off")],
)
def test_a_flag_after_the_colon(text: str, suppressed: bool) -> None:
    assert named_decoder(text) == Fixed(suppress_eos=suppressed)


def test_numbers_after_the_colon() -> None:
    assert named_decoder("dystruct:alpha0=2,r-weld=3") == DyStruct(prior=PriorConfig(concentration=2), weld_radius=3)
    assert named_decoder("block:passes=3,block_length=4") == Block(4, 3)


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("fixed:suppress-eos=maybe", "'maybe'"),
        ("fixed:steps", "has no value"),
        ("fixed:steps=", "has no value"),
        ("fixed:suppress-eos=", "has no value"),
        ("dystruct:preset", "has no value"),
        ("fixed:steps=3,steps=4", "given twice"),
        ("fixed:block-length=3,block_length=4", "given twice"),
        ("dystruct:preset=paper,preset=paper", "given twice"),
        ("dystruct:alpha0=abc", "alpha0 must be a number"),
        ("dystruct:alpha0=1e308", "--alpha0 must be at most"),
        ("dystruct:alpha0=" + "9" * 400, "--alpha0 must"),
        ("dystruct:gamma=1e308", "--gamma must be at most"),
        ("dystruct:structure=3", "--structure must be one of"),
        ("dystruct:structure", "has no value"),
        ("fixed:defer-eos,end-of-turn=abc", "end-of-turn must be a whole number"),
        ("dystruct:passes=²", "--passes must be one of"),
        ("block:passes=²", "--passes must be a whole number"),
        ("block:passes=" + "9" * 5000, "--passes must be a whole number"),
    ],
)
def test_what_stands_after_the_colon_is_checked(text: str, part: str) -> None:
    with pytest.raises(UserError, match=part):
        named_decoder(text)


@pytest.mark.parametrize(
    "changes",
    [
        {"prior": {}},
        {"prior": PriorConfig(max_length=10**9)},
        {"prior": PriorConfig(concentration=1e308)},
        {"structure": 3},
        {"structure": ["map"]},
        *({name: value} for name in CHOSEN for value in (np.array("map"), np.array(["sorted", "off"]), [], b"share")),
        {"length_rule": ["mode"]},
        {"weights": {}},
    ],
)
def test_settings_in_python_are_checked(changes: dict[str, Any]) -> None:
    with pytest.raises(UserError, match=r"must be .*, not [^\n]*\.$"):
        DyStruct(**changes)
    with pytest.raises(UserError, match="put a function of your own into a StructureRule"):
        DyStruct(structure=lambda exact, streams: exact.map())  # type: ignore[arg-type]
    with pytest.raises(UserError, match="end_of_turn"):
        Fixed(defer_eos=True, end_of_turn="abc")  # type: ignore[arg-type]


def _numeric(settings: type) -> list[str]:
    """The settings that are numbers, and no flags."""
    hints = get_type_hints(settings)
    kinds = {name: {hint, *get_args(hint)} for name, hint in hints.items()}
    return [f.name for f in fields(settings) if kinds[f.name] & {int, float} and bool not in kinds[f.name]]


@pytest.mark.parametrize(
    ("settings", "name"),
    [(kind, name) for kind in (*DECODERS.values(), PriorConfig, LikelihoodSettings) for name in _numeric(kind)],
)
@pytest.mark.parametrize("value", [True, False, "3", None])
def test_what_is_no_number_is_refused(settings: Any, name: str, value: Any) -> None:
    if value is None and type(None) in get_args(get_type_hints(settings)[name]):
        settings(**{name: None})
        return
    with pytest.raises(ValueError, match=rf"{name} .*must be .*{value!r}\.$"):
        settings(**{name: value})


@pytest.mark.parametrize("name", ["max_new_tokens", "budget", "batch_size", "seed", "temperature", "alternatives"])
def test_a_truth_value_is_no_limit(name: str) -> None:
    with pytest.raises(UserError, match=rf"^{name} must be .*, not True\.$"):
        generate(MODEL, ["abc"], Block(), **{name: True})


@pytest.mark.parametrize("digits", ["\u0663", "1_0", "\uff11"])
def test_numbers_are_written_in_plain_digits(run: Run, digits: str) -> None:
    run("eval", "out", "--tasks", "tiny_maths", "--seeds", digits).refused(
        "--seeds must be whole numbers", repr(digits)
    )
    for setting in ("min_passes", "passes", "alpha0", "threshold"):
        with pytest.raises(UserError, match=rf"{setting} must be .*not {digits!r}"):
            named_decoder(f"dystruct:{setting}={digits}")
    with pytest.raises(UserError, match=rf"passes must be .*not {digits!r}"):
        named_decoder(f"block:passes={digits}")
    assert not Path("out").exists()


@pytest.mark.parametrize(
    ("settings", "name"),
    [(kind, name) for kind in (*DECODERS.values(), LikelihoodSettings) for name in _numeric(kind)],
)
def test_a_number_beyond_all_is_refused_and_one_of_numpy_becomes_an_int(settings: Any, name: str) -> None:
    with pytest.raises(ValueError, match=rf"^{name} must be .*\.$"):
        settings(**{name: 10**5000})
    default = getattr(settings(), name)
    if isinstance(default, int):
        assert type(getattr(settings(**{name: np.int64(default)}), name)) is int


@pytest.mark.parametrize("name", ["max_new_tokens", "budget", "batch_size", "seed", "temperature", "alternatives"])
def test_a_limit_beyond_all_is_refused(name: str) -> None:
    with pytest.raises(UserError, match=rf"^{name} must be .*\.$"):
        generate(MODEL, ["abc"], Block(), **{name: 10**400})


def _flags(settings: type) -> list[str]:
    return [field.name for field in fields(settings) if field.type == "bool"]


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        (kind, name)
        for kind in (*DECODERS.values(), LikelihoodSettings, RunSettings, GenerationSettings)
        for name in _flags(kind)
    ],
)
@pytest.mark.parametrize("value", ["no", 1, None, np.array([1, 2])])
def test_a_flag_is_true_or_false(settings: Any, name: str, value: Any) -> None:
    given = {"tasks": ("tiny_logic",)} if settings is RunSettings else {}
    with pytest.raises(UserError, match=rf"^{name} must be True or False, not .*\.$"):
        settings(**given, **{name: value})


@pytest.mark.parametrize("name", ["tasks", "seeds", "stop"])
@pytest.mark.parametrize("value", [None, 7, "text", np.array("text"), np.array(7)])
def test_the_lists_of_a_run_are_lists(name: str, value: Any) -> None:
    with pytest.raises(UserError, match=rf"{name}.* must be a list"):
        RunSettings(**{"tasks": ("tiny_logic",), name: value})


def test_the_lists_of_a_run_are_read_once() -> None:
    once: dict[str, Any] = {"tasks": iter(["tiny_logic"]), "seeds": map(np.int64, (0, 1)), "stop": iter(["a", "b"])}
    run = RunSettings(**once)
    assert (run.tasks, run.seeds, run.stop) == (("tiny_logic",), (0, 1), ("a", "b"))
    assert all(type(seed) is int for seed in run.seeds)
