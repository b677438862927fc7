"""Beside the programs that were published with the rivals, on the same model (benchmark 3).

They are not part of this repository: `--originals FOLDER` says where they lie, as LLaDA/generate.py,
Fast-dLLM/llada/generate.py and AdaBlock-dLLM/dream/model/generation_utils.py (which holds Dream's own). Their text is
run as it is; the model that they are given is the embedded one behind the interface that they ask for.

Shapes: T positions, V tokens.
"""

from __future__ import annotations

import contextlib
import sys
import types
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from dystruct.inference.bench import Row

from ..backbone import Backbone
from ..baselines import Dream, Fast, Fixed
from ..errors import UserError
from ..generation import generate
from ..row import Decoder
from ..trace import Generation
from .measure import Clock

LENGTH, BLOCK = 128, 32  # tokens of a response and of a block: what the originals' own examples take
USEFUL, CACHED = 1.5, 1.0  # ours over theirs: useful tokens a second, and the same with a prefix cache


class Served:
    """A model as the originals call it: logits (1, T, V) for each position, or with `raw` as the network gives them."""

    def __init__(self, model: Backbone, *, raw: bool = False) -> None:
        self.model, self.device = model, model.device
        self.moved = model.shifted and not raw
        self._last: Tensor | None = None

    def __call__(
        self, ids: Tensor, *_: Any, past_key_values: Any = None, use_cache: bool = False, **__: Any
    ) -> SimpleNamespace:
        from transformers import DynamicCache

        network = self.model.network
        if past_key_values is None:
            self._last = ids
            cache = DynamicCache() if use_cache else None
            options = {self.model._cache_argument: cache} if use_cache else {}
            states = network.base_model(input_ids=ids, use_cache=use_cache, **options).last_hidden_state
            if self.moved:  # the output before each position predicts it
                states = torch.cat((states[:, :1], states[:, :-1]), dim=1)
            kept = [(layer.keys, layer.values) for layer in cache.layers] if cache is not None else None
            return SimpleNamespace(logits=network.lm_head(states), past_key_values=kept)
        assert self._last is not None
        start = past_key_values[0][0].shape[2]
        lead = int(self.moved)  # the output before the block predicts its first position
        ids = torch.cat((self._last[:, start - lead : start], ids), dim=1)
        cache = DynamicCache()
        for number, (keys, values) in enumerate(past_key_values):
            cache.update(keys[:, :, : start - lead], values[:, :, : start - lead], number)
        options = {
            self.model._cache_argument: cache,
            "position_ids": torch.arange(start - lead, start - lead + ids.shape[1], device=ids.device)[None],
        }
        states = network.base_model(input_ids=ids, use_cache=True, **options).last_hidden_state
        return SimpleNamespace(logits=network.lm_head(states[:, : ids.shape[1] - lead]))


@dataclass(frozen=True)
class Contest:
    """An original, and what is ours: the same decoder with its oddities, and as it is by default."""

    name: str
    theirs: Callable[[Tensor], Tensor]
    same: Decoder
    ours: Decoder
    prefix_cache: bool = False


def against(
    clock: Clock, model: Backbone, prompts: Sequence[str], folder: Path, rounds: int, *, compiled: bool = False
) -> tuple[list[Row], list[str]]:
    """Rows of benchmark 3, and a sentence for each original that is missing.

    compiled: ours with a compiled forward pass as well, but for the prefix cache; a sentence where that cannot be had.
    """
    rows: list[Row] = []
    missing: list[str] = []
    quick = None
    if compiled:
        try:
            quick = replace(model, compiled=True)
            quick.warm_up()
        except UserError as error:
            missing.append(str(error))
            quick = None
    for make in (_llada, _dream, _fast, _fast_cached):
        try:
            contest = make(model, folder)
        except FileNotFoundError as error:
            missing.append(f"{error.filename} is missing, so its benchmark is left out.")
            continue
        rows += _rows(clock, model, prompts, contest, rounds, None if contest.prefix_cache else quick)
    return rows, missing


