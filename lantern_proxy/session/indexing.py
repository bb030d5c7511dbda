"""Adds sessions to memory so that later requests find them, and removes them.

    remember(index, session)                 as it is now: its head, ids, answers, the beginnings of its texts
    forget(index, *session_ids)              none of the indexes of `SessionIndex` names them any more

What a session holds in memory is counted, and the one seen longest ago makes room.
"""

from collections.abc import Iterable, Sequence, Set
from itertools import islice
from typing import Any

from lantern_proxy.analyze.specific import specifics
from lantern_proxy.history.agent_steps import fields_of
from lantern_proxy.history.prefill import prefilled_answer
from lantern_proxy.history.presentation import parts_of, shown_as, strings_of
from lantern_proxy.history.record import Entry, Session, chain_of, is_empty, left_states
from lantern_proxy.history.shared_prefix import chain_after, changed
from lantern_proxy.history.summaries import is_long_text
from lantern_proxy.history.transcript import last_line_of
from lantern_proxy.session.index import NAMED_CHARS, PROBE_CHARS, SessionIndex, Trace, claims_of, main_of
from lantern_proxy.turn import Item, Message, is_random, item, plain

_SAID = 2_000
"""Most texts remembered per session, to find them within other texts."""
_SAID_CHARS = 4_000_000
"""Most characters of these texts."""
SIZE, MOST_BYTES = 512, 64 << 20
"""Most sessions of one tenant in memory, and most bytes they take; others are loaded from the archive again."""
_SPARE = 16
"""When room is made, one session in this many is removed at once: scanning the indexes costs as much for one as for
many."""
_MESSAGE_BYTES, _COPIES = 1_500, 3
"""Bytes that a message takes in memory besides its text, and how many copies of its text there are: as sent, read and
compared."""
_GONE_BYTES = 400
"""Bytes that remain of a message which its client no longer shows: its key, and the index entries that lead to the
session."""
_ARGUMENTS = _LINES = 200
"""Most long arguments of calls, and most lines, remembered per session: the latest ones."""
_FEW = 16
"""Up to this many new messages are indexed without checking whether the session holds them elsewhere."""


def remember(
    index: SessionIndex, session: Session, *, ids: Iterable[str] = (), asked: bytes = b"", family: str = ""
) -> None:
    """Index `session` as it is now, so that later requests find it. The session seen longest ago is dropped if there
    are too many.

    ids:    of its upstream, except those of messages
    asked:  chain hash of the head without its answer, if it has one
    family: another id under which its client continues
    """
    _change(index)
    before = index.sessions.get(session.id)
    index.sessions[session.id] = session
    index.sessions.move_to_end(session.id)
    for name in filter(None, {session.family, family}):
        if session.id not in index.by_family[name]:
            index.by_family[name].append(session.id)
    whole = prefilled_answer(session)
    ends, asks = _ends_of(session, asked, whole)
    _end(index.by_head, index.ends, session.id, ends if session.head else ())
    _end(index.by_asked, index.asks, session.id, asks if session.head else ())
    for value in ids:
        _name(index.by_id, value, session.id, index.traces)
    if whole is not None:
        _index(index, session, Entry("", whole, True))
    new = _unindexed(before.head if before else (), session.head)
    for entry in new:
        _index(index, session, entry)
    _take_up(index, session)
    if before is not None and _lets_go(session, before, new):
        _resize(index, session.id, _size_of(index, session))
    else:
        _resize(index, session.id, index.sizes[session.id] + sum(map(_size_of_entry, new)))
    if len(index.sessions) > SIZE or index.size_bytes > MOST_BYTES:
        _make_room(index)


def _lets_go(session: Session, before: Session, new: Sequence[Entry]) -> bool:
    """Does a session no longer show a message that it showed `before`, or no longer keep a state that it left?"""
    is_shorter = len(session.head) < len(before.head) + len(new)
    return is_shorter or len(left_states(session)) < len(left_states(before))


def _change(index: SessionIndex) -> None:
    index.changes += 1
    index.tell_several.clear()


