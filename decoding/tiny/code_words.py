"""Templates of code problems about lists of words."""

from __future__ import annotations

from random import Random

from .code_parts import LETTERS, STRINGS, WORD_LISTS, Task, collect, letters_of, nest, seq, words


def join_words(rng: Random) -> Task:
    """Words joined, each changed."""
    ws = rng.choice(WORD_LISTS)
    sep = rng.choice(("-", ", ", " ", "+", "/", " and ", "; ", "_"))
    k = rng.randint(2, 7)
    step, text, tail = rng.choice(
        (
            (str.upper, "word.upper()", ", each in upper case"),
            (str.lower, "word.lower()", ", each in lower case"),
            (lambda w: w[:k], f"word[:{k}]", f", each cut after {k} characters"),
            (lambda w: "".join(reversed(w)), "word[::-1]", ", each reversed"),
            (lambda w: "".join([w, "!" * k]), f'word + "!" * {k}', f", each with {k} exclamation marks"),
        )
    )
    return Task(
        rng.choice(("join_words", "join_all", "glue", "to_line")),
        f"{ws}: list[str]",
        "str",
        rng.choice(
            (f'Join the {ws} with "{sep}"{tail}.', f'Return one string of all {ws}{tail}, with "{sep}" between.')
        ),
        (
            f'return "{sep}".join({text} for word in {ws})',
            seq("parts = []", nest(f"for word in {ws}:", f"parts.append({text})"), f'return "{sep}".join(parts)'),
            seq(
                'result = ""',
                nest(
                    f"for i, word in enumerate({ws}):",
                    seq(nest("if i > 0:", f'result += "{sep}"'), f"result += {text}"),
                ),
                "return result",
            ),
        ),
        lambda a: sep.join(list(map(step, a))),
        [([],), (["Abcdefghij"],), (["Ab", "cD", "Efghijkl"],), (words(rng),), (words(rng),)],
    )


