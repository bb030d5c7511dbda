"""Which rows a `lantern forget` rule names, and their removal in short transactions, since others write meanwhile.

First everything is marked, so that nothing can come back. Then blocks are removed before the passages that they quote,
and passages before their messages: after an interruption, the same rule finds the rest.
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any
from unicodedata import normalize

from msgspec import Struct, field
from sqlite_utils.db import Database

from lantern_proxy.archive.connections import Connections
from lantern_proxy.archive.forget import (
    MOST_MARKS,
    ForgetRule,
    Marks,
    Receipt,
    begin_forgetting,
    bump_generation,
    keep_out,
)
from lantern_proxy.archive.prune import BLOCKS, ROWS, UNWIPED, Advance, batches, short_transaction
from lantern_proxy.archive.rows import HEAD, dumps, from_head, name, to_filed, to_head
from lantern_proxy.archive.scope import newest
from lantern_proxy.archive.values import QUERY_CHARS, TITLE_CHARS
from lantern_proxy.archive.vectors import remove
from lantern_proxy.archive.writes import CROSS_OUT
from lantern_proxy.turn import SYSTEM, Filed

_MARKS_AT_ONCE = 5 * ROWS
"""Marks per transaction. They are small: 10 ms."""
_SESSIONS_AT_ONCE = ROWS // 10
"""Sessions per transaction. Rows of other tables are removed with them."""
_CUT: Mapping[str, int] = {"title": TITLE_CHARS, "query": QUERY_CHARS}
"""Columns that hold only the beginning of a text, with its length in characters."""
_LEAST = 3
"""A cut text may end in fewer characters of what is forgotten by chance."""
_IN = " IN (SELECT value FROM json_each(?))"
_HEAD = f"SELECT {HEAD} FROM heads WHERE tenant = ? AND session = ?"
_SHORTER = f"UPDATE heads SET ({HEAD}) = (?, ?, ?, ?, ?, ?) WHERE tenant = ? AND session = ?"
_WITH_SIDES = " AND (id = ? OR parent = ? AND substr(id, 1, ?) = ?)"
"""SQL: a session with its sub-agents and side calls, as session_rows.session_of() defines them. Other ids may begin
alike: programs that archive through the library name sessions with dots of their own."""
_MESSAGES = """SELECT session, print, key, position, turn, role, text, items, CAST(raw AS BLOB), print, side, partial,
        created_at, names FROM messages WHERE tenant = ?"""
_PASSAGES = "SELECT id, session, message, turn, unit, hash, text FROM passages WHERE tenant = ? AND id > ?"
_QUOTING = f"SELECT block FROM placed WHERE tenant = ? AND json_extract(origin, '$.session'){_IN}"
_DROP_MESSAGE = "DELETE FROM messages WHERE tenant = ? AND session = ? AND key = ?"
_DROP_SETTINGS = "DELETE FROM settings WHERE tenant = ? AND tenant <> '' AND name <> 'unwiped'"
_DROP_ID = "DELETE FROM ids WHERE tenant = ? AND value = ? AND session = ?"
_COPY = """SELECT p.id FROM sessions s
    CROSS JOIN passages p ON p.tenant = s.tenant AND p.session = s.id AND p.unit = 'passage' AND p.hash = marks.hash
    WHERE s.tenant = marks.tenant AND s.project = marks.project AND p.id NOT IN (SELECT value FROM json_each(:gone))"""
"""SQL: passages with the text of a row of `marks` that stay."""
_MOVE_VERDICTS = f"""UPDATE marks SET passage = ifnull(({_COPY} LIMIT 1), passage)
    WHERE tenant = :tenant AND passage IN (SELECT value FROM json_each(:gone))"""
_DROP_VERDICTS = f"""DELETE FROM marks WHERE tenant = :tenant AND (passage IN (SELECT value FROM json_each(:gone))
    OR hash IN (SELECT p.hash FROM passages p WHERE p.tenant = :tenant AND p.id IN (SELECT value FROM json_each(:gone)))
    AND NOT EXISTS ({_COPY}))"""
_DROP_QUOTES = (
    f"DELETE FROM blocks WHERE tenant = ? AND id IN (SELECT block FROM placed WHERE tenant = ? AND passage{_IN})"
)

_CUT_AGAIN = """INSERT INTO uncut (tenant, session, key, project) SELECT m.tenant, m.session, m.key, s.project
    FROM sessions s CROSS JOIN messages m ON m.tenant = s.tenant AND m.session = s.id
    WHERE s.tenant = ? AND s.id = ? AND m.position > ? ON CONFLICT DO NOTHING"""

MessageKey = tuple[str, str]
"""(session, key) of a message."""


class _ToRemove(Struct):
    """What is to be removed, collected before anything is."""

    sessions: list[str] = []
    """Sessions that are removed as a whole."""
    messages: dict[MessageKey, None] = {}
    turns: set[tuple[str, int]] = field(default_factory=set)
    """Turns of the removed messages; only for a match."""
    cut_again: dict[str, int] = {}
    """Session -> position of a removed message, some of whose passages do not hold the match: a session has each text
    once, under the first message that says it, and later ones may stay."""
    passages: dict[int, None] = {}
    blocks: set[int] = field(default_factory=set)
    requests: list[str] = []
    ids: list[tuple[str, str]] = []
    """(value, session)"""
    wiped: dict[tuple[str, str], list[str]] = {}
    """(table, column) -> ids of rows whose text is emptied; only for a match."""
    marks: set[bytes] = field(default_factory=set)
    """Marks of what is kept out from now on."""
    listed: list[bytes] = []
    """Marks that the receipt lists."""

    def add_message(self, row: Sequence[Any], marks: Marks, *, stays_out: bool = True) -> None:
        self.messages[row[0], row[2]] = None
        if stays_out:
            self.marks.update(marks.message(to_filed(row[2:])))
            self._list(marks.of("message", row[0], row[1]))

    def add_passage(self, id_: int, session: str, hash_: bytes, marks: Marks) -> None:
        self.passages[id_] = None
        self.marks.add(marks.of("text", hash_))
        self._list(marks.of("passage", session, hash_))

    def _list(self, mark: bytes) -> None:
        if len(self.listed) < MOST_MARKS:
            self.listed.append(mark)

    @property
    def counts(self) -> Counter[str]:
        """Number of rows by table, without vectors."""
        texts = sum(len(ids) for (table, _), ids in self.wiped.items() if table == "requests")
        return Counter(
            {
                "vectors": 0, "blocks": len(self.blocks), "passages": len(self.passages),
                "messages": len(self.messages), "titles": len(self.wiped.get(("sessions", "title"), ())),
                "texts of requests": texts, "requests": len(self.requests), "sessions": len(self.sessions),
            }
        )  # fmt: skip


def would_forget(db: Database, tenant: str, rule: ForgetRule, marks: Marks, *, now: float) -> Receipt:
    """What forget_in() would remove, except that it counts 0 vectors. Reads only."""
    gone = _named(db, tenant, rule, marks)
    return _receipt(tenant, rule, gone, gone.counts, marks, now)


def forget_in(
    connections: Connections, tenant: str, rule: ForgetRule, marks: Marks, *, now: float, vectors: bool,
    advance: Advance,
) -> Receipt:  # fmt: skip
    """Remove what `rule` names. Until wipe(), the log still holds it, and the full-text index its words."""
    connections.make_room()
    with connections.reading() as db:
        seen = newest(db)
        gone = _named(db, tenant, rule, marks)
    work = _Removal(connections, tenant, marks, advance, vectors=vectors)
    work.keep_out(gone, rule, now)
    work.remove(gone)
    if rule.match is not None:
        work.remove_late(gone, seen)
    work.end(rule)
    return _receipt(tenant, rule, gone, work.removed, marks, now)


def _receipt(
    tenant: str, rule: ForgetRule, gone: _ToRemove, removed: Counter[str], marks: Marks, now: float
) -> Receipt:
    what = rule.session or rule.project or ""
    if rule.match is not None:
        what = marks.of("match", _folded(rule.match)).hex()
    else:
        removed = Counter({table: n for table, n in removed.items() if table not in ("titles", "texts of requests")})
    listed = tuple(mark.hex() for mark in gone.listed)
    return Receipt(tenant=tenant, kind=rule.kind, what=what, at=now, removed=dict(removed), marks=listed)


# what is removed


def _named(db: Database, tenant: str, rule: ForgetRule, marks: Marks) -> _ToRemove:
    if rule.match is not None:
        return _matching(db, tenant, _folded(rule.match), marks)
    where, values = "", []
    if rule.session is not None:
        own = name(rule.session)
        where, values = _WITH_SIDES, [own, own, len(own) + 1, f"{own}."]
    elif rule.project is not None:
        where, values = " AND project = ?", [name(rule.project)]
    rows = db.conn.execute(f"SELECT id FROM sessions WHERE tenant = ?{where}", (tenant, *values))
    gone = _of_sessions(db, tenant, [row[0] for row in rows], marks)
    gone.blocks |= {row[0] for row in db.conn.execute(_QUOTING, (tenant, dumps(gone.sessions)))}
    return gone


def _of_sessions(db: Database, tenant: str, sessions: Sequence[str], marks: Marks) -> _ToRemove:
    """Sessions with everything that they hold."""
    gone, values = _ToRemove(sessions=[*sessions]), (tenant, dumps(list(sessions)))
    for row in db.conn.execute(f"{_MESSAGES} AND session{_IN}", values):  # system prompts recur in later sessions
        gone.add_message(row, marks, stays_out=row[5] not in SYSTEM)
    sql = f"SELECT id, session, hash FROM passages WHERE tenant = ? AND session{_IN}"
    for row in db.conn.execute(sql, values):
        gone.add_passage(row[0], row[1], row[2], marks)
    gone.marks |= {marks.of("session", session) for session in gone.sessions}
    for id_, query in db.conn.execute(f"SELECT id, query FROM requests WHERE tenant = ? AND session{_IN}", values):
        gone.requests.append(id_)
        if query:
            gone.marks.add(marks.of("query", query))
    gone.ids = db.conn.execute(f"SELECT value, session FROM ids WHERE tenant = ? AND session{_IN}", values).fetchall()
    gone.blocks = {
        row[0] for row in db.conn.execute(f"SELECT id FROM blocks WHERE tenant = ? AND session{_IN}", values)
    }
    return gone


def _matching(db: Database, tenant: str, wanted: str, marks: Marks) -> _ToRemove:
    """Everything that holds the text `wanted`. Reads the tenant's whole archive."""
    gone, positions = _ToRemove(), dict[MessageKey, int]()
    for row in db.conn.execute(_MESSAGES, (tenant,)):
        filed = to_filed(row[2:])
        if _holds(filed, wanted):
            gone.add_message(row, marks)
            gone.turns.add((row[0], filed.turn))
            positions[row[0], filed.key] = filed.position
    edited = _edited(db, tenant, wanted)
    for id_, session, message, turn, unit, hash_, text in db.conn.execute(_PASSAGES, (tenant, -1)):
        if _is_of(gone, session, message, turn, unit) or id_ in edited or wanted in _folded(text):
            gone.add_passage(id_, session, hash_, marks)
            at = positions.get((session, message))
            if at is not None and wanted not in _folded(text):
                gone.cut_again[session] = min(at, gone.cut_again.get(session, at))
    sql = "SELECT b.id, b.text FROM blocks b WHERE b.tenant = ?"
    gone.blocks = {id_ for id_, block in db.conn.execute(sql, (tenant,)) if wanted in _folded(block)}
    sql = "SELECT block, passage, text FROM placed WHERE tenant = ?"
    for block, passage, quoted in db.conn.execute(sql, (tenant,)):
        if passage in gone.passages or wanted in _folded(quoted):
            gone.blocks.add(block)
    columns = [("sessions", "title"), *(("requests", column) for column in ("query", "error", "path", "model"))]
    begun = tuple(wanted[:n] for n in range(_LEAST, min(len(wanted), QUERY_CHARS)))
    for table, column in columns:
        sql = f"SELECT id, {column} FROM {table} WHERE tenant = ? AND {column} <> ''"
        held = [row for row in db.conn.execute(sql, (tenant,)) if _matches(row[1], wanted, begun, _CUT.get(column))]
        gone.wiped[table, column] = [id_ for id_, _ in held]
        if column in ("title", "query", "error"):
            gone.marks |= {marks.of(column, text) for _, text in held}
    return gone


