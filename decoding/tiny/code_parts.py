"""What the templates of the code problems are put together from: conditions, changes, names and blocks of lines.

A condition or change carries its wording, its Python text and, apart from that text, a function that says what
it means: the expected values of the tests come from the functions, never from the generated text.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any, NamedTuple

LISTS = (
    ("numbers", "number"),
    ("numbers", "n"),
    ("nums", "num"),
    ("nums", "n"),
    ("values", "value"),
    ("values", "v"),
    ("xs", "x"),
    ("items", "item"),
    ("scores", "score"),
    ("amounts", "amount"),
    ("prices", "price"),
    ("ages", "age"),
    ("points", "p"),
    ("data", "x"),
)
WORDS = ("apple", "pear", "kiwi", "Tom", "sea", "level", "tree", "Anna", "house", "to", "a", "banana", "Oslo", "noon")
TEXTS = ("hello world", "The quick brown fox", "a b c", "noon", "Banana Split", "see you at 7", "level", "Zebra")
LETTERS = "abcdefghiklmnoprstuw"
STRINGS = ("text", "s", "word", "string", "line", "message", "sentence", "name")
WORD_LISTS = ("words", "names", "strings", "texts", "items")
LABELS = ("low", "high", "odd", "good", "bad", "big", "tiny", "red", "blue", "green", "hot", "cold", "new", "old")


class Task(NamedTuple):
    """One function to write: its signature, what it is asked to do, right bodies, what it means, and test inputs.

    bodies: not yet indented. oracle: the meaning as a Python function. cases: argument tuples, edge cases first.
    """

    name: str
    parameters: str
    returns: str
    doc: str
    bodies: tuple[str, ...]
    oracle: Callable[..., Any]
    cases: list[tuple[Any, ...]]


class Condition(NamedTuple):
    """What a whole number may meet. test: Python text with @ for the variable. points: values on both sides."""

    phrase: str
    test: str
    holds: Callable[[int], bool]
    points: tuple[int, ...]

    @property
    def single(self) -> str:
        """The phrase as said of one number."""
        return self.phrase.replace("multiples of", "divisible by")

    def on(self, variable: str) -> str:
        """The Python text of the condition on a variable."""
        return self.test.replace("@", variable)


class Change(NamedTuple):
    """What may be done to a whole number, worded as "..., each {phrase}"; `text` has @ for the variable."""

    phrase: str
    text: str
    apply: Callable[[int], int]

    def on(self, variable: str) -> str:
        """The Python text of the changed variable."""
        return self.text.replace("@", variable)


def condition(rng: Random) -> Condition:
    """A condition with constants drawn from `rng`."""
    which = rng.randrange(14)
    k = rng.randint(1, 50) if rng.random() < 0.8 else rng.randint(-20, 99)
    if which < 2:
        return Condition(f"greater than {k}", f"@ > {k}", lambda x: x > k, (k, k + 1))
    if which < 4:
        return Condition(f"less than {k}", f"@ < {k}", lambda x: x < k, (k - 1, k))
    if which == 4:
        return Condition(f"at least {k}", f"@ >= {k}", lambda x: x >= k, (k - 1, k))
    if which == 5:
        return Condition(f"at most {k}", f"@ <= {k}", lambda x: x <= k, (k, k + 1))
    if which == 6:
        return Condition("even", "@ % 2 == 0", lambda x: x % 2 == 0, (4, 7))
    if which == 7:
        return Condition("odd", "@ % 2 == 1", lambda x: x % 2 == 1, (5, 6))
    if which == 8:
        return Condition(f"not equal to {k}", f"@ != {k}", lambda x: x != k, (k, k - 1))
    if which == 9:
        if rng.random() < 0.5:
            return Condition("positive", "@ > 0", lambda x: x > 0, (0, 1))
        return Condition("negative", "@ < 0", lambda x: x < 0, (-1, 0))
    if which < 12:
        b = k + rng.randint(2, 30)
        phrase = rng.choice((f"between {k} and {b} inclusive", f"from {k} to {b}"))
        return Condition(phrase, f"{k} <= @ <= {b}", lambda x: k <= x <= b, (k - 1, k, b, b + 1))
    m = rng.randint(3, 12)
    points = (m, m + 1, max(d for d in range(1, m) if m % d == 0))
    phrase = rng.choice((f"multiples of {m}", f"divisible by {m}"))
    return Condition(phrase, f"@ % {m} == 0", lambda x: x % m == 0, points)


def nearest(c: Condition, values: dict[int, int]) -> list[int]:
    """The keys whose values come closest to the condition's boundary, one on either side where there is one."""
    found: dict[bool, int] = {}
    for key in sorted(values, key=lambda key: abs(values[key] - c.points[0])):
        found.setdefault(c.holds(values[key]), key)
    return list(found.values())


