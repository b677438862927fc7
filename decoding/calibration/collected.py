"""Windows collected part by part into a file, so that observing can be killed and gone on with.

A part is a number of problems, observed together whether or not the run was killed before: what comes of them does not
depend on it, to the last bit.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from dystruct.inference.calibration import DiagnosedWindow

from ..backbone import Backbone
from ..records import open_records, read_records
from .trajectories import Known, encoded

FORMAT = "dystruct-windows-1"
TOGETHER = 32  # problems of a part
FIELDS = ("features", "gap_divergence", "targets")

Collect = Callable[[Sequence[Known]], Sequence[DiagnosedWindow]]


def collected_windows(
    path: Path,
    settings: Mapping[str, Any],
    model: Backbone,
    known: Sequence[Known],
    collect: Collect,
    beyond: int = 0,
    report: Callable[[int, float], None] | None = None,
    *,
    chat: bool = False,
) -> list[DiagnosedWindow]:
    """The windows of all problems, numbered as in `known`; the parts that are on record are not observed again.

    path: the file of records. settings: all that windows depend on, but for the problems, as plain data. collect: gives
    the windows of a part's problems. beyond: how many tokens may follow an answer. report: called behind
    each part that was observed, with how many problems are done and about how many seconds are left. chat: whether
    `collect` puts questions as users' turns. Raises UserError if the file was begun with other settings or problems or
    is none of ours, if a prompt occurs twice, if a problem is too long for the model, and if that knows no turns.
    """
    ids = encoded(model, known, beyond, chat=chat)
    lengths = [len(prompt) + len(answer) for prompt, answer in zip(*ids, strict=True)]
    order = sorted(range(len(known)), key=lambda index: lengths[index])  # rows of like length, as in a batch
    questions = hashlib.sha256(json.dumps([*ids, [problem.domain for problem in known]]).encode()).hexdigest()[:16]
    with open_records(path, {**settings, "questions": questions}, format=FORMAT) as records:
        began, observed = time.monotonic(), 0  # tokens
        for first in range(0, len(order), TOGETHER):
            part, behind = order[first : first + TOGETHER], order[first + TOGETHER :]
            if part not in records:
                found = collect([known[index] for index in part])
                records.append(part, windows=[
                    {"problem": part[window.problem], **{name: getattr(window, name) for name in FIELDS}}
                    for window in found
                ])  # fmt: skip
                observed += sum(lengths[index] for index in part)
                if report is not None:
                    rate = (time.monotonic() - began) / observed
                    report(len(order) - len(behind), rate * sum(lengths[index] for index in behind))
        windows = [window for record in read_records([path], format=FORMAT)[1] for window in record["windows"]]
    windows.sort(key=lambda window: window["problem"])
    return [DiagnosedWindow(**window, domain=known[window["problem"]].domain) for window in windows]
