"""Connections to the archive's file: one for writing, used by one thread at a time, and one per thread for reading."""

import contextlib
import os
import threading
import time
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

from sqlite_utils.db import Database

from lantern_proxy.archive.errors import ArchiveError, ArchiveErrors, OlderError, has_less_room, is_full, sqlite_faults
from lantern_proxy.archive.file import (
    SHORT_BYTES,
    WAL_PAGES,
    WAL_PAGES_SHORT,
    WAL_PAGES_WAITED,
    companions,
    connect,
    drop_snapshots_of,
    is_unopened,
    make,
    needs_immutable,
    prepare,
    refuse_empty,
    refuse_foreign,
    refuse_foreign_log,
    secure,
)
from lantern_proxy.migrations.archive import migrations

_LOOK_MS = 8
"""How long SQLite itself waits for a lock, polling after 1, 3 and 8 ms, before we call it again."""
_LOG_PAUSE_S = 0.02
_ROOM_WAIT_S = 0.5
"""How long make_room() waits for a reader that still needs the log."""
_PIECE_BYTES = 1 << 20


class _Reader:
    """A thread's read connection, and the number of blocks that use it."""

    __slots__ = ("__weakref__", "db", "uses")

    def __init__(self, db: Database) -> None:
        self.db, self.uses = db, 0
        weakref.finalize(self, db.conn.close).atexit = False  # when its thread ends


