"""What one tenant has archived: the only way to read the archive, with the tenant bound in every query."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
import numpy.typing as npt
from sqlite_utils.db import Database

from lantern_proxy.archive_file import ArchiveError, Connections
from lantern_proxy.archive_prune import prune
from lantern_proxy.archive_rows import (
    Hit,
    Mark,
    PruneReport,
    PruneRule,
    RequestRow,
    Row,
    SessionRow,
    Why,
    dumps,
    exact,
    name,
    to_block,
    to_filed,
    to_passage,
    to_placed,
    to_request,
    to_session,
    unlines,
)
from lantern_proxy.turn import Block, Filed, Passage

Vector = npt.NDArray[np.float32]

MOST_TERMS = 64
"""Terms of one full-text query that count; more would only slow it down."""
_MOST_NEIGHBOURS = 4_096  # vec0's own limit
_MOST_LOADED = (
    4_096  # vectors that are loaded one by one (6 us each) rather than scanned for (2 us, but all of the tenant)
)

PASSAGE = (
    "p.id, p.session, p.message, p.position, p.part, p.turn, p.speaker, p.text, p.unit, p.kind, p.tags, p.tools, "
    "p.terms, p.created_at, p.confidence, p.success, p.accesses, p.accessed_at"
)
_SESSION = """SELECT s.id, s.project, s.api, s.family, s.parent, s.title, s.created_at, s.last_seen_at, s.system,
        s.tools,
        (SELECT count(*) FROM messages m WHERE m.tenant = s.tenant AND m.session = s.id),
        (SELECT count(*) FROM passages p WHERE p.tenant = s.tenant AND p.session = s.id AND p.unit = 'passage')
    FROM sessions s WHERE s.tenant = ?"""
_MESSAGES = """SELECT key, position, turn, role, text, items, CAST(raw AS BLOB), print, side, partial, created_at
    FROM messages WHERE tenant = ? AND session = ? ORDER BY position, id"""
_HOLDERS = """SELECT s.id FROM sessions s WHERE s.tenant = :tenant AND s.id IN (
        SELECT i.session FROM json_each(:values) v JOIN ids i ON i.tenant = :tenant AND i.value = v.value
        UNION SELECT m.session FROM json_each(:values) v JOIN messages m ON m.tenant = :tenant AND m.key = v.value)
    ORDER BY s.last_seen_at DESC, s.rowid DESC"""
_BY_ID = f"SELECT {PASSAGE} FROM json_each(?) v CROSS JOIN passages p ON p.id = v.value WHERE p.tenant = ?"
_FTS = """FROM passages_fts f CROSS JOIN passages p ON p.id = f.rowid
    WHERE passages_fts MATCH ? AND p.tenant = ? AND p.unit = ?"""
_SNIPPETS = """SELECT rowid, snippet(passages_fts, 0, '[', ']', '...', 24) FROM passages_fts
    WHERE passages_fts MATCH ? AND rowid IN (SELECT value FROM json_each(?))"""
_VECTORS = """SELECT v.passage_id, v.embedding FROM json_each(?) j
    CROSS JOIN passages p ON p.id = j.value AND p.tenant = ? CROSS JOIN vectors v ON v.passage_id = p.id"""
# The tenant is bound twice: in vec0's partition, and in the passage that the vector must belong to.
_NEAREST = """SELECT p.id, 1 - v.distance
    FROM (SELECT passage_id, distance FROM vectors WHERE embedding MATCH ? AND k = ? AND tenant = ?{among}) v
    CROSS JOIN passages p ON p.id = v.passage_id AND p.tenant = ? ORDER BY v.distance, p.id DESC"""
_LISTED = " AND passage_id IN (SELECT value FROM json_each(?))"
_REQUEST = """SELECT id, session, at, api, path, model, event, status, query, restored, chars, ms, degraded, gone, error
    FROM requests WHERE tenant = ?"""
_BLOCKS = """SELECT id, session, request, anchor, chain, place, kind, text, considered, ms, degraded, created_at
    FROM blocks WHERE tenant = ?"""
_PLACED = """SELECT j.value, p.passage, p.origin, p.text, p.rank, p.score, p.signals
    FROM json_each(?) j CROSS JOIN placed p ON p.tenant = ? AND p.block = j.value ORDER BY p.block, p.slot"""
_MARKS = """SELECT p.passage, p.used, p.verdict FROM blocks b
    CROSS JOIN placed p ON p.tenant = b.tenant AND p.block = b.id 
    WHERE b.tenant = ? AND b.request = ? ORDER BY p.block, p.slot"""
_USED = """UPDATE placed SET used = ? WHERE tenant = ? AND passage = ?
    AND block IN (SELECT id FROM blocks WHERE tenant = ? AND request = ?)"""
_VERDICT = """UPDATE placed SET verdict = CAST(? AS TEXT) WHERE tenant = ? AND passage = ? AND block = (
        SELECT b.id FROM blocks b JOIN placed p ON p.tenant = b.tenant AND p.block = b.id
        WHERE b.tenant = ? AND p.passage = ? AND (b.request = ? OR b.session = (
            SELECT session FROM requests WHERE tenant = b.tenant AND id = ?))
        ORDER BY b.request = ? DESC, b.id DESC LIMIT 1)"""
_REINFORCE = """UPDATE passages SET confidence = ?, success = ?, accesses = ?, accessed_at = ?
    WHERE tenant = ? AND id = ?"""


class TenantArchive:
    """One tenant's part of an archive. Make it with Archive.of; nothing in it sees another tenant.

    Every method raises ArchiveError when the file is at fault. Ids, sessions and requests of others read as unknown.
    """

    def __init__(self, connections: Connections, tenant: str, *, vectors: bool) -> None:
        self._connections, self.tenant, self._vectors = connections, tenant, vectors

    # sessions and their messages

    def sessions(self, limit: int = 50, project: str | None = None) -> list[SessionRow]:
        """The sessions last seen, newest first."""
        where, values = _given(("s.project", project))
        rows = self._rows(f"{_SESSION}{where} ORDER BY s.last_seen_at DESC LIMIT ?", (self.tenant, *values, limit))
        return [to_session(row) for row in rows]

    def session(self, id: str) -> SessionRow | None:
        rows = self._rows(f"{_SESSION} AND s.id = ?", (self.tenant, name(id)))
        return to_session(rows[0]) if rows else None

    def messages(self, session: str) -> list[Filed]:
        """Everything the session ever held, side calls and abandoned branches included, in order of position."""
        return [to_filed(row) for row in self._rows(_MESSAGES, (self.tenant, name(session)))]

    def head(self, session: str) -> tuple[str, ...]:
        """Keys of what the session shows now, in order."""
        rows = self._rows("SELECT keys FROM heads WHERE tenant = ? AND session = ?", (self.tenant, name(session)))
        return unlines(rows[0][0]) if rows else ()

    def holders(self, values: Sequence[str]) -> list[str]:
        """Sessions that hold any of these minted ids or message keys, last seen first."""
        with self._connections.reading() as db:
            found = db.conn.execute(_HOLDERS, {"tenant": self.tenant, "values": dumps([name(v) for v in values])})
            return [row[0] for row in found]

    # passages

    def passages(
        self, session: str | None = None, project: str | None = None, unit: str = "passage", after_id: int = 0,
        limit: int | None = None,
    ) -> list[Passage]:  # fmt: skip
        """Passages with ids above `after_id`, in order of id."""
        where, values = _scope("p.", session, project)
        given = f"p.tenant = ? AND p.unit = ? AND p.id > ?{where}"
        sql = f"SELECT {PASSAGE} FROM passages p WHERE {given} ORDER BY p.id LIMIT ?"
        rows = self._rows(sql, (self.tenant, unit, after_id, *values, -1 if limit is None else limit))
        return [to_passage(row) for row in rows]

    def terms(
        self, session: str | None = None, project: str | None = None, unit: str = "passage", after_id: int = 0
    ) -> Iterator[tuple[int, float, list[str]]]:
        """(passage id, created_at, terms) in order of id: what a lexical index is built from, without the rest."""
        where, values = _scope("", session, project)
        sql = f"SELECT id, created_at, terms FROM passages WHERE tenant = ? AND unit = ? AND id > ?{where} ORDER BY id"
        with self._connections.reading() as db:
            for id_, created_at, terms in db.conn.execute(sql, (self.tenant, unit, after_id, *values)):
                yield id_, created_at, terms.split("\n") if terms else []

    def passages_by_id(self, ids: Iterable[int]) -> dict[int, Passage]:
        """Those of `ids` that are there."""
        rows = self._rows(_BY_ID, (_json_ids(ids), self.tenant))
        return {row[0]: to_passage(row) for row in rows}

    # full text

    def search(self, query: str, limit: int = 10, session: str | None = None, unit: str = "passage") -> list[Hit]:
        """Passages with all words of `query` ("quoted words" as one phrase), else those with any; best first."""
        phrases = _phrases(query)
        for operator in (" ", " OR "):
            hits = self._hits(operator.join(phrases), limit, session, unit) if phrases else []
            if hits:
                return hits
        return []

    def _hits(self, match: str, limit: int, session: str | None, unit: str) -> list[Hit]:
        """Best first. Ranked by id alone before anything long is read: a common word is in thousands of passages."""
        ranking = self._ranking(match, limit, session, unit)
        ids = _json_ids(id_ for id_, _ in ranking)
        snippets = dict(self._rows(_SNIPPETS, (match, ids)))
        passages = self.passages_by_id(id_ for id_, _ in ranking)
        return [
            Hit(passages[id_], score, snippets[id_]) for id_, score in ranking if id_ in passages and id_ in snippets
        ]

    def _ranking(self, match: str, k: int, session: str | None, unit: str) -> list[tuple[int, float]]:
        where, values = _given(("p.session", session))
        sql = f"SELECT p.id, -bm25(passages_fts) AS score {_FTS}{where} ORDER BY score DESC, p.id DESC LIMIT ?"
        return self._rows(sql, (match, self.tenant, unit, *values, k))

    def fts(
        self, query_terms: Sequence[str], k: int, session: str | None = None, unit: str = "passage"
    ) -> list[tuple[int, float]]:
        """The k passages with the best BM25 for any of the terms (the first 64): (id, score), best first.

        A term of several words is a phrase. Terms are stemmed by FTS5's porter, as the passages are.
        """
        phrases = list(dict.fromkeys(filter(None, map(_quoted, query_terms))))[:MOST_TERMS]
        return self._ranking(" OR ".join(phrases), k, session, unit) if phrases else []

    # vectors

    def nearest(
        self,
        vector: Vector,
        k: int,
        ids: Iterable[int] | None = None,
        session: str | None = None,
        unit: str = "passage",
    ) -> list[tuple[int, float]]:
        """The k (at most 4,096) passages nearest to `vector`, (dim,): (id, cosine), best first. Exact.

        ids: only these count, whatever their session and unit; None searches the tenant, or one session of it
        Empty when there are no vectors, or vectors cannot be searched here.
        """
        with self._connections.reading() as db:
            if not self._embedded(db, len(vector)):
                return []
            wanted = None if ids is None else list(ids)
            if wanted is not None and len(wanted) <= _MOST_LOADED:
                return _by_cosine(vector, self.vectors(wanted))[:k]
            among = _given(("session", session), ("unit", unit)) if wanted is None else (_LISTED, [_json_ids(wanted)])
            values = (np.asarray(vector, dtype=np.float32).tobytes(), max(0, min(k, _MOST_NEIGHBOURS)), self.tenant)
            return db.conn.execute(_NEAREST.format(among=among[0]), (*values, *among[1], self.tenant)).fetchall()

    def vectors(self, ids: Iterable[int]) -> dict[int, Vector]:
        """float32 (dim,) of each of `ids` that has one."""
        with self._connections.reading() as db:
            if not self._embedded(db):
                return {}
            rows = db.conn.execute(_VECTORS, (_json_ids(ids), self.tenant)).fetchall()
        return {id_: np.frombuffer(packed, dtype=np.float32) for id_, packed in rows}

    def _embedded(self, db: Database, dim: int | None = None) -> bool:
        """Whether there are vectors; ArchiveError when they are not of `dim` floats."""
        known = embedding_model(db) if self._vectors else None
        if known and dim not in (None, known[1]):
            raise ArchiveError(
                f"vector has {dim} numbers, this archive's have {known[1]} ({known[0]}); run `lantern reindex`"
            )
        return known is not None

    # requests and the ledger

    def blocks(self, session: str) -> list[Block]:
        """The session's ledger, oldest first."""
        return self._blocks(" AND session = ? ORDER BY id", (self.tenant, name(session)))

    def request(self, id: str) -> RequestRow | None:
        rows = self._rows(f"{_REQUEST} AND id = ?", (self.tenant, name(id)))
        return to_request(rows[0]) if rows else None

    def requests(self, session: str | None = None, limit: int = 50) -> list[RequestRow]:
        """The latest requests, newest first."""
        where, values = _given(("session", session))
        rows = self._rows(f"{_REQUEST}{where} ORDER BY at DESC, rowid DESC LIMIT ?", (self.tenant, *values, limit))
        return [to_request(row) for row in rows]

    def why(self, request_id: str) -> Why | None:
        """What is known of a request and the blocks it brought (those replayed in it belong to earlier requests)."""
        request = self.request(request_id)
        if request is None:
            return None
        mine = (self.tenant, name(request_id))
        marks = [
            Mark(passage=passage, used=None if used is None else bool(used), verdict=verdict)
            for passage, used, verdict in self._rows(_MARKS, mine)
        ]
        return Why(
            request=request, blocks=tuple(self._blocks(" AND request = ? ORDER BY id", mine)), marks=tuple(marks)
        )

    def _blocks(self, where: str, values: Row) -> list[Block]:
        rows = self._rows(_BLOCKS + where, values)
        placed = self._rows(_PLACED, (_json_ids(row[0] for row in rows), self.tenant))
        passages = self.passages_by_id({row[1] for row in placed})
        return [to_block(row[1:], tuple(to_placed(p[1:], passages) for p in placed if p[0] == row[0])) for row in rows]

    # what is learned

    def reinforce(self, updates: Mapping[int, tuple[float, float, int, float]]) -> None:
        """passage id -> (confidence, success, accesses, accessed_at), all new values. Unknown ids are skipped."""
        rows = [(float(c), float(s), int(n), float(at), self.tenant, int(i)) for i, (c, s, n, at) in updates.items()]
        with self._connections.writing() as db:
            db.conn.executemany(_REINFORCE, rows)

    def mark_used(self, request: str, used: Mapping[int, bool]) -> None:
        """Note for passages in the blocks of `request` whether the answer used them."""
        rows = [(int(was), self.tenant, int(i), self.tenant, name(request)) for i, was in used.items()]
        with self._connections.writing() as db:
            db.conn.executemany(_USED, rows)

    def feedback(self, request: str, passage_id: int, verdict: str) -> None:
        """A person's verdict on a restored passage, in a block of `request` or replayed in it."""
        id_ = name(request)
        values = (exact(verdict), self.tenant, passage_id, self.tenant, passage_id, id_, id_, id_)
        with self._connections.writing() as db:
            if not db.conn.execute(_VERDICT, values).rowcount:
                raise ArchiveError(
                    f"request {request} restored no passage {passage_id}; `lantern why {request}` lists them"
                )

    def prune(self, rule: PruneRule, *, now: float, dry_run: bool = False) -> PruneReport:
        """Remove what `rule` names; a dry run reports the same and removes nothing.

        By age: also older messages that no passage is left of, and sessions not seen since in which nothing is left.
        By session alone: the session with all that belongs to it. By confidence: passages only, messages stay.
        """
        if rule == PruneRule():
            raise ArchiveError(
                "prune rule is empty and would remove everything; give an age, a confidence or a session"
            )
        with self._connections.writing() as db:
            return prune(
                db, self.tenant, rule, now=now, dry_run=dry_run, vectors=self._vectors and bool(embedding_model(db))
            )

    def export(self) -> Iterator[dict[str, Any]]:
        """All rows, by session: {"type": "session" | "message" | "passage" | "request" | "block", ...}, JSON-able."""
        for session in sorted(self.sessions(limit=-1), key=lambda s: s.created_at):
            yield {"type": "session", **asdict(session), "head": self.head(session.id)}
            for filed in self.messages(session.id):
                yield {"type": "message", "session": session.id, **_plain(filed)}
            for unit in ("passage", "turn"):
                for passage in self.passages(session.id, unit=unit):
                    yield {"type": "passage", **asdict(passage)}
            for request in self.requests(session.id, limit=-1):
                yield {"type": "request", **asdict(request)}
            for block in self.blocks(session.id):
                yield {"type": "block", **asdict(block)}

    def _rows(self, sql: str, values: Row) -> list[Any]:
        with self._connections.reading() as db:
            return db.conn.execute(sql, values).fetchall()


