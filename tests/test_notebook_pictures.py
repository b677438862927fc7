"""What a notebook shows of a generation and of a window, and how each position came to its token."""

from __future__ import annotations

import copy
import dataclasses
import json
import math
import pickle
import re
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree

import matplotlib
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dystruct.decoding import DyStruct, Generation, Window, generate
from dystruct.decoding.unmasking import Placed, Span, placed, spans
from dystruct.decoding.wording import STOPS, TokenTexts, literal
from dystruct.model import Context, concentrations
from oracles import Enumerated
from replay_runs import DECODERS, HOSTILE, PRIOR, by_hand, decoded, diagnosed_late, hostile
from scripted import backbone, hashed, uneven_weights

matplotlib.use("agg")
SIGN = "border-bottom"  # what only tokens have among a picture's styles


def parsed(shown: Generation | Window) -> ElementTree.Element:
    return ElementTree.fromstring(shown._repr_html_())


def text_of(element: ElementTree.Element) -> str:
    return "".join(element.itertext())


def styled(picture: ElementTree.Element, part: str) -> list[ElementTree.Element]:
    return [element for element in picture.iter("span") if part in element.get("style", "")]


# --- how a position came to its token ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", DECODERS)
def test_positions_hold_the_tokens_of_the_last_pass_that_changed_them(name: str) -> None:
    """By the replay: a position holds its token from the pass on that it names, and no later pass commits there."""
    generation = decoded(name)
    held = placed(generation.windows)
    assert tuple(cell.token for cell in held) == generation.tokens
    commits = {
        (step.number, commit.token, commit.confidence, step.kind, step.block)
        for window in generation.windows for step in window.steps for commit in step.commits
    }  # fmt: skip
    assert all((c.number, c.token, c.confidence, c.kind, c.block) in commits for c in held if c.confidence is not None)
    if name == "daedal":  # positions move
        return
    after = {step.number: tokens for step, tokens in generation.replay()}
    for position, cell in enumerate(held):
        assert cell.number is not None
        assert all(tokens[position] == cell.token for number, tokens in after.items() if number >= cell.number)
        last = [s.number for w in generation.windows for s in w.steps if s.kind != "diagnostic"
                for commit in s.commits if commit.position == position]  # fmt: skip
        assert last[-1] == cell.number


def test_positions_of_the_hand_made_run() -> None:
    generation = by_hand()
    assert placed(generation.windows) == [
        Placed(0, 4, "resolve", 0, 0.9),
        Placed(1, 6, "weld", 0, 0.95, taken_back=(4, 5)),
        Placed(2, 5, "weld", 0, 0.75, taken_back=(2, 2)),
        Placed(3, 2, "resolve", 1, 0.8),
        Placed(4, 6, "weld", 0),
    ]
    assert spans(generation.windows[0], placed(generation.windows)) == [Span(0, 2, 0, 2), Span(1, 1, 2, 5)]
    late = placed(diagnosed_late().windows)
    assert [(cell.token, cell.number) for cell in late] == [(1, 3), (1, 3), (2, 3)], "the diagnostic pass masked all"


@pytest.mark.parametrize("name", DECODERS)
def test_spans_are_the_blocks_of_each_window(name: str) -> None:
    generation = decoded(name)
    held = placed(generation.windows)
    for window in generation.windows:
        start, found = window.opened.start, spans(window, held)
        assert [span.start for span in found] == [start, *(span.end for span in found[:-1])]
        assert found[-1].end == start + len(window.closed.tokens)
        assert len({span.block for span in found}) == window.block_count
        by_turn = sorted({(span.turn, span.block) for span in found})
        assert [turn for turn, _ in by_turn] == list(range(1, window.block_count + 1))
        if window.structure is not None:
            assert tuple(block for _, block in by_turn) == window.structure.order
            assert tuple(span.end - start for span in found) == window.structure.ends
        else:
            assert all(
                held[position].block in (span.block, None) for span in found for position in range(span.start, span.end)
            )


def test_the_plot_draws_the_last_commits_and_those_taken_back() -> None:
    ax = by_hand().plot_unmasking()
    drawn = {line.get_label(): line.get_xydata().tolist() for line in ax.lines if not line.get_label().startswith("_")}
    assert drawn["committed once"] == [[0.5, 4], [3.5, 2], [4.5, 6]]
    assert drawn["welded"] == [[1.5, 6], [2.5, 5]] and drawn["taken back by a weld"] == [[1.5, 4], [2.5, 2]]
    assert np.array(drawn["end of a block"])[:, 0].tolist() == [2, 2] and "end of a window" not in drawn
    assert [label.get_text() for label in ax.get_xticklabels()][1] == "␣two"
    numbered = by_hand().plot_unmasking(tokens=False, ax=ax)
    assert numbered is ax and ax.get_xlabel() == "position"


