"""What a command takes: groups of options that several commands have, and helps that tell each command's defaults.

A command takes a group as one argument; on the command line the group's options are options of the command like any
other. Knows no option by name.
"""

from __future__ import annotations

import copy
import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Annotated, Any, get_args, get_type_hints


@dataclass(frozen=True)
class OptionGroup:
    """Options that belong together: each field is one, its type with what `typer` shall know of it."""

    @classmethod
    def parameters(cls) -> list[inspect.Parameter]:
        """Its options as parameters of a command."""
        hints = get_type_hints(cls, include_extras=True)
        return [_parameter(field.name, field.default, hints[field.name]) for field in fields(cls)]


def spread(command: Callable[..., None]) -> Callable[..., None]:
    """A command with the options of its groups in their places, and each default in the place of {default} in a help.

    A parameter is a group if its type is an `OptionGroup`; the command gets it with what was given.
    """
    groups: dict[str, type[OptionGroup]] = {}
    parameters: list[inspect.Parameter] = []
    for name, parameter in inspect.signature(command, eval_str=True).parameters.items():
        kind = parameter.annotation
        if isinstance(kind, type) and issubclass(kind, OptionGroup):
            groups[name] = kind
            parameters += kind.parameters()
        else:
            parameters.append(_parameter(name, parameter.default, kind))

    @functools.wraps(command)
    def spread_out(**given: Any) -> None:
        made = {
            name: group(**{option.name: given.pop(option.name) for option in group.parameters()})
            for name, group in groups.items()
        }
        command(**given, **made)

    parameters = [_telling_its_default(parameter) for parameter in parameters]
    # What `inspect.signature` looks for, though functions do not declare it.
    spread_out.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    spread_out.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return spread_out


def _parameter(name: str, default: Any, annotation: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _telling_its_default(parameter: inspect.Parameter) -> inspect.Parameter:
    kind, option = get_args(parameter.annotation)
    if "{default}" not in (option.help or ""):
        return parameter
    default = parameter.default
    shown = {True: "on", False: "off"}[default] if isinstance(default, bool) else default
    told = copy.copy(option)  # the same option may have another default with another command
    told.help = option.help.replace("{default}", f"{shown:g}" if isinstance(shown, float) else str(shown))
    return parameter.replace(annotation=Annotated[kind, told])
