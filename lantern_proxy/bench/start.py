"""`lantern bench start`: how fast a large BM25 index is available, from the archive, from its snapshot, and from text.

It uses an archive of its own in a temporary folder: passages of 45 words of a Zipf distribution over 200,000, 500 per
session, of one tenant.
"""

import json
import math
import tempfile
import time
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path

import click
import numpy as np
from rich.console import Console
from rich.progress import Progress

from lantern_proxy.analyze import terms
from lantern_proxy.archive import Archive, Record, RequestRow, SessionRow
from lantern_proxy.archive.snapshots import snapshot_path
from lantern_proxy.bench.bm25 import synthetic
from lantern_proxy.bm25 import Index
from lantern_proxy.bm25 import file as bm25_file
from lantern_proxy.restore import snapshots
from lantern_proxy.restore.scope import Key, Scope
from lantern_proxy.restore.scopes import keep
from lantern_proxy.turn import Passage

TENANT, A_SESSION, TEXTS = "bench", 500, 20_000
KEY = Key(TENANT, None, None)


@dataclass(frozen=True, slots=True)
class Start:
    """Best of the rounds; records per second, or milliseconds for all records where the name says so."""

    records: int
    from_archive_s: float
    """A scope with its index from SQLite, in records per second; terms were analysed when archived."""
    from_snapshot_s: float
    snapshot_ms: float
    """The same from its snapshot: mapped, verified, compared with the archive, made a scope."""
    load_ms: float
    """Of that, mapping and verifying the file, up to a searchable and extensible index."""
    copy_ms: float
    """The same when the file is read and copied instead, as on systems where it cannot be mapped."""
    write_ms: float
    size_mb: float
    add_text_s: float
    add_text_us: float
    """Median of one add_text of about 45 terms, searchable at once."""


def texts(n: int) -> Iterator[str]:
    """English-looking words, so that the stemmer has work to do."""
    records, ends = synthetic(n), ("ing", "ed", "s", "ation", "ly", "", "er", "ness")
    for i in range(n):
        some = records.tokens[records.starts[i] : records.starts[i + 1]][:45].tolist()
        yield " ".join(f"{_letters(t)}{ends[t % len(ends)]}" for t in some)


def _letters(number: int) -> str:
    """Syllables."""
    found = ""
    while number or not found:
        number, at = divmod(number, 100)
        found += "bdfgklmnprstvzchthshqu"[at // 5] + "aeiou"[at % 5]
    return found


def fill(archive: Archive, n: int) -> None:
    made: list[Passage] = []
    for i, text in enumerate(texts(n)):
        session = f"s{i // A_SESSION}"
        made.append(
            Passage(
                session=session, message=f"m{i}", position=i % A_SESSION, part=0, turn=i % A_SESSION, speaker="user",
                text=text, terms=tuple(terms(text)), created_at=1.7e9 + i,
            )
        )  # fmt: skip
        if len(made) == A_SESSION or i == n - 1:
            row = SessionRow(id=session, api="chat", created_at=1.0, last_seen_at=1.0)
            request = RequestRow(id=f"r{i}", at=1.0, api="chat", path="", event="new")
            archive.write([Record(tenant=TENANT, project="", session=row, request=request, passages=tuple(made))])
            made = []


def measure(archive: Archive, n: int, rounds: int) -> Start:
    archive_s = min(_opened(archive) for _ in range(rounds))
    scope = Scope(KEY)
    scope.catch_up(archive, math.inf)
    begun = time.perf_counter()
    if not keep(scope, archive):
        raise click.ClickException("no snapshot can be kept here (the C index is not built)")
    write_s = time.perf_counter() - begun
    scope.index.close()
    snapshot_s = min(_opened(archive) for _ in range(rounds))
    path = snapshot_path(archive.path, TENANT, snapshots.name_of(KEY))
    assert path is not None
    load_s, copy_s = (min(times) for times in zip(*(_loads(archive, path) for _ in range(rounds)), strict=True))
    each = _adds(list(texts(min(n, TEXTS))))
    return Start(
        n, round(n / archive_s), round(n / snapshot_s), round(snapshot_s * 1e3, 2), round(load_s * 1e3, 2),
        round(copy_s * 1e3, 2), round(write_s * 1e3, 2),
        round(path.stat().st_size / 1e6, 2), round(1e6 / float(each.mean())), round(float(np.median(each)), 2),
    )  # fmt: skip


def _opened(archive: Archive) -> float:
    """Seconds until a scope is complete."""
    begun = time.perf_counter()
    scope = Scope(KEY)
    scope.catch_up(archive, math.inf)
    seconds = time.perf_counter() - begun
    scope.index.close()
    return seconds


def _loads(archive: Archive, path: Path) -> tuple[float, float]:
    """Seconds to load the file mapped, and read and copied."""
    stamp, name = snapshots.stamp_of(archive), snapshots.name_of(KEY)
    begun = time.perf_counter()
    first = bm25_file.read(path, archive=stamp, scope=name)
    mapped = time.perf_counter()
    second = bm25_file.unpack(path.read_bytes(), archive=stamp, scope=name)
    end = time.perf_counter()
    for found in (first, second):
        assert found is not None
        found.index.close()
    return mapped - begun, end - mapped


def _adds(of: list[str]) -> np.typing.NDArray[np.float64]:
    """Microseconds of each add_text."""
    times = np.empty(len(of))
    with Index() as index:
        for i, text in enumerate(of):
            begun = time.perf_counter_ns()
            index.add_text(i, text)
            times[i] = (time.perf_counter_ns() - begun) / 1e3
    return times


@click.command("start")
@click.option("--records", default=100_000, show_default=True, type=click.IntRange(snapshots.LEAST))
@click.option("--rounds", default=3, show_default=True, type=click.IntRange(1), help="The best of so many counts.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def command(records: int, rounds: int, as_json: bool) -> None:
    """How fast a large index opens. From SQLite, from its snapshot, from text. Uses a folder of its own.

    \b
    Example: lantern bench start --records 100000
    """
    err = Console(stderr=True)
    bar = Progress(console=err, transient=True) if err.is_terminal and not as_json else None
    with (
        tempfile.TemporaryDirectory() as folder,
        Archive(Path(folder) / "a.db", synchronous="normal", vectors=False) as archive,
    ):
        with bar or nullcontext():
            if bar:
                bar.add_task(f"archiving {records:,} passages", total=None)
            fill(archive, records)
        found = measure(archive, records, rounds)
    if as_json:
        click.echo(json.dumps(asdict(found)))
        return
    click.echo(
        f"{found.records:,} records\n"
        f"  from SQLite    {found.from_archive_s:>12,} records/s\n"
        f"  from snapshot  {found.from_snapshot_s:>12,} records/s  ({found.snapshot_ms:,.1f} ms for "
        f"{found.size_mb:,.1f} MB: load {found.load_ms:,.1f}; copied {found.copy_ms:,.1f}; "
        f"written in {found.write_ms:,.0f})\n"
        f"  from text      {found.add_text_s:>12,} records/s  ({found.add_text_us:,.1f} us an add)"
    )
