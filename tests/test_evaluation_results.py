"""The results that come along: their tables are what `dystruct tables` makes of the summaries beside them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from types import SimpleNamespace

import pytest

from dystruct.decoding.evaluation import tasks
from dystruct.decoding.evaluation.report import find_runs, report
from dystruct.decoding.evaluation.summary import load_summary
from dystruct.decoding.evaluation.sweep import read_sweep

FOLDER = Path(tasks.__file__).parent
SWEEPS = sorted(path.parent for path in (FOLDER / "results").glob("*/tables.md"))
AGAINST = {
    "main": "DyStruct, tuned",
    "cuts": "many blocks, structure sample, schedule left-to-right",
    "sensitivity": "alpha0, alpha0 1.5",
    "ablations": "ablation, schedule priority, weld sequential",
    "lengths": "sampled, law prior",
}
ROOT = FOLDER.parents[1]


@pytest.mark.parametrize("folder", SWEEPS, ids=lambda path: path.name)
def test_the_tables_are_made_from_the_summaries(folder: Path, tmp_path: Path) -> None:
    report([folder], tmp_path, against=AGAINST.get(folder.name))
    assert (tmp_path / "tables.md").read_text() == (folder / "tables.md").read_text()


@pytest.mark.parametrize("folder", SWEEPS, ids=lambda path: path.name)
def test_no_two_tables_say_the_same_of_themselves(folder: Path) -> None:
    captions = re.findall(r"^#+ .+\n+([A-Z].*)$", (folder / "tables.md").read_text(), flags=re.MULTILINE)
    assert len(set(captions)) == len(captions) > 1


@pytest.mark.parametrize("folder", SWEEPS, ids=lambda path: path.name)
def test_the_runs_are_those_of_the_sweep(folder: Path) -> None:
    """Each with the settings that the file declares now, on the items that come along now, and whole."""
    planned = {run.folder: run.settings for run in read_sweep(FOLDER / "sweeps" / f"{folder.name}.toml")}
    for place in find_runs([folder]):
        found, wanted = load_summary(place), planned[place.name]
        limit = found.settings["limit"]
        assert found.complete
        assert (found.settings["decoder"], found.settings["budget"]) == (wanted.decoder, wanted.budget)
        for task, summary in found.tasks.items():
            asked = tasks.items(task, wanted.split, limit)
            assert (summary.count, summary.digest) == (limit, tasks.digest(asked))


@pytest.mark.parametrize(
    ("sweep", "budget", "behind"),
    [
        *(("main", n, f"(budget {n}):\n\n") for n in (64, 128, 256)),
        ("cuts", 256, "at random places):\n\n"),
        ("lengths", 256, "sweeps/lengths.toml runs/lengths --execute-code --compiled --dtype bfloat16\n\n"),
    ],
)
def test_the_text_shows_what_the_tables_have(sweep: str, budget: int, behind: str) -> None:
    """Its tables of a budget are those rows, without the columns that are the same in all of them."""
    held = [row[:1] + row[3:] for row in _table(sweep, "against") if row[1] in ("passes", str(budget))]
    text = (FOLDER / "results" / "README.md").read_text()
    assert _cells(text.split(behind)[1].split("\n\n")[0].replace("**", "")) == held


@pytest.mark.parametrize("document", ["README.md", "notebooks/2_map_versus_sampled_structures.ipynb"])
def test_other_documents_quote_what_the_tables_have(document: str) -> None:
    text = (ROOT / document).read_text()
    if document.endswith(".ipynb"):
        text = "\n".join("".join(cell["source"]) for cell in json.loads(text)["cells"])
    text = " ".join(text.split())
    assert [quote for quote in _quotes()[document] if quote not in text] == []


def _quotes() -> dict[str, list[str]]:
    """What each document is to say."""
    main, cuts = _runs("main"), _runs("cuts")
    ours, daedal, plain = (main[name, 64] for name in ("DyStruct, tuned", "DAEDAL, tuned", "blocks of 16, threshold"))
    best, sample, single = (main[name, 64] for name in ("DyStruct, MAP", "DyStruct, sampled", "one block a window"))
    in_order, at_random, by_priority = (
        cuts[f"many blocks, structure {name}", 256]
        for name in ("sample, schedule left-to-right", "shuffled, schedule left-to-right", "sample, schedule priority")
    )
    in_sorted, in_random = (cuts[f"many blocks, {order}", 256] for order in ("sorted", "random order"))
    fewer, as_many = (cuts[f"one block, more passes, threshold {level}", 256] for level in ("0.99", "0.995"))
    ways = {row[1]: row for row in _table("structures", "variation") if row[0] == "all"}
    sampled, shuffled, tokens = (
        f"{float(ways[way][-3]):.2f}"
        for way in ("sampled structures", "shuffled structures", "sampled tokens, temperature 0.5")
    )
    scores = {row[1]: row[4] for row in _table("structures", "uncertainty") if row[0] == "all"}
    confidence, entropy, doubt = (
        f"{float(scores[name]):.2f}" for name in ("token confidence", "entropy", "1 - P(MAP)")
    )
    answers = ways["sampled structures"][3]
    return {
        "README.md": [
            f"({ours.accuracy}% of {ours.items} test items in {ours.passes} passes at a budget of 64; "
            f"DAEDAL {daedal.accuracy}% in {daedal.passes})",
            f"undiagnosed and uncut: {plain.accuracy}% in {plain.passes}.",
            f"MAP has {best.accuracy}%, sampled structures {sample.accuracy}%, one block a window {single.accuracy}% "
            f"({best.items} items, budget 64",
            f"{in_order.accuracy}% of {in_order.items} right, {at_random.accuracy}% at random places; one block a "
            f"window with as many passes has {as_many.accuracy}%, with fewer {fewer.accuracy}%. By priority "
            f"the posterior's blocks have {in_sorted.accuracy}%, as the paper sorts them, and {by_priority.accuracy}% "
            f"in an order drawn from its law, no more than in a random one ({in_random.accuracy}%).",
            f"is {sampled} with sampled structures, {shuffled} with structures at random places, {tokens} with sampled "
            f"tokens; by the tokens' mean confidence it is {confidence} ({answers} items, budget 64)",
        ],
        "notebooks/2_map_versus_sampled_structures.ipynb": [
            f"MAP answers {main['DyStruct, MAP', 256].accuracy}% of {main['DyStruct, MAP', 256].items} problems and "
            f"one sample {main['DyStruct, sampled', 256].accuracy}%.",
            f"cuts have {in_order.accuracy}% of {in_order.items}, as many blocks at random places "
            f"{at_random.accuracy}%, and the posterior's by priority {in_sorted.accuracy}% sorted and "
            f"{by_priority.accuracy}% in a drawn order.",
            f"[over {answers} problems]",
            f"an AUROC of {sampled}.",
            f"at random places it is {shuffled}, while the posterior's own entropy and P(MAP) have {entropy} and "
            f"{doubt}",
        ],
    }


def _runs(sweep: str) -> dict[tuple[str, int], SimpleNamespace]:
    """Runs by name and budget: items, accuracy, passes an item, as the table has them."""
    return {
        (row[0], int(row[1])): SimpleNamespace(items=row[3], accuracy=row[4].split(" ")[0], passes=row[5])
        for row in _table(sweep, "against")[1:]
    }


def _table(sweep: str, name: str) -> list[list[str]]:
    """The rows of a sweep's table, its heading first."""
    text = (FOLDER / "results" / sweep / "tables.md").read_text()
    return _cells(text.split(f"## {name}\n")[1].split("\n## ")[0])


def _cells(text: str) -> list[list[str]]:
    """The rows of a Markdown table, its heading first, each as its cells."""
    found = [[cell.strip() for cell in line[1:-1].split("|")] for line in text.splitlines() if line.startswith("|")]
    return [row for row in found if not set("".join(row)) <= set(":-")]
