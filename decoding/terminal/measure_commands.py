"""`dystruct calibrate` and `dystruct accuracy`: measurements of a model on problems with known answers."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Annotated, Any

import typer

from ..errors import UserError
from . import options
from .targets import check_file_target, save_text

Problems = Annotated[
    int, typer.Option("--problems", help="How many held-out problems. Default 200.", min=1, show_default=False)
]
Penalty = Annotated[
    float,
    typer.Option("--penalty", help="lambda of J(w) = BCE + lambda |w|². Default 0.001.", min=1e-9, show_default=False),
]
Intercept = Annotated[
    bool,
    typer.Option("--intercept/--no-intercept", help="Whether ell = w_b·psi + b has its b (R8). Default on."),
]
DiagnosticPasses = Annotated[
    int, typer.Option("--diagnostic-passes", help="K, forward passes. Default 4.", min=1, show_default=False)
]
WeightsFile = Annotated[Path, typer.Argument(help="The file to write, JSON.", show_default=False)]
Split = Annotated[
    str, typer.Option("--split", help="Which held-out problems: test or validation. Default test.", show_default=False)
]
Domain = Annotated[
    str, typer.Option("--domain", help="Which problems: maths, code or logic. Default maths.", show_default=False)
]
ExecuteCode = Annotated[
    bool,
    typer.Option(
        "--execute-code",
        help="Score code by running what the model wrote, in a limited subprocess; the domain code needs it.",
        show_default=False,
    ),
]
Report = Annotated[Path | None, typer.Option("--save", help="Write the figures to this file, as JSON.")]


def calibrate(
    weights: WeightsFile,
    model: options.Model = "tiny",
    device: options.Device = None,
    device_map: options.DeviceMap = None,
    dtype: options.Dtype = None,
    revision: options.Revision = None,
    problems: Problems = 200,
    penalty: Penalty = 1e-3,
    intercept: Intercept = True,
    diagnostic_passes: DiagnosticPasses = 4,
    seed: options.Seed = 0,
    batch_size: options.BatchSize = 16,
) -> None:
    """Fit the evidence weights w and w_b of a model on validation problems, and write them with their provenance."""
    check_file_target(weights)
    _need_problems()
    from ..backbone import model_folder
    from ..calibrate import calibrate as fit
    from ..calibrate import diagnose_answers
    from ..calibration_file import fingerprint, write_calibration
    from ..tiny.problems import problems as word_problems

    backbone = options.load_model(
        model, device=device, device_map=device_map, dtype=dtype, revision=revision, neutral=True
    )
    asked = word_problems("validation", problems)
    typer.echo(f"diagnosing windows along {problems} known answers", err=True)
    windows = diagnose_answers(
        backbone,
        [problem.question for problem in asked],
        [problem.answer for problem in asked],
        passes=diagnostic_passes,
        seed=seed,
        batch_size=batch_size,
    )
    fitted = fit(windows, penalty=penalty, intercept=intercept)
    provenance = {**fitted.report, "split": "validation", "diagnostic_passes": diagnostic_passes, "seed": seed}
    write_calibration(weights, fitted.weights, fingerprint(model_folder(model, revision)), provenance)
    typer.echo(json.dumps(provenance, indent=1))


def accuracy(
    model: options.Model = "tiny",
    device: options.Device = None,
    device_map: options.DeviceMap = None,
    dtype: options.Dtype = None,
    revision: options.Revision = None,
    decoder: options.Decoder = "dystruct",
    structure: options.Structure = None,
    block_length: options.BlockLength = None,
    domain: Domain = "maths",
    problems: Problems = 200,
    split: Split = "test",
    max_new_tokens: options.MaxNewTokens = 256,
    budget: options.Budget = 256,
    seed: options.Seed = 0,
    batch_size: options.BatchSize = 16,
    execute_code: ExecuteCode = False,
    save: Report = None,
) -> None:
    """Decode held-out problems of a domain and count the right answers."""
    if domain not in ("maths", "code", "logic"):
        raise UserError(f"--domain must be maths, code or logic, not {domain!r}.")
    if split not in ("test", "validation"):
        raise UserError(f"--split must be test or validation, not {split!r}.")
    if save is not None:
        check_file_target(save)
    _need_problems(domain)
    given: dict[str, Any] = {"--structure": structure, "--block-length": block_length}
    chosen = options.decoder_of(decoder, None, {name: value for name, value in given.items() if value is not None})
    from ..tiny.accuracy import measure_accuracy

    found = measure_accuracy(
        options.load_model(model, device=device, device_map=device_map, dtype=dtype, revision=revision),
        chosen,
        domain=domain,
        split=split,
        count=problems,
        max_new_tokens=max_new_tokens,
        budget=budget,
        seed=seed,
        batch_size=batch_size,
        execute_code=execute_code,
        report=lambda done, right: typer.echo(f"{right} of {done} right, {problems - done} to go", err=True),
    )
    figures = json.dumps(found.as_dict(), indent=1)
    typer.echo(figures)
    if save is not None:
        save_text(save, figures + "\n")


def _need_problems(domain: str = "maths") -> None:
    if domain == "maths" and importlib.util.find_spec("reasoning_gym") is None:
        raise UserError("The maths problems need reasoning-gym; install it with: pip install 'dystruct[train]'.")
