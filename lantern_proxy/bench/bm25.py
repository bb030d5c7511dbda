"""`lantern bench bm25`: our index beside other engines, on synthetic records, in one process, in turn.

A record has ~46 different terms of a Zipf distribution over 200,000 words; a query has 9, five of them common (in more
than 4 % of the records) and four drawn as often as they occur. Times are per call: text terms in, Python objects out.
"""

import json
import platform
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import click
import numpy as np
import numpy.typing as npt

from lantern_proxy import bm25
from lantern_proxy.bench.bm25_peers import MOST_RECORDS, PEERS, Search, Tokens, release

WORDS, MEAN_LENGTH, COMMON, K = 200_000, 55, 0.04, 100


@dataclass(frozen=True, slots=True)
class Synthetic:
    """Records by seed; see bm25_peers.Records."""

    tokens: Tokens
    starts: npt.NDArray[np.int64]
    words: Sequence[str]

    def __len__(self) -> int:
        return len(self.starts) - 1

    def terms(self, i: int) -> list[str]:
        words = self.words
        return [words[t] for t in self.tokens[self.starts[i] : self.starts[i + 1]].tolist()]


@dataclass(frozen=True, slots=True)
class Measured:
    """One engine at one size. Times in microseconds a query; ratio: its median over ours; build_us: a record."""

    engine: str
    release: str
    records: int
    median_us: float
    p99_us: float
    ratio: float
    build_us: float
    queries: int
    same: float
    """Share of our best 100 scores that it gives too, to 1e-4; NaN where its scores mean something else."""


def synthetic(n: int, seed: int = 0) -> Synthetic:
    draw = np.random.default_rng(seed)
    weights = np.cumsum(1 / np.arange(1, WORDS + 1))
    lengths = np.clip(draw.normal(MEAN_LENGTH, 11, n), 5, None).astype(np.int64)
    starts = np.concatenate([[0], np.cumsum(lengths)])
    tokens = np.searchsorted(weights, draw.random(int(starts[-1])) * weights[-1]).astype(np.int32)
    return Synthetic(tokens, starts, [f"t{i:x}" for i in range(WORDS)])


def queries(records: Synthetic, n: int, seed: int = 1) -> list[list[str]]:
    draw, size = np.random.default_rng(seed), len(records)
    sample = min(size, 20_000)
    rows = np.repeat(np.arange(sample), np.diff(records.starts[: sample + 1]))
    pairs = np.unique(rows * WORDS + records.tokens[: records.starts[sample]])
    df = np.bincount(pairs % WORDS, minlength=WORDS) / sample
    common, rest = np.flatnonzero(df > COMMON), np.flatnonzero((df > 0) & (df <= COMMON))
    return [
        [
            records.words[t]
            for t in (*draw.choice(common, 5, False), *draw.choice(rest, 4, False, p=df[rest] / df[rest].sum()))
        ]
        for _ in range(n)
    ]


def measure(sizes: Sequence[int], engines: Sequence[str], seconds: float, asked: int = 200) -> Iterator[Measured]:
    """Each size in turn; `seconds`: most time the queries of one engine may take."""
    for n in sizes:
        records = synthetic(n)
        questions = queries(records, asked)
        built: dict[str, tuple[Search, float]] = {}
        for engine in engines:
            if n <= MOST_RECORDS.get(engine, n):
                begun = time.perf_counter()
                built[engine] = PEERS[engine](records), (time.perf_counter() - begun) / n * 1e6
        times = in_turn({engine: search for engine, (search, _) in built.items()}, questions, seconds)
        ours = float(np.median(times["lantern"]))
        for engine, (search, build_us) in built.items():
            median, p99 = np.percentile(times[engine], [50, 99])
            same = agreement(engine, built["lantern"][0], search, questions[:20])
            yield Measured(
                engine, release(engine) or "", n, round(median, 1), round(p99, 1), round(median / ours, 2),
                round(build_us, 2), len(times[engine]), same,
            )  # fmt: skip


def in_turn(searches: dict[str, Search], questions: Sequence[Sequence[str]], seconds: float) -> dict[str, list[float]]:
    """Microseconds of each call, caches warm: twenty questions go to one engine, then to the next, three rounds of all.
    Before each twenty the last of them is asked, and not counted."""
    times: dict[str, list[float]] = {engine: [] for engine in searches}
    for start in [*range(0, len(questions), 20)] * 3:
        for engine, search in searches.items():
            if sum(times[engine]) / 1e6 <= seconds:
                search(questions[min(start + 19, len(questions) - 1)], K)
                times[engine] += [microseconds(search, question) for question in questions[start : start + 20]]
    return times


def microseconds(search: Search, question: Sequence[str]) -> float:
    begun = time.perf_counter_ns()
    search(question, K)
    return (time.perf_counter_ns() - begun) / 1e3


def agreement(engine: str, ours: Search, other: Search, questions: Sequence[Sequence[str]]) -> float:
    if engine not in ("lantern", "bm25s", "scipy"):
        return float("nan")
    same = []
    for question in questions:
        best, theirs = ours(question, K)[1], np.asarray(other(question, K)[1]).ravel()
        same.append(np.isclose(best, theirs[: len(best)], rtol=1e-4).mean())
    return round(float(np.mean(same)), 4)


# ---- what is shown ----


