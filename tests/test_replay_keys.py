"""The replay page in a headless Chromium: its keys and its pointer, and the names that a screen reader is given."""

from __future__ import annotations

import re
from typing import Any

import pytest

from chromium import Page
from dystruct.decoding import DyStruct, generate
from dystruct.decoding.wording import TokenTexts
from replay_pages import NEEDS_CHROMIUM, SHOWN, Open, card, focus, here
from replay_runs import by_hand, decoded
from scripted import backbone, hashed, uneven_weights

pytestmark = NEEDS_CHROMIUM


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


@pytest.mark.parametrize("space", [True, False])
def test_playing_from_the_end_starts_again_at_the_beginning(opened: Open, space: bool) -> None:
    """A reader who follows a link sees the finished text first, and playing it shows all of how it came about."""
    generation = decoded("block")
    page = opened(generation)
    everything = f"({SHOWN})[0].join('')"
    texts = TokenTexts.of(generation)
    assert here(page) == generation.forward_passes
    assert page.run(everything) == "".join(map(texts, generation.tokens))
    page.run("""window.passes = [];
      document.getElementById("speed").value = "20";
      new MutationObserver(() => passes.push(Number(document.body.dataset.pass)))
        .observe(document.body, { attributeFilter: ["data-pass"] });""")
    if space:
        page.press(" ")
    else:
        page.run('document.getElementById("play").click()')
    assert here(page) == 0 and page.run(everything) == "", "it begins with masks alone"
    page.run("""new Promise((done) => {
      const watch = setInterval(() => {
        if (document.getElementById("play").textContent === "Play") { clearInterval(watch); done(); }
      }, 10);
    })""")
    assert page.run("passes") == list(range(generation.forward_passes + 1))
    assert page.run(everything) == "".join(map(texts, generation.tokens))


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


def test_the_card_tells_the_alternatives(opened: Open) -> None:
    model = backbone(hashed(2), weights=uneven_weights())
    (generation,) = generate(model, ["abc"], DyStruct(), max_new_tokens=12, alternatives=3)
    page = opened(generation)
    commit = [
        commit for window in generation.windows for step in window.steps for commit in step.commits
        if step.kind != "diagnostic" and commit.position == 0
    ][-1]  # fmt: skip
    focus(page, ".window .cell[tabindex='0']")
    page.press("ArrowRight")
    page.press("ArrowLeft")  # a focus that comes by a key brings the card
    told, text = card(page), TokenTexts.of(generation)
    assert told is not None and len(commit.alternatives) == 3
    assert re.search(
        "most probable\\s" + ", ".join(f"“{text(other.token)}” [0-9.e-]+" for other in commit.alternatives), told
    )
