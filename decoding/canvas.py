"""The token canvas of a batch and all that a forward pass changes on it, on the device and without read-back.

A canvas holds S slots of C positions (and one scratch position, where writes for padding go). A pass works on
a `Region`: some positions of each row, padded to the widest. Committing and remasking rank the region's positions by
confidence, ties to the left (R15). For each position the canvas also keeps the running figures from which the
seven features are made (`features`); a position's prediction, distribution, entropy, confidence, margin and
hidden jump are those of the last pass in which it was masked (R6).

Knows nothing of models, structures or traces. No method reads a value back to the host.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from dystruct.model import jensen_shannon_from

# What the running figures are: passes in play, passes in which masked, rejections, changes of prediction, the sum of
# divergences, and the last masked pass's predicted token (float32 has ids up to 2^24), entropy, hidden jump, confidence
# and margin.
_MASKED, _DIVERGENCE, _PREDICTION, _ENTROPY, _CONFIDENCE, _FIGURES = 1, 4, 5, 6, 8, 10


@dataclass(frozen=True)
class Region:
    """Positions of R rows: places (R, W) on the canvas (see `Canvas.place_of`), ascending, and which are inside.

    span: the places, where it is known that they are one row's and side by side.
    """

    places: Tensor
    inside: Tensor
    span: slice | None = None


@dataclass(frozen=True)
class Fresh:
    """What a pass predicts for N cells of a region: token, confidence, entropy and margin in nats, hidden jump (N,).

    probability (N, V): the distributions. cells: the numbers (N,) of the cells in the region (R, W), row by row; None:
    all of them. What the others hold is not looked at, so every masked position must be among them. Where the canvas
    observes nothing, token and confidence are enough. repeated: whether any of the cells was in play since its window
    was cleared; if none was, there is nothing to diverge from.
    """

    token: Tensor
    confidence: Tensor
    entropy: Tensor | None = None
    margin: Tensor | None = None
    jump: Tensor | None = None
    probability: Tensor | None = None
    cells: Tensor | None = None
    repeated: bool = True


@dataclass(frozen=True)
class Quotas:
    """What each of R rows commits: its counts (R, 1) most confident masked positions.

    tentative (R, 1): rows that only show their most confident positions, shown ones taking part with what was last
    predicted for them, and mask all others again (R4); None: no row does. thresholds (R, 1): confidences from which all
    masked positions are committed, however many; infinite where a row has none; None: no row has one.
    """

    counts: Tensor
    tentative: Tensor | None = None
    thresholds: Tensor | None = None


class Canvas:
    """Tokens, commit confidences and running figures of S slots."""

    def __init__(
        self, slots: int, capacity: int, mask_id: int, device: torch.device, *, observing: bool = True
    ) -> None:
        """`observing`: whether the running figures are kept; without them no pass can be tentative."""
        shape = (slots, capacity + 1)
        self.capacity, self.mask_id, self.device, self.observing = capacity, mask_id, device, observing
        self.tokens = torch.full(shape, mask_id, dtype=torch.long, device=device)
        self.commit_confidence = torch.zeros(shape, device=device)
        self.columns = torch.arange(capacity + 1, device=device)
        self.previous: Tensor | None = None  # (S·(widest window) + 1, V): the last masked pass's distributions
        self.widest = 0  # window that there is room for, in tokens
        if observing:
            self.figures = torch.zeros(*shape, _FIGURES, device=device)
            self.gap_divergence = torch.zeros(shape, device=device)
            self.origin = torch.zeros(shape, dtype=torch.long, device=device)  # where its distribution is in `previous`

    def place_of(self, slot: int, position: int | None) -> int:
        """The number of a slot's position on the canvas; None: of its scratch position, for padding."""
        return slot * (self.capacity + 1) + (self.capacity if position is None else position)

    def place(self, slot: int, ids: list[int]) -> None:
        """Write a prompt at the beginning of a slot; everything behind it is masked."""
        self.tokens[slot] = self.mask_id
        self.tokens[slot, : len(ids)] = torch.tensor(ids, device=self.device)
        self.commit_confidence[slot] = 0

    def region(self, slots: list[int], spans: list[tuple[int, int]]) -> Region:
        """The region of half-open canvas spans, one a slot."""
        width = max(end - start for start, end in spans)
        rows = [
            [end - start, *range(self.place_of(slot, start), self.place_of(slot, end))]
            + [self.place_of(slot, None)] * (width - end + start)
            for slot, (start, end) in zip(slots, spans, strict=True)
        ]
        plan = torch.tensor(rows).to(self.device, non_blocking=True)
        span = slice(rows[0][1], rows[0][1] + width) if len(slots) == 1 else None
        return Region(plan[:, 1:], self.columns[:width] < plan[:, :1], span)

    def clear(self, slot: int, start: int, end: int) -> None:
        """Mask a window and forget its figures: before the diagnostic pass, and again behind it."""
        self.tokens[slot, start:end] = self.mask_id
        if self.observing:
            self.figures[slot, start:end] = 0
            self.origin[slot, start:end] = self.columns[: end - start] + slot * self.widest

    def splice(self, slot: int, first: int, removed: int, tokens: list[int], moved: int) -> None:
        """Write tokens from a position on, the last `moved` of which stood behind `removed` others before.

        Their commit confidences move with them; the new ones' are 0. What is left over behind them is masked.
        """
        end, old, shrunk = first + len(tokens), first + removed, max(0, removed + moved - len(tokens))
        self.tokens[slot, first : end + shrunk] = torch.tensor(tokens + [self.mask_id] * shrunk, device=self.device)
        kept = self.commit_confidence[slot, old : old + moved].clone()
        self.commit_confidence[slot, first : end - moved] = 0
        self.commit_confidence[slot, end - moved : end] = kept

    def masked(self, region: Region) -> Tensor:
        """Which of a region's positions are masked (R, W)."""
        return (self.tokens.take(region.places) == self.mask_id) & region.inside

    def remask(self, region: Region, counts: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Mask the counts (R, 1) least confident committed positions; returns which (R, W), tokens, confidences."""
        tokens, confidence = self.tokens.take(region.places), self.commit_confidence.take(region.places)
        committed = region.inside & (tokens != self.mask_id)
        chosen = committed & _first(torch.where(committed, confidence, torch.inf), counts, descending=False)
        _put(self.tokens, region, torch.where(chosen, self.mask_id, tokens))
        return chosen, tokens, confidence

    def commit(self, region: Region, fresh: Fresh, quotas: Quotas) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
        """Commit the quotas; returns which positions (R, W), their tokens and confidences, and the masks left (R, 1).

        Commit confidences of tentative rows are not kept. Masks are counted behind the commit, and where any row has a
        threshold only: else None.
        """
        shape, tentative = region.inside.shape, quotas.tentative
        tokens = _at(self.tokens, region)
        masked = (tokens == self.mask_id) & region.inside
        eligible = masked
        if not self.observing:
            if tentative is not None:
                raise ValueError("a canvas that observes nothing knows no tentative pass: let it observe.")
            token, confidence = (spread(values, fresh.cells, shape) for values in (fresh.token, fresh.confidence))
        else:
            figures = _at(self.figures, region)
            latest = spread(self._latest(region, fresh, figures, masked), fresh.cells, shape)
            said = latest[..., _PREDICTION - _DIVERGENCE :]
            if tentative is not None:
                said = torch.where(masked[..., None], said, figures[..., _PREDICTION:])
                eligible = masked | (tentative & region.inside)
                tokens = torch.where(tentative, self.mask_id, tokens)
            token, confidence = said[..., 0].long(), said[..., _CONFIDENCE - _PREDICTION]
        counts = quotas.counts
        if quotas.thresholds is not None:
            counts = torch.maximum(counts, (masked & (confidence >= quotas.thresholds)).sum(-1, keepdim=True))
        accepted = _first(torch.where(eligible, confidence, -torch.inf), counts, descending=True) & eligible
        tokens = torch.where(accepted, token, tokens)
        _put(self.tokens, region, tokens)
        firm = accepted if tentative is None else accepted & ~tentative
        _put(self.commit_confidence, region, torch.where(firm, confidence, _at(self.commit_confidence, region)))
        if self.observing:
            self._observe(region, latest, figures, masked, accepted)
        left = None
        if quotas.thresholds is not None:
            left = ((tokens == self.mask_id) & region.inside).sum(-1, keepdim=True)
        return accepted, token, confidence, left

    def _latest(self, region: Region, fresh: Fresh, figures: Tensor, masked: Tensor) -> Tensor:
        """Divergence to the last masked pass, token, entropy, jump, confidence and margin (N, 6) of a pass's cells.

        Its distributions take the place of that pass's: only these are kept, never all passes', and the accumulated
        divergence is what the features need.
        """
        assert fresh.entropy is not None and fresh.jump is not None and fresh.margin is not None
        assert fresh.probability is not None
        if self.previous is None or region.inside.shape[1] > self.widest:
            raise ValueError("reserve() the widest window before its first pass")
        origin = pick(torch.where(masked, _at(self.origin, region), self.scratch), fresh.cells)
        if fresh.repeated:
            last, entropy = self.previous.index_select(0, origin), pick(figures[..., _ENTROPY], fresh.cells)
            divergence = jensen_shannon_from(fresh.probability, fresh.entropy, last, entropy)
        else:
            divergence = torch.zeros_like(fresh.entropy)
        self.previous.index_copy_(0, origin, fresh.probability)
        said = (fresh.token.float(), fresh.entropy, fresh.jump, fresh.confidence, fresh.margin)
        return torch.stack((divergence, *said), dim=1)

    def _observe(self, region: Region, latest: Tensor, figures: Tensor, masked: Tensor, accepted: Tensor) -> None:
        """Bring the running figures (R, W, 10) of a region up to date with a pass, whose own are latest (R, W, 6)."""
        again = masked & (figures[..., _MASKED] > 0)
        said, last = latest[..., 1:], figures[..., _PREDICTION:]
        changed = again & (said[..., 0] != last[..., 0])
        rejected = masked > accepted
        figures[..., :_DIVERGENCE] += torch.stack((region.inside, masked, rejected, changed), dim=-1)
        figures[..., _DIVERGENCE] += torch.where(again, latest[..., 0], 0.0)  # others' may be no numbers
        last.copy_(torch.where(masked[..., None], said, last))
        if region.span is None:  # else they are the canvas's own
            _put(self.figures, region, figures)

    def predictions(self, slot: int, start: int, end: int) -> Tensor:
        """What was last predicted for the masked positions of a span (L,)."""
        return self.figures[slot, start:end, _PREDICTION]

    def reserve(self, width: int, vocabulary: int) -> None:
        """Make room for the distributions of windows of up to `width` positions."""
        if self.previous is None or self.widest < width:
            self.widest = width
            rows = self.tokens.shape[0] * width
            self.previous = torch.zeros(rows + 1, vocabulary, device=self.device)
            self.scratch = torch.tensor(rows, device=self.device)

    def observe_gaps(self, places: Tensor, divergence: Tensor) -> None:
        """Keep the JSD (G,) of the distributions at places (G,) and at their right neighbours (R5)."""
        self.gap_divergence.view(-1).index_copy_(0, places, divergence)

    def features(self, slot: int, start: int, end: int) -> Tensor:
        """phi (L, 7) of a span in the order of POSITION_FEATURES, from the passes since `clear`."""
        played, _, rejected, changed, divergence, _, entropy, jump, confidence, margin = (
            self.figures[slot, start:end].unbind(-1)
        )  # fmt: skip
        successive = (played - 1).clamp(min=1)
        return torch.stack(
            (entropy, rejected / played.clamp(min=1), changed / successive, divergence / successive,
             jump, confidence, margin), dim=-1,
        )  # fmt: skip


def spread(values: Tensor, cells: Tensor | None, shape: torch.Size, fill: float = 0) -> Tensor:
    """Values (N, …) of cells in their places in (R, W, …), `fill` elsewhere; cells None: of all, row by row."""
    rest = values.shape[1:]
    if cells is None:
        return values.reshape(*shape, *rest)
    return values.new_full((shape.numel(), *rest), fill).index_copy_(0, cells, values).view(*shape, *rest)


def pick(values: Tensor, cells: Tensor | None) -> Tensor:
    """The cells' values (N,) of (R, W); cells None: of all, row by row."""
    return values.reshape(-1) if cells is None else values.take(cells)


def _at(values: Tensor, region: Region) -> Tensor:
    """What a canvas tensor (S, C + 1, …) holds at a region (R, W, …); where that is a span, no copy of it."""
    flat = values.flatten(0, 1)
    if region.span is not None:
        return flat[region.span][None]
    return flat.index_select(0, region.places.reshape(-1)).unflatten(0, region.places.shape)


def _put(into: Tensor, region: Region, values: Tensor) -> None:
    """Write values (R, W, …) to a region of a canvas tensor (S, C + 1, …)."""
    flat = into.flatten(0, 1)
    if region.span is not None:
        flat[region.span] = values[0]
    else:
        flat.index_copy_(0, region.places.reshape(-1), values.flatten(0, 1))


def _first(values: Tensor, counts: Tensor, *, descending: bool) -> Tensor:
    """Which (R, W) are among the first counts (R, 1) of their row; of equal values the left one comes first."""
    order = values.argsort(dim=-1, descending=descending, stable=True)
    within = torch.arange(values.shape[-1], device=values.device) < counts
    return torch.zeros_like(within).scatter_(-1, order, within)
