"""The errors of everything that a user can get wrong: one sentence that names the thing and the remedy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .trace import Generation


class UserError(ValueError):
    """Shown by the command line as it is, without a traceback, with exit code 2."""


class DecodingFailed(UserError):
    """Some prompts could not be decoded: says what the first of them ended with.

    generations: of the prompts that could, by their indices; failures: what each other one ended with.
    """

    def __init__(self, generations: Mapping[int, Generation], failures: Mapping[int, UserError]) -> None:
        super().__init__(str(failures[min(failures)]))
        self.generations, self.failures = dict(generations), dict(failures)


def in_options(message: str, options: Mapping[str, str]) -> str:
    """An error about a setting, with the setting's name as the command line has it. options: option -> setting."""
    for option, setting in options.items():
        name = setting.split(".")[-1]
        if message.startswith(f"{name} "):
            return option + message.removeprefix(name)
    return message
