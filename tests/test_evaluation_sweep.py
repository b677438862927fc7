"""Sweeps: what a file declares, and that all of it is run once, however often it is stopped."""

# ruff: noqa: F811 - fixtures that are imported
from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import dystruct.decoding
from command_line import Run
from dystruct.decoding import DyStruct, UserError
from dystruct.decoding.evaluation import tasks
from dystruct.decoding.evaluation.run_record import read_items
from dystruct.decoding.evaluation.settings import RunSettings
from dystruct.decoding.evaluation.summary import load_summary
from dystruct.decoding.evaluation.sweep import PlannedRun, read_sweep
from dystruct.decoding.evaluation.sweep_making import make_runs
from dystruct.decoding.evaluation.sweep_state import State, is_finished, state, texts
from dystruct.model import PriorConfig
from sweep_runs import FILE, asked, loaded, planned  # noqa: F401 - fixtures


def test_a_grid_is_every_combination(tmp_path: Path) -> None:
    *grid, block = planned(tmp_path)
    assert [run.folder for run in grid] == [
        f"alpha-budget={budget}-alpha0={alpha}" for budget in (16, 8) for alpha in (1.0, 2.0)
    ]
    for run, (budget, alpha) in zip(grid, ((b, a) for b in (16, 8) for a in (1.0, 2.0)), strict=True):
        assert run.settings.with_decoder() == DyStruct(
            structure="sample", prior=PriorConfig(concentration=alpha, max_length=32)
        )
        assert (run.settings.budget, run.settings.draws, run.settings.limit, run.model) == (budget, 2, 2, "tiny")
        assert run.settings.label == f"alpha, alpha0 {alpha}, longest 32"
    assert (block.folder, block.settings.budget, block.settings.seeds) == ("block", 4, (0, 1))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "declares no run"),
        ("[settings", "no TOML"),
        ("run = [1]", "declares no run"),
        ("[other]\na = 1", "unknown part 'other'"),
        (FILE.replace("alpha0 = [1.0, 2.0]", ""), "{alpha0}"),
        (FILE.replace("draws = 2", "drawn = 2"), "no setting 'drawn'; it has model, revision, weights, decoder, tasks"),
        (FILE.replace("draws = 2", "draws = '2'"), "cannot be '2'"),
        (FILE.replace('"block"', '"blok"'), "no decoder 'blok'"),
        (FILE.replace("[1.0, 2.0]", "[-1.0]"), "alpha0"),
        (FILE.replace("longest = 32", "longest = 2"), "prior.max_length=2"),
        (FILE + '\n[[run]]\ndecoder = "block"\nbudget = 4\n', "two runs named 'block'"),
        (FILE.replace("tasks = ", "tasks_ = "), "tasks"),
        (FILE.replace("draws = 2", "execute_code = true"), "--execute-code"),
        (FILE.replace('"alpha"', '".."'), "is no name of a run's folder"),
        (FILE.replace('"alpha"', '"."'), "is no name of a run's folder"),
        (FILE.replace('"alpha"', "[1]"), "named by a text, not [1]"),
        (FILE.replace("[16, 8]", "[]"), "list budget is empty"),
        (FILE.replace("draws = 2", "model = 3"), "model cannot be 3"),
        (FILE.replace("draws = 2", 'model = ["tiny", 3]'), "model cannot be 3"),
        (FILE.replace("draws = 2", "weights = true"), "weights cannot be True; give a file that `dystruct calibrate`"),
        (FILE.replace("draws = 2", "weights = ['a', '']"), "weights cannot be ''; give"),
        (
            FILE.replace("draws = 2", "model = 'some/model'\nrevision = 1"),
            "revision cannot be 1; give a branch, tag or",
        ),
        (FILE.replace("draws = 2", "revision = 'main'"), "revision has no use with the model 'tiny'"),
    ],
)
def test_what_is_wrong_with_a_file_is_told(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(UserError) as error:
        planned(tmp_path, text)
    assert says in str(error.value)


@pytest.mark.parametrize(
    "path", sorted((Path(tasks.__file__).parent / "sweeps").glob("*.toml")), ids=lambda path: path.stem
)
def test_the_sweeps_that_come_along_are_sound(path: Path) -> None:
    for run in read_sweep(path):
        for task in run.settings.tasks if tasks.are_embedded(run.settings.tasks) else ():
            assert len(tasks.items(task, run.settings.split, run.settings.limit)) == run.settings.limit


def test_the_sweep_of_the_harness_that_comes_along_has_two_models_in_chat() -> None:
    runs = read_sweep(Path(tasks.__file__).parent / "sweeps" / "gsm8k.toml")
    decoders = ["DyStruct", "DyStruct", "Fixed", "Fast"]
    models = ["GSAI-ML/LLaDA-8B-Instruct", "Dream-org/Dream-v0-Instruct-7B"]
    found = [(type(run.settings.with_decoder()).__name__, run.model) for run in runs]
    assert found == [(decoder, model) for decoder in decoders for model in models]
    assert {(run.settings.tasks, run.settings.chat, run.settings.shots) for run in runs} == {(("gsm8k",), True, 5)}


def test_a_run_with_many_answers_an_item_is_so_much_longer(tmp_path: Path) -> None:
    """By which the time that is left is told."""
    path = tmp_path / "sweep.toml"
    path.write_text(
        '[settings]\ntasks = ["tiny_logic", "tiny_maths"]\nlimit = 3\n[[run]]\nname = "one"\n'
        '[[run]]\nname = "draws"\ndecoder = "dystruct:structure=sample"\ndraws = 16\nseeds = [0, 1]\n'
        '[[run]]\nname = "harness"\ntasks = ["gsm8k"]\n'
    )
    assert [texts(run) for run in read_sweep(path, execute_code=True)] == [6, 6 * 32, None]


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ('decoder = "dystruct:structure=map"\ndraws = 2', "b: Several draws need structures that are drawn"),
        ("limit = 501", "b: tiny_logic has 1 to 500 test items, not 501"),
        ('split = "tset"', "b: The split of the embedded tasks must be test or validation, not 'tset'"),
        ("shots = 1", "b: The embedded tasks take no examples"),
        (
            'tasks = ["gsm8k", "tiny_logic"]',
            "b: The embedded tasks are tiny_maths, tiny_code, tiny_logic",
        ),
        ('tasks = ["gsm8k"]\nseeds = [0, 1]', "b: Through the harness a run has one seed"),
        ('tasks = ["gsm8k"]\nsplit = "validation"', "b: The harness's tasks choose their split"),
    ],
)
@pytest.mark.parametrize("status", [(), ("--status",)])
def test_a_bad_run_is_told_before_any_is_begun(
    tmp_path: Path, run: Run, wrong: str, says: str, status: tuple[str, ...]
) -> None:
    shared = "[settings]\nmax_new_tokens = 4\nbudget = 4\n"
    own = "" if "tasks" in wrong else 'tasks = ["tiny_logic"]\n'
    own += "" if "limit" in wrong else "limit = 1\n"
    (tmp_path / "sweep.toml").write_text(
        f'{shared}[[run]]\nname = "a"\ntasks = ["tiny_logic"]\nlimit = 1\n[[run]]\nname = "b"\n{own}{wrong}\n'
    )
    run("sweep", "sweep.toml", "out", *status).refused(says)
    assert not (tmp_path / "out").exists()


