"""The output of `lantern bench bm25`: tables, a plot, a page, and a file that gathers results."""

import json
import platform
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import click

from lantern_proxy import bm25
from lantern_proxy.bench import bm25_ours
from lantern_proxy.bench.bm25_peers import PEERS
from lantern_proxy.bench.numbers import without_nan
from lantern_proxy.bench.plot import COLOURS, Line, lines, write_section

STATES = {
    "in turn": "Twenty questions go to one engine, then to the next: each finds what others left of the caches.",
    "hot": "Each question is asked four times in a row, and the last three are counted.",
    "cold": "Before each question 64 MB of other memory are written over.",
}
"""The states in which an engine is measured, in this order."""


@dataclass(frozen=True, slots=True)
class Measured:
    """One engine at one size in one state. Times in microseconds a query; ratio: its median over ours; build_us: a
    record."""

    engine: str
    release: str
    records: int
    median_us: float
    p99_us: float
    ratio: float
    build_us: float
    queries: int
    same: float
    """Share of our best 100 scores that it returns as well, to 1e-4; NaN if its scores have another meaning."""
    state: str = "in turn"
    """Of STATES."""

    def line(self) -> str:
        """For people, while measuring."""
        times = f"{self.median_us:>10,.1f} us ({self.ratio:,.1f}x), p99 {self.p99_us:,.0f}"
        return f"{self.records:>9,} records  {self.state:8} {self.engine:12} {times}"


@dataclass(slots=True)
class Figures:
    """The results of one command, or of several together."""

    peers: list[Measured] = field(default_factory=list)
    alone: list[bm25_ours.AloneFigures] = field(default_factory=list)
    commands: list[str] = field(default_factory=list)


def tables(rows: Sequence[Measured]) -> str:
    """Markdown: one table per state, under its description."""
    found = {state: [row for row in rows if row.state == state] for state in STATES}
    return "\n\n".join(
        f"{state.capitalize()}. {STATES[state]}\n\n{table(found[state])}" for state in STATES if found[state]
    )


def table(rows: Sequence[Measured]) -> str:
    """Of one state: one line per engine, one column per size."""
    sizes = sorted({row.records for row in rows})
    found = {(row.engine, row.records): row for row in rows}
    lines = ["| engine | " + " | ".join(f"{n:,}" for n in sizes) + " |", "| --- |" + " ---: |" * len(sizes)]
    for engine in dict.fromkeys(row.engine for row in rows):
        cells = [cell(found.get((engine, n))) for n in sizes]
        name = " ".join((engine, next(row.release for row in rows if row.engine == engine))).strip()
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def cell(row: Measured | None) -> str:
    if row is None:
        return ""
    return f"{row.median_us:,.1f}" + (
        f" ({row.ratio:,.1f}x)" if row.engine != "lantern" else f", p99 {row.p99_us:,.0f}"
    )


def plot(rows: Sequence[Measured]) -> str:
    """SVG: median microseconds in turn over records, one line per engine."""
    rows = [row for row in rows if row.state == "in turn"]
    colours = dict(zip(dict.fromkeys(row.engine for row in rows), COLOURS[3:] + COLOURS[:3], strict=False))
    drawn = [
        Line(engine, [(row.records, row.median_us) for row in rows if row.engine == engine], colour)
        for engine, colour in colours.items()
    ]
    return lines(drawn, "records", "{:,}".format, "{:,.0f} us".format)


def cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def report(found: Figures, what: str) -> str:
    """The section of the page. what: a paragraph on the records and queries."""
    made_by = "\n".join(f"    {command}" for command in found.commands)
    return (
        "## All figures\n\n"
        "Microseconds a query (median; in brackets: over ours), exact top 100, one thread, text terms in and Python\n"
        "objects out, the engines of one size in one process, asked by turns in three states of the caches. "
        + what
        + f"\n\n{tables(found.peers)}\n\n![median time a query in turn over records](bm25.svg)\n\n"
        "### Ours alone\n\nMicroseconds; an added record is searchable at once. The floor is what reading a query's\n"
        f"postings takes at the bandwidth of memory.\n\n{bm25_ours.table(found.alone)}\n\n"
        f"Kernel `{bm25.best_kernel()}`, Python {platform.python_version()}, {cpu()}.\n\n"
        f"Made by\n\n{made_by}\n\non a machine that was not quiet: trust the ratios more than the times.\n"
    )


def show(found: Figures, what: str, write: Path | None, *, quiet: bool) -> None:
    if not quiet:
        shown = (tables(found.peers), bm25_ours.table(found.alone) if found.alone else "")
        click.echo("\n\n".join(filter(None, shown)))
    if write is not None and found.peers:
        write_section(write / "bm25.md", "BM25 compared with other engines", report(found, what))
        (write / "bm25.svg").write_text(plot(found.peers), encoding="utf-8")


def read_figures(path: Path) -> Figures:
    """The contents of the file; empty if it does not exist. click.BadParameter if it is no such file."""
    old = Figures()
    if path.exists():
        try:
            contents = json.loads(path.read_text(encoding="utf-8"))
            nan = float("nan")
            old.peers += [
                Measured(**{**row, "same": nan if row["same"] is None else row["same"]}) for row in contents["peers"]
            ]
            old.alone += [bm25_ours.AloneFigures(**row) for row in contents["alone"]]
            old.commands += contents["commands"]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise click.BadParameter(f"--merge {path} holds no figures of this command ({error!r})") from None
    return old


def merge_figures(path: Path, new: Figures) -> Figures:
    """The contents of the file with the new figures, sizes ascending; written back. A new figure replaces an old
    one."""
    old = read_figures(path)
    peers = {(row.records, row.engine, row.state): row for row in (*old.peers, *new.peers)}
    alone = {row.records: row for row in (*old.alone, *new.alone)}
    both = Figures(
        sorted(peers.values(), key=lambda row: (row.records, [*STATES].index(row.state), [*PEERS].index(row.engine))),
        [alone[n] for n in sorted(alone)],
        list(dict.fromkeys((*old.commands, *new.commands))),
    )
    contents = {
        "commands": both.commands,
        "peers": [without_nan(asdict(row)) for row in both.peers],
        "alone": [*map(asdict, both.alone)],
    }
    path.write_text(json.dumps(contents, indent=1) + "\n", encoding="utf-8")
    return both
