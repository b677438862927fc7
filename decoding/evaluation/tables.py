"""The paper's tables from summaries of runs: results, ablations, sensitivity, paired tests, efficiency.

A run is placed by its settings alone. What a table compares must agree in everything else: model, budget, limits,
items and seeds. Knows summaries; neither folders nor files.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ..dystruct import DyStruct
from ..plain import as_plain
from .pools import pooled
from .statistics import mcnemar, mean_of_means
from .summary import RunSummary, TaskSummary
from .table import Cell, Number, Table, number, percentage
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


def all_tables(runs: Sequence[RunSummary]) -> list[Table]:
    """Every table for which there are runs; those of one decoder on different tasks count as one run."""
    tables: list[Table] = []
    runs = [run for run in merged(runs) if any(task.count for task in run.tasks.values())]
    if runs:
        tables += [results(runs), efficiency(runs), texts(runs)]
    tables += ablations(runs)
    for setting in SENSITIVITY:
        tables += sensitivity(runs, setting)
    paired = paired_tests(runs)
    return [*tables, paired] if paired.rows else tables


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


def results(runs: Sequence[RunSummary]) -> Table:
    """Accuracy in percent with standard errors, decoders by tasks: the shape of the paper's Table 1."""
    shown = main_runs(runs)
    tasks = _tasks(shown)
    rows = []
    for run in ordered(shown):
        items = sum(task.count for task in run.tasks.values())
        rows.append((*_head(run), items, *_accuracies(run, tasks)))
    caption = "Accuracy in percent ± standard error, at most so many forward passes and new tokens."
    return Table("results", caption, ("decoder", "passes", "tokens", "items", *_with_mean(tasks)), tuple(rows))


def efficiency(runs: Sequence[RunSummary]) -> Table:
    """What an item costs: forward passes and seconds, and what it gives, by decoder and task."""
    rows: list[tuple[Cell, ...]] = []
    for run in ordered(runs):
        for name, task in pooled(run).items():
            passes, tokens = _of(task, "forward_passes"), _of(task, "useful_tokens")
            a_pass = Number(tokens.value / passes.value, digits=2) if passes and tokens and passes.value else None
            kinds = ", ".join(f"{kind} {value:.1f}" for kind, value in task.passes.items())
            rows.append(
                (
                    *_head(run), name, percentage(task.accuracy), number(passes), kinds,
                    number(_of(task, "seconds"), 2), number(tokens), a_pass,
                )
            )  # fmt: skip
    columns = (
        "decoder", "passes", "tokens", "task", "accuracy", "passes an item", "by kind", "seconds an item",
        "useful tokens", "useful tokens a pass",
    )  # fmt: skip
    return Table("efficiency", "Means an item; seconds at the run's batch size.", columns, tuple(rows))


def texts(runs: Sequence[RunSummary]) -> Table:
    """What the texts are like, by decoder and task."""
    rows: list[tuple[Cell, ...]] = []
    for run in ordered(runs):
        for name, task in pooled(run).items():
            share = {figure: _of(task, figure) for figure in ("empty", "repetition", "map_probability", "confidence")}
            rows.append(
                (
                    *_head(run), name, task.count, number(_of(task, "useful_tokens")),
                    number(_of(task, "wasted_tokens")), number(_of(task, "windows")), number(_of(task, "blocks")),
                    percentage(share["empty"]), percentage(share["repetition"]), number(share["confidence"], 3),
                    number(share["map_probability"], 3),
                    number(_of(task, "entropy"), 2), ", ".join(f"{why} {n}" for why, n in task.stop_reasons.items()),
                )
            )  # fmt: skip
    columns = (
        "decoder", "passes", "tokens", "task", "items", "useful", "wasted", "windows", "blocks", "empty %",
        "repeated %", "confidence", "P(MAP)", "entropy", "stopped by",
    )  # fmt: skip
    caption = (
        "Means an item: useful and wasted tokens, windows, blocks, empty answers, repeated sequences of 4 tokens, "
        "confidence, and a window's P(MAP | O) and posterior entropy in nats."
    )
    return Table("texts", caption, columns, tuple(rows))


def ablations(runs: Sequence[RunSummary]) -> list[Table]:
    """DyStruct without its schedule, its welding, and both, beside the fixed decoder: one table for each family."""
    tables: list[Table] = []
    for family in _families(runs, COMPONENTS):
        tasks = _tasks(family)
        chosen = {_configuration(run): run for run in family}
        rows: list[tuple[Cell, ...]] = [
            (name, *_accuracies(chosen[parts], tasks)) for parts, name in CONFIGURATIONS.items() if parts in chosen
        ]
        rows += [
            (run.label, *_accuracies(run, tasks))
            for run in runs
            if run.settings["decoder_settings"]["decoder"] == "Fixed"
            and _circumstances(run) == _circumstances(family[0])
            and all(_same_items(run, other) for other in family)
        ]
        caption = (
            f"Accuracy in percent ± standard error without parts of the method ({_described(family[0], COMPONENTS)})."
        )
        columns = ("configuration", *_with_mean(tasks))
        tables.append(Table(_numbered("ablations", len(tables)), caption, columns, tuple(rows)))
    return tables


