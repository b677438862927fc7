"""The replay page in a headless Chromium: what it shows at every pass, its keys, its names, and what it never does."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import chromium
from chromium import Browser, Page
from dystruct.decoding import Generation
from dystruct.decoding.terminal.wording import TokenTexts, literal
from replay_runs import DECODERS, HOSTILE, by_hand, decoded, diagnosed_late, hostile

pytestmark = pytest.mark.skipif(chromium.binary() is None, reason="no Chromium is installed to open the page with")

Open = Callable[..., Page]

# What each run shows: for every cell that is to be seen its text, None where it is masked.
SHOWN = """[...document.querySelectorAll(".run")].map((run) =>
  [...run.querySelectorAll(".window:not([hidden]) .cell")].map((cell) =>
    /\\b(re)?masked\\b/.test(cell.dataset.marks) ? null : cell.querySelector(".sign").textContent))"""
# Goes through every place of the slider, as a reader who drags it would.
EVERYWHERE = f"""(() => {{
  const slider = document.getElementById("slider"), found = [];
  for (let at = 0; at <= Number(slider.max); at++) {{
    slider.value = at;
    slider.dispatchEvent(new Event("input"));
    found.push([Number(document.body.dataset.pass), {SHOWN}]);
  }}
  return found;
}})()"""


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with chromium.chromium(tmp_path_factory.mktemp("profile")) as browser:
        yield browser


@pytest.fixture(scope="module")
def page(browser: Browser) -> Page:
    """The one tab, in the foreground, where keys and clocks work as for a reader."""
    return browser.page()


@pytest.fixture
def opened(page: Page, tmp_path: Path) -> Iterator[Open]:
    """Opens the page of one trace or two; when it is left, it has asked for itself alone and complained of nothing."""
    paths: list[Path] = []

    def leave() -> None:
        assert page.complaints() == []
        assert {url.partition("#")[0] for url in page.requested() if url != "data:,"} == {paths[-1].as_uri()}
        page.forget()

    def opened(
        generation: Generation, beside: Generation | None = None, *, at: str = "", width: int = 1200, **media: str
    ) -> Page:
        if paths:
            leave()
        paths.append(tmp_path / f"page {len(paths)}.html")
        generation.to_html(paths[-1], beside=beside)
        page.call("Emulation.setDeviceMetricsOverride", width=width, height=800, deviceScaleFactor=1, mobile=False)
        features = [{"name": name.replace("_", "-"), "value": value} for name, value in media.items()]
        page.call("Emulation.setEmulatedMedia", features=features)
        page.open(paths[-1].as_uri() + at)
        return page

    yield opened
    leave()


def state(generation: Generation, number: int) -> list[str | None]:
    """What the run shows behind pass `number`, by `Generation.replay`."""
    if number < generation.windows[0].steps[0].number:
        return [None] * generation.windows[0].opened.length
    texts = TokenTexts.of(generation)
    reached = [tokens for step, tokens in generation.replay() if step.number <= number]
    return [None if token == generation.mask_token else texts(token) for token in reached[-1]]


def card(page: Page) -> str | None:
    return page.run('(({hidden, innerText}) => hidden ? null : innerText)(document.getElementById("card"))')


def here(page: Page) -> int:
    return int(page.run("document.body.dataset.pass"))


def focus(page: Page, query: str, place: int = 0) -> None:
    page.run(f"document.querySelectorAll({query!r})[{place}].focus()")


# --- what it shows -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [*DECODERS, "by hand", "diagnosed late"])
def test_the_slider_shows_every_pass_as_the_trace_replays_it(opened: Open, name: str) -> None:
    generation = {"by hand": by_hand, "diagnosed late": diagnosed_late}.get(name, lambda: decoded(name))()
    found = opened(generation).run(EVERYWHERE)
    numbers = [step.number for window in generation.windows for step in window.steps]
    assert [number for number, _ in found] == [0, *numbers]
    for number, (shown,) in found:
        assert shown == state(generation, number), number


def test_two_runs_go_in_step_by_forward_pass(opened: Open) -> None:
    runs = decoded("map"), decoded("guided")
    found = opened(*runs).run(EVERYWHERE)
    numbers = {step.number for run in runs for window in run.windows for step in window.steps}
    assert [number for number, _ in found] == sorted({0, *numbers})
    for number, shown in found:
        assert shown == [state(run, number) for run in runs], number
    assert found[-1][1] == [[TokenTexts.of(run)(token) for token in run.tokens] for run in runs]


def test_marks_of_the_hand_made_run(opened: Open) -> None:
    """Each pass by hand: what is tentative, fresh, masked again, welded, changed, and behind the end."""
    page = opened(by_hand())
    marks = 'JSON.stringify([...document.querySelectorAll(".window .cell")].map((cell) => cell.dataset.marks))'
    expected = {
        0: ["masked", "masked", "masked", "masked"],
        1: ["masked", "tentative", "masked", "tentative"],
        2: ["masked", "masked", "committed fresh", "committed fresh"],
        4: ["committed fresh", "committed fresh", "committed", "committed"],
        5: ["committed", "remasked again", "committed fresh again", "committed"],
        6: ["committed", "committed fresh changed", "committed again", "committed", "committed fresh wasted"],
    }
    for number, wanted in expected.items():
        page.run(f'location.hash = "#pass={number}"; new Promise((done) => setTimeout(done))')
        assert page.run(f"JSON.parse({marks})") == wanted, number
    page.run('location.hash = "#pass=3"; new Promise((done) => setTimeout(done))')
    assert here(page) == 2, "no pass has the number 3, since guidance took two"


def test_blocks_are_known_once_they_are_drawn(opened: Open) -> None:
    page = opened(by_hand(), at="#pass=0")
    drawn = 'document.querySelector(".window").dataset.drawn'
    assert page.run(drawn) == "false"
    page.press("ArrowRight")
    assert (here(page), page.run(drawn)) == (1, "true")
    blocks = '[...document.querySelectorAll(".window .block")].map((block) => block.getAttribute("aria-label"))'
    assert page.run(blocks) == ["block 1, decoded 2nd", "block 2, decoded 1st"]
    styles = '[...document.querySelectorAll(".window .block")].map((b) => getComputedStyle(b).borderBottomStyle)'
    assert len(set(page.run(styles))) == 2, "neighbours differ by more than their colour"


@pytest.mark.parametrize("name", ["sample", "joint"])
def test_a_weld_names_its_blocks(opened: Open, name: str) -> None:
    """The window of most blocks: a sequential weld works on one boundary, a joint one on all at once."""
    generation = decoded(name)
    window = max(generation.windows, key=lambda window: window.block_count)
    assert window.structure is not None and window.block_count > 2
    first = next(step for step in window.steps if step.kind == "weld")
    page = opened(generation, at=f"#pass={first.number}")
    starts = (0, *window.structure.ends)
    touched = [sum(start <= remask.position - window.opened.start for start in starts) for remask in first.remasked]
    named = f" 1 to {max(touched)}." if name == "joint" else " 1|2."
    assert f"welds blocks{named}" in page.run('document.querySelector(".report").textContent')


@pytest.mark.parametrize("name", ["block", "daedal", "vsb"])
def test_a_run_without_structure_has_no_posterior(opened: Open, name: str) -> None:
    assert opened(decoded(name)).run('document.querySelectorAll(".posterior").length') == 0


def test_the_posterior_of_each_window(opened: Open) -> None:
    generation = decoded("sample")
    page = opened(generation, at="#pass=0")
    panel = 'document.querySelector(".posterior-body")'
    assert "first window" in page.run(f"{panel}.innerText")
    page.press("End")
    for at, window in enumerate(generation.windows):
        assert window.structure is not None
        choose = f'(() => {{ const s = document.querySelector(".posterior select"); s.value = "{at}"; '
        page.run(choose + 's.dispatchEvent(new Event("change")); })()')
        figures = page.run(f"{panel}.querySelector('.figures').innerText")
        assert figures.split("\n")[1].startswith(f"{len(window.structure.ends)} block"), figures
        cuts = page.run(f"[...{panel}.querySelectorAll('tbody tr')].map((row) => row.cells[4].textContent)")
        gaps = range(1, window.opened.length)
        assert cuts == ["cut" if gap in window.structure.ends else "–" for gap in gaps]
        assert f"window {at + 1}" in page.run(f"{panel}.querySelector('svg').getAttribute('aria-label')")
        bars = page.run(f"[...{panel}.querySelectorAll('rect.bar')].map((bar) => Number(bar.getAttribute('height')))")
        highest = 80  # pixels, of probability 1
        assert bars == pytest.approx([max(0.5, highest * cut) for cut in window.structure.cut_marginals], rel=1e-2)


# --- pointing, keys, names -----------------------------------------------------------------------------------------


def test_keys_move_through_the_passes(opened: Open) -> None:
    page = opened(by_hand())
    assert here(page) == 6, "it opens at the end"
    for key, number in (
        ("ArrowLeft", 5), ("Home", 0), ("ArrowLeft", 0), ("ArrowRight", 1), (".", 2), (",", 1), ("End", 6),
        ("ArrowRight", 6),
    ):  # fmt: skip
        page.press(key)
        assert here(page) == number, key
    focus(page, "#slider")
    for key, number in (("Home", 0), ("ArrowRight", 1), ("End", 6), ("ArrowLeft", 5)):
        page.press(key)
        assert here(page) == number, key
    assert page.run('document.getElementById("slider").getAttribute("aria-valuetext")') == "pass 5 of 6"
    focus(page, "select")
    page.press("Home")
    assert here(page) == 5, "a list keeps its own keys"


def test_space_plays_to_the_end_and_pauses(opened: Open) -> None:
    page = opened(decoded("block"), at="#pass=0")
    label, live = 'document.getElementById("play").textContent', 'document.getElementById("live").textContent'
    page.run('document.getElementById("speed").value = "20"')
    page.press(" ")
    assert page.run(label) == "Pause"
    page.press(" ")
    assert page.run(label) == "Play"
    page.press(" ")
    said = page.run(f"""new Promise((done) => {{
      const said = new Set();
      const watch = setInterval(() => {{
        if ({label} === "Play") {{ clearInterval(watch); done([...said]); }} else said.add({live});
      }}, 10);
    }})""")
    assert here(page) == decoded("block").forward_passes
    assert said == [""], "while it plays, nothing is said"
    page.run("new Promise((done) => setTimeout(done, 600))")
    assert page.run(live).endswith("Finished."), "once it stands, where it stands"
    focus(page, "#theme")
    page.press(" ")
    assert page.run(label) == "Play", "on a button, Space presses the button"
    assert page.run("document.documentElement.dataset.theme") == "light"


def test_tokens_are_walked_through_and_tell_their_story(opened: Open) -> None:
    page = opened(by_hand(), at="#pass=5")
    focus(page, ".window .cell[tabindex='0']")
    stops = """document.querySelectorAll(".window .cell[tabindex='0']").length"""
    place = f'document.activeElement.dataset.id + " " + {stops}'
    for key, at in (("ArrowRight", 1), ("End", 3), ("ArrowRight", 3), ("Home", 0), ("ArrowLeft", 0), ("ArrowRight", 1)):
        page.press(key)
        assert page.run(place) == f"{at} 1", "one token is in the tab order"
    assert here(page) == 5
    told = card(page)
    assert told is not None
    for part in ("masked · token 1", "1 of window 1, decoded 2nd", "0.13 before, 0.75 behind", "was “ wrong”", "0.50"):
        assert part in told, told
    page.press(".")
    told = card(page)
    assert here(page) == 6 and told is not None and "“ two” · token 1" in told and "0.950" in told
    assert page.run('document.querySelector(".cursor").classList.contains("on")')
    page.press("Escape")
    assert card(page) is None and page.run(place) == "1 1"


def test_the_pointer_brings_the_card_and_may_move_onto_it(opened: Open) -> None:
    page = opened(by_hand())
    middle = "(({x, y, width, height}) => [x + width / 2, y + height / 2])"
    page.point(*page.run(f'{middle}(document.querySelectorAll(".window .cell")[2].getBoundingClientRect())'))
    told = card(page)
    assert told is not None and "“ three” · token 2" in told and "kept its token" in told
    page.point(*page.run(f'{middle}(document.getElementById("card").getBoundingClientRect())'))
    page.run("new Promise((done) => setTimeout(done, 300))")
    assert card(page) is not None
    page.point(2, 2)
    page.run("new Promise((done) => setTimeout(done, 300))")
    assert card(page) is None


def test_every_stop_of_the_tab_key_is_named_and_visible(opened: Open) -> None:
    page = opened(decoded("map"), decoded("sample"))
    names = {node["backendDOMNodeId"]: node["name"]["value"] for node in tree(page) if "backendDOMNodeId" in node}
    stops = []
    look = """(() => {
      const { outlineStyle, outlineWidth } = getComputedStyle(document.activeElement);
      const { tagName, id, className } = document.activeElement;
      return [tagName, id || className, outlineStyle !== "none" && parseFloat(outlineWidth) >= 2];
    })()"""
    for _ in range(60):
        page.press("Tab")
        tag, name, outlined = page.run(look)
        if tag == "BODY" or (stops and name == stops[0]):
            break
        assert outlined, (tag, name)
        stops.append(name)
        focused = page.call("Runtime.evaluate", expression="document.activeElement")["result"]["objectId"]
        node = page.call("DOM.describeNode", objectId=focused)["node"]["backendNodeId"]
        assert names[node].strip(), (tag, name)
    assert [stop for stop in stops[:8] if stop] == ["theme", "play", "back", "on", "speed", "slider", "cell"]
    windows = len(decoded("map").windows) + len(decoded("sample").windows)
    assert stops.count("cell") == windows, "one stop a window, not one a token"


def tree(page: Page) -> list[dict[str, Any]]:
    """What a screen reader is given."""
    return [n for n in page.call("Accessibility.getFullAXTree")["nodes"] if not n["ignored"] and "name" in n]


def test_a_screen_reader_is_given_names(opened: Open) -> None:
    page = opened(by_hand(), at="#pass=5")
    nodes = tree(page)
    named = [(node["role"]["value"], node["name"]["value"]) for node in nodes]
    assert ("slider", "Forward pass") in named and ("button", "One pass back") in named
    assert ("listbox", "Tokens of window 1, sample") in named and ("group", "block 2, decoded 1st") in named
    options = [name for role, name in named if role == "option" and ", token " in name]
    assert options == [
        "“one”, confidence 0.90, pass 4, token 0",
        "masked again, token 1",
        "“ three”, confidence 0.75, pass 5, welded, token 2",
        "“⏎”, confidence 0.80, pass 2, token 3",
    ]
    assert any(role == "image" and name.startswith("Posterior of window 1.") for role, name in named)
    assert page.run('document.getElementById("live").textContent') == "", "nothing is said before the reader moves"


def test_moves_are_told_once_and_only_when_they_rest(opened: Open) -> None:
    page = opened(by_hand(), at="#pass=0")
    said = page.run("""new Promise((done) => {
      const said = [];
      new MutationObserver(() => said.push(document.getElementById("live").textContent))
        .observe(document.getElementById("live"), { childList: true });
      for (let times = 0; times < 4; times++) document.getElementById("on").click();
      setTimeout(() => done(said), 900);
    })""")
    assert said == ["Pass 5, window 1: welds blocks 1|2. 2 tokens masked again, 1 token committed."]


# --- how it looks --------------------------------------------------------------------------------------------------


def brightness(page: Page) -> float:
    """Of the page's ground: 0 black, 1 white."""
    colour = page.run("getComputedStyle(document.documentElement).backgroundColor")
    return sum(float(part) for part in colour.removeprefix("rgb(").removesuffix(")").split(",")) / 765


