"""Sessions of one tenant that are in memory, and what finds them."""

from collections import OrderedDict, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import msgspec

from lantern_proxy.history import Entry, Session, head_chain, is_empty, plain, terms
from lantern_proxy.history_same import changed
from lantern_proxy.turn import Item

_K = TypeVar("_K")

PROBE_CHARS = 20
"""Shortest text that is looked for within other texts, and how much of its beginning finds it."""
_SAID = 2_000
"""Texts remembered of one session, to find them within other texts."""
SIZE = 512
"""Sessions kept in memory for one tenant; older ones are found again in the archive."""
_TERM_TEXTS, _TERM_CHARS = 200, 300
"""Of how many texts of a session, and of how much of each, the terms are taken."""
_ARGUMENTS = 200
_FEW = 16
"""So many new messages are looked at one by one."""


@dataclass(slots=True)
class Known:
    """Sessions of one tenant, and what finds them."""

    sessions: OrderedDict[str, Session] = field(default_factory=OrderedDict)
    by_id: defaultdict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    by_answer: defaultdict[bytes, set[str]] = field(default_factory=lambda: defaultdict(set))
    by_user: defaultdict[bytes, set[str]] = field(default_factory=lambda: defaultdict(set))
    by_family: defaultdict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    by_head: defaultdict[bytes, list[str]] = field(default_factory=lambda: defaultdict(list))
    ends: dict[str, bytes] = field(default_factory=dict)
    """session -> under which chain hash by_head has it"""
    by_start: defaultdict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    """beginning of a text -> main sessions that hold such a text"""
    said: defaultdict[str, dict[str, str]] = field(default_factory=lambda: defaultdict(dict))
    """main session -> canonical text -> who said it: user, assistant, tool, or "side" for the answer of a side call"""
    arguments: defaultdict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    """main session -> long strings that its model passed to tools (the prompts of sub-agents among them)"""
    in_flight: defaultdict[str, int] = field(default_factory=lambda: defaultdict(int))
    """session -> requests that wait for their answer"""


def main_of(session: Session) -> str:
    """The conversation that a side session belongs to; itself for any other."""
    return session.parent if session.side and session.parent else session.id


def quoted(known: Known, texts: Sequence[str], *, most: int = 20_000) -> list[str]:
    """Main sessions whose texts may stand within `texts` (only their beginnings are compared), most of them first.

    most: characters of each text that are searched; of a long history the first texts and the last
    """
    hits: defaultdict[str, int] = defaultdict(int)
    for text in texts if len(texts) <= 12 else (*texts[:8], *texts[-4:]):
        for at in range(min(len(text), most)):
            if (at == 0 or not text[at - 1].isalnum()) and (found := known.by_start.get(text[at : at + PROBE_CHARS])):
                for sid in found:
                    hits[sid] += 1
    alive = [sid for sid in hits if sid in known.sessions]
    return sorted(alive, key=lambda sid: (hits[sid], known.sessions[sid].last_seen_at), reverse=True)


def vocabulary(known: Known, sid: str) -> set[str]:
    """The terms of what was said in a session last."""
    said = list(known.said.get(sid, ()))[-_TERM_TEXTS:]
    return terms("\n".join(text[:_TERM_CHARS] for text in said))


# --- remembering ---------------------------------------------------------------------------------------------------


def remember(known: Known, session: Session, *, ids: Iterable[str] = ()) -> None:
    """Let `session`, as it is now, be found by later requests; the one seen longest ago makes room."""
    before = known.sessions.get(session.id)
    _forget_head(known, session.id)
    known.sessions[session.id] = session
    known.sessions.move_to_end(session.id)
    if session.family and session.id not in known.by_family[session.family]:
        known.by_family[session.family].append(session.id)
    if session.head:
        known.ends[session.id] = head_chain(session)
        known.by_head[known.ends[session.id]].append(session.id)
    for value in ids:
        known.by_id[value].add(session.id)
    for entry in _unindexed(before.head if before else (), session.head):
        _index(known, session, entry)
    while len(known.sessions) > SIZE:
        forget(known, next(iter(known.sessions)))


def _unindexed(before: Sequence[Entry], now: Sequence[Entry]) -> list[Entry]:
    """Messages that are new, or known in another dress."""
    found = [now[at] for at in changed(before, now) if _dress(now[at]) != _dress(before[at])] + [*now[len(before) :]]
    if len(found) <= _FEW:
        return found
    shown = {*map(_dress, before)}
    return [e for e in found if _dress(e) not in shown]


def _dress(entry: Entry) -> tuple[bytes, tuple[str, ...]]:
    return entry.message.print, entry.message.ids


def _index(known: Known, session: Session, entry: Entry) -> None:
    main = main_of(session)
    for i in entry.message.items:
        for value in i.ids:
            known.by_id[value].add(session.id)
        if i.kind == "text" and entry.produced and not is_empty(i):
            known.by_answer[i.print].add(session.id)
            _say(known, main, plain(i.text), "side" if session.side else "assistant")
        elif i.kind in ("text", "result") and not session.side and i.role in ("user", "tool"):
            _say(known, main, plain(i.text), i.role)
            if i.role == "user" and i.print not in session.opening:
                known.by_user[i.print].add(session.id)
        elif i.kind == "call" and entry.produced:
            _pass(known, main, i)


def _say(known: Known, main: str, text: str, who: str) -> None:
    said = known.said[main]
    if text and text not in said:
        said[text] = who
        if len(text) >= PROBE_CHARS:
            known.by_start[text[:PROBE_CHARS]].add(main)
        if len(said) > _SAID:
            del said[next(iter(said))]


def _pass(known: Known, main: str, call: Item) -> None:
    passed = known.arguments[main]
    passed += [text for text in map(plain, _strings(call.text)) if len(text) >= PROBE_CHARS]
    for text in passed[-8:]:
        known.by_start[text[:PROBE_CHARS]].add(main)
    del passed[:-_ARGUMENTS]


def _strings(arguments: str) -> Iterator[str]:
    """Every string within a call's JSON arguments."""
    try:
        pending = [msgspec.json.decode(arguments)]
    except msgspec.DecodeError:
        pending = [arguments]
    while pending:
        value = pending.pop()
        if isinstance(value, str):
            yield value
        elif isinstance(value, dict):
            pending += value.values()
        elif isinstance(value, list):
            pending += value


def _forget_head(known: Known, session_id: str) -> None:
    end = known.ends.pop(session_id, None)
    if end is None:
        return
    holders = known.by_head.get(end, [])
    if session_id in holders:
        holders.remove(session_id)
    if not holders:
        known.by_head.pop(end, None)


def forget(known: Known, session_id: str) -> None:
    """Drop a session from memory; the archive still has it."""
    session = known.sessions.pop(session_id, None)
    if session is None:
        return
    _forget_head(known, session_id)
    starts = [text[:PROBE_CHARS] for text in (*known.said.pop(session_id, ()), *known.arguments.pop(session_id, ()))]
    _discard(known.by_start, session_id, starts)
    known.in_flight.pop(session_id, None)
    _discard(known.by_id, session_id)
    _discard(known.by_answer, session_id)
    _discard(known.by_user, session_id)
    members = known.by_family.get(session.family, [])
    if session_id in members:
        members.remove(session_id)


def _discard(index: dict[_K, set[str]], session_id: str, values: Sequence[_K] | None = None) -> None:
    held = [v for v, holders in index.items() if session_id in holders] if values is None else values
    for value in held:
        index.get(value, set()).discard(session_id)
        if value in index and not index[value]:
            del index[value]
