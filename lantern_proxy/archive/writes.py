"""How a record becomes rows: one session, its request, messages, passages, blocks. Every statement is idempotent.

Many are written in one transaction: one that cannot be stored is left out, without affecting the others.
"""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from msgspec import Struct
from msgspec.structs import replace
from sqlite_utils.db import Database

from lantern_proxy.archive.errors import spoils_all, sqlite_faults
from lantern_proxy.archive.feedback import corrected, has_edits
from lantern_proxy.archive.rows import (
    HEAD,
    dumps,
    exact,
    from_block,
    from_filed,
    from_head,
    from_passage,
    from_placed,
    from_request,
    from_session,
    name,
    to_filed,
)
from lantern_proxy.archive.scope import newest
from lantern_proxy.archive.values import Record
from lantern_proxy.archive.vectors import embedding_model, remove
from lantern_proxy.turn import Block, Filed, Passage, fingerprint

T = TypeVar("T")
New = TypeVar("New")

_FAULTS = (ValueError, TypeError, OverflowError, AttributeError)
"""Errors for a value that cannot be stored, besides SQLite's own."""

_UNCUT = "INSERT INTO uncut (tenant, project, session, key) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING"
CROSS_OUT = "DELETE FROM uncut WHERE tenant = ? AND session = ? AND key = ?"
_LEFT = """SELECT u.tenant, u.project, m.session, m.key, m.position, m.turn, m.role, m.text, m.items, m.raw, m.print,
        m.side, m.partial, m.created_at, m.names
    FROM uncut u JOIN messages m ON m.tenant = u.tenant AND m.session = u.session AND m.key = u.key
    ORDER BY u.tenant, m.session, m.position LIMIT ?"""


_SESSION = """INSERT INTO sessions (tenant, id, project, api, family, parent, title, created_at, last_seen_at,
        system, tools)
    VALUES (?, ?, ?, ?, ?, ?, CAST(? AS TEXT), ?, ?, ?, ?)
    ON CONFLICT (tenant, id) DO UPDATE SET
        last_seen_at = max(last_seen_at, excluded.last_seen_at), system = excluded.system, tools = excluded.tools,
        family = CASE excluded.family WHEN '' THEN family ELSE excluded.family END,
        parent = CASE excluded.parent WHEN '' THEN parent ELSE excluded.parent END,
        title = CASE excluded.title WHEN '' THEN title ELSE excluded.title END"""
_REQUEST = """INSERT OR REPLACE INTO requests (tenant, id, session, at, api, path, model, event, status, query,
        restored, chars, ms, degraded, gone, error, size, passed)
    VALUES (?, ?, ?, ?, ?, CAST(? AS TEXT), CAST(? AS TEXT), ?, ?, CAST(? AS TEXT), ?, ?, ?, ?, ?, CAST(? AS TEXT),
        ?, ?)"""
_LOST = """UPDATE requests SET lost = (
        SELECT ifnull(sum(size), 0) FROM (
            SELECT max(length(CAST(m.raw AS BLOB))) AS size FROM json_each(?) k
            CROSS JOIN messages m ON m.tenant = requests.tenant AND m.key = k.value GROUP BY m.key))
    WHERE tenant = ? AND id = ?"""
_MESSAGE = """INSERT INTO messages (tenant, session, key, position, turn, role, text, items, raw, print, side, partial,
        created_at, names)
    VALUES (?, ?, ?, ?, ?, ?, CAST(? AS TEXT), ?, CAST(? AS TEXT), ?, ?, ?, ?, ?)
    ON CONFLICT (tenant, key, session) DO NOTHING"""
_HEAD = f"""INSERT INTO heads (tenant, session, {HEAD}) VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (tenant, session)
    DO UPDATE SET ({HEAD}) =
        (excluded.keys, excluded.altered, excluded.abandoned, excluded.lost, excluded.person, excluded.forks)"""
_ID = "INSERT INTO ids (tenant, value, session) VALUES (?, ?, ?) ON CONFLICT DO NOTHING"
_PASSAGE = """INSERT INTO passages (tenant, project, session, message, position, part, turn, speaker, text, unit, kind,
        tags, tools, terms, created_at, confidence, success, accesses, accessed_at, hash)
    SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?7, CAST(?8 AS TEXT), CAST(?9 AS TEXT), ?10, ?11, ?12, ?13, CAST(?14 AS TEXT), ?15,
        ?16, ?17, ?18, ?19, ?20
    WHERE {wanted} ON CONFLICT (tenant, session, unit, hash) DO NOTHING"""
_ANY_PASSAGE = _PASSAGE.format(wanted="true")
_CUT_PASSAGE = _PASSAGE.format(
    wanted="""EXISTS (SELECT 1 FROM uncut WHERE tenant = ?1 AND session = ?3 AND key = ?4)
        AND EXISTS (SELECT 1 FROM messages WHERE tenant = ?1 AND key = ?4 AND session = ?3)"""
)
"""Inserts a passage only if its message still exists and is noted as uncut."""
_REPEATED = """UPDATE passages SET repeated = ?4
    WHERE tenant = ?1 AND session = ?3 AND unit = ?10 AND hash = ?20 AND message <> ?4 AND position <= ?6"""
