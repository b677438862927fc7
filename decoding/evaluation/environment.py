"""Where a run took place: versions, hardware, the sources' git revision; in how many processes and batches."""

from __future__ import annotations

import os
import platform
import subprocess
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from ..backbone import Backbone

PACKAGES = ("dystruct", "torch", "transformers", "tokenizers", "numpy", "scipy", "lm_eval")


def environment(device: torch.device, *, compiled: bool = False) -> dict[str, Any]:
    """Versions, machine, device and revision as plain data, and the time (UTC) at which they were asked for.

    compiled: whether the model's forward pass is, which changes what its passes take.
    """
    return {
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "python": platform.python_version(),
        "versions": {name: found for name in PACKAGES if (found := _version(name))},
        "platform": platform.platform(),
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "threads": torch.get_num_threads(),
        "device": str(device),
        "compiled": compiled,
        "accelerator": torch.cuda.get_device_name(device) if device.type == "cuda" else None,
        "git": git_revision(),
    }


def attempt(model: Backbone, batch_size: int, processes: int = 1) -> dict[str, Any]:
    """What is on record of an attempt at a run: its environment, processes, and prompts that each decoded at once."""
    found = environment(model.device, compiled=model.compiled)
    return {**found, "processes": processes, "batch_size": batch_size}


def git_revision() -> str | None:
    """The commit that the sources are a checkout of, with "+" behind it where they differ; None if they are none."""
    folder = Path(__file__).parent.parent

    def git(*arguments: str) -> str:
        return subprocess.run(["git", "-C", str(folder), *arguments], capture_output=True, text=True, check=True).stdout

    try:
        if not git("ls-files", "--", "__init__.py"):
            return None  # installed into a checkout of something else
        changed = git("status", "--porcelain", "--untracked-files=no", "--", ".", "../model", "../inference")
        return git("rev-parse", "HEAD").strip() + ("+" if changed.strip() else "")
    except (OSError, subprocess.CalledProcessError):
        return None


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _processor() -> str:
    """The processor's name, which the platform module knows on some systems only."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()
