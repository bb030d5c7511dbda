"""Which session does this request belong to?

A client names its session, or it does not; then content decides. Evidence, strongest first (wire notes, section 2):

    explicit ids            name a family; within it the class of the system prompt tells the conversation from side calls
    the head                the request continues, message by message, what the session showed last
    minted ids              tool call ids, output item ids: 5 each
    produced answers        text the upstream produced in that session: 3, divided by the sessions that hold it
    later user text         seen in one session only: 1; what stood in the session's first request: 0
    a known summary         the answer of a side call stands in the request
    a marker                words that clients put around summaries; only when nothing else can tell

Nothing is ever linked across two APIs, and a `Known` holds one tenant only.
"""

import re
from collections import OrderedDict, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

import msgspec

from lantern_proxy.history import (
    SUMMARY_CHARS,
    Entry,
    Session,
    chains,
    extends_system,
    has_marker,
    head_chain,
    items_of,
    same_system,
    system_text,
)
from lantern_proxy.turn import Identity, Request, canonical

_K = TypeVar("_K")

WEAK_IDS = frozenset({"prompt_cache_key"})
"""Ids that may stand for many conversations of one program: a hint beside other evidence, never proof."""
RECENT_S = 6 * 3600.0
"""How long a session stays a candidate when only a marker speaks for it."""
_SAID = 2_000
"""Texts remembered of one session, to find them within other texts."""
_SIZE = 512
"""Sessions kept in memory for one tenant; older ones are found again in the archive."""
_PROBE_SESSIONS, _PROBE_TEXTS, _PROBE_CHARS = 64, 60, 20

_SUMMARISE = re.compile(
    r"(?:summar|compact|condens|checkpoint|handoff|hand-off|snapshot|distil)\w*.{0,200}?"
    r"(?:conversation|session|context|discussion|chat|so far|history|continu|work|state)"
    r"|(?:conversation|session|context|chat|history|state).{0,120}?(?:summar|compact|condens|checkpoint|handoff|snapshot)",
    re.I | re.S,
)
_TITLE = re.compile(r"\btitle\b", re.I)
_GENERATE = re.compile(r"generat|creat|write|come up|respond with|output|provide|concise|brief|short", re.I)


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """Where a request belongs."""

    session: Session | None = None
    """None: a session that was never seen. With `side` the conversation that the side call is about, or a sub-agent's own."""
    side: bool = False
    agent: str = ""
    restart: bool = False
    """Linked by an id, a summary or a marker alone: nothing that the session held needs to be in the request."""
    why: str = ""
    family: str = ""
    parent: str = ""
    """The session that a new side session belongs to."""


@dataclass(slots=True)
class Known:
    """Sessions of one tenant, and what finds them."""

    sessions: OrderedDict[str, Session] = field(default_factory=OrderedDict)
    by_id: defaultdict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    by_answer: defaultdict[bytes, set[str]] = field(default_factory=lambda: defaultdict(set))
    by_user: defaultdict[bytes, set[str]] = field(default_factory=lambda: defaultdict(set))
    by_family: defaultdict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    by_head: defaultdict[bytes, list[str]] = field(default_factory=lambda: defaultdict(list))
    said: defaultdict[str, dict[str, str]] = field(default_factory=lambda: defaultdict(dict))
    """main session -> canonical text -> who said it: user, assistant, tool, or "side" for the answer of a side call"""
    arguments: defaultdict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    """main session -> long strings that its model passed to tools (the prompts of sub-agents among them)"""


# --- linking -------------------------------------------------------------------------------------------------------


def link(known: Known, request: Request, identity: Identity, now: float) -> Link:
    """The session that `request` belongs to, by the strongest evidence there is."""
    ids = (*identity.ids, *request.ids)
    strong = [value for name, value in ids if name not in WEAK_IDS]
    weak = [value for name, value in ids if name in WEAK_IDS]
    found = (
        _stored(known, ids) or _by_family(known, request, identity, strong) or _by_content(known, request, weak, now)
    )
    if found is None:
        found = Link(why="nothing known", side=is_title_call(request))
    if _is_new_id(found, strong):
        found = Link(why="known content under a new id", parent=found.session.id if found.session else "")
    side = found.side or bool(identity.agent) or bool({"side", "compact"} & (identity.signals | request.signals))
    return replace(found, family=next(iter((*strong, *weak)), ""), side=side, agent=found.agent or identity.agent)


