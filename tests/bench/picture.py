"""The figures of a report as a picture: horizontal bars on a logarithmic scale, readable on light and on dark.

The picture has a ground of its own: a page may be light where the reader's system is dark, as one with a switch is.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final
from xml.sax.saxutils import escape

from tests.bench.report import Latency

__all__ = ["bars"]

WIDTH: Final = 760
NAMES_WIDTH: Final = 230
FIGURES_WIDTH: Final = 140
ROW: Final = 24
TOP: Final = 44
PADDING: Final = 14
STYLE: Final = """
.ground { fill: #ffffff }
text { font: 13px system-ui, sans-serif; fill: #1f2328 }
.faint { fill: #59636e; font-size: 11px }
.grid { stroke: #d1d9e0 }
.bar { fill: #8c959f }
.ours { fill: #0969da }
.tail { stroke: #59636e }
@media (prefers-color-scheme: dark) {
  .ground { fill: #0d1117 }
  text { fill: #f0f6fc }
  .faint { fill: #9198a1 }
  .grid { stroke: #3d444d }
  .bar { fill: #656c76 }
  .ours { fill: #4493f8 }
  .tail { stroke: #9198a1 }
}
"""


def bars(title: str, latencies: Mapping[str, Latency]) -> str:
    """Return the SVG of the medians, the fastest first, with a line from each median to its 99th percentile."""
    ordered = sorted(latencies.items(), key=lambda item: item[1].p50)
    least = 10 ** math.floor(math.log10(min(latency.p50 for _, latency in ordered)))
    most = 10 ** math.ceil(math.log10(max(latency.p99 for _, latency in ordered) * 1.0001))
    span = WIDTH - NAMES_WIDTH - FIGURES_WIDTH
    bottom = TOP + ROW * len(ordered)
    width, height = WIDTH + 2 * PADDING, bottom + 28 + 2 * PADDING

    def x(milliseconds: float) -> float:
        return NAMES_WIDTH + span * math.log10(milliseconds / least) / math.log10(most / least)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{-PADDING} {-PADDING} {width} {height}" role="img">',
        f"<title>{escape(title)}</title><style>{STYLE}</style>",
        f'<rect class="ground" x="{-PADDING}" y="{-PADDING}" width="{width}" height="{height}" rx="8"/>',
        f'<text x="0" y="18">{escape(title)}</text>',
    ]
    mark = least
    while mark <= most * 1.0001:
        parts.append(
            f'<line class="grid" x1="{x(mark):.1f}" x2="{x(mark):.1f}" y1="{TOP - 10}" y2="{bottom}"/>'
        )
        parts.append(
            f'<text class="faint" x="{x(mark):.1f}" y="{bottom + 16}" text-anchor="middle">{mark:g} ms</text>'
        )
        mark *= 10
    for row, (name, latency) in enumerate(ordered):
        y = TOP + ROW * row
        kind = "ours" if name.lower().startswith("toolcell") else "bar"
        parts.append(f'<text x="{NAMES_WIDTH - 10}" y="{y + 12}" text-anchor="end">{escape(name)}</text>')
        parts.append(
            f'<rect class="{kind}" x="{NAMES_WIDTH}" y="{y + 1}" width="{x(latency.p50) - NAMES_WIDTH:.1f}" height="{ROW - 9}" rx="2"/>'
        )
        parts.append(
            f'<line class="tail" x1="{x(latency.p50):.1f}" x2="{x(latency.p99):.1f}" y1="{y + 8.5}" y2="{y + 8.5}"/>'
        )
        parts.append(
            f'<text class="faint" x="{WIDTH - FIGURES_WIDTH + 14}" y="{y + 12}">{latency.p50:.2f}, p99 {latency.p99:.2f}</text>'
        )
    return "\n".join([*parts, "</svg>", ""])
