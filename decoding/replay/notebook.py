"""How a notebook shows a generation and one of its windows: HTML without scripts, in the colours of the page around it.

Hues are translucent and text is the page's own, so that light and dark pages both show it. Blocks and windows are told
apart by frames and numbers, too. Texts are data: whatever a token holds, it reaches the page as text.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from itertools import groupby

from ..trace import Generation, Window
from ..unmasking import Placed, Span, placed, spans
from ..wording import TokenTexts, caption, counted, is_inferred, literal, shortened, summary, visible
from .record import KINDS

_HUES = ("76,120,168", "242,161,74")  # of neighbours; those of the posterior's picture
_HEIGHTS = {"diagnostic": 4, "resolve": 9, "weld": 14}  # of a pass in the timeline: pixels
_OPACITIES = {"diagnostic": 0.45, "resolve": 0.7, "weld": 1.0}
_BOX = "display:inline-block;vertical-align:top;max-width:100%;margin:0 3px 4px 0;padding:0 5px 3px;border-radius:3px"
_CODE = (
    "font-family:ui-monospace,Menlo,Consolas,'DejaVu Sans Mono',monospace;white-space:pre-wrap;overflow-wrap:anywhere"
)
# Above a band's first sign and as wide as nothing, so that lines of code keep their indentation.
_NUMBER = "display:inline-block;width:0;position:relative;top:-1.2em;font-size:.65em;opacity:.75"


def window_picture(window: Window) -> str:
    """A window: its blocks in their order with H(B) and T(B), its tokens, what welding did, and its posterior."""
    labels = window.labels
    text = TokenTexts(lambda token: labels.token_texts.get(token, f"#{token}"), labels.end_tokens)
    held, chosen = placed([window]), window.structure
    parts, signs = spans(window, held), _signs(window, held, text)
    blocks = "".join(_block(span, window, signs, divided=len(parts) > 1) for span in parts)
    facts = [
        f"{counted(len(signs), 'token')} from position {window.opened.start}",
        counted(window.block_count, "block"),
        _passes({kind: sum(step.kind == kind for step in window.steps) for kind in KINDS}),
    ]
    exact = None
    if chosen is not None and chosen.length is not None:
        facts.append(f"of {window.opened.length} diagnosed, P(L | O) = {chosen.length.of(window.length):.2g}")
    if chosen is not None and is_inferred(labels.settings):
        facts.append(f"P(partition | O) = {math.exp(chosen.log_probability):.2g}")
        exact = window.posterior
        if exact is not None:
            facts.append(f"P(MAP | O) = {math.exp(exact.log_prob(exact.map().partition)):.2g}")
        facts.append(f"entropy {chosen.entropy:.2f} nats")
    if window.closed.mean_instability is not None:
        facts.append(f"mean instability {window.closed.mean_instability:.2f}")
    notes = []
    if any(cell.taken_back for cell in held):
        notes.append("Double lines: welded, the same token again. Thick lines: welded, another token.")
    drawn = ""
    if exact is not None:
        notes.append("Below, the MAP partition, stronger where less stable, and the probability of a cut at each gap.")
        drawn = f'<div style="overflow-x:auto">{exact._repr_html_()}</div>'
    note = f'<div style="opacity:.75"><small>{" ".join(notes)}</small></div>' if notes else ""
    return _figure(f"Window {window.opened.index + 1}", facts, f"<div>{blocks}</div>{note}{drawn}")


def generation_picture(generation: Generation) -> str:
    """A generation: its text with the windows as bands, its passes by kind as they came, and its figures."""
    bands = "".join(_band(place, window, generation) for place, window in enumerate(generation.windows))
    wasted = generation.wasted_tokens
    behind = f' <small style="opacity:.75">∎ {counted(wasted, "token")} behind the end</small>' if wasted else ""
    # A stop string may end inside a token, and a character may be spread over several: then the text is told, too.
    shown = "".join(generation.token_texts[token] for token in generation.tokens[: generation.useful_tokens])
    whole = "" if shown == generation.text else _folded("Text", generation.text)
    figures = "".join(
        f'<span style="display:inline-block;margin-right:1.2em"><span style="opacity:.75">{escape(name)}</span> '
        f"{escape(value)}</span>"
        for name, value in summary(generation)
    )
    body = (
        f"{_folded('Prompt', shortened(generation.prompt))}"
        f'<div style="{_CODE};line-height:1.8;margin:4px 0">{bands}{behind}</div>{whole}{_timeline(generation)}'
        f"<div><small>{figures}</small></div>"
    )
    return _figure(visible(caption(generation.model, generation.settings)), [], body)


def _figure(title: str, facts: Sequence[str], body: str) -> str:
    said = " · ".join(fact for fact in facts if fact)
    return (
        f'<figure style="margin:0 0 6px;max-width:60em"><figcaption style="margin-bottom:4px"><b>{escape(title)}</b> '
        f"<small>{escape(said)}</small></figcaption>{body}</figure>"
    )


def _folded(title: str, text: str) -> str:
    inside = f'<div style="{_CODE}">{escape(literal(text))}</div>'
    return f"<details><summary><small>{title}</small></summary>{inside}</details>"


def _passes(counts: dict[str, int]) -> str:
    kinds = ", ".join(f"{kind} {count}" for kind, count in counts.items() if count)
    return f"passes: {kinds}" if kinds else ""


def _block(span: Span, window: Window, signs: Sequence[str], *, divided: bool) -> str:
    """A frame with a block's turn, H(B) and T(B), and its tokens."""
    chosen, hue, start = window.structure, _HUES[span.block % 2], window.opened.start
    said = [f"{span.turn}."] if divided else []
    if chosen is not None:
        said += [f"H {chosen.block_instability[span.block]:.2f}", f"T {chosen.passes[span.block]}"]
    label = f'<small style="display:block;opacity:.75;white-space:nowrap">{" · ".join(said)}</small>' if said else ""
    return (
        f'<span style="{_BOX};border:1px solid rgb({hue});background:rgba({hue},.22)">{label}'
        f'<span style="{_CODE}">{"".join(signs[span.start - start : span.end - start])}</span></span>'
    )


