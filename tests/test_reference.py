"""The reference, which `make reference` makes of docstrings, has no holes: what it names says what it is."""

from __future__ import annotations

import importlib
import inspect
import re
from pathlib import Path
from typing import Any

import pytest

MAKEFILE = (Path(__file__).parent.parent / "Makefile").read_text(encoding="utf-8")
MODULES = re.search(r"^REFERENCE = ((?:.*\\\n)*.*)$", MAKEFILE, flags=re.MULTILINE)[1].replace("\\", "").split()


def _public(module: Any) -> dict[str, Any]:
    """What `from module import *` gives, or what the module defines itself."""
    names = getattr(module, "__all__", None)
    if names is not None:
        return {name: getattr(module, name) for name in names}
    own = {name: value for name, value in vars(module).items() if not name.startswith("_")}
    return {name: value for name, value in own.items() if getattr(value, "__module__", None) == module.__name__}


def _methods(kind: type) -> dict[str, Any]:
    """Its public methods, but for those that it has from another class, whose docstrings hold for them too."""
    inherited = {name for base in kind.__mro__[1:] for name in vars(base)}
    return {
        name: inspect.unwrap(getattr(value, "__func__", value))
        for name, value in vars(kind).items()
        if not name.startswith("_") and name not in inherited
    }


@pytest.mark.parametrize("name", MODULES)
def test_what_a_module_offers_says_what_it_is(name: str) -> None:
    module = importlib.import_module(name)
    silent = [] if module.__doc__ else [name]
    for what, value in _public(module).items():
        if inspect.isclass(value):
            written = value.__dict__.get("__doc__") or ""
            if not written or written.startswith(f"{value.__name__}("):  # the latter is dataclass's own
                silent.append(what)
            silent += [f"{what}.{n}" for n, m in _methods(value).items() if inspect.isfunction(m) and not m.__doc__]
        elif inspect.isfunction(value) and not value.__doc__:
            silent.append(what)
    assert silent == []
