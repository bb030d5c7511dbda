"""Adds sessions to memory so that later requests find them, and removes them.

    remember(known, session)                 as it is now: its head, ids, answers, the beginnings of its texts
    forget(known, *session_ids)              none of the indexes of `Known` names them any more

What a session holds in memory is counted, and the one seen longest ago makes room.
"""

from collections.abc import Iterable, Sequence, Set
from itertools import islice
from typing import Any

from lantern_proxy.analyze.specific import specifics
from lantern_proxy.history.agent_steps import fields_of
from lantern_proxy.history.prefill import prefilled_answer
from lantern_proxy.history.presentation import parts_of, shown_as, strings_of
from lantern_proxy.history.record import Entry, Session, chain_of, is_empty
from lantern_proxy.history.shared_prefix import chain_after, changed
from lantern_proxy.history.summaries import SUMMARY_CHARS
from lantern_proxy.history.transcript import last_line_of
from lantern_proxy.session.index import NAMED_CHARS, PROBE_CHARS, Known, Trace, claims_of, main_of
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


def remember(known: Known, session: Session, *, ids: Iterable[str] = (), asked: bytes = b"", family: str = "") -> None:
    """Index `session` as it is now, so that later requests find it. The session seen longest ago is dropped if there
    are too many.

    ids:    of its upstream, except those of messages
    asked:  chain hash of the head without its answer, if it has one
    family: another id under which its client continues
    """
    _change(known)
    before = known.sessions.get(session.id)
    known.sessions[session.id] = session
    known.sessions.move_to_end(session.id)
    for name in filter(None, {session.family, family}):
        if session.id not in known.by_family[name]:
            known.by_family[name].append(session.id)
    whole = prefilled_answer(session)
    ends, asks = _ends_of(session, asked, whole)
    _end(known.by_head, known.ends, session.id, ends if session.head else ())
    _end(known.by_asked, known.asks, session.id, asks if session.head else ())
    for value in ids:
        _name(known.by_id, value, session.id, known.traces)
    if whole is not None:
        _index(known, session, Entry("", whole, True))
    new = _unindexed(before.head if before else (), session.head)
    for entry in new:
        _index(known, session, entry)
    _take_up(known, session)
    if before is not None and len(session.head) < len(before.head) + len(new):  # something left it
        _resize(known, session.id, _size_of(known, session))
    else:
        _resize(known, session.id, known.sizes[session.id] + sum(map(_size_of_entry, new)))
    if len(known.sessions) > SIZE or known.size_bytes > MOST_BYTES:
        _make_room(known)


def _change(known: Known) -> None:
    known.changes += 1
    known.tell_several.clear()


def _take_up(known: Known, session: Session) -> None:
    """Count a text that a side call suggested as the user's, once the user says it last. A summary stays a side call's:
    it precedes what the user says."""
    if session.head and not session.side and (last := session.head[-1]).message.role == "user":
        said, text = known.said[session.id], plain(last.message.text)
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


def _make_room(known: Known) -> None:
    """Drop the sessions seen longest ago, except the newest, and those that wait for an answer, which has to be filed
    in them."""
    gone: list[str] = []
    held = known.size_bytes
    many, much = len(known.sessions) - SIZE + SIZE // _SPARE, MOST_BYTES - MOST_BYTES // _SPARE
    for sid in islice(known.sessions, len(known.sessions) - 1):
        if len(gone) >= many and held <= much:
            break
        if not known.in_flight.get(sid):
            gone.append(sid)
            held -= known.sizes[sid]
    forget(known, *gone)


def _unindexed(before: Sequence[Entry], now: Sequence[Entry]) -> list[Entry]:
    """The entries of `now` that `before` does not have, or has in another form."""
    found = [now[at] for at in changed(before, now) if _dress(now[at]) != _dress(before[at])] + [*now[len(before) :]]
    if len(found) <= _FEW:
        return found
    shown = {*map(_dress, before)}
    return [e for e in found if _dress(e) not in shown]


def _dress(entry: Entry) -> tuple[bytes, tuple[str, ...]]:
    return entry.message.print, entry.message.ids


def _size_of(known: Known, session: Session) -> int:
    """Bytes that a session takes in memory, about: its head and those of its branches, and what is remembered of
    messages that are no longer in these, their names and texts that may be quoted."""
    held = {id(e): e for state in (session, *session.forks) for e in state.head}
    gone = max(0, len(session.keys) - len(held))
    return sum(map(_size_of_entry, held.values())) + _GONE_BYTES * gone + known.said_chars[session.id]


def _size_of_entry(entry: Entry) -> int:
    return _MESSAGE_BYTES + _COPIES * len(entry.message.raw)


def _resize(known: Known, sid: str, size: int) -> None:
    known.size_bytes += size - known.sizes[sid]
    known.sizes[sid] = size


