"""How fast the recursion is, beside Pyro's enumeration of the same program: `python -m dystruct.inference.bench`.

Times are of the CPU, on one thread, so that what else the machine does hardly enters: on an idle machine they are the
time one waits. They are medians of rounds in which the contestants take turns; ratios come from one run.

Knows the targets that the recursion is held to; asserts nothing.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from time import process_time
from typing import Any

import torch
from torch import Tensor

from dystruct.model import Context, Diagnostics, PriorConfig

from .posterior import posterior
from .pyro_exact import enumerated_map, enumerated_samples
from .semimarkov import SemiMarkov

WINDOW, BATCH, DRAWS, LARGE = 48, 64, 1000, 4096  # tokens, windows, draws, tokens
PRIOR = PriorConfig()


@dataclass(frozen=True)
class Row:
    """One line of the table: what was measured, its value, what it is held to ("at least" or "at most"), the unit."""

    name: str
    value: float
    unit: str
    target: float | None = None
    at_least: bool = False

    @property
    def met(self) -> bool | None:
        if self.target is None:
            return None
        return self.value >= self.target if self.at_least else self.value <= self.target


def interleaved(contestants: Mapping[str, Callable[[], Any]], rounds: int) -> dict[str, float]:
    """Median CPU seconds a call of each contestant over `rounds` rounds of one call each, after one unmeasured."""
    times: dict[str, list[float]] = {name: [] for name in contestants}
    for lap in range(rounds + 1):
        for name, call in contestants.items():
            start = process_time()
            call()
            if lap:
                times[name].append(process_time() - start)
    return {name: statistics.median(values) for name, values in times.items()}


def _window(length: int, generator: torch.Generator) -> Diagnostics:
    instability = torch.rand(length, dtype=torch.float64, generator=generator)
    return Diagnostics(instability, torch.randn(length - 1, dtype=torch.float64, generator=generator) - 1)


def bench(rounds: int = 25) -> list[Row]:
    """The table's rows: MAP, draws, a batch, and a large window, in milliseconds and ratios. Takes about a minute."""
    generator = torch.Generator().manual_seed(0)
    context, prior = Context(), PRIOR
    window = _window(WINDOW, generator)
    # as many windows in a row of the batch as there are rows, all different
    edge_logit = torch.randn(BATCH, WINDOW - 1, dtype=torch.float64, generator=generator) - 1
    concentration = torch.full_like(edge_logit, 1.5)

    def batch(rows: int) -> SemiMarkov:
        return SemiMarkov(edge_logit[:rows], concentration[:rows])

    few = 3  # draws by infer_discrete, each a full enumeration: 1,000 would take minutes
    seconds = interleaved(
        {
            "pyro map": lambda: enumerated_map(window, context, prior),
            "map": lambda: posterior(window, context, prior).chain.map(),
            "pyro draws": lambda: enumerated_samples(few, window, context, prior),
            "draws": lambda: posterior(window, context, prior).sample_cuts(DRAWS, seed=0),
            "one": lambda: batch(1).map(),
            "many": lambda: batch(BATCH).map(),
            "one evidence": lambda: batch(1).cut_marginals,
            "many evidence": lambda: batch(BATCH).cut_marginals,
        },
        rounds,
    )
    pyro_draws = seconds["pyro draws"] / few * DRAWS
    rows = [
        Row(f"MAP, {WINDOW} tokens", 1e3 * seconds["map"], "ms"),
        Row("  infer_discrete(temperature=0)", 1e3 * seconds["pyro map"], "ms"),
        Row("  times faster", seconds["pyro map"] / seconds["map"], "x", 20, at_least=True),
        Row(f"{DRAWS} draws, {WINDOW} tokens", 1e3 * seconds["draws"], "ms"),
        Row(f"  {DRAWS} times infer_discrete (from {few})", 1e3 * pyro_draws, "ms"),
        Row("  times faster", pyro_draws / seconds["draws"], "x", 1000, at_least=True),
        Row(f"MAP, {BATCH} windows of {WINDOW}", 1e3 * seconds["many"], "ms"),
        Row("  times one window", seconds["many"] / seconds["one"], "x", 4),
        Row(f"cut marginals, {BATCH} windows of {WINDOW}", 1e3 * seconds["many evidence"], "ms"),
        Row("  times one window", seconds["many evidence"] / seconds["one evidence"], "x", 4),
    ]
    return rows + _large(generator)


def _large(generator: torch.Generator) -> list[Row]:
    edge_logit: Tensor = torch.randn(1, LARGE - 1, dtype=torch.float64, generator=generator) - 1
    chain = SemiMarkov(edge_logit, torch.full_like(edge_logit, 1.5))
    rows = []
    questions: dict[str, Callable[[], Any]] = {
        "log evidence": lambda: chain.log_evidence,
        "MAP": chain.map,
        "cut marginals": lambda: chain.cut_marginals,
        "100 draws": lambda: chain.sample(100, generator),
    }
    for name, ask in questions.items():
        start = process_time()
        ask()
        rows.append(Row(f"{name}, {LARGE} tokens", process_time() - start, "s"))
    rows.append(Row(f"  all of {LARGE} tokens", sum(row.value for row in rows), "s", 3))
    scale = 2**30 if sys.platform == "darwin" else 2**20  # bytes there, KiB on Linux
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / scale
    return [*rows, Row("  peak memory of the process", peak, "GiB", 1.5)]


def table(rows: list[Row]) -> str:
    """The rows as text, a target beside what is held to one."""
    lines = []
    for row in rows:
        line = f"{row.name:42} {row.value:10.2f} {row.unit:4}"
        if row.target is not None:
            line += f"{'>=' if row.at_least else '<='} {row.target:g}  {'met' if row.met else 'MISSED'}"
        lines.append(line.rstrip())
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> None:
    """Print the table, or its rows as JSON."""
    parser = argparse.ArgumentParser(prog="python -m dystruct.inference.bench", description=__doc__)
    parser.add_argument("--rounds", type=int, default=25, help="rounds of one call of each contestant (default 25)")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    rows = bench(options.rounds)
    print(json.dumps([{**asdict(row), "met": row.met} for row in rows], indent=1) if options.json else table(rows))


if __name__ == "__main__":
    main()
