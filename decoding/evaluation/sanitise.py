"""From what a model wrote to the program that is scored, as HumanEval's and MBPP's evaluations have come to do it.

Three steps. The first Markdown fence, if there is one, holds the code (what stands before it stays if that is code
itself, such as HumanEval's prompt). Of that the longest run of lines that parses is kept, so that prose around it and a
last line cut short do no harm. Of that the imports stay, and the functions, classes and assignments that the function
in question needs; calls and loops at the top level, which would only run, are left out. What is kept is kept as it is
written: a tree that is deep, as that of a long sum is, cannot always be made into text again.

Nothing is executed here.
"""

from __future__ import annotations

import ast
import re
import warnings

_FENCE = re.compile(r"```[ \t]*(?:python|py)?[ \t]*\r?\n(.*?)(?:\n[ \t]*```|\Z)", re.DOTALL | re.IGNORECASE)
MOST_LINES = 400  # what stands behind them is cut off
MOST_PARSES = 2000  # a text of nothing but opening brackets would take a hundred times as many


def sanitise(text: str, reference: str) -> str:
    """The program in a text: what the assertions in `reference` use of it and what that needs in turn.

    All definitions where it holds none of what they are about. A text in which nothing parses comes back as it is, so
    that it fails when it is run.
    """
    entry_point, asserted = entry_point_of(reference), _parsed(reference)
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    found = [run for candidate in _candidates(text) if (run := _longest_module(candidate)) is not None]
    defining = [(run, module) for run, module in found if entry_point is None or _defines(module, entry_point)]
    chosen = next(iter(defining or found), None)
    return text if chosen is None else _kept(*chosen, _uses(asserted) if asserted else set())


def entry_point_of(reference: str) -> str | None:
    """The function that assertions are about: `check(NAME)` of HumanEval, or the first one that MBPP's call."""
    checked = re.findall(r"^check\((\w+)\)", reference, re.MULTILINE)
    if checked:
        return str(checked[-1])
    module = _parsed(reference)
    for node in ast.walk(module) if module else ():
        if isinstance(node, ast.Assert):
            for part in ast.walk(node.test):
                if isinstance(part, ast.Call) and isinstance(part.func, ast.Name) and part.func.id not in _WRAPPERS:
                    return part.func.id
    return None


_WRAPPERS = {
    "set",
    "sorted",
    "list",
    "tuple",
    "str",
    "int",
    "float",
    "len",
    "round",
    "abs",
    "dict",
    "bool",
    "max",
    "min",
}


def _candidates(text: str) -> list[str]:
    """Where the program may stand, the likeliest first."""
    fence = _FENCE.search(text)
    if fence is None:
        # without its beginning, which the prompt gave, a fence may still close
        return [text.split("\n```", 1)[0]] if "\n```" in text else [text]
    before, code = text[: fence.start()], fence.group(1)
    if _parsed(before) is None:
        return [code, before]
    return [f"{before.rstrip()}\n{code}", code, before]


def _longest_module(text: str) -> tuple[str, ast.Module] | None:
    """The longest run of lines that parses to at least one statement, and its module; None if no line does."""
    lines = text.split("\n")[:MOST_LINES]
    filled = [bool(line.strip()) for line in lines]
    best, longest, parses = None, 0, 0
    for start in range(len(lines)):
        end = len(lines)
        while filled[start] and sum(filled[start:end]) > longest and parses < MOST_PARSES:
            parses += 1
            run = "\n".join(lines[start:end])
            module, stuck = _parse(run)
            if module is not None:
                best, longest = (run, module), sum(filled[start:end])
            # every run from here that holds the line where the parser stuck sticks there too
            end = min(end - 1, start + stuck - 1)
    return best


def _parse(text: str) -> tuple[ast.Module | None, int]:
    """The module in a text, or None and the line, from 1 on, at which the parser stuck; 0 where it gave up."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of doubtful escapes and comparisons in what the model wrote
            return ast.parse(text), 0
    except SyntaxError as error:
        return None, error.lineno or 0
    except (ValueError, RecursionError, MemoryError):
        return None, 0


def _parsed(text: str) -> ast.Module | None:
    return _parse(text)[0]


def _defines(module: ast.Module, name: str) -> bool:
    return any(name in _names(node) for node in module.body)


def _names(node: ast.stmt) -> set[str]:
    """The names that a statement at the top level defines."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return {node.name}
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    return {part.id for target in targets for part in ast.walk(target) if isinstance(part, ast.Name)}


def _uses(node: ast.AST) -> set[str]:
    return {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}


def _kept(text: str, module: ast.Module, wanted: set[str]) -> str:
    """A text's imports, and the definitions that are wanted, directly or not; all of them where none is."""
    if not any(_names(node) & wanted for node in module.body):
        wanted = {name for node in module.body for name in _names(node)}
    grown = True
    while grown:
        used = {name for node in module.body if _names(node) & wanted for name in _uses(node)}
        grown = not used <= wanted
        wanted = wanted | used
    lines, before, kept = text.split("\n"), 0, []
    for node in module.body:
        if isinstance(node, ast.Import | ast.ImportFrom) or _names(node) & wanted:
            kept.append(_written(lines, node, before))
        before = node.end_lineno or 0
    return "\n".join(kept) + "\n"


def _written(lines: list[str], node: ast.stmt, before: int) -> str:
    """A statement as it stands in lines. before: how many those above it take, behind which its decorators begin."""
    decorated = bool(getattr(node, "decorator_list", ()))
    found = [line.encode() for line in lines[before if decorated else node.lineno - 1 : node.end_lineno]]
    found[-1] = found[-1][: node.end_col_offset]  # in bytes, as the other one is
    found[0] = found[0][0 if decorated else node.col_offset :]
    return b"\n".join(found).decode()
