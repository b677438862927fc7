"""lm-evaluation-harness with our model class: its own prompts and filters, offline, on items written here."""

# ruff: noqa: E402 - what is tested cannot be imported without the harness
from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("lm_eval", reason="lm-evaluation-harness is an extra: pip install 'dystruct[eval]'")
pytestmark = [
    pytest.mark.filterwarnings("default"),  # the harness and its metrics are not ours to mend
]

from lm_eval import simple_evaluate
from lm_eval.api.registry import get_model
from lm_eval.api.task import ConfigurableTask
from lm_eval.tasks import TaskManager

from checkpoints import write_dream, write_llada
from dystruct.decoding import Block, Fast, UserError, generate, load
from dystruct.decoding.backbone import model_folder
from dystruct.decoding.calibration_file import fingerprint, write_calibration
from dystruct.decoding.engine import Finished
from dystruct.decoding.evaluation import harness, harness_run
from dystruct.decoding.evaluation.harness import DystructLM, own_device
from dystruct.decoding.evaluation.harness_run import HarnessSettings, judging_metric, load_tasks, run_harness
from dystruct.decoding.evaluation.likelihood import LikelihoodSettings, is_greedy, log_likelihood
from dystruct.decoding.evaluation.local import run_local
from dystruct.decoding.evaluation.run_folder import read_items, read_run
from dystruct.decoding.evaluation.settings import RunSettings
from dystruct.decoding.evaluation.summary import summarise
from dystruct.decoding.evaluation.sweep import PlannedRun, is_scored, read_sweep, state
from dystruct.decoding.plain import as_plain
from random_network import random_backbone
from scripted import backbone, hashed, uneven_weights

GSM8K = [
    {"question": "Ann has 3 pens and buys 4. How many has she?", "answer": "3+4=<<3+4=7>>7\n#### 7"},
    {"question": "A pen costs 2 dollars. What do 1,000 cost?", "answer": "#### 2000"},
    {"question": "Two and two?", "answer": "#### 4"},
]
MATH = [
    {"problem": "What is $1+2$?", "solution": "It is $\\boxed{3}$.", "level": "1", "type": "Algebra"},
    {"problem": "Half of one?", "solution": "It is $\\boxed{\\frac{1}{2}}$.", "level": "1", "type": "Algebra"},
    {"problem": "And twice?", "solution": "It is $\\boxed{6}$.", "level": "1", "type": "Algebra"},
]
BBH = [{"input": f"not ( {word} ) is", "target": target} for word, target in (("True", "False"), ("False", "True"))]
HUMANEVAL = [
    {
        "task_id": f"HumanEval/{name}",
        "prompt": f'from typing import List\n\n\ndef {name}(x: int) -> int:\n    """{doc}"""\n',
        "canonical_solution": "", "entry_point": name,
        "test": f"def check(candidate):\n    assert candidate(3) == {value}\n    assert candidate(0) == {least}\n",
    }
    for name, doc, value, least in (("double", "Twice x.", 6, 0), ("next_one", "x + 1.", 4, 1), ("stuck", "x.", 3, 0))
]  # fmt: skip
MBPP = [
    {
        "task_id": number, "text": f"Write a function {name} that {what}.", "code": "", "test_setup_code": "",
        "test_list": [f"assert {name}({n}) == {value(n)}" for n in (1, 2, 3)], "challenge_test_list": [],
    }
    for number, (name, what, value) in enumerate(
        (("square", "squares", lambda n: n * n), ("minus", "negates", lambda n: -n))
    )
]  # fmt: skip

