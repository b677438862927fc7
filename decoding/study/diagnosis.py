"""The diagnostic passes of one window under every reading of them, from one implementation that keeps all it sees.

Under the default readings it gives what the engine gives (a test holds them together). What can be read otherwise:

    R4  the number of passes K
    R5  which distributions a gap's divergence is taken of: those of the first pass, those of the last, or the mean of
        the divergences over all passes
    R6  what a shown position is said to predict in a pass: `carried`, what it predicted when it was last masked, or
        `face-value`, what the model says of a position whose token it sees

Knows nothing of references: a window's tokens are compared elsewhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray

from dystruct.model import jensen_shannon

from ..backbone import Backbone
from ..passes import shown_positions
from .predictions import Predicted, predictions

ShownRule = Literal["carried", "face-value"]
GAP_RULES = ("first", "last", "mean")


@dataclass(frozen=True, eq=False)
class Diagnosis:
    """phi (L, 7) of a window, what is predicted at last (L,), which commits were taken back (L,), divergences by rule.

    gaps: for each of GAP_RULES the gaps' divergences (L-1,), nats.
    """

    features: NDArray[np.float64]
    predicted: NDArray[np.int64]
    taken_back: NDArray[np.bool_]
    gaps: dict[str, NDArray[np.float64]]


def diagnosis(
    model: Backbone,
    prompt_ids: Sequence[int],
    before: Sequence[int],
    length: int,
    passes: int,
    shown_rule: ShownRule = "carried",
) -> Diagnosis:
    """Diagnose a window of `length` masks behind the response tokens `before`, with `passes` forward passes (K)."""
    mask = model.mask_id
    window = torch.full((length,), mask)
    shown = torch.zeros(length, dtype=torch.bool)
    latest: Predicted | None = None
    rejected = torch.zeros(length)
    changed, divergence = torch.zeros(length), torch.zeros(length)
    taken_back = torch.zeros(length, dtype=torch.bool)
    gaps: list[torch.Tensor] = []
    for count in shown_positions(length, passes):
        masked = ~shown
        fresh = Predicted(
            *(value[0] for value in predictions(model, prompt_ids, [[*before, *window.tolist()]], len(before)))
        )
        looked_at = masked if shown_rule == "carried" else torch.ones_like(masked)
        if latest is not None:
            changed += (looked_at & (fresh.token != latest.token)).float()
            moved = jensen_shannon(fresh.log_probability, latest.log_probability)
            divergence += torch.where(looked_at, moved, 0.0)
            fresh = Predicted(
                *(
                    torch.where(looked_at.view(-1, *[1] * (new.dim() - 1)), new, old)
                    for new, old in zip(fresh, latest, strict=True)
                )
            )
        latest = fresh
        gaps.append(jensen_shannon(latest.log_probability[:-1], latest.log_probability[1:]))
        best = latest.confidence.argsort(descending=True, stable=True)[:count]
        accepted = torch.zeros_like(shown)
        accepted[best] = True
        rejected += (masked & ~accepted).float()
        taken_back |= shown & ~accepted
        shown = accepted
        window = torch.where(shown, latest.token, mask)
    assert latest is not None, "at least one diagnostic pass"
    successive = max(passes - 1, 1)
    features = torch.stack(
        (latest.entropy, rejected / passes, changed / successive, divergence / successive,
         latest.jump, latest.confidence, latest.margin), dim=-1,
    )  # fmt: skip
    return Diagnosis(
        features=features.double().numpy(),
        predicted=latest.token.numpy(),
        taken_back=taken_back.numpy(),
        gaps={
            "first": gaps[0].double().numpy(),
            "last": gaps[-1].double().numpy(),
            "mean": torch.stack(gaps).double().mean(0).numpy(),
        },
    )
