"""The paper's tables from summaries of runs: results, ablations, sensitivity, efficiency; and all of them, in order.

A run is placed by its settings alone (see `comparison`). Knows summaries; neither folders nor files.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from .comparison import (
    COMPONENTS,
    CONFIGURATIONS,
    SENSITIVITY,
    changed_settings,
    circumstances,
    configuration,
    described_model,
    families,
    main_runs,
    ordered,
    same_items,
    setting_of,
    with_items,
)
from .paired import paired_tests
from .pools import mean_of_tasks, pooled
from .summary import RunSummary, TaskSummary
from .table import Cell, Number, Table, number, percentage


def all_tables(runs: Sequence[RunSummary]) -> list[Table]:
    """Every table for which there are runs; those of one decoder on different tasks count as one run."""
    tables: list[Table] = []
    runs = with_items(runs)
    if runs:
        tables += [results(runs), efficiency(runs), texts(runs)]
    tables += ablations(runs)
    for setting in SENSITIVITY:
        tables += sensitivity(runs, setting)
    paired = paired_tests(runs)
    return [*tables, paired] if paired.rows else tables


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
    for family in families(runs, COMPONENTS):
        tasks = _tasks(family)
        chosen = {configuration(run): run for run in family}
        rows: list[tuple[Cell, ...]] = [
            (name, *_accuracies(chosen[parts], tasks)) for parts, name in CONFIGURATIONS.items() if parts in chosen
        ]
        rows += [
            (run.label, *_accuracies(run, tasks))
            for run in runs
            if run.settings["decoder_settings"]["decoder"] == "Fixed"
            and circumstances(run) == circumstances(family[0])
            and all(same_items(run, other) for other in family)
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
    for family in families(runs, (setting,)):
        by_value = sorted(family, key=lambda run: setting_of(run, setting))
        tasks = _tasks(family)
        rows: list[tuple[Cell, ...]] = []
        for run in by_value:
            found, cells = pooled(run), []
            for task in tasks:
                summary = found.get(task)
                cells += [percentage(_of(summary, "correct")), _tokens(summary), number(_of(summary, "blocks"))]
            value = setting_of(run, setting)
            of_all = _accuracies(run, tasks)[len(tasks) :]
            rows.append((Number(value, digits=0 if isinstance(value, int) else 2), *cells, *of_all))
        of_all = _with_mean(tasks)[len(tasks) :]
        columns = (heading, *(("acc.", "tokens", "blocks") * len(tasks)), *of_all)
        groups = (("", 1), *((task, 3) for task in tasks), *(("", 1) for _ in of_all))
        told = _described(family[0], (setting,))
        caption = f"Accuracy in percent, new tokens and blocks an item against the {meaning} ({told})."
        tables.append(Table(_numbered(name, len(tables)), caption, columns, tuple(rows), groups))
    return tables


def _head(run: RunSummary) -> tuple[Cell, ...]:
    return run.label, run.settings["budget"], run.settings["max_new_tokens"]


def _described(run: RunSummary, varied: Iterable[str]) -> str:
    settings = run.settings["decoder_settings"]
    told = [described_model(run)]
    told += [f"structure {settings['structure']}", f"passes {settings['passes']}", f"budget {run.settings['budget']}"]
    told += [f"{name} {value}" for name, value in changed_settings(run).items() if name not in varied]
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
    found = pooled(run)
    cells = [percentage(_of(found.get(task), "correct")) for task in tasks]
    return tuple(cells) if len(tasks) == 1 else (*cells, percentage(mean_of_tasks(run, "correct", tasks)))


def _numbered(name: str, before: int) -> str:
    return name if not before else f"{name}-{before + 1}"