_WORDS = "INSERT INTO passages_fts (rowid, text) VALUES (?, CAST(? AS TEXT))"
_NEW_WORDS = "INSERT INTO passages_fts (rowid, text) SELECT id, text FROM passages WHERE id > ?"
"""For many passages at once: SQLite makes such a statement undoable, for which FTS5 flushes its memory each time."""
_FILED = "SELECT id FROM passages WHERE tenant = ? AND session = ? AND unit = ? AND hash = ? AND id > ?"
_TURN = """SELECT id, hash, confidence, success, accesses, accessed_at FROM passages
    WHERE tenant = ? AND session = ? AND turn = ? AND unit = 'turn'"""
_BLOCK = """INSERT INTO blocks (tenant, session, request, anchor, chain, message, place, kind, text, considered, ms,
        degraded, created_at)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, CAST(? AS TEXT), ?, ?, ?, ?)
    ON CONFLICT (tenant, session, request, kind, anchor, chain) DO NOTHING RETURNING id"""
_PLACED = """INSERT INTO placed (tenant, block, slot, passage, origin, text, rank, score, signals)
    VALUES (?, ?, ?, ?, ?, CAST(? AS TEXT), ?, ?, ?)"""


class Uncut(Struct, frozen=True, gc=False):
    """Messages of one session that are archived and not yet cut into passages, in order.

    A turn is archived before its client has received the end of it; cutting, tagging and indexing take longer and may
    come later.
    """

    tenant: str
    project: str
    session: str
    messages: tuple[Filed, ...]


def left_uncut(db: Database, limit: int) -> list[Uncut]:
    """Uncut messages, at most `limit`, by session."""
    found: dict[tuple[str, str, str], list[Filed]] = {}
    for tenant, project, session, *filed in db.execute(_LEFT, (limit,)):
        found.setdefault((tenant, project, session), []).append(to_filed(tuple(filed)))
    return [Uncut(*key, tuple(messages)) for key, messages in found.items()]


def cross_out(db: Database, cuts: Sequence[Uncut]) -> None:
    """Note that their messages no longer wait to be cut."""
    named = [(name(cut.tenant), name(cut.session), cut) for cut in cuts]
    keys = [(tenant, session, name(filed.key)) for tenant, session, cut in named for filed in cut.messages]
    db.conn.executemany(CROSS_OUT, keys)


def add_cuts(db: Database, cuts: Sequence[tuple[Uncut, Sequence[Passage]]]) -> list[int]:
    """Store the passages of cut messages, and cross the messages out. Returns for each how many of its passages are
    new: 0 if its messages are not noted as uncut, or have been removed."""
    before, added = newest(db), []
    for cut, passages in cuts:
        tenant = name(cut.tenant)
        rows = [from_passage(tenant, cut.project, passage) for passage in passages]
        added.append(db.conn.executemany(_CUT_PASSAGE, rows).rowcount if rows else 0)
        if added[-1] < len(rows):
            db.conn.executemany(_REPEATED, rows)
    cross_out(db, [cut for cut, _ in cuts])
    db.conn.execute(_NEW_WORDS, (before,))
    edited = {tenant: has_edits(db, name(tenant)) for tenant in {cut.tenant for cut, _ in cuts}}
    for cut, passages in cuts:
        if edited[cut.tenant]:
            _correct(db, name(cut.tenant), cut.project, passages, before)
    return added


def _correct(db: Database, tenant: str, project: str, passages: Sequence[Passage], before: int) -> None:
    """Correct the new ones of `passages`, with ids above `before`, if their texts were corrected earlier."""
    for passage in passages:
        known = (tenant, name(passage.session), passage.unit, fingerprint(passage.text), before)
        for (id_,) in db.conn.execute(_FILED, known).fetchall():
            corrected(db, tenant, project, replace(passage, id=id_))


def add_records(db: Database, records: Sequence[Record], *, vectors: bool) -> list[tuple[Passage, ...]]:
    """Store records; returns for each the new passages, with their ids. vectors: may there be some to remove?

    ValueError: a record has no tenant
    """
    if not all(record.tenant for record in records):
        raise ValueError("its tenant is empty")
    conn, mine = db.conn, [(name(record.tenant), name(record.session.id), record) for record in records]
    conn.executemany(_SESSION, [from_session(tenant, each.project, each.session) for tenant, _, each in mine])
    asked = [(tenant, session, each.request, each.passed) for tenant, session, each in mine if each.request is not None]
    conn.executemany(_REQUEST, [from_request(*each) for each in asked])
    conn.executemany(
        _MESSAGE, [from_filed(tenant, session, filed) for tenant, session, each in mine for filed in each.messages]
    )
    heads = [(tenant, session, *from_head(each.head)) for tenant, session, each in mine if each.head.keys]
    conn.executemany(_HEAD, heads)
    conn.executemany(_ID, [(tenant, name(value), session) for tenant, session, each in mine for value in each.ids])
    uncut = [(tenant, each.project, session, name(key)) for tenant, session, each in mine for key in each.uncut]
    conn.executemany(_UNCUT, uncut)
    return [_add_rest(db, tenant, session, record, vectors=vectors) for tenant, session, record in mine]


