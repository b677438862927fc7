"""Files that are written whole or not at all: whatever fails, what was there stays, and one sentence says why."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dystruct.decoding import UserError
from dystruct.decoding.files import (
    check_file_target,
    check_folder_target,
    save_bytes,
    save_folder,
    save_json,
    save_text,
)

TEXTS = st.text(st.characters(codec="utf-8"), max_size=20)


def contents(folder: Path) -> dict[str, bytes | None]:
    """All below a folder: the bytes of files, None for folders and what is neither."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes() if path.is_file() else None
        for path in folder.rglob("*")
    }  # fmt: skip


@given(before=st.none() | TEXTS, text=TEXTS)
def test_a_text_is_written_as_it_is(tmp_path_factory: pytest.TempPathFactory, before: str | None, text: str) -> None:
    path = tmp_path_factory.mktemp("texts") / "a.txt"
    if before is not None:
        path.write_text(before, encoding="utf-8")
    save_text(path, text)
    assert contents(path.parent) == {"a.txt": text.encode()}, "no line end is changed, and nothing else is left"


def test_json_is_for_people_too(tmp_path: Path) -> None:
    save_json(tmp_path / "a.json", {"ä": [1, None]})
    assert (tmp_path / "a.json").read_text(encoding="utf-8") == '{\n "ä": [\n  1,\n  null\n ]\n}\n'


def _place(folder: Path, name: str) -> Path:
    (folder / "file").write_text("kept")
    (folder / "folder").mkdir()
    (folder / "folder" / "inside").write_text("kept")
    os.mkfifo(folder / "pipe")
    (folder / "circle").symlink_to(folder / "circle")
    return folder / name


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("folder", "is a folder; name a file"),
        ("pipe", "no regular file"),
        ("nowhere/a", "There is no folder"),
        ("file/a", "Nothing can be written at"),
        ("x" * 300, "choose another name"),
        ("x" * 252, "choose another name"),  # no room for what is written first
        ("a\0b", "choose another name"),
        ("circle", "choose another name"),
    ],
)
def test_where_no_file_can_be_is_told_before_and_when_it_is_written(tmp_path: Path, name: str, says: str) -> None:
    path = _place(tmp_path, name)
    before = contents(tmp_path)
    acts: tuple[Callable[[Path], None], ...] = (
        check_file_target,
        lambda path: save_text(path, "text"),
        lambda path: save_json(path, []),
        lambda path: save_bytes(path, b"bytes"),
    )
    for act in acts:
        with pytest.raises(UserError, match=rf"^[^\n]*{says}[^\n]*\.$"):
            act(path)
    assert contents(tmp_path) == before


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("file", "is a file"),
        ("pipe", "is a file"),
        ("folder", "is not empty"),
        ("nowhere/a", "There is no folder"),
        ("x" * 300, "choose another name"),
    ],
)
def test_where_no_folder_can_be_is_told_before_and_when_it_is_written(tmp_path: Path, name: str, says: str) -> None:
    path = _place(tmp_path, name)
    before = contents(tmp_path)
    for act in (check_folder_target, lambda path: save_folder(path, [("a", "text")])):
        with pytest.raises(UserError, match=rf"^[^\n]*{says}[^\n]*\.$"):
            act(path)
    assert contents(tmp_path) == before


@pytest.mark.parametrize("there", [True, False])
def test_a_folder_appears_when_all_is_written(tmp_path: Path, there: bool) -> None:
    target = tmp_path / "new"
    if there:
        target.mkdir()
    before, partial = contents(tmp_path), f"new.{os.getpid()}.partial"

    def texts(count: int) -> Any:
        yield from ((f"{number}.txt", f"{number}") for number in range(count))
        assert contents(tmp_path).keys() - before.keys() == {
            partial, *(f"{partial}/{number}.txt" for number in range(count))
        }  # fmt: skip
        if count == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        save_folder(target, texts(2))
    assert contents(tmp_path) == before
    save_folder(target, texts(3))
    assert contents(tmp_path) == {"new": None, **{f"new/{number}.txt": b"%d" % number for number in range(3)}}


@pytest.mark.parametrize("failing", ["write_text", "replace"])
@pytest.mark.parametrize(
    "save",
    [
        lambda folder: save_text(folder / "a.txt", "new"),
        lambda folder: save_json(folder / "a.txt", "new"),
        lambda folder: save_folder(folder / "b", [("1", "new"), ("2", "new")]),
    ],
)
def test_a_full_disk_leaves_what_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str, save: Callable[[Path], None]
) -> None:
    (tmp_path / "a.txt").write_text("old")

    def full(self: Path | str, *args: Any, **settings: Any) -> None:
        if failing == "write_text":
            Path(self).write_bytes(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path if failing == "write_text" else os, failing, full)
    with pytest.raises(UserError, match=r"^'[^\n]*' could not be written \(No space left on device\); make room"):
        save(tmp_path)
    assert contents(tmp_path) == {"a.txt": b"old"}


def test_a_link_is_written_through(tmp_path: Path) -> None:
    (tmp_path / "far").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "far" / "a.txt")
    for text in ("first", "second"):
        save_text(tmp_path / "link", text)
        assert (tmp_path / "far" / "a.txt").read_text() == text
    assert (tmp_path / "link").is_symlink() and os.listdir(tmp_path / "far") == ["a.txt"]
