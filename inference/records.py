"""A decoded window as analysis wants it: its posterior, where it stands, its tokens and what was done with it.

Takes the windows of a decoding's trace as plain values, by the names of their fields; knows no decoder.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch

from dystruct.model import (
    GAP_FEATURES,
    Context,
    Diagnostics,
    Partition,
    PriorConfig,
    Structure,
)

from .length import LengthPosterior
from .posterior import StructurePosterior

_AGREEMENT = 1e-6  # of cut marginals computed again; the trace has all their digits


@dataclass(frozen=True, eq=False)
class WindowRecord:
    """A window's posterior and what is known beside it.

    start: response position of its first token; None: behind the window before. tokens (L,): their texts.
    decoded: the structure that it was decoded with. length: the posterior of L (reading R17). Raises ValueError if
    tokens or decoded are not of the posterior's length.
    """

    posterior: StructurePosterior
    start: int | None = None
    tokens: Sequence[str] | None = None
    decoded: Structure | None = None
    length: LengthPosterior | None = None

    def __post_init__(self) -> None:
        sizes = {
            "tokens": None if self.tokens is None else len(self.tokens),
            "decoded": None if self.decoded is None else self.decoded.length,
        }
        for name, size in sizes.items():
            if size not in (None, self.posterior.length):
                raise ValueError(f"{name} has {size} tokens, the window {self.posterior.length}: make them equal.")


class Opened(Protocol):
    """How a window began."""

    @property
    def start(self) -> int: ...
    @property
    def previous_instability(self) -> float: ...


class Inferred(Protocol):
    """The posterior of a window's length, and what it came from."""

    @property
    def lengths(self) -> Sequence[int]: ...
    @property
    def prior(self) -> Sequence[float]: ...
    @property
    def log_evidence(self) -> Sequence[float]: ...
    @property
    def probability(self) -> Sequence[float]: ...


class Chosen(Protocol):
    """A window's diagnostics and the structure drawn from their posterior."""

    @property
    def ends(self) -> Sequence[int]: ...
    @property
    def order(self) -> Sequence[int]: ...
    @property
    def instability(self) -> Sequence[float]: ...
    @property
    def edge_logit(self) -> Sequence[float]: ...
    @property
    def cut_marginals(self) -> Sequence[float]: ...
    @property
    def position_features(self) -> Sequence[Sequence[float]]: ...
    @property
    def gap_features(self) -> Sequence[Sequence[float]]: ...
    @property
    def length(self) -> Inferred | None: ...


class Closed(Protocol):
    """A window's tokens when it was finished."""

    @property
    def tokens(self) -> Sequence[int]: ...


class TracedWindow(Protocol):
    """What a trace holds of a window."""

    @property
    def opened(self) -> Opened: ...
    @property
    def structure(self) -> Chosen | None: ...
    @property
    def closed(self) -> Closed: ...


def records_of_trace(
    windows: Sequence[TracedWindow],
    token_texts: Mapping[int, str],
    prior: PriorConfig,
    *,
    max_new_tokens: int | None = None,
) -> tuple[WindowRecord, ...]:
    """The windows of a decoding, each with the posterior that its structure came from.

    token_texts: the text of every token. prior: the one under which was decoded. max_new_tokens: N_max, by which the
    windows' length laws are cut off; None: no limit. Raises ValueError for a window without a structure, and for one
    whose recorded cut marginals another prior gave.
    """
    records = []
    for index, window in enumerate(windows):
        chosen, start = window.structure, window.opened.start
        if chosen is None:
            raise ValueError(f"window {index} has no structure: take a decoding whose decoder draws one.")
        h, ell, phi, psi = (
            torch.tensor(values, dtype=torch.float64)
            for values in (chosen.instability, chosen.edge_logit, chosen.position_features, chosen.gap_features)
        )
        # the trace of a window that got the budget's last pass, so that none diagnosed it, holds no features
        features = (phi, psi.reshape(len(ell), len(GAP_FEATURES))) if len(phi) else ()
        diagnostics = Diagnostics(h, ell, *features)
        remaining = None if max_new_tokens is None else max_new_tokens - start
        exact = StructurePosterior(diagnostics, Context(window.opened.previous_instability, remaining), prior)
        if not agrees(exact, chosen.cut_marginals):
            raise ValueError(
                f"window {index} was decoded under another prior, which gave it other cut marginals: take the one of "
                f"the decoding's settings."
            )
        records.append(
            WindowRecord(
                exact,
                start=start,
                tokens=tuple(token_texts[token] for token in window.closed.tokens),
                decoded=Structure(Partition(tuple(chosen.ends)), tuple(chosen.order)),
                length=None if chosen.length is None else _length_posterior(chosen.length),
            )
        )
    return tuple(records)


def agrees(exact: StructurePosterior, cut_marginals: Sequence[float]) -> bool:
    """Whether a posterior gives the cut marginals (L-1,) on record, but for other machines' rounding."""
    recorded = torch.tensor(cut_marginals, dtype=torch.float64)
    same = recorded.shape == exact.cut_marginals.shape
    return same and torch.allclose(exact.cut_marginals, recorded, rtol=0.0, atol=_AGREEMENT)


def _length_posterior(law: Inferred) -> LengthPosterior:
    prior, log_evidence, probability = (
        torch.tensor(values, dtype=torch.float64) for values in (law.prior, law.log_evidence, law.probability)
    )
    return LengthPosterior(torch.tensor(law.lengths), prior, log_evidence, probability)
