"""The open scopes of all tenants: looked up, built in the background, saved beside the archive."""

import logging
import time
from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from threading import Lock, Thread

from msgspec import Struct, field

from lantern_proxy.archive import Archive, ArchiveError
from lantern_proxy.restore import snapshots
from lantern_proxy.restore.passages import Passages, Precompute
from lantern_proxy.restore.scope import Key, Scope

SLICE_S = 0.03
"""How long a background thread holds a scope before a restore may have it."""
MAX_PASSAGES, MAX_SCOPES = 500_000, 64
"""Most open passages and scopes, over all tenants; the least recently used scopes are closed first."""
MAX_READ = 10_000
"""Most passages in memory with their text and what was computed from it, 4 KB each, not counting the scope in use."""
MAX_PREPARED = 20_000
"""Most passages with facets, word pieces and traits in memory, 600 to 1,200 bytes each, not counting the scope in
use."""
PREPARE_FROM, PREPARE_STEP, PREPARE_SHARE = 32, 8, 0.25
"""Facets are computed in the background once PREPARE_FROM passages lack them, PREPARE_STEP at a time (about a
millisecond), for PREPARE_SHARE of the time."""

log = logging.getLogger("lantern.restore")


class Scopes(Struct):
    """The open scopes, least recently used first. Thread-safe."""

    _open: OrderedDict[Key, Scope] = field(default_factory=OrderedDict)
    _lock: Lock = field(default_factory=Lock)

    def __len__(self) -> int:
        return len(self._open)

    def use(self, key: Key, timeout_s: float) -> Scope | None:
        """The scope of `key`, locked: the caller release()s it. None if it was not free within `timeout_s`."""
        while True:
            scope = self._get(key)
            if not scope.lock.acquire(timeout=timeout_s):
                return None
            if not scope.closed:
                return scope
            scope.release()

    def _get(self, key: Key) -> Scope:
        """The scope of `key`, opened if necessary, as the most recently used one."""
        with self._lock:
            scope = self._open.get(key)
            if scope is None:
                scope = self._open[key] = Scope(key)
            self._open.move_to_end(key)
            scope.used_at = time.monotonic()
            self._shrink(keep=key)
            return scope

    def finish(self, scope: Scope, archive: Archive) -> None:
        """Build the rest of a scope in the background, and save a snapshot of it. Its lock must be held."""
        if not scope.opening:
            scope.opening = True
            Thread(target=_open_rest, args=(scope, archive), name="lantern-open", daemon=True).start()

    def prepare(self, scope: Scope, make: Precompute, *, least: int = PREPARE_FROM) -> Thread | None:
        """Compute in the background what questions need of a scope's passages, and return the thread that does it; None
        if fewer than `least` passages are unprepared. The scope's lock must be held."""
        if scope.preparing is None and len(scope.passages.unprepared) >= least:
            work, name = partial(_prepare_rest, scope, make), "lantern-prepare"
            scope.preparing = Thread(target=work, name=name, daemon=True)
            scope.preparing.start()
        return scope.preparing

    def keep(self, archive: Archive) -> None:
        """Write a snapshot of every open scope that has grown enough since the last one."""
        with self._lock:
            held = list(self._open.values())
        for scope in held:
            if snapshots.is_due(scope.key, len(scope), scope.kept):
                keep(scope, archive)

    def rest(self, unused_s: float) -> None:
        """No requests are arriving: close scopes unused for `unused_s`, and release the texts of all others."""
        with self._lock:
            for scope in [each for each in self._open.values() if time.monotonic() - each.used_at >= unused_s]:
                self._drop(scope.key)
            self._let_go_beyond(0)

    @property
    def read_count(self) -> int:
        """Passages whose text is in memory."""
        with self._lock:
            return sum(scope.passages.read_count for scope in self._open.values())

    @property
    def index_bytes(self) -> int:
        with self._lock:
            return sum(scope.index.size_bytes for scope in self._open.values() if not scope.closed)

    def forget(self, key: Key) -> None:
        with self._lock:
            if key in self._open:
                self._drop(key)

    def close(self) -> None:
        with self._lock:
            for key in list(self._open):
                self._drop(key)

    def _shrink(self, keep: Key) -> None:
        """Close and release until the limits above hold; `keep` stays open."""
        while len(self._open) > 1 and (
            len(self._open) > MAX_SCOPES or sum(map(len, self._open.values())) > MAX_PASSAGES
        ):
            oldest = next(iter(self._open))
            if oldest == keep:
                return
            self._drop(oldest)
        self._let_go_beyond(MAX_READ, keep)
        self._free(MAX_PREPARED, keep, lambda passages: passages.facets_count, Passages.forget_prepared)

    def _let_go_beyond(self, most: int, keep: Key | None = None) -> None:
        """Release texts of passages until `most` are in memory, the least recently used scopes first. Scopes in use,
        and `keep`, are left alone."""
        self._free(most, keep, lambda passages: passages.read_count, Passages.let_go)

    def _free(
        self, most: int, keep: Key | None, count: Callable[[Passages], int], free: Callable[[Passages], None]
    ) -> None:
        """Call `free` on idle scopes, the least recently used first, until `count` over all is at most `most`."""
        others = [scope for scope in self._open.values() if scope.key != keep and count(scope.passages)]
        held = sum(count(scope.passages) for scope in others)
        for scope in others:
            if held <= most:
                return
            if scope.lock.acquire(blocking=False):
                held -= count(scope.passages)
                free(scope.passages)
                scope.release()

    def _drop(self, key: Key) -> None:
        """Close a scope, unless a restore is using it: then release() closes it."""
        scope = self._open.pop(key)
        scope.closed = True
        if scope.lock.acquire(blocking=False):
            scope.index.close()
            scope.lock.release()


