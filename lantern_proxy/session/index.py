"""The sessions of one tenant in memory, and the indexes by which they are found. indexing.py fills them."""

from collections import Counter, OrderedDict, defaultdict
from collections.abc import Container, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

from msgspec import Struct, field

from lantern_proxy.analyze import starts
from lantern_proxy.analyze.starts import Starts
from lantern_proxy.history.record import Session
from lantern_proxy.history.text import breadth, shared_front, terms
from lantern_proxy.turn import Item, Message, is_random, plain

Trace = tuple[dict[Any, set[str]], str | bytes]
"""One of the indexes of `SessionIndex`, and a key under which it names a session."""

PROBE_CHARS = starts.CHARS
"""Shortest text that is looked for within other texts, and how much of its beginning finds it."""
_ENDS_CHARS = 20_000
"""Most characters at each end of a text that are searched for other texts."""
_TERM_TEXTS, _TERM_CHARS = 200, 300
"""The vocabulary of a session comes from this many of its latest texts, and this many characters of each."""
NAMED_CHARS = 4_000
"""Most characters from the beginning of a text that are searched for names."""
CANDIDATES = 16
"""Most sessions that are examined where a text leads to many."""


class SessionIndex(Struct):
    """Sessions of one tenant, and the indexes by which they are found."""

    sessions: OrderedDict[str, Session] = field(default_factory=OrderedDict)
    by_id: defaultdict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    """id that an upstream minted, or a claim (see claims_of) -> sessions"""
    by_answer: defaultdict[bytes, set[str]] = field(default_factory=lambda: defaultdict(set))
    """fingerprint of what an upstream produced -> sessions"""
    by_user: defaultdict[bytes, set[str]] = field(default_factory=lambda: defaultdict(set))
    """fingerprint of a user's text, except those of a session's first request -> sessions"""
    by_family: defaultdict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    """id that a client gives its session -> sessions, oldest first"""
    by_head: defaultdict[bytes, list[str]] = field(default_factory=lambda: defaultdict(list))
    """chain hash of a head -> sessions"""
    ends: dict[str, tuple[bytes, ...]] = {}
    """session -> its chain hashes in by_head"""
    by_asked: defaultdict[bytes, list[str]] = field(default_factory=lambda: defaultdict(list))
    """chain hash of the last request, without its answer -> sessions"""
    asks: dict[str, tuple[bytes, ...]] = {}
    """session -> its chain hashes in by_asked, that of the whole request first"""
    by_start: defaultdict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    """beginning of a text -> main sessions that hold such a text"""
    sought: Starts = field(default_factory=Starts)
    """The keys of by_start (and some dropped ones), in a form that finds all places of a text where one of them
    begins."""
    traces: defaultdict[str, list[Trace]] = field(default_factory=lambda: defaultdict(list))
    """session -> its entries in by_id, by_answer and by_user"""
    starts: defaultdict[str, list[Trace]] = field(default_factory=lambda: defaultdict(list))
    """main session -> its entries in by_start"""
    said: defaultdict[str, dict[str, str]] = field(default_factory=lambda: defaultdict(dict))
    """main session -> canonical text -> who said it: user, assistant, tool, or "side" for the answer of a side call"""
    arguments: defaultdict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    """main session -> long strings that its model passed to tools, such as the prompts of sub-agents"""
    lines: dict[str, dict[str, None]] = {}
    """main session -> what its user said, line by line after their name, in transcripts that end in the next speaker's
    name"""
    said_chars: Counter[str] = field(default_factory=Counter)
    in_flight: defaultdict[str, int] = field(default_factory=lambda: defaultdict(int))
    """session -> requests that wait for their answer"""
    sizes: Counter[str] = field(default_factory=Counter)
    """session -> roughly how many bytes it takes in memory"""
    size_bytes: int = 0
    """Sum of `sizes`."""
    changes: int = 0
    """How often a session was added or removed. A result of link() is valid until this changes."""
    tell_several: dict[str, bool] = {}
    """text -> does it hold the results of side calls of several sessions? Also valid until `changes` changes."""


def main_of(session: Session) -> str:
    """The conversation that a side session belongs to; itself for any other."""
    return session.parent if session.side and session.parent else session.id


def is_named(index: SessionIndex, value: str) -> bool:
    """Does an explicit id, or one that an upstream minted, name a session in memory?"""
    return value in index.sessions or value in index.by_family or value in index.by_id


def sayer_of(index: SessionIndex, text: str) -> str:
    """The only conversation in which this text, however short, was said; "" if it was said in none, or in several. For
    long texts is_own() asks an index instead."""
    sids = [*islice((sid for sid, said in index.said.items() if text in said), 2)]
    return sids[0] if len(sids) == 1 else ""


def who_said(index: SessionIndex, text: str) -> Iterator[tuple[str, str]]:
    """(main session, who said this text there), for a text of PROBE_CHARS or more. Who: as in SessionIndex.said"""
    for sid in index.by_start.get(text[:PROBE_CHARS], ()):
        if (who := index.said.get(sid, {}).get(text)) is not None:
            yield sid, who


def sessions_at(index: SessionIndex, place: str) -> Iterator[Session]:
    """The conversations that came to a place, message by message, wherever they are now. place: as place_key() gives
    it"""
    return (s for s in index.sessions.values() if place in s.keys and not s.side)


def telling_texts(message: Message) -> Iterator[str]:
    """The texts of a message that are more than a word or two."""
    texts = (plain(i.text) for i in message.items if i.kind == "text")
    return (text for text in texts if breadth(text) >= PROBE_CHARS)


