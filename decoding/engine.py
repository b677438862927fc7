"""Runs decoders in batches: one forward pass at a time for all rows, whatever each of them is doing.

A decoder is a coroutine over forward passes: it is given a `Row` and yields one `Pass` after another. The
engine collects a pass from every row, makes one forward call, commits on the device and resumes the rows.
A finished row's slot goes to the next prompt. Budget, random streams, trace and observation come from here.

Knows nothing of structures. Spans in a `Pass` are response positions, half-open.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields, replace
from typing import Any, Literal

import torch
from torch import Tensor

from dystruct.model import hidden_jump

from .backbone import Backbone
from .canvas import Canvas, Fresh, Region
from .randomness import Streams, gumbel_noise
from .row import Decoder, Pass, Row
from .sampling import candidates, guided
from .trace import Event, Generation, Window


def _in_play(region: Region, requests: Sequence[Pass]) -> Region:
    """The region without what lies between the parts of a pass."""
    if not any(request.parts for request in requests):
        return region
    playing = torch.zeros(region.inside.shape, dtype=torch.bool)
    for row, request in zip(playing, requests, strict=True):
        for start, end in request.parts or ((request.start, request.end),):
            row[start - request.start : end - request.start] = True
    return replace(region, inside=playing.to(region.inside.device, non_blocking=True))


def _rows(region: Region, fresh: Fresh, rows: list[int]) -> tuple[Region, Fresh]:
    """Some rows of a region and of what is predicted for it."""
    some = torch.tensor(rows).to(region.slots.device, non_blocking=True)
    return (
        Region(*(getattr(region, field.name)[some] for field in fields(Region))),
        Fresh(*(getattr(fresh, field.name)[some] for field in fields(Fresh))),
    )


class Engine:
    """Decodes prompts with one model and one decoder, `batch_size` at a time."""

    def __init__(
        self,
        model: Backbone,
        decoder: Decoder,
        *,
        max_new_tokens: int,
        budget: int,
        temperature: float,
        seed: int,
        batch_size: int,
    ) -> None:
        self.model, self.decoder = model, decoder
        self.max_new_tokens, self.budget = max_new_tokens, budget
        self.temperature, self.seed, self.batch_size = temperature, seed, batch_size

    @torch.inference_mode()
    def run(
        self,
        prompts: Sequence[str],
        prompt_ids: Sequence[list[int]],
        observe: Callable[[int, Event], None] | None,
        settings: dict[str, Any],
    ) -> list[Generation]:
        """Decode all prompts; results in their order."""
        capacity = max(len(ids) for ids in prompt_ids) + self.max_new_tokens
        slots = min(self.batch_size, len(prompts))
        widest = self.decoder.widest
        self.canvas = Canvas(slots, capacity, self.model.mask_id, self.model.device, observing=widest is not None)
        if widest is not None:
            self.canvas.reserve(min(widest, self.max_new_tokens), self.model.vocabulary)
        waiting = list(range(len(prompts)))
        active: dict[int, tuple[int, Row, Iterator[Pass]]] = {}  # slot -> (prompt index, row, coroutine)
        done: dict[int, Generation] = {}
        while waiting or active:
            for slot in range(slots):
                if slot not in active and waiting:
                    index = waiting.pop(0)
                    row = self._row(prompts[index], prompt_ids[index], slot, index, observe)
                    active[slot] = (index, row, iter(self.decoder.decode(row)))
            requests: list[tuple[Row, Pass]] = []
            for slot, (index, row, coroutine) in list(active.items()):
                request = next(coroutine, None)
                row.settle()
                if request is None:
                    done[index] = self._finish(row, settings)
                    del active[slot]
                else:
                    requests.append((row, request))
            if requests:
                self._forward(requests)
        return [done[index] for index in range(len(prompts))]

    def _row(
        self, prompt: str, ids: list[int], slot: int, index: int, observe: Callable[[int, Event], None] | None
    ) -> Row:
        self.canvas.place(slot, ids)
        emit = None if observe is None else lambda event: observe(index, event)
        return Row(
            prompt=prompt,
            prompt_ids=ids,
            max_new_tokens=self.max_new_tokens,
            budget=self.budget,
            temperature=self.temperature,
            streams=Streams.of(self.seed, ids),
            model=self.model,
            slot=slot,
            _canvas=self.canvas,
            _emit=emit,
            started=time.perf_counter(),
        )

    def _forward(self, requests: list[tuple[Row, Pass]]) -> None:
        """One forward pass for all requests, and what it commits."""
        canvas, device = self.canvas, self.model.device
        slots = [row.slot for row, _ in requests]
        offsets = [len(row.prompt_ids) for row, _ in requests]
        spans = [(o + p.start, o + p.end) for o, (_, p) in zip(offsets, requests, strict=True)]
        region = canvas.region(slots, spans)
        remasked = self._remask(requests, offsets)
        fresh = self._predict(requests, region, offsets)
        diagnostic = [request.kind == "diagnostic" for _, request in requests]
        first = [
            i for i, (row, p) in enumerate(requests)
            if diagnostic[i] and canvas.observing and row.first_diagnostic and p.end - p.start > 1
        ]  # fmt: skip
        if first:
            some, said = _rows(region, fresh, first)
            canvas.observe_gaps(some, said.log_probability)
        offered = [i for i, (_, request) in enumerate(requests) if request.commit is None]
        if offered:
            some, said = _rows(region, fresh, offered)
            figures = self._figures(some, said)
            for i, found in zip(offered, figures, strict=True):
                row, request = requests[i]
                row.offer(request, found[:, : request.end - request.start])
        quotas = [i for i in range(len(requests)) if i not in offered]
        if not quotas:
            return
        if offered:
            region, fresh = _rows(region, fresh, quotas)
        region = _in_play(region, [requests[i][1] for i in quotas])
        commits = torch.tensor([[requests[i][1].commit] for i in quotas]).to(device, non_blocking=True)
        tentative = torch.tensor([[diagnostic[i]] for i in quotas]).to(device, non_blocking=True)
        outcome = torch.stack([value.double() for value in canvas.commit(region, fresh, commits, tentative)], dim=1)
        for k, i in enumerate(quotas):
            row, request = requests[i]
            row.record(request, [outcome[k, :, : request.end - request.start], *remasked.get(i, [])])

    def _remask(self, requests: list[tuple[Row, Pass]], offsets: list[int]) -> dict[int, list[Tensor]]:
        """Mask what the requests ask to be masked again; the outcomes (3, width) by request."""
        spans = [(i, *span) for i, (_, request) in enumerate(requests) for span in request.remask]
        if not spans:
            return {}
        slots = [requests[i][0].slot for i, *_ in spans]
        region = self.canvas.region(slots, [(offsets[i] + start, offsets[i] + end) for i, start, end, _ in spans])
        counts = torch.tensor([[count] for *_, count in spans]).to(self.model.device, non_blocking=True)
        outcome = torch.stack([value.double() for value in self.canvas.remask(region, counts)], dim=1)
        found: dict[int, list[Tensor]] = {}
        for k, (i, start, end, _) in enumerate(spans):
            found.setdefault(i, []).append(outcome[k, :, : end - start])
        return found

    def _predict(self, requests: list[tuple[Row, Pass]], region: Region, offsets: list[int]) -> Fresh:
        """What the model says of the region, in one forward call; guided rows go twice through it."""
        model, canvas, device = self.model, self.canvas, self.model.device
        lengths = [
            offset + (row.length if request.visible is None else request.visible)
            for offset, (row, request) in zip(offsets, requests, strict=True)
        ]
        longest = max(lengths)
        ids, sources = canvas.tokens[region.slots[:, 0], :longest], torch.where(region.inside, region.index, 0)
        again = [i for i, (_, request) in enumerate(requests) if request.sampling.guidance]
        rows = [*range(len(requests)), *again]
        if again:
            prompt = torch.arange(longest) < torch.tensor([[offsets[i]] for i in again])
            some = torch.tensor(again).to(device, non_blocking=True)
            ids = torch.cat((ids, ids[some].masked_fill(prompt.to(device, non_blocking=True), model.mask_id)))
            sources = torch.cat((sources, sources[some]))
        valid = None
        if min(lengths) < longest:
            valid = torch.arange(longest) < torch.tensor([[lengths[i]] for i in rows])
            valid = valid.to(device, non_blocking=True)
        hidden = model.hidden(ids, valid)
        # The output that predicts a position, and the one before the region's first for its hidden jump.
        sources = sources - int(model.shifted)
        sources = torch.cat((sources[:, :1] - 1, sources), dim=1).clamp(min=0)
        states = hidden.gather(1, sources[..., None].expand(-1, -1, hidden.shape[-1]))
        allowed = requests[0][1].sampling.mask_predictable
        logits = model.logits(states[:, 1:], mask_predictable=allowed)
        for place, i in enumerate(again, start=len(requests)):
            logits[i] = guided(logits[i], logits[place], requests[i][1].sampling.guidance)
        noise = None
        if self.temperature > 0:
            keys = torch.tensor([row.streams.token_key for row, _ in requests]).to(device, non_blocking=True)
            places = region.index - torch.tensor(offsets)[:, None].to(device, non_blocking=True)
            noise = gumbel_noise(keys, places, logits.shape[-1])
        # One decoder's passes sample alike: all of a batch do.
        token, confidence, said = candidates(logits[: len(requests)], requests[0][1].sampling, self.temperature, noise)
        return Fresh(
            token, confidence, said.entropy, said.margin, hidden_jump(states[: len(requests)]), said.log_probability
        )

    def _figures(self, region: Region, fresh: Fresh) -> Tensor:
        """The figures (R, 9, W) of a region in the order of `Figures`, float64."""
        best = fresh.log_probability.topk(2, dim=-1)
        top, second = best.values.double().exp().unbind(-1)
        held = self.canvas.tokens[region.slots, region.index]
        own = fresh.log_probability.gather(-1, held[..., None])[..., 0].exp()
        rest = fresh.log_probability.clone()
        rest[..., self.model.mask_id] = -torch.inf
        unmasked_confidence, unmasked = rest.log_softmax(-1).max(-1)
        found = (
            fresh.token, fresh.confidence, best.indices[..., 0], top, top - second, fresh.entropy, own, unmasked,
            unmasked_confidence.exp().nan_to_num(),  # where a filter leaves nothing but the mask
        )  # fmt: skip
        return torch.stack([value.double() for value in found], dim=1)

    def _finish(self, row: Row, settings: dict[str, Any]) -> Generation:
        tokens = row.tokens
        useful = self.model.text_length(tokens)
        reason: Literal["eos", "length", "budget"] = "length"
        if useful < len(tokens):
            reason = "eos"
        elif row.remaining > 0:
            reason = "budget"
        return Generation(
            prompt=row.prompt,
            text=self.model.decode(tokens[:useful]),
            tokens=tuple(tokens),
            token_texts={token: self.model.token_text(token) for token in sorted(_occurring(row.windows))},
            useful_tokens=useful,
            wasted_tokens=len(tokens) - useful,
            passes=dict(row.passes),
            stop_reason=reason,
            seconds=time.perf_counter() - row.started,
            windows=tuple(row.windows),
            model=self.model.name,
            mask_token=self.model.mask_id,
            settings=settings,
        )


def _occurring(windows: list[Window]) -> set[int]:
    """Every token id that a pass committed or remasked, or that a window ended with."""
    found: set[int] = set()
    for window in windows:
        found.update(window.closed.tokens)
        for step in window.steps:
            found.update(commit.token for commit in step.commits)
            found.update(remask.token for remask in step.remasked)
            found.update(splice.token for splice in step.spliced if splice.token is not None)
    return found
