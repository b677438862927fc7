"""Whether a run can be made, as far as its settings tell: checked before a model is loaded and anything is decoded.

What only a model tells, such as prompts that are too long for it, is not looked at.
"""

from __future__ import annotations

import importlib.util

from ..errors import UserError
from ..execution import check_allowed
from ..parallel import process_count
from . import tasks
from .draws import with_draw
from .settings import RunSettings

CODE = ("humaneval", "mbpp", "tiny_code")  # what the names of tasks that run code begin with
IN_CHAT = {  # tasks that end a text at the next function, with which an answer in chat begins, and what to take instead
    "humaneval": "humaneval_instruct",
    "humaneval_64": "humaneval_64_instruct",
    "humaneval_plus": "humaneval_instruct",
}


def check_run(settings: RunSettings) -> None:
    """Raise UserError for settings under which no run can be made. Whether code may be run is left to `check_code`."""
    if tasks.are_embedded(settings.tasks):
        check_local(settings)
    else:
        check_harness(settings)


def check_local(settings: RunSettings) -> None:
    """Raise UserError for settings that the embedded tasks cannot have, and under a launch of several processes."""
    if process_count() > 1:
        raise UserError(
            "The embedded tasks are decoded by one process; start it without torchrun, and of a sweep further ones "
            "beside it, each of which takes runs that none is making."
        )
    if settings.shots is not None:
        raise UserError("The embedded tasks take no examples; leave out --shots.")
    with_draw(settings.with_decoder(), settings.draws - 1)
    for task in settings.tasks:
        asked = tasks.items(task, settings.split, settings.limit)
        if settings.skip >= len(asked):
            raise UserError(f"{task} has {len(asked)} {settings.split} items; leave out fewer than {len(asked)}.")


def check_harness(settings: RunSettings) -> None:
    """Raise UserError for settings that the harness's tasks cannot have."""
    settings.with_decoder()
    if settings.draws > 1 or len(settings.seeds) > 1:
        raise UserError("Through the harness a run has one seed and one draw; make a run of each.")
    if settings.skip:
        raise UserError("Of the harness's tasks no first items are left out; leave out the skip.")
    if settings.split != "test":
        raise UserError("The harness's tasks choose their split themselves; leave out --split.")
    for task in settings.tasks if settings.chat else ():
        if task in IN_CHAT:
            raise UserError(
                f"The task {task} ends a text where the next function begins, so that nothing is left of an answer in "
                f"chat; take {IN_CHAT[task]}, or leave out --chat."
            )
    if settings.stop:
        raise UserError("The harness's tasks have stop strings of their own; leave out --stop.")


def need_harness() -> None:
    """Raise UserError without lm-evaluation-harness."""
    if importlib.util.find_spec("lm_eval") is None:
        raise UserError("Tasks other than the embedded ones need lm-evaluation-harness: pip install 'dystruct[eval]'.")


def check_code(settings: RunSettings) -> None:
    """Raise UserError for tasks that run what the model wrote, unless that is allowed."""
    if any(task.startswith(CODE) for task in settings.tasks):
        check_allowed(settings.execute_code)
