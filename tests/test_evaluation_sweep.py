"""Sweeps: what a file declares, and that all of it is run once, however often it is stopped."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import huggingface_hub
import pytest
import torch

import dystruct.decoding
from command_line import Run
from dystruct.decoding import DyStruct, UserError, parallel
from dystruct.decoding.backbone import model_folder
from dystruct.decoding.calibration_file import fingerprint, write_calibration
from dystruct.decoding.evaluation import local, tasks
from dystruct.decoding.evaluation.run_folder import RunFolder, read_items, read_run
from dystruct.decoding.evaluation.summary import load_summary
from dystruct.decoding.evaluation.sweep import PlannedRun, State, read_sweep, state, texts
from dystruct.decoding.plain import as_plain
from dystruct.decoding.tiny.problem import Problem
from dystruct.model import EvidenceWeights, PriorConfig
from evaluation_runs import with_the_embedded_models_weights
from scripted import backbone, hashed, uneven_weights

FILE = """
[settings]
tasks = ["tiny_logic"]
limit = 2
budget = [16, 8]
max_new_tokens = 12

[[run]]
name = "alpha"
decoder = "dystruct:structure=sample,alpha0={alpha0},prior.max_length={longest}"
alpha0 = [1.0, 2.0]
longest = 32
draws = 2

[[run]]
decoder = "block"
budget = 4
seeds = [0, 1]
"""


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> None:
    found = [Problem("logic", "k", text, "", "a") for text in ("ab", "cd")]
    monkeypatch.setattr(tasks, "items", lambda task, split="test", limit=None: found[:limit])


@pytest.fixture(autouse=True)
def loaded(run: Run, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    return with_the_embedded_models_weights(monkeypatch)


def planned(tmp_path: Path, text: str = FILE) -> list[PlannedRun]:
    (tmp_path / "sweep.toml").write_text(text)
    return read_sweep(tmp_path / "sweep.toml")


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
        (FILE.replace('"alpha"', '".."'), "'..' begins with a dot"),
        (FILE.replace('"alpha"', '"."'), "'.' begins with a dot"),
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
        ('tasks = ["gsm8k", "tiny_logic"]', "b: Embedded tasks and others have runs of their own"),
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
    assert found.status == 2 and "dystruct: block: The prompt has 2 tokens and 100000 new ones" in found.err
    assert not (tmp_path / "out").exists()


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


def failing(monkeypatch: pytest.MonkeyPatch, error: type[BaseException], *of: str) -> list[int]:
    """Lets the runs of these decoders end so; the batch sizes that were asked for."""
    asked, real = list[int](), local.generate

    def generate(model: Any, prompts: Any, decoder: Any, **settings: Any) -> Any:
        asked.append(settings["batch_size"])
        if type(decoder).__name__ in of:
            raise error
        return real(model, prompts, decoder, **settings)

    monkeypatch.setattr(local, "generate", generate)
    return asked


THREE = """
[settings]
tasks = ["tiny_logic"]
limit = 2
max_new_tokens = 4
budget = 4

[[run]]
decoder = "dystruct"

[[run]]
decoder = "fast"