def test_prompts_that_are_too_long_are_told_before_any_run_is_begun(tmp_path: Path, run: Run, asked: None) -> None:
    planned(tmp_path, FILE + "max_new_tokens = 100000\n")
    found = run("sweep", "sweep.toml", "out")
    assert found.status == 2 and "dystruct: block: Item tiny_logic:0 has 2 tokens and 100000 new ones" in found.err
    assert not (tmp_path / "out").exists()


def test_a_sweep_is_made_from_python_too(tmp_path: Path, asked: None, capsys: pytest.CaptureFixture[str]) -> None:
    runs, out = planned(tmp_path), tmp_path / "out"
    assert make_runs(runs, out, lambda run: dystruct.decoding.load(run.model)) == []
    assert all(is_finished(run, out) for run in runs)
    assert capsys.readouterr().out.startswith("5 runs, 0 of them finished, 5 to go.\n1 of 5 runs done, ")


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"decoder": "nope"}, "b: There is no decoder 'nope'"),
        ({"decoder": "block", "draws": 3}, "b: Several draws need structures that are drawn"),
        ({"limit": 10**6, "skip": 10**6 - 1}, "b: tiny_logic has "),
        ({}, "The sweep has two runs named 'a'"),
    ],
)
def test_runs_planned_in_python_are_checked_before_a_model_is_loaded(
    tmp_path: Path, wrong: dict[str, Any], told: str
) -> None:
    good = PlannedRun("a", "tiny", RunSettings(tasks=("tiny_logic",), limit=1))
    other = PlannedRun("b" if wrong else "a", "tiny", RunSettings(**{"tasks": ("tiny_logic",), **wrong}))
    with pytest.raises(UserError, match=f"^{told}"):
        make_runs([good, other], tmp_path, lambda run: pytest.fail("loaded"), say=lambda sentence: None)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["", "..", "../out", "a/b", ".hidden"])
