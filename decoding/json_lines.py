"""Files of JSON lines that are written while things happen, and gone on with after a kill, by one process at a time.

A line counts once its line break is on disk; what stands behind the last one is left over from the moment of a kill.
Nothing is cut off before a caller that has looked at what is there says so. Knows nothing of what the lines say.
"""

from __future__ import annotations

import fcntl
import json
import os
import stat
from io import FileIO
from pathlib import Path
from typing import Any

from .errors import UserError


class Held(UserError):
    """Another process is writing to a file."""


class JsonLines:
    """A file that is open for reading and appending, begun if it is not there.

    remedy: what can be done where another one has to be taken. Raises UserError for a file that cannot be written.
    """

    def __init__(self, path: Path, remedy: str) -> None:
        self.path, self._remedy = path, remedy
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)  # in one step: another process may begin it, too
        except OSError as error:
            raise UserError(f"{str(path)!r} cannot be written ({error.strerror}); {remedy}.") from error
        # Unbuffered: a line is one write. Not in append mode, which would hide where the file ends.
        self._file = FileIO(descriptor, "r+")
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            self.close()
            raise UserError(f"{str(path)!r} is no regular file; {remedy}.")

    def hold(self, *, shared: bool = False) -> None:
        """Keep other processes off until the file is closed; shared: those only that do not share it.

        Raises Held while another process has it.
        """
        try:
            fcntl.flock(self._file, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise Held(f"Another process is writing to {str(self.path)!r}; wait for it, or {self._remedy}.") from error
        except OSError as error:
            raise UserError(f"{str(self.path)!r} cannot be locked ({error.strerror}); {self._remedy}.") from error

    def read(self) -> bytes:
        """All that is there."""
        self._file.seek(0)
        return self._file.read()

    def size(self) -> int:
        """How many bytes are there."""
        return self._file.seek(0, os.SEEK_END)

    def cut(self, length: int) -> None:
        """Cut off what stands behind so many bytes."""
        if self.size() > length:
            self._file.truncate(length)
            os.fsync(self._file.fileno())

    def append(self, line: bytes) -> list[int]:
        """Put a line at the end, on disk when this returns; where it begins and how many bytes it takes."""
        place = [self.size(), len(line)]
        rest = memoryview(line)
        while rest:
            rest = rest[self._file.write(rest) :]
        os.fsync(self._file.fileno())
        return place

    def close(self) -> None:
        """Let the file go."""
        self._file.close()

    def __enter__(self) -> JsonLines:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def whole_lines(content: bytes) -> tuple[list[Any], int]:
    """What the lines of a file's content say that end in a line break, and how many bytes they take.

    Raises ValueError, which names the line, for one that is no JSON in UTF-8.
    """
    length = content.rfind(b"\n") + 1
    found = []
    for number, line in enumerate(content[:length].split(b"\n")[:-1], start=1):
        try:
            found.append(json.loads(line.decode("utf-8")))
        except (ValueError, RecursionError) as error:
            raise ValueError(f"line {number}: {error}") from error
    return found, length
