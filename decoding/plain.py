"""Values as plain data, as JSON gives it back, and from it again.

Knows nothing of what the values are, nor of files.
"""

from __future__ import annotations

from dataclasses import MISSING, Field, fields, is_dataclass
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints


def as_plain(value: Any, digits: int | None = None) -> Any:
    """A value as a JSON file gives it back: tuples and arrays as lists, keys as texts, dataclasses by their fields.

    Fields that are no part of a dataclass's value (compare=False) are left out. digits: significant ones that floats
    keep; None: all. What JSON has no form for stays what it is, and `json.dumps` refuses it.
    """
    if is_dataclass(value):
        return {field.name: as_plain(getattr(value, field.name), digits) for field in _saved(value)}
    if isinstance(value, dict):
        return {str(key): as_plain(item, digits) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [as_plain(item, digits) for item in value]
    if hasattr(value, "tolist"):  # numpy's and torch's
        return as_plain(value.tolist(), digits)
    return float(f"{value:.{digits}g}") if isinstance(value, float) and digits is not None else value


def from_plain(kind: Any, data: Any, where: str = "it") -> Any:
    """The value of type `kind` that `as_plain` made `data` of, whole; else ValueError, with the place.

    Fields that have a default may be missing. kind: a dataclass, tuple[X, ...], dict[X, Y], X | None, a literal
    or a type that JSON has. where: what the error calls the value.
    """
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (UnionType, Union):
        return None if data is None else from_plain(next(a for a in arguments if a is not type(None)), data, where)
    if origin is Literal:
        if data not in arguments:
            raise ValueError(f"{where} is {data!r}, which is none of {', '.join(map(repr, arguments))}")
        return data
    if kind is Any:
        return data
    written: Any = {tuple: list, dict: dict, float: (float, int)}.get(
        origin or kind, dict if is_dataclass(kind) else kind
    )
    if not isinstance(data, written) or (isinstance(data, bool) and kind is not bool):
        name = kind.__name__ if isinstance(kind, type) else kind
        raise ValueError(f"{where} is of type {type(data).__name__}, not {name}")
    if is_dataclass(kind):
        types = get_type_hints(kind)
        hints = {field.name: types[field.name] for field in _saved(kind)}
        unknown = set(data) - set(hints)
        if unknown:
            raise ValueError(f"{where} has the unknown key {sorted(unknown)[0]!r}")
        needed = [f.name for f in fields(kind) if f.default is MISSING and f.default_factory is MISSING]
        missing = [name for name in needed if name not in data]
        if missing:
            raise ValueError(f"{where} lacks the key {missing[0]!r}")
        inside = "" if where == "it" else f"{where}."
        return kind(**{name: from_plain(hints[name], data[name], f"{inside}{name}") for name in hints if name in data})  # type: ignore[operator]
    if origin is tuple:
        return tuple(from_plain(arguments[0], item, f"{where}[{place}]") for place, item in enumerate(data))
    if origin is dict:
        # JSON has no keys but texts
        return {arguments[0](name): from_plain(arguments[1], item, f"{where}[{name!r}]") for name, item in data.items()}
    return data


def _saved(kind: Any) -> list[Field[Any]]:
    return [field for field in fields(kind) if field.compare]
