"""Run generated code to score it: a program of assertions passes if its last line is reached in time.

**This runs code that a language model wrote.** Nothing in this package calls it unless the user asked for it with an
explicit flag of the command at hand, and a caller of `run_program` takes that decision itself.

What is guaranteed, on Linux on x86-64 and arm64 (elsewhere `run_program` refuses): the program runs in a fresh
interpreter without site packages, in its own session, with an empty environment and an empty temporary working folder
that is removed. Resource limits bound its CPU time, address space and open files. A system-call filter (seccomp), put
on before its first line and never taken off, lets through what a computation needs and refuses everything else: it
cannot write, change or remove a file anywhere, start a process or thread, signal another process, make a socket or
lift a limit. It is killed when its time is up, or when the process that scores it dies. Its output goes nowhere.

What is not guaranteed: it may read what the user may read (nothing of it leaves but the error's last line in
`Outcome.detail`), it uses the processor and memory up to its limits, and a fault in the kernel or in Python's C code is
not guarded against. A program that is out to cheat, rather than wrong, can reach into the interpreter that judges it,
or return an object that claims to equal everything: a pass means that an honest program passed.
"""

from __future__ import annotations

import json
import math
import os
import platform
import secrets
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from .errors import UserError
from .execution_child import ARCHITECTURES

_CHILD = Path(__file__).with_name("execution_child.py")
_MOST_REPORTED = 8192  # bytes; a verdict is shorter
REASONS = ("passed", "failed", "exit", "timeout", "memory", "crash")


@dataclass(frozen=True)
class Outcome:
    """What became of a program.

    reason: "passed"; "failed" (an exception, a false assertion or a syntax error); "exit" (it ended before its last
    line); "timeout"; "memory"; "crash" (the interpreter died). detail: the error's last line, or "".
    """

    passed: bool
    reason: str
    detail: str

    def __post_init__(self) -> None:
        if self.reason not in REASONS:
            raise ValueError(f"The reason of an outcome is one of {', '.join(REASONS)}, not {self.reason!r}.")
        if self.passed != (self.reason == "passed"):
            raise ValueError(f"An outcome with passed={self.passed} cannot have the reason {self.reason!r}.")


def check_allowed(execute_code: bool) -> None:
    """Raise UserError unless the user has allowed that generated code is run."""
    if not execute_code:
        raise UserError(
            "Code is scored by running it; allow that with --execute-code (execute_code=True), or leave it out."
        )


def run_program(source: str, *, timeout: float = 5.0, memory_mb: int = 256) -> Outcome:
    """Run a Python program shut in as the module's text says; it passes if it reaches its end without an error.

    timeout: seconds by the clock, the interpreter's start included. memory_mb: MiB of address space, the interpreter's
    own 30 or so included. Threads and subprocesses are refused, and so are packages that are not in the
    standard library.

    Raises UserError where programs cannot be shut in (not Linux, another processor, or a kernel that refuses),
    ValueError for a limit that is not positive.
    """
    if not (timeout > 0 and math.isfinite(timeout)):
        raise ValueError(f"timeout is {timeout}; it must be a positive number of seconds.")
    if memory_mb < 64:
        raise ValueError(f"memory_mb is {memory_mb}; the interpreter alone needs 64.")
    if sys.platform != "linux" or platform.machine() not in ARCHITECTURES:
        raise UserError(
            f"Generated code is run only where it can be shut in, on Linux on {' or '.join(ARCHITECTURES)}; "
            f"this is {sys.platform} on {platform.machine()}, so score it on another machine."
        )
    token = secrets.token_hex(16)
    settings = {
        "source": source,
        "token": token,
        "memory_bytes": memory_mb * 2**20,
        "cpu_seconds": math.ceil(timeout) + 1,
    }
    deadline = time.monotonic() + timeout
    with tempfile.TemporaryDirectory(prefix="dystruct-") as folder, tempfile.TemporaryFile() as asked:
        asked.write(json.dumps(settings).encode())
        asked.seek(0)
        reading, writing = os.pipe()
        try:
            try:
                process = subprocess.Popen(
                    [sys.executable, "-I", "-S", "-B", str(_CHILD), str(writing)],
                    stdin=asked,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    pass_fds=(writing,),
                    cwd=folder,
                    env={},
                    start_new_session=True,
                )
            finally:
                os.close(writing)
            try:
                said, ended = _listen(reading, deadline)
            finally:
                process.kill()
                status = process.wait()
        finally:
            os.close(reading)
    return _outcome(said, token, ended, status)


def _listen(reading: int, deadline: float) -> tuple[bytes, bool]:
    """What comes through the pipe until it is closed, and whether that was before the deadline and not too much."""
    said = b""
    with selectors.DefaultSelector() as selector:
        selector.register(reading, selectors.EVENT_READ)
        while (left := deadline - time.monotonic()) > 0:
            if not selector.select(left):
                break
            part = os.read(reading, _MOST_REPORTED)
            if not part:
                return said, True
            said += part
            if len(said) > _MOST_REPORTED:
                return said, True
    return said, False


def _outcome(said: bytes, token: str, ended: bool, status: int) -> Outcome:
    """Judge by the line that begins with the token; without one the program did not come to its end.

    status: the exit status, or minus the signal; if not `ended`, the signal was ours.
    """
    for line in said.decode(errors="replace").split("\n"):
        start, _, rest = line.partition(" ")
        if start == token:
            reason, _, detail = rest.partition(" ")
            if reason == "refused":
                raise UserError(
                    f"Generated code cannot be run here, as the kernel does not let it be shut in ({detail}); "
                    "score it where seccomp filters are allowed."
                )
            return Outcome(reason == "passed", reason, detail.rstrip())
    if not ended or status == -signal.SIGXCPU:
        return Outcome(False, "timeout", "")
    if status < 0 and status != -signal.SIGKILL:
        return Outcome(False, "crash", signal.Signals(-status).name)
    return Outcome(False, "exit", "the program ended before its last line")
