"""Prompts from a file or from standard input: one a line, or JSON lines with a "prompt" key.

A file is JSON lines if its first line begins with a brace. Whatever is malformed is an error that names the line:
a skipped line would shift all results behind it.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from ..errors import UserError

STANDARD_INPUT = "-"


def read_prompts(source: str) -> list[str]:
    """The prompts in a file; "-" is standard input. Raises UserError for a file that is missing or malformed."""
    name = source_name(source)
    lines = lines_of(_bytes(source), name)
    if not lines:
        raise UserError(f"There is no prompt in {name}; write one a line.")
    json_lines = lines[0].lstrip().startswith("{")
    return [_prompt(line, number, name, json_lines) for number, line in enumerate(lines, start=1)]


def source_name(source: str) -> str:
    """What an error calls the file."""
    return "standard input" if source == STANDARD_INPUT else source


def lines_of(content: bytes, name: str) -> list[str]:
    """The lines of a file, without their ends; none if it is empty. Raises UserError for one that is not UTF-8."""
    try:
        text = content.decode("utf-8-sig").removesuffix("\n")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise UserError(f"Line {line} of {name} is not UTF-8; convert the file, for example with iconv.") from error
    return [line.removesuffix("\r") for line in text.split("\n")] if text else []


def json_line(line: str, number: int, name: str) -> Any:
    """What a line of JSON lines holds. Raises UserError, which names the line, if that cannot be parsed."""
    try:
        return json.loads(line)
    except (ValueError, RecursionError) as error:
        why = error.msg if isinstance(error, json.JSONDecodeError) else "it cannot be parsed"
        raise UserError(f"Line {number} of {name} is broken JSON ({why}); correct it.") from error


def _bytes(source: str) -> bytes:
    try:
        if source == STANDARD_INPUT:
            return sys.stdin.buffer.read()
        with open(source, "rb") as file:
            return file.read()
    except OSError as error:
        raise UserError(f"The file {source!r} cannot be read ({error.strerror}); check its name.") from error


def _prompt(line: str, number: int, name: str, json_lines: bool) -> str:
    if json_lines:
        prompt = _json_prompt(line, number, name)
    elif isinstance(_json_or_none(line), dict):
        raise UserError(f"Line {number} of {name} is JSON but line 1 is plain text; write all lines in one form.")
    else:
        prompt = line
    if not prompt.strip():
        raise UserError(f"Line {number} of {name} is an empty prompt; remove the line or fill it.")
    return prompt


def _json_prompt(line: str, number: int, name: str) -> str:
    value = json_line(line, number, name)
    if not isinstance(value, dict) or not isinstance(value.get("prompt"), str):
        raise UserError(f'Line {number} of {name} has no text under "prompt"; write {{"prompt": "…"}}.')
    return str(value["prompt"])


def _json_or_none(line: str) -> Any:
    if not line.lstrip().startswith("{"):
        return None
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None
