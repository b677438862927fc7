"""The command line: `dystruct generate`, `show`, `decoders`, `compare`, `calibrate`, `accuracy`, `train`.

Reads options, prompts and files; everything else is done elsewhere. torch and transformers are imported by the
commands that need them, so that `--help` comes at once. What a user got wrong ends as one sentence on standard
error and exit code 2.
"""

from __future__ import annotations

import functools
import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.metadata import version as installed_version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from ..errors import UserError
from . import options
from .compare_commands import compare, decoders
from .eval_command import evaluate
from .measure_commands import accuracy, calibrate
from .prompts import STANDARD_INPUT, read_prompts
from .reporting import complain, reporting, status
from .rival_options import with_rival_options
from .sweep_command import sweep
from .tables_command import tables
from .targets import check_file_target, check_folder_target, save_text, save_trace, save_traces
from .train_command import train
from .weights_options import ForceWeights, Weights, weights_given

if TYPE_CHECKING:
    from ..backbone import Backbone
    from ..trace import Event, Generation

Run = Callable[..., "list[Generation]"]

app = typer.Typer(
    name="dystruct",
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Dynamically structured decoding of masked diffusion language models.",
)


def main(arguments: list[str] | None = None) -> NoReturn:
    """Run the command line and exit: 0 when done, 2 when the user has to correct something, 130 when interrupted."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # what a terminal cannot show is a "?", no traceback
    usage_error: type[Any] = typer.BadParameter.__bases__[0]
    try:
        status = app(args=arguments, prog_name="dystruct", standalone_mode=False)
        sys.stdout.flush()
    except usage_error as error:
        where = error.ctx.command_path if error.ctx else "dystruct"
        complain(f"{error.format_message().rstrip('.')}; see `{where} --help`.")
        status = 2
    except (KeyboardInterrupt, typer.Abort):
        status = 130
    except BrokenPipeError:
        # Nobody reads on: what is still buffered goes nowhere, instead of failing again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        status = 141
    if status == 130:
        complain("interrupted.")
    sys.exit(status or 0)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"dystruct {installed_version('dystruct')}")
        raise typer.Exit()


@app.callback(invoke_without_command=True)
def _root(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    if context.invoked_subcommand is None:
        typer.echo(context.get_help(), nl=False)
        raise typer.Exit(2)


@app.command()
@reporting
@with_rival_options
def generate(
    prompt: options.Prompt = None,
    file: options.PromptFile = None,
    model: options.Model = "tiny",
    chat: options.Chat = False,
    device: options.Device = None,
    device_map: options.DeviceMap = None,
    dtype: options.Dtype = None,
    revision: options.Revision = None,
    weights: Weights = None,
    force_weights: ForceWeights = False,
    decoder: options.Decoder = "dystruct",
    preset: options.Preset = None,
    structure: options.Structure = None,
    length_rule: options.LengthRule = None,
    alpha0: options.Alpha0 = None,
    gamma: options.Gamma = None,
    passes: options.Passes = None,
    weld: options.WeldRule = None,
    r_weld: options.WeldRadius = None,
    block_length: options.BlockLength = None,
    max_new_tokens: options.MaxNewTokens = 256,
    budget: options.Budget = 256,
    temperature: options.Temperature = 0.0,
    stop: options.Stop = None,
    seed: options.Seed = 0,
    batch_size: options.BatchSize = 8,
    prefix_cache: options.PrefixCache = False,
    save: options.Save = None,
    as_json: options.AsJson = False,
    quiet: options.Quiet = False,
    *,
    rivals: dict[str, Any],
) -> None:
    """Decode a text for PROMPT, or for every prompt of a file, and show how it came about."""
    if as_json and quiet:
        raise UserError("--json and --quiet exclude each other; give one of them.")
    more = weights_given([decoder], weights, force_weights)
    prompts = _prompts(prompt, file)
    if save is not None:
        (check_file_target if len(prompts) == 1 else check_folder_target)(save)
    given = {
        "--structure": structure,
        "--length-rule": length_rule,
        "--alpha0": alpha0,
        "--gamma": gamma,
        "--passes": passes,
        "--weld": weld,
        "--r-weld": r_weld,
        "--block-length": block_length,
        **rivals,
    }
    with status("starting"):
        from .. import generate as run
        from ..ending import checked_stop, with_stop_tokens

        chosen = options.decoder_of(
            decoder, preset, {name: value for name, value in given.items() if value is not None}
        )
        stops = checked_stop(stop or ())
    backbone = options.load_model(model, device=device, device_map=device_map, dtype=dtype, revision=revision, **more)
    backbone = with_stop_tokens(backbone, stops)
    decode = functools.partial(
        run,
        backbone,
        prompts,
        chosen,
        max_new_tokens=max_new_tokens,
        budget=budget,
        temperature=temperature,
        stop=stops,
        seed=seed,
        batch_size=batch_size,
        chat=chat,
        prefix_cache=prefix_cache,
    )
    many = functools.partial(_decode_many, decode, len(prompts), backbone, stops, max_new_tokens, budget)
    settings = {
        "decoder": type(chosen).__name__,
        "structure": getattr(chosen, "structure", None),
        "temperature": temperature,
        "seed": seed,
    }
    with _memory_errors(batch_size):
        if as_json or quiet:
            watched = as_json and len(prompts) > 1 and sys.stderr.isatty()
            generations = many() if watched else decode()
            _save(save, generations)
            _print_bare(generations, as_json)
        elif len(prompts) == 1:
            _decode_one(decode, backbone, prompts[0], settings, lambda found: _save(save, found))
        else:
            generations = many()
            _save(save, generations)
            _print_many(generations)
    if save is not None and not quiet:
        typer.echo(f"saved {save}", err=True)


@app.command()
@reporting
def show(
    trace: options.Trace,
    delay: options.Delay = 0.04,
    svg: options.Svg = None,
    until: options.Until = None,
    width: options.Width = None,
    html: options.Html = None,
    beside: options.Beside = None,
) -> None:
    """Show a decoding that `dystruct generate --save` has recorded, or make a picture or a page of it."""
    from .view import open_view, picture, replay
    from .wording import TokenTexts, is_inferred

    for name, value, needed, target in (
        ("--until", until, "--svg", svg), ("--width", width, "--svg", svg), ("--beside", beside, "--html", html),
    ):  # fmt: skip
        if target is None and value is not None:
            raise UserError(f"{name} has no use without {needed}; leave it out.")
    if svg is not None and html is not None:
        raise UserError("--svg and --html exclude each other; give one of them.")
    for target in (svg, html):
        if target is not None:
            check_file_target(target)
    generation = _read_trace(trace)
    if svg is not None:
        save_text(svg, picture(generation, width=width or 96, until=until))
        return
    if html is not None:
        from ..replay import replay_page

        other = None if beside is None else _read_trace(beside)
        try:
            save_text(html, replay_page(generation, other))
        except ValueError as error:
            raise UserError(str(error)) from error
        return
    with open_view(TokenTexts.of(generation), is_inferred(generation.settings)) as view:
        replay(view, generation, delay if sys.stdout.isatty() else 0.0)


app.command()(reporting(decoders))
app.command()(reporting(compare))
app.command()(reporting(calibrate))
app.command()(reporting(accuracy))
app.command()(reporting(train))
app.command("eval")(reporting(evaluate))
app.command()(reporting(sweep))
app.command()(reporting(tables))


def _read_trace(trace: Path) -> Generation:
    """A trace whose parts fit together; UserError otherwise."""
    from ..trace import Generation
    from .view import picture
    from .wording import summary

    try:
        generation = Generation.load(trace)
    except OSError as error:
        raise UserError(f"The trace {str(trace)!r} cannot be read ({error.strerror}); check its name.") from error
    except ValueError as error:
        raise UserError(str(error)) from error
    try:
        # Goes through every event, so that a damaged trace shows before anything is drawn.
        summary(generation)
        picture(generation, width=96, until=None)
        generation.check()
    except (ValueError, TypeError, LookupError, AttributeError, AssertionError) as error:
        why = f" ({error})" if isinstance(error, ValueError) else ""
        raise UserError(f"The trace {str(trace)!r} does not fit together{why}; save it again.") from error
    return generation


def _prompts(prompt: str | None, file: str | None) -> list[str]:
    if prompt == STANDARD_INPUT and file is None:
        prompt, file = None, STANDARD_INPUT
    if (prompt is None) == (file is None):
        raise UserError("Give either a prompt or --file with prompts, as in: dystruct generate 'How much is 2 + 3?'.")
    if file is not None:
        return read_prompts(file)
    assert prompt is not None
    if not prompt.strip():
        raise UserError("The prompt is empty; give the text to answer.")
    if any("\ud800" <= character <= "\udfff" for character in prompt):
        raise UserError("The prompt is not UTF-8; check the terminal's encoding, or put it into a file for --file.")
    return [prompt]


@contextmanager
def _memory_errors(batch_size: int) -> Iterator[None]:
    import torch

    try:
        yield
    except torch.OutOfMemoryError as error:
        raise UserError(
            f"The device's memory is too small for {batch_size} prompts at once; lower --batch-size."
        ) from error


def _save(path: Any, generations: list[Generation]) -> None:
    if path is None:
        return
    if len(generations) == 1:
        save_trace(path, generations[0])
    else:
        save_traces(path, generations)


def _decode_one(
    decode: Run, backbone: Backbone, prompt: str, settings: dict[str, Any], save: Callable[[list[Generation]], None]
) -> None:
    """Decode the one prompt before the reader's eyes."""
    from ..trace import WindowOpened
    from .view import open_view
    from .wording import TokenTexts, caption, is_inferred

    with open_view(TokenTexts(backbone.token_text, backbone.end_ids), is_inferred(settings)) as view:

        def observe(_: int, event: Event) -> None:
            # Only now, since a prompt that is refused must leave nothing on the screen but the reason.
            if isinstance(event, WindowOpened) and event.index == 0:
                view.begin(prompt, caption(backbone.name, settings))
            view.observe(event)

        generations = decode(observe=observe)
        save(generations)
        view.end(generations[0])


