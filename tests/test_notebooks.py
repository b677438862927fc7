"""The notebooks as they are committed: executed in order, without an error, small; the first one runs here.

`make notebooks` runs all of them.
"""

from __future__ import annotations

import ast
import importlib
import json
import re
from pathlib import Path
from typing import Any

import matplotlib
import pytest

FOLDER = Path(__file__).parent.parent / "notebooks"
NOTEBOOKS = {file.stem: json.loads(file.read_text(encoding="utf-8")) for file in sorted(FOLDER.glob("*.ipynb"))}
LARGEST = 400_000  # bytes of a file


def _code(notebook: dict[str, Any]) -> list[str]:
    """The sources of the code cells, without IPython's lines."""
    cells = ("".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code")
    return [re.sub(r"^%.*$", "", source, flags=re.MULTILINE) for source in cells]


def test_there_are_five() -> None:
    assert [name[:2] for name in NOTEBOOKS] == ["1_", "2_", "3_", "4_", "5_"]


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_it_says_first_what_it_teaches_and_ends_with_exercises(name: str) -> None:
    first, last = ("".join(NOTEBOOKS[name]["cells"][at]["source"]) for at in (0, -1))
    assert first.startswith(f"# {name[0]} · ")
    assert "**What this notebook teaches.**" in first
    assert re.search(r"^## Exercises\n\n1\. .*\n2\. .*\n3\. ", last, flags=re.MULTILINE)


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_its_outputs_are_those_of_one_run_in_order_without_error_or_warning(name: str) -> None:
    cells = [cell for cell in NOTEBOOKS[name]["cells"] if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1))
    outputs = [output for cell in cells for output in cell["outputs"]]
    assert {output["output_type"] for output in outputs} <= {"stream", "execute_result", "display_data"}
    assert {output.get("name", "stdout") for output in outputs} == {"stdout"}
    assert any("image/png" in output.get("data", {}) for output in outputs)
    assert (FOLDER / f"{name}.ipynb").stat().st_size < LARGEST


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_it_parses_and_what_it_imports_is_there(name: str) -> None:
    for source in _code(NOTEBOOKS[name]):
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    importlib.import_module(alias.name)
            elif isinstance(node, ast.ImportFrom):
                module = importlib.import_module(node.module or "")
                for alias in node.names:
                    if not hasattr(module, alias.name):
                        importlib.import_module(f"{node.module}.{alias.name}")


def test_the_first_one_runs() -> None:
    matplotlib.use("agg")
    names: dict[str, Any] = {}
    for number, source in enumerate(_code(NOTEBOOKS[min(NOTEBOOKS)]), start=1):
        exec(compile(source, f"cell {number}", "exec"), names)
    names["plt"].close("all")
