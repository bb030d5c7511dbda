"""Take something out of the archive for good: rows, full-text index, vectors, blocks that quote it, and the log beside.

    receipt = archive.forget(tenant, ForgetRule(session="ses_1"), now=now)
    archive.verify(receipt)            # is it ours, and is none of what it lists here again?

Clients send their whole history with every request, so what is forgotten would come back with the next one. The table
`forgotten` keeps it out: keyed hashes (HMAC under this archive's secret) of what was removed, nothing that can be read.
"""

import hashlib
import hmac
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from sqlite_utils.db import Database

from lantern_proxy.archive.file import ArchiveError
from lantern_proxy.archive.rows import HEAD, dumps, from_head, name, to_filed, to_head
from lantern_proxy.archive.values import Record
from lantern_proxy.archive.vectors import remove
from lantern_proxy.turn import Block, Filed, fingerprint

_OWN_CHARS = 40
"""A text of so many characters is known wherever it comes again; a shorter one ("yes") only in its place."""
_MOST_MARKS = 20_000
"""Rows that a receipt lists one by one."""

_HEAD = f"SELECT {HEAD} FROM heads WHERE tenant = ? AND session = ?"
_SHORTER = f"UPDATE heads SET ({HEAD}) = (?, ?, ?, ?) WHERE tenant = ? AND session = ?"
_MARK = "INSERT INTO forgotten (tenant, mark) VALUES (?, ?) ON CONFLICT DO NOTHING"
_IS_MARKED = "SELECT 1 FROM forgotten WHERE tenant = ? AND mark = ?"
_ANY = "SELECT 1 FROM forgotten WHERE tenant = ? LIMIT 1"
_MESSAGES = """SELECT session, id, key, position, turn, role, text, items, CAST(raw AS BLOB), print, side, partial,
        created_at FROM messages WHERE tenant = ?"""
_IN = " IN (SELECT value FROM json_each(?))"


@dataclass(frozen=True, slots=True, kw_only=True)
class ForgetRule:
    """What to forget of one tenant: one session with its side calls, one project, whatever holds a text, or all."""

    session: str | None = None
    project: str | None = None
    match: str | None = None
    """Found in any case, within one message."""

    def __post_init__(self) -> None:
        given = [value for value in (self.session, self.project, self.match) if value is not None]
        if len(given) > 1:
            raise ArchiveError("forget takes one of session, project and match; run it again for the other")
        if self.match is not None and len(self.match.strip()) < 3:
            raise ArchiveError(f"match is {self.match!r}; use three characters or more, so that not everything goes")

    @property
    def kind(self) -> str:
        held = {"session": self.session, "project": self.project, "match": self.match}
        return next((kind for kind, value in held.items() if value is not None), "tenant")


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """What was forgotten, in numbers and keyed hashes: proof to who has the archive, nothing to anybody else."""

    tenant: str
    kind: str
    """session, project, match or tenant."""
    what: str
    """The session or project; of a match its keyed hash."""
    at: float
    removed: Mapping[str, int]
    """Table -> rows."""
    marks: tuple[str, ...] = ()
    """Keyed hashes of the removed messages and passages, hex; the first 20,000."""
    left_over: int = 0
    """Of a match: places in the archive's raw files that hold the text all the same."""
    signature: str = ""

    def signed(self, secret: bytes) -> "Receipt":
        return replace(self, signature=self._sign(secret))

    def is_genuine(self, secret: bytes) -> bool:
        return hmac.compare_digest(self.signature, self._sign(secret))

    def _sign(self, secret: bytes) -> str:
        told = json.dumps(asdict(replace(self, signature="")), sort_keys=True).encode()
        return hmac.new(secret, b"lantern receipt\0" + told, hashlib.sha256).hexdigest()

    @classmethod
    def read(cls, text: str) -> "Receipt":
        """A receipt as `json.dumps(asdict(...))` wrote it. Raises ArchiveError."""
        try:
            row = json.loads(text)
            return cls(**row | {"marks": tuple(row["marks"])})
        except (ValueError, TypeError, KeyError):
            raise ArchiveError("this is no receipt of `lantern forget`; give the file that it printed") from None


@dataclass(frozen=True, slots=True)
class Verified:
    """genuine: this archive made it, and nobody changed it; present: rows it lists that are here (again)."""

    genuine: bool
    present: int


