"""Vectors of passages, all of one model: one per passage in sqlite-vec's table, one per word in a blob."""

import json
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from sqlite_utils.db import Database

from lantern_proxy.archive.errors import ArchiveError
from lantern_proxy.archive.reads import Reads, json_ids
from lantern_proxy.migrations.archive import create_vectors

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Vector = npt.NDArray[np.float32]
    """(dim,)"""
    Tokens = npt.NDArray[np.int8]
    """(tokens, numbers per token)"""

Packed = tuple[bytes, str, str, int]
"""A vector's bytes, its tenant, session and passage."""

_PENDING_TENANTS = """WITH RECURSIVE waiting (tenant) AS (
        SELECT min(tenant) FROM passages WHERE embedded = 0
        UNION ALL SELECT (SELECT min(tenant) FROM passages WHERE embedded = 0 AND tenant > waiting.tenant)
            FROM waiting WHERE tenant IS NOT NULL)
    SELECT tenant FROM waiting WHERE tenant IS NOT NULL LIMIT ?"""
_PENDING = "SELECT tenant, id, text FROM passages WHERE tenant = ? AND embedded = 0 ORDER BY unit, id LIMIT ?"
_VECTOR = """INSERT INTO vectors (passage_id, tenant, session, unit, embedding)
    SELECT id, tenant, session, unit, ? FROM passages WHERE tenant = ? AND session = ? AND id = ? AND embedded = 0"""
_EMBEDDED = "UPDATE passages SET embedded = 1 WHERE tenant = ? AND session = ? AND id = ?"
_ADD_TOKENS = """INSERT OR REPLACE INTO tokens (passage, tenant, recipe, vectors)
    SELECT id, tenant, ?, ? FROM passages WHERE tenant = ? AND id = ?"""
_REMOVE_TOKENS = """DELETE FROM tokens WHERE passage IN (SELECT value FROM json_each(?))
    AND passage IN (SELECT id FROM passages WHERE embedded = 0)"""
_TOKENS = """SELECT t.passage, t.vectors FROM json_each(?) j
    CROSS JOIN tokens t ON t.passage = j.value AND t.tenant = ? AND t.recipe = ?"""

# CROSS JOIN: one lookup per passage. With IN (...) vec0 scans the vectors of all tenants.
_EMBEDDINGS = """SELECT v.embedding, v.passage_id FROM json_each(?) j
    CROSS JOIN vectors v ON v.passage_id = j.value"""


def embedding_model(db: Database) -> tuple[str, int] | None:
    """Name and dimension of the model of the archive's vectors; None before the first."""
    row = db.conn.execute("SELECT value FROM settings WHERE tenant = '' AND name = 'embedding'").fetchone()
    if row is None:
        return None
    known = json.loads(row[0])
    return known["model"], known["dim"]


def start(db: Database, model: str, dim: int) -> tuple[str, int]:
    """Create the table for vectors of this model."""
    create_vectors(db, dim)
    value = json.dumps({"model": model, "dim": dim})
    db.execute("INSERT INTO settings (tenant, name, value) VALUES ('', 'embedding', ?)", (value,))
    return model, dim


def pending(db: Database, limit: int) -> list[tuple[str, int, str]]:
    """Passages that wait for a vector: (tenant, id, text), in equal shares per tenant."""
    tenants = [row[0] for row in db.execute(_PENDING_TENANTS, (limit,))]
    waiting: list[tuple[str, int, str]] = []
    for served, tenant in enumerate(tenants):
        share = -(-(limit - len(waiting)) // (len(tenants) - served))
        waiting += db.execute(_PENDING, (tenant, share)).fetchall()
    return waiting[:limit]


def pack(dim: int, rows: "Sequence[tuple[str, str, int, Vector]]") -> list[Packed]:
    """rows: (tenant, session, passage id, vector). Raises ArchiveError for one that is not `dim` finite numbers."""
    return [(_bytes(vector, dim, id_), tenant, session, id_) for tenant, session, id_, vector in rows]


def _bytes(vector: "Vector", dim: int, passage: int) -> bytes:
    import numpy as np

    array = np.ascontiguousarray(vector, dtype=np.float32)
    if array.shape != (dim,) or not np.isfinite(array).all():
        raise ArchiveError(f"vector of passage {passage} has shape {array.shape}; it must hold {dim} finite numbers")
    return array.tobytes()


def add(db: Database, packed: Sequence[Packed]) -> int:
    """Store rows that `pack` made; returns how many are new."""
    if not packed:
        return 0
    added = max(0, db.conn.executemany(_VECTOR, packed).rowcount)
    db.conn.executemany(_EMBEDDED, [row[1:] for row in packed])
    return added


def remove(db: Database, ids: Iterable[int]) -> int:
    """Remove the vectors of passages; returns how many there were.

    Each is overwritten first: sqlite-vec before 0.1.7 only marks its place as free.
    """
    rows = db.conn.execute(_EMBEDDINGS, (json_ids(ids),)).fetchall()
    zeros = [(bytes(len(embedding)), id_) for embedding, id_ in rows]
    db.conn.executemany("UPDATE vectors SET embedding = ? WHERE passage_id = ?", zeros)
    db.conn.executemany("DELETE FROM vectors WHERE passage_id = ?", [(id_,) for _, id_ in zeros])
    return len(zeros)


def drop(db: Database) -> None:
    """Remove all vectors and their model. Token vectors are left to remove_tokens(), in short transactions."""
    db.execute("DROP TABLE IF EXISTS vectors")
    db.execute("DELETE FROM settings WHERE tenant = '' AND name = 'embedding'")
    db.execute("UPDATE passages SET embedded = 0 WHERE embedded = 1")


def remove_tokens(db: Database, ids: Iterable[int]) -> None:
    """Remove token vectors of passages that wait for a vector: those made since by others stay."""
    db.conn.execute(_REMOVE_TOKENS, (json_ids(ids),))


def add_tokens(db: Database, recipe: str, rows: "Sequence[tuple[str, int, Tokens]]") -> None:
    """Store token vectors of passages, each (tenant, passage id, vectors). Removed passages are skipped."""
    db.conn.executemany(_ADD_TOKENS, [(recipe, vectors.tobytes(), tenant, id_) for tenant, id_, vectors in rows])


class TokenVectors(Reads):
    """The part of TenantArchive that reads token vectors: int8, all of a passage in one blob."""

    def tokens(self, ids: Iterable[int], recipe: str, dim: int) -> "dict[int, Tokens]":
        """id -> token vectors, int8 (tokens, dim), for those of `ids` that have some of this recipe."""
        import numpy as np

        rows = self._rows(_TOKENS, (json_ids(ids), self.tenant, recipe))
        return {id_: np.frombuffer(packed, np.int8).reshape(-1, dim) for id_, packed in rows}
