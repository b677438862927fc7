"""`dystruct sweep`: the runs that a file declares, one after another, each to be gone on with after any stop."""

from __future__ import annotations

import time
from collections.abc import Sequence
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
    from ..evaluation.sweep import PlannedRun

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
Status = Annotated[
    bool, typer.Option("--status", help="Run nothing: say how far each run is.", show_default=False)
]  # fmt: skip


def sweep(
    *,
    file: SweepFile,
    folder: Folder,
    placement: Placement,
    limit: Limit = None,
    execute_code: ExecuteCode = False,
    only_status: Status = False,
) -> None:
    """Make the runs that FILE declares, in folders below FOLDER; those that stand there are gone on with."""
    with status("starting"):
        from ..evaluation.checks import check_code
        from ..evaluation.summary import save_summary
        from ..evaluation.sweep import as_begun, is_scored, read_sweep, state, texts
        from ..evaluation.tasks import are_embedded

        planned = read_sweep(file, execute_code=execute_code, limit=limit)
    before = {run.folder: state(run, folder) for run in planned}
    if only_status:
        for run in planned:
            found = before[run.folder]
            of = "not begun" if found.count is None else f"{found.done} of {found.count}"
            typer.echo(f"{run.folder}: {'finished' if found.finished else of}")
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
    wanted = [(run.model, placement if are_embedded(run.settings.tasks) else for_harness(placement)) for run in waiting]
    # of each run, what is left of it in texts; where that is not known, all count alike
    known = [(texts(run), before[run.folder].done) for run in waiting]
    sizes = [1 if any(of is None for of, _ in known) else max((of or 0) - done, 1) for of, done in known]
    loaded: tuple[Any, Any] = (None, None)  # the last model, and what it was loaded from
    started = time.monotonic()
    for number, (run, needed) in enumerate(zip(waiting, wanted, strict=True), start=1):
        if loaded[1] != needed:
            loaded = None, None  # two models need not fit beside each other
            loaded = needed[1].load(run.model), needed
            later = zip(waiting[number - 1 :], wanted[number - 1 :], strict=True)
            _check_prompts([other for other, its in later if its == needed], loaded[0])
        try:
            with memory_errors(run.settings.batch_size):
                _run(run, loaded[0], folder, f"run {number} of {len(waiting)}, {run.folder}: ")
        except UserError as error:
            raise UserError(f"{run.folder}: {error}") from error
        if number < len(waiting):
            rate = (time.monotonic() - started) / sum(sizes[:number])
            complain(f"{number} of {len(waiting)} runs done, {left(rate * sum(sizes[number:]))}.")


def _check_prompts(runs: Sequence[PlannedRun], model: Any) -> None:
    """Raise UserError if one of the runs has a prompt that the model cannot take, before the first of them is begun."""
    from ..evaluation.local import check_prompts
    from ..evaluation.tasks import are_embedded

    seen = set()
    for run in runs:
        asked = run.settings
        alike = asked.tasks, asked.split, asked.limit, asked.chat, asked.max_new_tokens
        if are_embedded(asked.tasks) and alike not in seen:
            seen.add(alike)
            try:
                check_prompts(asked, model)
            except UserError as error:
                raise UserError(f"{run.folder}: {error}") from error


def _run(run: PlannedRun, model: Any, out: Path, before: str) -> None:
    from ..backbone import model_folder
    from ..evaluation.likelihood import LikelihoodSettings
    from ..evaluation.settings import identity
    from ..evaluation.summary import save_summary
    from ..evaluation.tasks import are_embedded

    folder, told = out / run.folder, identity(model, model_folder(run.model))
    if are_embedded(run.settings.tasks):
        from ..evaluation.local import run_local

        run_local(run.settings, model, told, folder, reporter(before))
    else:
        from ..evaluation.harness_run import HarnessSettings, run_harness

        settings = HarnessSettings({}, LikelihoodSettings())
        if not run_harness(run.settings, settings, model, told, folder, reporter(before)):
            return
    save_summary(folder)
