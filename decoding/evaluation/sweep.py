"""Many runs declared in one file, TOML: what they share, and what each of them is, or a grid of them.

    [settings]                            # of every run (see RunSettings)
    model = "org/name"                    # beside it weights = "FILE" that `dystruct calibrate` wrote, and revision
    tasks = ["tiny_maths", "tiny_logic"]
    limit = 300
    budget = [256, 128]                   # a list where one value is asked for: a run for each

    [[run]]
    name = "alpha0"
    decoder = "dystruct:structure=sample,passes=share,alpha0={alpha0}"
    alpha0 = [1.0, 1.5, 2.0]              # stands for {alpha0} in the decoder, a run for each

Runs go one after another, those of one model together, each in a folder named by what it has of its own; each can be
gone on with, and so can all.
"""

from __future__ import annotations

import json
import os
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, fields, replace
from itertools import product
from pathlib import Path
from typing import Any

from ..backbone import TINY, model_folder
from ..calibration_file import fingerprint, read_calibration
from ..errors import UserError
from ..kinds import is_whole
from ..plain import as_plain
from . import tasks
from .agreement import compare, filled
from .checks import check_run
from .likelihood import LikelihoodSettings
from .local import asked_items, text_count, told
from .run_record import SCORES, begun, damaged, read_items, read_run
from .settings import RunSettings, check_described, defaults_of, free_of

_LISTS = ("tasks", "seeds", "stop")  # settings whose own values are lists
_OF_MODEL = {  # what is declared of a run's model, beside its settings
    "model": "a name or a folder",
    "revision": "a branch, tag or commit of the Hub",
    "weights": "a file that `dystruct calibrate` wrote",
}
_SETTINGS = (*_OF_MODEL, *(field.name for field in fields(RunSettings) if field.name != "execute_code"))


@dataclass(frozen=True)
class PlannedRun:
    """One run of a sweep: the name of its folder, its model, and its settings.

    revision: of a model of the Hub; weights: a file of evidence weights, in place of the model's own.
    """

    folder: str
    model: str
    settings: RunSettings
    revision: str | None = None
    weights: Path | None = None


@dataclass(frozen=True)
class State:
    """How far a planned run is: items on record, and how many it takes in all, where that is known."""

    done: int
    count: int | None

    @property
    def finished(self) -> bool:
        """Whether nothing is left."""
        return self.count is not None and self.done >= self.count


def read_sweep(
    path: Path,
    *,
    execute_code: bool = False,
    limit: int | None = None,
    skip: int | None = None,
    batch_size: int | None = None,
) -> list[PlannedRun]:
    """The runs that a file declares. Raises UserError that says what is wrong with it, or with any of its runs.

    execute_code: whether code may be run to score it, which no file can allow. limit, skip, batch_size: in place of
    the file's.
    """
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"The sweep {str(path)!r} cannot be read ({error.strerror}); check its name.") from error
    except ValueError as error:
        raise UserError(f"The sweep {str(path)!r} is no TOML ({error}); correct it.") from error
    unknown = set(content) - {"settings", "run"}
    if unknown:
        raise UserError(f"The sweep {str(path)!r} has an unknown part {sorted(unknown)[0]!r}; it has settings and run.")
    shared, runs = content.get("settings", {}), content.get("run", [])
    if not isinstance(shared, dict) or not isinstance(runs, list) or not runs or not all(map(_is_table, runs)):
        raise UserError(f"The sweep {str(path)!r} declares no run; give each one a [[run]].")
    instead = {"limit": limit, "skip": skip, "batch_size": batch_size}
    instead = {name: value for name, value in instead.items() if value is not None}
    runs = [{**declared, **instead} for declared in runs]
    planned = [run for declared in runs for run in _planned(shared, declared, execute_code)]
    for run in planned:
        with naming(run):
            check_run(run.settings)
        if sum(other.folder == run.folder for other in planned) > 1:
            raise UserError(f"The sweep {str(path)!r} has two runs named {run.folder!r}; give one another name.")
    return planned


