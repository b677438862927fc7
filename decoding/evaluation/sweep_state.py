"""How far planned runs are in the folder below which each has its own: what is on record, what is left, what is scored.

A run on record that was made otherwise than is planned is an error, as far as that can be told without loading its
model. Only reads; knows neither how runs are declared nor how they are made.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from ..backbone import TINY, model_folder
from ..calibration_file import fingerprint, read_calibration
from ..kinds import is_whole
from ..plain import as_plain
from . import tasks
from .agreement import compare, filled
from .likelihood import LikelihoodSettings
from .local import asked_items, text_count, told
from .run_record import SCORES, begun, damaged, read_items, read_run
from .settings import check_described, defaults_of, free_of
from .sweep import PlannedRun, naming


@dataclass(frozen=True)
class State:
    """How far a planned run is: items on record, and how many it takes in all, where that is known."""

    done: int
    count: int | None

    @property
    def finished(self) -> bool:
        """Whether nothing is left."""
        return self.count is not None and self.done >= self.count


def state(run: PlannedRun, out: Path) -> State:
    """How far a run of a sweep in the folder `out` is.

    Raises UserError if the run that stands there is of other settings; it may have another limit. So it does for
    weights that cannot be read, or were fitted on another model.
    """
    folder, limit = out / run.folder, run.settings.limit
    with naming(run):
        model = _known_of_model(run)
    if not begun(folder):
        return State(0, None)
    found = read_run(folder)["settings"]
    try:
        check_described(found)
    except ValueError as error:
        raise damaged(folder, str(error)) from error
    compare(*_comparable(run, found, model), folder, free_of(run.settings.with_decoder()))
    done = [(line["task"], line["item"]) for line in read_items(folder) if limit is None or line["item"] < limit]
    every = texts(run)
    if every is None:  # of the harness's tasks, of whose items each may have been asked for several times
        return State(len(set(done)), _items(found, limit))
    return State(len(done), every)


def _items(found: Mapping[str, Any], limit: int | None) -> int | None:
    """How many items a run on record has under a limit; None if its own is lower, and a task may have more of them."""
    held, counts = found.get("limit"), [task.get("items") or 0 for task in found["tasks"].values()]
    if is_whole(held) and (limit is None or limit > held) and any(of >= held for of in counts):
        return None
    return sum(of if limit is None else min(of, limit) for of in counts)


def texts(run: PlannedRun) -> int | None:
    """How many texts a run decodes in all; None of the harness's tasks, whose items are not known before it begins."""
    return text_count(run.settings) if tasks.are_embedded(run.settings.tasks) else None


def is_scored(run: PlannedRun, out: Path) -> bool:
    """Whether the items on record are scored: those of embedded tasks are as they come, the harness's at the end.

    A run that was prolonged has scores of its first items until then.
    """
    if tasks.are_embedded(run.settings.tasks):
        return True
    folder, limit = out / run.folder, run.settings.limit
    try:
        scores = json.loads((folder / SCORES).read_text(encoding="utf-8"))
        return all(
            str(item) in scores[task]
            for task, told in read_run(folder)["settings"]["tasks"].items()
            for item in range(told["items"] if limit is None else min(told["items"], limit))
        )
    except (OSError, ValueError, LookupError, TypeError):
        return False


def is_finished(run: PlannedRun, out: Path) -> bool:
    """Whether nothing is left to decode or to score. Raises UserError as `state` does."""
    return state(run, out).finished and is_scored(run, out)


def as_begun(run: PlannedRun, out: Path) -> PlannedRun:
    """The run under the limit with which it stands in the folder `out`, if that is higher, so that it can go on."""
    if not begun(out / run.folder):
        return run
    held, asked = read_run(out / run.folder)["settings"].get("limit"), run.settings.limit
    higher = asked is not None and (held is None or held > asked)
    return replace(run, settings=replace(run.settings, limit=held)) if higher else run


def _known_of_model(run: PlannedRun) -> dict[str, Any]:
    """Of the `identity` of a run's model what is known without loading it.

    Of a model of the Hub that is its name alone until its files are on this machine, and the weights that are given.
    """
    local = run.model == TINY or os.path.isdir(run.model)
    folder = model_folder(run.model) if local else _fetched(run.model, run.revision)
    known: dict[str, Any] = {} if local else {"name": run.model}
    if folder is not None:
        known["fingerprint"] = fingerprint(folder)
    elif run.weights is None:
        return known
    weights, calibrated = read_calibration(run.weights, folder or Path(), force=folder is None)
    return {**known, "weights": as_plain(weights), "calibrated": calibrated}


def _fetched(model: str, revision: str | None) -> Path | None:
    """Where the files of a model of the Hub are on this machine; None if they are not."""
    from huggingface_hub import try_to_load_from_cache

    with suppress(ValueError):  # no name of a model of the Hub; loading it will say so
        config = try_to_load_from_cache(model, "config.json", revision=revision)
        folder = Path(config).parent if isinstance(config, str) else None
        return folder if folder is not None and any(folder.glob("*.safetensors")) else None
    return None


def _comparable(
    run: PlannedRun, found: Mapping[str, Any], model: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The settings on record and those planned, as far as they are known. model: what is known of the model.

    Whether code may be run is no part of a sweep. A limit on record may be higher than the planned one, whose items
    are then among those on record, and lower, since a run can be prolonged.
    """
    held = found.get("limit")
    goes_on = held is None or (is_whole(held) and held > run.settings.skip)
    settings = replace(run.settings, limit=held) if goes_on else run.settings
    model = {**found["model"], **model}
    known: dict[str, Any] = {}
    if tasks.are_embedded(run.settings.tasks):
        known = told(asked_items(settings))
    decoder = settings.with_decoder()
    found, described = filled(found, defaults_of(decoder)), settings.described(model, decoder, known)
    unknown = {"execute_code"}
    if not tasks.are_embedded(run.settings.tasks):
        unknown.add("tasks")  # the harness knows them, once their data are loaded
        described |= {"likelihood": asdict(LikelihoodSettings()), "data": {}}
    first, second = ({key: of[key] for key in of if key not in unknown} for of in (found, described))
    return first, second
