"""Templates of code problems about a string."""

from __future__ import annotations

import re
from random import Random

from .code_parts import LETTERS, STRINGS, Task, letters_of, nest, sample_texts, seq


def count_letters(rng: Random) -> Task:
    """How often some letters occur."""
    s = rng.choice(STRINGS)
    vowels = rng.random() < 0.2
    letters = "aeiou" if vowels else letters_of(rng)
    what = "vowels (aeiou)" if vowels else f'letters from "{letters}"'
    lower = rng.random() < 0.4
    tail, over = (" Ignore case.", f"{s}.lower()") if lower else ("", s)
    return Task(
        rng.choice(("count_letters", "count_chars", "letter_count", "how_many")),
        f"{s}: str",
        "int",
        rng.choice(
            (
                f"Return how many {what} are in {s}.{tail}",
                f"Count the {what} in {s}.{tail}",
                f"Return the number of {what} that occur in {s}.{tail}",
            )
        ),
        (
            f'return sum(1 for c in {over} if c in "{letters}")',
            seq("count = 0", nest(f"for c in {over}:", f'if c in "{letters}":', "count += 1"), "return count"),
            f'return sum({over}.count(c) for c in "{letters}")',
        ),
        lambda t: len(re.findall(f"[{letters}]", t, re.I if lower else 0)),
        sample_texts(rng, letters),
    )


def remove_letters(rng: Random) -> Task:
    """A string without some letters, or with these only."""
    s = rng.choice(STRINGS)
    letters = letters_of(rng)
    keep = rng.random() < 0.4
    word = "in" if keep else "not in"
    return Task(
        rng.choice(("keep_letters", "only") if keep else ("remove_letters", "strip_letters", "without")),
        f"{s}: str",
        "str",
        rng.choice(
            (f'Keep only the letters "{letters}" of {s}.', f'Return the characters of {s} that are in "{letters}".')
            if keep
            else (f'Remove the letters "{letters}" from {s}.', f'Return {s} without any of "{letters}".')
        ),
        (
            f'return "".join(c for c in {s} if c {word} "{letters}")',
            seq('result = ""', nest(f"for c in {s}:", f'if c {word} "{letters}":', "result += c"), "return result"),
        ),
        lambda t: re.sub(f"[^{letters}]" if keep else f"[{letters}]", "", t),
        sample_texts(rng, letters),
    )


def replace_letter(rng: Random) -> Task:
    """One or two letters replaced."""
    s = rng.choice(STRINGS)
    a, b, c, d = rng.sample(LETTERS, 4)
    two = rng.random() < 0.5
    tail = f' and every "{c}" by "{d}"' if two else ""
    chain = [nest(f'if c == "{a}":', f'result += "{b}"')]
    chain += [nest(f'elif c == "{c}":', f'result += "{d}"')] if two else []
    chain += [nest("else:", "result += c")]
    return Task(
        rng.choice(("replace_letter", "swap_letters", "substitute", "encode")),
        f"{s}: str",
        "str",
        rng.choice(
            (
                f'Replace every "{a}" in {s} by "{b}"{tail}.',
                f'Return {s} with every "{a}" replaced by "{b}"{tail}.',
            )
        ),
        (
            f'return {s}.replace("{a}", "{b}")' + (f'.replace("{c}", "{d}")' if two else ""),
            seq('result = ""', nest(f"for c in {s}:", seq(*chain)), "return result"),
        ),
        lambda t: t.translate(str.maketrans(a + c, b + d) if two else str.maketrans(a, b)),
        sample_texts(rng, a + c),
    )


def change_case(rng: Random) -> Task:
    """Upper or lower case, with a part of the string."""
    s = rng.choice(STRINGS)
    k = rng.randint(1, 9)
    asked, text = rng.choice(
        (
            (f"in upper case, repeated {k} times", f"{s}.upper() * {k}"),
            (f"in lower case, repeated {k} times", f"{s}.lower() * {k}"),
            (f"with the first {k} characters in upper case", f"{s}[:{k}].upper() + {s}[{k}:]"),
            (f"with the first {k} characters in lower case", f"{s}[:{k}].lower() + {s}[{k}:]"),
            (f"without its first {k} characters, in upper case", f"{s}[{k}:].upper()"),
            (f"reversed and cut after {k} characters", f"{s}[::-1][:{k}]"),
        )
    )
    r = rng.choice(("result", "changed"))
    upper, lower = str.upper, str.lower

    def oracle(t: str) -> str:
        chars = list(t)
        if "repeated" in asked:
            return "".join([(upper if "upper" in asked else lower)(t)] * k)
        if "reversed" in asked:
            return "".join(chars[len(chars) - 1 - i] for i in range(min(k, len(chars))))
        if "without" in asked:
            return "".join(upper(c) for i, c in enumerate(chars) if i >= k)
        return "".join((upper if "upper" in asked else lower)(c) if i < k else c for i, c in enumerate(chars))

    return Task(
        rng.choice(("change_case", "restyle", "shout", "format_text")),
        f"{s}: str",
        "str",
        rng.choice((f"Return {s} {asked}.", f"Give back {s} {asked}.", f"Make a string: {s} {asked}.")),
        (f"return {text}", seq(f"{r} = {text}", f"return {r}")),
        oracle,
        [("",), ("aB",), ("Hello There Anna",), ("abcdefghijkl",), ("ZYXWVUTSRQPO",)],
    )


