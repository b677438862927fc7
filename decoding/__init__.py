"""Decoding with a masked diffusion language model: load one, run a decoder, keep the trace."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .backbone import Backbone as Backbone
    from .backbone import load as load
    from .baselines import DECODERS as DECODERS
    from .baselines import Block as Block
    from .dystruct import DyStruct as DyStruct
    from .engine import Decoder as Decoder
    from .engine import Pass as Pass
    from .engine import Row as Row
    from .errors import UserError as UserError
    from .generation import generate as generate
    from .trace import Commit as Commit
    from .trace import Event as Event
    from .trace import Generation as Generation
    from .trace import Remask as Remask
    from .trace import Step as Step
    from .trace import StructureChosen as StructureChosen
    from .trace import Window as Window
    from .trace import WindowClosed as WindowClosed
    from .trace import WindowOpened as WindowOpened

# Imported when first asked for, so that `dystruct --help` need not wait for torch.
_HOME = {
    "backbone": ("Backbone", "load"),
    "baselines": ("DECODERS", "Block"),
    "dystruct": ("DyStruct",),
    "engine": ("Decoder", "Pass", "Row"),
    "errors": ("UserError",),
    "generation": ("generate",),
    "trace": (
        "Commit", "Event", "Generation", "Remask", "Step", "StructureChosen", "Window", "WindowClosed", "WindowOpened",
    ),
}  # fmt: skip
_MODULE_OF = {name: module for module, names in _HOME.items() for name in names}

__all__ = list(_MODULE_OF)


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f".{_MODULE_OF[name]}", __name__), name)
    return value
