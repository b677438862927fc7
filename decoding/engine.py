"""Runs decoders in batches: one forward pass at a time for all rows, whatever each of them is doing.

A decoder is a coroutine over forward passes: it is given a `Row` and yields one `Pass` after another. The
engine collects a pass from every row, makes one forward call (on a CPU one for rows of like length), commits on the
device and resumes the rows. A finished row's slot goes to the next prompt. Budget, random streams, trace and
observation come from here.

Knows nothing of structures. Spans in a `Pass` are response positions, half-open.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Literal

import torch
from torch import Tensor

from dystruct.model import jensen_shannon_from

from .backbone import Backbone
from .canvas import Canvas, Fresh, Quotas, Region, pick, spread
from .ending import ending
from .errors import DecodingFailed, UserError
from .forward import Forward, Predicted
from .generation_settings import GenerationSettings
from .history import History
from .kinds import is_whole
from .randomness import Streams
from .request import FIGURES, Shared, misfit, wanted_figures
from .row import Decoder, Pass, Row
from .sampling import figures
from .trace import Event, Generation, Window

# Told of a prompt's index, what came of it, and its share of the wall time so far, in seconds.
Finished = Callable[[int, Generation, float], None]


class Engine:
    """Decodes prompts with one model and one decoder, as many at a time as were asked for."""

    def __init__(self, model: Backbone, decoder: Decoder, asked: GenerationSettings) -> None:
        self.model, self.decoder, self.asked = model, decoder, asked

    @torch.inference_mode()
    def run(
        self,
        prompts: Sequence[str],
        prompt_ids: Sequence[list[int]],
        observe: Callable[[int, Event], None] | None,
        settings: dict[str, Any],
        finished: Finished | None = None,
    ) -> list[Generation]:
        """Decode all prompts; results in their order.

        finished: told of each as soon as it is. Where a row fails, the others are decoded to their ends all the same;
        then DecodingFailed has what is finished.
        """
        capacity = max(len(ids) for ids in prompt_ids) + self.asked.max_new_tokens
        slots = min(self.asked.batch_size, len(prompts))
        widest = self._widest()
        self.canvas = Canvas(slots, capacity, self.model.mask_id, self.model.device, observing=widest is not None)
        if widest is not None:
            self.canvas.reserve(min(widest, self.asked.max_new_tokens), self.model.vocabulary)
        self.calls = Forward(self.model, self.canvas, self.asked.temperature, prefix_cache=self.asked.prefix_cache)
        waiting = deque(range(len(prompts)))
        active: dict[int, tuple[int, Row, Iterator[Pass]]] = {}  # slot -> (prompt index, row, coroutine)
        done: dict[int, Generation] = {}
        shares, last = [0.0] * slots, time.perf_counter()  # seconds: those of a pass are shared evenly by its rows
        failed: dict[int, UserError] = {}
        while waiting or active:
            requests: list[tuple[Row, Pass]] = []
            for slot in range(slots):
                # a slot whose row is finished takes the next prompt at once
                while slot in active or waiting:
                    if slot not in active:
                        index = waiting.popleft()
                        row = self._row(prompts[index], prompt_ids[index], slot, index, observe)
                        active[slot] = (index, row, self._passes(row))
                        shares[slot] = 0.0
                    index, row, coroutine = active[slot]
                    try:
                        row.history.observed()
                        request = next(coroutine, None)
                        row.history.settle()
                    except UserError as error:
                        failed[index] = error
                        del active[slot]
                        continue
                    if request is not None:
                        requests.append((row, request))
                        break
                    done[index] = self._finish(row, settings)
                    del active[slot]
                    if finished is not None:
                        finished(index, done[index], shares[slot])
                        last = time.perf_counter()  # what is done with it is no part of the others' time
            if requests:
                self._forward(requests)
                last, before = time.perf_counter(), last
                for row, _ in requests:
                    shares[row.slot] += (last - before) / len(requests)
        if failed:
            raise DecodingFailed(done, failed)
        return [done[index] for index in range(len(prompts))]

    def _widest(self) -> int | None:
        widest = getattr(self.decoder, "widest", 0)
        if widest is not None and not (is_whole(widest) and widest >= 1):
            raise UserError(
                f"The decoder {type(self.decoder).__name__} must have `widest`, the tokens of its widest window, or "
                f"None where it has no use for the positions' features."
            )
        return widest

    def _passes(self, row: Row) -> Iterator[Pass]:
        """The passes that the decoder asks for; UserError at one that cannot be made."""
        name, passes = type(self.decoder).__name__, self.decoder.decode(row)
        if not isinstance(passes, Iterable):
            raise UserError(f"The decoder {name} gives {passes!r} instead of passes; let its decode yield them.")
        for request in passes:
            if not isinstance(request, Pass):
                raise UserError(f"The decoder {name} yields {request!r}, which is no Pass; let it yield one.")
            reason = misfit(request, row.window, row.passes_left, resolved=row.resolved)
            if reason is not None:
                span = f"{request.start!r} to {request.end!r}"
                raise UserError(
                    f"The decoder {name} asks for a {request.kind} pass of {span} that {reason}; correct its decode."
                )
            yield request
        if row.is_open:
            raise UserError(f"The decoder {name} ended with its window open; let it call Row.close_window.")

    def _row(
        self, prompt: str, ids: list[int], slot: int, index: int, observe: Callable[[int, Event], None] | None
    ) -> Row:
        self.canvas.place(slot, ids)
        for cache in self.calls.caches or ():
            cache.forget(slot)
        emit = None if observe is None else lambda event: observe(index, event)
        return Row(
            prompt=prompt,
            prompt_ids=ids,
            max_new_tokens=self.asked.max_new_tokens,
            budget=self.asked.budget,
            temperature=self.asked.temperature,
            streams=Streams.of(self.asked.seed, ids),
            model=self.model,
            slot=slot,
            history=History(prompt, self.model.mask_id, emit),
            _canvas=self.canvas,
            stop=self.asked.stop,
            started=time.perf_counter(),
        )

    def _forward(self, requests: list[tuple[Row, Pass]]) -> None:
        """One forward pass for all requests, and what it commits."""
        remasked = self._remask(requests)
        found = self.calls.predict(requests)
        if self.canvas.observing:
            self._observe_gaps(requests, found)
        others = self._alternatives(found) if self.asked.alternatives else None
        offered = [i for i, (_, request) in enumerate(requests) if request.commit is None]
        if offered:
            shared = self._figures(requests, found)
            for i in offered:
                row, request = requests[i]
                row.offer(request, shared, i, None if others is None else others[i, :, : len(request.positions)])
        if len(offered) < len(requests):
            outcome, masks = self._commit(requests, found, offered)
            if others is not None:
                outcome = torch.cat((outcome, others), dim=1)
            for i, (row, request) in enumerate(requests):
                if request.commit is not None:
                    left = None if masks is None or request.threshold is None else (masks, i)
                    row.record(request, [outcome[i, :, : len(request.positions)], *remasked.get(i, [])], left)

    def _remask(self, requests: list[tuple[Row, Pass]]) -> dict[int, list[Tensor]]:
        """Mask what the requests ask to be masked again; the outcomes (3, width) by request."""
        spans = [(i, *span) for i, (_, request) in enumerate(requests) for span in request.remask]
        if not spans:
            return {}
        rows = [requests[i][0] for i, *_ in spans]
        offsets = [len(row.prompt_ids) for row in rows]
        region = self.canvas.region(
            [row.slot for row in rows], [(o + span[1], o + span[2]) for o, span in zip(offsets, spans, strict=True)]
        )
        counts = torch.tensor([[count] for *_, count in spans]).to(self.model.device, non_blocking=True)
        outcome = torch.stack([value.float() for value in self.canvas.remask(region, counts)], dim=1)
        found: dict[int, list[Tensor]] = {}
        for k, (i, start, end, _) in enumerate(spans):
            found.setdefault(i, []).append(outcome[k, :, : end - start])
        return found

    def _commit(
        self, requests: list[tuple[Row, Pass]], found: Predicted, offered: list[int]
    ) -> tuple[Tensor, Shared | None]:
        """Commit by the quotas; the outcomes (R, 3, W), and of passes with a threshold how many masks are left.

        Rows that decide themselves take no part.
        """
        tentative, thresholds, region = None, None, found.region
        shown = [request.kind == "diagnostic" and request.commit is not None for _, request in requests]
        if any(shown):
            if not self.canvas.observing:
                raise UserError("A diagnostic pass commits by the positions' figures; give the decoder's `widest`.")
            tentative = torch.tensor(shown).to(self.model.device, non_blocking=True)[:, None]
        if offered:
            scratch = self.canvas.place_of(0, None)
            inside = region.inside & ~found.decides
            region = Region(torch.where(inside, region.places, scratch), inside)
        fresh = Fresh(found.said.token, found.said.confidence, cells=found.cells)
        if found.summary is not None:
            entropy, margin = found.summary
            fresh = replace(
                fresh, entropy=entropy, margin=margin, jump=found.jump, probability=found.said.probability,
                repeated=any(row.plays_again(request) for row, request in requests),
            )  # fmt: skip
        if any(request.threshold is not None for _, request in requests):
            limits = [[math.inf if request.threshold is None else request.threshold] for _, request in requests]
            thresholds = torch.tensor(limits).to(self.model.device, non_blocking=True)
        *outcome, left = self.canvas.commit(region, fresh, Quotas(found.quotas, tentative, thresholds))
        masks = None if left is None else Shared(["masks"], left[:, None])
        return torch.stack([value.float() for value in outcome], dim=1), masks

    def _observe_gaps(self, requests: list[tuple[Row, Pass]], found: Predicted) -> None:
        """Of each window's first diagnostic pass, the divergence of neighbours' distributions (R5)."""
        left: list[int] = []
        for i, (row, request) in enumerate(requests):
            if request.kind == "diagnostic" and request.commit is not None and row.first_diagnostic:
                begin = found.begin(i)
                left += range(begin, begin + found.counts[i] - 1)
        if not left:
            return
        assert found.summary is not None
        cells = torch.tensor(left).to(self.model.device, non_blocking=True)
        probability, entropy = found.said.probability, found.summary.entropy
        divergence = jensen_shannon_from(probability[cells], entropy[cells], probability[cells + 1], entropy[cells + 1])
        self.canvas.observe_gaps(pick(found.region.places, found.cells)[cells], divergence)

    def _alternatives(self, found: Predicted) -> Tensor:
        """(R, 2n, W): of each position n tokens, the most probable, -1 where nothing was predicted; n probabilities."""
        top = found.said.probability.topk(self.asked.alternatives, dim=-1)
        both = torch.cat((top.indices.float(), top.values.float()), dim=1)
        return spread(both, found.cells, found.region.inside.shape, fill=-1).transpose(1, 2)

    def _figures(self, requests: list[tuple[Row, Pass]], found: Predicted) -> Shared:
        """The figures (R, n, W) of all passes, those that any of them asks for, float64."""
        wanted = {name for _, request in requests if request.commit is None for name in wanted_figures(request)}
        names = [name for name in FIGURES if name in wanted]
        held = self.canvas.tokens.take(pick(found.region.places, found.cells))
        values = figures(found.said, names, held, self.model.mask_id)
        stacked = torch.stack([value.double() for value in values], dim=1)
        every = spread(stacked, found.cells, found.region.inside.shape, fill=torch.nan)
        return Shared(names, every.transpose(1, 2))

    def _finish(self, row: Row, settings: dict[str, Any]) -> Generation:
        tokens = row.tokens
        end = ending(self.model, tokens, self.asked.stop)
        early: Literal["budget", "decoder"] = "budget" if row.passes_left < row.last_cost else "decoder"
        return Generation(
            prompt=row.prompt,
            text=end.text,
            tokens=tuple(tokens),
            token_texts={token: self.model.token_text(token) for token in sorted(_occurring(row.windows))},
            useful_tokens=end.length,
            wasted_tokens=len(tokens) - end.length,
            passes=dict(row.history.passes),
            stop_reason=end.by or (early if row.remaining > 0 else "length"),
            seconds=time.perf_counter() - row.started,
            windows=tuple(row.windows),
            model=self.model.name,
            mask_token=self.model.mask_id,
            end_tokens=tuple(sorted(self.model.end_ids)),
            settings=settings,
        )


def _occurring(windows: list[Window]) -> set[int]:
    """Every token id that a pass committed or remasked, or that a window ended with."""
    found: set[int] = set()
    for window in windows:
        found.update(window.closed.tokens)
        for step in window.steps:
            found.update(commit.token for commit in step.commits)
            found.update(other.token for commit in step.commits for other in commit.alternatives)
            found.update(remask.token for remask in step.remasked)
            found.update(splice.token for splice in step.spliced if splice.token is not None)
    return found