def _add_rest(db: Database, tenant: str, session: str, record: Record, *, vectors: bool) -> tuple[Passage, ...]:
    """Store the parts that few records have: bytes lost, passages, blocks. Returns the new passages."""
    if record.lost and record.request is not None:
        db.conn.execute(_LOST, (dumps([name(key) for key in record.lost]), tenant, name(record.request.id)))
    added = _add_passages(db, tenant, record.project, record.passages, vectors=vectors) if record.passages else []
    for block in record.blocks:
        _add_block(db, tenant, session, block)
    return tuple(replace(passage, id=id_) for id_, passage in added)


def _add_passages(
    db: Database, tenant: str, project: str, passages: Sequence[Passage], *, vectors: bool
) -> list[tuple[int, Passage]]:
    """Store passages; returns the new ones with their ids."""
    tried = [_add_passage(db, tenant, project, passage, vectors=vectors) for passage in passages]
    added = [each for each in tried if each]
    if not added or not has_edits(db, tenant):
        return added
    return [(id_, corrected(db, tenant, project, replace(passage, id=id_))) for id_, passage in added]


def _add_passage(
    db: Database, tenant: str, project: str, passage: Passage, *, vectors: bool
) -> tuple[int, Passage] | None:
    if passage.unit == "turn":
        known = db.conn.execute(_TURN, (tenant, name(passage.session), passage.turn)).fetchone()
        if known and known[1] == fingerprint(passage.text):
            return None
        if known:
            passage = _take_over(db, tenant, known, passage, vectors=vectors)
    row = from_passage(tenant, project, passage)
    filed = db.conn.execute(_ANY_PASSAGE, row)
    if not filed.rowcount:
        db.conn.execute(_REPEATED, row)
        return None
    # not by a trigger: SQLite makes a statement with one undoable, for which FTS5 flushes its memory each time
    id_ = filed.lastrowid or 0
    db.conn.execute(_WORDS, (id_, exact(passage.text)))
    return id_, passage


def _take_over(db: Database, tenant: str, known: Sequence[Any], passage: Passage, *, vectors: bool) -> Passage:
    """Remove the turn's earlier passage; its replacement inherits what was learned of it."""
    id_, _, confidence, success, accesses, accessed_at = known
    if vectors and embedding_model(db):
        remove(db, [id_])
    db.conn.execute("DELETE FROM passages WHERE tenant = ? AND id = ?", (tenant, id_))
    return replace(passage, confidence=confidence, success=success, accesses=accesses, accessed_at=accessed_at)


def _add_block(db: Database, tenant: str, session: str, block: Block) -> None:
    row = db.conn.execute(_BLOCK, from_block(tenant, session, block)).fetchone()
    if row:
        placed = enumerate(block.restored.placed)
        db.conn.executemany(_PLACED, [from_placed(tenant, row[0], slot, one) for slot, one in placed])


# many in one transaction


def write_all(
    db: Database, things: Sequence[T], write: Callable[[Database, Sequence[T]], list[New]],
    leave_out: Callable[[Database, T, Exception], New],
) -> list[New]:  # fmt: skip
    """What is new of each of `things`, in a transaction that has just begun. Raises SQLite's error if the file is at
    fault.

    write:     writes some of them; returns what is new of each
    leave_out: called instead for one that cannot be stored
    """
    try:
        return write(db, things)
    except sqlite_faults(*_FAULTS) as error:
        if _is_of_file(error):
            raise
    db.conn.execute("ROLLBACK")
    db.conn.execute("BEGIN IMMEDIATE")
    return [_apart(db, thing, write, leave_out) for thing in things]


def _apart(
    db: Database, thing: T, write: Callable[[Database, Sequence[T]], list[New]],
    leave_out: Callable[[Database, T, Exception], New],
) -> New:  # fmt: skip
    """Write one thing inside a savepoint. If that fails, leave it out; the others stay."""
    db.conn.execute("SAVEPOINT apart")
    try:
        (added,) = write(db, [thing])
    except sqlite_faults(*_FAULTS) as error:
        if _is_of_file(error):
            raise
        db.conn.execute("ROLLBACK TO apart")
        added = leave_out(db, thing, error)
    db.conn.execute("RELEASE apart")
    return added


def _is_of_file(error: Exception) -> bool:
    """Is the file at fault, and not the value?"""
    return isinstance(error, sqlite_faults()) and spoils_all(error)
