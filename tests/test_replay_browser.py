"""The replay page in a headless Chromium: what it shows at every pass, how it looks, and what it never does."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from chromium import Page
from dystruct.decoding.wording import TokenTexts, literal
from replay_pages import EVERYWHERE, NEEDS_CHROMIUM, Open, focus, here, state
from replay_runs import DECODERS, HOSTILE, by_hand, decoded, diagnosed_late, hostile

pytestmark = NEEDS_CHROMIUM

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