@dataclass(slots=True)
class _Gone:
    """What goes, before it goes."""

    sessions: list[str] = field(default_factory=list)
    """Whole ones."""
    messages: list[int] = field(default_factory=list)
    keys: dict[str, set[str]] = field(default_factory=dict)
    """session -> keys of messages, where not all of a session goes."""
    passages: set[int] = field(default_factory=set)
    blocks: set[int] = field(default_factory=set)
    marks: set[bytes] = field(default_factory=set)
    """What is kept out from now on."""
    listed: list[bytes] = field(default_factory=list)
    """What the receipt lists."""


class Marks:
    """Keyed hashes of what is forgotten, 16 bytes each."""

    def __init__(self, secret: bytes) -> None:
        self._secret = secret

    def of(self, kind: str, *parts: str | bytes) -> bytes:
        mac = hmac.new(self._secret, f"lantern forgotten {kind}".encode(), hashlib.sha256)
        for part in parts:
            data = part.encode("utf-8", "surrogatepass") if isinstance(part, str) else part
            mac.update(len(data).to_bytes(8, "little") + data)
        return mac.digest()[:16]

    def key(self, key: str) -> bytes:
        """Of a message by its place in its history."""
        return self.of("key", name(key))

    def message(self, filed: Filed) -> tuple[bytes, ...]:
        """By its place in its history; by its content, too, when that is its own."""
        size = sum(len(item.text) for item in filed.message.items)
        own = filed.message.print and size >= _OWN_CHARS
        return (self.key(filed.key), *((self.of("print", filed.message.print),) if own else ()))


def without_forgotten(db: Database, marks: Marks, records: Sequence[Record]) -> list[Record]:
    """`records` without what was forgotten before, and without what is not to be kept, which is marked so that it stays
    out. Inside a transaction."""
    kept, marked = [], dict[str, bool]()
    for record in records:
        tenant = name(record.tenant)
        if record.unkept:
            db.conn.executemany(_MARK, [(tenant, mark) for mark in _unkept(marks, record)])
        if record.unkept or tenant not in marked:
            marked[tenant] = db.conn.execute(_ANY, (tenant,)).fetchone() is not None
        kept.append(_without(db, marks, tenant, record) if marked[tenant] else record)
    return kept


def _without(db: Database, marks: Marks, tenant: str, record: Record) -> Record:
    """`record` without what is marked."""
    kept = [filed for filed in record.messages if not _any_marked(db, tenant, marks.message(filed))]
    gone = {filed.key for filed in record.messages} - {filed.key for filed in kept}
    session, request = record.session, record.request
    if gone or _is_marked(db, tenant, marks.of("session", name(session.id))):
        session = replace(session, title="")
    if request is not None and request.query and (gone or _is_marked(db, tenant, marks.of("query", request.query))):
        request = replace(request, query="")
    passages = tuple(p for p in record.passages if p.message not in gone and not (gone and p.unit == "turn"))
    blocks = tuple(block for block in record.blocks if not _quotes_forgotten(db, tenant, marks, block))
    named = {*record.head.keys, *record.head.abandoned}
    head = record.head.without({key for key in named if _is_marked(db, tenant, marks.key(key))})
    return replace(
        record, messages=tuple(kept), passages=passages, session=session, request=request, blocks=blocks, head=head
    )


def _quotes_forgotten(db: Database, tenant: str, marks: Marks, block: Block) -> bool:
    """Was something of it forgotten while its request was under way?"""
    hashes = (fingerprint(placed.passage.text) for placed in block.restored.placed)
    return any(_is_marked(db, tenant, marks.of("text", hash_)) for hash_ in hashes)


def _unkept(marks: Marks, record: Record) -> Iterator[bytes]:
    for filed in record.unkept:
        yield from marks.message(filed)
        yield marks.of("query", filed.message.text[:2_000])
    yield marks.of("session", name(record.session.id))


def _is_marked(db: Database, tenant: str, mark: bytes) -> bool:
    return db.conn.execute(_IS_MARKED, (tenant, mark)).fetchone() is not None


def _any_marked(db: Database, tenant: str, marks: Iterable[bytes]) -> bool:
    return any(_is_marked(db, tenant, mark) for mark in marks)


def forget_in(
    db: Database, tenant: str, rule: ForgetRule, marks: Marks, *, now: float, dry_run: bool, vectors: bool
) -> Receipt:
    """Remove what `rule` names, inside the caller's transaction. What goes is overwritten in the file."""
    gone = _matching(db, tenant, rule.match, marks) if rule.match is not None else _whole(db, tenant, rule, marks)
    if dry_run:
        db.execute("SAVEPOINT forget")
        removed = _remove(db, tenant, rule, gone, marks, vectors=False)
        db.execute("ROLLBACK TO forget")
        db.execute("RELEASE forget")
    else:
        removed = _remove(db, tenant, rule, gone, marks, vectors=vectors)
        db.conn.executemany(_MARK, [(tenant, mark) for mark in sorted(gone.marks)])
        if removed["passages"]:
            db.execute("INSERT INTO passages_fts (passages_fts) VALUES ('optimize')")
        count_up(db)
        db.execute("PRAGMA incremental_vacuum").fetchall()
    what = rule.session or rule.project or ""
    if rule.match is not None:
        what = marks.of("match", rule.match.casefold()).hex()
    listed = tuple(mark.hex() for mark in gone.listed[:_MOST_MARKS])
    return Receipt(tenant=tenant, kind=rule.kind, what=what, at=now, removed=removed, marks=listed)


