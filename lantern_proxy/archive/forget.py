"""Remove something from the archive for good: rows, full-text index, vectors, blocks that quote it, and the log.

    receipt = archive.forget(tenant, ForgetRule(session="ses_1"), now=now)
    archive.verify(receipt)            # is it genuine, and is none of what it lists here again?

Clients send their whole history with every request, so what is forgotten would come back with the next one. The table
`forgotten` keeps it out: keyed hashes (HMAC under this archive's secret) of what was removed, no readable text.
"""

import hashlib
import hmac
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec
from msgspec import Struct, structs
from msgspec.structs import asdict, replace
from sqlite_utils.db import Database

from lantern_proxy.archive.errors import ArchiveError
from lantern_proxy.archive.rows import name
from lantern_proxy.archive.values import QUERY_CHARS, Record, query_of
from lantern_proxy.turn import SYSTEM, Block, Filed, Head, fingerprint

_OWN_CHARS = 40
"""A text of at least so many characters is recognised anywhere; a shorter one ("yes") only at its place."""
_ASKEW_S = 5.0
"""A clock is now and then set back by as much, in seconds; up to that, times that were noted before are trusted."""
MOST_MARKS = 20_000
"""Most rows that a receipt lists individually."""

_MARK = "INSERT INTO forgotten (tenant, mark) VALUES (?, ?) ON CONFLICT DO NOTHING"
_IS_MARKED = "SELECT 1 FROM forgotten WHERE tenant = ? AND mark = ?"
_BEGUN = "INSERT OR REPLACE INTO settings (tenant, name, value) VALUES ('', ?, ?)"
_HAS_BEGUN = """SELECT 1 FROM settings
    WHERE tenant = '' AND name IN (?, ?, ?, ?) AND CAST(value AS REAL) > ? AND CAST(value AS REAL) <= ?"""
_IS_HERE = "SELECT 1 FROM passages WHERE tenant = ? AND id = ?"
_LAST_BEGUN = """SELECT max(CAST(value AS REAL)) FROM settings
    WHERE tenant = '' AND name >= 'forgotten ' AND name < 'forgotten!'"""
_ANY = "SELECT 1 FROM forgotten WHERE tenant = ? LIMIT 1"


class ForgetRule(Struct, frozen=True, kw_only=True):
    """What to forget of one tenant: one session with its side calls, one project, whatever holds a text, or all."""

    session: str | None = None
    project: str | None = None
    match: str | None = None
    """A text within one message, in any case and either normal form (NFC, NFD)."""

    def __post_init__(self) -> None:
        conditions = [value for value in (self.session, self.project, self.match) if value is not None]
        if len(conditions) > 1:
            raise ArchiveError("forget takes one of session, project and match; run it again for the other")
        if self.match is not None and len(self.match.strip()) < 3:
            raise ArchiveError(f"match is {self.match!r}; use three characters or more, so that not everything goes")

    @property
    def kind(self) -> str:
        held = {"session": self.session, "project": self.project, "match": self.match}
        return next((kind for kind, value in held.items() if value is not None), "tenant")


class Receipt(Struct, frozen=True, kw_only=True):
    """What was forgotten, in numbers and keyed hashes: proof for whoever has the archive, meaningless to others."""

    tenant: str
    kind: str
    """session, project, match or tenant."""
    what: str
    """The session or project; for a match its keyed hash."""
    at: float
    removed: Mapping[str, int]
    """Table -> rows."""
    marks: tuple[str, ...] = ()
    """Keyed hashes of the removed messages and passages, hex; the first 20,000."""
    left_over: int = 0
    """For a match: how many places in the archive's raw files still hold the text."""
    signature: str = ""

    def signed(self, secret: bytes) -> "Receipt":
        return replace(self, signature=self._sign(secret))

    def is_genuine(self, secret: bytes) -> bool:
        return hmac.compare_digest(self.signature, self._sign(secret))

    def _sign(self, secret: bytes) -> str:
        payload = json.dumps(asdict(replace(self, signature="")), sort_keys=True).encode()
        return hmac.new(secret, b"lantern receipt\0" + payload, hashlib.sha256).hexdigest()

    @classmethod
    def read(cls, text: str) -> "Receipt":
        """A receipt as `json.dumps(asdict(...))` wrote it. Raises ArchiveError."""
        try:
            found: Receipt = msgspec.convert(row := json.loads(text), cls)
            cls(**row)  # TypeError: a field that no receipt has
            bytes.fromhex(found.signature + "".join(found.marks))
        except (ValueError, TypeError, RecursionError):
            raise ArchiveError("this is no receipt of `lantern forget`; give the file that it printed") from None
        return found


