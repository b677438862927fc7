"""Going on with a run: the setting that differs is named, and a setting that is new since costs no run its folder."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from command_line import Run
from dystruct.decoding import UserError
from dystruct.decoding.evaluation import tasks
from dystruct.decoding.evaluation.agreement import compare, filled
from dystruct.decoding.evaluation.local import run_local
from dystruct.decoding.evaluation.run_record import read_items, read_run
from dystruct.decoding.evaluation.settings import RunSettings
from dystruct.decoding.tiny.problem import Problem
from evaluation_runs import with_the_embedded_models_weights
from scripted import backbone, hashed

SETTINGS = RunSettings(tasks=("tiny_logic",), decoder="dystruct", limit=1, max_new_tokens=4, budget=4)
PLAIN = st.recursive(
    st.none() | st.integers(0, 2) | st.text("ab", max_size=2),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("xyz"), inner, max_size=3),
    max_leaves=8,
)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> None:
    found = [Problem("logic", "k", text, "", "a") for text in ("ab", "cd")]
    monkeypatch.setattr(tasks, "items", lambda task, split="test", limit=None: found[:limit])


def run(folder: Path, settings: RunSettings = SETTINGS) -> None:
    run_local(settings, backbone(hashed(3)), {"name": "scripted"}, folder)


def edit(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    content = read_run(folder)
    change(content["settings"]["decoder_settings"])
    (folder / "run.json").write_text(json.dumps(content))


@given(PLAIN, PLAIN)
def test_settings_agree_if_and_only_if_they_are_equal(one: Any, other: Any) -> None:
    if one == other:
        compare({"a": one}, {"a": other}, Path("run"))
    else:
        with pytest.raises(UserError, match=r"^The run in 'run' has .*a.*; .*name another folder\.$"):
            compare({"a": one}, {"a": other}, Path("run"))


@pytest.mark.parametrize(
    ("one", "other", "says"),
    [
        ({"budget": 4}, {"budget": 5}, "has budget 4, not 5; go on with its settings, or name another folder."),
        (
            {"decoder_settings": {"prior": {"min_length": 8, "max_length": 48}, "passes": "share"}},
            {"decoder_settings": {"prior": {"min_length": 8, "max_length": 64}, "passes": "share"}},
            "has decoder_settings.prior.max_length 48, not 64; name another folder.",
        ),
        (
            {"decoder_settings": {"a": 1}},
            {"decoder_settings": {"a": 1, "b": None}},
            "has no decoder_settings.b, which is null now; name another folder.",
        ),
        (
            {"decoder_settings": {"a": 1, "b": None}},
            {"decoder_settings": {"a": 1}},
            "has decoder_settings.b null, which there is not now; name another folder.",
        ),
        (
            {"model": {"name": "m", "fingerprint": "f"}},
            {"model": {"name": "m", "fingerprint": "g"}},
            'has model.fingerprint "f", not "g"; go on with its model, or name another folder.',
        ),
        (
            {"limit": 2, "tasks": {"a": {"items": 2}}},
            {"limit": 2, "tasks": {"b": {"items": 2}}},
            'has tasks ["a"], not ["b"]; go on with its settings, or name another folder.',
        ),
    ],
)
def test_the_innermost_setting_is_named_with_what_can_be_done(one: Any, other: Any, says: str) -> None:
    with pytest.raises(UserError) as error:
        compare(one, other, Path("run"))
    assert str(error.value) == f"The run in 'run' {says}"


@pytest.mark.parametrize("shared", [0, 50, 118, 119, 120, 121, 400])
def test_long_values_are_shown_where_they_differ(shared: int) -> None:
    with pytest.raises(UserError) as error:
        compare({"decoder": "x" * shared + "old" * 60}, {"decoder": "x" * shared + "new" * 60}, Path("run"))
    one, _, other = str(error.value).partition(", not ")
    assert "xold" in one or '"old' in one
    assert "xnew" in other or '"new' in other
    assert len(str(error.value)) < 400


@given(PLAIN, PLAIN)
def test_what_is_free_may_differ_and_nothing_else(one: Any, other: Any) -> None:
    def check(**changed: Any) -> None:
        asked = {"b": other, "c": {"d": other, "da": 1}, "a": 1, **changed}
        compare({"b": one, "c": {"d": one, "da": 1}, "a": 1}, asked, Path("run"), ("b", "c.d"))

    check()
    with pytest.raises(UserError, match="has a 1, not 2"):
        check(a=2)
    with pytest.raises(UserError, match=r"has c\.da 1, not 2"):
        check(c={"d": other, "da": 2})
    if one != other:
        with pytest.raises(UserError, match=r"has (no )?c\.d"):
            compare({"c": {"d": one}}, {"c": {"d": other}}, Path("run"), ("b", "c.da"))


def test_a_run_goes_on_with_another_batch_size_and_says_which_one_each_attempt_had(tmp_path: Path, asked: None) -> None:
    """As it must where the device's memory was too small; the texts are those of a run that nothing befell."""
    run(tmp_path / "whole", replace(SETTINGS, limit=2, batch_size=1))
    run(tmp_path / "run", replace(SETTINGS, batch_size=7))
    run(tmp_path / "run", replace(SETTINGS, limit=2, batch_size=2))
    run(tmp_path / "run", replace(SETTINGS, limit=2, batch_size=1))
    found = read_run(tmp_path / "run")
    assert [attempt["batch_size"] for attempt in found["environments"]] == [7, 2, 1]
    assert found["settings"]["batch_size"] == 1, "of the newest attempt"
    items, whole = (read_items(tmp_path / name) for name in ("run", "whole"))
    assert [item["text"] for item in items] == [item["text"] for item in whole]
    assert [found["environments"][item["attempt"]]["batch_size"] for item in items] == [7, 2]