def _folded(text: str) -> str:
    """The form in which texts are compared: in any case, and with letters and marks together or apart (NFC, NFD)."""
    return text.casefold() if text.isascii() else normalize("NFC", text.casefold())


def _matches(text: str, wanted: str, begun: tuple[str, ...], cut_at: int | None) -> bool:
    """Does `text` hold `wanted`, or, if it was cut, end in a beginning of it?"""
    folded = _folded(text)
    return wanted in folded or (cut_at is not None and len(text) >= cut_at and folded.endswith(begun))


def _is_of(gone: _ToRemove, session: str, message: str, turn: int, unit: str) -> bool:
    """Is this a passage of a removed message, or the summary of its turn?"""
    return (session, message) in gone.messages or (unit == "turn" and (session, turn) in gone.turns)


def _edited(db: Database, tenant: str, wanted: str) -> set[int]:
    rows = db.conn.execute("SELECT passage, before, after FROM edits WHERE tenant = ?", (tenant,))
    return {passage for passage, before, after in rows if wanted in _folded(before) or wanted in _folded(after)}


def _holds(filed: Filed, wanted: str) -> bool:
    texts = (filed.message.text, *(item.text for item in filed.message.items), *_strings(filed.message.raw))
    return any(wanted in _folded(text) for text in texts)


