"""Dates: a given day, one to three moves by days, weeks, months or years, worked a month at a time.

The maker returns (question, working, target); the target is written MM/DD/YYYY.
"""

from __future__ import annotations

from calendar import month_name, monthrange
from dataclasses import dataclass
from datetime import date
from random import Random

from .logic_stories import NAMES

_EVENTS = [
    "exam",
    "wedding",
    "concert",
    "party",
    "flight",
    "interview",
    "holiday",
    "course",
    "meeting",
    "lecture",
    "match",
    "dinner",
    "hearing",
    "race",
    "lesson",
    "appointment",
    "operation",
    "visit",
    "trip",
    "speech",
]
_ASK = (
    "What is the date {} in MM/DD/YYYY?",
    "What is the date {}? Use MM/DD/YYYY.",
    "Which date is it {}, as MM/DD/YYYY?",
)
_TODAY = ("Today is {}.", "It is {} today.", "The date today is {}.", "Today's date is {}.")


@dataclass(frozen=True)
class Move:
    """A shift by `count` units ("day", "week", "month" or "year"), into the past if negative."""

    count: int
    unit: str

    def length(self) -> str:
        """The shift without its direction: "a week", "3 months"."""
        return f"a {self.unit}" if abs(self.count) == 1 else f"{abs(self.count)} {self.unit}s"

    def from_now(self) -> str:
        """The shift seen from today."""
        if self.unit == "day" and abs(self.count) == 1:
            return "tomorrow" if self.count > 0 else "yesterday"
        return f"{self.length()} {'from now' if self.count > 0 else 'ago'}"


def date_arithmetic(rng: Random) -> tuple[str, str, str]:
    """The date after one to three moves from a given day."""
    given = date(rng.randint(1996, 2031), rng.randint(1, 12), 1)
    given = given.replace(day=rng.randint(1, monthrange(given.year, given.month)[1]))
    shape = rng.choice(("today", "today", "other day", "story", "story"))
    text = _write(given, rng)
    if shape == "today":
        moves = [_move(rng)]
        question = f"{rng.choice(_TODAY).format(text)} {rng.choice(_ASK).format(moves[0].from_now())}"
    elif shape == "other day":
        first = rng.choice((Move(1, "day"), Move(-1, "day"), Move(2, "day"), Move(-2, "day")))
        moves = [first, _move(rng)] if rng.random() < 0.7 else [first]
        opening = {
            1: "Yesterday was {}.",
            -1: "Tomorrow is {}.",
            2: "The day before yesterday was {}.",
            -2: "The day after tomorrow is {}.",
        }[first.count]
        when = moves[1].from_now() if len(moves) > 1 else "today"
        question = f"{opening.format(text)} {rng.choice(_ASK).format(when)}"
    else:
        moves = [_move(rng) for _ in range(rng.choice((1, 2, 2, 3)))]
        event = f"{rng.choice(NAMES)}'s {rng.choice(_EVENTS)}"
        shifts = [f"moved {move.length()} {'later' if move.count > 0 else 'earlier'}" for move in moves]
        planned = rng.choice(("was planned for", "was set for", "was to be on"))
        question = (
            f"{event} {planned} {text}. It was {', then '.join(shifts)}. "
            f"{rng.choice(('What is the new date in MM/DD/YYYY?', 'On which date is it now, as MM/DD/YYYY?'))}"
        )
    working, day = [f"{_say(given)}."], given
    for move in moves:
        if move.unit in ("month", "year") and day.day > 28:
            return date_arithmetic(rng)  # some months lack the day: draw another problem
        lines, day = _shift(day, move)
        working += [*lines, f"{_say(day)}."]
    return question, " ".join(working), f"{day.month:02}/{day.day:02}/{day.year}"


def _move(rng: Random) -> Move:
    unit = rng.choice(("day", "day", "day", "day", "week", "week", "month", "year"))
    largest = {"day": rng.choice((1, 9, 9, 30, 60, 99)), "week": 9, "month": 11, "year": 9}[unit]
    return Move(rng.randint(1, largest) * rng.choice((1, -1)), unit)


def _write(day: date, rng: Random) -> str:
    name = month_name[day.month]
    return rng.choice(
        (f"{day.day} {name} {day.year}", f"{name} {day.day}, {day.year}", f"{day.month:02}/{day.day:02}/{day.year}")
    )


def _say(day: date) -> str:
    return f"{day.day} {month_name[day.month]} {day.year}"


def _equation(a: int, b: int) -> str:
    return f"{a} {'+' if b >= 0 else '-'} {abs(b)} = {a + b}"


def _shift(start: date, move: Move) -> tuple[list[str], date]:
    """The lines of one move and the day that it leads to."""
    day, month, year, count = start.day, start.month, start.year, move.count
    if move.unit == "year":
        return [f"{_equation(year, count)}."], date(year + count, month, day)
    if move.unit == "month":
        lines = [f"{month_name[month]} is month {month}.", f"{_equation(month, count)}."]
        month += count
        if not 1 <= month <= 12:
            carry = 1 if month > 12 else -1
            lines += [f"{_equation(month, -12 * carry)}.", f"{_equation(year, carry)}."]
            month, year = month - 12 * carry, year + carry
        return lines, date(year, month, day)
    lines = []
    if move.unit == "week":
        lines.append(f"{abs(count)} * 7 = {abs(count) * 7}.")
        count *= 7
    lines.append(f"{_equation(day, count)}.")
    day += count
    while day < 1:
        year, month = (year, month - 1) if month > 1 else (year - 1, 12)
        length = monthrange(year, month)[1]
        lines.append(f"{month_name[month]} {year} has {length} days: {_equation(day, length)}.")
        day += length
    while day > (length := monthrange(year, month)[1]):
        lines.append(f"{month_name[month]} {year} has {length} days: {_equation(day, -length)}.")
        day -= length
        year, month = (year, month + 1) if month < 12 else (year + 1, 1)
    return lines, date(year, month, day)
