"""A file of measurements, one JSON record a line: written while they are made, and gone on with after a kill.

The first line holds the settings that all records share; each other line has a `key` that names what was measured. A
line that a kill cut short is dropped when the file is opened again. Knows nothing of what is measured.
"""

from __future__ import annotations

import fcntl
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

from .errors import UserError
from .plain import as_plain

Key = tuple[Any, ...]


class Records:
    """An open file of records; see `open_records`."""

    def __init__(self, file: TextIO, done: set[Key], digits: int | None) -> None:
        self._file, self._done, self._digits = file, done, digits

    def __contains__(self, key: Sequence[Any]) -> bool:
        return tuple(key) in self._done

    def append(self, key: Sequence[Any], **values: Any) -> None:
        """Write what was measured under a key that has no record yet."""
        if key in self:
            raise ValueError(f"there is a record of {tuple(key)} already.")
        self._file.write(json.dumps(as_plain({"key": list(key), **values}, self._digits)) + "\n")
        self._file.flush()
        self._done.add(tuple(key))


@contextmanager
def open_records(
    path: Path, settings: Mapping[str, Any], *, format: str, digits: int | None = None
) -> Iterator[Records]:
    """Open a file to append to, or begin it.

    format: what the file's first line says that it is. digits: significant ones that a record keeps; None: all.
    Raises UserError if it was begun with other settings, is no file of records, or is being written by another process.
    """
    asked = as_plain({"format": format, **settings})
    try:
        file = path.open("a+", encoding="utf-8")
    except OSError as error:
        raise UserError(f"Nothing can be written to {str(path)!r} ({error.strerror}); choose another file.") from error
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise UserError(f"{str(path)!r} is being written by another process; give each its own file.") from error
        file.seek(0)
        text = file.read()
        whole = text[: text.rfind("\n") + 1]
        if len(whole) < len(text):
            file.truncate(len(whole.encode()))
        if not whole:
            file.write(json.dumps(asked) + "\n")
            file.flush()
            yield Records(file, set(), digits)
            return
        before, found = _parsed(path, whole, format)
        for name in sorted(before.keys() | asked.keys()):
            if before.get(name) != asked.get(name):
                raise UserError(
                    f"{str(path)!r} was begun with {name} {before.get(name)!r}, not {asked.get(name)!r}; "
                    f"give the same settings or another file, or remove it to begin anew."
                )
        yield Records(file, {tuple(record["key"]) for record in found}, digits)


def read_records(paths: Sequence[Path], *, format: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The settings and all records of files that were begun with the same settings, in the order of their keys.

    Raises UserError for a file that is missing or no file of records, other settings, or a key that occurs twice.
    """
    shared: dict[str, Any] | None = None
    by_key: dict[Key, dict[str, Any]] = {}
    for path in paths:
        try:
            text = path.read_text(encoding="utf-8")
        except OSError as error:
            raise UserError(
                f"The records {str(path)!r} cannot be read ({error.strerror}); correct the path."
            ) from error
        settings, records = _parsed(path, text[: text.rfind("\n") + 1], format)
        if shared is not None and settings != shared:
            raise UserError(f"{str(path)!r} was begun with other settings than {str(paths[0])!r}; report them apart.")
        shared = settings
        for record in records:
            if tuple(record["key"]) in by_key:
                raise UserError(f"The record of {record['key']} occurs twice; name each file of records once.")
            by_key[tuple(record["key"])] = record
    return shared or {}, [by_key[key] for key in sorted(by_key)]


def _parsed(path: Path, text: str, format: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    try:
        settings, *records = map(json.loads, text.splitlines())
        if settings["format"] != format or not all(isinstance(record["key"], list) for record in records):
            raise ValueError("it has another format")
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(f"{str(path)!r} is no file of measurements ({error}); give another one.") from error
    return settings, records
