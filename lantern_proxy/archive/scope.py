"""What an open index is built from and kept up to date with: the passages of a scope, column by column."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlite_utils.db import Database

from lantern_proxy.archive.rows import PASSAGE, Row, to_passage
from lantern_proxy.turn import Passage

_OUTLINE = """SELECT id, created_at, session, position, CAST(terms AS BLOB) FROM passages
    WHERE tenant = ? AND unit = ? AND id > ?{where} ORDER BY id LIMIT ?"""
_SHAPES = """SELECT id, speaker, kind, json_array_length(tags), length(text) FROM passages
    WHERE tenant = ? AND unit = ? AND id > ?{where} ORDER BY id LIMIT ?"""
_COUNT = "SELECT count(*) FROM passages WHERE tenant = ? AND unit = ? AND id <= ?{where}"
_SCOPES = """SELECT tenant, {project}, unit, count(*) FROM passages GROUP BY tenant, {project}, unit
    HAVING count(*) >= ? ORDER BY count(*) DESC"""
_PLAIN = (
    f"SELECT {PASSAGE.replace('p.terms', repr(''))} FROM json_each(?) v CROSS JOIN passages p ON p.id = v.value "
    "WHERE p.tenant = ?"
)
"""Without the terms, which stand last in a row and are long."""


@dataclass(frozen=True, slots=True)
class Outline:
    """Passages of a scope in order of id, (n,) each. lines: their terms in UTF-8, one a line."""

    ids: Sequence[int]
    times: Sequence[float]
    sessions: Sequence[str]
    positions: Sequence[int]
    lines: Sequence[bytes]

    def __len__(self) -> int:
        return len(self.ids)


def outline(db: Database, tenant: str, unit: str, after_id: int, limit: int, where: tuple[str, list[str]]) -> Outline:
    """At most `limit` passages with ids above `after_id`."""
    rows = db.conn.execute(_OUTLINE.format(where=where[0]), (tenant, unit, after_id, *where[1], limit)).fetchall()
    columns: tuple[Sequence[Any], ...] = tuple(zip(*rows, strict=True)) if rows else ((),) * 5
    return Outline(*columns)


def shapes(
    db: Database, tenant: str, unit: str, after_id: int, limit: int, where: tuple[str, list[str]]
) -> list[tuple[int, str, str, int, int]]:
    """(id, speaker, kind, tags, characters) of at most `limit` passages with ids above `after_id`, in order of id."""
    return list(db.conn.execute(_SHAPES.format(where=where[0]), (tenant, unit, after_id, *where[1], limit)))


def count(db: Database, tenant: str, unit: str, up_to_id: int, where: tuple[str, list[str]]) -> int:
    """How many passages with ids up to `up_to_id` there are. Ids are never used again: a prune makes it smaller."""
    found: int = db.conn.execute(_COUNT.format(where=where[0]), (tenant, unit, up_to_id, *where[1])).fetchone()[0]
    return found


def newest(db: Database) -> int:
    """The largest id that a passage ever had; 0 before the first. Passages of any tenant."""
    row: Row | None = db.conn.execute("SELECT seq FROM sqlite_sequence WHERE name = 'passages'").fetchone()
    return row[0] if row else 0


def large(db: Database, least: int, *, by_project: bool) -> list[tuple[str, str | None, str, int]]:
    """(tenant, project, unit, passages) of what holds `least` passages or more; project None: of the whole tenant."""
    return [
        tuple(row) for row in db.conn.execute(_SCOPES.format(project="project" if by_project else "NULL"), (least,))
    ]


def plain(db: Database, tenant: str, ids: str) -> dict[int, Passage]:
    """Passages without their terms. ids: a JSON list"""
    return {row[0]: to_passage(row) for row in db.conn.execute(_PLAIN, (ids, tenant))}
