"""Code problems in HumanEval's shape: a signature and a docstring ask for a body, and assertions judge it.

The templates say what to ask and give several right bodies; which one a problem's answer shows is drawn at
random, and any body that passes the assertions is right. Expected values come from a template's own
meaning as a Python function, never from running the answer.

Builds programs as text; knows nothing of running them.
"""

from __future__ import annotations

from random import Random

from .code_lists import LIST_KINDS
from .code_loops import LOOP_KINDS
from .code_numbers import NUMBER_KINDS
from .code_parts import Task
from .code_pipelines import PIPELINE_KINDS
from .code_recursion import RECURSION_KINDS
from .code_rules import RULE_KINDS
from .code_steps import STEP_KINDS
from .code_strings import STRING_KINDS
from .code_tables import TABLE_KINDS
from .code_words import WORD_KINDS
from .problem import Problem

_SHORT = (
    *LIST_KINDS,
    *PIPELINE_KINDS,
    *LOOP_KINDS,
    *TABLE_KINDS,
    *NUMBER_KINDS,
    *RECURSION_KINDS,
    *STRING_KINDS,
    *WORD_KINDS,
)
_LONG = (*STEP_KINDS, *RULE_KINDS)
KINDS: tuple[str, ...] = tuple(kind.__name__ for kind in (*_SHORT, *_LONG))
LONG_SHARE = 0.35  # of the problems; their answers fill the upper half of the lengths
MOST_ASSERTIONS = 10


def make(rng: Random) -> Problem:
    """One problem of a kind drawn from `rng`; the same state of `rng` gives the same problem."""
    kind = rng.choice(_LONG if rng.random() < LONG_SHARE else _SHORT)
    task = kind(rng)
    expected = [task.oracle(*case) for case in task.cases]
    asserts = [
        f"assert {task.name}({_arguments(case)}) == {value!r}" for case, value in zip(task.cases, expected, strict=True)
    ]
    return Problem(
        domain="code",
        kind=kind.__name__,
        question=_question(rng, task, expected),
        answer=_indent(rng.choice(task.bodies)),
        target="\n".join(dict.fromkeys(asserts[:MOST_ASSERTIONS])),
    )


def program(problem: Problem, text: str) -> str:
    """A runnable program: the question, the function body at the start of `text`, and the assertions of the target.

    The body ends before the first line of `text` that is neither blank nor indented; what follows is left out.
    """
    return f"{problem.question}\n{body_of(text)}\n\n\n{problem.target}\n"


def body_of(text: str) -> str:
    """The indented lines at the start of a generated text, without white space at the end."""
    lines = []
    for line in text.split("\n"):
        if line.strip() and not line.startswith((" ", "\t")):
            break
        lines.append(line)
    return "\n".join(lines).rstrip()


def _question(rng: Random, task: Task, expected: list[object]) -> str:
    shown: list[str] = []
    numbered = any(character.isdigit() for character in task.doc)
    if rng.random() < (0.75 if not numbered else 0.3 if len(task.doc) < 120 else 0.1):
        fit = [i for i, case in enumerate(task.cases) if len(_arguments(case)) + len(repr(expected[i])) < 60]
        for i in rng.sample(fit, min(len(fit), rng.choice((1, 1, 2)))):
            shown += [f">>> {task.name}({_arguments(task.cases[i])})", repr(expected[i])]
    head = f"def {task.name}({task.parameters}) -> {task.returns}:\n"
    if not shown and "\n" not in task.doc:
        return f'{head}    """{task.doc}"""'
    return head + _indent("\n".join([f'"""{task.doc}', *shown, '"""']))


def _arguments(case: tuple[object, ...]) -> str:
    return ", ".join(map(repr, case))


def _indent(text: str) -> str:
    return "\n".join(f"    {line}" for line in text.split("\n"))
