"""The options of `dystruct eval` that the other commands do not have."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..errors import UserError
from ..kinds import in_digits
from .options import make_option, named_path

_WHAT, _HARNESS, _OUTPUT = "What is run", "Tasks of lm-evaluation-harness", "Output"

Folder = Annotated[
    Path,
    typer.Argument(
        metavar="FOLDER", show_default=False, parser=named_path,
        help="Where the run lives, or a sweep's runs, a folder each; what was begun there goes on.",
    ),
]  # fmt: skip
Tasks = Annotated[
    str,
    make_option(
        _WHAT,
        "--tasks",
        "Names with commas between them: the embedded tiny_maths, tiny_code and tiny_logic; or tasks of "
        "lm-evaluation-harness, such as gsm8k, minerva_math, bbh, humaneval, mbpp.",
        metavar="NAMES",
    ),
]
Decoder = Annotated[
    str,
    make_option(
        _WHAT,
        "--decoder",
        "A decoder, with settings after a colon, as in dystruct:structure=sample,passes=share. Default {default}.",
        metavar="NAME",
    ),
]
Name = Annotated[str | None, make_option(_WHAT, "--name", "What tables call the run. Default: its decoder.", "TEXT")]
Split = Annotated[
    str,
    make_option(
        _WHAT,
        "--split",
        "Of the embedded tasks: test, or validation for choosing settings. Default {default}.",
        metavar="NAME",
    ),
]
Limit = Annotated[
    int | None,
    make_option(
        _WHAT,
        "--limit",
        "The first N items of each task. A larger one later prolongs the run. Default: all of them.",
        min=1,
        metavar="N",
    ),
]
Skip = Annotated[
    int,
    make_option(
        _WHAT,
        "--skip",
        "Of the embedded tasks: leave out the first N of these items, which another run has; tables count both as one. "
        "Default {default}.",
        min=0,
        metavar="N",
    ),
]
Seeds = Annotated[
    str,
    make_option(
        _WHAT, "--seeds", "Seeds with commas between them; each item runs under each. Default {default}.", metavar="NS"
    ),
]
Draws = Annotated[
    int,
    make_option(
        _WHAT,
        "--draws",
        "With structure=sample or structure=shuffled: structures a prompt and seed, which share their token noise; at "
        "most 10000. Default {default}.",
        min=1,
        metavar="N",
    ),
]
ExecuteCode = Annotated[
    bool,
    make_option(
        _WHAT,
        "--execute-code",
        "Score code by running what the model wrote, in a limited subprocess; tasks that ask for code need it.",
    ),
]
Shots = Annotated[
    int | None,
    make_option(
        _HARNESS, "--shots", "Examples in a prompt. Default: the task's, as the paper has them.", min=0, metavar="N"
    ),
]
Data = Annotated[
    list[str] | None,
    make_option(
        _HARNESS,
        "--data",
        "Local JSON lines in place of a task's data set, as TASK=PATH: a file of test items, or a folder with "
        "test.jsonl and, where examples come from there, train.jsonl. Once for each.",
        metavar="TASK=PATH",
    ),
]
OwnTasks = Annotated[
    Path | None,
    make_option(
        _HARNESS,
        "--include-path",
        "A folder of task files of your own, YAML as the harness reads it; the Python that they name is run.",
        metavar="FOLDER",
        parser=named_path,
    ),
]
Likelihood = Annotated[
    int,
    make_option(
        _HARNESS,
        "--mc-samples",
        "Masked copies that estimate the likelihood of an answer. Default {default}.",
        min=1,
        metavar="N",
    ),
]
LikelihoodBatch = Annotated[
    int, make_option(_HARNESS, "--mc-batch-size", "Of them in one forward call. Default {default}.", min=1, metavar="N")
]
LikelihoodGuidance = Annotated[
    float,
    make_option(
        _HARNESS, "--mc-guidance", "Guidance scale in the likelihood. Default {default}.", min=0.0, metavar="X"
    ),
]
Samples = Annotated[
    bool,
    make_option(_OUTPUT, "--samples", "Write samples.jsonl too: every prompt, answer and score as the task saw them."),
]
Traces = Annotated[
    bool,
    make_option(
        _OUTPUT, "--traces/--no-traces", "Whether to keep each item's trace, some 20 to 130 kB. Default {default}."
    ),
]


def numbers(text: str, option: str) -> tuple[int, ...]:
    """Whole numbers with commas between them. Raises UserError for anything else."""
    try:
        if not in_digits(text):
            raise ValueError
        return tuple(int(part) for part in text.split(","))
    except ValueError as error:
        raise UserError(f"{option} must be whole numbers with commas between them, not {text!r}.") from error


def named_files(given: list[str] | None) -> dict[str, Path]:
    """TASK=PATH, once for each task, as a dictionary. Raises UserError for anything else."""
    found: dict[str, Path] = {}
    for item in given or ():
        task, sign, path = item.partition("=")
        if not (task and sign and path):
            raise UserError(f"--data must be TASK=PATH, not {item!r}.")
        if task in found:
            raise UserError(f"--data names {task} twice; name it once.")
        found[task] = Path(path)
    return found
