"""All the SQL of Lantern: one SQLite file that holds every turn verbatim, and what was derived from it.

    with Archive(Path("lantern.db")) as archive:
        archive.write([record])                 # one transaction; a crash after it loses nothing
        mine = archive.of(archive.tenant_of("sk-..."))
        mine.search("connection reset", limit=3)

`Archive` writes and looks after the file; `TenantArchive` (archive.of) reads, and binds its tenant in every query.
Nothing of SQLite leaves these modules: scores are larger-is-better, errors are ArchiveError, times Unix seconds.
"""

import contextlib
import hashlib
import hmac
import logging
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from msgspec.structs import replace
from sqlite_utils.db import Database

from lantern_proxy.archive import check, full_text
from lantern_proxy.archive import vectors as archive_vectors
from lantern_proxy.archive.connections import Connections
from lantern_proxy.archive.errors import ArchiveError
from lantern_proxy.archive.feedback import Edit, Marked
from lantern_proxy.archive.file import secret_of
from lantern_proxy.archive.forget import ForgetRule, Marks, Receipt, Verified, generation, present, without_forgotten
from lantern_proxy.archive.forget_rows import forget_in, would_forget
from lantern_proxy.archive.prune import Advance, batches, is_unwiped, said_at, wipe, with_pause
from lantern_proxy.archive.raw import occurrences
from lantern_proxy.archive.rows import name
from lantern_proxy.archive.scope import large, newest
from lantern_proxy.archive.tenant import TenantArchive
from lantern_proxy.archive.values import (
    Finding,
    Hit,
    PruneReport,
    PruneRule,
    Record,
    RequestRow,
    SessionRow,
    TenantSummary,
    Why,
)
from lantern_proxy.archive.vectors import add_tokens, embedding_model
from lantern_proxy.archive.writes import Uncut, add_cuts, add_records, cross_out, left_uncut, write_all
from lantern_proxy.migrations.archive import migrations
from lantern_proxy.turn import Passage

if TYPE_CHECKING:
    from lantern_proxy.archive.vectors import Tokens, Vector

__all__ = [
    "Archive", "ArchiveError", "Edit", "ForgetRule", "Hit", "Marked", "PruneReport", "PruneRule", "Receipt", "Record",
    "RequestRow", "SessionRow", "TenantArchive", "TenantSummary", "Uncut", "Why",
]  # fmt: skip

log = logging.getLogger("lantern.archive")

_TENANTS = """SELECT s.tenant, count(*), min(s.created_at), max(s.last_seen_at),
        (SELECT count(*) FROM messages m WHERE m.tenant = s.tenant),
        (SELECT count(*) FROM passages p WHERE p.tenant = s.tenant AND p.unit = 'passage')
    FROM sessions s GROUP BY s.tenant ORDER BY max(s.last_seen_at) DESC"""


