"""The open archive and its restorer: monitored, and opened again when the file is gone or at fault."""

import logging
import os
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from lantern_proxy.archive import Archive, ArchiveError
from lantern_proxy.config import Config
from lantern_proxy.proxy.exchange import LEAVING, Once
from lantern_proxy.proxy.lazy_restorer import AGAIN_S, LazyRestorer, MakeRestorer, model_call

if TYPE_CHECKING:
    from lantern_proxy.embed import Embedder
    from lantern_proxy.restore.restorer import Restorer

log = logging.getLogger("lantern.writer")

RETRY_S = 2.0
"""Seconds between two attempts to use an archive that is at fault."""


class Opened:
    """The open archive. Any thread may read the attributes; only the writer's thread opens and closes it. Must be
    closed."""

    def __init__(self, config: Config, embedder: "Embedder | None", make_restorer: MakeRestorer) -> None:
        self._config, self._embedder, self._make_restorer = config, embedder, make_restorer
        self._ask_model = model_call(config) if config.rerank.model else None
        self._key = config.archive.key()
        self.archive: Archive | None = None
        self.restorer = LazyRestorer()
        """Restores from `archive`."""
        self.problem = ""
        """What is wrong with the archive; "" while it can be written."""
        self.file = 0
        """Number of the file: how many different ones were opened so far; 0 before the first."""
        self.is_opening = False
        """Is a new file being created, because the previous one is gone?"""
        self.faults: Counter[str] = Counter()
        self._once = Once(log)
        self._path, self._inode = os.fspath(config.archive.path), -1
        self._failed_at = -RETRY_S

    def is_gone(self) -> bool:
        """Was the open file deleted or replaced?"""
        if self.archive is None:
            return False
        try:
            return os.stat(self._path).st_ino != self._inode
        except OSError:
            return True

    def open(self, begin: Callable[[Archive], None]) -> bool:
        """Open the archive unless it is open; True if it is open now.

        begin: gets the archive before anybody else; if it raises, the archive is not used
        """
        if self.archive is not None and not self.is_gone():
            return True
        if time.monotonic() - self._failed_at < RETRY_S:
            return False
        if self.archive is not None:
            self._fault("deleted", f"archive {self._path} was deleted or replaced while in use; a new one is kept")
            self.is_opening = True
            self.let_go()
            self._inode = -1  # the next file may get the inode number of a deleted one
        error = self.attempt("open", partial(self._open_file, begin))
        self.is_opening = False
        if error is not None:
            self._failed_at = time.monotonic()
            if not isinstance(error, ArchiveError):
                self.problem = f"archive {self._path} cannot be opened ({type(error).__name__}: {error}); see the log"
        return error is None

    def _open_file(self, begin: Callable[[Archive], None]) -> None:
        archive = Archive(self._config.archive.path, synchronous=self._config.archive.synchronous, key=self._key)
        try:
            begin(archive)
            holds_some, inode = archive.newest_passage() > 0, archive.path.stat().st_ino
        except BaseException:
            archive.close()
            raise
        self.file += inode != self._inode
        self._inode = inode
        self.restorer = LazyRestorer(partial(self._new_restorer, archive))
        if self._config.restore.enabled and holds_some:  # the next request may lack some of it
            self.attempt("restorer", self.restorer.want)
        self.archive, self.problem = archive, ""
        self.tell_over(["open", "deleted"], f"archive {self._path} is open")

    def _new_restorer(self, archive: Archive) -> "Restorer":
        try:
            restorer = self._make_restorer(archive, self._config, self._embedder)
        except BaseException as error:
            told = f"nothing can be restored ({type(error).__name__}: {error}); tried again every {AGAIN_S:.0f} s"
            self._fault("restorer", told, error)
            raise
        restorer.rerankers.ask_model = self._ask_model
        self.tell_over(["restorer"], "what was archived can be restored again")
        return restorer

    def let_go(self) -> None:
        """Close the archive; `open` can open it again."""
        archive, self.archive = self.archive, None
        self.restorer.close()
        if archive is not None:
            self.attempt("sync", archive.close)

    def close(self) -> None:
        self.let_go()
        if self._ask_model is not None:
            self._ask_model.close()

    # faults

    def attempt(self, kind: str, work: Callable[[], object]) -> BaseException | None:
        """Do `work` and return its exception, which is counted and logged; None if there was none."""
        try:
            work()
        except LEAVING:
            raise
        except BaseException as error:  # a failed write costs the write, never the answer
            self.note(kind, error)
            return error
        return None

    def note(self, kind: str, error: BaseException) -> None:
        """Count and log an error."""
        if isinstance(error, ArchiveError):
            self._fault(kind, str(error))
        else:
            self._fault(f"{kind}:{type(error).__name__}", str(error), error)

    def _fault(self, kind: str, message: str, error: BaseException | None = None) -> None:
        self.faults[kind] += 1
        meanwhile = "; until then requests go on without memory" if kind.partition(":")[0] == "open" else ""
        self._once.tell(kind, "%s%s", message, meanwhile, error=error)
        if kind in ("open", "deleted", "write"):
            self.problem = message

    def tell_written(self) -> None:
        """A write succeeded."""
        self.problem = ""
        self.tell_over(["write"], f"archive {self._path} can be written again")

    def tell_over(self, kinds: list[str], message: str) -> None:
        """Log that faults of these kinds are over, if there were any."""
        if self._once.is_over(kinds):
            log.info("%s", message)
