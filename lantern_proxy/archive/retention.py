"""Retention: removes what exceeds the configured age or size, oldest first."""

import json
import logging
from collections.abc import Mapping
from operator import itemgetter
from typing import Protocol

from msgspec import Struct

from lantern_proxy.archive import Archive
from lantern_proxy.archive.prune import Advance
from lantern_proxy.archive.rows import dumps
from lantern_proxy.archive.values import PruneReport, PruneRule

log = logging.getLogger("lantern.archive")

_ROUNDS = 8
_DAY_S = 86_400.0
_LEAP_S = 14 * _DAY_S
"""A clock that is so far ahead of the last round may be wrong, and would make everything look old."""
_DOUBT_S = 3 * _DAY_S
"""For so long after a leap nothing is removed by its age: time to set the clock right."""
_LAST = "SELECT value FROM settings WHERE tenant = '' AND name = 'retained'"
_NOTE = "INSERT OR REPLACE INTO settings (tenant, name, value) VALUES ('', 'retained', ?)"
"""A round of keep_days: its time, the time of the clock's last leap, and the length of that."""
_MARKS = "SELECT value FROM settings WHERE tenant = '' AND name = 'archived'"
_MARK = "INSERT OR REPLACE INTO settings (tenant, name, value) VALUES ('', 'archived', ?)"
"""Marks of rounds of keep_days, oldest first, each [time, {table: number of its newest row then}]; and since when the
clock has been behind the last of them, or 0."""
_NEWEST = "SELECT ifnull(max(id), 0) FROM {table}"
_NUMBERED = ("passages", "messages", "blocks")
_STEP = 0.01
"""Time between two marks as a share of keep_days: a row may be removed so much later than due."""

Newest = Mapping[str, int]
"""Table -> number of its newest row by some time; a table that is missing has no limit."""
Mark = tuple[float, Newest]
_ANY: Newest = {}


class Keep(Protocol):
    """The fields of config.PrivacyConfig that retention needs; 0 means no limit."""

    @property
    def keep_days(self) -> float: ...
    @property
    def keep_mb(self) -> int: ...
    @property
    def keep_messages(self) -> int: ...


class Leap(Struct, frozen=True):
    """A round so long after the last one that the clock may be wrong, unless the machine was off. Nothing is removed
    by its age then."""

    at: float
    """The time of the leap by the new clock, in Unix seconds."""
    by_s: float
    """How far the clock leapt ahead."""

    def __str__(self) -> str:
        return (
            f"two rounds of retention lie {self.by_s / _DAY_S:,.0f} days apart by this clock, which may be wrong: "
            f"nothing goes by its age (privacy.keep_days) for {_DOUBT_S / _DAY_S:.0f} days"
        )


def leap(archive: Archive, *, now: float) -> Leap | None:
    """A leap of the clock since the last round, or one less than _DOUBT_S ago; None if the clock is trusted.

    It is trusted, too, once the same time has passed again, so that monthly rounds remove something.
    """
    with archive.reading() as db:
        row = db.execute(_LAST).fetchone()
    last, at, by_s = json.loads(row[0]) if row else (now, 0.0, 0.0)
    if at and now >= at and now - last <= 2 * by_s:  # the same time again is trusted, a far longer one is not
        return Leap(at, by_s) if now - at <= _DOUBT_S else None
    before = last if now >= at else at - by_s
    return Leap(now, now - before) if now - before > _LEAP_S else None


def retain(archive: Archive, keep: Keep, *, now: float, advance: Advance = lambda _: None) -> PruneReport:
    """Remove what exceeds the limits of `keep`, for all tenants. Pinned passages stay. Returns what was removed."""
    total = PruneReport()
    aged = _age_limits(archive, keep, now, notes=True)
    if aged is not None:
        cutoff, up_to = aged
        total += _older(archive, cutoff, now, advance, up_to)
    if keep.keep_messages:
        for tenant in archive.tenants():
            newest = archive.of(tenant.id).since_newest(keep.keep_messages, until=now + _DAY_S)
            if newest is not None:
                total += _older_of(archive, tenant.id, newest, now, advance)
    for _ in range(_ROUNDS if keep.keep_mb else 0):
        largest = cutoff_of_size(archive, keep.keep_mb)
        removed = _older(archive, largest, now, advance) if largest is not None else PruneReport()
        if removed == PruneReport():
            break
        archive.wipe(advance)
        total += removed
    archive.wipe(advance)
    return total