def embedding_model(db: Database) -> tuple[str, int] | None:
    """Name and dimension of the model that the archive's vectors are of."""
    row = db.conn.execute("SELECT value FROM settings WHERE tenant = '' AND name = 'embedding'").fetchone()
    if row is None:
        return None
    known = json.loads(row[0])
    return known["model"], known["dim"]


def _given(*conditions: tuple[str, str | None]) -> tuple[str, list[str]]:
    """(" AND column = ? ...", values) for the conditions that have a value."""
    held = [(column, name(value)) for column, value in conditions if value is not None]
    return "".join(f" AND {column} = ?" for column, _ in held), [value for _, value in held]


def _scope(table: str, session: str | None, project: str | None) -> tuple[str, list[str]]:
    """As _given. The + keeps SQLite from going through a whole project for one session of it."""
    return _given((f"{table}session", session), (f"{'+' if session is not None else ''}{table}project", project))


def _json_ids(ids: Iterable[int]) -> str:
    return dumps([int(i) for i in ids])


_PHRASE = re.compile(r'"([^"]*)"|(\S+)')


def _phrases(query: str) -> list[str]:
    """What FTS5 is to look for: the quoted phrases and the words of a person's query, each quoted, none twice."""
    found = (_quoted(phrase or word) for phrase, word in _PHRASE.findall(query))
    return list(dict.fromkeys(filter(None, found)))[:MOST_TERMS]