def test_a_run_of_as_many_items_as_there_are_goes_on_as_one_of_all(tmp_path: Path, asked: None) -> None:
    run(tmp_path, replace(SETTINGS, limit=2))
    before = read_items(tmp_path)
    run(tmp_path, replace(SETTINGS, limit=None))
    assert read_items(tmp_path) == before and len(before) == 2


def test_what_is_missing_on_record_is_the_default() -> None:
    found = {"a": {"b": {"c": 1}, "d": 2}}
    assert filled(found, {"a": {"b": {"c": 5, "e": 6}, "d": 7, "f": {"g": 8}}, "h": {"i": 9}}) == {
        "a": {"b": {"c": 1, "e": 6}, "d": 2, "f": {"g": 8}}
    }
    assert found == {"a": {"b": {"c": 1}, "d": 2}}


@pytest.mark.parametrize("within", ["", "prior"])
def test_a_run_from_before_a_setting_goes_on_and_takes_it_on(tmp_path: Path, asked: None, within: str) -> None:
    """Such a run was made with what is now the setting's default; it can still be prolonged."""
    run(tmp_path)
    whole = read_run(tmp_path)["settings"]
    edit(tmp_path, lambda of: (of[within] if within else of).pop("anchoring" if within else "threshold"))
    run(tmp_path)
    assert read_run(tmp_path)["settings"] == whole
    edit(tmp_path, lambda of: (of[within] if within else of).pop("anchoring" if within else "threshold"))
    run(tmp_path, RunSettings.of({**vars(SETTINGS), "limit": 2}))
    assert read_run(tmp_path)["settings"]["decoder_settings"] == whole["decoder_settings"]
    assert len(read_items(tmp_path)) == 2


def test_another_value_than_the_default_is_refused_in_its_place(tmp_path: Path, asked: None) -> None:
    settings = RunSettings.of({**vars(SETTINGS), "decoder": "dystruct:threshold=0.5"})
    run(tmp_path, settings)
    edit(tmp_path, lambda of: of.pop("threshold"))
    before = (tmp_path / "run.json").read_bytes()
    with pytest.raises(UserError, match=r"has decoder_settings\.threshold null, not 0\.5; name another folder\.$"):
        run(tmp_path, settings)
    assert (tmp_path / "run.json").read_bytes() == before


def test_a_sweep_goes_on_with_a_run_from_before_a_setting(
    tmp_path: Path, run: Run, asked: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_the_embedded_models_weights(monkeypatch)
    (tmp_path / "sweep.toml").write_text(
        '[settings]\ntasks = ["tiny_logic"]\nlimit = 1\nmax_new_tokens = 4\nbudget = 4\n[[run]]\nname = "a"\n'
    )
    assert run("sweep", "sweep.toml", "out").status == 0
    edit(tmp_path / "out" / "a", lambda of: of.pop("threshold"))
    assert run("sweep", "sweep.toml", "out", "--status").out == "a: finished\n"
    again = run("sweep", "sweep.toml", "out", "--limit", "2")
    assert again.status == 0, again.err
    assert read_run(tmp_path / "out" / "a")["settings"]["decoder_settings"]["threshold"] is None
    edit(tmp_path / "out" / "a", lambda of: of.update(threshold=0.5))
    run("sweep", "sweep.toml", "out", "--status").refused("has decoder_settings.threshold 0.5, not null")
