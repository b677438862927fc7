"""The embedded domains, item by item: decode, score, put on record; what is on record already is left out.

Items go in groups of one seed and one draw, several batches long, and each is on record as soon as it is finished; all
seeds and draws of a group's items come before the next items, so that a run that is stopped early has whole items to
compare.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..backbone import Backbone
from ..backbone.prompt_format import with_prompt_format
from ..files import save_text
from ..generation import encoded, generate
from ..tiny.problem import Problem
from ..tiny.scoring import score
from ..trace import Generation
from . import tasks
from .checks import check_code, check_local
from .draws import with_draw
from .environment import attempt
from .figures import figures
from .item_record import check_items
from .run_folder import RunFolder
from .run_record import SAMPLES, Key, damaged, key_of, read_items, shorter
from .settings import RunSettings, defaults_of, free_of, prior_of


@dataclass(frozen=True)
class Progress:
    """How far a run is: items (under each seed and draw) on record, in all, right, and about how many seconds are left.

    correct: None where answers are scored at the end only. seconds_left: None until an item of this attempt is done.
    """

    done: int
    count: int
    correct: int | None
    seconds_left: float | None


def run_local(
    settings: RunSettings,
    model: Backbone,
    identity: Mapping[str, Any],
    folder: Path,
    report: Callable[[Progress], None] | None = None,
) -> None:
    """Decode and score every item of the embedded tasks that `folder` does not hold yet.

    identity: the model's (see `settings.identity`). report: called at the beginning and after every item. Raises
    UserError for tasks, limits and decoders that there are not, for code without execute_code, for prompts that the
    model cannot take, and for a folder that holds a run of other settings; the folder is as it was then. A larger limit
    than that of the run in the folder prolongs it. A samples.jsonl that is there is brought up to date.
    """
    check_local(settings)
    check_code(settings)
    check_prompts(settings, model)
    model = with_prompt_format(model, settings.prompt_format)
    decoder, problems = settings.with_decoder(), asked_items(settings)
    described = settings.described(identity, decoder, told(problems))
    with RunFolder(
        folder,
        described,
        attempt(model, settings.batch_size),
        shorter=shorter(described, problems, told, folder),
        defaults=defaults_of(decoder),
        free=free_of(decoder),
    ) as records:
        every = text_count(settings)
        before, correct = len(records.done), _correct(folder, settings, problems)
        started = time.monotonic()
        _report(report, Progress(before, every, correct, None))

        def recorded(right: bool) -> None:
            nonlocal correct
            correct, done = correct + right, len(records.done)
            rate = (time.monotonic() - started) / (done - before)
            _report(report, Progress(done, every, correct, rate * (every - done)))

        for group in _groups(settings, problems):
            if left := records.left(group):
                _decode(settings, model, decoder, problems[left[0][0]], left, records, recorded)
    if (folder / SAMPLES).exists():
        write_samples(settings, folder)


def asked_items(settings: RunSettings) -> dict[str, list[Problem]]:
    """The items of each of the embedded tasks that are asked for."""
    return {task: tasks.items(task, settings.split, settings.limit) for task in settings.tasks}


def text_count(settings: RunSettings) -> int:
    """How many texts a run of embedded tasks decodes in all."""
    items = sum(len(asked) - settings.skip for asked in asked_items(settings).values())
    return items * len(settings.seeds) * settings.draws


def check_prompts(settings: RunSettings, model: Backbone) -> None:
    """Raise UserError for embedded tasks with a prompt that the model cannot take."""
    model = with_prompt_format(model, settings.prompt_format)
    for task, asked in asked_items(settings).items():
        for number, problem in enumerate(asked[settings.skip :], start=settings.skip):
            encoded(model, problem.question, settings.chat, settings.max_new_tokens, f"Item {task}:{number}")


def told(problems: Mapping[str, Sequence[Problem]]) -> dict[str, dict[str, Any]]:
    """What tells the items of each task."""
    return {task: {"items": len(asked), "digest": tasks.digest(asked)} for task, asked in problems.items()}


def _groups(settings: RunSettings, problems: Mapping[str, list[Problem]]) -> Iterator[list[Key]]:
    for task, asked in problems.items():
        for start in range(settings.skip, len(asked), settings.together):
            numbers = range(start, min(start + settings.together, len(asked)))
            for seed in settings.seeds:
                for draw in range(settings.draws):
                    yield [(task, number, seed, draw) for number in numbers]


def _decode(
    settings: RunSettings,
    model: Backbone,
    decoder: Any,
    asked: list[Problem],
    keys: list[Key],
    records: RunFolder,
    recorded: Callable[[bool], None],
) -> None:
    """Decode the items of these keys, which differ in the item only, score and record them.

    recorded: told of each that is on record whether it is right.
    """
    _, _, seed, draw = keys[0]

    def finished(place: int, generation: Generation, seconds: float) -> None:
        key = keys[place]
        problem = asked[key[1]]
        scored = score(problem, generation.text, execute_code=settings.execute_code)
        record = {
            **dict(zip(("task", "item", "seed", "draw"), key, strict=True)),
            "kind": problem.kind,
            "correct": scored.correct,
            "reason": scored.reason,
            "value": tasks.value_of(problem, generation.text),
            "text": generation.text,
            **vars(figures(generation, seconds, prior_of(decoder))),
        }
        records.add(record, generation.plain() if settings.traces else None)
        recorded(scored.correct)

    generate(
        model,
        [asked[item].question for _, item, _, _ in keys],
        with_draw(decoder, draw),
        **settings.generating(seed),
        finished=finished,
    )


def write_samples(settings: RunSettings, folder: Path) -> None:
    """Write samples.jsonl: each item's prompt, target, text, value and score."""
    asked = asked_items(settings)
    kept = ("task", "item", "seed", "draw", "kind", "text", "value", "correct", "reason")
    lines = []
    for line in read_items(folder):
        problem = asked[line["task"]][line["item"]]
        sample = {**{name: line[name] for name in kept}, "prompt": problem.question, "target": problem.target}
        lines.append(json.dumps(sample, ensure_ascii=False) + "\n")
    save_text(folder / SAMPLES, "".join(lines))


def _correct(folder: Path, settings: RunSettings, problems: Mapping[str, list[Problem]]) -> int:
    """How many items on record are right. Raises UserError for one that is none of the run's."""
    lines = read_items(folder)
    check_items(lines, folder)
    for line in lines:
        task, item, seed, draw = key_of(line)
        is_asked = settings.skip <= item < len(problems.get(task, ()))
        if not is_asked or seed not in settings.seeds or draw >= settings.draws:
            raise damaged(folder, f"the run has no task {task}, item {item}, seed {seed}, draw {draw}")
    return sum(bool(line["correct"]) for line in lines)


def _report(report: Callable[[Progress], None] | None, progress: Progress) -> None:
    if report is not None:
        report(progress)
