"""Templates of code problems that put conditions and changes together."""

from __future__ import annotations

from random import Random

from .code_parts import LISTS, Task, change, collect, condition, integers, lists, nest, seq, two_conditions


def filter_map(rng: Random) -> Task:
    """Keep, then change."""
    xs, x = rng.choice(LISTS)
    c, f = condition(rng), change(rng)
    r = rng.choice(("result", "out"))
    return Task(
        rng.choice(("select_and_change", "process", "filter_then_map", "convert")),
        f"{xs}: list[int]",
        "list[int]",
        rng.choice(
            (
                f"Return the numbers in {xs} that are {c.phrase}, each {f.phrase}.",
                f"Keep the {xs} that are {c.phrase}. Return them, each {f.phrase}.",
                f"Take what is {c.single} from {xs} and return it, each {f.phrase}.",
            )
        ),
        (
            f"return [{f.on(x)} for {x} in {xs} if {c.on(x)}]",
            collect(r, f"for {x} in {xs}:", f"if {c.on(x)}:", f"{r}.append({f.on(x)})"),
            seq(f"kept = [{x} for {x} in {xs} if {c.on(x)}]", f"return [{f.on(x)} for {x} in kept]"),
        ),
        lambda a: [f.apply(v) for v in a if c.holds(v)],
        lists(rng, *c.points),
    )


def pipeline(rng: Random) -> Task:
    """Keep, then change, then aggregate."""
    xs, x = rng.choice(LISTS)
    c, f = condition(rng), change(rng)
    asked, call, start, update, oracle = rng.choice(
        (
            ("sum", "sum(@)", "total = 0", "total += @", sum),
            ("sum", "sum(@)", "total = 0", "total += @", sum),
            ("largest", "max(@, default=0)", "", "", lambda a: max(a) if a else 0),
            ("smallest", "min(@, default=0)", "", "", lambda a: min(a) if a else 0),
        )
    )
    last = f"Return the {asked} of the results" + (", or 0." if asked != "sum" else ".")
    bodies: tuple[str, ...] = (
        seq(
            f"kept = [{x} for {x} in {xs} if {c.on(x)}]",
            f"changed = [{f.on(x)} for {x} in kept]",
            f"return {call.replace('@', 'changed')}",
        ),
        seq(
            "kept = []",
            nest(f"for {x} in {xs}:", f"if {c.on(x)}:", f"kept.append({x})"),
            "changed = []",
            nest(f"for {x} in kept:", f"changed.append({f.on(x)})"),
            f"return {call.replace('@', 'changed')}",
        ),
    )
    if start:
        one = nest(f"for {x} in {xs}:", f"if {c.on(x)}:", update.replace("@", f.on(x)))
        three = seq(
            "kept = []",
            nest(f"for {x} in {xs}:", f"if {c.on(x)}:", f"kept.append({x})"),
            "changed = []",
            nest(f"for {x} in kept:", f"changed.append({f.on(x)})"),
            start,
            nest(f"for {x} in changed:", update.replace("@", x)),
        )
        bodies += (seq(start, one, "return total"), seq(three, "return total"), seq(three, "return total"))
    return Task(
        rng.choice(("pipeline", "three_steps", "evaluate", "compute")),
        f"{xs}: list[int]",
        "int",
        rng.choice(
            (
                f"Keep the numbers in {xs} that are {c.phrase}, each {f.phrase}. {last}",
                f"Take those {xs} that are {c.phrase}, each {f.phrase}.\n{last}",
                f"First keep what is {c.single}. Then take each {f.phrase}.\n{last}",
            )
        ),
        bodies,
        lambda a: oracle([f.apply(v) for v in a if c.holds(v)]),
        lists(rng, *c.points),
    )


def sum_changed(rng: Random) -> Task:
    """Sum the changed numbers."""
    xs, x = rng.choice(LISTS)
    f = change(rng)
    k = rng.choice((0, rng.randint(1, 99)))
    return Task(
        rng.choice(("sum_changed", "total", "sum_of_all", "add_all")),
        f"{xs}: list[int]",
        "int",
        rng.choice(
            (
                f"Start at {k} and add every number of {xs}, each {f.phrase}.",
                f"Return {k} plus the sum of the {xs}, each {f.phrase}.",
            )
        ),
        (
            f"return {k} + sum({f.on(x)} for {x} in {xs})",
            seq(f"total = {k}", nest(f"for {x} in {xs}:", f"total += {f.on(x)}"), "return total"),
        ),
        lambda a: k + sum(map(f.apply, a)),
        lists(rng, 0, 1),
    )