class Archive:
    """The archive file. Safe to share between threads: each reads through its own connection, writes take turns.

    path:        made with mode 0600 when it is not there; its folder must exist
    synchronous: "full": turns are on disk when `write` returns; "normal": a power cut may lose those written since the
                 last `sync`, a crash of the process loses none
    vectors:     False leaves sqlite-vec out
    read_only:   nothing is made, migrated or written
    busy_s:      how long to wait for another process that writes
    key:         64 hex digits of an encrypted archive; empty for a plain one
    Raises ArchiveError when the file cannot be used; the file is left as it is.
    """

    def __init__(
        self,
        path: Path | str,
        *,
        synchronous: Literal["full", "normal"] = "full",
        vectors: bool = True,
        read_only: bool = False,
        busy_s: float = 5.0,
        key: str = "",
    ) -> None:
        self.path = Path(path)
        self._connections = Connections(
            self.path, synchronous, vectors=vectors, read_only=read_only, busy_s=busy_s, key=key
        )
        lacking = self._connections.lacking
        self.encrypted = bool(key)
        self.vectors = not lacking
        """Can vectors be stored and searched on this installation?"""
        self.degraded: tuple[str, ...] = (f"vectors: {lacking}",) if lacking and vectors else ()
        """What does not work on this installation, and why."""
        self.faults: Counter[str] = Counter()
        """Faults since the archive was opened: kind -> how often."""
        try:
            with self._connections.reading() as db:
                self._secret = secret_of(db, self.path)
            if not read_only:
                full_text.complete(self._connections)
        except BaseException:
            self._connections.close()
            raise
        self._marks, self._keyed = Marks(self._secret), hmac.new(self._secret, digestmod="sha256")

    def __enter__(self) -> "Archive":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the archive; may be called twice. Every other call after it raises ArchiveError.

        So does this one if turns cannot be synced to disk; the archive is closed all the same.
        """
        self._connections.close()

    @property
    def version(self) -> int:
        """How many schema steps were applied to this archive."""
        with self._connections.reading() as db:
            return len(migrations.applied(db))

    @property
    def model(self) -> tuple[str, int] | None:
        """(name, dimension) of the model of its vectors; None before the first vector."""
        with self._connections.reading() as db:
            return embedding_model(db)

    @property
    def is_reindexing(self) -> bool:
        """Is the full-text index being rebuilt, or was a rebuild interrupted?"""
        with self._connections.reading() as db:
            return full_text.is_rebuilding(db)

    @property
    def stamp(self) -> str:
        """An id of this archive that reveals nothing about it."""
        return hmac.new(self._secret, b"stamp", hashlib.sha256).hexdigest()[:32]

    @property
    def is_there(self) -> bool:
        """False if its file was deleted or replaced after it was opened."""
        return self._connections.is_there()

    def newest_passage(self) -> int:
        """The largest id that a passage ever had; it grows whenever any process archives passages."""
        with self._connections.reading() as db:
            return newest(db)

    def large_scopes(self, least: int, *, by_project: bool) -> list[tuple[str, str | None, int]]:
        """(tenant, project, passages) of tenants, or projects, with `least` passages or more, largest first."""
        with self._connections.reading() as db:
            return large(db, least, by_project=by_project)

    def tenant_of(self, credential: str) -> str:
        """The tenant of a credential in this archive. The credential cannot be derived from it."""
        keyed = self._keyed.copy()  # costs half as much as starting from the secret
        keyed.update(credential.encode("utf-8", "surrogatepass"))
        return f"t_{keyed.hexdigest()[:24]}"

    def of(self, tenant: str) -> TenantArchive:
        """The archive of one tenant. All reads of archived text go through it."""
        if not tenant:
            raise ArchiveError("tenant is empty; name one, as Archive.tenant_of does")
        return TenantArchive(self._connections, name(tenant), vectors=self.vectors)

    def tenants(self) -> list[TenantSummary]:
        """All tenants, most recently seen first."""
        with self._connections.reading() as db:
            rows = db.execute(_TENANTS).fetchall()
        return [
            TenantSummary(id=i, sessions=n, messages=messages, passages=passages, first_at=first, last_at=last)
            for i, n, first, last, messages, passages in rows
        ]

    def write(self, records: Sequence[Record]) -> list[tuple[Passage, ...]]:
        """Archive `records` in one transaction. Writing one twice changes nothing.

        returns: for each record the passages that are new, with their ids. A passage of unit "turn" takes the place of
                 the one its turn had before, under a new id; the old id is then unknown.
        A record that cannot be stored is left out as a whole, logged and counted in `faults`; the others are written.
        Raises ArchiveError if the file is at fault; then nothing was written, and all of it may be written again.
        """

        def leave_out(_: Database, record: Record, error: Exception) -> tuple[Passage, ...]:
            self._left_out(f"record of session {record.session.id} is", error)
            return ()

        try:
            with self._connections.writing(turns=True) as db:
                return write_all(db, records, self._add_records, leave_out)
        except ArchiveError:
            self.faults["write"] += 1
            raise

    @property
    def behind_s(self) -> float:
        """Age in seconds of the oldest turn that may not be on disk yet; 0 when all are."""
        return self._connections.behind_s

    def sync(self) -> None:
        """Sync everything written to disk; free if it is there already. Raises ArchiveError."""
        self._connections.sync()

    def _add_records(self, db: Database, records: Sequence[Record]) -> list[tuple[Passage, ...]]:
        kept = without_forgotten(db, self._marks, records, now=time.time())
        return add_records(db, kept, vectors=self.vectors)

    def uncut(self, limit: int = 256) -> list[Uncut]:
        """Messages, at most `limit`, that were archived but not yet cut into passages because their process was
        killed."""
        with self._connections.reading() as db:
            return left_uncut(db, limit)

    def add_passages(self, cuts: Sequence[tuple[Uncut, Sequence[Passage]]]) -> list[int]:
        """Store the passages of cut messages; returns for each cut how many of its passages are new.

        Messages that are gone by now get none. Raises ArchiveError if the file is at fault; nothing is written then.
        """

        def leave_out(db: Database, cut: tuple[Uncut, Sequence[Passage]], error: Exception) -> int:
            self._left_out(f"passages of session {cut[0].session} are", error)
            cross_out(db, [cut[0]])  # what cannot be stored is not tried again
            return 0

        with self._connections.writing(again=True) as db:
            return write_all(db, cuts, add_cuts, leave_out)

    def _left_out(self, what: str, error: Exception) -> None:
        self.faults["record"] += 1
        level = logging.ERROR if self.faults["record"] == 1 else logging.DEBUG
        log.log(level, "archive %s: %s not archived: %s", self.path, what, error)

    def forget(self, tenant: str, rule: ForgetRule, *, now: float, dry_run: bool = False) -> Receipt:
        """Remove what `rule` names of one tenant, everywhere in the file and its write-ahead log. Returns a signed
        receipt.

        A running proxy drops it from memory within a second. A dry run returns the same counts, except 0 vectors.
        """
        if not dry_run:
            return self.forget_all([tenant], rule, now=now)[0]
        with self._connections.reading() as db:
            return would_forget(db, _named(tenant), rule, self._marks, now=now).signed(self._secret)

    def forget_all(
        self, tenants: Sequence[str], rule: ForgetRule, *, now: float, advance: Advance = lambda _: None
    ) -> list[Receipt]:
        """forget() for several tenants. Others can write meanwhile; after an interruption, the same rule finds the
        rest.

        advance: called with the number of rows removed. If a reader holds the log, wiping it is left to do: see
        `unwiped`.
        """
        with self._connections.reading() as db:
            vectors = self.vectors and bool(embedding_model(db))
        receipts = []
        for own in map(_named, tenants):
            receipts.append(
                forget_in(self._connections, own, rule, self._marks, now=now, vectors=vectors, advance=advance)
            )
        wipe(self._connections, vectors=vectors, advance=advance)
        left = occurrences(self.path, rule.match) if rule.match is not None else 0
        return [replace(receipt, left_over=left).signed(self._secret) for receipt in receipts]

    def verify(self, receipt: Receipt) -> Verified:
        """Is the receipt a genuine one of this archive, and which of the things that it lists are here again?"""
        with self._connections.reading() as db:
            return Verified(receipt.is_genuine(self._secret), present(db, receipt, self._marks))

    @property
    def used_bytes(self) -> int:
        """Size of the file without free pages."""
        with self._connections.reading() as db:
            pages, free, size = (
                int(db.execute(f"PRAGMA {name}").fetchone()[0])  # SQLCipher returns page_size as text
                for name in ("page_count", "freelist_count", "page_size")
            )
        return (pages - free) * size

    def oldest_share(self, share: float) -> float | None:
        """The time before which `share` (0 to 1) of all messages came; None if there are none."""
        with self._connections.reading() as db:
            count = db.execute("SELECT count(*) FROM messages").fetchone()[0]
            at = min(count - 1, int(count * share) + 1)
            row = db.execute(
                f"SELECT {said_at('messages')} AS at FROM messages ORDER BY at LIMIT 1 OFFSET ?", (at,)
            ).fetchone()
        return float(row[0]) if count and row else None

    @property
    def forgets(self) -> str:
        """A value that changes whenever any process forgets something."""
        with self._connections.reading() as db:
            return generation(db)

    def reading(self) -> contextlib.AbstractContextManager[Database]:
        """This thread's read connection, for the other modules of the archive."""
        return self._connections.reading()

    def writing(self) -> contextlib.AbstractContextManager[Database]:
        """One transaction, for the other modules of the archive."""
        return self._connections.writing()

    def unembedded(self, limit: int) -> list[tuple[str, int, str]]:
        """(tenant, id, text) of passages without a vector, at most `limit`, in equal shares per tenant.

        Within a tenant, passages come before summaries of turns, and old before new. Empty if vectors cannot be stored.
        """
        if not self.vectors:
            return []
        with self._connections.reading() as db:
            return archive_vectors.pending(db, limit)

    def wipe(self, advance: Advance = lambda _: None) -> bool:
        """Wipe removed text from snapshots, full-text index and write-ahead log; others can write in between.

        False if a reader still needs the log; the next call empties it. advance: called with pages of the index
        """
        return wipe(self._connections, vectors=self.vectors and self.model is not None, advance=advance)

    @property
    def unwiped(self) -> bool:
        """Is there removed text still to be wiped?"""
        with self._connections.reading() as db:
            return is_unwiped(db)

    def add_vectors(
        self,
        model: str,
        dim: int,
        rows: "Sequence[tuple[str, str, int, Vector]]",
        *,
        recipe: str = "",
        tokens: "Sequence[tuple[str, int, Tokens]]" = (),
    ) -> int:
        """Store vectors of passages, each (tenant, session, passage id, float32 (dim,)); returns how many are new.

        recipe, tokens: how token vectors were made, and those of passages, each (tenant, passage id, int8 (n, numbers))

        Passages that have been removed, or already have a vector, are skipped. Raises ArchiveError if `model` is not
        the model of the archive's vectors: vectors of two models cannot be compared.
        """
        if not self.vectors:
            return 0
        packed = archive_vectors.pack(dim, [(name(t), name(session), id_, vector) for t, session, id_, vector in rows])
        with self._connections.writing(again=True) as db:
            known = embedding_model(db) or archive_vectors.start(db, model, dim)
            if known != (model, dim):
                raise ArchiveError(
                    f"archive {self.path} has vectors of {known[0]} ({known[1]}), not of {model} ({dim}); "
                    "run `lantern reindex --vectors`"
                )
            added = archive_vectors.add(db, packed)
            add_tokens(db, recipe, [(name(tenant), id_, vectors) for tenant, id_, vectors in tokens])
        return added

    def drop_vectors(self) -> None:
        """Remove all vectors and their model; every passage waits for a new one.

        Others write between the short transactions. The first one is long: 0.7 s of CPU time for 100,000 passages.
        """
        if not self.vectors:
            return
        with self._connections.writing() as db:
            archive_vectors.drop(db)
            held = [row[0] for row in db.execute("SELECT passage FROM tokens")]
        for some in batches(held):
            with with_pause(), self._connections.writing(again=True) as db:
                archive_vectors.remove_tokens(db, some)

    def rebuild_fts(self, advance: Advance = lambda _: None) -> None:
        """Rebuild the full-text index from the passages. Others write meanwhile, and searches find what is indexed.

        After an interruption, the next call continues. advance: called with the number of passages indexed
        """
        full_text.rebuild(self._connections, advance)

    def complete_fts(self, advance: Advance = lambda _: None) -> None:
        """Continue an interrupted rebuild_fts(), if there is one. advance: called with the number of passages"""
        full_text.continue_rebuild(self._connections, advance)

    def check(self) -> list[Finding]:
        """All health checks of the archive. Reads the whole file: seconds for a large one."""
        without = "" if self.vectors else "; ".join(self.degraded) or "turned off"
        return check.check(self._connections, without, self.faults)


def _named(tenant: str) -> str:
    if not name(tenant):
        raise ArchiveError("tenant is empty; name one, as `lantern status` lists them")
    return name(tenant)
