"""The house's own laws: which way imports go, where each third-party package may enter, what lies at the top."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import pytest

ROOT = Path(__file__).parent.parent
FOLDERS = ("model", "inference", "decoding")  # each may import those before it
TOP_LEVEL = {*FOLDERS, "tests", "notebooks", "pyproject.toml", "README.md"}
FOR_TOOLS = {"Makefile", "LICENSE", "constraints.txt", ".ci", ".git", ".gitignore", ".gitattributes"}
ARVIZ = ("inference/arviz_tree.py",)
ONLY_IN = {
    "pyro": ("model/", "inference/"),
    "transformers": ("decoding/",),
    "lm_eval": ("decoding/evaluation/harness", "decoding/evaluation/__main__.py"),
    "arviz": ARVIZ,
    "arviz_base": ARVIZ,
    "arviz_plots": ARVIZ,
    "arviz_stats": ARVIZ,
    "xarray": ARVIZ,
}


def violations(path: str, source: str) -> list[str]:
    """What the imports of a file break, one sentence each. `path` is relative to the root, with slashes."""
    folder, *inner = PurePosixPath(path).parts
    found = []
    for line, level, name in _imports(ast.parse(source)):
        top, _, rest = name.partition(".")
        if level:
            reason = "leaves its folder by a relative import" if level > len(inner) else None
        elif top in FOLDERS:
            reason = f"imports {name}: say dystruct.{name}"
        elif top == "dystruct":
            reason = _direction(folder, rest.split(".")[0])
        else:
            reason = _placement(path, folder, top)
        if reason:
            found.append(f"{path}:{line} {reason}")
    return found


def _imports(tree: ast.AST) -> Iterator[tuple[int, int, str]]:
    """(line, level, name) of every import, wherever it stands; level counts the leading dots."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, 0, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            if node.module == "dystruct" and not node.level:
                yield from ((node.lineno, 0, f"dystruct.{alias.name}") for alias in node.names)
            else:
                yield node.lineno, node.level, node.module or ""


def _direction(folder: str, target: str) -> str | None:
    if folder not in FOLDERS:
        return None
    if target == folder:
        return f"imports dystruct.{target} from inside: use a relative import"
    if target not in FOLDERS[: FOLDERS.index(folder)]:
        return f"imports {target or 'dystruct'} against the direction {' <- '.join(FOLDERS)}"
    return None


def _placement(path: str, folder: str, package: str) -> str | None:
    places = ONLY_IN.get(package)
    if folder not in FOLDERS or places is None or path.startswith(places):
        return None
    return f"imports {package}, which belongs in {' and '.join(places)}"


def _sources() -> Iterator[tuple[str, str]]:
    for folder in (*FOLDERS, "tests"):
        for file in sorted((ROOT / folder).rglob("*.py")):
            yield file.relative_to(ROOT).as_posix(), file.read_text()
    for file in sorted((ROOT / "notebooks").glob("*.ipynb")):
        cells = (cell["source"] for cell in json.loads(file.read_text())["cells"] if cell["cell_type"] == "code")
        lines = (line for cell in cells for line in "".join(cell).splitlines())
        code = "\n".join("" if line.startswith(("%", "!")) else line for line in lines)
        yield file.relative_to(ROOT).as_posix(), code


def test_imports_go_one_way_and_packages_enter_where_named() -> None:
    assert [broken for path, source in _sources() for broken in violations(path, source)] == []


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("model/a.py", "from dystruct.inference import posterior"),
        ("model/a.py", "from dystruct import decoding"),
        ("inference/a.py", "def f():\n    import dystruct.decoding.engine"),
        ("inference/a.py", "from dystruct.inference.semimarkov import SemiMarkov"),
        ("inference/a.py", "import dystruct"),
        ("decoding/a.py", "from ..model import Partition"),
        ("decoding/baselines/a.py", "from ...model import Partition"),
        ("decoding/a.py", "from model.partition import Partition"),
        ("tests/test_a.py", "import model"),
        ("notebooks/a.ipynb", "from inference import posterior"),
        ("decoding/a.py", "import pyro.distributions as dist"),
        ("model/a.py", "if True:\n    from transformers import AutoTokenizer"),
        ("inference/posterior.py", "import xarray as xr"),
        ("inference/arviz_tree.py", "import transformers"),
        ("decoding/cli.py", "from lm_eval.api import model"),
        ("decoding/evaluation/a.py", "import lm_eval"),
    ],
)
def test_a_violation_is_found(path: str, source: str) -> None:
    assert len(violations(path, source)) == 1


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("model/a.py", "import pyro\nfrom .partition import Partition\nfrom . import priors"),
        ("inference/a.py", "from dystruct.model import Partition\nfrom dystruct import model\nimport pyro"),
        ("inference/arviz_tree.py", "import arviz\nimport xarray"),
        ("decoding/baselines/a.py", "from ..engine import run\nfrom dystruct.inference import posterior"),
        ("decoding/evaluation/harness_a.py", "import lm_eval, transformers"),
        ("tests/test_a.py", "import pyro, xarray, oracles\nfrom dystruct.decoding import generate"),
    ],
)
def test_what_is_allowed_passes(path: str, source: str) -> None:
    assert violations(path, source) == []


def test_only_programs_know_the_terminal() -> None:
    """All else is asked for from Python, too: what both need stands beside the decoders."""
    found = [
        f"{path}:{line}"
        for path, source in _sources()
        if path.startswith("decoding/") and not path.startswith("decoding/terminal/")
        if not path.endswith("/__main__.py")
        for line, _, name in _imports(ast.parse(source))
        if "terminal" in name.split(".")
    ]
    assert found == []


def test_top_level_holds_only_what_the_house_allows() -> None:
    """Of what is under version control: who follows the README has traces and tables lying about."""
    listed = subprocess.run(["git", "-C", str(ROOT), "ls-files", "-z"], capture_output=True, text=True)
    if listed.returncode:
        pytest.skip("not a git checkout")
    names = {path.split("/")[0] for path in listed.stdout.split("\0") if path}
    assert names - FOR_TOOLS <= TOP_LEVEL


def test_every_package_is_installed() -> None:
    """A folder that `packages` leaves out imports from an editable install and is missing from a wheel."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    folders = {
        f"dystruct.{'.'.join(file.parent.relative_to(ROOT).parts)}"
        for folder in FOLDERS
        for file in (ROOT / folder).rglob("*.py")
    }
    assert set(settings["packages"]) == folders
    assert settings["package-dir"] == {name: name.partition(".")[2].replace(".", "/") for name in folders}


@pytest.mark.parametrize("package", ["dystruct.model", "dystruct.inference"])
def test_structure_maths_loads_no_language_model_library(package: str) -> None:
    """In a fresh process, away from the root: no transformers, and no ArviZ, which takes a second."""
    code = f"import sys, {package}; print(*sys.modules.keys() & {{'transformers', 'arviz', 'xarray'}})"
    run = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.split() == []
