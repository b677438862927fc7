"""Training rows: what the embedded model sees and what it must predict, for each of its two phases.

A row's `labels[i]` is the token to predict *for* position i (-100: nothing); under shifted logits it is read from
the output at i-1.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

IGNORE = -100


@dataclass(frozen=True)
class Row:
    """Token ids as the model sees them, and the token to predict for each position or -100."""

    ids: list[int]
    labels: list[int]


def autoregressive_row(prompt: list[int], answer: list[int], eos: int) -> Row:
    """Next-token prediction of the answer and one end token."""
    target = [*answer, eos]
    return Row(prompt + target, [IGNORE] * len(prompt) + target)


def masked_row(prompt: list[int], answer: list[int], eos: int, mask: int, rng: Random) -> Row:
    """LLaDA's objective on a span of the response: clean context before it, masks at a uniform rate inside.

    Three rows in four are appended windows of 8 to 48 tokens (the short ones more often) behind a clean beginning of
    the response, as the decoders of this package make them. The others mask the whole response: a third of these end at
    a random place in mid-sentence, the rest after 1 to 8 end tokens, or (a quarter of the time) up to 128.
    """
    if rng.random() < 0.75:
        start = rng.randint(0, len(answer))
        end = start + 8 + int(41 * rng.random() ** 2)
    else:
        start = 0
        if rng.random() < 1 / 3:
            end = rng.randint(1, len(answer))
        else:
            end = len(answer) + (rng.randint(1, 8) if rng.random() < 0.75 else rng.randint(9, 128))
    response = (answer + [eos] * max(0, end - len(answer)))[:end]
    rate = rng.uniform(0.05, 1.0)
    masked = [i >= start and rng.random() < rate for i in range(end)]
    if not any(masked):
        masked[rng.randrange(start, end)] = True
    ids = [mask if hidden else token for token, hidden in zip(response, masked, strict=True)]
    labels = [token if hidden else IGNORE for token, hidden in zip(response, masked, strict=True)]
    return Row(prompt + ids, [IGNORE] * len(prompt) + labels)


def drill_row(ids: list[int], results: list[list[int]], mask: int | None, rng: Random) -> Row:
    """Arithmetic lines whose results (their token places) are predicted; with a mask id half of them, masked."""
    row, labels = list(ids), [IGNORE] * len(ids)
    for places in results:
        if mask is not None and rng.random() < 0.5:
            continue
        for place in places:
            labels[place] = ids[place]
            if mask is not None:
                row[place] = mask
    if all(label == IGNORE for label in labels):
        return drill_row(ids, results, mask, rng)
    return Row(row, labels)
