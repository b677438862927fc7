"""Windows with known targets: diagnostic passes of a model on problems whose answers are known.

Two kinds of trajectories. Along the *reference*, windows follow one another through the known answer: each opens behind
a right beginning, its diagnostic passes run, and the reference's tokens take its place. So every position has a
reference token (end tokens behind the answer), and no realignment is needed. Window lengths are drawn evenly. On the
model's *own* trajectory DyStruct decodes the problem as it always does, and the windows are those that it opened; their
tokens are compared with the reference by `alignment`.

A position's d is 1 if it is wrong, or if a commit of it did not stand. It is wrong, along the reference, if what the
diagnostic passes predicted for it at last is not the reference's token; on the own trajectory, if what was decoded is
not. All of the model's end tokens count as one. A commit did not stand if a diagnostic pass took it back (R4), or if
a weld put another token in its place.

A question is put as `generate` puts a prompt: in the model's prompt format, or with chat in its chat template. Where
the format puts nothing behind a question, a line end follows it, or the answer would go on in the question's last line.
Question and answer are tokenised apart, as they are when a model goes on with a prompt. The line end is the question's,
since a vocabulary may hold a token such as "?\\n": put so, the tokens of both are those of the whole text wherever a
tokenizer begins anew behind a line end, as Qwen2's does, which Dream has.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from numpy.typing import NDArray

from dystruct.inference.calibration import DiagnosedWindow
from dystruct.model import GAP_FEATURES, PriorConfig

from ..backbone import Backbone
from ..dystruct import DyStruct
from ..engine import Engine
from ..errors import UserError
from ..generation import generate
from ..generation_settings import GenerationSettings
from ..passes import shown_positions
from ..row import Pass, Row
from ..trace import Generation, Step, Window
from .alignment import wrong_positions


@dataclass(frozen=True)
class Known:
    """A problem with a known answer; domain: what kind of problem it is."""

    prompt: str
    answer: str
    domain: str = ""


def as_asked(model: Backbone, chat: bool) -> Backbone:
    """The model with the prompt format that calibration problems are put in: with something behind the question."""
    if chat or not model.prompt_format.endswith("{prompt}"):
        return model
    return replace(model, prompt_format=model.prompt_format + "\n")


def encoded(
    model: Backbone, known: Sequence[Known], beyond: int, *, chat: bool = False
) -> tuple[list[list[int]], list[list[int]]]:
    """Token ids of prompts and answers; beyond: how many tokens may follow an answer.

    Raises UserError if a prompt occurs twice, or a problem is too long for the model.
    """
    if not known:
        raise UserError("There are no calibration problems; give some with their answers.")
    asked = as_asked(model, chat)
    prompt_ids = [asked.encode(problem.prompt, chat=chat) for problem in known]
    answers = [list(model.tokenizer(problem.answer, add_special_tokens=False)["input_ids"]) for problem in known]
    if len(set(map(tuple, prompt_ids))) < len(known):
        raise UserError("The same prompt occurs twice among the calibration problems; give each once.")
    lengths = [len(prompt) + len(answer) + beyond for prompt, answer in zip(prompt_ids, answers, strict=True)]
    if max(lengths) > model.max_length:
        longest = known[lengths.index(max(lengths))].prompt
        raise UserError(
            f"The calibration problem {longest[:40]!r} takes {max(lengths)} tokens, but the context of model "
            f"{model.name!r} is {model.max_length}; leave long problems out."
        )
    return prompt_ids, answers


@dataclass
class _AlongReference:
    """A decoder that diagnoses windows along known answers, ids by prompt ids; their lengths are drawn from the prior's
    range.
    """

    answers: dict[tuple[int, ...], list[int]]
    prior: PriorConfig
    passes: int
    found: dict[tuple[int, ...], list[tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]]] = field(
        default_factory=dict
    )

    @property
    def widest(self) -> int:
        return self.prior.max_length

    def decode(self, row: Row) -> Iterator[Pass]:
        key = tuple(row.prompt_ids)
        answer = [*self.answers[key], row.model.eos_id]
        found = self.found.setdefault(key, [])
        while row.length < len(answer) and row.remaining > 0:
            low, high = self.prior.min_length, self.prior.max_length
            drawn = int(torch.randint(low, high + 1, (), generator=row.streams.length))
            window = row.open_window(min(drawn, row.remaining))
            start, end = window.start, window.start + window.length
            before = 0
            for shown in shown_positions(window.length, self.passes):
                yield Pass("diagnostic", start, end, commit=shown, masked=window.length - before)
                before = shown
            predictions = row.read_predictions()
            features, gaps = row.read_diagnostics()
            reference = (answer[start:end] + [row.model.eos_id] * window.length)[: window.length]
            wrong = np.array(_with_one_end(row.model, predictions)) != np.array(_with_one_end(row.model, reference))
            wrong |= _taken_back(row.steps, start, window.length)
            found.append((features.numpy(), gaps.numpy(), wrong.astype(np.float64)))
            row.write(reference)
            row.close_window(reference, features)


def windows_along_reference(
    model: Backbone,
    known: Sequence[Known],
    *,
    prior: PriorConfig | None = None,
    passes: int = 4,
    seed: int = 0,
    batch_size: int = 16,
    chat: bool = False,
) -> list[DiagnosedWindow]:
    """Diagnosed windows along each reference answer; their problems are numbered as in `known`.

    prior: its shortest and longest window. passes: K. chat: put each question as a user's turn, in the chat template of
    an Instruct model. Raises UserError if a prompt occurs twice, a problem is too long for the model, or it knows no
    turns.
    """
    prior = prior or PriorConfig()
    prompt_ids, answers = encoded(model, known, prior.max_length, chat=chat)
    decoder = _AlongReference(dict(zip(map(tuple, prompt_ids), answers, strict=True)), prior, passes)
    longest = max(map(len, answers)) + prior.max_length
    engine = Engine(model, decoder, GenerationSettings(longest, budget=10**9, seed=seed, batch_size=batch_size))
    # Rows of a batch are as long as its longest: problems of like length together.
    order = sorted(range(len(known)), key=lambda index: len(prompt_ids[index]) + len(answers[index]))
    engine.run([known[index].prompt for index in order], [prompt_ids[index] for index in order], None, {})
    return [
        DiagnosedWindow(index, *found, problem.domain)
        for index, (problem, ids) in enumerate(zip(known, prompt_ids, strict=True))
        for found in decoder.found[tuple(ids)]
    ]


def windows_on_own_trajectory(
    model: Backbone,
    known: Sequence[Known],
    *,
    decoder: DyStruct | None = None,
    max_new_tokens: int = 256,
    budget: int = 256,
    seed: int = 0,
    batch_size: int = 16,
    chat: bool = False,
) -> list[DiagnosedWindow]:
    """The windows that DyStruct opens when it decodes the problems, numbered as in `known`.

    decoder: by default one under the model's weights, a token a pass (`passes="share"`). Windows for which no
    diagnostic pass was left are not among them. chat, and errors: as of `windows_along_reference`; UserError, too, if
    the decoder infers lengths, since of what its passes saw a window keeps a part, and h is centred over the whole.
    """
    if decoder is not None and decoder.length_law != "prior":
        raise UserError(
            "Weights are fitted to windows whose lengths come from the prior; leave length_law posterior out."
        )
    _, answers = encoded(model, known, 0, chat=chat)
    generations = generate(
        as_asked(model, chat),
        [problem.prompt for problem in known],
        decoder or DyStruct(passes="share", weights=model.weights),
        max_new_tokens=max_new_tokens,
        budget=budget,
        seed=seed,
        batch_size=batch_size,
        chat=chat,
    )
    return [
        window
        for index, (generation, answer) in enumerate(zip(generations, answers, strict=True))
        for window in _of_generation(generation, answer, model, index, known[index].domain)
    ]


def _of_generation(
    generation: Generation, answer: list[int], model: Backbone, problem: int, domain: str
) -> Iterator[DiagnosedWindow]:
    tokens = _with_one_end(model, generation.tokens)
    starts = [window.opened.start for window in generation.windows]
    wrong = wrong_positions(_with_one_end(model, answer), tokens, starts, model.eos_id)
    for window in generation.windows:
        start, length = window.opened.start, window.opened.length
        if window.structure is None or not window.structure.position_features:
            continue
        did_not_stand = _taken_back(window.steps, start, length) | _replaced(window)
        gap_features = np.reshape(window.structure.gap_features, (length - 1, len(GAP_FEATURES)))
        yield DiagnosedWindow(
            problem,
            np.array(window.structure.position_features),
            gap_features[:, GAP_FEATURES.index("divergence")],
            (wrong[start : start + length] | did_not_stand).astype(np.float64),
            domain,
        )


def _with_one_end(model: Backbone, tokens: Sequence[int]) -> list[int]:
    """Tokens with the end token in the place of every token that ends a text."""
    return [model.eos_id if token in model.end_ids else token for token in tokens]


def _taken_back(steps: Sequence[Step], start: int, length: int) -> NDArray[np.bool_]:
    """Which positions (L,) of a window were shown after one diagnostic pass and not after the next."""
    diagnostic = [step for step in steps if step.kind == "diagnostic"]
    shown = np.zeros((len(diagnostic), length), dtype=bool)
    for k, step in enumerate(diagnostic):
        shown[k, [commit.position - start for commit in step.commits]] = True
    return np.asarray((shown[:-1] & ~shown[1:]).any(axis=0))


def _replaced(window: Window) -> NDArray[np.bool_]:
    """Which positions (L,) a weld masked again that hold another token in the end."""
    found = np.zeros(window.opened.length, dtype=bool)
    for step in window.steps:
        for remask in step.remasked:
            place = remask.position - window.opened.start
            found[place] |= window.closed.tokens[place] != remask.token
    return found