def palindrome(rng: Random) -> Task:
    """Strings that read the same backwards."""
    s = rng.choice(STRINGS)
    k = rng.randint(2, 9)
    ws = rng.choice(WORD_LISTS)
    which = rng.randrange(3)
    sample = ["level", "noon", "abc", "", "a", "abccba", "abcdcba", "tree", "xyzzyx" + "y" * k]
    same = "".join(chr(97 + i % 26) for i in range(k))
    pal = {k - 1: same[: k // 2], k: same}
    cases = [same[: n // 2] + same[: (n + 1) // 2][::-1] for n in (k - 1, k, k + 1)]
    if which == 0:
        return Task(
            rng.choice(("palindrome", "is_palindrome", "reads_the_same")),
            f"{s}: str",
            "bool",
            rng.choice(
                (
                    f"Return True if {s} has at least {k} characters and reads the same backwards.",
                    f"Is {s} a palindrome of at least {k} characters?",
                )
            ),
            (
                f"return len({s}) >= {k} and {s} == {s}[::-1]",
                seq(
                    nest(f"if len({s}) < {k}:", "return False"),
                    nest(f"for i in range(len({s}) // 2):", f"if {s}[i] != {s}[-1 - i]:", "return False"),
                    "return True",
                ),
            ),
            lambda t: len(t) >= k and list(reversed(t)) == list(t),
            [("",), *((c,) for c in cases), (pal[k] + "zq",), ("abcdba" + "a" * k,), ("a" * k + "xy" + "a" * k,)],
        )
    count = which == 1
    inner = "count += 1" if count else "result.append(word)"
    test = f"word == word[::-1] and len(word) >= {k}"
    start, end = ("count = 0", "return count") if count else ("result = []", "return result")
    asked = "how many of the" if count else "those"
    return Task(
        rng.choice(("palindromes", "symmetric", "mirror_words")),
        f"{ws}: list[str]",
        "int" if count else "list[str]",
        rng.choice(
            (
                f"Return {asked} {ws} of at least {k} characters that are palindromes.",
                f"Return {asked} {ws} that read the same backwards and have at least {k} letters.".replace(
                    "how many of the", "the number of"
                ),
            )
        ),
        (
            f"return sum(1 for word in {ws} if {test})" if count else f"return [word for word in {ws} if {test}]",
            seq(start, nest(f"for word in {ws}:", f"if {test}:", inner), end),
        ),
        lambda a: (len if count else list)([w for w in a if len(w) >= k and list(w) == list(reversed(w))]),
        [([],), (cases,), (sample,), ([same, *words(rng)],), ([cases[0], cases[2]],)],
    )


def long_words(rng: Random) -> Task:
    """Words by their lengths."""
    ws = rng.choice((*WORD_LISTS, "text"))
    k = rng.randint(2, 12)
    over, kind = (f"{ws}.split()", "str") if ws == "text" else (ws, "list[str]")
    word, sign, meaning = rng.choice(
        (
            (f"more than {k}", ">", lambda n: n > k),
            (f"at least {k}", ">=", lambda n: n >= k),
            (f"exactly {k}", "==", lambda n: n == k),
            (f"fewer than {k}", "<", lambda n: n < k),
            (f"at most {k}", "<=", lambda n: n <= k),
        )
    )
    plural = "words in text" if ws == "text" else ws
    test = f"len(word) {sign} {k}"
    mode = rng.randrange(3)
    asked = (f"the {plural} with", f"how many {plural} have", f"the lengths of the {plural} with")[mode]
    item = ("word", "1", "len(word)")[mode]
    start, deep, end = (
        ("count = 0", "count += 1", "return count")
        if mode == 1
        else ("result = []", f"result.append({item})", "return result")
    )

    def oracle(a: str | list[str]) -> int | list:
        found = [w for w in (a.split(" ") if isinstance(a, str) else a) if w and meaning(len(w))]
        return len(found) if mode == 1 else found if mode == 0 else [len(w) for w in found]

    made = ["abcdefghijklmnop"[: k + extra] for extra in (-1, 0, 1)]
    cases = [[], made, [made[1]], words(rng), words(rng)]
    return Task(
        rng.choice(("long_words", "words_by_length", "select_words", "by_length")),
        f"{ws}: {kind}",
        ("list[str]", "int", "list[int]")[mode],
        rng.choice((f"Return {asked} {word} characters.", f"Give {asked} {word} letters.")),
        (
            f"return sum(1 for word in {over} if {test})"
            if mode == 1
            else f"return [{item} for word in {over} if {test}]",
            seq(start, nest(f"for word in {over}:", f"if {test}:", deep), end),
        ),
        oracle,
        [(" ".join(case) if ws == "text" else case,) for case in cases],
    )


def pick_words(rng: Random) -> Task:
    """Words by their letters."""
    ws = rng.choice(WORD_LISTS)
    a, b = rng.sample(LETTERS, 2)
    where, test, meaning = rng.choice(
        (
            (f'start with "{a}"', f'word.startswith("{a}")', lambda w: w[:1] == a),
            (f'end with "{a}"', f'word.endswith("{a}")', lambda w: w[-1:] == a),
            (f'contain "{a}"', f'"{a}" in word', lambda w: w.find(a) >= 0),
            (f'do not contain "{a}"', f'"{a}" not in word', lambda w: w.find(a) < 0),
            (f'contain "{a}" and "{b}"', f'"{a}" in word and "{b}" in word', lambda w: set(w) >= {a, b}),
            (f'contain "{a}" or "{b}"', f'"{a}" in word or "{b}" in word', lambda w: bool(set(w) & {a, b})),
        )
    )
    text, tail, step = rng.choice(
        (
            ("word", "", str),
            ("word.upper()", ", in upper case", str.upper),
            ("len(word)", ", as their lengths", len),
            ("word[::-1]", ", each reversed", lambda w: "".join(reversed(w))),
        )
    )
    made = [a, a + "xy", "xy" + a, "x" + a + "y", b, "y" + b + a + "x", b + "yx"]
    return Task(
        rng.choice(("pick_words", "choose", "matching", "find_words")),
        f"{ws}: list[str]",
        "list[int]" if text == "len(word)" else "list[str]",
        rng.choice((f"Return the {ws} that {where}{tail}.", f"Find all {ws} that {where}; return them{tail}.")),
        (
            f"return [{text} for word in {ws} if {test}]",
            collect("result", f"for word in {ws}:", f"if {test}:", f"result.append({text})"),
        ),
        lambda v: [step(w) for w in v if meaning(w)],
        [([],), (made,), (words(rng),), ([b, *words(rng)],)],
    )


def longest_word(rng: Random) -> Task:
    """The longest or shortest word."""
    ws = rng.choice(WORD_LISTS)
    d = rng.choice(("", "none", "?", "empty", "-", "nothing", letters_of(rng)))
    word, sign = rng.choice((("longest", ">"), ("shortest", "<")))
    pick = {"longest": "max", "shortest": "min"}[word]
    return Task(
        rng.choice((f"{word}_word", f"find_{word}", f"{word}_of")),
        f"{ws}: list[str]",
        "str",
        rng.choice(
            (
                f'Return the {word} of the {ws}, the first if several; "{d}" if empty.',
                f'Find the first {word} string in {ws}. For an empty list return "{d}".',
            )
        ),
        (
            seq(nest(f"if not {ws}:", f'return "{d}"'), f"return {pick}({ws}, key=len)"),
            f'return {pick}({ws}, key=len, default="{d}")',
            seq(
                nest(f"if not {ws}:", f'return "{d}"'),
                f"best = {ws}[0]",
                nest(f"for word in {ws}:", f"if len(word) {sign} len(best):", "best = word"),
                "return best",
            ),
        ),
        lambda a: sorted(a, key=lambda w: -len(w) if word == "longest" else len(w))[0] if a else d,
        [([],), (["ab", "cd"],), (["a", "xyz", "bcd", "q"],), (words(rng),), (words(rng),)],
    )


WORD_KINDS = (join_words, palindrome, long_words, pick_words, longest_word)