def sensitivity(runs: Sequence[RunSummary], setting: str) -> list[Table]:
    """Accuracy, new tokens and blocks against one setting, all else equal: one table for each family of two or more."""
    name, meaning, heading = SENSITIVITY[setting]
    tables: list[Table] = []
    for family in _families(runs, (setting,)):
        by_value = sorted(family, key=lambda run: _setting(run, setting))
        tasks = _tasks(family)
        rows: list[tuple[Cell, ...]] = []
        for run in by_value:
            found, cells = pooled(run), []
            for task in tasks:
                summary = found.get(task)
                cells += [percentage(_of(summary, "correct")), _tokens(summary), number(_of(summary, "blocks"))]
            value = _setting(run, setting)
            of_all = _accuracies(run, tasks)[len(tasks) :]
            rows.append((Number(value, digits=0 if isinstance(value, int) else 2), *cells, *of_all))
        of_all = _with_mean(tasks)[len(tasks) :]
        columns = (heading, *(("acc.", "tokens", "blocks") * len(tasks)), *of_all)
        groups = (("", 1), *((task, 3) for task in tasks), *(("", 1) for _ in of_all))
        told = _described(family[0], (setting,))
        caption = f"Accuracy in percent, new tokens and blocks an item against the {meaning} ({told})."
        tables.append(Table(_numbered(name, len(tables)), caption, columns, tuple(rows), groups))
    return tables


def paired_tests(runs: Sequence[RunSummary]) -> Table:
    """McNemar's test of each of our decoders against each other one, at equal limits, on the items that both have.

    By task and over all tasks together; under several seeds or draws, the first of each. Runs may be of more and of
    fewer items of a task, if it is known which ones those are.
    """
    rows: list[tuple[Cell, ...]] = []
    shown = ordered(main_runs(runs))
    for ours in shown:
        for other in shown:
            if not _is_ours(ours) or (_is_ours(other) and shown.index(other) <= shown.index(ours)):
                continue
            if _circumstances(ours, "limit") == _circumstances(other, "limit"):
                rows += _paired(other, ours)
    columns = (
        "first", "second", "passes", "task", "items", "first %", "second %", "only first", "only second", "χ²",
        "p corrected", "p exact",
    )  # fmt: skip
    caption = (
        "Paired McNemar tests: items that only one of two decoders answers right, the statistic with continuity "
        "correction, its p-value and the exact two-sided one. No correction for the number of tests."
    )
    return Table("mcnemar", caption, columns, tuple(rows))


def main_runs(runs: Sequence[RunSummary]) -> list[RunSummary]:
    """The runs that belong in the main table: all but those that another table shows beside one which is not varied.

    Where there is none with the default, all of them: who names two runs that differ in one setting wants to see these
    compared.
    """
    default = as_plain(DyStruct())
    varied: set[int] = set()
    for names in (COMPONENTS, *((setting,) for setting in SENSITIVITY)):
        for family in _families(runs, names):
            changed = {id(run) for run in family if any(_setting(run, name) != _in(default, name) for name in names)}
            if len(changed) < len(family):
                varied |= changed
    return [run for run in runs if id(run) not in varied]


def ordered(runs: Iterable[RunSummary]) -> list[RunSummary]:
    """Runs by model, budget and new tokens, ours last, in the order in which they were given."""

    def place(run: RunSummary) -> tuple[str, int, int, bool]:
        return run.settings["model"]["name"], -run.settings["budget"], run.settings["max_new_tokens"], _is_ours(run)

    return sorted(runs, key=place)


def _paired(first: RunSummary, second: RunSummary) -> Iterator[tuple[Cell, ...]]:
    one, two = pooled(first), pooled(second)
    right: list[tuple[list[bool], list[bool]]] = []
    for task in (task for task in one if task in two):
        count = _common(one[task], two[task])
        signs = [next(iter(found[task].right.values()), "")[:count] for found in (one, two)]
        both = [(a == "1", b == "1") for a, b in zip(*signs, strict=False) if {a, b} <= {"0", "1"}]
        if both:
            right.append(([a for a, _ in both], [b for _, b in both]))
            yield (first.label, second.label, first.settings["budget"], task, *_tested(*right[-1]))
    if len(right) > 1:
        every = [[sign for pair in right for sign in pair[side]] for side in (0, 1)]
        yield (first.label, second.label, first.settings["budget"], "all", *_tested(*every))


def _common(one: TaskSummary, two: TaskSummary) -> int:
    """With how many items both begin, of a task that they have in common; 0 if that is not known."""
    shorter = min(one.expected, two.expected)
    if one.digest == two.digest:
        return shorter
    chains = [task.chain[: CHAIN * shorter] for task in (one, two)]
    return shorter if chains[0] and chains[0] == chains[1] else 0


