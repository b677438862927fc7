"""Generated code is run shut in: whatever it tries, it is judged rightly, in time, and nothing of it stays."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from dystruct.decoding import execution
from dystruct.decoding.errors import UserError
from dystruct.decoding.execution import Outcome, run_program
from dystruct.decoding.execution_child import ARCHITECTURES, filter_instructions
from dystruct.decoding.tiny.code import make, program

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="generated code is run only on Linux")


def children(parent: int | str = "self") -> list[int]:
    parent = Path(f"/proc/{parent}").resolve().name
    found = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            text = status.read_text()
        except OSError:
            continue  # gone meanwhile
        if text.rpartition(")")[2].split()[1] == parent:
            found.append(int(status.parent.name))
    return found


@pytest.fixture(autouse=True)
def nothing_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No process and no file is left, and a file of the user's is as it was."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    (tmp_path / "mine.txt").write_text("mine")
    before = children()
    yield
    assert children() == before
    assert list(folder.iterdir()) == []
    assert [path.name for path in tmp_path.iterdir() if path != folder] == ["mine.txt"]
    assert (tmp_path / "mine.txt").read_text() == "mine"


def test_a_true_program_passes_and_a_false_one_says_where() -> None:
    assert run_program("def f(x):\n    return x + 1\n\nassert f(1) == 2\n") == Outcome(True, "passed", "")
    found = run_program("def f(x):\n    return x\n\nassert f(1) == 1\nassert f(1) == 2\n")
    assert found == Outcome(False, "failed", "AssertionError: assert f(1) == 2")
    assert run_program("assert False, 'said\\nso'").detail == "AssertionError: said so"
    assert run_program("") == Outcome(True, "passed", "")


@pytest.mark.parametrize("seed", range(6))
def test_problems_of_the_code_domain_are_judged(seed: int) -> None:
    problem = make(Random(seed))
    assert run_program(program(problem, problem.answer)).passed
    assert run_program(program(problem, "    return None")).reason == "failed"
    assert run_program(program(problem, "")).detail.startswith("IndentationError") or '"""' in problem.question


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("def f(:", "failed"),
        ("x = '\\ud800'\nraise ValueError(x)", "failed"),
        ("\0", "failed"),
        ("import os\nos._exit(0)\nassert False", "exit"),
        ("import sys\nsys.exit(0)\nassert False", "exit"),
        ("exit()", "failed"),  # a function of the site module, which is not there
        ("raise SystemExit", "exit"),
        ("import os\ntry:\n    os._exit(0)\nexcept BaseException:\n    pass", "exit"),
        ("raise KeyboardInterrupt", "failed"),
        ("def f(n):\n    return f(n + 1)\nf(0)", "failed"),
        ("input()", "failed"),
        ("import sys\nassert sys.stdin.read() == ''", "passed"),
        ("x = 'a' * 10 ** 10", "memory"),
        ("x = []\nwhile True:\n    x.append('x' * 10 ** 7)", "memory"),
        ("import ctypes\nctypes.string_at(0)", "crash"),
        ("print('x' * 10 ** 7)", "passed"),
        ("import torch", "failed"),
        ("class E(Exception):\n    def __str__(self):\n        raise SystemExit\nraise E", "failed"),
        ("class E:\n    def __str__(self):\n        raise ValueError\nraise SystemExit(E())", "exit"),
        ("x = 1\r\rassert x == 2", "failed"),
    ],
)
def test_what_becomes_of_it(source: str, reason: str) -> None:
    outcome = run_program(source, timeout=20)
    assert outcome.reason == reason
    assert outcome.passed == (reason == "passed")