def _rows(
    clock: Clock, model: Backbone, prompts: Sequence[str], contest: Contest, rounds: int, quick: Backbone | None
) -> list[Row]:
    ids = [torch.tensor([model.encode(prompt)]) for prompt in prompts]
    decode = partial(
        generate, prompts=prompts, max_new_tokens=LENGTH, budget=1000, batch_size=1, prefix_cache=contest.prefix_cache
    )  # fmt: skip

    def theirs() -> list[list[int]]:
        with contextlib.redirect_stdout(None):
            return [contest.theirs(row)[0, row.shape[1] :].tolist() for row in ids]

    contestants: dict[str, Callable[[], Any]] = {
        "theirs": theirs,
        "same": partial(decode, model, decoder=contest.same),
        "ours": partial(decode, model, decoder=contest.ours),
    }
    if quick is not None:
        contestants["compiled"] = partial(decode, quick, decoder=contest.ours)
    found, same, *by_default = (call() for call in contestants.values())
    equal = [
        a == b for mine, other in zip(same, found, strict=True) for a, b in zip(mine.tokens, other, strict=False)
    ]  # fmt: skip
    known = sum(map(passes_until_known, same))
    times = clock.interleaved(contestants, rounds)
    useful = sum(model.text_length(tokens) for tokens in found)
    speed = useful / times["theirs"]
    gains = [
        sum(generation.useful_tokens for generation in generations) / times[name] / speed
        for name, generations in zip(("ours", "compiled"), by_default, strict=False)
    ]
    target = CACHED if contest.prefix_cache else USEFUL
    return [
        Row(f"{contest.name}: useful tokens a second", speed, "1/s"),
        Row("  ours, same passes, times as fast", times["theirs"] / times["same"], "x"),
        Row("  ours, same passes, equal tokens", 100 * sum(equal) / len(equal), "%"),
        Row("  of these passes until the text is known", 100 * known / sum(g.forward_passes for g in same), "%"),
        Row("  ours by default, useful tokens a second", gains[0], "x", target, at_least=True),
        *(Row("  the same, compiled", gain, "x", target, at_least=True) for gain in gains[1:]),
    ]


def passes_until_known(generation: Generation) -> int:
    """The forward passes behind which no useful token, nor the one that ends the text, was committed again.

    What comes after them is what a decoder that stops with the text can save.
    """
    steps = [step for window in generation.windows for step in window.steps]
    last = generation.useful_tokens  # where the end token is, if there is one
    known = [number for number, step in enumerate(steps, 1) if any(c.position <= last for c in step.commits)]
    return known[-1] if known else 0


def _llada(model: Backbone, folder: Path) -> Contest:
    run = _module(folder / "LLaDA/generate.py").generate
    theirs = partial(
        run, Served(model), steps=LENGTH, gen_length=LENGTH, block_length=BLOCK, mask_id=model.mask_id
    )  # fmt: skip
    return Contest(
        "LLaDA generate", lambda ids: theirs(ids), Fixed(BLOCK, LENGTH, faithful=True), Fixed(BLOCK, LENGTH)
    )  # fmt: skip


def _fast(model: Backbone, folder: Path, *, name: str = "Fast-dLLM", cached: bool = False) -> Contest:
    module = _module(folder / "Fast-dLLM/llada/generate.py")
    run = module.generate_with_prefix_cache if cached else module.generate
    theirs = partial(
        run, Served(model), steps=LENGTH, gen_length=LENGTH, block_length=BLOCK, mask_id=model.mask_id, threshold=0.9
    )  # fmt: skip
    return Contest(name, lambda ids: theirs(ids)[0], Fast(BLOCK, faithful=True), Fast(BLOCK), cached)


def _fast_cached(model: Backbone, folder: Path) -> Contest:
    return _fast(model, folder, name="Fast-dLLM, prefix cache", cached=True)


def _dream(model: Backbone, folder: Path) -> Contest:
    module = _module(folder / "AdaBlock-dLLM/dream/model/generation_utils.py")
    served = Served(model, raw=model.shifted)

    def call(self: Any, *args: Any, **options: Any) -> Any:
        return served(*args, **options)

    kind = type("Model", (module.DreamGenerationMixin,), {"__call__": call, "device": model.device})

    @torch.no_grad()
    def theirs(ids: Tensor) -> Tensor:
        settings = SimpleNamespace(
            output_history=False, return_dict_in_generate=False, temperature=0.0, mask_token_id=model.mask_id,
            max_length=ids.shape[1] + LENGTH, steps=LENGTH, eps=1e-3, alg="entropy", alg_temp=None, top_p=None,
            top_k=None,
        )  # fmt: skip
        found = kind()._sample(ids, None, settings, lambda step, x, logits: x, lambda step, x, logits: logits)
        assert isinstance(found, Tensor)
        return found

    return Contest("Dream diffusion_generate", theirs, Dream(steps=LENGTH, faithful=True), Dream(steps=LENGTH))


def _module(path: Path) -> types.ModuleType:
    """An original's module; what it imports of its own network, which is not used, is empty."""
    text = path.read_text(encoding="utf-8")
    module, network = types.ModuleType("original"), types.ModuleType("model.modeling_llada")
    network.LLaDAModelLM = None  # type: ignore[attr-defined]
    needed = {module.__name__: module, "model": types.ModuleType("model"), network.__name__: network}
    before = {name: sys.modules.get(name) for name in needed}
    sys.modules.update(needed)
    try:
        exec(compile(text, str(path), "exec"), module.__dict__)
    finally:
        for name, old in before.items():
            sys.modules.pop(name)
            sys.modules.update({} if old is None else {name: old})
    return module
