"""`dystruct tables`: the paper's tables from the results of `dystruct eval`, and from nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .options import named_path
from .reporting import status

Results = Annotated[
    list[Path],
    typer.Argument(
        metavar="RESULTS...",
        help="Folders of runs, folders above them, or summary.json files.",
        show_default=False,
        parser=named_path,
    ),
]
Out = Annotated[
    Path,
    typer.Option(
        "--out",
        help="The folder for the tables (Markdown, LaTeX, CSV) and plots.",
        metavar="FOLDER",
        show_default=False,
        parser=named_path,
    ),
]
Summaries = Annotated[
    bool,
    typer.Option(
        "--summaries",
        help="Keep each run's summary in OUT/RUN/summary.json, and beside it the answers that tables of votes "
        "count: all tables can be made again from these.",
        show_default=False,
    ),
]
Complete = Annotated[
    bool, typer.Option("--complete", help="Leave out runs that still have items to go.", show_default=False)
]
Against = Annotated[
    str | None,
    typer.Option(
        "--against",
        help="Compare the run of this name with each other one, in a table of its own.",
        metavar="NAME",
        show_default=False,
    ),
]


def tables(
    results: Results, out: Out, summaries: Summaries = False, complete: Complete = False, against: Against = None
) -> None:
    """Make tables and plots from the results of runs."""
    with status("reading"):
        from ..evaluation.report import report

        written = report(results, out, summaries=summaries, complete=complete, against=against)
    typer.echo(f"wrote {len(written)} files to {out}; {written[0].name} has all tables")
