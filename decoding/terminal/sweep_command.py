"""`dystruct sweep`: the runs that a file declares, one after another, each to be gone on with after any stop."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..errors import UserError
from .eval_command import for_harness, reporter
from .eval_options import ExecuteCode, Folder
from .model_options import Placement
from .options import named_path
from .reporting import complain, memory_errors, status

if TYPE_CHECKING:
    from ..backbone import Backbone
    from ..evaluation.sweep import PlannedRun
    from ..evaluation.sweep_state import State

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
        from ..evaluation.sweep import only as chosen
        from ..evaluation.sweep import read_sweep
        from ..evaluation.sweep_making import make_runs
        from ..evaluation.sweep_state import is_scored, state
        from ..evaluation.tasks import are_embedded

        planned = read_sweep(file, execute_code=execute_code, limit=limit, skip=skip, batch_size=batch_size)
        if only:
            planned = chosen(planned, only)
    if only_status:
        for run, found in [(run, state(run, folder)) for run in planned]:
            typer.echo(f"{run.folder}: {_told(found, is_scored(run, folder))}")
        return
    cached = [run.folder for run in planned if run.settings.prefix_cache]
    if placement.compiled and cached:
        raise UserError(
            f"--compiled has no use with the prefix_cache of run {cached[0]!r}, whose passes are not compiled; leave "
            f"one out, or name the other runs with --only."
        )

    def load(run: PlannedRun) -> Backbone:
        place = placement if are_embedded(run.settings.tasks) else for_harness(placement)
        return place.load(run.model, revision=run.revision, weights=run.weights)

    def around(run: PlannedRun) -> AbstractContextManager[None]:
        return memory_errors(run.settings.batch_size, ALONE)

    failed = make_runs(planned, folder, load, say=complain, reporter=reporter, around=around)
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
