"""The replay page's data and file: they say what the trace says, hold whatever texts there are, and load nothing."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import json
import math
import re
import tomllib
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from dystruct.decoding import DyStruct, Generation, generate
from dystruct.decoding.replay import replay_page
from dystruct.decoding.replay.record import KINDS, record
from dystruct.decoding.terminal.cli import app
from dystruct.decoding.wording import TokenTexts, literal
from dystruct.model import Context, concentrations
from oracles import Enumerated
from replay_runs import DECODERS, HOSTILE, PRIOR, by_hand, decoded, hostile
from scripted import backbone, hashed, uneven_weights

FOLDER = Path(__file__).parent.parent / "decoding" / "replay"


class Markup(HTMLParser):
    """Elements of a page with their attributes, and the text of its scripts and styles."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[tuple[str, str]] = []
        self._inside: str | None = None
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        self._inside = tag if tag in ("script", "style") else None
        if self._inside:
            self.texts.append((tag, ""))

    def handle_endtag(self, tag: str) -> None:
        self._inside = None

    def handle_data(self, data: str) -> None:
        if self._inside:
            tag, before = self.texts[-1]
            self.texts[-1] = (tag, before + data)

    @property
    def data(self) -> Any:
        """What the page is fed."""
        return json.loads(self.texts[1][1])


# --- the data ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", DECODERS)
def test_the_record_says_what_every_pass_did(name: str) -> None:
    generation = decoded(name)
    data = record(generation)
    shown = TokenTexts.of(generation)
    assert [shown(token) for token in data["ids"]] == data["texts"]
    steps = [(at, step) for at, window in enumerate(generation.windows) for step in window.steps]
    assert len(data["steps"]) == len(steps)
    for row, (at, step) in zip(data["steps"], steps, strict=True):
        number, kind, window, block, remasked, commits, splices = row
        assert (number, KINDS[kind], window, None if block < 0 else block) == (step.number, step.kind, at, step.block)
        for flat, changes in ((remasked, step.remasked), (commits, step.commits)):
            positions, tokens, confidences = flat[::3], flat[1::3], flat[2::3]
            assert list(positions) == [change.position for change in changes]
            assert [data["ids"][token] for token in tokens] == [change.token for change in changes]
            assert confidences == pytest.approx([change.confidence for change in changes], rel=1e-3)
        assert [splices[i : i + 3] for i in range(0, len(splices), 4)] == [
            [splice.position, splice.removed, splice.inserted] for splice in step.spliced
        ]
        inserted = [None if token < 0 else data["ids"][token] for token in splices[3::4]]
        assert inserted == [splice.token for splice in step.spliced]


@pytest.mark.parametrize("name", ["sample", "map", "none"])
def test_map_and_block_count_are_those_of_all_partitions(name: str) -> None:
    generation = decoded(name)
    windows = record(generation)["windows"]
    assert len(windows) >= 2
    for window, shown in zip(generation.windows, windows, strict=True):
        chosen, structure = window.structure, shown["structure"]
        assert chosen is not None
        context = Context(window.opened.previous_instability)
        alpha = concentrations(torch.tensor(chosen.edge_logit, dtype=torch.float64), context, PRIOR)
        every = Enumerated(chosen.edge_logit, alpha.tolist())
        log, cuts = every.best()
        exact = structure["exact"]
        assert exact["log"] == pytest.approx(log, rel=1e-3)
        assert len(exact["map"]) == cuts + 1 and exact["map"][-1] == window.opened.length
        assert exact["count"] == pytest.approx(every.block_count(), rel=1e-3)
        assert structure["cuts"] == pytest.approx(every.cut_marginals(), rel=1e-3)
        assert structure["log"] <= exact["log"] + 1e-3
        if name == "map":
            assert tuple(exact["map"]) == chosen.ends and structure["log"] == exact["log"]


def test_a_posterior_that_cannot_be_computed_again_is_left_out() -> None:
    """By hand: nothing says under which prior; a prior that gives other marginals; one that is none."""
    generation = by_hand()
    priors: list[Any] = [None, dataclasses.asdict(PRIOR), {"concentration": -1.0}, {"unknown": 1}, 3]
    for prior in priors:
        changed = dataclasses.replace(generation, settings={**generation.settings, "prior": prior})
        structure = record(changed)["windows"][0]["structure"]
        assert structure["exact"] is None and structure["cuts"] == [0.125, 0.75, 0.25]