def both_or_either(rng: Random) -> Task:
    """Keep what meets both of two conditions, or either."""
    xs, x = rng.choice(LISTS)
    word = rng.choice(("and", "or"))
    c, d, points = two_conditions(rng, word)
    r = rng.choice(("result", "kept"))
    return Task(
        rng.choice((f"select_{word}", "keep_two", "filter_two", "both_rules" if word == "and" else "either_rule")),
        f"{xs}: list[int]",
        "list[int]",
        rng.choice(
            (
                f"Return the {xs} that are {c.phrase} {word} {d.phrase}.",
                f"Keep the numbers that are {c.phrase} {word} {d.phrase}.",
                f"Return a list of the elements of {xs} that are {c.phrase} {word} {d.phrase}.",
            )
        ),
        (
            f"return [{x} for {x} in {xs} if {c.on(x)} {word} {d.on(x)}]",
            collect(r, f"for {x} in {xs}:", f"if {c.on(x)} {word} {d.on(x)}:", f"{r}.append({x})"),
        ),
        lambda a: [v for v in a if (c.holds(v) and d.holds(v) if word == "and" else c.holds(v) or d.holds(v))],
        [([],), (points,), (integers(rng),), (integers(rng, 0, 30),), (integers(rng, -20, 9),)],
    )


def split_in_two(rng: Random) -> Task:
    """Two lists: what meets a condition, and the rest."""
    xs, x = rng.choice(LISTS)
    c = condition(rng)
    a, b = rng.choice((("yes", "no"), ("first", "second"), ("chosen", "others"), ("left", "right")))
    return Task(
        rng.choice(("split", "partition", "separate", "divide")),
        f"{xs}: list[int]",
        "tuple[list[int], list[int]]",
        rng.choice(
            (
                f"Split {xs} into the numbers that are {c.phrase} and the rest.",
                f"Return two lists: the {xs} that are {c.phrase}, and all others.",
                f"Separate the elements that are {c.phrase} from the others.",
            )
        ),
        (
            seq(
                f"{a} = [{x} for {x} in {xs} if {c.on(x)}]",
                f"{b} = [{x} for {x} in {xs} if not ({c.on(x)})]",
                f"return {a}, {b}",
            ),
            seq(
                f"{a} = []",
                f"{b} = []",
                nest(
                    f"for {x} in {xs}:",
                    seq(nest(f"if {c.on(x)}:", f"{a}.append({x})"), nest("else:", f"{b}.append({x})")),
                ),
                f"return {a}, {b}",
            ),
        ),
        lambda v: ([i for i in v if c.holds(i)], [i for i in v if not c.holds(i)]),
        lists(rng, *c.points),
    )


def change_if(rng: Random) -> Task:
    """One change for what meets a condition, another or none for the rest."""
    xs, x = rng.choice(LISTS)
    c, f, g = condition(rng), change(rng), change(rng)
    keep = rng.random() < 0.4
    other = x if keep else g.on(x)
    tail = "Leave the others as they are." if keep else f"The others are to be {g.phrase}."
    branches = seq(nest(f"if {c.on(x)}:", f"result.append({f.on(x)})"), nest("else:", f"result.append({other})"))
    return Task(
        rng.choice(("adjust", "change_some", "rework", "update_if")),
        f"{xs}: list[int]",
        "list[int]",
        rng.choice(
            (
                f"Numbers in {xs} that are {c.phrase} are to be {f.phrase}. {tail}",
                f"Return {xs} with the numbers that are {c.phrase} {f.phrase}.\n{tail}",
            )
        ),
        (
            f"return [{f.on(x)} if {c.on(x)} else {other} for {x} in {xs}]",
            collect("result", f"for {x} in {xs}:", branches),
            collect("result", f"for {x} in {xs}:", branches),
        ),
        lambda a: [f.apply(v) if c.holds(v) else v if keep else g.apply(v) for v in a],
        lists(rng, *c.points),
    )


def flatten(rng: Random) -> Task:
    """All numbers of all rows that meet a condition, changed."""
    rows = rng.choice(("matrix", "grid", "rows", "table", "groups"))
    c, f = condition(rng), change(rng)
    total = rng.random() < 0.5
    deep = f"total += {f.on('x')}" if total else f"result.append({f.on('x')})"
    asked = "the sum" if total else "one list"
    start, end = ("total = 0", "return total") if total else ("result = []", "return result")
    flat = f"{f.on('x')} for row in {rows} for x in row if {c.on('x')}"
    return Task(
        rng.choice(("flatten", "collect_all", "walk", "gather")),
        f"{rows}: list[list[int]]",
        "int" if total else "list[int]",
        rng.choice(
            (
                f"Return {asked} of all numbers in {rows} that are {c.phrase}, each {f.phrase}.",
                f"Take the numbers of all {rows} that are {c.phrase}, each {f.phrase}.\nReturn {asked}.",
            )
        ),
        (
            seq(start, nest(f"for row in {rows}:", "for x in row:", f"if {c.on('x')}:", deep), end),
            f"return sum({flat})" if total else f"return [{flat}]",
            seq(start, nest(f"for row in {rows}:", "for x in row:", f"if {c.on('x')}:", deep), end),
        ),
        lambda a: (sum if total else list)([f.apply(v) for r in a for v in r if c.holds(v)]),
        [([],), ([[], [*c.points]],), ([integers(rng), [1]],), ([[p] for p in c.points],), ([integers(rng)],)],
    )


PIPELINE_KINDS = (filter_map, pipeline, sum_changed, both_or_either, split_in_two, change_if, flatten)