@pytest.mark.parametrize(
    "source",
    [
        "while True: pass",
        "while True: print('x' * 10 ** 6)",
        "while True:\n    try:\n        while True: pass\n    except: pass",
        "import signal\nfor s in (2, 15, 24): signal.signal(s, signal.SIG_IGN)\nwhile True: pass",
        "import time\ntime.sleep(60)",
    ],
)
def test_what_does_not_end_is_ended(source: str) -> None:
    started = time.monotonic()
    outcome = run_program(source, timeout=0.4)
    assert outcome == Outcome(False, "timeout", "")
    assert time.monotonic() - started < 3


ACTS = [
    "open(MINE, 'w')",
    "open(MINE, 'a').write('x')",
    "os.truncate(MINE, 0)",
    "os.remove(MINE)",
    "shutil.rmtree(FOLDER)",
    "os.rename(MINE, MINE + '2')",
    "os.chmod(MINE, 0)",
    "os.utime(MINE, (0, 0))",
    "os.symlink(MINE, 'link')",
    "os.link(MINE, FOLDER + '/link')",
    "os.mkdir('folder')",
    "open('file', 'w')",
    "os.open(FOLDER, os.O_TMPFILE | os.O_RDWR)",
    "tempfile.mkstemp()",
    "os.memfd_create('x')",
    "os.kill(os.getppid(), 9)",
    "os.kill(-1, 9)",
    "os.killpg(os.getpgid(os.getppid()), 9)",
    "os.setpriority(os.PRIO_PROCESS, os.getppid(), 19)",
    "resource.prlimit(os.getppid(), resource.RLIMIT_CPU, (0, 0))",
    "resource.setrlimit(resource.RLIMIT_AS, (-1, -1))",
    "fcntl.fcntl(1, fcntl.F_SETOWN, os.getppid())",
    "os.fork()",
    "subprocess.run(['true'])",
    "os.posix_spawn('/bin/true', ['true'], {})",
    "os.execv('/bin/true', ['true'])",
    "os.system('true') and fail()",
    "threading.Thread(target=print).start()",
    "socket.socket()",
    "socket.create_connection(('127.0.0.1', 9))",
    "socket.socketpair()",
    "multiprocessing.shared_memory.SharedMemory(create=True, size=10)",
    "os.setsid()",
    "os.chroot('.')",
]


def test_every_act_on_the_outside_is_refused(tmp_path: Path) -> None:
    source = f"""
        import fcntl, multiprocessing.shared_memory, os, resource, shutil, socket, subprocess, tempfile, threading
        FOLDER = {str(tmp_path)!r}
        MINE = FOLDER + "/mine.txt"
        def fail():
            raise OSError
        done = []
        for act in {ACTS!r}:
            try:
                eval(act)
            except (OSError, RuntimeError, ValueError):
                continue
            done.append(act)
        assert not done, done
    """
    assert run_program(textwrap.dedent(source), timeout=20) == Outcome(True, "passed", "")


def test_a_fork_bomb_does_not_go_off() -> None:
    bomb = "import os\nwhile True:\n    try:\n        os.fork()\n    except OSError:\n        pass"
    assert run_program(bomb, timeout=0.4).reason == "timeout"


def test_it_sees_an_empty_folder_and_no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET", "key")
    source = "import os, sys\nassert os.listdir() == []\nassert 'SECRET' not in os.environ\nassert len(sys.argv) == 1"
    assert run_program(source + "\nassert __name__ == '__main__'").passed


@pytest.mark.parametrize("line", ["", "passed", "0" * 32 + " passed", "x" * 99_999])
def test_a_verdict_without_the_token_is_none(line: str) -> None:
    """Nothing that a program says in the verdict's place makes it pass."""
    source = f"""
        import os
        for fd in range(3, 32):
            try:
                os.write(fd, b"{line}\\n")
            except OSError:
                pass
        os._exit(0)
    """
    assert run_program(textwrap.dedent(source)).reason == "exit"


