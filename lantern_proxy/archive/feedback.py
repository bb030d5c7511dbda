"""A person's verdicts, pins and corrections of passages: their SQL. TenantArchive inherits it.

    mine.feedback("req_12", 7, "outdated", now=now)      # from now on passage 7 is not restored
    mine.pin(8, now=now)                                  # preferred, and never pruned
    mine.edit(chunk.reword(passage, "port 5433"), now=now)

A verdict, a pin and a correction belong to a text, not to a row: they hold for every copy of the same text in the same
project, in branches of a session, in other sessions, and in what is archived later. They are looked up when a passage
is read, so another process sees them at its next restore.
"""

from collections.abc import Callable
from typing import Literal, get_args

from msgspec import Struct
from msgspec.structs import replace
from sqlite_utils.db import Database

from lantern_proxy.archive.errors import ArchiveError
from lantern_proxy.archive.reads import Reads
from lantern_proxy.archive.rows import PASSAGE, dumps, exact, lines, name, texts, to_passage, unlines
from lantern_proxy.archive.vectors import embedding_model, remove
from lantern_proxy.turn import Passage, fingerprint

Verdict = Literal["useful", "wrong", "outdated"]
VERDICTS: tuple[Verdict, ...] = get_args(Verdict)
Settle = Callable[[float, float, bool], tuple[float, float]]
"""(confidence, success, was it of use?) -> the new confidence and success, as reinforce.settle."""
LONGEST_EDIT = 12_000
"""Most characters of a corrected passage, as many as the longest that chunk.py makes."""

PINNED = """EXISTS (SELECT 1 FROM marks k WHERE k.tenant = passages.tenant AND k.project = passages.project
    AND k.hash = passages.hash AND k.pinned = 1)"""
"""SQL: is a row of `passages` pinned?"""

_ONE = f"SELECT {PASSAGE}, p.project, p.hash FROM passages p WHERE p.tenant = ? AND p.id = ?"
_MARK = """INSERT INTO marks (tenant, project, hash, passage, verdict, pinned, changed_at)
    VALUES (:tenant, :project, :hash, :passage, ifnull(:verdict, ''), ifnull(:pinned, 0), :now)
    ON CONFLICT (tenant, project, hash) DO UPDATE SET passage = excluded.passage, changed_at = excluded.changed_at,
        verdict = ifnull(:verdict, verdict), pinned = ifnull(:pinned, pinned)"""
_MARKED = f"""SELECT {PASSAGE}, k.changed_at,
        (SELECT count(*) FROM edits e WHERE e.tenant = p.tenant AND e.passage = p.id)
    FROM marks k JOIN passages p ON p.tenant = k.tenant AND p.id = k.passage
    WHERE k.tenant = ? AND (k.verdict <> '' OR k.pinned OR EXISTS (
        SELECT 1 FROM edits e WHERE e.tenant = p.tenant AND e.passage = p.id))
    ORDER BY k.changed_at DESC, p.id DESC LIMIT ?"""
_PINS = """SELECT passage FROM marks WHERE tenant = ? AND pinned = 1 UNION
    SELECT p.id FROM marks k CROSS JOIN passages p ON p.tenant = k.tenant AND p.session = ? AND p.unit = 'passage'
        AND p.hash = k.hash AND p.project = k.project
    WHERE k.tenant = ? AND k.pinned = 1"""
_PLACED = """UPDATE placed SET verdict = ? WHERE tenant = ? AND passage = ? AND block = (
        SELECT b.id FROM blocks b JOIN placed p ON p.tenant = b.tenant AND p.block = b.id
        WHERE b.tenant = ? AND p.passage = ? AND (b.request = ? OR b.session = (
            SELECT session FROM requests WHERE tenant = b.tenant AND id = ?))
        ORDER BY b.request = ? DESC, b.id DESC LIMIT 1) RETURNING verdict"""
_REQUEST = "SELECT 1 FROM requests WHERE tenant = ? AND id = ?"
_LEARN = "UPDATE passages SET confidence = ?, success = ? WHERE tenant = ? AND id = ?"
_COPIES = """SELECT p.id, p.session, p.text FROM sessions s
    CROSS JOIN passages p ON p.tenant = s.tenant AND p.session = s.id AND p.unit = 'passage' AND p.hash = ?
    WHERE s.tenant = ? AND s.project = ?"""