def present(db: Database, receipt: Receipt, marks: Marks) -> int:
    """Rows of the archive that the receipt lists."""
    listed = set(receipt.marks)
    tenant = receipt.tenant
    here = (marks.of("message", row[0], row[9]) for row in db.conn.execute(_MESSAGES, (tenant,)))
    found = sum(mark.hex() in listed for mark in here)
    rows = db.conn.execute("SELECT session, hash FROM passages WHERE tenant = ?", (tenant,))
    return found + sum(marks.of("passage", *row).hex() in listed for row in rows)


def generation(db: Database) -> str:
    """Changes whenever something was forgotten: what a running proxy remembers is then not to be used."""
    row = db.conn.execute("SELECT value FROM settings WHERE tenant = '' AND name = 'forgotten'").fetchone()
    return row[0] if row else ""


def count_up(db: Database) -> None:
    """Tell all processes that what they remember may be gone."""
    number = str(int(generation(db) or 0) + 1)
    db.execute("INSERT OR REPLACE INTO settings (tenant, name, value) VALUES ('', 'forgotten', ?)", (number,))


# what goes


def _whole(db: Database, tenant: str, rule: ForgetRule, marks: Marks) -> _Gone:
    """Sessions that go with all they hold."""
    where, values = "", []
    if rule.session is not None:
        own = name(rule.session)
        where, values = " AND (id = ? OR substr(id, 1, ?) = ?)", [own, len(own) + 1, f"{own}."]
    elif rule.project is not None:
        where, values = " AND project = ?", [name(rule.project)]
    rows = db.conn.execute(f"SELECT id FROM sessions WHERE tenant = ?{where}", (tenant, *values))
    gone = _Gone(sessions=[row[0] for row in rows])
    listed = dumps(gone.sessions)
    for row in db.conn.execute(f"{_MESSAGES} AND session{_IN}", (tenant, listed)):
        _add_message(gone, row, marks)
    sql = f"SELECT id, session, hash FROM passages WHERE tenant = ? AND session{_IN}"
    for id_, session, hash_ in db.conn.execute(sql, (tenant, listed)):
        _add_passage(gone, id_, session, hash_, marks)
    gone.marks |= {marks.of("session", session) for session in gone.sessions}
    sql = f"SELECT DISTINCT query FROM requests WHERE tenant = ? AND session{_IN} AND query <> ''"
    gone.marks |= {marks.of("query", row[0]) for row in db.conn.execute(sql, (tenant, listed))}
    sql = f"""SELECT block FROM placed WHERE tenant = ? AND json_extract(origin, '$.session'){_IN}
        UNION SELECT id FROM blocks WHERE tenant = ? AND session{_IN}"""
    gone.blocks = {row[0] for row in db.conn.execute(sql, (tenant, listed, tenant, listed))}
    return gone


def _matching(db: Database, tenant: str, text: str, marks: Marks) -> _Gone:
    """Whatever holds `text`: reads all that the tenant has."""
    gone, wanted = _Gone(), text.casefold()
    turns: set[tuple[str, int]] = set()
    for row in db.conn.execute(_MESSAGES, (tenant,)):
        filed = to_filed(row[2:])
        if _holds(filed, wanted):
            _add_message(gone, row, marks)
            gone.keys.setdefault(row[0], set()).add(row[2])
            turns.add((row[0], filed.turn))
    sql = """SELECT id, session, message, turn, unit, hash, text FROM passages p WHERE tenant = ?"""
    edited = _edited(db, tenant, wanted)
    for id_, session, message, turn, unit, hash_, passage in db.conn.execute(sql, (tenant,)):
        quoted = message in gone.keys.get(session, ()) or (unit == "turn" and (session, turn) in turns)
        if quoted or id_ in edited or wanted in passage.casefold():
            _add_passage(gone, id_, session, hash_, marks)
    sql = "SELECT b.id, b.text FROM blocks b WHERE b.tenant = ?"
    gone.blocks = {id_ for id_, block in db.conn.execute(sql, (tenant,)) if wanted in block.casefold()}
    sql = "SELECT block, passage, text FROM placed WHERE tenant = ?"
    for block, passage, told in db.conn.execute(sql, (tenant,)):
        if passage in gone.passages or wanted in told.casefold():
            gone.blocks.add(block)
    return gone


