"""The options of the decoder: their names, what they mean, their defaults and equations.

One is None unless it was given, so that one which the chosen decoder has no use for is an error and never silently
ignored; `named` says which setting of the decoder each one is, and makes the decoder. The rivals have more of them, in
`rival_options`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from .options import make_option
from .signatures import OptionGroup

_STRUCTURE = "Decoder and structure"

Decoder = Annotated[
    str,
    make_option(
        _STRUCTURE,
        "--decoder",
        "dystruct; or block, windows of one length and no structure; or a rival, listed by `dystruct decoders`. "
        "Settings may follow, those that have no option among them: NAME:SETTING=VALUE,… Default {default}.",
        metavar="NAME",
    ),
]
Preset = Annotated[
    str | None,
    make_option(
        _STRUCTURE,
        "--preset",
        "paper; appendix, the same with r_weld 4; an ablation: no-schedule, no-weld, no-schedule-no-weld, "
        "fixed-windows or one-block; or quick, short windows and a threshold, in fewer passes. Default paper. "
        "With a rival: faithful, as the original with all its oddities.",
        metavar="NAME",
    ),
]
Structure = Annotated[
    str | None,
    make_option(
        _STRUCTURE,
        "--structure",
        "Partition and order of a window. map: the most probable; sample: a draw from the posterior; consensus: the "
        "partition that agrees best with all others; none: one block; shuffled: a draw whose blocks keep their "
        "sizes and lose their places, as a control. "
        "p(P | O) ∝ prod_g prior(b_g) q_g^b_g (1 - q_g)^(1 - b_g). Default map.",
        metavar="RULE",
    ),
]
LengthRule = Annotated[
    str | None,
    make_option(
        _STRUCTURE,
        "--length-rule",
        "How L ~ Poisson(mu) clipped to 8..48, mu = 8 + (1 - hbar)(48 - 8), gives a window's length: sample, mode or "
        "mean. Default: what suits --structure (map, consensus: mode; sample, shuffled: sample; none: mean).",
        metavar="RULE",
    ),
]
LengthLaw = Annotated[
    str | None,
    make_option(
        _STRUCTURE,
        "--length-law",
        "What --length-rule is applied to. prior: Poisson(mu), before the window is seen; posterior: p(L | O) ∝ "
        "p(L) Z_L 2^(L-1), from diagnostic passes on the longest window, which then keeps L tokens. Default prior.",
        metavar="LAW",
    ),
]
Alpha0 = Annotated[
    float | None,
    make_option(
        _STRUCTURE,
        "--alpha0",
        "Concentration alpha0 > 0, larger cuts more: alpha_g = alpha0 exp(hbar + ell_g - mean ell). Default 1.5.",
        metavar="X",
    ),
]
EdgeBaseRate = Annotated[
    str | None,
    make_option(
        _STRUCTURE,
        "--edge-base-rate",
        "Whether edge logits keep the base rate r of edges in what they were fitted on. kept: ell as fitted, log odds; "
        "removed: ell - logit r, log likelihood ratios, which cut more. Default kept.",
        metavar="RULE",
    ),
]
Gamma = Annotated[
    float | None,
    make_option(
        _STRUCTURE,
        "--gamma",
        "Weight of a block's anchoring in its priority: rho(B) = -H(B) + gamma C(B). Default 2.",
        metavar="X",
    ),
]
Schedule = Annotated[
    str | None,
    make_option(
        _STRUCTURE,
        "--schedule",
        "Order of a window's blocks. priority: that of --structure, drawn by sample and shuffled; sorted: by falling "
        "priority, under any of them; left-to-right. Default priority.",
        metavar="RULE",
    ),
]
Passes = Annotated[
    str | None,
    make_option(
        _STRUCTURE,
        "--passes",
        "Passes of a block. interpolate: T(B) = 6 + H(B)(18 - 6); share: T(B) = |B| (budget / max-new-tokens) "
        "H(B) / mean H. Default interpolate. With --decoder block a number; default one a token.",
        metavar="RULE",
    ),
]
WeldRule = Annotated[
    str | None,
    make_option(
        _STRUCTURE,
        "--weld",
        "Welding of the boundaries of blocks: sequential, from left to right; joint, all of a window at once; off. "
        "Default sequential.",
        metavar="RULE",
    ),
]
WeldRadius = Annotated[
    int | None,
    make_option(
        _STRUCTURE,
        "--r-weld",
        "Radius r of welding, in tokens: at the boundary b of blocks a..b and b..c the tokens from max(a, b - r) to "
        "min(c, b + r) are refined. Default 10.",
        min=1,
        metavar="N",
    ),
]
BlockLength = Annotated[
    int | None,
    make_option(
        _STRUCTURE,
        "--block-length",
        "With --decoder block: a window's tokens. Default 8. With a rival: a block's.",
        min=1,
        metavar="N",
    ),
]


@dataclass(frozen=True)
class DecoderOptions(OptionGroup):
    """The settings of DyStruct and of Block."""

    structure: Structure = None
    length_rule: LengthRule = None
    length_law: LengthLaw = None
    alpha0: Alpha0 = None
    edge_base_rate: EdgeBaseRate = None
    gamma: Gamma = None
    schedule: Schedule = None
    passes: Passes = None
    weld: WeldRule = None
    r_weld: WeldRadius = None
    block_length: BlockLength = None

    def given(self) -> dict[str, Any]:
        """Those that were given, by option."""
        return {f"--{name.replace('_', '-')}": value for name, value in vars(self).items() if value is not None}
