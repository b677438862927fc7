"""Other decoders, each one coroutine over the same engine, and all decoders by name."""

from ..dystruct import DyStruct
from .adablock import AdaBlock
from .block import Block
from .daedal import Daedal
from .dream import Dream
from .fast import Fast
from .fixed import Fixed
from .hierarchy import Hierarchy
from .vsb_like import VsbLike

DECODERS: dict[str, type] = {
    "dystruct": DyStruct,
    "block": Block,
    "fixed": Fixed,
    "dream": Dream,
    "fast": Fast,
    "daedal": Daedal,
    "adablock": AdaBlock,
    "hierarchy": Hierarchy,
    "vsb-like": VsbLike,
}

__all__ = ["DECODERS", "AdaBlock", "Block", "Daedal", "Dream", "Fast", "Fixed", "Hierarchy", "VsbLike"]
