"""Planned runs made one after another, those of one model together, each in its folder; all can be gone on with.

What is wrong with what is planned, or with the first model and its prompts, is told before anything is run. From then
on a run that fails is told and left, and the others are made. Knows neither how runs are declared nor how a model is
loaded, and no terminal: what there is to say goes to whoever asks for the runs.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from ..backbone import Backbone, model_folder
from ..errors import UserError
from ..json_lines import Held
from ..parallel import process_count
from ..wording import left
from . import local, tasks
from .checks import check_code, need_harness
from .likelihood import LikelihoodSettings
from .settings import identity
from .summary import save_summary
from .sweep import PlannedRun, check_planned, naming
from .sweep_state import as_begun, is_finished, is_scored, state, texts

Report = Callable[[local.Progress], None]


def make_runs(
    planned: Sequence[PlannedRun],
    out: str | Path,
    load: Callable[[PlannedRun], Backbone],
    *,
    say: Callable[[str], None] = print,
    reporter: Callable[[str], Report | None] = lambda before: None,
    around: Callable[[PlannedRun], AbstractContextManager[object]] = lambda run: nullcontext(),
) -> list[str]:
    """Make the runs that are not finished in the folder `out`; the names of those that failed.

    load: a run's model, asked for once for all runs of one `source`. say: is given whole sentences. reporter: is given
    what stands before all that is said of a run, and gives what is told how far that run is (see `run_local`). around:
    gives the context in which a run is made, such as one that puts a device's errors into words.

    Raises UserError for what is wrong before the first run is begun. Of several processes that were launched together
    each run's results are put together at its end, so that all of them have to stop where one fails.
    """
    out = Path(out)
    waiting = _waiting(planned, out, say)
    if not waiting:
        return []
    source = waiting[0][0].source
    model: Backbone | None = _first_model([run for run, _ in waiting if run.source == source], load)
    failed, done, size, took = list[str](), 0, 0, 0.0
    for number, (run, left_of_it) in enumerate(waiting, start=1):
        started = time.monotonic()
        try:
            if number > 1 and process_count() == 1 and is_finished(run, out):
                say(f"{run.folder}: another process has made this run.")
                continue
            if model is None or run.source != source:
                model = None  # two models need not fit beside each other
                model, source = load(run), run.source
            with around(run):
                _make(run, model, out / run.folder, reporter(f"run {number} of {len(waiting)}, {run.folder}: "))
        except UserError as error:
            if process_count() > 1:
                raise UserError(f"{run.folder}: {error}") from error
            if isinstance(error, Held):
                say(f"{run.folder}: another process is making this run; it is left to that one.")
            else:
                say(f"{run.folder}: {error}")
                failed.append(run.folder)
            continue
        done, size, took = done + 1, size + left_of_it, took + time.monotonic() - started
        if number < len(waiting):
            rest = took / size * sum(its for _, its in waiting[number:])
            say(f"{done} of {len(waiting)} runs done, {left(rest)}.")
    return failed


def _waiting(planned: Sequence[PlannedRun], out: Path, say: Callable[[str], None]) -> list[tuple[PlannedRun, int]]:
    """The runs that are not finished, those of one model together, each with what is left of it in texts.

    Where that is not known of one of them, all count alike. Raises UserError for runs that cannot be made.
    """
    check_planned(planned)
    before = {run.folder: state(run, out) for run in planned}
    for run in planned:
        if not tasks.are_embedded(run.settings.tasks):
            need_harness()
        check_code(run.settings)
    finished = {run.folder for run in planned if before[run.folder].finished and is_scored(run, out)}
    for name in sorted(finished):
        save_summary(out / name)  # what stands there may be from before the run was prolonged
    waiting = [as_begun(run, out) for run in planned if run.folder not in finished]
    say(f"{len(planned)} runs, {len(planned) - len(waiting)} of them finished, {len(waiting)} to go.")
    known = [(texts(run), before[run.folder].done) for run in waiting]
    sizes = [1 if any(of is None for of, _ in known) else max((of or 0) - done, 1) for of, done in known]
    order = list(dict.fromkeys(run.source for run in waiting))  # a model is loaded once, for all of its runs
    return sorted(zip(waiting, sizes, strict=True), key=lambda each: order.index(each[0].source))


def _first_model(runs: Sequence[PlannedRun], load: Callable[[PlannedRun], Backbone]) -> Backbone:
    """The model of these runs. Raises UserError if one of them has a prompt that it cannot take."""
    with naming(runs[0]):
        model = load(runs[0])
    seen = set()
    for run in runs:
        asked = run.settings
        alike = (
            asked.tasks, asked.split, asked.limit, asked.skip, asked.chat, asked.prompt_format, asked.max_new_tokens
        )  # fmt: skip
        if tasks.are_embedded(asked.tasks) and alike not in seen:
            seen.add(alike)
            with naming(run):
                local.check_prompts(asked, model)
    return model


def _make(run: PlannedRun, model: Backbone, folder: Path, report: Report | None) -> None:
    told = identity(model, model_folder(run.model, run.revision))
    if tasks.are_embedded(run.settings.tasks):
        local.run_local(run.settings, model, told, folder, report)
    else:
        from .harness_run import HarnessSettings, run_harness  # lm-evaluation-harness is an extra

        harness = HarnessSettings({}, LikelihoodSettings())
        if not run_harness(run.settings, harness, model, told, folder, report):
            return  # another process has the results
    save_summary(folder)
