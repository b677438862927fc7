"""Calibration windows of published layouts: how questions are put, and which token ends an answer."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from tokenizers import Tokenizer

import checkpoints as written
import dystruct.decoding
from checkpoint_models import SHORT
from checkpoints import Checkpoint, byte_pairs, write_dream, write_llada
from command_line import Run
from dystruct.decoding import Backbone, DyStruct, UserError, generate, load
from dystruct.decoding.calibration import Known, windows_along_reference, windows_on_own_trajectory
from dystruct.decoding.calibration.trajectories import encoded
from dystruct.decoding.calibration_file import read_calibration
from dystruct.decoding.tiny.problems import problems
from dystruct.inference import fixed
from dystruct.inference.calibration import from_windows
from dystruct.model import EvidenceWeights, PriorConfig

pytestmark = pytest.mark.filterwarnings("ignore:Model .* has no calibrated")
WINDOW = 9  # tokens
CODE = ('def count(n):\n    """Count."""', "    for i in range(n):\n        print(i)")
STORY = ("How many are left?", "Michael starts with 7 cups.\n#### 7")


@pytest.fixture(scope="module")
def bases(tmp_path_factory: pytest.TempPathFactory) -> tuple[Tokenizer, dict[str, Backbone]]:
    """Base models whose vocabulary has tokens that end with a line end, and their tokenizer, without special tokens."""
    root = tmp_path_factory.mktemp("bases")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(written, "TEXTS", ["left?\n7", '"""\n    for'] * 3)
        folders = {"llada": write_llada(root / "llada").folder, "dream": write_dream(root / "dream").folder}
        tokenizer = byte_pairs()
    return tokenizer, {kind: load(folder, device="cpu") for kind, folder in folders.items()}


# --- how a question is put -------------------------------------------------------------------------------------------

pieces = st.lists(st.sampled_from(["?", '"""', "left", " the", "\n", " ", "    ", "7", "s."]), min_size=1, max_size=8)
texts = pieces.map("".join).filter(str.strip)


@given(question=texts, answer=texts)
def test_a_line_end_stands_between_and_both_have_the_whole_texts_tokens(
    bases: tuple[Tokenizer, dict[str, Backbone]], question: str, answer: str
) -> None:
    assume(not question.endswith("\n"))
    assume("\n" not in answer[: len(answer) - len(answer.lstrip())])  # else its first line is empty
    tokenizer, models = bases
    whole = tokenizer.encode(f"{question}\n{answer}").ids
    for model in models.values():
        for asked in (question, question + "\n"):
            [prompt], [reference] = encoded(model, [Known(asked, answer)], 0)
            assert prompt + reference == whole and model.decode(prompt) == question + "\n"


@pytest.mark.parametrize(("problem", "last"), [(CODE, '"""\n'), (STORY, "?\n")])
def test_the_line_end_is_no_token_of_its_own_where_a_text_has_none(
    bases: tuple[Tokenizer, dict[str, Backbone]], problem: tuple[str, str], last: str
) -> None:
    """Which is why it belongs to the prompt."""
    for model in bases[1].values():
        [prompt], _ = encoded(model, [Known(*problem)], 0)
        assert model.token_text(prompt[-1]) == last


def test_a_format_that_puts_something_behind_a_question_is_left_alone(models: dict[str, Backbone]) -> None:
    model = replace(models["dream"], prompt_format="Q: {prompt}\nA:")
    assert encoded(model, [Known("the sum", " 42")], 0)[0] == [model.encode("the sum")]
    model = replace(model, prompt_format="<|beginoftext|>{prompt}")
    assert encoded(model, [Known("the sum", "42")], 0)[0] == [model.encode("the sum\n")]


@pytest.mark.parametrize("kind", ["llada", "dream"])
def test_with_chat_a_question_is_a_users_turn(models: dict[str, Backbone], kind: str) -> None:
    model, known = models[kind], [Known(*STORY), Known(*CODE)]
    prompts, answers = encoded(model, known, 0, chat=True)
    assert prompts == [model.encode(problem.prompt, chat=True) for problem in known]
    assert [model.decode(answer) for answer in answers] == [problem.answer for problem in known]


def test_the_embedded_model_is_asked_as_it_was_trained() -> None:
    model = load("tiny", neutral=True)
    asked = [problem for domain in ("code", "logic") for problem in problems(domain, "validation", 12)]
    ids = [
        [model.tokenizer(text, add_special_tokens=False)["input_ids"] for text in texts]
        for texts in ([problem.question + "\n" for problem in asked], [problem.answer for problem in asked])
    ]
    assert encoded(model, [Known(problem.question, problem.answer) for problem in asked], 0) == tuple(ids)


