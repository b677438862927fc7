"""Evidence about a window: from features to instability h and edge logits ell.

Knows where no feature comes from and nothing of partitions. Symbols, for a window of L tokens:

    phi (L, 7)    position features        w (7,)    their weights, with an intercept (reading R8)
    psi (L-1, 4)  gap features             w_b (4,)  their weights, with an intercept
    u (L,)        u_j = phi_j · w
    h (L,)        h_j = sigmoid(u_j - mean u), instability within the window           (eq. stats)
    ell (L-1,)    ell_g = psi_g · w_b + intercept, edge logit; q = sigmoid(ell) is the evidence for a cut

Everything is float64 on the CPU.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor

from .features import GAP_FEATURES, POSITION_FEATURES, gap_features
from .kinds import real_number

InstabilityRule = Literal["calibrated", "centred"]


def _finite(name: str, value: Any, shape: tuple[int | None, ...]) -> Tensor:
    """A copy of `value` as a finite float64 CPU tensor of `shape`, None standing for any size."""
    # What is no tensor yet becomes float64 at once: by way of torch's default, float32, 0.1 would lose digits.
    tensor = value if isinstance(value, Tensor) else torch.as_tensor(value, dtype=torch.float64)
    tensor = tensor.detach().to("cpu", torch.float64, copy=True)  # a caller's buffer may be filled again
    if tensor.dim() != len(shape) or any(w not in (None, n) for w, n in zip(shape, tensor.shape, strict=True)):
        wanted = ", ".join("any" if want is None else str(want) for want in shape)
        raise ValueError(f"{name} must have shape ({wanted}), got {tuple(tensor.shape)}.")
    if not bool(tensor.isfinite().all()):
        raise ValueError(f"{name} must be finite, but holds NaN or infinity: check the logits that it came from.")
    return tensor


@dataclass(frozen=True, eq=False)
class EvidenceWeights:
    """Weights w (7,) of position features and w_b (4,) of gap features, each with an intercept.

    gap_base_rate: how often the target of w_b was 1 where it was fitted, between 0 and 1; None if w_b was fitted to
    nothing, or without an intercept to hold it (reading R8). Raises ValueError on a wrong shape, a value that is not
    finite or a rate out of range.
    """

    position: Tensor
    position_intercept: float
    gap: Tensor
    gap_intercept: float
    gap_base_rate: float | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "position", _finite("position", self.position, (len(POSITION_FEATURES),)))
        object.__setattr__(self, "gap", _finite("gap", self.gap, (len(GAP_FEATURES),)))
        for name in ("position_intercept", "gap_intercept"):
            object.__setattr__(self, name, real_number(name, getattr(self, name)))
            if not math.isfinite(getattr(self, name)):
                raise ValueError(f"{name} must be finite, got {getattr(self, name)}.")
        if self.gap_base_rate is not None:
            object.__setattr__(self, "gap_base_rate", real_number("gap_base_rate", self.gap_base_rate))
            if not 0 < self.gap_base_rate < 1:
                raise ValueError(f"gap_base_rate must lie between 0 and 1, got {self.gap_base_rate}.")

    @classmethod
    def neutral(cls) -> EvidenceWeights:
        """Weights for a model that was never calibrated: plausible signs and sizes, fitted to nothing.

        A position is unstable as its standardised entropy H exceeds its standardised margin G, both in nats:
        u + intercept = (H - 0.6) / 0.8 - (G - 6) / 5. Centres and scales are about the means and standard deviations in
        diagnostic passes of the embedded model along known answers, so that h seldom saturates, as it would with the
        plain difference H - G. A gap is an edge as instability jumps across it (+2) and as the two predictions differ
        (+2 a nat), with intercept -2, so a featureless gap has q = 0.12.
        """
        position = torch.zeros(len(POSITION_FEATURES), dtype=torch.float64)
        intercept = 0.0
        for name, sign, centre, scale in (("entropy", 1.0, 0.6, 0.8), ("margin", -1.0, 6.0, 5.0)):
            position[POSITION_FEATURES.index(name)] = sign / scale
            intercept -= sign * centre / scale
        gap = torch.zeros(len(GAP_FEATURES), dtype=torch.float64)
        gap[GAP_FEATURES.index("instability_difference")] = 2.0
        gap[GAP_FEATURES.index("divergence")] = 2.0
        return cls(position=position, position_intercept=intercept, gap=gap, gap_intercept=-2.0)

    def without_base_rate(self) -> EvidenceWeights:
        """The same with the base rate r taken off: every ell becomes ell - logit(r), and nothing else changes.

        A fitted ell is the log odds of its target given psi. Less the log odds of the rate it is a log likelihood
        ratio, log p(psi | cut) / p(psi | no cut) for a target that says where cuts are, which leaves it to the prior
        alone how often to cut (reading R8). Raises ValueError if the base rate is not known.
        """
        if self.gap_base_rate is None:
            raise ValueError("the weights hold no base rate: w_b was fitted to nothing, or without an intercept.")
        log_odds = math.log(self.gap_base_rate) - math.log1p(-self.gap_base_rate)
        return replace(self, gap_intercept=self.gap_intercept - log_odds, gap_base_rate=None)


@dataclass(frozen=True, eq=False)
class Diagnostics:
    """What the diagnostic pass says of a window of L tokens: all that structural inference sees of the language model.

    instability h (L,) in [0, 1]; edge_logit ell (L-1,), finite; the features (L, 7) and (L-1, 4) that they came from,
    if known. Takes lists, arrays or tensors and keeps float64 CPU tensors. Raises ValueError naming the field.
    """

    instability: Tensor
    edge_logit: Tensor
    position_features: Tensor | None = None
    gap_features: Tensor | None = None

    def __post_init__(self) -> None:
        instability = _finite("instability", self.instability, (None,))
        length = len(instability)
        if length < 1:
            raise ValueError("instability is empty: a window has at least one token.")
        if bool((instability < 0).any() | (instability > 1).any()):
            raise ValueError("instability must lie in [0, 1]: pass sigmoid(u - mean u), not the logits u.")
        object.__setattr__(self, "instability", instability)
        object.__setattr__(self, "edge_logit", _finite("edge_logit", self.edge_logit, (length - 1,)))
        for name, shape in (
            ("position_features", (length, len(POSITION_FEATURES))),
            ("gap_features", (length - 1, len(GAP_FEATURES))),
        ):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, _finite(name, getattr(self, name), shape))

    @property
    def length(self) -> int:
        """Tokens in the window, L."""
        return len(self.instability)

    def first(self, length: int) -> Diagnostics:
        """Those of the window's first tokens: h stays centred over all. Raises ValueError unless it has as many."""
        if not 1 <= length <= self.length:
            raise ValueError(f"a window of {self.length} tokens has no first {length}.")
        phi, psi = self.position_features, self.gap_features
        return Diagnostics(
            self.instability[:length],
            self.edge_logit[: length - 1],
            None if phi is None else phi[:length],
            None if psi is None else psi[: length - 1],
        )