_EDITS = "SELECT passage, before, after, at FROM edits WHERE tenant = ? AND {column} = ? ORDER BY id"
_ANY_EDIT = "SELECT 1 FROM edits WHERE tenant = ? LIMIT 1"
_EDIT = """INSERT INTO edits (tenant, project, session, hash, passage, at, before, after)
    VALUES (?, ?, ?, ?, ?, ?, CAST(? AS TEXT), CAST(? AS TEXT))"""
_REWORD = (
    """UPDATE passages SET text = CAST(? AS TEXT), tags = ?, terms = CAST(? AS TEXT) WHERE tenant = ? AND id = ?"""
)
_EDITED = "SELECT id, passage FROM edits WHERE tenant = ? AND id > ? ORDER BY id"
_CORRECTION = """SELECT p.text, p.tags, p.terms FROM edits e JOIN passages p ON p.tenant = e.tenant AND p.id = e.passage
    WHERE e.tenant = ? AND e.project = ? AND e.hash = ? ORDER BY e.id DESC LIMIT 1"""


class Marked(Struct, frozen=True, kw_only=True):
    """A passage with feedback; `passage` holds its current verdict and pin."""

    passage: Passage
    changed_at: float
    edits: int
    """How often it was corrected."""


class Edit(Struct, frozen=True, kw_only=True):
    """One correction: the text before it, verbatim, and the text since."""

    passage: int
    before: str
    after: str
    at: float


