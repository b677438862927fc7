"""The prefix cache: what is kept and for how long, that it is exact where it must be, and who can have one."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar
from unittest import mock

import pytest
import torch
from torch import Tensor

from dystruct.decoding import (
    AdaBlock,
    Block,
    Daedal,
    DecodingFailed,
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
from dystruct.decoding.backbone.prefix import PrefixCache
from dystruct.decoding.forward import Forward
from dystruct.decoding.generation_settings import Caching
from dystruct.decoding.sampling import Sampling
from dystruct.model import PriorConfig
from random_network import random_backbone
from scripted import backbone, hashed

PROMPTS = ["ab", "abcdefgh", "c"]
PRIOR = PriorConfig(3, 9)
CACHES: tuple[Caching, ...] = (True, "append")


@dataclass(frozen=True)
class Back:
    """Fills blocks of four, and revises across the first boundary before it comes to the last block."""

    widest: ClassVar[None] = None

    def decode(self, row: Row) -> Iterator[Pass]:
        row.open_window(12)
        for start, remask in ((0, ()), (4, ()), (2, ((2, 6, 3),)), (8, ())):
            for masked in range(3 if remask else 4, 0, -1):
                yield Pass("resolve", start, start + 4, 1, remask, masked=masked, prefix=start)
                remask = ()
        row.close_window(row.read_tokens())


@dataclass(frozen=True)
class Wavering:
    """Windows of four, guided in some passes only."""

    widest: ClassVar[None] = None

    def decode(self, row: Row) -> Iterator[Pass]:
        for guided in ((0, 1, 1, 0), (0, 0, 0, 0), (0, 1, 0, 1)):
            window = row.open_window(4)
            for masked, scale in zip((4, 3, 2, 1), guided, strict=True):
                yield Pass("resolve", window.start, row.length, 1, masked=masked, sampling=Sampling(guidance=scale))
            row.close_window(row.read_tokens())


DECODERS = {
    "sample": DyStruct(structure="sample", prior=PRIOR),
    "joint": DyStruct(structure="sample", prior=PRIOR, weld="joint", weld_radius=2, passes="share"),
    "inferred length": DyStruct(structure="sample", prior=PRIOR, length_law="posterior"),
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
    "back": Back(),
    "wavering": Wavering(),
}
GUIDED = ("guidance", "wavering")


def decode(model: Backbone, prompts: list[str], decoder: Any, **settings: Any) -> list[Generation]:
    return generate(model, prompts, decoder, **{"max_new_tokens": 15, "budget": 200, "batch_size": 2, **settings})


def told(generations: list[Generation]) -> list[tuple[Any, ...]]:
    """Tokens, and what was committed and remasked by which pass."""
    return [
        (g.tokens, [(s.number, {c.position: c.token for c in s.commits}, {r.position for r in s.remasked})
                    for w in g.windows for s in w.steps])
        for g in generations
    ]  # fmt: skip


class Causal(Backbone):
    """Each position attends to those up to it, so that keys and values stay once their token does."""

    def hidden(self, ids: Tensor, valid: Tensor | None = None, *, positions: Any = None, cache: Any = None) -> Tensor:
        seen = torch.arange(ids.shape[1] if cache is None or cache.index is None else cache.length)
        places = torch.arange(ids.shape[1]).expand(ids.shape) if positions is None else positions
        mask = seen <= places[..., None]
        kept = {} if cache is None else {self._cache_argument: cache.layers}
        return self.network.base_model(
            input_ids=ids, position_ids=places, use_cache=cache is not None, **kept,
            attention_mask=(mask if valid is None else mask & valid[:, None])[:, None],
        ).last_hidden_state  # fmt: skip


@pytest.mark.parametrize("cache", CACHES)
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("name", DECODERS)
def test_where_a_prefix_ignores_what_follows_the_cache_is_exact(name: str, causal: bool, cache: Caching) -> None:
    """The keys and values of a network of one layer depend on nothing but their own token; a causal one's may too."""
    shifted = causal or len(name) % 2 == 0  # a causal network's output tells most of what comes next
    model = random_backbone(layers=3 if causal else 1, shifted=shifted, seed=3 + len(name))
    if causal:
        model = Causal(**{field.name: getattr(model, field.name) for field in dataclasses.fields(model)})
    settings = {"temperature": 0.5} if name in ("sample", "dream") else {}
    exact = decode(model, PROMPTS, DECODERS[name], **settings)
    kept = decode(model, PROMPTS, DECODERS[name], prefix_cache=cache, **settings)
    assert told(kept) == told(exact)
    assert len({g.tokens for g in exact}) > 1
    assert [g.settings["prefix_cache"] for g in (exact[0], kept[0])] == [False, cache]


