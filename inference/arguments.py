"""What questions about a window are asked with: its diagnostics, what was known before it, the prior."""

from __future__ import annotations

from dystruct.model import Context, Diagnostics, PriorConfig


def check_window(diagnostics: object, context: object, prior: object) -> None:
    """Raises ValueError for arguments of other kinds, such as those that have changed places."""
    asked = {"diagnostics": (diagnostics, Diagnostics), "context": (context, Context), "prior": (prior, PriorConfig)}
    for name, (value, kind) in asked.items():
        if not isinstance(value, kind):
            raise ValueError(
                f"{name} must be a {kind.__name__}, got a {type(value).__name__}: name the argument, as in {name}=…."
            )
