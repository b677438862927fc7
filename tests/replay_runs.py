"""Traces for the tests of the replay page: of every kind of decoder, by hand, and with hostile texts."""

from __future__ import annotations

import dataclasses
from functools import cache

from dystruct.decoding import (
    AdaBlock,
    Block,
    Commit,
    Daedal,
    Decoder,
    DyStruct,
    Fixed,
    Generation,
    Hierarchy,
    Remask,
    Splice,
    Step,
    StructureChosen,
    VsbLike,
    Window,
    WindowClosed,
    WindowOpened,
    generate,
)
from dystruct.model import PriorConfig
from integer_script import integer_hashed
from scripted import backbone, uneven_weights

PRIOR = PriorConfig(min_length=4, max_length=9, concentration=6.0)
DECODERS: dict[str, Decoder] = {
    "sample": DyStruct("sample", prior=PRIOR, weld_radius=3),
    "joint": DyStruct("sample", prior=PRIOR, weld="joint"),
    "map": DyStruct("map", prior=PRIOR),
    "inferred length": DyStruct("sample", prior=PRIOR, length_law="posterior"),
    "none": DyStruct("none", prior=PRIOR),
    "block": Block(6),
    "guided": Fixed(block_length=4, guidance=1.5),
    "daedal": Daedal(8, 4, high=0.6, low=0.3, expansion=3, eos_check_tokens=4),
    "adablock": AdaBlock(6, 0.6, 0.2, delimiter_ids=(3, 5)),
    "hierarchy": Hierarchy(7, low=0.3, high=0.8, remask=0.3),
    "vsb": VsbLike(12, 3, 0.5),
}

HOSTILE = (
    "</script><script>window.hacked=1</script>",
    "<img src=x onerror=window.hacked=1>",
    "<!--<script>",
    "]]>",
    "\u2028\u2029",
    "\"'`${window.hacked=1}\\",
    "&lt;b&amp;",
    "{{script}}{{data}}",
    "\u202eright to left\u2066",
    "\x00\x1b[31m\x7f",
    "\ud800",
    "javascript:window.hacked=1",
    "\U0001f469\u200d\U0001f680",
)


@cache
def decoded(name: str, seed: int = 3, max_new_tokens: int = 22) -> Generation:
    """A generation by the real engine."""
    model = backbone(integer_hashed(seed, end_bonus=-2.0), weights=uneven_weights())
    return generate(model, ["abcab"], DECODERS[name], max_new_tokens=max_new_tokens, budget=120, seed=seed)[0]


def by_hand() -> Generation:
    """Two blocks of two tokens, the right one first; a weld that changes one of two tokens; then a splice."""
    chosen = StructureChosen(
        0, (2, 4), (1, 0), (0.1, 0.2, 0.3, 0.4), (-1.0, 1.0, -1.0), (0.125, 0.75, 0.25), (0.15, 0.35), (0.8, -0.4),
        (1, 1), -0.5, 1.25, (), (),
    )  # fmt: skip
    steps = (
        Step(1, "diagnostic", None, (), (Commit(1, 5, 0.5), Commit(3, 6, 0.6))),
        Step(2, "resolve", 1, (), (Commit(2, 2, 0.7), Commit(3, 3, 0.8))),
        Step(4, "resolve", 0, (), (Commit(0, 0, 0.9), Commit(1, 5, 0.4))),
        Step(5, "weld", 0, (Remask(1, 5, 0.4), Remask(2, 2, 0.7)), (Commit(2, 2, 0.75),)),
        Step(6, "weld", 0, (), (Commit(1, 1, 0.95),), (Splice(4, 0, 1, 4),)),
    )
    window = Window(WindowOpened(0, 0, 4, 0.5, 28.0), chosen, steps, WindowClosed(0, (0, 1, 2, 3, 4), (), 0.37))
    return Generation(
        prompt="How many?", text="one two three\n", tokens=(0, 1, 2, 3, 4), useful_tokens=4, wasted_tokens=1,
        token_texts={0: "one", 1: " two", 2: " three", 3: "\n", 4: "<end>", 5: " wrong", 6: " "},
        passes={"diagnostic": 1, "resolve": 3, "weld": 2}, stop_reason="eos", seconds=1.5, windows=(window,),
        model="tiny", mask_token=99, settings={"structure": "sample", "seed": 4, "temperature": 0.0}, end_tokens=(4,),
    )  # fmt: skip


def diagnosed_late() -> Generation:
    """A diagnostic pass behind a resolving one: it masks the whole window again."""
    steps = (
        Step(1, "resolve", None, (), (Commit(0, 0, 0.9), Commit(2, 2, 0.8))),
        Step(2, "diagnostic", None, (), (Commit(1, 5, 0.5),)),
        Step(3, "resolve", None, (), (Commit(0, 1, 0.9), Commit(1, 1, 0.8), Commit(2, 2, 0.7))),
    )
    window = Window(WindowOpened(0, 0, 3, 0.5, None), None, steps, WindowClosed(0, (1, 1, 2), (), None))
    return dataclasses.replace(
        by_hand(), tokens=(1, 1, 2), useful_tokens=3, wasted_tokens=0, passes={"diagnostic": 1, "resolve": 2},
        stop_reason="length", windows=(window,), end_tokens=(),
    )  # fmt: skip


def hostile(generation: Generation, texts: tuple[str, ...] = HOSTILE) -> Generation:
    """The same run, where tokens, prompt, text and settings are hostile."""
    names = {token: texts[place % len(texts)] for place, token in enumerate(generation.token_texts)}
    return dataclasses.replace(
        generation,
        prompt="".join(texts),
        text="".join(names[token] for token in generation.tokens),
        token_texts=names,
        model=texts[0],
        settings={**generation.settings, "structure": texts[0], "seed": texts[-1]},
    )
