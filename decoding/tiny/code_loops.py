"""Templates of code problems that walk along a list: extremes, running values, neighbours, parts."""

from __future__ import annotations

from itertools import pairwise
from random import Random

from .code_parts import LISTS, Task, change, collect, integers, lists, nest, seq


def extreme(rng: Random) -> Task:
    """The largest or smallest number."""
    xs, x = rng.choice(LISTS)
    k = rng.choice((0, -1, rng.randint(2, 99)))
    word, sign, builtin = rng.choice((("largest", ">", max), ("smallest", "<", min)))
    call = f"{builtin.__name__}({xs})"
    return Task(
        rng.choice((f"find_{word}", f"{word}_number", f"get_{word}", builtin.__name__ + "imum")),
        f"{xs}: list[int]",
        "int",
        rng.choice(
            (
                f"Return the {word} number in {xs}, or {k} if {xs} is empty.",
                f"Find the {word} of the {xs}. For an empty list return {k}.",
                f"Which of the {xs} is {word}? The answer for no {xs} is {k}.",
            )
        ),
        (
            seq(
                nest(f"if not {xs}:", f"return {k}"),
                f"best = {xs}[0]",
                nest(f"for {x} in {xs}:", f"if {x} {sign} best:", f"best = {x}"),
                "return best",
            ),
            seq(nest(f"if not {xs}:", f"return {k}"), f"return {call}"),
            f"return {call} if {xs} else {k}",
        ),
        lambda a: sorted(a, reverse=word == "largest")[0] if a else k,
        [([],), ([-3],), (integers(rng),), (integers(rng),), (integers(rng, -60, -1),)],
    )


def second_extreme(rng: Random) -> Task:
    """The second largest or smallest different number."""
    xs, x = rng.choice(LISTS)
    k = rng.choice((0, -1, rng.randint(2, 99)))
    word, sign, place = rng.choice((("largest", ">", -2), ("smallest", "<", 1)))
    return Task(
        rng.choice((f"second_{word}", f"find_second_{word}", "runner_up")),
        f"{xs}: list[int]",
        "int",
        rng.choice(
            (
                f"Return the second {word} different number in {xs}, or {k}.",
                f"Find the second {word} of the different {xs}.\nReturn {k} if there is no such number.",
            )
        ),
        (
            seq(
                f"ordered = sorted(set({xs}))",
                nest("if len(ordered) < 2:", f"return {k}"),
                f"return ordered[{place}]",
            ),
            seq(
                "best = None",
                "second = None",
                nest(
                    f"for {x} in {xs}:",
                    seq(
                        nest(f"if best is None or {x} {sign} best:", seq("second = best", f"best = {x}")),
                        nest(
                            f"elif {x} != best and (second is None or {x} {sign} second):",
                            f"second = {x}",
                        ),
                    ),
                ),
                f"return {k} if second is None else second",
            ),
        ),
        lambda a: sorted(set(a), reverse=word == "largest")[1] if len(set(a)) > 1 else k,
        [([],), ([7, 7],), ([1, 2],), ([5, 9, 9, 5, 1],), (integers(rng),), (integers(rng, -9, 9),)],
    )


def reverse_list(rng: Random) -> Task:
    """The list in reverse order, perhaps changed."""
    xs, x = rng.choice(LISTS)
    f = change(rng)
    plain = rng.random() < 0.4
    text = x if plain else f.on(x)
    tail = "." if plain else f", each number {f.phrase}."
    return Task(
        rng.choice(("reverse", "backwards", "reversed_list", "turn_around")),
        f"{xs}: list[int]",
        "list[int]",
        rng.choice((f"Return {xs} in reverse order{tail}", f"Turn the list {xs} around{tail}")),
        (
            f"return [{text} for {x} in reversed({xs})]",
            collect("result", f"for {x} in {xs}[::-1]:", f"result.append({text})"),
            seq("result = []", nest(f"for {x} in {xs}:", f"result.insert(0, {text})"), "return result"),
        ),
        lambda a: [v if plain else f.apply(v) for v in a[::-1]],
        lists(rng, 0, 1),
    )


