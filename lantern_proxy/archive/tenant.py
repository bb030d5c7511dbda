"""What one tenant has archived: the only way to read the archive, with the tenant bound in every query."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypedDict, Unpack

from msgspec import structs, to_builtins

from lantern_proxy.archive.connections import Connections
from lantern_proxy.archive.errors import ArchiveError
from lantern_proxy.archive.feedback import Feedback
from lantern_proxy.archive.ledger import Ledger
from lantern_proxy.archive.overview import Summaries
from lantern_proxy.archive.prune import Advance, prune, prune_dry, said_at, wipe
from lantern_proxy.archive.reads import given, json_ids
from lantern_proxy.archive.rows import (
    HEAD,
    PASSAGE,
    Row,
    dumps,
    name,
    plain_head,
    to_filed,
    to_head,
    to_passage,
    to_session,
)
from lantern_proxy.archive.scope import Scopes, scoped
from lantern_proxy.archive.values import Hit, PruneReport, PruneRule, SessionRow
from lantern_proxy.archive.vectors import TokenVectors, embedding_model
from lantern_proxy.turn import Filed, Head, Passage

if TYPE_CHECKING:
    from lantern_proxy.archive.vectors import Vector

MOST_TERMS = 64
"""Most terms of one full-text query; further ones are ignored, since they would only slow it down."""

_SESSION = """SELECT s.id, s.project, s.api, s.family, s.parent, s.title, s.created_at, s.last_seen_at, s.system,
        s.tools,
        (SELECT count(*) FROM messages m WHERE m.tenant = s.tenant AND m.session = s.id),
        (SELECT count(*) FROM passages p WHERE p.tenant = s.tenant AND p.session = s.id AND p.unit = 'passage')
    FROM sessions s WHERE s.tenant = ?"""
_MESSAGES = """SELECT key, position, turn, role, text, items, CAST(raw AS BLOB), print, side, partial, created_at,
        names FROM messages WHERE tenant = ? AND session = ? ORDER BY position, id"""
# CROSS JOIN: the values come first. SQLite has no statistics, and would otherwise scan the whole tenant.
_HOLDERS = """SELECT s.id FROM (
        SELECT i.session FROM json_each(:values) v CROSS JOIN ids i ON i.tenant = :tenant AND i.value = v.value
        UNION SELECT m.session FROM json_each(:values) v
            CROSS JOIN messages m ON m.tenant = :tenant AND m.key = v.value) found
    CROSS JOIN sessions s ON s.tenant = :tenant AND s.id = found.session
    ORDER BY s.last_seen_at DESC, s.rowid DESC"""
_SAYING = "SELECT DISTINCT session FROM messages WHERE tenant = ? AND print = ? LIMIT ?"
_FTS = """FROM passages_fts f CROSS JOIN passages p ON p.id = f.rowid
    WHERE passages_fts MATCH ? AND p.tenant = ? AND p.unit = 'passage'"""
_OWN = "SELECT p.id FROM passages p WHERE p.tenant = ? AND p.unit = 'passage'"
# FTS5 seeks the range. Unary +: each hit is looked up in the set, instead of one FTS5 query per passage.
_AMONG = " AND f.rowid BETWEEN ? AND ? AND +f.rowid IN (SELECT value FROM json_each(?))"
FEW = 2_000
"""If a search may find no more passages than this, only they are ranked, since ranking hits of others costs time."""
_SNIPPETS = """SELECT p.id, snippet(passages_fts, 0, '[', ']', '...', 24)
    FROM passages_fts f CROSS JOIN passages p ON p.id = f.rowid
    WHERE passages_fts MATCH ? AND f.rowid IN (SELECT value FROM json_each(?)) AND p.tenant = ?"""
_VECTORS = """SELECT v.passage_id, v.embedding FROM json_each(?) j
    CROSS JOIN passages p ON p.id = j.value AND p.tenant = ? CROSS JOIN vectors v ON v.passage_id = p.id"""
_REINFORCE = """UPDATE passages SET confidence = ?, success = ?, accesses = ?, accessed_at = ?
    WHERE tenant = ? AND id = ?"""
_USED = """UPDATE placed SET used = ? WHERE tenant = ? AND passage = ?
    AND block IN (SELECT id FROM blocks WHERE tenant = ? AND request = ?)"""


_NAMES = {
    "project": "SELECT DISTINCT project FROM sessions WHERE tenant = ?",
    "speaker": "SELECT DISTINCT speaker FROM passages WHERE tenant = ? AND unit = 'passage'",
}


class Filters(TypedDict, total=False):
    """Which passages a search may find; all given conditions must hold."""

    speaker: str | None
    project: str | None
    kind: str | None
    since: float | None
    """Unix seconds; earlier passages are not found."""
    until: float | None


class TenantArchive(Feedback, Ledger, Scopes, Summaries, TokenVectors):
    """One tenant's part of an archive. Make it with Archive.of; nothing in it sees another tenant.

    Every method raises ArchiveError if the file is at fault. Ids, sessions and requests of others count as unknown.
    """

    def __init__(self, connections: Connections, tenant: str, *, vectors: bool) -> None:
        self._connections, self.tenant, self._vectors = connections, tenant, vectors

    # sessions and their messages

    def sessions(self, limit: int = 50, project: str | None = None, *, titled: str = "") -> list[SessionRow]:
        """The sessions last seen, newest first. titled: only those with this in their title or id, in any case"""
        where, values = given(("s.project", project))
        if titled:
            where, values = f"{where} AND instr(lower(s.title || ' ' || s.id), lower(?))", [*values, titled]
        rows = self._rows(f"{_SESSION}{where} ORDER BY s.last_seen_at DESC LIMIT ?", (self.tenant, *values, limit))
        return [to_session(row) for row in rows]

    def session(self, id: str) -> SessionRow | None:
        rows = self._rows(f"{_SESSION} AND s.id = ?", (self.tenant, name(id)))
        return to_session(rows[0]) if rows else None

    def messages(self, session: str) -> list[Filed]:
        """Every message of the session, side calls and abandoned branches included, in order of position."""
        return [to_filed(row) for row in self._rows(_MESSAGES, (self.tenant, name(session)))]

    def head(self, session: str) -> Head:
        """What the session's client shows now."""
        parameters = (self.tenant, name(session))
        rows = self._rows(f"SELECT {HEAD} FROM heads WHERE tenant = ? AND session = ?", parameters)
        return to_head(rows[0]) if rows else Head()

    def ids(self, session: str) -> list[str]:
        """Ids that the upstream minted, and other names of the session, sorted."""
        rows = self._rows(
            "SELECT value FROM ids WHERE tenant = ? AND session = ? ORDER BY value", (self.tenant, name(session))
        )
        return [row[0] for row in rows]

    def uncut(self, session: str) -> list[str]:
        """Keys of the session's messages that are not yet cut into passages, sorted."""
        rows = self._rows(
            "SELECT key FROM uncut WHERE tenant = ? AND session = ? ORDER BY key", (self.tenant, name(session))
        )
        return [row[0] for row in rows]

    def holders(self, values: Sequence[str]) -> list[str]:
        """Sessions that hold any of these minted ids or message keys, last seen first."""
        parameters = {"tenant": self.tenant, "values": dumps([name(v) for v in values])}
        return [row[0] for row in self._rows(_HOLDERS, parameters)]

    def saying(self, prints: Iterable[bytes], most: int) -> list[str]:
        """Sessions that hold messages with these fingerprints, those with the most first. A fingerprint that more than
        `most` sessions hold is ignored."""
        counts = Counter[str]()
        for each in dict.fromkeys(prints):
            holders = [row[0] for row in self._rows(_SAYING, (self.tenant, each, most + 1))]
            counts.update(holders if len(holders) <= most else ())
        return [session for session, _ in counts.most_common()]

    # passages

    def passages(self, session: str | None = None, project: str | None = None, unit: str = "passage") -> list[Passage]:
        """The passages of the tenant, of one session or one project, in order of id."""
        where, values = scoped("p.", session, project)
        sql = f"SELECT {PASSAGE} FROM passages p WHERE p.tenant = ? AND p.unit = ?{where} ORDER BY p.id"
        return [to_passage(row) for row in self._rows(sql, (self.tenant, unit, *values))]

    # full text

    def search(self, query: str, limit: int = 10, session: str | None = None, **filters: Unpack[Filters]) -> list[Hit]:
        """Passages with all words of `query` ("quoted words" as one phrase), else those with any; best first."""
        phrases = _phrases(query)
        for operator in (" ", " OR ") if phrases else ():
            hits = self._hits(operator.join(phrases), limit, session, filters)
            if hits:
                return hits
        return []

    def names(self, kind: Literal["project", "speaker"]) -> list[str]:
        """All projects, or speakers, sorted. For speakers every passage is read."""
        return sorted(row[0] for row in self._rows(_NAMES[kind], (self.tenant,)))

    def _hits(self, match: str, limit: int, session: str | None, filters: Filters) -> list[Hit]:
        """The best hits first. They are ranked by id alone before any text is read: a common word has thousands."""
        ranking = self._ranking(match, limit, session, filters)
        ids = json_ids(id_ for id_, _ in ranking)
        snippets = dict(self._rows(_SNIPPETS, (match, ids, self.tenant)))
        passages = self.passages_by_id(id_ for id_, _ in ranking)
        return [
            Hit(passages[id_], score, snippets[id_]) for id_, score in ranking if id_ in passages and id_ in snippets
        ]

    def _ranking(
        self, match: str, k: int, session: str | None, filters: Filters | None = None
    ) -> list[tuple[int, float]]:
        wanted = filters or {}
        where, values = given(
            ("p.session", session), ("p.speaker", wanted.get("speaker")), ("p.project", wanted.get("project")),
            ("p.kind", wanted.get("kind")),
        )  # fmt: skip
        times = [(sign, at) for sign, at in ((">=", wanted.get("since")), ("<", wanted.get("until"))) if at is not None]
        where += "".join(f" AND p.created_at {sign} ?" for sign, _ in times)
        among, confined = self._among(session)
        best = " ORDER BY score DESC, p.id DESC LIMIT ?"
        sql = f"SELECT p.id, -bm25(passages_fts) AS score {_FTS}{where}{among}{best}"
        return self._rows(sql, (match, self.tenant, *values, *(at for _, at in times), *confined, k))

    def _among(self, session: str | None) -> tuple[str, Row]:
        """SQL that confines hits to the tenant's or session's passages, and its values; nothing if they are many."""
        where, values = given(("p.session", session))
        rows = self._rows(f"{_OWN}{where} LIMIT ?", (self.tenant, *values, FEW + 1))
        if not rows:
            return " AND 0", ()
        if len(rows) > FEW:
            return "", ()
        ids = [row[0] for row in rows]
        return _AMONG, (min(ids), max(ids), json_ids(ids))

    def fts(self, query_terms: Sequence[str], k: int, session: str | None = None) -> list[tuple[int, float]]:
        """The k passages with the best BM25 for any of the terms (the first 64): (id, score), best first.

        A term of several words is a phrase. Terms are stemmed by FTS5's porter, as the passages are.
        """
        phrases = list(dict.fromkeys(filter(None, map(_quoted, query_terms))))[:MOST_TERMS]
        return self._ranking(" OR ".join(phrases), k, session) if phrases else []

    # vectors

    def vectors(self, ids: Iterable[int]) -> "dict[int, Vector]":
        """id -> vector, float32 (dim,), for those of `ids` that have one."""
        import numpy as np

        with self._connections.reading() as db:
            if not (self._vectors and embedding_model(db)):
                return {}
            rows = db.conn.execute(_VECTORS, (json_ids(ids), self.tenant)).fetchall()
        return {id_: np.frombuffer(packed, dtype=np.float32) for id_, packed in rows}

    # what changes, and everything as rows

    def reinforce(
        self, updates: Mapping[int, tuple[float, float, int, float]], *, request: str = "",
        used: Mapping[int, bool] | None = None,
    ) -> None:  # fmt: skip
        """Store what an answer taught about passages. Unknown ids are skipped.

        updates: passage id -> (confidence, success, accesses, accessed_at), all new values
        used:    passage id -> did the answer use it? Stored with the blocks of `request`
        """
        rows = [(float(c), float(s), int(n), float(at), self.tenant, int(i)) for i, (c, s, n, at) in updates.items()]
        known = [(int(was), self.tenant, int(i), self.tenant, name(request)) for i, was in (used or {}).items()]
        with self._connections.writing() as db:
            db.conn.executemany(_REINFORCE, rows)
            db.conn.executemany(_USED, known)

    def since_newest(self, count: int, *, until: float) -> float | None:
        """The time of the oldest among the newest `count` messages up to `until`; None if there are no more than
        that."""
        at = said_at("messages")
        sql = f"SELECT {at} AS at FROM messages WHERE tenant = ? AND {at} <= ? ORDER BY at DESC LIMIT 2 OFFSET ?"
        rows = self._rows(sql, (self.tenant, until, max(0, count - 1)))
        return float(rows[0][0]) if len(rows) == 2 else None

    def prune(
        self, rule: PruneRule, *, now: float, dry_run: bool = False, wiped: bool = True,
        advance: Advance = lambda _: None,
    ) -> PruneReport:  # fmt: skip
        """Remove what `rule` names; a dry run reports the same and removes nothing.

        By age: also older messages without any passage left, and empty sessions not seen since. By session alone: the
        session with everything that belongs to it. Blocks that quote what is removed by either go, too, and running
        proxies drop them. By confidence: passages only; messages and blocks stay.
        wiped:   also wipe the removed words from the indexes; else call Archive.wipe() when all is removed
        advance: called with the number of rows removed
        """
        if rule == PruneRule():
            raise ArchiveError(
                "prune rule is empty and would remove everything; give an age, a confidence or a session"
            )
        if dry_run:
            with self._connections.reading() as db:
                return prune_dry(db, self.tenant, rule, now=now)
        with self._connections.reading() as db:
            vectors = self._vectors and bool(embedding_model(db))
        report = prune(self._connections, self.tenant, rule, now=now, vectors=vectors, advance=advance)
        if wiped:
            wipe(self._connections, vectors=vectors)
        return report

    def export(self) -> Iterator[dict[str, Any]]:
        """All rows, by session: {"type": "session" | "message" | "passage" | "edit" | ...}, JSON-able."""
        for session in sorted(self.sessions(limit=-1), key=lambda s: s.created_at):
            head = plain_head(self.head(session.id))
            messages = self.messages(session.id)
            ids, uncut = self.ids(session.id), self.uncut(session.id)  # what is not noted any more has its passages
            yield {"type": "session", **to_builtins(session), **head, "ids": ids, "uncut": uncut}
            for filed in messages:
                yield {"type": "message", "session": session.id, **_plain(filed)}
            for unit in ("passage", "turn"):
                for passage in self.passages(session.id, unit=unit):
                    yield {"type": "passage", **to_builtins(passage)}
            for edit in self.edits(session.id):
                yield {"type": "edit", **to_builtins(edit)}
            requests = self.requests(session.id, limit=-1)
            passed = self.passed(request.id for request in requests)
            for request in requests:
                left_out = [to_builtins(each) for each in passed.get(request.id, ())]
                yield {"type": "request", **to_builtins(request), "passed": left_out}
            for block in self.blocks(session.id):
                yield {"type": "block", **to_builtins(block)}


