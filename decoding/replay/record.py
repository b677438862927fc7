"""A trace as the plain data that the replay page is fed: what the page shows, short names, few digits.

    texts, ids     what each distinct token looks like, and its id; everywhere else a token is an index into them
    steps          [pass, kind, window, block or -1, remasked, commits, splices], the last three flat: (position, token,
                   confidence) and (position, removed, inserted, token or -1) one after the other; behind them, in a
                   trace that has alternatives, for each commit (token, probability) one after the other
    windows        where and how each opened, and its structure with the posterior it was drawn from, or null

The trace holds cut marginals and entropy; the MAP partition and the law of the block count are computed again, from its
diagnostics and prior. Knows no HTML. Log probabilities and entropies are in nats.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, get_args

from dystruct.inference import StructurePosterior

from ..trace import Commit, Generation, PassKind, Remask, Step, StructureChosen, Window
from ..wording import TokenTexts, caption, is_inferred, literal, summary

KINDS = get_args(PassKind)


def record(generation: Generation) -> dict[str, Any]:
    """The page's data of one trace; ValueError if the trace's parts do not fit together."""
    try:
        generation.check()
    except ValueError as error:
        raise ValueError(f"The trace does not fit together ({error}); save it again.") from error
    try:
        return _record(generation)
    except (ValueError, LookupError, AssertionError, OverflowError) as error:
        raise ValueError("The trace does not fit together; save it again.") from error


def _record(generation: Generation) -> dict[str, Any]:
    """The page's data of a trace whose lengths, positions and tokens fit together."""
    figures = summary(generation)  # goes through every event
    shown = TokenTexts.of(generation)
    ids = sorted(generation.token_texts)
    index = {token: place for place, token in enumerate(ids)}
    return {
        "name": _name(generation.settings),
        "caption": caption(generation.model, generation.settings),
        "inferred": is_inferred(generation.settings),
        "prompt": literal(generation.prompt),
        "text": literal(generation.text),
        "figures": figures,
        "ids": ids,
        "texts": [shown(token) for token in ids],
        "breaks": [place for place, token in enumerate(ids) if "\n" in generation.token_texts[token]],
        "ends": [place for place, token in enumerate(ids) if token in generation.end_tokens],
        "useful": generation.useful_tokens,
        "windows": [_window(window) for window in generation.windows],
        "steps": [
            _step(step, place, index) for place, window in enumerate(generation.windows) for step in window.steps
        ],
    }


def _name(settings: dict[str, Any]) -> str:
    """What tells a run from another one: its structure rule, or else its decoder."""
    return str(settings.get("structure") or settings.get("decoder") or "decoding")


def _step(step: Step, window: int, index: dict[int, int]) -> list[Any]:
    splices = [
        [splice.position, splice.removed, splice.inserted, -1 if splice.token is None else index[splice.token]]
        for splice in step.spliced
    ]
    others = [
        [value for other in commit.alternatives for value in (index[other.token], _short(other.probability))]
        for commit in step.commits
    ]
    return [
        step.number,
        KINDS.index(step.kind),
        window,
        -1 if step.block is None else step.block,
        _changes(step.remasked, index),
        _changes(step.commits, index),
        [value for splice in splices for value in splice],
        *([others] if any(others) else []),
    ]


def _changes(changes: Iterable[Commit | Remask], index: dict[int, int]) -> list[Any]:
    return [
        value
        for change in changes
        for value in (change.position, index[change.token], _short(change.confidence))
    ]  # fmt: skip


def _window(window: Window) -> dict[str, Any]:
    opened, structure = window.opened, window.structure
    return {
        "start": opened.start,
        "length": window.length,
        "diagnosed": opened.length,
        "rate": None if opened.rate is None else _short(opened.rate),
        "structure": None if structure is None else _structure(structure, window),
        "instability": None if window.closed.mean_instability is None else _short(window.closed.mean_instability),
    }


def _structure(chosen: StructureChosen, window: Window) -> dict[str, Any]:
    law = chosen.length
    return {
        "ends": chosen.ends,
        "order": chosen.order,
        "instability": _shorts(chosen.instability),
        "edges": _shorts(chosen.edge_logit),
        "cuts": _shorts(chosen.cut_marginals),
        "blocks": _shorts(chosen.block_instability),
        "passes": chosen.passes,
        "log": _short(chosen.log_probability),
        "entropy": _short(chosen.entropy),
        "inferred": None if law is None else {"probability": _short(law.of(window.length)), "mean": _short(law.mean)},
        "exact": _exact(window.posterior),
    }


def _exact(exact: StructurePosterior | None) -> dict[str, Any] | None:
    """The MAP partition and the block count's law; None where the trace does not say what posterior it was."""
    if exact is None:
        return None
    best = exact.map().partition
    return {"map": best.ends, "log": _short(exact.log_prob(best)), "count": _shorts(exact.block_count.tolist())}


def _shorts(values: Iterable[float]) -> list[float | None]:
    return [_short(value) for value in values]


def _short(value: float) -> float | None:
    """A number with four digits; None for what JSON has no number for."""
    return float(f"{value:.4g}") if math.isfinite(value) else None
