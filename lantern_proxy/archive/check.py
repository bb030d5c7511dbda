"""Health checks of an archive, each with its remedy: `lantern doctor` shows them."""

import shutil
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from lantern_proxy.archive.connections import Connections
from lantern_proxy.archive.errors import ArchiveError, recover_command
from lantern_proxy.archive.file import SHORT_BYTES, companions, size_bytes
from lantern_proxy.archive.values import Finding
from lantern_proxy.archive.vectors import embedding_model
from lantern_proxy.migrations.archive import migrations

_FTS_ROWS = """SELECT (SELECT count(*) FROM passages WHERE id NOT IN (SELECT id FROM passages_fts_docsize)),
    (SELECT count(*) FROM passages_fts_docsize WHERE id NOT IN (SELECT id FROM passages))"""


def check(connections: Connections, without_vectors: str, faults: Mapping[str, int]) -> list[Finding]:
    """All checks. Reads the whole file: seconds for a large one.

    without_vectors: why vectors cannot be stored, "" if they can; faults: as Archive.faults
    """
    looks: dict[str, Callable[[Connections], Finding]] = {
        "schema": _schema, "pages": _pages, "fts": _fts,
        "vectors": partial(_vectors, without=without_vectors),
    }  # fmt: skip
    findings = check_file(connections.path)
    for name, look in looks.items():
        try:
            findings.append(look(connections))
        except ArchiveError as error:
            findings.append(_finding(name, False, str(error), "see the message"))
    lost = ", ".join(f"{kind}: {count}" for kind, count in sorted(faults.items()))
    return [*findings, _finding("faults", not lost, lost or "none since it was opened", "see the log")]


def _schema(connections: Connections) -> Finding:
    with connections.reading() as db:
        return Finding("schema", True, f"version {len(migrations.applied(db))}")


def _pages(connections: Connections) -> Finding:
    with connections.reading(), connections.apart() as db:
        result = str(db.execute("PRAGMA quick_check(1)").fetchone()[0])
    remedy = f"stop lantern, then save what can be read: {recover_command(connections.path)}"
    return _finding("pages", result == "ok", result, remedy)


def _fts(connections: Connections) -> Finding:
    """Does the full-text index have the same rows as `passages`? FTS5's own check would block the writer; _pages()
    covers the index's internals."""
    with connections.reading() as db:
        missing, extra = db.execute(_FTS_ROWS).fetchone()
    amiss = f"lacks {missing} passages, has {extra} that are gone" if missing or extra else ""
    return _finding("fts", not amiss, amiss or "has every passage", "run `lantern reindex`")


def _vectors(connections: Connections, *, without: str) -> Finding:
    if without:
        return Finding("vectors", False, without, "pip install pysqlite3 sqlite-vec")
    with connections.reading() as db:
        model = embedding_model(db)
        waiting = db.execute("SELECT count(*) FROM passages WHERE embedded = 0").fetchone()[0]
    kind = f"{model[0]} ({model[1]})" if model else "no model yet"
    return Finding("vectors", True, f"{kind}; {waiting} passages wait for the embedder")


def check_file(path: Path) -> list[Finding]:
    """Mode, size and free disk, without opening the file."""
    if not path.exists():
        return [Finding("file", False, f"{path} is gone", "restart lantern: it makes a new archive")]
    size, free = size_bytes(path), shutil.disk_usage(path.resolve().parent).free
    modes = {part.name: part.stat().st_mode & 0o777 for part in companions(path)}
    open_to_others = [f"{part} {mode:o}" for part, mode in modes.items() if mode & 0o077]
    return [
        _finding("mode", not open_to_others, ", ".join(open_to_others) or "0600", f"chmod 600 {path}*"),
        Finding("size", True, f"{size:,} bytes"),
        _finding("disk", free > SHORT_BYTES, f"{free / 1e6:,.0f} MB free", "free some space, or `lantern prune`"),
    ]


def _finding(name: str, ok: bool, detail: str, remedy: str) -> Finding:
    return Finding(name, ok, detail, "" if ok else remedy)
