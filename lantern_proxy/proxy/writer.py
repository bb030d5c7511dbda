"""The one writer: a thread that takes what waits, archives it in one transaction, and mends the archive when it can.

Nobody waits for it but an answer's last bytes, and those only so long (archive.hold_ms), and not at all while the file
is at fault. Then records wait here, the newest thousand of them; clients resend their history, so what is dropped
beyond that, or was meant for a file that is gone, comes again. A commit survives the end of this process; when it is on
the disk, archive.synchronous says.
"""

import logging
import os
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from functools import partial
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING

from lantern_proxy.archive import Archive, ArchiveError, Record
from lantern_proxy.config import Config
from lantern_proxy.proxy.cut import QUIET_S, Cutter, Settling, Wish
from lantern_proxy.proxy.exchange import LEAVING, Once
from lantern_proxy.proxy.keeper import Keeper
from lantern_proxy.proxy.restorer import AGAIN_S, MADE_S, LateRestorer, MakeRestorer, make_restorer, model_call

if TYPE_CHECKING:
    from lantern_proxy.embed import Embedder
    from lantern_proxy.restore.restorer import Restorer

log = logging.getLogger("lantern.writer")

_GROUP = 64
"""Most records of one transaction."""
_BACKLOG = 1_000
_RETRY_S = 2.0
"""Seconds between two attempts at an archive that is at fault."""
_BEHIND_S = 0.1
"""Most seconds until turns are on disk whose answers did not wait for that; sooner when no turn came for a moment."""
_MOST_AT_REST = 16
_CUT_AT_END_S = 5.0
"""Most seconds of cutting before the end; what is left is cut by the next process."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One answered request, to be archived."""

    build: Callable[[], Record]
    """Makes the record on the writer's thread: passages are cut there, not in the event loop."""
    file: int
    """Writer.file when the request came: its tenant is one of that file."""
    restored: tuple[int, ...] = ()
    """Passages that were put into this request for the first time, to be settled by `answer`."""
    answer: str = ""
    at: float = 0.0


@dataclass(slots=True)
class _Waiting:
    job: Job
    done: Future[bool] = field(default_factory=Future)
    record: Record | None = None

    def tell(self, written: bool) -> None:
        if not self.done.done():
            self.done.set_result(written)


