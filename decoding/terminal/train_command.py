"""`dystruct train`: the embedded model's training, or one of another size, in a folder that can be gone on with.

The run's configuration is kept beside its checkpoint, so that going on needs no options, and other ones are an
error instead of a different model half-way.
"""

from __future__ import annotations

import importlib.util
import json
import os
from dataclasses import asdict, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import UserError
from ..files import save_json
from .options import named_path
from .reporting import complain

if TYPE_CHECKING:
    from ..tiny.training import TrainingConfig

CONFIG_FILE = "training.json"


def _option(name: str, help: str, **settings: Any) -> Any:
    panel = settings.pop("panel", "Training")
    metavar = None if "/" in name else "DEVICE" if name == "--device" else "N"
    return typer.Option(name, help=help, metavar=metavar, rich_help_panel=panel, show_default=False, **settings)


def _count(name: str, help: str, panel: str = "Training") -> Any:
    return _option(name, help, panel=panel, min=1)


_MODEL = "Model"
Folder = Annotated[
    Path,
    typer.Argument(
        metavar="FOLDER",
        help="Where the run lives; one that stands there is gone on with.",
        show_default=False,
        parser=named_path,
    ),
]
Width = Annotated[int | None, _count("--width", "Hidden units, a multiple of --head. Default 192.", _MODEL)]
Layers = Annotated[int | None, _count("--layers", "Layers. Default 8.", _MODEL)]
Intermediate = Annotated[
    int | None, _count("--intermediate", "Units between the two projections. Default 512.", _MODEL)
]
Head = Annotated[int | None, _count("--head", "Units of an attention head. Default 32.", _MODEL)]
Vocabulary = Annotated[
    int | None, _option("--vocabulary", "Tokens of the vocabulary, at least 258. Default 3072.", panel=_MODEL, min=258)
]
AutoregressiveTokens = Annotated[
    int | None,
    _option("--autoregressive-tokens", "Tokens of the first phase, next-token prediction. Default 20000000.", min=0),
]
WindowedTokens = Annotated[
    int | None,
    _option(
        "--windowed-tokens",
        "Tokens of the second phase, all windows of an answer beside it. Default 12000000.",
        min=0,
    ),
]
MaskedTokens = Annotated[
    int | None, _option("--masked-tokens", "Tokens of the third phase, masked prediction. Default 8000000.", min=0)
]
Maths = Annotated[float | None, _option("--maths", "Share of maths problems. Default 0.4.", min=0.0, max=1.0)]
Code = Annotated[float | None, _option("--code", "Share of code problems. Default 0.3.", min=0.0, max=1.0)]
Logic = Annotated[float | None, _option("--logic", "Share of logic problems. Default 0.3.", min=0.0, max=1.0)]
BatchTokens = Annotated[int | None, _count("--batch-tokens", "Tokens of a step. Default 5000.")]
DrillShare = Annotated[
    float | None,
    _option(
        "--drill-share",
        "Share of plain arithmetic in the first phase, half of it in the others. Default 0.3.",
        min=0.0,
        max=0.9,
    ),
]
Decay = Annotated[
    float | None,
    _option(
        "--decay",
        "Last part of all tokens, over which the rates drop to 0: rate · min(1, (1 - seen) / decay). Default 0.35.",
        min=0.001,
        max=1.0,
    ),
]
WarmupSteps = Annotated[int | None, _count("--warmup-steps", "Steps over which the rates rise. Default 60.")]
MuonRate = Annotated[
    float | None, _option("--muon-rate", "Learning rate of Muon, for the layers' matrices. Default 0.02.", min=0.0)
]
AdamRate = Annotated[
    float | None, _option("--adam-rate", "Learning rate of AdamW, for all else. Default 0.004.", min=0.0)
]
WeightDecay = Annotated[float | None, _option("--weight-decay", "Weight decay of Muon. Default 0.01.", min=0.0)]
Seed = Annotated[int | None, _option("--seed", "Seed of the weights and the batches. Default 0.", min=0)]
_RUN = "Run"
StartFrom = Annotated[
    Path | None,
    typer.Option(
        "--start-from",
        metavar="FOLDER",
        help="A smaller model of the same widths, that an earlier run wrote, for a new run to grow from. Default None.",
        rich_help_panel=_RUN,
        show_default=False,
        parser=named_path,
    ),
]
ExecuteCode = Annotated[
    bool | None,
    typer.Option(
        "--execute-code",
        help="Score code too, by running what the model wrote, in a limited subprocess. Default False.",
        rich_help_panel=_RUN,
        show_default=False,
    ),
]
Device = Annotated[str | None, _option("--device", "cpu, cuda, cuda:1, … Default cpu.", panel=_RUN)]
Compile = Annotated[
    bool | None, _option("--compile/--no-compile", "Compile the model; needs a C++ compiler. Default True.", panel=_RUN)
]
SaveEvery = Annotated[
    float | None, _option("--save-every", "Seconds from checkpoint to checkpoint. Default 240.0.", panel=_RUN, min=0.0)
]
ValidateEvery = Annotated[
    int | None,
    _count("--validate-every", "Tokens from one look at held-out problems to the next. Default 2000000.", _RUN),
]
AccuracyProblems = Annotated[
    int | None,
    _option(
        "--accuracy-problems",
        "Held-out problems of each domain to answer at each such look. Default 16.",
        panel=_RUN,
        min=0,
    ),
]


