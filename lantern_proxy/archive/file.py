"""The archive's file: create it, open it, keep it healthy.

A file is never repaired, replaced or removed: whatever is wrong with it, the user can still save its bytes.
"""

import contextlib
import importlib
import os
import re
import secrets
import time
from pathlib import Path
from typing import Any, Literal

from sqlite_utils.db import Database

from lantern_proxy.archive.errors import (
    SQLCIPHER,
    ArchiveError,
    ArchiveErrors,
    recover_command,
    sqlite3,
    sqlite_faults,
)
from lantern_proxy.archive.raw import has_no_log, is_plain
from lantern_proxy.archive.snapshots import drop_snapshots, folder
from lantern_proxy.locked import exclusive
from lantern_proxy.migrations.archive import APPLICATION_ID, migrations

_STATEMENTS = 256
WAL_LEFT_BYTES = 64 << 20
WAL_PAGES = 4_000  # 16 MB between checkpoints, four times SQLite's default: each costs two fsyncs and many page writes
WAL_PAGES_WAITED = 12_000  # the same after a commit that somebody waits for: a background commit usually comes first
WAL_PAGES_SHORT = 500  # the same on a disk with little free space
SHORT_BYTES = 2 * WAL_LEFT_BYTES
_CACHE_KB = 8_000
_SECRET = "SELECT value FROM settings WHERE tenant = '' AND name = 'secret'"
_NEW_SECRET = "INSERT OR IGNORE INTO settings (tenant, name, value) VALUES ('', 'secret', ?)"


def make(path: Path) -> None:
    """Make sure that the file exists, with mode 0600 before SQLite or anyone else sees it.

    Companions of a deleted archive are removed first: this process may still have them open, and SQLite would let both
    archives share one WAL index. An existing file is not opened here: closing it would release all locks that this
    process holds on it (POSIX), and the next process to leave the archive would remove the log.
    """
    try:
        with exclusive(path.parent):
            if not path.exists():
                for left in companions(path):
                    left.unlink()
                drop_snapshots(path)
            if not path.is_file() or not os.access(path, os.R_OK | os.W_OK):
                os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
    except OSError as error:
        remedy = "make the folder" if not path.parent.is_dir() else "set archive.path to a file this user may write"
        raise ArchiveError(f"archive {path} cannot be opened ({error.strerror}); {remedy}", retry=True) from error


def connect(
    path: Path, access: Literal["ro", "rw"], *, vectors: bool, busy_s: float, immutable: bool = False, key: str = ""
) -> tuple[Database, str]:
    """A connection, and why it has no vectors ("" if it has). Nothing is read or written yet.

    access: "ro" opens the file read-only; "rw" is for the writer and for readers beside it, which share its WAL
    key:    64 hex digits: the file is encrypted (SQLCipher). Raises ArchiveError if that is not installed.
    """
    library = _library(key)
    uri = f"{path.absolute().as_uri()}?mode={access}{'&immutable=1' if immutable else ''}"
    conn = library.connect(
        uri, uri=True, timeout=busy_s, isolation_level=None, check_same_thread=False, cached_statements=_STATEMENTS
    )
    if key:
        conn.execute("PRAGMA cipher_log_level = NONE")
        conn.execute(f"PRAGMA key = \"x'{key}'\"")
    conn.text_factory = _decode
    no_vectors = _load_vec(conn) if vectors else "vectors are turned off"
    return Database(conn, execute_plugins=False), no_vectors


def needs_immutable(db: Database, path: Path) -> bool:
    """Must the file be opened as immutable? SQLite needs a WAL index, which it cannot create in a read-only folder.

    False if there is a log, since the file without it would be incomplete.
    """
    try:
        db.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    except sqlite_faults() as error:
        blocked = str(getattr(error, "sqlite_errorname", "")).startswith(("SQLITE_CANTOPEN", "SQLITE_READONLY"))
        log = Path(f"{path.resolve()}-wal")
        return blocked and not (log.exists() and log.stat().st_size)
    return False


def _library(key: str) -> Any:
    """The SQLite module for a file with this key: SQLCipher's if there is one."""
    if not key:
        return sqlite3
    try:
        sqlcipher = importlib.import_module(SQLCIPHER)  # the extra `encrypted`: 5 MB that others need not install
    except ImportError:
        message = 'the archive has a key, but SQLCipher is not here; pip install "lantern-proxy[encrypted]"'
        raise ArchiveError(message) from None
    if not re.fullmatch("[0-9a-fA-F]{64}", key):
        raise ArchiveError("the archive's key is not 64 hex digits; make one: openssl rand -hex 32")
    return sqlcipher


