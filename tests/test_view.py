"""The views show what happened: checked against the trace's own replay, and for hostile tokens, width and colour."""

from __future__ import annotations

import io
import re
import sys
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from itertools import islice, pairwise

import pytest
from rich.cells import cell_len
from rich.console import Console
from rich.live import Live

from dystruct.decoding import Block, DyStruct, Generation, generate
from dystruct.decoding.scene import BlockFinished, Scene, Weld
from dystruct.decoding.terminal.drawing import PALETTE, window_panel
from dystruct.decoding.terminal.view import (
    REFRESH_SECONDS,
    PlainView,
    TerminalView,
    open_view,
    picture,
    replay,
)
from dystruct.decoding.trace import (
    Commit,
    Remask,
    Step,
    StructureChosen,
    Window,
    WindowClosed,
    WindowOpened,
)
from dystruct.decoding.wording import TokenTexts, literal, summary, visible
from dystruct.model import PriorConfig
from scripted import MASK, backbone, hashed, uneven_weights

ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
TEXTS = ["one", " two", "\n", " ", " four", "[bold]", "\x1b[31m", "<end>", " wrong"]
END, WRONG = 7, 8


def texts() -> TokenTexts:
    return TokenTexts(lambda token: TEXTS[token], {END})


def example() -> Generation:
    """One window of 8 tokens in two blocks, the right one first; a weld that puts " two" in the place of " wrong"."""
    commits = lambda *pairs: tuple(Commit(p, t, 0.5) for p, t in pairs)  # noqa: E731
    steps = (
        Step(1, "diagnostic", None, (), commits((3, WRONG))),
        Step(2, "resolve", 1, (), commits((5, 5), (6, 6), (7, END))),
        Step(3, "resolve", 1, (), commits((4, 4))),
        Step(4, "resolve", 0, (), commits((0, 0), (1, WRONG), (2, 2), (3, 3))),
        Step(5, "weld", 0, (Remask(1, WRONG, 0.2), Remask(4, 4, 0.3)), commits((1, 1))),
        Step(6, "weld", 0, (), commits((4, 4))),
    )
    chosen = StructureChosen(
        0, (4, 8), (1, 0), (0.0, 0.2, 0.4, 0.6, 0.8, 1.0, 0.5, 0.5), (0.0,) * 7, (0.1,) * 7, (0.3, 0.7), (-0.3, -0.7),
        (1, 2), -0.5, 1.25, (), (),
    )  # fmt: skip
    tokens = (0, 1, 2, 3, 4, 5, 6, END)
    window = Window(WindowOpened(0, 0, 8, 0.5, 28.0), chosen, steps, WindowClosed(0, tokens, (), 0.37))
    return Generation(
        prompt="How many?", text="one two\n  four[bold]\x1b[31m", tokens=tokens,
        token_texts=dict(enumerate(TEXTS)), useful_tokens=7, wasted_tokens=1,
        passes={"diagnostic": 1, "resolve": 3, "weld": 2}, stop_reason="eos", seconds=1.5, windows=(window,),
        model="tiny", mask_token=99, settings={"structure": "map", "budget": 256, "seed": 4, "temperature": 0.0},
        end_tokens=(END,),
    )  # fmt: skip


def real(seed: int, decoder: DyStruct | Block, end_logit: float | None = None) -> Generation:
    """A generation by the real engine; with a low end_logit it never ends before 70 tokens."""
    model = backbone(hashed(seed, end_logit=end_logit), weights=uneven_weights())
    return generate(model, ["abcab"], decoder, max_new_tokens=70, budget=200, seed=seed)[0]


DECODERS = (
    DyStruct("sample", prior=PriorConfig(min_length=5, max_length=30, concentration=5.0)),
    DyStruct("sample", prior=PriorConfig(min_length=5, max_length=30, concentration=5.0), weld="joint", weld_radius=3),
    DyStruct("map", weld="off"),
    Block(6),
)


def plain(generation: Generation) -> str:
    file = io.StringIO()
    replay(PlainView(file, TokenTexts.of(generation)), generation)
    return file.getvalue()


def console(width: int = 80, **settings: object) -> Console:
    options = {"force_terminal": True, "color_system": "truecolor", "no_color": False, "highlight": False} | settings
    return Console(file=io.StringIO(), width=width, height=40, _environ={}, **options)