# What the model "says" of a prompt that ends in the key, and whether that is right.
SAID = {
    "Ann has 3 pens and buys 4. How many has she?\nAnswer:": (" 3 + 4 = 7.\n#### 7", True),
    "What do 1,000 cost?\nAnswer:": (" It is $2,000.\n#### 2,000", True),
    "Two and two?\nAnswer:": (" It is 4, I think, or\n#### 5", False),
    "What is $1+2$?\n\nSolution:": (" Final Answer: The final answer is $3$. I hope it is correct.", True),
    "Half of one?\n\nSolution:": (" Final Answer: The final answer is $\\frac12$. I hope it is correct.", True),
    "And twice?\n\nSolution:": (" It is 6.", False),
    "Q: not ( True ) is\nA: Let's think step by step.\n": ("not True = False. So the answer is False.", True),
    "Q: not ( False ) is\nA: Let's think step by step.\n": ("So the answer is not known.", False),
    '"""Twice x."""\n': ("    return 2 * x", True),
    '"""x + 1."""\n': ("    return x\n", False),
    '"""x."""\n': ("    while True:\n        pass\n", False),
    "assert square(3) == 9\n[BEGIN]\n": (
        "Here it is:\n```python\ndef square(n):\n    return n * n\nprint(square())\n```",
        True,
    ),
    "assert minus(3) == -3\n[BEGIN]\n": ("def minus(n):\n    return n\n", False),
}
TASKS = {
    "gsm8k": GSM8K, "minerva_math_algebra": MATH, "bbh_cot_fewshot_boolean_expressions": BBH, "humaneval": HUMANEVAL,
    "mbpp": MBPP,
}  # fmt: skip
RUN = RunSettings(
    decoder="block", tasks=tuple(TASKS), max_new_tokens=4, budget=4, execute_code=True, batch_size=2, traces=False
)  # fmt: skip
EXAMPLES = [{"question": f"Count to {n}.", "answer": f"#### {n}"} for n in range(6)]


