"""The token canvas of a batch and all that a forward pass changes on it, on the device and without read-back.

A canvas holds S slots of C positions (and one scratch position, where writes for padding go). A pass works on
a `Region`: one span a row, padded to the widest. Committing and remasking rank the region's positions by
confidence, ties to the left (R15). For each position the canvas also keeps the running figures from which the
seven features are made (`features`); a position's prediction, distribution, entropy, confidence, margin and
hidden jump are those of the last pass in which it was masked (R6).

Knows nothing of models, structures or traces. No method reads a value back to the host.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from dystruct.model import jensen_shannon


@dataclass(frozen=True)
class Region:
    """Spans of R rows: slots (R, 1), canvas positions (R, W) and which of them are inside (R, W)."""

    slots: Tensor
    index: Tensor
    inside: Tensor


@dataclass(frozen=True)
class Fresh:
    """What a pass predicts for a region: tokens (R, W), their probability, entropy and margin (nats), hidden jump.

    log_probability (R, W, V): the distributions, in nats.
    """

    token: Tensor
    confidence: Tensor
    entropy: Tensor
    margin: Tensor
    jump: Tensor
    log_probability: Tensor


class Canvas:
    """Tokens, commit confidences and running figures of S slots."""

    def __init__(
        self, slots: int, capacity: int, mask_id: int, device: torch.device, *, observing: bool = True
    ) -> None:
        """`observing`: whether the running figures are kept."""
        shape = (slots, capacity + 1)
        self.capacity, self.mask_id, self.device, self.observing = capacity, mask_id, device, observing
        self.tokens = torch.full(shape, mask_id, dtype=torch.long, device=device)
        self.commit_confidence = torch.zeros(shape, device=device)
        self.prediction = torch.zeros(shape, dtype=torch.long, device=device)
        # passes in play, passes in which masked, rejections, changes of prediction, divergence, and the last masked
        # pass's entropy, hidden jump, confidence, margin
        self.counts = torch.zeros(4, *shape, device=device)
        self.figures = torch.zeros(5, *shape, device=device)
        self.gap_divergence = torch.zeros(shape, device=device)
        self.previous: Tensor | None = None  # (S, widest window, V): the last masked pass's log distribution
        self.origin = torch.zeros(slots, 1, dtype=torch.long, device=device)  # where `previous` begins

    def place(self, slot: int, ids: list[int]) -> None:
        """Write a prompt at the beginning of a slot; everything behind it is masked."""
        self.tokens[slot] = self.mask_id
        self.tokens[slot, : len(ids)] = torch.tensor(ids, device=self.device)

    def region(self, slots: list[int], spans: list[tuple[int, int]]) -> Region:
        """The region of half-open canvas spans, one a slot."""
        width = max(end - start for start, end in spans)
        columns = torch.arange(width)
        starts = torch.tensor([span[0] for span in spans])[:, None]
        ends = torch.tensor([span[1] for span in spans])[:, None]
        index = starts + columns
        inside = index < ends
        index = torch.where(inside, index, self.capacity)
        return Region(
            torch.tensor(slots)[:, None].to(self.device, non_blocking=True),
            index.to(self.device, non_blocking=True),
            inside.to(self.device, non_blocking=True),
        )

    def clear(self, slot: int, start: int, end: int) -> None:
        """Mask a window and forget its figures: before the diagnostic pass, and again behind it."""
        self.tokens[slot, start:end] = self.mask_id
        self.counts[:, slot, start:end] = 0
        self.figures[:, slot, start:end] = 0
        self.origin[slot] = start

    def remask(self, region: Region, counts: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Mask the counts (R, 1) least confident committed positions; returns which (R, W), tokens, confidences."""
        tokens = self.tokens[region.slots, region.index]
        confidence = self.commit_confidence[region.slots, region.index]
        committed = region.inside & (tokens != self.mask_id)
        chosen = committed & (_rank(torch.where(committed, confidence, torch.inf), descending=False) < counts)
        self.tokens[region.slots, region.index] = torch.where(chosen, self.mask_id, tokens)
        return chosen, tokens, confidence

    def commit(self, region: Region, fresh: Fresh, counts: Tensor, tentative: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Commit the counts (R, 1) most confident masked positions; returns which (R, W), their tokens, confidences.

        A tentative row (R, 1) shows its most confident positions, shown ones taking part with what was last
        predicted for them, and masks all others again (R4); its commit confidences are not kept.
        """
        at = (region.slots, region.index)
        tokens = self.tokens[at]
        masked = region.inside & (tokens == self.mask_id)
        token = torch.where(masked, fresh.token, self.prediction[at])
        confidence = torch.where(masked, fresh.confidence, self.figures[3][at])
        eligible = masked | (tentative & region.inside)
        accepted = eligible & (_rank(torch.where(eligible, confidence, -torch.inf), descending=True) < counts)
        kept = torch.where(tentative, self.mask_id, tokens)
        self.tokens[at] = torch.where(accepted, token, kept)
        firm = accepted & ~tentative
        self.commit_confidence[at] = torch.where(firm, confidence, self.commit_confidence[at])
        if self.observing:
            self._observe(region, fresh, masked, accepted)
        return accepted, token, confidence

    def _observe(self, region: Region, fresh: Fresh, masked: Tensor, accepted: Tensor) -> None:
        """Bring the running figures of a region up to date with one pass."""
        at = (region.slots, region.index)
        counts = self.counts[:, region.slots, region.index]
        again = masked & (counts[1] > 0)
        divergence = self._divergence(region, fresh, again, masked)
        changed = again & (fresh.token != self.prediction[at])
        added = torch.stack((region.inside, masked, masked & ~accepted, changed)).to(counts.dtype)
        self.counts[:, region.slots, region.index] = counts + added
        latest = torch.stack((fresh.entropy, fresh.jump, fresh.confidence, fresh.margin))
        figures = self.figures[:, region.slots, region.index]
        figures[0] += torch.where(again, divergence, 0.0)
        figures[1:] = torch.where(masked, latest, figures[1:])
        self.figures[:, region.slots, region.index] = figures
        self.prediction[at] = torch.where(masked, fresh.token, self.prediction[at])

    def _divergence(self, region: Region, fresh: Fresh, again: Tensor, masked: Tensor) -> Tensor:
        """JSD (R, W) to the last masked pass; this pass's distributions take the place of that one's."""
        # only the last distribution is kept, never all passes': the accumulated divergence is what the features need
        column = torch.where(region.inside, region.index - self.origin[region.slots[:, 0]], 0)
        if self.previous is None or column.shape[1] > self.previous.shape[1]:
            raise ValueError("reserve() the widest window before its first pass")
        column = torch.where(region.inside, column, self.previous.shape[1] - 1)
        before = self.previous[region.slots, column]
        self.previous[region.slots, column] = torch.where(masked[..., None], fresh.log_probability, before)
        return jensen_shannon(fresh.log_probability, before)

    def reserve(self, width: int, vocabulary: int) -> None:
        """Make room for the distributions of windows of up to `width` positions (and one scratch column)."""
        if self.previous is None or self.previous.shape[1] < width + 1:
            self.previous = torch.zeros(self.tokens.shape[0], width + 1, vocabulary, device=self.device)

    @property
    def widest(self) -> int:
        """The widest window that there is room for, in tokens."""
        return 0 if self.previous is None else self.previous.shape[1] - 1

    def observe_gaps(self, region: Region, log_probability: Tensor) -> None:
        """Keep the JSD of each position's distribution (R, W, V) and its right neighbour's (R5)."""
        divergence = jensen_shannon(log_probability[:, :-1], log_probability[:, 1:])
        self.gap_divergence[region.slots, region.index[:, :-1]] = divergence

    def features(self, slot: int, start: int, end: int) -> Tensor:
        """phi (L, 7) of a span in the order of POSITION_FEATURES, from the passes since `clear`."""
        played, _, rejected, changed = self.counts[:, slot, start:end]
        divergence, entropy, jump, confidence, margin = self.figures[:, slot, start:end]
        successive = (played - 1).clamp(min=1)
        return torch.stack(
            (entropy, rejected / played.clamp(min=1), changed / successive, divergence / successive,
             jump, confidence, margin), dim=-1,
        )  # fmt: skip


def _rank(values: Tensor, *, descending: bool) -> Tensor:
    """Rank (R, W) of each value in its row, 0 first; equal values rank from left to right."""
    order = values.sort(dim=-1, descending=descending, stable=True).indices
    places = torch.arange(values.shape[-1], device=values.device).expand_as(order)
    return torch.empty_like(order).scatter_(-1, order, places)