def printed(scene: Scene, names: TokenTexts, width: int = 80) -> list[str]:
    """The lines of a window's panel, without their styles."""
    screen = console(width)
    with screen.capture() as captured:
        screen.print(window_panel(scene, names))
    return ESCAPE.sub("", captured.get()).splitlines()


def scenes(generation: Generation, until: int) -> Scene:
    """The scene of the window that pass `until` belongs to, just behind that pass."""
    for window in generation.windows:
        scene = Scene(window.opened)
        for event in window.events():
            scene.advance(event)
            if isinstance(event, Step) and event.number == until:
                return scene
    raise AssertionError(f"there is no pass {until}")


@pytest.mark.parametrize("decoder", DECODERS, ids=["sequential", "joint", "map", "block"])
@pytest.mark.parametrize(("seed", "end_logit"), [(0, None), (1, -50.0), (2, -50.0)])
def test_scene_agrees_with_the_replay_of_the_trace(
    decoder: DyStruct | Block, seed: int, end_logit: float | None
) -> None:
    generation = real(seed, decoder, end_logit)
    shown: dict[int, tuple[int | None, ...]] = {}
    for step, canvas in generation.replay():
        shown[step.number] = tuple(None if token == MASK else token for token in canvas)
    for window in generation.windows:
        scene, finished, welds = Scene(window.opened), [], []
        start, length = window.opened.start, window.opened.length
        for event in window.events():
            done = scene.advance(event)
            finished += [item.block for item in done if isinstance(item, BlockFinished)]
            welds += [item for item in done if isinstance(item, Weld)]
            if isinstance(event, Step):
                assert tuple(scene.tokens) == shown[event.number][start : start + length]
                assert scene.fresh >= {commit.position - start for commit in event.commits}
        order = window.structure.order if window.structure else (0,)
        assert finished == list(order), "each block is finished once, in the structure's order"
        remasked = {remask.position - start for step in window.steps for remask in step.remasked}
        assert scene.welded == remasked == {position for weld in welds for position in weld.before}
        assert sum(weld.passes for weld in welds) == scene.passes["weld"]


def test_weld_changes_are_runs_of_neighbouring_positions() -> None:
    weld = Weld(0, {1: 5, 2: 6, 3: 7, 5: 8, 9: 1}, {1: 4, 2: 3, 3: 7, 5: 2, 9: 1}, 4)
    assert weld.changes == [(1, [5, 6], [4, 3]), (5, [8], [2])]


def test_plain_lines_name_every_event_of_interest() -> None:
    lines = plain(example()).splitlines()
    assert lines[0] == "dystruct · model tiny · structure map · temperature 0 · seed 4"
    assert lines[1] == "prompt: How many?"
    assert lines[2:] == [
        "window 1: opens at token 0: 8 masks, mu = 28.0",
        "window 1: L = 8, 2 blocks after 1 diagnostic pass, P = 0.607, entropy 1.25 nats",
        "window 1: block 1, [0, 4): order 2, H = 0.30, T = 1",
        "window 1: block 2, [4, 8): order 1, H = 0.70, T = 2",
        'window 1: block 2 finished in 2 passes: " four[bold]␛[31m∎"',
        'window 1: block 1 finished in 1 pass: "one wrong⏎ "',
        'window 1: weld 1|2 remasked 2 tokens and refined in 2 passes: " wrong" -> " two" at 1',
        'window 1: closes, instability 0.37: "one two⏎  four[bold]␛[31m∎"',
        "",
        "one two",
        "  four[bold]␛[31m",
        "",
        "windows: 1, with 2 blocks",
        "forward passes: 6 of 256 (diagnostic 1, resolve 3, weld 2)",
        "useful tokens: 7, 1.17 a forward pass",
        "wasted tokens: 1, the end token and what was decoded behind it",
        "welds: 1: 2 tokens remasked, 1 of them changed",
        "structures: P(MAP | O) 0.61 a window, log-probability -0.50 nats in all",
        "stopped: at the end token",
        "wall time: 1.50 s",
    ]


def test_plain_lines_of_a_decoder_without_structures() -> None:
    output = plain(real(0, Block(6)))
    assert "window 1: opens at token 0: 6 masks\n" in output
    assert "window 1: block 1 finished in 6 passes: " in output
    assert "mu" not in output and "structures" not in output and "welds" not in output