def _is_new_id(found: Link, strong: Sequence[str]) -> bool:
    session = found.session
    return bool(
        session
        and strong
        and session.family
        and session.family not in strong
        and not found.side
        and found.why != "stored"
    )


def _stored(known: Known, ids: Sequence[tuple[str, str]]) -> Link | None:
    """A request that continues a stored response holds only what is new: the id alone says where."""
    for name, value in ids:
        if name in ("previous_response_id", "conversation"):
            for sid in known.by_id.get(value, ()):
                return Link(session=known.sessions[sid], why="stored")
    return None


def _by_family(known: Known, request: Request, identity: Identity, ids: Sequence[str]) -> Link | None:
    """The most specific id decides; the others only tell whose sub-agent an agent is."""
    families = [[known.sessions[sid] for sid in known.by_family.get(value, ())] for value in ids]
    mains = [[s for s in family if s.api == request.api and not s.side] for family in families]
    if identity.agent:
        own = [s for family in families for s in family if s.agent == identity.agent]
        parent = next((family[-1].id for family in mains if family), "")
        return Link(session=own[-1] if own else None, side=True, why="agent id", parent=parent)
    return _in_family(request, mains[0]) if mains and mains[0] else None


def _in_family(request: Request, mains: Sequence[Session]) -> Link:
    system = system_text(request)
    alike = [s for s in mains if same_system(s.system, system)]
    session = (alike or list(mains))[-1]
    other_tools = request.tools != session.tools
    if not alike and other_tools:
        return Link(session=session, side=True, why="same id, other system prompt and tools")
    if _is_summary_call(request, session):
        return Link(session=session, side=True, why="a summarising instruction")
    return Link(session=session, why="explicit id", restart=True)


def _by_content(known: Known, request: Request, weak: Sequence[str], now: float) -> Link | None:
    session = _continued(known, request) or _scored(known, request, weak)
    if session is None:
        return _by_text(known, request, weak, now)
    if session.side and session.agent:
        return Link(session=session, side=True, agent=session.agent, why="continues a sub-agent")
    if session.side:  # a side call that is continued was none, or belongs to what it was taken from
        session = known.sessions.get(session.parent) or replace(session, side=False)
    if is_side_of(session, request):
        return Link(session=session, side=True, why="other system prompt and tools, or a summarising instruction")
    return Link(session=session, why="content")


def _continued(known: Known, request: Request) -> Session | None:
    """The session whose head is the longest beginning of this request; of equals the one seen last."""
    for chain in reversed(chains(request.messages)):
        alive = [known.sessions[sid] for sid in known.by_head.get(chain, ()) if sid in known.sessions]
        alive = [s for s in alive if s.api == request.api and (s.answered or chain == chains(request.messages)[-1])]
        same = [s for s in alive if same_system(s.system, system_text(request))]
        if same or alive:
            return max(same or alive, key=lambda s: (not s.side, s.last_seen_at))
    return None


def _scored(known: Known, request: Request, weak: Sequence[str]) -> Session | None:
    scores: defaultdict[str, float] = defaultdict(float)
    for i in items_of(request.messages):
        for sid in {sid for value in i.ids for sid in known.by_id.get(value, ())}:
            scores[sid] += 5.0
        holders = known.by_answer.get(i.print, set())
        for sid in holders:
            if i.print not in known.sessions[sid].opening:
                scores[sid] += 3.0 / len(holders)
        users = known.by_user.get(i.print, set())
        if len(users) == 1:
            scores[next(iter(users))] += 1.0
    alive = [(score, known.sessions[sid]) for sid, score in scores.items() if known.sessions[sid].api == request.api]
    ranked = [(score + (s.family in weak), s.last_seen_at, s.id) for score, s in alive if not s.side or s.agent]
    ranked += [(score, s.last_seen_at, s.parent) for score, s in alive if s.side and s.parent in known.sessions]
    best = max(ranked, default=(0.0, 0.0, ""))
    return known.sessions[best[2]] if best[0] >= 1.0 else None