@pytest.mark.parametrize("name", ["joint", "block", "daedal", "hierarchy"])
def test_the_plot_of_any_decoder_has_every_position(name: str) -> None:
    generation = decoded(name)
    ax = generation.plot_unmasking(tokens=False)
    lines = [line for line in ax.lines if line.get_label() in ("committed once", "welded")]
    assert sorted(x for line in lines for x in line.get_xdata()) == [at + 0.5 for at in range(len(generation.tokens))]
    assert ("taken back by a weld" in ax.get_legend_handles_labels()[1]) == (name == "joint"), "no other one welds"


# --- a window ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", DECODERS)
def test_a_window_shows_its_tokens_in_its_blocks(name: str) -> None:
    generation = decoded(name)
    text, held = TokenTexts.of(generation), placed(generation.windows)
    for window in generation.windows:
        picture, found = parsed(window), spans(window, held)
        signs = styled(picture, SIGN)
        assert [text_of(sign) for sign in signs] == [text(token) for token in window.closed.tokens]
        frames = styled(picture, "border:1px solid")
        assert [len(styled(frame, SIGN)) for frame in frames] == [span.end - span.start for span in found]
        for span, frame in zip(found, frames, strict=True):
            label = "".join(text_of(small) for small in frame.iter("small"))
            assert (f"{span.turn}." in label) == (len(found) > 1)
            if window.structure is not None:
                assert f"H {window.structure.block_instability[span.block]:.2f}" in label
                assert f"T {window.structure.passes[span.block]}" in label


@pytest.mark.parametrize("name", ["sample", "map", "none"])
def test_a_window_tells_how_probable_its_partition_and_the_map_are(name: str) -> None:
    """Against all partitions, one by one; a run without inference has no posterior to tell of."""
    generation = decoded(name)
    for window in generation.windows:
        chosen, said = window.structure, text_of(parsed(window))
        assert chosen is not None
        alpha = concentrations(
            torch.tensor(chosen.edge_logit, dtype=torch.float64), Context(window.opened.previous_instability), PRIOR
        )
        every = Enumerated(chosen.edge_logit, alpha.tolist())
        assert (f"P(MAP | O) = {math.exp(every.best()[0]):.2g}" in said) == (name != "none")
        assert (f"P(partition | O) = {math.exp(chosen.log_probability):.2g}" in said) == (name != "none")
        bars = [text_of(title) for title in parsed(window).iter("title") if text_of(title).startswith("gap")]
        assert bars == ([] if name == "none" else [f"gap {gap}: cut with probability {p:.3f}"
                                                   for gap, p in enumerate(every.cut_marginals())])  # fmt: skip


def test_a_window_shows_what_welding_did_and_where_the_text_ends() -> None:
    signs = styled(parsed(by_hand().windows[0]), SIGN)
    styles = [str(sign.get("style")) for sign in signs]
    assert ["double" in style for style in styles] == [False, False, True, False, False], "the same token again"
    assert ["3px solid" in style for style in styles] == [False, True, False, False, False], "another one"
    assert ["opacity" in style for style in styles] == [False, False, False, False, True], "the end token"
    assert signs[1].get("title") == (
        "position 1, confidence 0.95, weld pass 6, welded, was “ wrong”, instability 0.2, P(cut behind) 0.75"
    )


def test_a_window_by_itself_shows_ids() -> None:
    (labelled,) = by_hand().windows
    alone = Window(labelled.opened, labelled.structure, labelled.steps, labelled.closed)
    assert [text_of(sign) for sign in styled(parsed(alone), SIGN)] == ["#0", "#1", "#2", "#3", "#4"]


def test_labels_are_no_part_of_a_window(tmp_path: Path) -> None:
    generation = by_hand()
    (labelled,) = generation.windows
    alone = Window(labelled.opened, labelled.structure, labelled.steps, labelled.closed)
    assert labelled == alone and hash(labelled) == hash(alone)
    generation.save(tmp_path / "trace.json")
    assert "labels" not in (tmp_path / "trace.json").read_text() and "labels" not in repr(labelled)
    content = json.loads((tmp_path / "trace.json").read_text())
    content["windows"][0]["labels"] = {}
    (tmp_path / "labelled.json").write_text(json.dumps(content))
    with pytest.raises(ValueError, match="unknown key 'labels'"):
        Generation.load(tmp_path / "labelled.json")
    shown = labelled._repr_html_()
    for other in (
        Generation.load(tmp_path / "trace.json"),
        copy.deepcopy(generation),
        pickle.loads(pickle.dumps(generation)),
    ):
        assert other == generation and other.windows[0]._repr_html_() == shown
    renamed = dataclasses.replace(generation, token_texts=dict.fromkeys(generation.token_texts, "x"))
    assert renamed.windows[0]._repr_html_() != shown
    assert dataclasses.replace(labelled, steps=labelled.steps)._repr_html_() == shown
    assert generation.windows[0]._repr_html_() == shown, "a copy with other texts leaves the original alone"


