"""Many things written in one transaction: one that cannot be stored is left out, and does not touch the others."""

from collections.abc import Callable, Sequence
from typing import TypeVar

from sqlite_utils.db import Database

from lantern_proxy.archive.file import spoils_all, sqlite_faults

T = TypeVar("T")
New = TypeVar("New")

_FAULTS = (ValueError, TypeError, OverflowError, AttributeError)
"""What a thing with a value that cannot be stored raises, besides SQLite's own."""


def write_all(
    db: Database, things: Sequence[T], write: Callable[[Database, Sequence[T]], list[New]],
    leave_out: Callable[[Database, T, Exception], New],
) -> list[New]:  # fmt: skip
    """What is new of each of `things`, in a transaction that has just begun. Raises what tells of a file at fault.

    write:     writes some of them; returns what is new of each
    leave_out: what is done in place of writing one that cannot be stored
    """
    try:
        return write(db, things)
    except sqlite_faults(*_FAULTS) as error:
        if _is_of_file(error):
            raise
    db.conn.execute("ROLLBACK")
    db.conn.execute("BEGIN IMMEDIATE")
    return [_apart(db, thing, write, leave_out) for thing in things]


def _apart(
    db: Database, thing: T, write: Callable[[Database, Sequence[T]], list[New]],
    leave_out: Callable[[Database, T, Exception], New],
) -> New:  # fmt: skip
    """Inside a savepoint of its own."""
    db.conn.execute("SAVEPOINT apart")
    try:
        (added,) = write(db, [thing])
    except sqlite_faults(*_FAULTS) as error:
        if _is_of_file(error):
            raise
        db.conn.execute("ROLLBACK TO apart")
        added = leave_out(db, thing, error)
    db.conn.execute("RELEASE apart")
    return added


def _is_of_file(error: Exception) -> bool:
    """Is the file at fault, and not what was to be written?"""
    return isinstance(error, sqlite_faults()) and spoils_all(error)
