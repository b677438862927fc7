"""Problems with known answers from a file: JSON lines with "question" and "answer" and, where given, "domain".

Whatever is malformed is an error that names the line, as in `prompts`. Other keys are left alone.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..ending import check_unicode
from ..errors import UserError
from ..wording import counted
from .prompts import json_line, lines_of

if TYPE_CHECKING:
    from ..calibration import Known


def read_problems(path: Path, least: int) -> list[Known]:
    """The problems in a file, at least so many; without a "domain", one is of the domain that the file is called.

    Raises UserError for a file that is missing, malformed or too short, and for a question that it asks twice.
    """
    try:
        lines = lines_of(path.read_bytes(), str(path))
    except OSError as error:
        raise UserError(f"The file {str(path)!r} cannot be read ({error.strerror}); check its name.") from error
    found: list[Known] = []
    asked: dict[str, int] = {}
    for number, line in enumerate(lines, start=1):
        problem = _problem(json_line(line, number, str(path)), f"Line {number} of {path}", path.stem)
        # whatever the white space, which some tokenizers drop
        before = asked.setdefault(" ".join(problem.prompt.split()), number)
        if before < number:
            raise UserError(f"Line {number} of {path} asks the question of line {before} again; keep one of them.")
        found.append(problem)
    if len(found) < least:
        raise UserError(
            f"There {'is' if len(found) == 1 else 'are'} {counted(len(found), 'problem')} in {path}, and weights are "
            f"tested on some that they were not fitted on; give {least} at least, better some hundreds."
        )
    return found


def digest(problems: Sequence[Known]) -> str:
    """What tells these problems from others."""
    told = json.dumps([[problem.prompt, problem.answer, problem.domain] for problem in problems])
    return hashlib.sha256(told.encode()).hexdigest()[:16]


def _problem(value: Any, place: str, domain: str) -> Known:
    from ..calibration import Known

    texts = {"domain": domain, **value} if isinstance(value, dict) else {}
    names = ("question", "answer", "domain")
    if not all(isinstance(texts.get(name), str) for name in names):
        raise UserError(f'{place} is no problem; write {{"question": "…", "answer": "…"}}, and a "domain" if you like.')
    for name in names:
        if not texts[name].strip():
            raise UserError(f"{place} has an empty {name}; fill it or remove the line.")
        check_unicode(f"The {name} in {place[0].lower()}{place[1:]}", texts[name])
    return Known(*(texts[name] for name in names))