def _main(known: Known, sid: str) -> str:
    """The conversation that a side session belongs to; itself for any other."""
    session = known.sessions.get(sid)
    return session.parent if session and session.side and session.parent in known.sessions else sid


def _by_text(known: Known, request: Request, weak: Sequence[str], now: float) -> Link | None:
    """No item of the request was seen before: texts within texts."""
    texts = [canonical(i.text) for i in items_of(request.messages, system=True) if i.kind == "text"]
    whole = "\n".join(texts)
    recent = [s for s in reversed(known.sessions.values()) if s.api == request.api and not s.side][:_PROBE_SESSIONS]
    for session in recent:
        said = known.said.get(session.id, {})
        pasted = _is_pasted(said, texts)
        if any(who == "side" and len(text) >= SUMMARY_CHARS and text in whole for text, who in said.items()):
            side = pasted or not extends_system(session.system, system_text(request))
            return Link(session=session, side=side, restart=not side, why="a summary that was produced for it")
        if pasted:
            return Link(session=session, side=True, why="its texts stand together in one message")
        if _is_delegated(known, session, request):
            return Link(session=session, side=True, agent="delegated", why="its model wrote this prompt")
    return _by_marker(known, request, recent, weak, whole, now)


def _is_pasted(said: Mapping[str, str], texts: Iterable[str]) -> bool:
    """Do texts of two speakers of a session stand together in one of `texts`?"""
    pieces = [(text[:400], who) for text, who in said.items() if len(text) >= _PROBE_CHARS and who != "side"][
        -_PROBE_TEXTS:
    ]
    return any(
        len({who for piece, who in pieces if piece in text}) >= 2 for text in texts if len(text) > 2 * _PROBE_CHARS
    )


def _is_delegated(known: Known, session: Session, request: Request) -> bool:
    """Is the user text of this request a string that the session's model passed to a tool?"""
    asked = [canonical(i.text) for i in items_of(request.messages) if i.role == "user" and i.kind == "text"]
    asked = [text for text in asked if len(text) >= _PROBE_CHARS]
    return any(
        argument in text or text in argument for argument in known.arguments.get(session.id, ()) for text in asked
    )


def _by_marker(
    known: Known, request: Request, recent: Sequence[Session], weak: Sequence[str], whole: str, now: float
) -> Link | None:
    """Words of a summary, the same key and system prompt: accepted when one recent session fits, or one fits clearly best."""
    if not has_marker(request) or any(i.kind == "call" for i in items_of(request.messages)):
        return None
    system = system_text(request)
    fit = [s for s in recent if now - s.last_seen_at < RECENT_S and s.turn > 1 and extends_system(s.system, system)]
    fit = [s for s in fit if s.family in weak] or fit
    if not fit:
        return None
    words = set(re.findall(r"\w{4,}", whole.lower()))
    shares = {s.id: len(words & _vocabulary(s)) for s in fit}
    ranked = sorted(fit, key=lambda s: (shares[s.id], s.last_seen_at), reverse=True)
    if len(ranked) > 1 and shares[ranked[0].id] < 1.5 * shares[ranked[1].id] and not _same_talk(ranked[0], ranked[1]):
        return None
    return Link(session=ranked[0], restart=True, why="words of a summary, and one recent session")


def _vocabulary(session: Session) -> set[str]:
    return {word for e in session.head for word in re.findall(r"\w{4,}", e.message.text.lower())}


def _same_talk(a: Session, b: Session) -> bool:
    """Do two sessions hold the same user texts, so that it does not matter which one is meant?"""
    return [e.message.print for e in a.head if e.message.role == "user"] == [
        e.message.print for e in b.head if e.message.role == "user"
    ]


# --- side calls ----------------------------------------------------------------------------------------------------


