"""`--prefix-cache` on the command line."""

from __future__ import annotations

import json

from typer.testing import CliRunner

from dystruct.decoding.terminal.cli import app


def test_the_prefix_cache_is_an_option_and_on_record() -> None:
    common = ["generate", "--max-new-tokens", "8", "--decoder", "block", "--json", "Tom has 3 apples."]
    for given in ([], ["--prefix-cache"]):
        run = CliRunner().invoke(app, [*common, *given])
        assert run.exit_code == 0
        assert json.loads(run.stdout)["settings"]["prefix_cache"] is bool(given)