def _open_rest(scope: Scope, archive: Archive) -> None:
    """Background thread: builds a scope in slices, so that a restore can use what is there in between."""
    try:
        done = False
        while not done:
            with scope.locked():
                if scope.closed:
                    return
                # a snapshot cannot be read in slices
                done = scope.catch_up(archive, time.monotonic() + SLICE_S) if len(scope) else scope.step(archive)
                if done:
                    scope.opening = False
            time.sleep(0)
        if snapshots.is_due(scope.key, len(scope), scope.kept):
            keep(scope, archive)
    except Exception as error:  # this thread has no caller; the next restore tries again and reports the error
        scope.opening = False
        log.debug("scope of %d passages is not open yet: %s", len(scope), error)


def _prepare_rest(scope: Scope, make: Precompute) -> None:
    """Background thread: prepares a few passages at a time and sleeps most of the time, since its work blocks all other
    threads."""
    try:
        while True:
            with scope.locked():
                begun = time.monotonic()
                if scope.closed or not scope.passages.unprepared:
                    scope.preparing = None
                    return
                scope.passages.prepare_ahead(PREPARE_STEP, make)
            time.sleep((time.monotonic() - begun) * (1 / PREPARE_SHARE - 1))
    except Exception as error:  # this thread has no caller; the next restore does the rest or reports it
        scope.preparing = None
        log.debug("not all of a scope of %d passages is prepared: %s", len(scope), error)


def keep(scope: Scope, archive: Archive) -> bool:
    """Write a scope's snapshot; True if it exists now. Never raises: without a snapshot the next start reads the
    archive."""
    with scope.locked():
        if scope.closed:
            return False
        try:
            n, snapshot = len(scope), scope.snapshot(archive)
            kept = snapshots.write(archive, scope.key, snapshot)
            scope.kept = n if kept else scope.kept
            return kept
        except (ArchiveError, OSError, ValueError, MemoryError) as error:
            log.warning("no snapshot of %d passages: %s", len(scope), error)
            return False


def large_scopes(archive: Archive, reach: str) -> list[tuple[Key, int]]:
    """The scopes that have snapshots, with their number of passages, largest first. reach: restore.scope"""
    if reach == "session":
        return []
    found = archive.large_scopes(snapshots.LEAST, by_project=reach == "project")
    return [(Key(tenant, project, None), n) for tenant, project, n in found]


def that_fit(scopes: list[tuple[Key, int]]) -> list[tuple[Key, int]]:
    """Those of `scopes` that can be open at the same time. scopes: (key, number of passages), largest first"""
    chosen, room = [], MAX_PASSAGES
    for key, n in scopes[: MAX_SCOPES // 2]:
        if n <= room:
            chosen.append((key, n))
            room -= n
    return chosen


def open_ahead(scopes: Scopes, key: Key, archive: Archive, advance: Callable[[int], None]) -> None:
    """Build a scope for future restores. Between its steps it sleeps as long as it worked: restores go first."""
    scope = scopes.use(key, 60.0)
    if scope is not None:
        scope.release()
        _open(scope, archive, advance, rest=True)
        if snapshots.is_due(key, len(scope), scope.kept):
            keep(scope, archive)


def make_snapshot(archive: Archive, key: Key, advance: Callable[[int], None]) -> bool:
    """Create or update the snapshot of a scope; True if it exists now."""
    scope = Scope(key)
    try:
        _open(scope, archive, advance, rest=False)
        return scope.kept == len(scope) or keep(scope, archive)
    finally:
        scope.index.close()


def _open(scope: Scope, archive: Archive, advance: Callable[[int], None], *, rest: bool) -> None:
    """Build a scope completely. advance: takes the number of passages added since the last call; rest: see
    open_ahead()"""
    done, shown = False, 0
    while not done:
        begun = time.monotonic()
        with scope.locked():
            if scope.closed:
                return
            done = scope.step(archive)
            held = len(scope)
        advance(held - shown)
        shown = held
        if rest:
            time.sleep(time.monotonic() - begun)
