"""The calibration report as tables for a terminal, as a picture, and in short for the calibration file."""

from __future__ import annotations

import sys
from io import StringIO
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from dystruct.inference.calibration import Calibration, CalibrationReport, Coefficient, Estimate, KindReport
from dystruct.inference.calibration.picture import plot_calibration
from dystruct.inference.calibration.report import Sampler

NARROWEST = 130  # characters that the tables take

MANY = 3  # domains: of more, fits on one are shown on it alone, and on the others on the one that is left out

_KINDS = {"position": "Positions", "gap": "Gaps"}


def calibration_tables(report: CalibrationReport) -> RenderableType:
    """Everything that the report says, positions first."""
    counts = ", ".join(f"{count} {name}" for name, count in report.problems.items())
    head = Text(f"{counts} problems · {report.windows} windows · lambda {report.penalty:g} · seed {report.seed}")
    parts: list[RenderableType] = [head]
    for kind, found in (("position", report.position), ("gap", report.gap)):
        title = f"{_KINDS[kind]}: {found.rows}, of which {found.rate:.1%} have target 1"
        parts += ["", Text(title, style="bold"), Text(found.verdict), _weights(found)]
        parts += [] if found.sampler is None else [_sampler(found.sampler)]
        error = found.calibration_error
        said = f"Expected calibration error {error.value:.3f}; by chance, if calibrated, {_interval(error.by_chance)}"
        parts += [_held_out(found), Text(said)]
        parts += [_curve(found), *([_transfer(found)] if found.transfer else [])]
    return Group(*parts)


def show_report(report: CalibrationReport) -> None:
    """Print the tables to standard output."""
    console = Console(file=sys.stdout, highlight=False)
    if console.width < NARROWEST:
        console.width = NARROWEST
    console.print(calibration_tables(report))


def picture(calibration: Calibration) -> str:
    """`plot_calibration` as an SVG file's text."""
    written = StringIO()
    plot_calibration(calibration).savefig(written, format="svg", metadata={"Date": None})
    return written.getvalue()


def provenance(report: CalibrationReport) -> dict[str, Any]:
    """Where the weights come from and what they are worth, in short."""
    return {
        "problems": report.problems,
        "windows": report.windows,
        "positions": report.position.rows,
        "gaps": report.gap.rows,
        "penalty": report.penalty,
        "intercept": report.intercept,
        "seed": report.seed,
        "held_out": {
            kind: {
                "verdict": found.verdict,
                **{
                    figure: {name: [e.value, e.low, e.high] for name, e in getattr(found, figure).items()}
                    for figure in ("log_loss", "auroc")
                },
            }
            for kind, found in (("position", report.position), ("gap", report.gap))
        },
    }


def _weights(found: KindReport) -> Table:
    sampled = found.sampler is not None
    table = _table("Weights", "", "value", "bootstrap 95%", "Laplace 95%", *(["NUTS 95%"] if sampled else []))
    for name, coefficient in found.coefficients.items():
        table.add_row(name.replace("_", " "), f"{coefficient.value:.3f}", *_intervals(coefficient))
    return table


def _sampler(said: Sampler) -> Text:
    return Text(
        f"NUTS: {said.draws} draws, r-hat {said.r_hat:.3f}, ESS {said.effective_sample_size:.0f}, {said.divergences} "
        f"divergences; means within {said.mean_shift:.2f} of Laplace's deviations, deviations × {said.spread_ratio:.2f}"
    )


def _intervals(coefficient: Coefficient) -> list[str]:
    known = (coefficient.bootstrap, coefficient.laplace, coefficient.nuts)
    return [f"{ends[0]:.3f} to {ends[1]:.3f}" for ends in known if ends is not None]


def _held_out(found: KindReport) -> Table:
    table = _table("Held out", "", "log loss, nats", "all minus it", "AUROC", "all minus it")
    for name, loss in found.log_loss.items():
        difference, gain = found.log_loss_difference.get(name), found.auroc_difference.get(name)
        table.add_row(
            name if name == "all" else f"{name} alone",
            _interval(loss),
            "" if difference is None else _interval(difference, "+"),
            _interval(found.auroc[name]),
            "" if gain is None else _interval(gain, "+"),
        )
    table.add_row("base rate", f"{found.guess:.3f}", "", "", "")
    return table


def _curve(found: KindReport) -> Table:
    table = _table("Learning curve", "problems", "log loss", "AUROC", "entropy's log loss", "all minus entropy")
    for point in found.learning_curve:
        table.add_row(
            str(point.problems),
            f"{point.log_loss:.3f}",
            f"{point.auroc:.3f}",
            f"{point.entropy_log_loss:.3f}",
            _interval(point.difference, "+"),
        )
    return table


def _transfer(found: KindReport) -> Table:
    table = _table(
        "Across domains", "fitted on", "tested on", "log loss", "AUROC", "entropy's of both", "all minus entropy"
    )
    domains = {row.tested_on for row in found.transfer}
    for row in found.transfer:
        fitted_on = ", ".join(row.fitted_on)
        if len(domains) > MANY and row.fitted_on != (row.tested_on,):
            unseen = domains - set(row.fitted_on)
            if not unseen <= {row.tested_on}:
                continue
            fitted_on = f"all but {row.tested_on}" if unseen else "all"
        table.add_row(
            fitted_on,
            row.tested_on,
            f"{row.log_loss:.3f}",
            f"{row.auroc:.3f}",
            f"{row.entropy_log_loss:.3f}, {row.entropy_auroc:.3f}",
            _interval(row.difference, "+"),
        )
    return table


def _table(title: str, first: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left", title_style="italic", box=None, pad_edge=False)
    table.add_column(first, no_wrap=True)
    for column in columns:
        table.add_column(column, justify="left" if column == "tested on" else "right", no_wrap=True)
    return table


def _interval(estimate: Estimate, sign: str = "") -> str:
    return f"{estimate.value:{sign}.3f} ({estimate.low:{sign}.3f} to {estimate.high:{sign}.3f})"
