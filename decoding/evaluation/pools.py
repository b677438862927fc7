"""Tasks that the literature reports together: BBH's 27 and MATH's 7 subjects, each as one."""

from __future__ import annotations

import math
from collections.abc import Sequence

from .statistics import Mean, mean_of_means
from .summary import RunSummary, TaskSummary

PREFIXES = {"bbh_": "bbh", "minerva_math_": "minerva_math"}


def pooled(run: RunSummary) -> dict[str, TaskSummary]:
    """A run's tasks by name, subtasks put together under their common one."""
    groups: dict[str, list[TaskSummary]] = {}
    for name, task in run.tasks.items():
        common = next((pool for prefix, pool in PREFIXES.items() if name.startswith(prefix)), name)
        groups.setdefault(common, []).append(task)
    return {name: tasks[0] if len(tasks) == 1 else _together(tasks) for name, tasks in groups.items()}


def mean_of_tasks(run: RunSummary, figure: str, tasks: Sequence[str]) -> Mean | None:
    """A figure's mean over tasks, each counting alike; None if a run lacks it in one of them."""
    found = pooled(run)
    return mean_of_means([found[task].figures.get(figure) if task in found else None for task in tasks])


def _together(tasks: Sequence[TaskSummary]) -> TaskSummary:
    """All items as one task's; the standard error is that of a stratified sample."""
    figures = {}
    for name in dict.fromkeys(name for task in tasks for name in task.figures):
        parts = [task.figures[name] for task in tasks if name in task.figures]
        count = sum(part.count for part in parts)
        errors = [part.error for part in parts]
        known = [error for error in errors if error is not None]
        error = None
        if len(known) == len(parts):
            error = math.sqrt(sum((part.count * e) ** 2 for part, e in zip(parts, known, strict=True))) / count
        figures[name] = Mean(sum(part.value * part.count for part in parts) / count, error, count)
    count = sum(task.count for task in tasks)
    passes = dict.fromkeys(kind for task in tasks for kind in task.passes)
    reasons = dict.fromkeys(reason for task in tasks for reason in task.stop_reasons)
    streams = [key for key in tasks[0].right if all(key in task.right for task in tasks)]
    return TaskSummary(
        expected=sum(task.expected for task in tasks),
        count=count,
        figures=figures,
        passes={k: sum(task.passes.get(k, 0.0) * task.count for task in tasks) / max(count, 1) for k in passes},
        kinds={kind: counts for task in tasks for kind, counts in task.kinds.items()},
        stop_reasons={reason: sum(task.stop_reasons.get(reason, 0) for task in tasks) for reason in reasons},
        right={key: "".join(task.right[key] for task in tasks) for key in streams},
        digest=" ".join(task.digest for task in tasks),
    )
