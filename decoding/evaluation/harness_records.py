"""The records of a run through the harness: texts and likelihoods as they come, and those of earlier attempts.

An item's `draw` is which of its document's requests it is. What is on record was asked for with the same prompt, or it
is an error: the harness may have changed its prompts.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from typing import Any

from lm_eval.api.instance import Instance

from dystruct.model import PriorConfig

from ..errors import UserError
from ..trace import Generation
from .figures import figures
from .item_record import LIKELIHOOD, check_items
from .local import Progress
from .run_folder import RunFolder
from .run_record import read_items
from .settings import RunSettings


class HarnessRecords:
    """A run's folder as the harness's model class sees it (see `harness.Records`)."""

    def __init__(
        self,
        folder: RunFolder,
        settings: RunSettings,
        prior: PriorConfig | None,
        report: Callable[[Progress], None] | None = None,
    ) -> None:
        self.folder, self.settings, self.prior, self.report = folder, settings, prior, report
        self.seed = settings.seeds[0]
        lines = read_items(folder.folder)
        check_items(lines, folder.folder)
        self.lines = {(line["task"], line["item"], line["draw"]): line for line in lines}
        self.expect(0)

    def expect(self, count: int) -> None:
        """So many requests are to be answered now, those known among them."""
        self.count, self.done, self.new, self.started = count, 0, 0, time.monotonic()

    def text(self, request: Instance, place: int) -> str | None:
        """The text on record, None where there is none."""
        line = self._line(request, place)
        return None if line is None else str(line["text"])

    def likelihood(self, request: Instance, place: int) -> tuple[float, bool] | None:
        """The log likelihood on record, None where there is none."""
        line = self._line(request, place)
        return None if line is None else (float(line["likelihood"]), bool(line["greedy"]))

    def add_text(self, request: Instance, place: int, generation: Generation, seconds: float) -> None:
        """Put a text on record, which took so many seconds."""
        told = {"text": generation.text, **vars(figures(generation, seconds, self.prior))}
        self._add(request, place, told, generation.plain() if self.settings.traces else None)

    def add_likelihood(self, request: Instance, place: int, value: float, greedy: bool) -> None:
        """Put a log likelihood on record."""
        told = {"text": "", "likelihood": value, "greedy": greedy, "passes": {}, "stop_reason": LIKELIHOOD}
        self._add(request, place, told, None)

    def _line(self, request: Instance, place: int) -> dict[str, Any] | None:
        line = self.lines.get((request.task_name, request.doc_id, place))
        if line is None:
            return None
        if line.get("prompt") != _hash(request):
            raise UserError(
                f"Item {request.doc_id} of {request.task_name} has another prompt than before, as it has with other "
                f"examples, which depend on the number of processes; start as many as before, or name another folder."
            )
        self.done += 1
        return line

    def _add(self, request: Instance, place: int, told: dict[str, Any], trace: dict[str, Any] | None) -> None:
        key = (str(request.task_name), int(request.doc_id or 0), self.seed, place)
        if not self.new and self.report is not None:
            self.report(Progress(self.done, self.count, None, None))
        named = dict(zip(("task", "item", "seed", "draw"), key, strict=True))
        unscored = {"kind": "", "prompt": _hash(request), "correct": None, "reason": "", "value": None}
        self.folder.add({**named, **unscored, **told}, trace)
        self.done, self.new = self.done + 1, self.new + 1
        if self.report is not None:
            rate = (time.monotonic() - self.started) / self.new
            self.report(Progress(self.done, self.count, None, rate * (self.count - self.done)))


def _hash(request: Instance) -> str:
    """Of all that is asked: the prompt, and the stop strings or the answer to be scored."""
    return hashlib.sha256(repr(request.args).encode("utf-8", "replace")).hexdigest()[:16]
