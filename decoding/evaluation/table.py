"""A table of texts and numbers with standard errors, written as Markdown, LaTeX (booktabs) and CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass

from .statistics import Mean

ENDINGS = ("md", "tex", "csv")


@dataclass(frozen=True)
class Number:
    """A number as a table shows it: with so many digits behind the point, multiplied by `scale`; CSV gets all of it.

    error: its standard error, if known. scientific: with an exponent where it is small.
    """

    value: float
    error: float | None = None
    digits: int = 1
    scale: float = 1.0
    scientific: bool = False

    @property
    def shown(self) -> str:
        """The number alone."""
        if self.scientific and abs(self.value) < 10**-self.digits:
            return f"{self.value:.1e}"
        return f"{self.value * self.scale:.{self.digits}f}"

    @property
    def shown_error(self) -> str | None:
        """Its standard error alone; None where it is 0, since values that are all alike tell none."""
        return None if not self.error else f"{self.error * self.scale:.{self.digits}f}"


Cell = str | int | Number | None


@dataclass(frozen=True)
class Table:
    """A table with a caption and a name that its files get; a row has a cell for each column, None where it is empty.

    groups: names over runs of neighbouring columns, each with how many it spans; none by default.
    """

    name: str
    caption: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    groups: tuple[tuple[str, int], ...] = ()

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row) != len(self.columns):
                raise ValueError(f"a row of table {self.name} has {len(row)} cells for {len(self.columns)} columns")
        if self.groups and sum(span for _, span in self.groups) != len(self.columns):
            raise ValueError(f"the groups of table {self.name} do not span its {len(self.columns)} columns")

    def markdown(self) -> str:
        """The table in Markdown, its caption above it."""
        names = [f"{group} {column}".strip() for group, column in zip(self._group_of(), self.columns, strict=True)]
        lines = [[_escaped(name) for name in names], [":--" if self._is_text(i) else "--:" for i in range(len(names))]]
        lines += [[_markdown(cell) for cell in row] for row in self.rows]
        return f"{self.caption}\n\n" + "".join(f"| {' | '.join(line)} |\n" for line in lines)

    def latex(self) -> str:
        """The table in LaTeX; its document needs the package booktabs."""
        align = "".join("l" if self._is_text(i) else "r" for i in range(len(self.columns)))
        head = [" & ".join(map(_tex, self.columns)) + r" \\"]
        if self.groups:
            over = [rf"\multicolumn{{{span}}}{{c}}{{{_tex(group)}}}" for group, span in self.groups]
            head.insert(0, " & ".join(over) + r" \\")
        body = [" & ".join(map(_latex, row)) + r" \\" for row in self.rows]
        inside = [r"\toprule", *head, r"\midrule", *body, r"\bottomrule"]
        return "\n".join(
            (
                r"\begin{table}", r"\centering", rf"\caption{{{_tex(self.caption)}}}", rf"\label{{tab:{self.name}}}",
                rf"\begin{{tabular}}{{{align}}}", *inside, r"\end{tabular}", r"\end{table}", "",
            )
        )  # fmt: skip

    def csv(self) -> str:
        """The table as CSV, with a column of its own for standard errors wherever a column has any."""
        with_error = [any(isinstance(row[i], Number) and row[i].error is not None for row in self.rows)  # type: ignore[union-attr]
                      for i in range(len(self.columns))]  # fmt: skip
        names = [f"{group} {column}".strip() for group, column in zip(self._group_of(), self.columns, strict=True)]
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(
            [n for name, extra in zip(names, with_error, strict=True) for n in (name, f"{name} se")[: 1 + extra]]
        )
        for row in self.rows:
            writer.writerow(
                [value for cell, extra in zip(row, with_error, strict=True) for value in _csv(cell)[: 1 + extra]]
            )
        return text.getvalue()

    def files(self) -> dict[str, str]:
        """The table in each of its forms, by the ending of its file."""
        return dict(zip(ENDINGS, (self.markdown(), self.latex(), self.csv()), strict=True))

    def _is_text(self, column: int) -> bool:
        return any(isinstance(row[column], str) for row in self.rows)

    def _group_of(self) -> list[str]:
        return [group for group, span in self.groups for _ in range(span)] or [""] * len(self.columns)


def percentage(found: Mean | None) -> Number | None:
    """A share as a percentage with one digit."""
    return None if found is None else Number(found.value, found.error, scale=100.0)


def number(found: Mean | None, digits: int = 1) -> Number | None:
    """A mean without its standard error."""
    return None if found is None else Number(found.value, digits=digits)


def contents(tables: Sequence[Table]) -> str:
    """All tables below one another, in Markdown, each under its name."""
    return "\n".join(f"## {table.name}\n\n{table.markdown()}" for table in tables)


def _markdown(cell: Cell) -> str:
    if isinstance(cell, Number):
        return cell.shown if cell.shown_error is None else f"{cell.shown} ± {cell.shown_error}"
    return "" if cell is None else _escaped(str(cell))


def _latex(cell: Cell) -> str:
    if isinstance(cell, Number):
        return f"${cell.shown}$" if cell.shown_error is None else rf"${cell.shown}_{{\pm {cell.shown_error}}}$"
    return "--" if cell is None else _tex(str(cell))


def _csv(cell: Cell) -> tuple[object, object]:
    if isinstance(cell, Number):
        return cell.value, "" if cell.error is None else cell.error
    return "" if cell is None else cell, ""


def _escaped(text: str) -> str:
    return text.replace("|", r"\|")


_TEX = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "±": r"$\pm$", "α": r"$\alpha$", "χ": r"$\chi$",
    "²": r"$^2$",
}  # fmt: skip


def _tex(text: str) -> str:
    return "".join(_TEX.get(sign, sign) for sign in text)
