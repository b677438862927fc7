"""Masked diffusion language models, as the decoders see them: `load` finds one and makes it a `Backbone`."""

from .backbone import Backbone
from .loading import TINY, load, model_folder

__all__ = ["TINY", "Backbone", "load", "model_folder"]
