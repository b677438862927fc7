"""Mistakes that one sentence answers, before anything is computed or overwritten."""

from __future__ import annotations

import json
import os
import stat
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, get_args, get_type_hints

import numpy as np
import pytest

import dystruct.decoding
from command_line import SMALL, Run
from dystruct.decoding import DECODERS, Block, DyStruct, Fixed, Generation, UserError, generate, load
from dystruct.decoding.backbone import loading
from dystruct.decoding.bench import __main__ as bench
from dystruct.decoding.bench import agreement
from dystruct.decoding.evaluation.likelihood import LikelihoodSettings
from dystruct.decoding.evaluation.settings import RunSettings
from dystruct.decoding.files import save_text
from dystruct.decoding.generation_settings import GenerationSettings
from dystruct.decoding.named import decoder_of, named_decoder
from dystruct.inference import LENGTH_RULES, RULES
from dystruct.model import PriorConfig
from scripted import backbone, hashed

MODEL = backbone(hashed(0))


@pytest.fixture
def saved(run: Run) -> Path:
    """A trace on file, in the current folder."""
    run("generate", "abc", *SMALL, "--save", "t.json", "--quiet")
    return Path("t.json")


# --- files ---------------------------------------------------------------------------------------------------------


def test_a_pipe_is_never_replaced(run: Run, saved: Path) -> None:
    os.mkfifo("pipe")
    run("generate", "abc", *SMALL, "--save", "pipe").refused("'pipe'", "no regular file")
    run("show", "t.json", "--svg", "pipe").refused("no regular file")
    with pytest.raises(UserError, match="no regular file"):
        save_text(Path("pipe"), "text")
    with pytest.raises(ValueError, match="no regular file"):
        Generation.load(saved).save("pipe")
    assert stat.S_ISFIFO(os.stat("pipe").st_mode) and sorted(os.listdir()) == ["pipe", "t.json"]


@pytest.mark.parametrize("there", [True, False])
def test_a_symbolic_link_is_written_through(run: Run, saved: Path, there: bool) -> None:
    Path("far").mkdir()
    for name in ("trace.json", "page.svg"):
        if there:
            Path("far", name).write_text("what stood here", encoding="utf-8")
        Path(name).symlink_to(Path("far", name))
    assert run("generate", "bca", *SMALL, "--save", "trace.json", "--quiet").status == 0
    assert run("show", "t.json", "--svg", "page.svg").status == 0
    assert Path("trace.json").is_symlink() and Generation.load("far/trace.json").prompt == "bca"
    assert Path("page.svg").is_symlink() and Path("far/page.svg").read_text(encoding="utf-8").startswith("<svg")
    assert sorted(os.listdir("far")) == ["page.svg", "trace.json"], "nothing half-written is left"


@pytest.mark.parametrize(
    "arguments", [("--html", "t.json"), ("--svg", "./t.json"), ("--html", "other.json", "--beside", "other.json")]
)
def test_a_picture_does_not_replace_the_trace(run: Run, saved: Path, arguments: tuple[str, ...]) -> None:
    before = saved.read_bytes()
    Path("other.json").write_bytes(before)
    run("show", "t.json", *arguments).refused("the trace that is shown")
    assert saved.read_bytes() == Path("other.json").read_bytes() == before


@pytest.mark.parametrize("name", ["x" * 300, f"{'x' * 300}/y", "x/" * 3000 + "y"])
@pytest.mark.parametrize(
    "command",
    [
        "show {}", "show {} --item t:0", "show t.json --svg {}", "show t.json --html {}",
        "show t.json --html p.html --beside {}",
        "generate abc --model {}", "generate abc --save {}", "generate --file {}", "generate abc --weights {}",
        "compare abc --model {}", "compare abc --decoder dystruct --weights {}",
        "accuracy --domain logic --model {}", "accuracy --domain logic --save {}",
        "calibrate {}", "calibrate w.json --domain logic --model {}", "calibrate w.json --file {}",
        "calibrate w.json --save {}", "calibrate w.json --svg {}",
        "train {}", "train a --start-from {}",
        "eval out --tasks tiny_logic --model {}", "eval out --tasks tiny_logic --weights {}",
        "sweep {} out", "tables {} --out out",
    ],
)  # fmt: skip
def test_a_name_that_no_file_can_have_is_refused(
    run: Run, saved: Path, monkeypatch: pytest.MonkeyPatch, command: str, name: str
) -> None:
    if "--model" in command or "--weights" in command:
        monkeypatch.setattr(dystruct.decoding, "load", loading.load)
    run(*command.format(name).split()).refused()
    assert os.listdir() == ["t.json"]


