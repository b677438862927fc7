"""The forward calls for the passes of a batch: which tokens go in, which outputs are projected, what they predict.

Only positions in play are projected: the hidden states of the cells that a pass may commit are gathered, from rows of
any lengths, into one (N, d) tensor, and everything over the vocabulary happens on (N, V). With a prefix cache a row's
first pass with a prefix runs the row as a whole, the following ones what stands behind the prefix (and the one or two
positions before it whose outputs are read). One that is appended to has only a row's very first pass run all of it:
a first pass with a further prefix runs what stands behind the one before.

Knows passes and the canvas, no decoder. Nothing is read back. Shapes: R rows, W positions of the widest pass, T
positions that a row runs, N cells, d hidden units, V tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from dystruct.model import Summary, hidden_jump, summarise

from .backbone import Backbone
from .batching import shared_calls
from .canvas import Canvas, Region
from .errors import UserError
from .generation_settings import Caching
from .randomness import gumbel_noise
from .request import Pass
from .row import Row
from .sampling import Candidates, Sampling, candidates, guided

Requests = Sequence[tuple[Row, Pass]]


@dataclass(frozen=True)
class Predicted:
    """What a forward call says of its passes' cells, row by row.

    cells (N,): their numbers in the region (R, W); None: all of them. counts: cells of each row. jump (N,): None where
    nobody observes. quotas (R, 1): what the passes commit, 0 where the decoder decides; decides (R, 1): where it does.
    """

    region: Region
    cells: Tensor | None
    counts: list[int]
    said: Candidates
    summary: Summary | None
    jump: Tensor | None
    quotas: Tensor
    decides: Tensor

    def begin(self, row: int) -> int:
        """The number of a row's first cell."""
        return sum(self.counts[:row])


@dataclass(frozen=True)
class _Run:
    """What a forward call runs of a row: canvas positions [first, end), with or without its prompt in view."""

    slot: int
    prompt: int
    first: int
    end: int
    unconditional: bool
    segment: bool