def test_a_run_stays_in_the_folder_of_its_sweep(name: str) -> None:
    with pytest.raises(UserError, match="is no name of a run's folder"):
        PlannedRun(name, "tiny", RunSettings(tasks=("tiny_logic",)))


def test_a_sweep_is_run_once(tmp_path: Path, run: Run, asked: None) -> None:
    runs = planned(tmp_path)
    first = run("sweep", "sweep.toml", "out")
    assert first.status == 0, first.err
    assert "5 runs, 0 of them finished, 5 to go." in first.err and "4 of 5 runs done, " in first.err
    counts = [len(read_items(tmp_path / "out" / planned.folder)) for planned in runs]
    assert counts == [4] * 5
    assert all((tmp_path / "out" / planned.folder / "summary.json").exists() for planned in runs)
    items = tmp_path / "out" / runs[1].folder / "items.jsonl"
    whole = items.read_bytes()
    items.write_bytes(whole[: len(whole) // 2])
    assert state(runs[1], tmp_path / "out") == State(2 if whole[: len(whole) // 2].count(b"\n") == 2 else 1, 4)
    told = run("sweep", "sweep.toml", "out", "--status").out.splitlines()
    assert told[0] == f"{runs[0].folder}: finished" and told[1].endswith(" of 4")
    again = run("sweep", "sweep.toml", "out")
    assert "5 runs, 4 of them finished, 1 to go." in again.err
    assert len(read_items(items.parent)) == 4
    assert run("tables", "out", "--out", "tables").status == 0
    assert (tmp_path / "tables" / "alpha0.md").exists()


def test_a_larger_limit_prolongs_the_runs(tmp_path: Path, run: Run, asked: None) -> None:
    runs = planned(tmp_path)
    assert run("sweep", "sweep.toml", "out", "--limit", "1").status == 0
    first = [read_items(tmp_path / "out" / planned.folder) for planned in runs]
    assert [len(items) for items in first] == [2] * 5
    assert run("sweep", "sweep.toml", "out", "--status").out.splitlines()[0].endswith(": 2 of 4")
    longer = run("sweep", "sweep.toml", "out")
    assert longer.status == 0 and "5 runs, 0 of them finished, 5 to go." in longer.err
    for planned_run, begun in zip(runs, first, strict=True):
        items = read_items(tmp_path / "out" / planned_run.folder)
        assert len(items) == 4 and [item for item in items if item["item"] == 0] == begun
        assert '"limit": 2' in (tmp_path / "out" / planned_run.folder / "summary.json").read_text()
    assert "5 runs, 5 of them finished, 0 to go." in run("sweep", "sweep.toml", "out", "--limit", "1").err


def test_a_summary_is_of_the_items_on_record(tmp_path: Path, run: Run, asked: None) -> None:
    """Killed between the last item and the summary, a run that was prolonged has that of its fewer items."""
    runs = planned(tmp_path)
    assert run("sweep", "sweep.toml", "out", "--limit", "1").status == 0
    place = tmp_path / "out" / runs[0].folder / "summary.json"
    stale = place.read_text()
    assert run("sweep", "sweep.toml", "out").status == 0
    whole = place.read_text()
    assert whole != stale
    for left in (stale, whole[:100], None):
        place.unlink()
        if left is not None:
            place.write_text(left)
            assert load_summary(place) == load_summary(place.parent)
        assert "5 runs, 5 of them finished, 0 to go." in run("sweep", "sweep.toml", "out").err
        assert place.read_text() == whole
    written = place.stat().st_mtime_ns
    assert run("sweep", "sweep.toml", "out").status == 0
    assert place.stat().st_mtime_ns == written, "what is right is left alone"


def test_a_run_that_was_stopped_is_finished_under_its_own_limit(tmp_path: Path, run: Run, asked: None) -> None:
    runs = planned(tmp_path)
    assert run("sweep", "sweep.toml", "out").status == 0
    items = tmp_path / "out" / runs[1].folder / "items.jsonl"
    whole = items.read_bytes()
    items.write_bytes(whole[: len(whole) // 8])
    shorter = run("sweep", "sweep.toml", "out", "--limit", "1")
    assert shorter.status == 0 and "5 runs, 4 of them finished, 1 to go." in shorter.err
    assert len(read_items(items.parent)) == 4


def test_nothing_is_begun_that_was_not(tmp_path: Path, run: Run, asked: None) -> None:
    planned(tmp_path)
    assert "alpha-budget=16-alpha0=1.0: not begun" in run("sweep", "sweep.toml", "out", "--status").out
    assert not (tmp_path / "out").exists()
    (tmp_path / "code.toml").write_text(FILE.replace("tiny_logic", "tiny_code"))
    run("sweep", "code.toml", "out").refused("--execute-code")
    run("sweep", "none.toml", "out").refused("'none.toml' cannot be read")


def test_a_finished_sweep_does_not_pass_over_changed_settings(tmp_path: Path, run: Run, asked: None) -> None:
    text = '[settings]\ntasks = ["tiny_logic"]\nlimit = 1\nmax_new_tokens = 4\n[[run]]\ndecoder = "block"\nbudget = 4\n'
    planned(tmp_path, text)
    assert run("sweep", "sweep.toml", "out").status == 0
    before = (tmp_path / "out" / "block" / "run.json").read_bytes()
    for old, new, says in (
        ("budget = 4", "budget = 5", "has budget 4, not 5"),
        ("limit = 1", "limit = 2\nseeds = [1]", "has seeds [0], not [1]"),
        ("limit = 1", 'limit = 2\nmodel = "other"', 'has model.name "scripted", not "other"'),
    ):
        planned(tmp_path, text.replace(old, new))
        run("sweep", "sweep.toml", "out").refused(says)
        run("sweep", "sweep.toml", "out", "--status").refused(says)
    assert (tmp_path / "out" / "block" / "run.json").read_bytes() == before
    planned(tmp_path, text)
    assert run("sweep", "sweep.toml", "out", "--status").out == "block: finished\n"


def test_a_finished_sweep_takes_another_batch_size(tmp_path: Path, run: Run, asked: None) -> None:
    planned(tmp_path)
    assert run("sweep", "sweep.toml", "out").status == 0
    assert "5 runs, 5 of them finished, 0 to go." in run("sweep", "sweep.toml", "out", "--batch-size", "1").err
    planned(tmp_path, FILE.replace("budget = 4", "budget = 4\nbatch_size = 3"))
    assert run("sweep", "sweep.toml", "out", "--status").out.splitlines()[-1] == "block: finished"


def test_a_grid_over_models_has_a_folder_for_each(tmp_path: Path) -> None:
    text = FILE.replace("[settings]", '[settings]\nmodel = ["tiny", "some/where/large model/"]\nmax_new_tokens = 9')
    text = text.replace("max_new_tokens = 12\n", "")
    found = [(run.folder, run.model) for run in planned(tmp_path, text) if run.settings.decoder == "block"]
    assert found == [("block-model=tiny", "tiny"), ("block-model=large-model", "some/where/large model/")]
