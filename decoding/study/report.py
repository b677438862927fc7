"""From records to results: every analysis of the study, as one plain dictionary that is kept as JSON.

Results have three parts, each with the settings of its records: `windows` (the evidence, along known answers), `along`
and `free` (decoding with variants), the last two by passes a token and chosen setting. A part is replaced when its
records are given.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dystruct.model import PriorConfig

from ..errors import UserError
from .comparisons import compared
from .evidence import diagnostic_passes, gap_divergences, gap_targets, joint_commits
from .instability import carried_instability, length_payoff
from .measured import DEFAULT_TARGET, Measured
from .partitions import CONCENTRATIONS, FORMS, LEARNABLE, SHARPNESS, Evidence, block_distribution, learn, orders
from .proposals import proposal
from .records import read_records

EVIDENCE_TARGETS = (DEFAULT_TARGET, "wrong together", "right changes")


def windows_results(paths: Sequence[Path]) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """What records of windows say, and the setting that they propose for each gap target."""
    settings, records = _read(paths, "windows")
    measured = Measured.of(records)
    found: dict[str, Any] = {
        "settings": settings,
        "problems": {domain: measured.domains.count(domain) for domain in sorted(set(measured.domains))},
        "windows": len(measured.windows),
        "R3 carried": carried_instability(measured),
        "R3 payoff": length_payoff(measured),
        "R4 R6": diagnostic_passes(measured),
        "R5": gap_divergences(measured),
        "R8 targets": gap_targets(measured),
        "R8 joint commits": joint_commits(measured),
        "blocks": [],
        "learned": [],
        "orders": [],
    }
    proposals = {}
    for target in EVIDENCE_TARGETS:
        for form in FORMS:
            evidence = Evidence.of(measured, target, form)
            about = {"target": target, "form": form}
            found["blocks"].append(
                {**about, "settings": block_distribution(measured, evidence, CONCENTRATIONS, SHARPNESS)}
            )
            alone, both = learn(evidence, (1.0,)), learn(evidence, LEARNABLE)
            for learned, what in ((alone, "alpha0"), (both, "alpha0 and sharpness")):
                [row] = block_distribution(measured, evidence, [learned.concentration], [learned.sharpness])
                row |= {"learned": what, "gain": learned.gain, "at_bound": learned.at_bound}
                found["learned"].append(about | row)
            found["orders"] += [
                about | orders(measured, evidence, concentration, sharpness)
                for concentration, sharpness in (
                    (PriorConfig().concentration, 1.0),
                    (both.concentration, both.sharpness),
                )
            ]
            proposals[f"{target} {form}"] = proposal(measured, target, form, (both, alone))
    return found, proposals


def decodings_results(paths: Sequence[Path], study: str) -> tuple[str, dict[str, Any]]:
    """What records of decodings, `along` or `free`, say; and the name that tells them from others of their kind."""
    settings, records = _read(paths, study)
    rows = compared(records, along=study == "along", seed=settings["seed"])
    name, chosen = f"{settings['passes_per_token']:g} passes a token", settings["chosen"]
    if chosen is not None:
        name += f", chosen: {chosen['target']}, {chosen['form']}"
    return name, {"settings": settings, "rows": rows}


def merged(
    target: Path, windows: Sequence[Path], along: Sequence[Path], free: Sequence[Path]
) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """The results in a file, if there is one, with the parts replaced for which records are given; and proposals.

    Decodings with other settings are other parts; records with the same ones are taken together.
    """
    found = read_results(target) if target.exists() else {}
    proposals: dict[str, dict[str, Any]] = {}
    if windows:
        found["windows"], proposals = windows_results(windows)
    for study, paths in (("along", along), ("free", free)):
        fresh: set[str] = set()
        groups: dict[str, list[Path]] = {}
        for path in paths:
            groups.setdefault(json.dumps(read_records([path])[0]), []).append(path)
        for alike in groups.values():
            name, results = decodings_results(alike, study)
            if name in fresh:
                raise UserError(
                    f"Two of the records of --{study} are of {name} under other settings (seed, model or weights); "
                    f"report one of them at a time, to files of their own."
                )
            fresh.add(name)
            found.setdefault(study, {})[name] = results
    return found, proposals


def read_results(path: Path) -> dict[str, Any]:
    """Results that `report` wrote; UserError if the file is something else."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(found, dict) or not set(found) <= {"windows", "along", "free"}:
            raise ValueError("it has other parts")
    except (OSError, ValueError) as error:
        raise UserError(f"The results {str(path)!r} cannot be read ({error}); write them with `report`.") from error
    return found


def _read(paths: Sequence[Path], study: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    settings, records = read_records(paths)
    if settings["study"] != study:
        raise UserError(f"{str(paths[0])!r} holds records of {settings['study']!r}, not of {study!r}; correct that.")
    return {name: value for name, value in settings.items() if name not in ("format", "study")}, records
