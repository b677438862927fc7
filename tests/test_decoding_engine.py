"""The engine: batches, observation, read-backs, and logits that are no numbers."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from unittest import mock

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode

from dystruct.decoding import Block, DyStruct, Event, Generation, Pass, Row, UserError, generate
from dystruct.decoding.canvas import Canvas
from dystruct.decoding.engine import Engine
from dystruct.decoding.generation_settings import GenerationSettings
from dystruct.inference import fixed
from dystruct.model import Partition, PriorConfig
from scripted import EOS, MASK, VOCABULARY, Network, Script, backbone, hashed, uneven_weights
from watching import noted_reads, without_time

PROMPTS = ["ab", "abcdefgh", "c", "jihg", "abc"]
SAMPLED = DyStruct(structure="sample", prior=PriorConfig(4, 12))


def decode(script: Script, prompts: list[str], decoder, *, shifted: bool = False, **limits) -> list[Generation]:
    model = backbone(script, shifted=shifted, weights=uneven_weights())
    return generate(model, prompts, decoder, **{"max_new_tokens": 20, "budget": 300, **limits})


# --- batches -------------------------------------------------------------------------------------------------------


@settings(deadline=None, max_examples=12)
@given(
    st.integers(0, 10**6), st.lists(st.sampled_from(PROMPTS), min_size=1, max_size=5), st.integers(1, 6),
    st.sampled_from([SAMPLED, DyStruct(weld="joint", prior=PriorConfig(4, 12)), Block(3)]), st.booleans(),
    st.sampled_from([0.0, 1.0]),
)  # fmt: skip
def test_a_batch_is_one_prompt_at_a_time(seed, prompts, batch_size, decoder, shifted, temperature) -> None:
    script = hashed(seed, end_logit=0.5)
    settings = {"shifted": shifted, "temperature": temperature, "seed": seed}
    together = decode(script, prompts, decoder, batch_size=batch_size, **settings)
    assert [generation.prompt for generation in together] == prompts
    for prompt, generation in zip(prompts, together, strict=True):
        (alone,) = decode(script, [prompt], decoder, batch_size=1, **settings)
        assert without_time(generation) == without_time(alone)


def test_a_shifted_model_decodes_what_an_unshifted_one_with_the_same_predictions_does() -> None:
    script = hashed(11, end_logit=-4.0)
    for straight, shifted in zip(
        decode(script, ["ab", "jihg"], SAMPLED), decode(script, ["ab", "jihg"], SAMPLED, shifted=True), strict=True
    ):
        assert without_time(straight) == without_time(shifted)


def test_a_finished_rows_place_goes_to_the_next_prompt() -> None:
    def script(ids: torch.Tensor, valid: torch.Tensor) -> torch.Tensor:
        logits = torch.zeros(*ids.shape, VOCABULARY)
        logits[..., 5] = 1.0
        logits[ids[:, 0] == 2, :, EOS] = 9.0  # prompts that begin with an a end at once
        return logits

    model = backbone(script)
    generations = generate(model, ["b", "a", "a", "a", "b"], Block(4), max_new_tokens=16, budget=99, batch_size=2)
    assert [g.stop_reason for g in generations] == ["length", "eos", "eos", "eos", "length"]
    assert [g.forward_passes for g in generations] == [16, 4, 4, 4, 16]
    rows = model.network.batches
    assert sum(rows) == 44, "no forward pass of a row is made in vain"
    assert max(rows) == 2 and len(rows) < 32, "rows run side by side, also with prompts that waited"


def test_a_forward_pass_is_as_long_as_its_longest_row() -> None:
    model = backbone(hashed(0, end_logit=-4.0))
    generate(model, ["ab", "abcdefgh"], Block(4, passes=1), max_new_tokens=12)
    assert model.network.lengths == [8 + 4, 8 + 8, 8 + 12]


def test_padding_is_not_seen() -> None:
    """The network gives NaN at padding and at every output that predicts no position of the row; none may be used."""
    long, short = decode(hashed(2, end_logit=-4.0), ["abcdefghij" * 3, "c"], SAMPLED, batch_size=2)
    assert all(
        math.isfinite(x) for g in (long, short) for w in g.windows for row in w.closed.position_features for x in row
    )


# --- observation and read-backs ------------------------------------------------------------------------------------


@pytest.mark.parametrize("decoder", [SAMPLED, Block(4)])
def test_observation_sees_the_traces_events_in_order_and_changes_nothing(decoder: DyStruct | Block) -> None:
    script = hashed(6, end_logit=0.5)
    seen: dict[int, list[Event]] = {}
    observed = decode(
        script, PROMPTS, decoder, batch_size=2, observe=lambda i, event: seen.setdefault(i, []).append(event)
    )
    for index, generation in enumerate(observed):
        assert seen[index] == [event for window in generation.windows for event in window.events()]
    unobserved = decode(script, PROMPTS, decoder, batch_size=2)
    assert [without_time(g) for g in observed] == [without_time(g) for g in unobserved]


def test_events_come_live() -> None:
    """When a step is told, no later forward pass has been made."""
    model, calls = backbone(hashed(6, end_logit=-4.0), weights=uneven_weights()), []
    generate(model, ["abc"], SAMPLED, max_new_tokens=12, observe=lambda i, event: calls.append(
        (len(model.network.batches), getattr(event, "number", None))
    ))  # fmt: skip
    assert all(number in (None, made) for made, number in calls)


class ReadBacks(TorchDispatchMode):
    """Counts copies and reads of tensors that live where the model does.

    On the CPU a copy to the host cannot be told from others, so `History.read` is watched instead; here
    what counts is every value that turns into a Python number while a pass is being made.
    """

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func in (torch.ops.aten._local_scalar_dense.default, torch.ops.aten.nonzero.default):
            self.count += 1
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("decoder", [SAMPLED, DyStruct(weld="joint", prior=PriorConfig(4, 12)), Block(4)])
def test_two_read_backs_a_window_and_none_in_a_pass(decoder: DyStruct | Block) -> None:
    in_passes, original_forward = ReadBacks(), Engine._forward

    def forward(self: Engine, requests: list[tuple[Row, Pass]]) -> None:
        with in_passes:
            original_forward(self, requests)

    with noted_reads(lambda past, values: len(past.windows)) as reads, mock.patch.object(Engine, "_forward", forward):
        (generation,) = decode(hashed(6, end_logit=-4.0), ["abc"], decoder)
    each = 1 if isinstance(decoder, Block) else 2
    assert Counter(reads) == dict.fromkeys(range(len(generation.windows)), each)
    assert in_passes.count == 0


class Stop(Exception):
    """The end of what can be run without values."""


@dataclasses.dataclass(frozen=True)
class Program:
    """A decoder that runs one window's passes with a structure that is known beforehand, and reads nothing."""

    widest: int = 12

    def decode(self, row: Row) -> Iterator[Pass]:
        row.open_window(12)
        for shown in (2, 4, 7):
            yield Pass("diagnostic", 0, 12, commit=shown)
        row._clear()
        for a, b in ((4, 9), (0, 4), (9, 12)):
            for quota, threshold in ((2, None), (1, 0.5)):
                yield Pass("resolve", a, b, quota, block=0, threshold=threshold)
        yield Pass("weld", 2, 7, 1, ((2, 7, 2),), 0)
        yield Pass("weld", 2, 7, 1)
        yield Pass("weld", 0, 12, 3, ((0, 4, 2), (7, 12, 2)), 0, ((0, 4), (7, 12)))
        yield Pass("weld", 0, 12, 1, parts=((0, 4), (7, 12)))
        raise Stop


