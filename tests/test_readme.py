"""What the documents show is so: their Python runs, their commands parse, their links lead somewhere."""

from __future__ import annotations

import json
import re
import shlex
import tomllib
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.main import get_command

from dystruct.decoding.bench import __main__ as bench
from dystruct.decoding.bench import agreement
from dystruct.decoding.evaluation.sweep import read_sweep
from dystruct.decoding.study.__main__ import app as study
from dystruct.decoding.terminal.cli import app

ROOT = Path(__file__).parent.parent
FOLDERS = ("model", "inference", "decoding", "notebooks")
BENCHMARKS = {"dystruct.decoding.bench": bench.parser, "dystruct.decoding.bench.agreement": agreement.parser}
HARNESS = "dystruct.decoding.evaluation"
FENCE = re.compile(r"^( *)```(\w*)\n(.*?)^\1```", flags=re.DOTALL | re.MULTILINE)


def _documents() -> Iterator[tuple[str, str]]:
    """Each document's name and Markdown; of a notebook, the text between its code."""
    for file in (ROOT / "README.md", *(f for d in FOLDERS for f in sorted((ROOT / d).rglob("*.md")))):
        yield file.relative_to(ROOT).as_posix(), file.read_text(encoding="utf-8")
    for file in sorted((ROOT / "notebooks").glob("*.ipynb")):
        cells = json.loads(file.read_text(encoding="utf-8"))["cells"]
        text = "\n\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")
        yield file.relative_to(ROOT).as_posix(), text


DOCUMENTS = dict(_documents())
PYTHON = {
    name: blocks
    for name, text in DOCUMENTS.items()
    if (blocks := [code for _, language, code in FENCE.findall(text) if language == "python"])
}
PAGES = [name for name in PYTHON if name.endswith(".md")]


def _shown(text: str) -> Iterator[str]:
    """Lines of commands: fenced or indented; one that ends in a backslash goes on in the next."""
    for _, language, code in FENCE.findall(text):
        if language not in ("python", "toml", "yaml"):  # one of the harness's tasks is tried with the harness
            yield from re.sub(r"\\\n *", "", code).splitlines()
    yield from re.findall(r"^ {4,}(\S.*)$", re.sub(r"\\\n *", "", FENCE.sub("", text)), flags=re.MULTILINE)


def _commands(text: str) -> Iterator[str]:
    """Command lines, and code spans."""
    yield from _shown(text)
    yield from re.findall(r"`([^`]+)`", FENCE.sub("", text))


def _parse(program: typer.Typer, words: list[str], line: str) -> None:
    """Fail if a program of several commands does not know the command or one of its options."""
    commands: Any = get_command(program)
    if not words or words[0].startswith("-"):
        return
    try:
        commands.commands[words[0]].make_context(words[0], words[1:])
    except Exception as error:  # typer has its own copy of click's errors
        # in running text a command stands with the option in question alone
        if type(error).__name__ != "MissingParameter":
            raise AssertionError(line) from error


def test_the_readme_and_the_page_of_readings_have_examples() -> None:
    assert len(PYTHON["README.md"]) >= 2
    assert "model/README.md" in PYTHON


@pytest.mark.parametrize("page", PAGES)
def test_the_examples_of_a_page_run_one_after_another_and_print(page: str, capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, Any] = {}
    for block in PYTHON[page]:
        exec(compile(block, page, "exec"), names)
        assert capsys.readouterr().out.strip(), block


@pytest.mark.parametrize("notebook", [name for name in PYTHON if name.endswith(".ipynb")])
def test_what_a_notebook_shows_without_running_it_is_python(notebook: str) -> None:
    for block in PYTHON[notebook]:
        compile(block, notebook, "exec")


def test_a_sweeps_file_can_be_swept(tmp_path: Path) -> None:
    files = [code for text in DOCUMENTS.values() for _, language, code in FENCE.findall(text) if language == "toml"]
    assert files
    for file in files:
        (tmp_path / "sweep.toml").write_text(file)
        assert len(read_sweep(tmp_path / "sweep.toml")) > 1


@pytest.mark.parametrize("document", DOCUMENTS)
def test_code_is_python_or_a_command(document: str) -> None:
    """Else nothing here would look at it."""
    for line in _shown(DOCUMENTS[document]):
        assert line.startswith(("dystruct ", "make ", "python -m dystruct.", "cp ")), line


@pytest.mark.parametrize("document", DOCUMENTS)
def test_commands_are_ones_that_the_program_and_the_makefile_know(document: str) -> None:
    targets = re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE)
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for line in _commands(DOCUMENTS[document]):
        line = re.sub(r"^torchrun .*--no-python ", "", line)
        known = line.startswith(("dystruct ", "make ", "python -m dystruct.", "pip install "))
        words = [word for word in shlex.split(line, comments=True) if word != "…"] if known else []
        match words:
            case ["make", *rest]:
                assert all("=" in word or word in targets for word in rest), line
            case ["dystruct", *rest]:
                _parse(app, rest, line)
            case ["pip", "install", *rest]:
                found = [re.fullmatch(r"dystruct\[(\w+)\]", word) for word in rest]
                assert all(match is not None and match[1] in extras for match in found), line
            case ["python", "-m", module, *rest]:
                assert find_spec(module) is not None, line
                if module == "dystruct.decoding.study":
                    _parse(study, rest, line)
                elif module != HARNESS:
                    BENCHMARKS[module]().parse_args(rest)


def test_options_of_the_harness_are_its_own() -> None:
    harness = pytest.importorskip("lm_eval._cli.harness", reason="lm-evaluation-harness is not installed")
    lines = [
        line for text in DOCUMENTS.values() for line in _commands(text) if line.startswith(f"python -m {HARNESS} ")
    ]
    for line in lines:
        harness.HarnessCLI()._parser.parse_args(shlex.split(line)[3:])
    assert lines


@pytest.mark.parametrize("document", DOCUMENTS)
def test_links_between_documents_lead_somewhere(document: str) -> None:
    for target in re.findall(r"\]\((?!https?:)([^)#\s]+)", DOCUMENTS[document]):
        assert ((ROOT / document).parent / target).exists(), target