class Feedback(Reads):
    """The part of TenantArchive that changes passages on a person's word. Unknown ids raise ArchiveError."""

    _vectors: bool

    def feedback(
        self, request: str, passage_id: int, verdict: Verdict | Literal[""], *, now: float, settle: Settle | None = None
    ) -> Passage:
        """Store a person's verdict on a passage; "" takes it back. A wrong or outdated passage is not restored again.

        request: the request whose block, or replayed block, showed it; "" if it was found otherwise
        settle:  updates confidence and success, once for each new verdict; None leaves them
        returns: the passage as it is now
        """
        if verdict and verdict not in VERDICTS:
            raise ArchiveError(f'verdict is {verdict!r}; use {", ".join(VERDICTS)}, or "" to take it back')
        with self._connections.writing() as db:
            passage, project, hash_ = self._one(db, passage_id, request)
            if request:
                self._judge_placed(db, request, passage_id, verdict)
            self._mark(db, project, hash_, passage_id, now, verdict=verdict)
            if settle is not None and verdict and verdict != passage.verdict:
                learned = settle(passage.confidence, passage.success, verdict == "useful")
                db.conn.execute(_LEARN, (*learned, self.tenant, passage_id))
            return self._one(db, passage_id)[0]

    def pin(self, passage_id: int, *, now: float) -> Passage:
        """Prefer the passage in restores and keep it from pruning."""
        return self._pin(passage_id, 1, now)

    def unpin(self, passage_id: int, *, now: float) -> Passage:
        return self._pin(passage_id, 0, now)

    def _pin(self, passage_id: int, pinned: int, now: float) -> Passage:
        with self._connections.writing() as db:
            _, project, hash_ = self._one(db, passage_id)
            self._mark(db, project, hash_, passage_id, now, pinned=pinned)
            return self._one(db, passage_id)[0]

    def edit(self, corrected: Passage, *, now: float) -> Passage:
        """Replace the passage of that id, and every copy of it, by `corrected` (chunk.reword).

        The earlier text is kept, see history(); full text, BM25 and vectors follow. A verdict against it is lifted.
        """
        text = corrected.text
        if not text.strip() or len(text) > LONGEST_EDIT:
            raise ArchiveError(
                f"new text has {len(text)} characters; give 1 to {LONGEST_EDIT:,}, or mark the passage wrong"
            )
        with self._connections.writing() as db:
            passage, project, hash_ = self._one(db, corrected.id)
            if passage.text == text:
                return passage
            lifted = "" if passage.verdict != "useful" else None
            self._mark(db, project, hash_, corrected.id, now, verdict=lifted)
            copies = db.conn.execute(_COPIES, (hash_, self.tenant, project)).fetchall()
            mine = (corrected.id, passage.session, passage.text)
            for id_, session, before in {copy[0]: copy for copy in (*copies, mine)}.values():
                values = (self.tenant, project, session, hash_, id_, now, exact(before), exact(text))
                db.conn.execute(_EDIT, values)
                self._reword(db, id_, corrected)
            return self._one(db, corrected.id)[0]

    def _reword(self, db: Database, id_: int, corrected: Passage) -> None:
        """Store the corrected text. Its vector is removed if vectors are available; the embedder makes the new one."""
        tags, terms = dumps(corrected.tags), exact(lines(corrected.terms))
        db.conn.execute(_REWORD, (exact(corrected.text), tags, terms, self.tenant, id_))
        if self._vectors:
            if embedding_model(db):
                remove(db, [id_])
            db.conn.execute("UPDATE passages SET embedded = 0 WHERE tenant = ? AND id = ?", (self.tenant, id_))

    def history(self, passage_id: int) -> list[Edit]:
        """Every correction of a passage, oldest first: the first `before` is the original text."""
        return self._edits("passage", passage_id)

    def edits(self, session: str) -> list[Edit]:
        """Every correction in a session, oldest first."""
        return self._edits("session", name(session))

    def _edits(self, column: str, value: str | int) -> list[Edit]:
        rows = self._rows(_EDITS.format(column=column), (self.tenant, value))
        return [Edit(passage=passage, before=before, after=after, at=at) for passage, before, after, at in rows]

    def marked(self, limit: int = 50) -> list[Marked]:
        """Passages that are judged, pinned or corrected, last changed first."""
        rows = self._rows(_MARKED, (self.tenant, limit))
        return [Marked(passage=to_passage(row[:-2]), changed_at=row[-2], edits=row[-1]) for row in rows]

    def pinned(self, session: str) -> frozenset[int]:
        """Ids of the pinned passages, and of their copies in `session`."""
        return frozenset(row[0] for row in self._rows(_PINS, (self.tenant, name(session), self.tenant)))

    def edited(self, after_edit: int = 0) -> list[tuple[int, int]]:
        """(edit, passage id) of the corrections after edit number `after_edit`, in order."""
        return self._rows(_EDITED, (self.tenant, after_edit))

    def _one(self, db: Database, passage_id: int, request: str = "") -> tuple[Passage, str, bytes]:
        """(passage, project, hash of its original text)"""
        row = db.conn.execute(_ONE, (self.tenant, passage_id)).fetchone()
        if row is None and request:
            raise self._not_restored(db, request, passage_id)
        if row is None:
            raise ArchiveError(f"there is no passage {passage_id}; `lantern search` and `lantern why` give numbers")
        return to_passage(row[:-2]), row[-2], row[-1]

    def _mark(
        self, db: Database, project: str, hash_: bytes, passage_id: int, now: float, *,
        verdict: str | None = None, pinned: int | None = None,
    ) -> None:  # fmt: skip
        """Set the given marks; the others stay."""
        values = {"tenant": self.tenant, "project": project, "hash": hash_, "passage": passage_id, "now": now}
        db.conn.execute(_MARK, values | {"verdict": verdict, "pinned": pinned})

    def _judge_placed(self, db: Database, request: str, passage_id: int, verdict: str) -> None:
        """Note the verdict in the block that showed the passage: one of `request`, else the last of its session."""
        id_ = name(request)
        values = (verdict, self.tenant, passage_id, self.tenant, passage_id, id_, id_, id_)
        if not db.conn.execute(_PLACED, values).fetchall():
            raise self._not_restored(db, request, passage_id)

    def _not_restored(self, db: Database, request: str, passage_id: int) -> ArchiveError:
        if db.conn.execute(_REQUEST, (self.tenant, name(request))).fetchone() is None:
            return ArchiveError(f"request {request} is not in the archive; x-lantern-request of an answer has its id")
        return ArchiveError(f"request {request} restored no passage {passage_id}; `lantern why {request}` lists them")


def has_edits(db: Database, tenant: str) -> bool:
    """Was any passage of the tenant ever corrected?"""
    return db.conn.execute(_ANY_EDIT, (tenant,)).fetchone() is not None


def corrected(db: Database, tenant: str, project: str, passage: Passage) -> Passage:
    """`passage`, just archived, or its correction if the same text was corrected before. For Archive.write."""
    values = (tenant, name(project), fingerprint(passage.text))
    row = db.conn.execute(_CORRECTION, values).fetchone()
    if row is None:
        return passage
    text, tags, terms = row
    db.conn.execute(
        _EDIT,
        (*(tenant, name(project), name(passage.session), fingerprint(passage.text), passage.id),
         passage.created_at, exact(passage.text), exact(text)),
    )  # fmt: skip
    db.conn.execute(_REWORD, (exact(text), tags, exact(terms), tenant, passage.id))
    return replace(passage, text=text, tags=texts(tags), terms=unlines(terms))
