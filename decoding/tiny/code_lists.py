"""Templates of code problems about a list of whole numbers and a condition."""

from __future__ import annotations

from math import prod
from random import Random

from .code_parts import LISTS, Task, change, collect, condition, integers, lists, nest, seq


def map_list(rng: Random) -> Task:
    """Change every number."""
    xs, x = rng.choice(LISTS)
    f = change(rng)
    r = rng.choice(("result", "out"))
    return Task(
        rng.choice(("change_all", "apply_to_each", "transform", "map_list", "update_values")),
        f"{xs}: list[int]",
        "list[int]",
        rng.choice(
            (
                f"Return the numbers in {xs}, each {f.phrase}.",
                f"Return a new list with every number of {xs} {f.phrase}.",
                f"Give back the list {xs} with each element {f.phrase}.",
                f"Every number in {xs} is to be {f.phrase}; return the new list.",
            )
        ),
        (
            f"return [{f.on(x)} for {x} in {xs}]",
            collect(r, f"for {x} in {xs}:", f"{r}.append({f.on(x)})"),
            f"return list(map(lambda {x}: {f.on(x)}, {xs}))",
        ),
        lambda a: [f.apply(v) for v in a],
        lists(rng, -1, 0),
    )


def filter_list(rng: Random) -> Task:
    """Keep the numbers that meet a condition."""
    xs, x = rng.choice(LISTS)
    c = condition(rng)
    r = rng.choice(("result", "kept"))
    return Task(
        rng.choice(("keep", "select", "filter_list", "pick", "keep_some")),
        f"{xs}: list[int]",
        "list[int]",
        rng.choice(
            (
                f"Return the numbers in {xs} that are {c.phrase}.",
                f"Keep only the elements of {xs} that are {c.phrase}.",
                f"Return a list of those {xs} that are {c.phrase}, in order.",
                f"Filter {xs}: keep what is {c.single}.",
            )
        ),
        (
            f"return [{x} for {x} in {xs} if {c.on(x)}]",
            collect(r, f"for {x} in {xs}:", f"if {c.on(x)}:", f"{r}.append({x})"),
            f"return list(filter(lambda {x}: {c.on(x)}, {xs}))",
        ),
        lambda a: [v for v in a if c.holds(v)],
        lists(rng, *c.points),
    )


def remove_some(rng: Random) -> Task:
    """Leave out the numbers that meet a condition."""
    xs, x = rng.choice(LISTS)
    c = condition(rng)
    return Task(
        rng.choice(("remove", "drop", "without", "leave_out", "reject")),
        f"{xs}: list[int]",
        "list[int]",
        rng.choice(
            (
                f"Remove the numbers from {xs} that are {c.phrase}.",
                f"Return {xs} without the elements that are {c.phrase}.",
                f"Leave out all {xs} that are {c.phrase} and return the rest.",
            )
        ),
        (
            f"return [{x} for {x} in {xs} if not ({c.on(x)})]",
            collect("result", f"for {x} in {xs}:", seq(nest(f"if {c.on(x)}:", "continue"), f"result.append({x})")),
            collect("rest", f"for {x} in {xs}:", f"if not ({c.on(x)}):", f"rest.append({x})"),
        ),
        lambda a: [v for v in a if not c.holds(v)],
        lists(rng, *c.points),
    )


def sum_if(rng: Random) -> Task:
    """Sum what meets a condition."""
    xs, x = rng.choice(LISTS)
    c = condition(rng)
    name = rng.choice(("sum_some", "add_up", "total_of", "sum_matching", "partial_sum"))
    t = rng.choice(("total", "result"))
    return Task(
        name,
        f"{xs}: list[int]",
        "int",
        rng.choice(
            (
                f"Return the sum of the numbers in {xs} that are {c.phrase}.",
                f"Add up all {xs} that are {c.phrase}.",
                f"Return the total of those elements of {xs} that are {c.phrase}.",
                f"Sum the elements that are {c.phrase}. The sum of nothing is 0.",
            )
        ),
        (
            f"return sum({x} for {x} in {xs} if {c.on(x)})",
            seq(f"{t} = 0", nest(f"for {x} in {xs}:", f"if {c.on(x)}:", f"{t} += {x}"), f"return {t}"),
            seq(
                nest(f"if not {xs}:", "return 0"),
                f"rest = {name}({xs}[1:])",
                nest(f"if {c.on(xs + '[0]')}:", f"return {xs}[0] + rest"),
                "return rest",
            ),
        ),
        lambda a: sum(filter(c.holds, a)),
        lists(rng, *c.points),
    )


def count_if(rng: Random) -> Task:
    """Count what meets a condition."""
    xs, x = rng.choice(LISTS)
    c = condition(rng)
    t = rng.choice(("count", "found"))
    return Task(
        rng.choice(("count_some", "how_many", "count_matching", "number_of")),
        f"{xs}: list[int]",
        "int",
        rng.choice(
            (
                f"Return how many numbers in {xs} are {c.phrase}.",
                f"Count the {xs} that are {c.phrase}.",
                f"Return the number of elements of {xs} that are {c.phrase}.",
                f"How many of the {xs} are {c.phrase}?",
            )
        ),
        (
            f"return sum(1 for {x} in {xs} if {c.on(x)})",
            seq(f"{t} = 0", nest(f"for {x} in {xs}:", f"if {c.on(x)}:", f"{t} += 1"), f"return {t}"),
            f"return len([{x} for {x} in {xs} if {c.on(x)}])",
        ),
        lambda a: sum(map(c.holds, a)),
        lists(rng, *c.points),
    )


