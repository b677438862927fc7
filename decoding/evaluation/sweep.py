"""Many runs declared in one file, TOML: what they share, and what each of them is, or a grid of them.

    [settings]                            # of every run (see RunSettings)
    tasks = ["tiny_maths", "tiny_logic"]
    limit = 300
    budget = [256, 128]                   # a list where one value is asked for: a run for each

    [[run]]
    name = "alpha0"
    decoder = "dystruct:structure=sample,passes=share,alpha0={alpha0}"
    alpha0 = [1.0, 1.5, 2.0]              # stands for {alpha0} in the decoder, a run for each

Runs go one after another, each in a folder named by what it has of its own; each can be gone on with, and so can all.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from ..errors import UserError
from . import tasks
from .run_folder import read_items, read_run
from .settings import RunSettings

_LISTS = ("tasks", "seeds", "stop")  # settings whose own values are lists


@dataclass(frozen=True)
class PlannedRun:
    """One run of a sweep: the name of its folder, its model, and its settings."""

    folder: str
    model: str
    settings: RunSettings


@dataclass(frozen=True)
class State:
    """How far a planned run is: items on record, and how many it takes in all, where that is known."""

    done: int
    count: int | None

    @property
    def finished(self) -> bool:
        """Whether nothing is left."""
        return self.count is not None and self.done >= self.count


def read_sweep(path: Path, *, execute_code: bool = False, limit: int | None = None) -> list[PlannedRun]:
    """The runs that a file declares. Raises UserError that says what is wrong with it.

    execute_code: whether code may be run to score it, which no file can allow. limit: in place of the file's.
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
    if limit is not None:
        runs = [{**declared, "limit": limit} for declared in runs]
    planned = [run for declared in runs for run in _planned(shared, declared, execute_code)]
    for run in planned:
        if sum(other.folder == run.folder for other in planned) > 1:
            raise UserError(f"The sweep {str(path)!r} has two runs named {run.folder!r}; give one another name.")
    return planned


def state(run: PlannedRun, out: Path) -> State:
    """How far a run of a sweep in the folder `out` is."""
    folder = out / run.folder
    if not (folder / "run.json").exists():
        return State(0, None)
    settings = read_run(folder)["settings"]
    items = sum(task.get("items") or 0 for task in settings["tasks"].values())
    if set(run.settings.tasks) <= set(tasks.DOMAINS):  # which may have begun with a lower limit
        items = sum(len(tasks.items(task, run.settings.split, run.settings.limit)) for task in run.settings.tasks)
    return State(len(read_items(folder)), items * len(settings["seeds"]) * settings["draws"])


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
    for values in product(*varied.values()):
        chosen = {**given, **dict(zip(varied, values, strict=True))}
        told = {name: chosen.pop(name) for name in dict.fromkeys(holes)}
        text = chosen.get("decoder", "dystruct")
        for hole, value in told.items():
            text = text.replace(f"{{{hole}}}", str(value))
        model = chosen.pop("model", "tiny")
        own = {name: chosen.get(name, told.get(name)) for name in varied}
        name = str(declared.get("name") or text)
        label = ", ".join([name, *(f"{hole} {value}" for hole, value in told.items())])
        told_settings = {**chosen, "decoder": text, "name": label if declared.get("name") else None}
        settings = RunSettings.of({**told_settings, "execute_code": execute_code})
        settings.with_decoder()
        parts = [name, *(f"{key}={value}" for key, value in own.items() if key != "decoder")]
        yield PlannedRun(re.sub(r"[^\w.=,+-]+", "-", "-".join(parts)), model, settings)
