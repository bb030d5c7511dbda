"""Sessions of one tenant that are in memory, and what finds them."""

from collections import Counter, OrderedDict, defaultdict
from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from lantern_proxy.analyze import starts
from lantern_proxy.analyze.specific import specifics
from lantern_proxy.analyze.starts import Starts
from lantern_proxy.history.begun import with_beginning
from lantern_proxy.history.dress import parts_of, strings_of
from lantern_proxy.history.record import Entry, Session, chain_of, is_empty
from lantern_proxy.history.same import chain_after, changed
from lantern_proxy.history.script import line_of
from lantern_proxy.history.steps import fields_of
from lantern_proxy.history.summaries import SUMMARY_CHARS
from lantern_proxy.history.text import shared_front, terms
from lantern_proxy.turn import Item, Message, is_random, plain

_Trace = tuple[dict[Any, set[str]], str | bytes]
"""An index, and what it is asked for."""

PROBE_CHARS = starts.CHARS
"""Shortest text that is looked for within other texts, and how much of its beginning finds it."""
QUOTED_CHARS = 20_000
"""How much of a text is searched for others within it."""
_SAID = 2_000
"""Texts remembered of one session, to find them within other texts."""
_SAID_CHARS = 4_000_000
"""Characters of them."""
SIZE, MOST_BYTES = 512, 64 << 20
"""Sessions kept in memory for one tenant, and what they take; older ones are found again in the archive."""
_SPARE = 16
"""Room is made for a sixteenth at once: to look through all that finds them costs as much for one as for many."""
_MESSAGE_BYTES, _COPIES = 1_500, 3
"""What a message takes in memory besides its text, and how often its text is there: as sent, as read, as compared."""
_GONE_BYTES = 400
"""What is left of a message that its client shows no more: its key, and what finds the session by it."""
_TERM_TEXTS, _TERM_CHARS = 200, 300
"""Of how many texts of a session, and of how much of each, the terms are taken."""
_NAMED_CHARS = 4_000
"""How much of each is looked through for names."""
_ARGUMENTS = _LINES = 200
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
    ends: dict[str, tuple[bytes, ...]] = field(default_factory=dict)
    """session -> under which chain hashes by_head has it"""
    by_asked: defaultdict[bytes, list[str]] = field(default_factory=lambda: defaultdict(list))
    """chain hash of what was asked last, without its answer -> sessions"""
    asks: dict[str, tuple[bytes, ...]] = field(default_factory=dict)
    """session -> under which chain hashes by_asked has it, first that of all that was asked"""
    by_start: defaultdict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    """beginning of a text -> main sessions that hold such a text"""
    sought: Starts = field(default_factory=Starts)
    """What by_start holds, and some that it held, for a look at all places of a text at once."""
    traces: defaultdict[str, list[_Trace]] = field(default_factory=lambda: defaultdict(list))
    """session -> where by_id, by_answer and by_user name it"""
    starts: defaultdict[str, list[_Trace]] = field(default_factory=lambda: defaultdict(list))
    """main session -> where by_start names it"""
    said: defaultdict[str, dict[str, str]] = field(default_factory=lambda: defaultdict(dict))
    """main session -> canonical text -> who said it: user, assistant, tool, or "side" for the answer of a side call"""
    arguments: defaultdict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    """main session -> long strings that its model passed to tools (the prompts of sub-agents among them)"""
    lines: dict[str, dict[str, None]] = field(default_factory=dict)
    """main session -> lines that its user said, behind their name, in texts that end in the name of who is to speak"""
    said_chars: Counter[str] = field(default_factory=Counter)
    in_flight: defaultdict[str, int] = field(default_factory=lambda: defaultdict(int))
    """session -> requests that wait for their answer"""
    sizes: Counter[str] = field(default_factory=Counter)
    """session -> bytes that it takes in memory, about"""
    size_bytes: int = 0
    """All of them together."""
    changes: int = 0
    """Counts what was remembered and forgotten: what link() said holds until the next one."""
    tell_several: dict[str, bool] = field(default_factory=dict)
    """text -> does it hold what side calls made of several sessions? Until the next change, too."""


def main_of(session: Session) -> str:
    """The conversation that a side session belongs to; itself for any other."""
    return session.parent if session.side and session.parent else session.id


def is_named(known: Known, value: str) -> bool:
    """Does an explicit id, or one that an upstream minted, name a session in memory?"""
    return value in known.sessions or value in known.by_family or value in known.by_id


def is_said_once(known: Known, text: str) -> bool:
    """Did exactly one session say or hear this text, however short? script.is_own() asks an index of long ones."""
    return sum(islice((1 for said in known.said.values() if text in said), 2)) == 1


