"""Templates of code problems about pairs, two lists, rows and dictionaries."""

from __future__ import annotations

from collections import Counter
from random import Random

from .code_parts import LISTS, STRINGS, TEXTS, Task, change, collect, condition, integers, letters_of, nest, seq

NAMES = ("Ann", "Bob", "Cem", "Dora", "Eve", "Finn", "Gus", "Hana", "Ian", "Joy")


def _dictionary(rng: Random, *points: int) -> dict[str, int]:
    values = [*points, rng.randint(-9, 60), rng.randint(1, 60)]
    rng.shuffle(values)
    return dict(zip(rng.sample(NAMES, len(values)), values, strict=True))


def pairs(rng: Random) -> Task:
    """Pairs that meet a rule: how many, or whether there is one."""
    xs, _ = rng.choice(LISTS)
    k = rng.randint(2, 40)
    asked, test, meaning = rng.choice(
        (
            (f"add up to {k}", f"{xs}[i] + {xs}[j] == {k}", lambda p, q: p + q == k),
            (f"add up to more than {k}", f"{xs}[i] + {xs}[j] > {k}", lambda p, q: p + q > k),
            (f"differ by {k}", f"abs({xs}[i] - {xs}[j]) == {k}", lambda p, q: abs(p - q) == k),
            (f"have a product less than {k}", f"{xs}[i] * {xs}[j] < {k}", lambda p, q: p * q < k),
        )
    )
    count = rng.random() < 0.5
    inner = "count += 1" if count else "return True"
    head, tail = ("count = 0", "return count") if count else (None, "return False")
    loops = nest(f"for i in range(len({xs})):", f"for j in range(i + 1, len({xs})):", f"if {test}:", inner)
    two_steps = nest(
        f"for i in range(len({xs})):",
        "for j in range(i):",
        f"if {test}:",
        inner,
    )
    return Task(
        rng.choice(("count_pairs", "number_of_pairs") if count else ("has_pair", "pair_exists")),
        f"{xs}: list[int]",
        "int" if count else "bool",
        rng.choice(
            (f"Count the pairs of elements of {xs} that {asked}.", f"How many pairs of the {xs} {asked}?")
            if count
            else (f"Return True if two elements of {xs} {asked}.", f"Check whether any two of the {xs} {asked}.")
        ),
        tuple(seq(*([head] if head else []), loop, tail) for loop in (loops, two_steps)),
        lambda a: (sum if count else any)([meaning(a[i], a[j]) for j in range(len(a)) for i in range(j)]),
        [([],), ([k // 2],), ([1, k - 1],), ([1, k],), ([2, k + 2],), (integers(rng, 0, k),), (integers(rng, 0, k),)],
    )


def zip_lists(rng: Random) -> Task:
    """Two lists element by element."""
    a, b = rng.choice((("a", "b"), ("xs", "ys"), ("first", "second"), ("left", "right")))
    k, m = rng.randint(2, 30), rng.randint(2, 9)
    phrase, text, meaning = rng.choice(
        (
            ("sums", "{} + {}", lambda p, q: p + q),
            ("products", "{} * {}", lambda p, q: p * q),
            (f"sums plus {k}", f"{{}} + {{}} + {k}", lambda p, q: p + q + k),
            (f"products plus {k}", f"{{}} * {{}} + {k}", lambda p, q: p * q + k),
            (f"sums, the second number times {k},", f"{{}} + {{}} * {k}", lambda p, q: p + k * q),
            (f"differences times {k}", f"({{}} - {{}}) * {k}", lambda p, q: k * p - k * q),
            (f"sums of {m} times the first and {k} times the second",
             f"{m} * {{}} + {k} * {{}}", lambda p, q: m * p + k * q),
        )
    )  # fmt: skip
    return Task(
        rng.choice(("combine", "merge_lists", "zip_with", "elementwise")),
        f"{a}: list[int], {b}: list[int]",
        "list[int]",
        rng.choice(
            (
                f"Return the {phrase} of the elements of {a} and {b} at the same place.",
                f"Walk along {a} and {b} together and return the {phrase}.",
            )
        ),
        (
            f"return [{text.format('x', 'y')} for x, y in zip({a}, {b})]",
            collect("result", f"for x, y in zip({a}, {b}):", f"result.append({text.format('x', 'y')})"),
            collect("result", f"for i in range(min(len({a}), len({b}))):",
                    f"result.append({text.format(f'{a}[i]', f'{b}[i]')})"),
        ),
        lambda p, q: [meaning(p[i], q[i]) for i in range(min(len(p), len(q)))],
        [([], []), ([1], [0]), ([0], [1]), (integers(rng, most=3), integers(rng, most=3)),
         (integers(rng, most=3), integers(rng, most=3))],
    )  # fmt: skip


def table(rng: Random) -> Task:
    """Something of each row."""
    rows = rng.choice(("matrix", "grid", "rows", "table"))
    c = condition(rng)
    which = rng.randrange(4)
    asked, call, start, update, end, oracle = (
        ("the sum of each row", "sum({})", "total = 0", "total += x", "total", sum),
        (f"for each row the sum of what is {c.single}", f"sum(x for x in {{}} if {c.on('x')})", "total = 0",
         nest(f"if {c.on('x')}:", "total += x"), "total", lambda r: sum(filter(c.holds, r))),
        (f"for each row how many numbers are {c.phrase}", f"sum(1 for x in {{}} if {c.on('x')})", "count = 0",
         nest(f"if {c.on('x')}:", "count += 1"), "count", lambda r: sum(map(c.holds, r))),
        ("the largest of each row, at least 0", "max([0, *{}])", "best = 0",
         nest("if x > best:", "best = x"), "best", lambda r: max([0, *r])),
    )[which]  # fmt: skip
    cases = [
        [],
        [[*c.points]],
        [[p] for p in c.points],
        [integers(rng, most=3), integers(rng, most=3)],
        [[-2], [], [5, 1]],
    ]
    return Task(
        rng.choice(("row_values", "per_row", "each_row", "row_results")),
        f"{rows}: list[list[int]]",
        "list[int]",
        rng.choice((f"Return {asked} of {rows}.", f"Given a list of rows, return {asked}.")),
        (
            f"return [{call.format('row')} for row in {rows}]",
            collect("result", f"for row in {rows}:", f"result.append({call.format('row')})"),
            seq(
                "result = []",
                nest(f"for row in {rows}:", seq(start, nest("for x in row:", update), f"result.append({end})")),
                "return result",
            ),
        ),
        lambda a: [oracle(r) for r in a],
        [(case,) for case in cases],
    )


def group(rng: Random) -> Task:
    """A dictionary of counts or sums."""
    xs, x = rng.choice(LISTS)
    k = rng.randint(2, 12)
    c = condition(rng)
    kind = rng.randrange(3)
    if kind == 0:
        asked, key, add = f"how often each remainder by {k} occurs in {xs}", f"{x} % {k}", "1"
    elif kind == 1:
        asked, key, add = f"how often each number that is {c.single} occurs in {xs}", x, "1"
    else:
        asked, key, add = f"the sum of the {xs} for each remainder by {k}", f"{x} % {k}", x
    start = "result = {}"
    update = f"result[{key}] = result.get({key}, 0) + {add}"
    branch = seq(
        f"key = {key}",
        nest("if key not in result:", "result[key] = 0"),
        f"result[key] += {add}",
    )
    inner = (f"if {c.on(x)}:",) if kind == 1 else ()

    def oracle(a: list[int]) -> dict[int, int]:
        if kind == 1:
            return {v: a.count(v) for v in a if c.holds(v)}
        classes = dict.fromkeys(v - v // k * k for v in a)  # in the order of their first numbers
        return {r: sum(v if kind == 2 else 1 for v in a if (v - r) % k == 0) for r in classes}

    return Task(
        rng.choice(("count_groups", "tally", "group_by", "summary")),
        f"{xs}: list[int]",
        "dict[int, int]",
        rng.choice((f"Return a dictionary with {asked}.", f"Return {asked}, as a dictionary.")),
        (
            seq(start, nest(f"for {x} in {xs}:", *inner, update), "return result"),
            seq(start, nest(f"for {x} in {xs}:", *inner, branch), "return result"),
        ),
        oracle,
        [([],), ([*c.points, *c.points],), ([k, k + 1, 1, 0],), (integers(rng, 0, 20),), (integers(rng, 0, 9),)],
    )


def char_counts(rng: Random) -> Task:
    """How often each character occurs."""
    s = rng.choice(STRINGS)
    k = rng.randint(1, 6)
    letters = letters_of(rng, 1, 3)
    skip = rng.random() < 0.6
    name, plural = rng.choice(("counts", "result")), f'characters of {s} except "{letters}"'
    asked = plural if skip else f"characters of {s}"
    test = (f'if c not in "{letters}":',) if skip else ()
    often = rng.random() < 0.4
    tail = f", if at least {k} times" if often else ""
    end = f"return {{c: n for c, n in {name}.items() if n >= {k}}}" if often else f"return {name}"
    branch = seq(nest(f"if c in {name}:", f"{name}[c] += 1"), nest("else:", f"{name}[c] = 1"))

    def oracle(t: str) -> dict[str, int]:
        return {c: n for c, n in Counter(t).items() if not (skip and c in letters) and not (often and n < k)}

    text = "".join(rng.choice("abcde" + letters) for _ in range(12))
    return Task(
        rng.choice(("char_counts", "count_each", "frequencies", "histogram")),
        f"{s}: str",
        "dict[str, int]",
        rng.choice(
            (
                f"Return a dictionary of how often the {asked} occur{tail}.",
                f"Count the {asked}; return a dictionary{tail and ' of those that occur' + tail[4:]}.",
            )
        ),
        (
            seq(f"{name} = {{}}", nest(f"for c in {s}:", *test, f"{name}[c] = {name}.get(c, 0) + 1"), end),
            seq(f"{name} = {{}}", nest(f"for c in {s}:", *test, branch), end),
        ),
        oracle,
        [("",), (letters + "z" * k + "y" * (k - 1) + "x" * (k + 1),), (text,), (rng.choice(TEXTS),)],
    )


def filter_dict(rng: Random) -> Task:
    """Entries of a dictionary whose values meet a condition."""
    d = rng.choice(("stock", "ages", "prices", "scores", "table", "counts"))
    c, f = condition(rng), change(rng)
    mode = rng.randrange(4)
    asked = (
        f"the keys of {d} whose values are {c.phrase}",
        f"{d} with only the values that are {c.phrase}",
        f"the sum of the values of {d} that are {c.phrase}",
        f"{d} with only the values that are {c.phrase}, each {f.phrase}",
    )[mode]
    returns = ("list[str]", "dict[str, int]", "int", "dict[str, int]")[mode]
    value = f.on("value") if mode == 3 else "value"
    start, deep = (
        ("result = []", "result.append(key)"),
        ("result = {}", "result[key] = value"),
        ("result = 0", "result += value"),
        ("result = {}", f"result[key] = {value}"),
    )[mode]
    short = (
        f"return [key for key, value in {d}.items() if {c.on('value')}]",
        f"return {{key: value for key, value in {d}.items() if {c.on('value')}}}",
        f"return sum(value for value in {d}.values() if {c.on('value')})",
        f"return {{key: {value} for key, value in {d}.items() if {c.on('value')}}}",
    )[mode]
    plain = (list, dict, lambda kept: sum(kept.values()), lambda kept: {n: f.apply(v) for n, v in kept.items()})[mode]
    return Task(
        rng.choice(("select_entries", "filter_dict", "from_table", "lookup_all")),
        f"{d}: dict[str, int]",
        returns,
        rng.choice((f"Return {asked}.", f"Give back {asked}.", f"Find and return {asked}.")),
        (
            short,
            seq(start, nest(f"for key, value in {d}.items():", f"if {c.on('value')}:", deep), "return result"),
            seq(
                start,
                nest(f"for key in {d}:", seq(f"value = {d}[key]", nest(f"if {c.on('value')}:", deep))),
                "return result",
            ),
        ),
        lambda t: plain({n: t[n] for n in t if c.holds(t[n])}),
        [({},), (_dictionary(rng, *c.points),), *(({"Kim": p},) for p in c.points), (_dictionary(rng),)],
    )


def price_list(rng: Random) -> Task:
    """Prices looked up, or added up."""
    names = rng.sample(("apple", "bread", "milk", "tea", "salt", "rice", "egg", "cake", "soup", "fish"), 4)
    names = names[: rng.randint(2, 4)]
    costs = [rng.randint(1, 60) for _ in names]
    d = 0 if len(names) == 4 else rng.choice((0, rng.randint(61, 99)))
    n = rng.choice(("item", "name", "product", "key"))
    chain = [nest(f'if {n} == "{name}":', f"return {cost}") for name, cost in zip(names, costs, strict=True)]
    entries = ", ".join(f'"{name}": {cost}' for name, cost in zip(names, costs, strict=True))
    asked = ", ".join(f"{cost} for {name}" for name, cost in zip(names, costs, strict=True))
    total = rng.random() < 0.5
    ns = f"{n}s"
    tests = [f'{"elif" if i else "if"} {n} == "{name}":' for i, name in enumerate(names)]
    branches = [nest(test, f"total += {cost}") for test, cost in zip(tests, costs, strict=True)]
    if len(names) < 4:
        branches.append(nest("else:", f"total += {d}"))
    bodies = (
        (
            seq(f"prices = {{{entries}}}", f"return sum(prices.get({n}, {d}) for {n} in {ns})"),
            seq(f"prices = {{{entries}}}", "total = 0", nest(f"for {n} in {ns}:", f"total += prices.get({n}, {d})"),
                "return total"),
            seq("total = 0", nest(f"for {n} in {ns}:", seq(*branches)), "return total"),
        )
        if total
        else (seq(*chain, f"return {d}"), seq(f"prices = {{{entries}}}", f"return prices.get({n}, {d})"))
    )  # fmt: skip
    known = dict(zip(names, costs, strict=True))

    def oracle(asked_for: str | list[str]) -> int:
        basket = [asked_for] if isinstance(asked_for, str) else asked_for
        return sum(known.get(name, d) for name in basket)

    basket = [*names, rng.choice(names), "stone"]
    rng.shuffle(basket)
    return Task(
        rng.choice(("total_price", "bill", "sum_prices") if total else ("price_of", "look_up", "get_price")),
        f"{ns}: list[str]" if total else f"{n}: str",
        "int",
        (f"Add up the prices of the {ns}: " if total else "Return the price: ") + f"{asked}, {d} for anything else.",
        bodies,
        oracle,
        [([],), (basket,), *(([name],) for name in names), (["stone"],)]
        if total
        else [("stone",), ("",), *((name,) for name in names)],
    )


TABLE_KINDS = (pairs, zip_lists, table, group, char_counts, filter_dict, price_list)
