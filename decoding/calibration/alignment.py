"""Which tokens of a response were wrong, given the reference answer.

A window that opens behind a right beginning is compared with the reference position by position, end tokens following
the answer. Behind a wrong token positions no longer correspond, since the lengths may differ: from the first
difference on, the response up to its end is aligned with the rest of the reference (difflib's matching blocks, of
tokens), and a token is right if it is in a matching block. The token that stands where the response left some of the
reference out is wrong, and so is what stands behind the response's end and is no end token.

Knows no text: another right answer than the reference counts as wrong where it differs.
"""

from __future__ import annotations

from collections.abc import Sequence
from difflib import SequenceMatcher

import numpy as np
from numpy.typing import NDArray


def wrong_positions(
    reference: Sequence[int], tokens: Sequence[int], starts: Sequence[int], end_token: int
) -> NDArray[np.bool_]:
    """Which of a response's tokens (T,) are wrong; reference: without an end token.

    starts: where its windows begin, ascending, the first one 0. end_token: every end token of the response is to be
    given as this one.
    """
    padded = [*reference, *[end_token] * max(1, len(tokens) - len(reference))]
    differs = np.array([token != wanted for token, wanted in zip(tokens, padded[: len(tokens)], strict=True)])
    if not differs.any():
        return differs
    first = int(np.argmax(differs))
    found = _realigned(padded[: len(reference) + 1], list(tokens), first, end_token)
    behind = next((start for start in starts if start > first), len(tokens))
    found[:behind] = differs[:behind]
    return found


def _realigned(reference: list[int], tokens: list[int], first: int, end_token: int) -> NDArray[np.bool_]:
    """As above, by alignment from `first` on; reference: with one end token."""
    end = tokens.index(end_token) + 1 if end_token in tokens else len(tokens)
    found = np.array([token != end_token for token in tokens])  # for what stands behind the end
    found[:end] = False
    matcher = SequenceMatcher(None, reference[first:], tokens[first:end], autojunk=False)
    for operation, _, _, begin, stop in matcher.get_opcodes():
        if operation in ("replace", "insert"):
            found[first + begin : first + stop] = True
        elif operation == "delete" and first + begin < end:
            found[first + begin] = True
    return found
