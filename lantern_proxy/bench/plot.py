"""Small SVG plots (bars with intervals, lines over sizes), tables, and a page section, for all benches."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

COLOURS = ("#868e96", "#1971c2", "#2f9e44", "#d9480f", "#7048e8", "#c2255c", "#0b7285", "#e67700", "#495057", "#5f3dc4")
_WIDE, _BAR, _HIGH, _LEFT, _TOP = 22, 16, 240, 46, 16


def bars(rows: Sequence[Mapping[str, Any]], metrics: Sequence[str]) -> str:
    """One group of bars per metric, one bar per pipeline; the whiskers are 95 % intervals.

    rows: as printed by `lantern bench ... --json`; metrics: dotted, "turn.mrr"
    """
    group = _WIDE * len(rows) + 28
    right = _LEFT + group * len(metrics)
    wide = right + 110
    parts = [_sheet(wide, _HIGH + 56)]
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


@dataclass(frozen=True, slots=True)
class Line:
    """points: (x, y), all above zero"""

    name: str
    points: Sequence[tuple[float, float]]
    colour: str
    dashed: bool = False


def lines(drawn: Sequence[Line], x_label: str, x_tick: Callable[[float], str], y_tick: Callable[[float], str]) -> str:
    """Lines with dots, both axes logarithmic; a tick at every x value and at the powers of ten of y."""
    wide, high, left, top = 560, 320, 70, 20
    xs, ys = {x for line in drawn for x, _ in line.points}, [math.log10(y) for line in drawn for _, y in line.points]
    parts = [_sheet(left + wide + 130, high + 70)]
    if not ys:
        return parts[0] + "</svg>\n"
    first, span = math.log10(min(xs)), max(math.log10(max(xs) / min(xs)), 0.5)
    low, above = math.floor(min(ys)), max(math.ceil(max(ys)), math.floor(min(ys)) + 1)

    def at(x: float, y: float) -> tuple[float, float]:
        right, up = (math.log10(x) - first) / span, (math.log10(y) - low) / (above - low)
        return left + right * wide, top + (1 - up) * high

    for power in range(low, above + 1):
        _, y = at(min(xs), 10.0**power)
        parts.append(f'<path d="M{left} {y:.0f}h{wide}" stroke="#dee2e6"/><text x="{left - 8}" y="{y + 4:.0f}" ')
        parts.append(f'text-anchor="end">{y_tick(10.0**power)}</text>')
    for tick in sorted(xs):
        x, _ = at(tick, 10.0**low)
        parts.append(f'<text x="{x:.0f}" y="{top + high + 20}" text-anchor="middle">{x_tick(tick)}</text>')
    parts.append(f'<text x="{left + wide / 2}" y="{top + high + 42}" text-anchor="middle">{x_label}</text>')
    for line in drawn:
        places = [at(*point) for point in sorted(line.points)]
        joined = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        dash = ' stroke-dasharray="5 4"' if line.dashed else ""
        parts.append(f'<polyline points="{joined}" fill="none" stroke="{line.colour}" stroke-width="2"{dash}/>')
        parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{line.colour}"/>' for x, y in places]
        x, y = places[-1]
        parts.append(f'<text x="{x + 8:.0f}" y="{y + 4:.0f}" fill="{line.colour}">{line.name}</text>')
    return "".join(parts) + "</svg>\n"


def _sheet(wide: float, high: float) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide} {high}" font-family="sans-serif" '
        'font-size="12"><rect width="100%" height="100%" fill="white"/>'
    )


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
    """Markdown: one line per pipeline, one column per metric, then milliseconds."""
    lines = ["| pipeline | " + " | ".join(metrics) + " | CPU ms |", "| --- |" + " ---: |" * (len(metrics) + 1)]
    for row in rows:
        cells = [f"{_of(row, metric):.3f}" for metric in metrics]
        lines.append(f"| {row['pipeline']} | " + " | ".join(cells) + f" | {row['ms_per_query']:.2f} |")
    return "\n".join(lines)


def write_section(page: Path, title: str, section: str) -> None:
    """Replace the page's section with the same `## heading` as `section`, or append it. The rest of the page stays.

    title: of a new page
    """
    heading = section.partition("\n")[0]
    old = page.read_text("utf-8") if page.exists() else f"# {title}\n"
    above, _, rest = old.partition(f"\n{heading}\n")
    _, following, below = rest.partition("\n## ")
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text(f"{above.rstrip()}\n\n{section.rstrip()}\n{following}{below}", "utf-8")