[[run]]
decoder = "block"
"""


@pytest.mark.parametrize("failed", [{"Block"}, {"Fast"}, {"DyStruct", "Fast"}, {"Block", "DyStruct", "Fast"}])
def test_a_run_that_fails_does_not_stop_the_others(
    tmp_path: Path, run: Run, asked: None, monkeypatch: pytest.MonkeyPatch, failed: set[str]
) -> None:
    names = [planned_run.folder for planned_run in planned(tmp_path, THREE)]
    seen = failing(monkeypatch, torch.OutOfMemoryError, *failed)
    told = run("sweep", "sweep.toml", "out", "--batch-size", "2")
    wrong = [name for name in names if name in {kind.lower() for kind in failed}]
    assert told.status == 2 and told.out == "" and set(seen) == {2}
    said = told.err.splitlines()
    for name in names:
        reason = f"dystruct: {name}: The device's memory is too small for 2 prompts at once; lower --batch-size."
        assert (reason in said) == (name in wrong)
        assert (tmp_path / "out" / name / "summary.json").exists() == (name not in wrong)
    assert said[-1].startswith(f"dystruct: {len(wrong)} of 3 runs failed: {'; '.join(wrong)}; mend")


def test_what_failed_is_mended_by_the_command_that_its_sentence_names(
    tmp_path: Path, run: Run, asked: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    planned(tmp_path, THREE)
    with monkeypatch.context() as once:
        failing(once, torch.OutOfMemoryError, "Fast")
        assert run("sweep", "sweep.toml", "out", "--batch-size", "2").status == 2
        alone = run("sweep", "sweep.toml", "out", "--batch-size", "1")
        assert "fast: The device's memory is too small for this prompt; give a --device-map, or" in alone.err
    seen = failing(monkeypatch, KeyboardInterrupt)
    again = run("sweep", "sweep.toml", "out", "--batch-size", "1")
    assert again.status == 0 and "3 runs, 2 of them finished, 1 to go." in again.err and seen == [1, 1]
    sizes = [attempt["batch_size"] for attempt in read_run(tmp_path / "out" / "fast")["environments"]]
    assert sizes == [2, 1, 1]


def test_an_interrupt_stops_all_runs(tmp_path: Path, run: Run, asked: None, monkeypatch: pytest.MonkeyPatch) -> None:
    planned(tmp_path, THREE)
    failing(monkeypatch, KeyboardInterrupt, "Fast")
    told = run("sweep", "sweep.toml", "out")
    assert told.status == 130 and "goes on where it was" in told.err
    assert not (tmp_path / "out" / "block").exists()


def test_of_processes_that_were_launched_together_none_goes_on_alone(
    tmp_path: Path, run: Run, asked: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others wait for it at the end of the run that failed."""
    planned(tmp_path, THREE)
    failing(monkeypatch, torch.OutOfMemoryError, "Fast")
    monkeypatch.setattr(parallel, "process_count", lambda: 2)
    told = run("sweep", "sweep.toml", "out")
    assert told.status == 2 and told.err.splitlines()[-1].startswith("dystruct: fast: The device's memory")
    assert not (tmp_path / "out" / "block").exists()


def test_a_run_that_another_process_makes_is_left_to_it(tmp_path: Path, run: Run, asked: None) -> None:
    """So several processes with a device each may work through one sweep."""
    planned(tmp_path, THREE)
    with RunFolder(tmp_path / "out" / "fast", {}, {}):
        (tmp_path / "out" / "fast" / "run.json").unlink()  # as in the moment after it was begun
        told = run("sweep", "sweep.toml", "out")
    assert (
        told.status == 0 and "dystruct: fast: another process is making this run; it is left to that one." in told.err
    )
    assert (tmp_path / "out" / "block" / "summary.json").exists()
    assert not (tmp_path / "out" / "fast" / "summary.json").exists()


