"""Consensus partitions against the expected loss of every partition, summed over every partition."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from dystruct.inference import SemiMarkov, consensus_partition, expected_variation_of_information
from oracles import Enumerated, all_cuts


def chain_and_oracle(length: int, shift: float) -> tuple[SemiMarkov, Enumerated]:
    generator = torch.Generator().manual_seed(length)
    edge_logit = shift + 2 * torch.randn(1, length - 1, dtype=torch.float64, generator=generator)
    alpha = torch.full_like(edge_logit, 1.5)
    return SemiMarkov(edge_logit, alpha), Enumerated(edge_logit[0].tolist(), alpha[0].tolist())


@pytest.mark.parametrize("length", [1, 2, 3, 6, 8])
@pytest.mark.parametrize("shift", [-1.0, 0.5])
def test_expected_variation_of_information_is_exact(length: int, shift: float) -> None:
    chain, oracle = chain_and_oracle(length, shift)
    for cuts in all_cuts(length):
        ours = expected_variation_of_information(chain, torch.tensor([cuts], dtype=torch.bool)).item()
        assert ours == pytest.approx(oracle.expected_loss(cuts, "vi"), abs=1e-12)


def test_many_partitions_of_many_windows_at_once() -> None:
    """(n, B, G) gives (n, B), each number that of its window alone, flags of any kind."""
    lengths = [1, 4, 9]
    generator = torch.Generator().manual_seed(1)
    edge_logit = 2 * torch.randn(3, 8, dtype=torch.float64, generator=generator)
    chain = SemiMarkov(edge_logit, torch.full_like(edge_logit, 1.5), lengths)
    cuts = chain.sample(5, generator)
    losses = expected_variation_of_information(chain, cuts)
    assert losses.shape == (5, 3)
    assert torch.equal(losses, expected_variation_of_information(chain, cuts.long().tolist()))
    for window, length in enumerate(lengths):
        oracle = Enumerated(edge_logit[window, : length - 1].tolist(), [1.5] * (length - 1))
        for draw in range(5):
            expected = oracle.expected_loss(tuple(cuts[draw, window, : length - 1].tolist()), "vi")
            assert losses[draw, window].item() == pytest.approx(expected, abs=1e-12)


QUESTIONS = {
    "log joint": SemiMarkov.log_joint,
    "log probability": SemiMarkov.log_prob,
    "variation of information": expected_variation_of_information,
}


@pytest.mark.parametrize("ask", QUESTIONS.values(), ids=list(QUESTIONS))
def test_cuts_that_are_not_the_windows_are_refused(ask: Callable[[SemiMarkov, Any], Tensor]) -> None:
    chain = SemiMarkov(torch.tensor([[1.0, -1.0, 2.0, 0.5]]), torch.ones(1, 4), [4])
    for wrong in ([1, 0, 1, 0], [[1, 0]], [[1, 0, 1, 0, 0]], [[1, 0, 1, 0]] * 2, [[[1, 0, 1, 0]] * 2], 1, []):
        with pytest.raises(ValueError, match=r"cuts must have shape \(\.\.\., 1, 4\)"):
            ask(chain, wrong)
    with pytest.raises(ValueError, match="cuts lie beyond"):
        ask(chain, [[1, 0, 0, 1]])
    assert ask(chain, [[1, 0, 1, 0]]).shape == (1,)
    assert ask(chain, torch.zeros(2, 3, 1, 4)).shape == (2, 3, 1)


@pytest.mark.parametrize("loss", ["hamming", "vi"])
@pytest.mark.parametrize("length", [1, 2, 3, 6, 8])
@pytest.mark.parametrize("shift", [-1.0, 0.5])
def test_consensus_has_the_least_expected_loss(loss: str, length: int, shift: float) -> None:
    chain, oracle = chain_and_oracle(length, shift)
    found = tuple(consensus_partition(chain, loss)[0].tolist())
    least = min(oracle.expected_loss(cuts, loss) for cuts in oracle.cuts)
    assert oracle.expected_loss(found, loss) == pytest.approx(least, abs=1e-12)


def test_the_most_probable_partition_can_be_untypical() -> None:
    """Here it is one block, while more of the mass lies on partitions that share a cut: both losses want that cut."""
    chain, oracle = chain_and_oracle(6, 0.0)
    best = tuple(chain.map()[0].tolist())
    assert not any(best)
    for loss in ("hamming", "vi"):
        found = tuple(consensus_partition(chain, loss)[0].tolist())
        assert sum(found) == 1
        assert oracle.expected_loss(found, loss) < oracle.expected_loss(best, loss)


@pytest.mark.parametrize("loss", ["hamming", "vi"])
def test_a_batch_gives_each_window_its_own_consensus(loss: str) -> None:
    lengths = torch.tensor([1, 4, 9])
    generator = torch.Generator().manual_seed(0)
    edge_logit = 2 * torch.randn(3, 8, dtype=torch.float64, generator=generator)
    alpha = torch.full_like(edge_logit, 1.5)
    together = consensus_partition(SemiMarkov(edge_logit, alpha, lengths), loss)
    for row, length in enumerate(lengths.tolist()):
        alone = consensus_partition(
            SemiMarkov(edge_logit[row, None, : length - 1], alpha[row, None, : length - 1]), loss
        )
        assert torch.equal(together[row, : length - 1], alone[0])
        assert not together[row, length - 1 :].any()


def test_expected_variation_of_information_agrees_with_samples() -> None:
    """A window too long to enumerate: the mean over draws is within 6 standard errors (false alarm 1e-8)."""
    generator = torch.Generator().manual_seed(3)
    edge_logit = torch.randn(1, 39, dtype=torch.float64, generator=generator) - 1
    chain = SemiMarkov(edge_logit, torch.full_like(edge_logit, 1.5))
    cuts = consensus_partition(chain, "vi")
    draws = chain.sample(2000, generator)[:, 0].long()
    labels = torch.nn.functional.pad(draws, (1, 0)).cumsum(-1)
    mine = torch.nn.functional.pad(cuts[0].long(), (1, 0)).cumsum(-1)
    same_draw = (labels[:, :, None] == labels[:, None, :]).double()
    same_mine = (mine[:, None] == mine).double()
    # sizes of the blocks that hold a position, and of their intersection
    size, own, both = same_draw.sum(-1), same_mine.sum(-1), (same_draw * same_mine).sum(-1)
    distance = (size.log() + own.log() - 2 * both.log()).mean(-1)
    error = distance.std() / len(draws) ** 0.5
    assert abs(distance.mean() - expected_variation_of_information(chain, cuts)[0]) < 6 * error


def test_an_unknown_loss_is_an_error() -> None:
    with pytest.raises(ValueError, match="loss must be one of hamming, vi"):
        consensus_partition(SemiMarkov(torch.zeros(1, 1), torch.ones(1, 1)), "binder")
