"""Remove what a rule names from one tenant's archive. A dry run returns the same counts and removes nothing.

Others write meanwhile, so rows are removed in short transactions with a pause after each.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

from msgspec import Struct
from sqlite_utils.db import Database

from lantern_proxy.archive.connections import Connections
from lantern_proxy.archive.errors import ArchiveError
from lantern_proxy.archive.feedback import PINNED
from lantern_proxy.archive.file import drop_snapshots_of
from lantern_proxy.archive.forget import bump_generation
from lantern_proxy.archive.rows import dumps, name
from lantern_proxy.archive.values import PruneReport, PruneRule
from lantern_proxy.archive.vectors import remove
from lantern_proxy.archive.writes import CROSS_OUT

T = TypeVar("T")
Advance = Callable[[int], None]
"""Called with the number of rows or pages done since the last call."""

ROWS = 200
"""Most rows that one transaction removes: about 20 ms, or the rows of one session."""
BLOCKS = ROWS // 10
"""The same for blocks: the rows of the passages that they quote are removed with them."""
_PAGES = 100
"""Pages per transaction that are merged in the full-text index, or returned to the file system: 10 ms."""
_LONGEST_PAUSE_S = 0.1
_LONG_S = 0.08
"""After a transaction that took longer, pause included, the next ones get half as many rows; see batches()."""
_LOG_WAIT_S = 2.0
"""How long wipe() waits for a reader that still needs the write-ahead log."""
_SIZE = "length(CAST(text AS BLOB))"
# Not `NOT IN (...)`: for two columns SQLite then scans the whole list for each row, in search of a NULL.
_NO_PASSAGE = """(session, key) IN (SELECT m.session, m.key FROM messages m WHERE m.tenant = ?
    EXCEPT SELECT p.session, p.message FROM passages p WHERE p.tenant = ?)"""
_NOTHING_LEFT = """NOT EXISTS (SELECT 1 FROM messages m WHERE m.tenant = sessions.tenant AND m.session = sessions.id)
    AND NOT EXISTS (SELECT 1 FROM passages p WHERE p.tenant = sessions.tenant AND p.session = sessions.id)"""
_ORPHANS = "SELECT passage_id FROM vectors WHERE passage_id NOT IN (SELECT id FROM passages)"
"""Vectors of passages that were removed while sqlite-vec was not available."""
UNWIPED = "INSERT OR REPLACE INTO settings (tenant, name, value) VALUES (?, 'unwiped', hex(randomblob(8)))"
"""Notes a tenant of whom something was removed, until wipe() has finished."""
_ARE_UNWIPED = "SELECT tenant, value FROM settings WHERE name = 'unwiped'"
_WIPED = "DELETE FROM settings WHERE tenant = ? AND name = 'unwiped' AND value = ?"
_QUOTING_SESSION = "id IN (SELECT block FROM placed WHERE tenant = ? AND json_extract(origin, '$.session') = ?)"
"""Includes earlier passages of the session: the summary of a turn is replaced when the turn grows."""
_NO_BLOCK = "NOT EXISTS (SELECT 1 FROM blocks b WHERE b.tenant = requests.tenant AND b.request = requests.id)"
_SAID = "SELECT session, key, print FROM messages WHERE tenant = ? AND id IN (SELECT value FROM json_each(?))"
_UNCUT = """INSERT INTO uncut (tenant, session, key, project) SELECT m.tenant, m.session, m.key, s.project
    FROM messages m CROSS JOIN sessions s ON s.tenant = m.tenant AND s.id = m.session
    WHERE m.tenant = ? AND m.session = ? AND m.{column} = ? AND m.side = 0 ORDER BY m.position LIMIT 1
    ON CONFLICT DO NOTHING"""
_CUT_AGAIN, _CUT_REPEATED = _UNCUT.format(column="print"), _UNCUT.format(column="key")


class _Part(Struct, frozen=True):
    """Rows of one table that are to be removed."""

    table: str
    size: str
    """SQL for the size of a row in bytes."""
    where: str
    values: Sequence[float | str]
    left: str = ""
    """A further condition for finding the rows; it is not repeated when they are deleted."""
    left_values: Sequence[float | str] = ()


def said_at(table: str) -> str:
    """SQL for when a row of messages or passages was said. Rows without a time (created_at 0) count from when their
    session was first archived, so that no rule takes them for the oldest."""
    session = f"SELECT s.created_at FROM sessions s WHERE s.tenant = {table}.tenant AND s.id = {table}.session"
    return f"CASE WHEN {table}.created_at > 0 THEN {table}.created_at ELSE ({session}) END"


def prune(
    connections: Connections, tenant: str, rule: PruneRule, *, now: float, vectors: bool,
    advance: Advance = lambda _: None,
) -> PruneReport:  # fmt: skip
    """Apply `rule`, which must not be empty. vectors: are there vectors to remove? advance: called with rows removed

    Removed rows are overwritten in the file. Until wipe(), the log still holds them, and the full-text index their
    words.
    """
    connections.make_room()
    total = PruneReport()
    for part in _parts(tenant, rule, now):
        table = part.table
        with connections.reading() as db:
            sql = f"SELECT {table}.rowid FROM {table} WHERE {part.where}{part.left}"
            found = [row[0] for row in db.execute(sql, [*part.values, *part.left_values])]
        for some in batches(found, BLOCKS if table == "blocks" else ROWS):
            chosen = f"{part.where} AND {table}.rowid IN (SELECT value FROM json_each(?))"
            with_rows = [*part.values, dumps(some)]
            with short_transaction(connections) as db:
                if table == "passages" and vectors:
                    _remove_vectors(db, chosen, with_rows)
                if table == "passages" and rule.below_confidence is None:
                    total += _remove_quoting(db, tenant, chosen, with_rows)
                    _cut_repeated(db, tenant, chosen, with_rows)
                said = db.execute(_SAID, (tenant, dumps(some))).fetchall() if table == "messages" else []
                total += _removed(table, *_delete(db, table, part.size, chosen, with_rows))
                _cut_again(db, tenant, said)
                db.execute(UNWIPED, (tenant,))
                if table == "blocks" and some[-1] == found[-1]:  # now: if interrupted later, no block is found again
                    bump_generation(db)
            advance(len(some))
    if total.blocks:  # blocks that a proxy made meanwhile
        with short_transaction(connections) as db:
            bump_generation(db)
    return total


def prune_dry(db: Database, tenant: str, rule: PruneRule, *, now: float) -> PruneReport:
    """What `rule` would remove, as of one moment. Reads only: later tables are queried as if earlier rows were gone."""
    total = PruneReport()
    left_of: list[str] = []
    gone: list[str] = []
    db.execute("SAVEPOINT prune")
    for part in _parts(tenant, rule, now):
        table = part.table
        if table == "requests":  # not reported, and nothing else depends on them
            continue
        shadowed = f"WITH {', '.join(left_of)} " if left_of else ""
        sql = f"{shadowed}SELECT {table}.rowid, {part.size} FROM {table} WHERE {part.where}{part.left}"
        rows = db.execute(sql, [*gone, *part.values, *part.left_values]).fetchall()
        total += _removed(table, len(rows), sum(row[1] for row in rows))
        left_of.append(f"{table} AS (SELECT * FROM main.{table} WHERE rowid NOT IN (SELECT value FROM json_each(?)))")
        gone.append(dumps([row[0] for row in rows]))
    db.execute("RELEASE prune")
    return total


def wipe(connections: Connections, *, vectors: bool, advance: Advance = lambda _: None) -> bool:
    """Wipe the words of removed text from snapshots and the full-text index, release free pages, and empty the log.

    The index is merged as by FTS5's `optimize`, but in steps: a negative number starts the merge, positive ones
    continue it.
    Returns False if a reader needs the log; the next call empties it. Raises ArchiveError, after everything else is
    done, if snapshots cannot be removed; they stay noted.
    """
    with connections.reading() as db:
        unwiped = db.execute(_ARE_UNWIPED).fetchall()
        if not unwiped:
            return True
        orphans = [row[0] for row in db.execute(_ORPHANS)] if vectors else []
    stuck: list[ArchiveError] = []
    for noted in [*unwiped]:
        try:
            drop_snapshots_of(connections.path, noted[0] or None)  # an earlier Lantern did not note the tenant
        except ArchiveError as error:
            unwiped.remove(noted)
            stuck.append(error)
    for some in batches(orphans):
        with short_transaction(connections) as db:
            remove(db, some)
    _in_steps(connections, lambda db, n: _merge(db, _PAGES if n else -_PAGES), advance)
    _in_steps(connections, _shrink, advance)
    emptied = connections.empty_log(_LOG_WAIT_S)
    if emptied:
        with short_transaction(connections) as db:
            db.conn.executemany(_WIPED, unwiped)  # unless more was removed meanwhile
    if stuck:
        raise stuck[0]
    return emptied


def is_unwiped(db: Database) -> bool:
    return db.execute(_ARE_UNWIPED).fetchone() is not None


def _merge(db: Database, pages: int) -> bool:
    """Merge up to `pages` pages of the full-text index; is there more? If not, FTS5 makes fewer than 2 changes."""
    before = db.conn.total_changes
    db.execute("INSERT INTO passages_fts (passages_fts, rank) VALUES ('merge', ?)", [pages])
    return db.conn.total_changes - before >= 2


def _shrink(db: Database, _: int) -> bool:
    """Return free pages to the file system; are there more?"""
    db.execute(f"PRAGMA incremental_vacuum({_PAGES})").fetchall()
    return bool(db.execute("PRAGMA freelist_count").fetchone()[0])


def _in_steps(connections: Connections, step: Callable[[Database, int], bool], advance: Advance) -> None:
    """Call `step` with 0, 1, 2 ..., each in its own transaction, until it returns False."""
    n, more = 0, True
    while more:
        with short_transaction(connections) as db:
            more = step(db, n)
        n += 1
        advance(_PAGES)


def batches(values: Sequence[T], most: int = ROWS) -> Iterator[Sequence[T]]:
    """Consecutive parts of `values` of at most `most` each; smaller ones if transactions take long."""
    at, size = 0, max(1, most // 8)
    while at < len(values):
        began = time.monotonic()
        yield values[at : at + size]
        at, took_s = at + size, time.monotonic() - began
        size = min(most, size * 2) if took_s < _LONG_S / 2 else max(1, size // 2) if took_s > _LONG_S else size


@contextmanager
def short_transaction(connections: Connections) -> Iterator[Database]:
    """One transaction, followed by a pause."""
    with with_pause(), connections.writing() as db:
        yield db


@contextmanager
def with_pause() -> Iterator[None]:
    """After the block, pause for as long as it took, so that others can write."""
    began = time.monotonic()
    yield
    time.sleep(min(_LONGEST_PAUSE_S, time.monotonic() - began))


def _parts(tenant: str, rule: PruneRule, now: float) -> Iterator[_Part]:
    """What is to be removed, in order: blocks before the passages that they quote."""
    cutoff = None if rule.older_than_s is None else now - rule.older_than_s
    session = None if rule.session is None else name(rule.session)
    numbered = {table: ("id <=", rule.up_to.get(table)) for table in ("passages", "messages", "blocks")}
    where, values = _where(
        tenant, (f"{said_at('passages')} <", cutoff), ("confidence <", rule.below_confidence), ("session =", session),
        numbered["passages"],
    )  # fmt: skip
    passages = _Part("passages", _SIZE, f"{where} AND NOT {PINNED}", values)
    if rule.below_confidence is None:
        yield _blocks(tenant, cutoff, session, numbered["blocks"], passages)
    yield passages
    if rule.below_confidence is not None:
        return
    aged = (f"{said_at('messages')} <", cutoff)
    where, values = _where(tenant, aged, ("session =", session), numbered["messages"])
    size = f"{_SIZE} + length(CAST(raw AS BLOB))"
    yield _Part("messages", size, where, values, f" AND {_NO_PASSAGE}", (tenant, tenant))
    where, values = _where(tenant, ("at <", cutoff), ("session =", session))
    yield _Part("requests", "0", where, values, f" AND {_NO_BLOCK}")
    where, values = _where(tenant, ("last_seen_at <", cutoff), ("id =", session))
    yield _Part("sessions", "0", f"{where} AND {_NOTHING_LEFT}", values)


def _blocks(
    tenant: str, cutoff: float | None, session: str | None, numbered: tuple[str, int | None], passages: _Part
) -> _Part:
    """Blocks that are old or of the session themselves, and blocks of any session that quote removed passages."""
    own, values = _where(tenant, ("created_at <", cutoff), ("session =", session), numbered)
    quoted: Sequence[float | str]
    if cutoff is None and session is not None:
        quoting, quoted = _QUOTING_SESSION, (tenant, session)
    else:
        quoting = _quoting(passages.where)
        quoted = [tenant, *passages.values]
    return _Part("blocks", _SIZE, "tenant = ?", [tenant], f" AND ({own} OR {quoting})", [*values, *quoted])


def _quoting(where: str) -> str:
    """SQL for blocks that quote passages that meet `where`."""
    return f"id IN (SELECT block FROM placed WHERE tenant = ? AND passage IN (SELECT id FROM passages WHERE {where}))"


def _removed(table: str, count: int, size_bytes: int) -> PruneReport:
    return PruneReport(**{table: count}, bytes=size_bytes) if table != "requests" else PruneReport()


def _where(tenant: str, *conditions: tuple[str, float | str | None]) -> tuple[str, list[float | str]]:
    held = [(column, value) for column, value in conditions if value is not None]
    return "tenant = ?" + "".join(f" AND {column} ?" for column, _ in held), [tenant, *(value for _, value in held)]


def _delete(db: Database, table: str, size: str, where: str, values: Sequence[float | str]) -> tuple[int, int]:
    """Delete rows; returns their number and size in bytes."""
    count, size_bytes = db.execute(
        f"SELECT count(*), ifnull(sum({size}), 0) FROM {table} WHERE {where}", values
    ).fetchone()
    db.execute(f"DELETE FROM {table} WHERE {where}", values)
    return count, size_bytes


def _cut_again(db: Database, tenant: str, said: Sequence[tuple[str, str, bytes]]) -> None:
    """Note for each removed message (session, key, print) the first one left that says the same: it is to be cut, since
    a session has each text once, under the message that said it first."""
    db.conn.executemany(CROSS_OUT, [(tenant, session, key) for session, key, _ in said])
    db.conn.executemany(_CUT_AGAIN, [(tenant, session, print_) for session, _, print_ in said if print_])


def _cut_repeated(db: Database, tenant: str, where: str, values: Sequence[float | str]) -> None:
    """Note the last message that repeats each passage to be removed: if it stays, it is to be cut."""
    found = db.execute(f"SELECT session, repeated FROM passages WHERE {where} AND repeated <> ''", values).fetchall()
    db.conn.executemany(_CUT_REPEATED, [(tenant, *row) for row in found])


def _remove_quoting(db: Database, tenant: str, where: str, values: Sequence[float | str]) -> PruneReport:
    """Remove blocks that a proxy added since the blocks were listed, and that quote passages to be removed."""
    found = _delete(db, "blocks", _SIZE, f"tenant = ? AND {_quoting(where)}", [tenant, tenant, *values])
    if found[0]:
        bump_generation(db)
    return _removed("blocks", *found)


def _remove_vectors(db: Database, where: str, values: Sequence[float | str]) -> None:
    gone = db.execute(f"SELECT id FROM passages WHERE {where} AND embedded = 1", values).fetchall()
    remove(db, [row[0] for row in gone])
