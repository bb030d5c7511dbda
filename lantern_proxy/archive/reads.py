"""The base of all parts of TenantArchive: the tenant it is bound to, and how statements are run."""

from collections.abc import Iterable, Mapping
from typing import Any

from lantern_proxy.archive.connections import Connections
from lantern_proxy.archive.rows import PASSAGE, Row, dumps, name, to_passage
from lantern_proxy.turn import Passage

_BY_ID = f"SELECT {PASSAGE} FROM json_each(?) v CROSS JOIN passages p ON p.id = v.value WHERE p.tenant = ?"


class Reads:
    """The base class of all parts of TenantArchive."""

    _connections: Connections
    tenant: str

    def passages_by_id(self, ids: Iterable[int]) -> dict[int, Passage]:
        """id -> passage, for those of `ids` that exist."""
        rows = self._rows(_BY_ID, (json_ids(ids), self.tenant))
        return {row[0]: to_passage(row) for row in rows}

    def _rows(self, sql: str, values: Row | Mapping[str, Any]) -> list[Any]:
        with self._connections.reading() as db:
            return db.conn.execute(sql, values).fetchall()


def given(*conditions: tuple[str, str | None]) -> tuple[str, list[str]]:
    """(" AND column = ? ...", values) for the conditions that have a value."""
    held = [(column, name(value)) for column, value in conditions if value is not None]
    return "".join(f" AND {column} = ?" for column, _ in held), [value for _, value in held]


def json_ids(ids: Iterable[int]) -> str:
    return dumps([int(i) for i in ids])
