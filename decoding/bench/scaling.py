"""How cost grows with the batch, the prompt, the response and the vocabulary (benchmark 4), on random networks.

The networks are as wide as the embedded model, with six layers of its eight (one where the vocabulary grows). They
never end a text, so that every decode is as long as it may be.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from unittest import mock

from dystruct.inference.bench import Row
from dystruct.model import PriorConfig

from .. import forward
from ..backbone import Backbone
from ..dystruct import DyStruct
from ..generation import generate
from ..generation_settings import Caching
from .measure import Clock, Recording, Traffic
from .workloads import DECODER, random_model, random_prompt

CACHE_GAIN = 3.0  # times as fast with a prefix cache, at a prompt of 512 tokens
# A token's time at the longest response over that at the shortest, with a cache that is appended to: a pass runs as
# much at the end as at the beginning, but it attends to all that is kept.
LEVEL = 1.5
CACHES: dict[str, Caching] = {"prefix cache": True, "append": "append"}
# A window of 48 and passes enough for it, so that prompts are compared over the same passes.
ONE_WINDOW = DyStruct(structure="none", prior=PriorConfig(48, 48))


def _decode_seconds(
    clock: Clock, model: Backbone, prompts: Sequence[str], tokens: int, *, decoder: DyStruct = DECODER,
    rounds: int = 1,
) -> tuple[float, int]:  # fmt: skip
    """Seconds of a decode, and the forward passes of its rows together."""
    decode = partial(
        generate, model, prompts, decoder, max_new_tokens=tokens, budget=1 << 20, batch_size=len(prompts)
    )  # fmt: skip
    passes = sum(generation.forward_passes for generation in decode())
    return clock.interleaved({"decode": decode}, rounds)["decode"], passes


def batches(clock: Clock, sizes: Sequence[int], tokens: int = 48) -> list[Row]:
    """Milliseconds a row's pass takes, by batch size; prompts of 32 tokens."""
    model, rows = random_model(), []
    for size in sizes:
        prompts = [random_prompt(model, 32, number) for number in range(size)]
        seconds, passes = _decode_seconds(clock, model, prompts, tokens)
        rows.append(Row(f"batch {size}: time of a row's pass", 1e3 * seconds / passes, "ms"))
    return rows


def uneven(clock: Clock, sizes: Sequence[int], tokens: int = 48, rounds: int = 1) -> list[Row]:
    """Tokens a second behind prompts of 33 to 138 tokens, and over those of one call as long as the longest row."""
    model, rows = random_model(), []
    for size in sizes:
        lengths = [33 + round(105 * number / max(size - 1, 1)) for number in range(size)]
        prompts = [random_prompt(model, length, number) for number, length in enumerate(lengths)]
        decode = partial(
            generate, model, prompts, DECODER, max_new_tokens=tokens, budget=1 << 20, batch_size=size
        )  # fmt: skip
        times = clock.interleaved({"apart": decode, "together": partial(_in_one_call, decode)}, rounds)
        rows += [
            Row(f"batch {size}, prompts of 33 to 138: tokens a second", size * tokens / times["apart"], "1/s"),
            Row("  over those of one call for all rows", times["together"] / times["apart"], "x"),
        ]
    return rows


def _in_one_call(decode: Callable[[], object]) -> None:
    with mock.patch.object(forward, "shared_calls", lambda lengths, _: [list(range(len(lengths)))]):
        decode()


def prompts(clock: Clock, lengths: Sequence[int], rounds: int = 1) -> list[Row]:
    """A pass behind prompts of several lengths, exact and with a prefix cache, on one window of 48 tokens."""
    model, rows = random_model(), []
    for length in lengths:
        prompt = [random_prompt(model, length)]
        times = clock.interleaved(
            {
                name: partial(
                    generate, model, prompt, ONE_WINDOW, max_new_tokens=48, prefix_cache=cached, budget=1 << 20
                )
                for name, cached in (("exact", False), ("cached", True))
            },
            rounds,
        )
        gain = times["exact"] / times["cached"]
        target = CACHE_GAIN if length == 512 else None
        rows += [
            Row(f"prompt {length}: a window of 48, exact", times["exact"], "s"),
            Row("  with a prefix cache, times as fast", gain, "x", target, at_least=True),
        ]
    return rows


def responses(clock: Clock, lengths: Sequence[int], caches: Mapping[str, Caching] = CACHES) -> list[Row]:
    """Milliseconds a token takes with each prefix cache, by N_max: level where cost is linear in tokens."""
    model, rows = random_model(), []
    prompt = [random_prompt(model, 32)]
    times: dict[str, list[float]] = {name: [] for name in caches}
    decode = partial(generate, model, prompt, DECODER, budget=1 << 20, batch_size=1)
    decode(max_new_tokens=48)
    for length in lengths:
        contestants = {
            name: partial(decode, max_new_tokens=length, prefix_cache=cache) for name, cache in caches.items()
        }
        rounds = min(8, max(1, 512 // length))  # what is short is measured more often
        seconds = clock.interleaved(contestants, rounds, warm=True)
        for name in caches:
            times[name].append(1e3 * seconds[name] / length)
            rows.append(Row(f"N_max {length}: time of a token, {name}", times[name][-1], "ms"))
    for name in caches:
        ratio, target = times[name][-1] / times[name][0], LEVEL if caches[name] == "append" else None
        rows.append(Row(f"  N_max {lengths[-1]} over {lengths[0]}, {name}", ratio, "x", target))
    return rows


def vocabularies(clock: Clock, sizes: Sequence[int], rounds: int = 1) -> list[Row]:
    """What everything but the forward pass and its projection takes, in time and in memory over the vocabulary."""
    rows = []
    for size in sizes:
        model = random_model(vocabulary=size, layers=1)
        prompt = [random_prompt(model, 16)]
        decode = partial(generate, prompts=prompt, decoder=ONE_WINDOW, max_new_tokens=48)
        recording = Recording.of(model)
        (generation,) = decode(recording)
        times = clock.interleaved({"decode": partial(decode, model), "bare": recording.replay}, rounds)
        with Traffic(least=4 * size) as traffic:
            decode(model)
        rest = (times["decode"] - times["bare"]) / generation.forward_passes
        distributions = 48 * size * 4
        rows += [
            Row(f"vocabulary {size}: all but the forward, a pass", 1e3 * rest, "ms"),
            Row("  memory, in windows of distributions", traffic.peak / distributions, "x", 8),
            Row("  one of which has", distributions / 2**20, "MiB"),
        ]
    return rows


def scaling(clock: Clock, *, full: bool) -> list[Callable[[], list[Row]]]:
    """The measurements of benchmark 4, one after the other, over the whole ranges if `full`."""
    return [
        partial(batches, clock, (1, 2, 4, 8, 16, 32, 64) if full else (1, 4)),
        partial(uneven, clock, (8, 16, 64) if full else (8,)),
        partial(prompts, clock, (32, 128, 512, 1024, 2048) if full else (32, 512)),
        partial(responses, clock, (64, 256, 1024, 4096) if full else (64, 256)),
        partial(vocabularies, clock, (1024, 8192, 32768, 131072) if full else (1024, 32768)),
    ]