def encrypt(path: Path, key: str) -> None:
    """Replace the archive by a copy encrypted under `key`; nobody else may have it open. The plain file is removed.

    Raises ArchiveError, and leaves the plain file where it is.
    """
    if not is_plain(path):
        raise ArchiveError(f"archive {path} is no plain SQLite file; it may be encrypted already: `lantern doctor`")
    plain = path.resolve()  # not a link to it, which would be replaced while the plain file stays
    beside = plain.with_name(plain.name + ".encrypting")
    _drop(beside)
    os.close(os.open(beside, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
    with ArchiveErrors(path):
        conn = _library(key).connect(f"{path.absolute().as_uri()}?mode=rw", uri=True, isolation_level=None)
        try:
            _load_vec(conn)
            conn.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
            conn.execute("PRAGMA locking_mode = EXCLUSIVE").fetchall()
            conn.execute("BEGIN EXCLUSIVE")
            conn.execute("COMMIT")
            conn.execute(f"ATTACH DATABASE ? AS encrypted KEY \"x'{key}'\"", (str(beside),))
            conn.execute("PRAGMA encrypted.auto_vacuum = INCREMENTAL")
            conn.execute("SELECT sqlcipher_export('encrypted')").fetchall()
            for pragma in ("application_id", "user_version"):
                value = conn.execute(f"PRAGMA main.{pragma}").fetchone()[0]
                conn.execute(f"PRAGMA encrypted.{pragma} = {int(value)}")
            conn.execute("DETACH DATABASE encrypted")
        except BaseException:
            conn.close()
            _drop(beside)
            raise
        conn.close()
    for part in companions(path):
        if part != path:
            part.unlink()
    drop_snapshots(path)
    if hasattr(os, "geteuid") and os.geteuid() == 0:  # the proxy may run as another user
        os.chown(beside, path.stat().st_uid, path.stat().st_gid)
    os.replace(beside, plain)


def _drop(copy: Path) -> None:
    """Remove an unfinished copy with its companions."""
    for part in (copy, Path(f"{copy}-journal")):
        part.unlink(missing_ok=True)


def _decode(data: bytes) -> str:
    return data.decode("utf-8", "surrogatepass")


def _load_vec(conn: Any) -> str:
    """Load sqlite-vec into `conn`; returns why that failed, or ""."""
    if not hasattr(conn, "enable_load_extension"):
        return "this Python's sqlite3 cannot load extensions"
    try:
        sqlite_vec = importlib.import_module("sqlite_vec")
        conn.enable_load_extension(True)
        try:
            sqlite_vec.load(conn)
        finally:
            conn.enable_load_extension(False)
    except sqlite_faults(ImportError) as error:
        return f"sqlite-vec did not load: {error}"
    return ""


def prepare(db: Database, path: Path, busy_s: float) -> None:
    """Prepare `db`, the writer's connection: refuse foreign files, then bring the schema up to date.

    All steps are one transaction, so that a process killed during it leaves the archive as it was.
    """
    refuse_foreign(db, path)
    if not db.execute("PRAGMA page_count").fetchone()[0]:  # in an existing file this would still write a page
        db.execute("PRAGMA auto_vacuum = INCREMENTAL")
    _use_wal(db, busy_s)
    db.execute(f"PRAGMA cache_size = -{_CACHE_KB}")
    db.execute(f"PRAGMA journal_size_limit = {WAL_LEFT_BYTES}")
    db.execute("PRAGMA foreign_keys = ON")
    # always: text that an insert moves to another page would stay on the old one, where no later deletion finds it
    db.execute("PRAGMA secure_delete = ON")
    if migrations.pending(db):
        _migrate(db)


def _migrate(db: Database) -> None:
    db.execute("BEGIN IMMEDIATE")  # a second process that starts now waits here, then finds the work done
    try:
        migrations.apply(db)
        db.execute(_NEW_SECRET, (secrets.token_hex(32),))
        db.execute("COMMIT")
    except BaseException:
        db.rollback()
        raise


def secret_of(db: Database, path: Path) -> bytes:
    """The key under which tenants are named. Raises ArchiveError if it is damaged: no credential would find its
    tenant."""
    with contextlib.suppress(TypeError, ValueError):
        return bytes.fromhex(db.execute(_SECRET).fetchone()[0])
    raise ArchiveError(
        f"archive {path} is damaged: its secret, which tells whose key is whose, cannot be read; restore a backup, or "
        f"stop lantern and save what is archived under a new secret: {recover_command(path)}"
    )


def refuse_foreign(db: Database, path: Path) -> None:
    """Raise ArchiveError unless the file is empty or an archive that this program can read. Reads only."""
    tables, applied = refuse_newer(db, path)
    ours = db.execute("PRAGMA application_id").fetchone()[0] == APPLICATION_ID
    if tables and not (ours and applied):
        raise ArchiveError(f"archive {path} is another program's database; set archive.path to another file")


def refuse_empty(db: Database, path: Path) -> None:
    """Raise ArchiveError if nothing was ever archived, for callers that create no archive. Reads only."""
    if not db.table_names():
        raise ArchiveError(f"archive {path} is an empty file; `lantern serve` makes an archive of it")


def refuse_foreign_log(path: Path) -> None:
    """Raise ArchiveError if a log lies beside a file that has none of its own. Reads only.

    A backup, and what `recover` wrote, say in their header (bytes 18 and 19, file format, section 1.3) that they have
    no log. SQLite reads one all the same, and would overwrite their pages by those of the file that was here before.
    """
    beside = path.resolve()
    try:
        is_left = Path(f"{beside}-wal").stat().st_size > 0  # asked first: a file's header changes before it gets a log
        is_strange = is_left and has_no_log(path)
    except OSError:  # no log; or the file cannot be read, which is reported when it is opened
        return
    if is_strange:
        raise ArchiveError(
            f"archive {path} was put where another one was, whose log is still there; move {beside}-wal and "
            f"{beside}-shm away",
            retry=True,
        )


def is_unopened(path: Path) -> bool:
    """Is there no file, or one that nobody has opened yet, according to its header? Then a log beside it is not its
    own."""
    try:
        return has_no_log(path)
    except FileNotFoundError:
        return True
    except OSError:
        return False


def refuse_newer(db: Database, path: Path) -> tuple[set[str], list[str]]:
    """The tables of the file and its schema steps. Raises ArchiveError if one of the steps is not known here."""
    tables = {row[0] for row in db.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
    applied = [step.name for step in migrations.applied(db)] if migrations.migrations_table in tables else []
    known = {step.name for step in migrations.pending(Database(memory=True, execute_plugins=False))}
    unknown = [step for step in applied if step not in known]
    if unknown:
        raise ArchiveError(
            f"archive {path} was written by a newer lantern (it has schema step {unknown[-1]}); upgrade lantern-proxy"
        )
    return tables, applied


def _use_wal(db: Database, busy_s: float) -> None:
    """Set WAL mode, which the file keeps. SQLite does not wait for locks here, so this does."""
    until = time.monotonic() + busy_s
    while True:
        try:
            db.execute("PRAGMA journal_mode = WAL").fetchone()
            return
        except sqlite_faults() as error:
            if "SQLITE_BUSY" not in str(getattr(error, "sqlite_errorname", "")) or time.monotonic() > until:
                raise
            time.sleep(0.02)


def drop_snapshots_of(path: Path, tenant: str | None) -> None:
    """Remove the snapshots of a tenant, or of all if None, after some of its passages were removed from the archive.

    Called after the commit: whoever writes a snapshot looks at the archive again when it is in place.
    """
    try:
        drop_snapshots(path, tenant)
    except OSError as error:
        raise ArchiveError(
            f"the passages are gone from {path}, but {folder(path)} still holds terms of them ({error.strerror}); "
            "remove that folder"
        ) from error


def secure(path: Path) -> None:
    """Set mode 0600 on the file and its companions, if we own them."""
    for part in companions(path):
        with contextlib.suppress(OSError):
            if part.stat().st_mode & 0o077:
                part.chmod(0o600)


def companions(path: Path) -> list[Path]:
    """The archive and the files that SQLite keeps beside it, or beside the target of a link, as far as they exist."""
    beside = path.resolve()
    return [p for p in (path, Path(f"{beside}-wal"), Path(f"{beside}-shm")) if p.exists()]


def size_bytes(path: Path) -> int:
    return sum(part.stat().st_size for part in companions(path))
