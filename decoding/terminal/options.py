"""The command line's options: their names, what they mean, their defaults and equations.

An option of a decoder is None unless it was given, so that one which the chosen decoder has no use for is an
error and never silently ignored; `DECODER_SETTINGS` says which setting of the decoder each one is, and
`decoder_of` makes the decoder. A command that decodes takes Model, Device, Dtype, Revision and DeviceMap, and gives
them to `load_model`.
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import UserError
from .reporting import status
from .rival_options import SETTING_OF

if TYPE_CHECKING:
    from ..backbone import Backbone

# Option -> field of the decoder's settings; a dot leads into its prior.
DECODER_SETTINGS = {
    "--structure": "structure",
    "--length-rule": "length_rule",
    "--alpha0": "prior.concentration",
    "--gamma": "prior.context_weight",
    "--passes": "passes",
    "--weld": "weld",
    "--r-weld": "weld_radius",
    "--block-length": "block_length",
}

# What has no use when an option has this value: a window of one block has no cuts, order or boundaries.
WITHOUT_USE = (
    ("--structure", "none", ("--alpha0", "--gamma", "--weld", "--r-weld")),
    ("--weld", "off", ("--r-weld",)),
)


def named_path(text: str) -> Path:
    """A path from the command line, where an empty one would mean the folder that one is in."""
    if not text:
        raise typer.BadParameter("The name is empty, give one")
    return Path(text)


def _option(panel: str | None, name: str, help: str, metavar: str | None = None, **settings: Any) -> Any:
    return typer.Option(name, help=help, metavar=metavar, rich_help_panel=panel, show_default=False, **settings)


_INPUT, _STRUCTURE, _TOKENS, _OUTPUT = "Input", "Decoder and structure", "Tokens and passes", "Output"

Prompt = Annotated[str | None, typer.Argument(metavar="[PROMPT]", help="The text to answer.", show_default=False)]
PromptFile = Annotated[
    str | None,
    _option(
        _INPUT, "--file", 'Prompts, one a line, or JSON lines with a "prompt" key; - is standard input.', metavar="PATH"
    ),
]
Model = Annotated[
    str,
    _option(
        _INPUT,
        "--model",
        "tiny, the embedded model; a model folder; or a model of the Hugging Face Hub, such as "
        "GSAI-ML/LLaDA-8B-Instruct. LLaDA, Dream and masked LMs. Default tiny.",
        metavar="MODEL",
    ),
]
Chat = Annotated[
    bool, _option(_INPUT, "--chat", "Give each prompt as a user's turn, in the chat template of an Instruct model.")
]
Device = Annotated[
    str | None,
    _option(_INPUT, "--device", "cpu, cuda, cuda:1, … Default: cuda where there is one, else cpu.", metavar="DEVICE"),
]
DeviceMap = Annotated[
    str | None,
    _option(
        _INPUT,
        "--device-map",
        "Instead of --device: how accelerate spreads the model over several devices, such as auto or balanced.",
        metavar="MAP",
    ),
]
Dtype = Annotated[
    str | None,
    _option(
        _INPUT,
        "--dtype",
        "Of the weights: float32, bfloat16 or float16. Default: float32 on the CPU, elsewhere what the model's files "
        "have.",
        metavar="DTYPE",
    ),
]
Revision = Annotated[
    str | None,
    _option(
        _INPUT, "--revision", "A branch, tag or commit of a model of the Hub. Default: its main branch.", metavar="NAME"
    ),
]

Decoder = Annotated[
    str,
    _option(
        _STRUCTURE,
        "--decoder",
        "dystruct; or block, windows of one length and no structure; or a rival, listed by `dystruct decoders`. "
        "Default dystruct.",
        metavar="NAME",
    ),
]
Preset = Annotated[
    str | None,
    _option(
        _STRUCTURE,
        "--preset",
        "paper; appendix, the same with r_weld 4; an ablation: no-schedule, no-weld, no-schedule-no-weld, "
        "fixed-windows or one-block. Default paper. With a rival: faithful, as the original with all its oddities.",
        metavar="NAME",
    ),
]
Structure = Annotated[
    str | None,
    _option(
        _STRUCTURE,
        "--structure",
        "Partition and order of a window. map: the most probable; sample: a draw from the posterior; consensus: the "
        "partition that agrees best with all others; none: one block. "
        "p(P | O) ∝ prod_g prior(b_g) q_g^b_g (1 - q_g)^(1 - b_g). Default map.",
        metavar="RULE",
    ),
]
LengthRule = Annotated[
    str | None,
    _option(
        _STRUCTURE,
        "--length-rule",
        "How L ~ Poisson(mu) clipped to 8..48, mu = 8 + (1 - hbar)(48 - 8), gives a window's length: sample, mode or "
        "mean. Default: what suits --structure (map, consensus: mode; sample: sample; none: mean).",
        metavar="RULE",
    ),
]
Alpha0 = Annotated[
    float | None,
    _option(
        _STRUCTURE,
        "--alpha0",
        "Concentration alpha0 > 0, larger cuts more: alpha_g = alpha0 exp(hbar + ell_g - mean ell). Default 1.5.",
        metavar="X",
    ),
]
Gamma = Annotated[
    float | None,
    _option(
        _STRUCTURE,
        "--gamma",
        "Weight of a block's anchoring in its priority: rho(B) = -H(B) + gamma C(B). Default 2.",
        metavar="X",
    ),
]
Passes = Annotated[
    str | None,
    _option(
        _STRUCTURE,
        "--passes",
        "Passes of a block. interpolate: T(B) = 6 + H(B)(18 - 6); share: T(B) = |B| (budget / max-new-tokens) "
        "H(B) / mean H. Default interpolate. With --decoder block a number; default one a token.",
        metavar="RULE",
    ),
]
WeldRule = Annotated[
    str | None,
    _option(
        _STRUCTURE,
        "--weld",
        "Welding of the boundaries of blocks: sequential, from left to right; joint, all of a window at once; off. "
        "Default sequential.",
        metavar="RULE",
    ),
]
WeldRadius = Annotated[
    int | None,
    _option(
        _STRUCTURE,
        "--r-weld",
        "Radius r of welding, in tokens: at the boundary b of blocks a..b and b..c the tokens from max(a, b - r) to "
        "min(c, b + r) are refined. Default 10.",
        min=1,
        metavar="N",
    ),
]
BlockLength = Annotated[
    int | None,
    _option(
        _STRUCTURE,
        "--block-length",
        "With --decoder block: a window's tokens. Default 8. With a rival: a block's.",
        min=1,
        metavar="N",
    ),
]

Stop = Annotated[
    list[str] | None,
    _option(
        _TOKENS,
        "--stop",
        "End the text before this one; once for each. For a line end, bash has $'\\n'.",
        metavar="TEXT",
    ),
]
MaxNewTokens = Annotated[
    int, _option(_TOKENS, "--max-new-tokens", "Limit N_max of the new tokens. Default 256.", min=1, metavar="N")
]
Budget = Annotated[
    int,
    _option(_TOKENS, "--budget", "Limit of a prompt's forward passes, of all kinds. Default 256.", min=1, metavar="N"),
]
Temperature = Annotated[
    float,
    _option(
        _TOKENS,
        "--temperature",
        "T of the tokens: argmax(logits / T + Gumbel noise); 0 takes the most probable one. Default 0.",
        min=0.0,
        metavar="X",
    ),
]
Seed = Annotated[int, _option(_TOKENS, "--seed", "Seed of all random streams. Default 0.", min=0, metavar="N")]
BatchSize = Annotated[
    int,
    _option(
        _TOKENS,
        "--batch-size",
        "Prompts decoded together; the texts do not depend on it. Default 8.",
        min=1,
        metavar="N",
    ),
]
PrefixCache = Annotated[
    bool,
    _option(
        _TOKENS,
        "--prefix-cache",
        "Compute keys and values of what stands before a window at its first pass and keep them until its last: "
        "quicker, and an approximation.",
    ),
]

Save = Annotated[
    Path | None,
    _option(
        _OUTPUT,
        "--save",
        "Save the trace to this file; of several prompts, numbered traces to this new folder.",
        metavar="PATH",
        parser=named_path,
    ),
]
AsJson = Annotated[
    bool, _option(_OUTPUT, "--json", "Print one JSON line a prompt, with text, counts and settings, and nothing else.")
]
Quiet = Annotated[bool, _option(_OUTPUT, "--quiet", "Print the text and nothing else.")]

Trace = Annotated[
    Path, typer.Argument(metavar="TRACE", help="A trace that --save wrote.", show_default=False, parser=named_path)
]
Delay = Annotated[
    float,
    _option(
        None,
        "--delay",
        "Seconds to wait behind every forward pass, on a terminal. Default 0.04.",
        min=0.0,
        max=60.0,
        metavar="X",
    ),
]
Svg = Annotated[
    Path | None,
    _option(None, "--svg", "Write the view as an SVG picture to this file instead.", metavar="PATH", parser=named_path),
]
Html = Annotated[
    Path | None,
    _option(
        None,
        "--html",
        "Write a page to this file instead, which shows the decoding pass by pass in a browser and loads nothing.",
        metavar="PATH",
        parser=named_path,
    ),
]
Beside = Annotated[
    Path | None,
    _option(None, "--beside", "With --html: another trace, shown in step with this one.", metavar="TRACE"),
]
Until = Annotated[
    int | None,
    _option(None, "--until", "With --svg: the view as it stood after this forward pass.", min=0, metavar="N"),
]
Width = Annotated[
    int | None,
    _option(
        None, "--width", "With --svg: the picture's width in characters. Default 96.", min=40, max=400, metavar="N"
    ),
]


def decoder_of(name: str, preset: str | None, given: dict[str, Any]) -> Any:
    """The decoder called `name` with the given options (by option name) as its settings.

    preset: the setting to start from. Raises UserError for an unknown name, a value that the decoder refuses, and an
    option that it has no use for.
    """
    from .. import DECODERS

    if name not in DECODERS:
        raise UserError(f"There is no decoder {name!r}; the decoders are {', '.join(DECODERS)}.")
    kind = DECODERS[name]
    settings = {field.name for field in fields(kind)}
    names = {**DECODER_SETTINGS, **SETTING_OF}
    for option in given:
        if names[option].split(".")[0] not in settings:
            raise UserError(f"{option} has no use with --decoder {name}; leave it out.")
    if preset is not None and not hasattr(kind, "preset"):
        if "faithful" not in settings:
            raise UserError(f"--preset has no use with --decoder {name}; leave it out.")
        if preset != "faithful":
            raise UserError(f"There is no preset {preset!r} of --decoder {name}; its only one is faithful.")
    for option, value, without in WITHOUT_USE:
        if given.get(option) == value:
            for useless in without:
                if useless in given:
                    raise UserError(f"{useless} has no use with {option} {value}; leave it out.")
    values = {names[option]: value for option, value in given.items()}
    if str(values.get("passes", "")).isdigit():
        values["passes"] = int(values["passes"])
    try:
        if not hasattr(kind, "preset"):
            return kind(**values, **({} if preset is None else {"faithful": True}))
        made = kind() if preset is None else kind.preset(preset)
        prior = {key.removeprefix("prior."): values.pop(key) for key in list(values) if key.startswith("prior.")}
        if prior:
            values["prior"] = replace(made.prior, **prior)
        return replace(made, **values)
    except ValueError as error:
        raise UserError(_in_options(str(error))) from error


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
    fetched = name != "tiny" and not Path(name).exists()
    with nullcontext() if fetched else status(f"loading {name}"):
        try:
            return load(name, device=device, device_map=device_map, dtype=dtype, revision=revision, **more)
        except UserError as error:
            raise UserError(_in_options(str(error))) from error


def _in_options(message: str) -> str:
    """An error about a setting, with the setting's name as the command line has it."""
    for option, setting in {**DECODER_SETTINGS, **SETTING_OF, "--revision": "revision"}.items():
        name = setting.split(".")[-1]
        if message.startswith(f"{name} "):
            return option + message.removeprefix(name)
    return message