def _strings(raw: bytes) -> Iterator[str]:
    """The bytes as they are, and all strings of their JSON, including JSON within strings (arguments of calls)."""
    text = raw.decode("utf-8", "replace")
    yield text
    try:
        waiting = [json.loads(text)]
    except (ValueError, RecursionError):
        return
    while waiting:
        value = waiting.pop()
        if isinstance(value, str):
            yield value
            if value[:1] in ("{", "["):
                try:
                    waiting.append(json.loads(value))
                except (ValueError, RecursionError):
                    continue
        elif isinstance(value, dict):
            waiting += [*value, *value.values()]
        elif isinstance(value, list):
            waiting += value


# how it is removed


class _Removal:
    """The removal of one tenant's rows, with a count of those removed so far."""

    def __init__(self, connections: Connections, tenant: str, marks: Marks, advance: Advance, *, vectors: bool) -> None:
        self._connections, self._tenant, self._marks, self._advance = connections, tenant, marks, advance
        self._vectors = vectors
        self.removed = _ToRemove().counts

    def keep_out(self, gone: _ToRemove, rule: ForgetRule, now: float) -> None:
        """Mark what is to be forgotten. Done first, so that it holds even if the removal is interrupted."""
        with self._transaction() as db:
            begin_forgetting(db, self._marks, self._tenant, rule, now=now)
            bump_generation(db)
        for some in batches(sorted(gone.marks), _MARKS_AT_ONCE):
            with self._transaction() as db:
                keep_out(db, self._tenant, some)
            self._advance(len(some))

    def remove(self, gone: _ToRemove) -> None:
        for blocks in self._each(sorted(gone.blocks), BLOCKS):
            with self._transaction() as db:
                self._drop(db, "blocks", "id", blocks)
        for passages in self._each([*gone.passages]):
            with self._transaction() as db:
                self._drop_passages(db, passages)
        if gone.turns:
            self._shorten_heads(gone)
        for messages in self._each([*gone.messages]):
            with self._transaction() as db:
                self._drop_messages(db, messages)
        for session, position in gone.cut_again.items():
            with self._transaction() as db:
                db.conn.execute(_CUT_AGAIN, (self._tenant, session, position))
        self._wipe(gone)
        for requests in self._each(gone.requests):
            with self._transaction() as db:
                self._drop(db, "requests", "id", requests)
        for ids in self._each(gone.ids):
            with self._transaction() as db:
                self._drop_ids(db, ids)
        for sessions in self._each(gone.sessions, _SESSIONS_AT_ONCE):
            with self._transaction() as db:
                self._drop_sessions(db, sessions)

    def remove_late(self, gone: _ToRemove, seen: int) -> None:
        """Remove passages that were cut from matching messages during the search."""
        with self._transaction() as db:
            late = db.conn.execute(_PASSAGES, (self._tenant, seen)).fetchall()
            self._drop_passages(db, [row[0] for row in late if _is_of(gone, *row[1:5])])

    @contextmanager
    def _transaction(self) -> Iterator[Database]:
        """A transaction that notes that there is something to wipe, since running proxies regularly wipe what is
        noted."""
        with short_transaction(self._connections) as db:
            yield db
            db.execute(UNWIPED, (self._tenant,))

    def end(self, rule: ForgetRule) -> None:
        with self._transaction() as db:
            if rule.kind == "tenant":
                db.conn.execute(_DROP_SETTINGS, (self._tenant,))
            bump_generation(db)

    def _each(self, values: Sequence[Any], most: int = ROWS) -> Iterator[Sequence[Any]]:
        for some in batches(values, most):
            yield some
            self._advance(len(some))

    def _drop(self, db: Database, table: str, column: str, values: Iterable[int | str]) -> None:
        """Delete the rows of `table` whose `column` is one of `values`."""
        where, parameters = f"WHERE tenant = ? AND {column}{_IN}", (self._tenant, dumps(list(values)))
        self.removed[table] += db.conn.execute(f"DELETE FROM {table} {where}", parameters).rowcount

    def _drop_passages(self, db: Database, ids: Sequence[int]) -> None:
        if self._vectors:
            self.removed["vectors"] += remove(db, ids)
        tenant, listed = self._tenant, dumps(list(ids))
        for statement in (_MOVE_VERDICTS, _DROP_VERDICTS):
            db.conn.execute(statement, {"tenant": tenant, "gone": listed})
        self.removed["blocks"] += db.conn.execute(_DROP_QUOTES, (tenant, tenant, listed)).rowcount
        self._drop(db, "passages", "id", ids)

    def _drop_messages(self, db: Database, keys: Iterable[MessageKey]) -> None:
        rows = [(self._tenant, *key) for key in keys]
        self.removed["messages"] += max(0, db.conn.executemany(_DROP_MESSAGE, rows).rowcount)
        db.conn.executemany(CROSS_OUT, rows)

    def _drop_ids(self, db: Database, ids: Iterable[tuple[str, str]]) -> None:
        db.conn.executemany(_DROP_ID, [(self._tenant, *id_) for id_ in ids])

    def _drop_sessions(self, db: Database, sessions: Sequence[str]) -> None:
        """Remove sessions, with what was added to them meanwhile."""
        late = _of_sessions(db, self._tenant, sessions, self._marks)
        keep_out(db, self._tenant, sorted(late.marks))
        self._drop(db, "blocks", "id", late.blocks)
        self._drop_passages(db, [*late.passages])
        self._drop_messages(db, late.messages)
        self._drop(db, "requests", "id", late.requests)
        self._drop(db, "sessions", "id", sessions)

    def _shorten_heads(self, gone: _ToRemove) -> None:
        """Remove the keys of removed messages from heads."""
        keys: dict[str, set[str]] = {}
        for session, key in gone.messages:
            keys.setdefault(session, set()).add(key)
        for session, held in keys.items():
            with self._transaction() as db:
                parameters = (self._tenant, session)
                row = db.conn.execute(_HEAD, parameters).fetchone()
                if row is not None:
                    db.conn.execute(_SHORTER, (*from_head(to_head(row).without(held)), *parameters))

    def _wipe(self, gone: _ToRemove) -> None:
        """Empty the titles, questions and errors that hold the text."""
        for (table, column), ids in gone.wiped.items():
            kind = "titles" if table == "sessions" else "texts of requests"
            for some in self._each(ids):
                sql = f"UPDATE {table} SET {column} = '' WHERE tenant = ? AND id{_IN}"
                with self._transaction() as db:
                    self.removed[kind] += db.conn.execute(sql, (self._tenant, dumps(list(some)))).rowcount
