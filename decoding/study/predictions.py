"""What a model says of the end of a response, asked directly: no engine, no canvas, everything kept.

The decoders' own way to the model is `engine`; this one is slower and plainer, so that measurements can look at what
decoding does not keep, and tests can hold the one against the other.

Shapes: R responses of one prompt, W positions looked at, V tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from dystruct.model import hidden_jump, predict

from ..backbone import Backbone

_AT_ONCE = 8  # responses in one forward call: more are no quicker on a CPU


class Predicted(NamedTuple):
    """Of each position (R, W): its distribution (R, W, V), the likeliest token and its probability, the other features.

    entropy and margin in nats; jump: the hidden state's mean absolute difference to the position before.
    """

    log_probability: Tensor
    token: Tensor
    confidence: Tensor
    entropy: Tensor
    margin: Tensor
    jump: Tensor


@torch.inference_mode()
def predictions(
    model: Backbone, prompt_ids: Sequence[int], responses: Sequence[Sequence[int]], start: int
) -> Predicted:
    """What the model predicts for positions `start` to the end of responses of one length, masks included."""
    parts = []
    for first in range(0, len(responses), _AT_ONCE):
        rows = [[*prompt_ids, *response] for response in responses[first : first + _AT_ONCE]]
        hidden = model.hidden(torch.tensor(rows, device=model.device))
        source = torch.arange(start, len(responses[0]), device=model.device) + len(prompt_ids) - int(model.shifted)
        states = hidden[:, source]
        before = hidden[:, (source - 1).clip(0)]
        jump = hidden_jump(torch.stack((before, states), dim=-2))[..., 0]
        found = predict(model.logits(states))
        confidence = found.log_probability.gather(-1, found.top[..., None])[..., 0].exp()
        parts.append(Predicted(found.log_probability, found.top, confidence, found.entropy, found.margin, jump))
    return Predicted(*(torch.cat(values).cpu() for values in zip(*parts, strict=True)))
