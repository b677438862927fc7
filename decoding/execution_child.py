"""The inside of `execution.run_program`: a script that shuts itself in and then runs a program.

Started by a fresh interpreter as ``python -I -S -B execution_child.py VERDICT_FD`` with the settings as JSON on
standard input. Before the program's first line runs, the process has its resource limits and a system-call
filter (seccomp) that stays for good: what is not on the list of calls that a computation needs is refused. So the
program opens no file for writing, changes or removes none, starts no process or thread, signals no other
process, makes no socket and raises no limit.

Writes to VERDICT_FD one line, the secret token and what became of the program, and leaves at once.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import sys
import types
from typing import NamedTuple, NoReturn

PR_SET_PDEATHSIG, PR_SET_SECCOMP, PR_SET_NO_NEW_PRIVS = 1, 22, 38
SIGKILL = 9
MODE_FILTER = 2
ALLOW, KILL, ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
LOAD, EQUAL, ANY_BIT, RETURN = 0x20, 0x15, 0x45, 0x06  # classic BPF: load a word, compare, test bits, return
CALL, ARCHITECTURE, ARGUMENTS = 0, 4, 16  # where they stand in what the filter sees
FOR_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
FCNTL_COMMANDS = (0, 1, 2, 3, 1030)  # duplicate, get and set close-on-exec, get flags; none that asks for signals
DETAIL = 300  # characters


class Architecture(NamedTuple):
    """The kernel's numbers of an architecture: its own, and those of the calls that a computation needs.

    opening: calls that open a file, with the argument that holds the flags.
    """

    audit: int
    allowed: tuple[int, ...]
    opening: tuple[tuple[int, int], ...]
    fcntl: int
    ioctl: int


# In both lists, in this order: read write close fstat lseek mmap mprotect munmap brk rt_sigaction rt_sigprocmask
# rt_sigreturn pread64 readv writev sched_yield mremap madvise dup nanosleep getitimer setitimer getpid exit uname
# getcwd gettimeofday getrusage sysinfo times getuid getgid geteuid getegid getppid sigaltstack gettid futex
# sched_getaffinity getdents64 restart_syscall fadvise64 clock_gettime clock_getres clock_nanosleep exit_group
# newfstatat readlinkat faccessat pselect6 ppoll dup3 getrandom membarrier statx rseq faccessat2; then, on x86-64
# alone: stat lstat poll access select dup2 alarm readlink time.
ARCHITECTURES = {
    "x86_64": Architecture(
        audit=0xC000003E,
        allowed=(
            *(0, 1, 3, 5, 8, 9, 10, 11, 12, 13, 14, 15, 17, 19, 20, 24, 25, 28, 32, 35, 36, 38, 39, 60, 63, 79, 96, 98),
            *(99, 100, 102, 104, 107, 108, 110, 131, 186, 202, 204, 217, 219, 221, 228, 229, 230, 231, 262, 267, 269),
            *(270, 271, 292, 318, 324, 332, 334, 439, 4, 6, 7, 21, 23, 33, 37, 89, 201),
        ),
        opening=((2, 1), (257, 2)),
        fcntl=72,
        ioctl=16,
    ),
    "aarch64": Architecture(
        audit=0xC00000B7,
        allowed=(
            *(63, 64, 57, 80, 62, 222, 226, 215, 214, 134, 135, 139, 67, 65, 66, 124, 216, 233, 23, 101, 102, 103, 172),
            *(93, 160, 17, 169, 165, 179, 153, 174, 176, 175, 177, 173, 132, 178, 98, 123, 61, 128, 223, 113, 114, 115),
            *(94, 79, 78, 48, 72, 73, 24, 278, 283, 291, 293, 439),
        ),
        opening=((56, 2),),
        fcntl=25,
        ioctl=29,
    ),
}


class Instruction(ctypes.Structure):
    """One instruction of a classic BPF program (the kernel's ``struct sock_filter``)."""

    _fields_ = [("code", ctypes.c_ushort), ("yes", ctypes.c_ubyte), ("no", ctypes.c_ubyte), ("value", ctypes.c_uint)]


class Filter(ctypes.Structure):
    """A classic BPF program (the kernel's ``struct sock_fprog``)."""

    _fields_ = [("length", ctypes.c_ushort), ("instructions", ctypes.POINTER(Instruction))]


def filter_instructions(machine: Architecture) -> list[tuple[int, int, int, int]]:
    """The filter as (code, jump if yes, jump if no, value): allow the list, refuse everything else with EPERM."""
    steps = [(LOAD, 0, 0, ARCHITECTURE), (EQUAL, 1, 0, machine.audit), (RETURN, 0, 0, KILL), (LOAD, 0, 0, CALL)]
    for call in machine.allowed:
        steps += [(EQUAL, 0, 1, call), (RETURN, 0, 0, ALLOW)]
    steps += [(EQUAL, 0, 1, machine.ioctl), (RETURN, 0, 0, ERRNO | errno.ENOTTY)]
    for call, argument in machine.opening:
        steps += [
            (EQUAL, 0, 4, call),
            (LOAD, 0, 0, ARGUMENTS + 8 * argument),
            (ANY_BIT, 0, 1, FOR_WRITING),
            (RETURN, 0, 0, ERRNO | errno.EACCES),
            (RETURN, 0, 0, ALLOW),
        ]
    steps += [(EQUAL, 0, 2 * len(FCNTL_COMMANDS) + 1, machine.fcntl), (LOAD, 0, 0, ARGUMENTS + 8)]
    for command in FCNTL_COMMANDS:
        steps += [(EQUAL, 0, 1, command), (RETURN, 0, 0, ALLOW)]
    return [*steps, (RETURN, 0, 0, ERRNO | errno.EPERM)]


def shut_in(memory_bytes: int, cpu_seconds: int) -> None:
    """Limit this process for good; OSError if the kernel does not let it."""
    import resource  # not everywhere that `execution` is imported

    libc = ctypes.CDLL(None, use_errno=True)
    for limit, value in (
        (resource.RLIMIT_AS, memory_bytes),
        (resource.RLIMIT_CPU, cpu_seconds),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_NPROC, 0),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_NOFILE, 32),
    ):
        hard = resource.getrlimit(limit)[1]
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(limit, (value, value))
    steps = filter_instructions(ARCHITECTURES[os.uname().machine])
    program = Filter(len(steps), (Instruction * len(steps))(*(Instruction(*step) for step in steps)))
    for option, value, pointer in (
        (PR_SET_PDEATHSIG, SIGKILL, None),
        (PR_SET_NO_NEW_PRIVS, 1, None),
        (PR_SET_SECCOMP, MODE_FILTER, ctypes.byref(program)),
    ):
        if libc.prctl(option, ctypes.c_ulong(value), pointer, ctypes.c_ulong(0), ctypes.c_ulong(0)):
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def last_line(error: BaseException, source: str) -> str:
    """The error in one line; of a bare assertion, the line of the program that it stands on."""
    name = type(error).__name__
    text = _text(error)
    if not text and isinstance(error, AssertionError):
        trace, line = error.__traceback__, 0
        while trace is not None:
            line = trace.tb_lineno if trace.tb_frame.f_code.co_filename == "<program>" else line
            trace = trace.tb_next
        # A program's lines may end in other ways, too; then a line of that number need not be there.
        text = "".join(source.split("\n")[line - 1 : line]).strip()
    return f"{name}: {text}" if text else name


