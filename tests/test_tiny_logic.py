"""Logic problems: every answer against an oracle that reads the question's text, and every step of the working."""

from __future__ import annotations

import re
from datetime import date, datetime, timedelta
from functools import cache
from itertools import pairwise
from random import Random

import pytest

from dystruct.decoding.tiny.logic import KINDS, final_answer, is_correct, make
from dystruct.decoding.tiny.logic_stories import SORTS
from dystruct.decoding.tiny.problem import Problem

EQUATION = re.compile(r"(-?\d+) ([+*-]) (-?\d+) = (-?\d+)")
ANSWER = " So the answer is "


@cache
def sample() -> tuple[Problem, ...]:
    rng = Random(20)
    return tuple(make(rng) for _ in range(4000))


def of_kind(kind: str) -> list[Problem]:
    return [problem for problem in sample() if problem.kind == kind]


def working(problem: Problem) -> str:
    return problem.answer.rpartition(ANSWER)[0]


# Expressions


def expression(question: str) -> tuple[str, dict[str, bool]]:
    """What is to be evaluated, and the values of its letters."""
    values = {name: value == "True" for name, value in re.findall(r"\b([a-z]) (?:is|=) (True|False)", question)}
    text = re.sub(r"( is| =|\.|\?| to one value\.| step by step\.)$", "", question)
    return re.sub(
        r".*(What is|what is|alue of|valuate|Evaluate:|Simplify|Work out|Compute|Find|Then) ", "", text
    ), values


def evaluate(text: str, values: dict[str, bool] | None = None) -> object:
    return eval(text, {"__builtins__": {}}, dict(values or {}))


def reductions(line: str, part: str, value: str) -> set[str]:
    """The line with one occurrence of the part, bare or in brackets, replaced by the value."""
    found = set()
    for form in (part, f"({part})", f"( {part} )"):
        for match in re.finditer(re.escape(form), line):
            found.add(line[: match.start()] + value + line[match.end() :])
    return found


@pytest.mark.parametrize("kind", ["boolean_expressions", "multistep_arithmetic"])
def test_expressions_are_reduced_by_one_true_step_at_a_time(kind: str) -> None:
    for problem in of_kind(kind):
        text, values = expression(problem.question)
        assert str(evaluate(text, values)) == problem.target, problem
        lines = working(problem).removesuffix(".").split("\n")
        current = re.sub(r"\b([a-z])\b", lambda letter, values=values: str(values[letter[1]]), text)
        if " = " not in lines[0]:
            assert lines.pop(0) == current
        for place in range(0, len(lines), 2):
            part, _, value = lines[place].partition(" = ")
            assert str(evaluate(part)) == value
            assert len(re.findall(r"not|and|or|[*+]|- ", part)) == 1, part
            after = lines[place + 1] if place + 1 < len(lines) else value
            assert after in reductions(current, part, value) or f"({after})" in reductions(current, part, value), (
                problem
            )
            current = after
        assert current == problem.target


def test_arithmetic_stays_small() -> None:
    for problem in of_kind("multistep_arithmetic"):
        for left, sign, right, result in EQUATION.findall(problem.answer):
            assert abs(int(result)) <= 99
            assert sign != "*" or max(abs(int(left)), abs(int(right))) <= 9


# Counting

WORDS = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]


def singular(noun: str) -> str:
    nouns = {name for names in SORTS.values() for name in names}
    forms = (noun, noun[:-1], noun[:-2], f"{noun[:-3]}y", f"{noun[:-3]}f")
    endings = ("", "s", "es", "ies", "ves")
    (found,) = {form for form, end in zip(forms, endings, strict=True) if noun.endswith(end) and form in nouns}
    return found


def test_objects_are_counted() -> None:
    for problem in of_kind("object_counting"):
        story, asked = re.fullmatch(r"(.*)\. How many ([a-z ]*?) (?:do|does|are) .*\?", problem.question).groups()
        found = re.findall(rf"\b(an?|{'|'.join(WORDS)}) ([a-z]+)", story)
        counts = [(WORDS.index(word) + 1 if word in WORDS else 1, noun) for word, noun in found]
        for word, noun in found:
            assert word not in ("a", "an") or (word == "an") == (noun[0] in "aeiou")
        relevant = [(n, noun) for n, noun in counts if asked == "things" or singular(noun) in SORTS[asked]]
        assert str(sum(n for n, _ in relevant)) == problem.target
        assert len(found) == story.count(",") + 1 + len(re.findall(r" and (?:an?|one|two|[a-z]+) ", story))
        assert problem.answer.startswith(", ".join(f"{n} {noun}" for n, noun in relevant) + ".")
        sums = EQUATION.findall(problem.answer)
        assert [int(n) for _, _, n, _ in sums] == [n for n, _ in relevant[1:]]
        assert all(before[3] == after[0] for before, after in pairwise(sums))


