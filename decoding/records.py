"""A file of measurements, one JSON record a line: written while they are made, and gone on with after a kill.

The first line holds the settings that all records share; each other line has a `key` that names what was measured. A
line that a kill cut short is dropped when the file is opened again. Knows nothing of what is measured.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from .errors import UserError
from .json_lines import JsonLines, whole_lines
from .kinds import is_whole
from .plain import as_plain

Key = tuple[str | int, ...]


class Records:
    """An open file of records; see `open_records`."""

    def __init__(self, file: JsonLines, done: set[Key], digits: int | None) -> None:
        self._file, self._done, self._digits = file, done, digits

    def __contains__(self, key: Sequence[str | int]) -> bool:
        return tuple(key) in self._done

    def append(self, key: Sequence[str | int], **values: Any) -> None:
        """Write what was measured under a key that has no record yet, on disk when this returns."""
        if key in self:
            raise ValueError(f"there is a record of {tuple(key)} already.")
        self._file.append(_line(as_plain({"key": list(key), **values}, self._digits)))
        self._done.add(tuple(key))


@contextmanager
def open_records(
    path: Path, settings: Mapping[str, Any], *, format: str, digits: int | None = None
) -> Iterator[Records]:
    """Open a file to append to, or begin it.

    format: what the file's first line says that it is. digits: significant ones that a record keeps; None: all.
    Raises UserError, and leaves the file as it is, if it was begun with other settings, is no file of records, or is
    being written by another process.
    """
    asked = as_plain({"format": format, **settings})
    first = _line(asked)
    with JsonLines(path, "choose another file") as file:
        file.hold()
        content = file.read()
        if first.startswith(content):  # it is empty, or a kill cut this very line short
            file.append(first[len(content) :])
            done = set[Key]()
        else:
            before, found, length = _parsed(path, content, format)
            for name in sorted(before.keys() | asked.keys()):
                if before.get(name) != asked.get(name):
                    raise UserError(
                        f"{str(path)!r} was begun with {name} {before.get(name)!r}, not {asked.get(name)!r}; "
                        f"give the same settings or another file, or remove it to begin anew."
                    )
            file.cut(length)
            done = {tuple(record["key"]) for record in found}
        yield Records(file, done, digits)


def read_records(paths: Sequence[Path], *, format: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The settings and all records of files that were begun with the same settings, in the order of their keys.

    Raises UserError for a file that is missing or no file of records, other settings, or a key that occurs twice.
    """
    shared: dict[str, Any] | None = None
    by_key: dict[Key, dict[str, Any]] = {}
    for path in paths:
        try:
            content = path.read_bytes()
        except OSError as error:
            raise UserError(
                f"The records {str(path)!r} cannot be read ({error.strerror}); correct the path."
            ) from error
        settings, records, _ = _parsed(path, content, format)
        if shared is not None and settings != shared:
            raise UserError(f"{str(path)!r} was begun with other settings than {str(paths[0])!r}; report them apart.")
        shared = settings
        for record in records:
            if tuple(record["key"]) in by_key:
                raise UserError(f"The record of {record['key']} occurs twice; name each file of records once.")
            by_key[tuple(record["key"])] = record
    return shared or {}, [by_key[key] for key in sorted(by_key, key=_place)]


def _place(key: Key) -> list[tuple[bool, str | int]]:
    """What keys are ordered by: numbers come before texts."""
    return [(isinstance(part, str), part) for part in key]


def _line(content: Mapping[str, Any]) -> bytes:
    return json.dumps(content).encode() + b"\n"


def _parsed(path: Path, content: bytes, format: str) -> tuple[dict[str, Any], list[dict[str, Any]], int]:
    """The settings and records of a file's whole lines, and how many bytes these take."""
    try:
        lines, length = whole_lines(content)
        if not lines or not isinstance(lines[0], dict) or lines[0].get("format") != format:
            raise ValueError(f"its first line does not give the format {format!r}")
        for number, line in enumerate(lines[1:], start=2):
            if not _is_record(line):
                raise ValueError(f"line {number}: it is no record under a key of texts and whole numbers")
    except ValueError as error:
        raise UserError(f"{str(path)!r} is no file of measurements ({error}); give another one.") from error
    return lines[0], lines[1:], length


def _is_record(line: Any) -> bool:
    key = line.get("key") if isinstance(line, dict) else None
    return isinstance(key, list) and all(isinstance(part, str) or is_whole(part) for part in key)