class Connections:
    """The writer's connection and one reader for each thread. Must be closed.

    Readers cannot write (query_only). One thread writes at a time; another process's lock is awaited for `busy_s`.
    """

    def __init__(
        self, path: Path, synchronous: Literal["full", "normal"], *, vectors: bool, read_only: bool, busy_s: float,
        key: str = "",
    ) -> None:  # fmt: skip
        self._key = key
        self.path, self.read_only, self._vectors, self._busy_s = path, read_only, vectors, busy_s
        self._closed, self._immutable = False, False
        self._local, self._lock = threading.local(), threading.RLock()
        self._readers: weakref.WeakSet[_Reader] = weakref.WeakSet()
        self._gate = threading.Lock()
        """Guards `uses` and `_closed`; held only briefly."""
        if read_only and not path.exists():
            raise ArchiveError(f"archive {path} does not exist; check archive.path")
        if not read_only:
            make(path)
        self._writer: Database | None = None
        self._full = synchronous == "full"
        self._waits: bool | None = None
        """Do commits wait for the disk? The setting that SQLite was last given."""
        self._behind_since = 0.0
        self._page_bytes = 0
        self._unreached: dict[int, bytes] = {}
        """Page number in the log -> the header that _is_long() last read there, of an earlier round of the log."""
        self._most_pages = WAL_PAGES_WAITED
        """Most pages of the log between checkpoints."""
        self._log: int | None = None
        """The write-ahead log, held open: fsync then reports every failed write since, whichever descriptor it was."""
        self._is_doubtful = False
        """Did an fsync fail? Linux then takes the unwritten pages for written, and the next fsync succeeds."""
        self._syncing = threading.RLock()
        """Acquired before `_lock`. Held while the log is synced, so that the log is not closed meanwhile."""
        refuse_foreign_log(path)
        with ArchiveErrors(path):
            self.lacking = self._open()
        self._inode, self._where = path.stat().st_ino, os.fspath(path)

    def _open(self) -> str:
        if self.read_only:
            return self._open_read_only()
        self._writer, lacking = self._connect("rw")
        try:
            self._set_commits(self._writer, self._full)
            self._writer.execute("PRAGMA wal_autocheckpoint = 0").fetchall()  # see _checkpoint
            prepare(self._writer, self.path, self._busy_s)
            self._writer.execute(f"PRAGMA busy_timeout = {_LOOK_MS}").fetchall()
            self._page_bytes = int(self._writer.execute("PRAGMA page_size").fetchone()[0])  # SQLCipher: a text
            # SQLite follows a link to the file. Its locks are on other files: closing this one releases none
            self._log = os.open(f"{os.path.realpath(self.path)}-wal", os.O_RDWR | getattr(os, "O_BINARY", 0))
        except BaseException:
            self._writer.close()
            raise
        secure(self.path)
        return lacking

    def _connect(self, access: Literal["ro", "rw"]) -> tuple[Database, str]:
        return connect(
            self.path, access, vectors=self._vectors, busy_s=self._busy_s, immutable=self._immutable, key=self._key
        )

    def _open_read_only(self) -> str:
        db, lacking = self._connect("ro")
        if needs_immutable(db, self.path):
            db.close()
            self._immutable = True
            db, lacking = self._connect("ro")
        with contextlib.closing(db):
            refuse_foreign(db, self.path)
            refuse_empty(db, self.path)
            if migrations.pending(db):
                raise OlderError(
                    f"archive {self.path} is of an older lantern; run `lantern migrate` to bring it up to date"
                )
        return lacking

    @contextlib.contextmanager
    def reading(self) -> Iterator[Database]:
        """This thread's read connection. It stays open until the end of the block, even if the archive is closed
        meanwhile."""
        with ArchiveErrors(self.path):
            reader = self._reader()
            try:
                yield reader.db
            finally:
                with self._gate:
                    reader.uses -= 1
                    last = self._closed and not reader.uses
                if last:
                    reader.db.close()

    def _reader(self) -> _Reader:
        """This thread's reader, marked as in use."""
        reader: _Reader | None = getattr(self._local, "reader", None)
        if reader is None and not self._closed:
            reader = self._local.reader = _Reader(self._new_reader())
        with self._gate:
            if reader is None or self._closed:
                raise ArchiveError(f"archive {self.path} is closed; open it again")
            self._readers.add(reader)
            reader.uses += 1
        return reader

    def _new_reader(self) -> Database:
        db, _ = self._connect("ro" if self.read_only else "rw")
        db.execute("PRAGMA query_only = ON")
        return db

    def apart(self) -> contextlib.closing[Database]:
        """A new read connection: FTS5 checks itself against what its connection has cached of the index."""
        with self.reading():
            return contextlib.closing(self._new_reader())

    @contextlib.contextmanager
    def writing(self, *, again: bool = False, turns: bool = False) -> Iterator[Database]:
        """One transaction: committed at the end of the block, rolled back if an error leaves it. It is then on disk,
        with two exceptions:

        again: it can be repeated from what the archive holds, so the commit does not wait for the disk; a power cut may
               undo all of it, but nothing that was on disk before
        turns: answers wait for it; the commit waits for the disk only with "full", else `sync` must be called soon
        """
        with self._lock, ArchiveErrors(self.path):
            db = self._ready_writer()
            full = not again and (self._full or not turns)
            self._set_commits(db, full)
            self._begin(db)
            try:
                yield db
                db.conn.execute("COMMIT")
            except BaseException:
                db.rollback()
                raise
            if turns and not full:
                self._behind_since = self._behind_since or time.monotonic()
            most = min(WAL_PAGES, self._most_pages) if again else self._most_pages
            is_due = not self._is_doubtful and self._is_long(most)
        if is_due:
            self._checkpoint()

    def _begin(self, db: Database) -> None:
        """Acquire the write lock. SQLite's own busy handler ends up polling every 100 ms and misses short gaps."""
        until = time.monotonic() + self._busy_s
        while True:
            try:
                db.conn.execute("BEGIN IMMEDIATE")
                return
            except sqlite_faults() as error:
                busy = str(getattr(error, "sqlite_errorname", "")).startswith("SQLITE_BUSY")
                if not busy or time.monotonic() > until:
                    raise

    def _set_commits(self, db: Database, full: bool) -> None:
        """Choose whether commits wait for the disk. Not allowed within a transaction."""
        if full != self._waits:
            db.conn.execute(f"PRAGMA synchronous = {'FULL' if full else 'NORMAL'}")
            self._waits = full

    def _is_long(self, pages: int) -> bool:
        """Does the log hold `pages` pages since it was last restarted? Then the header of the last has its salt."""
        frame = self._read_log(32 + (pages - 1) * (24 + self._page_bytes), 24)
        if frame == self._unreached.get(pages, b""):
            return False
        header = self._read_log(0, 32)  # https://sqlite.org/fileformat2.html#walformat
        is_long = len(frame) == 24 and frame[8:16] == header[16:24]
        if not is_long:
            self._unreached[pages] = frame
        return is_long

    def _read_log(self, at: int, size: int) -> bytes:
        if self._log is None:
            return b""
        if hasattr(os, "pread"):
            return os.pread(self._log, size, at)
        os.lseek(self._log, at, os.SEEK_SET)
        return os.read(self._log, size)

    def _checkpoint(self) -> None:
        """Move the log into the file; if that fails, a later commit tries again.

        The log must be on disk first: a power cut that left half of it would mix old pages with new ones in the file.
        SQLite's own checkpoints report a failed fsync to nobody, and take the log for written at the next attempt.
        """
        with contextlib.suppress(ArchiveError), self._syncing:
            self._sync_log()
            self._execute("PRAGMA wal_checkpoint(PASSIVE)")

    def _execute(self, pragma: str) -> list[Any]:
        with self._lock, ArchiveErrors(self.path):
            return self._ready_writer().execute(pragma).fetchall()

    @property
    def behind_s(self) -> float:
        """Seconds since the first commit of a turn that may not be on disk yet; 0 if all are."""
        since = self._behind_since
        return time.monotonic() - since if since else 0.0

    def sync(self) -> None:
        """Sync all turns to disk. Raises ArchiveError; then as much is unsynced as before."""
        with self._syncing:
            if self._behind_since:
                self._sync_log()

    def _sync_log(self) -> None:
        """Sync the log to disk; the caller holds `_syncing`. Raises ArchiveError."""
        since, self._behind_since = self._behind_since or time.monotonic(), 0.0
        if self._log is None:
            return
        try:
            if self._is_doubtful:
                self._write_again(self._log)
            os.fsync(self._log)
            self._is_doubtful = False
        except BaseException as error:
            self._behind_since, self._is_doubtful = since, True
            if not isinstance(error, OSError):
                raise
            raise ArchiveError(
                f"archive {self.path} cannot be brought to the disk ({error.strerror}); check the disk", retry=True
            ) from error

    def _write_again(self, log: int) -> None:
        """Write the same bytes to the same places, so that the next fsync syncs them. A transaction keeps others from
        restarting the log meanwhile."""
        with self._lock, ArchiveErrors(self.path):
            db = self._ready_writer()
            self._begin(db)
            try:
                os.lseek(log, 0, os.SEEK_SET)
                while piece := os.read(log, _PIECE_BYTES):
                    os.lseek(log, -len(piece), os.SEEK_CUR)
                    os.write(log, piece)
            finally:
                db.rollback()

    def empty_log(self, wait_s: float) -> bool:
        """Move the whole write-ahead log into the file and truncate it; False if a reader still needs it.

        Others can write meanwhile: most of the log is moved before the lock is taken, and readers are awaited
        without it.
        wait_s: how long to wait for readers
        """
        until = time.monotonic() + wait_s
        with self._syncing:
            self._sync_log()
        with ArchiveErrors(self.path), self.apart() as db:
            db.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
        while self._execute("PRAGMA wal_checkpoint(TRUNCATE)")[0][0]:
            if time.monotonic() > until:
                return False
            time.sleep(_LOG_PAUSE_S)
        return True

    def make_room(self) -> None:
        """Free space on a nearly full disk: empty the log, drop indexes that can be rebuilt, and keep the log small.

        Call this before removing anything, since removals take space in the log themselves. Raises ArchiveError, with
        the missing size, if not even the log fits into the file.
        """
        is_short = has_less_room(self.path, SHORT_BYTES)
        self._most_pages = WAL_PAGES_SHORT if is_short else WAL_PAGES_WAITED
        if not is_short:
            return
        with contextlib.suppress(ArchiveError):  # reported after the passages are removed, by the code that does so
            drop_snapshots_of(self.path, None)
        try:
            self.empty_log(_ROOM_WAIT_S)
        except ArchiveError as error:
            if not (isinstance(error.__cause__, Exception) and is_full(error.__cause__)):
                raise
            raise ArchiveError(self._lacking(), retry=True) from error

    def _lacking(self) -> str:
        """How much space the log is short of, as a text."""
        with self.reading() as db:
            pages = int(db.execute("PRAGMA page_count").fetchone()[0])
        file, *beside = [part.stat().st_size for part in companions(self.path)]
        wanted, held = pages * self._page_bytes - file, sum(beside)
        return (
            f"archive {self.path} has no room: the disk is full; free {wanted / 1e6 + 1:,.0f} MB there (old backups, "
            f"other files), and run this again: {held / 1e6:,.0f} MB that its log takes come back then"
        )

    def _ready_writer(self) -> Database:
        if self._closed:
            raise ArchiveError(f"archive {self.path} is closed; open it again")
        if self._writer is None:
            raise ArchiveError(f"archive {self.path} was opened read-only; open it for writing")
        self._refuse_ghost()
        return self._writer

    def is_there(self) -> bool:
        """False if the file was deleted or replaced while it was open."""
        try:
            return os.stat(self._where).st_ino == self._inode
        except OSError:
            return False

    def _refuse_ghost(self) -> None:
        """Raise ArchiveError if the file was deleted: SQLite would keep writing to it, and everything written would be
        lost."""
        if not self.is_there():
            raise ArchiveError(f"archive {self.path} was deleted or replaced while it was open; restart lantern")

    def close(self) -> None:
        """Close all connections. Readers in use close themselves, since SQLite must not lose a connection during a
        step.

        Raises ArchiveError if turns cannot be synced to disk; everything is closed nevertheless.
        """
        with self._syncing, self._lock:
            try:
                if not self._closed:
                    self.sync()
            finally:
                if not self._closed and not self.is_there():
                    self._take_log_along()
                with self._gate:
                    # referenced here, so that one whose thread ends now is not closed twice at once: SQLite would crash
                    idle = [] if self._closed else [reader for reader in self._readers if not reader.uses]
                    self._closed = True
                if self._log is not None:
                    os.close(self._log)
                    self._log = None
                for db in [*(reader.db for reader in idle), *([self._writer] if self._writer else [])]:
                    db.close()

    def _take_log_along(self) -> None:
        """If the file was renamed or replaced by a copy, move its log into it and leave none beside the other file.

        SQLite takes any log for that of the file beside it, and would write old pages over new ones. A log that was not
        moved completely stays, and so does one that another process may use by now.
        """
        if self._writer is None or self._log is None or not is_unopened(self.path):
            return
        is_in = False
        with contextlib.suppress(*sqlite_faults()):
            is_in = self._writer.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0] == 0
        if not is_in:
            return
        beside = os.path.realpath(self.path)
        with contextlib.suppress(OSError):
            if os.path.samestat(os.stat(f"{beside}-wal"), os.fstat(self._log)):
                os.unlink(f"{beside}-wal")
                os.unlink(f"{beside}-shm")
