"""What `generate` is asked for beside prompts and decoder: limits, seed, and how tokens are drawn; checked when made.

Knows no model: what only one tells, such as whether it can keep a prefix cache, is checked where it is met.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from .ending import checked_stop
from .errors import UserError
from .kinds import check_flags, check_positive, check_whole

# Of a prefix's keys and values: keep none, compute all of them at each window's first pass, or none of them again.
Caching = bool | Literal["append"]


@dataclass(frozen=True)
class GenerationSettings:
    """The settings of `generate`, which says what each of them means, with its defaults.

    Of stop a tuple is kept. Raises UserError for a value that is none of these.
    """

    max_new_tokens: int = 256
    budget: int = 256
    temperature: float = 0.0
    stop: Sequence[str] = ()
    seed: int = 0
    batch_size: int = 8
    chat: bool = False
    prefix_cache: Caching = False
    alternatives: int = 0

    def __post_init__(self) -> None:
        check_whole(self, "max_new_tokens", "budget", "batch_size")
        check_whole(self, "seed", "alternatives", least=0)
        check_positive(self, "temperature", or_zero=True)
        if not isinstance(self.prefix_cache, bool) and not (
            isinstance(self.prefix_cache, str) and self.prefix_cache == "append"
        ):
            raise UserError(f"prefix_cache must be True, False or 'append', not {self.prefix_cache!r}.")
        check_flags(self)
        object.__setattr__(self, "stop", checked_stop(self.stop))
