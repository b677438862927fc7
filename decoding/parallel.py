"""Prompts shared out among processes, each with a whole model: data parallelism by accelerate.

    accelerate launch --num_processes 4 script.py

A text depends on neither its batch nor its place, so the results are those of one process (but for near ties in
bfloat16 and on GPUs, see `generate`). Tensor parallelism needs nothing here: transformers gives each process a part of
every layer when a model is loaded so (see `load`), and then all processes make the same `generate` call.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

from .backbone import Backbone
from .engine import Finished
from .errors import DecodingFailed, UserError, in_options
from .generation import checked_prompts, generate, prompt_names
from .row import Decoder
from .trace import Event, Generation

# How long a process waits for the others, which is as long as their shares take. Torch's own limit, of ten minutes on a
# GPU, is for steps of training, which all of them do alike.
PATIENCE = timedelta(weeks=52)


def process_count() -> int:
    """How many processes this one was launched with, itself among them, by torchrun or accelerate; else 1."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def generate_across(
    model: Backbone,
    prompts: Sequence[str],
    decoder: Decoder | None = None,
    *,
    observe: Callable[[int, Event], None] | None = None,
    finished: Finished | None = None,
    **settings: Any,
) -> list[Generation]:
    """As `generate` with these settings, each process of the launch decoding its share; all of them get all results.

    observe, finished: told in each process of its own share. Raises UserError as `generate` does, in all
    processes, and without accelerate.
    """
    try:
        from accelerate import PartialState
        from accelerate.utils import gather_object
    except ImportError as error:
        raise UserError(
            "Decoding across processes needs accelerate; install it with: pip install 'dystruct[accelerate]'."
        ) from error
    prompts = checked_prompts(prompts)
    found: list[tuple[int, Generation | UserError]] = []
    on_cpu = model.device.type == "cpu"  # else accelerate looks for other devices alone
    state = PartialState(cpu=on_cpu, timeout=PATIENCE)
    with state.split_between_processes(list(range(len(prompts)))) as share:
        tell = None if observe is None else lambda index, event: observe(share[index], event)
        done_with = None if finished is None else lambda index, *found: finished(share[index], *found)
        own = [prompts[index] for index in share]
        try:
            done = generate(model, own, decoder, observe=tell, finished=done_with, **settings)
            found += zip(share, done, strict=True)
        except DecodingFailed as error:
            found += [(share[index], value) for index, value in (error.generations | error.failures).items()]
        except UserError as error:  # of the settings, or of one prompt: every prompt's
            everywhere = prompt_names(len(prompts))
            names = dict(zip((everywhere[index] for index in share), prompt_names(len(share)), strict=True))
            told = in_options(str(error), names)
            found += [(index, UserError(told)) for index in share]
    everything = dict(gather_object(found))
    generations = {index: value for index, value in everything.items() if isinstance(value, Generation)}
    failures = {index: value for index, value in everything.items() if isinstance(value, UserError)}
    if failures:
        raise DecodingFailed(generations, failures)
    return [generations[index] for index in range(len(prompts))]
