"""What a run is asked for: model, decoder, tasks, limits and seeds, checked before anything is decoded."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from dystruct.model import PriorConfig

from ..backbone import Backbone
from ..backbone.prompt_format import check_prompt_format
from ..baselines import DECODERS
from ..calibration_file import fingerprint
from ..dystruct import DyStruct
from ..ending import check_unicode, checked_stop
from ..errors import UserError
from ..generation_settings import Caching, GenerationSettings
from ..kinds import LARGEST, as_tuple, check_flags, check_whole, is_number
from ..named import named_decoder
from ..plain import as_plain, from_plain
from ..row import Decoder

MOST_DRAWS = 10_000
MOST_ITEMS = 10_000_000  # of a task
_LARGEST = 1e100  # number among settings


@dataclass(frozen=True)
class RunSettings:
    """Of a run, all that its results depend on but for the model and its tasks' items.

    decoder: NAME or NAME:setting=value,… as for `dystruct compare`; a setting without an option there goes by its name
    in Python, as in dystruct:prior.max_length=64. name: what tables call it; None: the decoder's text. seeds: each item
    is decoded under each of them. draws: structures a prompt and seed, that share their token noise (see `draws`), up
    to 10 000. prompt_format: what stands around a prompt that is no user's turn; None: the model's own (see `load`).
    limit: the first so many items of each task; None: all. skip: of these the first so many are left out, which another
    run has (see `joined`; embedded tasks only). shots: examples in a prompt, None: as many as a task has by default
    (harness only). Raises UserError for a value that is none of these.
    """

    decoder: str = "dystruct"
    tasks: tuple[str, ...] = ()
    name: str | None = None
    split: str = "test"
    limit: int | None = None
    skip: int = 0
    seeds: tuple[int, ...] = (0,)
    draws: int = 1
    max_new_tokens: int = 256
    budget: int = 256
    temperature: float = 0.0
    stop: tuple[str, ...] = ()
    chat: bool = False
    prompt_format: str | None = None
    batch_size: int = 8
    prefix_cache: Caching = False
    shots: int | None = None
    execute_code: bool = False
    traces: bool = True

    def __post_init__(self) -> None:
        for name in ("tasks", "seeds"):
            value = getattr(self, name)
            held = as_tuple(value)
            if held is None:
                raise UserError(f"The {name} of a run must be a list, not {value!r}; put a single one into a list.")
            object.__setattr__(self, name, held)
        object.__setattr__(self, "stop", checked_stop(self.stop))
        check_flags(self)
        if not self.tasks:
            raise UserError("No task is named; give --tasks, such as tiny_maths,tiny_code,tiny_logic.")
        for what, values in (("task", self.tasks), ("seed", self.seeds)):
            twice = [value for value in values if values.count(value) > 1]
            if twice:
                raise UserError(f"The {what} {twice[0]} is named twice; name it once.")
        check_whole(self, "draws", most=MOST_DRAWS)
        check_whole(self, "limit")
        check_whole(self, "shots", "skip", least=0)
        if self.limit is not None and self.skip >= self.limit:
            raise UserError(f"Of {self.limit} items {self.skip} cannot be left out; correct the skip or the limit.")
        if not self.seeds:
            raise UserError("No seed is named; give one, such as 0.")
        asked = [GenerationSettings(**self.generating(seed)) for seed in self.seeds]
        for name in _shared():
            object.__setattr__(self, name, getattr(asked[0], name))  # as it was read
        object.__setattr__(self, "seeds", tuple(each.seed for each in asked))
        if self.prompt_format is not None:
            check_prompt_format(self.prompt_format)
            if self.chat:
                raise UserError("prompt_format and chat exclude each other; give one of them.")
        for name in ("name", "decoder", "split"):
            value = getattr(self, name)
            if not isinstance(value, str) and not (name == "name" and value is None):
                raise UserError(f"The {name} of a run is a text, not {value!r}; correct it.")
            check_unicode(f"The {name} of a run", value or "")
        for task in self.tasks:
            if not isinstance(task, str):
                raise UserError(f"A task is named by a text, not {task!r}; correct it.")
            check_unicode("The name of a task", task)

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> RunSettings:
        """Settings from plain data, such as a sweep's file. Raises UserError for unknown names and wrong types."""
        known = {field.name: field for field in fields(cls)}
        values: dict[str, Any] = {}
        for name, value in given.items():
            if name not in known:
                raise UserError(f"A run has no setting {name!r}; it has {', '.join(known)}.")
            default = known[name].default
            if isinstance(default, tuple):
                value = tuple(value) if isinstance(value, list | tuple) else (value,)
            elif isinstance(default, float) and isinstance(value, int) and not isinstance(value, bool):
                if abs(value) > LARGEST:
                    raise UserError(f"The setting {name} of a run is too large; correct it.")
                value = float(value)
            # whose kinds the default does not tell; a prefix cache's are checked with its values
            kinds = {"limit": int, "shots": int, "name": str, "prompt_format": str, "prefix_cache": type(value)}
            kind = kinds.get(name, type(default))
            if not (isinstance(value, kind) and isinstance(value, bool) == (kind is bool)) and value is not None:
                raise UserError(f"The setting {name} of a run cannot be {value!r}; its default is {default!r}.")
            values[name] = value
        return cls(**values)

    @property
    def together(self) -> int:
        """Items of one call of `generate`, in which a row that is finished makes room for the next item."""
        return 8 * self.batch_size

    def generating(self, seed: int) -> dict[str, Any]:
        """Of what `generate` takes, beside prompts and decoder, what the run asks for."""
        return {"seed": seed, **{name: getattr(self, name) for name in _shared()}}

    @property
    def label(self) -> str:
        """What tables call the run."""
        return self.name or self.decoder

    def with_decoder(self) -> Decoder:
        """The decoder that the text says. Raises UserError for one that there is not."""
        return named_decoder(self.decoder)

    def described(
        self, model: Mapping[str, Any], decoder: Decoder, tasks: Mapping[str, Mapping[str, Any]]
    ) -> dict[str, Any]:
        """All that results depend on, as plain data. model: its `identity`. tasks: what tells each task's items."""
        asked = {name: value for name, value in as_plain(self).items() if name != "tasks"}
        if self.prompt_format is None:
            del asked["prompt_format"]  # it is the model's own
        if not self.skip:
            del asked["skip"]
        return {
            "model": dict(model),
            **asked,
            "tasks": {task: dict(tasks[task]) for task in tasks},
            "decoder_settings": {"decoder": type(decoder).__name__, **as_plain(decoder)},
        }


