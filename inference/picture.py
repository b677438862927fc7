"""The small picture of a posterior that a notebook shows: a ribbon of blocks with cut marginals under it.

Knows drawing only: numbers in, one SVG element out, in the colours of whatever page holds it.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from dystruct.model import Partition

_TOKEN, _RIBBON, _BARS = 14, 22, 40  # width of a token, heights of the ribbon and of the bars: pixels
_HUES = ("#4c78a8", "#f2a14a")  # neighbouring blocks alternate


def posterior_picture(
    partition: Partition, cut_marginals: Sequence[float], instability: Sequence[float], caption: str
) -> str:
    """SVG of a partition of L tokens, instabilities (L,) as its tokens' opacity and cut marginals (L-1,) as bars.

    A bar stands under its gap; the dotted line is probability 1/2.
    """
    width, base = partition.length * _TOKEN, _RIBBON + _BARS + 6
    shapes: list[str] = []
    for index, (start, end) in enumerate(partition.blocks):
        shapes.extend(
            f'<rect x="{position * _TOKEN}" y="0" width="{_TOKEN}" height="{_RIBBON}" fill="{_HUES[index % 2]}" '
            f'fill-opacity="{0.35 + 0.65 * instability[position]:.2f}"><title>position {position}: instability '
            f"{instability[position]:.3f}</title></rect>"
            for position in range(start, end)
        )
        shapes.append(
            f'<rect x="{start * _TOKEN + 0.5}" y="0.5" width="{(end - start) * _TOKEN - 1}" height="{_RIBBON - 1}" '
            'fill="none" stroke="currentColor"/>'
        )
    for gap, probability in enumerate(cut_marginals):
        height = _BARS * probability
        shapes.append(
            f'<rect x="{(gap + 1) * _TOKEN - 3}" y="{base - height:.1f}" width="6" height="{height:.1f}" '
            f'fill="currentColor"><title>gap {gap}: cut with probability {probability:.3f}</title></rect>'
        )
    half = base - _BARS / 2
    shapes.append(f'<path d="M0 {half}H{width}" stroke="currentColor" stroke-opacity="0.5" stroke-dasharray="1 3"/>')
    shapes.append(f'<path d="M0 {base}H{width}" stroke="currentColor"/>')
    return (
        f'<figure style="margin:0"><svg width="{width}" height="{base + 1}" role="img">'
        f"{''.join(shapes)}</svg><figcaption><small>{escape(caption)}</small></figcaption></figure>"
    )
