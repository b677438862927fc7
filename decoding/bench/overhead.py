"""What decoding costs beside its forward passes, and what of that the structure costs (benchmarks 1 and 2).

The bare forward pass runs the network on the same ids and masks and projects as many outputs: the recorded calls of the
decode itself, made again one after the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any

from dystruct.inference.bench import Row

from .. import dystruct, forward
from ..backbone import Backbone
from ..canvas import Canvas
from ..dystruct import DyStruct
from ..engine import Engine
from ..generation import generate
from ..row import Decoder
from .measure import Clock, Recording, timed
from .workloads import DECODER

TARGETS = {1: 1.15, 16: 1.08}  # decode time over that of the bare forward passes, by batch size
SHARE = 3.0  # % of the decode time at batch 1

# All that is done for the sake of structure, the last of it on the host, the others on the device.
_HOST = "posterior and order"
_STRUCTURE: dict[str, tuple[tuple[Any, str], ...]] = {
    "divergence and distributions": ((Canvas, "_latest"), (Engine, "_observe_gaps")),
    "entropy and margin": ((forward, "summarise"),),
    "running figures": ((Canvas, "_observe"), (Canvas, "features")),
    "hidden jump": ((forward, "hidden_jump"),),
    _HOST: (
        (DyStruct, "_structure"), (dystruct, "diagnose"), (DyStruct, "_posterior"), (dystruct, "_record"),
        (dystruct, "mean_instability"),
    ),
}  # fmt: skip


def ratio(
    clock: Clock, model: Backbone, prompts: Sequence[str], *, tokens: int, rounds: int, decoder: Decoder = DECODER,
    prefix_cache: bool = False,
) -> float:  # fmt: skip
    """Time of decoding prompts as one batch, over that of its forward passes made bare."""
    recording = Recording.of(model)
    decode = partial(
        generate, prompts=prompts, decoder=decoder, max_new_tokens=tokens, batch_size=len(prompts),
        prefix_cache=prefix_cache,
    )  # fmt: skip
    decode(recording)
    times = clock.interleaved({"decode": partial(decode, model), "bare": recording.replay}, rounds)
    return times["decode"] / times["bare"]


def overhead(clock: Clock, model: Backbone, prompts: Sequence[str], rounds: int) -> list[Row]:
    """Rows of benchmark 1."""
    found = []
    for batch, target in TARGETS.items():
        few = batch == 1  # a batch takes long, and evens out what differs from row to row
        laps, tokens = (rounds, 64) if few else (max(2, rounds // 3), 24)
        value = ratio(clock, model, prompts[:batch], tokens=tokens, rounds=laps)
        found.append(Row(f"overhead: decode / bare forward, batch {batch}", value, "x", target))
    value = ratio(clock, model, prompts[:1], tokens=64, rounds=rounds, prefix_cache=True)
    return [*found, Row("overhead: the same with a prefix cache, batch 1", value, "x")]


def structure_share(clock: Clock, model: Backbone, prompts: Sequence[str], rounds: int, tokens: int = 64) -> list[Row]:
    """Rows of benchmark 2, with an estimate for a model of 8 billion weights."""
    totals = dict.fromkeys(_STRUCTURE, 0.0)
    whole, passes = 0.0, 0
    for lap in range(rounds + 1):  # the first is not measured
        with ExitStack() as stack:
            run = stack.enter_context(timed(clock, (Engine, "run")))
            spent = {name: stack.enter_context(timed(clock, *places)) for name, places in _STRUCTURE.items()}
            generations = [generate(model, [prompt], DECODER, max_new_tokens=tokens)[0] for prompt in prompts[:2]]
        if lap:
            whole += sum(run)
            passes += sum(generation.forward_passes for generation in generations)
            totals = {name: total + sum(spent[name]) for name, total in totals.items()}
    host = 1e3 * totals[_HOST] / passes
    # an accelerator of 3.35 TB/s reads 16 GB of weights a pass; a CPU core of 50 GFLOP/s takes 2 x 8e9 x 128 operations
    fastest, core = 1e3 * 16e9 / 3.35e12, 1e3 * 2 * 8e9 * 128 / 50e9
    return [
        Row("structure: share of a decode, batch 1", 100 * sum(totals.values()) / whole, "%", SHARE),
        *(Row(f"  of it {name}", 100 * total / whole, "%") for name, total in totals.items()),
        Row("  of it on the host, a pass", host, "ms"),
        Row("  estimate for 8e9 weights on this core, 128 tokens", 100 * host / (host + core), "%", 0.1),
        Row("  estimate for 8e9 weights, 3.35 TB/s, batch 1", 100 * host / (host + fastest), "%"),
    ]
