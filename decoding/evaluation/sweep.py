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

Each run has a folder named by what it has of its own. Knows nothing of what stands in it (`sweep_state`), nor of how
runs are made (`sweep_making`).
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from itertools import product
from pathlib import Path
from typing import Any

from ..backbone import TINY
from ..errors import UserError
from .checks import check_run
from .settings import RunSettings

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

    def __post_init__(self) -> None:
        if not self.folder or Path(self.folder).name != self.folder or self.folder.startswith("."):
            raise UserError(f"{self.folder!r} is no name of a run's folder; give one without a slash or a first dot.")

    @property
    def source(self) -> tuple[str, str | None, Path | None]:
        """What its model is loaded from; runs in which this is the same have one model."""
        return self.model, self.revision, self.weights


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
    check_planned(planned)
    return planned


def check_planned(planned: Sequence[PlannedRun]) -> None:
    """Raise UserError for a run that cannot be made, as far as its settings tell, and for two of one folder."""
    for run in planned:
        with naming(run):
            check_run(run.settings)
        if sum(other.folder == run.folder for other in planned) > 1:
            raise UserError(f"The sweep has two runs named {run.folder!r}; give one another name.")


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
        yield PlannedRun(folder, model, settings, revision, None if weights is None else Path(weights))


def _text(chosen: dict[str, Any], name: str) -> str | None:
    """Take a text out of what is declared; None if it is not there."""
    value = chosen.pop(name, None)
    if value is not None and (not isinstance(value, str) or not value):
        raise UserError(f"The sweep's {name} cannot be {value!r}; give {_OF_MODEL[name]}, as a text.")
    return value
