"""Results of which a part is damaged: whatever stands there, tables are made or one sentence says what is wrong."""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dystruct.decoding import UserError
from dystruct.decoding.evaluation import votes
from dystruct.decoding.evaluation.answers import ANSWERS, read_answers, save_answers
from dystruct.decoding.evaluation.comparison import told_apart
from dystruct.decoding.evaluation.joined import joined
from dystruct.decoding.evaluation.summary import load_summary, summarise
from dystruct.decoding.evaluation.tables import all_tables
from evaluation_runs import make_run

RUNS = ("map", "sample", "fixed")
SIGNS = ["110100", "101100", "011010"]
OTHERS = (
    None, True, 0, -1, 1.5, 10**20, 10**400, math.nan, math.inf, "", "x", "0/0", [], [1], ["x"], {}, {"a": 1},
)  # fmt: skip
DELETED = object()
Place = tuple[str | int, ...]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three runs in `run`, and in `kept` their summaries and answers."""
    made = tmp_path_factory.mktemp("damage")
    for name in RUNS:
        decoder = name if name == "fixed" else f"dystruct:passes=share,structure={name}"
        signs = SIGNS if name == "sample" else SIGNS[:1]
        run = make_run(made / "run" / name, {"tiny_maths": signs, "tiny_logic": signs}, decoder=decoder, limit=6)
        (made / "kept" / name).mkdir(parents=True)
        summarise(run).save(made / "kept" / name / "summary.json")
        save_answers(made / "kept" / name / ANSWERS, read_answers([run], summarise(run)))
    return made


@pytest.fixture(autouse=True)
def _without_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Drawing takes longer than all else."""
    monkeypatch.setattr(votes, "uncertainty_picture", lambda table, told: None)
    monkeypatch.setattr(votes, "vote_curves", lambda answers: None)


def tables(places: list[Path]) -> int:
    """How many tables results are enough for."""
    together = joined([load_summary(place) for place in places])
    shown, parts = told_apart([run for run, _ in together]), [[places[n] for n in of] for _, of in together]
    made = [*all_tables(shown), *votes.voted(parts, shown).tables]
    assert all(all(table.files().values()) for table in made)
    return len(made)


def places_in(content: Any, above: Place = ()) -> Iterator[Place]:
    if above:
        yield above
    if isinstance(content, dict | list):
        for name in content if isinstance(content, dict) else range(len(content)):
            yield from places_in(content[name], (*above, name))


def damaged(content: Any, place: Place, other: Any) -> Any:
    """A copy of content with something else at a place, or nothing."""
    found = copy.deepcopy(content)
    *above, last = place
    holder = found
    for name in above:
        holder = holder[name]
    if other is DELETED:
        del holder[last]
    else:
        holder[last] = other
    return found


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_damage_is_told_or_does_no_harm(folder: Path, data: st.DataObject) -> None:
    kind, file = data.draw(st.sampled_from([("run", "run.json"), ("kept", "summary.json")]))
    path = folder / kind / data.draw(st.sampled_from(RUNS)) / file
    text = path.read_text()
    content = json.loads(text)
    place = data.draw(st.sampled_from(list(places_in(content))))
    other = data.draw(st.sampled_from([*OTHERS, DELETED]))
    said = str(path.parent)
    try:
        path.write_text(json.dumps(damaged(content, place, other)))
        tables([folder / kind / name for name in RUNS])
    except UserError as error:
        said = str(error)
    finally:
        path.write_text(text)
    assert str(path.parent) in said and len(said) < 600


TASK = ("tasks", "tiny_maths")
SETTING = ("settings", "decoder_settings")


@pytest.mark.parametrize(
    ("place", "other"),
    [
        ((*SETTING, "prior"), 3), ((*SETTING, "prior"), None), ((*SETTING, "prior", "concentration"), "x"),
        ((*SETTING, "structure"), ["map"]), ((*SETTING, "passes"), 3), ((*SETTING, "weld_radius"), 1.5),
        ((*SETTING, "decoder"), None), (("settings", "draws"), 0), (("settings", "seeds"), []),
        (("settings", "temperature"), math.nan), (("settings", "name"), 3), (("settings", "budget"), 10**400),
        (("settings", "prefix_cache"), "x"), (("environments",), [3]),
        ((*TASK, "figures", "correct"), 0.5), ((*TASK, "figures", "correct", "value"), 1.5),
        ((*TASK, "figures", "correct", "value"), math.nan), ((*TASK, "figures", "correct", "error"), -1),
        ((*TASK, "figures", "correct", "count"), 0), ((*TASK, "passes", "resolve"), math.inf),
        ((*TASK, "kinds", "k"), [1, 2, 3]), ((*TASK, "kinds", "k"), [9, 2]), ((*TASK, "kinds"), {}),
        ((*TASK, "stop_reasons", "eos"), "x"), ((*TASK, "right"), {"x": "110100"}), ((*TASK, "right", "0/0"), 3),
    ],
)  # fmt: skip
def test_what_no_run_can_have_come_to_is_refused(folder: Path, tmp_path: Path, place: Place, other: Any) -> None:
    """Also where no table looks at it."""
    content = json.loads((folder / "kept" / "map" / "summary.json").read_text())
    (tmp_path / "summary.json").write_text(json.dumps(damaged(content, place, other)))
    with pytest.raises(UserError, match="is no result of `dystruct eval`"):
        load_summary(tmp_path)
    if place[0] == "settings":
        content = json.loads((folder / "run" / "map" / "run.json").read_text())
        (tmp_path / "run.json").write_text(json.dumps(damaged(content, place, other)))
        (tmp_path / "items.jsonl").write_bytes((folder / "run" / "map" / "items.jsonl").read_bytes())
        with pytest.raises(UserError, match="is damaged"):
            load_summary(tmp_path)


def test_nothing_that_is_whole_is_refused(folder: Path, tmp_path: Path) -> None:
    """Nor a decoder of one's own, whatever its settings are."""
    content = json.loads((folder / "kept" / "map" / "summary.json").read_text())
    own = damaged(content, SETTING, {"decoder": "Mine", "structure": ["map"], "prior": 3})
    (tmp_path / "summary.json").write_text(json.dumps(own))
    for kind in ("run", "kept"):
        assert tables([tmp_path, *(folder / kind / name for name in RUNS)]) > 4