def test_a_joint_weld_is_named_by_all_its_blocks() -> None:
    opened = WindowOpened(0, 0, 6, 0.5, None)
    chosen = example().windows[0].structure
    assert chosen is not None
    chosen = replace(chosen, ends=(2, 4, 6), order=(0, 1, 2))
    names, file = TokenTexts(str, ()), io.StringIO()
    view = PlainView(file, names)
    view.observe(opened)
    view.observe(replace(chosen, block_instability=(0.1,) * 3, passes=(1,) * 3, instability=(0.1,) * 6))
    view.observe(Step(1, "resolve", None, (), tuple(Commit(p, p, 0.5) for p in range(6))))
    view.observe(
        Step(2, "weld", 0, tuple(Remask(p, p, 0.1) for p in (1, 2, 4)), tuple(Commit(p, p, 0.5) for p in (1, 2, 4)))
    )
    output = file.getvalue()
    assert [line for line in output.splitlines() if "finished" in line] == [
        f'window 1: block {b + 1} finished in 1 pass: "{2 * b}{2 * b + 1}"' for b in range(3)
    ]
    assert "weld of blocks 1 to 3 remasked 3 tokens and refined in 1 pass: nothing changed" in output


def test_control_characters_are_shown_and_never_obeyed() -> None:
    hostile = "a\x1b[2J\x00\x07\r\x7f\x9b\u202e\u200b\u2028[red]b[/red]"
    for shown in (visible(hostile), literal(hostile)):
        assert shown == "a␛[2J␀␇␍␡\\u009b\\u202e\\u200b\\u2028[red]b[/red]"
    assert visible("x\n\ty") == "x⏎⇥y"
    assert literal("x\n\ty") == "x\n\ty"
    names = TokenTexts(lambda token: ["  ", " a", "", "\n"][token], ())
    assert [names(token) for token in range(4)] == ["··", " a", "", "⏎"]


def test_terminal_shows_hostile_tokens_literally_and_fits_80_columns() -> None:
    screen = console()
    generation = example()
    with TerminalView(screen, texts()) as view:
        replay(view, generation)
    raw = screen.file.getvalue()
    assert "\x1b[31m" not in raw.replace("\x1b[31m░", ""), "a token's escape sequence must not reach the terminal"
    shown = ESCAPE.sub("", raw)
    assert "2[one two⏎·]1[ four[bold]␛[31m∎]" in shown
    assert "window 1 · tokens 0–7 · L = 8 · μ = 28.0" in shown
    assert "P(MAP | O) 0.61 a window" in shown
    assert max(cell_len(line) for line in shown.splitlines()) <= 80


def test_a_window_while_it_is_decoded() -> None:
    generation = example()
    names = texts()
    opened = printed(Scene(generation.windows[0].opened), names)
    assert "░" * 8 in opened[1] and "[" not in opened[1]
    assert "░░░ wrong░░░░" in printed(scenes(generation, 1), names)[1]
    during = printed(scenes(generation, 2), names)
    assert "2[░░░░]1[░[bold]␛[31m∎]" in during[3]
    assert "▸ 1" in during[5] and "H = 0.70" in during[5] and "T =  2" in during[5] and "1 pass" in during[5]
    assert "✓ 1" in printed(scenes(generation, 4), names)[5]
    assert "2[one two⏎·]1[▒[bold]␛[31m∎]" in printed(scenes(generation, 5), names)[3]
    assert "diagnostic 1 · resolve 3 · weld 2 · P = 0.61 " in printed(scenes(generation, 6), names)[-1]


def test_fresh_tokens_stay_fresh_until_they_were_drawn() -> None:
    scene = scenes(example(), 4)
    assert scene.fresh == {0, 1, 2, 3, 4, 5, 6, 7}
    scene.rest()
    assert scene.fresh == set()


def test_welded_positions_are_underlined_and_changed_ones_bold() -> None:
    scene = scenes(example(), 6)
    scene.rest()
    screen = console()
    with screen.capture() as captured:
        screen.print(window_panel(scene, texts()))
    assert re.search(r"\x1b\[1;4;[0-9;]*m two\x1b", captured.get())
    assert re.search(r"\x1b\[4;[0-9;]*m four\x1b", captured.get())


