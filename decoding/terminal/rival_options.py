"""The options of the rival decoders: each sets the setting of the same name of the decoders that have it.

`dystruct decoders` lists which those are, with their defaults. An option that the chosen decoder has no use for is
an error.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Annotated, Any, NamedTuple

import typer

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
    Rival("threshold", float, "P", "Commit every masked position of the block that is at least this confident."),
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
SETTING_OF = {rival.option: rival.setting for rival in RIVALS}


def with_rival_options(command: Callable[..., None]) -> Callable[..., None]:
    """A command with the rivals' options, which it gets as `rivals`, by option, those that were given."""
    signature = inspect.signature(command, eval_str=True)
    own = [parameter for parameter in signature.parameters.values() if parameter.name != "rivals"]
    added = [
        inspect.Parameter(
            rival.setting, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[
                rival.kind | None,
                typer.Option(
                    rival.option, help=rival.meaning, metavar=rival.metavar, rich_help_panel=PANEL, show_default=False
                ),
            ],
        )
        for rival in RIVALS
    ]  # fmt: skip

    @functools.wraps(command)
    def extended(**given: Any) -> None:
        values = {rival.option: given.pop(rival.setting) for rival in RIVALS}
        command(**given, rivals={option: value for option, value in values.items() if value is not None})

    parameters = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in own] + added
    extended.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    extended.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return extended
