"""The batches of a training run: each a function of (seed, phase, pool), rows of like length together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from random import Random

import torch
from tokenizers import Tokenizer
from torch import Tensor

from . import maths
from .problem import Problem
from .problems import problems
from .rows import Row, autoregressive_row, drill_row, masked_row, windowed_row
from .tokenization import EOS, MASK, special_token

PROMPT_FORMAT = "{prompt}\n"
PHASES = ("autoregressive", "windowed", "masked")
POOL = 2048  # problems
# What the rows of a problem are in each phase, with their weights. A masked row has a tenth of the targets
# of the others, but only it sees a window as the decoders show it.
ROW_KINDS = {
    "autoregressive": {"autoregressive": 1.0},
    "windowed": {"windowed": 0.6, "masked": 0.4},
    "masked": {"windowed": 0.15, "masked": 0.85},
}


@dataclass(frozen=True)
class Batch:
    """Rows padded to one length N: ids, positions (B, N), attends (B, 1, N, N), and the targets with their places."""

    ids: Tensor
    positions: Tensor
    attends: Tensor
    places: Tensor  # (T, 2): row and place whose output predicts a target
    targets: Tensor  # (T,)


def pool_of_rows(
    tokenizer: Tokenizer,
    phase: str,
    pool: int,
    *,
    seed: int,
    batch_tokens: int,
    mix: dict[str, float],
    drill_share: float,
) -> list[list[Row]]:
    """The batches of one pool of problems, about `batch_tokens` tokens each, in random order.

    mix: each domain's share of the problems. drill_share: the drills' share of the tokens of an autoregressive pool,
    half as much in the others.
    """
    rng = Random(f"{seed} {phase} {pool}")
    rows: list[Row] = []
    arithmetic: list[Problem] = []
    for domain, share in mix.items():
        size = round(share * POOL)
        found = problems(domain, "train", size, start=pool * size)
        if domain == "maths":
            arithmetic = found
        rows += encode(tokenizer, found, phase, rng)
    share = drill_share * (1.0 if phase == "autoregressive" else 0.5)
    wanted = share / (1 - share) * sum(len(row.ids) for row in rows)
    if arithmetic and share > 0:
        for row in _encode_drills(tokenizer, arithmetic, phase, rng):
            rows.append(row)
            wanted -= len(row.ids)
            if wanted <= 0:
                break
    rows.sort(key=lambda row: len(row.ids))
    batches: list[list[Row]] = [[]]
    for row in rows:
        if (len(batches[-1]) + 1) * len(row.ids) > batch_tokens and batches[-1]:
            batches.append([])
        batches[-1].append(row)
    rng.shuffle(batches)
    return batches


def encode(tokenizer: Tokenizer, examples: Sequence[Problem], phase: str, rng: Random) -> list[Row]:
    """One row a problem, of a kind drawn from `ROW_KINDS`."""
    prompts = tokenizer.encode_batch([PROMPT_FORMAT.format(prompt=example.question) for example in examples])
    answers = tokenizer.encode_batch([example.answer for example in examples])
    eos, mask = special_token(tokenizer, EOS), special_token(tokenizer, MASK)
    kinds, weights = list(ROW_KINDS[phase]), list(ROW_KINDS[phase].values())
    rows = []
    for prompt, answer in zip(prompts, answers, strict=True):
        kind = rng.choices(kinds, weights)[0]
        if kind == "autoregressive":
            rows.append(autoregressive_row(prompt.ids, answer.ids, eos))
        else:
            make = windowed_row if kind == "windowed" else masked_row
            rows.append(make(prompt.ids, answer.ids, eos, mask, rng))
    return rows


def _encode_drills(tokenizer: Tokenizer, examples: list[Problem], phase: str, rng: Random) -> Iterator[Row]:
    """Endless drill rows; causal ones in the first phase, half of them causal in the second."""
    endless = maths.drills(rng, examples)
    while True:
        drills = list(islice(endless, 256))
        encodings = tokenizer.encode_batch([drill.text for drill in drills])
        for drill, encoding in zip(drills, encodings, strict=True):
            places: list[list[int]] = [[] for _ in drill.results]
            which = 0
            for i, (start, end) in enumerate(encoding.offsets):
                while which < len(drill.results) and start >= drill.results[which][1]:
                    which += 1
                if which < len(drill.results) and start >= drill.results[which][0] and end <= drill.results[which][1]:
                    places[which].append(i)
            causal = phase == "autoregressive" or (phase == "windowed" and rng.random() < 0.5)
            yield drill_row(encoding.ids, places, None if causal else special_token(tokenizer, MASK), rng)


def collate(rows: Sequence[Row], pad: int, device: str = "cpu") -> Batch:
    """Pad rows to one length and say what sees what (see `rows`)."""
    length = max(len(row.ids) for row in rows)

    def padded(lists: list[list[int]], filler: int) -> Tensor:
        return torch.tensor([[*values, *[filler] * (length - len(values))] for values in lists])

    labels = padded([row.labels for row in rows], -100)
    positions = padded([row.positions for row in rows], 0)
    windows = padded([row.windows for row in rows], -1)
    horizons = padded([row.horizons for row in rows], -1)
    running = (windows == 0)[:, None, :] & (positions[:, None, :] <= horizons[:, :, None])
    within = (windows[:, None, :] == windows[:, :, None]) & (windows > 0)[:, :, None]
    # Padding sees itself, so that no softmax is over nothing; no one else sees it.
    itself = torch.eye(length, dtype=torch.bool) & (windows < 0)[:, :, None]
    attends = (running | within | itself)[:, None]
    places = (labels[:, 1:] != -100).nonzero()
    return Batch(
        ids=padded([row.ids for row in rows], pad).to(device),
        positions=positions.to(device),
        attends=attends.to(device),
        places=places.to(device),
        targets=labels[:, 1:][places[:, 0], places[:, 1]].to(device),
    )
