"""The log likelihood of a given answer under a masked diffusion model: LLaDA's Monte Carlo estimate, a lower bound.

    log p(y | x) >= -E_k E_M [ (n / k) sum over the masked positions j in M of -log p(y_j | x, y with M masked) ]

where y has n tokens, k is uniform on 1..n and M is a uniform set of k positions. As in LLaDA's own evaluation, the
masked counts of one batch of B samples are spread evenly over 1..n from a random start, which keeps every one of them
uniform and takes variance out of their mean. For one token the estimate is exact.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ..backbone import Backbone
from ..errors import UserError
from ..kinds import check_flags, check_positive, check_whole
from ..sampling import guided


@dataclass(frozen=True)
class LikelihoodSettings:
    """samples: masked copies in all; batch: of them in one forward call, which must divide them; guidance: scale s.

    greedy: whether to find out also if greedy decoding, a token a pass, would give the answer; it takes up to as many
    passes as the answer has tokens. Raises UserError for values that are none of these.
    """

    samples: int = 128
    batch: int = 32
    guidance: float = 0.0
    greedy: bool = True

    def __post_init__(self) -> None:
        check_whole(self, "samples", "batch")
        check_positive(self, "guidance", or_zero=True)
        check_flags(self)
        if self.samples % self.batch:
            raise UserError(f"The samples of a likelihood ({self.samples}) must be whole batches of {self.batch}.")


@torch.inference_mode()
def log_likelihood(
    model: Backbone, context: list[int], answer: list[int], settings: LikelihoodSettings, seed: int = 0
) -> float:
    """The estimate in nats, the same for the same ids, settings and seed. An empty answer has 0.

    Raises UserError where ids do not fit into the model's context, or the first one could not be predicted.
    """
    if not answer:
        return 0.0
    _check(model, context, answer)
    digest = zlib.crc32(np.asarray([*context, -1, *answer], dtype=np.int64).tobytes())
    generator = torch.Generator().manual_seed(int(np.random.SeedSequence([seed, digest]).generate_state(1)[0]))
    target = torch.tensor(answer)
    losses = []
    for _ in range(settings.samples // settings.batch):
        masked, share = masks_of(len(answer), settings.batch, generator)
        ids = torch.tensor([context + answer]).repeat(settings.batch, 1)
        ids[:, len(context) :][masked] = model.mask_id
        logits = _logits(model, ids, len(context), settings.guidance).cpu()
        said = logits.log_softmax(-1).gather(-1, target.expand(settings.batch, -1)[..., None])[..., 0]
        losses.append(float(-(said * masked / share[:, None]).sum().double() / settings.batch))
    return -sum(losses) / len(losses)


def masks_of(length: int, count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Which of an answer's positions each of `count` samples masks (count, length), and the share it masks (count,)."""
    start = int(torch.randint(1, length + 1, (), generator=generator))
    spread = torch.linspace(float(start), start + (count - 1) * (length / count), steps=count).round().long()
    masked = (spread - 1) % length + 1
    order = torch.rand(count, length, generator=generator).argsort(-1)
    return order < masked[:, None], masked / length


@torch.inference_mode()
def is_greedy(model: Backbone, context: list[int], answer: list[int], settings: LikelihoodSettings) -> bool:
    """Whether a fixed response of the answer's length, the most confident token a pass, would be the answer."""
    _check(model, context, answer)
    ids = torch.tensor([[*context, *[model.mask_id] * len(answer)]])
    left = list(range(len(answer)))
    while left:
        logits = _logits(model, ids, len(context), settings.guidance)[0, left]
        logits[:, model.mask_id] = -torch.inf
        confidence, token = logits.softmax(-1).max(-1)
        best = int(confidence.argmax())
        if int(token[best]) != answer[left[best]]:
            return False
        ids[0, len(context) + left.pop(best)] = token[best].cpu()
    return True


def _logits(model: Backbone, ids: Tensor, context: int, guidance: float) -> Tensor:
    """Logits (R, n, V) for the positions behind the context, the mask among the tokens, as LLaDA has it."""
    ids = ids.to(model.device)
    first = context - int(model.shifted)

    def of(tokens: Tensor) -> Tensor:
        hidden = model.hidden(tokens)[:, first : ids.shape[1] - int(model.shifted)]
        return model.logits(hidden, mask_predictable=True)

    if not guidance:
        return of(ids)
    without = ids.clone()
    without[:, :context] = model.mask_id
    return guided(of(ids), of(without), guidance)


def _check(model: Backbone, context: list[int], answer: list[int]) -> None:
    if len(context) + len(answer) > model.max_length:
        raise UserError(
            f"A text to be scored has {len(context) + len(answer)} tokens, more than the context of model "
            f"{model.name!r}, {model.max_length}; take fewer examples (--shots), or another task."
        )
    if model.shifted and not context:
        raise UserError("The first token of a text has no likelihood under a shifted model; give it a context.")
