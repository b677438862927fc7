"""`dystruct eval` on tasks of lm-evaluation-harness: its prompts, filters and metrics, our records.

Texts are put on record as they come, so that a run that was killed goes on where it was. When all of them are there,
the harness scores them; `scores.json` then says which items are right, `harness.json` has the harness's own results,
and `samples.jsonl`, if asked for or there already, every prompt, answer and score.

An item is right by the first metric of its task that says right or wrong, under the first of its filters (gsm8k:
exact_match of strict-match). A metric says so if each of its raw values is 0 or 1 and 1 is better: no probability, log
likelihood, F1 or BLEU. Where a task has none, its items are neither right nor wrong.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from lm_eval import simple_evaluate
from lm_eval.tasks import TaskManager

from ..backbone import Backbone
from ..errors import UserError
from ..files import save_json, save_text
from .checks import check_code, check_harness
from .environment import attempt
from .harness import DystructLM
from .harness_code import limited_code, whole_answers
from .harness_records import HarnessRecords
from .likelihood import LikelihoodSettings
from .local import Progress
from .run_folder import RunFolder
from .run_record import SAMPLES, SCORES, shorter
from .settings import RunSettings, defaults_of, free_of, prior_of
from .tasks import FOLDER


@dataclass(frozen=True)
class HarnessSettings:
    """What a run through the harness is asked for beside its `RunSettings`.

    data: local JSON lines by task, in place of its data set: a file of test items, or a folder with test.jsonl and what
    else the task takes, such as train.jsonl for its examples. likelihood: of loglikelihood requests. samples: whether
    to write samples.jsonl. own_tasks: a folder of task files of one's own, as the harness reads them; the Python that
    they name is run.
    """

    data: Mapping[str, Path]
    likelihood: LikelihoodSettings
    samples: bool = False
    own_tasks: Path | None = None


def run_harness(
    settings: RunSettings,
    harness: HarnessSettings,
    model: Backbone,
    identity: Mapping[str, Any],
    folder: Path,
    report: Callable[[Progress], None] | None = None,
) -> bool:
    """Run tasks of the harness, with all that `folder` does not hold yet; whether the results are this process's.

    Of several processes only the first has results. A larger limit than that of the run in the folder prolongs it: its
    items are asked for with the prompts that they had, and all of them are scored again.

    Raises UserError for tasks that there are not or that cannot be read, for code without execute_code, and for a
    folder that holds a run of other settings.
    """
    check_harness(settings)
    check_code(settings)
    lm = DystructLM(
        model, settings.decoder, settings.max_new_tokens, settings.budget, settings.temperature, settings.seeds[0],
        settings.batch_size, settings.prefix_cache, prompt_format=settings.prompt_format,
        mc_samples=harness.likelihood.samples, mc_batch_size=harness.likelihood.batch,
        mc_guidance=harness.likelihood.guidance, check_greedy=harness.likelihood.greedy,
    )  # fmt: skip
    with limited_code(execute_code=settings.execute_code):
        loaded = load_tasks(settings.tasks, harness.data, harness.own_tasks)
        for task in loaded:
            if task.task_name in harness.data and not os.path.isdir(harness.data[task.task_name]):
                _check_examples(task, settings.shots)
        docs = {task.task_name: list(task.eval_docs)[: settings.limit] for task in loaded}
        described = settings.described(identity, lm.decoder, _told(docs))
        described["likelihood"] = asdict(harness.likelihood)
        described["data"] = {task: str(path) for task, path in harness.data.items()}
        if harness.own_tasks is not None:
            described["own_tasks"] = _files_digest(harness.own_tasks)
        part = lm.rank if lm.world_size > 1 else None
        with RunFolder(
            folder,
            described,
            attempt(model, settings.batch_size, lm.world_size),
            part=part,
            shorter=shorter(described, docs, _told, folder),
            defaults=defaults_of(lm.decoder),
            free=free_of(lm.decoder),
        ) as records:
            lm.records = HarnessRecords(records, settings, prior_of(lm.decoder), report)
            results = simple_evaluate(
                model=lm,
                tasks=loaded,
                task_manager=TaskManager(include_defaults=False),
                num_fewshot=settings.shots,
                limit=settings.limit,
                apply_chat_template=settings.chat,
                fewshot_as_multiturn=settings.chat,
                bootstrap_iters=0,
                confirm_run_unsafe_code=settings.execute_code,
                random_seed=settings.seeds[0],
                numpy_random_seed=settings.seeds[0],
                torch_random_seed=settings.seeds[0],
                fewshot_random_seed=settings.seeds[0],
            )
    if results is not None:
        _write(results, folder, harness)
    return results is not None


def load_tasks(names: Sequence[str], data: Mapping[str, Path], own: Path | None = None) -> list[Any]:
    """The harness's tasks of these names (groups give all of theirs), our three embedded ones among them.

    data: local files in place of data sets. own: a folder of further task files. Raises UserError for a name that there
    is not, and for data and files that cannot be read.
    """
    for name in data:
        if name not in names:
            raise UserError(f"There is data for {name}, which is none of the tasks; name it under --tasks.")
    if own is not None and not os.path.isdir(own):
        raise UserError(f"There is no folder of task files at {str(own)!r}; correct its name.")
    manager = _known_tasks(own)
    found: dict[str, Any] = {}
    for name in names:
        if name not in manager.all_tasks:
            where = "" if own is None else f", and no file in {str(own)!r} has one"
            raise UserError(f"lm-evaluation-harness has no task {name!r}{where}; `lm_eval ls tasks` lists them.")
        changed = {**(_with_data(name, data[name]) if name in data else {}), **whole_answers(name)}
        # a group's members may be changed, tasks may not
        asked = {"group": "local", "task": [{"task": name, **changed}]} if changed else name
        try:
            found |= manager.load([asked])["tasks"]
        except (OSError, ValueError, LookupError, ImportError) as error:
            first = (str(error).strip().split("\n") or [""])[0][:300].rstrip(".")
            raise UserError(
                f"The task {name} cannot be loaded ({type(error).__name__}: {first}); check the connection to its data "
                f"set, or give a local file with --data {name}=FILE."
            ) from error
    return list(found.values())


@cache
def _known_tasks(own: Path | None) -> TaskManager:
    """The harness's thousands of task files, ours and those of a user, looked through once: that takes seconds."""
    return TaskManager(include_path=[str(folder) for folder in (FOLDER, own) if folder is not None])


