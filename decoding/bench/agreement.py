"""How much the prefix cache changes: tokens and accuracy beside the exact mode, on held-out problems.

    python -m dystruct.decoding.bench.agreement --items 300

Tokens agree position by position of the useful text, from the beginning to the end of the longer one; texts agree when
they are the same. Accuracies come with Wilson intervals, their difference with McNemar's exact test on the items on
which the two modes differ.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import zip_longest

import torch
from scipy.stats import binomtest

from ..backbone import Backbone, load
from ..baselines import Block, Fast, Fixed
from ..generation import generate
from ..row import Decoder
from ..tiny.problems import problems
from ..tiny.scoring import is_right
from ..trace import Generation
from .workloads import DECODER

DECODERS: dict[str, Decoder] = {
    "dystruct": DECODER, "block": Block(8), "fixed": Fixed(32), "fast": Fast(32),
}  # fmt: skip


@dataclass(frozen=True)
class Agreement:
    """One decoder with and without the prefix cache: shares in [0, 1], correct answers of `items`."""

    decoder: str
    items: int
    tokens: float
    texts: float
    exact_correct: int
    cached_correct: int
    only_exact: int
    only_cached: int
    p_value: float
    exact_passes: float
    cached_passes: float

    def __str__(self) -> str:
        exact, cached = (_share(correct, self.items) for correct in (self.exact_correct, self.cached_correct))
        shares = f"{100 * self.tokens:6.1f}% {100 * self.texts:6.1f}%"
        return (
            f"{self.decoder:9} {shares}   {exact}   {cached}   {self.only_exact:3} : {self.only_cached:<3} "
            f"{self.p_value:6.3f}"
        )


HEADER = f"{'':9} {'tokens':>7} {'texts':>7}   {'exact':<21}   {'prefix cache':<21}   only one      p"


def agreement(
    model: Backbone, name: str, *, domain: str, items: int, max_new_tokens: int, batch_size: int
) -> Agreement:
    """Decode the first items of a domain's test split in both modes and compare. Raises UserError as `generate`."""
    asked = problems(domain, "test", items)
    questions = [problem.question for problem in asked]
    exact, cached = (
        generate(
            model, questions, DECODERS[name], max_new_tokens=max_new_tokens, batch_size=batch_size, prefix_cache=kept
        )
        for kept in (False, True)
    )
    pairs = [(_useful(a), _useful(b)) for a, b in zip(exact, cached, strict=True)]
    same = [x == y for a, b in pairs for x, y in zip_longest(a, b)]
    right = [[is_right(p, g.text) for p, g in zip(asked, found, strict=True)] for found in (exact, cached)]
    only = [sum(a and not b for a, b in zip(*order, strict=True)) for order in (right, right[::-1])]
    return Agreement(
        decoder=name,
        items=items,
        tokens=sum(same) / max(1, len(same)),
        texts=sum(a == b for a, b in pairs) / items,
        exact_correct=sum(right[0]),
        cached_correct=sum(right[1]),
        only_exact=only[0],
        only_cached=only[1],
        p_value=float(binomtest(only[0], sum(only)).pvalue) if sum(only) else 1.0,
        exact_passes=sum(generation.forward_passes for generation in exact) / items,
        cached_passes=sum(generation.forward_passes for generation in cached) / items,
    )


def _useful(generation: Generation) -> Sequence[int]:
    return generation.tokens[: generation.useful_tokens]


def _share(correct: int, items: int) -> str:
    low, high = binomtest(correct, items).proportion_ci(method="wilson")
    return f"{100 * correct / items:5.1f}% [{100 * low:5.1f}, {100 * high:5.1f}]"


def main(arguments: list[str] | None = None) -> None:
    """Print the table, or JSON."""
    parser = argparse.ArgumentParser(prog="python -m dystruct.decoding.bench.agreement", description=__doc__)
    parser.add_argument("--model", default="tiny", help="the embedded model, a folder or a Hub name (default tiny)")
    parser.add_argument("--domain", default="maths", choices=("maths", "logic"), help="problems (default maths)")
    parser.add_argument("--items", type=int, default=300, help="held-out problems (default 300)")
    parser.add_argument(
        "--decoders", nargs="+", default=["dystruct"], choices=sorted(DECODERS), help="default dystruct"
    )
    parser.add_argument("--max-new-tokens", type=int, default=192, help="default 192")
    parser.add_argument("--batch-size", type=int, default=16, help="default 16")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads(), help="of torch (default: all)")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    options = parser.parse_args(arguments)
    torch.set_num_threads(options.threads)
    model = load(options.model)
    found = [
        agreement(
            model, name, domain=options.domain, items=options.items, max_new_tokens=options.max_new_tokens,
            batch_size=options.batch_size,
        )
        for name in options.decoders
    ]  # fmt: skip
    print(
        json.dumps([asdict(one) for one in found], indent=1) if options.json else "\n".join([HEADER, *map(str, found)])
    )


if __name__ == "__main__":
    main()
