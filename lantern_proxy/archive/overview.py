"""Summaries of one tenant's archive: totals over requests, a session as a timeline. TenantArchive inherits it.

All of it is read from covering indexes, so that 100,000 requests are summed in some ten milliseconds.
"""

import json
from collections import Counter
from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from lantern_proxy.archive.reads import Reads
from lantern_proxy.archive.rows import name, said_of, texts
from lantern_proxy.turn import LOSSES, BlockKind

_NEWEST = 5_000
"""The percentiles of milliseconds are over so many requests, the newest ones."""
_LOSS = "event IN ('compacted', 'window', 'cleared')"
_SUMS = """SELECT CAST((at - :since) / :width AS INTEGER), event, count(*), sum(restored > 0), sum(chars)
    FROM requests INDEXED BY requests_summed WHERE tenant = :tenant AND at >= :since GROUP BY 1, 2"""
_MS = """SELECT ms FROM requests INDEXED BY requests_summed
    WHERE tenant = ? AND at >= ? AND event NOT IN ('side', 'passthrough') ORDER BY at DESC LIMIT ?"""
_DEGRADED = """SELECT degraded, count(*) FROM requests INDEXED BY requests_summed
    WHERE tenant = ? AND at >= ? AND degraded <> '[]' GROUP BY degraded"""
# A lost message saves its bytes in each later request of its session.
_UNSENT = f"""SELECT ifnull(sum(l.lost * (SELECT count(*) FROM requests r INDEXED BY requests_told
        WHERE r.tenant = l.tenant AND r.session = l.session AND r.at >= l.at
        AND r.event NOT IN ('side', 'passthrough'))), 0)
    FROM requests l INDEXED BY requests_lost WHERE l.tenant = ? AND l.at >= ? AND l.{_LOSS}"""
_FIRST = "SELECT ifnull(min(at), 0) FROM requests INDEXED BY requests_summed WHERE tenant = ?"
_SEEN = "SELECT count(*) FROM sessions WHERE tenant = ? AND last_seen_at >= ?"
_PLACED = "SELECT count(*) FROM placed WHERE tenant = ?"
_OF_SESSIONS = f"""SELECT v.value,
        (SELECT count(*) FROM requests r WHERE r.tenant = :tenant AND r.session = v.value),
        (SELECT count(*) FROM requests r WHERE r.tenant = :tenant AND r.session = v.value AND r.{_LOSS}),
        (SELECT count(*) FROM blocks b WHERE b.tenant = :tenant AND b.session = v.value)
    FROM json_each(:sessions) v"""
_STEPS = """SELECT id, at, event, size, restored, chars, ms, gone, lost, status FROM (
        SELECT rowid AS n, * FROM requests WHERE tenant = ? AND session = ? ORDER BY at DESC LIMIT ?) ORDER BY at, n"""
_BRIDGES = """SELECT b.request, b.kind, p.passage, p.rank, p.score, p.origin, substr(p.text, 1, 160), p.used, p.verdict
    FROM blocks b CROSS JOIN placed p ON p.tenant = b.tenant AND p.block = b.id
    WHERE b.tenant = ? AND b.session = ? ORDER BY b.id, p.slot LIMIT ?"""
_MESSAGES = """SELECT position, turn, role, side, partial, created_at, length(text), substr(text, 1, :shown),
    items FROM messages WHERE tenant = :tenant AND session = :session AND position >= :first
    ORDER BY position, id LIMIT :limit"""


class Bucket(Struct, frozen=True, kw_only=True):
    """What happened in one period of time."""

    at: float
    requests: int = 0
    losses: int = 0
    restores: int = 0
    """Requests that carried restored passages."""
    chars: int = 0


class Overview(Struct, frozen=True, kw_only=True):
    """Sums since `since` (Unix seconds)."""

    since: float
    width_s: float
    """Length of a bucket."""
    buckets: tuple[Bucket, ...]
    events: dict[str, int]
    sessions: int
    requests: int
    losses: int
    restores: int
    chars: int
    placed: int
    """Number of passages in blocks, of all time."""
    unsent_bytes: int
    """Bytes of lost messages, counted once for each later request of their session, less what was added."""
    ms_p50: float
    ms_p95: float
    degraded: dict[str, int]


class Counts(Struct, frozen=True, kw_only=True):
    """Requests, losses and blocks of one session."""

    requests: int = 0
    losses: int = 0
    blocks: int = 0


class TimelineStep(Struct, frozen=True, kw_only=True):
    """A request in its session's timeline."""

    id: str
    at: float
    event: str
    size: int
    restored: int
    chars: int
    ms: float
    gone: int
    lost: int
    status: int


class Bridge(Struct, frozen=True, kw_only=True):
    """A restored passage, with the turn it was said in and the request it was restored into."""

    request: str
    kind: BlockKind
    passage: int
    rank: int
    score: float
    session: str
    turn: int
    speaker: str
    said_at: float
    text: str
    """Its first 160 characters."""
    used: bool | None
    verdict: str


class Timeline(Struct, frozen=True, kw_only=True):
    """The newest requests of a session, oldest first, and the passages restored into it."""

    steps: tuple[TimelineStep, ...]
    bridges: tuple[Bridge, ...]


