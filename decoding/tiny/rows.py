"""Training rows: what the embedded model sees, what it must predict, and which tokens see which.

A row's `labels[i]` is the token to predict *for* place i (-100: nothing); under shifted logits it is read from
the output at i-1.

Attention. Every token stands in a window: 0 is the running text, w >= 1 a window that is being decoded. A token sees
the running text up to its `horizon` (a position, inclusive), and all of its own window unless that is 0. So running
text with horizon = position is causal, and a row that is all window 1 attends in both directions.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

IGNORE = -100
LONGEST_RESPONSE = 256


@dataclass(frozen=True)
class Row:
    """Token ids as the model sees them, the token to predict for each place or -100, positions, windows, horizons."""

    ids: list[int]
    labels: list[int]
    positions: list[int]
    windows: list[int]
    horizons: list[int]

    @classmethod
    def causal(cls, ids: list[int], labels: list[int]) -> Row:
        """A row of running text, in which every token sees what stands before it."""
        places = list(range(len(ids)))
        return cls(ids, labels, places, [0] * len(ids), places)

    @classmethod
    def bidirectional(cls, ids: list[int], labels: list[int]) -> Row:
        """A row in which every token sees every token."""
        return cls(ids, labels, list(range(len(ids))), [1] * len(ids), [-1] * len(ids))


def autoregressive_row(prompt: list[int], answer: list[int], eos: int) -> Row:
    """Next-token prediction of the answer and one end token."""
    target = [*answer, eos]
    return Row.causal(prompt + target, [IGNORE] * len(prompt) + target)


def windowed_row(prompt: list[int], answer: list[int], eos: int, mask: int, rng: Random) -> Row:
    """Next-token prediction of the answer, and beside it every window of one way to cut it, masked.

    Behind prompt and answer, which are running text, follows a copy of the answer and some end tokens, in windows of
    about 4 to 48 tokens with a mask rate of their own. A window sees the prompt and the answer in front of it, as when
    it is decoded, and all of itself. One row thus teaches what many rows of `masked_row` teach (the vectorised
    training of block diffusion), but for one thing: the text in front does not see the window.
    """
    target = [*answer, eos]
    row = autoregressive_row(prompt, answer, eos)
    ids, labels = list(row.ids), list(row.labels)
    positions, windows, horizons = list(row.positions), list(row.windows), list(row.horizons)
    start, window = 0, 0
    while start < len(target):
        end = start + 4 + int(45 * rng.random() ** 2)
        if end >= len(target):
            target += [eos] * rng.randint(0, 8)
            end = len(target)
        window += 1
        hidden = _mask(end - start, rng)
        for place in range(start, end):
            masked = hidden[place - start]
            ids.append(mask if masked else target[place])
            # The first place of a window is predicted by the token in front of it, which is running text.
            labels.append(target[place] if masked and place > start else IGNORE)
        positions += range(len(prompt) + start, len(prompt) + end)
        windows += [window] * (end - start)
        horizons += [len(prompt) + start - 1] * (end - start)
        start = end
    return Row(ids, labels, positions, windows, horizons)


def masked_row(prompt: list[int], answer: list[int], eos: int, mask: int, rng: Random) -> Row:
    """LLaDA's objective on a span of the response: clean context before it, masks at a uniform rate inside.

    Three rows in four are appended windows of 4 to 48 tokens (the short ones more often) behind a clean beginning of
    the response, as the decoders of this package make them. The others mask the whole response: a third of these end at
    a random place in mid-sentence, the rest after 1 to 8 end tokens, or (a quarter of the time) anywhere up to 256
    tokens of response.
    """
    if rng.random() < 0.75:
        start = rng.randint(0, len(answer))
        end = start + 4 + int(45 * rng.random() ** 2)
    else:
        start = 0
        if rng.random() < 1 / 3:
            end = rng.randint(1, len(answer))
        elif rng.random() < 0.75:
            end = len(answer) + rng.randint(1, 8)
        else:
            end = max(len(answer) + 1, rng.randint(len(answer) + 1, max(len(answer) + 1, LONGEST_RESPONSE)))
    response = (answer + [eos] * max(0, end - len(answer)))[:end]
    hidden = [False] * start + _mask(end - start, rng)
    ids = [mask if h else token for token, h in zip(response, hidden, strict=True)]
    labels = [token if h else IGNORE for token, h in zip(response, hidden, strict=True)]
    return Row.bidirectional(prompt + ids, [IGNORE] * len(prompt) + labels)


def _mask(length: int, rng: Random) -> list[bool]:
    """Which of `length` places are masked, each with one rate drawn uniformly from 0.05 to 1; at least one."""
    rate = rng.uniform(0.05, 1.0)
    hidden = [rng.random() < rate for _ in range(length)]
    if not any(hidden):
        hidden[rng.randrange(length)] = True
    return hidden


def drill_row(ids: list[int], results: list[list[int]], mask: int | None, rng: Random) -> Row:
    """Arithmetic lines whose results (their token places) are predicted; with a mask id half of them, masked."""
    asked = [places for places in results if places and (mask is None or rng.random() < 0.5)] or results[:1]
    row, labels = list(ids), [IGNORE] * len(ids)
    for place in (place for places in asked for place in places):
        labels[place] = ids[place]
        if mask is not None:
            row[place] = mask
    return Row.causal(row, labels) if mask is None else Row.bidirectional(row, labels)
