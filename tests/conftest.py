"""What every test shares: a fixed seed, one thread, no network, and hypothesis without deadlines."""

from __future__ import annotations

import os
import random

os.environ["HF_HUB_OFFLINE"] = "1"  # read when transformers is imported
os.environ["OMP_NUM_THREADS"] = "1"  # of the processes that tests start: more of them wait for each other's cores

import numpy as np
import pytest
import torch
from hypothesis import settings

from checkpoint_models import checkpoints, dream, llada, models  # noqa: F401 - fixtures
from command_line import calls, run  # noqa: F401
from replay_pages import browser, opened, page  # noqa: F401

torch.set_num_threads(1)  # sums in one order, whatever the machine

settings.register_profile("dystruct", deadline=None)
settings.register_profile("dystruct-ci", deadline=None, derandomize=True, print_blob=True)
settings.load_profile("dystruct-ci" if os.environ.get("CI") else "dystruct")


@pytest.fixture(autouse=True)
def _seeded() -> None:
    """Start each test from the same state of the global generators (Pyro draws from torch's)."""
    random.seed(0)
    np.random.seed(0)  # noqa: NPY002 - for libraries that still draw from it
    torch.manual_seed(0)
