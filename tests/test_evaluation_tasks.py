"""The embedded tasks' items and scores, what is reported of an item, and `dystruct eval` on the command line."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from command_line import Run
from dystruct.decoding import Block, Daedal, DyStruct, Fixed, UserError, generate
from dystruct.decoding.evaluation import local, tasks
from dystruct.decoding.evaluation.figures import confidences, figures, repetition
from dystruct.decoding.evaluation.run_record import read_items, read_run
from dystruct.decoding.evaluation.settings import RunSettings
from dystruct.decoding.evaluation.tasks import COUNTS, DOMAINS, items, value_of
from dystruct.decoding.named import named_decoder
from dystruct.decoding.tiny.problem import Problem
from dystruct.decoding.tiny.problems import problems
from dystruct.decoding.tiny.scoring import score
from dystruct.inference import posterior
from dystruct.model import Context, Diagnostics, PriorConfig
from scripted import backbone, hashed, uneven_weights

MODEL = backbone(hashed(3, end_logit=-50.0), weights=uneven_weights())


@pytest.mark.parametrize("split", COUNTS)
@pytest.mark.parametrize("task", DOMAINS)
def test_the_items_are_the_first_held_out_problems(task: str, split: str) -> None:
    found = items(task, split)
    assert len(found) == COUNTS[split] == len({problem.question for problem in found})
    assert found[:8] == problems(DOMAINS[task], split, 8)
    assert items(task, split, 3) == found[:3]


@pytest.mark.parametrize("task", DOMAINS)
def test_known_answers_are_right_and_others_wrong(task: str) -> None:
    asked = items(task, "validation", 4)
    for problem, other in pairwise(asked):
        assert score(problem, problem.answer, execute_code=True).correct
        assert value_of(problem, problem.answer) is not None
        assert not score(problem, "", execute_code=True).correct and value_of(problem, "") is None
        if other.target != problem.target:
            assert not score(problem, other.answer, execute_code=True).correct


def test_values_say_what_an_answer_is() -> None:
    maths, logic, code = (items(task, "test", 1)[0] for task in ("tiny_maths", "tiny_logic", "tiny_code"))
    assert value_of(maths, "#### 1,000.0") == value_of(maths, "so\n#### 1000") != value_of(maths, "#### 1001")
    assert value_of(logic, "So the answer is  Yes.") == value_of(logic, "No. So the answer is yes.") == "yes"
    same = value_of(code, "    return  x+1  # the next\n"), value_of(code, "    return x + 1")
    assert same[0] == same[1] != value_of(code, "    return x + 2")
    assert value_of(code, "    return (") == "    return ("


def test_code_is_not_run_unasked(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="--execute-code"):
        score(items("tiny_code", "test", 1)[0], "    return 1", execute_code=False)
    for task, split, limit in (("tiny_art", "test", 1), ("tiny_logic", "train", 1), ("tiny_logic", "test", 501)):
        with pytest.raises(UserError):
            items(task, split, limit)


# --- what is reported of an item --------------------------------------------------------------------------------------


def test_figures_of_a_structured_decoding() -> None:
    decoder = DyStruct(structure="sample", prior=PriorConfig(concentration=3.0))
    [found] = generate(MODEL, ["abc"], decoder, max_new_tokens=60, budget=200)
    told = figures(found, 1.5, decoder.prior)
    assert (told.windows, told.blocks, told.forward_passes) == (
        len(found.windows),
        found.block_count,
        found.forward_passes,
    )
    assert (told.seconds, told.latency, told.empty) == (1.5, found.seconds, False)
    tops, entropies, chosen = [], [], []
    for window in found.windows:
        assert window.structure is not None
        exact = posterior(
            Diagnostics(window.structure.instability, window.structure.edge_logit),
            Context(window.opened.previous_instability),
            decoder.prior,
        )
        tops.append(max(ranked.probability for ranked in exact.k_best(3)))
        entropies.append(exact.entropy)
        chosen.append(window.structure.log_probability)
    assert told.map_probability == pytest.approx(sum(tops) / len(tops))
    assert told.entropy == pytest.approx(sum(entropies) / len(entropies))
    assert told.log_probability == pytest.approx(sum(chosen) / len(chosen))
    # a MAP decoding's own probability is P(MAP)
    [best] = generate(MODEL, ["abc"], replace(decoder, structure="map"), max_new_tokens=20, budget=200)
    [window, *_] = best.windows
    assert window.structure is not None and len(best.windows) == 1
    assert (
        0
        < (figures(best, 0, decoder.prior).map_probability or 0)
        == pytest.approx(2.718281828459045**window.structure.log_probability)
    )


@pytest.mark.parametrize("decoder", [Block(4), Fixed(), Daedal(initial_length=8), DyStruct(structure="sample")])
def test_confidences_are_those_of_the_last_commits(decoder: Any) -> None:
    """Against a replay: the token that stands at a position was last committed there with this confidence."""
    [found] = generate(MODEL, ["abc"], decoder, max_new_tokens=24, budget=100)
    told = confidences(found)
    last: dict[int, float] = {}
    spliced = False
    for window in found.windows:
        for step in window.steps:
            spliced |= bool(step.spliced)
            if step.kind != "diagnostic":
                last |= {commit.position: commit.confidence for commit in step.commits}
    assert set(told) <= set(range(found.useful_tokens))
    if not spliced:
        assert told == {position: last[position] for position in range(found.useful_tokens)}
    mean = figures(found, 0, None).confidence
    assert mean == pytest.approx(sum(told.values()) / len(told))
    assert figures(found, 0, None).map_probability is None


def test_repetition_counts_what_stood_before() -> None:
    assert repetition((1, 2, 3)) == 0 == repetition(())
    assert repetition((1, 2, 3, 4, 5, 6, 7)) == 0
    assert repetition((1,) * 8) == pytest.approx(4 / 5)
    assert repetition((1, 2, 3, 4, 1, 2, 3, 4)) == pytest.approx(1 / 5)


def test_decoders_by_text() -> None:
    assert named_decoder("dystruct:structure=sample,alpha0=2,schedule=left-to-right,prior.min_length=4") == DyStruct(
        structure="sample", schedule="left-to-right", prior=PriorConfig(concentration=2, min_length=4)
    )
    assert named_decoder("dystruct:diagnostic-passes=2,prior.max_length=20") == DyStruct(
        diagnostic_passes=2, prior=PriorConfig(max_length=20)
    )
    for wrong in (
        "dystruct:min_passes=2,min-passes=3",
        "dystruct:schedule",
        "fast:schedule=priority",
        "dystruct:prior.min_length=x",
        "dystruct:min_passes=0",
        "dystruct:x=1",
    ):
        with pytest.raises(UserError):
            named_decoder(wrong)


@pytest.mark.parametrize(
    "given",
    [
        {"tasks": ()}, {"tasks": ("a", "a")}, {"seeds": ()}, {"seeds": (1, 1)}, {"seeds": (-1,)}, {"draws": 0},
        {"limit": 0}, {"budget": 0}, {"batch_size": True}, {"stop": ("",)}, {"shots": -1},
    ],
)  # fmt: skip
def test_settings_are_checked(given: dict[str, Any]) -> None:
    with pytest.raises(UserError):
        RunSettings(**{"tasks": ("a",), **given})


# --- the command line -------------------------------------------------------------------------------------------------

SMALL = ("--tasks", "tiny_logic", "--limit", "2", "--max-new-tokens", "12", "--budget", "16")


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> None:
    found = [Problem("logic", "k", text, "", "a") for text in ("ab", "cd")]
    monkeypatch.setattr(tasks, "items", lambda task, split="test", limit=None: found[:limit])


def test_a_run_and_its_tables(tmp_path: Path, run: Run, asked: None) -> None:
    outcome = run(
        "eval", "a", *SMALL, "--decoder", "dystruct:structure=sample", "--draws", "2", "--seeds", "0,4", "--samples"
    )
    assert outcome.status == 0, outcome.err
    assert "8 items, nothing is on record yet, 8 to go." in outcome.err and "8 of 8 done, 0 right" in outcome.err
    assert "tiny_logic" in outcome.out and "correct %" in outcome.out
    settings = read_run(tmp_path / "a")["settings"]
    assert (settings["draws"], settings["seeds"], settings["budget"]) == (2, [0, 4], 16)
    samples = [json.loads(line) for line in (tmp_path / "a" / "samples.jsonl").read_text().splitlines()]
    assert [(s["prompt"], s["target"]) for s in samples] == [("ab", "a")] * 4 + [("cd", "a")] * 4
    assert run("eval", "b", *SMALL, "--decoder", "block", "--no-traces", "--name", "blocks").status == 0
    assert (tmp_path / "b" / "traces.jsonl").read_bytes() == b""
    assert (
        "8 are on record, 0 to go"
        in run("eval", "a", *SMALL, "--decoder", "dystruct:structure=sample", "--draws", "2", "--seeds", "0,4").err
    )
    assert len(read_items(tmp_path / "a")) == 8
    told = run("tables", "a", "b", "--out", "t")
    assert told.status == 0 and "tables.md" in told.out
    assert "blocks" in (tmp_path / "t" / "results.csv").read_text()


def test_a_prompt_format_is_part_of_a_run(
    tmp_path: Path, run: Run, asked: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen, real = [], local.generate

    def spying(model: Any, *given: Any, **settings: Any) -> Any:
        seen.append(model.prompt_format)
        return real(model, *given, **settings)

    monkeypatch.setattr(local, "generate", spying)
    own = run("eval", "own", *SMALL, "--decoder", "block")
    assert own.status == 0 and "prompt_format" not in read_run(tmp_path / "own")["settings"]
    assert run("eval", "a", *SMALL, "--decoder", "block", "--prompt-format", "a{prompt}b").status == 0
    assert seen == ["{prompt}", "a{prompt}b"]
    texts = [[line["text"] for line in read_items(tmp_path / name)] for name in ("own", "a")]
    assert texts[0] != texts[1]
    run("eval", "a", *SMALL, "--decoder", "block").refused("prompt_format")
    run("eval", "own", *SMALL, "--decoder", "block", "--prompt-format", "a{prompt}b").refused("prompt_format")
    run("eval", "c", *SMALL, "--prompt-format", "a").refused("prompt_format must name {prompt} once")
    run("eval", "c", *SMALL, "--prompt-format", "a{prompt}", "--chat").refused("exclude each other")
    assert not (tmp_path / "c").exists()


def test_samples_that_are_there_stay_up_to_date(tmp_path: Path, run: Run, asked: None) -> None:
    def prompts() -> list[str]:
        lines = (tmp_path / "a" / "samples.jsonl").read_text().splitlines()
        return [json.loads(line)["prompt"] for line in lines]

    assert run("eval", "a", *SMALL, "--limit", "1", "--decoder", "block", "--samples").status == 0
    assert prompts() == ["ab"]
    assert run("eval", "a", *SMALL, "--decoder", "block").status == 0
    assert prompts() == ["ab", "cd"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((), "No task is named"),
        (("--tasks", "tiny_logic,gsm8k"), "'gsm8k' is none of them"),
        (("--tasks", "tiny_code"), "--execute-code"),
        ((*SMALL, "--decoder", "fats"), "no decoder 'fats'"),
        ((*SMALL, "--draws", "2"), "structure=sample"),
        ((*SMALL, "--draws", "99999999999999999999"), "draws must be a whole number from 1 to 10000"),
        ((*SMALL, "--seeds", "a"), "--seeds must be whole numbers"),
        ((*SMALL, "--data", "x"), "--data must be TASK=PATH"),
        ((*SMALL, "--data", "tiny_logic=x"), "no use with the embedded tasks"),
        ((*SMALL, "--shots", "2"), "leave out --shots"),
        ((*SMALL, "--split", "train"), "validation"),
    ],
)
def test_mistakes_are_told_before_anything_is_written(
    tmp_path: Path, run: Run, arguments: tuple[str, ...], says: str
) -> None:
    run("eval", "out", *arguments).refused(says)
    assert not (tmp_path / "out").exists()


def test_a_folder_of_another_run_is_refused(run: Run, asked: None) -> None:
    assert run("eval", "a", *SMALL, "--decoder", "block").status == 0
    outcome = run("eval", "a", *SMALL, "--decoder", "block", "--temperature", "0.5")
    outcome.refused("temperature 0.0, not 0.5")


def test_tables_want_results(tmp_path: Path, run: Run) -> None:
    run("tables", str(tmp_path), "--out", "t").refused("no result")
