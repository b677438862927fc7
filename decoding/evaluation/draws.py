"""Several structures for one prompt with the same token noise: rules that differ in their random numbers only.

Token noise is a function of seed, prompt, position and token (R16), so decodings under one seed share it. Draw 0 is the
rule as it is; draw d > 0 takes its lengths, partitions and orders from generators seeded by the row's own streams and
d, so that every (seed, prompt, window, d) has numbers of its own.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from dystruct.inference import LENGTH_RULES, RULES, StructurePosterior
from dystruct.inference.rules import Streams, StructureRule
from dystruct.model import Context, PriorConfig, Structure

from ..dystruct import DyStruct
from ..errors import UserError
from ..row import Decoder

DRAWN = ("sample", "shuffled")  # rules whose structures are drawn
_MOST = 1 << 62


@dataclass(frozen=True)
class _Drawn:
    """Streams of one draw."""

    partition: torch.Generator
    order: torch.Generator


def with_draw(decoder: Decoder, draw: int) -> Decoder:
    """The decoder for one of several draws. Raises UserError for draw > 0 of one whose structures are not drawn."""
    if draw == 0:
        return decoder
    if not isinstance(decoder, DyStruct) or decoder.structure not in DRAWN:
        named = " or ".join(f"dystruct:structure={rule}" for rule in DRAWN)
        raise UserError(f"Several draws need structures that are drawn; give --decoder {named}.")
    if decoder.length_law != "prior":
        raise UserError("Several draws take their lengths from the prior; leave length_law posterior out.")
    rule = RULES[decoder.structure]
    length = LENGTH_RULES[decoder.length_rule] if decoder.length_rule else rule.length

    def drawn_length(context: Context, prior: PriorConfig, generator: torch.Generator) -> int:
        return length(context, prior, _of_draw(generator, draw))

    def structure(exact: StructurePosterior, streams: Streams) -> Structure:
        return rule.structure(exact, _Drawn(_of_draw(streams.partition, draw), _of_draw(streams.order, draw)))

    return replace(decoder, structure=StructureRule(rule.name, drawn_length, structure), length_rule=None)


def _of_draw(generator: torch.Generator, draw: int) -> torch.Generator:
    """A generator for the draw, seeded by the next number of the row's own."""
    seed = int(torch.randint(_MOST, (), generator=generator))
    return torch.Generator().manual_seed((seed + draw * 0x9E3779B97F4A7C15) % _MOST)