def train(
    folder: Folder,
    width: Width = None,
    layers: Layers = None,
    intermediate: Intermediate = None,
    head: Head = None,
    vocabulary: Vocabulary = None,
    autoregressive_tokens: AutoregressiveTokens = None,
    windowed_tokens: WindowedTokens = None,
    masked_tokens: MaskedTokens = None,
    maths: Maths = None,
    code: Code = None,
    logic: Logic = None,
    batch_tokens: BatchTokens = None,
    drill_share: DrillShare = None,
    decay: Decay = None,
    warmup_steps: WarmupSteps = None,
    muon_rate: MuonRate = None,
    adam_rate: AdamRate = None,
    weight_decay: WeightDecay = None,
    seed: Seed = None,
    start_from: StartFrom = None,
    execute_code: ExecuteCode = None,
    device: Device = None,
    compile: Compile = None,
    save_every: SaveEvery = None,
    validate_every: ValidateEvery = None,
    accuracy_problems: AccuracyProblems = None,
) -> None:
    """Train a small masked diffusion model on problems with worked answers, or go on with a run that was stopped."""
    how = {
        "start_from": start_from,
        "execute_code": execute_code,
        "device": device,
        "compile": compile,
        "save_every": save_every,
        "validate_every": validate_every,
        "accuracy_problems": accuracy_problems,
    }
    given = {
        "width": width,
        "layers": layers,
        "intermediate": intermediate,
        "head": head,
        "vocabulary": vocabulary,
        "autoregressive_tokens": autoregressive_tokens,
        "windowed_tokens": windowed_tokens,
        "masked_tokens": masked_tokens,
        "maths": maths,
        "code": code,
        "logic": logic,
        "batch_tokens": batch_tokens,
        "drill_share": drill_share,
        "decay": decay,
        "warmup_steps": warmup_steps,
        "muon_rate": muon_rate,
        "adam_rate": adam_rate,
        "weight_decay": weight_decay,
        "seed": seed,
    }
    if os.path.exists(folder) and not os.path.isdir(folder):  # Path.exists raises for a name that is too long
        raise UserError(f"{str(folder)!r} is a file; name a folder for the run.")
    if importlib.util.find_spec("reasoning_gym") is None:
        raise UserError("The maths problems need reasoning-gym; install it with: pip install 'dystruct[train]'.")
    from ..device import check_device
    from ..tiny import training

    if device is not None:
        check_device(device)
    if start_from is not None and not os.path.isfile(start_from / "tokenizer.json"):
        raise UserError(f"{str(start_from)!r} is no model folder; name one that `dystruct train` wrote.")
    config = _config(folder, _those_given(given))
    try:
        model = training.train(folder, config, report=typer.echo, **_those_given(how))
    except KeyboardInterrupt:
        complain(f"interrupted; `dystruct train {folder}` goes on from the last checkpoint.")
        raise typer.Exit(130) from None
    typer.echo(f"The model is in {model}; try: dystruct generate --model {model} 'Tom has 3 apples and buys 4. …'")


def _those_given(options: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}


def _config(folder: Path, given: dict[str, Any]) -> TrainingConfig:
    """The configuration of the run in `folder`: the one that it was begun with, or a new one, now on file."""
    from ..tiny.training import TrainingConfig

    path = folder / CONFIG_FILE
    if os.path.exists(path):
        try:
            config = TrainingConfig(**json.loads(path.read_text(encoding="utf-8")))
            _check_numbers(config)
        except (ValueError, TypeError, OSError, RecursionError) as error:
            raise UserError(
                f"{str(path)!r} is no training configuration; remove it, or train in another folder."
            ) from error
        for name, value in given.items():
            if getattr(config, name) != value:
                raise UserError(
                    f"The run in {str(folder)!r} was begun with --{name.replace('_', '-')} {getattr(config, name)}; "
                    f"leave the option out to go on, or train in another folder."
                )
        return config
    config = TrainingConfig(**given)
    if not config.maths + config.code + config.logic:
        raise UserError("All of --maths, --code and --logic are 0; give one of them a share.")
    if config.width % config.head:
        raise UserError(f"--width {config.width} is no multiple of --head {config.head}; change one of them.")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(
            f"Nothing can be written to {str(folder)!r} ({error.strerror}); choose another folder."
        ) from error
    save_json(path, asdict(config))
    return config


def _check_numbers(config: TrainingConfig) -> None:
    """Raise TypeError unless every value is a number of its default's kind."""
    for field in fields(config):
        value, kind = getattr(config, field.name), int | float if isinstance(field.default, float) else int
        if isinstance(value, bool) or not isinstance(value, kind):
            raise TypeError(field.name)
