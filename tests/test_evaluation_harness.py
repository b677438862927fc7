"""lm-evaluation-harness with our model class: its own prompts and filters, offline, on items written here."""

# ruff: noqa: E402, F811 - what is tested cannot be imported without the harness; fixtures are imported
from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("lm_eval", reason="lm-evaluation-harness is an extra: pip install 'dystruct[eval]'")
pytestmark = [
    pytest.mark.filterwarnings("default"),  # the harness and its metrics are not ours to mend
]

from lm_eval import simple_evaluate
from lm_eval.api.registry import get_model
from lm_eval.api.task import ConfigurableTask
from lm_eval.tasks import TaskManager

from dystruct.decoding import Fast, UserError, load
from dystruct.decoding.backbone import model_folder
from dystruct.decoding.calibration_file import fingerprint, write_calibration
from dystruct.decoding.evaluation import harness
from dystruct.decoding.evaluation.harness import DystructLM, own_device
from dystruct.decoding.evaluation.harness_run import HarnessSettings, judging_metric, load_tasks, run_harness
from dystruct.decoding.evaluation.likelihood import LikelihoodSettings, is_greedy, log_likelihood
from dystruct.decoding.evaluation.local import run_local
from dystruct.decoding.evaluation.report import report
from dystruct.decoding.evaluation.run_record import read_items
from dystruct.decoding.evaluation.settings import RunSettings
from dystruct.decoding.evaluation.summary import summarise
from dystruct.decoding.plain import as_plain
from full_memory import OUT_OF_MEMORY
from harness_runs import GSM8K, HUMANEVAL, RUN, SAID, TASKS, _no_network_wait, asked, data, settings_of  # noqa: F401
from random_network import random_backbone
from scripted import backbone, hashed, uneven_weights


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
    for name in ("none", "x" * 300):
        with pytest.raises(UserError, match="There is no data for gsm8k at"):
            load_tasks(["gsm8k"], {"gsm8k": tmp_path / name})
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


@pytest.mark.parametrize(
    ("kind", "args", "value"), [("loglikelihood", ("ab", "c"), (-1.5, False)), ("loglikelihood_rolling", ("c",), -1.5)]
)
def test_what_fills_up_a_share_is_not_estimated_twice(
    monkeypatch: pytest.MonkeyPatch, kind: Any, args: tuple[str, ...], value: Any
) -> None:
    from lm_eval.api.instance import Instance

    asked = []
    monkeypatch.setattr(harness, "log_likelihood", lambda *arguments: asked.append(arguments) or -1.5)
    model = DystructLM(backbone(hashed(3)), "block", check_greedy=False)
    one, other = Instance(kind, {}, args, 0, ("t", 0, 1)), Instance(kind, {}, args, 0, ("t", 1, 1))
    assert getattr(model, kind)([one, other, other]) == [value] * 3
    assert len(asked) == 2


@pytest.mark.parametrize("head", ["", "k", "kk", "k "])
@pytest.mark.parametrize("context", ["", " ", "ab", "ab "])
def test_what_prompts_begin_with_is_never_scored(monkeypatch: pytest.MonkeyPatch, head: str, context: str) -> None:
    """It is context, and where there is no other the only one; spaces behind a context belong to the answer."""
    from lm_eval.api.instance import Instance

    seen = []
    monkeypatch.setattr(harness, "log_likelihood", lambda model, *ids_and_more: seen.append(ids_and_more[:2]) or 0.0)
    scripted = backbone(hashed(3))
    model = DystructLM(scripted, "block", check_greedy=False, prompt_format=head + "{prompt}l")

    def ids(text: str) -> list[int]:
        return scripted.tokenizer(text, add_special_tokens=False)["input_ids"]

    model.loglikelihood([Instance("loglikelihood", {}, (context, "cd"), 0, ("t", 0, 1))])
    bare = context.rstrip()
    assert seen == [(ids(head + bare) or [scripted.eos_id], ids(context[len(bare) :] + "cd"))]
    model.loglikelihood_rolling([Instance("loglikelihood_rolling", {}, (context + "cd",), 0, ("t", 0, 1))])
    assert seen[1:] == [(ids(head) or [scripted.eos_id], ids(context + "cd"))]


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


def test_likelihoods_of_whole_texts_are_on_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """WikiText's own metric, of texts that are neither right nor wrong: the run is complete and has tables."""
    pages = ["A pen costs 2 dollars.", "Two and two are 4.", "Ann has 3 pens."]
    (tmp_path / "test.jsonl").write_text("".join(json.dumps({"page": page}) + "\n" for page in pages))
    settings = HarnessSettings({"wikitext": tmp_path / "test.jsonl"}, LikelihoodSettings(4, 2))
    run, model = RunSettings(decoder="block", tasks=("wikitext",), limit=2), load("tiny")
    run_harness(run, settings, model, {"name": "tiny"}, tmp_path / "run")
    assert summarise(tmp_path / "run").complete
    run_harness(replace(run, limit=None), settings, model, {"name": "tiny"}, tmp_path / "run")
    lines = read_items(tmp_path / "run")
    context, *texts = (
        model.tokenizer(text, add_special_tokens=False)["input_ids"]
        for text in (model.prompt_format.split("{prompt}")[0], *pages)
    )
    assert [line["likelihood"] for line in lines] == pytest.approx(
        [log_likelihood(model, context or [model.eos_id], text, settings.likelihood) for text in texts]
    )
    nats, words = sum(line["likelihood"] for line in lines), sum(len(page.split()) for page in pages)
    [found] = json.loads((tmp_path / "run" / "harness.json").read_text())["results"].values()
    assert found["word_perplexity,none"] == pytest.approx(math.exp(-nats / words))
    summary = summarise(tmp_path / "run")
    assert summary.complete and summary.tasks["wikitext"].right == {"0/0": "???"}
    report([tmp_path / "run"], tmp_path / "out")

    def never(*arguments: Any) -> float:
        raise AssertionError("all is on record")

    monkeypatch.setattr(harness, "log_likelihood", never)
    run_harness(replace(run, limit=None), settings, model, {"name": "tiny"}, tmp_path / "run")
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


@pytest.mark.parametrize("error", OUT_OF_MEMORY.values(), ids=OUT_OF_MEMORY)
def test_likelihoods_for_which_the_memory_is_too_small_say_so(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """The remedy is theirs, not that of texts: fewer masked copies at once."""
    from lm_eval.api.instance import Instance

    def greedy(*arguments: Any) -> float:
        raise error

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
