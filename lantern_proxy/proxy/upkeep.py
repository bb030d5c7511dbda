"""Background upkeep of the archive: forgetting, retention, vectors. Nothing waits for it.

In threads of its own it drops what another process forgot, applies retention, continues an interrupted reindex, and
computes vectors of passages.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from lantern_proxy.archive import Archive, ArchiveError
from lantern_proxy.archive.retention import retain
from lantern_proxy.config import Config
from lantern_proxy.proxy.open_archive import Opened

if TYPE_CHECKING:
    from lantern_proxy.embed import Embedder

log = logging.getLogger("lantern.writer")

_EMBED_GROUP = 8
_LOOK_S = 1.0
"""Seconds between two searches for passages without a vector that other workers have archived."""
_WATCH_S = 0.25
"""Seconds between two checks whether another process has forgotten something."""
_QUIET_S = 0.1
"""Embedding pauses while a request restores, and for so long afterwards, since more requests may follow."""
_PATIENCE_S = 0.5
"""Most seconds of such pauses for one group of passages, so that vectors keep up under constant load."""
_RETAIN_S = 600.0
"""Seconds between two rounds of retention, and between two checks for an interrupted reindex."""


class _Closing(Exception):
    """The proxy stops: work that can continue later is abandoned."""


class Keeper:
    """Computes vectors and applies retention, in the background. Belongs to the writer. Must be closed.

    keeps:    does this worker do so? Of several workers on an archive, one does it for all
    cut_left: called when messages were removed that others of their session repeat, which are then to be cut
    """

    def __init__(
        self, config: Config, embedder: "Embedder | None", opened: Opened, *, keeps: bool,
        cut_left: Callable[[], None],
    ) -> None:  # fmt: skip
        self._config, self._embedder, self._opened, self._keeps = config, embedder, opened, keeps
        self._cut_left = cut_left
        self._idle_s = 30.0 if config.server.workers == 1 else _LOOK_S
        self.forgets = 0
        """How often something was forgotten, here or by another process. When it changes, memory may hold what was
        forgotten."""
        self._noticed: tuple[Archive | None, str] = (None, "")
        self._noticing = threading.Lock()
        self._restoring, self._restored_at = 0, -_QUIET_S
        self._patience_s = 0.0
        """How long the group of passages being embedded may still be paused."""
        self._work, self._closing = threading.Event(), threading.Event()
        self._threads = [threading.Thread(target=self._keep_all, name="lantern-keeper", daemon=True)]
        if embedder is not None and keeps:
            self._threads.append(threading.Thread(target=self._embed_all, name="lantern-embedding", daemon=True))

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Start nothing more."""
        self._closing.set()
        self._work.set()

    def close(self, timeout_s: float) -> None:
        self.stop()
        for thread in self._threads:
            thread.join(timeout_s)

    def begin(self, archive: Archive) -> None:
        """Another archive was opened: what was forgotten in it earlier is not in memory. Raises ArchiveError."""
        self._noticed = archive, archive.forgets

    def has_written(self) -> None:
        """There may be new passages without a vector."""
        self._work.set()

    @contextmanager
    def undisturbed(self) -> Iterator[None]:
        """Pauses embedding, which takes a core for 5 to 50 ms per passage, while a request waits for the block of this
        `with`. For the event loop."""
        self._restoring += 1
        try:
            yield
        finally:
            self._restoring -= 1
            self._restored_at = time.monotonic()

    # forgetting and retention

    def _keep_all(self) -> None:
        """Notice what was forgotten, apply `privacy.keep_...`, complete a half-filled full-text index."""
        due, forgets = time.monotonic() + _RETAIN_S, self.forgets
        while not self._closing.wait(_WATCH_S):
            self._opened.attempt("notice", self._look)
            if self._keeps and self.forgets != forgets:
                forgets = self.forgets
                self._cut_left()
            if self._keeps and time.monotonic() > due:
                due = time.monotonic() + _RETAIN_S
                self._opened.attempt("retain", self._retain)
                self._opened.attempt("reindex", self._reindex)

    def _look(self) -> None:
        try:
            self.notice()
        except ArchiveError as error:  # the writer gets the same error, and reports it
            log.debug("the keeper waits: %s", error)

    def _retain(self) -> None:
        if (archive := self._opened.archive) is not None:
            retain(archive, self._config.privacy, now=time.time())
            self._cut_left()

    def _reindex(self) -> None:
        if (archive := self._opened.archive) is not None:
            with suppress(_Closing):
                archive.complete_fts(self._look_between)

    def _look_between(self, _: int) -> None:
        if self._closing.is_set():
            raise _Closing
        self._look()

    def notice(self) -> bool:
        """Was something forgotten since the last check? Then open indexes are closed. Takes about 10 us.

        Raises ArchiveError.
        """
        archive, restorer = self._opened.archive, self._opened.restorer.ready
        if archive is None:
            return False
        now = archive.forgets
        with self._noticing:
            changed = self._noticed[0] is archive and self._noticed[1] != now
            self._noticed = archive, now
            self.forgets += changed
        if changed and restorer is not None:
            restorer.forget()
        return changed

    # vectors

    def _embed_all(self) -> None:
        """Compute missing vectors, a few at a time, whenever something was written."""
        embedder, lacking = self._embedder, ""
        while embedder is not None and not self._closing.is_set():
            self._work.wait(1.0 if embedder.state == "warming" else self._idle_s)
            self._work.clear()
            if embedder.state == "failed" and embedder.detail != lacking:
                lacking = embedder.detail
                log.warning("no vectors: %s", lacking)
            if self._opened.attempt("embed", lambda: self._embed_waiting(embedder)) is not None:
                self._closing.wait(5.0)

    def _embed_waiting(self, embedder: "Embedder") -> None:
        while not self._closing.is_set() and embedder.state == "ready" and self._embed_some(embedder):
            pass

    def _embed_some(self, embedder: "Embedder") -> bool:
        from lantern_proxy.restore.vectors import embed_some

        archive = self._opened.archive
        self._patience_s = _PATIENCE_S
        return archive is not None and embed_some(archive, embedder, _EMBED_GROUP, self._give_way) is not None

    def _give_way(self) -> None:
        begun = now = time.monotonic()
        until = begun + self._patience_s
        while now < until and (self._restoring or now - self._restored_at < _QUIET_S):
            if self._closing.wait(_QUIET_S / 4):
                return
            now = time.monotonic()
        self._patience_s -= now - begun
