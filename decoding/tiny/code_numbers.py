"""Templates of code problems about one or two numbers: formulas and chains of conditions."""

from __future__ import annotations

from random import Random

from .code_parts import Task, nest, seq, two_conditions

NAMES = ("n", "x", "value", "number", "amount", "k", "size")
LABELS = (
    ("low", "medium", "high", "extreme", "off"),
    ("cold", "mild", "warm", "hot", "burning"),
    ("small", "middle", "large", "huge", "giant"),
    ("slow", "steady", "fast", "rapid", "wild"),
    ("child", "teen", "adult", "senior", "elder"),
    ("cheap", "fair", "dear", "luxury", "crazy"),
    ("E", "D", "C", "B", "A"),
    ("bronze", "silver", "gold", "platinum", "diamond"),
)


def formula(rng: Random) -> Task:
    """A formula of two numbers."""
    n, m = rng.sample(NAMES, 2)
    a, b, d = rng.randint(2, 30), rng.randint(1, 50), rng.randint(2, 9)
    asked, text, oracle = rng.choice(
        (
            (f"{a} times {n} plus {b} times {m}", f"{a} * {n} + {b} * {m}", lambda p, q: p * a + q * b),
            (f"{n} times {m}, minus {a}", f"{n} * {m} - {a}", lambda p, q: -a + p * q),
            (f"the sum of {n} and {m}, times {a}, plus {b}", f"({n} + {m}) * {a} + {b}",
             lambda p, q: a * p + a * q + b),
            (f"{n} divided by {d} (whole part) plus {m}", f"{n} // {d} + {m}", lambda p, q: (p - p % d) // d + q),
            (f"the remainder of {n} plus {m} by {a}", f"({n} + {m}) % {a}", lambda p, q: divmod(p + q, a)[1]),
            (f"the square of {n} minus {b} times {m}", f"{n} * {n} - {b} * {m}", lambda p, q: p**2 - b * q),
            (f"the larger of {n} and {m}, plus {b}", f"max({n}, {m}) + {b}", lambda p, q: b + (p if p > q else q)),
        )
    )  # fmt: skip
    r = rng.choice(("result", "answer"))
    return Task(
        rng.choice(("formula", "compute", "calculate", "combine", "evaluate")),
        f"{n}: int, {m}: int",
        "int",
        rng.choice((f"Return {asked}.", f"Compute {asked}.", f"Calculate and return {asked}.")),
        (f"return {text}", seq(f"{r} = {text}", f"return {r}")),
        oracle,
        [(0, 0), (1, 0), (0, 1), (rng.randint(5, 60), rng.randint(5, 60)), (a, b), (-7, 12)],
    )


def check(rng: Random) -> Task:
    """Whether a number meets one or two conditions."""
    n = rng.choice(NAMES)
    word = rng.choice(("", "and", "or"))
    c, d, telling = two_conditions(rng, word or "and")
    asked = c.single + (f" {word} {d.single}" if word else "")
    test = c.on(n) + (f" {word} {d.on(n)}" if word else "")
    points = telling if word else [*c.points, 0, rng.randint(10, 90)]

    def oracle(v: int) -> bool:
        return (any if word == "or" else all)([c.holds(v), *([d.holds(v)] if word else [])])

    return Task(
        rng.choice(("check", "is_valid", "accept", "is_allowed", "test_number")),
        f"{n}: int",
        "bool",
        rng.choice((f"Return True if {n} is {asked}.", f"Check whether {n} is {asked}.", f"Is {n} {asked}?")),
        (f"return {test}", seq(nest(f"if {test}:", "return True"), "return False")),
        oracle,
        [(point,) for point in points],
    )


def clamp(rng: Random) -> Task:
    """A number kept within limits."""
    n = rng.choice(NAMES)
    a = rng.randint(-20, 50)
    b = a + rng.randint(5, 50)
    return Task(
        rng.choice(("clamp", "limit", "keep_in_range", "bounded")),
        f"{n}: int",
        "int",
        rng.choice(
            (
                f"Return {n}, but never less than {a} or more than {b}.",
                f"Limit {n} to the range from {a} to {b}.",
                f"Return {a} if {n} is below {a}, {b} if it is above {b}, else {n}.",
            )
        ),
        (
            f"return max({a}, min({n}, {b}))",
            seq(nest(f"if {n} < {a}:", f"return {a}"), nest(f"if {n} > {b}:", f"return {b}"), f"return {n}"),
            seq(nest(f"if {n} < {a}:", f"{n} = {a}"), nest(f"elif {n} > {b}:", f"{n} = {b}"), f"return {n}"),
        ),
        lambda v: sorted((a, v, b))[1],
        [(a - 1,), (a,), (a + 1,), (b - 1,), (b,), (b + 1,)],
    )


def grade(rng: Random) -> Task:
    """A label by thresholds."""
    n = rng.choice(("score", "points", "value", "temperature", "speed", "age", "amount", "n"))
    labels = rng.choice(LABELS)
    count = rng.randint(2, 4)
    limits = sorted(rng.sample(range(2, 100), count))
    names = labels[: count + 1]
    if rng.random() < 0.5:
        sign, word = rng.choice((("<", "below"), ("<=", "up to")))
        order = list(zip(limits, names, strict=False))
        last = names[-1]

        def oracle(v: int) -> str:
            return names[sum(v > limit or (v == limit and sign == "<") for limit in limits)]
    else:
        sign, word = rng.choice(((">=", "from"), (">", "above")))
        order = list(zip(limits, names[1:], strict=True))[::-1]
        last = names[0]

        def oracle(v: int) -> str:
            return names[sum(limit < v or (v == limit and sign == ">=") for limit in limits)]

    early = [nest(f"if {n} {sign} {limit}:", f'return "{label}"') for limit, label in order]
    chain = [early[0], *("el" + part for part in early[1:])]
    stored = [part.replace("return ", "label = ") for part in chain]
    asked = ", ".join(f'"{label}" {word} {limit}' for limit, label in order)
    return Task(
        rng.choice(("grade", "label", "classify", "category", "level_of")),
        f"{n}: int",
        "str",
        rng.choice(
            (
                f'Return {asked}, otherwise "{last}".',
                f'Label {n}: {asked}, else "{last}".',
                f'Classify {n}: {asked},\nand "{last}" for all the rest.',
            )
        ),
        (
            seq(*early, f'return "{last}"'),
            seq(*chain, f'return "{last}"'),
            seq(*chain, nest("else:", f'return "{last}"')),
            seq(*stored, nest("else:", f'label = "{last}"'), "return label"),
        ),
        oracle,
        [(v,) for limit in limits for v in (limit, limit + (1 if sign in "<=>" and sign in ("<=", ">") else -1))],
    )


def sign_of(rng: Random) -> Task:
    """Above, equal or below."""
    n = rng.choice(NAMES)
    k = rng.choice((0, rng.randint(1, 99)))
    up, same, down = rng.choice(((1, 0, -1), (rng.randint(1, 30), rng.randint(31, 60), rng.randint(61, 99))))
    parts = (f"if {n} > {k}:", f"if {n} < {k}:")
    return Task(
        rng.choice(("sign", "compare", "direction", "side")),
        f"{n}: int",
        "int",
        rng.choice(
            (
                f"Return {up} if {n} is above {k}, {down} if it is below {k}, and {same} if equal.",
                f"Compare {n} with {k}: {up} if larger, {same} if equal, {down} if smaller.",
            )
        ),
        (
            seq(nest(parts[0], f"return {up}"), nest(parts[1], f"return {down}"), f"return {same}"),
            seq(
                nest(parts[0], f"return {up}"), nest("el" + parts[1], f"return {down}"), nest("else:", f"return {same}")
            ),
            f"return {up} if {n} > {k} else {down} if {n} < {k} else {same}",
        ),
        lambda v: {True: up, False: down}[v > k] if v != k else same,
        [(k,), (k + 1,), (k - 1,), (k + 50,), (k - 50,)],
    )


def words_for_numbers(rng: Random) -> Task:
    """Words for multiples of two numbers."""
    n = rng.choice(("n", "number", "i", "value"))
    a, b = rng.sample(range(2, 13), 2)
    p, q = rng.sample(("Fizz", "Buzz", "Ping", "Pong", "Tick", "Tock", "Red", "Blue"), 2)
    whole = rng.random() < 0.5
    result = f"str({n})" if whole else '""'
    rest = f"{n} as text" if whole else "an empty string"
    joined = seq(
        'word = ""',
        nest(f"if {n} % {a} == 0:", f'word += "{p}"'),
        nest(f"if {n} % {b} == 0:", f'word += "{q}"'),
        f"return word or str({n})" if whole else "return word",
    )
    chain = seq(
        nest(f"if {n} % {a} == 0 and {n} % {b} == 0:", f'return "{p}{q}"'),
        nest(f"if {n} % {a} == 0:", f'return "{p}"'),
        nest(f"if {n} % {b} == 0:", f'return "{q}"'),
        f"return {result}",
    )
    return Task(
        rng.choice(("fizz", "say", "word_for", "call_out")),
        f"{n}: int",
        "str",
        rng.choice(
            (
                f'Return "{p}" for multiples of {a}, "{q}" for multiples of {b},\n"{p}{q}" for both, else {rest}.',
                f'Multiples of {a} give "{p}", multiples of {b} give "{q}", both "{p}{q}".\nElse return {rest}.',
            )
        ),
        (joined, chain),
        lambda v: (p if not v % a else "") + (q if not v % b else "") or (str(v) if whole else ""),
        [(v,) for v in (1, a, b, a * b, a * b + 1, 2 * a, 3 * b)],
    )


NUMBER_KINDS = (formula, check, clamp, grade, sign_of, words_for_numbers)
