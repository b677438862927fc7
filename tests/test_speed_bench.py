"""The decoding benchmarks: rows with targets, ratios that mean what they say, and originals that may be missing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from dystruct.decoding import Block, generate
from dystruct.decoding.bench import __main__ as bench
from dystruct.decoding.bench.agreement import DECODERS
from dystruct.decoding.bench.gpu import Needed
from dystruct.decoding.bench.measure import Clock, Recording, Traffic, timed
from dystruct.decoding.bench.originals import Served, against
from dystruct.decoding.bench.overhead import ratio
from dystruct.decoding.bench.scaling import prompts, vocabularies
from dystruct.decoding.bench.workloads import DECODER, random_model, random_prompt
from random_network import random_backbone


@pytest.fixture(scope="module")
def small() -> Any:
    return random_model(vocabulary=64, hidden=24, inner=32, layers=2, heads=3, length=1024)


@pytest.mark.parametrize("prefix_cache", [False, True])
def test_replayed_calls_are_the_decodes_forward_passes(prefix_cache: bool) -> None:
    """The same calls in the same order, and after them what was projected."""
    model = Recording.of(random_backbone(layers=2, seed=1))
    calls: list[tuple[int, ...]] = []
    model.network.model.embed_tokens.register_forward_hook(lambda m, inputs, out: calls.append(tuple(inputs[0].shape)))
    model.network.lm_head.register_forward_hook(lambda m, inputs, out: calls.append((len(inputs[0]),)))
    generations = generate(model, ["abc", "b"], Block(4), max_new_tokens=8, prefix_cache=prefix_cache)
    made = list(calls)
    calls.clear()
    model.replay()
    assert calls == made
    assert sum(len(shape) == 1 for shape in made) == max(g.forward_passes for g in generations)


def test_an_overhead_is_a_ratio_of_one_run(small: Any) -> None:
    clock = Clock()
    assert 0.5 < ratio(clock, small, [random_prompt(small, 8)], tokens=12, rounds=1) < 50
    with timed(clock, (torch.nn.Linear, "forward")) as spent:
        generate(small, [random_prompt(small, 4)], Block(2), max_new_tokens=2)
    assert spent and all(seconds >= 0 for seconds in spent)
    with pytest.MonkeyPatch.context() as patch:
        ticks = iter(range(100))
        patch.setattr(Clock, "now", lambda self: float(next(ticks)))
        assert clock.interleaved({"a": lambda: next(ticks), "b": lambda: None}, 3) == {"a": 2.0, "b": 1.0}


def test_random_networks_never_end_and_are_of_their_shape(small: Any) -> None:
    (generation,) = generate(small, [random_prompt(small, 5)], DECODER, max_new_tokens=30)
    assert generation.stop_reason == "length" and small.vocabulary == 64
    needed = Needed.of(small, rows=2, positions=3, projected=1)
    inner = 2 * (4 * 24 * 24 + 3 * 24 * 32 + 2 * 24) + 24
    assert needed == Needed(4 * (inner + 64 * 24), 2 * 2 * (inner * 3 + 64 * 24))


def test_scaling_has_its_rows(monkeypatch: pytest.MonkeyPatch, small: Any) -> None:
    module = "dystruct.decoding.bench.scaling.random_model"
    monkeypatch.setattr(module, lambda vocabulary=64, **_: small)
    rows = prompts(Clock(), (512,))
    assert rows[1].target == 3.0 and rows[1].value > 1
    rows = vocabularies(Clock(), (64,))
    assert rows[1].unit == "x" and rows[1].value > 0 and rows[2].value == pytest.approx(48 * 64 * 4 / 2**20)


def test_traffic_knows_what_lives_at_once() -> None:
    with Traffic(least=1000) as traffic:
        for _ in range(5):
            torch.zeros(1000)
        kept = torch.zeros(1000)
        kept.view(10, 100)
        torch.zeros(10)
    assert traffic.peak in (4000, 8000) and traffic.reads == 0 and traffic.operations >= 8


# --- originals --------------------------------------------------------------------------------------------------------

ORIGINAL = """
import torch
from model.modeling_llada import LLaDAModelLM

def generate(model, prompt, steps, gen_length, block_length, mask_id):
    x = torch.full((1, prompt.shape[1] + gen_length), mask_id)
    x[:, : prompt.shape[1]] = prompt
    for start in range(prompt.shape[1], x.shape[1], block_length):
        for _ in range(block_length):
            logits = model(x).logits.float()
            logits[..., mask_id] = -torch.inf
            p, token = logits.softmax(-1).max(-1)
            p[x != mask_id] = -1
            p[:, start + block_length :] = -1
            best = p.argmax()
            x[0, best] = token[0, best]
    return x
"""


@pytest.mark.parametrize("shifted", [False, True])
def test_an_original_is_served_the_same_model(tmp_path: Path, shifted: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("LENGTH", 12), ("BLOCK", 6)):
        monkeypatch.setattr(f"dystruct.decoding.bench.originals.{name}", value)
    (tmp_path / "LLaDA").mkdir()
    (tmp_path / "LLaDA/generate.py").write_text(ORIGINAL)
    model = random_backbone(layers=2, shifted=shifted, seed=4)
    rows, missing = against(Clock(), model, ["abc"], tmp_path, 1)
    assert rows[0].name == "LLaDA generate: useful tokens a second"
    assert rows[2].value == 100, "token for token"
    assert len(missing) == 3 and all("is missing" in sentence for sentence in missing)


@pytest.mark.parametrize("shifted", [False, True])
def test_a_block_behind_kept_keys_is_served_too(shifted: bool) -> None:
    model = random_backbone(layers=1, shifted=shifted)
    served, ids = Served(model), torch.randint(2, 12, (1, 9))
    with torch.no_grad():
        whole = served(ids, use_cache=True)
        kept = [(keys[:, :, :5], values[:, :, :5]) for keys, values in whole.past_key_values]
        later = served(ids[:, 5:], past_key_values=kept, use_cache=True)
    assert torch.allclose(later.logits, whole.logits[:, 5:])


# --- the command ------------------------------------------------------------------------------------------------------


def test_what_cannot_be_run_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    bench.main(["originals", *(["gpu"] if not torch.cuda.is_available() else []), "--json"])
    told = json.loads(capsys.readouterr().out)
    assert told["rows"] == [] and "--originals" in told["notes"][0]
    with pytest.raises(SystemExit):
        bench.main(["nothing"])
    assert set(DECODERS) == {"dystruct", "block", "fixed", "fast"}
