"""How long and how much is kept: what is older, or too much, is removed, oldest first."""

from typing import Protocol

from lantern_proxy.archive import Archive
from lantern_proxy.archive_rows import PruneReport, PruneRule

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


def retain(archive: Archive, keep: Keep, *, now: float) -> PruneReport:
    """Remove what `keep` no longer wants, of all tenants; what was removed. Pinned passages stay.

    A block that was restored before the cutoff goes, too: it quotes what is older still.
    """
    total = PruneReport(passages=0, messages=0, sessions=0, bytes=0)
    if keep.keep_days:
        for tenant in archive.tenants():
            total = _older(archive, tenant.id, now - keep.keep_days * _DAY_S, now, total)
    if keep.keep_messages:
        for tenant in archive.tenants():
            cutoff = archive.of(tenant.id).since_newest(keep.keep_messages)
            if cutoff is not None:
                total = _older(archive, tenant.id, cutoff, now, total)
    for _ in range(_ROUNDS if keep.keep_mb else 0):
        share = 1 - keep.keep_mb * 1e6 / max(1, archive.used_bytes)
        cutoff = archive.oldest_share(share) if share > 0 else None
        if cutoff is None:
            break
        before = total
        for tenant in archive.tenants():
            total = _older(archive, tenant.id, cutoff, now, total)
        if total == before:
            break
    return total


def _older(archive: Archive, tenant: str, cutoff: float, now: float, total: PruneReport) -> PruneReport:
    mine = archive.of(tenant)
    mine.drop_blocks(cutoff)
    report = mine.prune(PruneRule(older_than_s=max(0.0, now - cutoff)), now=now)
    return PruneReport(
        passages=total.passages + report.passages,
        messages=total.messages + report.messages,
        sessions=total.sessions + report.sessions,
        bytes=total.bytes + report.bytes,
    )
