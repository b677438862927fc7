"""A decoding in words: token texts made visible, a caption, the figures of a finished sequence, and what time is left.

Token texts are data: control characters in them are shown, never obeyed. Knows no terminal.
"""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Callable, Collection, Sequence
from typing import Any

from .scene import Scene, Weld
from .trace import Generation

END, SPACE = "∎", "·"
NAMED = {"\n": "⏎", "\t": "⇥", "\r": "␍", "\x7f": "␡"}
STOPS = {
    "eos": "at the end token",
    "stop": "before a stop string",
    "length": "at the limit of new tokens",
    "budget": "the budget of forward passes was spent",
    "decoder": "the decoder ended",
}
WASTED = {
    "eos": "the end token and what was decoded behind it",
    "stop": "the stop string and what was decoded behind it",
}
LONGEST_PROMPT = 900


def counted(number: int, one: str, many: str | None = None) -> str:
    """A number with its noun: "1 pass", "2 passes"."""
    return f"{number} {one if number == 1 else many or one + 's'}"


def left(seconds: float) -> str:
    """How long a time of so many seconds is, for a person."""
    if seconds == 0:
        return "nothing left"
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"about {seconds / size:.0f} {unit} left"
    return f"about {max(1, round(seconds))} s left"


def visible(text: str) -> str:
    """A text on one line: line ends, tabs and other control characters as signs of their own."""
    return "".join(_sign(character) for character in text)


def literal(text: str) -> str:
    """A text with its line ends and tabs, and with every other control character as a sign."""
    return "".join(character if character in "\n\t" else _sign(character) for character in text)


def _sign(character: str) -> str:
    if character in NAMED:
        return NAMED[character]
    if character < " ":
        return chr(0x2400 + ord(character))
    if unicodedata.category(character) in ("Cc", "Cf", "Cs", "Zl", "Zp"):
        return f"\\u{ord(character):04x}"
    return character


def shortened(prompt: str) -> str:
    """A prompt without its middle part where it is too long to be shown whole."""
    if len(prompt) <= LONGEST_PROMPT:
        return prompt
    third = LONGEST_PROMPT // 3
    return f"{prompt[:third]} … ({len(prompt) - 3 * third} characters left out) … {prompt[-2 * third :]}"


class TokenTexts:
    """How tokens are shown: each on one line, an end token as ∎ and a token of nothing but spaces as dots."""

    def __init__(self, text: Callable[[int], str], end_tokens: Collection[int]) -> None:
        self._text, self.end_tokens = text, end_tokens
        self._known: dict[int, str] = {}

    def __call__(self, token: int) -> str:
        text = self._visible(token)
        return text if text.strip(" ") else SPACE * len(text)

    def quote(self, tokens: Sequence[int]) -> str:
        """Several tokens as one quoted line; a run of end tokens as one."""
        signs = [self._visible(token) for token in tokens]
        while len(signs) > 1 and signs[-1] == signs[-2] == END:
            signs.pop()
        return f'"{"".join(signs)}"'

    def _visible(self, token: int) -> str:
        if token not in self._known:
            self._known[token] = END if token in self.end_tokens else visible(self._text(token))
        return self._known[token]

    @classmethod
    def of(cls, generation: Generation) -> TokenTexts:
        """The texts that a trace holds."""
        return cls(generation.token_texts.__getitem__, generation.end_tokens)


def caption(model: str, settings: dict[str, Any]) -> str:
    """One line that names the model and the settings that matter most."""
    names = ("structure" if settings.get("structure") else "decoder", "temperature", "seed")
    shown = [f"{name} {settings[name]:g}" if isinstance(settings[name], float) else f"{name} {settings[name]}"
             for name in names if settings.get(name) is not None]  # fmt: skip
    return " · ".join(["dystruct", f"model {model}", *shown])


def is_inferred(settings: dict[str, Any]) -> bool:
    """Whether a decoder of these settings draws structures from the posterior."""
    return settings.get("structure") not in (None, "none")


def summary(generation: Generation) -> list[tuple[str, str]]:
    """The figures of a finished sequence, as (name, value)."""
    scenes, welds = [], []
    for window in generation.windows:
        scene = Scene(window.opened)
        scenes.append(scene)
        for event in window.events():
            welds += [done for done in scene.advance(event) if isinstance(done, Weld)]
    kinds = ", ".join(f"{kind} {count}" for kind, count in generation.passes.items() if count)
    budget = generation.settings.get("budget")
    passes, wasted = generation.forward_passes, generation.wasted_tokens
    rows = [
        ("windows", f"{len(generation.windows)}, with {counted(generation.block_count, 'block')}"),
        ("forward passes", f"{passes}{f' of {budget}' if budget else ''} ({kinds})"),
        (
            "useful tokens",
            f"{generation.useful_tokens}, {generation.useful_tokens / max(passes, 1):.2f} a forward pass",
        ),
        ("wasted tokens", f"{wasted}, {WASTED[generation.stop_reason]}" if wasted else "0"),
    ]
    if welds:
        remasked = sum(len(weld.before) for weld in welds)
        changed = sum(len(before) for weld in welds for _, before, _ in weld.changes)
        rows.append(("welds", f"{len(welds)}: {counted(remasked, 'token')} remasked, {changed} of them changed"))
    steps = [step for window in generation.windows for step in window.steps if step.kind == "resolve"]
    if revised := sum(len(step.remasked) for step in steps):
        rows.append(("remasked", f"{counted(revised, 'token')} while blocks were resolved"))
    structures = [scene.structure for scene in scenes if scene.structure]
    if structures and is_inferred(generation.settings):
        logs = [structure.log_probability for structure in structures]
        low, high = math.exp(min(logs)), math.exp(max(logs))
        span = f"{low:.2g}" if f"{low:.2g}" == f"{high:.2g}" else f"{low:.2g} to {high:.2g}"
        name = "P(MAP | O)" if generation.settings.get("structure") == "map" else "P(partition | O)"
        rows.append(("structures", f"{name} {span} a window, log-probability {sum(logs):.2f} nats in all"))
    rows += [
        ("stopped", STOPS[generation.stop_reason]),
        ("wall time", f"{generation.seconds:.2f} s"),
    ]
    return rows
