"""What the embedded tasks' YAML files call: their items from local JSON lines, and how an answer is scored."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from datasets import Dataset, DatasetDict, load_dataset

from ..tiny.problem import Problem
from ..tiny.scoring import score
from .tasks import COUNTS, path_of


def _data(task: str, **_: Any) -> DatasetDict | Dataset:
    """A task's splits; the harness hands over metadata that is of no use here."""
    return load_dataset("json", data_files={split: str(path_of(task, split)) for split in COUNTS})


tiny_maths = partial(_data, "tiny_maths")
tiny_code = partial(_data, "tiny_code")
tiny_logic = partial(_data, "tiny_logic")


def process_results(doc: Mapping[str, str], results: Sequence[str]) -> dict[str, float]:
    """The metric `correct`: 1 or 0. Code is run; the harness has asked for leave by then."""
    return {"correct": float(score(Problem(**doc), results[0], execute_code=True).correct)}