def starts_or_ends(rng: Random) -> Task:
    """A start or end, and a length."""
    s = rng.choice(STRINGS)
    a = letters_of(rng, 1, 3)
    side = rng.choice(("start", "end"))
    k = rng.randint(2, 12)
    word, sign, meaning = rng.choice(
        (("more", ">", lambda n: n > k), ("at least", ">=", lambda n: n >= k), ("fewer", "<", lambda n: n < k))
    )
    size = f"{word} than {k} characters" if word != "at least" else f"at least {k} characters"
    test = f'{s}.{side}swith("{a}")'
    long = f"len({s}) {sign} {k}"
    fill = ["x" * max(0, k - len(a) + extra) for extra in (-1, 0, 1)]
    return Task(
        rng.choice((f"check_{side}", f"{side}s_right", "is_good_name", "accept")),
        f"{s}: str",
        "bool",
        rng.choice(
            (
                f'Return True if {s} {side}s with "{a}" and has {size}.',
                f'Check whether {s} {side}s with "{a}" and has {size}.',
            )
        ),
        (
            f"return {test} and {long}",
            seq(nest(f"if not {test}:", "return False"), f"return {long}"),
            seq(nest(f"if {test}:", nest(f"if {long}:", "return True")), "return False"),
        ),
        lambda t: (
            (t[: len(a)] == a if side == "start" else t[len(t) - len(a) :] == a and len(t) >= len(a))
            and meaning(len(t))
        ),
        [("",), (a,), *((a + f if side == "start" else f + a,) for f in fill), (a + "y" * 20 + a,), ("y" * k + a[1:],)],
    )


def shift(rng: Random) -> Task:
    """Letters moved along the alphabet."""
    s = rng.choice(STRINGS)
    k = rng.randint(1, 25)
    back = rng.random() < 0.4
    sign, word = ("-", "back") if back else ("+", "forward")
    code = f'(ord(c) - ord("a") {sign} {k}) % 26'
    return Task(
        rng.choice(("shift", "caesar", "encrypt", "cipher")),
        f"{s}: str",
        "str",
        rng.choice(
            (
                f"Shift every lower case letter of {s} {k} places {word} in the alphabet, around the end.",
                f"Move each letter a to z of {s} {word} by {k}, going around. Keep the rest.",
            )
        ),
        (
            seq(
                'result = ""',
                nest(
                    f"for c in {s}:",
                    seq(
                        nest('if "a" <= c <= "z":', f'c = chr({code} + ord("a"))'),
                        "result += c",
                    ),
                ),
                "return result",
            ),
            seq(
                'letters = "abcdefghijklmnopqrstuvwxyz"',
                'result = ""',
                nest(
                    f"for c in {s}:",
                    seq(
                        nest("if c in letters:", f"result += letters[(letters.index(c) {sign} {k}) % 26]"),
                        nest("else:", "result += c"),
                    ),
                ),
                "return result",
            ),
        ),
        lambda t: "".join(chr(97 + (ord(c) - 97 + (26 - k if back else k)) % 26) if c.islower() else c for c in t),
        [("",), ("a",), ("z",), ("xyz abc",), ("Anna at 7",)],
    )


def pad(rng: Random) -> Task:
    """A string filled up to a width."""
    s = rng.choice(STRINGS)
    k = rng.randint(3, 15)
    fill = rng.choice("*-.#_0=x+")
    left = rng.random() < 0.5
    method, side, add = ("rjust", "left", f'{s} = "{fill}" + {s}') if left else ("ljust", "right", f'{s} += "{fill}"')
    missing = f'"{fill}" * ({k} - len({s}))'
    return Task(
        rng.choice(("pad", "fill", "widen", "align")),
        f"{s}: str",
        "str",
        rng.choice(
            (
                f'Pad {s} with "{fill}" on the {side} to at least {k} characters.',
                f'Add "{fill}" on the {side} of {s} until it has {k} characters.',
            )
        ),
        (
            f'return {s}.{method}({k}, "{fill}")',
            seq(nest(f"while len({s}) < {k}:", add), f"return {s}"),
            f"return {missing} + {s}" if left else f"return {s} + {missing}",
        ),
        lambda t: (fill * len(range(len(t), k)) + t) if left else t + fill * len(range(len(t), k)),
        [("",), ("a",), ("abcdefghijklmnopqr"[:k],), ("abcdefghijklmnopqr"[: k - 1],), ("abcdefghijklmnopqrst",)],
    )


STRING_KINDS = (count_letters, remove_letters, replace_letter, change_case, starts_or_ends, shift, pad)