# Dates

DATE = r"\d+ [A-Z][a-z]+ \d{4}|[A-Z][a-z]+ \d+, \d{4}|\d\d/\d\d/\d{4}"


def read_date(text: str) -> date:
    for form in ("%d %B %Y", "%B %d, %Y", "%m/%d/%Y"):
        try:
            return datetime.strptime(text, form).date()
        except ValueError:
            continue
    raise AssertionError(text)


def moved(day: date, count: int, unit: str) -> date:
    if unit in ("day", "week"):
        return day + timedelta(days=count * (7 if unit == "week" else 1))
    months = day.year * 12 + day.month - 1 + count * (12 if unit == "year" else 1)
    return date(months // 12, months % 12 + 1, day.day)


def moves(question: str) -> list[tuple[int, str]]:
    opening = {"day before yesterday was": 2, "Yesterday was": 1, "day after tomorrow is": -2, "Tomorrow is": -1}
    found = [(days, "day") for words, days in opening.items() if words in question]
    found += [(days, "day") for words, days in {" tomorrow": 1, " yesterday": -1}.items() if words in asked(question)]
    for count, unit, way in re.findall(r"(\d+|\ba) (day|week|month|year)s? (from now|ago|later|earlier)", question):
        found.append((int(count.replace("a", "1")) * (1 if way in ("from now", "later") else -1), unit))
    return found


def asked(question: str) -> str:
    return question.partition(". ")[2]


def test_dates_are_moved() -> None:
    shapes = set()
    for problem in of_kind("date_arithmetic"):
        day = read_date(re.search(DATE, problem.question)[0])
        days = [day]
        for count, unit in moves(problem.question):
            day = moved(day, count, unit)
            days.append(day)
            shapes.add((unit, count > 0))
        assert len(days) > 1
        assert f"{day:%m/%d/%Y}" == problem.target, problem
        # The working names the given day and the day after every move, in this order.
        assert [read_date(text) for text in re.findall(r"\d+ [A-Z][a-z]+ \d{4}(?=\.)", problem.answer)] == days
        for month, length in re.findall(r"([A-Z][a-z]+ \d{4}) has (\d+) days", problem.answer):
            first = datetime.strptime(month, "%B %Y")
            assert int(length) == ((first + timedelta(days=31)).replace(day=1) - first).days
    assert shapes == {(unit, later) for unit in ("day", "week", "month", "year") for later in (True, False)}
    assert any("29 days" in problem.answer for problem in of_kind("date_arithmetic"))


# Swaps

HAS = r"([A-Z]\w+) (?:has the book|has a|wears a|holds a|plays as|dances with|reads) (\w+)"


def test_swaps_are_followed() -> None:
    for problem in of_kind("tracking_shuffled_objects"):
        start, *_ = problem.question.partition(".")
        state = dict(re.findall(HAS, start))
        assert 3 <= len(state) <= 5
        assert len(set(state.values())) == len(state)
        assert not set(state) & set(state.values())
        lines = [", ".join(f"{person} {value}" for person, value in state.items()) + "."]
        swaps = re.findall(r"(\w+) and (\w+) (?:swap|switch|trade)", problem.question)
        assert 2 <= len(swaps) <= 7
        for a, b in swaps:
            state[a], state[b] = state[b], state[a]
            lines.append(f"{a} and {b}: " + ", ".join(f"{person} {value}" for person, value in state.items()) + ".")
        assert working(problem) == "\n".join(lines)
        words = re.findall(r"\w+", problem.question.rpartition(". ")[2])
        owner = {value: person for person, value in state.items()}
        (target,) = [state.get(word) or owner[word] for word in words if word in state or word in owner]
        assert target == problem.target


# Walks, liars, orders


def test_walks_are_followed() -> None:
    compass = {1j: "north", 1: "east", -1j: "south", -1: "west"}
    sides = {"forward": 1j, "right": 1, "backward": -1j, "left": -1}
    for problem in of_kind("navigate"):
        place, facing, places = 0j, 1j, []
        for turn, steps, side in re.findall(r"Turn (\w+)\.|Take (\d+) steps?(?: (\w+))?\.", problem.question):
            if turn:
                facing *= {"left": 1j, "right": -1j, "around": -1}[turn]
                continue
            place += int(steps) * (sides[side] if side else facing)
            places.append(f"({int(place.real)}, {int(place.imag)})")
        assert re.findall(r"\(-?\d+, -?\d+\)", working(problem)) == places
        if "which way" in problem.question.lower() or "direction" in problem.question:
            target = compass[facing]
        elif "Where" in problem.question or "At which place" in problem.question:
            target = places[-1]
        else:
            target = "Yes" if place == 0 else "No"
        assert target == problem.target


def test_liars_are_found() -> None:
    for problem in of_kind("web_of_lies"):
        first, speaks = re.match(r"(\w+) (tells the truth|lies)\.", problem.question).groups()
        honest = {first: speaks != "lies"}
        for person, other, claim in re.findall(
            r"(\w+) (?:says|says that|claims that) (\w+) (tells|lies)", problem.question
        ):
            honest[person] = honest[other] == (claim == "tells")
        asked_of = re.search(r"(?:Does|Is) (\w+) ", problem.question)[1]
        assert ("Yes" if honest[asked_of] else "No") == problem.target
        concluded = re.findall(r"(\w+) (tells the truth|lies)\.", working(problem))
        assert {person: says != "lies" for person, says in concluded} == honest


def test_orders_are_deduced() -> None:
    less = ["younger", "shorter", "slower", "poorer", "weaker", "quieter", "lighter"]
    least = ["youngest", "shortest", "slowest", "poorest", "weakest", "quietest", "lightest"]
    for problem in of_kind("logical_deduction"):
        pairs = re.findall(r"(\w+) is (\w+) than (\w+)\.", problem.question)
        above = {(b, a) if how in less else (a, b) for a, how, b in pairs}
        people = {person for pair in above for person in pair}
        for middle in people:
            above |= {(a, b) for a in people for b in people if {(a, middle), (middle, b)} <= above}
        order = sorted(people, key=lambda person: -sum(a == person for a, _ in above))
        assert len(above) == len(people) * (len(people) - 1) // 2, "the statements leave the order open"
        rank, superlative = re.search(r"Who is the (second |third )?(\w+)\?", problem.question).groups()
        if superlative in least:
            order.reverse()
        assert order[{None: 0, "second ": 1, "third ": 2}[rank]] == problem.target
        assert working(problem).split("\n")[-2] == ", ".join(order) + "."


# The domain as a whole


def test_every_equation_in_a_working_is_true() -> None:
    seen = 0
    for problem in sample():
        for left, sign, right, result in EQUATION.findall(problem.answer):
            assert int(result) == {"+": int.__add__, "-": int.__sub__, "*": int.__mul__}[sign](int(left), int(right))
            seen += 1
    assert seen > 5000


def test_the_same_generator_state_gives_the_same_problem() -> None:
    assert [make(Random(seed)) for seed in range(50)] == [make(Random(seed)) for seed in range(50)]
    assert make(Random(1)) != make(Random(2))


def test_every_kind_occurs_about_equally_often() -> None:
    assert {problem.kind for problem in sample()} == set(KINDS)
    assert all(0.7 < len(of_kind(kind)) * len(KINDS) / len(sample()) < 1.3 for kind in KINDS)


def test_texts_are_in_form() -> None:
    for problem in sample():
        assert problem.domain == "logic"
        assert problem.question == problem.question.strip()
        assert problem.answer.endswith(f"{ANSWER}{problem.target}.")
        assert problem.answer.isascii()
        assert problem.question.isascii()
        assert is_correct(problem.answer, problem.target)


@pytest.mark.parametrize("kind", KINDS)
def test_lengths_are_spread_and_questions_distinct(kind: str) -> None:
    lengths = sorted(len(problem.answer) for problem in of_kind(kind))
    assert lengths[-len(lengths) // 10] > 1.8 * lengths[len(lengths) // 10]
    assert len({problem.question for problem in of_kind(kind)}) > 0.97 * len(lengths)


def test_the_domain_has_short_and_long_answers() -> None:
    lengths = sorted(len(problem.answer) for problem in sample())
    assert lengths[0] < 35
    assert lengths[len(lengths) // 20] < 70
    assert lengths[-len(lengths) // 20] > 350
    assert max(len(problem.question) for problem in sample()) < 450


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("not True = False. So the answer is False.", "False"),
        ("So the answer is 3. No. So the answer is 4.", "4"),
        ("So the answer is\n(1,  -2).\n", "(1,  -2)"),
        ("So the answer is 4", None),
        ("The answer is 4.", None),
        ("", None),
    ],
)
def test_final_answer(text: str, value: str | None) -> None:
    assert final_answer(text) == value


def test_near_misses_are_wrong() -> None:
    assert is_correct("So the answer is  WEST .", "west")
    for problem in sample()[:400]:
        others = (f"{problem.target}0", f"-{problem.target}", f"{problem.target}. And", problem.target[:-1])
        for other in others:
            assert not is_correct(f"{working(problem)}{ANSWER}{other}.", problem.target)
        assert not is_correct(working(problem), problem.target)
        assert not is_correct(problem.answer[:-1], problem.target)
