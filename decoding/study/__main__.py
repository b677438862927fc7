"""The commands of the study: `python -m dystruct.decoding.study windows|decode|report`; see README.md here.

What a user got wrong ends as one sentence and exit code 2.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from ..backbone import Backbone
from ..errors import UserError
from ..execution import check_allowed
from ..files import check_file_target, save_json, save_text
from ..terminal.model_options import load_model
from ..terminal.reporting import reporting
from ..tiny.problem import Problem
from ..tiny.problems import DOMAINS, problems

FIRST_ITEM = 20_000  # where the study's validation items begin: far from those that calibration takes

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, help="Measure what the readings change.")

Out = Annotated[Path, typer.Argument(help="The file of records, JSON lines; gone on with if it is there.")]
Domains = Annotated[str, typer.Option("--domains", help="Some of maths,code,logic.")]
Count = Annotated[int, typer.Option("--problems", help="Validation problems a domain.", min=1)]
Model = Annotated[str, typer.Option("--model", help="The embedded model (tiny), or a model's name or folder.")]
Weights = Annotated[Path | None, typer.Option("--weights", help="Evidence weights other than the model's own.")]
Seed = Annotated[int, typer.Option("--seed", help="Of all random streams.", min=0)]


@app.command()
@reporting
def windows(
    out: Out,
    model: Model = "tiny",
    domains: Domains = "maths,code,logic",
    problems: Count = 150,
    windows: Annotated[int, typer.Option("--windows", help="Windows a problem.", min=1)] = 2,
    seed: Seed = 0,
) -> None:
    """Diagnose windows along known answers under every reading, and try pairs of commits in them."""
    from .along import measure_windows
    from .records import open_records

    wanted = _asked(_domains(domains), problems)
    backbone = _load(model, None)
    settings = {"study": "windows", "model": _name(model), "seed": seed, "windows": windows, "first_item": FIRST_ITEM}
    with open_records(out, settings) as records:
        for domain, asked in wanted.items():
            measure_windows(
                backbone, records, domain, asked, seed=seed, windows=windows, report=_progress(domain, len(asked))
            )  # fmt: skip


@app.command()
@reporting
def decode(
    out: Out,
    groups: Annotated[str, typer.Option("--groups", help="Some of R2,R3,R4,R8,R9,R11,R13,partition,chosen.")],
    along: Annotated[bool, typer.Option("--along/--free", help="Windows behind right beginnings, or whole problems.")],
    model: Model = "tiny",
    weights: Weights = None,
    domains: Domains = "maths,code,logic",
    problems: Count = 150,
    passes_per_token: Annotated[float, typer.Option("--passes-per-token", help="Of all kinds.", min=0.05)] = 0.75,
    chosen: Annotated[Path | None, typer.Option("--settings", help="What `report` proposes, for 'chosen'.")] = None,
    seed: Seed = 0,
    execute_code: Annotated[bool, typer.Option("--execute-code", help="Run generated code to score it.")] = False,
) -> None:
    """Decode with the base and the groups' variants: windows along known answers, or whole problems."""
    from .decodings import decode_problems, decode_windows
    from .proposals import read_proposal
    from .records import open_records
    from .variants import variants

    found = variants(groups.split(","), passes_per_token, None if chosen is None else read_proposal(chosen))
    names = _domains(domains)
    if "code" in names and not along:
        check_allowed(execute_code)
    wanted = _asked(names, problems)
    backbone = _load(model, weights)
    settings = {
        "study": "along" if along else "free",
        "model": _name(model),
        "weights": [
            *backbone.weights.position.tolist(),
            backbone.weights.position_intercept,
            *backbone.weights.gap.tolist(),
            backbone.weights.gap_intercept,
        ],
        "seed": seed,
        "passes_per_token": passes_per_token,
        "first_item": FIRST_ITEM,
        "chosen": None if chosen is None else json.loads(chosen.read_text(encoding="utf-8")),
    }
    with open_records(out, settings) as records:
        for domain, asked in wanted.items():
            said = _progress(domain, len(asked))

            def report(name: str, done: int, said: Any = said) -> None:
                said(done, name)

            if along:
                decode_windows(backbone, records, found, domain, asked, seed=seed, report=report)
            else:
                decode_problems(
                    backbone, records, found, domain, asked, seed=seed, execute_code=execute_code, report=report
                )  # fmt: skip


@app.command()
@reporting
def report(
    results: Annotated[Path, typer.Argument(help="The results to write, or to bring up to date, JSON.")],
    windows: Annotated[list[Path] | None, typer.Option("--windows", help="Records of `windows`.")] = None,
    along: Annotated[list[Path] | None, typer.Option("--along", help="Records of `decode --along`.")] = None,
    free: Annotated[list[Path] | None, typer.Option("--free", help="Records of `decode --free`.")] = None,
    proposals: Annotated[Path | None, typer.Option("--proposals", help="A folder for proposed settings.")] = None,
    document: Annotated[Path | None, typer.Option("--tables", help="A document whose tables to make anew.")] = None,
) -> None:
    """Make results from records, and a document's tables from results; parts without records stay as they are."""
    from .report import merged
    from .tables import write_tables

    check_file_target(results)
    found, proposed = merged(results, windows or [], along or [], free or [])
    save_text(results, json.dumps(found, separators=(",", ":")) + "\n")
    if proposals is not None:
        proposals.mkdir(parents=True, exist_ok=True)
        for target, content in proposed.items():
            save_json(proposals / f"{target.replace(' ', '-')}.json", content)
    if document is not None:
        write_tables(found, document)


def _load(model: str, weights: Path | None) -> Backbone:
    return load_model(model, weights=weights)


def _name(model: str) -> str:
    """What tells a model from another: its name, and the fingerprint of its weights."""
    from ..backbone import model_folder
    from ..calibration_file import fingerprint

    return f"{Path(model).name} {fingerprint(model_folder(model, None))}"


def _domains(domains: str) -> list[str]:
    names = domains.split(",")
    unknown = [name for name in names if name not in DOMAINS]
    if unknown:
        raise UserError(f"--domains must be some of {','.join(DOMAINS)}, not {unknown[0]!r}.")
    return names


def _asked(names: list[str], count: int) -> dict[str, list[Problem]]:
    return {name: problems(name, "validation", count, FIRST_ITEM) for name in names}


def _progress(domain: str, count: int) -> Any:
    def report(done: int, what: str = "") -> None:
        if done == count or done % 10 == 0:
            typer.echo(f"{domain} {what} {done} of {count}", err=True)

    return report


if __name__ == "__main__":
    app()