def running(rng: Random) -> Task:
    """Running sums or maxima."""
    xs, x = rng.choice(LISTS)
    k = rng.choice((0, rng.randint(1, 50)))
    if rng.random() < 0.6:
        name, what, update = "total", "sums", f"total += {x}"
        step = int.__add__
    else:
        name, what, update = "best", "maximum", f"best = max(best, {x})"
        step = max

    def oracle(a: list[int]) -> list[int]:
        out = [k]
        for v in a:
            out.append(step(out[-1], v))
        return out[1:]

    return Task(
        rng.choice((f"running_{name}", "accumulate", f"running_{what}", "so_far")),
        f"{xs}: list[int]",
        "list[int]",
        rng.choice(
            (
                f"Return the running {what} of {xs}, starting from {k}.",
                f"Start from {k} and return the list of the running {what} of the {xs}.",
            )
        ),
        (
            seq(
                f"{name} = {k}",
                "result = []",
                nest(f"for {x} in {xs}:", seq(update, f"result.append({name})")),
                "return result",
            ),
            seq(
                "result = []",
                f"{name} = {k}",
                nest(
                    f"for i in range(len({xs})):",
                    seq(
                        update.replace(x + ")", f"{xs}[i])") if name == "best" else f"total += {xs}[i]",
                        f"result.append({name})",
                    ),
                ),
                "return result",
            ),
        ),
        oracle,
        lists(rng, k - 1, k, k + 1),
    )


def dedupe(rng: Random) -> Task:
    """Every number once."""
    xs, x = rng.choice(LISTS)
    k = rng.randint(1, 60)
    skip = rng.random() < 0.6
    tail = f" Leave out {k}." if skip else ""
    test = f"{x} not in result" + (f" and {x} != {k}" if skip else "")
    skipping = (f"if {x} == {k} or {x} in seen:",) if skip else (f"if {x} in seen:",)
    return Task(
        rng.choice(("unique", "remove_duplicates", "distinct", "without_repeats")),
        f"{xs}: list[int]",
        "list[int]",
        rng.choice(
            (
                f"Return {xs} without duplicates, keeping the order.{tail}",
                f"Remove repeated numbers from {xs}; keep the first of each.{tail}",
                f"Return every number of {xs} once, in order.{tail}",
            )
        ),
        (
            collect("result", f"for {x} in {xs}:", f"if {test}:", f"result.append({x})"),
            seq(
                "seen = set()",
                "result = []",
                nest(
                    f"for {x} in {xs}:",
                    seq(nest(*skipping, "continue"), f"seen.add({x})", f"result.append({x})"),
                ),
                "return result",
            ),
        ),
        lambda a: [v for v in dict.fromkeys(a) if not (skip and v == k)],
        [([],), ([k, 1, k],), ([3, 3, 2, 3],), ([k - 1, k + 1, k],), (integers(rng, 0, 4),)],
    )


def neighbours(rng: Random) -> Task:
    """Something of each two neighbours."""
    xs, _ = rng.choice(LISTS)
    k = rng.randint(1, 20)
    phrase, text, meaning = rng.choice(
        (
            ("difference of each element and the one before", "{1} - {0}", lambda p, q: q - p),
            ("sum of each two neighbours", "{0} + {1}", lambda p, q: p + q),
            ("product of each two neighbours", "{0} * {1}", lambda p, q: p * q),
            ("larger of each two neighbours", "max({0}, {1})", max),
            (f"sum of each two neighbours plus {k}", f"{{0}} + {{1}} + {k}", lambda p, q: p + q + k),
            (f"sum of each two neighbours times {k}", f"({{0}} + {{1}}) * {k}", lambda p, q: (p + q) * k),
        )
    )
    return Task(
        rng.choice(("neighbours", "adjacent", "pairwise", "steps")),
        f"{xs}: list[int]",
        "list[int]",
        rng.choice((f"Return the {phrase} in {xs}.", f"For {xs} return the list of the {phrase}.")),
        (
            f"return [{text.format('a', 'b')} for a, b in zip({xs}, {xs}[1:])]",
            collect(
                "result", f"for i in range(1, len({xs})):", f"result.append({text.format(f'{xs}[i - 1]', f'{xs}[i]')})"
            ),
        ),
        lambda a: [meaning(a[i], a[i + 1]) for i in range(len(a) - 1)],
        [([],), ([4],), ([1, 3],), (integers(rng),), (integers(rng),)],
    )


