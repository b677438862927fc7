"""On a CUDA device: a random network of LLaDA-8B's shape in bfloat16 (benchmark 5).

Two numbers are counted first: the bytes of weights that a pass must read, and the operations that it must do. What the
device could do of either a second is measured in the same run, by a copy and by a product of large matrices.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import torch

from dystruct.inference.bench import Row

from ..backbone import Backbone
from ..generation import generate
from .measure import Clock, Recording, Traffic
from .workloads import DECODER, random_model, random_prompt

LLADA = {
    "vocabulary": 126464, "hidden": 4096, "inner": 12288, "layers": 32, "heads": 32, "length": 4096,
}  # fmt: skip
PROMPT, TOKENS = 128, 64


@dataclass(frozen=True)
class Needed:
    """What a forward pass takes at least: bytes of weights read once, operations for so many positions."""

    bytes: int
    operations: int

    @classmethod
    def of(cls, model: Backbone, rows: int, positions: int, projected: int) -> Needed:
        """For rows of so many positions of which so many are projected; attention itself is not counted."""
        head = model.network.lm_head.weight
        embedding = model.network.get_input_embeddings().weight
        weights = sum(weight.numel() for weight in model.network.parameters()) - embedding.numel()
        inner = weights - head.numel()
        return cls(weights * head.element_size(), 2 * rows * (inner * positions + head.numel() * projected))


def limits(clock: Clock) -> tuple[float, float]:
    """Bytes and bfloat16 operations a second that the device does."""
    large = torch.empty(1 << 29, dtype=torch.bfloat16, device=clock.device)
    other = torch.empty_like(large)
    square = torch.ones(8192, 8192, dtype=torch.bfloat16, device=clock.device)
    times = clock.interleaved({"copy": partial(other.copy_, large), "product": lambda: square @ square}, 10)
    return 2 * large.numel() * 2 / times["copy"], 2 * 8192**3 / times["product"]


def gpu(*, batches: tuple[int, ...] = (1, 16), rounds: int = 3, layers: int | None = None) -> list[Row]:
    """Rows of benchmark 5. layers: fewer than the model's, for a device with little memory."""
    device = torch.device("cuda")
    clock = Clock(threads=torch.get_num_threads(), device=device)
    bandwidth, arithmetic = limits(clock)
    torch.cuda.empty_cache()
    shape = LLADA if layers is None else {**LLADA, "layers": layers}
    model = random_model(**shape, device="cuda", dtype=torch.bfloat16)
    rows = [
        Row("bytes a second, measured", bandwidth / 1e12, "TB/s"),
        Row("bfloat16 operations a second, measured", arithmetic / 1e12, "T/s"),
    ]
    for batch in batches:
        prompts = [random_prompt(model, PROMPT, number) for number in range(batch)]
        recording = Recording.of(model)
        decode = partial(
            generate, prompts=prompts, decoder=DECODER, max_new_tokens=TOKENS, budget=1 << 20, batch_size=batch
        )  # fmt: skip
        torch.cuda.reset_peak_memory_stats()
        generations = decode(recording)
        peak = torch.cuda.max_memory_allocated()
        with Traffic() as traffic:
            decode(model)
        times = clock.interleaved({"decode": partial(decode, model), "bare": recording.replay}, rounds)
        calls = len(recording.calls)
        needed = Needed.of(model, batch, PROMPT + TOKENS // 2, 16)
        windows = sum(len(generation.windows) for generation in generations)
        rows += [
            Row(f"batch {batch}: forward calls a second", calls / times["decode"], "1/s"),
            Row("  decode / bare forward", times["decode"] / times["bare"], "x", 1.15 if batch == 1 else 1.08),
            Row("  read-backs a window and row", traffic.reads / windows, "", 2),
            Row("  peak memory", peak / 2**30, "GiB"),
            Row("  share of the bandwidth", 100 * needed.bytes * calls / times["decode"] / bandwidth, "%"),
            Row("  share of the arithmetic", 100 * needed.operations * calls / times["decode"] / arithmetic, "%"),
        ]
    return rows