def _files_digest(folder: Path) -> str:
    """What tells a folder's task files, and the Python that they may name, from others."""
    files = sorted(path for path in folder.rglob("*") if path.suffix in (".yaml", ".yml", ".py"))
    told = hashlib.sha256()
    for path in files:
        told.update(f"{path.relative_to(folder)}\0".encode() + path.read_bytes() + b"\0")
    return told.hexdigest()[:16]


def _with_data(name: str, path: Path) -> dict[str, Any]:
    """What makes a task take local files: one for its test split, or a folder of files named by their splits."""
    if os.path.isdir(path):  # Path.is_dir raises for a name that is too long
        files = {file.name.partition(".")[0]: str(file) for file in sorted(path.iterdir()) if ".json" in file.name}
    else:
        files = {"test": str(path)} if os.path.isfile(path) else {}
    if "test" not in files:
        raise UserError(f"There is no data for {name} at {str(path)!r}; give a file, or a folder with a test.jsonl.")
    changed: dict[str, Any] = {"dataset_path": "json", "dataset_name": None, "dataset_kwargs": {"data_files": files}}
    if not os.path.isdir(path):
        changed |= {"training_split": None, "validation_split": None, "fewshot_split": None}
    return changed


def _check_examples(task: Any, shots: int | None) -> None:
    """UserError if a prompt's examples would have to be test items, since there is no other data."""
    default = task.get_config("num_fewshot") or 0
    if (shots or 0 if shots is not None and default != 0 else default) and not task.fewshot_cfg.samples:
        raise UserError(
            f"The examples of {task.task_name} come from its training items; give --data {task.task_name}=FOLDER with "
            f"test.jsonl and train.jsonl, or --shots 0."
        )


def _told(docs: Mapping[str, Sequence[Any]]) -> dict[str, dict[str, Any]]:
    """How many items of each task a run takes, and a hash of them."""
    return {task: {"items": len(found), "digest": _digest(found)} for task, found in docs.items()}


def _digest(docs: Sequence[Any]) -> str:
    lines = "\n".join(json.dumps(doc, sort_keys=True, default=str) for doc in docs)
    return hashlib.sha256(lines.encode()).hexdigest()[:16]


def judging_metric(samples: Sequence[Mapping[str, Any]], higher_is_better: Mapping[str, bool | None]) -> str | None:
    """The first metric by whose raw values each of a task's samples is right (1) or wrong (0); None if none is such."""
    for name in samples[0]["metrics"] if samples else ():
        values = [sample.get(name) for sample in samples]
        if higher_is_better.get(name) is not False and all(np.isscalar(x) and x in (0, 1) for x in values):
            return str(name)
    return None


def _write(results: Mapping[str, Any], folder: Path, harness: HarnessSettings) -> None:
    """scores.json, harness.json and samples.jsonl."""
    scores: dict[str, dict[str, Any]] = {}
    lines = []
    for task, samples in results["samples"].items():
        shown = [sample for sample in samples if sample["filter"] == samples[0]["filter"]]
        metric = judging_metric(shown, results["higher_is_better"][task])
        for sample in shown:
            answer = sample["filtered_resps"][0]
            scores.setdefault(task, {})[str(sample["doc_id"])] = {
                "correct": None if metric is None else bool(sample[metric]),
                "value": answer if isinstance(answer, str) else json.dumps(answer, default=str),
                "metrics": {name: sample[name] for name in sample["metrics"]},
            }
        lines += [json.dumps({"task": task, **sample}, default=str) for sample in samples]
    if harness.samples or (folder / SAMPLES).exists():
        save_text(folder / SAMPLES, "".join(line + "\n" for line in lines))
    told = {name: results[name] for name in ("results", "groups", "n-shot", "versions", "n-samples") if name in results}
    save_json(folder / "harness.json", json.loads(json.dumps(told, default=str)))
    save_json(folder / SCORES, json.loads(json.dumps(scores, default=str)))
