"""`dystruct calibrate` and `dystruct accuracy`: measurements of a model on problems with known answers."""

from __future__ import annotations

import functools
import importlib.util
import json
import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import UserError
from ..files import check_file_target, save_text
from ..wording import left
from . import options
from .decoder_options import BlockLength, Decoder, Structure
from .model_options import Chat, Model, Source, WeightedSource
from .prompt_format import PromptFormat, load_prompted
from .reporting import complain, memory_errors, status

if TYPE_CHECKING:
    from ..calibration import Known

Problems = Annotated[
    int, typer.Option("--problems", help="How many held-out problems. Default {default}.", min=1, show_default=False)
]
DOMAINS = ("maths", "code", "logic")
SPLIT = "validation"  # of the problems that weights are fitted on
LEAST = 2  # problems: a fit is tested on some that it has not seen
Domains = Annotated[
    list[str] | None,
    typer.Option(
        "--domain", help="Which problems: maths, code, logic or all; once for each. Default all.", show_default=False
    ),
]
PROBLEMS = 150
ProblemsOfEach = Annotated[
    int | None,
    typer.Option(
        "--problems",
        help=f"How many validation problems of each domain. Default {PROBLEMS}.",
        min=LEAST,
        show_default=False,
    ),
]
ProblemFile = Annotated[
    Path | None,
    typer.Option(
        "--file",
        help='Problems of your own in place of --domain and --problems: JSON lines with "question" and "answer" and, '
        'where there are several, "domain".',
        show_default=False,
        parser=options.named_path,
        metavar="PATH",
    ),
]
Trajectory = Annotated[
    str,
    typer.Option(
        "--trajectory",
        help="Whose windows: reference, which follow one another through the known answer; or own, those that DyStruct "
        "opens when it decodes the problem a token a pass, compared with the answer by realignment. Default {default}.",
        show_default=False,
    ),
]
Nuts = Annotated[
    bool, typer.Option("--nuts", help="Also draw from the weights' posterior by NUTS.", show_default=False)
]
ReportPicture = Annotated[
    Path | None,
    typer.Option(
        "--svg",
        help="Write reliability, weights and learning curves to this file, as an SVG picture.",
        parser=options.named_path,
        metavar="PATH",
    ),
]
ReportAsJson = Annotated[bool, typer.Option("--json", help="Print the report as JSON, not as tables.")]
Penalty = Annotated[
    float,
    typer.Option(
        "--penalty", help="lambda of J(w) = BCE + lambda |w|². Default {default}.", min=1e-9, show_default=False
    ),
]
Intercept = Annotated[
    bool,
    typer.Option("--intercept/--no-intercept", help="Whether ell = w_b·psi + b has its b (R8). Default {default}."),
]
DiagnosticPasses = Annotated[
    int, typer.Option("--diagnostic-passes", help="K, forward passes. Default {default}.", min=1, show_default=False)
]
WeightsFile = Annotated[
    Path,
    typer.Argument(metavar="WEIGHTS", help="The file to write, JSON.", show_default=False, parser=options.named_path),
]
Split = Annotated[
    str,
    typer.Option("--split", help="Which held-out problems: test or validation. Default {default}.", show_default=False),
]
Domain = Annotated[
    str, typer.Option("--domain", help="Which problems: maths, code or logic. Default {default}.", show_default=False)
]
ExecuteCode = Annotated[
    bool,
    typer.Option(
        "--execute-code",
        help="Score code by running what the model wrote, in a limited subprocess; the domain code needs it.",
        show_default=False,
    ),
]
Report = Annotated[
    Path | None,
    typer.Option("--save", help="Write the figures to this file, as JSON.", metavar="PATH", parser=options.named_path),
]