def _same_items(one: RunSummary, two: RunSummary) -> bool:
    """Whether two runs have the same items, as far as the shorter goes, of every task that both have."""
    return all(_common(task, two.tasks[name]) for name, task in one.tasks.items() if name in two.tasks)


def _tested(first: Sequence[bool], second: Sequence[bool]) -> tuple[Cell, ...]:
    found = mcnemar(first, second)
    return (
        found.count, Number(found.first_right / found.count, scale=100),
        Number(found.second_right / found.count, scale=100), found.only_first, found.only_second,
        Number(found.statistic, digits=2),
        Number(found.p_corrected, digits=4, scientific=True), Number(found.p_exact, digits=4, scientific=True),
    )  # fmt: skip


def _families(runs: Sequence[RunSummary], varied: tuple[str, ...]) -> Iterator[list[RunSummary]]:
    """Groups of DyStruct runs that differ in the varied settings only, with two or more values of them.

    In the components these are the values that have a name; other ways to weld are no parts left out.
    """
    ours = [run for run in runs if _is_ours(run)]
    if varied == COMPONENTS:
        ours = [run for run in ours if _configuration(run) in CONFIGURATIONS]
    for group in alike(ours, varied):
        by_values = {json.dumps([_setting(run, name) for name in varied]): run for run in group}
        if len(by_values) > 1:
            yield list(by_values.values())


def alike(runs: Iterable[RunSummary], varied: Iterable[str], *around: str) -> list[list[RunSummary]]:
    """Groups of runs that differ in the varied settings of the decoder, and in those around it, only.

    Any two of a group have the same items of every task that both have, or one the first items of the other.
    """
    groups: dict[str, list[list[RunSummary]]] = {}
    for run in runs:
        parts = groups.setdefault(json.dumps(comparable(run, varied, *around), sort_keys=True), [])
        part = next((part for part in parts if all(_same_items(run, other) for other in part)), [])
        if not part:
            parts.append(part)
        part.append(run)
    return [part for parts in groups.values() for part in parts]


def _circumstances(run: RunSummary, *without: str) -> dict[str, Any]:
    """All but the decoder, and the settings named, that two runs must share to be compared."""
    return {
        "model": [run.settings["model"].get(name) for name in ("name", "fingerprint", "dtype")],
        **{name: value for name, value in run.settings.items() if name not in {*_OWN, *without}},
    }


def comparable(run: RunSummary, varied: Iterable[str], *around: str) -> list[Any]:
    """What two runs must share to differ in the varied settings of the decoder, and in those around it, only."""
    settings = run.settings
    return [
        _circumstances(run, *around),
        settings["model"].get("weights"),
        _without(settings["decoder_settings"], varied),
    ]


def _setting(run: RunSummary, name: str) -> Any:
    return _in(run.settings["decoder_settings"], name)


def _in(settings: Mapping[str, Any], name: str) -> Any:
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


def _configuration(run: RunSummary) -> tuple[Any, ...]:
    return tuple(_setting(run, name) for name in COMPONENTS)


def _is_ours(run: RunSummary) -> bool:
    return run.settings["decoder_settings"]["decoder"] == DyStruct.__name__


def _head(run: RunSummary) -> tuple[Cell, ...]:
    return run.label, run.settings["budget"], run.settings["max_new_tokens"]


def _described(run: RunSummary, varied: Iterable[str]) -> str:
    settings = run.settings["decoder_settings"]
    told = [f"structure {settings['structure']}", f"passes {settings['passes']}", f"budget {run.settings['budget']}"]
    default = as_plain(DyStruct())
    told += [
        f"{name} {_setting(run, name)}"
        for name in ("weld", "schedule", *SENSITIVITY)
        if name not in varied and _setting(run, name) != _in(default, name)
    ]
    return ", ".join(told)


def _tasks(runs: Iterable[RunSummary]) -> list[str]:
    return list(dict.fromkeys(task for run in runs for task in pooled(run)))


def _of(task: TaskSummary | None, figure: str) -> Any:
    return None if task is None else task.figures.get(figure)


def _tokens(task: TaskSummary | None) -> Number | None:
    useful, wasted = _of(task, "useful_tokens"), _of(task, "wasted_tokens")
    return Number(useful.value + wasted.value) if useful and wasted else None


def _with_mean(tasks: Sequence[str]) -> tuple[str, ...]:
    """The columns of `_accuracies`."""
    return (*tasks, "mean") if len(tasks) > 1 else tuple(tasks)


def _accuracies(run: RunSummary, tasks: Sequence[str]) -> tuple[Cell, ...]:
    """A run's accuracy on each task and, of several, their mean, which counts every task alike."""
    found = [_of(pooled(run).get(task), "correct") for task in tasks]
    cells = [percentage(accuracy) for accuracy in found]
    return tuple(cells) if len(tasks) == 1 else (*cells, percentage(mean_of_means(found)))


def _numbered(name: str, before: int) -> str:
    return name if not before else f"{name}-{before + 1}"
