"""How many held-out problems a decoder answers right, with the figures that make the number mean something."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass

from scipy.stats import binomtest

from ..backbone import Backbone
from ..execution import check_allowed
from ..generation import generate
from ..generation_settings import Caching
from ..row import Decoder
from .problems import problems
from .scoring import is_right


@dataclass(frozen=True)
class Accuracy:
    """Right answers among `count` problems, a 95% Wilson interval, and means a problem; right and asked by kind."""

    domain: str
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
    kinds: dict[str, tuple[int, int]]
    settings: dict[str, object]

    def as_dict(self) -> dict[str, object]:
        """The figures as plain data."""
        return asdict(self)


def check_scorable(domain: str, *, execute_code: bool) -> None:
    """Raise UserError if a domain's answers cannot be scored: code needs to be run."""
    if domain == "code":
        check_allowed(execute_code)


def measure_accuracy(
    model: Backbone,
    decoder: Decoder,
    *,
    domain: str = "maths",
    split: str = "test",
    count: int = 200,
    max_new_tokens: int = 256,
    budget: int = 256,
    seed: int = 0,
    batch_size: int = 16,
    chat: bool = False,
    prefix_cache: Caching = False,
    execute_code: bool = False,
    report: Callable[[int, int], None] | None = None,
) -> Accuracy:
    """Decode the first `count` problems of a domain's split and score them (see `scoring.is_right`).

    execute_code: allows to run the code that the model writes, in a limited subprocess; the domain "code" needs it.
    report: called with the problems done and right so far, after each batch.
    """
    check_scorable(domain, execute_code=execute_code)
    asked = problems(domain, split, count)
    generations = []
    right: list[bool] = []
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
            chat=chat,
            prefix_cache=prefix_cache,
        )
        generations += found
        right += [is_right(p, g.text, execute_code=execute_code) for p, g in zip(chunk, found, strict=True)]
        if report is not None:
            report(len(generations), sum(right))
    correct = sum(right)
    kinds = {
        kind: (sum(r for r, p in zip(right, asked, strict=True) if p.kind == kind), of)
        for kind, of in sorted(Counter(problem.kind for problem in asked).items())
    }
    count = len(asked)  # of a split that has not so many
    interval = binomtest(correct, count).proportion_ci(method="wilson")
    reasons = [generation.stop_reason for generation in generations]
    return Accuracy(
        domain=domain,
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
        kinds=kinds,
        stop_reasons={reason: reasons.count(reason) for reason in sorted(set(reasons))},
        settings=dict(generations[0].settings),
    )
