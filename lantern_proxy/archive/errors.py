"""Every SQLite error leaves the package as an ArchiveError, which names the remedy."""

import errno
import os
import shlex
import shutil
import sys
from pathlib import Path
from typing import Any

from msgspec import Struct
from sqlite_utils import utils

from lantern_proxy.archive.raw import is_plain

_FULL = "database or disk is full"
_NO_ROOM_BYTES = 64 << 10
SQLCIPHER = "sqlcipher3.dbapi2"

sqlite3: Any = utils.__dict__["sqlite3"]  # pysqlite3 if it is installed, which brings its own SQLite


def sqlite_faults(*more: type[Exception]) -> tuple[type[Exception], ...]:
    """The exceptions of every SQLite library that may be loaded, and `more`."""
    loaded = sys.modules.get(SQLCIPHER)
    return (*more, sqlite3.Error, loaded.Error) if loaded else (*more, sqlite3.Error)


class ArchiveError(Exception):
    """The archive cannot do what was asked: the place, what is wrong, and the way out.

    retry: the same call may succeed later (another process holds the lock, the disk is full)
    """

    def __init__(self, message: str, *, retry: bool = False) -> None:
        super().__init__(message)
        self.retry = retry


class OlderError(ArchiveError):
    """The archive was written by an older lantern and must not be changed by this call."""


_REMEDIES: tuple[tuple[str, str, str, bool], ...] = (
    (
        "SQLITE_NOTADB",
        "is not a lantern archive, or the key is not its own",
        "check archive.path, and if it is encrypted its key: archive.key_env or key_file, or --archive-key-env "
        "(the file was not touched)",
        False,
    ),
    ("SQLITE_CORRUPT", "is damaged", "stop lantern, then save what can be read: {recover}", False),
    ("SQLITE_BUSY", "is locked by another process", "stop the other program that writes to it, or wait", True),
    ("SQLITE_LOCKED", "is locked by another process", "stop the other program that writes to it, or wait", True),
    ("SQLITE_READONLY", "cannot be written", "give this user write access to the file and its folder", True),
    ("SQLITE_FULL", "has no room: the disk is full", "free some space there (old backups, other files)", True),
    ("SQLITE_CANTOPEN", "cannot be opened", "check that the folder exists and this user may write to it", True),
    ("SQLITE_IOERR", "could not be read or written", "check the disk (full, quota, unplugged)", True),
    ("SQLITE_NOMEM", "needs more memory than there is", "free some memory", True),
)


def recover_command(path: Path) -> str:
    """The command that saves what can be read of this archive, for an error's remedy."""
    return f"`lantern recover NEW.db --archive {shlex.quote(str(path))}`"


def _code(error: Exception) -> str:
    """SQLite's name of the error. A full disk during a copy has none, or that of a generic error."""
    if str(error) == _FULL or (isinstance(error, OSError) and error.errno == errno.ENOSPC):
        return "SQLITE_FULL"
    return getattr(error, "sqlite_errorname", "") or ""


def archive_error(path: Path, error: Exception) -> ArchiveError:
    """The ArchiveError for `error`, with the place, the value and the remedy."""
    code = _code(error)
    if code == "SQLITE_NOTADB" and is_plain(path):
        wrong = "is not encrypted, and a key is set for it"
        return ArchiveError(f"archive {path} {wrong}; encrypt it with `lantern migrate --encrypt`, or unset the key")
    if code.startswith("SQLITE_CANTOPEN") and os.path.exists(path) and not os.access(path, os.R_OK):
        return ArchiveError(
            f"archive {path} may not be read by this user; run this as its owner, or as root", retry=True
        )
    if code.startswith("SQLITE_IOERR") and has_less_room(path, _NO_ROOM_BYTES):
        code = "SQLITE_FULL"  # such as the log's index, which could not be created
    for prefix, wrong, remedy, retry in _REMEDIES:
        if code.startswith(prefix):
            remedy = remedy.format(recover=recover_command(path))
            return ArchiveError(f"archive {path} {wrong} ({error}); {remedy}", retry=retry)
    return ArchiveError(f"archive {path} failed: {error}; run `lantern doctor`")


def spoils_all(error: Exception) -> bool:
    """True if the file is at fault, so that every other record would fail too; False if the record is."""
    code = _code(error)
    return any(code.startswith(prefix) for prefix, *_ in _REMEDIES)


def is_full(error: Exception) -> bool:
    """Is the disk full that was written to?"""
    return _code(error).startswith("SQLITE_FULL")


def has_less_room(path: Path, size_bytes: int) -> bool:
    """Does the disk of the archive at `path` have less free space than that? False if that is unknown because the disk
    or the folder is gone."""
    try:
        return shutil.disk_usage(path.resolve().parent).free < size_bytes
    except OSError:
        return False


class ArchiveErrors(Struct):
    """`with ArchiveErrors(path):` SQLite's errors inside the block leave it as ArchiveError.

    A class, since every write enters two, and a generator would cost several times as much.
    """

    path: Path

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is not None and isinstance(error, sqlite_faults()):
            raise archive_error(self.path, error) from error
