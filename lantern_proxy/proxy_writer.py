"""The one writer: a thread that takes what waits, archives it in one transaction, and mends the archive when it can.

Nobody waits for it but an answer's last bytes, and those only so long (archive.hold_ms). While the file is at fault the
records wait here, the newest thousand of them; clients resend their history, so what is dropped beyond that comes again.
"""

import logging
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from queue import Empty, SimpleQueue

from lantern_proxy.archive import Archive, ArchiveError, Record
from lantern_proxy.config import Config
from lantern_proxy.embed import Embedder, EmbedError
from lantern_proxy.restore import Restorer

log = logging.getLogger("lantern.writer")

_GROUP = 64
"""Most records of one transaction."""
_BACKLOG = 1_000
_RETRY_S = 2.0
"""Seconds between two attempts to open an archive that is at fault."""
_EMBED_GROUP = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One answered request, to be archived."""

    build: Callable[[], Record]
    """Makes the record on the writer's thread: passages are cut there, not in the event loop."""
    restored: tuple[int, ...] = ()
    """Passages that were put into this request for the first time, to be settled by `answer`."""
    answer: str = ""
    at: float = 0.0


class Writer:
    """Owns the archive, its restorer and the two threads that write it. `archive` and `restorer` are None while at fault.

    on_new_file: called (on the writer's thread) when another file is opened than before, so that what was remembered
                 of the old one is dropped
    """

    def __init__(self, config: Config, embedder: Embedder | None, *, on_new_file: Callable[[], None]) -> None:
        self._config, self._embedder, self._on_new_file = config, embedder, on_new_file
        self.archive: Archive | None = None
        self.restorer: Restorer | None = None
        self.problem = ""
        """Why there is no archive; empty while there is one."""
        self.faults: Counter[str] = Counter()
        self._inode = -1
        self._opened_at = -_RETRY_S
        self._queue: SimpleQueue[tuple[Job, Future[bool]] | None] = SimpleQueue()
        self._backlog: deque[Job] = deque(maxlen=_BACKLOG)
        self._work = threading.Event()
        self._closing = threading.Event()
        self.open()
        self._threads = [threading.Thread(target=self._write_all, name="lantern-writer", daemon=True)]
        if embedder is not None:
            self._threads.append(threading.Thread(target=self._embed_all, name="lantern-embedding", daemon=True))
        for thread in self._threads:
            thread.start()

    @property
    def depth(self) -> int:
        """Records that wait."""
        return self._queue.qsize() + len(self._backlog)

    def submit(self, job: Job) -> Future[bool]:
        """Archive `job` soon. The future tells whether it is on disk; it never raises."""
        done: Future[bool] = Future()
        self._queue.put((job, done))
        return done

    def close(self, timeout_s: float = 10.0) -> None:
        """Write what waits, then let go of the file."""
        self._closing.set()
        self._work.set()
        self._queue.put(None)
        for thread in self._threads:
            thread.join(timeout_s)
        self._let_go()

    # the file

    def open(self) -> bool:
        """Open the archive unless it is open; True when it can be used."""
        if self.archive is not None and not self._is_gone():
            return True
        if time.monotonic() - self._opened_at < _RETRY_S:
            return self.archive is not None
        self._opened_at = time.monotonic()
        was_open = self.archive is not None
        try:
            archive = Archive(self._config.archive.path, synchronous=self._config.archive.synchronous)
        except ArchiveError as error:
            self._fault("open", str(error))
            return False
        if was_open:
            self._fault("deleted", f"archive {archive.path} was deleted or replaced while in use; a new one is kept")
        self._let_go()
        self.archive, self.problem = archive, ""
        self.restorer = Restorer(archive, self._config, self._embedder)
        before, self._inode = self._inode, archive.path.stat().st_ino
        if self._inode != before:
            self._on_new_file()
        return True

    def _is_gone(self) -> bool:
        try:
            return self._config.archive.path.stat().st_ino != self._inode
        except OSError:
            return True

    def _let_go(self) -> None:
        archive, restorer, self.archive, self.restorer = self.archive, self.restorer, None, None
        if restorer is not None:
            restorer.close()
        if archive is not None:
            archive.close()

    def _fault(self, kind: str, message: str) -> None:
        self.faults[kind] += 1
        self.problem = message
        log.log(logging.ERROR if self.faults[kind] == 1 else logging.DEBUG, "%s", message)

    # writing

    def _write_all(self) -> None:
        while True:
            waiting = self._take()
            if waiting is None:
                return
            jobs = [*self._backlog, *(job for job, _ in waiting)]
            written = self._write(jobs)
            self._backlog.clear()
            if not written:
                self._backlog.extend(jobs)
            for _, done in waiting:
                done.set_result(written)

    def _take(self) -> list[tuple[Job, Future[bool]]] | None:
        """What waits, at least one and at most a group; None when it is time to end."""
        first = self._queue.get()
        if first is None:
            return None
        waiting = [first]
        while len(waiting) < _GROUP:
            try:
                more = self._queue.get_nowait()
            except Empty:
                break
            if more is None:
                self._queue.put(None)
                break
            waiting.append(more)
        return waiting

    def _write(self, jobs: Sequence[Job]) -> bool:
        if not self.open() or self.archive is None or self.restorer is None:
            return False
        built = [(job, record) for job in jobs if (record := self._built(job)) is not None]
        try:
            added = self.archive.write([record for _, record in built])
            for (_, record), passages in zip(built, added, strict=True):
                self.restorer.learn(record.tenant, record.project, passages)
            self._settle(self.archive, self.restorer, built)
        except Exception as error:  # a write that fails costs the write, never the answer
            self._fault("write", str(error))
            if isinstance(error, ArchiveError):
                self._let_go()  # opened anew with the next write
            return False
        self._work.set()
        return True

    def _built(self, job: Job) -> Record | None:
        try:
            return job.build()
        except Exception:
            self.faults["record"] += 1
            log.exception("a record could not be built; its messages come again with the next request")
            return None

    def _settle(self, archive: Archive, restorer: Restorer, built: Sequence[tuple[Job, Record]]) -> None:
        """Confidence and success of passages whose answer is known now."""
        for job, record in built:
            if job.restored:
                updates = restorer.settle(record.tenant, job.restored, job.answer, job.at)
                archive.of(record.tenant).reinforce(updates)

    # vectors

    def _embed_all(self) -> None:
        """Give vectors to passages that wait for one, few at a time, whenever something was written."""
        embedder = self._embedder
        while embedder is not None and not self._closing.is_set():
            self._work.wait(1.0 if embedder.state == "warming" else 30.0)
            self._work.clear()
            try:
                while not self._closing.is_set() and embedder.state == "ready" and self._embed_some(embedder):
                    pass
            except (ArchiveError, EmbedError) as error:
                self.faults["embed"] += 1
                log.log(logging.ERROR if self.faults["embed"] == 1 else logging.DEBUG, "no vectors: %s", error)
                self._closing.wait(5.0)

    def _embed_some(self, embedder: Embedder) -> bool:
        archive = self.archive
        waiting = archive.unembedded(_EMBED_GROUP) if archive is not None else []
        if archive is None or not waiting:
            return False
        vectors = embedder.embed([text for _, _, text in waiting])
        rows = []
        for (tenant, passage_id, _), vector in zip(waiting, vectors, strict=True):
            passage = archive.of(tenant).passages_by_id([passage_id]).get(passage_id)
            if passage is not None:
                rows.append((tenant, passage.session, passage_id, vector))
        archive.add_vectors(embedder.name, embedder.dim, rows)
        return True