def calibrate(
    *,
    weights: WeightsFile,
    model: Model = "tiny",
    chat: Chat = False,
    prompt_format: PromptFormat = None,
    source: Source,
    domain: Domains = None,
    problems: ProblemsOfEach = None,
    file: ProblemFile = None,
    trajectory: Trajectory = "reference",
    diagnostic_passes: DiagnosticPasses = 4,
    penalty: Penalty = 1e-3,
    intercept: Intercept = True,
    nuts: Nuts = False,
    seed: options.Seed = 0,
    batch_size: options.BatchSize = 8,
    save: Report = None,
    svg: ReportPicture = None,
    as_json: ReportAsJson = False,
) -> None:
    """Fit the evidence weights w and w_b of a model on problems with known answers, and report what they are worth.

    What was diagnosed is kept beside the weights until they are fitted: a command that was stopped goes on when given
    again.
    """
    for option, given in (("--domain", domain), ("--problems", problems)):
        if file is not None and given is not None:
            raise UserError(f"{option} has no use with --file, all of whose problems are taken; leave it out.")
    domains = list(DOMAINS) if domain is None or "all" in domain else list(dict.fromkeys(domain))
    for name in domains if file is None else ():
        if name not in DOMAINS:
            raise UserError(f"--domain must be {', '.join(DOMAINS)} or all, not {name!r}.")
        _need_problems(name)
    if trajectory not in ("reference", "own"):
        raise UserError(f"--trajectory must be reference or own, not {trajectory!r}.")
    targets = [path for path in (weights, save, svg) if path is not None]
    for path in targets:
        check_file_target(path)
    named = [os.path.realpath(path) for path in (*targets, file) if path is not None]
    if len(set(named)) < len(named):
        raise UserError("The weights, --save, --svg and --file must be different files; give each its own name.")
    diagnosed = weights.with_name(weights.name + ".windows")
    if os.path.realpath(diagnosed) in named:
        raise UserError(
            f"{str(diagnosed)!r} is where the windows are kept until the weights are fitted; give another name."
        )
    from dystruct.model import PriorConfig

    from ..backbone import model_folder
    from ..calibration import collected_windows, windows_along_reference, windows_on_own_trajectory
    from ..calibration.trajectories import as_asked
    from ..calibration_file import fingerprint, write_calibration
    from ..dystruct import DyStruct
    from ..evaluation.settings import identity
    from .calibration_table import provenance, show_report

    own = None if file is None else _problems_of(file)
    backbone = load_prompted(source, model, prompt_format, chat, neutral=True)
    known, told = _held_out(domains, problems or PROBLEMS) if own is None else own
    where = "along known answers" if trajectory == "reference" else "on the model's own trajectories"
    complain(f"diagnosing windows of {len(known)} problems {where}.")
    folder = model_folder(model, source.revision)
    laid_out = {"chat": chat, "prompt_format": None if chat else as_asked(backbone, chat).prompt_format}
    settings = {"trajectory": trajectory, **told, **laid_out, "diagnostic_passes": diagnostic_passes}
    loaded = identity(backbone, folder)
    asked = {
        **settings,
        **{name: loaded[name] for name in ("name", "fingerprint", "dtype")},
        "problems": dict(Counter(problem.domain for problem in known)),
        "seed": seed,
    }
    if trajectory == "reference":
        prior = PriorConfig()
        beyond = prior.max_length
        collect = functools.partial(
            windows_along_reference, backbone, prior=prior, passes=diagnostic_passes, seed=seed,
            batch_size=batch_size, chat=chat,
        )  # fmt: skip
    else:
        beyond = 0
        decoder = DyStruct(passes="share", diagnostic_passes=diagnostic_passes, weights=backbone.weights)
        collect = functools.partial(
            windows_on_own_trajectory, backbone, decoder=decoder, seed=seed, batch_size=batch_size, chat=chat
        )
    with status("diagnosing"), memory_errors(batch_size):
        windows = collected_windows(
            diagnosed, asked, backbone, known, collect, beyond,
            lambda done, seconds: complain(f"{done} of {len(known)} problems done, {left(seconds)}."), chat=chat,
        )  # fmt: skip
    with status("fitting"):
        from dystruct.inference.calibration import calibrate as fit

        try:
            found = fit(windows, penalty=penalty, intercept=intercept, seed=seed, nuts=nuts)
        except ValueError as error:
            raise UserError(
                f"The weights cannot be fitted, and {str(diagnosed)!r} keeps what was diagnosed: {error}"
            ) from error
    summary = {**settings, **provenance(found.report)}
    write_calibration(weights, found.fit.weights, fingerprint(folder), summary)
    report = json.dumps({**settings, **found.report.as_dict()}, indent=1)
    if save is not None:
        save_text(save, report + "\n")
    if svg is not None:
        from .calibration_table import picture

        save_text(svg, picture(found))
    diagnosed.unlink(missing_ok=True)  # another process may have fitted the same
    complain(f"the weights are in {str(weights)!r}; --weights takes them.")
    if as_json:
        typer.echo(report)
    else:
        show_report(found.report)


