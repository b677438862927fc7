"""`dystruct eval`: a decoder on tasks with known answers, item by item on record, to be gone on with after any stop."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from ..errors import UserError
from ..wording import left
from . import eval_options as own
from . import options
from .model_options import Chat, Model, Placement, WeightedSource
from .prompt_format import PromptFormat
from .reporting import complain, memory_errors, status

if TYPE_CHECKING:
    from ..evaluation.local import Progress
    from ..evaluation.summary import RunSummary

Place = TypeVar("Place", bound=Placement)


def evaluate(
    *,
    folder: own.Folder,
    tasks: own.Tasks = "",
    decoder: own.Decoder = "dystruct",
    name: own.Name = None,
    model: Model = "tiny",
    chat: Chat = False,
    prompt_format: PromptFormat = None,
    source: WeightedSource,
    split: own.Split = "test",
    limit: own.Limit = None,
    skip: own.Skip = 0,
    seeds: own.Seeds = "0",
    draws: own.Draws = 1,
    tokens: options.Tokens,
    batch_size: options.BatchSize = 8,
    prefix_cache: options.PrefixCache = False,
    append_cache: options.AppendCache = False,
    execute_code: own.ExecuteCode = False,
    shots: own.Shots = None,
    data: own.Data = None,
    include_path: own.OwnTasks = None,
    mc_samples: own.Likelihood = 128,
    mc_batch_size: own.LikelihoodBatch = 32,
    mc_guidance: own.LikelihoodGuidance = 0.0,
    samples: own.Samples = False,
    traces: own.Traces = True,
) -> None:
    """Run a decoder on tasks, score its answers, and keep every item with its trace in FOLDER."""
    files = own.named_files(data)
    caching = options.caching(prefix_cache, append_cache, compiled=source.compiled)
    source.check_use([decoder])
    with status("starting"):
        from ..backbone import model_folder
        from ..evaluation.checks import check_code, check_run, need_harness
        from ..evaluation.likelihood import LikelihoodSettings
        from ..evaluation.settings import RunSettings, identity
        from ..evaluation.tasks import are_embedded

        settings = RunSettings(
            decoder=decoder,
            tasks=tuple(filter(None, map(str.strip, tasks.split(",")))),
            name=name,
            split=split,
            limit=limit,
            skip=skip,
            seeds=own.numbers(seeds, "--seeds"),
            draws=draws,
            max_new_tokens=tokens.max_new_tokens,
            budget=tokens.budget,
            temperature=tokens.temperature,
            stop=tuple(tokens.stop or ()),
            chat=chat,
            prompt_format=prompt_format,
            batch_size=batch_size,
            prefix_cache=caching,
            shots=shots,
            execute_code=execute_code,
            traces=traces,
        )
        check_run(settings)
        check_code(settings)
        likelihood = LikelihoodSettings(mc_samples, mc_batch_size, mc_guidance)
        embedded = are_embedded(settings.tasks)
    if embedded and (files or include_path or likelihood != LikelihoodSettings()):
        raise UserError(
            "--data, --include-path and the --mc options have no use with the embedded tasks; leave them out."
        )
    if not embedded:
        need_harness()
        source = for_harness(source)
    loaded = source.load(model)
    told = identity(loaded, model_folder(model, source.revision))
    alone = "give a --device-map, or another folder and a smaller --dtype or --max-new-tokens"
    with memory_errors(batch_size, alone):
        if embedded:
            from ..evaluation.local import run_local, write_samples

            run_local(settings, loaded, told, folder, reporter())
            if samples:
                write_samples(settings, folder)
        else:
            from ..evaluation.harness_run import HarnessSettings, run_harness

            harness = HarnessSettings(files, likelihood, samples, include_path)
            if not run_harness(settings, harness, loaded, told, folder, reporter()):
                return  # another process has them all
    finish(folder)


def for_harness(placement: Place) -> Place:
    """Where a run of the harness computes: of several processes, each on a device of its own, unless one is given."""
    from ..evaluation.harness import own_device

    if placement.device is not None or placement.device_map is not None:
        return placement
    return replace(placement, device=own_device())


def reporter(before: str = "") -> Callable[[Progress], None]:
    """Says on standard error how far a run is, at its beginning and then at most every ten seconds."""
    last = 0.0

    def report(progress: Progress) -> None:
        nonlocal last
        if progress.seconds_left is None:
            done = "nothing is on record yet" if not progress.done else f"{progress.done} are on record"
            complain(f"{before}{progress.count} items, {done}, {progress.count - progress.done} to go.")
        elif time.monotonic() - last > 10 or progress.done == progress.count:
            last = time.monotonic()
            complain(
                f"{before}{progress.done} of {progress.count} done{_right(progress)}, {left(progress.seconds_left)}."
            )

    return report


def finish(folder: Path) -> None:
    """Write a run's summary and show it."""
    from ..evaluation.summary import save_summary

    show(save_summary(folder))


def show(summary: RunSummary) -> None:
    """Print a table of a run's tasks."""
    from rich.console import Console
    from rich.table import Table as RichTable
    from rich.text import Text

    from ..evaluation.pools import pooled

    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=120)
    table = RichTable(title=Text(summary.label), title_justify="left")
    table.add_column("task", style="bold")
    for heading in (
        "items",
        "correct %",
        "useful tokens",
        "wasted",
        "windows",
        "blocks",
        "passes",
        "seconds",
        "empty %",
    ):
        table.add_column(heading, justify="right")
    for name, task in pooled(summary).items():
        counts = ("useful_tokens", "wasted_tokens", "windows", "blocks", "forward_passes", "seconds")
        values = [_shown(task.figures.get(figure), 1, error=False) for figure in counts]
        right = _shown(task.figures.get("correct"), 100)
        table.add_row(name, str(task.count), right, *values, _shown(task.figures.get("empty"), 100, error=False))
    console.print(table)


def _shown(mean: Any, scale: float, *, error: bool = True) -> str:
    if mean is None:
        return ""
    behind = f" ± {mean.error * scale:.1f}" if error and mean.error is not None else ""
    return f"{mean.value * scale:.1f}{behind}"


def _right(progress: Progress) -> str:
    return f", {progress.correct} right" if progress.correct is not None else ""
