"""Which runs belong side by side: those that differ in nothing but what is compared.

A run is placed by its settings alone. What is compared must agree in everything else: model, budget, limits, items and
seeds. Knows summaries; neither tables, folders nor files.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ..dystruct import DyStruct
from ..plain import as_plain
from .summary import RunSummary, TaskSummary
from .tasks import CHAIN

# Setting -> what its table is called, and the heading of its column.
SENSITIVITY = {
    "prior.concentration": ("alpha0", "concentration α0", "α0"),
    "prior.max_length": ("longest-window", "longest window, tokens", "L max"),
    "prior.min_length": ("shortest-window", "shortest window, tokens", "L min"),
    "weld_radius": ("weld-radius", "welding radius, tokens", "r weld"),
}
COMPONENTS = ("schedule", "weld")
CONFIGURATIONS = {
    ("priority", "sequential"): "full",
    ("sorted", "sequential"): "schedule sorted",
    ("sorted", "off"): "schedule sorted, without welding",
    ("left-to-right", "sequential"): "without schedule",
    ("priority", "off"): "without welding",
    ("left-to-right", "off"): "without both",
}
_OWN = {
    "name",
    "decoder",
    "decoder_settings",
    "tasks",
    "batch_size",
    "traces",
    "execute_code",
    "model",
    "draws",
    "data",
}


def told_apart(runs: Sequence[RunSummary]) -> list[RunSummary]:
    """The runs, with what several of them differ in around the decoder in their labels.

    That is the model, its dtype, how it is prompted, and the first items that a run left out.
    """
    parts = [_around(run) for run in runs]
    several = [key for key in parts[0] if len({part[key] for part in parts}) > 1] if parts else []
    if not several:
        return list(runs)
    return [
        replace(
            run,
            settings={**run.settings, "name": ", ".join([run.label, *(part[key] for key in several if part[key])])},
        )
        for run, part in zip(runs, parts, strict=True)
    ]


def described_model(run: RunSummary) -> str:
    """What a run's decoder was run on, for a caption: the model, its dtype, and what prompts and items are unusual."""
    return f"model {', '.join(part for part in _around(run).values() if part)}"


def _around(run: RunSummary) -> dict[str, str]:
    """What a run's decoder was run on, in words; nothing where that is what a model does by itself."""
    settings, model = run.settings, run.settings["model"]
    return {
        "name": str(model.get("name") or ""),
        "dtype": str(model.get("dtype") or "").removeprefix("torch."),
        "chat": "chat" if settings.get("chat") else "",
        "skip": f"from item {settings['skip'] + 1}" if settings.get("skip") else "",
        "format": f"prompt format {settings['prompt_format']!r}" if settings.get("prompt_format") else "",
    }


def merged(runs: Sequence[RunSummary]) -> list[RunSummary]:
    """The runs, with those put together that have the same name and settings and no task in common."""
    found: dict[str, list[RunSummary]] = {}
    for run in runs:
        same = [run.label, run.settings["draws"], comparable(run, ())]
        parts = found.setdefault(json.dumps(same, sort_keys=True), [])
        for place, part in enumerate(parts):
            if not set(part.tasks) & set(run.tasks):
                environments = [*part.environments, *run.environments]
                parts[place] = replace(part, environments=environments, tasks={**part.tasks, **run.tasks})
                break
        else:
            parts.append(run)
    return [run for parts in found.values() for run in parts]


def with_items(runs: Sequence[RunSummary]) -> list[RunSummary]:
    """The runs, put together as `merged` does, that have an item on record."""
    return [run for run in merged(runs) if any(task.count for task in run.tasks.values())]


def main_runs(runs: Sequence[RunSummary]) -> list[RunSummary]:
    """The runs that belong in the main table: all but those that another table shows beside one which is not varied.

    Where there is none with the default, all of them: who names two runs that differ in one setting wants to see these
    compared.
    """
    default = as_plain(DyStruct())
    varied: set[int] = set()
    for names in (COMPONENTS, *((setting,) for setting in SENSITIVITY)):
        for family in families(runs, names):
            changed = {
                id(run) for run in family if any(setting_of(run, name) != in_settings(default, name) for name in names)
            }
            if len(changed) < len(family):
                varied |= changed
    return [run for run in runs if id(run) not in varied]


def ordered(runs: Iterable[RunSummary]) -> list[RunSummary]:
    """Runs by model, budget and new tokens, ours last, in the order in which they were given."""

    def place(run: RunSummary) -> tuple[str, int, int, bool]:
        return run.settings["model"]["name"], -run.settings["budget"], run.settings["max_new_tokens"], is_ours(run)

    return sorted(runs, key=place)