def test_numbers_that_json_has_not_are_null() -> None:
    generation = by_hand()
    (window,) = generation.windows
    assert window.structure is not None
    structure = dataclasses.replace(window.structure, log_probability=-math.inf, entropy=math.nan)
    changed = dataclasses.replace(generation, windows=(dataclasses.replace(window, structure=structure),))
    shown = Markup(replay_page(changed)).data["runs"][0]["windows"][0]["structure"]
    assert shown["log"] is None and shown["entropy"] is None


@pytest.mark.parametrize(
    "field", ["instability", "edge_logit", "cut_marginals", "block_instability", "passes", "ends", "order"]
)
def test_a_structure_whose_parts_do_not_fit_is_refused_and_nothing_is_written(tmp_path: Path, field: str) -> None:
    generation = by_hand()
    (window,) = generation.windows
    assert window.structure is not None
    structure = dataclasses.replace(window.structure, **{field: getattr(window.structure, field)[:-1]})
    damaged = dataclasses.replace(generation, windows=(dataclasses.replace(window, structure=structure),))
    path = tmp_path / "page.html"
    path.write_text("what stood here")
    with pytest.raises(ValueError, match=r"^The trace does not fit together .*; save it again\.$"):
        generation.to_html(path, beside=damaged)
    assert path.read_text() == "what stood here" and len(list(tmp_path.iterdir())) == 1


def test_passes_that_do_not_lead_to_the_tokens_are_refused() -> None:
    with pytest.raises(ValueError, match="save it again"):
        replay_page(dataclasses.replace(by_hand(), tokens=(0, 1, 2, 3, 0)))


# --- the file ------------------------------------------------------------------------------------------------------


def check_page(page: str, runs: int) -> Markup:
    """The page loads nothing, runs one script of ours and takes everything else as data."""
    markup = Markup(page)
    assert [tag for tag, _ in markup.texts] == ["style", "script", "script"]
    for tag, attributes in markup.elements:
        assert not any(name.startswith("on") or name in ("style", "srcdoc") for name in attributes), (tag, attributes)
        for name in ("src", "href", "action", "formaction", "poster", "srcset"):
            assert attributes.get(name) in (None, "data:,"), (tag, attributes)
        assert tag not in ("img", "iframe", "object", "embed", "base", "form", "b"), tag
    (policy,) = [a["content"] for t, a in markup.elements if a.get("http-equiv") == "Content-Security-Policy"]
    rules = dict(rule.strip().split(" ", 1) for rule in str(policy).split(";"))
    assert rules["default-src"] == "'none'"
    for rule, (_, text) in (("style-src", markup.texts[0]), ("script-src", markup.texts[2])):
        assert rules[rule] == f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
    assert len(markup.data["runs"]) == runs
    return markup


@pytest.mark.parametrize("name", DECODERS)
def test_the_page_is_one_file_that_loads_nothing(name: str) -> None:
    generation = decoded(name)
    page = check_page(replay_page(generation), 1)
    assert page.data["runs"] == [json.loads(json.dumps(record(generation)))]
    both = check_page(replay_page(generation, by_hand()), 2)
    assert [run["name"] for run in both.data["runs"]][1] == "sample"


def test_the_style_and_the_scripts_name_no_address() -> None:
    parts = [path for path in FOLDER.iterdir() if path.suffix in (".js", ".css", ".html")]
    assert len(parts) >= 8
    for path in parts:
        text = path.read_text(encoding="utf-8").replace("http://www.w3.org/2000/svg", "")
        assert not re.search(r"https?:|//\w+\.|url\(|@import|\bimport\b|fetch\(|XMLHttpRequest|WebSocket", text), path
        assert not re.search(r"(inner|outer)HTML|insertAdjacentHTML|document\.write|\beval\(|new Function", text), path
        if path.suffix == ".js":
            assert not re.search(r"</?script|<!--", text, re.IGNORECASE), path


def test_hostile_texts_are_data() -> None:
    plain = check_page(replay_page(decoded("sample"), by_hand()), 2)
    bad = hostile(decoded("sample")), hostile(by_hand())
    found = check_page(replay_page(*bad), 2)
    assert found.elements == plain.elements, "the same markup, whatever the texts"
    for generation, run in zip(bad, found.data["runs"], strict=True):
        assert run["prompt"] == literal("".join(HOSTILE)) and run["text"] == literal(generation.text)
        shown = {TokenTexts.of(generation)(token) for token in generation.token_texts}
        assert set(run["texts"]) == shown


