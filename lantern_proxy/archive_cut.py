"""Notes of the messages that are archived and not yet cut into passages.

    archive.write([record])                    # record.uncut names them: the notes are on disk with their messages
    for cut in archive.uncut(): ...            # what a process that was killed left
    archive.add_passages([(cut, passages)])    # passages in, notes out, in one transaction

A turn is on disk before its client has the end of it; cutting, tagging and indexing take longer, and may come after.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from sqlite_utils.db import Database

from lantern_proxy.archive_rows import name, to_filed
from lantern_proxy.turn import Filed

NOTE = "INSERT INTO uncut (tenant, project, session, key) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING"
_DONE = """DELETE FROM uncut WHERE tenant = ? AND session = ? AND key = ? RETURNING EXISTS (
        SELECT 1 FROM messages m WHERE m.tenant = uncut.tenant AND m.session = uncut.session AND m.key = uncut.key)"""
_LEFT = """SELECT u.tenant, u.project, m.session, m.key, m.position, m.turn, m.role, m.text, m.items, m.raw, m.print,
        m.side, m.partial, m.created_at
    FROM uncut u JOIN messages m ON m.tenant = u.tenant AND m.session = u.session AND m.key = u.key
    ORDER BY u.tenant, m.session, m.position LIMIT ?"""


@dataclass(frozen=True, slots=True)
class Uncut:
    """Messages of one session, in order."""

    tenant: str
    project: str
    session: str
    messages: tuple[Filed, ...]


def left(db: Database, limit: int) -> list[Uncut]:
    """At most `limit` messages, by session."""
    found: dict[tuple[str, str, str], list[Filed]] = {}
    for tenant, project, session, *filed in db.execute(_LEFT, (limit,)):
        found.setdefault((tenant, project, session), []).append(to_filed(tuple(filed)))
    return [Uncut(*key, tuple(messages)) for key, messages in found.items()]


def take(db: Database, cut: Uncut) -> frozenset[str]:
    """Keys of those messages of `cut` that are noted, and still there; none of them is uncut from now on."""
    tenant, session = name(cut.tenant), name(cut.session)
    done = [db.conn.execute(_DONE, (tenant, session, name(filed.key))).fetchone() for filed in cut.messages]
    return frozenset(filed.key for filed, row in zip(cut.messages, done, strict=True) if row and row[0])


def notes(tenant: str, project: str, session: str, keys: Sequence[str]) -> list[tuple[str, str, str, str]]:
    return [(tenant, project, session, name(key)) for key in keys]
