"""Figures of several pipelines as bars with their intervals: one small SVG."""

from collections.abc import Mapping, Sequence
from typing import Any

COLOURS = ("#868e96", "#1971c2", "#2f9e44", "#d9480f", "#7048e8", "#c2255c", "#0b7285", "#e67700", "#495057", "#5f3dc4")
_WIDE, _BAR, _HIGH, _LEFT, _TOP = 22, 16, 240, 46, 16


def bars(rows: Sequence[Mapping[str, Any]], metrics: Sequence[str]) -> str:
    """A group of bars a metric, a bar a pipeline; the whiskers are 95 % intervals.

    rows: as `lantern bench ... --json` tells them; metrics: dotted, "turn.mrr"
    """
    group = _WIDE * len(rows) + 28
    right = _LEFT + group * len(metrics)
    wide = right + 110
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide} {_HIGH + 56}" font-family="sans-serif" '
        'font-size="12"><rect width="100%" height="100%" fill="white"/>'
    ]
    for tenth in range(0, 11, 2):
        y = _y(tenth / 10)
        parts.append(f'<path d="M{_LEFT} {y:.0f}H{right}" stroke="#dee2e6"/>')
        parts.append(f'<text x="{_LEFT - 8}" y="{y + 4:.0f}" text-anchor="end">{tenth / 10:.1f}</text>')
    for place, metric in enumerate(metrics):
        left = _LEFT + place * group + 14
        for n, row in enumerate(rows):
            parts.append(_bar(left + n * _WIDE, _of(row, metric), _of(row["ci"], metric), COLOURS[n % len(COLOURS)]))
        middle = left + (group - 28) / 2
        parts.append(f'<text x="{middle:.0f}" y="{_TOP + _HIGH + 20}" text-anchor="middle">{metric}</text>')
    for n, row in enumerate(rows):
        y = _TOP + 14 + 18 * n
        parts.append(f'<rect x="{right + 8}" y="{y - 9}" width="10" height="10" fill="{COLOURS[n % len(COLOURS)]}"/>')
        parts.append(f'<text x="{right + 24}" y="{y}">{row["pipeline"]}</text>')
    return "".join(parts) + "</svg>\n"


def _bar(x: float, value: float, interval: Sequence[float], colour: str) -> str:
    low, high, middle = _y(interval[0]), _y(interval[1]), x + _BAR / 2
    return (
        f'<rect x="{x}" y="{_y(value):.1f}" width="{_BAR}" height="{_HIGH * value:.1f}" fill="{colour}"/>'
        f'<path d="M{middle} {low:.1f}V{high:.1f}" stroke="black"/>'
    )


def _y(value: float) -> float:
    return _TOP + _HIGH * (1 - value)


def _of(tree: Mapping[str, Any], metric: str) -> Any:
    for name in metric.split("."):
        tree = tree[name]
    return tree


def table(rows: Sequence[Mapping[str, Any]], metrics: Sequence[str]) -> str:
    """Markdown: a line a pipeline, a column a metric, then milliseconds."""
    lines = ["| pipeline | " + " | ".join(metrics) + " | CPU ms |", "| --- |" + " ---: |" * (len(metrics) + 1)]
    for row in rows:
        cells = [f"{_of(row, metric):.3f}" for metric in metrics]
        lines.append(f"| {row['pipeline']} | " + " | ".join(cells) + f" | {row['ms_per_query']:.2f} |")
    return "\n".join(lines)