def named(known: Known, id: str) -> list[str]:
    """Sessions that an id of their client names. An archive has several ids of one among the names of its answers."""
    family = known.by_family.get(id, [])
    return [*sorted(known.by_id.get(id, set()).difference(family)), *family]


def ids_of(i: Item) -> list[str]:
    """Under what by_id may have an item: as its upstream named it, or as its client claims."""
    return [*i.ids, *claims_of(i)]


def claims_of(i: Item) -> list[str]:
    """The ids of a result with its words: an id that no upstream was seen to mint may be the same for all that its
    client looks up for them, and what came of it is not."""
    return [f"{value} {i.print.hex()}" for value in i.ids] if i.kind == "result" else []


def side_id(parent: str, agent: str = "") -> str:
    """Of the session that all side calls of a conversation are filed under, or those of one of its agents."""
    return f"{parent}.{agent or 'side'}"


def side_of(known: Known, session: Session) -> Session | None:
    """Under which the side calls of a session are filed."""
    return known.sessions.get(side_id(session.id))


def holder_of(session: Session) -> str:
    """For whom it counts that a session holds a thing: a sub-agent for itself, other side sessions for the main one."""
    return session.id if session.agent else main_of(session)


def holders_of(known: Known, sids: Iterable[str]) -> set[str]:
    """The same of several."""
    return {holder_of(known.sessions[sid]) for sid in sids}


def heard(known: Known, print: bytes) -> set[str]:
    """Sessions in which an upstream or a user said a text."""
    return known.by_answer.get(print, set()) | known.by_user.get(print, set())


def quoted(known: Known, texts: Sequence[str]) -> list[str]:
    """Main sessions whose texts may stand within `texts`, most of them first. Only beginnings are compared."""
    hits: defaultdict[str, int] = defaultdict(int)
    if known.sought.room <= 0:
        known.sought = Starts(known.by_start)
    for text in texts:
        for _, start in known.sought.within(text[: QUOTED_CHARS + PROBE_CHARS - 1], known.by_start):
            for sid in known.by_start[start]:
                hits[sid] += 1
    alive = [sid for sid in hits if sid in known.sessions]
    return sorted(alive, key=lambda sid: (hits[sid], known.sessions[sid].last_seen_at), reverse=True)


def searched(texts: Sequence[str]) -> Sequence[str]:
    """Those of `texts` in which `quoted` need look: of a long history the first and the last."""
    return texts if len(texts) <= 12 else (*texts[:8], *texts[-4:])


def vocabulary(known: Known, sid: str) -> set[str]:
    """The terms of what was said in a session last."""
    return terms("\n".join(text[:_TERM_CHARS] for text in _said_last(known, sid)))


def named_in(known: Known, sid: str) -> str:
    """What was said in a session last, and what its model passed to tools: in which names are looked for."""
    passed = known.arguments.get(sid, ())
    return "\n".join([text[:_NAMED_CHARS] for text in (*_said_last(known, sid), *passed)])


def without_frame(known: Known, sids: Iterable[str], text: str) -> str:
    """`text` without the beginning and the end that it has in common with texts of these sessions: clients put the same
    words around the summaries of all their conversations. A text that stands in it as a whole is what was summed up."""
    others = [other for sid in sids for other in _said_last(known, sid) if other not in text]
    front = max((shared_front(text, other) for other in others), default=0)
    end = text[front:][: -_TERM_CHARS - 1 : -1]
    back = max((shared_front(end, other[: -_TERM_CHARS - 1 : -1]) for other in others), default=0)
    return text[front : len(text) - back]


def _said_last(known: Known, sid: str) -> list[str]:
    return list(known.said.get(sid, ()))[-_TERM_TEXTS:]


# --- remembering ---------------------------------------------------------------------------------------------------


def remember(known: Known, session: Session, *, ids: Iterable[str] = (), asked: bytes = b"", family: str = "") -> None:
    """Let `session`, as it is now, be found by later requests; the one seen longest ago makes room.

    ids: that its upstream gave it, but for those of messages
    asked: chain hash of its head without the answer, where it has one; family: another id that its client goes on under
    """
    _change(known)
    before = known.sessions.get(session.id)
    known.sessions[session.id] = session
    known.sessions.move_to_end(session.id)
    for name in filter(None, {session.family, family}):
        if session.id not in known.by_family[name]:
            known.by_family[name].append(session.id)
    whole = with_beginning(session)
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
        _resize(known, session.id, _size_of(session, known))
    else:
        _resize(known, session.id, known.sizes[session.id] + sum(map(_size_of_entry, new)))
    if len(known.sessions) > SIZE or known.size_bytes > MOST_BYTES:
        _make_room(known)


