"""Copies of an archive: a backup of a sound file while it is written, and a salvage of a damaged one.

    backup(path, target)     SQLite's online backup: the whole archive as of one moment, without blocking the writer
    recover(path, target)    row by row, skipping whatever cannot be read, into a new archive with new indexes

Neither changes `path` or overwrites anything: `target` must not exist, and appears complete or not at all.
"""

import contextlib
import os
import re
import secrets
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct
from sqlite_utils.db import Database

from lantern_proxy.archive.errors import (
    ArchiveError,
    ArchiveErrors,
    archive_error,
    is_full,
    recover_command,
    spoils_all,
    sqlite_faults,
)
from lantern_proxy.archive.file import (
    WAL_PAGES_WAITED,
    companions,
    connect,
    needs_immutable,
    prepare,
    refuse_empty,
    refuse_foreign,
    refuse_foreign_log,
    refuse_newer,
    secret_of,
)
from lantern_proxy.archive.pages import Pages, Table, has_rowid
from lantern_proxy.archive.raw import is_plain
from lantern_proxy.migrations.archive import migrations

Progress = Callable[[int, int], None]
"""(done, of): pages of a backup, rows of a recovery (of which there may be more or fewer)."""

_PARTIAL = re.compile(r"\..+\.\d+\.partial.*", re.S)
_PAGES = 2_000
"""Pages copied at once: about 8 MB, after which other processes have their turn."""
_MOST_SKIPPED = 1 << 20
"""Most rows that are skipped at once in search of one that can be read."""
_TABLES = (
    "settings", "sessions", "heads", "messages", "ids", "passages", "requests", "blocks", "placed", "marks", "edits",
    "forgotten", "uncut",
)  # fmt: skip
"""Tables that cannot be derived from others, referenced ones first. Indexes are rebuilt."""
_FIRST_TABLES = _TABLES[:9]
"""Tables that every archive has, from the first step of its schema on."""
_KEY = "if it is encrypted check its key (archive.key_env or key_file, or --archive-key-env), else "


class Salvaged(Struct, frozen=True):
    """The outcome for one table."""

    table: str
    rows: int
    faults: int
    """Places where the file could not be read; each may have cost several rows."""


def backup(path: Path, target: Path, progress: Progress = lambda done, of: None, *, key: str = "") -> int:
    """Copy the archive at `path` to `target`, also while it is written. Returns its size in bytes.

    key: of an encrypted archive (64 hex digits); the copy has the same
    The copy is checked before it gets its name. Raises ArchiveError.
    """
    refuse_foreign_log(path)
    with ArchiveErrors(path), _atomic_file(target) as made, contextlib.closing(_open(path, "ro", key)) as source:
        refuse_foreign(source, path)
        refuse_empty(source, path)
        secret_of(source, path)
        with contextlib.closing(_open(made, "rw", key)) as copy:
            # One read transaction: SQLite restarts from the first page whenever another process writes.
            source.conn.execute("BEGIN")
            source.conn.execute("SELECT count(*) FROM sqlite_schema").fetchone()
            source.conn.backup(copy.conn, pages=_PAGES, progress=lambda _, left, of: progress(of - left, of))
            source.conn.execute("COMMIT")
            copy.execute("PRAGMA journal_mode = DELETE")  # a single file, without companions
            found = str(copy.execute("PRAGMA quick_check(1)").fetchone()[0])
        if found != "ok":
            raise ArchiveError(f"archive {path} is damaged ({found}); {recover_command(path)} saves what can be read")
    return target.stat().st_size


