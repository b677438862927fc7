"""Decoding with variants: whole problems from their questions, or single windows behind right beginnings.

One record a variant and problem (and window), with whether it came out right and what it cost. Variants are compared on
the same problems, by `comparisons`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

import numpy as np

from ..backbone import Backbone
from ..dystruct import DyStruct
from ..engine import Engine
from ..generation import generate
from ..generation_settings import GenerationSettings
from ..records import Records
from ..tiny.problem import Problem
from ..tiny.scoring import is_right
from ..trace import Generation, Window
from .along import Place, generator_of, places

Report = Callable[[str, int], None]


def decode_problems(
    model: Backbone,
    records: Records,
    variants: Mapping[str, DyStruct],
    domain: str,
    problems: Sequence[Problem],
    *,
    seed: int = 0,
    max_new_tokens: int = 256,
    batch_size: int = 8,
    execute_code: bool = False,
    report: Report | None = None,
) -> None:
    """Append a record for each variant and problem that has none. No budget: a variant takes the passes it asks for.

    report: called with the variant and the problems that it has done. Raises UserError for code without execute_code.
    """
    for name, decoder in variants.items():
        todo = (n for n in range(len(problems)) if (name, domain, n) not in records)
        while numbers := list(islice(todo, batch_size)):
            found = generate(
                model,
                [problems[n].question for n in numbers],
                decoder,
                max_new_tokens=max_new_tokens,
                budget=_ENOUGH * max_new_tokens,
                seed=seed,
                batch_size=batch_size,
            )
            for n, generation in zip(numbers, found, strict=True):
                right = is_right(problems[n], generation.text, execute_code=execute_code)
                records.append((name, domain, n), kind=problems[n].kind, right=int(right), **_costs(generation))
            if report is not None:
                report(name, numbers[-1] + 1)


def decode_windows(
    model: Backbone,
    records: Records,
    variants: Mapping[str, DyStruct],
    domain: str,
    problems: Sequence[Problem],
    *,
    seed: int = 0,
    windows: int = 1,
    report: Report | None = None,
) -> None:
    """Append a record for each variant and problem that has none: windows along the answers, as `along` places them."""
    for name, decoder in variants.items():
        for n, problem in enumerate(problems):
            if (name, domain, n) in records:
                continue
            found = places(model, problem.answer, generator_of(seed, domain, n), windows)
            measured = [_decoded_window(model, decoder, problem, place, seed) for place in found]
            records.append((name, domain, n), kind=problem.kind, windows=measured)
            if report is not None:
                report(name, n + 1)


_ENOUGH = 8  # passes a token; more than any variant takes


def _costs(generation: Generation) -> dict[str, Any]:
    return {
        "passes": generation.forward_passes,
        "useful": generation.useful_tokens,
        "wasted": generation.wasted_tokens,
        "stop": generation.stop_reason,
        "windows": [
            {
                "length": window.length,
                "rate": window.opened.rate,
                "hbar": window.closed.mean_instability,
                "blocks": window.block_count,
                "in_order": int(_in_order(window)),
            }
            for window in generation.windows
        ],
    }


def _in_order(window: Window) -> bool:
    """Whether its blocks were decoded from left to right."""
    return window.structure is None or list(window.structure.order) == sorted(window.structure.order)


def _decoded_window(model: Backbone, decoder: DyStruct, problem: Problem, place: Place, seed: int) -> dict[str, Any]:
    """Decode one window of a given length; wrong tokens are counted up to the answer's end."""
    before = model.tokenizer(problem.answer, add_special_tokens=False)["input_ids"][: place.start]
    fixed = replace(decoder, prior=replace(decoder.prior, min_length=place.length, max_length=place.length))
    engine = Engine(model, fixed, GenerationSettings(place.length, _ENOUGH * place.length, seed=seed))
    [generation] = engine.run(["the window"], [[*model.encode(problem.question), *before]], None, {})
    [window] = generation.windows
    reference = np.array(place.reference[: place.inside])
    tokens = np.array(generation.tokens[: place.inside])
    return {
        "length": place.length,
        "inside": place.inside,
        "wrong": int((tokens != reference).sum()),
        "passes": generation.forward_passes,
        "blocks": window.block_count,
        "in_order": int(_in_order(window)),
        **_welded(window, place),
    }


def _welded(window: Window, place: Place) -> dict[str, int]:
    """Positions that welds masked again, and of these how many were mended (made right) and spoilt (made wrong)."""
    first: dict[int, int] = {}
    for step in window.steps:
        for remask in step.remasked:
            first.setdefault(remask.position, remask.token)
    inside = {position: token for position, token in first.items() if position < place.inside}
    right = {position: token == place.reference[position] for position, token in inside.items()}
    now = {position: window.closed.tokens[position] == place.reference[position] for position in inside}
    return {
        "remasked": len(inside),
        "mended": sum(now[position] and not right[position] for position in inside),
        "spoilt": sum(right[position] and not now[position] for position in inside),
    }
