"""The one writer: a thread that archives the waiting records, a group per transaction.

Only the last bytes of an answer wait for it, for at most archive.hold_ms, and not at all while the file is at fault.
During a fault the newest thousand records are queued here. Older ones, and records for a file that is gone, are
dropped: clients resend their history, so they come again. A commit survives the end of this process;
archive.synchronous says when it is on disk."""

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import partial
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING

from msgspec import Struct, field

from lantern_proxy.archive import Archive, ArchiveError, Record
from lantern_proxy.config import Config
from lantern_proxy.proxy.cutter import QUIET_S, Cutter, Flush, Settling
from lantern_proxy.proxy.lazy_restorer import MADE_S, MakeRestorer, make_restorer
from lantern_proxy.proxy.open_archive import RETRY_S, Opened
from lantern_proxy.proxy.upkeep import Keeper
from lantern_proxy.turn import BlockKind

if TYPE_CHECKING:
    from lantern_proxy.embed import Embedder

_GROUP = 64
"""Most records of one transaction."""
_BACKLOG = 1_000
_BEHIND_S = 0.1
"""Most seconds until a committed turn is on disk, if its answer did not wait for that; sooner when no turn comes for a
moment."""
_MOST_IDLE_WORK = 16
_CLOSING_S = 10.0
"""Most seconds that close() waits for each thread."""
_CUT_AT_END_S = 5.0
"""Most seconds of cutting when the process ends; the next process cuts the rest."""
_NO_FILE = -1
"""A Job.file that is never an Opened.file."""


class Job(Struct, frozen=True, kw_only=True):
    """One answered request, to be archived."""

    build: Callable[[], Record]
    """Builds the record, on the writer's thread and not in the event loop."""
    file: int
    """Opened.file when the request came: the record's tenant exists only in that file."""
    restored: Mapping[int, BlockKind] = {}
    """Passages that this request is the first to carry -> the kind of their block. `answer` tells whether they were
    used."""
    answer: str = ""
    at: float = 0.0


class _Waiting(Struct):
    job: Job
    done: Future[bool] = field(default_factory=Future)
    record: Record | None = None

    def tell(self, written: bool) -> None:
        if not self.done.done():
            self.done.set_result(written)