@pytest.fixture
def data(tmp_path: Path) -> dict[str, Path]:
    """The items above as local files."""
    places = {}
    for task, items in TASKS.items():
        folder = tmp_path / "data" / task
        folder.mkdir(parents=True)
        for split, found in (("test", items), ("train", EXAMPLES if task == "gsm8k" else items)):
            (folder / f"{split}.jsonl").write_text("".join(json.dumps(item) + "\n" for item in found))
        places[task] = folder
    return places


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Puts `SAID` in the place of a model; what it was asked."""
    seen: list[dict[str, Any]] = []
    [blank] = generate(backbone(hashed(3)), ["abc"], Block(4), max_new_tokens=4)

    def saying(model: Any, prompts: Sequence[str], decoder: Any, *, finished: Finished, **options: Any) -> None:
        seen.extend({"prompt": prompt, "decoder": decoder, **options} for prompt in prompts)
        for place, prompt in enumerate(prompts):
            text = next(text for end, (text, _) in SAID.items() if prompt.endswith(end))
            finished(place, replace(blank, prompt=prompt, text=text), 0.1)

    monkeypatch.setattr(harness, "generate", saying)
    return seen


@pytest.fixture(scope="module", autouse=True)
def _no_network_wait() -> None:
    """The data sets library asks the Hub even for local files, unless it is told not to."""
    import datasets

    datasets.config.HF_HUB_OFFLINE = True


def settings_of(data: dict[str, Path], **more: Any) -> HarnessSettings:
    return HarnessSettings(data=data, likelihood=LikelihoodSettings(8, 4), **more)


def test_the_papers_five_tasks_score_what_they_should(
    tmp_path: Path, data: dict[str, Path], asked: list[dict[str, Any]]
) -> None:
    pytest.importorskip("math_verify", reason="MATH needs lm_eval[math]")
    model, out = backbone(hashed(3)), tmp_path / "run"
    run_harness(RUN, settings_of(data, samples=True), model, {"name": "said"}, out)
    found = summarise(out)
    right = {task: summary.right["0/0"] for task, summary in found.tasks.items()}
    signs = iter(str(int(is_right)) for _, is_right in SAID.values())
    assert right == {task: "".join(next(signs) for _ in items) for task, items in TASKS.items()}
    assert found.complete

    prompts = {end: [seen for seen in asked if seen["prompt"].endswith(end)] for end in SAID}
    assert all(len(seen) == 1 for seen in prompts.values()), "every item is decoded once"
    shots = {"Question:": 5, "Problem:": 4, "Q:": 3, "[BEGIN]": 3}
    for opening, (end, _) in zip(
        shots, (("cost?\nAnswer:", 0), ("$1+2$?\n\nSolution:", 0), ("step.\n", 0), ("[BEGIN]\n", 0)), strict=True
    ):
        [prompt, *_] = [seen["prompt"] for seen in asked if seen["prompt"].endswith(end)]
        assert prompt.count(opening) == shots[opening] + 1, prompt
    [code] = prompts['"""Twice x."""\n']
    assert code["prompt"] == HUMANEVAL[0]["prompt"] and "\ndef" in code["stop"]
    assert all((seen["max_new_tokens"], seen["budget"], seen["temperature"]) == (4, 4, 0.0) for seen in asked)

    # all is on record: nothing is decoded again, and what is missing is
    asked.clear()
    run_harness(RUN, settings_of(data), model, {"name": "said"}, out)
    assert asked == [] and summarise(out).tasks == found.tasks
    lines = (out / "items.jsonl").read_bytes().splitlines(keepends=True)
    (out / "items.jsonl").write_bytes(b"".join(lines[:6]) + lines[6][:20])
    run_harness(RUN, settings_of(data), model, {"name": "said"}, out)
    assert len(asked) == len(SAID) - 6
    assert {task: summary.right["0/0"] for task, summary in summarise(out).tasks.items()} == right
    assert len((out / "samples.jsonl").read_text().splitlines()) >= len(SAID)


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
    monkeypatch.setattr(harness_run, "load_tasks", lambda names, _: load_tasks(names, {"gsm8k": data["gsm8k"]}))
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


def test_code_needs_its_flag_and_tasks_their_names(tmp_path: Path, data: dict[str, Path]) -> None:
    model = backbone(hashed(3))
    for changed, says in (
        ({"execute_code": False}, "--execute-code"),
        ({"draws": 2}, "one seed and one draw"),
        ({"stop": ("x",)}, "leave out --stop"),
    ):
        with pytest.raises(UserError, match=says):
            run_harness(replace(RUN, **changed), settings_of(data), model, {}, tmp_path / "run")
    with pytest.raises(UserError, match="has no task 'gsm9k'"):
        load_tasks(["gsm9k"], {})
    with pytest.raises(UserError, match="none of the tasks"):
        load_tasks(["gsm8k"], {"mbpp": tmp_path})
    with pytest.raises(UserError, match="There is no data for gsm8k at"):
        load_tasks(["gsm8k"], {"gsm8k": tmp_path / "none"})
    only_test = settings_of({"gsm8k": data["gsm8k"] / "test.jsonl"})
    with pytest.raises(UserError, match="or --shots 0"):
        run_harness(replace(RUN, tasks=("gsm8k",)), only_test, model, {}, tmp_path / "run")
    (data["mbpp"] / "test.jsonl").unlink()
    with pytest.raises(UserError, match="folder with a test"):
        load_tasks(["mbpp"], {"mbpp": data["mbpp"]})
    assert not (tmp_path / "run").exists()


def test_the_embedded_tasks_score_the_same_through_the_harness(tmp_path: Path) -> None:
    model = load("tiny")
    run = RunSettings(
        decoder="block:block-length=16,passes=4",
        tasks=("tiny_logic", "tiny_maths"),
        limit=3,
        max_new_tokens=32,
        budget=32,
    )
    run_local(run, model, {"name": "tiny"}, tmp_path / "local")
    run_harness(run, settings_of({}), model, {"name": "tiny"}, tmp_path / "harness")
    local, through = (read_items(tmp_path / name) for name in ("local", "harness"))
    assert [line["text"] for line in through] == [line["text"] for line in local]
    assert (
        summarise(tmp_path / "harness").tasks["tiny_logic"].right
        == summarise(tmp_path / "local").tasks["tiny_logic"].right
    )


def test_it_is_registered_with_its_arguments(tmp_path: Path) -> None:
    assert get_model("dystruct") is DystructLM
    model = DystructLM.create_from_arg_string(
        "pretrained=tiny,decoder=fast,threshold=0.8,block_length=16,max_new_tokens=7,budget=5,temperature=0.5",
        {"batch_size": "auto", "device": "cpu"},
    )
    assert isinstance(model, DystructLM) and model.decoder == Fast(threshold=0.8, block_length=16)
    assert (model.settings.max_new_tokens, model.settings.budget, model.settings.temperature) == (7, 5, 0.5)
    for given, cache in (("append", "append"), ("True", True), ("False", False)):
        model = DystructLM.create_from_arg_string(f"pretrained=tiny,prefix_cache={given}")
        assert isinstance(model, DystructLM) and model.settings.prefix_cache == cache
    write_calibration(tmp_path / "own.json", uneven_weights(), fingerprint(model_folder("tiny")), {})
    model = DystructLM.create_from_arg_string(f"pretrained=tiny,weights={tmp_path / 'own.json'}")
    assert isinstance(model, DystructLM) and as_plain(model.model.weights) == as_plain(uneven_weights())
    for useless in ("decoder=fast,alpha0=2", "decoder=fats", "decoder=block,unknown=1", "prefix_cache=full"):
        with pytest.raises(UserError):
            DystructLM.create_from_arg_string(f"pretrained=tiny,{useless}")


def test_another_temperature_than_the_task_s_is_an_error(asked: list[dict[str, Any]]) -> None:
    from lm_eval.api.instance import Instance

    def request(**arguments: Any) -> Instance:
        return Instance("generate_until", {}, ("Two and two?\nAnswer:", {"until": ["x"], **arguments}), 0, ("t", 0, 1))

    model = DystructLM(backbone(hashed(3)), "block", max_new_tokens=4, budget=4)
    assert model.generate_until([request(do_sample=False, temperature=0.7)]) == [SAID["Two and two?\nAnswer:"][0]]
    with pytest.raises(UserError, match=r"samples at temperature 0\.7"):
        model.generate_until([request(do_sample=True, temperature=0.7)])


def test_choices_are_scored_by_likelihood(tmp_path: Path) -> None:
    """A multiple choice task: the harness takes the choice that our estimate finds the likeliest."""
    items = [{"q": "ab", "choices": ["c", "dd"], "gold": 0}, {"q": "fg", "choices": ["h", "ii"], "gold": 1}]
    (tmp_path / "test.jsonl").write_text("".join(json.dumps(item) + "\n" for item in items))
    task = ConfigurableTask(config={
        "task": "choices", "dataset_path": "json", "test_split": "test",
        "dataset_kwargs": {"data_files": {"test": str(tmp_path / "test.jsonl")}}, "output_type": "multiple_choice",
        "doc_to_text": "{{q}}", "doc_to_target": "{{gold}}",
        "doc_to_choice": "{{choices}}", "target_delimiter": "", "num_fewshot": 0,
        "metric_list": [{"metric": "acc", "aggregation": "mean", "higher_is_better": True}],
    })  # fmt: skip
    network = random_backbone()
    model = DystructLM(network, "block", mc_samples=64, mc_batch_size=16)
    found = simple_evaluate(
        model=model, tasks=[task], bootstrap_iters=0, task_manager=TaskManager(include_defaults=False)
    )
    assert found is not None
    settings = LikelihoodSettings(64, 16)

    def ids(text: str) -> list[int]:
        return network.tokenizer(text, add_special_tokens=False)["input_ids"]

    for sample, item in zip(found["samples"]["choices"], items, strict=True):
        pairs = [(ids(item["q"]), ids(choice)) for choice in item["choices"]]
        values = [log_likelihood(network, context, answer, settings) for context, answer in pairs]
        assert [float(value) for [[value, _]] in sample["resps"]] == pytest.approx(values)
        assert [greedy for [[_, greedy]] in sample["resps"]] == [is_greedy(network, *pair, settings) for pair in pairs]
        assert sample["acc"] == float(max(range(2), key=values.__getitem__) == item["gold"])


def test_what_fills_up_a_share_is_not_decoded_twice(asked: list[dict[str, Any]]) -> None:
    """The harness gives several processes as many requests each, by repeating the last; repeats are another thing."""
    from lm_eval.api.instance import Instance

    def request(repeats: int) -> Instance:
        return Instance("generate_until", {}, ("Two and two?\nAnswer:", {"until": ["x"]}), 0, ("t", 0, repeats))

    model = DystructLM(backbone(hashed(3)), "block", max_new_tokens=4, budget=4)
    once, twice = request(1), request(2)
    assert model.generate_until([once, once, once]) == [SAID["Two and two?\nAnswer:"][0]] * 3
    assert len(asked) == 1
    model.generate_until([twice, twice])
    assert len(asked) == 3


def test_likelihoods_are_on_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """ARC's own prompt and metric: choices are scored once, and the run's summary has the harness's accuracy."""
    items = [
        {
            "id": str(n),
            "question": f"What is {n} + 1?",
            "answerKey": "B",
            "choices": {"text": [str(n), str(n + 1)], "label": ["A", "B"]},
        }
        for n in (3, 4)
    ]
    (tmp_path / "test.jsonl").write_text("".join(json.dumps(item) + "\n" for item in items))
    settings = HarnessSettings({"arc_easy": tmp_path / "test.jsonl"}, LikelihoodSettings(4, 2))
    run, model = RunSettings(decoder="block", tasks=("arc_easy",)), load("tiny")
    run_harness(run, settings, model, {"name": "tiny"}, tmp_path / "run")
    lines = read_items(tmp_path / "run")
    assert [(line["item"], line["draw"]) for line in lines] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    for line in lines:
        answer = model.tokenizer(f" {3 + line['item'] + line['draw']}", add_special_tokens=False)["input_ids"]
        context = model.tokenizer(f"Question: What is {3 + line['item']} + 1?\nAnswer:", add_special_tokens=False)[
            "input_ids"
        ]
        assert line["likelihood"] == pytest.approx(log_likelihood(model, context, answer, settings.likelihood))
    right = [lines[2 * n + 1]["likelihood"] > lines[2 * n]["likelihood"] for n in range(2)]
    found = summarise(tmp_path / "run").tasks["arc_easy"]
    assert found.right["0/0"] == "".join(str(int(value)) for value in right)
    assert found.accuracy is not None and found.accuracy.value == sum(right) / 2

    def never(*arguments: Any) -> float:
        raise AssertionError("all is on record")

    monkeypatch.setattr(harness, "log_likelihood", never)
    run_harness(run, settings, model, {"name": "tiny"}, tmp_path / "run")
    assert read_items(tmp_path / "run") == lines