def _index(known: Known, session: Session, entry: Entry) -> None:
    """Make a message of `session` findable by its ids, its texts and their beginnings."""
    main = main_of(session)
    for text in fields_of(entry.message) if entry.produced and not session.side else ():
        _begin(known, text, main)
    for i in entry.message.items:
        for value in i.ids:
            is_minted = entry.produced or value in known.by_id
            if is_minted:
                _name(known.by_id, value, session.id, known.traces)
            if i.kind == "call":
                claims = is_minted and not is_random(value)
            else:
                claims = not is_minted and is_random(value) and bool(specifics(i.text[:NAMED_CHARS]))
            for claim in claims_of(i) if claims else ():
                _name(known.by_id, claim, session.id, known.traces)
        if entry.produced and i.kind in ("text", "call", "compaction"):
            _index_produced(known, session, main, i)
        elif i.kind in ("text", "result") and i.role in ("user", "tool") and not session.side:
            _say(known, main, plain(i.text), i.role)
            if i.role == "user":
                _keep_line(known, main, i.text)
            if i.role == "user" and i.print not in session.opening:
                _name(known.by_user, i.print, session.id, known.traces)


def _index_produced(known: Known, session: Session, main: str, i: Item) -> None:
    """Make an item that the upstream produced (a text, a call, a compaction item) lead to its session."""
    if session.side and i.kind != "compaction":  # a summary may be a part of an answer
        for text in map(plain, parts_of(i.text)):
            if len(text) >= SUMMARY_CHARS:
                _say(known, main, text, "side")
    if i.kind == "call":
        _pass(known, main, i)
    elif not is_empty(i):
        for text in shown_as(i.text) if i.kind == "text" else (i.text,):
            shown = i if text == i.text else item(i.role, i.kind, text)
            _name(known.by_answer, shown.print, session.id, known.traces)
            _say(known, main, plain(text), "side" if session.side else "assistant")


def _name(index: dict[Any, set[str]], value: str | bytes, sid: str, traces: dict[str, list[Trace]]) -> None:
    """Add a session to `index` under `value`, and record the entry in `traces`."""
    holders = index[value]
    if sid not in holders:
        holders.add(sid)
        traces[sid].append((index, value))


def _begin(known: Known, text: str, main: str) -> None:
    """Index the beginning of a text for `main`. text: at least PROBE_CHARS long"""
    start = text[:PROBE_CHARS]
    if start not in known.by_start:
        known.sought.add(start)
    _name(known.by_start, start, main, known.starts)


def _say(known: Known, main: str, text: str, who: str) -> None:
    said = known.said[main]
    if text and text not in said:
        said[text] = who
        known.said_chars[main] += len(text)
        if len(text) >= PROBE_CHARS:
            _begin(known, text, main)
        while len(said) > _SAID or (known.said_chars[main] > _SAID_CHARS and len(said) > 1):
            oldest = next(iter(said))
            del said[oldest]
            known.said_chars[main] -= len(oldest)


def _keep_line(known: Known, main: str, text: str) -> None:
    """Remember a user's text as a line, if the session's texts are read line by line; of several lines also the first
    alone, since orders may follow it."""
    said = last_line_of(text) or (text if main in known.lines else "")
    for line in dict.fromkeys((plain(said), plain(said.partition("\n")[0]))):
        if len(line) >= PROBE_CHARS:
            lines = known.lines.setdefault(main, {})
            lines[line] = None
            _begin(known, line, main)
            if len(lines) > _LINES:
                del lines[next(iter(lines))]


def _pass(known: Known, main: str, call: Item) -> None:
    passed = known.arguments[main]
    passed += [text for text in map(plain, strings_of(call.text)) if len(text) >= PROBE_CHARS]
    for text in passed[-8:]:
        _begin(known, text, main)
    del passed[:-_ARGUMENTS]


def _end(
    index: dict[bytes, list[str]], ends: dict[str, tuple[bytes, ...]], sid: str, chains: tuple[bytes, ...]
) -> None:
    """Let `index` name a session under `chains` and nothing else; () removes it. ends: session -> chains under which it
    is indexed"""
    for before in ends.pop(sid, ()):
        index[before].remove(sid)
        if not index[before]:
            del index[before]
    if chains:
        ends[sid] = chains
        for chain in chains:
            index[chain].append(sid)


def forget(known: Known, *session_ids: str) -> None:
    """Drop sessions from memory; the archive keeps them."""
    _change(known)
    gone = known.sessions.keys() & set(session_ids)
    for sid in gone:
        del known.sessions[sid]
        _end(known.by_head, known.ends, sid, ())
        _end(known.by_asked, known.asks, sid, ())
        known.size_bytes -= known.sizes.pop(sid, 0)
        known.in_flight.pop(sid, None)
    for family, members in [*known.by_family.items()] if gone else ():
        members[:] = [sid for sid in members if sid not in gone]
        if not members:
            del known.by_family[family]
    mains = set(map(main_of, known.sessions.values()))
    silent = (known.said.keys() | known.arguments.keys() | known.lines.keys()) - mains
    for sid in silent:
        for kept in (known.said, known.said_chars, known.arguments, known.lines):
            kept.pop(sid, None)
    _wipe(known.traces, gone)
    _wipe(known.starts, silent)


def _wipe(traces: dict[str, list[Trace]], gone: Set[str]) -> None:
    """Remove these sessions from all indexes."""
    for sid in gone:
        for index, value in traces.pop(sid, ()):
            holders = index.get(value)
            if holders is not None:
                holders.discard(sid)
                if not holders:
                    del index[value]
