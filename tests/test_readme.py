"""What the documents show is so: their Python runs, their commands parse, their links lead somewhere."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from dystruct.decoding.terminal.cli import app

ROOT = Path(__file__).parent.parent
FOLDERS = ("model", "inference", "decoding", "notebooks")
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


def _commands(text: str) -> Iterator[str]:
    """Command lines: indented or fenced ones, and code spans."""
    for _, language, code in FENCE.findall(text):
        if language in ("", "sh", "bash", "console"):
            yield from code.splitlines()
    rest = FENCE.sub("", text)
    yield from re.findall(r"^ {4,}(\S.*)$", rest, flags=re.MULTILINE)
    yield from re.findall(r"`([^`\n]+)`", rest)


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


@pytest.mark.parametrize("document", DOCUMENTS)
def test_commands_are_ones_that_the_program_and_the_makefile_know(document: str) -> None:
    program: Any = get_command(app)
    targets = re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE)
    for line in _commands(DOCUMENTS[document]):
        words = shlex.split(line, comments=True) if line.startswith(("dystruct ", "make ")) else []
        if words[:1] == ["make"]:
            assert all("=" in word or word in targets for word in words[1:]), line
        elif words[1:] and not words[1].startswith("-"):
            command = program.commands[words[1]]
            try:
                command.make_context(words[1], words[2:])
            except Exception as error:  # typer has its own copy of click's errors
                # in running text a command stands with the option in question alone
                if type(error).__name__ != "MissingParameter":
                    raise AssertionError(line) from error


@pytest.mark.parametrize("document", DOCUMENTS)
def test_links_between_documents_lead_somewhere(document: str) -> None:
    for target in re.findall(r"\]\((?!https?:)([^)#\s]+)", DOCUMENTS[document]):
        assert ((ROOT / document).parent / target).exists(), target