def _quoted(text: str) -> str:
    """`text` as an FTS5 string, in which nothing is an operator; "" when there is no word in it."""
    clean = text.replace("\0", " ").encode("utf-8", "replace").decode()
    return f'"{clean.replace(chr(34), chr(34) * 2)}"' if any(map(str.isalnum, clean)) else ""


def _by_cosine(vector: Vector, vectors: Mapping[int, Vector]) -> list[tuple[int, float]]:
    """All of `vectors` by cosine, best first, the newer of two equals first."""
    if not vectors:
        return []
    ids, matrix = np.array(list(vectors), dtype=np.int64), np.stack(list(vectors.values()))
    scores = (matrix @ vector) / np.maximum(np.linalg.norm(matrix, axis=1) * np.linalg.norm(vector), 1e-12)
    return [(int(ids[i]), float(scores[i])) for i in np.lexsort((-ids, -scores))]


def _plain(filed: Filed) -> dict[str, Any]:
    """A message as export shows it: bytes as text and hex."""
    message = filed.message
    items = [{**asdict(item), "print": item.print.hex()} for item in message.items]
    return {
        "key": filed.key, "position": filed.position, "turn": filed.turn, "role": message.role, "text": message.text,
        "items": items, "raw": message.raw.decode("utf-8", "surrogateescape"), "print": message.print.hex(),
        "side": filed.side, "partial": filed.partial, "created_at": filed.created_at,
    }  # fmt: skip
