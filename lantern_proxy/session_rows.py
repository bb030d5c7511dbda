"""Sessions and questions in the form of the archive: for the proxy, and for programs without one."""

from collections.abc import Callable

from lantern_proxy.archive import SessionRow
from lantern_proxy.archive.values import QUERY_CHARS, TITLE_CHARS, query_of
from lantern_proxy.compaction.placement import question
from lantern_proxy.history.record import Session
from lantern_proxy.turn import Api, Request, fingerprint
from lantern_proxy.turn_memo import Memo

Said = Callable[[str, int], str]
"""(text, most characters) -> the beginning of a user's text that may be kept."""


def _print(system: str) -> str:
    return fingerprint(system).hex()


_print_of = Memo(_print, most_bytes=1 << 20, bytes_of=lambda system: 2 * len(system))
"""Cached fingerprints of system prompts, which every request repeats."""


def session_row(session: Session, said: Said) -> SessionRow:
    return SessionRow(
        id=session.id, api=session.api, family=session.family, parent=session.parent,
        title=said(session.title, TITLE_CHARS), created_at=session.created_at, last_seen_at=session.last_seen_at,
        system=_print_of[session.system] if session.system else "", tools=tuple(sorted(session.tools)),
    )  # fmt: skip


def unkept_row(session: Session) -> SessionRow:
    """The row of a session of which no text may be kept."""
    return SessionRow(
        id=session.id, api=session.api, family=session.family, parent=session.parent, created_at=session.created_at,
        last_seen_at=session.last_seen_at,
    )  # fmt: skip


def session_of(row: SessionRow) -> Session:
    """The session as far as its row describes it; session.from_archive adds the rest. The id of a sub-agent or side
    call is <parent>.<agent>."""
    own = f"{row.parent}."
    agent = row.id.removeprefix(own) if row.parent and row.id.startswith(own) else ""
    apis: dict[str, Api] = {"chat": "chat", "responses": "responses", "messages": "messages"}
    return Session(
        id=row.id, api=apis.get(row.api, "chat"), family=row.family, parent=row.parent, side=bool(agent),
        agent=agent if agent != "side" else "", tools=frozenset(row.tools), title=row.title,
        created_at=row.created_at, last_seen_at=row.last_seen_at,
    )  # fmt: skip


def asked(request: Request, said: Said) -> str:
    """The beginning of the user's text that waits for an answer; "" if none does."""
    at = question(request)
    return said(query_of(request.messages[at].text), QUERY_CHARS) if at is not None else ""
