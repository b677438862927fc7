"""Rows in a batch: slots are taken at once, and what befalls one row leaves the others alone."""

from __future__ import annotations

import math
import time
from typing import Any

import pytest
import torch

from dystruct.decoding import AdaBlock, Block, Daedal, DecodingFailed, DyStruct, Fast, Fixed, Pass, UserError, generate
from dystruct.decoding.canvas import Canvas, Fresh, Quotas
from dystruct.inference.rules import StructureRule, fixed
from dystruct.model import Context, Partition, PriorConfig
from scripted import EOS, MASK, VOCABULARY, Script, backbone, hashed, uneven_weights
from watching import without_time

PROMPTS = ["ab", "abcdefgh", "c", "jihg", "bc"]
SAMPLED = DyStruct(structure="sample", prior=PriorConfig(4, 12))


def ending_at_once(*first: int) -> Script:
    """Prompts that begin with one of these tokens end at once, others never."""

    def script(ids: torch.Tensor, valid: torch.Tensor) -> torch.Tensor:
        logits = torch.zeros(*ids.shape, VOCABULARY)
        logits[..., 5] = 1.0
        for token in first:
            logits[ids[:, 0] == token, :, EOS] = 9.0
        return logits

    return script


def test_no_slot_waits_for_its_next_prompt() -> None:
    """Of two slots one decodes 16 passes, the other 4 + 4 + 4 + 16: with no pass in between that is 28 calls."""
    model = backbone(ending_at_once(2))
    generations = generate(model, ["b", "a", "a", "a", "b"], Block(4), max_new_tokens=16, batch_size=2)
    assert [g.forward_passes for g in generations] == [16, 4, 4, 4, 16]
    assert model.network.batches == [2] * 16 + [1] * 12


def test_a_decoder_that_wants_no_pass_keeps_no_slot() -> None:
    class Never:
        widest = None

        def decode(self, row: Any) -> Any:
            return iter(())

    model = backbone(hashed(0))
    generations = generate(model, PROMPTS, Never(), batch_size=2)
    assert [g.tokens for g in generations] == [()] * 5 and model.network.batches == []


def test_what_is_finished_is_told_at_once_with_its_share_of_the_time() -> None:
    model, told = backbone(ending_at_once(2)), []
    began = time.perf_counter()
    generations = generate(
        model, ["b", "a", "a", "b"], Block(4), max_new_tokens=16, batch_size=2,
        finished=lambda *of: told.append((*of, len(model.network.batches))),
    )  # fmt: skip
    took = time.perf_counter() - began
    assert [(index, calls) for index, _, _, calls in told] == [(1, 4), (2, 8), (0, 16), (3, 24)]
    assert all(generations[index] is found for index, found, *_ in told)
    shares = [seconds for _, _, seconds, _ in told]
    assert all(seconds > 0 for seconds in shares) and sum(shares) <= took


# --- a row that fails -------------------------------------------------------------------------------------------------


def spoilt(script: Script, first: int) -> Script:
    """Logits of rows whose prompt begins with a token are no numbers once half their masks are gone."""

    def spoil(ids: torch.Tensor, valid: torch.Tensor) -> torch.Tensor:
        logits = script(ids, valid)
        bad = (ids[:, 0] == first) & (((ids == MASK) & valid.bool()).sum(1) < 4)
        logits[bad] = math.nan
        return logits

    return spoil


