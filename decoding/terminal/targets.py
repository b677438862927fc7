"""Where results are written: looked at before anything is decoded, written whole or not at all."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from ..errors import UserError
from ..trace import Generation


def check_file_target(path: Path) -> None:
    """Raise UserError if a file cannot be written at `path`."""
    _check_name(path)
    if path.is_dir():
        raise UserError(f"{str(path)!r} is a folder; name a file to write.")
    _check_regular(path)
    _check_folder((path.resolve() if path.is_symlink() else path).parent)


def check_folder_target(path: Path) -> None:
    """Raise UserError unless `path` can become a folder of our own: it is not there yet, or empty."""
    _check_name(path)
    if path.exists() and not path.is_dir():
        raise UserError(f"{str(path)!r} is a file; several prompts are saved to a folder, so name a new one.")
    if path.is_dir() and any(path.iterdir()):
        raise UserError(f"The folder {str(path)!r} is not empty; name a new one, so that no older trace gets mixed in.")
    _check_folder(path.absolute().parent)


def _check_regular(path: Path) -> None:
    """Raise UserError if something stands at `path` that a file must not replace, as a device or a pipe."""
    if path.exists() and not path.is_file():
        raise UserError(f"{str(path)!r} is no regular file; name another one to write.")


def _check_name(path: Path) -> None:
    try:
        path.stat()
    except FileNotFoundError:
        pass
    except (OSError, ValueError) as error:
        raise UserError(f"Nothing can be written at {str(path)[:80]!r} ({error}); choose another name.") from error


def _check_folder(folder: Path) -> None:
    if not folder.is_dir():
        raise UserError(f"There is no folder {str(folder)!r} to write to; make it first.")
    try:
        # Trying is the only sure test: permissions, read-only file systems and quotas all show here.
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise UserError(
            f"Nothing can be written to {str(folder)!r} ({error.strerror}); choose another folder."
        ) from error


def save_trace(path: Path, generation: Generation) -> None:
    """Save one trace; the file at `path`, or where a symbolic link leads, is replaced when all is written."""
    _check_regular(path)
    with _writing(path):
        generation.save(path)


def save_traces(path: Path, generations: Sequence[Generation]) -> None:
    """Save traces as 1.json, 2.json, … (with leading zeros) in a folder, which appears when all are written."""
    target = path.resolve()
    partial = _partial(target)
    digits = len(str(len(generations)))
    with _writing(path):
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir()
        for number, generation in enumerate(generations, start=1):
            generation.save(partial / f"{number:0{digits}d}.json")
        if target.is_dir():
            target.rmdir()
        os.replace(partial, target)


def save_text(path: Path, text: str) -> None:
    """Save a text; the file at `path`, or where a symbolic link leads, is replaced when all is written."""
    _check_regular(path)
    target = path.resolve()
    with _writing(path):
        _partial(target).write_text(text, encoding="utf-8")
        os.replace(_partial(target), target)


def _partial(target: Path) -> Path:
    return target.with_name(target.name + ".partial")


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    """Leave nothing half-written behind, whatever happens while writing."""
    try:
        yield
    except OSError as error:
        raise UserError(
            f"{str(path)!r} could not be written ({error.strerror}); make room or choose another place."
        ) from error
    finally:
        partial = _partial(path.resolve())
        if partial.is_dir():
            shutil.rmtree(partial)
        else:
            partial.unlink(missing_ok=True)
