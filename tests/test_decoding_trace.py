"""A trace on file: it comes back equal, and what is damaged or something else is refused."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dystruct.decoding import Block, DyStruct, Generation, generate
from dystruct.decoding.trace import (
    Commit,
    Remask,
    Step,
    StructureChosen,
    Window,
    WindowClosed,
    WindowOpened,
)
from dystruct.decoding.wording import STOPS
from dystruct.inference import fixed
from dystruct.model import EvidenceWeights, Partition, PriorConfig
from scripted import EOS, MASK, backbone, hashed, uneven_weights

numbers = st.floats(allow_nan=False)
small = st.integers(0, 10**6)


def rows(of: st.SearchStrategy[float]) -> st.SearchStrategy[tuple[tuple[float, ...], ...]]:
    return st.lists(st.lists(of, max_size=3).map(tuple), max_size=3).map(tuple)


def tuples(of: st.SearchStrategy[Any]) -> st.SearchStrategy[tuple[Any, ...]]:
    return st.lists(of, max_size=3).map(tuple)


steps = st.builds(
    Step, small, st.sampled_from(["diagnostic", "resolve", "weld"]), st.none() | small,
    tuples(st.builds(Remask, small, small, numbers)), tuples(st.builds(Commit, small, small, numbers)),
)  # fmt: skip
structures = st.builds(
    StructureChosen, small, tuples(small), tuples(small), *[tuples(numbers)] * 5, tuples(small), numbers, numbers,
    rows(numbers), rows(numbers),
)  # fmt: skip
windows = st.builds(
    Window,
    st.builds(WindowOpened, small, small, small, numbers, st.none() | numbers),
    st.none() | structures,
    tuples(steps),
    st.builds(WindowClosed, small, tuples(small), rows(numbers), st.none() | numbers),
)
generations = st.builds(
    Generation, st.text(), st.text(), tuples(small), st.dictionaries(small, st.text(), max_size=3), small, small,
    st.dictionaries(st.sampled_from(["diagnostic", "resolve", "weld"]), small),
    st.sampled_from(list(STOPS)), numbers, tuples(windows), st.text(), small,
    st.dictionaries(st.text(), st.none() | small | numbers | st.text() | st.lists(small) | st.booleans()),
)  # fmt: skip


@settings(
    deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(generations)
def test_what_is_saved_loads_equal(tmp_path: Path, generation: Generation) -> None:
    path = tmp_path / "trace.json"
    generation.save(path)
    loaded = Generation.load(path)
    assert loaded == generation and hash(loaded.windows) == hash(generation.windows)
    assert [child.name for child in tmp_path.iterdir()] == ["trace.json"], "nothing but the file is left"


def decoded(decoder: DyStruct | Block, **limits: Any) -> Generation:
    model = backbone(hashed(8, end_logit=-1.0), weights=uneven_weights())
    return generate(model, ["abc"], decoder, **{"max_new_tokens": 20, "budget": 60, **limits})[0]


@pytest.mark.parametrize(
    "decoder",
    [
        DyStruct(structure="sample", prior=PriorConfig(4, 12)),
        DyStruct(structure=fixed(Partition((2, 5))), weights=EvidenceWeights.neutral(), weld="joint"),
        DyStruct(prior=PriorConfig(1, 1)),
        Block(3),
    ],
)
@pytest.mark.parametrize("budget", [1, 9, 200])
def test_a_real_trace_loads_equal_with_its_settings(tmp_path: Path, decoder: DyStruct | Block, budget: int) -> None:
    generation = decoded(decoder, budget=budget, temperature=0.5, seed=3)
    generation.save(tmp_path / "trace.json")
    loaded = Generation.load(tmp_path / "trace.json")
    assert loaded == generation
    assert (
        loaded.settings["seed"] == 3 and loaded.settings["budget"] == budget and loaded.settings["temperature"] == 0.5
    )
    assert (
        loaded.settings["decoder"] == type(decoder).__name__
        and loaded.mask_token == MASK
        and loaded.model == "scripted"
    )
    assert list(loaded.replay()) == list(generation.replay())


def test_saving_replaces_a_file_only_when_all_is_written(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_text("what stood here")
    generation = decoded(Block(3))
    generation.settings["unwritable"] = object()
    with pytest.raises(TypeError):
        generation.save(path)
    assert path.read_text() == "what stood here" and len(list(tmp_path.iterdir())) == 1


@pytest.fixture(scope="module")
def content() -> dict[str, Any]:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        decoded(DyStruct(structure="sample", prior=PriorConfig(4, 12))).save(path)
        return json.loads(path.read_text())


def refused(path: Path, data: str | bytes) -> str:
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    with pytest.raises(ValueError, match=r"is no trace.*save it again") as caught:
        Generation.load(path)
    assert str(path) in str(caught.value) and "__init__" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "3",
        "null",
        '"dystruct-trace-1"',
        '{"format": "other"}',
        '{"format": "dystruct-trace-1"}',
        b"\xff\xfe",
    ],
)
def test_something_else_is_refused(tmp_path: Path, text: str | bytes) -> None:
    refused(tmp_path / "trace.json", text)


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9, 0.999])
def test_a_trace_cut_short_is_refused(tmp_path: Path, content: dict[str, Any], share: float) -> None:
    text = json.dumps(content)
    refused(tmp_path / "trace.json", text[: int(len(text) * share)])


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Where a value stands in a document, leaves and containers."""
    found = [path] if path else []
    if isinstance(value, dict):
        return found + [p for key, child in value.items() for p in places(child, (*path, key))]
    if isinstance(value, list):
        return found + [p for key, child in enumerate(value[:2]) for p in places(child, (*path, key))]
    return found


