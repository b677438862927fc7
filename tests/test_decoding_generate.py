"""What `generate` asks of its arguments, what it records of them, and its warning of a model never calibrated."""

from __future__ import annotations

import dataclasses
import functools
import json
import warnings
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, get_args, get_type_hints

import numpy as np
import pytest

from dystruct.decoding import Block, Commit, Daedal, DyStruct, Generation, Pass, Remask, Row, UserError, generate
from dystruct.decoding.sampling import Sampling
from dystruct.decoding.wording import STOPS
from dystruct.inference import RULES
from dystruct.model import EvidenceWeights, PriorConfig
from scripted import EOS, VOCABULARY, backbone, hashed

MODEL = backbone(hashed(0, end_logit=-4.0))


@pytest.mark.parametrize(
    ("name", "value"),
    [(name, value) for name in ("max_new_tokens", "budget", "batch_size") for value in (0, -3, 2.0, "7", None)]
    + [("seed", -1), ("seed", 0.5), ("seed", None)]
    + [("temperature", value) for value in (-0.1, float("nan"), float("inf"), "warm", None)],
)
def test_a_limit_that_cannot_be_is_refused_by_name(name: str, value: Any) -> None:
    with pytest.raises(UserError, match=f"^{name} must be .*{value!r}\\.$"):
        generate(MODEL, ["abc"], Block(), **{name: value})


@pytest.mark.parametrize("prompt", ["", "  ", "\n\t"])
def test_an_empty_prompt_is_refused_and_nothing_is_decoded(prompt: str) -> None:
    before = len(MODEL.network.batches)
    with pytest.raises(UserError, match="empty"):
        generate(MODEL, ["abc", prompt], Block())
    assert len(MODEL.network.batches) == before


def test_a_prompt_of_which_the_tokenizer_knows_nothing_is_refused() -> None:
    class Deaf:
        def __call__(self, text: str, add_special_tokens: bool) -> dict[str, list[int]]:
            return {"input_ids": []}

    with pytest.raises(UserError, match="no token"):
        generate(dataclasses.replace(MODEL, tokenizer=Deaf()), ["abc"], Block())


@pytest.mark.parametrize("place", range(3))
@pytest.mark.parametrize(("wrong", "said"), [("", "is empty"), ("\n", "is empty"), ("a" * 600, "has 600 tokens")])
def test_which_of_several_prompts_is_refused_is_said(wrong: str, said: str, place: int) -> None:
    prompts = ["abc", "b", "ca"]
    prompts[place] = wrong
    with pytest.raises(UserError, match=rf"^prompts\[{place}\] {said}"):
        generate(MODEL, prompts, Block())
    with pytest.raises(UserError, match=f"^The prompt {said}"):
        generate(MODEL, [wrong], Block())


def test_one_text_instead_of_a_list_is_refused() -> None:
    with pytest.raises(UserError, match="list"):
        generate(MODEL, "abc", Block())


def test_no_prompts_give_no_texts() -> None:
    assert generate(MODEL, [], Block()) == []


@pytest.mark.parametrize(
    ("length", "remedy"), [(500, "ask for at most 12 new tokens"), (512, "shorten it"), (600, "shorten it")]
)
def test_a_prompt_that_does_not_fit_the_context_is_refused_with_what_would(length: int, remedy: str) -> None:
    with pytest.raises(UserError, match=f"{length} tokens.*'scripted' is 512 tokens; {remedy}"):
        generate(MODEL, ["a" * length], Block(), max_new_tokens=13)
    if length == 500:
        (generation,) = generate(MODEL, ["a" * length], Block(), max_new_tokens=12)
        assert len(generation.tokens) == 12


