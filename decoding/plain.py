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
    keep; None: all. What JSON has no form for stays what it is, and `json.dumps` refuses it. ValueError for keys that
    would be the same text.
    """
    if is_dataclass(value):
        return {field.name: as_plain(getattr(value, field.name), digits) for field in _saved(value)}
    if isinstance(value, dict):
        plain = {str(key): as_plain(item, digits) for key, item in value.items()}
        if len(plain) < len(value):
            raise ValueError(f"two of the keys {', '.join(map(repr, value))[:80]} are the same text")
        return plain
    if isinstance(value, list | tuple):
        return [as_plain(item, digits) for item in value]
    if hasattr(value, "tolist"):  # numpy's and torch's
        return as_plain(value.tolist(), digits)
    return float(f"{value:.{digits}g}") if isinstance(value, float) and digits is not None else value


def from_plain(kind: Any, data: Any, where: str = "it") -> Any:
    """The value of type `kind` that `as_plain` made `data` of, whole; else ValueError, with the place.

    Fields that have a default may be missing. kind: a dataclass, tuple[X, ...], tuple[X, Y], list[X], dict[X, Y],
    X | Y, of which the first that fits is taken, a literal or a type that JSON has. Texts are valid Unicode, numbers no
    larger than a float can be where one belongs, and keys written as `as_plain` writes them. where: what the error
    calls the value.
    """
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (UnionType, Union):
        return _first_of(arguments, data, where)
    if origin is Literal:
        if data not in arguments:
            raise ValueError(f"{where} is {data!r}, which is none of {', '.join(map(repr, arguments))}")
        return data
    if kind is Any:
        _check_texts(data, where)
        return data
    written: Any = {tuple: list, list: list, dict: dict, float: (float, int)}.get(
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
    if origin in (tuple, list):
        kinds = arguments if origin is tuple and arguments[-1] is not Ellipsis else arguments[:1] * len(data)
        if len(kinds) != len(data):
            raise ValueError(f"{where} has {len(data)} values, not {len(kinds)}")
        places = zip(kinds, data, strict=True)
        return origin(from_plain(each, item, f"{where}[{place}]") for place, (each, item) in enumerate(places))
    if origin is dict:
        return {
            _key(arguments[0], name, where): from_plain(arguments[1], item, f"{where}[{name!r}]")
            for name, item in data.items()
        }
    _check_texts(data, where)
    if kind is float:
        try:
            float(data)
        except OverflowError as error:
            raise ValueError(f"{where} is larger than any float") from error
    return data


def _first_of(kinds: tuple[Any, ...], data: Any, where: str) -> Any:
    """The value of the first of several types that fits; where none does, the ValueError of the first."""
    if data is None and type(None) in kinds:
        return None
    refused = []
    for kind in kinds:
        if kind is not type(None):
            try:
                return from_plain(kind, data, where)
            except ValueError as error:
                refused.append(error)
    raise refused[0]


def _key(kind: Any, name: str, where: str) -> Any:
    """The key that is written as `name`; JSON has no keys but texts."""
    _check_texts(name, f"a key of {where}")
    try:
        key = kind(name)
    except ValueError:
        key = None
    if str(key) != name:  # else two names could be one key
        raise ValueError(f"{where} has the key {name!r}, which is not written as one of type {kind.__name__} is")
    return key


def _check_texts(data: Any, where: str) -> None:
    """ValueError for a text in what JSON gave that holds half of a surrogate pair, which nothing can write."""
    if isinstance(data, str) and any("\ud800" <= character <= "\udfff" for character in data):
        raise ValueError(f"{where} is no valid Unicode")
    if isinstance(data, dict):
        for name, item in data.items():
            _check_texts(name, f"a key of {where}")
            _check_texts(item, f"{where}[{name!r}]")
    if isinstance(data, list):
        for place, item in enumerate(data):
            _check_texts(item, f"{where}[{place}]")


def _saved(kind: Any) -> list[Field[Any]]:
    return [field for field in fields(kind) if field.compare]
