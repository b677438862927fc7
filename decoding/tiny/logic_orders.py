"""Walks on a grid, chains of truth-tellers and liars, and orders by comparison.

Each maker returns (question, working, target).
"""

from __future__ import annotations

from itertools import pairwise
from random import Random

from .logic_stories import NAMES

_COMPASS = ("north", "east", "south", "west")  # a right turn is one on
_SIDES = ("forward", "right", "backward", "left")
_OFFSETS = ((0, 1), (1, 0), (0, -1), (-1, 0))
_TURNS = {1: "right", 2: "around", 3: "left"}
_COMPARISONS = (
    ("older", "younger", "oldest", "youngest"),
    ("taller", "shorter", "tallest", "shortest"),
    ("faster", "slower", "fastest", "slowest"),
    ("richer", "poorer", "richest", "poorest"),
    ("stronger", "weaker", "strongest", "weakest"),
    ("louder", "quieter", "loudest", "quietest"),
    ("heavier", "lighter", "heaviest", "lightest"),
)
_RANKS = ("", "second ", "third ")


def navigate(rng: Random) -> tuple[str, str, str]:
    """Does a walk of steps and turns lead back? Or where does it end? The working writes each place."""
    turning = rng.random() < 0.6
    count = rng.choice((1, 2, 2, 3, 3, 4, 4, 5))
    legs = [(rng.randrange(4), rng.randint(1, 30 if count == 1 else 12)) for _ in range(count)]
    home = rng.random() < 0.7
    if home:
        x = sum(_OFFSETS[way][0] * steps for way, steps in legs)
        y = sum(_OFFSETS[way][1] * steps for way, steps in legs)
        back = [(3 if x > 0 else 1, abs(x)), (2 if y > 0 else 0, abs(y))]
        rng.shuffle(back)
        legs += [leg for leg in back if leg[1]]
        if rng.random() < 0.3:
            legs[-1] = (legs[-1][0], max(1, legs[-1][1] + rng.choice((-2, -1, 1, 2))))
    if not turning:
        rng.shuffle(legs)
    ways = _COMPASS if turning else _SIDES
    orders, lines, position, facing = [], [], [0, 0], 0
    for way, steps in legs:
        if turning and way != facing:
            turn = _TURNS[(way - facing) % 4]
            orders.append(f"Turn {turn}.")
            lines.append(f"Turn {turn}: {_COMPASS[way]}.")
            facing = way
        counted = f"{steps} step{'s' * (steps > 1)}"
        orders.append(f"Take {counted}." if turning else f"Take {counted} {ways[way]}.")
        axis = 0 if _OFFSETS[way][0] else 1
        sign = "+" if sum(_OFFSETS[way]) > 0 else "-"
        before = position[axis]
        position[axis] += steps * sum(_OFFSETS[way])
        lines.append(f"{steps} {ways[way]}: {before} {sign} {steps} = {position[axis]}, {_place(position)}.")
    start = "You face north at (0, 0)." if turning else "You are at (0, 0) and always face forward."
    walk = " ".join(orders)
    if home or rng.random() < 0.4:
        question = rng.choice(
            (
                f"If you follow these instructions, do you return to the starting point? {start} {walk}",
                f"{start} {walk} Are you back where you began?",
                f"{start} {walk} Do you end at the starting point?",
            )
        )
        target = "No" if any(position) else "Yes"
    elif turning and rng.random() < 0.4:
        question = f"{start} {walk} {rng.choice(('Which way', 'In which direction'))} do you face at the end?"
        target = _COMPASS[facing]
    else:
        question = f"{start} {walk} {rng.choice(('Where are you now', 'At which place do you end'))}?"
        target = _place(position)
    return question, "\n".join(lines), target


def _place(position: list[int]) -> str:
    return f"({position[0]}, {position[1]})"


def web_of_lies(rng: Random) -> tuple[str, str, str]:
    """A chain of two to nine people, each of whom says of the one before that they lie or tell the truth."""
    people = rng.sample(NAMES, rng.randint(2, 9))
    says = rng.choice(("says", "says that", "claims that"))
    honest = rng.random() < 0.5
    question = working = f"{people[0]} {_speaks(honest)}."
    for before, person in pairwise(people):
        claim = rng.random() < 0.5
        question += f" {person} {says} {before} {_speaks(claim)}."
        honest_now = claim == honest
        working += (
            f" {before} {_speaks(claim)}: {'true' if honest_now else 'false'}, so {person} {_speaks(honest_now)}."
        )
        honest = honest_now
    ask = rng.choice(("Does {} tell the truth?", "Is {} honest?", "Does {} speak the truth?"))
    return f"{question} {ask.format(people[-1])}", working, "Yes" if honest else "No"


def _speaks(honest: bool) -> str:
    return "tells the truth" if honest else "lies"


def logical_deduction(rng: Random) -> tuple[str, str, str]:
    """Three to seven people compared by pairs that build one order; who is first, second or third from one end?"""
    more, less, most, least = rng.choice(_COMPARISONS)
    people = rng.sample(NAMES, rng.randint(3, 7))
    from_least = rng.random() < 0.5
    order = [people[0]]  # from the end that is asked for
    statements, lines = [], []
    for person in people[1:]:
        first = rng.random() < 0.5
        ahead, behind = (person, order[0]) if first else (order[-1], person)
        order = [person, *order] if first else [*order, person]
        greater, smaller = (behind, ahead) if from_least else (ahead, behind)
        statements.append(
            f"{greater} is {more} than {smaller}." if rng.random() < 0.5 else f"{smaller} is {less} than {greater}."
        )
        lines.append(", ".join(order) + ".")
    rank = rng.randrange(3)
    superlative = least if from_least else most
    question = f"{' '.join(statements)} Who is the {_RANKS[rank]}{superlative}?"
    working = f"From the {superlative}:\n" + "\n".join(lines)
    numbered = ", ".join(f"{place} {person}" for place, person in enumerate(order[: rank + 1], 1))
    return question, f"{working}\n{numbered}.", order[rank]