def product_if(rng: Random) -> Task:
    """Multiply what meets a condition."""
    xs, x = rng.choice(LISTS)
    c = condition(rng)
    name = rng.choice(("product_of", "multiply_some", "product_matching"))
    t = rng.choice(("product", "result"))
    return Task(
        name,
        f"{xs}: list[int]",
        "int",
        rng.choice(
            (
                f"Return the product of the numbers in {xs} that are {c.phrase}.",
                f"Multiply all {xs} that are {c.phrase}; the product of nothing is 1.",
                f"Return 1 times every element of {xs} that is {c.single}.",
            )
        ),
        (
            seq(f"{t} = 1", nest(f"for {x} in {xs}:", f"if {c.on(x)}:", f"{t} *= {x}"), f"return {t}"),
            seq(
                nest(f"if not {xs}:", "return 1"),
                f"rest = {name}({xs}[1:])",
                nest(f"if {c.on(xs + '[0]')}:", f"return {xs}[0] * rest"),
                "return rest",
            ),
        ),
        lambda a: prod(filter(c.holds, a)),
        lists(rng, *c.points),
    )


def any_or_all(rng: Random) -> Task:
    """Whether any or all numbers meet a condition."""
    xs, x = rng.choice(LISTS)
    c = condition(rng)
    which, early, late = rng.choice((("any", "True", "False"), ("all", "False", "True")))
    test = c.on(x) if which == "any" else f"not ({c.on(x)})"
    phrase = c.single if which == "any" else c.phrase
    asked = f"at least one of the {xs} is" if which == "any" else f"all {xs} are"
    return Task(
        rng.choice((f"{which}_match", f"has_{which}", f"check_{which}", f"{which}_of_them")),
        f"{xs}: list[int]",
        "bool",
        rng.choice(
            (
                f"Return True if {asked} {phrase}.",
                f"Check whether {asked} {phrase}.",
                f"Tell if {asked} {phrase}, else return False.",
            )
        ),
        (
            f"return {which}({c.on(x)} for {x} in {xs})",
            seq(nest(f"for {x} in {xs}:", f"if {test}:", f"return {early}"), f"return {late}"),
        ),
        lambda a: (any if which == "any" else all)([c.holds(v) for v in a]),
        lists(rng, *c.points),
    )


def first_or_last(rng: Random) -> Task:
    """The first or last number that meets a condition."""
    xs, x = rng.choice(LISTS)
    c = condition(rng)
    k = rng.choice((0, -1, -1, rng.randint(2, 99)))
    which = rng.choice(("first", "last"))
    over = xs if which == "first" else f"reversed({xs})"
    bodies: tuple[str, ...] = (seq(nest(f"for {x} in {over}:", f"if {c.on(x)}:", f"return {x}"), f"return {k}"),)
    if which == "last":
        loop = nest(f"for {x} in {xs}:", f"if {c.on(x)}:", f"result = {x}")
        bodies += (seq(f"result = {k}", loop, "return result"),)
    return Task(
        rng.choice((f"{which}_match", f"find_{which}", f"get_{which}")),
        f"{xs}: list[int]",
        "int",
        rng.choice(
            (
                f"Return the {which} number in {xs} that is {c.single}, or {k} if there is none.",
                f"Find the {which} of the {xs} that is {c.single}. Return {k} if no number is.",
                f"Which is the {which} element that is {c.single}? If none, return {k}.",
            )
        ),
        bodies,
        lambda a: ([k, *filter(c.holds, a)][-1]) if which == "last" else [*filter(c.holds, a), k][0],
        lists(rng, *c.points),
    )


def position(rng: Random) -> Task:
    """Where a value, or the first number that meets a condition, stands."""
    xs, x = rng.choice(LISTS)
    c = condition(rng)
    k = rng.choice((-1, -1, rng.randint(50, 99)))
    if rng.random() < 0.5:
        return Task(
            rng.choice(("index_of", "find_index", "position_of", "where_is")),
            f"{xs}: list[int], target: int",
            "int",
            rng.choice(
                (
                    f"Return the index of the first element equal to target, or {k}.",
                    f"Return the first position of target in {xs}, or {k} if it is not there.",
                    f"Find target in {xs} and return its index; return {k} if it is missing.",
                )
            ),
            (
                seq(nest(f"for i, {x} in enumerate({xs}):", f"if {x} == target:", "return i"), f"return {k}"),
                seq(nest(f"for i in range(len({xs})):", f"if {xs}[i] == target:", "return i"), f"return {k}"),
                seq(nest(f"if target in {xs}:", f"return {xs}.index(target)"), f"return {k}"),
            ),
            lambda a, t: a.index(t) if t in a else k,
            [([], 3), ([5], 5), ([1, 2, 2], 2), ([4, 1], 9), (a := integers(rng), a[-1])],
        )
    return Task(
        rng.choice(("first_index", "find_index", "position", "index_where")),
        f"{xs}: list[int]",
        "int",
        rng.choice(
            (
                f"Return the index of the first number in {xs} that is {c.single}, or {k}.",
                f"At which index is the first of the {xs} that is {c.single}? Return {k} if none.",
            )
        ),
        (
            seq(nest(f"for i, {x} in enumerate({xs}):", f"if {c.on(x)}:", "return i"), f"return {k}"),
            seq(nest(f"for i in range(len({xs})):", f"if {c.on(xs + '[i]')}:", "return i"), f"return {k}"),
        ),
        lambda a: next((i for i, v in enumerate(a) if c.holds(v)), k),
        lists(rng, *c.points),
    )


LIST_KINDS = (map_list, filter_list, remove_some, sum_if, count_if, product_if, any_or_all, first_or_last, position)
