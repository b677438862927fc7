"""Whether two positions may be committed in one pass: pairs of masked positions of a window, both ways.

Together, each of the two gets its likeliest token given the same context. One after the other, the more confident one
is committed and the other is predicted again. Where the second way is right and the first is wrong, committing them
together is what went wrong: this is what a structure of blocks is to prevent. A prediction that changes when the other
token is revealed shows the same dependence without asking a reference.

Two contexts: `open`, the window all masked, as at its first pass; and `partly`, where the more confident positions
hold their reference tokens, as later on. Three kinds of pairs: `neighbours`, `distant` ones, and the `next` two, the
two most confident positions, which a decoder of two tokens a pass would commit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import numpy as np

from dystruct.model import jensen_shannon

from ..backbone import Backbone
from .predictions import Predicted, predictions

FARTHEST = 8  # tokens between the two of a distant pair, at most
State = Literal["open", "partly"]
Kind = Literal["neighbours", "distant", "next"]


@dataclass(frozen=True)
class Pair:
    """Two masked positions `left` < `right` of a window, and what becomes of them.

    together, in_turn: whether both tokens are the reference's if committed in one pass, or one after the other.
    right_changes, left_changes: whether a prediction changes when the other position's prediction is revealed;
    right_moves, left_moves: the divergence of the prediction before and behind that, nats. confidence: of the two
    predictions, left and right; rank: their places, from 0, among the context's masked positions by confidence.
    masked: how many these are.
    """

    state: State
    kind: Kind
    left: int
    right: int
    together: bool
    in_turn: bool
    right_changes: bool
    left_changes: bool
    right_moves: float
    left_moves: float
    confidence: tuple[float, float]
    rank: tuple[int, int]
    masked: int

    @property
    def wrong_together(self) -> bool:
        """Right one after the other, wrong in one pass."""
        return self.in_turn and not self.together

    @property
    def distance(self) -> int:
        """Tokens from the one to the other; 1 for neighbours."""
        return self.right - self.left


def commit_pairs(
    model: Backbone,
    prompt_ids: Sequence[int],
    before: Sequence[int],
    reference: Sequence[int],
    inside: int,
    generator: np.random.Generator,
    *,
    neighbours: int = 4,
    distant: int = 2,
) -> list[Pair]:
    """Try pairs of the first `inside` positions of a window whose tokens should be `reference`, in both contexts.

    before: the response tokens left of the window. neighbours, distant: how many pairs to draw in each context of
    neighbours, and of positions 2 to 8 apart; fewer where there are not so many.
    """
    window = [model.mask_id] * len(reference)
    opened = predictions(model, prompt_ids, [[*before, *window]], len(before)).confidence[0, :inside]
    revealed = int(generator.integers(1, inside)) if inside > 1 else 0  # one at least stays masked
    partly = list(window)
    for position in opened.argsort(descending=True, stable=True)[:revealed].tolist():
        partly[position] = reference[position]
    found = []
    contexts: tuple[tuple[State, list[int]], ...] = (("open", window), ("partly", partly))
    for state, context in contexts:
        base = predictions(model, prompt_ids, [[*before, *context]], len(before))
        order = base.confidence[0].argsort(descending=True, stable=True).tolist()
        order = [position for position in order if position < inside and context[position] == model.mask_id]
        chosen = _drawn(order, generator, neighbours, distant)
        found += _tried(model, prompt_ids, before, context, reference, base, chosen, order, state)
    return found


def _drawn(
    order: Sequence[int], generator: np.random.Generator, neighbours: int, distant: int
) -> list[tuple[Kind, int, int]]:
    """Pairs of masked positions, given by confidence: each kind drawn without repetition."""
    masked = sorted(order)
    kinds: tuple[tuple[Kind, list[tuple[int, int]], int], ...] = (
        ("next", [(min(order[:2]), max(order[:2]))] if len(order) > 1 else [], 1),
        ("neighbours", [(i, j) for i, j in pairwise(masked) if j == i + 1], neighbours),
        ("distant", [(i, j) for n, i in enumerate(masked) for j in masked[n + 1 :] if 2 <= j - i <= FARTHEST], distant),
    )
    return [
        (kind, *candidates[place])
        for kind, candidates, wanted in kinds
        for place in generator.permutation(len(candidates))[:wanted].tolist()
    ]


def _tried(
    model: Backbone,
    prompt_ids: Sequence[int],
    before: Sequence[int],
    context: Sequence[int],
    reference: Sequence[int],
    base: Predicted,
    chosen: Sequence[tuple[Kind, int, int]],
    order: Sequence[int],
    state: State,
) -> list[Pair]:
    if not chosen:
        return []
    tokens, confidence = base.token[0].tolist(), base.confidence[0].tolist()
    revealed = []
    for _, *pair in chosen:
        for position in pair:
            row = list(context)
            row[position] = tokens[position]
            revealed.append([*before, *row])
    given = predictions(model, prompt_ids, revealed, len(before))
    found = []
    for n, (kind, i, j) in enumerate(chosen):
        right, left = int(given.token[2 * n, j]), int(given.token[2 * n + 1, i])
        in_turn = (tokens[i], right) if confidence[i] >= confidence[j] else (left, tokens[j])
        wanted = (reference[i], reference[j])
        found.append(
            Pair(
                state=state,
                kind=kind,
                left=i,
                right=j,
                together=(tokens[i], tokens[j]) == wanted,
                in_turn=in_turn == wanted,
                right_changes=right != tokens[j],
                left_changes=left != tokens[i],
                right_moves=float(jensen_shannon(given.log_probability[2 * n, j], base.log_probability[0, j])),
                left_moves=float(jensen_shannon(given.log_probability[2 * n + 1, i], base.log_probability[0, i])),
                confidence=(confidence[i], confidence[j]),
                rank=(order.index(i), order.index(j)),
                masked=len(order),
            )
        )
    return found
