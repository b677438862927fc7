"""How a pass samples: settings that are refused where they have no use, distributions that no temperature breaks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dystruct.decoding import Dream, Generation, UserError, generate, sampling
from dystruct.decoding.request import Pass
from dystruct.decoding.sampling import Sampling, candidates
from scripted import backbone, hashed

MODEL = backbone(hashed(0))


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"top_k": 3}, "tempered=True"),
        ({"top_p": 0.5}, "tempered=True"),
        ({"tempered": True, "top_k": 0}, "top_k"),
        ({"tempered": True, "top_p": 1.5}, "top_p"),
        ({"tempered": True, "top_p": -0.1}, "top_p"),
        ({"guidance": -1.0}, "guidance"),
        ({"guidance": float("nan")}, "guidance"),
    ],
)
def test_settings_without_sense_are_refused(settings: dict[str, Any], named: str) -> None:
    with pytest.raises(ValueError, match=named):
        Sampling(**settings)


@given(
    st.floats(5e-324, 1.7e308),
    st.lists(st.one_of(st.floats(-80, 80), st.just(-float("inf"))), min_size=2, max_size=6),
    st.floats(-80, 80),
)
def test_a_tempered_distribution_is_one_at_any_temperature(temperature: float, some: list[float], last: float) -> None:
    logits = torch.tensor([[*some, last]])
    noise = torch.zeros(logits.shape, dtype=torch.float64)
    found = candidates(logits, Sampling(tempered=True), temperature, lambda part: noise[part]).probability
    assert bool(found.isfinite().all()) and float(found.sum()) == pytest.approx(1, abs=1e-5)
    assert bool((found[logits.isneginf()] == 0).all()), "what is excluded stays so"
    if 1e-3 < temperature < 1e3:
        wanted = (logits.double() / temperature).softmax(-1)
        assert torch.allclose(found.double(), wanted, atol=1e-5)


@pytest.mark.parametrize("at_once", [1, 7, 30, 10**6])
def test_a_draw_is_the_same_in_parts_of_any_size(at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(23, 7, generator=generator)
    noise = -torch.log(-torch.log(torch.rand(23, 7, dtype=torch.float64, generator=generator)))
    monkeypatch.setattr(sampling, "NOISE_AT_ONCE", at_once)
    parts = []

    def draw(part: slice) -> torch.Tensor:
        parts.append(noise[part])
        return noise[part]

    found = candidates(logits, Sampling(), 0.7, draw)
    assert torch.equal(found.token, (logits.double() / 0.7 + noise).argmax(-1))
    assert torch.equal(torch.cat(parts), noise) and max(map(len, parts)) == min(max(1, at_once // 7), 23)
    assert candidates(logits[:0], Sampling(), 0.7, draw).token.shape == (0,)


@pytest.mark.parametrize("temperature", [1e-300, 1e-40, 1e308])
def test_dream_decodes_at_any_temperature(temperature: float) -> None:
    [found] = generate(MODEL, ["abc"], Dream(), max_new_tokens=8, temperature=temperature)
    found.check()


@dataclass(frozen=True)
class Own:
    """A decoder whose passes sample as their row says; with a setting that no file has a form for."""

    widest: ClassVar[None] = None
    of: Any = field(default=len)
    guided: bool = False

    def decode(self, row: Any) -> Iterator[Pass]:
        first = row.prompt_ids[0]
        sampling = Sampling(guidance=float(first)) if self.guided else Sampling(excluded=(first,))
        window = row.open_window(4)
        for masked in range(4, 0, -1):
            yield Pass("resolve", window.start, row.length, 1, masked=masked, sampling=sampling)
        row.close_window(row.read_tokens())


def test_passes_of_a_batch_that_sample_differently_are_refused() -> None:
    [alone], [same, again] = (
        generate(MODEL, prompts, Own(), max_new_tokens=4) for prompts in (["abc"], ["abc", "acb"])
    )
    assert same.tokens == alone.tokens and again.forward_passes == 4
    with pytest.raises(UserError, match="sample differently in one batch; set batch_size=1"):
        generate(MODEL, ["abc", "bcd"], Own(), max_new_tokens=4)
    assert len(generate(MODEL, ["abc", "bcd"], Own(), max_new_tokens=4, batch_size=1)) == 2
    assert len(generate(MODEL, ["abc", "bcd"], Own(guided=True), max_new_tokens=4)) == 2, "guidance is a row's own"


def test_a_decoders_setting_that_is_a_function_is_told_by_its_name(tmp_path: Path) -> None:
    [found] = generate(MODEL, ["abc"], Own(), max_new_tokens=4)
    assert "len" in found.settings["of"]
    found.save(tmp_path / "t.json")
    assert Generation.load(tmp_path / "t.json") == found
