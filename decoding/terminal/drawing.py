"""Rich drawings of a decoding: the prompt, a window with its blocks in colour, the text and its figures.

Blocks differ by colour and also by bracket and order number, so that a drawing without colours says the same.
Token texts are put into `Text` objects, never parsed as markup.
"""

from __future__ import annotations

import math
from itertools import groupby

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.padding import Padding
from rich.panel import Panel
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from ..scene import Scene
from ..trace import Generation
from ..wording import END, TokenTexts, counted, literal, shortened, summary

# Paul Tol's "light" scheme: made for black text on coloured cells, and distinct for colour-blind readers.
PALETTE = ("#77AADD", "#EE8866", "#44BB99", "#EEDD88", "#FFAABB", "#99DDFF", "#BBCC33", "#AAAA00")
MASK, REMASKED = "░", "▒"
BARS = "▁▂▃▄▅▆▇█"
GAUGE = 10
LEGEND = f"{MASK} masked · {REMASKED} remasked · underlined: welded · {END} end · 2[…] decoded second"


def header(prompt: str, caption: str) -> RenderableType:
    """The prompt under the caption, and what the signs in a window mean."""
    return Panel(
        Text(literal(shortened(prompt)).strip()),
        title=Text(caption, "bold"), title_align="left", style="none",
        subtitle=Text(LEGEND, "dim"), subtitle_align="right",
    )  # fmt: skip


def ending(generation: Generation) -> RenderableType:
    """The text, and the figures of `summary`."""
    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold")
    for name, value in summary(generation):
        table.add_row(Text(name), Text(value))
    return Group(
        Rule(Text("text", "bold"), align="left", style="dim"),
        Padding(Text(literal(generation.text)), (0, 1)),
        Rule(Text("summary", "bold"), align="left", style="dim"),
        Padding(table, (0, 1)),
    )


def window_panel(scene: Scene, texts: TokenTexts) -> RenderableType:
    """One window: where it stands, its instability and blocks as a ribbon, its tokens, its blocks' figures."""
    opened = scene.opened
    title = Text.assemble(
        (f"window {opened.index + 1}", "bold"),
        f" · tokens {opened.start}–{opened.start + len(scene.tokens) - 1} · L = {len(scene.tokens)}",
        "" if opened.rate is None else f" · μ = {opened.rate:.1f}",
    )
    parts: list[RenderableType] = [_flow(scene, texts)]
    if scene.structure is not None:
        parts = [_Ribbon(scene), *parts, _block_table(scene)]
    return Panel(
        Group(*parts), title=title, title_align="left", subtitle=_figures(scene), subtitle_align="right", style="none",
        border_style="none" if scene.closed is None else "dim",
    )  # fmt: skip


def _figures(scene: Scene) -> Text:
    parts = [f"{kind} {count}" for kind, count in scene.passes.items()]
    if scene.structure is not None and scene.inferred:
        parts.append(f"P = {math.exp(scene.structure.log_probability):.2g}")
    if scene.closed is not None and scene.closed.mean_instability is not None:
        parts.append(f"instability {scene.closed.mean_instability:.2f}")
    return Text(" · ".join(parts))


class _Ribbon:
    """Each position's instability as a bar, over the brackets of the blocks with their order numbers."""

    def __init__(self, scene: Scene) -> None:
        assert scene.structure is not None
        self._bars, self._brackets = Text(), Text()
        for block, (start, end) in enumerate(scene.blocks):
            colour = PALETTE[block % len(PALETTE)]
            for value in scene.structure.instability[start:end]:
                self._bars.append(_bar(value), colour)
            self._brackets.append(_bracket(end - start, str(scene.turn(block))), f"bold {colour}")

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width = max(options.max_width - 2, 1)
        cuts = range(width, len(self._bars), width)
        for bars, brackets in zip(self._bars.divide(cuts), self._brackets.divide(cuts), strict=True):
            yield Text.assemble(("h ", "dim"), bars)
            yield Text.assemble("  ", brackets)


def _bar(value: float) -> str:
    return BARS[min(max(int(value * len(BARS)), 0), len(BARS) - 1)]


def _bracket(width: int, label: str) -> str:
    """A bracket under `width` positions that holds a block's order number where there is room."""
    if width >= len(label) + 2:
        return f"└{label.center(width - 2, '─')}┘"
    return label.ljust(width, "┘") if width >= len(label) else "┘" * width


def _flow(scene: Scene, texts: TokenTexts) -> Text:
    """The window's tokens as running text, every block in its colour."""
    signs: list[tuple[str, str]] = []
    ended = False
    for block, (start, end) in enumerate(scene.blocks):
        colour = None if scene.structure is None else PALETTE[block % len(PALETTE)]
        if colour:
            signs.append((f"{scene.turn(block)}[", f"bold {colour}"))
        for position in range(start, end):
            token = scene.tokens[position]
            signs.append(_cell(scene, position, texts, colour, ended))
            ended = ended or token in texts.end_tokens
        if colour:
            signs.append(("]", f"bold {colour}"))
    text = Text(overflow="fold")
    for style, run in groupby(signs, key=lambda pair: pair[1]):
        text.append("".join(sign for sign, _ in run), style)
    return text


def _cell(scene: Scene, position: int, texts: TokenTexts, colour: str | None, ended: bool) -> tuple[str, str]:
    """What a position shows, and its style."""
    token = scene.tokens[position]
    if token is None:
        return (REMASKED, f"bold {colour}") if position in scene.remasked else (MASK, colour or "dim")
    return texts(token), _style(scene, position, colour, ended)


def _style(scene: Scene, position: int, colour: str | None, ended: bool) -> str:
    """The style of a committed token: tentative, behind the end token, just committed, welded, or plain."""
    if scene.tentative:
        return "dim italic"
    marks = "underline " if position in scene.welded else ""
    if position in scene.changed:
        marks += "bold "
    if ended:
        return marks + "dim"
    if position in scene.fresh:
        return marks + "bold #000000 on #FFFFFF"
    return marks + (f"#000000 on {colour}" if colour else "")


def _block_table(scene: Scene) -> Table:
    """One line a block: order, place, H(B) as a number and a bar, passes taken of T(B)."""
    structure = scene.structure
    assert structure is not None
    table = Table.grid(padding=(0, 2))
    for block, (start, end) in enumerate(scene.blocks):
        colour = PALETTE[block % len(PALETTE)]
        value = structure.block_instability[block]
        full = round(value * GAUGE)
        active = scene.kind == "resolve" and scene.active == block
        state = "▸" if active else "✓" if block in scene.finished else " "
        taken = scene.block_passes[block]
        size = end - start
        table.add_row(
            Text(f"{state} {scene.turn(block)}", f"bold {colour}"),
            Text(counted(size, "token").rjust(9)),
            Text.assemble(f"H = {value:.2f} ", ("━" * full, colour), ("━" * (GAUGE - full), "dim")),
            Text(f"T = {structure.passes[block]:2d}"),
            Text(counted(taken, "pass", "passes") if taken else "", "dim"),
        )
    return table