def is_ones_own(index: SessionIndex, session: Session, message: Message) -> bool:
    """Does a message hold a text of more than a word or two that was said only in this session?"""
    return any(sayer_of(index, text) == session.id for text in telling_texts(message))


def ids_named(index: SessionIndex, id: str) -> list[str]:
    """Ids of the sessions that a client's id names. After a restart by_id has such ids, too, since the archive keeps
    them together with the ids of answers."""
    family = index.by_family.get(id, [])
    return [*sorted(index.by_id.get(id, set()).difference(family)), *family]


def ids_of(i: Item, numbers: Container[str]) -> list[str]:
    """The keys under which by_id may have an item: ids that its upstream minted, and claims_of() it.

    numbers: see numbers_of() the request
    """
    return [*(value for value in i.ids if value not in numbers), *claims_of(i)]


def numbers_of(messages: Iterable[Message]) -> set[str]:
    """Call ids in some messages that may be mere numbers. Alone they prove nothing, nor does such an id with its
    result, since what was called is shown as well."""
    return {value for m in messages for call in m.calls for value in call.ids if not is_random(value)}


def claims_of(i: Item) -> list[str]:
    """Keys of a call or a tool result, each made of an id and a fingerprint of the call or result.

    Some models number their calls, and an id that no upstream was seen to mint may come from the client, which may use
    it for everybody. Together with what is called, or with the result, it tells sessions apart.
    """
    return [f"{value} {i.print.hex()}" for value in i.ids] if i.kind in ("call", "result") else []


def side_id(parent: str, agent: str = "") -> str:
    """Id of the session under which all side calls of a conversation are filed, or those of one of its sub-agents."""
    return f"{parent}.{agent or 'side'}"


def side_of(index: SessionIndex, session: Session) -> Session | None:
    """The session under which the side calls of `session` are filed; None when there were none."""
    return index.sessions.get(side_id(session.id))


def side_since(index: SessionIndex, session: Session) -> Session | None:
    """The same, if it was answered after the last message of `session`; else None."""
    side = side_of(index, session)
    return side if side is not None and side.answered and side.last_seen_at > session.last_seen_at else None


def holder_of(session: Session) -> str:
    """Id of the session that is credited with what `session` holds: a sub-agent's session itself, and for any other
    side session its conversation."""
    return session.id if session.agent else main_of(session)


def holders_of(index: SessionIndex, sids: Iterable[str]) -> set[str]:
    """holder_of() for each of these sessions."""
    return {holder_of(index.sessions[sid]) for sid in sids}


def receivers_of(index: SessionIndex, items: Iterable[Item]) -> set[str]:
    """Ids of the sessions that got one of these items in an answer."""
    return {sid for i in items for sid in index.by_answer.get(i.print, ())}


def is_greeting(index: SessionIndex, items: Iterable[Item]) -> bool:
    """Is one of these items in the opening of a conversation, where its upstream did not say it? A program may greet
    everybody in words that its model uses as well."""
    prints = {i.print for i in items}
    return any(not prints.isdisjoint(s.opening) for s in index.sessions.values())


def holding_sessions(index: SessionIndex, print: bytes) -> set[str]:
    """Ids of the sessions in which an upstream or a user said the text with this fingerprint."""
    return index.by_answer.get(print, set()) | index.by_user.get(print, set())


def sessions_quoted(index: SessionIndex, texts: Sequence[str]) -> list[str]:
    """Ids of main sessions whose texts may stand within `texts`, those with most matches first. Only the beginnings of
    their texts are looked for."""
    hits: defaultdict[str, int] = defaultdict(int)
    if index.sought.capacity <= 0:
        index.sought = Starts(index.by_start)
    for text in texts:
        for _, start in index.sought.within(ends_of(text), index.by_start):
            for sid in index.by_start[start]:
                hits[sid] += 1
    alive = [sid for sid in hits if sid in index.sessions]
    return sorted(alive, key=lambda sid: (hits[sid], index.sessions[sid].last_seen_at), reverse=True)


def ends_of(text: str) -> str:
    """A text, or both ends of a long one: a transcript may begin with a listing, and ends in what was said last."""
    return text if len(text) <= 2 * _ENDS_CHARS else f"{text[:_ENDS_CHARS]}\n{text[-_ENDS_CHARS:]}"


def searchable(texts: Sequence[str]) -> Sequence[str]:
    """The texts that sessions_quoted() has to search: the first and the last ones of a long history."""
    return texts if len(texts) <= 12 else (*texts[:8], *texts[-4:])


def vocabulary(index: SessionIndex, sid: str) -> set[str]:
    """The terms of a session's latest texts."""
    return terms("\n".join(text[:_TERM_CHARS] for text in _said_last(index, sid)))


def text_with_names(index: SessionIndex, sid: str) -> str:
    """A session's latest texts and tool arguments, in which names are looked for."""
    passed = index.arguments.get(sid, ())
    return "\n".join([text[:NAMED_CHARS] for text in (*_said_last(index, sid), *passed)])


def without_frame(index: SessionIndex, sids: Iterable[str], text: str) -> str:
    """`text` without the beginning and end that it shares with texts of these sessions: clients put the same words
    around all their summaries. A text that it contains as a whole is ignored, since that is what it sums up."""
    others = [other for sid in sids for other in _said_last(index, sid) if other not in text]
    front = max((shared_front(text, other) for other in others), default=0)
    end = text[front:][: -_TERM_CHARS - 1 : -1]
    back = max((shared_front(end, other[: -_TERM_CHARS - 1 : -1]) for other in others), default=0)
    return text[front : len(text) - back]


def _said_last(index: SessionIndex, sid: str) -> list[str]:
    return list(index.said.get(sid, ()))[-_TERM_TEXTS:]
