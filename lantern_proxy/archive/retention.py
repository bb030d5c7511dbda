"""How long and how much is kept: what is older, or too much, is removed, oldest first."""

from typing import Protocol

from lantern_proxy.archive import Archive
from lantern_proxy.archive.prune import Advance
from lantern_proxy.archive.values import PruneReport, PruneRule

_ROUNDS = 8
_DAY_S = 86_400.0


class Keep(Protocol):
    """What of config.PrivacyConfig this needs; 0 means no limit."""

    @property
    def keep_days(self) -> float: ...
    @property
    def keep_mb(self) -> int: ...
    @property
    def keep_messages(self) -> int: ...


def retain(archive: Archive, keep: Keep, *, now: float, advance: Advance = lambda _: None) -> PruneReport:
    """Remove what `keep` no longer wants, of all tenants; what was removed. Pinned passages stay."""
    total = PruneReport()
    if keep.keep_days:
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
    everywhere = [now - keep.keep_days * _DAY_S] if keep.keep_days else []
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