class Frozen:
    """Lets the keys and values of positions before a limit be those of earlier calls, in the network's own code."""

    def __init__(self, network: Any) -> None:
        self.network, self.limit = network, 0
        self.stored: dict[Any, Tensor] = {}
        for layer in network.model.layers:
            for projection in (layer.self_attn.k_proj, layer.self_attn.v_proj):
                projection.register_forward_hook(self._hook)

    def _hook(self, module: Any, inputs: Any, output: Tensor) -> Tensor:
        if self.limit:
            output = torch.cat((self.stored[module][:, : self.limit], output[:, self.limit :]), dim=1)
        self.stored[module] = output
        return output

    @contextmanager
    def following(self, shifted: bool, cache: Caching) -> Iterator[None]:
        """Freeze what stands before each pass's prefix from the first pass with that prefix on.

        cache "append": in that first pass, too, what stands before the last pass's prefix.
        """
        original, held = Forward._run, [-1]

        def run(forward: Forward, row: Row, request: Pass) -> Any:
            window = sum(len(w.closed.tokens) for w in row.windows)
            prefix = min(window if request.prefix is None else request.prefix, request.start)
            before, held[0] = held[0], prefix
            whole = before < 0 if cache == "append" else before != prefix
            self.limit = 0 if whole else max(0, len(row.prompt_ids) + min(before, prefix) - 1 - shifted)
            return original(forward, row, request)

        with mock.patch.object(Forward, "_run", run):
            yield

    def held(self, layer: Any) -> tuple[Tensor, Tensor]:
        """The keys, turned by their positions, and the values (T, H, D) that a layer saw in the last call."""
        attention = layer.self_attn
        keys, values = (
            self.stored[projection][0].unflatten(-1, (-1, attention.head_dim))
            for projection in (attention.k_proj, attention.v_proj)
        )
        keys = keys * (keys.square().mean(-1, keepdim=True) + 1e-6).rsqrt() * attention.k_norm.weight
        angle = torch.arange(len(keys))[:, None, None] * self.network.model.rotary_emb.inv_freq.repeat(2)
        half = attention.head_dim // 2
        turned = torch.cat((-keys[..., half:], keys[..., :half]), dim=-1)
        return keys * angle.cos() + turned * angle.sin(), values


@pytest.mark.parametrize("cache", CACHES)
@pytest.mark.parametrize("shifted", [False, True])
@pytest.mark.parametrize("name", [name for name in DECODERS if name not in GUIDED])
def test_what_is_kept_is_what_the_first_pass_of_a_window_computed(name: str, shifted: bool, cache: Caching) -> None:
    """Against the whole network run each time, with keys and values before the window put back by hooks."""
    model = random_backbone(layers=3, shifted=shifted, seed=3 + len(name))
    caches: list[PrefixCache] = []
    original = Backbone.prefix_cache
    with mock.patch.object(Backbone, "prefix_cache", lambda *given: caches.append(original(*given)) or caches[-1]):
        (kept,) = decode(model, ["abcd"], DECODERS[name], prefix_cache=cache)
    (exact,) = decode(model, ["abcd"], DECODERS[name])
    frozen = Frozen(model.network)
    with frozen.following(shifted, cache):
        (wanted,) = decode(model, ["abcd"], DECODERS[name])
    assert told([kept]) == told([wanted])
    first = [next(s for s in w.steps) for w in (kept.windows[0], exact.windows[0])]
    assert first[0] == first[1], "a first pass is the exact mode's"
    for layer, found in zip(model.network.model.layers, caches[0].layers.layers, strict=True):
        for own, right in zip((found.keys, found.values), frozen.held(layer), strict=True):
            torch.testing.assert_close(own[0, : len(right)], right, rtol=0, atol=1e-5)


def test_the_frozen_network_is_another_one_than_the_exact() -> None:
    """The test above could fail: with three layers each cache does change tokens, and in its own way."""
    found = []
    for seed in range(4):
        model = random_backbone(layers=3, seed=seed)
        found.append([decode(model, ["abcd"], Block(4), prefix_cache=cache)[0].tokens for cache in (False, *CACHES)])
    exact, anew, appended = zip(*found, strict=True)
    assert exact != anew and anew != appended and appended != exact


def test_what_a_decoder_has_in_one_window_is_kept_alike() -> None:
    """The caches differ in what a further window's first pass computes."""
    model = random_backbone(layers=3, seed=2)
    exact, anew, appended = (
        told(decode(model, PROMPTS, Block(15), prefix_cache=cache)) for cache in (False, *CACHES)
    )  # fmt: skip
    assert anew == appended != exact


