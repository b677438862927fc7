"""Stop strings: every decoder's text ends before the one that is complete first, and decoding ends where it can."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dystruct.decoding import (
    AdaBlock,
    Block,
    Daedal,
    Decoder,
    Dream,
    DyStruct,
    Fast,
    Fixed,
    Generation,
    Hierarchy,
    UserError,
    VsbLike,
    generate,
)
from dystruct.decoding.ending import ending, has_ended
from dystruct.model import PriorConfig
from integer_script import integer_hashed
from scripted import EOS, FIRST_LETTER, MASK, Letters, Script, backbone, written
from watching import noted_reads, without_time

SHORT = DyStruct(structure="sample", prior=PriorConfig(2, 6))
EARLY: list[Decoder] = [  # those that look whether the text has ended before the response is full
    SHORT,
    DyStruct(prior=PriorConfig(3, 5), weld="joint"),
    Block(3),
    Fixed(block_length=4),
    Fixed(block_length=5, remasking="random"),
    Dream(),
    Fast(4),
    Daedal(8, 4, eos_check_tokens=4),
    AdaBlock(5, 0.6, delimiter_ids=(3, 5)),
    Hierarchy(4),
    Hierarchy(4, remask=0.3),
    VsbLike(6, 2),
]
FAITHFUL: list[Decoder] = [
    dataclasses.replace(decoder, faithful=True)
    for decoder in (Fixed(block_length=4), Dream(), Fast(4), Daedal(8, 4), AdaBlock(5), Hierarchy(4))
]


class Pairs(Letters):
    """A tokenizer whose tokens are two letters each: a begins the first one and b the second, "ab" and "bc", …"""

    def __call__(self, text: str, add_special_tokens: bool) -> dict[str, list[int]]:
        if text == "<end>":
            return {"input_ids": [EOS]}
        return super().__call__(text, add_special_tokens)

    def decode(self, ids: Sequence[int], skip_special_tokens: bool, clean_up_tokenization_spaces: bool) -> str:
        special = {EOS: "<end>", MASK: "<mask>"}
        hidden = dict.fromkeys(special, "") if skip_special_tokens else special
        return "".join(hidden.get(token, chr(95 + token) + chr(96 + token)) for token in ids)


def decode(script: Script, decoder: Decoder, stop: Sequence[str] = (), **limits: Any) -> Generation:
    model = dataclasses.replace(backbone(script), tokenizer=Pairs())
    return generate(model, ["ab"], decoder, stop=stop, **{"max_new_tokens": 20, "budget": 200, **limits})[0]


def cut(text: str, stop: Sequence[str]) -> str:
    """Letter by letter, until the text ends with a stop string (the longest, if with several)."""
    for seen in range(len(text) + 1):
        if found := [wanted for wanted in stop if text[:seen].endswith(wanted)]:
            return text[: seen - max(map(len, found))]
    return text


# --- the same for every decoder --------------------------------------------------------------------------------------

stops = st.lists(st.text("abcdefghijk", min_size=1, max_size=3), max_size=3)


@settings(deadline=None, max_examples=60)
@given(st.sampled_from(EARLY + FAITHFUL), st.integers(0, 10**6), stops, st.sampled_from([0.0, 0.7]))
def test_the_text_is_the_one_without_stop_strings_cut(
    decoder: Decoder, seed: int, stop: list[str], temperature: float
) -> None:
    script = integer_hashed(seed, end_bonus=-1.0)
    free = decode(script, decoder, temperature=temperature)
    found = decode(script, decoder, stop, temperature=temperature)
    assert found.text == cut(free.text, stop)
    assert found.useful_tokens == -(-len(found.text) // 2), "a token that holds some of the text is one of the text's"
    assert found.useful_tokens + found.wasted_tokens == len(found.tokens)
    if found.text == free.text and found.stop_reason != "stop":
        assert dataclasses.replace(found, seconds=0, settings={}) == dataclasses.replace(free, seconds=0, settings={})
    else:
        assert found.stop_reason == "stop"
        assert found.forward_passes <= free.forward_passes
    assert list(found.replay())[-1][1] == found.tokens, "the trace keeps what was decoded"


def letters(known: list[int], position: int) -> int:
    """The tokens ab, bc, cd, …: the text is "abbccddeeffgg…"."""
    return FIRST_LETTER + (position - 2) % 10


@pytest.mark.parametrize("decoder", EARLY, ids=repr)
@pytest.mark.parametrize(
    ("stop", "text"), [("cd", "abbc"), ("ccd", "abb"), ("bcc", "ab"), ("c", "abb"), ("eef", "abbccdd"), ("ab", "")]
)
def test_decoding_ends_with_the_window_or_block_that_completes_a_stop_string(
    decoder: Decoder, stop: str, text: str
) -> None:
    """Within a token, over two and over three; nothing behind that block is decoded."""
    script = written(letters, lambda known, position: 9.0 - position / 10)
    free = decode(script, decoder)
    assert free.text.startswith("abbccddeeffgg") and len(free.tokens) == 20
    found = decode(script, decoder, [stop])
    assert (found.text, found.stop_reason) == (text, "stop")
    assert len(found.tokens) < 20 and found.forward_passes < free.forward_passes


def test_what_ends_a_text_first_counts() -> None:
    def wanted(known: list[int], position: int) -> int:
        return EOS if position == 2 + 3 else letters(known, position)

    for decoder in EARLY:
        (before, behind) = (decode(written(wanted), decoder, [stop]) for stop in ("c", "e"))
        assert (before.text, before.stop_reason) == ("abb", "stop")
        assert (behind.text, behind.stop_reason) == ("abbccd", "eos") and behind.useful_tokens == 3


def test_a_stop_string_that_is_complete_first_counts_although_another_begins_earlier() -> None:
    found = decode(written(letters), Block(20), ["bbccd", "bc"])
    assert found.text == "ab"


def test_faithful_decoders_decode_on_and_the_text_is_cut() -> None:
    for decoder in FAITHFUL:
        found = decode(written(letters, lambda known, position: 9.0 - position / 10), decoder, ["de"])
        assert found.text == "abbccd" and found.stop_reason == "stop" and len(found.tokens) == 20
        assert (found.useful_tokens, found.wasted_tokens) == (3, 17)


def test_a_special_token_among_them_ends_the_text_as_an_end_token_does() -> None:
    """The model itself ends with another token; no text ever shows "<end>"."""

    def wanted(known: list[int], position: int) -> int:
        return EOS if position == 2 + 4 else letters(known, position)

    model = dataclasses.replace(backbone(written(wanted)), tokenizer=Pairs(), eos_id=11, end_ids=frozenset())
    for decoder in (Block(3), Fast(4), SHORT):
        (free,) = generate(model, ["ab"], decoder, max_new_tokens=8)
        (found,) = generate(model, ["ab"], decoder, max_new_tokens=8, stop=["<end>"])
        assert free.text == "abbccddefgghhi" and free.stop_reason == "length"
        assert (found.text, found.stop_reason, found.useful_tokens) == ("abbccdde", "eos", 4)
        assert EOS in found.end_tokens and EOS not in free.end_tokens


# --- where they are looked for ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("decoder", [SHORT, Block(3), Fixed(block_length=4), Fast(4), Dream()], ids=repr)
def test_looking_for_them_reads_nothing_more_from_the_device(decoder: Decoder) -> None:
    counts = []
    for stop in ((), ("zz",)):
        with noted_reads(lambda past, values: None) as notes:
            decode(integer_hashed(1, end_bonus=-9.0), decoder, stop)
        counts.append(len(notes))
    assert counts[0] == counts[1] > 0


def test_only_what_stands_before_the_first_mask_is_known() -> None:
    model = dataclasses.replace(backbone(written(letters)), tokenizer=Pairs())
    tokens = [2, MASK, 3, EOS]
    assert not has_ended(model, tokens, ["bc"]) and not has_ended(model, tokens, [])
    assert has_ended(model, tokens, ["b"]) and has_ended(model, [2, EOS, MASK], [])
    assert ending(model, [2, 3, 4], ["cc"]).length == 2 and ending(model, [2, 3, 4], ["bc"]).text == "ab"


def test_a_batch_is_one_prompt_at_a_time() -> None:
    script, prompts = integer_hashed(5, end_bonus=-1.0), ["ab", "abcdefgh", "c", "jihg"]
    model = dataclasses.replace(backbone(script), tokenizer=Pairs())
    for decoder in (SHORT, Hierarchy(4, remask=0.3)):
        together = generate(model, prompts, decoder, max_new_tokens=20, stop=["ab", "d"], batch_size=3)
        assert len({len(found.tokens) for found in together}) > 1
        for prompt, found in zip(prompts, together, strict=True):
            (alone,) = generate(model, [prompt], decoder, max_new_tokens=20, stop=["ab", "d"])
            assert without_time(alone) == without_time(found)


# --- what is asked of them -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("stop", "part"), [("\n\n", "list of texts"), ([""], "empty"), (["a", ""], "empty"), ([3], "list of texts")]
)
def test_what_is_no_stop_string_is_refused(stop: Any, part: str) -> None:
    with pytest.raises(UserError, match=part) as caught:
        decode(integer_hashed(0), Block(3), stop)
    assert str(caught.value).endswith(".")


def test_they_are_among_the_settings() -> None:
    assert decode(integer_hashed(0), Block(3), ("x", "\n")).settings["stop"] == ["x", "\n"]
    assert decode(integer_hashed(0), Block(3)).settings["stop"] == []