@pytest.mark.parametrize("arguments", [("train", ""), ("calibrate", ""), ("accuracy", "--save", "")])
def test_a_name_that_is_empty_is_refused(run: Run, arguments: tuple[str, ...]) -> None:
    run(*arguments).refused("empty")
    assert os.listdir() == []


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (("opened", "length"), 10**12),
        (("opened", "length"), 500_000),
        (("opened", "length"), -1),
        (("structure", "instability"), [float("inf")] * 20),
        (("structure", "log_probability"), 1e308),
    ],
)
def test_a_trace_of_absurd_numbers_is_refused(run: Run, saved: Path, place: tuple[str, str], value: Any) -> None:
    content = json.loads(saved.read_text(encoding="utf-8"))
    part = content["windows"][0][place[0]]
    part[place[1]] = value[: len(part[place[1]])] if isinstance(value, list) else value
    saved.write_text(json.dumps(content), encoding="utf-8")
    run("show", "t.json").refused("does not fit together")


@pytest.mark.parametrize("arguments", [(), ("--svg", "p.svg"), ("--html", "p.html")])
@pytest.mark.parametrize(
    ("path", "value", "says"),
    [
        (("model",), "\ud801", "(model is no valid Unicode)"),
        (("text",), "\ud801", "(text is no valid Unicode)"),
        (("settings", "decoder"), "\ud801", "(settings['decoder'] is no valid Unicode)"),
        (("seconds",), 10**400, "(seconds is larger than any float)"),
        (("token_texts", "01"), "a", "(token_texts has the key '01', "),
        (("windows", 0, "structure", "order"), [5, 5], "(windows[0].structure.order does not name each of the "),
        (("windows", 0, "structure", "ends"), [99], "(windows[0].structure.ends are not those of blocks of "),
        (("windows", 0, "structure", "ends"), [20, 99], "(windows[0].structure.ends are not those of blocks of "),
        (("windows", 0, "structure", "ends"), [], "(windows[0].structure.ends are not those of blocks of "),
        (("windows", 0, "structure", "passes"), [], "(windows[0].structure.passes holds 0 values, not "),
        (("windows", 0, "structure", "cut_marginals"), [], "(windows[0].structure.cut_marginals holds 0 values, not "),
        (
            ("windows", 0, "steps", 5, "commits", 0, "position"),
            10**9,
            "(windows[0].steps[5] changes a position outside ",
        ),
        (("windows", 0, "steps", 5, "commits", 0, "position"), -1, "(windows[0].steps[5] changes a position outside "),
        (
            ("windows", 0, "steps", 5, "spliced"),
            [{"position": 10**9, "removed": 0, "inserted": 0, "token": None}],
            "(windows[0].steps[5] splices beyond its window)",
        ),
        (
            ("windows", 0, "steps", 5, "commits", 0, "alternatives"),
            [{"token": 10**30, "probability": 0.5}],
            f"(it has no text of token {10**30})",
        ),
    ],
)
def test_a_damaged_trace_is_told_with_its_place(
    run: Run, saved: Path, path: tuple[Any, ...], value: Any, says: str, arguments: tuple[str, ...]
) -> None:
    content = holder = json.loads(saved.read_text(encoding="utf-8"))
    for key in path[:-1]:
        holder = holder[key]
    holder[path[-1]] = value
    saved.write_text(json.dumps(content), encoding="utf-8")
    run("show", "t.json", *arguments).refused("t.json", says, "save it again")
    assert os.listdir() == ["t.json"]