def diagnose(position_features: Any, gap_divergence: Any, weights: EvidenceWeights) -> Diagnostics:
    """Diagnostics of a window from phi (L, 7) and the gaps' Jensen-Shannon divergences (L-1,), in nats.

    h = sigmoid(u - mean u) with u = phi · w (eq. stats; an intercept would cancel), ell = psi · w_b + intercept with
    psi = [h_g, h_{g+1}, |h_g - h_{g+1}|, divergence] (eq. gap_features). Raises ValueError on a wrong shape or a value
    not finite.
    """
    phi = _finite("position_features", position_features, (None, len(POSITION_FEATURES)))
    divergence = _finite("gap_divergence", gap_divergence, (max(len(phi) - 1, 0),))
    u = phi @ weights.position
    instability = torch.sigmoid(u - u.mean())
    psi = gap_features(instability, divergence)
    return Diagnostics(instability, psi @ weights.gap + weights.gap_intercept, phi, psi)


def mean_instability(position_features: Any, weights: EvidenceWeights, rule: InstabilityRule = "calibrated") -> float:
    """Mean instability hbar in [0, 1] of a finished window from its final features phi (L, 7) (reading R3).

    `calibrated`: the mean of sigmoid(u + intercept), the probability that the calibration regression predicts.
    `centred`: the mean of sigmoid(u - mean u), the paper's words taken literally; near 0.5 whatever happened.
    Raises ValueError on another rule, an empty window or a value not finite.
    """
    phi = _finite("position_features", position_features, (None, len(POSITION_FEATURES)))
    if len(phi) < 1:
        raise ValueError("position_features is empty: a window has at least one token.")
    u = phi @ weights.position
    if rule == "calibrated":
        return float(torch.sigmoid(u + weights.position_intercept).mean())
    if rule == "centred":
        return float(torch.sigmoid(u - u.mean()).mean())
    raise ValueError(f"rule must be 'calibrated' or 'centred', got {rule!r}.")
