"""The table and the plot of `lantern bench proxy`."""

import json
import math
import platform
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from lantern_proxy.bench.numbers import without_nan
from lantern_proxy.bench.plot import Line, lines
from lantern_proxy.bench.proxy_row import Row

_HEAD = (
    "gateway", "memory", "request", "at once", "added p50", "p95", "p99", "to first byte", "piece p99", "CPU ms",
    "per core and s", "RSS MB", "errors",
)  # fmt: skip
_TEXT = """# What the proxy adds

Milliseconds that a request takes longer than the same request sent to the model directly, at the same quantile. Direct
and proxied requests take turns, from one lean client, on one machine, in front of a scripted model that answers at
once. Requests are conversations that grow, as agents send them, unless they say *unrelated*: then each is new to
Lantern from its first byte. *memory off* is a path that only passes through, *on* archives the turn before its last
byte is given out, *restore* counts requests into which a new block went. *Piece p99*: how much later a piece of a
stream is here than it is directly. CPU is the gateway's own, archiving included.

{table}

![added time over the size of the request](latency.svg)

{failed}. Python {python}, {machine}. Made by:

```bash
{asked_for}
```

"""
_COLOURS = {
    "lantern": "#d9480f", "portkey": "#1971c2", "litellm": "#2f9e44", "nginx": "#868e96", "headroom": "#7048e8",
}  # fmt: skip


def table(rows: Sequence[Row]) -> str:
    """Markdown, one line a row. Times in milliseconds."""
    lines = ["| " + " | ".join(_HEAD) + " |", "| --- | --- | --- |" + " ---: |" * (len(_HEAD) - 3)]
    told = [row for row in rows if row.asked or row.errors]
    lines += ["| " + " | ".join(_cells(row, _beside(row, rows))) + " |" for row in told]
    return "\n".join(lines)


def _beside(row: Row, rows: Sequence[Row]) -> float:
    """How many times what Lantern adds to the same request; NaN for itself."""
    ours = [r for r in rows if r.gateway == "lantern" and (r.kind, r.concurrency) == (row.kind, row.concurrency)]
    on = [r for r in ours if r.memory != "off"] or ours
    if row.gateway == "lantern" or not on or on[0].added_p50_ms <= 0:
        return math.nan
    return row.added_p50_ms / on[0].added_p50_ms


def _cells(row: Row, times: float) -> list[str]:
    added = _number(row.added_p50_ms) + (f" ({times:,.1f}x)" if times == times else "")
    return [
        row.gateway, row.memory, row.kind, str(row.concurrency), added, _number(row.added_p95_ms),
        _number(row.added_p99_ms), _number(row.first_p50_ms), _number(row.delay_p99_ms), _number(row.cpu_ms),
        "" if math.isnan(row.per_core_s) else f"{row.per_core_s:,.0f}",
        "" if math.isnan(row.rss_mb) else f"{row.rss_mb:,.0f}", str(row.errors),
    ]  # fmt: skip


def _number(value: float) -> str:
    return "" if math.isnan(value) else f"{value:,.2f}"


def plot(rows: Sequence[Row]) -> str:
    """SVG: added p50 over the body's size, one at a time, a line a gateway."""
    found: dict[str, list[tuple[float, float]]] = {}
    for row in rows:
        if row.concurrency == 1 and not row.chunks and row.growing and row.memory != "restore" and row.added_p50_ms > 0:
            name = f"{row.gateway} {row.memory}".removesuffix(" -")
            found.setdefault(name, []).append((row.size_bytes, row.added_p50_ms))
    drawn = [
        Line(name, points, _COLOURS.get(name.split()[0], "#7048e8"), dashed=name.endswith(" off"))
        for name, points in found.items()
    ]
    return lines(drawn, "body of the request", lambda size: f"{size / 1000:g} KB", "{:g} ms".format)


def merged(path: Path, rows: Sequence[Row], asked_for: str) -> tuple[list[Row], list[str]]:
    """`rows` beside those of earlier runs that `path` keeps, in place of older ones of the same; and all commands.

    Raises ValueError when `path` is another file.
    """
    lines = path.read_text("utf-8").splitlines() if path.exists() else []
    try:
        found = [json.loads(line) for line in lines]
        commands = [each["command"] for each in found if "command" in each]
        known = [_row(each) for each in found if "gateway" in each]
    except (ValueError, TypeError) as error:
        raise ValueError(f"{path} does not hold the lines of earlier runs ({error}); name a new file") from None
    fresh = {_what(row) for row in rows}
    every = [*(row for row in known if _what(row) not in fresh), *rows]
    every.sort(key=lambda row: (row.concurrency, row.chunks, row.gap_us, row.size_bytes, not row.growing))
    commands = list(dict.fromkeys([*commands, asked_for]))
    told = [*({"command": each} for each in commands), *(without_nan(asdict(row)) for row in every)]
    path.write_text("".join(json.dumps(each) + "\n" for each in told), encoding="utf-8")
    return every, commands


def _row(told: dict[str, Any]) -> Row:
    values: dict[str, Any] = {name: math.nan if value is None else value for name, value in told.items()}
    return Row(**values)


def _what(row: Row) -> tuple[object, ...]:
    return row.gateway, row.memory, row.kind, row.concurrency


def write_report(folder: Path, rows: Sequence[Row], asked_for: Sequence[str]) -> None:
    """latency.md and latency.svg; what somebody wrote below the first heading of the old page stays."""
    folder.mkdir(parents=True, exist_ok=True)
    text, drawing = report(rows, "\n".join(asked_for))
    page = folder / "latency.md"
    _, heading, below = page.read_text("utf-8").partition("\n## ") if page.exists() else ("", "", "")
    page.write_text(text.rstrip() + "\n" + heading + below, encoding="utf-8")
    (folder / "latency.svg").write_text(drawing, encoding="utf-8")


def report(rows: Sequence[Row], asked_for: str) -> tuple[str, str]:
    """Markdown and SVG."""
    errors = sum(row.errors for row in rows)
    text = _TEXT.format(
        table=table(rows), failed=f"{errors or 'No'} request{'s' if errors != 1 else ''} failed", asked_for=asked_for,
        python=platform.python_version(), machine=platform.machine(),
    )  # fmt: skip
    return text, plot(rows)