def _change(known: Known) -> None:
    known.changes += 1
    known.tell_several.clear()


def _take_up(known: Known, session: Session) -> None:
    """What a side call suggested is the user's once they say it; a summary stands in front of what they say."""
    if session.head and not session.side and (last := session.head[-1]).message.role == "user":
        said, text = known.said[session.id], plain(last.message.text)
        if said.get(text) == "side":
            said[text] = "user"


def _ends_of(
    session: Session, asked: bytes, whole: Message | None
) -> tuple[tuple[bytes, ...], tuple[bytes, ...]]:  # fmt: skip
    """Under which chain hashes by_head and by_asked have it: also under those of `whole`, the last answer in one
    message with the beginning that its client had written."""
    if whole is None:
        return (session.chain,), (asked or session.chain,)
    before = chain_of(session.head[:-2])
    return (session.chain, chain_after(before, whole)), (asked or session.chain, before)


def _make_room(known: Known) -> None:
    """Let go of those seen longest ago, but for the last one and those that wait for an answer, which is filed then."""
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
    """Messages that are new, or known in another dress."""
    found = [now[at] for at in changed(before, now) if _dress(now[at]) != _dress(before[at])] + [*now[len(before) :]]
    if len(found) <= _FEW:
        return found
    shown = {*map(_dress, before)}
    return [e for e in found if _dress(e) not in shown]


def _dress(entry: Entry) -> tuple[bytes, tuple[str, ...]]:
    return entry.message.print, entry.message.ids


def _size_of(session: Session, known: Known) -> int:
    """Of its head and those of its branches, and what is remembered of messages that left them: their names, and texts
    that may be quoted."""
    held = {id(e): e for state in (session, *session.forks) for e in state.head}
    gone = max(0, len(session.keys) - len(held))
    return sum(map(_size_of_entry, held.values())) + _GONE_BYTES * gone + known.said_chars[session.id]


def _size_of_entry(entry: Entry) -> int:
    return _MESSAGE_BYTES + _COPIES * len(entry.message.raw)


def _resize(known: Known, sid: str, size: int) -> None:
    known.size_bytes += size - known.sizes[sid]
    known.sizes[sid] = size


def _index(known: Known, session: Session, entry: Entry) -> None:
    """Let a message of `session` be found by what it is named, by its texts, and by what they begin with."""
    main = main_of(session)
    for text in fields_of(entry.message) if entry.produced and not session.side else ():
        _begin(known, text, main)
    for i in entry.message.items:
        for value in i.ids:
            if entry.produced or value in known.by_id:
                _name(known.by_id, value, session.id, known.traces)
            elif is_random(value) and specifics(i.text[:_NAMED_CHARS]):
                for claim in claims_of(i):
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
    """One of the upstream: a text, a call, a compaction item."""
    if session.side and i.kind != "compaction":  # a summary may be a part of an answer
        for text in map(plain, parts_of(i.text)):
            if len(text) >= SUMMARY_CHARS:
                _say(known, main, text, "side")
    if i.kind == "call":
        _pass(known, main, i)
    elif not is_empty(i):
        _name(known.by_answer, i.print, session.id, known.traces)
        _say(known, main, plain(i.text), "side" if session.side else "assistant")


def _name(index: dict[Any, set[str]], value: str | bytes, sid: str, traces: dict[str, list[_Trace]]) -> None:
    """Let `index` name a session for `value`, and note that it does."""
    holders = index[value]
    if sid not in holders:
        holders.add(sid)
        traces[sid].append((index, value))


def _begin(known: Known, text: str, main: str) -> None:
    """Let `main` be found by the beginning of a text. text: of PROBE_CHARS and more"""
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
    """Of several rows the first one, too: orders may stand behind what was said."""
    said = line_of(text) or (text if main in known.lines else "")
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
    """Let `index` name a session for `chains` instead of what it named it for; none: not at all."""
    for before in ends.pop(sid, ()):
        index[before].remove(sid)
        if not index[before]:
            del index[before]
    if chains:
        ends[sid] = chains
        for chain in chains:
            index[chain].append(sid)


def forget(known: Known, *session_ids: str) -> None:
    """Drop sessions from memory; the archive still has them."""
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


def _wipe(traces: dict[str, list[_Trace]], gone: Set[str]) -> None:
    """Let no index name these sessions any more."""
    for sid in gone:
        for index, value in traces.pop(sid, ()):
            holders = index.get(value)
            if holders is not None:
                holders.discard(sid)
                if not holders:
                    del index[value]
