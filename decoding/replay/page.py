"""Puts the replay page together: template, style, scripts and data in one file that loads nothing.

A Content-Security-Policy in the page names the hashes of its one style and one script and forbids all else, so that
nothing which a trace holds could run or be fetched even if it reached the document as markup.
"""

from __future__ import annotations

import json
import re
from base64 import b64encode
from hashlib import sha256
from importlib.resources import files
from typing import Any

from ..trace import Generation
from .record import record

SCRIPTS = ("response", "blocks", "posterior", "card", "stage", "page")  # each may use those before it
POLICY = (
    "default-src 'none'; style-src '{style}'; script-src '{script}'; img-src data:; base-uri 'none'; form-action 'none'"
)


def replay_page(generation: Generation, beside: Generation | None = None) -> str:
    """The page of one trace, or of two in step, as HTML; ValueError if a trace's parts do not fit together."""
    runs = [record(run) for run in (generation, beside) if run is not None]
    style = _part("page.css")
    script = "".join(('"use strict";\n{\n', *(_part(f"{name}.js") for name in SCRIPTS), "}\n"))
    parts = {
        "policy": POLICY.format(style=_digest(style), script=_digest(script)),
        "style": style,
        "script": script,
        "data": _data({"runs": runs}),
    }
    # In one go: what is put in is not looked through again.
    return re.sub(r"\{\{(\w+)\}\}", lambda found: parts[found[1]], _part("page.html"))


def _part(name: str) -> str:
    return files(__package__).joinpath(name).read_text(encoding="utf-8")


def _data(value: Any) -> str:
    """JSON in ASCII, without any sign that ends or opens an element."""
    text = json.dumps(value, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _digest(text: str) -> str:
    return f"sha256-{b64encode(sha256(text.encode()).digest()).decode()}"