class Verified(Struct, frozen=True):
    """genuine: made by this archive and unchanged since; present: how many of its rows are in the archive (again)."""

    genuine: bool
    present: int


class Marks:
    """Keyed hashes of forgotten texts, 16 bytes each."""

    def __init__(self, secret: bytes) -> None:
        self._secret = secret

    def of(self, kind: str, *parts: str | bytes) -> bytes:
        mac = hmac.new(self._secret, f"lantern forgotten {kind}".encode(), hashlib.sha256)
        for part in parts:
            data = part.encode("utf-8", "surrogatepass") if isinstance(part, str) else part
            mac.update(len(data).to_bytes(8, "little") + data)
        return mac.digest()[:16]

    def key(self, key: str) -> bytes:
        """The mark of a message by its place in its history."""
        return self.of("key", name(key))

    def message(self, filed: Filed) -> tuple[bytes, ...]:
        """The marks of a message: by its place in its history, and by its content if that is long enough."""
        size = sum(len(item.text) for item in filed.message.items)
        own = filed.message.print and size >= _OWN_CHARS
        return (self.key(filed.key), *((self.of("print", filed.message.print),) if own else ()))


def without_forgotten(db: Database, marks: Marks, records: Sequence[Record], *, now: float) -> list[Record]:
    """`records` without what was forgotten before, and without what must not be kept, which is marked so that it stays
    out. Inside a transaction."""
    kept, marked = [], dict[str, bool]()
    last = db.conn.execute(_LAST_BEGUN).fetchone()[0] or 0.0
    for each in records:
        tenant = name(each.tenant)
        is_late = 0 < each.came_at < last and _is_overtaken(db, marks, tenant, each, now)
        record = _unkept_of(each) if is_late else each
        if record.unkept:
            keep_out(db, tenant, _unkept(marks, record))
        if record.unkept or tenant not in marked:
            marked[tenant] = db.conn.execute(_ANY, (tenant,)).fetchone() is not None
        kept.append(_without(db, marks, tenant, record) if marked[tenant] else record)
    return kept


def _without(db: Database, marks: Marks, tenant: str, record: Record) -> Record:
    """`record` without marked messages, passages and blocks."""
    kept = [filed for filed in record.messages if not _any_marked(db, tenant, marks.message(filed))]
    gone = {filed.key for filed in record.messages} - {filed.key for filed in kept}
    is_asked = any(filed.key in gone and filed.message.role not in SYSTEM for filed in record.messages)
    session, request = record.session, record.request
    titled = (marks.of("session", name(session.id)), marks.of("title", session.title))
    if is_asked or _any_marked(db, tenant, titled):
        session = structs.replace(session, title="")
    if request is not None:
        is_told = bool(request.query) and (is_asked or _is_marked(db, tenant, marks.of("query", request.query)))
        failed = bool(request.error) and _is_marked(db, tenant, marks.of("error", request.error))
        request = structs.replace(
            request, query="" if is_told else request.query, error="" if failed else request.error
        )
    passages = tuple(
        p for p in record.passages
        if not (p.message in gone or (gone and p.unit == "turn") or _is_marked(db, tenant, marks.key(p.message)))
    )  # fmt: skip
    blocks = tuple(block for block in record.blocks if not _quotes_forgotten(db, tenant, marks, block))
    keys = {*record.head.keys, *record.head.abandoned}
    head = record.head.without({key for key in keys if _is_marked(db, tenant, marks.key(key))})
    return structs.replace(
        record, messages=tuple(kept), passages=passages, session=session, request=request, blocks=blocks, head=head
    )


def begin_forgetting(db: Database, marks: Marks, tenant: str, rule: ForgetRule, *, now: float) -> None:
    """Note the time at which a session, a project or a tenant is forgotten, so that records still under way are not
    kept. For a match this is impossible, since nobody knows which records hold it."""
    if rule.match is None:
        begun = _forgotten_setting(marks, tenant, rule.kind, name(rule.session or rule.project or ""))
        db.execute(_BEGUN, (begun, str(now)))


