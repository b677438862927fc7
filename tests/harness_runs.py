"""What the tests of runs through lm-evaluation-harness share: items, what a model "says" of each, and fixtures."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("lm_eval", reason="lm-evaluation-harness is an extra: pip install 'dystruct[eval]'")

from dystruct.decoding import Block, generate
from dystruct.decoding.engine import Finished
from dystruct.decoding.evaluation import harness
from dystruct.decoding.evaluation.harness_run import HarnessSettings
from dystruct.decoding.evaluation.likelihood import LikelihoodSettings
from dystruct.decoding.evaluation.settings import RunSettings
from scripted import backbone, hashed

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
