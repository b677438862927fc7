"""Templates of code problems about sequences of numbers: recursion, ranges, divisors, digits."""

from __future__ import annotations

from math import comb, factorial, gcd
from random import Random

from .code_parts import Task, change, condition, nest, seq

PRIMES = (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53, 59, 61, 67, 71, 73, 79, 83, 89, 97)


def power(rng: Random) -> Task:
    """A product repeated."""
    n = rng.choice(("n", "k", "steps", "times"))
    a, b = rng.randint(2, 12), rng.randint(1, 20)
    name = rng.choice(("power", "grow", "repeat_product", "geometric"))
    return Task(
        name,
        f"{n}: int",
        "int",
        rng.choice(
            (
                f"Start with {b} and multiply by {a} as often as {n} says.",
                f"Return {b} times {a} to the power of {n}.",
                f"Return {b} multiplied {n} times by {a}.",
            )
        ),
        (
            f"return {b} * {a} ** {n}",
            seq(f"result = {b}", nest(f"for _ in range({n}):", f"result *= {a}"), "return result"),
            seq(nest(f"if {n} == 0:", f"return {b}"), f"return {a} * {name}({n} - 1)"),
            seq(f"result = {b}", nest(f"while {n} > 0:", seq(f"result *= {a}", f"{n} -= 1")), "return result"),
        ),
        lambda v: b * pow(a, v),
        [(0,), (1,), (2,), (5,), (rng.randint(6, 9),)],
    )


def recurrence(rng: Random) -> Task:
    """A sequence like Fibonacci's."""
    n = rng.choice(("n", "k", "index"))
    a, b, c = rng.randint(0, 9), rng.randint(1, 9), rng.choice((0, rng.randint(1, 20)))
    name = rng.choice(("sequence", "fib", "fibonacci", "term"))
    tail = f" plus {c}" if c else ""
    plus = f" + {c}" if c else ""

    def oracle(v: int) -> int:
        terms = [a, b]
        while len(terms) <= v:
            terms.append(sum(terms[-2:], c))
        return terms[v]

    return Task(
        name,
        f"{n}: int",
        "int",
        rng.choice(
            (
                f"Return term {n} of the sequence {a}, {b}, ... where each term\nis the sum of the two before{tail}.",
                f"Term 0 is {a} and term 1 is {b}; each other is the sum of the last two{tail}.",
            )
        ),
        (
            seq(f"a, b = {a}, {b}", nest(f"for _ in range({n}):", f"a, b = b, a + b{plus}"), "return a"),
            seq(
                nest(f"if {n} == 0:", f"return {a}"),
                nest(f"if {n} == 1:", f"return {b}"),
                f"return {name}({n} - 1) + {name}({n} - 2){plus}",
            ),
            seq(
                f"terms = [{a}, {b}]",
                nest(f"while len(terms) <= {n}:", f"terms.append(terms[-1] + terms[-2]{plus})"),
                f"return terms[{n}]",
            ),
        ),
        oracle,
        [(0,), (1,), (2,), (3,), (7,), (rng.randint(8, 11),)],
    )


