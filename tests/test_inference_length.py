"""Length given evidence (R17) against enumeration, and against the generative story that it restates."""

from __future__ import annotations

import math

import pytest
import torch

from dystruct.inference import length_posterior, posterior
from dystruct.model import Context, Diagnostics, PriorConfig, concentrations, length_law
from oracles import all_cuts, log_score, log_sum_exp

PRIOR = PriorConfig(min_length=2, max_length=8, evidence_scale=0.8)
CONTEXT = Context(previous_instability=0.4)


def diagnostics(length: int = 8) -> Diagnostics:
    generator = torch.Generator().manual_seed(length)
    return Diagnostics(
        torch.full((length,), 0.5), 1.5 * torch.randn(length - 1, dtype=torch.float64, generator=generator)
    )


def poisson_clipped(rate: float, low: int, high: int) -> list[float]:
    mass = [math.exp(n * math.log(rate) - rate - math.lgamma(n + 1)) for n in range(200)]
    return [
        math.fsum(m for n, m in enumerate(mass) if min(max(n, low), high) == length) for length in range(low, high + 1)
    ]


def log_normal(x: float, mean: float, scale: float) -> float:
    return -0.5 * ((x - mean) / scale) ** 2 - math.log(scale) - 0.5 * math.log(2 * math.pi)


@pytest.mark.parametrize("covariate", ["longest", "window"])
def test_length_posterior_is_that_of_the_generative_story(covariate: str) -> None:
    """Edge logits within a window from the two normals by its cuts, beyond it from their equal mixture."""
    window, scale = diagnostics(), PRIOR.evidence_scale
    ell = window.edge_logit.tolist()
    prior = poisson_clipped(2 + 0.6 * 6, 2, 8)
    log_joint = []
    for length, mass in zip(range(2, 9), prior, strict=True):
        seen = window.edge_logit if covariate == "longest" else window.edge_logit[: length - 1]
        alpha = concentrations(seen, CONTEXT, PRIOR).tolist()[: length - 1]
        scores = []
        for cuts in all_cuts(length):
            crp = log_score(cuts, [0.0] * (length - 1), alpha, [0.0] * (length - 1)) + (length - 1) * math.log(2)
            scores.append(
                crp + sum(log_normal(x, (c - 0.5) * scale**2, scale) for x, c in zip(ell, cuts, strict=False))
            )
        beyond = [
            log_sum_exp([log_normal(x, sign * scale**2 / 2, scale) + math.log(0.5) for sign in (-1, 1)])
            for x in ell[length - 1 :]
        ]
        log_joint.append(math.log(mass) + log_sum_exp(scores) + sum(beyond))
    total = log_sum_exp(log_joint)
    found = length_posterior(window, CONTEXT, PRIOR, covariate=covariate)
    wanted = torch.tensor([math.exp(value - total) for value in log_joint], dtype=torch.float64)
    assert found.lengths.tolist() == list(range(2, 9))
    torch.testing.assert_close(found.probability, wanted, atol=1e-12, rtol=0)
    torch.testing.assert_close(found.prior, torch.tensor(prior, dtype=torch.float64), atol=1e-12, rtol=0)
    assert found.mode == 2 + int(wanted.argmax())
    assert found.mean == pytest.approx(float((wanted * torch.arange(2, 9)).sum()))


@pytest.mark.parametrize("low", [1, 8])
def test_it_is_the_evidence_of_each_window_by_itself(low: int) -> None:
    """With its own gaps' mean as covariate, of more windows than are worked out at once."""
    window, prior = diagnostics(48), PriorConfig(min_length=low, max_length=48)
    found = length_posterior(window, CONTEXT, prior, covariate="window")
    alone = [
        posterior(window.first(length), CONTEXT, prior).log_evidence + (length - 1) * math.log(2)
        for length in range(low, 49)
    ]
    assert found.lengths.tolist() == list(range(low, 49))
    assert found.log_evidence.tolist() == pytest.approx(alone, abs=1e-10)


@pytest.mark.parametrize("longest", [16, 24, 40, 64, 100])
def test_gaps_that_say_nothing_leave_the_mode_as_it_is_where_two_lengths_tie(longest: int) -> None:
    prior, context = PriorConfig(max_length=longest), Context(previous_instability=0.5)
    blank = Diagnostics(torch.full((longest,), 0.5), torch.zeros(longest - 1))
    found = length_posterior(blank, context, prior)
    law = length_law(context, prior)
    assert found.mode == int(law.mode) == (longest if longest < 24 else (8 + longest) // 2 - 1)


def test_uninformative_gaps_leave_the_prior_as_it_is() -> None:
    window = Diagnostics(torch.full((48,), 0.5), torch.zeros(47))
    found = length_posterior(window, Context(), PriorConfig())
    torch.testing.assert_close(found.probability, found.prior)
    torch.testing.assert_close(found.log_evidence, torch.zeros(41, dtype=torch.float64), atol=1e-11, rtol=0)


def test_gaps_that_no_window_would_have_shorten_it() -> None:
    """Where cuts are rare a priori, a window had better end before a stretch of gaps that all look like cuts."""
    stay_then_cut = torch.cat((torch.full((20,), -2.0), torch.full((27,), 6.0)))
    window = Diagnostics(torch.full((48,), 0.5), stay_then_cut)
    found = length_posterior(window, Context(), PriorConfig(concentration=1e-4))
    assert found.mean < float((found.prior * found.lengths).sum()) - 3


def test_the_budget_limits_the_lengths() -> None:
    found = length_posterior(diagnostics(48), Context(remaining=20), PriorConfig())
    assert found.lengths.tolist() == length_law(Context(remaining=20), PriorConfig()).enumerate_support().tolist()
    assert found.lengths[-1] == 20
    only = length_posterior(diagnostics(48), Context(remaining=1), PriorConfig())
    assert only.probability.tolist() == [1.0]


def test_draws_follow_the_posterior() -> None:
    """Mean of 5,000 draws within 6 standard errors (false alarm 1e-8), the same again from the same seed."""
    found = length_posterior(diagnostics(), CONTEXT, PRIOR)
    draws = found.sample(5000, torch.Generator().manual_seed(0))
    assert torch.equal(draws, found.sample(5000, torch.Generator().manual_seed(0)))
    assert abs(draws.double().mean() - found.mean) < 6 * draws.double().std() / 5000**0.5


def test_wrong_arguments() -> None:
    with pytest.raises(ValueError, match="context must be a Context, got a PriorConfig: name the argument"):
        length_posterior(diagnostics(), PRIOR, CONTEXT)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="diagnostics cover 8 tokens, lengths go up to 48"):
        length_posterior(diagnostics(), Context(), PriorConfig())
    with pytest.raises(ValueError, match="covariate must be one of longest, window"):
        length_posterior(diagnostics(), CONTEXT, PRIOR, covariate="none")