class Writer:
    """Owns the archive and the thread that writes it.

    keeper: is this the worker that computes vectors and applies retention for all workers on the archive?
    """

    def __init__(
        self, config: Config, embedder: "Embedder | None" = None, make_restorer: MakeRestorer = make_restorer, *,
        keeper: bool = True,
    ) -> None:  # fmt: skip
        self.opened = Opened(config, embedder, make_restorer)
        self.keeper = Keeper(config, embedder, self.opened, keeps=keeper, cut_left=self._cut_left)
        self._busy_since = 0.0
        self._queue: SimpleQueue[_Waiting | Flush | None] = SimpleQueue()
        self._cutter = Cutter()
        self._waiting: deque[_Waiting] = deque()
        self._idle_work: deque[Callable[[], object]] = deque(maxlen=_MOST_IDLE_WORK)
        self._closing = threading.Event()
        self._disk = ThreadPoolExecutor(1, thread_name_prefix="lantern-disk")
        self._syncing: Future[None] | None = None
        self.opened.open(self._begin)
        if (making := self.opened.restorer.made) is not None:
            wait([making], MADE_S)  # the first request may need it, and the deadline of a restore is shorter than this
        self._thread = threading.Thread(target=self._write_all, name="lantern-writer", daemon=True)
        self._thread.start()
        self.keeper.start()

    @property
    def depth(self) -> int:
        """How many records are queued."""
        return self._queue.qsize() + len(self._waiting)

    def is_stuck(self, longer_than_s: float) -> bool:
        """Is it useless to wait for a write, because the file is at fault or a write has taken longer than that?"""
        since = self._busy_since
        return bool(self.opened.problem or (since and time.monotonic() - since > longer_than_s))

    def submit(self, job: Job) -> Future[bool]:
        """Archive `job` soon. The future, which never raises, is True once it is archived, and False if that is delayed
        or the job is dropped."""
        self._queue.put(waiting := _Waiting(job))
        return waiting.done

    def flush(self, tenant: str, session: str = "") -> "Future[bool]":
        """Cut everything submitted so far for a session ("": for all the tenant's sessions) into passages before
        anything else. The future is done when that is."""
        flush = Flush(tenant, session)
        self._queue.put(flush)
        return flush.done

    def when_idle(self, work: Callable[[], object]) -> None:
        """Do `work` once everything is cut into passages and no turn has come for a moment. If too much is queued, the
        oldest is dropped."""
        self._idle_work.append(work)
        self._queue.put(None)  # wake the thread, which may be waiting for something to write

    def look(self) -> Future[bool]:
        """Have the writer check the file: create a new one if it was deleted, try again if it was at fault.

        It does so before any job, and drops jobs for another file; so a job for no file does nothing but that.
        """
        return self.submit(Job(build=_nothing, file=_NO_FILE))

    def close(self) -> None:
        """Write what is queued, then close the file."""
        self._closing.set()
        self.keeper.stop()
        self._queue.put(None)
        self._thread.join(_CLOSING_S)
        self.keeper.close(_CLOSING_S)
        self._disk.shutdown()
        self.opened.close()

    def _cut_left(self) -> None:
        self._cutter.look_again()
        self.when_idle(self._cut_some)

    def _begin(self, archive: Archive) -> None:
        self.keeper.begin(archive)
        self._cutter.open(archive)

    # on its thread

    def _write_all(self) -> None:
        more = True
        while more:
            more = self._take()
            if self.opened.attempt("write", self._work_off) is not None:
                self._closing.wait(RETRY_S)
        until = time.monotonic() + _CUT_AT_END_S
        while self._cutter and time.monotonic() < until and self._cut_some():
            pass
        self._cutter.give_up()
        for waiting in self._waiting:
            waiting.tell(False)

    def _work_off(self) -> None:
        self._write_waiting()
        if not self._closing.is_set():
            self._cutter.give_way()
            self._cut()

    def _cut(self) -> None:
        """Cut what is due, a little at a time, since new turns go first."""
        self._cutter.tell()
        while self._cutter.is_due:
            if not self._cut_some():
                self._cutter.give_up()
                return
            if not self._queue.empty():
                return

    def _cut_some(self) -> bool:
        archive, restorer = self.opened.archive, self.opened.restorer
        if archive is None or self.opened.is_gone():
            return False
        self._sync(_BEHIND_S)
        follows: list[Callable[[], object]] = []
        try:
            follows = self._cutter.some(archive, restorer)
        except ArchiveError as error:
            if self.opened.is_gone():  # the next request creates a new one
                return False
            self.opened.note("write", error)
            if not error.retry:
                self.opened.let_go()  # reopened at the next attempt; unfinished work is listed in the file
            return False
        except Exception as error:  # a failure to cut costs the passages, never the writer
            self.opened.note("write", error)
            self.opened.attempt("write", partial(self._cutter.skip, archive))
        else:
            self.opened.tell_written()
        for work in follows:
            self.opened.attempt("learn", work)
        self.keeper.has_written()
        return True

    def _take(self) -> bool:
        """Wait for something to write, or for the next attempt to write the queue; False if the thread is to end."""
        archive = self.opened.archive
        faulty = self._waiting or (self._cutter and (self.opened.problem or self.opened.is_gone()))
        busy = self._cutter or self._idle_work or (archive is not None and archive.behind_s)
        patience_s = RETRY_S if faulty else QUIET_S if busy else None
        try:
            first = self._queue.get(timeout=patience_s)
        except Empty:
            self._sync()
            if self._cutter and not self._waiting and not self.opened.is_gone() and self.opened.open(self._begin):
                self._cut_some()
            while self._idle_work and not self._cutter:
                self.opened.attempt("rest", self._idle_work.pop())
            return True
        while first is not None:
            if isinstance(first, Flush):
                self._cutter.want(first)
            else:
                self._waiting.append(first)
            try:
                first = self._queue.get_nowait()
            except Empty:
                break
        while len(self._waiting) > _BACKLOG:
            self.opened.faults["dropped"] += 1
            self._waiting.popleft().tell(False)
        return first is not None or not (self._closing.is_set() and self._queue.empty())

    def _write_waiting(self) -> None:
        while self._write_some() and self._waiting:
            pass

    def _write_some(self) -> bool:
        """Archive the oldest group of the queue; False if the file is at fault and everything stays queued."""
        usable = self.opened.open(self._begin)
        for waiting in [w for w in self._waiting if w.job.file != self.opened.file]:
            self._waiting.remove(waiting)  # for another file: its tenant does not exist in this one
            waiting.tell(False)
        group = [self._waiting[at] for at in range(min(_GROUP, len(self._waiting)))]
        if not usable or not self._archived(group):
            for waiting in self._waiting:
                waiting.tell(False)
            return False
        for _ in group:
            self._waiting.popleft()
        return True

    def _archived(self, group: Sequence[_Waiting]) -> bool:
        """Archive `group`. If that fails though the file is not at fault, archive each job by itself, so that a record
        that cannot be stored costs only itself."""
        if not group:
            return True
        self._busy_since = time.monotonic()
        error = self.opened.attempt("write", lambda: self._store(group))
        self._busy_since = 0.0
        if isinstance(error, ArchiveError):
            if not error.retry:
                self.opened.let_go()  # reopened at the next attempt
            return False
        if error is not None and len(group) > 1:
            return all(self._archived([waiting]) for waiting in group)
        for waiting in group:
            waiting.tell(error is None)
        return True

    def _sync(self, behind_s: float = 0.0) -> None:
        """Sync the archive to disk if its oldest unsynced write is more than `behind_s` old. In a thread, since the
        disk may take longer than the next turn can wait."""
        archive, syncing = self.opened.archive, self._syncing
        if archive is not None and archive.behind_s > behind_s and (syncing is None or syncing.done()):
            self._syncing = self._disk.submit(self._bring, archive)

    def _bring(self, archive: Archive) -> None:
        """Retry until it is on disk: there may be no later turn to trigger another sync."""
        while self.opened.attempt("sync", archive.sync) is not None:
            if self._closing.wait(RETRY_S) or archive is not self.opened.archive:
                return
        self.opened.tell_over(["sync"], f"turns of archive {archive.path} are brought to the disk again")

    def _store(self, group: Sequence[_Waiting]) -> None:
        archive = self.opened.archive
        assert archive is not None
        for waiting in group:
            waiting.record = waiting.record or waiting.job.build()
        archive.write([waiting.record for waiting in group if waiting.record])
        self._busy_since = 0.0
        self.opened.tell_written()
        for waiting in group:
            waiting.tell(True)
        self._sync(_BEHIND_S)
        self._cutter.crowd = len(group)
        for waiting in group:
            if (record := waiting.record) is not None:
                job, asked = waiting.job, record.request.id if record.request else ""
                settling = Settling(record.tenant, asked, job.restored, job.answer, job.at) if job.restored else None
                self._cutter.add(record, settling)


def _nothing() -> Record:
    raise AssertionError("a job of no file is never built")