class Writer:
    """Owns the archive, its restorer and the thread that writes it. There are none while there is no file.

    keeper: one of several workers on an archive makes the vectors of all, and removes what is not to be kept
    """

    def __init__(
        self, config: Config, embedder: "Embedder | None" = None, make_restorer: MakeRestorer = make_restorer, *,
        keeper: bool = True,
    ) -> None:  # fmt: skip
        self._config, self._embedder, self._make_restorer = config, embedder, make_restorer
        self._ask_model = model_call(config) if config.rerank.model else None
        self.archive: Archive | None = None
        self._late: LateRestorer | None = None
        self.problem = ""
        """What is wrong with the archive; empty while it can be written."""
        self.file = 0
        """Counts the files that were opened; what was remembered of one is not in the next. 0 before the first."""
        self.is_opening = False
        """Is the next file being made, since the one before is gone?"""
        self.faults: Counter[str] = Counter()
        self._key = config.archive.key()
        self.keeper = Keeper(config, embedder, self._opened, self._attempt, keeps=keeper)
        self._once = Once(log)
        self._busy_since = 0.0
        self._path, self._inode = os.fspath(config.archive.path), -1
        self._failed_at = -_RETRY_S
        self._queue: SimpleQueue[_Waiting | Wish | None] = SimpleQueue()
        self._cutter = Cutter()
        self._waiting: deque[_Waiting] = deque()
        self._at_rest: deque[Callable[[], object]] = deque(maxlen=_MOST_AT_REST)
        self._closing = threading.Event()
        self._disk = ThreadPoolExecutor(1, thread_name_prefix="lantern-disk")
        self._syncing: Future[None] | None = None
        self._open()
        if self.making is not None:  # the first request may need it, and the deadline of a restore is shorter than this
            wait([self.making], MADE_S)
        self._thread = threading.Thread(target=self._write_all, name="lantern-writer", daemon=True)
        self._thread.start()
        self.keeper.start()

    def _opened(self) -> "tuple[Archive | None, Restorer | None]":
        return self.archive, self.restorer

    @property
    def restorer(self) -> "Restorer | None":
        """None while there is no archive, and while none was wanted or is not made yet."""
        late = self._late
        return late.ready if late is not None else None

    @property
    def making(self) -> "Future[Restorer] | None":
        """The restorer that is made, or being made, or could not be; None while nobody wants one."""
        late = self._late
        return late.made if late is not None else None

    def want_restorer(self) -> "Future[Restorer] | None":
        """Have it made in a thread, unless it is there; None while there is no archive."""
        late = self._late
        return late.want() if late is not None else None

    @property
    def depth(self) -> int:
        """Records that wait."""
        return self._queue.qsize() + len(self._waiting)

    def is_stuck(self, longer_than_s: float) -> bool:
        """Is it no use to wait: is the file at fault, or a write under way for so long?"""
        since = self._busy_since
        return bool(self.problem or (since and time.monotonic() - since > longer_than_s))

    def submit(self, job: Job) -> Future[bool]:
        """Archive `job` soon. The future tells whether it is, or must wait or is left out; it never raises."""
        self._queue.put(waiting := _Waiting(job))
        return waiting.done

    def cut_up(self, tenant: str, session: str = "") -> "Future[bool]":
        """Have what was submitted until now of a session (empty: of the tenant's sessions) cut into passages, before
        all else; the future tells when it is."""
        wish = Wish(tenant, session)
        self._queue.put(wish)
        return wish.done

    def at_rest(self, work: Callable[[], object]) -> None:
        """Do `work` once all is cut into passages and no turn came for a moment; of much of it the newest."""
        self._at_rest.append(work)

    def look(self) -> Future[bool]:
        """Have the file looked after: a new one made when it was deleted, another attempt when it was at fault."""
        return self.submit(Job(build=_nothing, file=-1))

    def is_gone(self) -> bool:
        """Was the file that is open deleted or replaced?"""
        if self.archive is None:
            return False
        try:
            return os.stat(self._path).st_ino != self._inode
        except OSError:
            return True

    def close(self, timeout_s: float = 10.0) -> None:
        """Write what waits, then let go of the file."""
        self._closing.set()
        self.keeper.stop()
        self._queue.put(None)
        self._thread.join(timeout_s)
        self.keeper.close(timeout_s)
        self._disk.shutdown()
        self._let_go()
        if self._ask_model is not None:
            self._ask_model.close()

    # the file

    def _open(self) -> bool:
        """Open the archive unless it is open; True when it is."""
        if self.archive is not None and not self.is_gone():
            return True
        if time.monotonic() - self._failed_at < _RETRY_S:
            return False
        if self.archive is not None:
            path = self._config.archive.path
            self._fault("deleted", f"archive {path} was deleted or replaced while in use; a new one is kept")
            self.is_opening = True
            self._let_go()
            self._inode = -1  # the number of a file that is gone may be that of the next one
        error = self._attempt("open", self._open_file)
        self.is_opening = False
        if error is not None:
            self._failed_at = time.monotonic()
            if not isinstance(error, ArchiveError):
                self.problem = f"archive {self._path} cannot be opened ({type(error).__name__}: {error}); see the log"
        return error is None

    def _open_file(self) -> None:
        archive = Archive(self._config.archive.path, synchronous=self._config.archive.synchronous, key=self._key)
        try:
            self.keeper.begin(archive)
            self._use(archive, holds_some=archive.newest_passage() > 0)
        except BaseException:
            self._let_go()
            archive.close()
            raise

    def _use(self, archive: Archive, *, holds_some: bool) -> None:
        before, self._inode = self._inode, archive.path.stat().st_ino
        if self._inode != before:
            self.file += 1
        self._late = late = LateRestorer(partial(self._new_restorer, archive))
        if self._config.restore.enabled and holds_some:  # the next request may lack some of it
            self._attempt("restorer", late.want)
        self.archive, self.problem = archive, ""
        self._cutter.open(archive)
        if self._once.is_over(["open", "deleted"]):
            log.info("archive %s is open", archive.path)

    def _new_restorer(self, archive: Archive) -> "Restorer":
        try:
            restorer = self._make_restorer(archive, self._config, self._embedder)
        except BaseException as error:
            told = f"nothing can be restored ({type(error).__name__}: {error}); tried again every {AGAIN_S:.0f} s"
            self._fault("restorer", told, error)
            raise
        restorer.rerankers.ask_model = self._ask_model
        if self._once.is_over(["restorer"]):
            log.info("what was archived can be restored again")
        return restorer

    def _let_go(self) -> None:
        archive, late, self.archive, self._late = self.archive, self._late, None, None
        if late is not None:
            late.close()
        if archive is not None:
            self._attempt("sync", archive.close)

    def _fault(self, kind: str, message: str, error: BaseException | None = None) -> None:
        self.faults[kind] += 1
        meanwhile = "; until then requests go on without memory" if kind.partition(":")[0] == "open" else ""
        self._once.tell(kind, "%s%s", message, meanwhile, error=error)
        if kind in ("open", "deleted", "write"):
            self.problem = message

    def _attempt(self, kind: str, work: Callable[[], object]) -> BaseException | None:
        """What went wrong with `work`, counted and told."""
        try:
            work()
        except LEAVING:
            raise
        except BaseException as error:  # a write that fails costs the write, never the answer
            unexpected = None if isinstance(error, ArchiveError) else error
            self._fault(kind if unexpected is None else f"{kind}:{type(error).__name__}", str(error), unexpected)
            return error
        return None

    # writing

    def _write_all(self) -> None:
        more = True
        while more:
            more = self._take()
            if self._attempt("write", self._work_off) is not None:
                self._closing.wait(_RETRY_S)
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
        """Cut what must be cut now: little at a time, since turns that come meanwhile go first."""
        self._cutter.tell()
        while self._cutter.is_due:
            if not self._cut_some():
                self._cutter.give_up()
                return
            if not self._queue.empty():
                return

    def _cut_some(self) -> bool:
        archive, late = self.archive, self._late
        if archive is None or late is None or self.is_gone():
            return False
        self._sync(_BEHIND_S)
        follows: list[Callable[[], object]] = []
        try:
            follows = self._cutter.some(archive, late)
        except ArchiveError as error:
            if self.is_gone():  # the next request has a new one made
                return False
            self._fault("write", str(error))
            if not error.retry:
                self._let_go()  # opened anew with the next attempt; what is left to do stands in the file
            return False
        except Exception as error:  # what cannot be cut costs its passages, never the writer
            self._fault(f"write:{type(error).__name__}", str(error), error)
            self._cutter.skip()
        else:
            self._is_well()
        for work in follows:
            self._attempt("learn", work)
        self.keeper.has_written()
        return True

    def _take(self) -> bool:
        """Wait for something to write, or for the next attempt at what waits; False when it is time to end."""
        try:
            faulty = self._waiting or (self._cutter and (self.problem or self.is_gone()))
            busy = self._cutter or self._at_rest or (self.archive is not None and self.archive.behind_s)
            patience_s = _RETRY_S if faulty else QUIET_S if busy else None
            first = self._queue.get(timeout=patience_s)
        except Empty:
            self._sync()
            if self._cutter and not self._waiting and not self.is_gone() and self._open():
                self._cut_some()
            while self._at_rest and not self._cutter:
                self._attempt("rest", self._at_rest.pop())
            return True
        while first is not None:
            if isinstance(first, Wish):
                self._cutter.want(first)
            else:
                self._waiting.append(first)
            try:
                first = self._queue.get_nowait()
            except Empty:
                break
        while len(self._waiting) > _BACKLOG:
            self.faults["dropped"] += 1
            self._waiting.popleft().tell(False)
        return first is not None or not self._closing.is_set()

    def _write_waiting(self) -> None:
        while self._write_some() and self._waiting:
            pass

    def _write_some(self) -> bool:
        """Archive the oldest group of what waits; False when the file is at fault, and all waits on."""
        usable = self._open()
        for waiting in [w for w in self._waiting if w.job.file != self.file]:
            self._waiting.remove(waiting)  # of another file: its tenant does not exist in this one
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
        """Archive `group`; of one that fails as a whole each alone, so that a sick record costs only itself."""
        if not group:
            return True
        self._busy_since = time.monotonic()
        error = self._attempt("write", lambda: self._store(group))
        self._busy_since = 0.0
        if isinstance(error, ArchiveError):
            if not error.retry:
                self._let_go()  # opened anew with the next attempt
            return False
        if error is not None and len(group) > 1:
            return all(self._archived([waiting]) for waiting in group)
        for waiting in group:
            waiting.tell(error is None)
        return True

    def _sync(self, behind_s: float = 0.0) -> None:
        """Have turns be on disk, if the first that may not be was written so long ago: in a thread, since the disk
        may take longer than the next turn can wait."""
        archive, syncing = self.archive, self._syncing
        if archive is not None and archive.behind_s > behind_s and (syncing is None or syncing.done()):
            self._syncing = self._disk.submit(self._bring, archive)

    def _bring(self, archive: Archive) -> None:
        """Until they are, since no turn may come that has it tried again."""
        while self._attempt("sync", archive.sync) is not None:
            if self._closing.wait(_RETRY_S) or archive is not self.archive:
                return
        if self._once.is_over(["sync"]):
            log.info("turns of archive %s are brought to the disk again", self._path)

    def _is_well(self) -> None:
        self.problem = ""
        if self._once.is_over(["write"]):
            log.info("archive %s can be written again", self._path)

    def _store(self, group: Sequence[_Waiting]) -> None:
        archive = self.archive
        assert archive is not None
        for waiting in group:
            waiting.record = waiting.record or waiting.job.build()
        archive.write([waiting.record for waiting in group if waiting.record])
        self._busy_since = 0.0
        self._is_well()
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
