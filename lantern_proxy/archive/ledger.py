"""The requests of one tenant, the blocks restored into them, and the passages that were left out of those."""

import json
from collections.abc import Iterable

from lantern_proxy.archive.reads import Reads, given, json_ids
from lantern_proxy.archive.rows import Row, dumps, name, to_block, to_passed, to_placed, to_request
from lantern_proxy.archive.values import Mark, RequestRow, Useful, Why
from lantern_proxy.turn import Block, PassedOver, Placed

_REQUEST = """SELECT id, session, at, api, path, model, event, status, query, restored, chars, ms, degraded, gone,
        error, size, lost
    FROM requests WHERE tenant = ?"""
_PASSED = "SELECT id, passed FROM requests WHERE tenant = ? AND id IN (SELECT value FROM json_each(?))"
_BLOCKS = """SELECT id, session, request, anchor, chain, message, place, kind, text, considered, ms, degraded,
    created_at FROM blocks WHERE tenant = ?"""
_PLACED = """SELECT j.value, p.passage, p.origin, p.text, p.rank, p.score, p.signals
    FROM json_each(?) j CROSS JOIN placed p ON p.tenant = ? AND p.block = j.value ORDER BY p.block, p.slot"""
_LAST = """SELECT r.id, r.at FROM blocks b CROSS JOIN requests r ON r.tenant = b.tenant AND r.id = b.request
    CROSS JOIN sessions s ON s.tenant = r.tenant AND s.id = r.session WHERE b.tenant = ?"""
_MARKS = """SELECT p.passage, p.used, p.verdict FROM blocks b
    CROSS JOIN placed p ON p.tenant = b.tenant AND p.block = b.id
    WHERE b.tenant = ? AND b.request = ? ORDER BY p.block, p.slot"""
_USEFUL = """SELECT r.id, r.session, r.query, p.passage FROM placed p
    CROSS JOIN blocks b ON b.tenant = p.tenant AND b.id = p.block
    CROSS JOIN requests r ON r.tenant = b.tenant AND r.id = b.request
    WHERE p.tenant = ? AND p.verdict = 'useful' AND r.query <> '' ORDER BY r.at DESC, r.rowid DESC, p.block, p.slot"""


class Ledger(Reads):
    """The part of TenantArchive that reads requests and blocks."""

    def blocks(self, session: str) -> list[Block]:
        """The blocks of a session, oldest first."""
        return self._blocks(" AND session = ? ORDER BY id", (self.tenant, name(session)))

    def request(self, id: str) -> RequestRow | None:
        rows = self._rows(f"{_REQUEST} AND id = ?", (self.tenant, name(id)))
        return to_request(rows[0]) if rows else None

    def requests(self, session: str | None = None, limit: int = 50) -> list[RequestRow]:
        """The latest requests, newest first."""
        where, values = given(("session", session))
        rows = self._rows(f"{_REQUEST}{where} ORDER BY at DESC, rowid DESC LIMIT ?", (self.tenant, *values, limit))
        return [to_request(row) for row in rows]

    def last_restored(self, project: str | None = None) -> tuple[str, float] | None:
        """(id, Unix seconds) of the newest request with a block of its own; None if there is none."""
        where, values = given(("s.project", project))
        rows = self._rows(f"{_LAST}{where} ORDER BY r.at DESC, b.id DESC LIMIT 1", (self.tenant, *values))
        return tuple(rows[0]) if rows else None

    def why(self, request_id: str) -> Why | None:
        """What is known of a request and its own blocks. Blocks replayed in it belong to earlier requests."""
        request = self.request(request_id)
        if request is None:
            return None
        mine = (self.tenant, name(request_id))
        marks = [
            Mark(passage=passage, used=None if used is None else bool(used), verdict=verdict)
            for passage, used, verdict in self._rows(_MARKS, mine)
        ]
        return Why(
            request=request, blocks=tuple(self._blocks(" AND request = ? ORDER BY id", mine)), marks=tuple(marks),
            passed=self.passed([request_id]).get(request_id, ()),
        )  # fmt: skip

    def useful(self) -> list[Useful]:
        """The questions whose restored passages were judged useful, newest first."""
        found: dict[tuple[str, str, str], list[int]] = {}
        for request, session, query, passage in self._rows(_USEFUL, (self.tenant,)):
            found.setdefault((request, session, query), []).append(passage)
        return [Useful(*request, tuple(passages)) for request, passages in found.items()]

    def passed(self, requests: Iterable[str]) -> dict[str, tuple[PassedOver, ...]]:
        """Request -> passages left out of its blocks, for those of `requests` that have any. Passages that were removed
        since are missing."""
        rows = self._rows(_PASSED, (self.tenant, dumps([name(id_) for id_ in requests])))
        held = {id_: json.loads(stored) for id_, stored in rows}
        passages = self.passages_by_id({one["passage"] for stored in held.values() for one in stored})
        return {id_: found for id_, stored in held.items() if (found := to_passed(stored, passages))}

    def _blocks(self, where: str, values: Row) -> list[Block]:
        rows = self._rows(_BLOCKS + where, values)
        placed = self._rows(_PLACED, (json_ids(row[0] for row in rows), self.tenant))
        passages = self.passages_by_id({row[1] for row in placed})
        by_block: dict[int, list[Placed]] = {row[0]: [] for row in rows}
        for block, *values in placed:
            by_block[block].append(to_placed(values, passages))
        return [to_block(row[1:], tuple(by_block[row[0]])) for row in rows]
