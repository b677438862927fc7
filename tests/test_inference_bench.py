"""The benchmark runs and prints what it measured; how fast it was is not for a test to say."""

from __future__ import annotations

import json

import pytest

from dystruct.inference import bench


def test_a_row_knows_whether_its_target_is_met() -> None:
    assert bench.Row("a", 3.0, "x", 2.0, at_least=True).met is True
    assert bench.Row("a", 3.0, "s", 2.0).met is False
    assert bench.Row("a", 3.0, "s").met is None
    assert "<= 2  MISSED" in bench.table([bench.Row("a", 3.0, "s", 2.0)])


def test_it_runs(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    for name, size in {"WINDOW": 6, "BATCH": 3, "DRAWS": 5, "LARGE": 40}.items():
        monkeypatch.setattr(bench, name, size)
    monkeypatch.setattr(bench, "PRIOR", bench.PriorConfig(min_length=1))
    bench.main(["--rounds", "2", "--json"])
    rows = json.loads(capsys.readouterr().out)
    assert all(row["value"] > 0 for row in rows)
    assert sum(row["target"] is not None for row in rows) == 6
    bench.main(["--rounds", "1"])
    assert len(capsys.readouterr().out.splitlines()) == len(rows)
