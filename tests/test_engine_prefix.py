"""The prefix cache: what is kept and for how long, that it is exact where it must be, and who can have one."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import pytest
import torch
from torch import Tensor

from dystruct.decoding import (
    AdaBlock,
    Block,
    Daedal,
    Dream,
    DyStruct,
    Fast,
    Fixed,
    Generation,
    Hierarchy,
    Pass,
    Row,
    UserError,
    VsbLike,
    generate,
)
from dystruct.decoding.backbone import Backbone
from dystruct.decoding.forward import Forward
from dystruct.model import PriorConfig
from random_network import random_backbone
from scripted import backbone, hashed

PROMPTS = ["ab", "abcdefgh", "c"]
PRIOR = PriorConfig(3, 9)
DECODERS = {
    "sample": DyStruct(structure="sample", prior=PRIOR),
    "joint": DyStruct(structure="sample", prior=PRIOR, weld="joint", weld_radius=2, passes="share"),
    "block": Block(4, passes=3),
    "fixed": Fixed(block_length=5, steps=10),
    "random": Fixed(block_length=5, steps=10, remasking="random"),
    "faithful": Fixed(block_length=5, steps=9, faithful=True),
    "guidance": Fixed(block_length=5, steps=10, guidance=1.5),
    "fast": Fast(block_length=6, threshold=0.6),
    "adablock": AdaBlock(block_length=6, threshold=0.6, delimiter_ids=(5, 6), delimiter_threshold=0.2),
    "hierarchy": Hierarchy(block_length=6, low=0.3, remask=0.4),
    "daedal": Daedal(initial_length=4, block_length=6, expansion=3, eos_check_tokens=4, high=0.6, low=0.3),
    "dream": Dream(steps=8),
    "vsb": VsbLike(block_length=8, stride=2, tolerance=0.3, threshold=0.6),
}


def decode(model: Backbone, prompts: list[str], decoder: Any, **settings: Any) -> list[Generation]:
    return generate(model, prompts, decoder, **{"max_new_tokens": 15, "budget": 200, "batch_size": 2, **settings})


def told(generations: list[Generation]) -> list[tuple[Any, ...]]:
    """Tokens, and what was committed and remasked by which pass."""
    return [
        (g.tokens, [(s.number, {c.position: c.token for c in s.commits}, {r.position for r in s.remasked})
                    for w in g.windows for s in w.steps])
        for g in generations
    ]  # fmt: skip


@pytest.mark.parametrize("shifted", [False, True])
@pytest.mark.parametrize("name", DECODERS)
def test_where_a_prefix_ignores_what_follows_the_cache_is_exact(name: str, shifted: bool) -> None:
    """The keys and values of a network of one layer depend on nothing but their own token."""
    model = random_backbone(layers=1, shifted=shifted, seed=3 + len(name))
    settings = {"temperature": 0.5} if name in ("sample", "dream") else {}
    exact = decode(model, PROMPTS, DECODERS[name], **settings)
    kept = decode(model, PROMPTS, DECODERS[name], prefix_cache=True, **settings)
    assert told(kept) == told(exact)
    assert len({g.tokens for g in exact}) > 1
    assert [g.settings["prefix_cache"] for g in (exact[0], kept[0])] == [False, True]


class Frozen:
    """Lets the keys and values of positions before a limit be those of an earlier call, in the network's own code."""

    def __init__(self, network: Any) -> None:
        self.limit: int | None = None
        self.stored: dict[Any, Tensor] = {}
        for layer in network.model.layers:
            for projection in (layer.self_attn.k_proj, layer.self_attn.v_proj):
                projection.register_forward_hook(self._hook)

    def _hook(self, module: Any, inputs: Any, output: Tensor) -> Tensor:
        if self.limit is None:
            self.stored[module] = output.clone()
            return output
        return torch.cat((self.stored[module][:, : self.limit], output[:, self.limit :]), dim=1)

    @contextmanager
    def following(self, shifted: bool) -> Iterator[None]:
        """Freeze what stands before each pass's prefix from the first pass with that prefix on."""
        original, held = Forward._run, [-1]

        def run(forward: Forward, row: Row, request: Pass) -> Any:
            window = sum(len(w.closed.tokens) for w in row.windows)
            prefix = min(window if request.prefix is None else request.prefix, request.start)
            new, held[0] = prefix != held[0], prefix
            self.limit = None if new else max(0, len(row.prompt_ids) + prefix - 1 - shifted)
            return original(forward, row, request)

        with mock.patch.object(Forward, "_run", run):
            yield