@pytest.mark.parametrize("shifted", [False, True])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_windows_passes_read_nothing_back_on_the_meta_device(shifted: bool, temperature: float) -> None:
    """On the meta device there are no values: reading one, `nonzero` or a boolean index raises there."""
    model = backbone(hashed(0), shifted=shifted, device="meta")
    engine = Engine(model, Program(), GenerationSettings(12, budget=99, temperature=temperature, batch_size=2))
    with pytest.raises(Stop):
        engine.run(["ab", "abcde"], [[2, 3], [2, 3, 4, 5, 6]], None, {})
    assert model.network.batches == [2] * 13
    assert engine.canvas.tokens.device.type == "meta"


def test_the_meta_device_does_refuse_to_be_read() -> None:
    """The test above means something: a decoder that reads its window there fails."""
    with pytest.raises(NotImplementedError):
        generate(backbone(hashed(0), device="meta"), ["ab"], Block(4), max_new_tokens=4)


# --- logits that are no numbers --------------------------------------------------------------------------------------


def spoilt(value: float, from_call: int, everywhere: bool) -> Script:
    script, calls = hashed(0, end_logit=-4.0), []

    def spoil(ids: torch.Tensor, valid: torch.Tensor) -> torch.Tensor:
        calls.append(1)
        logits = script(ids, valid)
        if len(calls) >= from_call:
            logits[..., slice(None) if everywhere else 4] = value
        return logits

    return spoil


@pytest.mark.parametrize("decoder", [SAMPLED, Block(4), DyStruct(structure=fixed(Partition((3, 8))))])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("from_call", [1, 3, 9])
@pytest.mark.parametrize(
    ("value", "everywhere"), [(math.nan, False), (math.nan, True), (math.inf, False), (-math.inf, True)]
)
def test_logits_that_are_no_numbers_end_decoding_with_one_sentence(
    decoder, temperature: float, from_call: int, value: float, everywhere: bool
) -> None:
    with pytest.raises(UserError, match=r"logits.*'abc'.*weights") as caught:
        decode(spoilt(value, from_call, everywhere), ["abc"], decoder, temperature=temperature)
    assert str(caught.value).count("\n") == 0 and str(caught.value).endswith(".")


def forbidding(*tokens: int):
    """An output projection that gives some tokens the logit -inf."""

    def project(self: Network, hidden: torch.Tensor) -> torch.Tensor:
        logits = hidden.clone()
        logits[..., list(tokens)] = -torch.inf
        return logits

    return mock.patch.object(Network, "__call__", project)


@pytest.mark.parametrize("decoder", [SAMPLED, Block(4)])
def test_a_token_that_is_impossible_is_no_error(decoder: DyStruct | Block) -> None:
    with forbidding(4, 7):
        (generation,) = decode(hashed(0, end_logit=-4.0), ["abc"], decoder)
    assert generation.tokens and not {4, 7} & set(generation.tokens)


@pytest.mark.parametrize("decoder", [SAMPLED, Block(4)])
def test_a_single_possible_token_has_no_margin_and_is_an_error_of_the_user(decoder: DyStruct | Block) -> None:
    with forbidding(*(token for token in range(VOCABULARY) if token != 5)), pytest.raises(UserError, match="logits"):
        decode(hashed(0), ["abc"], decoder)


def test_a_canvas_has_room_for_every_row_at_its_longest() -> None:
    canvas = Canvas(2, 5, MASK, torch.device("cpu"))
    canvas.reserve(3, VOCABULARY)
    assert canvas.widest == 3
    for (a, b), inside in zip(pairwise([0, 2, 5]), ([True, True, False], [True] * 3), strict=True):
        region = canvas.region([0, 1], [(a, b), (2, 5)])
        assert region.inside[0].tolist() == inside