@pytest.mark.parametrize("cache", CACHES)
@pytest.mark.parametrize("name", ["sample", "fast", "guidance", "daedal", "back", "wavering"])
def test_rows_with_prefixes_of_different_lengths_share_a_batch(name: str, cache: Caching) -> None:
    model = random_backbone(layers=3, shifted=True, seed=5)
    together = decode(model, PROMPTS, DECODERS[name], prefix_cache=cache)
    alone = [decode(model, [prompt], DECODERS[name], prefix_cache=cache)[0] for prompt in PROMPTS]
    assert told(together) == told(alone)


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_each_attention_masks_what_is_not_kept(attention: str) -> None:
    model = random_backbone(layers=2, seed=1)
    same = random_backbone(layers=2, seed=1, attention=attention)
    for cached in (False, *CACHES):
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


@pytest.mark.parametrize("shifted", [False, True])
def test_an_appended_caches_first_passes_run_two_windows(shifted: bool) -> None:
    model = random_backbone(shifted=shifted)
    found = ran(model, Block(4, passes=2), max_new_tokens=12, prefix_cache="append")
    window = (1, 5 + shifted)
    assert found == [(1, 12), window, (1, 9 + shifted), window, (1, 9 + shifted), window]
    found = ran(model, Back(), max_new_tokens=12, prefix_cache="append")
    assert [length - 1 - shifted for _, length in found] == [
        20 - 1 - shifted, 12, 12, 12, 12, 8, 8, 8, 10, 10, 10, 10, 4, 4, 4
    ]  # fmt: skip


def test_what_an_appended_cache_runs_is_linear_in_tokens() -> None:
    lengths = (16, 32, 48, 64)
    for decoder in (Block(4, passes=3), DyStruct(structure="none", prior=PriorConfig(8, 8))):
        for cache, growth in (("append", 0), (True, 1)):
            model = random_backbone(layers=1)
            counts = [
                sum(rows * positions for rows, positions in ran(model, decoder, max_new_tokens=n, prefix_cache=cache))
                for n in lengths
            ]
            first = [b - a for a, b in pairwise(counts)]
            second = [b - a for a, b in pairwise(first)]
            assert all(value > 0 for value in second) if growth else second == [0, 0], (cache, counts)


@pytest.mark.parametrize("cache", CACHES)
def test_a_slot_keeps_nothing_for_the_next_prompt(cache: Caching) -> None:
    model = random_backbone(layers=2, seed=3)
    for name in ("sample", "wavering"):
        for batch_size in (1, 2):
            prompts = ["abcdef", "ba", "abcdef"]
            again = decode(model, prompts, DECODERS[name], batch_size=batch_size, prefix_cache=cache)
            assert told(again[:1]) == told(again[2:])


@pytest.mark.parametrize("cache", CACHES)
@pytest.mark.parametrize("name", ["sample", "guidance", "fast", "daedal", "vsb", "back"])
def test_a_row_that_fails_leaves_nothing_to_the_next_one(name: str, cache: Caching) -> None:
    """Its slot goes to a shorter row, beside a longer one: what lies behind the shorter one's end weighs 0, but NaN."""
    model, prompts = random_backbone(layers=2, seed=4), ["j" * 20, "a" * 20, "abc", "j", "ab"]
    with torch.no_grad():
        model.network.model.embed_tokens.weight[11] = torch.nan  # "j", which no row gets but in its prompt
    model.network.lm_head.register_forward_hook(lambda m, given, out: out.index_fill(-1, torch.tensor([11]), -99.0))
    alone = {i: decode(model, [prompts[i]], DECODERS[name], prefix_cache=cache)[0] for i in (1, 2, 4)}
    with pytest.raises(DecodingFailed) as caught:
        decode(model, prompts, DECODERS[name], prefix_cache=cache)
    assert caught.value.failures.keys() == {0, 3}
    assert told([caught.value.generations[i] for i in alone]) == told(list(alone.values()))


def test_a_model_that_can_keep_nothing_is_refused() -> None:
    with pytest.raises(UserError, match=r"'scripted'.*leave the prefix cache out\."):
        decode(backbone(hashed(0)), ["ab"], Block(4), prefix_cache=True)
    model = random_backbone()
    model.network.config.layer_types = ["sliding_attention"]
    with pytest.raises(UserError, match="full attention"):
        decode(dataclasses.replace(model), ["ab"], Block(4), prefix_cache=True)
    for other in ("full", None, 1):
        with pytest.raises(UserError, match=r"^prefix_cache must be True, False or 'append', not .*\.$"):
            decode(random_backbone(), ["ab"], Block(4), prefix_cache=other)
