"""Windows whose length is inferred from the diagnostic passes (R17): what is chosen, dropped, shown and refused."""

from __future__ import annotations

import dataclasses
import io
import math
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from dystruct.decoding import DyStruct, Generation, Pass, Row, UserError, generate
from dystruct.decoding.calibration.trajectories import windows_on_own_trajectory
from dystruct.decoding.evaluation.draws import with_draw
from dystruct.decoding.named import named_decoder
from dystruct.decoding.terminal.view import PlainView
from dystruct.decoding.wording import TokenTexts
from dystruct.inference import LENGTH_RULES, RULES, fixed, posterior
from dystruct.inference.arviz_tree import inference_tree
from dystruct.inference.records import records_of_trace
from dystruct.model import Context, Diagnostics, Partition, PriorConfig
from scripted import MASK, backbone, hashed, uneven_weights

PRIOR = PriorConfig(min_length=3, max_length=12)
PROMPTS = ["abc", "jih", "d", "efgh", "bdfh", "aceg"]


def decode(decoder: DyStruct, *, prompts: list[str] = PROMPTS, tokens: int = 30, **settings: Any) -> list[Generation]:
    model = backbone(hashed(2, end_logit=-4.0), weights=uneven_weights())
    return generate(model, prompts, decoder, max_new_tokens=tokens, **{"budget": 500, **settings})


def inferring(**settings: Any) -> DyStruct:
    return DyStruct(**{"structure": "sample", "prior": PRIOR, "length_law": "posterior", **settings})


@pytest.mark.parametrize("rule", LENGTH_RULES)
def test_the_rule_is_applied_to_the_posterior(rule: str) -> None:
    lengths = set()
    for window in (window for found in decode(inferring(length_rule=rule)) for window in found.windows):
        assert window.structure is not None
        law = window.structure.length
        assert law is not None
        assert math.fsum(law.probability) == pytest.approx(1)
        weight = [p * math.exp(e) for p, e in zip(law.prior, law.log_evidence, strict=True)]
        assert law.probability == pytest.approx([w / math.fsum(weight) for w in weight])
        mean = sum(length * p for length, p in zip(law.lengths, law.probability, strict=True))
        wanted = {"mode": law.lengths[law.probability.index(max(law.probability))], "mean": math.floor(mean + 0.5)}
        assert window.length == wanted.get(rule, window.length)
        lengths.add(window.length)
    assert len(lengths) > 3


@pytest.mark.parametrize("structure", [name for name in RULES if name != "none"])
def test_its_structure_is_one_of_the_window_that_is_kept(structure: str) -> None:
    """By the exact posterior of so many tokens, under the recorded diagnostics."""
    for found in decode(inferring(structure=structure)):
        found.check()
        for window in found.windows:
            chosen = window.structure
            assert chosen is not None
            exact = posterior(
                Diagnostics(chosen.instability, chosen.edge_logit), Context(window.opened.previous_instability), PRIOR
            )
            assert chosen.cut_marginals == pytest.approx(exact.cut_marginals.tolist())
            assert chosen.log_probability == pytest.approx(float(exact.log_prob(Partition(chosen.ends))))
            if structure == "map":
                assert chosen.ends == exact.map().partition.ends
        assert Generation.of(found.plain()) == found


def test_a_window_that_nothing_diagnoses_takes_its_length_from_the_prior() -> None:
    """The budget's last pass fills it."""
    for rule in LENGTH_RULES:
        decoder = inferring(length_rule=rule)
        found = decode(decoder, budget=1)
        structures = [window.structure for each in found for window in each.windows]
        assert structures and all(chosen is not None and chosen.length is None for chosen in structures)
        prior = decode(dataclasses.replace(decoder, length_law="prior"), budget=1)
        assert [each.tokens for each in found] == [each.tokens for each in prior]
        assert all(MASK not in each.tokens and each.forward_passes <= 14 for each in decode(decoder, budget=14))


