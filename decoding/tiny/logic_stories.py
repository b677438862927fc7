"""Stories about things: how many there are of a sort, and who has which after a number of swaps.

Each maker returns (question, working, target).
"""

from __future__ import annotations

from random import Random

NAMES = [
    "Alice",
    "Anna",
    "Ben",
    "Bob",
    "Carl",
    "Claire",
    "Clara",
    "Dan",
    "Dave",
    "Emma",
    "Eve",
    "Finn",
    "Fred",
    "Gina",
    "Hugo",
    "Ida",
    "Jack",
    "Jane",
    "Karl",
    "Kate",
    "Leo",
    "Lily",
    "Liam",
    "Maria",
    "Mark",
    "Mia",
    "Nina",
    "Noah",
    "Olga",
    "Oscar",
    "Paul",
    "Rosa",
    "Ruth",
    "Sam",
    "Sara",
    "Theo",
    "Tom",
    "Uma",
    "Vera",
    "Will",
    "Zoe",
]

SORTS: dict[str, tuple[str, ...]] = {
    "fruits": ("apple", "orange", "banana", "plum", "peach", "pear", "grape", "mango", "lemon", "nectarine"),
    "vegetables": ("carrot", "onion", "cabbage", "cucumber", "radish", "turnip", "leek", "pumpkin", "potato"),
    "animals": ("dog", "cat", "rabbit", "goat", "cow", "duck", "snail", "frog", "horse", "donkey", "pig"),
    "musical instruments": ("piano", "violin", "flute", "trumpet", "drum", "guitar", "clarinet", "cello", "harp"),
    "pieces of furniture": ("table", "chair", "bed", "sofa", "desk", "stool", "wardrobe", "bench", "bookcase"),
    "vehicles": ("car", "bus", "truck", "van", "tractor", "bicycle", "scooter", "train", "lorry"),
    "tools": ("hammer", "saw", "drill", "spanner", "chisel", "axe", "rake", "shovel"),
    "clothes": ("shirt", "coat", "skirt", "jacket", "dress", "hat", "scarf", "sock", "jumper"),
}
NUMBER_WORDS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
_PLURALS = {"potato": "potatoes", "lorry": "lorries", "scarf": "scarves", "mango": "mangoes"}
_OWNING = (
    ("I have {}.", "How many {} do I have?"),
    ("{name} has {}.", "How many {} does {name} have?"),
    ("There are {} here.", "How many {} are there?"),
    ("In the shop {name} sees {}.", "How many {} does {name} see?"),
    ("{name} draws {}.", "How many {} does {name} draw?"),
    ("We own {}.", "How many {} do we own?"),
)

_COLOURS = ["red", "blue", "green", "yellow", "white", "black", "purple", "orange", "pink", "brown", "grey", "golden"]
_BOOKS = [
    "Dracula",
    "Frankenstein",
    "Hamlet",
    "Dune",
    "Ulysses",
    "Rebecca",
    "Persuasion",
    "Lolita",
    "Beloved",
    "Walden",
    "Middlemarch",
    "Ivanhoe",
]
_ROLES = ["goalkeeper", "striker", "winger", "midfielder", "defender", "captain", "sweeper", "fullback"]
_PARTNERS = ["Lola", "Melissa", "Patrick", "Rodrigo", "Helga", "Izzi", "Jamie", "Ophelia", "Sebastian", "Karla"]
# What each person has at the start, what is swapped, what a person has, who has a thing, the things.
_SWAPS = (
    ("{} has a {} ball", "balls", "Which ball does {} have", "Who has the {} ball", _COLOURS),
    ("{} has a {} present", "presents", "Which present does {} have", "Who has the {} present", _COLOURS),
    ("{} wears a {} hat", "hats", "Which hat does {} wear", "Who wears the {} hat", _COLOURS),
    ("{} holds a {} cup", "cups", "Which cup does {} hold", "Who holds the {} cup", _COLOURS),
    ("{} has the book {}", "books", "Which book does {} have", "Who has the book {}", _BOOKS),
    ("{} reads {}", "books", "Which book does {} read", "Who reads {}", _BOOKS),
    ("{} plays as {}", "positions", "Which position does {} play", "Who plays as {}", _ROLES),
    ("{} dances with {}", "partners", "Who dances with {}", "Whose partner is {}", _PARTNERS),
)


def listed(parts: list[str]) -> str:
    """The parts joined by commas and a last "and"."""
    return ", ".join(parts[:-1]) + " and " + parts[-1] if len(parts) > 1 else parts[0]


def plural(noun: str) -> str:
    """The plural of one of the nouns of `SORTS`."""
    return _PLURALS.get(noun, f"{noun}es" if noun.endswith(("s", "ch", "sh")) else f"{noun}s")


def object_counting(rng: Random) -> tuple[str, str, str]:
    """How many things of one sort there are among others: the relevant ones, then their running sum."""
    sort = rng.choice(list(SORTS))
    everything = rng.random() < 0.1
    others = [noun for other, nouns in SORTS.items() if other != sort for noun in nouns]
    things = rng.sample(SORTS[sort], rng.randint(1, 8)) + rng.sample(others, rng.randint(1, 4))
    rng.shuffle(things)
    counts = {noun: rng.choice((1, 1, 1, rng.randint(2, 5), rng.randint(2, 9))) for noun in things}
    phrases = []
    for noun, count in counts.items():
        article = rng.choice(("one", "an" if noun[0] in "aeiou" else "a"))
        phrases.append(f"{article} {noun}" if count == 1 else f"{NUMBER_WORDS[count]} {plural(noun)}")
    owning, asking = rng.choice(_OWNING)
    name = rng.choice(NAMES)
    question = owning.format(listed(phrases), name=name) + " "
    question += asking.format("things" if everything else sort, name=name)
    relevant = [noun for noun in things if everything or noun in SORTS[sort]]
    total, sums = counts[relevant[0]], []
    for noun in relevant[1:]:
        sums.append(f"{total} + {counts[noun]} = {total + counts[noun]}")
        total += counts[noun]
    working = ", ".join(f"{counts[noun]} {noun if counts[noun] == 1 else plural(noun)}" for noun in relevant) + "."
    if sums:
        working += f" {', '.join(sums)}."
    return question, working, str(total)


def tracking_shuffled_objects(rng: Random) -> tuple[str, str, str]:
    """Three to five people swap what they have, two to seven times; the working writes who has what after each."""
    having, swapped, ask_what, ask_who, values = rng.choice(_SWAPS)
    people = rng.sample(NAMES, rng.randint(3, 5))
    state = dict(zip(people, rng.sample(values, len(people)), strict=True))
    verb, then = rng.choice(("swap", "switch", "trade")), rng.choice(("", "Then ", "Next, "))
    starts = [having.format(person, value) for person, value in state.items()]
    question = f"{rng.choice(('', 'At the start, '))}{listed(starts)}."
    working = [_holdings(state)]
    for _ in range(rng.randint(2, 7)):
        a, b = rng.sample(people, 2)
        question += f" {then}{a} and {b} {verb} {swapped}."
        state[a], state[b] = state[b], state[a]
        working.append(f"{a} and {b}: {_holdings(state)}")
    person = rng.choice(people)
    if rng.random() < 0.5:
        ask, target = ask_what.format(person), state[person]
    else:
        ask, target = ask_who.format(state[person]), person
    return f"{question} {ask} at the end?", "\n".join(working), target


def _holdings(state: dict[str, str]) -> str:
    return ", ".join(f"{person} {value}" for person, value in state.items()) + "."