def recover(path: Path, target: Path, progress: Progress = lambda done, of: None, *, key: str = "") -> list[Salvaged]:
    """Save what can be read of a damaged archive into a new one at `target`. Raises ArchiveError if nothing can be.

    Stop the proxy first. The full-text index is rebuilt here, vectors by the proxy or `lantern reindex`. If the list of
    tables is damaged, rows are read from the pages themselves, which is impossible for an encrypted file.
    key: of an encrypted archive (64 hex digits); the new one has the same
    """
    refuse_foreign_log(path)
    with (
        _atomic_file(target) as made,
        ArchiveErrors(path),
        _padded(path, made) as complete,
        _with_table_list(complete, target, made, key, progress) as readable,
        contextlib.closing(_open(readable, "ro", key)) as source,
        ArchiveErrors(target),
        contextlib.closing(_open(made, "rw", key, vectors=True)) as copy,
    ):
        with contextlib.suppress(*sqlite_faults()):  # the list of schema steps may be damaged, too
            refuse_newer(source, path)
        copy.execute("PRAGMA synchronous = NORMAL")
        copy.execute(f"PRAGMA wal_autocheckpoint = {WAL_PAGES_WAITED}").fetchall()
        prepare(copy, made, 5.0)
        copy.execute("PRAGMA foreign_keys = OFF")
        salvaged = [_salvage(source, copy, table, progress) for table in _TABLES]
        if not any(each.rows for each in salvaged if each.table != "settings"):
            raise ArchiveError(
                f"archive {path} gives nothing back; {'' if is_plain(path) else _KEY}restore a backup of it"
            )
        _repair(copy)
        copy.execute("PRAGMA journal_mode = DELETE")
    return salvaged


