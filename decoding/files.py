"""Files and folders that are written whole or not at all: what stands there is replaced when all is written.

A target can be looked at beforehand, so that nothing is computed in vain. Symbolic links are followed. Knows nothing
of what is written.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from .errors import UserError


def check_file_target(path: Path) -> None:
    """Raise UserError if a file cannot be written at `path`."""
    _check_name(path)
    if path.is_dir():
        raise UserError(f"{str(path)!r} is a folder; name a file to write.")
    if path.exists() and not path.is_file():
        raise UserError(f"{str(path)!r} is no regular file; name another one to write.")
    _check_folder(_place(path).parent)


def check_folder_target(path: Path) -> None:
    """Raise UserError unless `path` can become a folder of our own: it is not there yet, or empty."""
    _check_name(path)
    if path.exists() and not path.is_dir():
        raise UserError(f"{str(path)!r} is a file, and a folder is to be written; name a new one.")
    if path.is_dir() and any(path.iterdir()):
        raise UserError(f"The folder {str(path)!r} is not empty; name a new one, so that nothing older gets mixed in.")
    _check_folder(_place(path.absolute()).parent)


def save_text(path: str | os.PathLike[str], text: str) -> None:
    """Write a file. Raises UserError, and leaves what was there, if it cannot be written."""
    check_file_target(Path(path))
    with _writing(Path(path)) as partial:
        partial.write_text(text, encoding="utf-8", newline="\n")


def save_bytes(path: str | os.PathLike[str], content: bytes) -> None:
    """Write a file of other data than text, as a picture. Raises UserError as `save_text` does."""
    check_file_target(Path(path))
    with _writing(Path(path)) as partial:
        partial.write_bytes(content)


def save_json(path: str | os.PathLike[str], content: Any) -> None:
    """Write plain data as a file to be read by people, too. Raises UserError as `save_text` does."""
    save_text(path, json.dumps(content, indent=1, ensure_ascii=False) + "\n")


def save_folder(path: Path, texts: Iterable[tuple[str, str]]) -> None:
    """Write files, by their names, to a folder that appears when all are written.

    Raises UserError, and leaves no folder behind, if they cannot be written.
    """
    check_folder_target(path)
    with _writing(path) as partial:
        _remove(partial)
        partial.mkdir()
        for name, text in texts:
            (partial / name).write_text(text, encoding="utf-8", newline="\n")
        if path.is_dir():
            path.resolve().rmdir()


@contextmanager
def _writing(path: Path) -> Iterator[Path]:
    """Where to write what takes the place of `path` at the end; nothing of it is left behind if that is not reached."""
    target = path.resolve()
    partial = _partial(target)
    try:
        yield partial
        os.replace(partial, target)
    except OSError as error:
        raise UserError(
            f"{str(path)!r} could not be written ({error.strerror}); make room or choose another place."
        ) from error
    finally:
        _remove(partial)


def _remove(partial: Path) -> None:
    shutil.rmtree(partial, ignore_errors=True)
    with suppress(OSError):
        partial.unlink()


def _partial(target: Path) -> Path:
    return target.with_name(f"{target.name}.{os.getpid()}.partial")  # two processes may write one file


def _place(path: Path) -> Path:
    """Where a path leads, in the words in which it was given unless it is a symbolic link."""
    return path.resolve() if path.is_symlink() else path


def _check_name(path: Path) -> None:
    for name in (path, _partial(path.absolute())):
        try:
            name.stat()
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
