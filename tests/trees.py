"""Trees for the tests of the ArviZ conversion: windows of one prior, with all that a window may have beside it."""

from __future__ import annotations

from functools import cache

import numpy as np
import torch
import xarray as xr

from dystruct.inference import StructurePosterior, posterior
from dystruct.inference.arviz_tree import inference_tree
from dystruct.inference.checks import RankCalibration
from dystruct.inference.hyper import HyperPosterior
from dystruct.inference.length import length_posterior
from dystruct.inference.records import WindowRecord
from dystruct.model import Context, Diagnostics, EvidenceWeights, PriorConfig

PRIOR = PriorConfig(min_length=1, max_length=8, concentration=0.8, evidence_scale=1.5)
LENGTHS = (6, 1, 4)
TEXTS = ["A", " b", "\n", "c\0d", "\ud800", "é中", "$x$", "", " ", "\t", "end"]


def window(length: int, context: Context = Context(0.3), features: bool = True) -> StructurePosterior:  # noqa: B008
    generator = torch.Generator().manual_seed(length)
    ell = torch.randn(length - 1, dtype=torch.float64, generator=generator)
    h, phi, psi = (torch.rand(shape, generator=generator) for shape in ((length,), (length, 7), (length - 1, 4)))
    return posterior(Diagnostics(h, ell, phi if features else None, psi if features else None), context, PRIOR)


def records() -> list[WindowRecord]:
    texts = iter(TEXTS)
    found = []
    for length in LENGTHS:
        there = window(length, Context(0.1 * length, 20))
        longest = window(8, Context(0.1 * length, 20)).diagnostics
        law = length_posterior(longest, there.context, PRIOR)
        found.append(
            WindowRecord(there, tokens=[next(texts) for _ in range(length)], decoded=there.sample(1, 5)[0], length=law)
        )
    return found


def hyper() -> HyperPosterior:
    generator = torch.Generator().manual_seed(0)
    draws = {
        "concentration": torch.rand(2, 20, generator=generator, dtype=torch.float64),
        "gap_weights": torch.rand(2, 20, 4, generator=generator, dtype=torch.float64),
    }
    return HyperPosterior(draws, (0, 3))


CALIBRATION = RankCalibration({"one": np.linspace(0.1, 0.9, 7), "two": np.linspace(0.2, 0.3, 7)}, 99, True)


@cache
def full_tree() -> xr.DataTree:
    """A tree with every group."""
    return inference_tree(
        records(), draws=100, seed=3, weights=EvidenceWeights.neutral(), calibration=CALIBRATION, hyper=hyper(),
        settings={"decoder": "DyStruct", "budget": 256, "weights": None},
    )  # fmt: skip
