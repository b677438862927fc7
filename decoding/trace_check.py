"""Whether a trace fits together: lengths, structures, positions, texts and figures, and where they do not.

A trace comes from a file that anybody may have written; what shows it can rely on what is checked here.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .trace import Generation, LengthInferred, Window

_LONGEST = 10**6  # tokens of a window, far beyond any model's context
_ROUNDED = 1e-6  # by how much probabilities may miss their sum


def check_trace(trace: Generation) -> None:
    """ValueError, which says where, unless the windows' passes lead to the tokens and the figures count them."""
    for place, window in enumerate(trace.windows):
        if not 0 <= window.opened.length <= _LONGEST:
            raise ValueError(f"windows[{place}] has other lengths than tokens")
        _check_structure(window, place)
        _check_length(window, place)
        _check_positions(window, place)
    _check_texts(trace)
    decoded = tuple(token for window in trace.windows for token in window.closed.tokens)
    shown = [after for _, after in trace.replay()][-1:]
    if decoded != trace.tokens or (shown and shown[0] != trace.tokens):
        raise ValueError("its passes do not lead to its tokens")
    if trace.useful_tokens + trace.wasted_tokens != len(trace.tokens) or trace.useful_tokens < 0:
        raise ValueError("its useful and wasted tokens are not its tokens")
    if trace.wasted_tokens and trace.stop_reason not in ("eos", "stop"):
        raise ValueError(f"it has wasted tokens, though its stop_reason is {trace.stop_reason!r}")
    numbers = [step.number for window in trace.windows for step in window.steps]
    if numbers != sorted(set(numbers)) or any(number > trace.forward_passes for number in numbers):
        raise ValueError("its passes are not numbered from 1 to their count")


def _check_texts(trace: Generation) -> None:
    """ValueError unless every token of the trace has its text."""
    used = set(trace.tokens)
    for step in (step for window in trace.windows for step in window.steps):
        used |= {remask.token for remask in step.remasked} | {commit.token for commit in step.commits}
        used |= {other.token for commit in step.commits for other in commit.alternatives}
        used |= {splice.token for splice in step.spliced if splice.token is not None}
    unknown = used - trace.token_texts.keys()
    if unknown:
        raise ValueError(f"it has no text of token {min(unknown)}")


def _check_length(window: Window, place: int) -> None:
    """ValueError unless a window's lengths add up; told before anything so long is made."""
    spliced = [splice for step in window.steps for splice in step.spliced]
    counts = [window.opened.length, *(count for splice in spliced for count in (splice.removed, splice.inserted))]
    length = window.length + sum(splice.inserted - splice.removed for splice in spliced)
    if not 0 <= min(counts) <= max(counts) <= _LONGEST or length != len(window.closed.tokens):
        raise ValueError(f"windows[{place}] has other lengths than tokens")


def _check_structure(window: Window, place: int) -> None:
    """ValueError unless a window's structure is one of so many tokens."""
    chosen, length = window.structure, window.opened.length
    if chosen is None:
        return
    where, blocks = f"windows[{place}].structure", len(chosen.ends)
    if chosen.length is not None:
        _check_inferred(chosen.length, window, where)
        if set(chosen.ends[-1:]) & set(chosen.length.lengths):
            length = chosen.ends[-1]
    if chosen.ends[-1:] != (length,) or list(chosen.ends) != sorted(set(chosen.ends)) or chosen.ends[0] < 1:
        raise ValueError(f"{where}.ends are not those of blocks of {length} tokens")
    if sorted(chosen.order) != list(range(blocks)):
        raise ValueError(f"{where}.order does not name each of the {blocks} blocks once")
    for name, expected in (
        ("instability", length), ("edge_logit", length - 1), ("cut_marginals", length - 1),
        ("block_instability", blocks), ("passes", blocks),
    ):  # fmt: skip
        if len(getattr(chosen, name)) != expected:
            raise ValueError(f"{where}.{name} holds {len(getattr(chosen, name))} values, not {expected}")
    if not all(map(math.isfinite, (*chosen.instability, *chosen.block_instability))):
        raise ValueError(f"{where} has an instability that is no finite number")


def _check_inferred(law: LengthInferred, window: Window, where: str) -> None:
    """ValueError unless a law of lengths is one of those up to what was diagnosed, in a window that nothing moves."""
    if not law.lengths or law.lengths != tuple(range(max(law.lengths[0], 1), window.opened.length + 1)):
        raise ValueError(f"{where}.length.lengths are not those up to {window.opened.length} tokens")
    for name in ("prior", "log_evidence", "probability"):
        values = getattr(law, name)
        if len(values) != len(law.lengths) or not all(map(math.isfinite, values)):
            raise ValueError(f"{where}.length.{name} is not a finite number for each of {len(law.lengths)} lengths")
    for name in ("prior", "probability"):
        values = getattr(law, name)
        if min(values) < 0 or not math.isclose(math.fsum(values), 1, abs_tol=_ROUNDED):
            raise ValueError(f"{where}.length.{name} does not sum to 1")
    if any(step.spliced for step in window.steps):
        raise ValueError(f"{where}.length is that of a window whose passes changed its length")


def _check_positions(window: Window, place: int) -> None:
    """ValueError unless a window's passes change its own positions only."""
    start, end = window.opened.start, window.opened.start + window.opened.length
    for number, step in enumerate(window.steps):
        if step.kind != "diagnostic" and window.length < window.opened.length:
            end = start + window.length
        resized = end
        for splice in step.spliced:
            if not start <= splice.position <= splice.position + splice.removed <= resized:
                raise ValueError(f"windows[{place}].steps[{number}] splices beyond its window")
            resized += splice.inserted - splice.removed
        # a diagnostic pass shows its tokens behind what it splices
        reach = resized if step.kind == "diagnostic" else end
        changed = [*(remask.position for remask in step.remasked), *(commit.position for commit in step.commits)]
        if any(not start <= position < reach for position in changed):
            raise ValueError(f"windows[{place}].steps[{number}] changes a position outside its window")
        end = resized