def _edited(db: Database, tenant: str, wanted: str) -> set[int]:
    rows = db.conn.execute("SELECT passage, before, after FROM edits WHERE tenant = ?", (tenant,))
    return {passage for passage, before, after in rows if wanted in before.casefold() or wanted in after.casefold()}


def _add_passage(gone: _Gone, id_: int, session: str, hash_: bytes, marks: Marks) -> None:
    gone.passages.add(id_)
    gone.marks.add(marks.of("text", hash_))
    gone.listed.append(marks.of("passage", session, hash_))


def _add_message(gone: _Gone, row: Sequence[Any], marks: Marks) -> None:
    gone.messages.append(row[1])
    gone.marks.update(marks.message(to_filed(row[2:])))
    gone.listed.append(marks.of("message", row[0], row[9]))


def _holds(filed: Filed, wanted: str) -> bool:
    told = (filed.message.text, *(item.text for item in filed.message.items), *_strings(filed.message.raw))
    return any(wanted in text.casefold() for text in told)


def _strings(raw: bytes) -> Iterator[str]:
    """The bytes as they are, and all strings of their JSON, those within strings (arguments of calls) too."""
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


# how it goes


def _remove(
    db: Database, tenant: str, rule: ForgetRule, gone: _Gone, marks: Marks, *, vectors: bool
) -> Mapping[str, int]:
    ids = sorted(gone.passages)
    removed = {
        "vectors": remove(db, ids) if vectors else 0,
        "blocks": _delete(db, "blocks", "id", tenant, sorted(gone.blocks)),
    }
    marked = f"passage{_IN} OR hash IN (SELECT p.hash FROM passages p WHERE p.tenant = ? AND p.id{_IN})"
    db.conn.execute(f"DELETE FROM marks WHERE tenant = ? AND ({marked})", (tenant, dumps(ids), tenant, dumps(ids)))
    removed["passages"] = _delete(db, "passages", "id", tenant, ids)
    removed["messages"] = _delete(db, "messages", "id", tenant, gone.messages)
    if rule.match is not None:
        removed |= _wipe(db, tenant, rule.match.casefold(), gone, marks)
    removed["requests"] = _delete(db, "requests", "session", tenant, gone.sessions)
    removed["sessions"] = _delete(db, "sessions", "id", tenant, gone.sessions)
    if rule.kind == "tenant":
        db.conn.execute("DELETE FROM settings WHERE tenant = ? AND tenant <> ''", (tenant,))
    return removed


def _delete(db: Database, table: str, column: str, tenant: str, values: Iterable[int | str]) -> int:
    """Rows of `table` whose `column` is one of `values`; how many they were."""
    where = f"WHERE tenant = ? AND {column}{_IN}"
    given = (tenant, dumps(list(values)))
    count: int = db.conn.execute(f"SELECT count(*) FROM {table} {where}", given).fetchone()[0]
    db.conn.execute(f"DELETE FROM {table} {where}", given)
    return count


def _wipe(db: Database, tenant: str, wanted: str, gone: _Gone, marks: Marks) -> dict[str, int]:
    """Titles, questions and errors that hold the text are emptied; heads let go of messages that are gone."""
    for session, keys in gone.keys.items():
        given = (tenant, session)
        row = db.conn.execute(_HEAD, given).fetchone()
        if row is not None:
            db.conn.execute(_SHORTER, (*from_head(to_head(row).without(keys)), *given))
    titles = _wiped(db, "sessions", "title", tenant, wanted)
    queries = db.conn.execute("SELECT query FROM requests WHERE tenant = ? AND query <> ''", (tenant,)).fetchall()
    gone.marks |= {marks.of("query", row[0]) for row in queries if wanted in row[0].casefold()}
    texts = [_wiped(db, "requests", column, tenant, wanted) for column in ("query", "error", "path", "model")]
    return {"titles": titles, "texts of requests": sum(texts)}


def _wiped(db: Database, table: str, column: str, tenant: str, wanted: str) -> int:
    rows = db.conn.execute(f"SELECT id, {column} FROM {table} WHERE tenant = ?", (tenant,)).fetchall()
    held = [(tenant, id_) for id_, text in rows if wanted in text.casefold()]
    db.conn.executemany(f"UPDATE {table} SET {column} = '' WHERE tenant = ? AND id = ?", held)
    return len(held)