def test_the_settings_tell_how_a_text_was_made_and_can_be_written() -> None:
    weights = EvidenceWeights.neutral()
    decoder = DyStruct(
        structure=RULES["sample"].with_length("mean"), prior=PriorConfig(4, 9), weights=weights, weld="joint"
    )
    (generation,) = generate(MODEL, ["abc"], decoder, max_new_tokens=9, budget=50, temperature=0.5, seed=3)
    settings = generation.settings
    assert settings["decoder"] == "DyStruct" and settings["structure"] == "sample" and settings["weld"] == "joint"
    assert settings["prior"]["max_length"] == 9 and settings["weights"]["position"] == weights.position.tolist()
    assert [settings[name] for name in ("max_new_tokens", "budget", "temperature", "seed")] == [9, 50, 0.5, 3]
    assert json.loads(json.dumps(settings)) == settings
    assert generation.model == "scripted"
    assert "".join(generation.token_texts[t] for t in generation.tokens) == generation.text


class LeftToRight:
    """A decoder of one's own: all that the engine asks is `widest` and `decode`."""

    widest = 1

    def decode(self, row: Row) -> Iterator[Pass]:
        while row.remaining > 0 and row.passes_left > 0:
            window = row.open_window(1)
            yield Pass("resolve", window.start, window.start + 1, 1)
            row.close_window(*row.read_window())


def test_a_decoder_of_ones_own_need_only_be_a_coroutine_over_passes() -> None:
    (own,) = generate(MODEL, ["abc"], LeftToRight(), max_new_tokens=10)
    (block,) = generate(MODEL, ["abc"], Block(1), max_new_tokens=10)
    assert own.tokens == block.tokens and own.settings["decoder"] == "LeftToRight"


def test_the_default_decoder_is_dystruct() -> None:
    (default,) = generate(MODEL, ["abc"], max_new_tokens=10)
    (named,) = generate(MODEL, ["abc"], DyStruct(), max_new_tokens=10)
    assert default.tokens == named.tokens and default.settings == named.settings


def test_a_model_never_calibrated_is_warned_of_only_where_its_weights_are_used() -> None:
    raw = dataclasses.replace(MODEL, calibrated=False)
    with pytest.warns(UserWarning, match="'scripted' has no calibrated.*dystruct calibrate"):
        generate(raw, ["abc"], DyStruct(), max_new_tokens=4)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        generate(raw, ["abc"], Block(), max_new_tokens=4)
        generate(raw, ["abc"], DyStruct(weights=EvidenceWeights.neutral()), max_new_tokens=4)
        generate(MODEL, ["abc"], DyStruct(), max_new_tokens=4)


# --- what a decoder of one's own may not ask for ----------------------------------------------------------------------


@pytest.mark.parametrize("more", [{"remask": ((0, 4, 2),)}, {"threshold": 0.5}, {"remask": ((0, 1, 0),), "parts": ()}])
@pytest.mark.parametrize("kind", ["resolve", "weld", "diagnostic"])
def test_a_pass_whose_commits_are_the_decoders_own_does_nothing_by_itself(kind: Any, more: dict[str, Any]) -> None:
    """What it remasked by itself would be on no record; a number of commits may stand beside either."""
    with pytest.raises(UserError, match=r"^A pass with commit=None .*Row\.remask.*\.$"):
        Pass(kind, 0, 4, None, **more)
    assert Pass(kind, 0, 4, 0, **more).commit == 0


