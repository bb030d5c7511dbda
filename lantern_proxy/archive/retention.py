"""How long and how much is kept: what is older, or too much, is removed, oldest first."""

import json
import logging
from dataclasses import dataclass
from typing import Protocol

from lantern_proxy.archive import Archive
from lantern_proxy.archive.prune import Advance
from lantern_proxy.archive.rows import dumps
from lantern_proxy.archive.values import PruneReport, PruneRule

log = logging.getLogger("lantern.archive")

_ROUNDS = 8
_DAY_S = 86_400.0
_LEAP_S = 14 * _DAY_S
"""A clock that is further ahead of the last round may be wrong, and all that is kept is old by it."""
_DOUBT_S = 3 * _DAY_S
"""So long afterwards nothing goes by its age: time to set the clock right."""
_LAST = "SELECT value FROM settings WHERE tenant = '' AND name = 'retained'"
_NOTE = "INSERT OR REPLACE INTO settings (tenant, name, value) VALUES ('', 'retained', ?)"
"""A round of keep_days: when it was, when the clock leapt last, and how far."""


class Keep(Protocol):
    """What of config.PrivacyConfig this needs; 0 means no limit."""

    @property
    def keep_days(self) -> float: ...
    @property
    def keep_mb(self) -> int: ...
    @property
    def keep_messages(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Leap:
    """A round of retention so long after the last one that the clock may be wrong, if the machine was not off so long.
    Nothing is removed by its age then."""

    at: float
    """When, by the clock that leapt: Unix seconds."""
    by_s: float
    """How far it leapt ahead."""

    def __str__(self) -> str:
        return (
            f"two rounds of retention lie {self.by_s / _DAY_S:,.0f} days apart by this clock, which may be wrong: "
            f"nothing goes by its age (privacy.keep_days) for {_DOUBT_S / _DAY_S:.0f} days"
        )


def leap(archive: Archive, *, now: float) -> Leap | None:
    """The leap of the clock since the last round, or one that it made less than _DOUBT_S ago; None: it is believed.

    It is, too, where the same time has passed again, so that a round that comes once a month removes something.
    """
    with archive.reading() as db:
        row = db.execute(_LAST).fetchone()
    last, at, by_s = json.loads(row[0]) if row else (now, 0.0, 0.0)
    if at and now >= at and now - last <= 2 * by_s:  # as long a time again is believed, and not a far longer one
        return Leap(at, by_s) if now - at <= _DOUBT_S else None
    before = last if now >= at else at - by_s
    return Leap(now, now - before) if now - before > _LEAP_S else None


def retain(archive: Archive, keep: Keep, *, now: float, advance: Advance = lambda _: None) -> PruneReport:
    """Remove what `keep` no longer wants, of all tenants; what was removed. Pinned passages stay."""
    total = PruneReport()
    if keep.keep_days and not _is_doubtful(archive, now):
        total += _older(archive, now - keep.keep_days * _DAY_S, now, advance)
    if keep.keep_messages:
        for tenant in archive.tenants():
            cutoff = archive.of(tenant.id).since_newest(keep.keep_messages)
            if cutoff is not None:
                total += _older_of(archive, tenant.id, cutoff, now, advance)
    for _ in range(_ROUNDS if keep.keep_mb else 0):
        cutoff = cutoff_of_size(archive, keep.keep_mb)
        removed = _older(archive, cutoff, now, advance) if cutoff is not None else PruneReport()
        if removed == PruneReport():
            break
        archive.wipe(advance)
        total += removed
    archive.wipe(advance)
    return total


def would_retain(archive: Archive, keep: Keep, *, now: float) -> PruneReport:
    """What retain() would remove, about so: of keep_mb what its first round takes. Reads only."""
    everywhere = [now - keep.keep_days * _DAY_S] if keep.keep_days and leap(archive, now=now) is None else []
    if keep.keep_mb and (cutoff := cutoff_of_size(archive, keep.keep_mb)) is not None:
        everywhere.append(cutoff)
    total = PruneReport()
    for tenant in archive.tenants():
        mine = archive.of(tenant.id)
        newest = mine.since_newest(keep.keep_messages) if keep.keep_messages else None
        cutoffs = everywhere if newest is None else [*everywhere, newest]
        if cutoffs:
            total += mine.prune(PruneRule(older_than_s=max(0.0, now - max(cutoffs))), now=now, dry_run=True)
    return total


def _is_doubtful(archive: Archive, now: float) -> bool:
    """May the clock be wrong? This round is noted."""
    found = leap(archive, now=now)
    with archive.writing() as db:
        db.execute(_NOTE, (dumps([now, found.at, found.by_s] if found else [now, 0.0, 0.0]),))
    if found and found.at == now:
        log.warning("archive %s: %s; see `lantern doctor`", archive.path, found)
    return found is not None


def cutoff_of_size(archive: Archive, keep_mb: int) -> float | None:
    """The time before which everything has to go so that about `keep_mb` are left; None when there is no more."""
    share = 1 - keep_mb * 1e6 / max(1, archive.used_bytes)
    return archive.oldest_share(share) if share > 0 else None


def _older(archive: Archive, cutoff: float, now: float, advance: Advance) -> PruneReport:
    return sum((_older_of(archive, tenant.id, cutoff, now, advance) for tenant in archive.tenants()), PruneReport())


def _older_of(archive: Archive, tenant: str, cutoff: float, now: float, advance: Advance) -> PruneReport:
    return archive.of(tenant).prune(
        PruneRule(older_than_s=max(0.0, now - cutoff)), now=now, wiped=False, advance=advance
    )
