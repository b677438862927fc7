"""Boolean and arithmetic expressions, worked by one operation at a time, always the first innermost one.

A node is a value or a tuple (operator, operand, ...). Each maker returns (question, working, target).
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from random import Random
from typing import Any, TypeAlias

Node: TypeAlias = int | bool | str | tuple[Any, ...]

_APPLY: dict[str, Callable[..., Any]] = {
    "not": operator.not_,
    "and": lambda a, b: a and b,
    "or": lambda a, b: a or b,
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
}
_PRECEDENCE = {"or": 1, "and": 2, "not": 3, "+": 4, "-": 4, "*": 5}
_LARGEST = 99  # of the intermediate values of arithmetic

_BOOLEAN = (
    "{} is",
    "Evaluate: {}",
    "What is the value of {}?",
    "Simplify {} to one value.",
    "Work out {} step by step.",
    "Find the truth value of {}.",
)
_GIVEN = (
    "If {}, what is {}?",
    "Let {}. What is the value of {}?",
    "Given that {}, evaluate {}.",
    "Suppose that {}. Then {} is",
)
_ARITHMETIC = (
    "{} =",
    "What is {}?",
    "Compute {}.",
    "Evaluate {} step by step.",
    "Work out the value of {}.",
    "Find {}.",
)
_VARIABLES = "abcdefghkmnpqrstuvwxyz"


def boolean_expressions(rng: Random) -> tuple[str, str, str]:
    """An expression of `not`, `and`, `or` with 1 to 10 operators, plain or with its values given by name."""
    size = rng.choice((1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 7, 8, 9, 10))
    tree, bare = _boolean(rng, size), rng.random() < 0.4
    show = Show("( ", " )", bare)
    if size > 2 and (size > 4 or rng.random() < 0.5):
        return rng.choice(_BOOLEAN).format(show(tree)), show.working(tree), str(_value(tree))
    letters = rng.sample(_VARIABLES, size + 1)
    values: dict[str, bool] = {}
    named = _named(tree, letters, values)
    verb = rng.choice((" is ", " = "))
    given = [f"{name}{verb}{value}" for name, value in values.items()]
    listed = ", ".join(given[:-1]) + " and " * (len(given) > 1) + given[-1]
    question = rng.choice(_GIVEN).format(listed, show(named))
    substituted = f"{show(tree)}\n" if size > 1 else ""
    return question, substituted + show.working(tree), str(_value(tree))


def multistep_arithmetic(rng: Random) -> tuple[str, str, str]:
    """An expression of `+`, `-`, `*` with 1 to 8 operators; values stay within ±99, products within 9 times 9."""
    size = rng.choice((1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 8))
    limit = 30 if size <= 3 and rng.random() < 0.5 else 9
    tree, value = _arithmetic(rng, size, limit)
    show = Show("(", ")", rng.random() < 0.3)
    shown = show(tree)
    if size > 1 and rng.random() < 0.3:
        shown = f"({shown})"
    return rng.choice(_ARITHMETIC).format(shown), show.working(tree), str(value)


class Show:
    """Writes nodes: `bare` leaves out the brackets that precedence makes needless."""

    def __init__(self, opening: str, closing: str, bare: bool) -> None:
        self.opening, self.closing, self.bare = opening, closing, bare

    def __call__(self, node: Node) -> str:
        """The node as text."""
        if not isinstance(node, tuple):
            return str(node)
        sign, *operands = node
        if len(operands) == 1:
            return f"{sign} {self._operand(operands[0], sign, right=True)}"
        left, right = operands
        return f"{self._operand(left, sign, right=False)} {sign} {self._operand(right, sign, right=True)}"

    def _operand(self, node: Node, parent: str, *, right: bool) -> str:
        text = self(node)
        if not isinstance(node, tuple) or node[0] == "not":
            return text
        inner, outer = _PRECEDENCE[node[0]], _PRECEDENCE[parent]
        if self.bare and (inner > outer or (inner == outer and not right)):
            return text
        return f"{self.opening}{text}{self.closing}"

    def working(self, node: Node) -> str:
        """Lines that apply one operation and then write what is left of the expression, to the end."""
        lines = []
        while isinstance(node, tuple):
            equation, node = self._step(node)
            lines.append(equation)
            if isinstance(node, tuple):
                lines.append(self(node))
        return "\n".join(lines) + "."

    def _step(self, node: tuple[Any, ...]) -> tuple[str, Node]:
        for place, operand in enumerate(node[1:], 1):
            if isinstance(operand, tuple):
                equation, reduced = self._step(operand)
                return equation, (*node[:place], reduced, *node[place + 1 :])
        value = _APPLY[node[0]](*node[1:])
        return f"{self(node)} = {value}", value


def _value(node: Node) -> Any:
    return _APPLY[node[0]](*map(_value, node[1:])) if isinstance(node, tuple) else node


def _boolean(rng: Random, size: int) -> Node:
    if size == 0:
        return rng.random() < 0.5
    if rng.random() < 0.25:
        return ("not", _boolean(rng, size - 1))
    left = rng.randrange(size)
    return (rng.choice(("and", "or")), _boolean(rng, left), _boolean(rng, size - 1 - left))


def _named(node: Node, letters: list[str], values: dict[str, bool]) -> Node:
    """The node with a letter for each value; `values` receives what each letter stands for."""
    if isinstance(node, tuple):
        return (node[0], *(_named(operand, letters, values) for operand in node[1:]))
    letter = letters[len(values)]
    values[letter] = bool(node)
    return letter


def _arithmetic(rng: Random, size: int, limit: int) -> tuple[Node, int]:
    if size == 0:
        value = rng.randint(1, limit) * rng.choice((1, 1, 1, -1))
        return value, value
    split = rng.randrange(size)
    left, a = _arithmetic(rng, split, limit)
    right, b = _arithmetic(rng, size - 1 - split, limit)
    sign = rng.choice("+-*") if max(abs(a), abs(b)) <= 9 else rng.choice("+-")
    if abs(_APPLY[sign](a, b)) > _LARGEST:
        sign = "-" if sign == "+" else "+"
    return (sign, left, right), _APPLY[sign](a, b)