@pytest.mark.parametrize("decoder", [SAMPLED, Block(5), Fast(block_length=5, threshold=0.9), Fixed(block_length=5)])
@pytest.mark.parametrize("batch_size", [1, 2, 5])
@pytest.mark.parametrize("observe", [None, lambda index, event: None], ids=["unobserved", "observed"])
def test_a_row_with_bad_logits_takes_no_other_with_it(decoder: Any, batch_size: int, observe: Any) -> None:
    settings: dict[str, Any] = {"max_new_tokens": 15, "batch_size": batch_size, "observe": observe}
    script = hashed(2, end_logit=-4.0)
    wanted = generate(backbone(script, weights=uneven_weights()), PROMPTS, decoder, **settings)
    model = backbone(spoilt(script, first=4), weights=uneven_weights())
    with pytest.raises(DecodingFailed, match=r"logits are not finite.*'c'.*weights") as caught:
        generate(model, PROMPTS, decoder, **settings)
    error = caught.value
    assert isinstance(error, UserError) and error.failures.keys() == {2}
    assert error.generations.keys() == {0, 1, 3, 4}
    for index, generation in error.generations.items():
        assert without_time(generation) == without_time(wanted[index])


def test_of_several_failures_the_first_prompts_is_told() -> None:
    model = backbone(spoilt(hashed(2, end_logit=-4.0), first=2))
    with pytest.raises(DecodingFailed, match="'ab'") as caught:
        generate(model, ["c", "ab", "aj"], Block(5), max_new_tokens=15, batch_size=2)
    assert caught.value.failures.keys() == {1, 2} and caught.value.generations.keys() == {0}


@pytest.mark.parametrize("length_rule", ["mean", "mode", "sample"])
def test_a_structure_that_a_window_is_too_long_for_ends_its_sequence_alone(length_rule: str) -> None:
    """A rule's own ValueError is that sequence's failure, and says whose rule it is and why."""
    decoder = DyStruct(structure=fixed(Partition((2, 4))), length_rule=length_rule, prior=PriorConfig(8, 12))
    with pytest.raises(DecodingFailed, match=r"'fixed' gives none for a window of \d+ .* partition 4") as caught:
        generate(backbone(hashed(2), weights=uneven_weights()), ["ab", "c"], decoder, max_new_tokens=15)
    assert caught.value.failures.keys() == {0, 1}


def test_a_length_rule_that_gives_none_ends_its_sequence_alone() -> None:
    def at_first(context: Context, prior: PriorConfig, generator: torch.Generator) -> int:
        if context.remaining != 15:
            raise ValueError("no more than one window")
        return 8

    one_block = StructureRule("own", at_first, lambda exact, streams: exact.map())
    model = backbone(ending_at_once(3), weights=uneven_weights())
    with pytest.raises(DecodingFailed, match="The length rule of 'own' gives no length: no more than") as caught:
        generate(model, ["bc", "cd"], DyStruct(structure=one_block), max_new_tokens=15)
    assert (caught.value.failures.keys(), caught.value.generations.keys()) == ({1}, {0})


# --- what is allocated ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("decoder", [Fast(), Fixed(block_length=4), AdaBlock(), Daedal(initial_length=4)])
def test_nothing_is_kept_for_figures_that_nobody_reads(decoder: Any) -> None:
    kept: list[Canvas] = []
    original = Canvas.__init__

    def make(self: Canvas, *args: Any, **options: Any) -> None:
        original(self, *args, **options)
        kept.append(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Canvas, "__init__", make)
        generate(backbone(hashed(0)), PROMPTS, decoder, max_new_tokens=8)
    (canvas,) = kept
    tensors = {name for name, value in vars(canvas).items() if isinstance(value, torch.Tensor)}
    assert tensors == {"tokens", "commit_confidence", "columns"}
    region, fresh = canvas.region([0], [(0, 2)]), Fresh(torch.zeros(2, dtype=torch.long), torch.zeros(2))
    with pytest.raises(ValueError, match="tentative"):
        canvas.commit(region, fresh, Quotas(torch.ones(1, 1), torch.tensor([[True]])))


def test_a_diagnostic_pass_that_commits_needs_figures() -> None:
    class Forgetful:
        widest = None

        def decode(self, row: Any) -> Any:
            row.open_window(4)
            yield Pass("diagnostic", 0, 4, 2)

    with pytest.raises(UserError, match=r"`widest`\.$"):
        generate(backbone(hashed(0)), ["ab"], Forgetful(), max_new_tokens=4)
