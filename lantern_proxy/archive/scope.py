"""What an index is built from and updated with: the passages of a scope, column by column."""

from collections.abc import Iterable, Sequence
from operator import attrgetter
from typing import Any

from msgspec import Struct
from msgspec.structs import replace
from sqlite_utils.db import Database

from lantern_proxy.archive.reads import Reads, given, json_ids
from lantern_proxy.archive.rows import PASSAGE, Row, to_passage
from lantern_proxy.turn import Passage

_OUTLINE = """SELECT id, created_at, session, position, CAST(terms AS BLOB) FROM passages
    WHERE tenant = ? AND unit = ? AND id > ?{where} ORDER BY id LIMIT ?"""
_SHAPES = """SELECT id, speaker, kind, json_array_length(tags), length(text) FROM passages
    WHERE tenant = ? AND unit = ? AND id > ?{where} ORDER BY id LIMIT ?"""
_COUNT = "SELECT count(*) FROM passages WHERE tenant = ? AND unit = 'passage' AND id <= ?{where}"
_SCOPES = """SELECT tenant, {project}, count(*) FROM passages WHERE unit = 'passage' GROUP BY tenant, {project}
    HAVING count(*) >= ? ORDER BY count(*) DESC"""
_PLAIN = (
    f"SELECT {PASSAGE.replace('p.terms', repr(''))} FROM json_each(?) v CROSS JOIN passages p ON p.id = v.value "
    "WHERE p.tenant = ?"
)
"""All columns but the terms, which stand last in a row and are long."""
_NOW = """SELECT p.id, p.text, p.confidence, p.success, p.accesses, p.accessed_at, k.verdict, k.pinned
    FROM json_each(?) v CROSS JOIN passages p ON p.id = v.value
    LEFT JOIN marks k ON k.tenant = p.tenant AND k.project = p.project AND k.hash = p.hash WHERE p.tenant = ?"""
_CHANGING = ("confidence", "success", "accesses", "accessed_at", "verdict", "pinned")
"""Columns of a passage that change while its text stays, in the order of _NOW."""
_changing = attrgetter(*_CHANGING)


class Outline(Struct, frozen=True):
    """Passages of a scope in order of id, (n,) each. lines: their terms in UTF-8, one a line."""

    ids: Sequence[int]
    times: Sequence[float]
    sessions: Sequence[str]
    positions: Sequence[int]
    lines: Sequence[bytes]

    def __len__(self) -> int:
        return len(self.ids)


class Scopes(Reads):
    """The part of TenantArchive that indexes are built from."""

    def outline(
        self, session: str | None = None, project: str | None = None, unit: str = "passage", after_id: int = 0,
        limit: int = -1,
    ) -> Outline:  # fmt: skip
        """The columns that a lexical index is built from, for passages with ids above `after_id`."""
        where, values = scoped("", session, project)
        rows = self._rows(_OUTLINE.format(where=where), (self.tenant, unit, after_id, *values, limit))
        columns: tuple[Sequence[Any], ...] = tuple(zip(*rows, strict=True)) if rows else ((),) * 5
        return Outline(*columns)

    def shapes(
        self, session: str | None, project: str | None, unit: str, after_id: int, limit: int
    ) -> list[tuple[int, str, str, int, int]]:
        """(id, speaker, kind, tags, characters) of at most `limit` passages with ids above `after_id`, by id."""
        where, values = scoped("", session, project)
        return self._rows(_SHAPES.format(where=where), (self.tenant, unit, after_id, *values, limit))

    def count(self, up_to_id: int, project: str | None = None) -> int:
        """Number of passages with ids up to `up_to_id`. Ids are never reused, so a prune makes it smaller."""
        where, values = scoped("", None, project)
        rows = self._rows(_COUNT.format(where=where), (self.tenant, up_to_id, *values))
        return int(rows[0][0])

    def plain_passages(self, ids: Iterable[int]) -> dict[int, Passage]:
        """id -> passage without its terms, for those of `ids` that exist."""
        return {row[0]: to_passage(row) for row in self._rows(_PLAIN, (json_ids(ids), self.tenant))}

    def as_now(self, passages: Iterable[Passage]) -> dict[int, Passage]:
        """id -> passage with its current confidence, success, uses and feedback, for those of `passages` that still
        have the same text. Unchanged ones are the same objects. Costs a third of plain_passages()."""
        before = {passage.id: passage for passage in passages}
        found: dict[int, Passage] = {}
        for id_, text, *learnt, verdict, pinned in self._rows(_NOW, (json_ids(before), self.tenant)):
            passage, now = before[id_], (*learnt, verdict or "", bool(pinned))
            if text == passage.text:
                same = now == _changing(passage)
                found[id_] = passage if same else replace(passage, **dict(zip(_CHANGING, now, strict=True)))
        return found


def scoped(table: str, session: str | None, project: str | None) -> tuple[str, list[str]]:
    """As given(). The unary + keeps SQLite from scanning a whole project for one session of it."""
    return given((f"{table}session", session), (f"{'+' if session is not None else ''}{table}project", project))


def newest(db: Database) -> int:
    """The largest id that a passage of any tenant ever had; 0 before the first."""
    row: Row | None = db.conn.execute("SELECT seq FROM sqlite_sequence WHERE name = 'passages'").fetchone()
    return row[0] if row else 0


def large(db: Database, least: int, *, by_project: bool) -> list[tuple[str, str | None, int]]:
    """(tenant, project, passages) of scopes with at least `least` passages; project None: the whole tenant."""
    rows = db.conn.execute(_SCOPES.format(project="project" if by_project else "NULL"), (least,))
    return [tuple(row) for row in rows]