# --- a generation --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", DECODERS)
def test_a_generation_shows_its_text_in_bands_of_its_windows(name: str) -> None:
    generation = decoded(name)
    picture = parsed(generation)
    bands = styled(picture, "border-left")
    assert len(bands) == len(generation.windows)
    numbers = [text_of(band[0]) for band in bands]
    assert numbers == [str(place + 1) for place in range(len(bands))]
    assert "".join(str(band[0].tail or "") for band in bands) == literal(generation.text)
    assert STOPS[generation.stop_reason] in text_of(picture)
    wide: Counter[str] = Counter()
    for rect in picture.iter("rect"):
        wide[text_of(rect).rpartition(": ")[2]] += int(str(rect.get("width")))
    assert wide == Counter({kind: count for kind, count in generation.passes.items() if count})


def test_a_text_that_its_tokens_do_not_spell_is_told_as_well() -> None:
    cut = dataclasses.replace(by_hand(), text="one two thr", stop_reason="stop")
    folded = [text_of(details) for details in parsed(cut).iter("details")]
    assert folded == ["PromptHow many?", "Textone two thr"]
    assert [text_of(details) for details in parsed(by_hand()).iter("details")] == ["PromptHow many?"]


def test_a_generation_without_a_pass_shows_itself() -> None:
    empty = dataclasses.replace(
        by_hand(), tokens=(), text="", windows=(), passes={}, useful_tokens=0, wasted_tokens=0, stop_reason="budget"
    )
    assert STOPS["budget"] in text_of(parsed(empty)) and not list(parsed(empty).iter("svg"))


def test_reprs_are_short_and_pictures_small() -> None:
    model = backbone(hashed(4, end_logit=-50.0), weights=uneven_weights())
    (generation,) = generate(model, ["abcabc"], DyStruct("sample", passes="share"), max_new_tokens=256, budget=400)
    assert len(repr([generation])) < 200 and len(repr(generation.windows[0])) < 100
    assert len(generation._repr_html_()) < 20_000
    assert max(len(window._repr_html_()) for window in generation.windows) < 60_000


# --- hostile texts -------------------------------------------------------------------------------------------------


def shape(picture: ElementTree.Element) -> list[tuple[str, dict[str, str]]]:
    """Elements and their attributes, but for what is said in titles."""
    return [(e.tag, {name: value for name, value in e.items() if name != "title"}) for e in picture.iter()]


ALLOWED = {"figure", "figcaption", "b", "small", "div", "span", "details", "summary", "svg", "rect", "path", "title"}
pieces = st.sampled_from([*HOSTILE, "<", ">", "&", '"', "'", "script", "-->", "\n", "\r", "é", "文"])
characters = st.text(st.characters(exclude_characters="\ufffe\uffff"))  # which XML, unlike HTML, has not


def check_markup(picture: ElementTree.Element) -> None:
    for tag, attributes in shape(picture):
        assert tag in ALLOWED
        assert not {name for name in attributes if name.startswith("on") or name in ("src", "href", "id", "class")}
        assert "url" not in attributes.get("style", "")


@settings(deadline=None, max_examples=40)
@given(st.lists(st.one_of(pieces, characters), min_size=1, max_size=8))
def test_no_text_changes_the_markup_or_gets_lost(texts: list[str]) -> None:
    bad = hostile(by_hand(), (*texts, "".join(texts)))
    spelled = "".join(by_hand().token_texts[token] for token in by_hand().tokens)
    texts_of = {"text": spelled} if bad.token_texts[4] else {}
    picture, plain = parsed(bad), parsed(dataclasses.replace(by_hand(), **texts_of))
    check_markup(picture)
    assert shape(picture) == shape(plain)
    (band,) = styled(picture, "border-left")
    assert (band[0].tail or "") == literal("".join(bad.token_texts[token] for token in bad.tokens[:4]))
    window = parsed(bad.windows[0])
    check_markup(window)
    assert shape(window) == shape(parsed(by_hand().windows[0]))
    shown = TokenTexts.of(bad)
    assert [text_of(sign) for sign in styled(window, SIGN)] == [shown(token) for token in bad.tokens]


def test_pictures_take_the_colours_of_the_page() -> None:
    """No opaque ground and no colour of text: only so can both a light and a dark page hold them."""
    for shown in (decoded("sample"), *decoded("sample").windows):
        for _, attributes in shape(parsed(shown)):
            style = attributes.get("style", "")
            assert not re.search(r"(^|;)color:", style)
            assert all(float(alpha) < 0.3 for alpha in re.findall(r"background:rgba\([\d,]+,([\d.]+)\)", style))
            assert "background:rgba" in style or "background" not in style