def test_neighbouring_blocks_differ_by_colour_and_without_colours_by_number() -> None:
    count = 3 * len(PALETTE)
    scene = many_blocks(count)
    screen = console(200)
    with screen.capture() as captured:
        screen.print(window_panel(scene, TokenTexts(str, ())))
    colours = re.findall(r"\x1b\[30;48;2;(\d+;\d+;\d+)m|\x1b\[38;2;0;0;0;48;2;(\d+;\d+;\d+)m", captured.get())
    assert len(colours) == count and all(a != b for a, b in pairwise(colours))

    bare = console(200, no_color=True)
    with bare.capture() as captured:
        bare.print(window_panel(scene, TokenTexts(str, ())))
    assert not re.search(r"\x1b\[[0-9;]*[34]8;", captured.get())
    shown = ESCAPE.sub("", captured.get())
    assert all(f"{turn}[" in shown for turn in range(1, count + 1))


def many_blocks(count: int) -> Scene:
    """A finished window of `count` blocks of two tokens, decoded from right to left."""
    scene = Scene(WindowOpened(0, 0, 2 * count, 0.5, 20.0))
    structure = example().windows[0].structure
    assert structure is not None
    scene.advance(
        replace(
            structure,
            ends=tuple(range(2, 2 * count + 1, 2)),
            order=tuple(reversed(range(count))),
            instability=(0.5,) * (2 * count),
            block_instability=(0.5,) * count,
            passes=(2,) * count,
        )
    )
    for block in range(count):
        scene.advance(Step(block + 1, "resolve", block, (), tuple(Commit(2 * block + i, i, 0.5) for i in (0, 1))))
    scene.rest()
    return scene


@pytest.mark.parametrize("width", [40, 80, 120])
def test_long_windows_are_wrapped(width: int) -> None:
    lines = printed(many_blocks(150), TokenTexts(lambda token: " word" if token else "x" * 30, ()), width)
    assert {cell_len(line) for line in lines} == {width}
    assert sum(line.count("▅") for line in lines) == 300, "one bar a position"
    assert sum(line.count("x") for line in lines) == 150 * 30


def test_frames_are_throttled(monkeypatch: pytest.MonkeyPatch) -> None:
    frames = 0
    update = Live.update

    def counting(self: Live, *args: object, **settings: object) -> None:
        nonlocal frames
        frames += 1
        update(self, *args, **settings)

    monkeypatch.setattr(Live, "update", counting)
    now = 0.0

    def clock() -> float:
        nonlocal now
        now += 0.002
        return now

    generation = real(1, DECODERS[0], end_logit=-50.0)
    with TerminalView(console(), TokenTexts.of(generation), clock) as view:
        replay(view, generation)
    assert generation.forward_passes > 50
    assert frames <= now / REFRESH_SECONDS + len(generation.windows) + 3


def test_an_interrupted_window_stays_on_the_screen() -> None:
    screen = console()

    def interrupted(view: TerminalView) -> None:
        view.begin("p", "c")
        for event in islice(example().windows[0].events(), 4):
            view.observe(event)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), TerminalView(screen, texts(), lambda: 0.0) as view:
        interrupted(view)
    assert "░[bold]␛[31m∎" in ESCAPE.sub("", screen.file.getvalue())


def test_pictures_are_svg_and_can_stop_half_way() -> None:
    generation = example()
    whole, half = picture(generation), picture(generation, width=70, until=2)
    words = ["".join(ElementTree.fromstring(svg).itertext()).replace("\xa0", " ") for svg in (whole, half)]
    assert "P(MAP | O)" in words[0] and "[bold]␛[31m" in words[0]
    assert "P(MAP | O)" not in words[1] and "2[░░░░]1[░" in words[1]
    assert "resolve 1" in words[1] and "resolve 3" in words[0]


def test_replay_waits_behind_passes_only(monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []
    monkeypatch.setattr("dystruct.decoding.terminal.view.time.sleep", waits.append)
    generation = example()
    replay(PlainView(io.StringIO(), texts()), generation, 0.25)
    assert waits == [0.25] * generation.forward_passes


def test_the_view_suits_standard_output(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)
    with open_view(texts()) as view:
        assert isinstance(view, PlainView)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    with open_view(texts()) as view:
        assert isinstance(view, TerminalView)
    monkeypatch.setenv("TERM", "dumb")
    with open_view(texts()) as view:
        assert isinstance(view, PlainView)


def test_summary_of_an_empty_response() -> None:
    empty = replace(example(), windows=(), tokens=(), token_texts={}, useful_tokens=0, wasted_tokens=0, passes={})
    figures = dict(summary(empty))
    assert figures["windows"] == "0, with 0 blocks" and figures["wasted tokens"] == "0"
    assert figures["useful tokens"].startswith("0, 0.00")
