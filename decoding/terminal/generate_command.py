"""`dystruct generate`: texts for a prompt or for many, shown as they come about, kept, or printed for programs."""

from __future__ import annotations

import functools
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import typer

from ..errors import DecodingFailed, UserError, in_options
from ..files import check_file_target, check_folder_target, save_folder
from . import options
from .decoder_options import Decoder, DecoderOptions, Preset
from .model_options import Chat, Model, WeightedSource
from .prompt_format import PromptFormat, load_prompted
from .prompts import STANDARD_INPUT, read_prompts, source_name
from .reporting import memory_errors, status
from .rival_options import Rivals

if TYPE_CHECKING:
    from ..backbone import Backbone
    from ..trace import Event, Generation

Run = Callable[..., "list[Generation]"]


def generate(
    *,
    prompt: options.Prompt = None,
    file: options.PromptFile = None,
    model: Model = "tiny",
    chat: Chat = False,
    prompt_format: PromptFormat = None,
    source: WeightedSource,
    decoder: Decoder = "dystruct",
    preset: Preset = None,
    decoder_options: DecoderOptions,
    tokens: options.Tokens,
    seed: options.Seed = 0,
    batch_size: options.BatchSize = 8,
    prefix_cache: options.PrefixCache = False,
    append_cache: options.AppendCache = False,
    alternatives: options.Alternatives = 0,
    save: options.Save = None,
    as_json: options.AsJson = False,
    quiet: options.Quiet = False,
    rivals: Rivals,
) -> None:
    """Decode a text for PROMPT, or for every prompt of a file, and show how it came about."""
    if as_json and quiet:
        raise UserError("--json and --quiet exclude each other; give one of them.")
    caching = options.caching(prefix_cache, append_cache, compiled=source.compiled)
    source.check_use([decoder])
    prompts = _prompts(prompt, file)
    if save is not None:
        (check_file_target if len(prompts) == 1 else check_folder_target)(save)
    with status("starting"):
        from .. import generate as run
        from ..ending import checked_stop, with_stop_tokens
        from ..named import named_decoder

        presets = {} if preset is None else {"--preset": preset}
        chosen = named_decoder(decoder, {**presets, **decoder_options.given(), **rivals.given})
        stops = checked_stop(tokens.stop or ())
    backbone = with_stop_tokens(load_prompted(source, model, prompt_format, chat), stops)
    decode = functools.partial(
        run,
        backbone,
        prompts,
        chosen,
        max_new_tokens=tokens.max_new_tokens,
        budget=tokens.budget,
        temperature=tokens.temperature,
        stop=stops,
        seed=seed,
        batch_size=batch_size,
        chat=chat,
        prefix_cache=caching,
        alternatives=alternatives,
    )
    many = functools.partial(_decode_many, decode, len(prompts))
    settings = {
        "decoder": type(chosen).__name__,
        "structure": getattr(chosen, "structure", None),
        "temperature": tokens.temperature,
        "seed": seed,
    }
    with memory_errors(min(batch_size, len(prompts))), _naming_lines(file, len(prompts)):
        if len(prompts) == 1 and not (as_json or quiet):
            _decode_one(decode, backbone, prompts[0], settings, lambda found: _save(save, {1: found}, 1))
            failure = None
        else:
            watched = not quiet and len(prompts) > 1 and (not as_json or sys.stderr.isatty())
            done, failure = _finished(many if watched else decode)
            if failure is not None and not done:
                raise failure
            _save(save, done, len(prompts))
            if as_json or quiet:
                _print_bare(done.values(), as_json)
            else:
                _print_many(done, len(prompts))
    if save is not None and not quiet:
        typer.echo(f"saved {save}", err=True)
    if failure is not None:
        raise UserError(f"{len(prompts) - len(done)} of {len(prompts)} prompts failed, the first so: {failure}")


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
def _naming_lines(file: str | None, count: int) -> Iterator[None]:
    """In an error about one of several prompts, which come from a file, puts its line in the place of its name."""
    from ..generation import prompt_names

    try:
        yield
    except UserError as error:
        if count == 1:
            raise
        name = source_name(file or STANDARD_INPUT)
        lines = {f"Line {number} of {name}": prompt for number, prompt in enumerate(prompt_names(count), start=1)}
        raise UserError(in_options(str(error), lines)) from error


def _finished(decode: Run) -> tuple[dict[int, Generation], UserError | None]:
    """The generations by their prompts' numbers, from 1, and what ended the first of the others, if there are any."""
    try:
        return dict(enumerate(decode(), start=1)), None
    except DecodingFailed as error:
        return {index + 1: error.generations[index] for index in sorted(error.generations)}, error


def _save(path: Any, generations: Mapping[int, Generation], count: int) -> None:
    """Write a file for the one prompt there is, or a folder of one for each of several, named by their numbers."""
    if path is None:
        return
    if count == 1:
        generations[1].save(path)
    else:
        digits = len(str(count))
        texts = ((f"{number:0{digits}d}.json", json.dumps(found.plain())) for number, found in generations.items())
        save_folder(path, texts)


def _decode_one(
    decode: Run, backbone: Backbone, prompt: str, settings: dict[str, Any], save: Callable[[Generation], None]
) -> None:
    """Decode the one prompt before the reader's eyes."""
    from ..trace import WindowOpened
    from ..wording import TokenTexts, caption, is_inferred
    from .view import open_view

    with open_view(TokenTexts(backbone.token_text, backbone.end_ids), is_inferred(settings)) as view:

        def observe(_: int, event: Event) -> None:
            # Only now, since a prompt that is refused must leave nothing on the screen but the reason.
            if isinstance(event, WindowOpened) and event.index == 0:
                view.begin(prompt, caption(backbone.name, settings))
            view.observe(event)

        (generation,) = decode(observe=observe)
        save(generation)
        view.end(generation)


def _decode_many(decode: Run, count: int) -> list[Generation]:
    """Decode several prompts, with their progress on standard error."""
    from .view import BatchProgress

    with BatchProgress(count) as progress:
        return decode(finished=progress.finished)


def _print_bare(generations: Iterable[Generation], as_json: bool) -> None:
    from ..wording import literal

    for generation in generations:
        if as_json:
            typer.echo(json.dumps(_record(generation)))
        else:
            # A file gets the text as it is; a terminal must not obey what a model wrote.
            typer.echo(literal(generation.text) if sys.stdout.isatty() else generation.text)


def _print_many(generations: Mapping[int, Generation], count: int) -> None:
    from ..wording import literal, shortened, summary, visible

    for number, generation in generations.items():
        typer.echo(f"prompt {number} of {count}: {visible(shortened(generation.prompt))}\n")
        typer.echo(literal(generation.text) + "\n")
        for name, value in summary(generation):
            typer.echo(f"{name}: {value}")
        typer.echo("")
    useful = sum(generation.useful_tokens for generation in generations.values())
    passes = sum(generation.forward_passes for generation in generations.values())
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