@pytest.mark.parametrize("guidance", [0.0, 1.0])
@pytest.mark.parametrize("windows", range(4))
@pytest.mark.parametrize("budget", range(7, 11))
def test_a_decoder_that_ends_early_says_whether_the_budget_let_it_go_on(
    budget: int, windows: int, guidance: float
) -> None:
    """Windows of four tokens, a pass each, which costs one of the budget or two; three windows are the limit."""
    cost = 2 if guidance else 1

    class Windows:
        widest = None

        def decode(self, row: Row) -> Iterator[Pass]:
            for start in range(0, 4 * windows, 4):
                row.open_window(4)
                for _ in range(4 // cost):
                    if row.passes_left >= cost:
                        yield Pass("resolve", start, start + 4, cost, sampling=Sampling(guidance=guidance))
                row.close_window(row.read_tokens())
                if row.passes_left < cost:
                    return

    (found,) = generate(backbone(hashed(3, end_logit=-9.0)), ["abc"], Windows(), max_new_tokens=12, budget=budget)
    spent = budget - found.forward_passes < cost
    assert found.stop_reason == ("length" if len(found.tokens) == 12 else "budget" if spent else "decoder")
    assert {0: 0, 1: 4}.get(windows, found.forward_passes) == found.forward_passes


def test_a_decoder_that_finds_its_own_length_ended_of_itself() -> None:
    decoder = Daedal(initial_length=8, eos_threshold=0, eos_check_tokens=1)
    (found,) = generate(backbone(hashed(3, end_logit=-9.0)), ["abc"], decoder, max_new_tokens=64)
    assert found.stop_reason == "decoder" and len(found.tokens) < 64 and found.forward_passes < 256


def test_each_reason_to_stop_has_its_words() -> None:
    assert tuple(STOPS) == get_args(get_type_hints(Generation)["stop_reason"])


@pytest.mark.parametrize("opened", [1, 2])
def test_a_decoder_that_leaves_its_window_open_is_refused(opened: int) -> None:
    """What stands there would be on no record."""

    def leave(row: Row) -> Iterator[Pass]:
        for window in range(opened):
            if window:
                row.close_window(row.read_tokens())
            start = row.open_window(4).start
            yield Pass("resolve", start, start + 4, 4)

    decoder = SimpleNamespace(decode=leave, widest=4)
    with pytest.raises(UserError, match=r"ended with its window open; let it call Row\.close_window\.$"):
        generate(MODEL, ["abc"], decoder, max_new_tokens=8)


@dataclasses.dataclass(frozen=True)
class Own:
    """A decoder of one's own: two windows of eight; in the second it does what a test says."""

    act: Callable[[Row], Any]
    widest: Any = 8

    def decode(self, row: Row) -> Iterator[Pass]:
        for act in (lambda row: None, self.act):
            window = row.open_window(min(8, row.remaining))
            yield from act(row) or ()
            yield Pass("resolve", window.start, row.length, 8)
            row.close_window(row.read_tokens())


def refused(act: Callable[[Row], Any], *, widest: int | None = 8, **limits: Any) -> str:
    """What a decoder that does this in its second window, positions 8 to 16 of 24, is told: one sentence."""
    limits = {"max_new_tokens": 24, "budget": 4, **limits}
    generate(MODEL, ["abc"], Own(lambda row: None, widest), **limits)
    with pytest.raises(UserError) as caught:
        generate(MODEL, ["abc"], Own(act, widest), **limits)
    message = str(caught.value)
    assert message.endswith(".") and "\n" not in message and len(message) < 240
    return message


def passing(*positions: Any, **fields: Any) -> Callable[[Row], Iterator[Pass]]:
    return lambda row: iter([Pass(*positions, **fields)])


@pytest.mark.parametrize("commit", [2, None])
@pytest.mark.parametrize(
    "span", [(8, 17), (12, 12), (12, 9), (16, 20), (-2, 4), (-4, -2), (8.0, 12), (8, None), ("8", 9), (True, 9)]
)  # fmt: skip
def test_a_pass_beyond_the_open_window_is_refused(span: Any, commit: int | None) -> None:
    assert refused(passing("resolve", *span, commit)).startswith("The decoder Own asks for a resolve pass of ")


@pytest.mark.parametrize(
    "fields",
    [
        *({"parts": parts} for parts in (((8, 11), (10, 12)), ((10, 12), (8, 9)), ((8, 8),), ((7, 9),), ((9, 14),))),
        *({"remask": spans} for spans in (((8, 11, 1), (10, 12, 1)), ((0, 4, 2),), ((8, 17, 2),), ((8, 9, -1),))),
        *({"masked": count} for count in (0, -1, 5, 2.0)), *({"visible": end} for end in (11, 17, -1)),
        {"prefix": -1}, {"commit": -1}, {"commit": 1.5}, {"kind": "whim"},
    ],
)  # fmt: skip
def test_a_pass_whose_numbers_do_not_fit_is_refused(fields: dict[str, Any]) -> None:
    given = {"kind": "resolve", "start": 8, "end": 12, "commit": 1, **fields}
    assert refused(passing(**given)).startswith(f"The decoder Own asks for a {given['kind']} pass of 8 to 12 that ")


def test_numpys_numbers_are_numbers() -> None:
    def act(row: Row, of: Any = np.int64) -> Iterator[Pass]:
        yield Pass("resolve", of(8), of(16), None, visible=of(16), prefix=of(8))
        row.commit([row.read_figures().at(of(9))])
        yield Pass("resolve", of(8), of(16), of(1), remask=((of(8), of(16), of(1)),), parts=((of(8), of(12)),))

    own, numpys = (
        generate(MODEL, ["abc"], Own(functools.partial(act, of=of), None), max_new_tokens=16)[0]
        for of in (int, np.int64)
    )  # fmt: skip
    assert own.tokens == numpys.tokens and own.windows == numpys.windows


def test_a_pass_may_not_commit_before_the_window_but_look_there() -> None:
    assert "8 to 16, which are open to it" in refused(passing("resolve", 4, 12, 2))
    looking = Own(passing("resolve", 4, 12, None, figures=("own",), everywhere=True))
    assert len(generate(MODEL, ["abc"], looking, max_new_tokens=16)[0].tokens) == 16


@pytest.mark.parametrize("guidance", [0.0, 1.0])
@pytest.mark.parametrize("budget", range(2, 8))
def test_no_pass_is_made_beyond_the_budget(budget: int, guidance: float) -> None:
    request = Pass("resolve", 8, 16, 1, sampling=Sampling(guidance=guidance))
    message = refused(lambda row: iter([request] * 9), budget=budget)
    assert "takes more of the budget than the " in message


def test_what_is_no_pass_is_refused() -> None:
    for given in ("x", None, (8, 12), Pass):
        assert "which is no Pass" in refused(lambda row, given=given: iter([given]))


@pytest.mark.parametrize(
    "change",
    [
        *(lambda row, p=p: row.commit([Commit(p, 5, 0.5)]) for p in (-1, 0, 7, 16, 8.0)),
        *(lambda row, p=p: row.remask([Remask(p, 5, 0.5)]) for p in (-1, 0, 7, 16)),
        *(lambda row, t=t: row.commit([Commit(9, t, 0.5)]) for t in (-1, VOCABULARY)),
        lambda row: row.commit([Commit(9, 5, 0.5), Commit(9, 6, 0.5)]),
        *(lambda row, s=s: row.splice(*s) for s in ((7, 1, 1), (10, 7, 0), (10, -1, 0), (10, 1, -1), (17, 0, 1))),
        *(lambda row, t=t: row.splice(10, 1, 1, t) for t in (-1, VOCABULARY)),
        *(lambda row, p=p: row.read_figures().at(p) for p in (7, 16, -1)),
        *(lambda row, p=p: row.read_figures().unmasked_at(p) for p in (7, 16, -1)),
        *(lambda row, t=t: row.write(t) for t in ([5], [5] * 9, [-1] * 8, [VOCABULARY] * 8)),
        *(lambda row, t=t: row.close_window(t) for t in ([5], [5] * 9, [-1] * 8)),
        lambda row: row.read_masks(),
        lambda row: row.open_window(4),
    ],
)  # fmt: skip
def test_what_reaches_beyond_the_open_window_is_refused(change: Callable[[Row], Any]) -> None:
    def act(row: Row) -> Iterator[Pass]:
        yield Pass("resolve", 8, 16, None, sampling=Sampling(mask_predictable=True))
        change(row)

    refused(act, widest=None)


def test_a_splice_is_refused_where_features_would_not_move_with_it() -> None:
    def act(row: Row) -> Iterator[Pass]:
        yield Pass("resolve", 8, 16, None)
        row.splice(9, 1, 0)

    assert "`widest` be None" in refused(act, widest=8)


def test_what_belongs_to_another_pass_or_window_is_refused() -> None:
    def commits(row: Row) -> None:
        row.commit([Commit(9, 5, 0.5)])

    for call in (commits, Row.read_figures, Row.read_masks):
        assert "The last pass " in refused(call)

    def closed(call: Callable[[Row], Any]) -> Callable[[Row], Any]:
        return lambda row: (row.close_window(row.read_tokens()), call(row))[1]

    for call in (Row.read_tokens, Row.read_window, lambda row: row.write([5] * 8), passing("resolve", 8, 16, 8)):
        assert "No window is open" in refused(closed(call))
    for length in (0, -1, 9, 8.0, True, None):
        assert "cannot be opened" in refused(closed(lambda row, length=length: row.open_window(length)))
    assert "told of 1" in refused(passing("resolve", 8, 16, 8, masked=1))


def test_tokens_that_are_written_are_the_draft() -> None:
    class Writer:
        widest = None

        def decode(self, row: Row) -> Iterator[Pass]:
            row.open_window(4)
            yield Pass("resolve", 0, 4, commit=1)
            row.write([5, EOS, 6, 7])
            assert row.draft == [5, EOS, 6, 7] == row.read_tokens() and row.masked(0, 4) == [] and row.ended
            row.close_window(row.draft)

    (found,) = generate(backbone(hashed(0)), ["a"], Writer())
    assert found.tokens == (5, EOS, 6, 7)


@pytest.mark.parametrize("read", [Row.read_window, Row.read_diagnostics, Row.read_predictions])
@pytest.mark.parametrize("looking", [(0,), (1,), (2,), (0, 1, 2), ()])
@pytest.mark.parametrize("widest", [8, None])
def test_features_of_passes_that_nobody_observed_are_refused(
    read: Callable[[Row], Any], looking: tuple[int, ...], widest: int | None
) -> None:
    """Also where other passes of the window were observed: what they say is not of all of them."""

    def act(row: Row) -> Iterator[Pass]:
        for number in range(3):
            yield Pass("resolve", 8, 16, None if number in looking else 1)
        read(row)

    if looking or widest is None:
        assert "Row.read_tokens" in refused(act, widest=widest, budget=6)
    else:
        generate(MODEL, ["abc"], Own(act), max_new_tokens=24)


def test_a_window_behind_one_that_nobody_observed_has_its_features() -> None:
    def decode(row: Row) -> Iterator[Pass]:
        row.open_window(8)
        yield Pass("resolve", 0, 8, None)
        row.commit(map(row.read_figures().at, range(8)))
        row.close_window(row.read_tokens())
        row.open_window(8)
        yield Pass("resolve", 8, 16, 8)
        row.close_window(*row.read_window())

    decoder = SimpleNamespace(decode=decode, widest=8)
    looked, observed = generate(MODEL, ["abc"], decoder, max_new_tokens=16)[0].windows
    block = generate(MODEL, ["abc"], Block(8, passes=1), max_new_tokens=16)[0].windows
    assert looked.closed.tokens == block[0].closed.tokens and looked.closed.position_features == ()
    assert observed.closed == block[1].closed


@pytest.mark.parametrize("widest", [0, -1, 2.0, "8", True])
def test_a_decoder_says_how_wide_its_windows_are(widest: Any) -> None:
    with pytest.raises(UserError, match=r"^The decoder Own must have `widest`, .*\.$"):
        generate(MODEL, ["abc"], Own(lambda row: None, widest))


def test_a_decoder_without_widest_or_passes_is_refused() -> None:
    class Bare:
        def decode(self, row: Row) -> Any:
            return None

    with pytest.raises(UserError, match=r"^The decoder Bare must have `widest`"):
        generate(MODEL, ["abc"], Bare())  # type: ignore[arg-type]
    Bare.widest = None  # type: ignore[attr-defined]
    with pytest.raises(UserError, match=r"^The decoder Bare gives None instead of passes"):
        generate(MODEL, ["abc"], Bare())  # type: ignore[arg-type]