def test_light_and_dark_follow_the_reader_and_the_button(opened: Open) -> None:
    for scheme, dark in (("light", False), ("dark", True)):
        page = opened(by_hand(), prefers_color_scheme=scheme)
        assert (brightness(page) < 0.3) == dark
        seen = []
        for _ in range(3):
            page.run('document.getElementById("theme").click()')
            seen.append(brightness(page) < 0.3)
        assert seen == [False, True, dark]


def test_motion_is_reduced_on_demand(opened: Open) -> None:
    duration = 'getComputedStyle(document.querySelector(".window .cell")).transitionDuration'
    assert opened(by_hand(), prefers_reduced_motion="reduce").run(duration) == "0s"
    assert opened(by_hand(), prefers_reduced_motion="no-preference").run(duration) != "0s"


@pytest.mark.parametrize("width", [320, 700, 1400])
def test_nothing_makes_the_page_scroll_sideways(opened: Open, width: int) -> None:
    long = dataclasses.replace(by_hand(), token_texts={**by_hand().token_texts, 1: "unbroken" * 40}, prompt="p" * 500)
    page = opened(hostile(decoded("sample")), long, width=width)
    for number in range(7):
        page.run(f'location.hash = "#pass={number}"; new Promise((done) => setTimeout(done))')
        assert page.run("document.scrollingElement.scrollWidth <= innerWidth"), number