@pytest.mark.parametrize("other", [0.0002, 1 - 1e-9, -3.5, 2, math.nan, "1", (1, 0), [True], None])
@pytest.mark.parametrize("kind", [bool, int, float, np.bool_, np.float64])
def test_only_zeros_and_ones_say_right_or_wrong(kind: type, other: Any) -> None:
    """A probability, log likelihood, F1 or pair of labels says neither, even if most of its values could."""
    samples: list[dict[str, Any]] = [
        {"metrics": ["first", "second"], "first": kind(n % 2), "second": 1} for n in range(4)
    ]
    assert judging_metric(samples, {}) == "first"
    assert judging_metric(samples, {"first": False}) == "second", "of what is worse the more of it there is"
    samples[2]["first"] = other
    assert judging_metric(samples, {"first": True}) == "second"
    del samples[1]["second"]
    assert judging_metric(samples, {"first": True}) is None
    assert judging_metric([], {}) is None


def test_likelihoods_for_which_the_memory_is_too_small_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """The remedy is theirs, not that of texts: fewer masked copies at once."""
    from lm_eval.api.instance import Instance

    def greedy(*arguments: Any) -> float:
        raise torch.OutOfMemoryError

    monkeypatch.setattr(harness, "log_likelihood", greedy)
    model = DystructLM(backbone(hashed(3)), "block", mc_samples=64, mc_batch_size=16)
    with pytest.raises(UserError, match="too small for 16 masked copies at once; give a smaller --mc-batch-size"):
        model.loglikelihood([Instance("loglikelihood", {}, ("ab", "c"), 0, ("t", 0, 1))])


