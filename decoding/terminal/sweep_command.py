"""`dystruct sweep`: the runs that a file declares, one after another, each to be gone on with after any stop.

What is wrong with the file, or with the first model and its prompts, is told before anything is run. From then on a run
that fails is told and left, and the others are made.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import UserError
from ..wording import left
from .eval_command import for_harness, need_harness, reporter
from .eval_options import ExecuteCode, Folder
from .model_options import Placement
from .options import named_path
from .reporting import complain, memory_errors, status

if TYPE_CHECKING:
    from ..backbone import Backbone
    from ..evaluation.sweep import PlannedRun, State

SweepFile = Annotated[
    Path,
    typer.Argument(metavar="FILE", help="The runs, a TOML file.", show_default=False, parser=named_path),
]
Limit = Annotated[
    int | None,
    typer.Option(
        "--limit", min=1, metavar="N", show_default=False,
        help="The first N items of each task, in place of the file's limit. A larger one later prolongs the runs.",
    ),
]  # fmt: skip
Skip = Annotated[
    int | None,
    typer.Option(
        "--skip", min=0, metavar="N", show_default=False,
        help="Of the embedded tasks: leave out the first N items, in place of the file's skip. Runs elsewhere may have "
        "them, and tables count both as one.",
    ),
]  # fmt: skip
BatchSize = Annotated[
    int | None,
    typer.Option(
        "--batch-size", min=1, metavar="N", show_default=False,
        help="Prompts decoded together, in place of the file's batch_size; it may differ from one attempt to the next.",
    ),
]  # fmt: skip
Only = Annotated[
    list[str] | None,
    typer.Option(
        "--only", metavar="NAME", show_default=False,
        help="Of the file's runs this one alone, by the name of its folder; once for each.",
    ),
]  # fmt: skip
Status = Annotated[
    bool, typer.Option("--status", help="Run nothing: say how far each run is.", show_default=False)
]  # fmt: skip

ALONE = "give a --device-map, or another folder and a smaller --dtype or max_new_tokens"


def sweep(
    *,
    file: SweepFile,
    folder: Folder,
    placement: Placement,
    limit: Limit = None,
    skip: Skip = None,
    batch_size: BatchSize = None,
    only: Only = None,
    execute_code: ExecuteCode = False,
    only_status: Status = False,
) -> None:
    """Make the runs that FILE declares, in folders below FOLDER; those that stand there are gone on with."""
    with status("starting"):
        from ..evaluation.checks import check_code
        from ..evaluation.summary import save_summary
        from ..evaluation.sweep import as_begun, is_scored, read_sweep, state, texts
        from ..evaluation.sweep import only as chosen
        from ..evaluation.tasks import are_embedded

        planned = read_sweep(file, execute_code=execute_code, limit=limit, skip=skip, batch_size=batch_size)
        if only:
            planned = chosen(planned, only)
    before = {run.folder: state(run, folder) for run in planned}
    if only_status:
        for run in planned:
            found = before[run.folder]
            typer.echo(f"{run.folder}: {_told(found, is_scored(run, folder))}")
        return
    for run in planned:
        if not are_embedded(run.settings.tasks):
            need_harness()
        check_code(run.settings)
    finished = {run.folder for run in planned if before[run.folder].finished and is_scored(run, folder)}
    for name in sorted(finished):
        save_summary(folder / name)  # what stands there may be from before the run was prolonged
    waiting = [as_begun(run, folder) for run in planned if run.folder not in finished]
    complain(f"{len(planned)} runs, {len(planned) - len(waiting)} of them finished, {len(waiting)} to go.")
    places = [placement if are_embedded(run.settings.tasks) else for_harness(placement) for run in waiting]
    wanted = [_Source(run.model, run.revision, run.weights, place) for run, place in zip(waiting, places, strict=True)]
    # of each run, what is left of it in texts; where that is not known, all count alike
    known = [(texts(run), before[run.folder].done) for run in waiting]
    sizes = [1 if any(of is None for of, _ in known) else max((of or 0) - done, 1) for of, done in known]
    order = list(dict.fromkeys(wanted))  # a model is loaded once, for all of its runs
    together = sorted(zip(waiting, wanted, sizes, strict=True), key=lambda each: order.index(each[1]))
    failed = _make(together, folder)
    if failed:
        raise UserError(
            f"{len(failed)} of {len(planned)} runs failed: {'; '.join(failed)}; mend what was said of each, and the "
            f"same command goes on."
        )


def _told(state: State, is_scored: bool) -> str:
    if state.count is None:
        return f"{state.done} done, of how many is not known" if state.done else "not begun"
    if state.finished:
        return "finished" if is_scored else f"{state.done} of {state.count}, not scored yet"
    return f"{state.done} of {state.count}"


@dataclass(frozen=True)
class _Source:
    """What a run's model is loaded from, and where it computes."""

    model: str
    revision: str | None
    weights: Path | None
    placement: Placement

    def load(self) -> Backbone:
        return self.placement.load(self.model, revision=self.revision, weights=self.weights)