def _take_up(index: SessionIndex, session: Session) -> None:
    """Count a text that a side call suggested as the user's, once the user says it last. A summary stays a side call's:
    it precedes what the user says."""
    if session.head and not session.side and (last := session.head[-1]).message.role == "user":
        said, text = index.said[session.id], plain(last.message.text)
        if said.get(text) == "side":
            said[text] = "user"


def _ends_of(
    session: Session, asked: bytes, whole: Message | None
) -> tuple[tuple[bytes, ...], tuple[bytes, ...]]:  # fmt: skip
    """The chain hashes under which by_head and by_asked have the session.

    whole: the last answer joined to its prefilled beginning, if it has one: the client may send either form
    """
    if whole is None:
        return (session.chain,), (asked or session.chain,)
    before = chain_of(session.head[:-2])
    return (session.chain, chain_after(before, whole)), (asked or session.chain, before)


def _make_room(index: SessionIndex) -> None:
    """Drop the sessions seen longest ago, except the newest, and those that wait for an answer, which has to be filed
    in them."""
    gone: list[str] = []
    held = index.size_bytes
    many, much = len(index.sessions) - SIZE + SIZE // _SPARE, MOST_BYTES - MOST_BYTES // _SPARE
    for sid in islice(index.sessions, len(index.sessions) - 1):
        if len(gone) >= many and held <= much:
            break
        if not index.in_flight.get(sid):
            gone.append(sid)
            held -= index.sizes[sid]
    forget(index, *gone)


def _unindexed(before: Sequence[Entry], now: Sequence[Entry]) -> list[Entry]:
    """The entries of `now` that `before` does not have, or has in another form."""
    found = [now[at] for at in changed(before, now) if _dress(now[at]) != _dress(before[at])] + [*now[len(before) :]]
    if len(found) <= _FEW:
        return found
    shown = {*map(_dress, before)}
    return [e for e in found if _dress(e) not in shown]


def _dress(entry: Entry) -> tuple[bytes, tuple[str, ...]]:
    return entry.message.print, entry.message.ids


def _size_of(index: SessionIndex, session: Session) -> int:
    """Bytes that a session takes in memory, about: its head and those of states it left, and what is remembered of
    messages that are no longer in these, their names and texts that may be quoted."""
    held = {id(e): e for state in (session, *left_states(session)) for e in state.head}
    gone = max(0, len(session.keys) - len(held))
    return sum(map(_size_of_entry, held.values())) + _GONE_BYTES * gone + index.said_chars[session.id]


def _size_of_entry(entry: Entry) -> int:
    return _MESSAGE_BYTES + _COPIES * len(entry.message.raw)


def _resize(index: SessionIndex, sid: str, size: int) -> None:
    index.size_bytes += size - index.sizes[sid]
    index.sizes[sid] = size


def _index(index: SessionIndex, session: Session, entry: Entry) -> None:
    """Make a message of `session` findable by its ids, its texts and their beginnings."""
    main = main_of(session)
    for text in fields_of(entry.message) if entry.produced and not session.side else ():
        _begin(index, text, main)
    for i in entry.message.items:
        for value in i.ids:
            is_minted = entry.produced or value in index.by_id
            if is_minted:
                _name(index.by_id, value, session.id, index.traces)
            if i.kind == "call":
                claims = is_minted and not is_random(value)
            else:
                claims = not is_minted and is_random(value) and bool(specifics(i.text[:NAMED_CHARS]))
            for claim in claims_of(i) if claims else ():
                _name(index.by_id, claim, session.id, index.traces)
        if entry.produced and i.kind in ("text", "call", "compaction"):
            _index_produced(index, session, main, i)
        elif i.kind in ("text", "result") and i.role in ("user", "tool") and not session.side:
            _say(index, main, plain(i.text), i.role)
            if i.role == "user":
                _keep_line(index, main, i.text)
            if i.role == "user" and i.print not in session.opening:
                _name(index.by_user, i.print, session.id, index.traces)