def two_conditions(rng: Random, word: str) -> tuple[Condition, Condition, list[int]]:
    """Two conditions joined by "and" or "or" of which neither makes the other idle, and values to test them with.

    The values lie on both sides of either condition's boundary, where the other condition leaves the matter open.
    """
    span = range(-30, 131)
    while True:
        c, d = condition(rng), condition(rng)
        if len({(c.holds(v), d.holds(v)) for v in span}) == 4:
            break
    telling = [
        value
        for one, other in ((c, d), (d, c))
        for value in nearest(one, {v: v for v in span if other.holds(v) == (word == "and")})
    ]
    return c, d, list(dict.fromkeys([*telling, *c.points, *d.points]))


def change(rng: Random) -> Change:
    """A change with constants drawn from `rng`."""
    which = rng.randrange(10)
    k = rng.randint(2, 30)
    if which < 3:
        return Change(rng.choice((f"increased by {k}", f"plus {k}")), f"@ + {k}", lambda x: x + k)
    if which == 3:
        return Change(rng.choice((f"decreased by {k}", f"minus {k}")), f"@ - {k}", lambda x: x - k)
    if which < 6:
        return Change(rng.choice((f"multiplied by {k}", f"times {k}")), f"@ * {k}", lambda x: x * k)
    if which == 6:
        return Change("squared", "@ * @", lambda x: x**2)
    if which == 7:
        return rng.choice((Change("doubled", "@ * 2", lambda x: x + x), Change("cubed", "@ ** 3", lambda x: x * x * x)))
    b = rng.randint(1, 20)
    return Change(f"multiplied by {k} and then increased by {b}", f"@ * {k} + {b}", lambda x: x * k + b)


def nest(*lines: str) -> str:
    """Lines each one level deeper than the line before; a line may itself be a block."""
    return "\n".join("\n".join("    " * depth + part for part in line.split("\n")) for depth, line in enumerate(lines))


def seq(*parts: str) -> str:
    """Blocks one after the other."""
    return "\n".join(parts)


def collect(result: str, head: str, *inner: str) -> str:
    """An empty list, a loop that fills it, and its return; the last of `inner` is the loop's deepest line."""
    return seq(f"{result} = []", nest(head, *inner), f"return {result}")


def integers(rng: Random, low: int = -20, high: int = 60, most: int = 6) -> list[int]:
    """A short list of whole numbers."""
    return [rng.randint(low, high) for _ in range(rng.randint(3, most))]


def lists(rng: Random, *points: int) -> list[tuple[list[int]]]:
    """Test inputs of a function of one list: nothing, the points one by one and all together, other numbers."""
    mixed = [*points, rng.randint(-9, 60), rng.randint(1, 60)]
    rng.shuffle(mixed)
    singles = [([point],) for point in points]
    return [([],), *singles, (mixed,), (integers(rng),), (integers(rng),)]


def words(rng: Random, most: int = 5) -> list[str]:
    """A short list of words."""
    return [rng.choice(WORDS) for _ in range(rng.randint(2, most))]


def letters_of(rng: Random, low: int = 2, high: int = 5) -> str:
    """Some different letters as a string."""
    return "".join(rng.sample(LETTERS, rng.randint(low, high)))


def sample_texts(rng: Random, letters: str = "") -> list[tuple[str]]:
    """Test inputs of a function of one string: nothing, the letters, strings with and without them."""
    mixed = [*letters, *letters.upper(), *rng.choice(TEXTS), rng.choice(LETTERS)]
    rng.shuffle(mixed)
    return [("",), (letters or "A",), ("".join(mixed),), (rng.choice(TEXTS),), (rng.choice(WORDS),), ("xyz" + letters,)]


def in_lines(sentences: list[str], each: int) -> str:
    """Sentences, so many to a line."""
    return "\n".join(" ".join(sentences[i : i + each]) for i in range(0, len(sentences), each))
