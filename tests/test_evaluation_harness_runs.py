"""Runs through the harness that are prolonged, and code tasks in chat: its own prompts, filters and metrics."""

# ruff: noqa: E402, F811 - what is tested cannot be imported without the harness; fixtures are imported
from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("lm_eval", reason="lm-evaluation-harness is an extra: pip install 'dystruct[eval]'")
pytestmark = [
    pytest.mark.filterwarnings("default"),  # the harness and its metrics are not ours to mend
]


from checkpoints import write_dream, write_llada
from dystruct.decoding import Block, UserError, generate, load
from dystruct.decoding.engine import Finished
from dystruct.decoding.evaluation import harness, harness_run
from dystruct.decoding.evaluation.harness_run import HarnessSettings, load_tasks, run_harness
from dystruct.decoding.evaluation.likelihood import LikelihoodSettings
from dystruct.decoding.evaluation.run_record import read_items, read_run
from dystruct.decoding.evaluation.summary import summarise
from dystruct.decoding.evaluation.sweep import PlannedRun, read_sweep
from dystruct.decoding.evaluation.sweep_state import is_scored, state
from dystruct.decoding.evaluation.tasks import FOLDER
from harness_runs import GSM8K, HUMANEVAL, RUN, SAID, TASKS, _no_network_wait, asked, data, settings_of  # noqa: F401
from scripted import backbone, hashed