def _shared() -> set[str]:
    """The settings that a run has in common with `generate`."""
    return {field.name for field in fields(GenerationSettings)} & {field.name for field in fields(RunSettings)}


def check_described(found: Mapping[str, Any]) -> None:
    """Raise ValueError for plain data that no `RunSettings.described` can have given.

    What a decoder of one's own has among its settings may be anything.
    """
    where = "its settings"
    around = from_plain(_Around, {name: found[name] for name in _AROUND if name in found}, where)
    missing = [name for name in _NEEDED if name not in found]
    if missing:
        raise ValueError(f"{where} lack {missing[0]}")
    for name, value in found.items():
        if not all(abs(number) <= _LARGEST for number in _numbers(value)):
            raise ValueError(f"{where}.{name} has a number that is none, or too large")
    own = {field.name: found[field.name] for field in fields(RunSettings) if field.name in found}
    for holder, name in ((around.model, "name"), (around.decoder_settings, "decoder")):
        from_plain(str, holder.get(name), f"{where}: the {name}")
    try:
        asked = from_plain(RunSettings, {**own, "tasks": list(around.tasks)}, where)
        kind = decoder_kind(found)
        if kind is not None:
            rest = {name: value for name, value in around.decoder_settings.items() if name != "decoder"}
            from_plain(kind, rest, f"{where}.decoder_settings")
    except UserError as error:  # of values that go with no other
        raise ValueError(str(error).rstrip(".")) from error
    for task, told in around.tasks.items():
        if told.items is not None and not asked.skip <= told.items <= MOST_ITEMS:
            raise ValueError(f"its task {task} cannot have {told.items} items")


def decoder_kind(described: Mapping[str, Any]) -> type | None:
    """The class of the decoder in a run's settings on record; None of one's own."""
    kinds = {kind.__name__: kind for kind in DECODERS.values()}
    return kinds.get(described["decoder_settings"]["decoder"])


def identity(model: Backbone, folder: Path | None) -> dict[str, Any]:
    """What tells a model from others: its name, a fingerprint of its folder, dtype and evidence weights."""
    return {
        "name": model.name,
        "fingerprint": None if folder is None else fingerprint(folder),
        "dtype": str(getattr(model.network, "dtype", None)),
        "calibrated": model.calibrated,
        "weights": as_plain(model.weights),
    }


def defaults_of(decoder: Decoder) -> dict[str, Any]:
    """Of the settings that `RunSettings.described` gives, those that a decoder has by default.

    A run on record that lacks one of them was made before the decoder had it, and so with its default.
    """
    return {"decoder_settings": as_plain(type(decoder)())}


def free_of(decoder: Decoder) -> tuple[str, ...]:
    """The settings that `RunSettings.described` gives on which no text of a decoder depends.

    They are the batch size, which an attempt may change so that it fits into the device's memory (near ties apart, see
    `generate`), and the evidence weights where the decoder takes none.
    """
    unused = () if isinstance(decoder, DyStruct) else ("model.weights", "model.calibrated")
    return ("batch_size", *unused)


def prior_of(decoder: Decoder) -> PriorConfig | None:
    """The prior over structures of a decoder that has one."""
    return getattr(decoder, "prior", None)


@dataclass(frozen=True)
class _Items:
    """What tells a task's items on record: how many, as far as the run knew, and a hash of them."""

    items: int | None = None
    digest: str = ""


@dataclass(frozen=True)
class _Around:
    """What stands around a run's own settings on record."""

    model: dict[str, Any]
    decoder_settings: dict[str, Any]
    tasks: dict[str, _Items]


_AROUND = tuple(field.name for field in fields(_Around))
_NEEDED = ("decoder", "seeds", "draws", "budget", "max_new_tokens", "temperature")  # on record, whatever their defaults


def _numbers(value: Any) -> Iterator[int | float]:
    """Every number in plain data."""
    if isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _numbers(item)
    elif is_number(value):
        yield value
