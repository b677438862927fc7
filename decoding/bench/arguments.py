"""What the benchmarks' programs take in common: whole numbers, and files that can be written."""

from __future__ import annotations

import argparse
from pathlib import Path

from ..errors import UserError
from ..files import check_file_target


def positive(text: str) -> int:
    """A whole number of at least 1; else an error of the argument."""
    try:
        number = int(text)
    except ValueError:
        number = 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number of at least 1")
    return number


def writable(text: str) -> Path:
    """A file that can be written, told before anything is measured; else an error of the argument."""
    path = Path(text)
    try:
        check_file_target(path)
    except UserError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
    return path