def _make(waiting: Sequence[tuple[PlannedRun, _Source, int]], out: Path) -> list[str]:
    """Make runs, each given with what its model is loaded from and what is left of it; the names of those that failed.

    Raises UserError for what is wrong before the first one is begun. Of several processes that were launched together
    each run's results are put together at its end, so that all of them have to stop where one fails.
    """
    from ..evaluation.sweep import is_finished, naming
    from ..json_lines import Held
    from ..parallel import process_count

    if not waiting:
        return []
    source: _Source | None = waiting[0][1]
    with naming(waiting[0][0]):
        model: Backbone | None = waiting[0][1].load()
    _check_prompts([run for run, its, _ in waiting if its == source], model)
    failed, done, size, took = list[str](), 0, 0, 0.0
    for number, (run, needed, left_of_it) in enumerate(waiting, start=1):
        started = time.monotonic()
        try:
            if number > 1 and process_count() == 1 and is_finished(run, out):
                complain(f"{run.folder}: another process has made this run.")
                continue
            if needed != source:
                model = source = None  # two models need not fit beside each other
                model, source = needed.load(), needed
            with memory_errors(run.settings.batch_size, ALONE):
                _run(run, model, out, f"run {number} of {len(waiting)}, {run.folder}: ")
        except UserError as error:
            if process_count() > 1:
                raise UserError(f"{run.folder}: {error}") from error
            if isinstance(error, Held):
                complain(f"{run.folder}: another process is making this run; it is left to that one.")
            else:
                complain(f"{run.folder}: {error}")
                failed.append(run.folder)
            continue
        done, size, took = done + 1, size + left_of_it, took + time.monotonic() - started
        if number < len(waiting):
            rest = took / size * sum(its for _, _, its in waiting[number:])
            complain(f"{done} of {len(waiting)} runs done, {left(rest)}.")
    return failed


def _check_prompts(runs: Sequence[PlannedRun], model: Any) -> None:
    """Raise UserError if one of the runs has a prompt that the model cannot take."""
    from ..evaluation.local import check_prompts
    from ..evaluation.sweep import naming
    from ..evaluation.tasks import are_embedded

    seen = set()
    for run in runs:
        asked = run.settings
        alike = (
            asked.tasks, asked.split, asked.limit, asked.skip, asked.chat, asked.prompt_format, asked.max_new_tokens
        )  # fmt: skip
        if are_embedded(asked.tasks) and alike not in seen:
            seen.add(alike)
            with naming(run):
                check_prompts(asked, model)


def _run(run: PlannedRun, model: Any, out: Path, before: str) -> None:
    from ..backbone import model_folder
    from ..evaluation.likelihood import LikelihoodSettings
    from ..evaluation.settings import identity
    from ..evaluation.summary import save_summary
    from ..evaluation.tasks import are_embedded

    folder, told = out / run.folder, identity(model, model_folder(run.model, run.revision))
    if are_embedded(run.settings.tasks):
        from ..evaluation.local import run_local

        run_local(run.settings, model, told, folder, reporter(before))
    else:
        from ..evaluation.harness_run import HarnessSettings, run_harness

        settings = HarnessSettings({}, LikelihoodSettings())
        if not run_harness(run.settings, settings, model, told, folder, reporter(before)):
            return
    save_summary(folder)