def _index_produced(index: SessionIndex, session: Session, main: str, i: Item) -> None:
    """Make an item that the upstream produced (a text, a call, a compaction item) lead to its session."""
    if session.side and i.kind != "compaction":  # a summary may be a part of an answer
        for text in map(plain, parts_of(i.text)):
            if is_long_text(text):
                _say(index, main, text, "side")
    if i.kind == "call":
        _pass(index, main, i)
    elif not is_empty(i):
        for text in shown_as(i.text) if i.kind == "text" else (i.text,):
            shown = i if text == i.text else item(i.role, i.kind, text)
            _name(index.by_answer, shown.print, session.id, index.traces)
            _say(index, main, plain(text), "side" if session.side else "assistant")


def _name(table: dict[Any, set[str]], value: str | bytes, sid: str, traces: dict[str, list[Trace]]) -> None:
    """Add a session to `table` under `value`, and record the entry in `traces`."""
    holders = table[value]
    if sid not in holders:
        holders.add(sid)
        traces[sid].append((table, value))


def _begin(index: SessionIndex, text: str, main: str) -> None:
    """Index the beginning of a text for `main`. text: at least PROBE_CHARS long"""
    start = text[:PROBE_CHARS]
    if start not in index.by_start:
        index.sought.add(start)
    _name(index.by_start, start, main, index.starts)


def _say(index: SessionIndex, main: str, text: str, who: str) -> None:
    said = index.said[main]
    if text and text not in said:
        said[text] = who
        index.said_chars[main] += len(text)
        if len(text) >= PROBE_CHARS:
            _begin(index, text, main)
        while len(said) > _SAID or (index.said_chars[main] > _SAID_CHARS and len(said) > 1):
            oldest = next(iter(said))
            del said[oldest]
            index.said_chars[main] -= len(oldest)


def _keep_line(index: SessionIndex, main: str, text: str) -> None:
    """Remember a user's text as a line, if the session's texts are read line by line; of several lines also the first
    alone, since orders may follow it."""
    said = last_line_of(text) or (text if main in index.lines else "")
    for line in dict.fromkeys((plain(said), plain(said.partition("\n")[0]))):
        if len(line) >= PROBE_CHARS:
            lines = index.lines.setdefault(main, {})
            lines[line] = None
            _begin(index, line, main)
            if len(lines) > _LINES:
                del lines[next(iter(lines))]


def _pass(index: SessionIndex, main: str, call: Item) -> None:
    passed = index.arguments[main]
    passed += [text for text in map(plain, strings_of(call.text)) if len(text) >= PROBE_CHARS]
    for text in passed[-8:]:
        _begin(index, text, main)
    del passed[:-_ARGUMENTS]


def _end(
    table: dict[bytes, list[str]], ends: dict[str, tuple[bytes, ...]], sid: str, chains: tuple[bytes, ...]
) -> None:
    """Let `table` name a session under `chains` and nothing else; () removes it. ends: session -> chains under which it
    is indexed"""
    for before in ends.pop(sid, ()):
        table[before].remove(sid)
        if not table[before]:
            del table[before]
    if chains:
        ends[sid] = chains
        for chain in chains:
            table[chain].append(sid)


def forget(index: SessionIndex, *session_ids: str) -> None:
    """Drop sessions from memory; the archive keeps them."""
    _change(index)
    gone = index.sessions.keys() & set(session_ids)
    for sid in gone:
        del index.sessions[sid]
        _end(index.by_head, index.ends, sid, ())
        _end(index.by_asked, index.asks, sid, ())
        index.size_bytes -= index.sizes.pop(sid, 0)
        index.in_flight.pop(sid, None)
    for family, members in [*index.by_family.items()] if gone else ():
        members[:] = [sid for sid in members if sid not in gone]
        if not members:
            del index.by_family[family]
    mains = set(map(main_of, index.sessions.values()))
    silent = (index.said.keys() | index.arguments.keys() | index.lines.keys()) - mains
    for sid in silent:
        for kept in (index.said, index.said_chars, index.arguments, index.lines):
            kept.pop(sid, None)
    _wipe(index.traces, gone)
    _wipe(index.starts, silent)


def _wipe(traces: dict[str, list[Trace]], gone: Set[str]) -> None:
    """Remove these sessions from all indexes."""
    for sid in gone:
        for table, value in traces.pop(sid, ()):
            holders = table.get(value)
            if holders is not None:
                holders.discard(sid)
                if not holders:
                    del table[value]