@pytest.mark.parametrize("shifted", [False, True])
@pytest.mark.parametrize("name", [name for name in DECODERS if name != "guidance"])
def test_what_is_kept_is_what_the_first_pass_of_a_window_computed(name: str, shifted: bool) -> None:
    """Against the whole network run each time, with keys and values before the window put back by hooks."""
    model = random_backbone(layers=3, shifted=shifted, seed=3 + len(name))
    (kept,) = decode(model, ["abcd"], DECODERS[name], prefix_cache=True)
    (exact,) = decode(model, ["abcd"], DECODERS[name])
    with Frozen(model.network).following(shifted):
        (wanted,) = decode(model, ["abcd"], DECODERS[name])
    assert told([kept]) == told([wanted])
    first = [next(s for s in w.steps) for w in (kept.windows[0], exact.windows[0])]
    assert first[0] == first[1], "a first pass is the exact mode's"


def test_the_frozen_network_is_another_one_than_the_exact() -> None:
    """The test above could fail: with three layers the cache does change tokens."""
    changed = 0
    for seed in range(4):
        model = random_backbone(layers=3, seed=seed)
        changed += (
            decode(model, ["abcd"], Block(4), prefix_cache=True)[0].tokens
            != decode(model, ["abcd"], Block(4))[0].tokens
        )
    assert changed > 0


@pytest.mark.parametrize("name", ["sample", "fast", "guidance", "daedal"])
def test_rows_with_prefixes_of_different_lengths_share_a_batch(name: str) -> None:
    model = random_backbone(layers=3, shifted=True, seed=5)
    together = decode(model, PROMPTS, DECODERS[name], prefix_cache=True)
    alone = [decode(model, [prompt], DECODERS[name], prefix_cache=True)[0] for prompt in PROMPTS]
    assert told(together) == told(alone)


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_each_attention_masks_what_is_not_kept(attention: str) -> None:
    model = random_backbone(layers=2, seed=1)
    same = random_backbone(layers=2, seed=1, attention=attention)
    for cached in (False, True):
        wanted, found = (decode(m, PROMPTS, DECODERS["sample"], prefix_cache=cached) for m in (model, same))
        assert told(found) == told(wanted)


def ran(model: Backbone, decoder: Any, **settings: Any) -> list[tuple[int, ...]]:
    """The shapes (rows, positions) of the network's calls."""
    shapes: list[tuple[int, ...]] = []
    model.network.model.embed_tokens.register_forward_hook(lambda m, inputs, out: shapes.append(tuple(inputs[0].shape)))
    decode(model, ["abcdefgh"], decoder, **settings)
    return shapes


@pytest.mark.parametrize("shifted", [False, True])
def test_only_the_window_is_run_behind_its_first_pass(shifted: bool) -> None:
    """And the position before it, whose output the hidden jump takes, and one more where outputs predict the next."""
    found = ran(random_backbone(shifted=shifted), Block(4, passes=3), max_new_tokens=8, prefix_cache=True)
    assert found == [(1, 12), (1, 5 + shifted), (1, 5 + shifted), (1, 16), (1, 5 + shifted), (1, 5 + shifted)]
    found = ran(random_backbone(shifted=shifted), Fixed(block_length=4, steps=6), max_new_tokens=8, prefix_cache=True)
    assert found == [(1, 16), (1, 9 + shifted), (1, 9 + shifted), (1, 16), (1, 5 + shifted), (1, 5 + shifted)]


def test_a_slot_keeps_nothing_for_the_next_prompt() -> None:
    model = random_backbone(layers=2, seed=3)
    for batch_size in (1, 2):
        again = decode(model, ["abcdef", "ba", "abcdef"], DECODERS["sample"], batch_size=batch_size, prefix_cache=True)
        assert told(again[:1]) == told(again[2:])


def test_a_model_that_can_keep_nothing_is_refused() -> None:
    with pytest.raises(UserError, match=r"'scripted'.*leave the prefix cache out\."):
        decode(backbone(hashed(0)), ["ab"], Block(4), prefix_cache=True)
    model = random_backbone()
    model.network.config.layer_types = ["sliding_attention"]
    with pytest.raises(UserError, match="full attention"):
        decode(dataclasses.replace(model), ["ab"], Block(4), prefix_cache=True)
