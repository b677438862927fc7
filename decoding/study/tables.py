"""Results as Markdown, in words and tables, and their place in a document: between two comment lines that name them.

So the document is written once and its numbers are only ever made from the results. Knows no records and no model.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ..errors import UserError
from ..files import save_text
from .answers import answers
from .cells import estimated, percent

BEGIN, END = "<!-- tables: made by `report`, not by hand -->", "<!-- end of tables -->"


def with_tables(document: str, results: dict[str, Any]) -> str:
    """A document with the tables of these results between its comment lines; UserError if it lacks them."""
    if document.count(BEGIN) != 1 or document.count(END) != 1 or document.index(BEGIN) > document.index(END):
        raise UserError(f"The document has no place for tables; give it the lines {BEGIN!r} and {END!r}.")
    return document[: document.index(BEGIN) + len(BEGIN)] + "\n\n" + tables(results) + document[document.index(END) :]


def tables(results: dict[str, Any]) -> str:
    """What these results say in words, and all their tables, each under a heading."""
    parts = [answers(results)]
    if "windows" in results:
        parts += _windows(results["windows"])
    for study, what in (("along", "Windows decoded behind right beginnings"), ("free", "Whole problems")):
        for name, found in sorted(results.get(study, {}).items()):
            parts += _decodings(f"{what}, {name}", found, along=study == "along")
    return "".join(parts)


def write_tables(results: dict[str, Any], path: Path) -> None:
    """Put the tables into a document."""
    try:
        document = path.read_text(encoding="utf-8")
    except OSError as error:
        raise UserError(f"The document {str(path)!r} cannot be read ({error.strerror}); correct the path.") from error
    save_text(path, with_tables(document, results))


# --- windows ----------------------------------------------------------------------------------------------------------


def _windows(found: dict[str, Any]) -> list[str]:
    problems = ", ".join(f"{count} {domain}" for domain, count in found["problems"].items())
    settings = found["settings"]
    about = (
        f"Model {settings['model']}; validation items from {settings['first_item']} on ({problems} problems); "
        f"{found['windows']} windows; seed {settings['seed']}; 95% intervals over problems.\n\n"
    )
    payoff = found["R3 payoff"]
    cells = ", ".join(
        f"{name}: {estimated(cell['wrong'])} (n = {cell['windows']})"
        for name, cell in payoff.items()
        if name not in ("windows", "payoff")
    )
    return [
        "### Windows along known answers\n\n" + about,
        _table(
            "R3: what is carried on from a window to the next one's length",
            found["R3 carried"],
            [
                ("rule", lambda r: r["rule"]),
                ("n windows", lambda r: r["windows"]),
                ("hbar, mean", lambda r: estimated(r["hbar"])),
                ("standard deviation", lambda r: f"{r['spread']:.3f}"),
                ("wrong tokens", lambda r: estimated(r["error_rate"])),
                ("mu, tokens", lambda r: f"{r['rate']:.1f} ± {r['rate_spread']:.1f}"),
                ("AUROC, many wrong in it", lambda r: estimated(r["here"])),
                ("AUROC, many wrong in the next", lambda r: estimated(r["next"])),
            ],
        ),
        f"Share of wrong tokens in the window behind a stable or unstable one (calibrated hbar, split at the median), "
        f"by its length (short: up to 28 tokens): {cells}. What a short window saves more behind an unstable one: "
        f"{estimated(payoff['payoff'])}.\n\n",
        _table(
            "R4, R6: the diagnostic passes",
            found["R4 R6"],
            [
                ("reading", lambda r: r["reading"]),
                ("n positions", lambda r: r["positions"]),
                ("rate of d", lambda r: f"{r['rate']:.3f}"),
                ("AUROC of u for d", lambda r: estimated(r["auroc"])),
                ("for errors of decoding", lambda r: estimated(r["decoded"])),
                ("refitted on these", lambda r: estimated(r["refitted"])),
                ("above K = 4", lambda r: estimated(r["above"], sign=True)),
            ],
        ),
        _table(
            "R5: which passes' distributions a gap's divergence is of",
            found["R5"],
            [
                ("gap target", lambda r: r["target"]),
                ("passes", lambda r: r["passes"]),
                ("n gaps", lambda r: r["gaps"]),
                ("AUROC of ell", lambda r: estimated(r["auroc"])),
                ("above first", lambda r: estimated(r["above"], sign=True)),
                ("AUROC of the divergence alone", lambda r: estimated(r["divergence_alone"])),
            ],
        ),
        _table(
            "R8: AUROC of ell by what w_b is fitted on (rows) and what is foretold (columns)",
            found["R8 targets"],
            [
                ("fitted on", lambda r: r["fitted_on"] + ("" if r["intercept"] else ", no intercept")),
                ("n gaps", lambda r: r["gaps"]),
                ("rate", lambda r: f"{r['rate']:.3f}"),
                *((target, _auroc_of(target)) for target in found["R8 targets"][0]["auroc"]),
            ],
        ),
        _table(
            "R8: two tokens in one pass",
            found["R8 joint commits"],
            [
                ("pairs", lambda r: r["case"]),
                ("n", lambda r: r["pairs"]),
                ("right together", lambda r: estimated(r["rates"]["together"])),
                ("right in turn", lambda r: estimated(r["rates"]["in_turn"])),
                ("wrong only together", lambda r: estimated(r["rates"]["wrong_together"])),
                ("wrong only in turn", lambda r: estimated(r["rates"]["wrong_in_turn"])),
                ("right one changes", lambda r: estimated(r["rates"]["right_changes"])),
            ],
        ),
        _table(
            "R8: AUROC for `wrong only together`",
            [row for row in found["R8 joint commits"] if "auroc" in row],
            [
                ("pairs", lambda r: r["case"]),
                *((score, _auroc_of(score)) for score in _scores(found["R8 joint commits"])),
                ("slope on ell, a nat", lambda r: estimated(r["slope"], sign=True)),
            ],
        ),
        *(_grid(grid) for grid in found["blocks"] if grid["target"] != _SHATTERING),
        _table(
            "Settings of maximum evidence",
            found["learned"],
            [
                ("w_b fitted on", _evidence),
                ("learned", lambda r: r["learned"] + (" (at a bound)" if r["at_bound"] else "")),
                ("gain, nats a window", lambda r: f"{r['gain']:.2f}"),
                *_SETTING,
            ],
        ),
        _table(
            "R9, R10: orders and joint maxima",
            found["orders"],
            [
                ("w_b fitted on", _evidence),
                ("alpha0", lambda r: f"{r['concentration']:.3g}"),
                ("s", lambda r: f"{r['sharpness']:g}"),
                ("n windows of several blocks", lambda r: r["windows_of_several_blocks"]),
                ("not left to right, C static", lambda r: percent(r["not_left_to_right"]["static"])),
                ("C dynamic", lambda r: percent(r["not_left_to_right"]["dynamic"])),
                (
                    "joint maximum has another partition",
                    lambda r: f"{percent(r['joint_maximum_differs'])} of {r['joint_maximum_windows']}",
                ),
            ],
        ),
    ]


# The gap target under which most windows fall into single tokens; the results have its grid, the document does not.
_SHATTERING = "right changes"


def _scores(rows: Sequence[dict[str, Any]]) -> list[str]:
    return list(next((row["auroc"] for row in rows if "auroc" in row), {}))


def _auroc_of(name: str) -> Callable[[dict[str, Any]], str]:
    return lambda row: estimated(row["auroc"][name])


_SETTING: list[tuple[str, Callable[[dict[str, Any]], Any]]] = [
    ("alpha0", lambda r: f"{r['concentration']:.3g}"),
    ("s", lambda r: f"{r['sharpness']:g}"),
    ("MAP blocks", lambda r: f"{r['map']['mean']:.2f}"),
    ("1, 2, 3, 4 or more", lambda r: ", ".join(map(percent, r["map"]["shares"]))),
    ("sampled blocks", lambda r: f"{r['sampled']['mean']:.2f}"),
    ("1, 2, 3, 4 or more", lambda r: ", ".join(map(percent, r["sampled"]["shares"]))),
    ("wrong together, apart", lambda r: estimated(r["apart"])),
    ("inside a block", lambda r: estimated(r["inside"])),
    ("help", lambda r: estimated(r["help"], sign=True)),
    ("help, MAP", lambda r: estimated(r["map_help"], sign=True)),
]


def _evidence(row: dict[str, Any]) -> str:
    return f"{row['target']}, {row['form']}"


def _grid(grid: dict[str, Any]) -> str:
    """Settings as a matrix: a row each alpha0, two columns each sharpness, of MAP and sampled blocks and of help."""
    by_setting = {(row["concentration"], row["sharpness"]): row for row in grid["settings"]}
    sharpness = sorted({s for _, s in by_setting})
    rows = [{"alpha0": alpha0} for alpha0 in sorted({alpha0 for alpha0, _ in by_setting})]
    columns: list[tuple[str, Callable[[dict[str, Any]], Any]]] = [("alpha0", lambda r: f"{r['alpha0']:g}")]
    for s in sharpness:
        columns += [(f"s = {s:g}: blocks", _blocks_at(by_setting, s)), ("help", _help_at(by_setting, s))]
    first = grid["settings"][0]
    title = (
        f"Blocks a window (MAP, share of one block; sampled) and help, w_b fitted on `{_evidence(grid)}`, "
        f"{first['windows']} windows, {first['pairs']} pairs"
    )
    return _table(title, rows, columns)


def _blocks_at(found: dict[tuple[float, float], dict[str, Any]], s: float) -> Callable[[dict[str, Any]], str]:
    def cell(row: dict[str, Any]) -> str:
        there = found[row["alpha0"], s]
        return f"{there['map']['mean']:.2f}, {percent(there['map']['shares'][0])}; {there['sampled']['mean']:.2f}"

    return cell


def _help_at(found: dict[tuple[float, float], dict[str, Any]], s: float) -> Callable[[dict[str, Any]], str]:
    return lambda row: estimated(found[row["alpha0"], s]["help"], sign=True, digits=2)


# --- decodings --------------------------------------------------------------------------------------------------------


def _decodings(title: str, found: dict[str, Any], *, along: bool) -> list[str]:
    settings = found["settings"]
    about = (
        f"### {title}\n\nModel {settings['model']}; validation items from {settings['first_item']} on; seed "
        f"{settings['seed']}; temperature 0. Differences are to the base, on the same problems.\n\n"
    )
    whole = [row for row in found["rows"] if row["domain"] is None]
    domains = sorted({row["domain"] for row in found["rows"]} - {None})
    by_domain = {(row["variant"], row["domain"]): row for row in found["rows"]}
    columns: list[tuple[str, Callable[[dict[str, Any]], Any]]] = [
        ("variant", lambda r: r["variant"]),
        ("n problems", lambda r: r["problems"]),
        ("right", lambda r: estimated(r["right"])),
        ("difference", lambda r: estimated(r.get("right_difference"), sign=True)),
        ("gained, lost, p", lambda r: _mcnemar(r.get("mcnemar"))),
        *((f"right, {domain}", _in_domain(by_domain, domain)) for domain in domains),
        ("passes", lambda r: estimated(r["passes"], digits=1)),
    ]
    if along:
        columns += [
            ("wrong tokens", lambda r: estimated(r["wrong_share"])),
            ("difference", lambda r: estimated(r.get("wrong_share_difference"), sign=True)),
            ("welds mended, spoilt", lambda r: f"{r['mended']['value']:.2f}, {r['spoilt']['value']:.2f}"),
        ]
    else:
        columns += [
            ("wasted tokens", lambda r: estimated(r["wasted"], digits=1)),
            ("difference", lambda r: estimated(r.get("wasted_difference"), sign=True, digits=1)),
            ("windows", lambda r: f"{r['windows']['value']:.2f}"),
            ("their length", lambda r: f"{r['length']['value']:.1f}"),
        ]
    columns += [
        ("blocks a window", lambda r: f"{r['blocks']['value']:.2f}"),
        ("windows reordered", lambda r: percent(r["reordered"]["value"])),
    ]
    return [about, _table(None, whole, columns)]


def _in_domain(rows: dict[tuple[str, str], dict[str, Any]], domain: str) -> Callable[[dict[str, Any]], str]:
    def cell(row: dict[str, Any]) -> str:
        there = rows.get((row["variant"], domain))
        return "" if there is None else f"{percent(there['right']['value'])} (n = {there['problems']})"

    return cell


def _mcnemar(found: dict[str, Any] | None) -> str:
    return "" if found is None else f"{found['gained']}, {found['lost']}, {found['p']:.3f}"


# --- cells ------------------------------------------------------------------------------------------------------------


def _table(
    title: str | None, rows: Sequence[dict[str, Any]], columns: Sequence[tuple[str, Callable[[dict[str, Any]], Any]]]
) -> str:
    lines = [" | ".join(name for name, _ in columns), " | ".join("---" for _ in columns)]
    lines += [" | ".join(str(cell(row)) for _, cell in columns) for row in rows]
    body = "".join(f"| {line} |\n" for line in lines)
    return ("" if title is None else f"**{title}**\n\n") + body + "\n"
