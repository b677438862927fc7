"""Shows a decoding: as coloured windows that fill in on a terminal, or as plain lines.

Both views take the same three calls: `begin(prompt, caption)`, `observe(event)` for every event of the trace and
`end(generation)`. They work from events alone, so a saved trace is shown (`replay`) just as it was decoded.
"""

from __future__ import annotations

import io
import math
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol, Self, TextIO

from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.text import Text

from ..scene import BlockFinished, Scene, Weld
from ..trace import Event, Generation, Step, StructureChosen, WindowClosed, WindowOpened
from ..wording import TokenTexts, caption, counted, is_inferred, literal, shortened, summary, visible
from .drawing import ending, header, window_panel

REFRESH_SECONDS = 0.08


class View(Protocol):
    """What both views take."""

    def begin(self, prompt: str, caption: str) -> None:
        """A sequence is about to be decoded."""

    def observe(self, event: Event) -> None:
        """The next event of its trace."""

    def end(self, generation: Generation) -> None:
        """It is finished."""


@contextmanager
def open_view(texts: TokenTexts, inferred: bool = True) -> Iterator[View]:
    """The view that suits standard output: windows that fill in on a terminal, else plain lines.

    inferred: whether structures are drawn from the posterior.
    """
    console = Console(highlight=False)
    if console.is_terminal and not console.is_dumb_terminal:
        with TerminalView(console, texts, inferred=inferred) as view:
            yield view
    else:
        yield PlainView(sys.stdout, texts, inferred)


class PlainView:
    """One line an event of interest, for files and pipes."""

    def __init__(self, file: TextIO, texts: TokenTexts, inferred: bool = True) -> None:
        self._file, self._texts, self._inferred = file, texts, inferred
        self._scene: Scene | None = None

    def begin(self, prompt: str, caption: str) -> None:
        self._line(caption)
        self._line(f"prompt: {visible(shortened(prompt))}")

    def observe(self, event: Event) -> None:
        if isinstance(event, WindowOpened):
            self._scene = Scene(event, self._inferred, 0 if self._scene is None else self._scene.number)
            mu = "" if event.rate is None else f", mu = {event.rate:.1f}"
            self._note(f"opens at token {event.start}: {counted(event.length, 'mask')}{mu}")
            return
        assert self._scene is not None, "a window must be open"
        for done in self._scene.advance(event):
            self._done(self._scene, done)
        if isinstance(event, StructureChosen):
            self._structure(event)
        elif isinstance(event, WindowClosed):
            after = "" if event.mean_instability is None else f", instability {event.mean_instability:.2f}"
            self._note(f"closes{after}: {self._texts.quote(event.tokens)}")

    def end(self, generation: Generation) -> None:
        self._line("")
        self._line(literal(generation.text))
        self._line("")
        for name, value in summary(generation):
            self._line(f"{name}: {value}")

    def _structure(self, event: StructureChosen) -> None:
        assert self._scene is not None
        count, passes = len(event.ends), self._scene.passes["diagnostic"]
        line = f"L = {event.ends[-1]}, {counted(count, 'block')}"
        line += f" after {counted(passes, 'diagnostic pass', 'diagnostic passes')}"
        if self._inferred:
            line += f", P = {math.exp(event.log_probability):.3g}, entropy {event.entropy:.2f} nats"
        self._note(line)
        for block, (start, end) in enumerate(self._scene.blocks):
            self._note(
                f"block {block + 1}, [{start}, {end}): order {self._scene.turn(block)}, "
                f"H = {event.block_instability[block]:.2f}, T = {event.passes[block]}"
            )

    def _done(self, scene: Scene, done: BlockFinished | Weld) -> None:
        if isinstance(done, BlockFinished):
            start, end = scene.blocks[done.block]
            tokens = [token for token in scene.tokens[start:end] if token is not None]
            passes = counted(done.passes, "pass", "passes")
            self._note(f"block {done.block + 1} finished in {passes}: {self._texts.quote(tokens)}")
            return
        blocks = {scene.block_at(position) for position in done.before}
        left = min(blocks) if done.block is None else done.block
        # A joint weld works on several boundaries at once.
        joint = not blocks <= {left, left + 1}
        where = f"weld of blocks {min(blocks) + 1} to {max(blocks) + 1}" if joint else f"weld {left + 1}|{left + 2}"
        changes = "; ".join(
            f"{self._texts.quote(before)} -> {self._texts.quote(after)} at {scene.opened.start + position}"
            for position, before, after in done.changes
        )
        self._note(
            f"{where} remasked {counted(len(done.before), 'token')} and refined in "
            f"{counted(done.passes, 'pass', 'passes')}: "
            f"{changes or 'nothing changed'}"
        )

    def _note(self, text: str) -> None:
        assert self._scene is not None
        self._line(f"window {self._scene.opened.index + 1}: {text}")

    def _line(self, text: str) -> None:
        self._file.write(text + "\n")
        self._file.flush()


