"""What the results say of each reading, in sentences: the questions, the answers with n, and what measures them.

An answer goes by its 95% interval: above, below, or no difference measured where the interval holds what would be no
effect; right answers go by McNemar's exact test, since few of them differ. So the words change with the results, as the
tables do. Knows no records and no model.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from .cells import Estimate, estimated, percent

WINDOWS = "windows"
CHANCE = 0.5  # the AUROC of a score that says nothing
SIGNIFICANT = 0.05


def answers(results: dict[str, Any]) -> str:
    """A paragraph a question that these results answer; empty without results."""
    parts = [*_from_windows(results.get("windows")), *_from_decodings(results)]
    paragraphs = [f"**{question}** {' '.join(said)} (`{command}`)\n\n" for question, said, command in parts if said]
    if not paragraphs:
        return ""
    return "### In words\n\nBehind each answer stands the command that measured it.\n\n" + "".join(paragraphs)


_Answer = tuple[str, list[str], str]


# --- windows ----------------------------------------------------------------------------------------------------------


def _from_windows(found: dict[str, Any] | None) -> Iterator[_Answer]:
    if found is None:
        return
    yield "R3: does hbar move the length of windows, and does that help?", _carried(found), WINDOWS
    yield "R4: how many diagnostic passes?", _passes(found), WINDOWS
    yield "R5: which passes' distributions?", _divergences(found), WINDOWS
    yield "R6: a shown position's prediction, carried over or at face value?", _face_value(found), WINDOWS
    yield "R8: an intercept in w_b?", _intercept(found), WINDOWS
    yield "R8: which gap target?", _target(found), WINDOWS
    yield "R8: does ell say where joint commits go wrong?", _joint_commits(found), WINDOWS
    yield "How many blocks has a window?", _blocks(found), WINDOWS
    yield "Which alpha0 does the evidence ask for?", _learned(found), WINDOWS
    yield "Which setting puts cuts where joint commits go wrong?", _helping(found), WINDOWS


def _carried(found: dict[str, Any]) -> list[str]:
    rule = {row["rule"]: row for row in found["R3 carried"]}
    ours, literal = rule["calibrated"], rule["centred"]
    payoff = found["R3 payoff"]
    shorter = {}
    for kind in ("stable", "unstable"):
        apart = payoff[f"{kind}, short"]["wrong"]["value"] - payoff[f"{kind}, long"]["wrong"]["value"]
        shorter[kind] = f"{abs(apart):.3f} {'above' if apart > 0 else 'below'}"
    return [
        f"The calibrated one gives mu = {ours['rate']:.1f} ± {ours['rate_spread']:.1f} tokens (standard deviation over "
        f"n = {ours['windows']} windows), the centred one {literal['rate']:.1f} ± {literal['rate_spread']:.1f}.",
        f"As a sign of a window with many wrong tokens the calibrated one has AUROC {estimated(ours['here'])}, "
        f"{_against(ours['here'], CHANCE, 'better than chance', 'worse than chance', 'not told from chance')}; for the "
        f"window that follows {estimated(ours['next'])}, "
        f"{_against(ours['next'], CHANCE, 'better than chance', 'worse than chance', 'not told from chance')}.",
        f"Does it pay to shorten the window after an unstable one? There the share of wrong tokens in short windows is "
        f"{shorter['unstable']} that in long ones, after a stable one {shorter['stable']} it: "
        f"shortening saves {estimated(payoff['payoff'], sign=True)} more after an unstable one, "
        f"{_against(payoff['payoff'], 0, 'so it pays', 'so it costs', 'no difference measured')}.",
    ]


def _passes(found: dict[str, Any]) -> list[str]:
    rows = {row["reading"]: row for row in found["R4 R6"]}
    said = [
        f"K = {k}: {estimated(rows[f'K = {k}']['above'], sign=True)}, {_than(rows[f'K = {k}']['above'])}."
        for k in (2, 8)
    ]
    n = rows["K = 4"]["positions"]
    base = estimated(rows["K = 4"]["refitted"])
    return [f"AUROC for errors of decoding at K = 4: {base}, n = {n} positions; differences to it:", *said]


def _divergences(found: dict[str, Any]) -> list[str]:
    return [
        f"For `{row['target']}` (n = {row['gaps']} gaps) {row['passes']} instead of first: AUROC of ell "
        f"{estimated(row['above'], sign=True)}, {_than(row['above'])}."
        for row in found["R5"]
        if row["passes"] != "first"
    ]


def _face_value(found: dict[str, Any]) -> list[str]:
    row = next(row for row in found["R4 R6"] if row["reading"] == "K = 4 face-value")
    return [
        f"At face value, AUROC for errors of decoding {estimated(row['above'], sign=True)} (n = {row['positions']} "
        f"positions), {_than(row['above'])}."
    ]


def _intercept(found: dict[str, Any]) -> list[str]:
    said = []
    for row, without in zip(found["R8 targets"][::2], found["R8 targets"][1::2], strict=True):
        name = row["fitted_on"]
        said.append(
            f"`{name}` (n = {row['gaps']}): AUROC of ell for its own target {estimated(row['auroc'][name])} with, "
            f"{estimated(without['auroc'][name])} without."
        )
    return said


def _target(found: dict[str, Any]) -> list[str]:
    listed = "; ".join(
        f"`{row['fitted_on']}` (n = {row['gaps']}): {estimated(row['auroc']['wrong together'])}, "
        f"{_against(row['auroc']['wrong together'], CHANCE, 'above chance', 'below chance', 'not told from chance')}"
        for row in found["R8 targets"]
        if row["intercept"]
    )
    return [f"AUROC for `wrong together` of ell by what it is fitted on: {listed}."]


def _joint_commits(found: dict[str, Any]) -> list[str]:
    row = found["R8 joint commits"][0]
    rate = row["rates"]["wrong_together"]
    said = [f"Of n = {row['pairs']} neighbours {estimated(rate)} are wrong only together."]
    if "auroc" in row:
        ell, rival = row["auroc"]["ell"], row["auroc"]["less confident"]
        said.append(
            f"AUROC of ell for these {estimated(ell)}: {_against(ell, CHANCE, 'yes', 'the wrong way', 'no')}. "
            f"The less confident prediction of the two has {estimated(rival)}."
        )
    return said


def _blocks(found: dict[str, Any]) -> list[str]:
    said = []
    for grid in found["blocks"]:
        if grid["target"] == "errors differ":
            rows = [row for row in grid["settings"] if row["sharpness"] == 1]
            listed = "; ".join(
                f"{row['concentration']:g}: {row['map']['mean']:.1f} ({percent(row['map']['shares'][0])} one block), "
                f"{row['sampled']['mean']:.1f}"
                for row in rows
            )
            form = {"odds": "kept", "ratio": "removed"}[grid["form"]]
            said.append(f"Base rate {form}, by alpha0, MAP and sampled: {listed}.")
    return [f"n = {found['windows']} windows, ell as fitted.", *said]


def _learned(found: dict[str, Any]) -> list[str]:
    said = []
    for row in found["learned"]:
        if row["target"] == "errors differ" and row["learned"] == "alpha0":
            form = {"odds": "kept", "ratio": "removed"}[row["form"]]
            where = "at the bound of the search: none" if row["at_bound"] else "within the search"
            said.append(
                f"Base rate {form}: alpha0 = {row['concentration']:.2g}, {where}; {row['map']['mean']:.2f} blocks by "
                f"MAP, {row['sampled']['mean']:.1f} sampled (n = {row['windows']})."
            )
    return said


def _helping(found: dict[str, Any]) -> list[str]:
    rows = [row | {"target": g["target"], "form": g["form"]} for g in found["blocks"] for row in g["settings"]]
    better = [row for row in rows if (row["help"]["low"] or 0) > 0]
    worse = [row for row in rows if (row["help"]["high"] or 0) < 0]
    said = [
        f"Of {len(rows)} settings (target, base rate, alpha0, sharpness; n = {rows[0]['pairs']} pairs) help is above "
        f"0 for {len(better)} and below 0 for {len(worse)}; chance alone would give about {len(rows) / 40:.0f} each."
    ]
    best = max(rows, key=lambda row: row["help"]["low"] if row["help"]["low"] is not None else -1.0)
    name = f"`{best['target']}, {best['form']}`, alpha0 = {best['concentration']:g}, s = {best['sharpness']:g}"
    said.append(f"The best by the lower end of its interval is {name}: {estimated(best['help'], sign=True)}.")
    return said


# --- decodings --------------------------------------------------------------------------------------------------------

_COMPARED = {
    "R2: which length rule?": ("R2", ("length mode", "length sampled")),
    "R3: does the calibrated hbar help decoding?": ("R3", ("hbar centred", "windows of 28")),
    "R4: does K matter to decoding?": ("R4", ("K=2", "K=8")),
    "R8: does taking the base rate off help decoding?": ("R8", ("base rate removed", "base rate removed, MAP")),
    "R9: does the order matter?": ("R9", ("left to right", "likeliest order", "C dynamic")),
    "R11: what do the paper's own T(B) give?": ("R11", ("T(B) interpolated",)),
    "R13: how to weld?": ("R13", ("radius 4", "joint", "no weld")),
    "Do cuts help decoding?": ("partition", ("one block", "MAP", "consensus", "shuffled")),
}


def _from_decodings(results: dict[str, Any]) -> Iterator[_Answer]:
    for question, (group, variants) in _COMPARED.items():
        for study in ("along", "free"):
            for name, found in sorted(results.get(study, {}).items()):
                if "chosen" not in name:
                    rows = {row["variant"]: row for row in found["rows"] if row["domain"] is None}
                    said = [_compared(rows[variant]) for variant in variants if variant in rows]
                    what = "single windows" if study == "along" else "whole problems"
                    if said:
                        said.insert(0, f"Against the base, {what} at {name}:")
                    yield question, said, f"decode --{study} --groups {group}"


def _compared(row: dict[str, Any]) -> str:
    right, p = row["right_difference"], row["mcnemar"]["p"]
    word = _than(right) if p < SIGNIFICANT else "no difference measured"
    said = f"{row['variant']} {estimated(right, sign=True)} right (n = {row['problems']}, p = {p:.2g}), {word}"
    if "wrong_share_difference" in row:
        wrong = row["wrong_share_difference"]
        said += f", wrong tokens {estimated(wrong, sign=True)}, {_against(wrong, 0, 'more', 'fewer', 'no difference')}"
    return said + "."


# --- words ------------------------------------------------------------------------------------------------------------


def _than(difference: Estimate) -> str:
    return _against(difference, 0, "better", "worse", "no difference measured")


def _against(estimate: Estimate, null: float, above: str, below: str, neither: str) -> str:
    """The word for an interval that lies above, below or about a value."""
    low, high = estimate["low"], estimate["high"]
    if low is None or high is None:
        return neither
    return above if low > null else below if high < null else neither
