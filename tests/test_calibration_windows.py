"""Windows with known targets: along the reference, on the model's own trajectory, and realignment behind an error."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dystruct.decoding import DyStruct, UserError, generate
from dystruct.decoding.calibration import Known, windows_along_reference, windows_on_own_trajectory
from dystruct.decoding.calibration.alignment import wrong_positions
from dystruct.inference import fixed
from dystruct.inference.calibration import DiagnosedWindow
from dystruct.model import Partition, PriorConfig
from scripted import EOS, FIRST_LETTER, Letters, backbone, hashed, uneven_weights, written

ANSWER = "abcdefghab" * 3
PROMPT = 2  # tokens
STOP = FIRST_LETTER + 9  # j, where it ends a turn


def letter(place: int, text: str = ANSWER) -> int:
    """The token of a text at a response position; the end token behind it."""
    return ord(text[place]) - ord("a") + FIRST_LETTER if place < len(text) else EOS


# --- along the reference ---------------------------------------------------------------------------------------------


def along(wrong_at: frozenset[int], *, shifted: bool = False) -> list[DiagnosedWindow]:
    """Windows along ANSWER of a model that knows it, but for the letters at `wrong_at`; it ends where ANSWER does."""

    def wanted(known: list[int], place: int) -> int:
        right = letter(max(place - PROMPT, 0))
        return right + 1 if place - PROMPT in wrong_at else right

    prior = PriorConfig(min_length=5, max_length=9)
    model = backbone(written(wanted), shifted=shifted)
    return windows_along_reference(model, [Known("ab", ANSWER, "letters")], prior=prior, seed=3)


@pytest.mark.parametrize("shifted", [False, True])
@pytest.mark.parametrize("wrong_at", [frozenset(), frozenset({0}), frozenset({3, 4, 17, 29})])
def test_targets_are_the_places_where_the_prediction_is_not_the_reference(
    wrong_at: frozenset[int], shifted: bool
) -> None:
    found = along(wrong_at, shifted=shifted)
    targets = np.concatenate([window.targets for window in found])
    assert set(np.flatnonzero(targets)) == wrong_at
    assert len(targets) >= len(ANSWER) + 1  # the windows go on until the end token
    for window in found:
        assert window.features.shape == (len(window.targets), 7)
        assert 1 <= len(window.targets) <= 9 and window.domain == "letters"


def test_a_window_opens_behind_the_reference_whatever_the_model_says() -> None:
    seen: list[list[int]] = []

    def wanted(known: list[int], place: int) -> int:
        seen.append(known)
        return FIRST_LETTER + 9

    prior = PriorConfig(min_length=6, max_length=6)
    found = windows_along_reference(backbone(written(wanted)), [Known("ab", ANSWER)], prior=prior, passes=1)
    assert [window.targets.all() for window in found] == [True] * 6
    right = [FIRST_LETTER, FIRST_LETTER + 1] + [letter(place) for place in range(36)]
    for known in seen:
        begin = len(known) - 6
        assert known[:begin] == right[:begin]


def test_a_tentative_commit_that_is_taken_back_is_a_target() -> None:
    # The first position is the surest while everything is masked, and the least sure once something is shown.
    def sure(known: list[int], place: int) -> float:
        if place == PROMPT:
            return 3.0
        return (6.0 if any(token > 1 for token in known[2:11]) else 1.0) + 0.2 * (place % 9)

    script = written(lambda known, place: letter(max(place - PROMPT, 0)), sure)
    prior = PriorConfig(min_length=9, max_length=9)
    found = windows_along_reference(backbone(script), [Known("ab", ANSWER)], prior=prior, passes=4)
    assert found[0].targets[0] == 1
    assert found[0].targets[1:].sum() == 0


def test_features_are_those_of_decoding() -> None:
    """The first window of the reference and of a decoding have the same start, and so the same phi and divergences."""
    model = backbone(hashed(4, end_logit=-4.0), weights=uneven_weights())
    decoder = DyStruct(prior=PriorConfig(9, 9), weld="off")
    known = [Known("abc", "abcdefg"), Known("ca", "bcde")]
    reference = windows_along_reference(model, known, prior=PriorConfig(9, 9))
    for index, problem in enumerate(known):
        (generation,) = generate(model, [problem.prompt], decoder, max_new_tokens=9)
        structure = generation.windows[0].structure
        assert structure is not None
        first = next(window for window in reference if window.problem == index)
        np.testing.assert_allclose(first.features, structure.position_features, atol=1e-6)
        np.testing.assert_allclose(first.gap_divergence, np.array(structure.gap_features)[:, 3], atol=1e-6)


@pytest.mark.parametrize("collect", [windows_along_reference, windows_on_own_trajectory])
def test_neither_the_batch_nor_the_order_matters(collect: Callable[..., list[DiagnosedWindow]]) -> None:
    model = backbone(hashed(4, end_logit=3.0), weights=uneven_weights())
    known = [Known("abc"[: 1 + n % 3] + "abcdefgh"[n], ANSWER[: 5 * n + 1], f"{n}") for n in range(5)]
    together, alone = collect(model, known, seed=2), collect(model, known, seed=2, batch_size=1)
    back = collect(model, known[::-1], seed=2, batch_size=2)
    assert [window.problem for window in together] == sorted(window.problem for window in together)
    back = sorted((replace(window, problem=4 - window.problem) for window in back), key=lambda window: window.problem)
    for one, other, third in zip(together, alone, back, strict=True):
        assert one.problem == other.problem == third.problem and one.domain == f"{one.problem}" == third.domain
        for name in ("features", "gap_divergence", "targets"):
            np.testing.assert_allclose(getattr(one, name), getattr(other, name), atol=1e-6)
            np.testing.assert_allclose(getattr(one, name), getattr(third, name), atol=1e-6)


@pytest.mark.parametrize("collect", [windows_along_reference, windows_on_own_trajectory])
def test_what_cannot_be_is_refused(collect: Callable[..., list[DiagnosedWindow]]) -> None:
    model = backbone(written(lambda known, place: EOS))
    with pytest.raises(UserError, match="twice"):
        collect(model, [Known("ab", "a"), Known("ab", "b")])
    with pytest.raises(UserError, match="512"):
        collect(model, [Known("ab", "a" * 600)])


# --- realignment -----------------------------------------------------------------------------------------------------

END = 0


def wrong(reference: str, response: str, *starts: int) -> str:
    """The response with a letter in upper case where it is wrong; `.` is the end token, `!` one that is wrong."""
    ids = [END if character == "." else ord(character) for character in response]
    found = wrong_positions([ord(character) for character in reference], ids, [0, *starts], END)
    return "".join(
        {".": "!"}.get(character, character.upper()) if bad else character
        for character, bad in zip(response, found, strict=True)
    )


@pytest.mark.parametrize(
    ("reference", "response", "starts", "expected"),
    [
        ("abcdef", "abcdef..", (3, 6), "abcdef.."),  # right, and waste behind the end
        ("abcdef", "abxdef..", (3, 6), "abXdef.."),  # one wrong, the rest corresponds
        ("abcdef", "abcxdef.", (8,), "abcXDEF."),  # one too many: by position within the window of the error …
        ("abcdef", "abcxdef.", (4,), "abcXdef."),  # … and realigned in the windows behind it
        ("abcdef", "abdef...", (3,), "abDef..."),  # one left out: what came in its place is wrong, then realigned
        ("abcdef", "abxydef.", (4,), "abXYdef."),
        ("abcdef", "abxf....", (3,), "abXf...."),
        ("abcdef", "abc.....", (4,), "abc!...."),  # ended too early: the end token is wrong
        ("abcdef", "abc.xy..", (4,), "abc!XY.."),  # behind the end only end tokens are right
        ("abcdef", "abc.....", (3, 6), "abc!!!.."),  # by position in the window of the error, where more was to come
        ("abcdef", "abcdefgh", (4,), "abcdefGH"),  # did not end
        ("abcdef", "xyzw", (2,), "XYZW"),  # cut off
        ("abcdef", "abcd", (2,), "abcd"),
        ("", "..", (1,), ".."),
        ("", "a.", (1,), "A."),
    ],
)
def test_which_tokens_are_wrong(reference: str, response: str, starts: tuple[int, ...], expected: str) -> None:
    assert wrong(reference, response, *starts) == expected


texts = st.text("abc", max_size=12)


@given(reference=texts, tail=st.integers(0, 5), start=st.integers(1, 8))
def test_the_reference_itself_is_right(reference: str, tail: int, start: int) -> None:
    response = reference + "." * (tail + 1)
    assert wrong(reference, response, start) == response


@given(reference=texts, response=texts, width=st.integers(1, 6))
def test_laws_of_the_alignment(reference: str, response: str, width: int) -> None:
    response += "..."
    starts = range(width, len(response), width)
    marked = wrong(reference, response, *starts)
    bad = [shown != character for shown, character in zip(marked, response, strict=True)]
    assert len(marked) == len(response)
    padded = reference + "." * len(response)
    differs = [character != wanted for character, wanted in zip(response, padded, strict=False)]
    if not any(differs):
        assert not any(bad)
        return
    first = differs.index(True)
    behind = (first // width + 1) * width  # the windows up to the one of the first error: position by position
    assert bad[:behind] == differs[: len(bad[:behind])]
    right = [c for c, b in zip(response[behind:], bad[behind:], strict=True) if not b and c != "."]
    rest = iter(reference[first:])
    assert all(character in rest for character in right), (
        "what is right behind it occurs in the reference in this order"
    )
    end = response.index(".") + 1
    assert bad[max(end, behind) :] == [False] * (len(response) - max(end, behind))


# --- on the model's own trajectory -----------------------------------------------------------------------------------

ONE_BLOCK = DyStruct(structure=fixed(), prior=PriorConfig(6, 6), passes="share", weights=uneven_weights())


def own(said: str, answer: str, decoder: DyStruct = ONE_BLOCK) -> list[DiagnosedWindow]:
    model = backbone(written(lambda known, place: letter(max(place - PROMPT, 0), said)))
    return windows_on_own_trajectory(model, [Known("ab", answer, "letters")], decoder=decoder)


def test_own_targets_are_the_responses_errors_by_window() -> None:
    found = own("abcdefghijab", "abcdefghijab")
    assert [window.targets.tolist() for window in found] == [[0] * 6] * 3
    assert {window.domain for window in found} == {"letters"}
    # a letter too many in the second window: by position there, realigned in the third
    found = own("abcdefgahijabcdd", "abcdefghijabcdd")
    assert [window.targets.tolist() for window in found] == [[0] * 6, [0, 1, 1, 1, 1, 1], [0] * 6]
    for window in found:
        assert window.features.shape == (6, 7) and window.gap_divergence.shape == (5,)


def test_own_windows_are_those_of_the_decoding() -> None:
    model = backbone(hashed(9, end_logit=1.0), weights=uneven_weights())
    (generation,) = generate(model, ["abc"], DyStruct(passes="share"), max_new_tokens=60)
    found = windows_on_own_trajectory(model, [Known("abc", "cab")], max_new_tokens=60)
    structures = [window.structure for window in generation.windows]
    for window, structure in zip(found, structures, strict=True):
        assert structure is not None
        np.testing.assert_allclose(window.features, structure.position_features)
        if len(window.targets) > 1:
            np.testing.assert_allclose(window.gap_divergence, np.array(structure.gap_features)[:, 3])
    starts = [window.opened.start for window in generation.windows]
    errors = wrong_positions(Letters()("cab", False)["input_ids"], generation.tokens, starts, EOS)
    targets = np.concatenate([window.targets for window in found])
    assert (targets[errors] == 1).all()


def test_what_a_weld_replaces_did_not_stand() -> None:
    # prompt aa, window of 3: block [0, 2) decoded first says bb; block [2, 3) says d; the weld makes it bdd
    def copies_its_right_neighbour(row: list[int], position: int) -> int:
        if position == 4:
            return FIRST_LETTER + 3
        right = row[position + 1] if position + 1 < len(row) else EOS
        return FIRST_LETTER + (3 if right == FIRST_LETTER + 3 else 1)

    script = written(copies_its_right_neighbour, lambda row, position: 1.0 if position == 3 else 2.0)
    decoder = DyStruct(structure=fixed(Partition((2, 3))), weld_radius=1, weights=uneven_weights())
    options = {"max_new_tokens": 3, "decoder": decoder}
    (welded,) = windows_on_own_trajectory(backbone(script), [Known("aa", "bdd")], **options)
    assert welded.targets.tolist() == [0, 1, 0]
    options["decoder"] = replace(decoder, weld="off")
    (without,) = windows_on_own_trajectory(backbone(script), [Known("aa", "bbd")], **options)
    assert without.targets.tolist() == [0, 0, 0]


@pytest.mark.parametrize("answer", ["abc", "abcj"])
@pytest.mark.parametrize("said", [EOS, STOP])
def test_other_end_tokens_are_end_tokens(said: int, answer: str) -> None:
    """Whichever the model says, and if the answer holds one of its own."""
    script = written(lambda known, place: letter(place - PROMPT, "abc") if place - PROMPT < 3 else said)
    model, known = replace(backbone(script), end_ids=frozenset({EOS, STOP})), [Known("ab", answer)]
    (window,) = windows_on_own_trajectory(model, known, decoder=ONE_BLOCK)
    assert window.targets.tolist() == [0] * 6
    for window in windows_along_reference(model, known, prior=PriorConfig(6, 6)):
        assert window.targets.tolist() == [0] * len(window.targets)


@pytest.mark.parametrize("follow", [windows_along_reference, windows_on_own_trajectory])
def test_no_problems_are_refused(follow: Callable[..., object]) -> None:
    with pytest.raises(UserError, match="There are no calibration problems"):
        follow(backbone(hashed(0)), [])
