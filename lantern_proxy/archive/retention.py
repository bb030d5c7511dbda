"""Retention: removes what is older, or more, than the config allows, oldest first."""

import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from operator import itemgetter
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
_MARKS = "SELECT value FROM settings WHERE tenant = '' AND name = 'archived'"
_MARK = "INSERT OR REPLACE INTO settings (tenant, name, value) VALUES ('', 'archived', ?)"
"""Of rounds of keep_days, oldest first, [time, {table: number of its newest row then}]; and since when the clock has
stood before the last of them, or 0."""
_NEWEST = "SELECT ifnull(max(id), 0) FROM {table}"
_NUMBERED = ("passages", "messages", "blocks")
_STEP = 0.01
"""Of keep_days, between two such marks: so much of it later than due a row may go."""

Newest = Mapping[str, int]
"""Of each of these tables the number of its newest row; nothing of a table that any row may be of."""
Mark = tuple[float, Newest]
_ANY: Newest = {}


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
    aged = _aged(archive, keep, now, notes=True)
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
    """What retain() would remove, about so: of keep_mb what its first round takes. Reads only."""
    everywhere: list[tuple[float, Newest]] = []
    aged = _aged(archive, keep, now, notes=False)
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


def _aged(archive: Archive, keep: Keep, now: float, *, notes: bool) -> tuple[float, Newest] | None:
    """The time before which everything is too old, and the newest rows that were archived by then; None: nothing goes
    by its age, since nothing is to, or the clock may be wrong.

    notes: this is a round. When it was is noted, and what it adds to the marks
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
    told = dumps([marks, behind])
    if notes and (row is None or told != row[0]):
        with archive.writing() as db:
            db.execute(_MARK, (told,))
    return cutoff, _up_to(marks, cutoff)


def _note(archive: Archive, found: Leap | None, now: float) -> None:
    """Note a round, and the leap of the clock that it found."""
    with archive.writing() as db:
        db.execute(_NOTE, (dumps([now, found.at, found.by_s] if found else [now, 0.0, 0.0]),))
    if found and found.at == now:
        log.warning("archive %s: %s; see `lantern doctor`", archive.path, found)


def _marked(marks: list[Mark], behind: float, newest: Newest, cutoff: float, now: float) -> tuple[list[Mark], float]:
    """What was archived by when, this round included, as far as `cutoff` asks for it; and since when the clock has
    stood before that, or 0.

    Rows are numbered as they are archived. So what came while the clock was behind is as old as what came beside it,
    and what an import brings counts from then. Of what was there at the first round the time counts that it has.

    marks, behind: as the last round left them; newest: of each table as it is now
    """
    if marks and now < marks[-1][0]:
        behind = min(behind or now, now)
        if now - behind <= _DOUBT_S:
            return marks, behind
        marks = [each for each in marks if each[0] <= behind]  # it stays there: the clock was ahead before
    if not marks:
        marks = [(0.0, newest), (now, newest)]
    elif now - marks[-1][0] >= (now - cutoff) * _STEP and newest != marks[-1][1]:
        marks = [*marks, (now, newest)]
    later = [at for at, _ in marks[1:]] + [now]
    return [each for each, until in zip(marks, later, strict=True) if until > cutoff], 0.0


def _up_to(marks: list[Mark], cutoff: float) -> Newest:
    """The newest rows that were archived by then, as far as is known."""
    return next((newest for at, newest in reversed(marks) if at <= cutoff), dict.fromkeys(_NUMBERED, 0))


def cutoff_of_size(archive: Archive, keep_mb: int) -> float | None:
    """The time before which everything has to go so that about `keep_mb` are left; None when there is no more."""
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
