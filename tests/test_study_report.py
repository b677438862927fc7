"""The study's report: variants compared, results and tables brought up to date, and what is said of them in words."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from dystruct.decoding import UserError
from dystruct.decoding.study import report
from dystruct.decoding.study.__main__ import app
from dystruct.decoding.study.answers import answers
from dystruct.decoding.study.comparisons import compared
from dystruct.decoding.study.proposals import read_proposal
from dystruct.decoding.study.records import FORMAT
from dystruct.decoding.study.tables import BEGIN, END, with_tables
from study_windows import records, resample_less

README = Path(__file__).parent.parent / "decoding" / "study" / "README.md"


# --- comparisons ------------------------------------------------------------------------------------------------------


def decoded(variant: str, domain: str, number: int, right: int, passes: int = 10) -> dict[str, Any]:
    windows = [{"length": length, "blocks": 2, "in_order": 1} for length in (8, 24)]
    return {
        "key": [variant, domain, number], "right": right, "passes": passes, "useful": 5, "wasted": 3,
        "windows": windows,
    }  # fmt: skip


def test_variants_are_compared_on_the_problems_that_both_have() -> None:
    base = [decoded("base", "maths", n, right) for n, right in enumerate([1, 1, 0, 0, 1, 0])]
    other = [decoded("other", "maths", n, right, 14) for n, right in enumerate([1, 0, 1, 1, 1])]
    other.append(decoded("other", "logic", 0, 1))  # the base has not been there
    rows = {(row["variant"], row["domain"]): row for row in compared(base + other, along=False)}
    assert list(rows) == [("base", None), ("base", "maths"), ("other", None), ("other", "maths")]
    there = rows["other", None]
    assert there["problems"] == 5 and there["right"]["value"] == 0.8
    assert there["right_difference"]["value"] == pytest.approx(0.2)
    assert there["mcnemar"] == {"gained": 2, "lost": 1, "p": 1.0}
    assert there["passes_difference"] == {"value": 4.0, "low": 4.0, "high": 4.0}
    assert there["length"]["value"] == 16 and there["windows"]["value"] == 2
    assert rows["base", None]["problems"] == 6 and "mcnemar" not in rows["base", None]
    [row] = compared(other, along=False)
    assert row["problems"] == 0 and row["mcnemar"] == {"gained": 0, "lost": 0, "p": 1.0}


def test_a_clear_difference_is_clear() -> None:
    rng = np.random.default_rng(0)
    every = []
    for n in range(120):
        right = rng.uniform() < 0.5
        every += [decoded("base", "maths", n, int(right)), decoded("better", "maths", n, int(right or n % 4 == 0))]
        every.append(decoded("alike", "maths", n, int(right if n % 8 else rng.uniform() < 0.5)))
    rows = {row["variant"]: row for row in compared(every, along=False) if row["domain"] is None}
    assert rows["better"]["right_difference"]["low"] > 0 and rows["better"]["mcnemar"]["p"] < 0.001
    assert rows["alike"]["right_difference"]["low"] < 0 < rows["alike"]["right_difference"]["high"]


# --- reports ----------------------------------------------------------------------------------------------------------


def write(path: Path, study: str, found: list[dict[str, Any]], **settings: Any) -> None:
    header = {"format": FORMAT, "study": study, "model": "m", "seed": 0, "first_item": 5, **settings}
    path.write_text("".join(json.dumps(line) + "\n" for line in [header, *found]))


def test_a_report_brings_results_and_tables_up_to_date(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    resample_less(monkeypatch)
    for name, fewer in (("CONCENTRATIONS", (1.5,)), ("SHARPNESS", (1.0,)), ("LEARNABLE", (1.0, 2.0))):
        monkeypatch.setattr(report, name, fewer)
    monkeypatch.setattr(report, "EVIDENCE_TARGETS", ("errors differ",))
    write(tmp_path / "w", "windows", records(12), windows=2)
    free = [decoded(variant, "maths", n, n % 2) for variant in ("base", "K=2") for n in range(4)]
    write(tmp_path / "f", "free", free, passes_per_token=0.5, chosen=None)
    results, document = tmp_path / "results.json", tmp_path / "doc.md"
    document.write_text(f"Before.\n{BEGIN}\nstale\n{END}\nBehind.\n")
    common = ["report", str(results), "--tables", str(document)]
    write(tmp_path / "g", "free", free[:2], passes_per_token=0.25, chosen=None)
    more = [decoded("base", "logic", 0, 1)]  # another part of the same measurement
    write(tmp_path / "h", "free", more, passes_per_token=0.5, chosen=None)
    run = CliRunner().invoke(app, [*common, *(f"--free={tmp_path / name}" for name in "fgh")])
    assert run.exit_code == 0, run.output
    rows = json.loads(results.read_text())["free"]
    assert set(rows) == {"0.5 passes a token", "0.25 passes a token"}
    assert rows["0.5 passes a token"]["rows"][0]["problems"] == 5
    run = CliRunner().invoke(app, [*common, "--windows", str(tmp_path / "w"), "--proposals", str(tmp_path / "p")])
    assert run.exit_code == 0, run.output
    found = json.loads(results.read_text())
    assert set(found) == {"free", "windows"} and found["windows"]["problems"] == {"logic": 4, "maths": 8}
    text = document.read_text()
    assert text.startswith(f"Before.\n{BEGIN}\n") and text.endswith(f"{END}\nBehind.\n") and "stale" not in text
    assert "| K=2 | 4 | 0.500" in text
    assert with_tables(text, found) == text
    chosen = read_proposal(tmp_path / "p" / "errors-differ-ratio.json")
    assert chosen.concentration > 0 and chosen.weights.gap.shape == (4,)
    run = CliRunner().invoke(app, ["report", str(results), "--along", str(tmp_path / "f")])
    assert run.exit_code == 2 and "holds records of 'free'" in run.stderr


def test_records_of_other_settings_do_not_take_anothers_place(tmp_path: Path) -> None:
    for seed in (0, 1):
        found = [decoded("base", "maths", n, seed) for n in range(4)]
        write(tmp_path / str(seed), "free", found, passes_per_token=0.5, chosen=None, seed=seed)
    both = (f"--free={tmp_path / str(seed)}" for seed in (0, 1))
    run = CliRunner().invoke(app, ["report", str(tmp_path / "results.json"), *both])
    assert run.exit_code == 2 and "under other settings" in run.stderr and not (tmp_path / "results.json").exists()


def between(low: float, value: float, high: float) -> dict[str, float]:
    return {"value": value, "low": low, "high": high}


def test_the_words_are_those_of_the_intervals() -> None:
    """The same figures on either side of no effect and about it: three different words, each with its n."""
    said = []
    for interval in ((0.01, 0.02, 0.03), (-0.03, -0.02, -0.01), (-0.01, 0.02, 0.05)):
        row = {"target": "errors differ", "passes": "last", "gaps": 77, "above": between(*interval)}
        found = json.loads(README.with_name("results.json").read_text())["windows"] | {"R5": [row]}
        [line] = [line for line in answers({"windows": found}).splitlines() if line.startswith("**R5")]
        assert "n = 77" in line and "windows`" in line
        said.append(line.split(", ")[-1].split(".")[0])
    assert said == ["better", "worse", "no difference measured"]


def test_right_answers_go_by_the_exact_test() -> None:
    """Four problems of sixty gained and none lost: its interval is above 0, the exact test says p = 0.125."""
    for gained, word in ((4, "no difference measured"), (12, "better")):
        every = [decoded("base", "maths", n, 0) for n in range(60)]
        every += [decoded("hbar centred", "maths", n, int(n < gained)) for n in range(60)]
        rows = compared(every, along=False)
        assert rows[2]["right_difference"]["low"] > 0
        text = answers({"free": {"1 passes a token": {"rows": rows}}})
        [line] = [line for line in text.splitlines() if line.startswith("**R3")]
        assert "n = 60" in line and f", {word}." in line and "decode --free --groups R3" in line
    assert answers({}) == ""


def test_a_document_without_a_place_for_tables_is_left_alone() -> None:
    with pytest.raises(UserError, match="no place"):
        with_tables("Nothing here.", {})


def test_the_documents_tables_are_those_of_the_results() -> None:
    results = json.loads(README.with_name("results.json").read_text())
    assert with_tables(README.read_text(), results) == README.read_text()
