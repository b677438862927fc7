"""The prior over a window's structures in the posterior's own terms: a posterior whose evidence says nothing.

Every question that a posterior answers (marginals, block count, draws, …) is then answered for the prior, by the same
recursion: with q = 1/2 at every gap the evidence is one constant for all partitions.
"""

from __future__ import annotations

from dataclasses import replace

import torch

from dystruct.model import Diagnostics

from .posterior import StructurePosterior


def without_evidence(there: StructurePosterior) -> StructurePosterior:
    """The prior that `there` updates: edge logits of 0, alpha_g as before, under the same conditions.

    Orders keep their law, whose instability is that of `there`.
    """
    diagnostics = there.diagnostics
    covariate = diagnostics.edge_logit if there.covariate_logit is None else there.covariate_logit
    silent = Diagnostics(diagnostics.instability, torch.zeros_like(diagnostics.edge_logit))
    return replace(there, diagnostics=silent, covariate_logit=covariate)