@contextmanager
def naming(run: PlannedRun) -> Iterator[None]:
    """Puts a run's name before what is said of it."""
    try:
        yield
    except UserError as error:
        raise UserError(f"{run.folder}: {error}") from error


def only(planned: Sequence[PlannedRun], names: Sequence[str]) -> list[PlannedRun]:
    """The runs with these names of folders, in their order. Raises UserError for a name that none of them has."""
    known = [run.folder for run in planned]
    for name in names:
        if name not in known:
            raise UserError(f"The sweep has no run {name!r}; its runs are {'; '.join(known)}.")
    return [run for run in planned if run.folder in names]


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
    asked = run.settings
    if not tasks.are_embedded(asked.tasks):
        return None
    return text_count(asked)


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


def _is_table(content: object) -> bool:
    return isinstance(content, dict)


def _planned(shared: Mapping[str, Any], declared: Mapping[str, Any], execute_code: bool) -> Iterator[PlannedRun]:
    given = {**shared, **declared}
    if "execute_code" in given:
        raise UserError("A sweep's file cannot allow to run code; leave execute_code out and give --execute-code.")
    decoder = given.get("decoder", "dystruct")
    varied = {name: value for name, value in given.items() if isinstance(value, list) and name not in _LISTS}
    holes = re.findall(r"\{(\w+)\}", decoder) if isinstance(decoder, str) else []
    for hole in holes:
        if hole not in given:
            raise UserError(f"The sweep's decoder {decoder!r} has {{{hole}}}, which has no value; give {hole} = [...].")
    for setting in varied:
        if not given[setting]:
            raise UserError(f"The sweep's list {setting} is empty; give a value, or leave it out.")
    if not isinstance(declared.get("name", ""), str):
        raise UserError(f"A run of a sweep is named by a text, not {declared['name']!r}; correct its name.")
    for values in product(*varied.values()):
        chosen = {**given, **dict(zip(varied, values, strict=True))}
        filled = {name: chosen.pop(name) for name in dict.fromkeys(holes)}
        text = chosen.get("decoder", "dystruct")
        for setting in chosen:
            if setting not in _SETTINGS:
                raise UserError(f"A run of a sweep has no setting {setting!r}; it has {', '.join(_SETTINGS)}.")
        for hole, value in filled.items():
            text = text.replace(f"{{{hole}}}", str(value))
        own = {name: chosen.get(name, filled.get(name)) for name in varied}
        model, revision, weights = (_text(chosen, name) for name in _OF_MODEL)
        model = TINY if model is None else model
        if revision is not None and (model == TINY or os.path.isdir(model)):
            raise UserError(f"The sweep's revision has no use with the model {model!r}, none of the Hub; leave it out.")
        if "model" in varied:
            own["model"] = Path(model).name
        if "prompt_format" in varied:  # by its place in the list, since a folder's name cannot hold all of its signs
            own["prompt_format"] = varied["prompt_format"].index(chosen["prompt_format"]) + 1
        if "weights" in varied:
            own["weights"] = Path(str(weights)).stem
        name = str(declared.get("name") or text)
        label = ", ".join([name, *(f"{hole} {value}" for hole, value in filled.items())])
        told_settings = {**chosen, "decoder": text, "name": label if declared.get("name") else None}
        settings = RunSettings.of({**told_settings, "execute_code": execute_code})
        settings.with_decoder()
        named = [name, *(f"{key}={value}" for key, value in own.items() if key != "decoder")]
        folder = re.sub(r"[^\w.=,+-]+", "-", "-".join(named))
        if folder.startswith("."):
            raise UserError(
                f"The sweep's run {name!r} begins with a dot, as no folder of a run may; give another name."
            )
        yield PlannedRun(folder, model, settings, revision, None if weights is None else Path(weights))


def _text(chosen: dict[str, Any], name: str) -> str | None:
    """Take a text out of what is declared; None if it is not there."""
    value = chosen.pop(name, None)
    if value is not None and (not isinstance(value, str) or not value):
        raise UserError(f"The sweep's {name} cannot be {value!r}; give {_OF_MODEL[name]}, as a text.")
    return value