# --- what it never does --------------------------------------------------------------------------------------------


def test_hostile_texts_are_shown_and_never_run(opened: Open) -> None:
    bad = hostile(decoded("sample"))
    page = opened(bad, hostile(by_hand()))
    found = page.run(EVERYWHERE)
    for number, (shown, _) in found:
        assert shown == state(bad, number)
    page.run("""(() => { for (const cell of document.querySelectorAll(".window .cell")) cell.focus();
      for (const part of document.querySelectorAll("details")) part.open = true; })()""")
    assert page.run('document.querySelector("#prompt p, .prompt p").textContent') == literal("".join(HOSTILE))
    assert page.run("window.hacked") is None
    elements = "[...new Set([...document.querySelectorAll('*')].map((e) => e.localName))]"
    found = set(page.run(elements))
    plain = opened(decoded("sample"), by_hand())
    focus(plain, ".window .cell")
    assert found <= set(plain.run(elements)), "texts made no element"


def test_even_markup_that_got_in_could_neither_run_nor_load(page: Page, tmp_path: Path) -> None:
    """The policy's own test: markup is put in by hand, and everything it asks for is refused."""
    path = tmp_path / "page.html"
    by_hand().to_html(path)
    page.open(path.as_uri())
    refused = page.run("""new Promise((done) => {
      const refused = new Set();
      document.addEventListener("securitypolicyviolation", (event) => refused.add(event.effectiveDirective));
      document.body.insertAdjacentHTML("beforeend", `<img src="https://example.invalid/" onerror="window.hacked = 1">
        <b onclick="window.hacked = 1">x</b>
        <p style="background: url(https://example.invalid/)">y</p>`);
      document.querySelector("b").click();
      const script = document.createElement("script");
      script.textContent = "window.hacked = 1";
      document.body.append(script);
      fetch("https://example.invalid/").catch(() => setTimeout(() => done([...refused].sort()), 100));
    })""")
    assert page.run("window.hacked") is None
    assert refused == ["connect-src", "img-src", "script-src-attr", "script-src-elem", "style-src-attr"]
    page.forget()