def _decode_many(
    decode: Run, count: int, backbone: Backbone, stop: tuple[str, ...], max_new_tokens: int, budget: int
) -> list[Generation]:
    """Decode several prompts, with their progress on standard error."""
    from ..ending import has_ended
    from .view import BatchProgress

    with BatchProgress(count, lambda tokens: has_ended(backbone, tokens, stop), max_new_tokens, budget) as progress:
        return decode(observe=progress.observe)


def _print_bare(generations: list[Generation], as_json: bool) -> None:
    from .wording import literal

    for generation in generations:
        if as_json:
            typer.echo(json.dumps(_record(generation)))
        else:
            # A file gets the text as it is; a terminal must not obey what a model wrote.
            typer.echo(literal(generation.text) if sys.stdout.isatty() else generation.text)


def _print_many(generations: list[Generation]) -> None:
    from .wording import literal, shortened, summary, visible

    for number, generation in enumerate(generations, start=1):
        typer.echo(f"prompt {number} of {len(generations)}: {visible(shortened(generation.prompt))}\n")
        typer.echo(literal(generation.text) + "\n")
        for name, value in summary(generation):
            typer.echo(f"{name}: {value}")
        typer.echo("")
    useful = sum(generation.useful_tokens for generation in generations)
    passes = sum(generation.forward_passes for generation in generations)
    typer.echo(f"in all: {len(generations)} prompts, {useful} useful tokens, {passes} forward passes")


def _record(generation: Generation) -> dict[str, Any]:
    return {
        "prompt": generation.prompt,
        "text": generation.text,
        "stop_reason": generation.stop_reason,
        "counts": {
            "windows": len(generation.windows),
            "blocks": generation.block_count,
            "forward_passes": generation.forward_passes,
            "passes": generation.passes,
            "tokens": len(generation.tokens),
            "useful_tokens": generation.useful_tokens,
            "wasted_tokens": generation.wasted_tokens,
        },
        "seconds": generation.seconds,
        "model": generation.model,
        "settings": generation.settings,
    }
