"""One session as it is known: what its client showed last, everything it held, and how a request moves it on.

    begin(request) -> Session; advance(session, request, kept) -> Session, new messages; answered(session, answer) -> ...

A message is named, within its session, by the chain hash under which it was first seen: the client sends it again with
every request, and it is filed once.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from lantern_proxy.turn import Answer, Api, Filed, Item, Message, Request, canonical, fingerprint

SUMMARY_CHARS = 60
"""Shortest answer that may be a summary of something."""

MARKER = re.compile(
    r"session is being continued|conversation (?:history )?(?:so far|to date|before this point)|previous conversation"
    r"|(?:context|conversation|session|chat|history) summary|summary of (?:the |our |your )?(?:\w+ ){0,2}"
    r"(?:conversation|session|discussion|chat|messages|history|context)|earlier (?:conversation|messages|context|part)"
    r"|state_snapshot|<summary>|spoke to you previously|another language model started|compacted|skipped \d+ messages",
    re.I,
)


@dataclass(frozen=True, slots=True)
class Entry:
    """One message of a session's head."""

    key: str
    message: Message
    produced: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """What is known of one session. Replaced, never changed."""

    id: str
    api: Api
    family: str = ""
    agent: str = ""
    parent: str = ""
    side: bool = False
    system: str = ""
    """Canonical text of its system prompt."""
    tools: frozenset[str] = frozenset()
    head: tuple[Entry, ...] = ()
    """What the client showed last, and the answer that it got."""
    answered: bool = False
    opening: frozenset[bytes] = frozenset()
    """Fingerprints of the items of its first request: many sessions share them, so they prove nothing."""
    keys: frozenset[str] = frozenset()
    """Every message it ever held."""
    abandoned: frozenset[str] = frozenset()
    """Messages of branches that the client left (an edit, a rewind)."""
    system_keys: tuple[tuple[bytes, str], ...] = ()
    position: int = 0
    turn: int = 0
    lost: bool = False
    """Some of what it held was lost, so its questions may need evidence that the request lacks."""
    title: str = ""
    created_at: float = 0.0
    last_seen_at: float = 0.0


# --- system prompts ------------------------------------------------------------------------------------------------


def system_text(request: Request) -> str:
    """Canonical text of the system and developer messages that open the request."""
    found = []
    for m in request.messages:
        if m.role not in ("system", "developer"):
            break
        found.append(canonical(m.text))
    return "\n".join(found)


def same_system(a: str, b: str) -> bool:
    """Of one class: equal, or alike but for dates, git status, a summary appended. Empty is alike to empty only."""
    if a == b:
        return True
    if not a or not b:
        return False
    short, long = sorted((a, b), key=len)
    if long.startswith(short) or long.startswith(short[: max(200, len(short) * 2 // 3)]):
        return True
    words_a, words_b = set(a.split()), set(b.split())
    return len(words_a & words_b) >= 0.6 * min(len(words_a), len(words_b)) and len(short) * 3 >= len(long)


def extends_system(old: str, new: str) -> bool:
    """The same system prompt, or the old one with something added (a summary may be)."""
    return same_system(old, new) or (not old and bool(MARKER.search(new)))


def has_marker(request: Request) -> bool:
    """Do words that clients put around summaries stand in the first eight messages?"""
    return any(MARKER.search(m.text) for m in request.messages[:8])


# --- the head ------------------------------------------------------------------------------------------------------


def items_of(messages: Iterable[Message], *, system: bool = False) -> Iterator[Item]:
    for m in messages:
        if system or m.role not in ("system", "developer"):
            yield from m.items


def chains(messages: Sequence[Message]) -> list[bytes]:
    """Chain hash up to each message: h_i = H(h_(i-1), fingerprint_i); system messages and empty ones leave it as it is."""
    found, chain = [], b""
    for m in messages:
        if m.print and m.role not in ("system", "developer"):
            chain = fingerprint(chain, m.print)
        found.append(chain)
    return found


def begin(
    request: Request,
    *,
    session_id: str,
    now: float,
    family: str = "",
    agent: str = "",
    parent: str = "",
    side: bool = False,
) -> Session:
    """A session that starts with `request`."""
    spoken = [m for m in request.messages if m.role == "user" and canonical(m.text)]
    return Session(
        id=session_id, api=request.api, family=family, agent=agent, side=side, parent=parent,
        system=system_text(request), tools=request.tools, created_at=now, last_seen_at=now,
        opening=frozenset(i.print for i in items_of(request.messages)),
        title=canonical(spoken[-1].text)[:80] if spoken else "",
    )  # fmt: skip


def advance(
    session: Session, request: Request, kept: Sequence[str | None], *, now: float, abandoned: Iterable[str] = ()
) -> tuple[Session, tuple[Filed, ...]]:
    """The session after `request`, and the messages that it had not held before.

    kept: for each message of the request the key under which the session already holds it, or None
    """
    system_keys, head, filed = dict(session.system_keys), [], []
    position, turn, keys = session.position, session.turn, set(session.keys)
    previous = head_chain(session) if request.delta else b""
    for m, chain, known_key in zip(request.messages, chains(request.messages), kept, strict=True):
        is_system = m.role in ("system", "developer")
        place = (
            fingerprint("system", m.print or m.raw)
            if is_system
            else fingerprint(previous, chain, m.raw if not m.print else b"")
        )
        key = known_key or (system_keys.get(m.print) if is_system else None) or place.hex()
        if is_system:
            system_keys[m.print] = key
        if key not in keys:
            turn += m.role == "user" and any(i.kind == "text" and canonical(i.text) for i in m.items)
            filed.append(Filed(key=key, position=position, turn=turn, message=m, side=session.side, created_at=now))
            position += 1
            keys.add(key)
        head.append(Entry(key, m, any(e.key == key and e.produced for e in session.head) if known_key else False))
    if request.delta:
        head = [*session.head, *head]
    after = replace(
        session, head=tuple(head), answered=False, keys=frozenset(keys), position=position, turn=turn,
        system_keys=tuple(system_keys.items()), last_seen_at=now, tools=request.tools or session.tools,
        system=system_text(request) or session.system, abandoned=(session.abandoned | set(abandoned)) - {e.key for e in head},
    )  # fmt: skip
    return after, tuple(filed)


def answered(session: Session, answer: Answer, *, now: float) -> tuple[Session, tuple[Filed, ...]]:
    """The session after the upstream's answer, and that answer as it is filed. Of several choices the first one leads."""
    chain = head_chain(session)
    position, head, filed, keys = session.position, list(session.head), [], set(session.keys)
    leading = answer.messages if session.api == "responses" else answer.messages[:1]
    for m in answer.messages:
        chain_here = fingerprint(chain, m.print) if m.print else fingerprint(chain, m.raw)
        key = fingerprint(b"", chain_here, b"").hex() if m.print else chain_here.hex()
        if key not in keys:
            filed.append(Filed(key=key, position=position, turn=session.turn, message=m, side=session.side,
                               partial=not answer.complete, created_at=now))  # fmt: skip
            position += 1
            keys.add(key)
        if m in leading:
            head.append(Entry(key, m, True))
            chain = chain_here if m.print else chain
    after = replace(
        session,
        head=tuple(head),
        answered=bool(answer.messages),
        keys=frozenset(keys),
        position=position,
        last_seen_at=now,
    )
    return after, tuple(filed)


def head_chain(session: Session) -> bytes:
    return (chains([e.message for e in session.head]) or [b""])[-1]
