"""A trace of an evaluation is found by its item and shown as any other; what cannot be found is told."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from command_line import Run
from dystruct.decoding import UserError, generate
from dystruct.decoding.evaluation import tasks
from dystruct.decoding.evaluation.draws import with_draw
from dystruct.decoding.evaluation.local import run_local
from dystruct.decoding.evaluation.recorded import recorded
from dystruct.decoding.evaluation.run_folder import RunFolder
from dystruct.decoding.evaluation.run_record import SUMMARY, read_items
from dystruct.decoding.evaluation.settings import RunSettings
from dystruct.decoding.evaluation.summary import summarise
from dystruct.decoding.tiny.problem import Problem
from scripted import backbone, hashed
from watching import without_time

ASKED = [Problem("logic", "k", text, "", "a") for text in ("ab", "cd", "efg")]
SETTINGS = RunSettings(
    tasks=("tiny_logic", "tiny_maths"), decoder="dystruct:structure=sample", seeds=(0, 4), draws=2, limit=3,
    max_new_tokens=16, budget=32,
)  # fmt: skip
WRONG = ("a", "a:", ":1", "a:-1", "a:1_0", "a:" + "9" * 19)  # names of items


@pytest.fixture(scope="module")
def made_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs")
    one = replace(SETTINGS, tasks=("tiny_logic",), seeds=(7,), draws=1, temperature=0.5)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tasks, "items", lambda task, split="test", limit=None: ASKED[:limit])
        for name, settings in (("many", SETTINGS), ("one", one), ("bare", replace(one, traces=False))):
            run_local(settings, backbone(hashed(3)), {"name": "scripted"}, out / name)
    return out


@pytest.fixture
def made(made_once: Path, tmp_path: Path) -> Path:
    """A folder in which a run of several tasks, seeds and draws stands, and beside it two of one each."""
    return Path(shutil.copytree(made_once, tmp_path, dirs_exist_ok=True))


def test_it_is_the_generation_that_was_recorded(made: Path) -> None:
    model = backbone(hashed(3))
    for task, item, seed, draw in (("tiny_logic", 0, 0, 0), ("tiny_logic", 2, 4, 1), ("tiny_maths", 1, 0, 1)):
        decoder = with_draw(SETTINGS.with_decoder(), draw)
        [wanted] = generate(model, [ASKED[item].question], decoder, max_new_tokens=16, budget=32, seed=seed)
        assert without_time(recorded(made / "many", task, item, seed=seed, draw=draw)) == without_time(wanted)
    found = recorded(made / "one", "tiny_logic", 1)
    assert found == recorded(made / "one", "tiny_logic", 1, seed=7, draw=0)
    assert (found.prompt, found.settings["seed"]) == ("cd", 7)
    found.check()


@pytest.mark.parametrize(
    ("folder", "asked", "says"),
    [
        ("none", ("tiny_logic", 0), r"none/run\.json' is damaged or no record of a run"),
        (
            "kept",
            ("tiny_logic", 0),
            "kept' has a run's summary alone, without its items; name the folder where the run",
        ),
        ("one", ("tiny_maths", 0), "has no item of a task 'tiny_maths' on record; it has tiny_logic"),
        ("one", ("tiny_logic", 3), "has no item 3 of tiny_logic on record; it has 0 to 2"),
        ("one", ("tiny_logic", -1), "has no item -1 of tiny_logic on record"),
        ("one", ("tiny_logic", 0, 6), "Item 0 of tiny_logic has no seed 6 on record; it has 7"),
        ("one", ("tiny_logic", 0, None, 1), "Item 0 of tiny_logic has no draw 1 on record; it has 0"),
        ("many", ("tiny_logic", 0), r"has several seeds, 0, 4; give one \(seed=N, or --seed N\)"),
        ("many", ("tiny_logic", 0, 4), r"has several draws, 0, 1; give one \(draw=N, or --draw N\)"),
        ("bare", ("tiny_logic", 1), "was decoded without a trace; make it in another folder with them"),
    ],
)
def test_what_cannot_be_found_is_told(made: Path, folder: str, asked: tuple[str, int], says: str) -> None:
    task, item, seed, draw = (*asked, None, None)[:4]
    (made / "kept").mkdir()
    summarise(made / "one").save(made / "kept" / SUMMARY)
    with pytest.raises(UserError, match=says):
        recorded(made / folder, task, item, seed=seed, draw=draw)


@pytest.mark.parametrize("numbers", [(0, 1, 2), (3,), (5, 0), tuple(range(0, 60, 2))])
def test_what_there_is_is_told_in_short(tmp_path: Path, numbers: tuple[int, ...]) -> None:
    with RunFolder(tmp_path, {}, {}) as folder:
        for number in numbers:
            folder.add({"task": "t", "item": number, "seed": 0, "draw": 0})
    with pytest.raises(UserError) as error:
        recorded(tmp_path, "t", 99)
    told = {3: "0 to 2", 1: "3", 2: "0, 5", 30: "0, 2, 4, 6, 8, 10, 12, 14, … 58"}[len(numbers)]
    assert str(error.value).endswith(f"on record; it has {told}.")


def test_a_likelihood_and_damage_are_told(made: Path) -> None:
    with RunFolder(made / "scored", {}, {}) as folder:
        folder.add({"task": "arc_easy", "item": 0, "seed": 0, "draw": 0, "stop_reason": "likelihood"})
        folder.add({"task": "arc_easy", "item": 1, "seed": 0, "draw": 0}, {"format": "other"})
    with pytest.raises(UserError, match="is scored by a likelihood, for which no text is decoded"):
        recorded(made / "scored", "arc_easy", 0)
    with pytest.raises(UserError, match=r"damaged \(the trace of task arc_easy, item 1, .*dystruct-trace-1"):
        recorded(made / "scored", "arc_easy", 1)
    (made / "one" / "traces.jsonl").unlink()
    with pytest.raises(UserError, match="does not hold the traces"):
        recorded(made / "one", "tiny_logic", 0)


def test_on_the_command_line_it_is_shown_as_a_saved_trace(made: Path, run: Run) -> None:
    recorded(made / "many", "tiny_logic", 2, seed=4, draw=1).save(made / "t.json")
    which = ("many", "--item", "tiny_logic:2", "--seed", "4", "--draw", "1")
    shown = run("show", *which)
    assert shown.status == 0 and shown.out == run("show", "t.json").out and len(shown.out) > 100
    assert run("show", *which, "--html", "a.html").status == run("show", "t.json", "--html", "b.html").status == 0
    assert (made / "a.html").read_text() == (made / "b.html").read_text()
    assert run("show", "one", "--item", "tiny_logic:0", "--svg", "a.svg").status == 0


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("many",), "'many' is the folder of a run; name one of its items, as in --item gsm8k:0"),
        (("one", "--item", "tiny_logic:9"), "has no item 9 of tiny_logic"),
        *((("one", "--item", wrong), "--item must be TASK:N") for wrong in WRONG),
        (("t.json", "--item", "tiny_logic:0"), "--item needs the folder of a run, which 't.json' is not"),
        (("t.json", "--seed", "1"), "--seed has no use without --item"),
        (("t.json", "--draw", "1"), "--draw has no use without --item"),
    ],
)  # fmt: skip
def test_on_the_command_line_what_is_wrong_is_told(made: Path, run: Run, arguments: tuple[str, ...], says: str) -> None:
    recorded(made / "one", "tiny_logic", 0).save(made / "t.json")
    run("show", *arguments).refused(says)


def test_a_trace_that_does_not_fit_together_is_told(made: Path, run: Run) -> None:
    path = made / "one" / "traces.jsonl"
    [(start, length)] = [line["trace"] for line in read_items(made / "one") if line["item"] == 0]
    content = path.read_bytes()
    trace = json.loads(content[start : start + length])
    trace["useful_tokens"] += 1 if trace["useful_tokens"] % 10 < 9 else -1  # as long a text
    changed = json.dumps(trace, separators=(",", ":")).encode() + b"\n"
    assert len(changed) == length
    path.write_bytes(content[:start] + changed + content[start + length :])
    run("show", "one", "--item", "tiny_logic:0").refused(
        "The trace of tiny_logic:0 in 'one' does not fit together", "name another item"
    )
