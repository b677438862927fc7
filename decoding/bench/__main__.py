"""Runs the benchmarks, prints a table and writes JSON: `python -m dystruct.decoding.bench --out bench.json`.

Short by default, two to three minutes on one idle core; `--full` measures the whole ranges, in half an hour or more.
Times are of the CPU on one thread, or the time one waits with `--threads` above 1. Knows the targets; asserts nothing.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from dystruct.inference.bench import Row, table

from ..evaluation.environment import environment
from ..files import save_json
from .arguments import positive, writable
from .gpu import gpu
from .measure import Clock
from .originals import against
from .overhead import overhead, structure_share
from .scaling import scaling
from .workloads import embedded

PARTS = ("overhead", "structure", "originals", "scaling", "gpu")


def parser() -> argparse.ArgumentParser:
    """What the program takes."""
    found = argparse.ArgumentParser(prog="python -m dystruct.decoding.bench", description=__doc__)
    found.add_argument("parts", nargs="*", help=f"which of {', '.join(PARTS)} (default: all)")
    found.add_argument("--full", action="store_true", help="whole ranges and more rounds; takes long")
    found.add_argument(
        "--rounds", type=positive, help="rounds of the interleaved measurements (default 3, with --full 9)"
    )
    found.add_argument("--threads", type=positive, default=1, help="of torch (default 1: times of the CPU)")
    found.add_argument("--originals", type=Path, help="folder with the rivals' published programs")
    found.add_argument(
        "--compiled", action="store_true", help="ours compiled, too, beside the programs; compiling takes half a minute"
    )
    found.add_argument("--json", action="store_true", help="print JSON instead of a table")
    found.add_argument("--out", type=writable, help="file for the JSON, written anew after each part")
    return found


def main(arguments: list[str] | None = None) -> None:
    """Run the benchmarks that are asked for."""
    options = parser().parse_args(arguments)
    rounds = options.rounds or (9 if options.full else 3)
    parts = options.parts or PARTS
    if unknown := set(parts) - set(PARTS):
        parser().error(f"there is no part {sorted(unknown)[0]!r}; the parts are {', '.join(PARTS)}")
    clock = Clock(options.threads)
    rows: list[Row] = []
    notes: list[str] = []

    def content() -> dict[str, Any]:
        measured = [{**asdict(row), "met": row.met} for row in rows]
        return {"environment": environment(clock.device), "rounds": rounds, "notes": notes, "rows": measured}

    def run(name: str, *measures: Callable[[], list[Row]]) -> None:
        for measure in measures if name in parts else ():
            found = measure()
            rows.extend(found)
            if options.out is not None:
                save_json(options.out, content())
            if found and not options.json:
                print(table(found), flush=True)

    def originals() -> list[Row]:
        if options.originals is None:
            notes.append("The published programs are left out; say where they lie with --originals FOLDER.")
            return []
        model, prompts = embedded()
        found, missing = against(
            clock, model, prompts[: 3 if options.full else 1], options.originals, rounds // 2 or 1,
            compiled=options.compiled,
        )  # fmt: skip
        notes.extend(missing)
        return found

    def on_gpu() -> list[Row]:
        if not torch.cuda.is_available():
            notes.append("There is no CUDA device here; its benchmark is left out.")
            return []
        return gpu(rounds=rounds)

    run("overhead", lambda: overhead(clock, *embedded(), rounds))
    run("structure", lambda: structure_share(clock, *embedded(), rounds))
    run("originals", originals)
    run("scaling", *scaling(clock, full=options.full))
    run("gpu", on_gpu)
    print(json.dumps(content(), indent=1) if options.json else "\n".join(notes))


if __name__ == "__main__":
    main()