class Forward:
    """Makes the forward calls of an engine."""

    def __init__(self, model: Backbone, canvas: Canvas, temperature: float, *, prefix_cache: Caching = False) -> None:
        self.model, self.canvas, self.temperature = model, canvas, temperature
        self.append = prefix_cache == "append"
        slots = canvas.tokens.shape[0]
        # one more for rows without their prompts, which takes no room unless there is guidance
        self.caches = [model.prefix_cache(slots, canvas.capacity) for _ in range(2)] if prefix_cache else None

    def predict(self, requests: Requests) -> Predicted:
        """What the model says of all passes' positions, in a forward call for each kind of run; guidance goes twice."""
        model, canvas = self.model, self.canvas
        runs = [self._run(row, request) for row, request in requests]
        again = [i for i, (_, request) in enumerate(requests) if request.sampling.guidance]
        runs += [self._run(*requests[i], unconditional=True) for i in again]
        outputs, bases = self._outputs(runs)

        positions = [np.asarray(request.positions) for _, request in requests]
        rows, width = len(requests), max(map(len, positions))
        counts = [_count(row, request) for row, request in requests]
        full = all(count == width for count in counts)
        # Everything that the host knows goes over at once: of each cell its place on the canvas, its response position,
        # the output before the one that predicts it (for the hidden jump) and that one, and the key of its row's
        # token noise; of each row three numbers; and which cells are looked at.
        plan = np.zeros(rows * (5 * width + 3) + (0 if full else sum(counts)), dtype=np.int64)
        of_cells = plan[: rows * width * 5].reshape(rows, width, 5)
        of_rows = plan[rows * width * 5 : rows * (5 * width + 3)].reshape(rows, 3)
        for i, (found, (row, request)) in enumerate(zip(positions, requests, strict=True)):
            prompt, inside = len(row.prompt_ids), slice(0, len(found))
            of_cells[i, :, 0] = canvas.place_of(row.slot, None)
            of_cells[i, inside, 0] = canvas.place_of(row.slot, prompt) + found
            of_cells[i, inside, 1] = found
            source = found + (prompt - int(model.shifted))
            of_cells[i, :, 2:4] = bases[i] + runs[i].first
            of_cells[i, inside, 2:4] = bases[i]
            of_cells[i, inside, 2] += (source - 1).clip(0)
            of_cells[i, inside, 3] += source.clip(0)
            of_cells[i, :, 4] = row.streams.token_key
            of_rows[i] = len(found), request.commit or 0, request.commit is None
        if not full:
            plan[rows * (5 * width + 3) :] = [i * width + rank for i in range(rows) for rank in range(counts[i])]
        here = torch.from_numpy(plan).to(canvas.device, non_blocking=True)
        cell_plan = here[: rows * width * 5].view(rows * width, 5)
        row_plan = here[rows * width * 5 : rows * (5 * width + 3)].view(rows, 3)
        places = cell_plan[:, 0].view(rows, width)
        span = None
        if rows == 1 and positions[0][-1] - positions[0][0] + 1 == width:
            begin = canvas.place_of(requests[0][0].slot, len(requests[0][0].prompt_ids) + int(positions[0][0]))
            span = slice(begin, begin + width)
        region = Region(places, canvas.columns[:width] < row_plan[:, :1], span)
        cells = None
        if not full:
            cells = here[rows * (5 * width + 3) :]
            if counts != list(map(len, positions)):
                cells = _masked_first(canvas.masked(region)).take(cells)
            cell_plan = cell_plan.index_select(0, cells)

        jump = None
        if canvas.observing:
            pairs = outputs.index_select(0, cell_plan[:, 2:4].reshape(-1)).view(len(cell_plan), 2, -1)
            states, jump = pairs[:, 1], hidden_jump(pairs)[:, 0]
        else:
            states = outputs.index_select(0, cell_plan[:, 3])
        sampling = _shared_sampling(requests)
        logits = model.logits(states, mask_predictable=sampling.mask_predictable)
        if again:
            logits = self._guided(logits, outputs, requests, bases, cell_plan[:, 3], counts)

        def noise(part: slice) -> Tensor:
            return gumbel_noise(cell_plan[part, 4], cell_plan[part, 1:2], logits.shape[-1])[:, 0]

        said = candidates(logits, sampling, self.temperature, noise if self.temperature > 0 else None)
        summary = summarise(said.logits, said.probability, said.top) if canvas.observing else None
        return Predicted(region, cells, counts, said, summary, jump, row_plan[:, 1:2], row_plan[:, 2:3] > 0)

    def _run(self, row: Row, request: Pass, *, unconditional: bool = False) -> _Run:
        prompt = len(row.prompt_ids)
        end = prompt + (row.length if request.visible is None else request.visible)
        first, segment = 0, False
        if self.caches is not None:
            prefix = min(row.window_start if request.prefix is None else request.prefix, request.start)
            kept, row.kept[unconditional] = row.kept.get(unconditional), prefix
            if kept is not None and (self.append or kept == prefix):
                # behind the last prefix, keys and values are of passes that found masks there
                first, segment = max(0, prompt + min(kept, prefix) - 1 - int(self.model.shifted)), True
        return _Run(row.slot, prompt, first, end, unconditional=unconditional, segment=segment)

    def _outputs(self, runs: list[_Run]) -> tuple[Tensor, list[int]]:
        """Hidden states (…, d) of all that is run, and of each run where its canvas position 0 lies, or would lie."""
        groups: dict[tuple[bool, bool], list[int]] = {}
        for i, run in enumerate(runs):
            groups.setdefault((run.segment, self.caches is not None and run.unconditional), []).append(i)
        found, bases, begin = [], [0] * len(runs), 0
        for members in groups.values():
            lengths = [runs[i].end - runs[i].first for i in members]
            for rows in shared_calls(lengths, self.canvas.device):
                together = [members[row] for row in rows]
                hidden = self._call([runs[i] for i in together])
                for k, i in enumerate(together):
                    bases[i] = begin + k * hidden.shape[1] - runs[i].first
                begin += hidden.shape[0] * hidden.shape[1]
                found.append(hidden.reshape(-1, hidden.shape[-1]))
        return found[0] if len(found) == 1 else torch.cat(found), bases

    def _call(self, runs: list[_Run]) -> Tensor:
        """Hidden states (R, T, d) of runs of one kind."""
        canvas, model = self.canvas, self.model
        slots = [run.slot for run in runs]
        every = slots == list(range(canvas.tokens.shape[0]))
        length = max(run.end - run.first for run in runs)
        longest = max(run.end for run in runs)
        segment, away = runs[0].segment, any(run.unconditional for run in runs)
        ragged = min(run.end for run in runs) < longest
        if every and not (segment or away or ragged or self.caches):  # nothing to say but how far
            return model.hidden(canvas.tokens[:, :length])
        plan = np.zeros((len(runs), 3 + (length if segment else 0)), dtype=np.int64)
        for k, run in enumerate(runs):
            plan[k, :3] = run.slot, run.end, run.prompt if run.unconditional else 0
            if segment:
                plan[k, 3:] = canvas.capacity
                plan[k, 3 : 3 + run.end - run.first] = np.arange(run.first, run.end)
        here = torch.from_numpy(plan).to(canvas.device, non_blocking=True)
        which, ends, prompts, index = here[:, 0], here[:, 1:2], here[:, 2:3], here[:, 3:]
        if segment:
            ids = canvas.tokens[which[:, None], index]
        else:
            ids, index = canvas.tokens[:, :length] if every else canvas.tokens[which, :length], canvas.columns[:length]
        if away:
            ids = ids.masked_fill(index < prompts, model.mask_id)
        valid = canvas.columns[:longest] < ends if ragged else None
        if self.caches is None:
            return model.hidden(ids, valid)
        cache = self.caches[runs[0].unconditional]
        if segment:
            cache.segment(which, every, index, longest)
        else:
            cache.whole(which)
        return model.hidden(ids, valid, positions=index if segment else None, cache=cache)

    def _guided(
        self,
        logits: Tensor,
        outputs: Tensor,
        requests: Requests,
        bases: list[int],
        sources: Tensor,
        counts: list[int],
    ) -> Tensor:
        """Logits (N, V) with those of guided rows mixed with what the model says without their prompts."""
        begin, place = 0, len(requests)
        for i, (_, request) in enumerate(requests):
            end = begin + counts[i]
            if request.sampling.guidance:
                states = outputs[sources[begin:end] + (bases[place] - bases[i])]
                away = self.model.logits(states, mask_predictable=request.sampling.mask_predictable)
                logits[begin:end] = guided(logits[begin:end], away, request.sampling.guidance)
                place += 1
            begin = end
        return logits


def _shared_sampling(requests: Requests) -> Sampling:
    """How a batch's passes sample: all alike but for guidance, which is a row's own. Raises UserError otherwise."""
    first = requests[0][1].sampling
    for _, request in requests:
        if request.sampling != first and replace(request.sampling, guidance=first.guidance) != first:
            raise UserError("The decoder's passes sample differently in one batch; set batch_size=1.")
    return first


def _count(row: Row, request: Pass) -> int:
    """How many of a pass's positions are projected: those that are masked, as far as that is known."""
    width = len(request.positions)
    if request.everywhere:
        return width
    if request.commit is not None:
        return width if request.masked is None else request.masked
    known = row.known_masks(request)
    return width if known is None else max(1, min(width, known))


def _masked_first(masked: Tensor) -> Tensor:
    """The numbers of all cells (R, W), in each row the masked ones first, each kind in its order."""
    rows, width = masked.shape
    order = masked.logical_not().argsort(dim=-1, stable=True)
    if rows == 1:
        return order
    return order.add_(torch.arange(0, rows * width, width, device=masked.device)[:, None])