def is_ordered(rng: Random) -> Task:
    """Whether all neighbours meet a rule."""
    xs, _ = rng.choice(LISTS)
    k = rng.randint(1, 30)
    asked, wrong, meaning = rng.choice(
        (
            (
                f"every element of {xs} is at least {k} more than the one before",
                f"@ < ? + {k}",
                lambda p, q: q - p >= k,
            ),
            (f"neighbours in {xs} never differ by more than {k}", f"abs(@ - ?) > {k}", lambda p, q: abs(p - q) <= k),
            (f"{xs} never goes down", "@ < ?", lambda p, q: q >= p),
            (f"{xs} always goes up", "@ <= ?", lambda p, q: q > p),
            (f"{xs} always goes down", "@ >= ?", lambda p, q: q < p),
        )
    )
    indexed = wrong.replace("@", f"{xs}[i]").replace("?", f"{xs}[i - 1]")
    start = rng.randint(-9, 20)
    return Task(
        rng.choice(("is_ordered", "check_steps", "in_order", "is_valid")),
        f"{xs}: list[int]",
        "bool",
        rng.choice((f"Return True if {asked}.", f"Check that {asked}.", f"Tell whether {asked}.")),
        (
            seq(nest(f"for i in range(1, len({xs})):", f"if {indexed}:", "return False"), "return True"),
            f"return not any({wrong.replace('@', 'b').replace('?', 'a')} for a, b in zip({xs}, {xs}[1:]))",
        ),
        lambda a: all(meaning(p, q) for p, q in pairwise(a)),
        [([],), ([start, start + k],), ([start, start + k - 1],), ([start, start + k + 1],), ([start, start],),
         ([start, start - k, start - k - 1],), (sorted(integers(rng)),)],
    )  # fmt: skip


def slices(rng: Random) -> Task:
    """Parts of a list by their places."""
    xs, _ = rng.choice(LISTS)
    k, m = rng.randint(2, 9), rng.randint(1, 6)
    which = rng.randrange(5)
    name = rng.choice(("part_of", "cut", "take", "slice_list", "rearrange"))
    loop = nest(f"while i < len({xs}):", seq(f"result.append({xs}[i:i + {k}])", f"i += {k}"))
    asked, bodies, oracle = (
        (f"the first {k} elements of {xs} without the first {m}", (f"return {xs}[{m}:{k}]",
         f"return [{xs}[i] for i in range({m}, min({k}, len({xs})))]"), lambda a: [*a][:k][m:]),
        (f"the last {k} elements of {xs}, last one first", (f"return {xs}[-{k}:][::-1]",
         f"return {xs}[::-1][:{k}]"), lambda a: list(reversed(a))[:k]),
        (f"every element of {xs} whose index is a multiple of {k}", (f"return {xs}[::{k}]",
         collect("result", f"for i in range(0, len({xs}), {k}):", f"result.append({xs}[i])")),
         lambda a: [v for i, v in enumerate(a) if i % k == 0]),
        (f"{xs} cut into pieces of {k} elements", (f"return [{xs}[i:i + {k}] for i in range(0, len({xs}), {k})]",
         seq("result = []", "i = 0", loop, "return result")),
         lambda a: [a[i * k : i * k + k] for i in range(-(-len(a) // k))]),
        (f"{xs} with the first {m} elements moved to the end", (f"return {xs}[{m}:] + {xs}[:{m}]",
         seq(f"head = {xs}[:{m}]", f"tail = {xs}[{m}:]", "return tail + head")), lambda a: [*a[m:], *a[0:m]]),
    )[which]  # fmt: skip
    long = list(range(rng.randint(1, 9), 30))[: rng.randint(10, 14)]
    return Task(
        name,
        f"{xs}: list[int]",
        "list[list[int]]" if which == 3 else "list[int]",
        rng.choice((f"Return {asked}.", f"Give back {asked}.", f"Make a new list: {asked}.")),
        bodies,
        oracle,
        [([],), ([5],), (long,), (long[:k],), (long[: k + 1],), (long[: k - 1],)],
    )


LOOP_KINDS = (extreme, second_extreme, reverse_list, running, dedupe, neighbours, is_ordered, slices)
