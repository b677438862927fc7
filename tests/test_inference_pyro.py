"""Pyro's own exact inference on the program against the recursion."""

from __future__ import annotations

from collections import Counter

import pytest
import torch
from scipy.stats import chi2

from dystruct.inference import posterior
from dystruct.inference.pyro_exact import (
    enumerated_cut_marginals,
    enumerated_log_marginal,
    enumerated_map,
    enumerated_samples,
)
from dystruct.model import Context, Diagnostics, PriorConfig

PRIOR = PriorConfig(min_length=1, evidence_scale=0.6)


def diagnostics(length: int, seed: int = 0) -> Diagnostics:
    generator = torch.Generator().manual_seed(100 * seed + length)
    return Diagnostics(
        torch.rand(length, dtype=torch.float64, generator=generator),
        1.5 * torch.randn(length - 1, dtype=torch.float64, generator=generator) - 1,
    )


@pytest.mark.parametrize("length", [1, 2, 8, 28, 48])
def test_enumeration_agrees_with_the_recursion(length: int) -> None:
    for covariate in (None, torch.linspace(-1, 1, length - 1, dtype=torch.float64)):
        window, context = diagnostics(length), Context(previous_instability=0.3)
        there = posterior(window, context, PRIOR, covariate_logit=covariate)
        arguments = (window, context, PRIOR)
        assert enumerated_log_marginal(*arguments, covariate_logit=covariate) == pytest.approx(
            there.log_marginal, abs=1e-10
        )
        best = enumerated_map(*arguments, covariate_logit=covariate)
        assert there.log_prob(best) == pytest.approx(there.log_prob(there.map().partition), abs=1e-10)
        marginals = enumerated_cut_marginals(*arguments, covariate_logit=covariate)
        torch.testing.assert_close(marginals, there.cut_marginals, atol=1e-12, rtol=0)


def test_pyros_draws_have_the_recursions_probabilities() -> None:
    """Pearson's statistic of 300 draws over the 4 partitions of 3 tokens; false alarm 1e-6."""
    window = Diagnostics([0.5, 0.5, 0.5], [0.4, -0.3])
    there = posterior(window, Context(), PRIOR)
    counts = Counter(enumerated_samples(300, window, Context(), PRIOR))
    expected = {ranked.partition: 300 * ranked.probability for ranked in there.ranked()}
    assert len(expected) == 4
    assert min(expected.values()) > 5
    statistic = sum((counts[partition] - count) ** 2 / count for partition, count in expected.items())
    assert chi2.sf(statistic, 3) > 1e-6