_PHRASE = re.compile(r'"([^"]*)"|(\S+)')


def _phrases(query: str) -> list[str]:
    """The search terms for FTS5: the quoted phrases and the words of a person's query, each quoted, without
    duplicates."""
    found = (_quoted(phrase or word) for phrase, word in _PHRASE.findall(query))
    return list(dict.fromkeys(filter(None, found)))[:MOST_TERMS]


def _quoted(text: str) -> str:
    """`text` as an FTS5 string, in which nothing is an operator; "" if it has no word."""
    clean = text.replace("\0", " ").encode("utf-8", "replace").decode()
    return f'"{clean.replace(chr(34), chr(34) * 2)}"' if any(map(str.isalnum, clean)) else ""


def _plain(filed: Filed) -> dict[str, Any]:
    """A message in the form of an export: bytes as text and hex."""
    message = filed.message
    items = [{**structs.asdict(item), "print": item.print.hex()} for item in message.items]
    return {
        "key": filed.key, "position": filed.position, "turn": filed.turn, "role": message.role, "text": message.text,
        "items": items, "raw": message.raw.decode("utf-8", "surrogateescape"), "print": message.print.hex(),
        "side": filed.side, "partial": filed.partial, "names": filed.names, "created_at": filed.created_at,
    }  # fmt: skip
