"""Dream's decoder: the whole response at once, from noise level t = 1 down to eps in equal steps.

Between the levels t and s, `origin` reveals each masked position with probability 1 - s/t. The other rules reveal the
floor(masks · (1 - s/t)) positions of highest confidence: the chosen token's probability (`maskgit_plus`), p1 - p2
(`topk_margin`) or sum p log p (`entropy`). The last step reveals all. Confidences are taken behind temperature,
top_p and top_k; with alg_temp a > 0, positions are drawn without replacement in proportion to
exp(confidence / a).

Where the original goes plainly wrong, and what the default does: it can predict the mask, which then stays masked, to
the end in the last step (never predicted here); it decodes on when the text before the end token is known (the
default ends there). Steps that reveal nothing are skipped. `faithful` keeps what changes tokens.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch

from ..errors import UserError
from ..kinds import check_flags, check_fraction, check_positive, check_whole
from ..row import Figures, Pass, Row
from ..sampling import Sampling
from .blocks import finish, ranked

# What a rule looks at beside the confidence.
_SCORES = {"topk_margin": ("margin",), "entropy": ("entropy",)}


@dataclass(frozen=True)
class Dream:
    """Settings of Dream's decoder.

    steps: noise levels (None: the budget's passes), each of them one pass at the most. eps: the last level. top_p:
    nucleus; top_k: tokens. alg_temp: None or 0 takes the most confident positions. Raises UserError for other values
    and for a setting without use.
    """

    alg: Literal["origin", "maskgit_plus", "topk_margin", "entropy"] = "entropy"
    steps: int | None = None
    alg_temp: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    eps: float = 1e-3
    faithful: bool = False

    widest: ClassVar[None] = None

    def __post_init__(self) -> None:
        check_flags(self)
        check_whole(self, "steps", "top_k")
        check_fraction(self, "top_p", "eps")
        if self.alg not in ("origin", "maskgit_plus", "topk_margin", "entropy"):
            raise UserError(f"alg must be origin, maskgit_plus, topk_margin or entropy, not {self.alg!r}.")
        check_positive(self, "alg_temp", or_zero=True)
        if self.alg_temp and self.alg == "origin":
            raise UserError("alg_temp has no use with alg origin, which looks at no confidence; leave it out.")
        if not 0 < self.eps < 1:
            raise UserError(f"eps must lie between 0 and 1, not {self.eps!r}.")

    def decode(self, row: Row) -> Iterator[Pass]:
        """Decode one sequence."""
        steps, length = self.steps or row.budget, row.max_new_tokens
        # each pass reveals a position for good, but for one that is predicted to be the mask
        most = steps if self.faithful else min(steps, length)
        if most > row.budget:
            raise UserError(
                f"{steps} steps can take {most} forward passes, more than the budget of {row.budget}; "
                f"raise the budget or lower steps."
            )
        sampling = Sampling(tempered=True, top_p=self.top_p, top_k=self.top_k, mask_predictable=self.faithful)
        # float32, as in the original: floor(masks (1 - s/t)) hangs on it
        levels = torch.linspace(1, self.eps, steps + 1)
        row.open_window(length)
        for step in range(steps):
            masked = row.masked(0, length)
            last = step == steps - 1
            share = 1 - levels[step + 1] / levels[step]
            if self.alg == "origin":
                drawn = torch.rand(len(masked), generator=row.streams.order) < share
                shown = masked if last else [p for p, reveal in zip(masked, drawn.tolist(), strict=True) if reveal]
                count = len(shown)
            else:
                shown, count = [], len(masked) if last else int(torch.tensor(float(len(masked))) * share)
            if count == 0:
                continue
            yield Pass("resolve", 0, length, None, sampling=sampling, figures=_SCORES.get(self.alg, ()))
            figures = row.read_figures()
            row.commit(map(figures.at, shown or self._chosen(row, figures, masked, count)))
            if not self.faithful and row.ended:
                break
        finish(row, keep_masks=self.faithful)

    def _chosen(self, row: Row, figures: Figures, masked: list[int], count: int) -> list[int]:
        if self.alg == "entropy":
            scores = [-entropy for entropy in figures.entropy]
        else:
            scores = figures.confidence if self.alg == "maskgit_plus" else figures.margin
        if self.alg_temp:
            # the largest of confidence / a + Gumbel noise are a draw without replacement
            uniform = torch.rand(len(masked), generator=row.streams.order, dtype=torch.float64)
            noise = -torch.log(-torch.log(uniform))
            keys = [scores[p] / self.alg_temp + noise[i].item() for i, p in enumerate(masked)]
            return [masked[i] for i in ranked(range(len(masked)), keys)[:count]]
        return ranked(masked, scores)[:count]