pieces = st.sampled_from([*HOSTILE, "<", ">", "&", "/", "script", "-->", "\n", "{{", "}}", "policy", "é", "文"])


@settings(deadline=None, max_examples=60)
@given(st.lists(st.one_of(pieces, st.text()), min_size=1, max_size=12))
def test_no_text_changes_the_markup_or_gets_lost(texts: list[str]) -> None:
    bad = hostile(by_hand(), ("".join(texts), *texts))
    page = replay_page(bad)
    found = Markup(page)
    assert found.elements == Markup(replay_page(by_hand())).elements
    assert found.data["runs"] == [json.loads(json.dumps(record(bad)))]
    json_text = found.texts[1][1]
    assert json_text.isascii() and not set("<>&") & set(json_text)


def test_a_trace_of_256_tokens_makes_a_page_below_a_megabyte(tmp_path: Path) -> None:
    model = backbone(hashed(4, end_logit=-50.0), weights=uneven_weights())
    (generation,) = generate(model, ["abcabc"], DyStruct("sample", passes="share"), max_new_tokens=256, budget=400)
    assert len(generation.tokens) == 256
    generation.to_html(tmp_path / "page.html", beside=generation)
    assert 20_000 < (tmp_path / "page.html").stat().st_size < 1_000_000


def test_a_page_of_a_loaded_trace_is_the_same(tmp_path: Path) -> None:
    generation = decoded("sample")
    generation.save(tmp_path / "trace.json")
    generation.to_html(tmp_path / "before.html")
    Generation.load(tmp_path / "trace.json").to_html(tmp_path / "after.html")
    assert (tmp_path / "before.html").read_bytes() == (tmp_path / "after.html").read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["after.html", "before.html", "trace.json"]


def test_a_trace_without_passes_has_a_page() -> None:
    empty = dataclasses.replace(
        by_hand(), tokens=(), text="", windows=(), passes={}, useful_tokens=0, wasted_tokens=0, stop_reason="budget"
    )
    assert check_page(replay_page(empty), 1).data["runs"][0]["steps"] == []


def test_every_part_of_the_page_is_installed() -> None:
    """A file that `package-data` leaves out is there in an editable install and missing from a wheel."""
    project = tomllib.loads((FOLDER.parent.parent / "pyproject.toml").read_text())
    patterns = project["tool"]["setuptools"]["package-data"]["dystruct.decoding.replay"]
    parts = {path for path in FOLDER.iterdir() if path.is_file() and path.suffix != ".py"}
    assert parts and parts == {path for pattern in patterns for path in FOLDER.glob(pattern)}


# --- the command line ----------------------------------------------------------------------------------------------


@pytest.fixture
def traces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    decoded("map").save("map.json")
    decoded("sample").save("sample.json")
    return tmp_path


def test_show_writes_the_page(traces: Path) -> None:
    for arguments, beside in (((), None), (("--beside", "sample.json"), decoded("sample"))):
        result = CliRunner().invoke(app, ["show", "map.json", "--html", "page.html", *arguments])
        assert result.exit_code == 0 and not result.stdout
        assert Path("page.html").read_text(encoding="utf-8") == replay_page(decoded("map"), beside)


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (("--beside", "sample.json"), "--beside has no use without --html"),
        (("--html", "page.html", "--svg", "picture.svg"), "exclude each other"),
        (("--html", "nowhere/page.html"), "no folder 'nowhere'"),
        (("--html", "page.html", "--beside", "nowhere.json"), "'nowhere.json'"),
        (("--html", "page.html", "--until", "3"), "--until has no use without --svg"),
        (("--html", "page.html", "--beside", "odd.json"), "does not fit together"),
    ],
)
def test_show_refuses_what_makes_no_page(traces: Path, arguments: tuple[str, ...], part: str) -> None:
    generation = decoded("sample")
    window = generation.windows[0]
    assert window.structure is not None
    structure = dataclasses.replace(window.structure, cut_marginals=())
    dataclasses.replace(
        generation, windows=(dataclasses.replace(window, structure=structure), *generation.windows[1:])
    ).save("odd.json")
    before = sorted(path.name for path in traces.iterdir())
    result = CliRunner().invoke(app, ["show", "map.json", *arguments])
    assert result.exit_code == 2 and not result.stdout
    assert re.fullmatch(r"dystruct: [^\n]+\.\n", result.stderr) and part in result.stderr
    assert sorted(path.name for path in traces.iterdir()) == before