def test_a_batch_gives_what_single_prompts_give() -> None:
    plain = [dataclasses.replace(found, seconds=0.0) for found in decode(inferring(), batch_size=4)]
    single = [decode(inferring(), prompts=[prompt])[0] for prompt in PROMPTS]
    assert plain == [dataclasses.replace(found, seconds=0.0) for found in single]


@pytest.mark.parametrize("rule", RULES)
def test_logits_under_which_no_length_can_be_told_are_an_error_of_the_user(rule: str) -> None:
    model = backbone(hashed(2, end_logit=-4.0), weights=uneven_weights())
    decoder = inferring(structure=rule, weights=dataclasses.replace(uneven_weights(), gap=[0.0, 0.0, 1e5, 1e5]))
    with pytest.raises(
        UserError, match=r"^The weights give no structure: edge_logit .*: scale the gap weights down\.$"
    ):
        generate(model, ["abc"], decoder, max_new_tokens=30)


@pytest.mark.parametrize("limit", [8, 30])
def test_a_tree_has_both_laws_of_the_length(limit: int) -> None:
    """Whatever it is told of the limit of new tokens, which cuts them off."""
    (found,) = decode(inferring(), prompts=["abc"], tokens=limit)
    for told in (None, limit):
        records = records_of_trace(found.windows, found.token_texts, PRIOR, max_new_tokens=told)
        windows = inference_tree(records, chains=1, draws=4)["windows"]
        for window in found.windows:
            assert window.structure is not None and window.structure.length is not None
            law = window.structure.length
            for name, wanted in (("length_prior", law.prior), ("length_posterior", law.probability)):
                row = windows[name].isel(window=window.opened.index).to_numpy()
                assert row[[length - 1 for length in law.lengths]] == pytest.approx(wanted)


