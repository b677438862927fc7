"""Records of runs: nothing lost and nothing doubled wherever a run is killed, and only ever one run's settings."""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import shutil
import signal
import time
import warnings
from contextlib import ExitStack
from dataclasses import replace
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dystruct.decoding import Generation, UserError, generate
from dystruct.decoding.evaluation import local, tasks
from dystruct.decoding.evaluation.local import Progress, run_local
from dystruct.decoding.evaluation.run_folder import RunFolder, make_folder
from dystruct.decoding.evaluation.run_record import key_of, read_items, read_run, read_traces
from dystruct.decoding.evaluation.settings import RunSettings
from dystruct.decoding.evaluation.summary import summarise
from dystruct.decoding.json_lines import Held
from dystruct.decoding.tiny.problem import Problem
from evaluation_runs import make_run
from scripted import backbone, hashed

SETTINGS = {"model": "m", "decoder": "d", "limit": 3}
MODEL = {"name": "scripted"}


def record(item: int, seed: int = 0) -> dict[str, Any]:
    return {"task": "t", "item": item, "seed": seed, "draw": 0, "text": "é\u2028\n" * item}


def letters(number: int) -> str:
    return "".join(chr(ord("a") + (number // 8**place) % 8) for place in range(3))


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Problem]:
    """Items that the scripted model can read, in the place of an embedded task's."""
    found = [Problem("logic", f"kind {n % 2}", letters(n), "", letters(n + 1)) for n in range(20)]
    monkeypatch.setattr(tasks, "items", lambda task, split="test", limit=None: found[:limit])
    return found


RUN = RunSettings(
    decoder="block:block-length=4",
    tasks=("tiny_logic", "tiny_maths"),
    seeds=(0, 3),
    max_new_tokens=8,
    budget=8,
    batch_size=2,
)
COUNT = 2 * 2 * 20


def run(folder: Path, settings: RunSettings = RUN, report: Any = None) -> None:
    run_local(settings, backbone(hashed(3)), MODEL, folder, report)


def test_a_record_comes_back_with_its_trace(tmp_path: Path) -> None:
    with RunFolder(tmp_path / "run", SETTINGS, {"python": "3"}) as folder:
        for item in range(3):
            folder.add(record(item), {"steps": list(range(item))} if item != 1 else None)
        with pytest.raises(ValueError, match="already"):
            folder.add(record(2))
        assert folder.left([("t", 5, 0, 0), ("t", 2, 0, 0)]) == [("t", 5, 0, 0)]
    found = read_items(tmp_path / "run")
    assert [(line["item"], line["text"], line["attempt"]) for line in found] == [
        (n, "é\u2028\n" * n, 0) for n in range(3)
    ]
    assert [(line["item"], trace) for line, trace in read_traces(tmp_path / "run")] == [
        (0, {"steps": []}), (2, {"steps": [0, 1]}),
    ]  # fmt: skip


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_file_cut_anywhere_keeps_its_whole_lines(tmp_path: Path, data: st.DataObject) -> None:
    """Whatever the kill left of the last lines, the complete ones stay with their traces; the rest is done again."""
    place = tmp_path / "run"
    for path in place.glob("*"):
        path.unlink()
    with RunFolder(place, SETTINGS, {}) as folder:
        for item in range(3):
            folder.add(record(item), {"item": item})
    items, traces = place / "items.jsonl", place / "traces.jsonl"
    content = items.read_bytes()
    cut = data.draw(st.integers(0, len(content)))
    items.write_bytes(content[:cut])
    whole = content[:cut].count(b"\n")
    enough = sum(len(json.dumps({"item": n}, separators=(",", ":"))) + 1 for n in range(whole))
    traces.write_bytes(traces.read_bytes()[: data.draw(st.integers(enough, traces.stat().st_size))])
    with RunFolder(place, SETTINGS, {}) as folder:
        assert folder.done == {("t", n, 0, 0) for n in range(whole)}
        for item in range(whole, 3):
            folder.add(record(item), {"item": item})
    assert [(line["item"], trace["item"]) for line, trace in read_traces(place)] == [(n, n) for n in range(3)]
    assert [line["attempt"] for line in read_items(place)] == [0] * whole + [1] * (3 - whole)


def test_a_lower_limit_or_other_first_items_are_an_error(
    tmp_path: Path, asked: list[Problem], monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = RunSettings(tasks=("tiny_logic",), decoder="block", limit=2, max_new_tokens=4, budget=4)
    run(tmp_path / "run", settings)
    with pytest.raises(UserError, match="limit 2, not 1"):
        run(tmp_path / "run", replace(settings, limit=1))
    monkeypatch.setattr(tasks, "items", lambda task, split="test", limit=None: asked[1:][:limit])
    with pytest.raises(UserError, match="has tasks"):
        run(tmp_path / "run", replace(settings, limit=3))
    assert len(read_items(tmp_path / "run")) == 2


def test_other_settings_in_the_same_folder_are_an_error(tmp_path: Path, asked: list[Problem]) -> None:
    run(tmp_path / "run", RunSettings(tasks=("tiny_logic",), decoder="block", limit=1, max_new_tokens=4, budget=4))
    before = {path: path.read_bytes() for path in (tmp_path / "run").iterdir()}
    for change, name in (
        ({"budget": 5}, "budget 4, not 5"),
        ({"decoder": "fast"}, 'decoder "block", not "fast"'),
        ({"seeds": (1,)}, r"seeds \[0\], not \[1\]"),
    ):
        begun = {"tasks": ("tiny_logic",), "decoder": "block", "limit": 1, "max_new_tokens": 4, "budget": 4}
        with pytest.raises(UserError, match=name):
            run(tmp_path / "run", RunSettings.of({**begun, **change}))
    asked[0] = Problem("logic", "kind 0", "a", "", "b")
    with pytest.raises(UserError, match="has tasks"):
        run(tmp_path / "run", RunSettings(tasks=("tiny_logic",), decoder="block", limit=1, max_new_tokens=4, budget=4))
    assert {path: path.read_bytes() for path in (tmp_path / "run").iterdir()} == before


@pytest.mark.parametrize("two", [None, 0, 1])
@pytest.mark.parametrize("one", [None, 0, 1])
def test_a_folder_is_held_by_one_process_or_by_parts(tmp_path: Path, one: int | None, two: int | None) -> None:
    with RunFolder(tmp_path, SETTINGS, {}, part=one):
        if None in (one, two) or one == two:
            with pytest.raises(Held, match=r"^Another process is writing to .*; wait for it, or name another"):
                RunFolder(tmp_path, SETTINGS, {}, part=two)
        else:
            RunFolder(tmp_path, SETTINGS, {}, part=two).close()
    RunFolder(tmp_path, SETTINGS, {}, part=two).close()


def test_a_file_that_another_process_begins_meanwhile_is_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is there as soon as this process has looked for it in vain."""
    real = os.path.exists

    def looked(path: Any) -> bool:
        found = real(path)
        if not found and str(path).endswith(".jsonl"):
            Path(path).touch()
        return found

    monkeypatch.setattr(os.path, "exists", looked)
    monkeypatch.setattr(Path, "exists", looked)
    with RunFolder(tmp_path, SETTINGS, {}) as folder:
        folder.add(record(0), {"a": 1})
    assert len(read_items(tmp_path)) == 1


def test_parts_share_a_folder(tmp_path: Path) -> None:
    """Processes side by side have files of their own; what any of them has done counts for all."""
    with RunFolder(tmp_path, SETTINGS, {}, part=0) as first, RunFolder(tmp_path, SETTINGS, {}, part=1) as second:
        first.add(record(0), {"of": 0})
        second.add(record(1), {"of": 1})
    with RunFolder(tmp_path, SETTINGS, {}) as folder:
        assert folder.done == {("t", 0, 0, 0), ("t", 1, 0, 0)}
    assert [trace["of"] for _, trace in read_traces(tmp_path)] == [0, 1]


@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_parts_agree_on_the_attempt(tmp_path: Path, order: tuple[int, ...]) -> None:
    """Whichever opens the folder first; it is listed once."""
    for attempt in range(3):
        with ExitStack() as opened:
            parts = {
                part: opened.enter_context(RunFolder(tmp_path, SETTINGS, {"of": part}, part=part)) for part in order
            }
            for part, folder in parts.items():
                folder.add(record(part, seed=attempt))
    assert [line["attempt"] for line in read_items(tmp_path)] == [0, 1, 2] * 3
    assert read_run(tmp_path)["environments"] == [{"of": 0}] * 3


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("run.json", "[]", "no record of a run"),
        ("run.json", '{"format": "x"}', "format is 'x'"),
        ("run.json", "[" * 100_000, "damaged"),
        ("run.json", '{"format": "dystruct-run-1", "settings": [], "environments": 1}', "damaged"),
        ("items.jsonl", "{\n", "damaged"),
        ("items.jsonl", "[" * 100_000 + "\n", "damaged"),
        ("items.jsonl", "\udcff\n", "damaged .line 1: 'utf-8' codec"),
        ("items.jsonl", "3\n", "damaged .line 1: it is no record"),
        ("items.jsonl", '{"task": "t", "item": 0, "seed": [0], "draw": 0}\n', "damaged"),
        ("items.jsonl", '{"task": "t", "item": 0, "seed": 0}\n', "damaged .line 1: it is no record"),
        ("items.jsonl", '{"task": "t", "item": "0", "seed": 0, "draw": 0}\n', "damaged"),
        ("items.jsonl", '{"task": "t", "item": 0, "seed": 0, "draw": 0, "trace": [1]}\n', "damaged"),
        ("items.jsonl", '{"task": "t", "item": 0, "seed": 0, "draw": 0}\n' * 2, "damaged .*item 0.* is there twice"),
        ("traces.jsonl", "", "not all there"),
    ],
)
def test_damage_is_told_and_left_as_it_is(tmp_path: Path, name: str, content: str, says: str) -> None:
    """Nor is what a kill left behind the last line cut off, or an attempt counted, before all is looked at."""
    with RunFolder(tmp_path, SETTINGS, {}) as folder:
        folder.add(record(0), {"a": 1})
    for left in ("items.jsonl", "traces.jsonl"):
        with (tmp_path / left).open("a") as file:
            file.write("{")
    (tmp_path / name).write_text(content, encoding="utf-8", errors="surrogateescape")
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(UserError, match=says):
        RunFolder(tmp_path, SETTINGS, {})
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_items_without_run_json_are_told(tmp_path: Path) -> None:
    with RunFolder(tmp_path, SETTINGS, {}) as folder:
        folder.add(record(0), {"a": 1})
    (tmp_path / "run.json").unlink()
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(UserError, match=r"items on record without run\.json"):
        RunFolder(tmp_path, SETTINGS, {})
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


@pytest.mark.parametrize(("place", "says"), [("file", "is a file"), ("file/in", "cannot be"), ("x" * 300, "cannot be")])
def test_a_folder_that_cannot_be_made_is_told(tmp_path: Path, asked: list[Problem], place: str, says: str) -> None:
    (tmp_path / "file").write_text("kept")
    with pytest.raises(UserError, match=says):
        run(tmp_path / place)
    with pytest.raises(UserError, match=says):
        make_folder(tmp_path / place)
    assert (tmp_path / "file").read_text() == "kept"


@pytest.mark.parametrize(
    ("changes", "says"),
    [({"max_new_tokens": 512}, "context"), ({"chat": True}, "chat template")],
)
def test_a_refused_run_leaves_no_folder(
    tmp_path: Path, asked: list[Problem], changes: dict[str, Any], says: str
) -> None:
    with pytest.raises(UserError, match=says):
        run(tmp_path / "run", replace(RUN, **changes))
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"temperature": -1.0}, "temperature"),
        ({"temperature": float("nan")}, "temperature"),
        ({"temperature": float("inf")}, "temperature"),
        ({"name": "a\udcff"}, "The name of a run is a text that is no valid Unicode"),
        ({"tasks": (1,)}, "named by a text"),
        ({"draws": 0}, "draws must be a whole number from 1 to 10000, not 0"),
        ({"draws": 10_001}, "draws must be a whole number from 1 to 10000, not 10001"),
        ({"draws": 10**20}, "draws must be a whole number from 1 to 10000, not 1000"),
    ],
)
def test_settings_check_themselves(changes: dict[str, Any], says: str) -> None:
    with pytest.raises(UserError, match=says):
        replace(RUN, **changes)


def test_of_several_differences_the_limit_is_told_last(tmp_path: Path, asked: list[Problem]) -> None:
    settings = RunSettings(tasks=("tiny_logic",), decoder="block", limit=2, max_new_tokens=4, budget=4)
    run(tmp_path / "run", settings)
    for limit in (1, 3):
        with pytest.raises(UserError, match="has budget 4, not 5"):
            run(tmp_path / "run", replace(settings, limit=limit, budget=5))
        with pytest.raises(UserError, match="has tasks"):
            run(tmp_path / "run", replace(settings, limit=limit, tasks=("tiny_maths",)))


@pytest.mark.parametrize("change", [{"task": "other"}, {"item": 20}, {"seed": 9}, {"draw": 1}])
def test_a_record_that_is_none_of_the_run_s_is_told(
    tmp_path: Path, asked: list[Problem], change: dict[str, Any]
) -> None:
    small = RunSettings(tasks=("tiny_logic",), decoder="block", limit=1, max_new_tokens=4, budget=4)
    run(tmp_path, small)
    [line] = read_items(tmp_path)
    (tmp_path / "items.jsonl").write_text(json.dumps({**line, **change}) + "\n")
    with pytest.raises(UserError, match=r"is damaged \(the run has no task"):
        run(tmp_path, small)
    if not {"seed", "draw"} & set(change):
        with pytest.raises(UserError, match=r"is damaged \(the run has no task"):
            summarise(tmp_path)


@pytest.mark.parametrize(
    "change", [{"tasks": 3}, {"tasks": {"tiny_logic": 1}}, {"model": None}, {"seeds": 0}, {"decoder_settings": {}}]
)
def test_settings_of_wrong_types_on_record_are_told(
    tmp_path: Path, asked: list[Problem], change: dict[str, Any]
) -> None:
    run(tmp_path, RunSettings(tasks=("tiny_logic",), decoder="block", limit=1, max_new_tokens=4, budget=4))
    content = read_run(tmp_path)
    content["settings"] |= change
    (tmp_path / "run.json").write_text(json.dumps(content))
    with pytest.raises(UserError, match=r"is damaged \(its "):
        summarise(tmp_path)


KEYS = (
    "kind", "correct", "reason", "value", "text", "useful_tokens", "wasted_tokens", "windows", "blocks",
    "forward_passes", "passes", "seconds", "latency", "empty", "repetition", "stop_reason", "confidence",
    "map_probability", "entropy", "log_probability",
)  # fmt: skip
NEVER = [[1], {"a": None}, 10**400, -(10**400), 1e300, float("nan"), float("inf"), -float("inf")]
REFUSED = [
    *((name, value) for name in KEYS for value in NEVER),
    *((name, "x") for name in KEYS if name not in ("kind", "reason", "value", "text", "stop_reason")),
    *((name, None) for name in ("kind", "reason", "text", "passes", "forward_passes", "seconds", "stop_reason")),
    *((name, True) for name in ("useful_tokens", "seconds", "confidence")),
    ("entropy", None),
    ("passes", {"resolve": float("nan")}),
    ("passes", {"resolve": 10**400}),
]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_run(tmp_path_factory.mktemp("made") / "run", {"tiny_logic": ["1"]}, limit=1)


def damage(whole: Path, folder: Path, line: dict[str, Any]) -> Path:
    shutil.copytree(whole, folder)
    (folder / "items.jsonl").write_text(json.dumps(line) + "\n")
    return folder


def test_a_record_of_another_form_is_told(whole: Path, tmp_path: Path) -> None:
    """Whatever stands in a record in place of what belongs there, it is named, with the item that it is of."""
    [line] = read_items(whole)
    assert summarise(whole).tasks["tiny_logic"].count == 1 and set(KEYS) <= set(line)
    folder = damage(whole, tmp_path / "run", line)
    without = [(name, {key: value for key, value in line.items() if key != name}) for name in KEYS]
    for name, changed in [*without, *((name, {**line, name: value}) for name, value in REFUSED)]:
        (folder / "items.jsonl").write_text(json.dumps(changed) + "\n")
        with pytest.raises(UserError) as error:
            summarise(folder)
        said = str(error.value)
        assert "is damaged (task tiny_logic, item 0, seed 0, draw 0: " in said and name in said, changed
        assert said.endswith("correct it or name another folder.") and len(said) < 400


def test_a_run_does_not_go_on_with_damaged_records(tmp_path: Path, asked: list[Problem]) -> None:
    small = RunSettings(tasks=("tiny_logic",), decoder="block", limit=1, max_new_tokens=4, budget=4)
    run(tmp_path, small)
    [line] = read_items(tmp_path)
    (tmp_path / "items.jsonl").write_text(json.dumps({**line, "correct": "yes"}) + "\n")
    with pytest.raises(UserError, match=r"damaged \(.*draw 0: correct is of type str, not bool\)"):
        run(tmp_path, small)


@pytest.mark.parametrize("scores", ["[]", '{"tiny_logic": {"0": {"correct": [1]}}}', '{"tiny_logic": {"0": 3}}', "{"])
def test_damaged_scores_are_told(whole: Path, tmp_path: Path, scores: str) -> None:
    folder = damage(whole, tmp_path / "run", read_items(whole)[0])
    (folder / "scores.json").write_text(scores)
    with pytest.raises(UserError, match="is damaged"):
        summarise(folder)


def test_a_run_says_how_much_is_left(tmp_path: Path, asked: list[Problem], monkeypatch: pytest.MonkeyPatch) -> None:
    heard: list[Progress] = []

    def stopping(progress: Progress) -> None:
        heard.append(progress)
        if progress.done >= 10:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, report=stopping)
    assert [progress.done for progress in heard] == list(range(11))
    assert heard[0].seconds_left is None and all(p.count == COUNT for p in heard)
    assert all(p.seconds_left is not None and p.seconds_left > 0 for p in heard[1:])
    again: list[Progress] = []
    run(tmp_path, report=again.append)
    assert (again[0].done, again[-1].done, again[-1].seconds_left) == (10, COUNT, 0)
    assert again[-1].correct == sum(line["correct"] for line in read_items(tmp_path))

    def never(*arguments: Any, **options: Any) -> list[Generation]:
        raise AssertionError("all is on record")

    monkeypatch.setattr(local, "generate", never)
    run(tmp_path)


def test_a_run_killed_ten_times_ends_as_one_that_was_not(tmp_path: Path, asked: list[Problem]) -> None:
    """SIGKILL at random moments; the records and traces are those of an undisturbed run but for times and attempts."""
    run(tmp_path / "whole")
    generator, place = random.Random(5), tmp_path / "killed"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # newer Pythons warn of any fork beside threads
        for kill in range(10):
            before = _size(place / "items.jsonl")
            child = multiprocessing.get_context("fork").Process(target=run, args=(place,))
            child.start()
            assert child.pid is not None
            patience = time.monotonic() + 30
            while kill % 2 and _size(place / "items.jsonl") == before and time.monotonic() < patience:
                time.sleep(0.001)  # every other one not before it has written something
            time.sleep(generator.uniform(0.0, 0.01))
            os.kill(child.pid, signal.SIGKILL)
            child.join()
            assert child.exitcode == -signal.SIGKILL, "the run must not be over before it is killed"
    assert 0 < len(read_items(place)) < COUNT
    run(place)
    whole, killed = (read_items(tmp_path / name) for name in ("whole", "killed"))
    assert len(killed) == COUNT
    assert [_timeless(line) for line in killed] == [_timeless(line) for line in whole]
    assert len(read_run(tmp_path / "killed")["environments"]) > 1
    traces, others = (
        {key_of(item): _timeless(trace) for item, trace in read_traces(tmp_path / name)} for name in ("killed", "whole")
    )
    assert traces == others and len(traces) == COUNT


def test_a_recorded_trace_is_the_generation_s(tmp_path: Path, asked: list[Problem]) -> None:
    small = RunSettings(tasks=("tiny_logic",), decoder="dystruct", limit=1, max_new_tokens=20, budget=20)
    run(tmp_path / "run", small)
    [(_, trace)] = list(read_traces(tmp_path / "run"))
    (tmp_path / "trace.json").write_text(json.dumps(trace))
    found = Generation.load(tmp_path / "trace.json")
    found.check()
    [made] = generate(backbone(hashed(3)), [asked[0].question], small.with_decoder(), max_new_tokens=20, budget=20)
    assert (found.text, found.windows) == (made.text, made.windows)


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _timeless(line: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in line.items() if name not in ("seconds", "latency", "attempt", "trace")}
