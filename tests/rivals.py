"""Every rival decoder with settings that reach all of its rules, and what their tests share."""

from __future__ import annotations

import dataclasses
from collections import Counter

from dystruct.decoding import (
    AdaBlock,
    Daedal,
    Decoder,
    Dream,
    Fast,
    Fixed,
    Generation,
    Hierarchy,
    VsbLike,
    generate,
)
from dystruct.decoding.scene import Scene
from scripted import MASK, Script, backbone

RIVALS: list[Decoder] = [
    Fixed(),
    Fixed(block_length=5, steps=9),
    Fixed(block_length=6, remasking="random"),
    Fixed(block_length=4, guidance=1.5),
    Fixed(defer_eos=True, end_of_turn=4),
    Fixed(suppress_eos=True, block_length=3),
    Dream(),
    Dream("origin", steps=7),
    Dream("topk_margin", alg_temp=0.3, top_p=0.9),
    Dream("maskgit_plus", top_k=3, steps=12),
    Fast(5, threshold=0.6),
    Fast(8, factor=1.5),
    Daedal(8, 4, high=0.6, low=0.3, expansion=3, eos_check_tokens=4),
    AdaBlock(6, 0.6, 0.2, delimiter_ids=(3, 5)),
    Hierarchy(7),
    Hierarchy(7, low=0.3, high=0.8, remask=0.3),
    VsbLike(12, 3, 0.5),
]


PROMPTS = ["ab", "abcdefgh", "c", "jihg"]


def decode(script: Script, prompts: list[str], decoder: Decoder, **limits) -> list[Generation]:
    return generate(backbone(script), prompts, decoder, **{"max_new_tokens": 20, "budget": 300, **limits})


def named(value: object) -> str:
    return repr(value) if dataclasses.is_dataclass(value) else str(value)


def check_trace(generation: Generation) -> None:
    """Every step changes what it says, the replay ends with the tokens, and so does what a view makes of the events."""
    generation.check()
    replayed = list(generation.replay())
    assert replayed[-1][1] == generation.tokens
    numbers = [step.number for step, _ in replayed]
    assert numbers == sorted(set(numbers)) and numbers[-1] == generation.forward_passes
    number, passes = 0, Counter[str]()
    for window in generation.windows:
        scene = Scene(window.opened, number=number)
        for event in window.events():
            if event is window.closed:
                assert tuple(MASK if token is None else token for token in scene.tokens) == window.closed.tokens
            scene.advance(event)
        number = scene.number
        passes += scene.passes
    assert passes == Counter(generation.passes)
    before: tuple[int, ...] = ()
    for step, after in replayed:
        if step.kind == "resolve" and not step.spliced:
            freed = {remask.position for remask in step.remasked}
            for commit in step.commits:
                assert len(before) <= commit.position or before[commit.position] == MASK or commit.position in freed
        before = after