def _forgotten_setting(marks: Marks, tenant: str, kind: str, what: str) -> str:
    """Name of the setting that says when a tenant, project or session was last forgotten."""
    return f"forgotten {marks.of('begun', tenant, kind, what).hex()}"


def _is_overtaken(db: Database, marks: Marks, tenant: str, record: Record, now: float) -> bool:
    """Was the record's session, project or tenant forgotten while its request was under way, when it could not be
    found yet?

    A time in the future is ignored: a clock that was ahead noted it, and nothing would be kept until then. It counts if
    the request came in the future, too, since the clock has been set back in between.
    """
    latest = now + _ASKEW_S if record.came_at <= now else math.inf
    of = [
        _forgotten_setting(marks, tenant, "tenant", ""),
        _forgotten_setting(marks, tenant, "project", name(record.project)),
        _forgotten_setting(marks, tenant, "session", name(record.session.id)),
        _forgotten_setting(marks, tenant, "session", name(record.session.parent)),
    ]
    return db.conn.execute(_HAS_BEGUN, (*of, record.came_at, latest)).fetchone() is not None


def _unkept_of(record: Record) -> Record:
    """The record without any text of its request. System prompts are not marked: others have them, too."""
    request = record.request and structs.replace(record.request, query="", error="")
    unkept = tuple(filed for filed in record.messages if filed.message.role not in SYSTEM)
    return structs.replace(
        record, session=structs.replace(record.session, title=""), request=request, messages=(), unkept=unkept,
        head=Head(), passages=(), uncut=(), blocks=(), passed=(),
    )  # fmt: skip


def keep_out(db: Database, tenant: str, marks: Iterable[bytes]) -> None:
    """Store `marks` of forgotten texts, so that they stay out when a client sends them again."""
    db.conn.executemany(_MARK, [(tenant, mark) for mark in marks])


def _quotes_forgotten(db: Database, tenant: str, marks: Marks, block: Block) -> bool:
    """Does the block quote a text that was forgotten while its request was under way, or since it was exported?

    Not if its passage is still here: then another session said the same, or began alike.
    """
    quoted = [placed.passage for placed in block.restored.placed]
    gone = [p for p in quoted if db.conn.execute(_IS_HERE, (tenant, p.id)).fetchone() is None]
    return any(_any_marked(db, tenant, (marks.of("text", fingerprint(p.text)), marks.key(p.message))) for p in gone)


def _unkept(marks: Marks, record: Record) -> Iterator[bytes]:
    for filed in record.unkept:
        yield from marks.message(filed)
        yield marks.of("query", query_of(filed.message.text)[:QUERY_CHARS])
    yield marks.of("session", name(record.session.id))


def _is_marked(db: Database, tenant: str, mark: bytes) -> bool:
    return db.conn.execute(_IS_MARKED, (tenant, mark)).fetchone() is not None


def _any_marked(db: Database, tenant: str, marks: Iterable[bytes]) -> bool:
    return any(_is_marked(db, tenant, mark) for mark in marks)


def present(db: Database, receipt: Receipt, marks: Marks) -> int:
    """How many rows that the receipt lists are in the archive."""
    listed, tenant = set(receipt.marks), receipt.tenant
    found = 0
    for kind, sql in (
        ("message", "SELECT session, print FROM messages WHERE tenant = ?"),
        ("passage", "SELECT session, hash FROM passages WHERE tenant = ?"),
    ):
        found += sum(marks.of(kind, *row).hex() in listed for row in db.conn.execute(sql, (tenant,)))
    return found


def generation(db: Database) -> str:
    """A value that changes whenever something is forgotten: a running proxy must then drop what it remembers."""
    row = db.conn.execute("SELECT value FROM settings WHERE tenant = '' AND name = 'forgotten'").fetchone()
    return row[0] if row else ""


def bump_generation(db: Database) -> None:
    """Tell all processes that what they remember may have been removed."""
    number = str(int(generation(db) or 0) + 1)
    db.execute("INSERT OR REPLACE INTO settings (tenant, name, value) VALUES ('', 'forgotten', ?)", (number,))
