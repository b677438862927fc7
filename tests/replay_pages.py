"""Replay pages opened in a headless Chromium, what they show by the trace itself, and how a reader would use them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import chromium
from chromium import Browser, Page
from dystruct.decoding import Generation
from dystruct.decoding.wording import TokenTexts

NEEDS_CHROMIUM = pytest.mark.skipif(chromium.binary() is None, reason="no Chromium is installed to open the page with")
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


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with chromium.chromium(tmp_path_factory.mktemp("profile")) as browser:
        yield browser


@pytest.fixture(scope="session")
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
