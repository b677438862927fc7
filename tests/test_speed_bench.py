"""The decoding benchmarks: rows with targets, ratios that mean what they say, and originals that may be missing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from dystruct.decoding import Block, UserError, forward, generate
from dystruct.decoding.backbone import Backbone
from dystruct.decoding.baselines import Dream
from dystruct.decoding.bench import __main__ as bench
from dystruct.decoding.bench import agreement
from dystruct.decoding.bench.gpu import Needed
from dystruct.decoding.bench.measure import Clock, Recording, Traffic, timed
from dystruct.decoding.bench.originals import Served, against, passes_until_known
from dystruct.decoding.bench.overhead import ratio, structure_share
from dystruct.decoding.bench.scaling import batches, prompts, responses, scaling, uneven, vocabularies
from dystruct.decoding.bench.workloads import DECODER, random_model, random_prompt
from dystruct.decoding.evaluation.run_folder import RunFolder
from dystruct.inference.bench import Row
from random_network import random_backbone


@pytest.fixture(scope="module")
def small() -> Any:
    return random_model(vocabulary=64, hidden=24, inner=32, layers=2, heads=3, length=1024)


@pytest.mark.parametrize("prefix_cache", [False, True, "append"])
def test_replayed_calls_are_the_decodes_forward_passes(prefix_cache: Any) -> None:
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
    share, *parts, host, _, _ = structure_share(clock, small, [random_prompt(small, 8)], 1, tokens=8)
    assert 0 < share.value < 100 and host.value > 0
    assert sum(part.value for part in parts) == pytest.approx(share.value) and min(part.value for part in parts) > 0
    with timed(clock, (torch.nn.Linear, "forward")) as spent:
        generate(small, [random_prompt(small, 4)], Block(2), max_new_tokens=2)
    assert spent and all(seconds >= 0 for seconds in spent)
    with pytest.MonkeyPatch.context() as patch:
        ticks = iter(range(100))
        patch.setattr(Clock, "now", lambda self: float(next(ticks)))
        calls: list[str] = []
        contestants = {"a": lambda: (next(ticks), calls.append("a")), "b": lambda: calls.append("b")}
        assert clock.interleaved(contestants, 3) == {"a": 2.0, "b": 1.0} and calls == ["a", "b"] * 4
        assert clock.interleaved(contestants, 2, warm=True) == {"a": 2.0, "b": 1.0} and calls == ["a", "b"] * 6


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
    rows = responses(Clock(), (8, 16))
    assert [row.name.split(",")[-1] for row in rows] == [" prefix cache", " append"] * 3
    assert rows[5].value == pytest.approx(rows[3].value / rows[1].value)
    assert [row.target for row in rows] == [*[None] * 5, 1.5]
    whole = forward.shared_calls
    rows = uneven(Clock(), (3,), tokens=4)
    assert [row.unit for row in rows] == ["1/s", "x"] and min(row.value for row in rows) > 0
    assert forward.shared_calls is whole
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


def refuse(model: Backbone) -> None:
    raise UserError("There is no compiler; install one.")


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
    assert len(missing) == 3 and all("is missing" in sentence for sentence in missing) and len(rows) == 5
    with monkeypatch.context() as patch:
        patch.setattr(Backbone, "warm_up", lambda model: None)
        patch.setattr(torch, "compile", lambda network, **_: network)
        rows, _ = against(Clock(), model, ["abc"], tmp_path, 1, compiled=True)
        assert [row.name for row in rows[4:]] == ["  ours by default, useful tokens a second", "  the same, compiled"]
        patch.setattr(Backbone, "warm_up", refuse)
        rows, missing = against(Clock(), model, ["abc"], tmp_path, 1, compiled=True)
        assert len(rows) == 5 and "no compiler" in missing[0]


@pytest.mark.parametrize("budget", [3, 6, 12])
def test_the_passes_until_the_text_is_known_are_all_that_it_takes(budget: int) -> None:
    """With one pass less a position of the text or its end would be masked; with these none is."""
    model = random_backbone(layers=2, seed=4)
    for generation in generate(model, ["abc", "b", "aab"], Dream(faithful=True), max_new_tokens=12, budget=budget):
        known, text = passes_until_known(generation), generation.useful_tokens
        masked = set(range(min(text + 1, 12)))
        left = []
        for step in generation.windows[0].steps:
            masked -= {commit.position for commit in step.commits}
            left.append(len(masked))
        assert left[known - 1] == 0 and (known == 1 or left[known - 2] > 0)


@pytest.mark.parametrize("shifted", [False, True])
def test_a_block_behind_kept_keys_is_served_too(shifted: bool) -> None:
    model = random_backbone(layers=1, shifted=shifted)
    served, ids = Served(model), torch.randint(2, 12, (1, 9))
    with torch.no_grad():
        whole = served(ids, use_cache=True)
        kept = [(keys[:, :, :5], values[:, :, :5]) for keys, values in whole.past_key_values]
        later = served(ids[:, 5:], past_key_values=kept, use_cache=True)
    assert torch.allclose(later.logits, whole.logits[:, 5:])


# --- agreement of the prefix caches with the exact mode ---------------------------------------------------------------


def on_record(folder: Path, items: dict[tuple[str, int], tuple[list[int], int, bool]], seconds: float = 1.0) -> Path:
    """A run of items: tokens, how many of them are useful, whether the answer is right."""
    with RunFolder(folder, {}, {}) as records:
        for (task, item), (tokens, useful, right) in items.items():
            record = {"task": task, "item": item, "seed": 0, "draw": 0, "correct": right, "seconds": seconds}
            records.add(record, {"tokens": tokens, "useful_tokens": useful})
    return folder


def test_agreement_is_of_useful_tokens_and_of_answers(tmp_path: Path) -> None:
    exact = on_record(
        tmp_path / "exact",
        {("a", 0): ([5, 6, 7, 8], 3, True), ("a", 1): ([5, 6], 2, False), ("b", 0): ([9], 1, True)},
        seconds=3.0,
    )
    cached = on_record(
        tmp_path / "cached",
        {("b", 0): ([9], 1, True), ("a", 1): ([5, 6, 7], 3, True), ("a", 0): ([5, 6, 7, 9], 3, True)},
    )
    a, b, every = agreement.compared("block", "cached", exact, cached)
    assert (a.task, a.items, a.tokens, a.texts) == ("a", 2, 5 / 6, 0.5), "a token that only one has does not agree"
    assert (a.exact_correct, a.cached_correct, a.only_exact, a.only_cached, a.p) == (1, 2, 0, 1, 1.0)
    assert (b.task, b.tokens, b.only_cached) == ("b", 1.0, 0)
    assert (every.task, every.items, every.tokens, every.texts) == ("all", 3, 6 / 7, 2 / 3) and every.gain == 3.0
    low, high = str(every).split("[")[1].split("]")[0].split(",")
    assert float(low) == pytest.approx(20.8, abs=0.05) and float(high) == pytest.approx(
        93.9, abs=0.05
    )  # Wilson, 2 of 3


def test_runs_of_other_items_are_not_compared(tmp_path: Path) -> None:
    exact = on_record(tmp_path / "exact", {("a", 0): ([5], 1, True)})
    for items in ({}, {("a", 1): ([5], 1, True)}):
        with pytest.raises(UserError, match="other items"):
            agreement.compared("block", "cached", exact, on_record(tmp_path / str(len(items)), items))


def test_agreement_runs_all_modes_and_goes_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = [str(tmp_path), "--tasks", "tiny_logic", "--decoders", "block", "--max-new-tokens", "4", "--problems"]
    agreement.main([*command, "2", "--threads", "1"])
    table = capsys.readouterr().out
    assert table.startswith(agreement.HEADER) and "tiny_logic" in table
    rows = json.loads((tmp_path / "agreement.json").read_text())
    assert [(row["cache"], row["items"]) for row in rows] == [("cached", 2), ("appended", 2)]
    for mode, cache in agreement.MODES.items():
        assert json.loads((tmp_path / f"block-{mode}/run.json").read_text())["settings"]["prefix_cache"] == cache
    agreement.main([*command, "2", "--threads", "1"])
    told = capsys.readouterr()
    assert told.out == table and "2 of 2 done" in told.err and "0 of 2" not in told.err
    agreement.main([*command, "2", "--threads", "1", "--caches", "appended"])
    assert [row["cache"] for row in json.loads((tmp_path / "agreement.json").read_text())] == ["appended"]
    with pytest.raises(SystemExit):
        agreement.main([*command, "2", "--caches", "cached", "cached"])
    assert "--caches names one of them twice; name each once" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        agreement.main([str(tmp_path / "code"), "--tasks", "tiny_code", "--problems", "1"])
    assert "--execute-code" in capsys.readouterr().err


# --- the command ------------------------------------------------------------------------------------------------------


def test_the_table_is_also_written_as_json(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(bench, "structure_share", lambda *_: [Row("share", 2.5, "%", 3.0), Row("of it", 1.0, "ms")])
    bench.main(["structure", "--out", str(tmp_path / "bench.json")])
    told = json.loads((tmp_path / "bench.json").read_text())
    assert told["environment"]["threads"] == 1 and [row["met"] for row in told["rows"]] == [True, None]
    table = capsys.readouterr().out
    assert all(row["name"] in table for row in told["rows"])


@pytest.mark.parametrize("full", [False, True])
def test_the_whole_ranges_are_those_asked_for(full: bool) -> None:
    parts = scaling(Clock(), full=full)
    assert [part.func for part in parts] == [batches, uneven, prompts, responses, vocabularies]
    assert [(min(part.args[1]), max(part.args[1])) for part in parts] == (
        [(1, 64), (8, 64), (32, 2048), (64, 4096), (1024, 131072)]
        if full
        else [(1, 4), (8, 8), (32, 512), (64, 256), (1024, 32768)]
    )


def test_what_cannot_be_run_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    bench.main(["originals", *(["gpu"] if not torch.cuda.is_available() else []), "--json"])
    told = json.loads(capsys.readouterr().out)
    assert told["rows"] == [] and "--originals" in told["notes"][0]
    with pytest.raises(SystemExit):
        bench.main(["nothing"])