def _signs(window: Window, held: Sequence[Placed], text: TokenTexts) -> list[str]:
    """A window's tokens: underlined, more so where a weld took one back, and faint from the end of the text on."""
    signs, chosen, ended = [], window.structure, False
    for at, (token, cell) in enumerate(zip(window.closed.tokens, held[window.opened.start :], strict=True)):
        ended = ended or token in text.end_tokens
        said = [f"position {window.opened.start + at}"]
        if cell.confidence is not None:
            said.append(f"confidence {cell.confidence:.2g}")
        if cell.number is not None:
            said.append(f"{cell.kind} pass {cell.number}")
        line = "1px solid rgba(128,128,128,.8)"
        if cell.taken_back is not None:
            kept = cell.taken_back[1] == token
            said.append("welded, kept" if kept else f"welded, was “{text(cell.taken_back[1])}”")
            line = f"3px {'double' if kept else 'solid'} currentColor"
        if chosen is not None and at < len(chosen.instability):
            said.append(f"instability {chosen.instability[at]:.2g}")
        if chosen is not None and at < len(chosen.cut_marginals):
            said.append(f"P(cut behind) {chosen.cut_marginals[at]:.2g}")
        style = f"border-bottom:{line};margin-right:1px{';opacity:.45' if ended else ''}"
        signs.append(f'<span style="{style}" title="{escape(", ".join(said))}">{escape(text(token))}</span>')
    return signs


def _band(place: int, window: Window, generation: Generation) -> str:
    """The useful part of a window's text."""
    hue = _HUES[place % 2]
    useful = window.closed.tokens[: max(0, generation.useful_tokens - window.opened.start)]
    text = literal("".join(generation.token_texts[token] for token in useful))
    said = f"window {place + 1}: {counted(len(window.closed.tokens), 'token')}, {counted(window.block_count, 'block')}"
    return (
        f'<span style="background:rgba({hue},.22);border-left:3px solid rgb({hue});padding:1px 0 1px 2px" '
        f'title="{said}, {counted(len(window.steps), "step")}"><span style="{_NUMBER}">{place + 1}</span>'
        f"{escape(text)}</span>"
    )


def _timeline(generation: Generation) -> str:
    """Passes from left to right, low where they diagnose, high where they weld; windows open at the ticks."""
    count, height = generation.forward_passes, max(_HEIGHTS.values()) + 4
    if not count:
        return ""
    shapes, before = [], 0
    for window in generation.windows:
        if window.steps and before:
            shapes.append(f'<path d="M{before} 0V{height}" stroke="currentColor" vector-effect="non-scaling-stroke"/>')
        for kind, steps in groupby(window.steps, key=lambda step: step.kind):
            last, tall = list(steps)[-1].number, _HEIGHTS[kind]
            shapes.append(
                f'<rect x="{before}" y="{height - tall}" width="{last - before}" height="{tall}" '
                f'fill="rgb({_HUES[0]})" fill-opacity="{_OPACITIES[kind]}"><title>passes {before + 1} to {last}: '
                f"{kind}</title></rect>"
            )
            before = last
    return (
        f'<svg viewBox="0 0 {count} {height}" preserveAspectRatio="none" width="100%" height="{height}" '
        f'style="max-width:{max(8 * count, 80)}px;display:block" shape-rendering="crispEdges" role="img" '
        f'aria-label="{count} passes in their order">{"".join(shapes)}</svg>'
        '<small style="opacity:.75">passes in their order: low diagnostic, middle resolving, high welding</small>'
    )