def classics(rng: Random) -> Task:
    """Factorials, triangular numbers, divisors and multiples."""
    n = rng.choice(("n", "number", "x"))
    k = rng.randint(1, 30)
    name, asked, bodies, meaning = rng.choice(
        (
            ("factorial", f"the factorial of {n} plus {k}",
             (seq("result = 1", nest(f"for i in range(2, {n} + 1):", "result *= i"), f"return result + {k}"),
              seq("result = 1", nest(f"while {n} > 1:", seq(f"result *= {n}", f"{n} -= 1")), f"return result + {k}")),
             lambda v: factorial(v) + k),
            ("triangle", f"the sum of the numbers from 1 to {n}, times {k}",
             (f"return {n} * ({n} + 1) // 2 * {k}", f"return sum(range(1, {n} + 1)) * {k}",
              seq("total = 0", nest(f"for i in range(1, {n} + 1):", "total += i"), f"return total * {k}")),
             lambda v: k * comb(v + 1, 2)),
            ("common", f"the greatest common divisor of {n} and {k}",
             (seq(f"a, b = {n}, {k}", nest("while b:", "a, b = b, a % b"), "return a"),
              seq(f"other = {k}", nest("while other != 0:", seq(f"rest = {n} % other", f"{n} = other", "other = rest")),
                  f"return {n}")),
             lambda v: gcd(v, k)),
            ("multiple", f"the smallest multiple of {k} that is not less than {n}",
             (seq(f"result = {n}", nest(f"while result % {k} != 0:", "result += 1"), "return result"),
              seq("result = 0", nest(f"while result < {n}:", f"result += {k}"), "return result"),
              f"return ({n} + {k} - 1) // {k} * {k}"),
             lambda v: -(-v // k) * k),
            ("divisors", f"how many numbers from 1 to {n} divide {n}, plus {k}",
             (seq(f"count = {k}", nest(f"for i in range(1, {n} + 1):", f"if {n} % i == 0:", "count += 1"),
                  "return count"),
              f"return {k} + sum(1 for i in range(1, {n} + 1) if {n} % i == 0)"),
             lambda v: k + len([1 for d in range(1, v + 1) if v // d * d == v])),
        )
    )  # fmt: skip
    return Task(
        rng.choice((name, name, f"{name}_of", f"get_{name}", "compute")),
        f"{n}: int",
        "int",
        rng.choice((f"Return {asked}.", f"Compute {asked}.", f"Find {asked}.")),
        bodies,
        meaning,
        [(v,) for v in (1, 2, 4, 6, k, k + 1, rng.randint(5, 40))],
    )


def sum_range(rng: Random) -> Task:
    """A sum over a range of numbers."""
    n = rng.choice(("n", "limit", "top", "last"))
    c, f = condition(rng), change(rng)
    a = rng.choice((0, 1, rng.randint(2, 9)))
    plain = rng.random() < 0.5
    text, tail = ("i", "") if plain else (f.on("i"), f", each {f.phrase}")
    t = rng.choice(("total", "result"))
    return Task(
        rng.choice(("sum_range", "sum_up_to", "add_range", "range_total")),
        f"{n}: int",
        "int",
        rng.choice(
            (
                f"Return the sum of the numbers from {a} to {n} that are {c.phrase}{tail}.",
                f"Add up what is {c.single} among {a} to {n} (inclusive){tail}.",
            )
        ),
        (
            f"return sum({text} for i in range({a}, {n} + 1) if {c.on('i')})",
            seq(
                f"{t} = 0", nest(f"for i in range({a}, {n} + 1):", f"if {c.on('i')}:", f"{t} += {text}"), f"return {t}"
            ),
            seq(
                f"{t} = 0",
                f"i = {a}",
                nest(f"while i <= {n}:", seq(nest(f"if {c.on('i')}:", f"{t} += {text}"), "i += 1")),
                f"return {t}",
            ),
        ),
        lambda v: sum((i if plain else f.apply(i)) for i in range(v + 1) if i >= a and c.holds(i)),
        [(v,) for v in (0, a, a + 1, *c.points[:2], 60, 130)],
    )


def prime_like(rng: Random) -> Task:
    """Whether a number is a prime above a limit."""
    n = rng.choice(("n", "number", "x", "value"))
    k = rng.choice(PRIMES) - rng.randrange(2)  # the boundary shows at a prime
    inner = nest(f"for d in range(2, {n}):", f"if {n} % d == 0:", "return False")
    fast = seq("d = 2", nest(f"while d * d <= {n}:", seq(nest(f"if {n} % d == 0:", "return False"), "d += 1")))
    return Task(
        rng.choice(("is_prime", "prime_check", "check_prime")),
        f"{n}: int",
        "bool",
        rng.choice(
            (
                f"Return True if {n} is a prime number greater than {k}.",
                f"Check whether {n} is prime and greater than {k}.",
                f"Is {n} a prime above {k}?",
            )
        ),
        tuple(
            seq(nest(test, "return False"), loop, "return True")
            for test in (f"if {n} <= {max(k, 1)}:",)
            for loop in (inner, fast)
        ),
        lambda v: v > k and v > 1 and not [d for d in range(2, v) if gcd(d, v) > 1],
        [(v,) for v in (1, k, k + 1, 106, 121, 101, rng.choice((103, 107, 109)))],
    )


def digits(rng: Random) -> Task:
    """Something of the digits of a number."""
    n = rng.choice(("n", "number", "code", "value"))
    k, m = rng.randint(1, 9), rng.randint(1, 30)
    asked, update, meaning = rng.choice(
        (
            (f"how many digits of {n} are {k}", nest(f"if digit == {k}:", "result += 1"),
             lambda s: s.count(str(k))),
            (f"the sum of the digits of {n} that are at least {k}", nest(f"if digit >= {k}:", "result += digit"),
             lambda s: sum(int(c) for c in s if c >= str(k))),
            (f"the sum of the digits of {n}, each times {m}", f"result += digit * {m}",
             lambda s: m * sum(map(int, s))),
            (f"the sum of the squares of the digits of {n}", "result += digit * digit",
             lambda s: sum(int(c) ** 2 for c in s)),
        )
    )  # fmt: skip
    start = rng.choice((0, 0, rng.randint(1, 50)))
    tail = f", plus {start}" if start else ""
    by_text = nest(f"for c in str({n}):", seq("digit = int(c)", update))
    by_number = nest(f"while {n} > 0:", seq(f"digit = {n} % 10", update, f"{n} //= 10"))
    return Task(
        rng.choice(("digits", "digit_sum", "from_digits", "digit_value")),
        f"{n}: int",
        "int",
        rng.choice((f"Return {asked}{tail}.", f"Compute {asked}{tail}.", f"Find {asked}{tail}.")),
        tuple(seq(f"result = {start}", loop, "return result") for loop in (by_text, by_number)),
        lambda v: start + meaning(str(v)),
        [(v,) for v in (k, k + 10, 100 * k + k, 10 * k + k - 1, rng.randint(1000, 99999), rng.randint(100, 9999))],
    )


RECURSION_KINDS = (power, recurrence, classics, sum_range, prime_like, digits)
