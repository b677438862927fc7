"""Two processes on the CPU (gloo): the prompts shared out, or every layer in two parts, give what one process gives."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import socket
import sys
import time
import warnings
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch

from dystruct.decoding import Block, DecodingFailed, DyStruct, UserError, generate, load
from dystruct.decoding.parallel import generate_across
from dystruct.decoding.trace import WindowOpened
from dystruct.model import PriorConfig
from random_network import random_backbone
from watching import without_time

PROMPTS = ["ab", "abcdefgh", "c", "jihg", "abcab"]
DECODER = DyStruct(structure="sample", prior=PriorConfig(3, 9))
SETTINGS: dict[str, Any] = {"max_new_tokens": 12, "seed": 3, "temperature": 0.5}

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="processes are forked here"),
    pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning"),
]


def in_two_processes(work: Callable[[], Any], folder: Path) -> list[Any]:
    """What `work` returns in each of two processes."""
    launcher = pytest.importorskip("accelerate").debug_launcher

    def run() -> None:
        torch.set_num_threads(1)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            (folder / f"{os.getpid()}.pickle").write_bytes(pickle.dumps(work()))

    launcher(run, num_processes=2)
    return [pickle.loads(file.read_bytes()) for file in folder.glob("*.pickle")]


def test_prompts_that_are_shared_out_give_the_same_texts_in_their_order(tmp_path: Path) -> None:
    model = random_backbone(layers=2)
    seen: list[int] = []
    finished: dict[int, Any] = {}

    def work() -> Any:
        found = generate_across(
            model, PROMPTS, DECODER, observe=lambda index, event: seen.append(index),
            finished=lambda index, generation, seconds: finished.update({index: generation}), **SETTINGS,
        )  # fmt: skip
        assert all(found[index] == generation for index, generation in finished.items())
        assert finished.keys() == set(seen)
        return found, sorted(finished)

    wanted = list(map(without_time, generate(model, PROMPTS, DECODER, **SETTINGS)))
    told = in_two_processes(work, tmp_path)
    assert [list(map(without_time, found)) for found, _ in told] == [wanted, wanted]
    assert sorted(shares for _, shares in told) == [[0, 1, 2], [3, 4]], "each decodes its share"


def test_what_fails_in_one_process_fails_in_all_and_loses_nothing(tmp_path: Path) -> None:
    model = random_backbone(layers=1)

    def work() -> Any:
        try:
            generate_across(model, [*PROMPTS[:3], "  ", "b"], DECODER, **SETTINGS)
        except DecodingFailed as error:
            return sorted(error.generations), sorted(error.failures), str(error)

    told = in_two_processes(work, tmp_path)
    assert told[0] == told[1] and told[0][:2] == ([0, 1, 2], [3, 4])
    assert told[0][2] == "prompts[3] is empty; give the text to answer.", "by its place among all, not in the share"


def test_a_share_of_one_prompt_tells_its_place(tmp_path: Path) -> None:
    model = random_backbone(layers=1)

    def work() -> Any:
        try:
            generate_across(model, ["ab", "a" * 200], DECODER, **SETTINGS)
        except DecodingFailed as error:
            return str(error)

    assert all(told.startswith("prompts[1] has 200 tokens") for told in in_two_processes(work, tmp_path))


def as_torchrun(work: Callable[[int], Any], folder: Path, port: int) -> list[Any]:
    """What `work` returns in each of two processes, told its rank, that have not found each other yet."""
    pytest.importorskip("accelerate").PartialState._reset_state()

    def run(rank: int) -> None:
        torch.set_num_threads(1)
        os.environ |= {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "RANK": str(rank), "LOCAL_RANK": str(rank)}
        os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            (folder / f"{rank}.pickle").write_bytes(pickle.dumps(work(rank)))

    processes = [multiprocessing.get_context("fork").Process(target=run, args=(rank,)) for rank in range(2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0, 0]
    return [pickle.loads((folder / f"{rank}.pickle").read_bytes()) for rank in range(2)]


@pytest.fixture
def port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> float:
    """Lets torch wait for so many seconds, in place of the half hour that it waits on CPUs and ten minutes on GPUs."""
    seconds = 0.5
    wait = timedelta(seconds=seconds)
    monkeypatch.setattr("torch.distributed.distributed_c10d._get_default_timeout", lambda backend: wait)
    return seconds


def test_a_process_waits_for_one_with_a_longer_share(tmp_path: Path, port: int, impatient: float) -> None:
    model = random_backbone(layers=1)

    def work(rank: int) -> Any:
        def observe(index: int, event: Any) -> None:
            if rank == 1 and isinstance(event, WindowOpened) and event.index == 0:
                time.sleep(impatient)

        return len(generate_across(model, PROMPTS, Block(4), observe=observe, max_new_tokens=4))

    assert as_torchrun(work, tmp_path, port) == [len(PROMPTS)] * 2


def test_the_harness_waits_for_a_process_with_a_longer_share(tmp_path: Path, port: int, impatient: float) -> None:
    """As one does that has all of its items on record, and nothing left to do."""
    pytest.importorskip("lm_eval")
    from dystruct.decoding.evaluation.harness import DystructLM

    model = random_backbone(layers=1)

    def work(rank: int) -> Any:
        joined = DystructLM(model, "block")
        time.sleep(2 * impatient * rank)
        joined.barrier()
        return joined.gather_object(joined.rank)

    assert as_torchrun(work, tmp_path, port) == [[0, 1], None]


def test_one_process_needs_no_launch() -> None:
    accelerate = pytest.importorskip("accelerate")
    model = random_backbone(layers=1)
    found = generate_across(model, PROMPTS[:2], DECODER, **SETTINGS)
    accelerate.PartialState._reset_state()  # which processes that are forked later would take for their own
    alone = generate(model, PROMPTS[:2], DECODER, **SETTINGS)
    assert list(map(without_time, found)) == list(map(without_time, alone))


def test_a_model_in_two_parts_is_the_model(tmp_path: Path) -> None:
    """Each process holds half of every layer, by transformers' own plan."""
    distributed = pytest.importorskip("transformers.distributed")
    prompt, settings = ["Tom has 3 apples."], {"max_new_tokens": 8}

    def work() -> Any:
        plan = distributed.DistributedConfig(tp_plan="auto")
        model = load("tiny", neutral=True, dtype="float32", distributed_config=plan)
        part = model.network.model.layers[0].self_attn.q_proj.weight.to_local().shape
        return generate(model, prompt, Block(4), **settings)[0].tokens, tuple(part)

    one = load("tiny", neutral=True)
    tokens = generate(one, prompt, Block(4), **settings)[0].tokens
    rows, columns = one.network.model.layers[0].self_attn.q_proj.weight.shape
    assert in_two_processes(work, tmp_path) == [(tokens, (rows // 2, columns))] * 2


def test_what_is_no_list_of_prompts_is_refused_and_any_iterable_taken() -> None:
    pytest.importorskip("accelerate")
    model = random_backbone(layers=1)
    with pytest.raises(UserError, match="put the one prompt into a list"):
        generate_across(model, "abc", Block(4), max_new_tokens=4)
    found = generate_across(model, (prompt for prompt in ("ab", "c")), Block(4), max_new_tokens=4)
    assert [each.prompt for each in found] == ["ab", "c"]
