"""The output of `lantern bench proxy`: measurements, table and plot."""

import json
import math
import platform
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from lantern_proxy.bench.numbers import without_nan
from lantern_proxy.bench.plot import Line, lines, write_section

_HEAD = (
    "gateway", "memory", "request", "at once", "added p50", "p95", "p99", "to first byte", "piece p99", "CPU ms",
    "per core and s", "RSS MB", "errors",
)  # fmt: skip
_TEXT = """## All rows

The figures are the milliseconds that a request takes longer than the same request sent to the model directly, at the
same quantile. Direct and proxied requests alternate, from one lean client, on one machine, in front of a scripted model
that answers at once.

- *Requests* are conversations that grow, as agents send them, unless the row says *unrelated*: then each is new to
  Lantern from its first byte.
- *Memory*: `off` is a path that only passes through. `on` archives the turn before its last byte is given out.
  *Restore* counts requests that got a new block.
- *Piece p99*: how much later a piece of a stream arrives than it does directly, and (in parentheses) how late it is
  directly. All streams begin at the same moment.
- *CPU* is the gateway's own, archiving included.

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """Times in milliseconds, proxied minus direct at the same quantile; first: until the first byte of the body; delay:
    from sending an event to receiving it; NaN: not measured."""

    gateway: str
    memory: str
    size_bytes: int
    growing: bool
    chunks: int
    gap_us: int
    concurrency: int
    busy: bool
    asked: int
    errors: int
    direct_ms: float
    added_p50_ms: float
    added_p95_ms: float
    added_p99_ms: float
    first_p50_ms: float
    first_p95_ms: float
    delay_p50_ms: float
    delay_p99_ms: float
    per_s: float
    per_core_s: float
    """Requests per second of the gateway's CPU time."""
    cpu_ms: float
    """CPU time of the gateway per request, including archiving; over all requests, including warm-up."""
    rss_mb: float
    direct_delay_p99_ms: float = math.nan
    """Delay of an event without a gateway, caused by the client and the model."""

    @property
    def kind(self) -> str:
        """The kind of request, for people."""
        size = f"{self.size_bytes / 1000:g} KB" if self.size_bytes < 1_000_000 else f"{self.size_bytes / 1e6:g} MB"
        answer = (
            "" if not self.chunks else ", streamed" if not self.gap_us else f", a piece every {self.gap_us / 1000:g} ms"
        )
        history = "" if self.growing else ", unrelated"
        return f"{size}{history}{answer}" + (", embedder busy" if self.busy else "")

    def line(self) -> str:
        """For a terminal, while measuring."""
        return (
            f"{self.gateway:9} {self.memory:8} {self.kind:34} x{self.concurrency:<4} n={self.asked:<6} "
            f"direct {self.direct_ms:7.2f}  added {self.added_p50_ms:7.2f} {self.added_p95_ms:7.2f} "
            f"{self.added_p99_ms:7.2f}  first {self.first_p50_ms:6.2f}  delay p99 {self.delay_p99_ms:6.2f} "
            f"(direct {self.direct_delay_p99_ms:.2f})  "
            f"{self.per_s:7.0f}/s {self.per_core_s:7.0f}/core-s {self.cpu_ms:6.2f} ms cpu {self.rss_mb:5.0f} MB"
            + (f"  {self.errors} ERRORS" if self.errors else "")
        )


def table(rows: Sequence[Row]) -> str:
    """Markdown, one line per row. Times in milliseconds."""
    lines = ["| " + " | ".join(_HEAD) + " |", "| --- | --- | --- |" + " ---: |" * (len(_HEAD) - 3)]
    measured = [row for row in rows if row.asked or row.errors]
    lines += ["| " + " | ".join(_cells(row, _ratio_to_lantern(row, rows))) + " |" for row in measured]
    return "\n".join(lines)


def _ratio_to_lantern(row: Row, rows: Sequence[Row]) -> float:
    """Ratio to Lantern's added time for the same request; NaN for Lantern itself."""
    ours = [r for r in rows if r.gateway == "lantern" and (r.kind, r.concurrency) == (row.kind, row.concurrency)]
    on = [r for r in ours if r.memory != "off"] or ours
    if row.gateway == "lantern" or not on or on[0].added_p50_ms <= 0:
        return math.nan
    return row.added_p50_ms / on[0].added_p50_ms


def _cells(row: Row, times: float) -> list[str]:
    added = _number(row.added_p50_ms) + (f" ({times:,.1f}x)" if times == times else "")
    direct = "" if math.isnan(row.direct_delay_p99_ms) else f" ({row.direct_delay_p99_ms:,.2f})"
    delay = _number(row.delay_p99_ms) + direct
    return [
        row.gateway, row.memory, row.kind, str(row.concurrency), added, _number(row.added_p95_ms),
        _number(row.added_p99_ms), _number(row.first_p50_ms), delay, _number(row.cpu_ms),
        "" if math.isnan(row.per_core_s) else f"{row.per_core_s:,.0f}",
        "" if math.isnan(row.rss_mb) else f"{row.rss_mb:,.0f}", str(row.errors),
    ]  # fmt: skip


def _number(value: float) -> str:
    return "" if math.isnan(value) else f"{value:,.2f}"


def plot(rows: Sequence[Row]) -> str:
    """SVG: added p50 over the body's size, one request at a time, one line per gateway."""
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


def merge_rows(path: Path, rows: Sequence[Row], asked_for: str) -> tuple[list[Row], list[str]]:
    """`rows` merged with those of earlier runs in `path`, replacing older ones of the same case; and all commands.

    Raises ValueError if `path` is another kind of file.
    """
    lines = path.read_text("utf-8").splitlines() if path.exists() else []
    try:
        found = [json.loads(line) for line in lines]
        commands = [each["command"] for each in found if "command" in each]
        known = [_row(each) for each in found if "gateway" in each]
    except (ValueError, TypeError) as error:
        raise ValueError(f"{path} does not hold the lines of earlier runs ({error}); name a new file") from None
    fresh = {_case_key(row) for row in rows}
    every = [*(row for row in known if _case_key(row) not in fresh), *rows]
    every.sort(key=lambda row: (row.concurrency, row.chunks, row.gap_us, row.size_bytes, not row.growing))
    commands = list(dict.fromkeys([*commands, asked_for]))
    contents = [*({"command": each} for each in commands), *(without_nan(asdict(row)) for row in every)]
    path.write_text("".join(json.dumps(each) + "\n" for each in contents), encoding="utf-8")
    return every, commands


def _row(row: dict[str, Any]) -> Row:
    values: dict[str, Any] = {name: math.nan if value is None else value for name, value in row.items()}
    return Row(**values)


def _case_key(row: Row) -> tuple[object, ...]:
    return row.gateway, row.memory, row.kind, row.concurrency


def write_report(folder: Path, rows: Sequence[Row], asked_for: Sequence[str]) -> None:
    """latency.md and latency.svg. In an existing page only the section `All rows` is replaced."""
    text, drawing = report(rows, "\n".join(asked_for))
    write_section(folder / "latency.md", "What the proxy adds", text)
    (folder / "latency.svg").write_text(drawing, encoding="utf-8")


def report(rows: Sequence[Row], asked_for: str) -> tuple[str, str]:
    """Markdown and SVG."""
    errors = sum(row.errors for row in rows)
    text = _TEXT.format(
        table=table(rows), failed=f"{errors or 'No'} request{'s' if errors != 1 else ''} failed", asked_for=asked_for,
        python=platform.python_version(), machine=platform.machine(),
    )  # fmt: skip
    return text, plot(rows)
