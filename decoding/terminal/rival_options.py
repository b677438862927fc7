"""The options of the rival decoders: each sets the setting of the same name of the decoders that have it.

`dystruct decoders` lists which those are, with their defaults. An option that the chosen decoder has no use for is
an error.
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

from .options import make_option
from .signatures import OptionGroup

PANEL = "Rival decoders (see `dystruct decoders`)"


class Rival(NamedTuple):
    """One option: the setting that it gives, its type, the name of its value (None: a flag) and what it means."""

    setting: str
    kind: Any
    metavar: str | None
    meaning: str

    @property
    def option(self) -> str:
        """Its name on the command line."""
        return "--" + self.setting.replace("_", "-")


RIVALS = (
    Rival("steps", int, "N", "Forward passes in all (fixed), or noise levels (dream)."),
    Rival("remasking", str, "RULE", "Which masks a pass fills: low_confidence or random."),
    Rival("guidance", float, "X", "Scale s of logits = u + (s + 1)(c - u), u without the prompt; takes two passes."),
    Rival("suppress_eos", bool, None, "Never predict the end token."),
    Rival("defer_eos", bool, None, "Give the end token, and --end-of-turn, no confidence, so that they come last."),
    Rival("end_of_turn", int, "ID", "With --defer-eos: another token to defer."),
    Rival("alg", str, "RULE", "Which masks a step fills: origin, maskgit_plus, topk_margin or entropy."),
    Rival("alg_temp", float, "X", "Draw positions in proportion to exp(confidence / X)."),
    Rival("top_p", float, "P", "Tokens from the nucleus of this probability only."),
    Rival("top_k", int, "N", "Tokens from the most probable N only."),
    Rival("eps", float, "X", "The last noise level."),
    Rival(
        "threshold",
        float,
        "P",
        "Commit every masked position of the block that is at least this confident; with dystruct and block at least "
        "an even share over the passes of the block, which are then the most that it takes. Default: dystruct and "
        "block none, fast, adablock and vsb-like 0.9.",
    ),
    Rival("factor", float, "X", "Commit rank r as long as its confidence is at least 1 - X / (r + 1)."),
    Rival("initial_length", int, "N", "Tokens of the response to begin with."),
    Rival("high", float, "P", "Commit every masked position of the block that is more confident than this."),
    Rival("low", float, "P", "daedal: insert masks where less confident; hierarchy: commit nominated ones above it."),
    Rival("expansion", int, "N", "Masks to insert at once."),
    Rival("eos_threshold", float, "P", "Lengthen the response while the end is less certain."),
    Rival("expand_eos_threshold", float, "P", "Insert masks while the end is less certain."),
    Rival("eos_check_tokens", int, "N", "Tokens at the end that say how certain it is."),
    Rival("delimiter_threshold", float, "P", "Probability from which a delimiter ends a block."),
    Rival("remask", float, "P", "Doubt a decoded token of the block whose probability is lower."),
    Rival("stride", int, "N", "Tokens between two places where a block may end."),
    Rival("tolerance", float, "P", "Change of predictions, by hiding the future, at which a block may end."),
)


@dataclass(frozen=True, init=False)
class Rivals(OptionGroup):
    """The rivals' options that were given, by option."""

    given: dict[str, Any]

    def __init__(self, **values: Any) -> None:
        found = {rival.option: values[rival.setting] for rival in RIVALS if values[rival.setting] is not None}
        object.__setattr__(self, "given", found)

    @classmethod
    def parameters(cls) -> list[inspect.Parameter]:
        """All of them, none of them given."""
        return [inspect.Parameter(rival.setting, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[
            rival.kind | None, make_option(PANEL, rival.option, rival.meaning, rival.metavar)
        ]) for rival in RIVALS]  # fmt: skip