def _text(told: object) -> str:
    """What an error says; nothing where saying it fails, as it may with the program's own classes."""
    try:
        return str(told)
    except BaseException:
        return ""


def run(source: str) -> tuple[str, str]:
    """Run a program as ``__main__``; how it ended ("passed", "failed", "memory" or "exit") and its error's line."""
    module = types.ModuleType("__main__")
    sys.modules["__main__"] = module
    sys.argv = ["program"]
    try:
        exec(compile(source, "<program>", "exec"), module.__dict__)
    except SystemExit as error:
        return "exit", f"SystemExit: {_text(error.code)}"
    except MemoryError:
        return "memory", "MemoryError"
    except BaseException as error:
        return "failed", last_line(error, source)
    return "passed", ""


def main() -> NoReturn:
    """Read the settings, shut the process in, run the program, report and leave."""
    verdict, write, leave = int(sys.argv[1]), os.write, os._exit
    settings = json.load(sys.stdin)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    token = settings["token"]
    try:
        shut_in(settings["memory_bytes"], settings["cpu_seconds"])
    except (OSError, ValueError) as error:
        write(verdict, f"{token} refused {error}\n".encode())
        leave(1)
    try:
        reason, detail = run(settings["source"])
        detail = "".join(c if c.isprintable() else " " for c in detail)[:DETAIL]
        write(verdict, f"{token} {reason} {detail}\n".encode(errors="replace"))
    finally:
        leave(0)


if __name__ == "__main__":
    main()