def test_a_run_that_another_process_has_made_meanwhile_is_left_as_it_is(
    tmp_path: Path, run: Run, asked: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    planned(tmp_path, THREE)
    assert run("sweep", "sweep.toml", "other", "--only", "block").status == 0
    real = local.generate

    def generate(model: Any, prompts: Any, decoder: Any, **settings: Any) -> Any:
        if type(decoder).__name__ == "Fast":
            shutil.copytree(tmp_path / "other" / "block", tmp_path / "out" / "block")
        return real(model, prompts, decoder, **settings)

    monkeypatch.setattr(local, "generate", generate)
    told = run("sweep", "sweep.toml", "out")
    assert told.status == 0 and "dystruct: block: another process has made this run.\n" in told.err
    assert len(read_run(tmp_path / "out" / "block")["environments"]) == 1


def test_each_model_is_loaded_once(
    tmp_path: Path, run: Run, asked: None, loaded: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Runs go by models, in the order in which the file names these; a large one takes minutes to load."""
    planned(tmp_path, THREE.replace("[settings]", '[settings]\nmodel = ["one", "tiny"]'))
    monkeypatch.setattr("dystruct.decoding.backbone.model_folder", lambda name, revision: model_folder("tiny"))
    told = run("sweep", "sweep.toml", "out")
    assert told.status == 0 and [each["name"] for each in loaded] == ["one", "tiny"]
    begun = re.findall(r"run \d of 6, (\S+): 2 items", told.err)
    assert begun == [f"{name}-model={model}" for model in ("one", "tiny") for name in ("dystruct", "fast", "block")]


def test_some_runs_alone_are_made(tmp_path: Path, run: Run, asked: None) -> None:
    planned(tmp_path, THREE)
    assert run("sweep", "sweep.toml", "out", "--only", "block", "--only", "dystruct").status == 0
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["block", "dystruct"]
    assert run("sweep", "sweep.toml", "out", "--status", "--only", "fast").out == "fast: not begun\n"
    run("sweep", "sweep.toml", "out", "--only", "fast", "--only", "fats").refused(
        "The sweep has no run 'fats'; its runs are dystruct; fast; block."
    )
    # what is wrong with other runs is no matter of these
    planned(tmp_path, THREE.replace('"block"', '"block"\nbudget = 5'))
    assert run("sweep", "sweep.toml", "out", "--only", "fast").status == 0
    run("sweep", "sweep.toml", "out").refused("has budget 4, not 5")


def test_processes_that_were_launched_together_have_no_embedded_tasks(
    tmp_path: Path, run: Run, asked: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    planned(tmp_path, THREE)
    monkeypatch.setenv("WORLD_SIZE", "2")
    run("sweep", "sweep.toml", "out").refused(
        "The embedded tasks are decoded by one process; start it without torchrun"
    )
    run("eval", "out", "--tasks", "tiny_logic").refused("start it without torchrun")
    assert not (tmp_path / "out").exists()


def test_a_second_model_that_is_not_there_stops_its_own_runs_only(
    tmp_path: Path, run: Run, asked: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    planned(tmp_path, THREE.replace("[settings]", '[settings]\nmodel = ["tiny", "none"]'))
    known = dystruct.decoding.load

    def load(name: str, **options: Any) -> Any:
        if name == "none":
            raise UserError("There is no model folder 'none'.")
        return known(name, **options)

    monkeypatch.setattr(dystruct.decoding, "load", load)
    told = run("sweep", "sweep.toml", "out")
    assert told.status == 2 and "3 of 6 runs failed: dystruct-model=none; fast-model=none; block-model=none" in told.err
    assert all((tmp_path / "out" / f"{name}-model=tiny" / "summary.json").exists() for name in ("fast", "block"))
    planned(tmp_path, THREE.replace("[settings]", '[settings]\nmodel = ["none", "tiny"]'))
    told = run("sweep", "sweep.toml", "other")
    assert told.status == 2 and told.err.splitlines()[-1] == "dystruct: There is no model folder 'none'."
    assert not (tmp_path / "other").exists()


def test_weights_and_a_revision_stand_beside_the_model(tmp_path: Path) -> None:
    shared = 'model = "org/model"\nrevision = "v1"\nweights = ["a/one.json", "two.json"]'
    text = FILE.replace("[settings]", f"[settings]\n{shared}")
    text += '\n[[run]]\ndecoder = "fast"\nweights = "own.json"\nrevision = ["v1", "v2"]\n'
    found = [(run.folder, run.model, run.revision, run.weights) for run in planned(tmp_path, text)[8:]]
    assert found == [
        ("block-weights=one", "org/model", "v1", Path("a/one.json")),
        ("block-weights=two", "org/model", "v1", Path("two.json")),
        *((f"fast-revision={v}-budget={b}", "org/model", v, Path("own.json")) for v in ("v1", "v2") for b in (16, 8)),
    ]


OWN = """
[settings]
tasks = ["tiny_logic"]
weights = "own.json"
limit = 2
max_new_tokens = 4
budget = 4

[[run]]
decoder = "dystruct"

[[run]]
decoder = "block"
"""


def test_a_run_with_fitted_weights_is_known_by_them(
    tmp_path: Path, run: Run, asked: None, loaded: list[dict[str, Any]]
) -> None:
    planned(tmp_path, OWN)
    write_calibration(tmp_path / "own.json", uneven_weights(), fingerprint(model_folder("tiny")), {})
    assert run("sweep", "sweep.toml", "out").status == 0
    assert [(each["name"], each["weights"], each["revision"]) for each in loaded] == [("tiny", Path("own.json"), None)]
    held = read_run(tmp_path / "out" / "dystruct")["settings"]["model"]
    assert held["weights"] == as_plain(uneven_weights()) and held["calibrated"]
    assert run("sweep", "sweep.toml", "out", "--status").out == "dystruct: finished\nblock: finished\n"
    (tmp_path / "own.json").rename(tmp_path / "other.json")
    planned(tmp_path, OWN.replace("own.json", "other.json"))
    assert run("sweep", "sweep.toml", "out", "--status").out == "dystruct: finished\nblock: finished\n", "the same ones"

    for text, weights in ((OWN.replace('weights = "own.json"\n', ""), None), (OWN, EvidenceWeights.neutral())):
        planned(tmp_path, text)
        if weights is not None:
            write_calibration(tmp_path / "own.json", weights, fingerprint(model_folder("tiny")), {})
        run("sweep", "sweep.toml", "out", "--status").refused(
            "The run in 'out/dystruct' has model.weights.position [0.6,"
        )
        run("sweep", "sweep.toml", "out").refused("go on with its model, or name another folder")
        block = OWN[: OWN.index("[[run]]")] + OWN[OWN.rindex("[[run]]") :]
        planned(tmp_path, block if weights is not None else block.replace('weights = "own.json"\n', ""))
        assert run("sweep", "sweep.toml", "out", "--status").out == "block: finished\n", "which takes no weights"


def test_a_run_of_a_decoder_without_weights_goes_on_under_others(tmp_path: Path, run: Run, asked: None) -> None:
    planned(tmp_path, OWN.replace('weights = "own.json"\n', ""))
    assert run("sweep", "sweep.toml", "out", "--limit", "1").status == 0
    write_calibration(tmp_path / "own.json", uneven_weights(), fingerprint(model_folder("tiny")), {})
    planned(tmp_path, OWN[: OWN.index("[[run]]")] + OWN[OWN.rindex("[[run]]") :])
    assert run("sweep", "sweep.toml", "out").status == 0
    assert read_run(tmp_path / "out" / "block")["settings"]["model"]["weights"] == as_plain(uneven_weights())
    assert len(read_items(tmp_path / "out" / "block")) == 2


@pytest.mark.parametrize("known", [False, True])
def test_weights_that_cannot_be_taken_are_told_before_any_run_is_begun(
    tmp_path: Path, run: Run, asked: None, known: bool
) -> None:
    planned(tmp_path, OWN if known else OWN.replace("weights", 'model = "org/model"\nweights'))
    run("sweep", "sweep.toml", "out").refused("The calibration 'own.json' cannot be read (FileNotFoundError")
    if known:
        write_calibration(tmp_path / "own.json", uneven_weights(), "another", {})
        run("sweep", "sweep.toml", "out", "--status").refused("'own.json' was fitted on another model")
    assert not (tmp_path / "out").exists()


def test_a_model_of_the_hub_is_known_by_its_files_where_they_are_here(
    tmp_path: Path, run: Run, asked: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that another revision, or its own weights in place of given ones, do not pass for what is on record."""
    for revision in ("v1", "v2"):
        (tmp_path / revision).mkdir()
        (tmp_path / revision / "config.json").write_text("{}")
        (tmp_path / revision / "a.safetensors").write_bytes(bytes(8) + revision.encode())
    real = huggingface_hub.try_to_load_from_cache
    places: dict[str | None, str] = {name: str(tmp_path / name / "config.json") for name in ("v1", "v2")}

    def cached(name: str, file: str, revision: str | None) -> Any:
        assert file == "config.json"
        return places.get(revision) if name == "scripted" else real(name, file, revision=revision)

    monkeypatch.setattr("huggingface_hub.try_to_load_from_cache", cached)
    monkeypatch.setattr("dystruct.decoding.backbone.model_folder", lambda name, revision: tmp_path / revision)
    text = OWN.replace("weights", 'model = "scripted"\nrevision = "v1"\nweights')
    write_calibration(tmp_path / "own.json", uneven_weights(), fingerprint(tmp_path / "v1"), {})
    planned(tmp_path, text)
    monkeypatch.setattr(dystruct.decoding, "load", lambda name, **of: backbone(hashed(3), weights=uneven_weights()))
    assert run("sweep", "sweep.toml", "out").status == 0
    assert run("sweep", "sweep.toml", "out", "--status").out == "dystruct: finished\nblock: finished\n"
    planned(tmp_path, text.replace('weights = "own.json"\n', ""))
    run("sweep", "sweep.toml", "out", "--status").refused("has model.calibrated true, not false; go on with its model")
    planned(tmp_path, text.replace("v1", "v2"))
    run("sweep", "sweep.toml", "out", "--status").refused("'own.json' was fitted on another model")
    write_calibration(tmp_path / "own.json", uneven_weights(), fingerprint(tmp_path / "v2"), {})
    run("sweep", "sweep.toml", "out", "--status").refused("has model.fingerprint")
    planned(tmp_path, text.replace("v1", "v3"))
    assert run("sweep", "sweep.toml", "out", "--status").out == "dystruct: finished\nblock: finished\n", "by its name"
    planned(tmp_path, text.replace('"scripted"', '"not a/name/of the Hub"'))
    run("sweep", "sweep.toml", "out", "--status").refused('has model.name "scripted", not "not a/name/of the Hub"')


def test_a_grid_over_models_has_a_folder_for_each(tmp_path: Path) -> None:
    text = FILE.replace("[settings]", '[settings]\nmodel = ["tiny", "some/where/large model/"]\nmax_new_tokens = 9')
    text = text.replace("max_new_tokens = 12\n", "")
    found = [(run.folder, run.model) for run in planned(tmp_path, text) if run.settings.decoder == "block"]
    assert found == [("block-model=tiny", "tiny"), ("block-model=large-model", "some/where/large model/")]
