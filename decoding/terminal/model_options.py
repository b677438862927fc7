"""The options that say which model decodes, where it computes, and with which evidence weights.

A command takes the group that has what it needs, and the group loads the model. `--model` and `--chat` are in none:
a sweep's file names the models.
"""

from __future__ import annotations

import os
from collections.abc import Collection
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from ..errors import UserError, in_options
from .options import make_option, named_path
from .reporting import status
from .signatures import OptionGroup

if TYPE_CHECKING:
    from ..backbone import Backbone

_INPUT = "Input"

Model = Annotated[
    str,
    make_option(
        _INPUT,
        "--model",
        "tiny, the embedded model; a model folder; or a model of the Hugging Face Hub, such as "
        "GSAI-ML/LLaDA-8B-Instruct. LLaDA, Dream and masked LMs. Default {default}.",
        metavar="MODEL",
    ),
]
Chat = Annotated[
    bool, make_option(_INPUT, "--chat", "Give each prompt as a user's turn, in the chat template of an Instruct model.")
]
Device = Annotated[
    str | None,
    make_option(
        _INPUT, "--device", "cpu, cuda, cuda:1, … Default: cuda where there is one, else cpu.", metavar="DEVICE"
    ),
]
DeviceMap = Annotated[
    str | None,
    make_option(
        _INPUT,
        "--device-map",
        "Instead of --device: how accelerate spreads the model over several devices, such as auto or balanced.",
        metavar="MAP",
    ),
]
Dtype = Annotated[
    str | None,
    make_option(
        _INPUT,
        "--dtype",
        "Of the weights: float32, bfloat16 or float16. Default: float32 on the CPU, elsewhere what the model's files "
        "have.",
        metavar="DTYPE",
    ),
]
Compiled = Annotated[
    bool,
    make_option(
        _INPUT,
        "--compiled",
        "Let torch.compile make the forward pass: a minute or two at the start, and quicker passes for long runs.",
    ),
]
Revision = Annotated[
    str | None,
    make_option(
        _INPUT, "--revision", "A branch, tag or commit of a model of the Hub. Default: its main branch.", metavar="NAME"
    ),
]
Weights = Annotated[
    Path | None,
    make_option(
        _INPUT,
        "--weights",
        "DyStruct's evidence weights, a file that `dystruct calibrate` wrote, in place of the model's own.",
        metavar="FILE",
        parser=named_path,
    ),
]
ForceWeights = Annotated[
    bool, make_option(_INPUT, "--force-weights", "Take evidence weights though they were fitted on another model.")
]


@dataclass(frozen=True)
class Placement(OptionGroup):
    """Where and how a model computes, and the dtype of its weights."""

    device: Device = None
    device_map: DeviceMap = None
    dtype: Dtype = None
    compiled: Compiled = False

    def load(self, model: str, **more: Any) -> Backbone:
        """The model called so, with what was given; more: further arguments of `load`. Raises UserError."""
        return load_model(
            model, **{name: value for name, value in vars(self).items() if value not in (None, False)}, **more
        )


@dataclass(frozen=True)
class Source(Placement):
    """Which version of a model, and where it computes."""

    revision: Revision = None


@dataclass(frozen=True)
class WeightedSource(Source):
    """Which version of a model, where it computes, and the evidence weights that DyStruct takes with it."""

    weights: Weights = None
    force_weights: ForceWeights = False

    def check_use(self, decoders: Collection[str]) -> None:
        """Raise UserError if an option about weights is given and none of the decoders takes any."""
        for name, given in (("--weights", self.weights is not None), ("--force-weights", self.force_weights)):
            if given and "dystruct" not in {decoder.partition(":")[0] for decoder in decoders}:
                raise UserError(f"{name} has no use without --decoder dystruct; leave it out.")


def load_model(
    name: str,
    *,
    device: str | None = None,
    device_map: str | None = None,
    dtype: str | None = None,
    revision: str | None = None,
    **more: Any,
) -> Backbone:
    """The model that the options name; more: further arguments of `load`. Raises UserError in the options' names."""
    from .. import load
    from ..device import check_device

    if device is not None and device_map is not None:
        raise UserError("--device and --device-map exclude each other; give one of them.")
    if device is not None:
        check_device(device)
    # A model that is fetched has progress bars of its own, which the sign of life would hide.
    fetched = name != "tiny" and not os.path.exists(name)
    with nullcontext() if fetched else status(f"loading {name}"):
        try:
            return load(name, device=device, device_map=device_map, dtype=dtype, revision=revision, **more)
        except UserError as error:
            raise UserError(in_options(str(error), {"--revision": "revision"})) from error
