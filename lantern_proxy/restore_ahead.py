"""Large scopes, opened or kept beside the archive before a restore asks for them."""

import time
from collections.abc import Callable

from lantern_proxy import restore_snapshots
from lantern_proxy.archive import Archive
from lantern_proxy.restore_scope import Key, Scope
from lantern_proxy.restore_scopes import MAX_PASSAGES, MAX_SCOPES, Scopes, keep


def large_scopes(archive: Archive, reach: str) -> list[tuple[Key, int]]:
    """The scopes that a snapshot is kept of, with how many passages each has, largest first. reach: restore.scope"""
    if reach == "session":
        return []
    found = archive.large_scopes(restore_snapshots.LEAST, by_project=reach == "project")
    return [(Key(tenant, project, None, unit), n) for tenant, project, unit, n in found if unit == "passage"]


def that_fit(scopes: list[tuple[Key, int]]) -> list[tuple[Key, int]]:
    """Those that may be open at once."""
    chosen, room = [], MAX_PASSAGES
    for key, n in scopes[: MAX_SCOPES // 2]:
        if n <= room:
            chosen.append((key, n))
            room -= n
    return chosen


def open_ahead(scopes: Scopes, key: Key, archive: Archive, advance: Callable[[int], None]) -> None:
    """Open a scope for the restores to come. Rests as long as it works, and lets restores go first."""
    scope = scopes.use(key, 60.0)
    if scope is not None:
        scope.release()
        _open(scope, archive, advance, rest=True)
        if restore_snapshots.is_due(key, len(scope), scope.kept):
            keep(scope, archive)


def make_snapshot(archive: Archive, key: Key, advance: Callable[[int], None]) -> bool:
    """Bring the snapshot of a scope up to date, or make one; whether it is there now."""
    scope = Scope(key)
    try:
        _open(scope, archive, advance, rest=False)
        return scope.kept == len(scope) or keep(scope, archive)
    finally:
        scope.index.close()


def _open(scope: Scope, archive: Archive, advance: Callable[[int], None], *, rest: bool) -> None:
    """advance: gets how many passages came since the last call"""
    done, shown = False, 0
    while not done:
        begun = time.monotonic()
        scope.lock.acquire()
        try:
            if scope.closed:
                return
            done = scope.step(archive)
            held = len(scope)
        finally:
            scope.release()
        advance(held - shown)
        shown = held
        if rest:
            time.sleep(time.monotonic() - begun)
