"""The originals' code beside the integer-hash denoiser: modules of theirs, and what they ask of a model and of torch.

Nothing of theirs is changed but three things: the token ids that they have in their text are the denoiser's; what they
import and do not need here are empty modules; and their random numbers come from this project's generators, by
drawing the same laws (a Gumbel maximum for a categorical draw, and its k largest for a draw without replacement).
"""

from __future__ import annotations

import contextlib
import importlib
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import torch
from torch import Tensor

from dystruct.decoding.randomness import Streams, gumbel_noise
from integer_script import integer_hashed
from scripted import MASK, VOCABULARY, Letters

FOR_EVER = 300  # forward passes
EMPTY = (
    "accelerate", "accelerate.utils", "datasets", "tqdm", "model", "model.modeling_llada", "dllm_eval",
    "dllm_eval.api", "dllm_eval.api.instance", "dllm_eval.api.model", "dllm_eval.api.registry", "dllm_eval.models",
    "dllm_eval.models.utils", "dllm_eval.models.modeling_llada",
)  # fmt: skip


class Unusable(Exception):
    """The original would repeat a pass for ever, or leaves its choice to how `topk` breaks a tie."""


class Denoiser:
    """What the originals ask of a model; and their random numbers, for it knows what they have asked last."""

    device = torch.device("cpu")

    def __init__(self, case: dict[str, Any], shifted: bool = False) -> None:
        self.script = integer_hashed(**case["script"])
        self.prompt = Letters()(case["prompt"], add_special_tokens=False)["input_ids"]
        self.streams = Streams.of(case["seed"], self.prompt)
        self.temperature, self.shifted = case["temperature"], shifted
        self.passes, self.ids = 0, torch.zeros(1, 0)
        self.drawn: Tensor | None = None

    @property
    def inputs(self) -> Tensor:
        return torch.tensor([self.prompt])

    def __call__(self, ids: Tensor, *_: Any, attention_mask: Tensor | None = None, **__: Any) -> Any:
        self.passes += len(ids)
        self.ids = ids[:1].clone()
        if self.passes > FOR_EVER:
            raise Unusable
        logits = self.script(ids, torch.ones_like(ids))
        return SimpleNamespace(logits=torch.cat((logits[:, 1:], logits[:, :1]), dim=1) if self.shifted else logits)

    def gumbel(self) -> Tensor:
        """(1, T, V)"""
        places = torch.arange(self.ids.shape[1])[None] - len(self.prompt)
        return gumbel_noise(torch.tensor([self.streams.token_key]), places, VOCABULARY)

    def rand_like(self, logits: Tensor, dtype: torch.dtype) -> Tensor:
        assert logits.shape[1] == self.ids.shape[1]
        return torch.exp(-torch.exp(-self.gumbel())).to(dtype)

    def rand(self, *shape: Any, device: Any = None, dtype: Any = None) -> Tensor:
        shape = shape[0] if isinstance(shape[0], tuple) else shape
        if len(shape) == 1:  # one number a masked position
            self.drawn = torch.rand(shape[0], generator=self.streams.order)
            return self.drawn
        assert shape == tuple(self.ids.shape)
        response = torch.rand(shape[1] - len(self.prompt), generator=self.streams.order)
        return torch.cat((torch.zeros(len(self.prompt)), response))[None]

    def multinomial(self, weights: Tensor, num_samples: int) -> Tensor:
        found = (weights[0] > 0).nonzero()[:, 0]
        uniform = torch.rand(len(found), generator=self.streams.order, dtype=torch.float64)
        keys = weights[0, found].double().log() - torch.log(-torch.log(uniform))
        return found[keys.topk(num_samples).indices][None]

    def categorical(self, probs: Tensor) -> Any:
        """A draw for each masked position, or for those of them whose number was under the step's probability."""
        masked = (self.ids[0] == MASK).nonzero()[:, 0]
        if self.drawn is not None and len(self.drawn) == len(masked) != len(probs):
            masked = masked[self.drawn.argsort().argsort() < len(probs)]
        noise = self.gumbel()[0, masked]
        return SimpleNamespace(sample=lambda: (probs.double().log() + noise).argmax(-1))


class Torch:
    """torch, with a denoiser's random numbers."""

    def __init__(self, denoiser: Denoiser) -> None:
        self.rand, self.rand_like, self.multinomial = denoiser.rand, denoiser.rand_like, denoiser.multinomial
        self.autocast = lambda device_type: contextlib.nullcontext()

    def topk(self, values: Tensor, k: int, **options: Any) -> Any:
        ordered = values.reshape(-1, values.shape[-1]).sort(-1, descending=True).values
        if k < values.shape[-1] and (ordered[:, k - 1] == ordered[:, k]).any():
            raise Unusable
        return torch.topk(values, k, **options)

    def __getattr__(self, name: str) -> Any:
        return getattr(torch, name)


def load(path: Path, name: str, ids: dict[str, str]) -> types.ModuleType:
    """A module of an original, with the given pieces of its text exchanged."""
    text = path.read_text(encoding="utf-8")
    for old, new in ids.items():
        assert old in text, f"{path} does not hold {old}"
        text = text.replace(old, new)
    module = types.ModuleType(name)
    module.__package__ = name.rpartition(".")[0]
    sys.modules[name] = module
    exec(compile(text, str(path), "exec"), module.__dict__)
    return module


class Anything:
    """What an empty module gives for any name: a base class, or a decorator with arguments."""

    def __init__(self, *_: Any) -> None:
        pass

    def __call__(self, decorated: Any) -> Any:
        return decorated


class Nothing(types.ModuleType):
    """An empty module, from which any name can be imported."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Anything


@contextlib.contextmanager
def original(module: types.ModuleType, denoiser: Denoiser) -> Iterator[None]:
    with mock.patch.object(module, "torch", Torch(denoiser)), contextlib.redirect_stdout(None):
        yield


def empty_what_they_do_not_need() -> None:
    """Put an empty module in the place of each of `EMPTY` that is not installed."""
    importlib.import_module("transformers.models.auto.modeling_auto")  # before what it looks for is empty
    for name in EMPTY:
        try:
            __import__(name)
        except ImportError:
            sys.modules[name] = Nothing(name)
