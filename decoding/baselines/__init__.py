"""Other decoders, each one coroutine over the same engine, and all decoders by name."""

from ..dystruct import DyStruct
from .block import Block

DECODERS: dict[str, type] = {"dystruct": DyStruct, "block": Block}

__all__ = ["DECODERS", "Block"]
