"""What is reported of one decoded item, beside whether it is right.

Per window with a structure: P(MAP | O), the probability of the most probable partition, and the posterior's entropy in
nats. Both are worked out from the trace (edge logits, previous instability), so a sampled structure has them too.

Knows traces and the posterior; nothing of tasks and files.
"""

from __future__ import annotations

from dataclasses import dataclass

from dystruct.inference import posterior
from dystruct.model import Context, Diagnostics, PriorConfig

from ..trace import Generation, Window

REPEATED = 4  # tokens of the sequences that are looked for again


@dataclass(frozen=True)
class Figures:
    """The figures of one decoded item.

    useful_tokens, wasted_tokens: before and behind the text's end. passes: forward passes by kind. seconds: its share
    of the wall time, where that of a pass is shared evenly by the rows that took part in it; latency: from its own
    first pass to its last. empty: no useful token. repetition: the share of the text's sequences of 4 tokens that stood
    in it before. confidence: mean probability of the useful tokens when they were last committed, None of an empty
    text. map_probability, entropy, log_probability: means a window of P(MAP | O), of the posterior's entropy and of the
    log probability of the partition that was used, in nats; None where no window has a structure.
    """

    useful_tokens: int
    wasted_tokens: int
    windows: int
    blocks: int
    forward_passes: int
    passes: dict[str, int]
    seconds: float
    latency: float
    empty: bool
    repetition: float
    stop_reason: str
    confidence: float | None
    map_probability: float | None
    entropy: float | None
    log_probability: float | None


def figures(generation: Generation, seconds: float, prior: PriorConfig | None) -> Figures:
    """The figures of a generation. seconds: its share of the wall time. prior: of a decoder that has one."""
    structured = [window for window in generation.windows if window.structure is not None] if prior else []
    tops = [_map_probability(window, prior) for window in structured] if prior else []
    return Figures(
        useful_tokens=generation.useful_tokens,
        wasted_tokens=generation.wasted_tokens,
        windows=len(generation.windows),
        blocks=generation.block_count,
        forward_passes=generation.forward_passes,
        passes=dict(generation.passes),
        seconds=seconds,
        latency=generation.seconds,
        empty=generation.useful_tokens == 0,
        repetition=repetition(generation.tokens[: generation.useful_tokens]),
        stop_reason=generation.stop_reason,
        confidence=_mean(list(confidences(generation).values())),
        map_probability=_mean(tops),
        entropy=_mean([window.structure.entropy for window in structured if window.structure]),
        log_probability=_mean([window.structure.log_probability for window in structured if window.structure]),
    )


def repetition(tokens: tuple[int, ...], length: int = REPEATED) -> float:
    """1 - different / all sequences of `length` tokens; 0 of a text that holds none."""
    found = [tokens[start : start + length] for start in range(len(tokens) - length + 1)]
    return 1 - len(set(found)) / len(found) if found else 0.0


def confidences(generation: Generation) -> dict[int, float]:
    """The probability of each useful token, by position, when it was last committed.

    A decoder that inserts or removes positions moves what stands behind them.
    """
    held: list[float | None] = []
    for window in generation.windows:
        start = window.opened.start
        held[start : start + window.length] = [None] * window.length
        for step in window.steps:
            if step.kind == "diagnostic":  # its commits are tentative, its changes of the length are not
                held[start:] = [None] * (len(held) - start)
            else:
                for commit in step.commits:
                    held[commit.position] = commit.confidence
            for splice in step.spliced:
                held[splice.position : splice.position + splice.removed] = [None] * splice.inserted
    useful = held[: generation.useful_tokens]
    return {position: value for position, value in enumerate(useful) if value is not None}


def _map_probability(window: Window, prior: PriorConfig | None) -> float:
    """P(MAP | O) of a window whose structure is on record."""
    assert window.structure is not None and prior is not None
    diagnostics = Diagnostics(list(window.structure.instability), list(window.structure.edge_logit))  # type: ignore[arg-type]
    exact = posterior(diagnostics, Context(window.opened.previous_instability), prior)
    return exact.k_best(1)[0].probability


def _mean(values: list[float]) -> float | None:
    return sum(values) / len(values) if values else None