@contextlib.contextmanager
def _padded(path: Path, beside: Path) -> Iterator[Path]:
    """`path`; if it was cut short, a copy padded with zeros.

    SQLite reads nothing of a file that is shorter than its header says (its file format, sections 1.3.2 and 1.3.8), nor
    of one with a log in a read-only folder, such as one on a failing disk: that is copied, too.
    """
    head = b""
    with contextlib.suppress(OSError), path.open("rb") as file:  # unreadable files are reported when they are opened
        head = file.read(32)
    size = int.from_bytes(head[16:18], "big") * int.from_bytes(head[28:32], "big")
    is_cut = head.startswith(b"SQLite format 3\0") and path.stat().st_size < size
    if not is_cut and os.access(path.resolve().parent, os.W_OK):
        yield path
        return
    copy = beside.with_name(f"{beside.name}.whole")
    try:
        for end in ("", "-wal"):
            with contextlib.suppress(FileNotFoundError), Path(f"{path.resolve()}{end}").open("rb") as part:
                descriptor = os.open(f"{copy}{end}", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
                with open(descriptor, "wb") as written:
                    shutil.copyfileobj(part, written)
        if is_cut:
            os.truncate(copy, size)
        yield copy
    finally:
        for left in companions(copy):
            left.unlink()


@contextlib.contextmanager
def _with_table_list(path: Path, target: Path, beside: Path, key: str, progress: Progress) -> Iterator[Path]:
    """`path`; if its list of tables is damaged, an archive with the rows found in its pages."""
    if key or _lists_tables(path):
        yield path
        return
    copy = beside.with_name(f"{beside.name}.rows")
    os.close(os.open(copy, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
    try:
        with ArchiveErrors(target):  # a full disk is the copy's
            rows = _rebuild(path, copy, progress)
        yield copy if rows else path
    finally:
        for left in companions(copy):
            left.unlink()


def _lists_tables(path: Path) -> bool:
    """Can SQLite find the tables that every archive has?"""
    try:
        with contextlib.closing(_open(path, "ro", "")) as db:
            return all(db.execute(f"PRAGMA table_info({table})").fetchall() for table in _FIRST_TABLES)
    except sqlite_faults() as error:
        return not str(getattr(error, "sqlite_errorname", "")).startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB"))


_NO_SETTINGS = "DELETE FROM settings WHERE tenant <> '' AND name <> 'unwiped'"
"""A row of `heads` that an early release wrote looks like a setting: a tenant, a session, and keys. A setting taken for
a head, and an index row taken for one of `ids`, are removed as orphans."""


def _rebuild(path: Path, copy: Path, progress: Progress) -> int:
    """Write the rows found in the pages of `path` and its log to a new archive, `copy`. Returns their number."""
    with contextlib.ExitStack() as files, contextlib.closing(_open(copy, "rw", "")) as db:
        file = files.enter_context(path.open("rb")).fileno()
        log = Path(f"{path.resolve()}-wal")
        pages = Pages(file, files.enter_context(log.open("rb")).fileno() if log.exists() else None)
        prepare(db, copy, 5.0)
        db.execute("PRAGMA foreign_keys = OFF")
        db.execute("PRAGMA journal_mode = MEMORY").fetchone()  # the file is read once, then removed
        db.execute("PRAGMA synchronous = OFF")
        db.execute("BEGIN")
        db.execute("DELETE FROM settings")
        count = 0
        for table, row in pages.rows(
            [Table.of(db, name) for name in (*_TABLES, migrations.migrations_table)], progress
        ):
            columns = dict(zip(table.columns[: len(row)], table.types, strict=False))
            count += _insert(db, _insert_statement(table.name, columns), row)
        for statement in (_NO_SETTINGS, *_ORPHANS):
            db.execute(statement)
        db.execute("COMMIT")
    return count


def _open(path: Path, access: Literal["ro", "rw"], key: str, *, vectors: bool = False) -> Database:
    db = connect(path, access, vectors=vectors, busy_s=5.0, key=key)[0]
    if access == "ro" and needs_immutable(db, path):
        db.close()
        return connect(path, access, vectors=vectors, busy_s=5.0, immutable=True, key=key)[0]
    return db


def partial(target: Path, number: str) -> Path:
    """Where a process writes `target` until it is complete. A killed process leaves this file behind."""
    return target.with_name(f".{target.name}.{number}.partial")


def is_partial(path: Path) -> bool:
    """Is `path` such an unfinished file, or a companion of one?"""
    return _PARTIAL.fullmatch(path.name) is not None


@contextlib.contextmanager
def _atomic_file(target: Path) -> Iterator[Path]:
    """A file beside `target`, mode 0600, that is renamed to it when the block succeeds."""
    made = partial(target, str(secrets.randbits(64)))  # in containers every process has the same id
    try:
        if target.exists():
            raise ArchiveError(f"{target} exists; remove it first, or name another file")
        os.close(os.open(made, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
    except OSError as error:
        raise ArchiveError(
            f"{target} cannot be written ({error.strerror}); name a file in a folder that takes one"
        ) from None
    try:
        yield made
        made.replace(target)
    except sqlite_faults(OSError) as error:
        if is_full(error):  # the disk of the copy, not of the source
            raise archive_error(target, error) from error
        raise
    finally:
        for left in (*companions(made), Path(f"{made}-journal")):
            left.unlink(missing_ok=True)


def _salvage(source: Database, copy: Database, table: str, progress: Progress) -> Salvaged:
    """Copy the rows of one table in order of rowid, skipping what cannot be read."""
    columns = _shared_columns(source, copy, table)
    rows = faults = 0
    if columns:
        # texts are copied as bytes: a lone surrogate, which some contain, cannot be bound as text
        listed = ", ".join(f"CAST({name} AS BLOB)" if type_ == "TEXT" else name for name, type_ in columns.items())
        # the damaged archive's secret replaces the new one's: tenants are named under it
        into = _insert_statement(table, columns, "REPLACE" if table == "settings" else "IGNORE")
        reads = _by_rowid(source, table, listed) if has_rowid(copy, table) else _until_fault(source, table, listed)
        copy.execute("BEGIN")
        for row in reads:
            if row is None:
                faults += 1
                continue
            rows += _insert(copy, into, row)
            progress(rows, rows)
        copy.execute("COMMIT")
    return Salvaged(table, rows, faults)


def _insert_statement(table: str, columns: Mapping[str, str], verb: str = "IGNORE") -> str:
    """The INSERT statement for a row whose texts are given as bytes. columns: name -> type"""
    placeholders = ", ".join("CAST(? AS TEXT)" if type_ == "TEXT" else "?" for type_ in columns.values())
    return f"INSERT OR {verb} INTO {table} ({', '.join(columns)}) VALUES ({placeholders})"


def _insert(copy: Database, into: str, row: Sequence[Any]) -> int:
    """How many rows were added: 0 if the schema refuses the row as damaged, or the copy already has it."""
    try:
        return int(copy.conn.execute(into, row).rowcount)
    except sqlite_faults() as error:
        if spoils_all(error):
            raise
        return 0


def _shared_columns(source: Database, copy: Database, table: str) -> dict[str, str]:
    """Columns that both have, with their types; none if the damaged schema lacks the table."""
    wanted = {row[1]: row[2] for row in copy.execute(f"PRAGMA table_info({table})")}
    try:
        held = {row[1] for row in source.execute(f"PRAGMA table_info({table})")}
    except sqlite_faults():
        return {}
    return {column: type_ for column, type_ in wanted.items() if column in held}


def _by_rowid(source: Database, table: str, listed: str) -> Iterator[tuple[Any, ...] | None]:
    """Rows by rowid; None for each place that cannot be read, after which the search continues further on.

    The index that a filter would use may be damaged, too; ordering by `+rowid` uses the table itself.
    """
    at, step = -(1 << 62), 1
    last = _last(source, table)
    while True:
        try:
            cursor = source.conn.execute(f"SELECT rowid, {listed} FROM {table} WHERE rowid > ? ORDER BY rowid", (at,))
            for row in cursor:
                if row[0] > at:  # a damaged tree may lead back to rows that were already read
                    at, step = row[0], 1
                    yield row[1:]
            return
        except sqlite_faults():
            yield None
            if at < 0:
                at = 0
            if last is not None and at > last:
                return
            at += step
            step *= 2
            if step > _MOST_SKIPPED:
                return


def _last(source: Database, table: str) -> int | None:
    try:
        found = source.execute(f"SELECT max(rowid) FROM {table}").fetchone()[0]
    except sqlite_faults():
        return None
    return int(found) if found is not None else 0


def _until_fault(source: Database, table: str, listed: str) -> Iterator[tuple[Any, ...] | None]:
    """Rows of a table without rowids, up to the first fault."""
    try:
        yield from source.conn.execute(f"SELECT {listed} FROM {table}")
    except sqlite_faults():
        yield None


_ORPHANS = (
    # A session whose own row could not be read is made anew under its id, since its messages matter most.
    """INSERT OR IGNORE INTO sessions (tenant, id, project, api, family, parent, title, created_at, last_seen_at,
        system, tools) SELECT tenant, session, ifnull((SELECT max(p.project) FROM passages p WHERE p.tenant = m.tenant
        AND p.session = m.session), ''), 'chat', '', '', substr(max(text), 1, 80), min(created_at), max(created_at), '',
        '' FROM messages m GROUP BY tenant, session""",
    *(
        f"DELETE FROM {table} WHERE NOT EXISTS (SELECT 1 FROM sessions s WHERE s.tenant = {table}.tenant "
        f"AND s.id = {table}.session)"
        for table in ("heads", "messages", "ids", "passages", "requests", "blocks", "edits", "uncut")
    ),
    """DELETE FROM placed WHERE NOT EXISTS (
        SELECT 1 FROM blocks b WHERE b.tenant = placed.tenant AND b.id = placed.block)""",
    # vectors are not copied
    "UPDATE passages SET embedded = 0",
    "DELETE FROM settings WHERE tenant = '' AND name = 'embedding'",
)


_ANOTHER_SECRET = "INSERT OR REPLACE INTO settings (tenant, name, value) VALUES ('', 'secret', ?)"


def _repair(copy: Database) -> None:
    """Remove rows that refer to nothing, rebuild indexes, and replace a secret that cannot be read."""
    copy.execute("BEGIN")
    try:
        secret_of(copy, Path())
    except ArchiveError:
        copy.execute(_ANOTHER_SECRET, (secrets.token_hex(32),))
    for statement in _ORPHANS:
        copy.execute(statement)
    copy.execute("INSERT INTO passages_fts (passages_fts) VALUES ('rebuild')")
    copy.execute("COMMIT")
