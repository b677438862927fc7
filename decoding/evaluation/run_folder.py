"""The folder of a run: what was asked (`run.json`), one line an item (`items.jsonl`), its trace (`traces.jsonl`).

A run may be killed at any moment and goes on where it was. An item counts once its line in `items.jsonl` is complete:
its trace is on disk before the line is written, and the line says where the trace stands. What stands behind the last
complete line, there and in `traces.jsonl`, is left over from the moment of the kill and is cut off. Only one process
at a time can hold a folder.

Knows nothing of models, decoders and tasks. Keys of items are tuples of texts and numbers.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, BinaryIO

from ..errors import UserError
from ..files import save_json
from ..kinds import is_whole
from ..plain import as_plain
from .agreement import compare, filled

FORMAT = "dystruct-run-1"
SUMMARY = "summary.json"  # what a run came to (see `summary`)
SAMPLES = "samples.jsonl"  # and every prompt, answer and score, where they were asked for
SCORES = "scores.json"  # in a run's folder: what the harness made of its items
KEY = ("task", "item", "seed", "draw")
Key = tuple[str, int, int, int]


class Held(UserError):
    """Another process is writing to a run's folder."""


class RunFolder:
    """A run's folder, held by this process until it is closed.

    settings: all that a result depends on, as plain data; a folder that was begun with others is a UserError, which
    names one that differs, unless it is one of those that are `free` (see `agreement.compare`). environment: of this
    attempt (versions, hardware, batch size); the attempts' are listed in run.json. part: of several processes that
    share a folder, which one this is; each has files of its own. shorter: settings under which a run may have begun
    that this one prolongs; it takes on `settings`. defaults: what a run was made with that began before there was such
    a setting (see `agreement.filled`); it takes on the setting.

    Raises Held while another process has the folder, and UserError too for one that cannot be written, and for records
    that are damaged or not all there.
    """

    def __init__(
        self,
        folder: Path,
        settings: Mapping[str, Any],
        environment: Mapping[str, Any],
        *,
        part: int | None = None,
        shorter: Mapping[str, Any] | None = None,
        defaults: Mapping[str, Any] | None = None,
        free: Collection[str] = (),
    ) -> None:
        self.folder = folder
        self.settings: dict[str, Any] = as_plain(settings)
        self._shorter = None if shorter is None else as_plain(shorter)
        self._defaults: dict[str, Any] = as_plain(defaults or {})
        self._free = free
        make_folder(folder)
        if not begun(folder) and (folder / SUMMARY).exists() and not has_items(folder):
            raise UserError(
                f"{str(folder)!r} keeps the summary of a run whose items are not there, which would be replaced; name "
                f"another folder."
            )
        suffix = "" if part is None else f"-{part}"
        self._items = _open(folder / f"items{suffix}.jsonl")
        self._traces: BinaryIO | None = None
        try:
            fcntl.flock(self._items, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self._items.close()
            raise Held(f"Another process is writing to {str(folder)!r}; wait for it, or name another.") from error
        try:
            self.attempt = self._begin(environment, part)
            self._traces = _open(folder / f"traces{suffix}.jsonl")
            own = _recover(self._items)
            _cut(self._traces, max((sum(line["trace"]) for line in own if line.get("trace")), default=0), folder)
            self.done: set[Key] = {key_of(line) for line in read_items(folder)}
        except BaseException:
            self.close()
            raise

    def _begin(self, environment: Mapping[str, Any], part: int | None) -> int:
        """Write run.json, or compare with the one that is there; the number of this attempt."""
        path = self.folder / "run.json"
        if begun(self.folder):
            content = read_run(self.folder)
            found = filled(content["settings"], self._defaults)
            if found != self.settings:
                compare(found, self._shorter or self.settings, self.folder, self._free)
            content["settings"] = self.settings
        else:
            # Another part may be on its way already, before the first has written run.json.
            held = self.folder.glob("items*.jsonl") if part is None else [Path(str(self._items.name))]
            if any(file.stat().st_size for file in held):
                raise UserError(
                    f"{str(self.folder)!r} has items on record without run.json, which says what they are of; put it "
                    f"back, or name another folder."
                )
            content = {"format": FORMAT, "settings": self.settings, "environments": []}
        if not part:
            content["environments"].append(dict(environment))
            save_json(path, content)
        return max(len(content["environments"]) - 1, 0)

    def add(self, record: Mapping[str, Any], trace: Mapping[str, Any] | None = None) -> None:
        """Put an item on record, for good when this returns; its trace first.

        Raises ValueError for an item that is on record already.
        """
        key = key_of(record)
        if key in self.done:
            raise ValueError(f"the item {key} is on record already")
        place = None
        assert self._traces is not None
        if trace is not None:
            line = _line(trace)
            place = [self._traces.seek(0, os.SEEK_END), len(line)]
            _append(self._traces, line)
        _append(self._items, _line({**record, "attempt": self.attempt, "trace": place}))
        self.done.add(key)

    def left(self, keys: Iterable[Key]) -> list[Key]:
        """The keys that are not on record yet, in their order."""
        return [key for key in keys if key not in self.done]

    def close(self) -> None:
        """Let the folder go."""
        self._items.close()
        if self._traces is not None:
            self._traces.close()

    def __enter__(self) -> RunFolder:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def make_folder(folder: Path) -> None:
    """Make a folder and those above it, where they are missing. Raises UserError where that cannot be done."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        what = "is a file" if isinstance(error, FileExistsError) else f"cannot be made ({error.strerror})"
        raise UserError(f"The folder {str(folder)!r} {what}; name another.") from error


def has_items(folder: Path) -> bool:
    """Whether a folder has a run's items, and not its summary alone."""
    return any(folder.glob("items*.jsonl"))


def begun(folder: Path) -> bool:
    """Whether there is a run in the folder; False for a folder that there cannot be."""
    return os.path.exists(folder / "run.json")  # Path.exists raises for a name that is too long


def read_run(folder: Path) -> dict[str, Any]:
    """The content of a folder's run.json. Raises UserError if it is none of ours."""
    path = folder / "run.json"
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if content["format"] != FORMAT:
            raise ValueError(f"its format is {content['format']!r}, not {FORMAT!r}")
        if not isinstance(content["settings"], dict) or not isinstance(content["environments"], list):
            raise ValueError("its settings or environments are missing")
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        if isinstance(error, FileNotFoundError) and (folder / SUMMARY).exists() and not has_items(folder):
            raise UserError(
                f"The folder {str(folder)!r} has a run's summary alone, without its items; name the folder where the "
                f"run was made."
            ) from error
        raise UserError(
            f"{str(path)!r} is damaged or no record of a run ({error}); name the folder of a run."
        ) from error
    return content


def shorter(
    settings: Mapping[str, Any],
    items: Mapping[str, Sequence[Any]],
    told: Callable[[Mapping[str, Sequence[Any]]], Mapping[str, Any]],
    folder: Path,
) -> dict[str, Any] | None:
    """The settings of the same run with the limit that the one in the folder has; None unless that is lower.

    items: those of each task that are asked for now; told: what tells them in the settings.
    """
    if not begun(folder):
        return None
    held, asked = read_run(folder)["settings"].get("limit"), settings["limit"]
    if not is_whole(held) or held < 1 or (asked is not None and held >= asked):
        return None
    return {**settings, "limit": held, "tasks": told({task: found[:held] for task, found in items.items()})}


def read_items(folder: Path) -> list[dict[str, Any]]:
    """The complete lines of a folder's items, of all its parts, ordered by key. Raises UserError for damaged ones."""
    found = [line for path in sorted(folder.glob("items*.jsonl")) for line in _records(path.read_bytes(), path)[0]]
    found.sort(key=key_of)
    for one, next_one in pairwise(found):
        if key_of(one) == key_of(next_one):
            raise damaged(folder, f"{named(one)} is there twice")
    return found


def damaged(folder: Path, what: str) -> UserError:
    """The error of a folder whose records cannot be those of a run."""
    return UserError(f"The record in {str(folder)!r} is damaged ({what}); correct it or name another folder.")


def read_traces(folder: Path, keys: Collection[Key] | None = None) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Each item that has a trace, with it; of those with these keys, if any are given.

    Raises UserError for a trace file that is missing or too short.
    """
    for path in sorted(folder.glob("items*.jsonl")):
        traces = path.with_name(path.name.replace("items", "traces", 1))
        items = [item for item in _records(path.read_bytes(), path)[0] if item.get("trace")]
        items = [item for item in items if keys is None or key_of(item) in keys]
        if not items:
            continue
        try:
            with traces.open("rb") as file:
                for item in items:
                    start, length = item["trace"]
                    file.seek(start)
                    yield item, json.loads(file.read(length))
        except (OSError, ValueError, RecursionError) as error:
            raise UserError(f"{str(traces)!r} does not hold the traces of {path.name} ({error}); run again.") from error


def key_of(record: Mapping[str, Any]) -> Key:
    """What tells an item's record from all others of its run."""
    return tuple(record[name] for name in KEY)


def named(record: Mapping[str, Any]) -> str:
    """An item's key, in words."""
    return ", ".join(f"{name} {record[name]}" for name in KEY)


def _open(path: Path) -> BinaryIO:
    try:
        # Unbuffered: a line is one write. Not in append mode, which would hide where the file ends.
        return open(path, "r+b" if path.exists() else "x+b", buffering=0)
    except OSError as error:
        raise UserError(f"{str(path)!r} cannot be written ({error.strerror}); name another folder.") from error


def _append(file: BinaryIO, line: bytes) -> None:
    file.seek(0, os.SEEK_END)
    left = memoryview(line)
    while left:
        left = left[file.write(left) :]
    os.fsync(file.fileno())


def _line(content: Mapping[str, Any]) -> bytes:
    return json.dumps(content, separators=(",", ":")).encode() + b"\n"


def _recover(file: BinaryIO) -> list[dict[str, Any]]:
    """The complete lines of a file; what stands behind them is cut off."""
    file.seek(0)
    lines, length = _records(file.read(), Path(str(file.name)))
    _cut(file, length, Path(str(file.name)).parent)
    return lines


def _records(content: bytes, path: Path) -> tuple[list[dict[str, Any]], int]:
    """The lines of a file's content that end in a line break, and how many bytes they take."""
    length = content.rfind(b"\n") + 1
    lines = []
    for number, line in enumerate(content[:length].split(b"\n")[:-1], start=1):
        try:
            lines.append(json.loads(line))
            if not _is_record(lines[-1]):
                raise ValueError("it is no record of an item")
        except (ValueError, RecursionError) as error:
            raise UserError(
                f"{str(path)!r} is damaged (line {number}: {error}); correct the line or name another folder."
            ) from error
    return lines, length


def _is_record(line: Any) -> bool:
    """Whether a line has an item's key, and the place of its trace if it has one."""
    if not isinstance(line, dict) or not isinstance(line.get("task"), str):
        return False
    place = line.get("trace")
    numbers = [line.get(name) for name in KEY[1:]]
    if place is not None:
        if not isinstance(place, list) or len(place) != 2:
            return False
        numbers += place
    return all(is_whole(value) and 0 <= value < 1 << 63 for value in numbers)


def _cut(file: BinaryIO, length: int, folder: Path) -> None:
    there = file.seek(0, os.SEEK_END)
    if there < length:
        raise UserError(f"The traces of {str(folder)!r} are not all there; put them back, or name another folder.")
    if there > length:
        file.truncate(length)
        os.fsync(file.fileno())
