"""Rebuilds the full-text index, tags and terms of passages while others read and write."""

import contextlib
import shutil
from collections.abc import Callable
from typing import TYPE_CHECKING

from sqlite_utils.db import Database

from lantern_proxy.archive.connections import Connections
from lantern_proxy.archive.errors import ArchiveError
from lantern_proxy.archive.file import WAL_LEFT_BYTES
from lantern_proxy.archive.forget import bump_generation
from lantern_proxy.archive.prune import Advance, batches, with_pause
from lantern_proxy.archive.rows import PASSAGE, dumps, exact, lines, to_passage
from lantern_proxy.turn import Passage

if TYPE_CHECKING:
    from lantern_proxy.archive import Archive

_AT_ONCE = 500
"""Most passages per transaction: some 20 ms."""
_IS_BEGUN = "SELECT value FROM settings WHERE tenant = '' AND name = 'reindexing'"
_BEGUN = "INSERT INTO settings (tenant, name, value) VALUES ('', 'reindexing', '')"
_DONE = "DELETE FROM settings WHERE tenant = '' AND name = 'reindexing'"
_EMPTY = "INSERT INTO passages_fts (passages_fts) VALUES ('delete-all')"
_INDEX_BYTES = "SELECT ifnull(sum(length(block)), 0) FROM passages_fts_data"
_NEWEST_IS_THERE = """SELECT ifnull((SELECT max(id) FROM passages) IN (SELECT id FROM passages_fts_docsize), 1)
    OR EXISTS (SELECT 1 FROM settings WHERE tenant = '' AND name = 'reindexing')"""
_LACKING = "SELECT id FROM passages WHERE id NOT IN (SELECT id FROM passages_fts_docsize) ORDER BY id DESC"
# in order of id: FTS5 flushes its memory whenever an id is smaller than the one before
_ADD = """INSERT INTO passages_fts (rowid, text) SELECT id, text FROM passages
    WHERE id IN (SELECT value FROM json_each(?)) AND id NOT IN (SELECT id FROM passages_fts_docsize) ORDER BY id"""

_EACH = f"SELECT {PASSAGE} FROM passages p WHERE p.id > ? ORDER BY p.id LIMIT ?"
_ANALYSED = "UPDATE passages SET tags = ?, terms = CAST(? AS TEXT) WHERE id = ? AND text = CAST(? AS TEXT)"


def analyse(archive: "Archive", analysed: Callable[[Passage], Passage], advance: Advance = lambda _: None) -> int:
    """Give every passage the tags and terms that `analysed` computes (chunk.reanalysed); returns how many changed.

    Others write meanwhile, so few are changed per transaction. advance: called with the number of passages examined
    """
    last, changed = 0, 0
    while True:
        with archive.reading() as db:
            held = [to_passage(row) for row in db.execute(_EACH, (last, _AT_ONCE))]
        if not held:
            break
        last, pairs = held[-1].id, [(each, analysed(each)) for each in held]
        rows = [
            (dumps(new.tags), exact(lines(new.terms)), new.id, exact(new.text))
            for old, new in pairs
            if (old.tags, old.terms) != (new.tags, new.terms)
        ]
        for some in batches(rows):
            with with_pause(), archive.writing() as db:
                db.conn.executemany(_ANALYSED, some)
        changed += len(rows)
        advance(len(held))
    if changed:
        with archive.writing() as db:
            bump_generation(db)  # a running proxy's open indexes hold the earlier terms
    return changed


def rebuild(connections: Connections, advance: Advance) -> None:
    """Empty the index and fill it again, newest passages first, in short transactions; searches find what is indexed.

    After an interruption, the next call continues. advance: called with the number of passages indexed
    Raises ArchiveError; if the disk has too little space for it, the index stays as it is.
    """
    with connections.reading() as db:
        goes_on = is_rebuilding(db)
    if not goes_on:
        _refuse_full_disk(connections)
    with connections.writing(again=True) as db:
        if not is_rebuilding(db):
            db.execute(_EMPTY)
            db.execute(_BEGUN)
    try:
        _add_lacking(connections, advance)
        with connections.writing() as db:
            db.execute(_DONE)
    except ArchiveError as error:
        if not error.retry:
            raise
        message = f"{error}; searches lack passages until `lantern reindex` is run again, which goes on"
        raise ArchiveError(message, retry=True) from error


def continue_rebuild(connections: Connections, advance: Advance) -> None:
    """Continue an interrupted rebuild. Another process may do so, too: each adds what is missing."""
    with connections.reading() as db:
        if not is_rebuilding(db):
            return
    _add_lacking(connections, advance)
    with connections.writing() as db:
        if not db.execute(_LACKING).fetchone():  # if emptied again meanwhile, that is left to whoever did so
            db.execute(_DONE)


def is_rebuilding(db: Database) -> bool:
    """Was a rebuild begun that is not finished?"""
    return db.execute(_IS_BEGUN).fetchone() is not None


def _refuse_full_disk(connections: Connections) -> None:
    """Raise ArchiveError if the disk is too full for a rebuild: overwriting the old rows and adding the new ones both
    need space in the log."""
    size = 0
    with contextlib.suppress(ArchiveError), connections.reading() as db:  # a damaged index may be rebuilt, too
        size = db.execute(_INDEX_BYTES).fetchone()[0]
    needed = 2 * size + min(WAL_LEFT_BYTES, 2 * size + (1 << 20))
    free = shutil.disk_usage(connections.path.resolve().parent).free
    if free < needed:
        raise ArchiveError(
            f"archive {connections.path} has no room to make its full-text index anew: {free:,} bytes are free, "
            f"{needed:,} are needed; free some space (the index is as it was)",
            retry=True,
        )


def complete(connections: Connections) -> None:
    """Add missing passages to the full-text index, if the newest one is missing.

    That happens if a process of an older release still wrote after this one had migrated the schema: releases before
    m008 rely on a trigger that m008 removed. Anything else that the index may lack is reported by `lantern doctor`.
    """
    with contextlib.suppress(ArchiveError):  # a damaged index must not make the archive unusable
        with connections.reading() as db:
            if db.execute(_NEWEST_IS_THERE).fetchone()[0]:
                return
        _add_lacking(connections)


def _add_lacking(connections: Connections, advance: Advance = lambda _: None) -> None:
    with connections.reading() as db:
        missing = [row[0] for row in db.execute(_LACKING)]
    for some in batches(missing, _AT_ONCE):
        with with_pause(), connections.writing(again=True) as db:
            db.execute(_ADD, (dumps(some),))
        advance(len(some))