# --- settings ------------------------------------------------------------------------------------------------------


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
        {"length_rule": ["mode"]},
        {"weights": {}},
    ],
)
def test_settings_in_python_are_checked(changes: dict[str, Any]) -> None:
    with pytest.raises(UserError, match=r"must be .*, not [^\n]*\.$"):
        DyStruct(**changes)
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


# --- prompts and stop strings --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("prompts", "settings", "part"),
    [
        ([3], {}, r"prompts\[0\] must be a text"),
        (["abc", None], {}, r"prompts\[1\] must be a text"),
        (None, {}, "prompts must be a list"),
        (["abc", "a\ud800"], {}, r"prompts\[1\].* no valid Unicode"),
        (["abc"], {"stop": None}, "stop must be a list"),
        (["abc"], {"stop": [3]}, "stop must be a list"),
        (["abc"], {"stop": ["\udfff"]}, "no valid Unicode"),
        (["abc"], {"decoder": "dystruct"}, "decoder must be a decoder"),
        (["abc"], {"decoder": DyStruct}, "decoder must be a decoder"),
    ],
)
def test_what_generate_cannot_decode_is_refused(prompts: Any, settings: dict[str, Any], part: str) -> None:
    with pytest.raises(UserError, match=part) as caught:
        generate(MODEL, prompts, **{"decoder": Block(), **settings})
    str(caught.value).encode()


@pytest.mark.parametrize("model", ["tiny", None, load])
def test_generate_takes_a_loaded_model(model: Any) -> None:
    with pytest.raises(UserError, match=r"model must be a loaded model, as load\('tiny'\) gives"):
        generate(model, ["abc"])


def test_compare_refuses_what_is_no_unicode(run: Run) -> None:
    run("compare", "a\udc80").refused("no valid Unicode")
    run("compare", "abc", "--stop", "\udc80").refused("no valid Unicode")


# --- benchmarks ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("program", "arguments", "part"),
    [
        (bench, ("--threads", "0"), "--threads"),
        (bench, ("--rounds", "0"), "--rounds"),
        (bench, ("--rounds", "x"), "--rounds"),
        (bench, ("--out", "nowhere/b.json"), "no folder 'nowhere'"),
        (agreement, ("runs", "--threads", "-1"), "--threads"),
        (agreement, ("runs", "--problems", "0"), "--problems"),
        (agreement, ("runs", "--decoders", "block", "block"), "twice"),
        (agreement, ("file/runs",), "'file/runs'"),
        (bench, ("--out", "x" * 300), "choose another name"),
        (agreement, ("x" * 300,), "cannot be made"),
    ],
)
def test_benchmarks_refuse_before_they_measure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any, program: Any, arguments: tuple[str, ...], part: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("file").write_text("", encoding="utf-8")
    monkeypatch.setattr(agreement, "load", lambda *_: pytest.fail("it loads a model"))
    monkeypatch.setattr(agreement.torch, "set_num_threads", lambda _: None)
    with pytest.raises(SystemExit) as exit:
        program.main(list(arguments))
    assert exit.value.code == 2 and part in capsys.readouterr().err
    assert os.listdir() == ["file"]


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
@pytest.mark.parametrize("value", [None, 7, "text"])
def test_the_lists_of_a_run_are_lists(name: str, value: Any) -> None:
    with pytest.raises(UserError, match=rf"{name}.* must be a list"):
        RunSettings(**{"tasks": ("tiny_logic",), name: value})


def test_the_lists_of_a_run_are_read_once() -> None:
    once: dict[str, Any] = {"tasks": iter(["tiny_logic"]), "seeds": map(np.int64, (0, 1)), "stop": iter(["a", "b"])}
    run = RunSettings(**once)
    assert (run.tasks, run.seeds, run.stop) == (("tiny_logic",), (0, 1), ("a", "b"))
    assert all(type(seed) is int for seed in run.seeds)