class Shown(Struct, frozen=True, kw_only=True):
    """The beginning of a message, as the admin page shows it."""

    position: int
    turn: int
    role: str
    side: bool
    partial: bool
    at: float
    length: int
    """Characters of the whole message."""
    text: str
    calls: tuple[str, ...]
    """The tools it calls: names with the beginning of their arguments, `tide {"harbour": "Lerwick"}`."""
    is_result: bool
    """Does it consist of tool results only, whatever its role is?"""


class Summaries(Reads):
    """The part of TenantArchive that computes summaries."""

    def overview(self, since: float, now: float, buckets: int = 48) -> Overview:
        """Sums of the tenant's requests, in about `buckets` buckets. since: Unix seconds; 0: from the first request"""
        with self._connections.reading() as db:
            execute = db.conn.execute
            if since <= 0:
                since = execute(_FIRST, (self.tenant,)).fetchone()[0] or now - 86_400
            width = max(1.0, (now - since) / buckets)
            rows = execute(_SUMS, {"tenant": self.tenant, "since": since, "width": width}).fetchall()
            ms = sorted(row[0] for row in execute(_MS, (self.tenant, since, _NEWEST)))
            degraded: Counter[str] = Counter()
            for reasons, count in execute(_DEGRADED, (self.tenant, since)):
                degraded.update(dict.fromkeys(texts(reasons), count))
            unsent = execute(_UNSENT, (self.tenant, since)).fetchone()[0]
            sessions = execute(_SEEN, (self.tenant, since)).fetchone()[0]
            placed = execute(_PLACED, (self.tenant,)).fetchone()[0]
        events: Counter[str] = Counter()
        for _, event, count, *_ in rows:
            events[event] += count
        chars = sum(row[4] for row in rows)
        return Overview(
            since=since, width_s=width, buckets=_buckets(rows, since, width), events=dict(events), sessions=sessions,
            requests=sum(events.values()), losses=sum(events[event] for event in LOSSES),
            restores=sum(row[3] for row in rows), chars=chars, placed=placed, unsent_bytes=max(0, unsent - chars),
            ms_p50=_quantile(ms, 0.5), ms_p95=_quantile(ms, 0.95), degraded=dict(degraded),
        )  # fmt: skip

    def counts(self, sessions: Sequence[str]) -> dict[str, Counts]:
        """Requests, losses and blocks of each of `sessions`."""
        values = {"tenant": self.tenant, "sessions": json.dumps([name(session) for session in sessions])}
        rows = self._rows(_OF_SESSIONS, values)
        return {id_: Counts(requests=requests, losses=losses, blocks=blocks) for id_, requests, losses, blocks in rows}

    def timeline(self, session: str, limit: int = 2_000) -> Timeline:
        """The newest `limit` requests of a session, and at most as many of the passages restored into it."""
        values = (self.tenant, name(session), limit)
        with self._connections.reading() as db:
            steps = db.conn.execute(_STEPS, values).fetchall()
            bridges = db.conn.execute(_BRIDGES, values).fetchall()
        return Timeline(steps=tuple(_step(row) for row in steps), bridges=tuple(_bridge(row) for row in bridges))

    def shown(self, session: str, first: int = 0, limit: int = 50, chars: int = 2_000) -> list[Shown]:
        """Messages from position `first` on, each with its first `chars` characters."""
        values: dict[str, Any] = {"tenant": self.tenant, "session": name(session), "first": first, "limit": limit}
        rows = self._rows(_MESSAGES, values | {"shown": chars})
        return [
            Shown(position=position, turn=turn, role=role, side=bool(side), partial=bool(partial), at=at,
                  length=length, text=text, **said_of(items, chars))
            for position, turn, role, side, partial, at, length, text, items in rows
        ]  # fmt: skip


def _buckets(rows: Sequence[Sequence[Any]], since: float, width: float) -> tuple[Bucket, ...]:
    """The buckets in which something happened, in order."""
    found: dict[int, Counter[str]] = {}
    for at, event, count, restores, chars in rows:
        sums = found.setdefault(at, Counter())
        sums.update(requests=count, losses=count if event in LOSSES else 0, restores=restores, chars=chars)
    return tuple(Bucket(at=since + at * width, **found[at]) for at in sorted(found))


def _quantile(values: Sequence[float], share: float) -> float:
    """The quantile at `share` (0 to 1) of sorted values; 0 if there are none."""
    return float(values[min(len(values) - 1, int(share * len(values)))]) if values else 0.0


def _step(row: Sequence[Any]) -> TimelineStep:
    (id_, at, event, size, restored, chars, ms, gone, lost, status) = row
    return TimelineStep(
        id=id_, at=at, event=event, size=size, restored=restored, chars=chars, ms=ms, gone=gone, lost=lost,
        status=status,
    )  # fmt: skip


def _bridge(row: Sequence[Any]) -> Bridge:
    (request, kind, passage, rank, score, origin, text, used, verdict) = row
    source = json.loads(origin)
    return Bridge(
        request=request, kind=kind, passage=passage, rank=rank, score=score, session=source["session"],
        turn=source["turn"], speaker=source["speaker"], said_at=source["created_at"], text=text,
        used=None if used is None else bool(used), verdict=verdict,
    )  # fmt: skip
