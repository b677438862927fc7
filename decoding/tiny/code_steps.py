"""Templates of code problems with long answers: steps to follow one after the other."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from .code_parts import (
    LETTERS,
    LISTS,
    STRINGS,
    TEXTS,
    WORDS,
    Change,
    Condition,
    Task,
    change,
    condition,
    in_lines,
    integers,
    nearest,
    nest,
    seq,
)

DO = {"increased by": "Add", "plus": "Add", "decreased by": "Subtract", "minus": "Subtract"}
DO |= {"multiplied by": "Multiply by", "times": "Multiply by"}


Step = tuple[Callable[[Any], bool] | None, Callable[[Any], Any]]  # when, and what


def _follow(meanings: list[Step]) -> Callable[[Any], Any]:
    def follow(value: Any) -> Any:
        for holds, apply in meanings:
            value = apply(value) if holds is None or holds(value) else value
        return value

    return follow


def _instruction(f: Change) -> str:
    if f.phrase in ("squared", "cubed", "doubled"):
        return {"squared": "Square it.", "cubed": "Cube it.", "doubled": "Double it."}[f.phrase]
    first, *then = f.phrase.split(" and then ")
    verb, number = first.rsplit(" ", 1)
    return f"{DO[verb]} {number}" + (f" and add {then[0].split()[-1]}." if then else ".")


def _tame_change(rng: Random) -> Change:
    """A change that does not make numbers grow without end when it is applied many times."""
    while True:
        f = change(rng)
        if f.phrase not in ("squared", "cubed"):
            return f


def _telling_condition(rng: Random, values: list[int]) -> Condition:
    """A condition that some of `values` meet and some do not, so that tests can tell it from another one."""
    for _ in range(20):
        c = condition(rng)
        share = sum(map(c.holds, values)) / len(values)
        if 0.1 < share < 0.95:
            return c
    return c


def programme(rng: Random) -> Task:
    """Steps on a number, some of them conditional."""
    n = rng.choice(("n", "x", "value", "number", "start"))
    r = rng.choice(("result", "y", "total"))
    sentences, points = [], [0, 1]
    lines: list[str] = []
    meanings: list[Step] = []
    trace = {v: v for v in range(-40, 60)}
    for index in range(rng.randint(2, 8)):
        f = change(rng) if index < 2 else _tame_change(rng)
        if index and rng.random() < 0.45 and len(lines) < 9:
            c = _telling_condition(rng, list(trace.values()))
            points += nearest(c, trace)
            sentences.append(f"If it is {c.single}: {_instruction(f)}")
            lines += nest(f"if {c.on(r)}:", f"{r} = {f.on(r)}").split("\n")
            meanings.append((c.holds, f.apply))
            trace = {v: f.apply(w) if c.holds(w) else w for v, w in trace.items()}
        elif len(lines) < 10:
            sentences.append(_instruction(f))
            lines.append(f"{r} = {f.on(r)}")
            meanings.append((None, f.apply))
            trace = {v: f.apply(w) for v, w in trace.items()}
    return Task(
        rng.choice(("steps", "follow", "program", "machine", "recipe")),
        f"{n}: int",
        "int",
        in_lines([f"Start with {n}.", *sentences], 3),
        (seq(f"{r} = {n}", *lines, f"return {r}"),),
        _follow(meanings),
        [(v,) for v in (*dict.fromkeys(points[2:] + points[:2]), *rng.sample(range(60, 99), 4))],
    )


def list_steps(rng: Random) -> Task:
    """Steps on a list."""
    xs, x = rng.choice(LISTS)
    sentences, points = [], []
    lines: list[str] = []
    meanings: list[Step] = []
    trace = {v: v for v in range(-40, 60)}
    lazy = rng.random() < 0.4
    for _ in range(rng.randint(2, 10)):
        which = rng.randrange(9)
        k = rng.randint(1, 40)
        if which < 3 and len(trace) > 12:
            c = _telling_condition(rng, list(trace.values()))
            points += nearest(c, trace)
            trace = {v: w for v, w in trace.items() if c.holds(w)} or trace
            sentences.append(f"Keep what is {c.single}.")
            each = f"lambda {x}: {c.on(x)}" if lazy else f"{x} for {x} in {xs} if {c.on(x)}"
            lines.append(f"list(filter({each}, {xs}))" if lazy else f"[{each}]")
            meanings.append((None, _keeping(c)))
        elif which < 6:
            f = _tame_change(rng)
            trace = {v: f.apply(w) for v, w in trace.items()}
            sentences.append(f"Then take each {f.phrase}.")
            lines.append(f"list(map(lambda {x}: {f.on(x)}, {xs}))" if lazy else f"[{f.on(x)} for {x} in {xs}]")
            meanings.append((None, _changing(f)))
        elif which == 6:
            sentences.append(f"Put {k} at the end.")
            lines.append(f"{xs} + [{k}]")
            meanings.append((None, _appending(k)))
        elif which == 7:
            sentences.append("Turn it around.")
            lines.append(f"{xs}[::-1]")
            meanings.append((None, lambda a: list(reversed(a))))
        else:
            sentences.append("Sort it.")
            lines.append(f"sorted({xs})")
            meanings.append((None, lambda a: [a[i] for i in sorted(range(len(a)), key=a.__getitem__)]))
    end, text, last = ("the sum", f"sum({xs})", sum) if rng.random() < 0.3 else ("it", xs, list)
    meanings.append((None, last))
    many = [([*points, *rng.sample(range(-30, 99), 4)],), *((rng.sample(range(-40, 99), 9),) for _ in range(2))]
    return Task(
        rng.choice(("list_steps", "process_list", "work_through", "list_recipe")),
        f"{xs}: list[int]",
        "list[int]" if last is list else "int",
        in_lines([f"Start with {xs}.", *sentences, f"Return {end}."], 3),
        (seq(*(f"{xs} = {line}" for line in lines), f"return {text}"),),
        _follow(meanings),
        [([],), *many, (integers(rng, -9, 60, 4),), *(([point],) for point in points[:3])],
    )


def _keeping(c: Condition) -> Callable[[list[int]], list[int]]:
    return lambda a: [v for v in a if c.holds(v)]


def _changing(f: Change) -> Callable[[list[int]], list[int]]:
    return lambda a: [f.apply(v) for v in a]


def _appending(k: int) -> Callable[[list[int]], list[int]]:
    return lambda a: [*a, k]


def text_steps(rng: Random) -> Task:
    """Steps on a string."""
    s = rng.choice(STRINGS)
    sentences: list[str] = []
    lines: list[str] = []
    meanings: list[Step] = []
    everything = "".join(rng.sample(LETTERS, len(LETTERS)))
    inputs = [everything, everything[::-1], rng.choice(TEXTS), rng.choice(WORDS)]
    trace = inputs
    steps = rng.randint(2, 11)
    while len(lines) < steps:
        a, b = rng.sample(LETTERS, 2)
        k = rng.randint(2, 9)
        end = rng.choice(("!", "?", ".", "-", "+", a, a + b))
        sentence, line, meaning = rng.choice(
            (
                (f'Replace "{a}" by "{b}".', f'{s}.replace("{a}", "{b}")', lambda t, a=a, b=b: b.join(t.split(a))),
                (f'Remove every "{a}".', f'{s}.replace("{a}", "")', lambda t, a=a: "".join(t.split(a))),
                (f'Put "{end}" at the end.', f'{s} + "{end}"', lambda t, e=end: "".join([t, e])),
                (f'Put "{end}" in front.', f'"{end}" + {s}', lambda t, e=end: "".join([e, t])),
                (f"Drop the first {k} characters.", f"{s}[{k}:]", lambda t, k=k: "".join(list(t)[k:])),
                (f"Cut it after {k + 9} characters.", f"{s}[:{k + 9}]", lambda t, k=k: "".join(list(t)[: k + 9])),
                ("Turn it around.", f"{s}[::-1]", lambda t: "".join(reversed(t))),
                ("Put it in upper case.", f"{s}.upper()", lambda t: "".join(map(str.upper, t))),
                ("Put it in lower case.", f"{s}.lower()", lambda t: "".join(map(str.lower, t))),
                ("Write it twice.", f"{s} * 2", lambda t: t + t),
            )
        )
        changed = [meaning(text) for text in trace]
        if changed == trace or len(changed[0]) > 60:
            continue
        trace = changed
        sentences.append(sentence)
        lines.append(f"{s} = {line}")
        meanings.append((None, meaning))
    return Task(
        rng.choice(("text_steps", "edit", "rewrite", "text_recipe")),
        f"{s}: str",
        "str",
        in_lines([f"Start with {s}.", *sentences, "Return it."], 3),
        (seq(*lines, f"return {s}"),),
        _follow(meanings),
        [("",), *((text,) for text in inputs)],
    )


STEP_KINDS = (programme, list_steps, text_steps)