def is_side_of(session: Session, request: Request) -> bool:
    """Does this request use the session's content for something else: another system prompt and tools, a summary?"""
    other = not same_system(session.system, system_text(request))
    return (other and request.tools != session.tools) or _is_summary_call(request, session)


def _is_summary_call(request: Request, session: Session) -> bool:
    """A long instruction to summarise the conversation, as the last thing said, that the user did not write by hand."""
    last = next((m for m in reversed(request.messages) if m.role == "user"), None)
    texts = [canonical(i.text) for i in last.items if i.kind == "text"] if last else []
    said = texts[-1] if texts else ""
    dropped = bool(session.tools) and not request.tools
    other = not same_system(session.system, system_text(request))
    return (len(said) >= 400 or dropped or other) and len(said) < 20_000 and bool(_SUMMARISE.search(said))


def is_title_call(request: Request) -> bool:
    """A first request that asks for a title: no tools, few messages, and words that say so."""
    if request.tools or len(request.messages) > 4:
        return False
    texts = [canonical(m.text) for m in request.messages]
    asked = [t for m, t in zip(request.messages, texts, strict=True) if m.role in ("system", "developer")] or texts[:1]
    return any(_TITLE.search(text) and _GENERATE.search(text) and len(text) > 60 for text in asked)


# --- remembering ---------------------------------------------------------------------------------------------------


def remember(known: Known, session: Session, *, ids: Iterable[str] = ()) -> None:
    """Let `session`, as it is now, be found by later requests; the one seen longest ago makes room."""
    before = known.sessions.get(session.id)
    if before is not None and before.head:
        _forget_head(known, before)
    known.sessions[session.id] = session
    known.sessions.move_to_end(session.id)
    if session.family and session.id not in known.by_family[session.family]:
        known.by_family[session.family].append(session.id)
    if session.head:
        known.by_head[head_chain(session)].append(session.id)
    for value in ids:
        known.by_id[value].add(session.id)
    shown = {e.message.print for e in before.head} if before else set()
    for entry in session.head:
        if entry.message.print not in shown:  # new, or known in another dress
            _index(known, session, entry)
    while len(known.sessions) > _SIZE:
        forget(known, next(iter(known.sessions)))


def _index(known: Known, session: Session, entry: Entry) -> None:
    main = _main(known, session.id)
    said = known.said[main]
    for i in entry.message.items:
        text = canonical(i.text)
        for value in i.ids:
            known.by_id[value].add(session.id)
        if i.kind == "text" and text and entry.produced:
            known.by_answer[i.print].add(session.id)
            said.setdefault(text, "side" if session.side else "assistant")
        elif i.kind in ("text", "result") and text and not session.side and i.role in ("user", "tool"):
            said.setdefault(text, i.role)
            if i.role == "user" and i.print not in session.opening:
                known.by_user[i.print].add(session.id)
        elif i.kind == "call" and entry.produced:
            known.arguments[main] += [s for s in map(canonical, _strings(i.text)) if len(s) >= _PROBE_CHARS]
    for text in list(said)[: max(0, len(said) - _SAID)]:
        del said[text]


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


def _forget_head(known: Known, session: Session) -> None:
    holders = known.by_head.get(head_chain(session), [])
    if session.id in holders:
        holders.remove(session.id)
    if not holders:
        known.by_head.pop(head_chain(session), None)


def forget(known: Known, session_id: str) -> None:
    """Drop a session from memory; the archive still has it."""
    session = known.sessions.pop(session_id, None)
    if session is None:
        return
    _forget_head(known, session)
    known.said.pop(session_id, None)
    known.arguments.pop(session_id, None)
    _discard(known.by_id, session_id)
    _discard(known.by_answer, session_id)
    _discard(known.by_user, session_id)
    members = known.by_family.get(session.family, [])
    if session_id in members:
        members.remove(session_id)


def _discard(index: dict[_K, set[str]], session_id: str) -> None:
    for value in [v for v, holders in index.items() if session_id in holders]:
        index[value].discard(session_id)
        if not index[value]:
            del index[value]
