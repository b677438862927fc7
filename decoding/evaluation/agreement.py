"""Whether a run on record was made as it is asked for now: the first setting that differs, and what can be done.

Settings are plain data. Knows nothing of files, and of the settings only which of them a user gives one by one.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from itertools import takewhile
from pathlib import Path
from typing import Any

from ..errors import UserError
from ..plain import as_plain

_SHOWN = 120  # characters of a value
_BEFORE = 30  # of them before the first that differs
_MISSING = object()


def filled(found: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Settings on record, with those that did not exist yet as they were then: at their defaults.

    defaults: of the settings, or of a part of them; where a part is not on record at all, it stays so.
    """
    parts = {
        name: {**{key: value for key, value in of.items() if key not in found[name]}, **filled(found[name], of)}
        for name, of in defaults.items()
        if isinstance(of, dict) and isinstance(found.get(name), dict)
    }
    return {**found, **parts}


def compare(found: Mapping[str, Any], asked: Mapping[str, Any], folder: Path, free: Collection[str] = ()) -> None:
    """Raise UserError that names the innermost setting of the run in a folder that is not as asked, if there is one.

    free: settings that may differ, with points between a part and what is in it. The limit and what follows from it
    come last: a run can be prolonged, but not under other settings.
    """
    asked = as_plain(asked)
    names = [*asked, *(name for name in found if name not in asked)]
    late = [name for name in ("limit", "tasks") if name in names]
    tasks = [list(settings.get("tasks") or ()) for settings in (found, asked)]
    if tasks[0] != tasks[1]:
        late.reverse()  # other tasks, not more items of the same
        found, asked = ({**of, "tasks": names} for of, names in zip((found, asked), tasks, strict=True))
    for name in [*(name for name in names if name not in late), *late]:
        for place, one, other in _differences(found.get(name, _MISSING), asked.get(name, _MISSING), name):
            if any(f"{place}.".startswith(f"{part}.") for part in free):
                continue
            raise UserError(f"The run in {str(folder)!r} has {_told(place, one, other)}; {_remedy(place, one, other)}.")


def _differences(one: Any, other: Any, place: str) -> Iterator[tuple[str, Any, Any]]:
    """Where two values differ, innermost, with what stands there."""
    if isinstance(one, dict) and isinstance(other, dict):
        for name in [*other, *(name for name in one if name not in other)]:
            yield from _differences(one.get(name, _MISSING), other.get(name, _MISSING), f"{place}.{name}")
    elif one != other:
        yield place, one, other


def _told(place: str, one: Any, other: Any) -> str:
    texts = [json.dumps(value, ensure_ascii=False) for value in (one, other) if value is not _MISSING]
    shared = sum(1 for _ in takewhile(lambda signs: len(set(signs)) == 1, zip(*texts, strict=False)))
    shown = [_cut(text, shared) for text in texts]
    if one is _MISSING:
        return f"no {place}, which is {shown[0]} now"
    return f"{place} {shown[0]}, not {shown[1]}" if len(shown) > 1 else f"{place} {shown[0]}, which there is not now"


def _cut(text: str, shared: int) -> str:
    """A text with its sign number `shared` in it, the first that differs from another text's."""
    if len(text) <= _SHOWN:
        return text
    start = max(0, shared - _BEFORE) if shared > _SHOWN - _BEFORE else 0
    end = start + _SHOWN
    return ("…" if start else "") + text[start:end] + ("…" if end < len(text) else "")


def _remedy(place: str, one: Any, other: Any) -> str:
    """What can be done. A setting inside another one follows from what is given, and cannot be given as it was."""
    if place.startswith("model."):
        return "go on with its model, or name another folder"
    if place in ("prompt_format", "skip"):  # on record only where it is given
        return "leave it out, or name another folder" if one is _MISSING else "give it, or name another folder"
    if "." in place or one is _MISSING or other is _MISSING:
        return "name another folder"
    return "go on with its settings, or name another folder"
