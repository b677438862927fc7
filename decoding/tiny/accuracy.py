"""How many held-out word problems a decoder answers exactly, with the figures that make the number mean something."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass

from scipy.stats import binomtest

from ..backbone import Backbone
from ..generation import generate
from ..row import Decoder
from .problems import is_correct, problems


@dataclass(frozen=True)
class Accuracy:
    """Exact answers among `count` problems, a 95% Wilson interval, and means a problem."""

    split: str
    count: int
    correct: int
    accuracy: float
    interval: tuple[float, float]
    empty: int
    forward_passes: float
    useful_tokens: float
    wasted_tokens: float
    windows: float
    blocks: float
    stop_reasons: dict[str, int]
    settings: dict[str, object]

    def as_dict(self) -> dict[str, object]:
        """The figures as plain data."""
        return asdict(self)


def measure_accuracy(
    model: Backbone,
    decoder: Decoder,
    *,
    split: str = "test",
    count: int = 200,
    max_new_tokens: int = 256,
    budget: int = 256,
    seed: int = 0,
    batch_size: int = 16,
    report: Callable[[int, int], None] | None = None,
) -> Accuracy:
    """Decode the first `count` problems of a split and compare the value behind the last ``####``.

    report: called with the problems done and right so far, after each batch.
    """
    asked = problems(split, count)
    generations = []
    correct = 0
    for start in range(0, count, batch_size * 2):
        chunk = asked[start : start + batch_size * 2]
        found = generate(
            model,
            [problem.question for problem in chunk],
            decoder,
            max_new_tokens=max_new_tokens,
            budget=budget,
            seed=seed,
            batch_size=batch_size,
        )
        generations += found
        correct += sum(is_correct(g.text, problem.value) for g, problem in zip(found, chunk, strict=True))
        if report is not None:
            report(len(generations), correct)
    interval = binomtest(correct, count).proportion_ci(method="wilson")
    reasons = [generation.stop_reason for generation in generations]
    return Accuracy(
        split=split,
        count=count,
        correct=correct,
        accuracy=correct / count,
        interval=(float(interval.low), float(interval.high)),
        empty=sum(generation.useful_tokens == 0 for generation in generations),
        forward_passes=sum(generation.forward_passes for generation in generations) / count,
        useful_tokens=sum(generation.useful_tokens for generation in generations) / count,
        wasted_tokens=sum(generation.wasted_tokens for generation in generations) / count,
        windows=sum(len(generation.windows) for generation in generations) / count,
        blocks=sum(generation.block_count for generation in generations) / count,
        stop_reasons={reason: reasons.count(reason) for reason in sorted(set(reasons))},
        settings=dict(generations[0].settings),
    )