def table(rows: Sequence[Measured]) -> str:
    """Markdown: a line an engine, a column a size."""
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


COLOURS = ("#d9480f", "#1971c2", "#2f9e44", "#7048e8", "#868e96", "#c2255c")


def plot(rows: Sequence[Measured]) -> str:
    """SVG: median microseconds over records, both axes logarithmic, a line an engine."""
    wide, high, left, top = 560, 320, 70, 20
    xs, ys = np.log10([row.records for row in rows]), np.log10([row.median_us for row in rows])
    low, top_y, first = np.floor(ys.min()), np.ceil(ys.max()), xs.min()
    span = max(xs.max() - first, 0.5)

    def at(row: Measured) -> tuple[float, float]:
        x, y = np.log10(row.records), np.log10(row.median_us)
        return left + (x - first) / span * wide, top + high - (y - low) / (top_y - low) * high

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {left + wide + 130} {high + 70}" '
        'font-family="sans-serif" font-size="12"><rect width="100%" height="100%" fill="white"/>'
    ]
    for power in range(int(low), int(top_y) + 1):
        y = top + high - (power - low) / (top_y - low) * high
        parts.append(f'<path d="M{left} {y:.0f}h{wide}" stroke="#dee2e6"/><text x="{left - 8}" y="{y + 4:.0f}" ')
        parts.append(f'text-anchor="end">{10.0**power:,.0f} us</text>')
    for n in sorted({row.records for row in rows}):
        x = left + (np.log10(n) - first) / span * wide
        parts.append(f'<text x="{x:.0f}" y="{top + high + 20}" text-anchor="middle">{n:,}</text>')
    parts.append(f'<text x="{left + wide / 2}" y="{top + high + 42}" text-anchor="middle">records</text>')
    for engine, colour in zip(dict.fromkeys(row.engine for row in rows), COLOURS, strict=False):
        points = [at(row) for row in sorted(rows, key=lambda r: r.records) if row.engine == engine]
        line = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        parts.append(f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in points]
        parts.append(f'<text x="{points[-1][0] + 8:.0f}" y="{points[-1][1] + 4:.0f}" fill="{colour}">{engine}</text>')
    return "".join(parts) + "</svg>\n"


def report(rows: Sequence[Measured], asked_for: str) -> str:
    ours = {row.records: row.build_us for row in rows if row.engine == "lantern"}
    built = ", ".join(f"{us:,.1f} us at {n:,}" for n, us in sorted(ours.items()))
    return (
        "# BM25 beside other engines\n\n"
        "Microseconds a query (median; in brackets: over ours), exact top 100, one thread, text terms in and Python\n"
        "objects out, all engines in one process and asked in turn. "
        + " ".join((__doc__ or "").split("\n\n")[1].split())
        + f"\n\n{table(rows)}\n\n![median time a query over records](bm25.svg)\n\n"
        f"Adding one record, searchable at once, the making of its list of terms included: {built}. "
        f"Kernel `{bm25.best_kernel()}`, Python {platform.python_version()}, {platform.machine()}.\n\n"
        f"Made by `{asked_for}`; the machine was not quiet, so trust the ratios more than the times.\n"
    )


def known(names: str) -> list[str]:
    """The engines to measure. click.BadParameter for one that is not known."""
    chosen = [name.strip() for name in names.split(",") if name.strip()] or list(PEERS)
    for name in chosen:
        if name not in PEERS:
            raise click.BadParameter(f"{name} is not known; choose of {', '.join(PEERS)}")
    return ["lantern", *(name for name in chosen if name != "lantern" and release(name) is not None)]


@click.command("bm25")
@click.option("--records", default="5000,10000,100000", show_default=True, help="Sizes to measure at.")
@click.option(
    "--engines", default="", help="Of: lantern, bm25s, tantivy, fts5, scipy, rank_bm25. Default: all installed."
)
@click.option("--seconds", default=2.0, show_default=True, help="Most time for one engine's queries at one size.")
@click.option(
    "--write", type=click.Path(path_type=Path, file_okay=False), help="Also write bm25.md and bm25.svg there."
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
def command(records: str, engines: str, seconds: float, write: Path | None, as_json: bool) -> None:
    """Measure our BM25 index beside other engines.

    Example: lantern bench bm25 --records 5000,100000 --engines bm25s,tantivy
    """
    try:
        sizes = [int(n.replace("_", "")) for n in records.split(",")]
    except ValueError:
        raise click.BadParameter(f"--records is {records!r}; give numbers like 5000,100000") from None
    rows: list[Measured] = []
    for row in measure(sizes, known(engines), seconds):
        rows.append(row)
        if as_json:
            click.echo(json.dumps(plain(row)))
    if not as_json:
        click.echo(table(rows))
    if write is not None:
        write.mkdir(parents=True, exist_ok=True)
        asked_for = f"lantern bench bm25 --records {records} --engines {','.join(known(engines))} --seconds {seconds:g}"
        (write / "bm25.md").write_text(report(rows, asked_for), encoding="utf-8")
        (write / "bm25.svg").write_text(plot(rows), encoding="utf-8")


def plain(row: Measured) -> dict[str, Any]:
    """NaN is no JSON."""
    return {key: None if value != value else value for key, value in asdict(row).items()}


if __name__ == "__main__":
    command()