@pytest.mark.parametrize("chat", [False, True])
@pytest.mark.parametrize("kind", ["llada", "dream"])
@pytest.mark.parametrize("collect", [windows_along_reference, windows_on_own_trajectory])
def test_windows_are_those_of_decoding_the_prompt(
    models: dict[str, Backbone], collect: Callable[..., Any], kind: str, chat: bool
) -> None:
    """Their first windows stand behind the same ids, and so have the same features."""
    model, prior = models[kind], PriorConfig(WINDOW, WINDOW)
    decoder = DyStruct(prior=prior, weld="off", weights=EvidenceWeights.neutral())
    own = {"decoder": decoder, "max_new_tokens": WINDOW}
    first = collect(model, [Known(*STORY)], chat=chat, **({"prior": prior} if "along" in collect.__name__ else own))[0]
    (asked,) = generate(model, [STORY[0] + ("" if chat else "\n")], decoder, max_new_tokens=WINDOW, chat=chat)
    structure = asked.windows[0].structure
    assert structure is not None
    np.testing.assert_allclose(first.features, structure.position_features, atol=1e-5)


@pytest.mark.parametrize("collect", [windows_along_reference, windows_on_own_trajectory])
def test_a_base_model_is_asked_for_no_turns(bases: Any, collect: Callable[..., Any]) -> None:
    with pytest.raises(UserError, match="no chat template"):
        collect(bases[1]["llada"], [Known(*STORY)], chat=True)


# --- which token ends an answer --------------------------------------------------------------------------------------


TURN_ENDS = {"llada": "<|eot_id|>", "dream": "<|im_end|>"}


@pytest.fixture
def ending(request: Any, models: dict[str, Backbone], checkpoints: dict[str, Checkpoint]) -> Iterator[Backbone]:
    """An Instruct model that closes its turn at once, with another token than its config's end token."""
    model, turn_end = models[request.param], checkpoints[request.param].tokens[TURN_ENDS[request.param]]
    assert turn_end != model.eos_id
    head = model.network.get_output_embeddings()
    hook = head.register_forward_hook(lambda *given: given[2].index_fill(-1, torch.tensor([turn_end]), 99.0))
    yield model
    hook.remove()


@pytest.mark.parametrize("ending", TURN_ENDS, indirect=True)
@pytest.mark.parametrize("chat", [False, True])
def test_the_end_of_a_turn_is_right_behind_the_answer(ending: Backbone, chat: bool) -> None:
    _, [answer] = encoded(ending, [Known(*STORY)], 0)
    targets = np.concatenate([w.targets for w in windows_along_reference(ending, [Known(*STORY)], chat=chat)])
    assert len(targets) > len(answer) and targets.tolist() == [1] * len(answer) + [0] * (len(targets) - len(answer))
    decoder = replace(SHORT, structure=fixed(), weights=EvidenceWeights.neutral())
    (window,) = windows_on_own_trajectory(ending, [Known("7 cups", "of")], decoder=decoder, chat=chat, max_new_tokens=8)
    assert window.targets[0] == 1 and not window.targets[-1]


# --- on the command line ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ending", "trajectory"), [("llada", "reference"), ("dream", "own")], indirect=["ending"]
)  # fmt: skip
def test_calibrating_an_instruct_model_on_problems_of_ones_own(
    run: Run, ending: Backbone, monkeypatch: pytest.MonkeyPatch, trajectory: str
) -> None:
    monkeypatch.setattr(dystruct.decoding, "load", lambda name, **options: ending)
    monkeypatch.setattr(from_windows, "REFITS", 5)
    lines = [{"question": f"{n} cups", "answer": "the sum of " * n + f"{n}", "id": n} for n in range(1, 7)]
    Path("cups.jsonl").write_text("\n".join(map(json.dumps, lines)))
    options = ("--model", ending.name, "--file", "cups.jsonl", "--trajectory", trajectory, "--json")
    told = {}
    for chat in (True, False):
        outcome = run("calibrate", "w.json", *options, *(["--chat"] if chat else []))
        assert outcome.status == 0, outcome.err
        report, told[chat] = json.loads(outcome.out), json.loads(Path("w.json").read_text())["provenance"]
        assert read_calibration("w.json", Path(ending.name))[1]
        for name in ("file", "digest", "chat", "prompt_format", "trajectory", "problems"):
            assert report[name] == told[chat][name]
        assert "split" not in report and "split" not in told[chat]
        assert told[chat]["file"] == "cups.jsonl" and told[chat]["problems"] == {"cups": 6}
    assert [told[chat]["chat"] for chat in told] == [True, False] and told[True]["digest"] == told[False]["digest"]
    assert [told[chat]["prompt_format"] for chat in told] == [None, "{prompt}\n"]
    assert told[False]["held_out"] != told[True]["held_out"], "other prompts, other windows"


def test_a_model_that_takes_no_turns_is_not_calibrated_with_chat(
    run: Run, bases: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dystruct.decoding, "load", lambda name, **options: bases[1]["dream"])
    Path("p.jsonl").write_text("\n".join(json.dumps({"question": f"q {n}", "answer": "a"}) for n in range(5)))
    outcome = run("calibrate", "w.json", "--file", "p.jsonl", "--chat", "--model", bases[1]["dream"].name)
    assert outcome.status == 2 and "has no chat template" in outcome.err and "--chat" in outcome.err
    assert [path.name for path in Path().iterdir()] == ["p.jsonl"]
