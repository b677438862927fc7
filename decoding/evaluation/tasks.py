"""The three embedded domains as tasks: items from JSON lines beside this file, and an answer's value.

`items/` holds the first held-out problems of each domain, 500 for test and 300 for validation; the harness's task
files there read the same lines. Run this file as a module to write them anew after the problems change.

Knows nothing of models and decoders.
"""

from __future__ import annotations

import ast
import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict
from functools import cache
from pathlib import Path

from ..errors import UserError
from ..tiny import code, logic, maths
from ..tiny.problem import Problem

FOLDER = Path(__file__).parent / "items"
CHAIN = 4  # signs an item of `chain`
COUNTS = {"test": 500, "validation": 300}
DOMAINS = {"tiny_maths": "maths", "tiny_code": "code", "tiny_logic": "logic"}


def items(task: str, split: str = "test", limit: int | None = None) -> list[Problem]:
    """The first `limit` items of a task, all of them for None. Raises UserError for names and numbers out of range."""
    if task not in DOMAINS:
        raise UserError(f"There is no embedded task {task!r}; the embedded tasks are {', '.join(DOMAINS)}.")
    if split not in COUNTS:
        raise UserError(f"The split of the embedded tasks must be {' or '.join(COUNTS)}, not {split!r}.")
    found = _read(task, split)
    if limit is not None and not 1 <= limit <= len(found):
        raise UserError(f"{task} has 1 to {len(found)} {split} items, not {limit}; correct the limit.")
    return list(found[:limit])


def are_embedded(names: Sequence[str]) -> bool:
    """Whether tasks are embedded ones. Raises UserError where only some are."""
    count = sum(name in DOMAINS for name in names)
    if 0 < count < len(names):
        other = next(name for name in names if name not in DOMAINS)
        raise UserError(
            f"The embedded tasks are {', '.join(DOMAINS)}, and {other!r} is none of them; correct its name, or let a "
            f"task of the harness have a run of its own."
        )
    return count > 0


def value_of(problem: Problem, text: str) -> str | None:
    """What a text answers, such that equal answers have equal values; None if it answers nothing.

    Of code, the function's body as a syntax tree shows it, so that layout and comments do not count.
    """
    if problem.domain == "maths":
        found = maths.final_value(text)
        if found is None or found.denominator == 1:
            return None if found is None else str(found)
        return f"{float(found):.9g}"
    if problem.domain == "logic":
        final = logic.final_answer(text)
        return " ".join(final.lower().split()) if final else None
    body = code.body_of(text)
    if not body.strip():
        return None
    try:
        return ast.unparse(ast.parse(f"def f():\n{body}").body[0])
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return body


def digest(problems: Sequence[Problem]) -> str:
    """A hash of all that is asked and expected."""
    lines = "\n".join(json.dumps([problem.question, problem.target]) for problem in problems)
    return hashlib.sha256(lines.encode()).hexdigest()[:16]


def chain(problems: Sequence[Problem]) -> str:
    """Four signs an item, of a hash of it and all before it: lists have as much of it in common as they begin alike."""
    running, signs = hashlib.sha256(), []
    for problem in problems:
        running.update(json.dumps([problem.question, problem.target]).encode())
        signs.append(running.hexdigest()[:CHAIN])
    return "".join(signs)


def path_of(task: str, split: str) -> Path:
    """The file of a task's items."""
    return FOLDER / f"{task}.{split}.jsonl"


@cache
def _read(task: str, split: str) -> tuple[Problem, ...]:
    lines = path_of(task, split).read_text(encoding="utf-8").removesuffix("\n").split("\n")
    return tuple(Problem(**json.loads(line)) for line in lines)


def _write() -> None:
    from ..tiny.problems import problems

    for task, domain in DOMAINS.items():
        for split, count in COUNTS.items():
            lines = [json.dumps(asdict(problem), ensure_ascii=False) for problem in problems(domain, split, count)]
            path_of(task, split).write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    _write()