def accuracy(
    *,
    model: Model = "tiny",
    source: WeightedSource,
    decoder: Decoder = "dystruct",
    structure: Structure = None,
    block_length: BlockLength = None,
    chat: Chat = False,
    prompt_format: PromptFormat = None,
    domain: Domain = "maths",
    problems: Problems = 200,
    split: Split = "test",
    limits: options.Limits,
    seed: options.Seed = 0,
    batch_size: options.BatchSize = 16,
    execute_code: ExecuteCode = False,
    save: Report = None,
) -> None:
    """Decode held-out problems of a domain and count the right answers."""
    if domain not in DOMAINS:
        raise UserError(f"--domain must be maths, code or logic, not {domain!r}.")
    if split not in ("test", "validation"):
        raise UserError(f"--split must be test or validation, not {split!r}.")
    if save is not None:
        check_file_target(save)
    _need_problems(domain)
    source.check_use([decoder])
    from ..named import named_decoder
    from ..tiny.accuracy import check_scorable, measure_accuracy

    given: dict[str, Any] = {"--structure": structure, "--block-length": block_length}
    chosen = named_decoder(decoder, {name: value for name, value in given.items() if value is not None})
    check_scorable(domain, execute_code=execute_code)
    backbone = load_prompted(source, model, prompt_format, chat)
    with memory_errors(min(batch_size, problems)):
        found = measure_accuracy(
            backbone,
            chosen,
            domain=domain,
            split=split,
            count=problems,
            max_new_tokens=limits.max_new_tokens,
            budget=limits.budget,
            seed=seed,
            batch_size=batch_size,
            chat=chat,
            execute_code=execute_code,
            report=lambda done, right: typer.echo(f"{right} of {done} right, {problems - done} to go", err=True),
        )
    figures = json.dumps(found.as_dict(), indent=1)
    typer.echo(figures)
    if save is not None:
        save_text(save, figures + "\n")


def _held_out(domains: Sequence[str], count: int) -> tuple[list[Known], dict[str, Any]]:
    """So many validation problems of each domain, and what is put on record of where they come from."""
    from ..calibration import Known
    from ..tiny.problems import problems

    complain(f"making {count} problems of each of {', '.join(domains)}.")
    known = [
        Known(problem.question, problem.answer, name) for name in domains for problem in problems(name, SPLIT, count)
    ]
    return known, {"split": SPLIT}


def _problems_of(file: Path) -> tuple[list[Known], dict[str, Any]]:
    """The problems in a file, and the same of them."""
    from .problem_file import digest, read_problems

    known = read_problems(file, LEAST)
    return known, {"file": file.name, "digest": digest(known)}


def _need_problems(domain: str = "maths") -> None:
    if domain == "maths" and importlib.util.find_spec("reasoning_gym") is None:
        raise UserError("The maths problems need reasoning-gym; install it with: pip install 'dystruct[train]'.")
