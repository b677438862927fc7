"""Runs the benchmarks and prints a table or JSON: `python -m dystruct.decoding.bench`.

Short by default, two to three minutes on one idle core; `--full` measures the whole ranges. Times are of the CPU on one
thread, or the time one waits with `--threads` above 1. Knows the targets; asserts nothing.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import torch

from dystruct.inference.bench import Row, table

from .gpu import gpu
from .measure import Clock
from .originals import against
from .overhead import overhead, structure_share
from .scaling import scaling
from .workloads import embedded

PARTS = ("overhead", "structure", "originals", "scaling", "gpu")


def main(arguments: list[str] | None = None) -> None:
    """Run the benchmarks that are asked for."""
    parser = argparse.ArgumentParser(prog="python -m dystruct.decoding.bench", description=__doc__)
    parser.add_argument("parts", nargs="*", help=f"which of {', '.join(PARTS)} (default: all)")
    parser.add_argument("--full", action="store_true", help="whole ranges and more rounds; takes long")
    parser.add_argument("--rounds", type=int, help="rounds of the interleaved measurements (default 3, with --full 9)")
    parser.add_argument("--threads", type=int, default=1, help="of torch (default 1: times of the CPU)")
    parser.add_argument("--originals", type=Path, help="folder with the rivals' published programs")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    options = parser.parse_args(arguments)
    rounds = options.rounds or (9 if options.full else 3)
    clock = Clock(options.threads)
    parts = options.parts or PARTS
    if unknown := set(parts) - set(PARTS):
        parser.error(f"there is no part {sorted(unknown)[0]!r}; the parts are {', '.join(PARTS)}")
    rows: list[Row] = []
    notes: list[str] = []

    def run(name: str, measure: Callable[[], list[Row]]) -> None:
        if name in parts:
            found = measure()
            rows.extend(found)
            if not options.json:
                print(table(found), flush=True)

    def originals() -> list[Row]:
        if options.originals is None:
            notes.append("The published programs are left out; say where they lie with --originals FOLDER.")
            return []
        model, prompts = embedded()
        found, missing = against(clock, model, prompts[: 3 if options.full else 1], options.originals, rounds // 2 or 1)
        notes.extend(missing)
        return found

    def on_gpu() -> list[Row]:
        if not torch.cuda.is_available():
            notes.append("There is no CUDA device here; its benchmark is left out.")
            return []
        return gpu(rounds=rounds)

    run("overhead", lambda: overhead(clock, *embedded(), rounds))
    run("structure", lambda: structure_share(clock, *embedded()))
    run("originals", originals)
    run("scaling", lambda: scaling(clock, full=options.full))
    run("gpu", on_gpu)
    if options.json:
        about = {"torch": torch.__version__, "threads": options.threads, "notes": notes}
        print(json.dumps({**about, "rows": [{**asdict(row), "met": row.met} for row in rows]}, indent=1))
    else:
        print("\n".join(notes))


if __name__ == "__main__":
    main()
