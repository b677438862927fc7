"""Decoding with a masked diffusion language model: load one, run a decoder, keep the trace."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .backbone import Backbone as Backbone
    from .backbone import load as load
    from .baselines import DECODERS as DECODERS
    from .baselines import AdaBlock as AdaBlock
    from .baselines import Block as Block
    from .baselines import Daedal as Daedal
    from .baselines import Dream as Dream
    from .baselines import Fast as Fast
    from .baselines import Fixed as Fixed
    from .baselines import Hierarchy as Hierarchy
    from .baselines import VsbLike as VsbLike
    from .dystruct import DyStruct as DyStruct
    from .errors import DecodingFailed as DecodingFailed
    from .errors import UserError as UserError
    from .generation import generate as generate
    from .request import Figures as Figures
    from .request import Pass as Pass
    from .row import Decoder as Decoder
    from .row import Row as Row
    from .sampling import Sampling as Sampling
    from .trace import Commit as Commit
    from .trace import Event as Event
    from .trace import Generation as Generation
    from .trace import LengthInferred as LengthInferred
    from .trace import Remask as Remask
    from .trace import Splice as Splice
    from .trace import Step as Step
    from .trace import StructureChosen as StructureChosen
    from .trace import Window as Window
    from .trace import WindowClosed as WindowClosed
    from .trace import WindowOpened as WindowOpened

# Imported when first asked for, so that `dystruct --help` need not wait for torch.
_HOME = {
    "backbone": ("Backbone", "load"),
    "baselines": ("DECODERS", "AdaBlock", "Block", "Daedal", "Dream", "Fast", "Fixed", "Hierarchy", "VsbLike"),
    "dystruct": ("DyStruct",),
    "errors": ("DecodingFailed", "UserError"),
    "generation": ("generate",),
    "request": ("Figures", "Pass"),
    "row": ("Decoder", "Row"),
    "sampling": ("Sampling",),
    "trace": (
        "Commit", "Event", "Generation", "LengthInferred", "Remask", "Splice", "Step", "StructureChosen", "Window",
        "WindowClosed", "WindowOpened",
    ),
}  # fmt: skip
_MODULE_OF = {name: module for module, names in _HOME.items() for name in names}

__all__ = list(_MODULE_OF)


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f".{_MODULE_OF[name]}", __name__), name)
    return value
