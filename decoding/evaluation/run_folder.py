"""The folder of a run: what was asked (`run.json`), one line an item (`items.jsonl`), its trace (`traces.jsonl`).

A run may be killed at any moment and goes on where it was. An item counts once its line in `items.jsonl` is complete:
its trace is on disk before the line is written, and the line says where the trace stands. What stands behind the last
complete line, there and in `traces.jsonl`, is left over from the moment of the kill and is cut off. Either one process
holds a folder, or the parts of one run do, each once.

Writes what `run_record` reads. Knows nothing of models, decoders and tasks.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from contextlib import ExitStack
from functools import cached_property
from pathlib import Path
from typing import Any

from ..errors import UserError
from ..files import save_json
from ..json_lines import JsonLines
from ..plain import as_plain
from .agreement import compare, filled
from .run_record import FORMAT, SUMMARY, Key, begun, has_items, item_lines, key_of, read_items, read_run

_REMEDY = "name another folder"


class RunFolder:
    """A run's folder, held by this process until it is closed.

    settings: all that a result depends on, as plain data; a folder that was begun with others is a UserError, which
    names one that differs, unless it is one of those that are `free` (see `agreement.compare`). environment: of this
    attempt (versions, hardware, batch size); the attempts' are listed in run.json, as the first part has them. part: of
    several processes that share a folder, which one this is; each has files of its own. shorter: settings under which a
    run may have begun that this one prolongs; it takes on `settings`. defaults: what a run was made with that began
    before there was such a setting (see `agreement.filled`); it takes on the setting.

    Raises Held while another process has the folder, and UserError too for one that cannot be written, and for records
    that are damaged or not all there, which are left as they are.
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
        with ExitStack() as opened:
            # The lock on items.jsonl is the folder's: parts, whose items are in files of their own, share it.
            self._items = opened.enter_context(JsonLines(folder / "items.jsonl", _REMEDY))
            self._items.hold(shared=part is not None)
            if part is not None:
                self._items = opened.enter_context(JsonLines(folder / f"items{suffix}.jsonl", _REMEDY))
                self._items.hold()
            content = self._agreed(part)
            self._traces = opened.enter_context(JsonLines(folder / f"traces{suffix}.jsonl", _REMEDY))
            own, length = item_lines(self._items.read(), self._items.path)
            traced = max((sum(line["trace"]) for line in own if line.get("trace")), default=0)
            if self._traces.size() < traced:
                raise UserError(f"The traces of {str(folder)!r} are not all there; put them back, or {_REMEDY}.")
            self.done: set[Key] = {key_of(line) for line in read_items(folder)}
            if not part:
                content["environments"].append(dict(environment))
                save_json(folder / "run.json", content)
            self._items.cut(length)
            self._traces.cut(traced)
            self._opened = opened.pop_all()

    def _agreed(self, part: int | None) -> dict[str, Any]:
        """What run.json is to say, but for this attempt; UserError where it says that the run is another one."""
        if begun(self.folder):
            content = read_run(self.folder)
            found = filled(content["settings"], self._defaults)
            if found != self.settings:
                compare(found, self._shorter or self.settings, self.folder, self._free)
            return {**content, "settings": self.settings}
        # Another part may be on its way already, before the first has written run.json.
        held = self.folder.glob("items*.jsonl") if part is None else [self._items.path]
        if any(file.stat().st_size for file in held):
            raise UserError(
                f"{str(self.folder)!r} has items on record without run.json, which says what they are of; put it "
                f"back, or name another folder."
            )
        return {"format": FORMAT, "settings": self.settings, "environments": []}

    @cached_property
    def attempt(self) -> int:
        """The number of this attempt.

        The first part counts it. Another one may have opened the folder before that, and so asks when it has an item:
        parts wait for each other before they decode.
        """
        return max(len(read_run(self.folder)["environments"]) - 1, 0) if begun(self.folder) else 0

    def add(self, record: Mapping[str, Any], trace: Mapping[str, Any] | None = None) -> None:
        """Put an item on record, for good when this returns; its trace first.

        Raises ValueError for an item that is on record already.
        """
        key = key_of(record)
        if key in self.done:
            raise ValueError(f"the item {key} is on record already")
        place = None if trace is None else self._traces.append(_line(trace))
        self._items.append(_line({**record, "attempt": self.attempt, "trace": place}))
        self.done.add(key)

    def left(self, keys: Iterable[Key]) -> list[Key]:
        """The keys that are not on record yet, in their order."""
        return [key for key in keys if key not in self.done]

    def close(self) -> None:
        """Let the folder go."""
        self._opened.close()

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


def _line(content: Mapping[str, Any]) -> bytes:
    return json.dumps(content, separators=(",", ":")).encode() + b"\n"
