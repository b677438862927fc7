"""The base rate of edges in the edge logits (R8): what taking it off leaves, and the setting that takes it off."""

from __future__ import annotations

import dataclasses
import json
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from command_line import SMALL, Run
from dystruct.decoding import DyStruct, Generation, UserError, generate
from dystruct.inference.calibration import CalibrationRows, DiagnosedWindow, fit_evidence
from dystruct.model import EvidenceWeights, diagnose
from scripted import backbone, hashed, uneven_weights

FAR = 0.5  # nats, the divergence of gaps of the other kind
RATED = dataclasses.replace(uneven_weights(), gap_base_rate=0.1)

pairs = st.lists(
    st.tuples(st.booleans(), st.booleans(), st.integers(1, 6)), min_size=1, max_size=12
)  # whether the gap is an edge, whether its divergence is large, and how often there is such a window


def windows_of(counts: dict[tuple[bool, bool], int]) -> list[DiagnosedWindow]:
    """Windows of one gap, `counts` of each kind (edge, far); their features say nothing, so psi is the divergence."""
    kinds = [kind for kind, count in counts.items() for _ in range(count)]
    return [
        DiagnosedWindow(number, np.zeros((2, 7)), np.array([FAR * far]), np.array([0.0, float(edge)]))
        for number, (edge, far) in enumerate(kinds)
    ]


def edge_logit(weights: EvidenceWeights, far: bool) -> float:
    return float(diagnose(torch.zeros(2, 7), [FAR * far], weights).edge_logit[0])


@settings(max_examples=30)
@given(counts=st.tuples(*[st.integers(1, 40)] * 4), again=st.integers(1, 5))
def test_without_its_base_rate_ell_is_the_ratio_of_how_often_psi_is_seen(
    counts: tuple[int, int, int, int], again: int
) -> None:
    """Counting is the oracle: with one binary feature, p(psi | edge) and p(psi | no edge) are shares of windows."""
    near_no, far_no, near_edge, far_edge = counts
    kinds = {(False, False): near_no, (False, True): far_no, (True, False): near_edge, (True, True): far_edge}
    fitted = fit_evidence(CalibrationRows.of(windows_of(kinds)), 1e-9).weights
    edges, others = near_edge + far_edge, near_no + far_no
    assert fitted.gap_base_rate == pytest.approx(edges / (edges + others))
    ratio = fitted.without_base_rate()
    assert edge_logit(fitted, far=True) == pytest.approx(math.log(far_edge / far_no), abs=1e-4)
    assert edge_logit(ratio, far=True) == pytest.approx(math.log((far_edge / edges) / (far_no / others)), abs=1e-4)
    assert edge_logit(ratio, far=False) == pytest.approx(math.log((near_edge / edges) / (near_no / others)), abs=1e-4)
    # Edges that are seen several times as often change the odds and not the ratio.
    more = {(edge, far): count * (again if edge else 1) for (edge, far), count in kinds.items()}
    oftener = fit_evidence(CalibrationRows.of(windows_of(more)), 1e-9).weights
    assert edge_logit(oftener, far=True) - edge_logit(fitted, far=True) == pytest.approx(math.log(again), abs=1e-4)
    assert edge_logit(oftener.without_base_rate(), far=True) == pytest.approx(edge_logit(ratio, far=True), abs=1e-4)


def test_a_bootstrap_resample_has_its_own_rate_and_no_intercept_holds_none() -> None:
    kinds = {(edge, far): 3 for edge in (False, True) for far in (False, True)}
    rows = CalibrationRows.of(windows_of(kinds))
    counts = np.where(np.arange(12) < 6, 1, 3)  # the last six are edges
    assert fit_evidence(rows, counts=counts).weights.gap_base_rate == pytest.approx(0.75)
    assert fit_evidence(rows, intercept=False).weights.gap_base_rate is None


@given(
    rate=st.floats(1e-6, 1 - 1e-6),
    phi=st.lists(st.lists(st.floats(-5, 5), min_size=7, max_size=7), min_size=2, max_size=6),
)
def test_taking_it_off_adds_one_number_to_every_ell_and_changes_nothing_else(
    rate: float, phi: list[list[float]]
) -> None:
    weights = dataclasses.replace(uneven_weights(), gap_base_rate=rate)
    divergence = [0.1] * (len(phi) - 1)
    before, after = (diagnose(phi, divergence, there) for there in (weights, weights.without_base_rate()))
    shift = after.edge_logit - before.edge_logit
    torch.testing.assert_close(shift, torch.full_like(shift, math.log((1 - rate) / rate)), rtol=0, atol=1e-9)
    assert torch.equal(after.instability, before.instability)
    assert weights.without_base_rate().position_intercept == weights.position_intercept


def test_it_cannot_be_taken_off_twice_or_where_there_is_none() -> None:
    for weights in (RATED.without_base_rate(), EvidenceWeights.neutral()):
        with pytest.raises(ValueError, match="no base rate"):
            weights.without_base_rate()
    for rate in (0, 1, -0.5, float("nan")):
        with pytest.raises(ValueError, match="gap_base_rate must lie between 0 and 1"):
            dataclasses.replace(RATED, gap_base_rate=rate)


# --- the decoder's setting --------------------------------------------------------------------------------------------


def decoded(decoder: DyStruct, weights: EvidenceWeights = RATED) -> Generation:
    model = backbone(hashed(4), weights=weights)
    [generation] = generate(model, ["abc"], decoder, max_new_tokens=40, budget=400)
    return generation


def test_removed_is_decoding_with_the_weights_that_lack_it() -> None:
    for structure in ("map", "sample"):
        removed = decoded(DyStruct(structure=structure, edge_base_rate="removed"))
        other = decoded(DyStruct(structure=structure), RATED.without_base_rate())
        given = decoded(
            DyStruct(structure=structure, edge_base_rate="removed", weights=RATED), uneven_weights()
        )  # fmt: skip
        assert removed.windows == other.windows == given.windows
    kept, removed = (decoded(DyStruct(edge_base_rate=rate)) for rate in ("kept", "removed"))
    first, shifted = (there.windows[0].structure for there in (kept, removed))
    assert first is not None and shifted is not None
    np.testing.assert_allclose(np.subtract(shifted.edge_logit, first.edge_logit), math.log(9))
    assert np.all(np.array(shifted.cut_marginals) > np.array(first.cut_marginals))
    assert decoded(DyStruct()).windows == kept.windows


def test_a_wrong_name_and_weights_without_a_rate_are_one_sentence() -> None:
    with pytest.raises(UserError, match=r"^edge_base_rate must be one of kept, removed, not 'gone'\.$"):
        DyStruct(edge_base_rate="gone")
    with pytest.raises(UserError, match=r"^The base rate cannot be removed.*no base rate.*`dystruct calibrate`.*\.$"):
        decoded(DyStruct(edge_base_rate="removed"), uneven_weights())


def test_on_the_command_line(run: Run) -> None:
    made = run("compare", "abc", *SMALL, "--json", "--decoder", "dystruct:edge_base_rate=kept")
    assert made.status == 0, made.err
    assert json.loads(made.out)["settings"]["edge_base_rate"] == "kept"
    run("generate", "abc", "--edge-base-rate", "gone").refused("--edge-base-rate must be one of kept, removed")
    run("compare", "abc", "--decoder", "dystruct:edge-base-rate=gone").refused("kept, removed, not 'gone'")
    run("generate", "abc", "--structure", "none", "--edge-base-rate", "kept").refused("--edge-base-rate", "no use")
    run("generate", "abc", *SMALL, "--edge-base-rate", "removed").refused("no base rate", "dystruct calibrate")