def would_retain(archive: Archive, keep: Keep, *, now: float) -> PruneReport:
    """About what retain() would remove; for keep_mb, what its first round would. Reads only."""
    everywhere: list[tuple[float, Newest]] = []
    aged = _age_limits(archive, keep, now, notes=False)
    if aged is not None:
        everywhere.append(aged)
    if keep.keep_mb and (cutoff := cutoff_of_size(archive, keep.keep_mb)) is not None:
        everywhere.append((cutoff, {}))
    total = PruneReport()
    for tenant in archive.tenants():
        mine = archive.of(tenant.id)
        newest = mine.since_newest(keep.keep_messages, until=now + _DAY_S) if keep.keep_messages else None
        cutoffs = everywhere if newest is None else [*everywhere, (newest, {})]
        if cutoffs:
            cutoff, up_to = max(cutoffs, key=itemgetter(0))
            rule = PruneRule(older_than_s=max(0.0, now - cutoff), up_to=up_to)
            total += mine.prune(rule, now=now, dry_run=True)
    return total


def _age_limits(archive: Archive, keep: Keep, now: float, *, notes: bool) -> tuple[float, Newest] | None:
    """(the time before which everything is too old, the newest rows archived by then); None if nothing is removed by
    its age, because keep_days is off or the clock may be wrong.

    notes: this is a real round, whose time and marks are stored
    """
    if not keep.keep_days:
        return None
    found, cutoff = leap(archive, now=now), now - keep.keep_days * _DAY_S
    if notes:
        _note(archive, found, now)
    if found is not None:
        return None
    with archive.reading() as db:
        row = db.execute(_MARKS).fetchone()
        newest = {table: db.execute(_NEWEST.format(table=table)).fetchone()[0] for table in _NUMBERED}
    marks, behind = json.loads(row[0]) if row else ([], 0.0)
    marks, behind = _marked(marks, behind, newest, cutoff, now)
    stored = dumps([marks, behind])
    if notes and (row is None or stored != row[0]):
        with archive.writing() as db:
            db.execute(_MARK, (stored,))
    return cutoff, _up_to(marks, cutoff)


def _note(archive: Archive, found: Leap | None, now: float) -> None:
    """Store the time of a round, and the leap of the clock that it found."""
    with archive.writing() as db:
        db.execute(_NOTE, (dumps([now, found.at, found.by_s] if found else [now, 0.0, 0.0]),))
    if found and found.at == now:
        log.warning("archive %s: %s; see `lantern doctor`", archive.path, found)


def _marked(marks: list[Mark], behind: float, newest: Newest, cutoff: float, now: float) -> tuple[list[Mark], float]:
    """(marks with this round included, without those that `cutoff` no longer needs; since when the clock has been
    behind the last mark, or 0)

    Rows are numbered in the order in which they are archived. So rows that came while the clock was behind are as old
    as their neighbours, and imported rows count from their import. For rows older than the first round, their own
    times count.

    marks, behind: as the last round left them; newest: the newest rows now
    """
    if marks and now < marks[-1][0]:
        behind = min(behind or now, now)
        if now - behind <= _DOUBT_S:
            return marks, behind
        marks = [each for each in marks if each[0] <= behind]  # the clock stays behind: it was ahead before
    if not marks:
        marks = [(0.0, newest), (now, newest)]
    elif now - marks[-1][0] >= (now - cutoff) * _STEP and newest != marks[-1][1]:
        marks = [*marks, (now, newest)]
    later = [at for at, _ in marks[1:]] + [now]
    return [each for each, until in zip(marks, later, strict=True) if until > cutoff], 0.0


def _up_to(marks: list[Mark], cutoff: float) -> Newest:
    """The newest rows that were archived by `cutoff`, as far as is known."""
    return next((newest for at, newest in reversed(marks) if at <= cutoff), dict.fromkeys(_NUMBERED, 0))


def cutoff_of_size(archive: Archive, keep_mb: int) -> float | None:
    """The time before which everything must go to leave about `keep_mb`; None if the archive is no larger."""
    share = 1 - keep_mb * 1e6 / max(1, archive.used_bytes)
    return archive.oldest_share(share) if share > 0 else None


def _older(archive: Archive, cutoff: float, now: float, advance: Advance, up_to: Newest = _ANY) -> PruneReport:
    total = PruneReport()
    for tenant in archive.tenants():
        total += _older_of(archive, tenant.id, cutoff, now, advance, up_to)
    return total


def _older_of(
    archive: Archive, tenant: str, cutoff: float, now: float, advance: Advance, up_to: Newest = _ANY
) -> PruneReport:
    rule = PruneRule(older_than_s=max(0.0, now - cutoff), up_to=up_to)
    return archive.of(tenant).prune(rule, now=now, wiped=False, advance=advance)