def test_a_word_is_right_by_its_metric_that_says_so(tmp_path: Path) -> None:
    """LAMBADA's first metric is a perplexity, with a log likelihood as an item's raw value; its second is accuracy."""
    (tmp_path / "test.jsonl").write_text("".join(json.dumps({"text": f"{n} + 1 = {n + 1}"}) + "\n" for n in (3, 4)))
    settings = HarnessSettings({"lambada_openai": tmp_path / "test.jsonl"}, LikelihoodSettings(4, 2))
    run = RunSettings(decoder="block", tasks=("lambada_openai",))
    run_harness(run, settings, load("tiny"), {"name": "tiny"}, tmp_path / "run")
    greedy = [line["greedy"] for line in read_items(tmp_path / "run")]
    found = summarise(tmp_path / "run")
    assert found.tasks["lambada_openai"].right["0/0"] == "".join(str(int(is_greedy)) for is_greedy in greedy)
    assert found.complete and False in greedy


@pytest.mark.parametrize(
    ("asked", "rank", "gpus", "device"),
    [
        ("cuda:0", None, False, None),
        ("cuda:0", None, True, None),
        ("cuda:0", "1", True, "cuda:1"),
        (None, "1", True, "cuda:1"),
        (None, "1", False, None),
        ("cpu", "1", True, "cpu"),
        ("cuda:3", None, False, "cuda:3"),
    ],
)
def test_the_harness_asks_for_cuda_where_nobody_did(
    asked: str | None, rank: str | None, gpus: bool, device: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What nobody asked for is no error on a machine without a GPU; what somebody asked for is."""
    monkeypatch.setattr("torch.cuda.is_available", lambda: gpus)
    if rank is None:
        monkeypatch.delenv("LOCAL_RANK", raising=False)
    else:
        monkeypatch.setenv("LOCAL_RANK", rank)
    assert own_device(asked) == device