def test_useful_modules_of_the_standard_library_work() -> None:
    source = """
        import bisect, collections, copy, dataclasses, datetime, decimal, fractions, functools, hashlib, heapq
        import itertools, json, math, operator, random, re, statistics, string, time, typing
        assert hashlib.md5(b"a").hexdigest().startswith("0cc")
        assert datetime.date(2024, 2, 28) + datetime.timedelta(2) == datetime.date(2024, 3, 1)
        assert 0 <= random.random() < 1
        time.sleep(0.001)
        assert time.time() > 0 and datetime.datetime.now()
        @dataclasses.dataclass
        class Point:
            x: typing.List[int]
        assert copy.deepcopy(Point([1])) == Point([1])
    """
    assert run_program(textwrap.dedent(source), timeout=20) == Outcome(True, "passed", "")


def test_it_dies_with_the_process_that_scores_it(tmp_path: Path) -> None:
    scorer = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "from dystruct.decoding.execution import run_program; run_program('while True: pass', timeout=60)",
        ],
        env={"TMPDIR": tempfile.gettempdir()},
    )
    deadline = time.monotonic() + 60
    while not (found := children(scorer.pid)):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    time.sleep(0.3)  # the child sets the signal in its first tenths of a second
    scorer.kill()
    scorer.wait()
    while Path(f"/proc/{found[0]}").exists() and _state(found[0]) != "Z":
        assert time.monotonic() < deadline
        time.sleep(0.02)
    for left in Path(tempfile.gettempdir()).iterdir():
        left.rmdir()  # a killed scorer cannot clear up; its folder is empty


def _state(process: int) -> str:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "Z"


@pytest.mark.parametrize(("timeout", "memory"), [(0.0, 256), (-1.0, 256), (float("nan"), 256), (1.0, 16)])
def test_impossible_limits_are_named(timeout: float, memory: int) -> None:
    with pytest.raises(ValueError, match=r"timeout|memory_mb"):
        run_program("pass", timeout=timeout, memory_mb=memory)


def test_where_it_cannot_be_shut_in_it_is_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(execution.platform, "machine", lambda: "riscv64")
    with pytest.raises(UserError, match="riscv64, so score it on another machine"):
        run_program("pass")
    monkeypatch.undo()
    with pytest.raises(UserError, match="seccomp"):
        execution._outcome(b"ab refused Function not implemented\n", "ab", True, 1)


def test_outcomes_agree_with_themselves() -> None:
    for passed, reason in ((True, "failed"), (False, "passed"), (False, "unknown")):
        with pytest.raises(ValueError, match="reason"):
            Outcome(passed, reason, "")


@pytest.mark.parametrize("machine", sorted(ARCHITECTURES))
def test_the_filter_is_closed(machine: str) -> None:
    """Interpreted by hand: another architecture is killed, unknown calls are refused, files open for reading only."""
    architecture = ARCHITECTURES[machine]
    steps = filter_instructions(architecture)

    def verdict(call: int, arguments: tuple[int, ...] = (0,) * 6, audit: int = architecture.audit) -> int:
        seen = {0: call, 4: audit} | {16 + 8 * i: argument for i, argument in enumerate(arguments)}
        word, place = 0, 0
        while True:
            code, yes, no, value = steps[place]
            if code == 0x06:
                return value
            if code == 0x20:
                word = seen[value]
                place += 1
            else:
                place += 1 + (yes if (word == value if code == 0x15 else word & value) else no)

    allow, kill = 0x7FFF0000, 0x80000000
    allowed = {call for call in range(600) if verdict(call) == allow}
    fcntl_and_opening = {architecture.fcntl, *(call for call, _ in architecture.opening)}
    assert allowed == {*architecture.allowed} | fcntl_and_opening
    assert verdict(architecture.allowed[0], audit=1) == kill
    for call, argument in architecture.opening:
        for flags in (1, 2, 0o101, 0o1002, 0o2001):
            assert verdict(call, tuple(flags if i == argument else 0 for i in range(6))) != allow
    assert verdict(architecture.fcntl, (1, 8, 1, 0, 0, 0)) != allow
    assert verdict(architecture.allowed[0] | 0x40000000) != allow