DAMAGES: dict[str, Callable[[dict[str, Any]], Any]] = {
    "no lengths": lambda law: law.update(lengths=[], prior=[], log_evidence=[], probability=[]),
    "a length of 0": lambda law: law["lengths"].__setitem__(0, 0),
    "a negative one": lambda law: law["lengths"].__setitem__(0, -3),
    "a huge one": lambda law: law["lengths"].__setitem__(0, 10**30),
    "reversed": lambda law: law["lengths"].reverse(),
    "too few": lambda law: law["probability"].pop(),
    "not finite": lambda law: law["log_evidence"].__setitem__(1, float("inf")),
    "too large": lambda law: law.update(probability=[5.0] * len(law["lengths"])),
    "negative": lambda law: law.update(prior=[-1.0, 2.0, *[0.0] * (len(law["lengths"]) - 2)]),
    "larger than diagnosed": lambda law: law.update(
        {name: [*values, values[-1]] for name, values in law.items()}, lengths=[*law["lengths"], 13]
    ),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_law_that_is_none_is_told(damage: str) -> None:
    (found,) = decode(inferring(), prompts=["abc"])
    plain = found.plain()
    DAMAGES[damage](plain["windows"][0]["structure"]["length"])
    with pytest.raises(ValueError, match=r"^windows\[0\]\.structure\.length\."):
        Generation.of(plain).check()


def test_a_window_of_an_inferred_length_is_not_spliced() -> None:
    (found,) = decode(inferring(), prompts=["abc"])
    for step in (0, 3, -1):
        plain = found.plain()
        splice = {"position": 0, "removed": 1, "inserted": 1, "token": 3}
        plain["windows"][0]["steps"][step]["spliced"].append(splice)
        with pytest.raises(ValueError, match=r"structure\.length is that of a window whose passes changed its length"):
            Generation.of(plain).check()


def test_analysis_has_the_posterior_of_the_length() -> None:
    (found,) = decode(inferring(), prompts=["abc"])
    for window, record in zip(
        found.windows, records_of_trace(found.windows, found.token_texts, PRIOR, max_new_tokens=30), strict=True
    ):
        assert record.length is not None and window.structure is not None and window.structure.length is not None
        assert record.posterior.length == window.length == len(record.tokens or ())
        assert record.length.probability.tolist() == list(window.structure.length.probability)


def test_views_tell_how_much_of_what_was_diagnosed_is_kept() -> None:
    (found,) = decode(inferring(length_rule="mean"), prompts=["abc"])
    view = PlainView(file := io.StringIO(), TokenTexts(lambda token: found.token_texts[token], found.end_tokens))
    for event in found.windows[0].events():
        view.observe(event)
    kept = found.windows[0].length
    assert kept < 12 and f"window 1: L = {kept}, " in file.getvalue() and "token 0: 12 masks" in file.getvalue()
    assert "of 12 diagnosed, P(L | O) = " in found.windows[0]._repr_html_()


@dataclasses.dataclass(frozen=True)
class Choosing:
    """Chooses a structure of so many tokens for a window of six, behind a pass or before any."""

    tokens: int
    late: bool = False
    inferred: bool = True
    widest: int | None = 6

    def decode(self, row: Row) -> Iterator[Pass]:
        (window,) = decode(inferring(), prompts=["abc"], tokens=12)[0].windows[:1]
        row.open_window(6)
        if self.late:
            yield Pass("resolve", 0, 6, 2)
        chosen = window.structure
        assert chosen is not None
        length = chosen.length if self.inferred else None
        row.choose_structure(dataclasses.replace(chosen, ends=(self.tokens,), order=(0,), length=length))
        yield Pass("resolve", 0, row.length, row.length)
        row.close_window(row.read_tokens())


def test_only_masks_are_dropped_and_only_by_a_length_that_was_inferred() -> None:
    model = backbone(hashed(0), weights=uneven_weights())
    for fits in (Choosing(4), Choosing(6), Choosing(6, late=True, inferred=False)):
        (found,) = generate(model, ["ab"], fits, max_new_tokens=6)
        assert len(found.tokens) == fits.tokens
    for refused in (Choosing(7), Choosing(4, late=True), Choosing(4, inferred=False)):
        with pytest.raises(UserError, match=r"^A window of 6 tokens cannot have a structure of "):
            generate(model, ["ab"], refused, max_new_tokens=6)


def test_an_inferred_length_stays_and_is_one_of_its_law() -> None:
    model = backbone(hashed(0), weights=uneven_weights())

    @dataclasses.dataclass(frozen=True)
    class Splicing(Choosing):
        widest: int | None = None

        def decode(self, row: Row) -> Iterator[Pass]:
            for request in Choosing.decode(self, row):
                yield dataclasses.replace(request, commit=None)
                row.splice(0, 0, 1)

    with pytest.raises(UserError, match=r"^Row\.splice moves tokens, and neither"):
        generate(model, ["ab"], Splicing(4), max_new_tokens=6)
    with pytest.raises(UserError, match="cannot have a structure of 2"):  # the law's shortest has three tokens
        generate(model, ["ab"], Choosing(2), max_new_tokens=6)


def test_what_says_nothing_of_a_posterior_is_refused() -> None:
    with pytest.raises(UserError, match="length_law posterior applies one of the length rules sample, mode, mean"):
        inferring(structure=fixed(Partition((3, 5))))
    assert inferring(structure="none").length_law == "posterior"
    with pytest.raises(UserError, match="Weights are fitted to windows whose lengths come from the prior"):
        windows_on_own_trajectory(backbone(hashed(0)), [], decoder=inferring())
    with pytest.raises(UserError, match=r"^length_law must be one of prior, posterior, not 'both'\.$"):
        inferring(length_law="both")
    with pytest.raises(UserError, match="Several draws take their lengths from the prior"):
        with_draw(inferring(), 1)


def test_without_cuts_the_evidence_is_of_use_for_the_length() -> None:
    for setting in ("alpha0=2.0", "edge-base-rate=removed"):
        with pytest.raises(UserError, match="has no use with --structure none"):
            named_decoder(f"dystruct:structure=none,{setting}")
        named_decoder(f"dystruct:structure=none,length-rule=mean,length-law=posterior,{setting}")
    with pytest.raises(
        UserError, match=r"^--length-law has no use with --preset fixed-windows, where windows have one"
    ):
        named_decoder("dystruct:preset=fixed-windows,length-law=posterior")