def test_a_larger_limit_prolongs_a_run(
    tmp_path: Path, data: dict[str, Path], asked: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only what is new is decoded, under the prompts, with their random examples, that a run in one go has."""
    model, harnessed = backbone(hashed(3)), settings_of({"gsm8k": data["gsm8k"]}, samples=True)
    run = replace(RUN, tasks=("gsm8k",))
    run_harness(run, harnessed, model, {"name": "said"}, tmp_path / "whole")
    prompts = [each["prompt"] for each in asked]
    assert len(prompts) == 3 and len({prompt[:-40] for prompt in prompts}) == 3, "each has examples of its own"
    asked.clear()
    out, right = tmp_path / "run", summarise(tmp_path / "whole").tasks["gsm8k"].right["0/0"]
    for limit, count in ((1, 1), (2, 2), (50, 3), (None, 3)):
        run_harness(replace(run, limit=limit), harnessed, model, {"name": "said"}, out)
        found, held = summarise(out), read_run(out)["settings"]
        assert (held["limit"], held["tasks"]["gsm8k"]["items"]) == (limit, count)
        assert found.complete and found.tasks["gsm8k"].right["0/0"] == right[:count]
        assert (
            len({line["doc_id"] for line in map(json.loads, (out / "samples.jsonl").read_text().splitlines())}) == count
        )
    assert [each["prompt"] for each in asked] == prompts
    for settings, says in (
        (replace(run, limit=2), "has limit null, not 2"),
        (replace(run, limit=4, budget=5), "has budget 4, not 5"),
    ):
        with pytest.raises(UserError, match=says):
            run_harness(settings, harnessed, model, {"name": "said"}, out)


def test_a_task_of_ones_own_is_run_as_the_page_says(tmp_path: Path, asked: list[dict[str, Any]]) -> None:
    """With its own prompts and scores; a file of the folder that has changed makes it another task."""
    [file] = re.findall(r"```yaml\n(.*?)```", (FOLDER.parent / "README.md").read_text(), flags=re.DOTALL)
    said = [(end, text) for end, (text, _) in SAID.items() if end.startswith("Q: ")]
    items = [{"question": end.strip(), "answer": text} for end, text in (said[0], (said[1][0], "another"))]
    (tmp_path / "mine.jsonl").write_text("".join(json.dumps(item) + "\n" for item in items))
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "mine.yaml").write_text(file.replace("/home/me", str(tmp_path)))
    run, harnessed = replace(RUN, tasks=("mine",)), settings_of({}, own_tasks=tmp_path / "own")
    run_harness(run, harnessed, backbone(hashed(3)), {"name": "said"}, tmp_path / "run")
    assert [each["prompt"] for each in asked] == [end for end, _ in said]
    found = summarise(tmp_path / "run")
    assert found.complete and found.tasks["mine"].right["0/0"] == "10"
    (tmp_path / "own" / "mine.yaml").write_text(file.replace("/home/me", str(tmp_path)) + "num_fewshot: 0\n")
    with pytest.raises(UserError, match="has own_tasks "):
        run_harness(run, harnessed, backbone(hashed(3)), {"name": "said"}, tmp_path / "run")
    with pytest.raises(UserError, match=r"has no task 'yours', and no file in .*own' has one"):
        load_tasks(["yours"], {}, tmp_path / "own")
    with pytest.raises(UserError, match=r"no folder of task files at .*nowhere'"):
        load_tasks(["mine"], {}, tmp_path / "nowhere")


def test_a_run_on_other_first_items_is_not_prolonged(
    tmp_path: Path, data: dict[str, Path], asked: list[dict[str, Any]]
) -> None:
    model, run = backbone(hashed(3)), replace(RUN, tasks=("gsm8k",), limit=2)
    run_harness(run, settings_of({"gsm8k": data["gsm8k"]}), model, {"name": "said"}, tmp_path / "run")
    items = (data["gsm8k"] / "test.jsonl").read_text().splitlines(keepends=True)
    (data["gsm8k"] / "test.jsonl").write_text("".join(items[::-1]))
    with pytest.raises(UserError, match=r"has tasks\.gsm8k\.digest"):
        run_harness(
            replace(run, limit=3), settings_of({"gsm8k": data["gsm8k"]}), model, {"name": "said"}, tmp_path / "run"
        )
    assert len(read_items(tmp_path / "run")) == 2


def test_a_sweep_of_the_harness_s_tasks_is_prolonged(
    tmp_path: Path, data: dict[str, Path], asked: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is finished when all of its items are scored, however many of them it had before."""
    model = backbone(hashed(3))
    monkeypatch.setattr(harness_run, "load_tasks", lambda names, *_: load_tasks(names, {"gsm8k": data["gsm8k"]}))
    (tmp_path / "sweep.toml").write_text(
        '[settings]\ntasks = ["gsm8k"]\nmodel = "said"\nmax_new_tokens = 4\nbudget = 4\n[[run]]\ndecoder = "block"\n'
    )

    def planned(limit: int | None) -> PlannedRun:
        return read_sweep(tmp_path / "sweep.toml", limit=limit)[0]

    def far(limit: int | None) -> tuple[int, int | None, bool]:
        found = state(planned(limit), tmp_path)
        return found.done, found.count, is_scored(planned(limit), tmp_path)

    def go_on(limit: int | None) -> None:
        harnessed = HarnessSettings({}, LikelihoodSettings())
        run_harness(planned(limit).settings, harnessed, model, {"name": "said"}, tmp_path / "block")

    assert far(1) == (0, None, False)
    go_on(1)
    assert far(1) == (1, 1, True) and far(2) == far(None) == (1, None, True)
    monkeypatch.setattr(harness_run, "_write", lambda *results: None)  # stopped before its items were scored
    go_on(2)
    assert far(2) == (2, 2, False) and far(1) == (1, 1, True)
    monkeypatch.undo()
    assert not state(planned(3), tmp_path).finished


# What a chat model "says" of code, by a part of its prompt, and whether that is right.
CHATTED = {
    "humaneval_instruct": {
        "Twice x.": ("    return 2 * x\n```\nThat doubles it.", True),
        "x + 1.": ("    return x\n```", False),
        "x.": ("    return x", True),
    },
    "mbpp_instruct": {
        "square(3)": ("def square(n):\n    return n * n\n```\nThat squares n.", True),
        "minus(3)": ("import math\n\ndef minus(n):\n    return -math.floor(n)", True),
    },
    "mbpp": {
        "square(3)": ("Here it is:\n```python\ndef square(n):\n    return n * n\n```\nIt squares.", True),
        "minus(3)": ("```python\ndef minus(n):\n    return n\n```", False),
    },
}


@pytest.mark.parametrize("family", ["llada", "dream"])
def test_code_tasks_in_chat_score_what_they_should(
    tmp_path: Path, data: dict[str, Path], monkeypatch: pytest.MonkeyPatch, family: str
) -> None:
    """The answer goes on with a fence that the prompt has opened, or has one of its own."""
    {"llada": write_llada, "dream": write_dream}[family](tmp_path / family, chat=True)
    model, asked = load(tmp_path / family), dict[str, str]()
    [blank] = generate(backbone(hashed(3)), ["abc"], Block(4), max_new_tokens=4)

    def task_of(prompt: str) -> str:
        last = prompt.rpartition("user")[2]
        return "humaneval_instruct" if "Write a solution" in last else "mbpp" if "[BEGIN]" in last else "mbpp_instruct"

    def saying(model: Any, prompts: Sequence[str], decoder: Any, *, finished: Finished, **options: Any) -> None:
        asked.update({prompt: task_of(prompt) for prompt in prompts})
        told = [next(text for part, (text, _) in CHATTED[asked[p]].items() if part in p[-400:]) for p in prompts]
        for place, text in enumerate(told):
            finished(place, replace(blank, text=text), 0.1)

    monkeypatch.setattr(harness, "generate", saying)
    run, places = replace(RUN, tasks=tuple(CHATTED), chat=True), {t: data[t.removesuffix("_instruct")] for t in CHATTED}
    run_harness(run, settings_of(places), model, {"name": "said"}, tmp_path / "run")
    right = {task: "".join(str(int(is_right)) for _, is_right in of.values()) for task, of in CHATTED.items()}
    assert {task: found.right["0/0"] for task, found in summarise(tmp_path / "run").tasks.items()} == right

    turn = {"llada": "<|start_header_id|>assistant<|end_header_id|>\n\n", "dream": "<|im_start|>assistant\n"}[family]
    opened = {"humaneval_instruct": '"""', "mbpp_instruct": "```python", "mbpp": turn.rstrip()}
    for prompt, task in asked.items():
        assert prompt.count(turn) == (1 if task == "humaneval_instruct" else 4), "three examples, and the answer"
        assert prompt.rstrip().endswith(opened[task])
    assert sorted(asked.values()) == sorted(task for task, of in CHATTED.items() for _ in of)


def test_a_task_of_which_chat_leaves_nothing_is_refused(tmp_path: Path, data: dict[str, Path]) -> None:
    for task, instead in (("humaneval", "humaneval_instruct"), ("humaneval_64", "humaneval_64_instruct")):
        run = replace(RUN, tasks=("gsm8k", task), chat=True)
        with pytest.raises(
            UserError, match=f"nothing is left of an answer in chat; take {instead}, or leave out --chat"
        ):
            run_harness(run, settings_of(data), backbone(hashed(3)), {}, tmp_path / "run")
