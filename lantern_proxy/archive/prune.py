"""Remove from one tenant's archive what a rule names. A dry run does it all, then takes it back: same numbers."""

from sqlite_utils.db import Database

from lantern_proxy.archive.feedback import PINNED
from lantern_proxy.archive.rows import PruneReport, PruneRule, name

_SIZE = "length(CAST(text AS BLOB))"
# Not `NOT IN (...)`: of two columns SQLite then looks through all of the list for each row, in search of a NULL.
_NO_PASSAGE = """(session, key) IN (SELECT m.session, m.key FROM messages m WHERE m.tenant = ?
    EXCEPT SELECT p.session, p.message FROM passages p WHERE p.tenant = ?)"""
_NOTHING_LEFT = """NOT EXISTS (SELECT 1 FROM messages m WHERE m.tenant = sessions.tenant AND m.session = sessions.id)
    AND NOT EXISTS (SELECT 1 FROM passages p WHERE p.tenant = sessions.tenant AND p.session = sessions.id)"""
_NO_BLOCK = "NOT EXISTS (SELECT 1 FROM blocks b WHERE b.tenant = requests.tenant AND b.request = requests.id)"


def told_at(table: str) -> str:
    """SQL for when a row of messages or passages was said; what has no time (created_at 0) counts from when its session
    was first archived, so that no rule takes it for the oldest of all."""
    session = f"SELECT s.created_at FROM sessions s WHERE s.tenant = {table}.tenant AND s.id = {table}.session"
    return f"CASE WHEN {table}.created_at > 0 THEN {table}.created_at ELSE ({session}) END"


def prune(db: Database, tenant: str, rule: PruneRule, *, now: float, dry_run: bool, vectors: bool) -> PruneReport:
    """Apply `rule`, which must not be empty, inside the caller's transaction. vectors: whether there are any to remove.

    What goes is overwritten in the file, and the words of it leave the full-text index: the latter rewrites that index.
    """
    if dry_run:
        db.execute("SAVEPOINT prune")
        report = _remove(db, tenant, rule, now, vectors=False)
        db.execute("ROLLBACK TO prune")
        db.execute("RELEASE prune")
        return report
    db.execute("PRAGMA secure_delete = ON")  # no savepoint here: removing a vector in one takes seven times as long
    try:
        report = _remove(db, tenant, rule, now, vectors=vectors)
        if report.passages:
            db.execute("INSERT INTO passages_fts (passages_fts) VALUES ('optimize')")
        db.execute("PRAGMA incremental_vacuum").fetchall()
    finally:
        db.execute("PRAGMA secure_delete = OFF")
    return report


def _remove(db: Database, tenant: str, rule: PruneRule, now: float, *, vectors: bool) -> PruneReport:
    cutoff = None if rule.older_than_s is None else now - rule.older_than_s
    session = None if rule.session is None else name(rule.session)
    where, values = _where(
        tenant, (f"{told_at('passages')} <", cutoff), ("confidence <", rule.below_confidence), ("session =", session)
    )
    where = f"{where} AND NOT {PINNED}"
    if vectors:
        _remove_vectors(db, where, values)
    passages, size = _delete(db, "passages", _SIZE, where, values)
    if rule.below_confidence is not None:
        return PruneReport(passages=passages, bytes=size)
    where, values = _where(tenant, (f"{told_at('messages')} <", cutoff), ("session =", session))
    messages, message_size = _delete(
        db, "messages", f"{_SIZE} + length(CAST(raw AS BLOB))", f"{where} AND {_NO_PASSAGE}", [*values, tenant, tenant]
    )
    if cutoff is not None:
        where, values = _where(tenant, ("at <", cutoff), ("session =", session))
        _delete(db, "requests", "0", f"{where} AND {_NO_BLOCK}", values)
    where, values = _where(tenant, ("last_seen_at <", cutoff), ("id =", session))
    sessions, _ = _delete(db, "sessions", "0", f"{where} AND {_NOTHING_LEFT}", values)
    return PruneReport(passages=passages, messages=messages, sessions=sessions, bytes=size + message_size)


def _where(tenant: str, *conditions: tuple[str, float | str | None]) -> tuple[str, list[float | str]]:
    held = [(column, value) for column, value in conditions if value is not None]
    return "tenant = ?" + "".join(f" AND {column} ?" for column, _ in held), [tenant, *(value for _, value in held)]


def _delete(db: Database, table: str, size: str, where: str, values: list[float | str]) -> tuple[int, int]:
    """Delete rows; how many they were, and the bytes of them."""
    count, size_bytes = db.execute(
        f"SELECT count(*), ifnull(sum({size}), 0) FROM {table} WHERE {where}", values
    ).fetchone()
    db.execute(f"DELETE FROM {table} WHERE {where}", values)
    return count, size_bytes


def _remove_vectors(db: Database, where: str, values: list[float | str]) -> None:
    """The vectors of the passages that go, and those whose passage went when vectors could not be reached."""
    gone = db.execute(f"SELECT id FROM passages WHERE {where} AND embedded = 1", values).fetchall()
    orphans = db.execute("SELECT passage_id FROM vectors WHERE passage_id NOT IN (SELECT id FROM passages)").fetchall()
    db.conn.executemany("DELETE FROM vectors WHERE passage_id = ?", sorted({*gone, *orphans}))