class TerminalView:
    """Windows as they fill in; a finished one stays above the next. Use as a context manager."""

    def __init__(
        self,
        console: Console,
        texts: TokenTexts,
        clock: Callable[[], float] = time.monotonic,
        *,
        inferred: bool = True,
    ) -> None:
        self._console, self._texts, self._clock, self._inferred = console, texts, clock, inferred
        self._scene: Scene | None = None
        self._live = Live(console=console, auto_refresh=False, transient=True)
        self._drawn = self._started = clock()
        self._number = 0  # of the last forward pass

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, *error: object) -> None:
        """Leave the terminal in order; a window that was cut short stays on it."""
        self._live.update(Text(""), refresh=True)
        if self._scene is not None:
            self._console.print(window_panel(self._scene, self._texts))
        self._live.stop()

    def begin(self, prompt: str, caption: str) -> None:
        self._started = self._clock()
        self._console.print(header(prompt, caption))

    def observe(self, event: Event) -> None:
        if isinstance(event, WindowOpened):
            self._scene = Scene(event, self._inferred, self._number)
        assert self._scene is not None, "a window must be open"
        self._scene.advance(event)
        if isinstance(event, Step):
            self._number = event.number
        if isinstance(event, WindowClosed):
            self._live.update(Text(""), refresh=True)
            self._console.print(window_panel(self._scene, self._texts))
            self._scene = None
        elif self._clock() - self._drawn >= REFRESH_SECONDS:
            self._draw(self._scene)

    def end(self, generation: Generation) -> None:
        self._live.update(Text(""), refresh=True)
        self._console.print(ending(generation))

    def _draw(self, scene: Scene) -> None:
        self._drawn = self._clock()
        status = Text(f" pass {self._number} · {self._drawn - self._started:.1f} s", style="dim")
        self._live.update(Group(window_panel(scene, self._texts), status), refresh=True)
        scene.rest()


_COLUMNS = (
    TextColumn("{task.completed} of {task.total} prompts"),
    BarColumn(),
    TextColumn("{task.fields[tokens]} tokens"),
    TimeElapsedColumn(),
    TextColumn("left"),
    TimeRemainingColumn(),
)


class BatchProgress:
    """How far several prompts are, on standard error: a bar on a terminal, else a line a finished prompt.

    It looks at finished texts alone, since to observe passes costs a read-back of each.
    """

    def __init__(self, count: int) -> None:
        self._count, self._tokens = count, 0
        console = Console(stderr=True, highlight=False)
        self._bar = Progress(*_COLUMNS, console=console) if console.is_terminal else None
        self._task = self._bar.add_task("", total=count, tokens=0) if self._bar else None

    def __enter__(self) -> Self:
        if self._bar:
            self._bar.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self._bar:
            self._bar.stop()

    def finished(self, index: int, generation: Generation, seconds: float) -> None:
        """Prompt `index` has its text."""
        self._tokens += len(generation.tokens)
        if self._bar and self._task is not None:
            self._bar.update(self._task, advance=1, tokens=self._tokens)
        else:
            print(
                f"prompt {index + 1} of {self._count} finished: {counted(len(generation.windows), 'window')}, "
                f"{counted(len(generation.tokens), 'token')}",
                file=sys.stderr,
            )


def replay(view: View, generation: Generation, delay: float = 0.0) -> None:
    """Show a finished generation as if it was decoded now, waiting `delay` seconds behind every forward pass."""
    view.begin(generation.prompt, caption(generation.model, generation.settings))
    for window in generation.windows:
        for event in window.events():
            view.observe(event)
            if delay and isinstance(event, Step):
                time.sleep(delay)
    view.end(generation)


def picture(generation: Generation, *, width: int = 96, until: int | None = None) -> str:
    """The terminal view as SVG: finished, or as it stood after forward pass `until`."""
    console = Console(
        record=True, file=io.StringIO(), force_terminal=True, color_system="truecolor", no_color=False, width=width
    )
    texts = TokenTexts.of(generation)
    console.print(header(generation.prompt, caption(generation.model, generation.settings)))
    number = 0
    for window in generation.windows:
        scene = Scene(window.opened, is_inferred(generation.settings), number)
        for event in window.events():
            if until is not None and isinstance(event, Step):
                if event.number > until:
                    break
                scene.rest()
            scene.advance(event)
        console.print(window_panel(scene, texts))
        number = scene.number
        if scene.closed is None:
            break
    else:
        console.print(ending(generation))
    return console.export_svg(title="dystruct")
