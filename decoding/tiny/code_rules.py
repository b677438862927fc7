"""Templates of code problems with long answers: several results, thresholds, rules in order."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from .code_parts import (
    LABELS,
    LETTERS,
    LISTS,
    STRINGS,
    Change,
    Condition,
    Task,
    change,
    condition,
    in_lines,
    integers,
    nest,
    seq,
)


def _branches(rng: Random, results: list[str]) -> tuple[list[tuple[str, str]], str, Callable[[int], int], list[int]]:
    """Thresholds for results: (test with @, result) in order, the wording, which result holds, and points to test."""
    limits = sorted(rng.sample(range(2, 100), len(results) - 1))
    sign, word = rng.choice((("<", "below"), ("<=", "up to")))
    tests = [(f"@ {sign} {limit}", result) for limit, result in zip(limits, results, strict=False)]

    def which(v: int) -> int:
        return sum(v > limit or (v == limit and sign == "<") for limit in limits)

    return tests, word, which, limits


def report(rng: Random) -> Task:
    """Several sums and counts at once."""
    xs, x = rng.choice(LISTS)
    keys = rng.sample(LABELS, rng.randint(2, 9))
    entries: list[tuple[str, Condition, str, Callable[[int], int]]] = []
    wordings = []
    for key in keys:
        c = condition(rng)
        if rng.random() < 0.4:
            wordings.append(f"{key}: how many are {c.single}")
            entries.append((key, c, "1", lambda v: 1))
            continue
        f = change(rng) if rng.random() < 0.5 else Change("", "@", int)
        wordings.append(f"{key}: the sum of what is {c.single}" + (f", each {f.phrase}" if f.phrase else ""))
        entries.append((key, c, f.on(x), f.apply))
    short = [f"sum({item} for {x} in {xs} if {c.on(x)})" for _, c, item, _ in entries]
    bodies: tuple[str, ...] = (
        seq(
            "result = {}",
            *(f'result["{key}"] = {text}' for key, text in zip(keys, short, strict=True)),
            "return result",
        ),
        seq("return {", *(f'    "{key}": {text},' for key, text in zip(keys, short, strict=True)), "}"),
    )
    if len(keys) <= 4:
        start = "result = {" + ", ".join(f'"{key}": 0' for key in keys) + "}"
        tests = [nest(f"if {c.on(x)}:", f'result["{key}"] += {item}') for key, c, item, _ in entries]
        bodies += (seq(start, nest(f"for {x} in {xs}:", seq(*tests)), "return result"),)
    points = [point for _, c, _, _ in entries for point in c.points]
    return Task(
        rng.choice(("report", "summary", "overview", "statistics")),
        f"{xs}: list[int]",
        "dict[str, int]",
        seq(f"Return a dictionary about {xs}:", *wordings),
        bodies,
        lambda a: {key: sum(apply(v) for v in a if c.holds(v)) for key, c, _, apply in entries},
        [([],), (points,), (integers(rng),), *(([point],) for point in points[:3])],
    )


def piecewise(rng: Random) -> Task:
    """A change of a number by its size."""
    n = rng.choice(("n", "x", "value", "number", "amount"))
    changes = [change(rng) for _ in range(rng.randint(3, 6))]
    tests, word, which, limits = _branches(rng, [f.on(n) for f in changes])
    last = changes[-1]
    early = [nest(f"if {test.replace('@', n)}:", f"return {text}") for test, text in tests]
    stored = [nest(f"{'elif' if i else 'if'} {test.replace('@', n)}:", f"{n} = {text}")
              for i, (test, text) in enumerate(tests)]  # fmt: skip
    bodies: tuple[str, ...] = (seq(*early, f"return {last.on(n)}"),)
    if len(changes) < 6:
        bodies += (seq(*stored, nest("else:", f"{n} = {last.on(n)}"), f"return {n}"),)
    wordings = [f"{word} {limit}: {f.phrase}" for limit, f in zip(limits, changes, strict=False)]
    return Task(
        rng.choice(("piecewise", "by_range", "adjusted", "rated")),
        f"{n}: int",
        "int",
        seq(f"Return {n} changed by its size:", *wordings, f"else {last.phrase}"),
        bodies,
        lambda v: changes[which(v)].apply(v),
        [(limit + extra,) for extra in (0, 1 if word == "up to" else -1) for limit in limits],
    )


def label_list(rng: Random) -> Task:
    """Labels of several numbers, or their counts."""
    xs, x = rng.choice(LISTS)
    labels = rng.sample(LABELS, rng.randint(2, 4))
    tests, word, which, limits = _branches(rng, labels)
    conditions = [f"{'elif' if i else 'if'} {test.replace('@', x)}:" for i, (test, _) in enumerate(tests)]
    conditions.append("else:")
    added = [nest(test, f'result.append("{label}")') for test, label in zip(conditions, labels, strict=True)]
    counted = [nest(test, f'result["{label}"] += 1') for test, label in zip(conditions, labels, strict=True)]
    wording = ", ".join(f'"{label}" {word} {limit}' for limit, label in zip(limits, labels, strict=False))
    points = [v for limit in limits for v in (limit - 1, limit, limit + 1)]
    rng.shuffle(points)
    count = rng.random() < 0.5
    start = "{" + ", ".join(f'"{label}": 0' for label in labels) + "}" if count else "[]"

    def oracle(a: list[int]) -> list[str] | dict[str, int]:
        found = [labels[which(v)] for v in a]
        return {label: found.count(label) for label in labels} if count else found

    asked = f"Count how many of the {xs} are" if count else f"Label each of the {xs}:"
    return Task(
        rng.choice(("count_labels", "count_levels", "label_counts") if count else ("labels", "label_all", "levels")),
        f"{xs}: list[int]",
        "dict[str, int]" if count else "list[str]",
        f'{asked} {wording},\nelse "{labels[-1]}".',
        (seq(f"result = {start}", nest(f"for {x} in {xs}:", seq(*(counted if count else added))), "return result"),),
        oracle,
        [([],), (points,), *(([point],) for point in points[:4])],
    )


def flags(rng: Random) -> Task:
    """Every word whose condition holds."""
    n = rng.choice(("n", "x", "value", "number", "amount"))
    labels = rng.sample(LABELS, rng.randint(2, 5))
    conditions = [condition(rng) for _ in labels]
    mode = rng.randrange(2)
    start, end = (("result = []", "return result"), ('result = ""', "return result"))[mode]
    deep = ('result.append("@")', 'result += "@ "')[mode]
    tests = [nest(f"if {c.on(n)}:", deep.replace("@", label)) for c, label in zip(conditions, labels, strict=True)]
    wordings = [f'"{label}" if it is {c.single}' for c, label in zip(conditions, labels, strict=True)]

    def oracle(v: int) -> list[str] | str:
        found = [label for label, c in zip(labels, conditions, strict=True) if c.holds(v)]
        return "".join(f"{label} " for label in found) if mode else found

    asked = f"Describe {n} in one string, a blank after each word:" if mode else f"Return the list of words for {n}:"
    points = [v for c in conditions for v in c.points[:2]] + [v for c in conditions for v in c.points[2:]]
    return Task(
        rng.choice(("flags", "describe", "tags", "properties")),
        f"{n}: int",
        ("list[str]", "str")[mode],
        seq(asked, in_lines([w + ("," if i < len(wordings) - 1 else ".") for i, w in enumerate(wordings)], 2)),
        (seq(start, *tests, end),),
        oracle,
        [(v,) for v in dict.fromkeys([*points, 0, 1])],
    )


def validate(rng: Random) -> Task:
    """The first rule that a string breaks."""
    s = rng.choice(STRINGS)
    k, m = rng.randint(4, 9), rng.randint(10, 16)
    a, b, d = rng.sample(LETTERS, 3)
    fits = d + "Q7" + b + "x" * (k - 4)
    rules: list[tuple[str, str, Callable[[str], bool], str]] = [
        (f"has fewer than {k} characters", f"len({s}) < {k}", lambda t: len(t) < k, fits[: k - 1]),
        (f"has more than {m} characters", f"len({s}) > {m}", lambda t: len(t) > m, fits + "y" * (m - len(fits) + 1)),
        (f'contains "{a}"', f'"{a}" in {s}', lambda t: t.find(a) >= 0, fits + a),
        (f'does not contain "{b}"', f'"{b}" not in {s}', lambda t: t.find(b) < 0, fits.replace(b, "z")),
        (f'does not start with "{d}"', f'not {s}.startswith("{d}")', lambda t: t[:1] != d, "z" + fits),
        (f'ends with "{a}{a}"', f'{s}.endswith("{a}{a}")', lambda t: t[-2:] == a + a, fits + a + a),
        ("has no digit", f"not any(c.isdigit() for c in {s})", lambda t: not set(t) & set("0123456789"),
         fits.replace("7", "z")),
        ("has no upper case letter", f"not any(c.isupper() for c in {s})", lambda t: t == t.lower(), fits.lower()),
    ]  # fmt: skip
    chosen = rng.sample(rules, rng.randint(2, 5))
    chosen.sort(key=lambda rule: "characters" not in rule[0])
    labels = rng.sample(LABELS, len(chosen) + 1)
    tests = [nest(f"if {rule[1]}:", f'return "{label}"') for rule, label in zip(chosen, labels, strict=False)]
    wordings = [f'"{label}" if it {rule[0]}' for rule, label in zip(chosen, labels, strict=False)]

    def oracle(t: str) -> str:
        return next((label for rule, label in zip(chosen, labels, strict=False) if rule[2](t)), labels[-1])

    return Task(
        rng.choice(("validate", "check_text", "verdict", "review")),
        f"{s}: str",
        "str",
        seq(f"Check {s} in this order:", *(f"{w}," for w in wordings), f'else "{labels[-1]}".'),
        (seq(*tests, f'return "{labels[-1]}"'),),
        oracle,
        [(fits,), (fits + "y" * (m - k),), *((rule[3],) for rule in chosen), ("",)],
    )


def tariff(rng: Random) -> Task:
    """A price in brackets."""
    n = rng.choice(("amount", "units", "income", "weight", "distance", "minutes"))
    count = rng.randint(2, 3)
    limits = sorted(rng.sample(range(10, 200, 5), count))
    rates = rng.sample(range(1, 30), count + 1)
    first = f"Each of the {n} costs {rates[0]}"
    walk = [f"total = min({n}, {limits[0]}) * {rates[0]}"]
    for i in range(1, count):
        low, high = limits[i - 1], limits[i]
        walk.append(nest(f"if {n} > {low}:", f"total += (min({n}, {high}) - {low}) * {rates[i]}"))
    walk.append(nest(f"if {n} > {limits[-1]}:", f"total += ({n} - {limits[-1]}) * {rates[-1]}"))
    tests = [f"if i <= {limits[0]}:", *(f"elif i <= {limit}:" for limit in limits[1:]), "else:"]
    branches = [nest(test, f"total += {rate}") for test, rate in zip(tests, rates, strict=True)]
    return Task(
        rng.choice(("tariff", "price", "cost", "fee", "charge")),
        f"{n}: int",
        "int",
        first
        + "".join(f",\nabove {limit} each costs {rate}" for limit, rate in zip(limits, rates[1:], strict=True))
        + ". Return the total.",
        (
            seq(*walk, "return total"),
            seq("total = 0", nest(f"for i in range(1, {n} + 1):", seq(*branches)), "return total"),
        ),
        lambda v: sum(rates[sum(i > limit for limit in limits)] for i in range(1, v + 1)),
        [(v,) for v in (0, 1, *limits, limits[0] + 1, limits[-1] + rng.randint(1, 20))],
    )


RULE_KINDS = (report, piecewise, label_list, flags, validate, tariff)