def common_items(one: TaskSummary, two: TaskSummary) -> int:
    """With how many items both begin, of a task that they have in common; 0 if that is not known."""
    shorter = min(one.end, two.end)
    if one.digest == two.digest:
        return shorter
    chains = [task.chain[: CHAIN * shorter] for task in (one, two)]
    return shorter if chains[0] and chains[0] == chains[1] else 0


def same_items(one: RunSummary, two: RunSummary) -> bool:
    """Whether two runs have the same items, as far as the shorter goes, of every task that both have."""
    return all(common_items(task, two.tasks[name]) for name, task in one.tasks.items() if name in two.tasks)


def families(runs: Sequence[RunSummary], varied: tuple[str, ...]) -> Iterator[list[RunSummary]]:
    """Groups of DyStruct runs that differ in the varied settings only, with two or more values of them.

    In the components these are the values that have a name; other ways to weld are no parts left out.
    """
    ours = [run for run in runs if is_ours(run)]
    if varied == COMPONENTS:
        ours = [run for run in ours if configuration(run) in CONFIGURATIONS]
    for group in alike(ours, varied):
        by_values = {json.dumps([setting_of(run, name) for name in varied]): run for run in group}
        if len(by_values) > 1:
            yield list(by_values.values())


def alike(runs: Iterable[RunSummary], varied: Iterable[str], *around: str) -> list[list[RunSummary]]:
    """Groups of runs that differ in the varied settings of the decoder, and in those around it, only.

    Any two of a group have the same items of every task that both have, or one the first items of the other.
    """
    groups: dict[str, list[list[RunSummary]]] = {}
    for run in runs:
        parts = groups.setdefault(json.dumps(comparable(run, varied, *around), sort_keys=True), [])
        part = next((part for part in parts if all(same_items(run, other) for other in part)), [])
        if not part:
            parts.append(part)
        part.append(run)
    return [part for parts in groups.values() for part in parts]


def circumstances(run: RunSummary, *without: str) -> dict[str, Any]:
    """All but the decoder, and the settings named, that two runs must share to be compared."""
    return {
        "model": [run.settings["model"].get(name) for name in ("name", "fingerprint", "dtype")],
        **{name: value for name, value in run.settings.items() if name not in {*_OWN, *without}},
    }


def alike_but_decoder(one: RunSummary, two: RunSummary) -> bool:
    """Whether two runs may stand beside each other: all but their decoders alike, and how many items they have."""
    return circumstances(one, "limit", "skip") == circumstances(two, "limit", "skip")


def comparable(run: RunSummary, varied: Iterable[str], *around: str) -> list[Any]:
    """What two runs must share to differ in the varied settings of the decoder, and in those around it, only."""
    settings = run.settings
    return [
        circumstances(run, *around),
        settings["model"].get("weights"),
        _without(settings["decoder_settings"], varied),
    ]


def setting_of(run: RunSummary, name: str) -> Any:
    """The value of a setting of a run's decoder, such as prior.max_length."""
    return in_settings(run.settings["decoder_settings"], name)


def changed_settings(run: RunSummary) -> dict[str, Any]:
    """What a run's decoder, one of ours, has otherwise than by default, but for structure, passes and weights."""
    told, default = (_flat(of) for of in (run.settings["decoder_settings"], as_plain(DyStruct())))
    apart = {"decoder", "structure", "passes"}
    return {
        name: value
        for name, value in told.items()
        if name not in apart and not name.startswith("weights") and default.get(name) != value
    }


def _flat(settings: Mapping[str, Any], place: str = "") -> dict[str, Any]:
    """Settings by their names, with points between a part and what is in it."""
    found: dict[str, Any] = {}
    for name, value in settings.items():
        found |= _flat(value, f"{place}{name}.") if isinstance(value, dict) else {f"{place}{name}": value}
    return found


def in_settings(settings: Mapping[str, Any], name: str) -> Any:
    """The value of a setting among those of a decoder as plain data."""
    value: Any = settings
    for part in name.split("."):
        value = value[part]
    return value


def _without(settings: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    rest = json.loads(json.dumps(settings))
    for name in names:
        *holders, last = name.split(".")
        inner = rest
        for holder in holders:
            inner = inner[holder]
        inner.pop(last, None)
    return rest


def configuration(run: RunSummary) -> tuple[Any, ...]:
    """The values of a run's components: one of `CONFIGURATIONS`, or another."""
    return tuple(setting_of(run, name) for name in COMPONENTS)


def is_ours(run: RunSummary) -> bool:
    """Whether a run's decoder is DyStruct, with whatever structure."""
    return run.settings["decoder_settings"]["decoder"] == DyStruct.__name__