@settings(deadline=None, max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_a_value_of_another_kind_is_refused_wherever_it_stands(
    tmp_path: Path, content: dict[str, Any], data: st.DataObject
) -> None:
    damaged = json.loads(json.dumps(content))
    everywhere = [p for p in places(damaged) if p[0] not in ("format", "settings")]
    *path, last = data.draw(st.sampled_from(everywhere))
    holder = damaged
    for key in path:
        holder = holder[key]
    old = holder[last]
    others: list[Any] = [None, "x", 3.5, 7, True, [1], ["x"], {}, {"a": 1}]
    if old is None or last in ("rate", "mean_instability", "block", "structure"):
        others.remove(None)
        others = [o for o in others if not isinstance(o, int | float)]
    if isinstance(old, float):
        others = [o for o in others if not isinstance(o, int | float) or isinstance(o, bool)]
    elif isinstance(old, int):
        others = [o for o in others if not (isinstance(o, int) and not isinstance(o, bool))]
    elif isinstance(old, str):
        others = [o for o in others if not isinstance(o, str)]
    elif isinstance(old, list):
        others = [o for o in others if not isinstance(o, list)]
    elif last in ("passes", "token_texts"):
        others.remove({})
        others = [o for o in others if last == "token_texts" or o != {"a": 1}]
    holder[last] = data.draw(st.sampled_from(others))
    refused(tmp_path / "trace.json", json.dumps(damaged))


@pytest.mark.parametrize("change", ["missing", "unknown"])
def test_a_field_too_few_or_too_many_is_refused(tmp_path: Path, content: dict[str, Any], change: str) -> None:
    for path in ((), ("windows", 0), ("windows", 0, "opened"), ("windows", 0, "steps", 0), ("windows", 0, "structure")):
        damaged = json.loads(json.dumps(content))
        holder = damaged
        for key in path:
            holder = holder[key]
        if change == "missing":
            del holder[next(key for key in holder if key != "format")]
        else:
            holder["surprise"] = 1
        refused(tmp_path / "trace.json", json.dumps(damaged))


def test_what_is_wrong_is_told_with_its_place(tmp_path: Path, content: dict[str, Any]) -> None:
    def told(*path: Any, value: Any = ...) -> str:
        damaged = json.loads(json.dumps(content))
        holder = damaged
        for key in path[:-1]:
            holder = holder[key]
        if value is ...:
            del holder[path[-1]]
        else:
            holder[path[-1]] = value
        return refused(tmp_path / "trace.json", json.dumps(damaged))

    assert "(it lacks the key 'tokens')" in told("tokens")
    assert "(windows[0].opened lacks the key 'start')" in told("windows", 0, "opened", "start")
    assert "(windows[0].steps[1].commits[0].token is of type str, not int)" in told(
        "windows", 0, "steps", 1, "commits", 0, "token", value="x"
    )
    assert "(it has the unknown key 'surprise')" in told("surprise", value=1)
    assert "(stop_reason is 'whim', which is none of 'eos', 'stop'" in told("stop_reason", value="whim")


@pytest.mark.parametrize("reason", ["eos", "stop", "length", "budget", "decoder"])
def test_tokens_are_wasted_behind_an_end_alone(reason: Any) -> None:
    found = decoded(Block(3), budget=9)
    wasteful = replace(found, stop_reason=reason, useful_tokens=len(found.tokens) - 1, wasted_tokens=1)
    if reason in ("eos", "stop"):
        wasteful.check()
    else:
        with pytest.raises(ValueError, match=f"wasted tokens, though its stop_reason is '{reason}'"):
            wasteful.check()


@pytest.mark.parametrize(
    "decoder", [DyStruct(structure="sample", prior=PriorConfig(4, 12)), Block(3)], ids=["dystruct", "block"]
)
@pytest.mark.parametrize("budget", [1, 9, 200])
def test_a_real_trace_fits_together(decoder: DyStruct | Block, budget: int) -> None:
    decoded(decoder, budget=budget).check()
    decoded(decoder, budget=budget, stop=["c"]).check()


def test_a_window_has_the_posterior_that_decoded_it(tmp_path: Path) -> None:
    """Of a saved trace, too; under the run's own prior, and of a decoder without one there is none."""
    found = decoded(DyStruct(structure="sample", prior=PriorConfig(4, 12, concentration=0.7)), budget=99)
    found.save(tmp_path / "trace.json")
    for window in (*found.windows, *Generation.load(tmp_path / "trace.json").windows):
        exact = window.posterior
        assert exact is not None and window.structure is not None
        assert exact.prior.concentration == 0.7
        assert exact.cut_marginals.tolist() == pytest.approx(window.structure.cut_marginals)
        assert float(exact.entropy) == pytest.approx(window.structure.entropy)
        assert float(exact.log_prob(Partition(window.structure.ends))) == pytest.approx(
            window.structure.log_probability
        )
    assert [window.posterior for window in decoded(Block(3)).windows] == [None] * len(decoded(Block(3)).windows)


def test_replay_and_events_of_windows() -> None:
    """By hand: two windows; the second's diagnostic pass shows a token that is masked again behind it."""
    first = Window(
        WindowOpened(0, 0, 2, 0.5, None),
        None,
        (
            Step(1, "resolve", None, (), (Commit(1, 5, 0.9),)),
            Step(2, "resolve", None, (), (Commit(0, 4, 0.8),)),
            Step(3, "weld", 0, (Remask(1, 5, 0.9),), (Commit(1, 6, 0.7),)),
        ),
        WindowClosed(0, (4, 6), (), None),
    )
    second = Window(
        WindowOpened(1, 2, 1, 0.5, None),
        None,
        (Step(4, "diagnostic", None, (), (Commit(2, 7, 0.5),)), Step(5, "resolve", None, (), (Commit(2, EOS, 0.6),))),
        WindowClosed(1, (EOS,), (), None),
    )
    generation = Generation(
        "p", "t", (4, 6, EOS), ("", "", ""), 2, 1, {}, "eos", math.inf, (first, second), mask_token=MASK
    )
    assert [after for _, after in generation.replay()] == [(MASK, 5), (4, 5), (4, 6), (4, 6, 7), (4, 6, EOS)]
    assert [step.number for step, _ in generation.replay()] == [1, 2, 3, 4, 5]
    assert list(second.events()) == [second.opened, *second.steps, second.closed]
    assert generation.block_count == 2
