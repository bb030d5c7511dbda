"""Which session does this request belong to?

A client names its session, or it does not; then content decides. Evidence, strongest first:

    explicit ids            name a family; within it the form of the request tells the conversation from side calls
    the head                the request continues, message by message, what the session showed last
    minted ids              tool call ids, output item ids: 5 each
    produced answers        text the upstream produced in that session: 3 (a word or two: 0.5), divided by the
                            sessions that hold it
    later user text         seen in one session only: 1; what stood in the session's first request: 0
    a known summary         the answer of a side call stands in the request
    steps                   where only the user speaks, texts hold the last answers, field by field
    a script                the only text goes on with what was said, line by line, under the names of its speakers
    a claimed history       a new text stands where the history should be, and speaks in the words of one session

Nothing is ever linked across two APIs, and a `Known` holds one tenant only.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise, takewhile

from msgspec import Struct
from msgspec.structs import replace

from lantern_proxy.history import (
    SUMMARY_CHARS,
    Session,
    before_answer,
    chains,
    items_of,
    shows_system_of,
    spoken,
    system_text,
)
from lantern_proxy.history.dress import says_same, unescaped
from lantern_proxy.history.script import teller_of
from lantern_proxy.history.steps import is_again, shows_steps, told_steps
from lantern_proxy.history.text import breadth, mostly_equal
from lantern_proxy.history.whole import Whole, whole_of
from lantern_proxy.session.known import PROBE_CHARS, Known, forget, main_of, quoted, remember, searched
from lantern_proxy.session.script import is_own, script_use, waits_for_words
from lantern_proxy.session.side import (
    held_share,
    holds_answer,
    is_delegated,
    is_pasted,
    is_result_to_shorten,
    is_retold,
    is_side_of,
    is_spoken_to,
    is_task_about,
    is_title_call,
    is_told_whole,
    read_of,
    texts_of,
    waits_for_result,
)
from lantern_proxy.session.words import CANDIDATES, RECENT_S, by_words
from lantern_proxy.turn import SYSTEM, Identity, Item, Request, plain

__all__ = ["RECENT_S", "Known", "Link", "forget", "link", "remember"]

WEAK_IDS = frozenset({"prompt_cache_key", "x-session-affinity", "x-affinity"})
"""Ids that may stand for many conversations of one program, or change with its every start: a hint, never proof. They
ask for the same cache or the same server."""
STORED_IDS = frozenset({"previous_response_id", "previous_message_id", "conversation"})
"""Ids of what the upstream holds: a request that names one says only what is new."""
_AT_ONCE_S = 15 * 60.0
"""A client that had a summary made goes on with it so soon; later its last answer is what people read and pass on."""
_REPEATED = 64
"""What stands in a request more often than that proves no more."""
_SHORT_WEIGHT = 0.5
"""What an answer of a word or two counts: "OK." may be an example in a prompt, or stand in any conversation."""


class Link(Struct, frozen=True, kw_only=True):
    """Where a request belongs."""

    session: Session | None = None
    """None: one that was never seen. With `side` the conversation that the side call is about, or a sub-agent's own."""
    side: bool = False
    agent: str = ""
    restart: bool = False
    """Linked by an id, a summary or words alone: nothing that the session held needs to be in the request."""
    scanty: bool = False
    """Little speaks for it: a text of the user, some words. Of a session that is not in memory there may be more."""
    why: str = ""
    family: str = ""
    parent: str = ""
    """The session that a new side session belongs to."""


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
        and not {session.family, session.id} & set(strong)
        and not found.side
        and found.why != "stored"
    )


def _stored(known: Known, ids: Sequence[tuple[str, str]]) -> Link | None:
    """A request that continues a stored response holds only what is new: the id alone says where."""
    for name, value in ids:
        if name in STORED_IDS:
            for sid in known.by_id.get(value, ()):
                return Link(session=known.sessions[sid], why="stored")
    return None


# --- explicit ids --------------------------------------------------------------------------------------------------


def _by_family(known: Known, request: Request, identity: Identity, ids: Sequence[str]) -> Link | None:
    """The most specific id decides, ours or the client's; the others only tell whose sub-agent an agent is."""
    families = [
        [known.sessions[sid] for sid in (value, *known.by_family.get(value, ())) if sid in known.sessions]
        for value in ids
    ]
    mains = [[s for s in family if s.api == request.api and not s.side] for family in families]
    if identity.agent:
        own = [s for family in families for s in family if s.agent == identity.agent]
        parent = next((family[-1].id for family in mains if family), "")
        return Link(session=own[-1] if own else None, side=True, why="agent id", parent=parent)
    return _in_family(known, request, mains[0]) if mains and mains[0] else None


def _in_family(known: Known, request: Request, mains: Sequence[Session]) -> Link:
    """What is a request to the conversations of its id? The next turn of the last, unless its form says otherwise."""
    alike = [s for s in mains if shows_system_of(s, request)]
    session = (alike or list(mains))[-1]
    if told := teller_of(reversed(mains), request, named=True):
        return Link(session=told, why="its history in one text")
    if _is_step(known, session, request):
        return Link(session=session, why="its steps in one text")
    if _steps_told(known, session, request) > 1:
        return Link(session=session, side=True, why="its steps in one text, another use of them")
    held = held_share(session, request)
    told_whole = not held and is_told_whole(session, request)
    if told_whole and (session.system or session.tools):
        return Link(session=session, why="its history in one text, and more")
    if not held and is_retold(known.said.get(session.id, {}), session, request):
        return Link(session=session, restart=True, why="its last answer told what was said")
    if not held and is_delegated(known, session, request):
        return Link(session=session, side=True, agent="delegated", why="its model wrote this prompt")
    if _is_taken_up(known, request, session):
        if (held or told_whole) and (not _is_stub(session) or holds_answer(session, request)):
            return Link(session=session, why="a side call that goes on", restart=True)
        return Link(why="a side call that became a conversation", parent=session.id)
    if is_side_of(known, session, request):
        if _is_stub(session) and request.tools and not session.tools:
            return Link(why="the first with tools", parent=session.id)
        return Link(session=session, side=True, why="same id, another use of it")
    return Link(session=session, why="explicit id", restart=True)


def _is_stub(session: Session) -> bool:
    """Was there one call and no more? A title, a greeting, a probe may come before the conversation."""
    return session.turn <= 1 and len(session.head) <= 3


def _is_taken_up(known: Known, request: Request, session: Session) -> bool:
    """Was a side call of `session` answered, and does the user now speak to that answer? Then it was none."""
    side = known.sessions.get(f"{session.id}.side")
    if side is None or not side.answered or len(side.head) < 2 or not is_spoken_to(request.messages):
        return False
    asked, answer = plain(side.head[-2].message.text), side.head[-1].message.print
    shown = [m for m in request.messages if m.print]
    return any(b.print == answer and _is_same_but_a_part(asked, plain(a.text)) for a, b in pairwise(shown))


def _is_same_but_a_part(before: str, after: str) -> bool:
    """Clients take back what they put behind the text that was the last, and write times into others."""
    same = before.startswith(after) or after.startswith(before) or mostly_equal(before, after)
    return bool(before and after) and same


# --- content -------------------------------------------------------------------------------------------------------


def _by_content(known: Known, request: Request, weak: Sequence[str], now: float) -> Link | None:
    continued = _continued(known, request) or _continued_otherwise(known, request)
    if continued is not None:
        return _used(known, request, continued, goes_on=True)
    if stepped := _stepped(known, request):
        return stepped
    session = _scored(known, request, weak)
    if session is None:
        return _by_text(known, request, weak, now)
    return replace(_used(known, request, session, goes_on=False), scanty=_is_scanty(known, request, session))


def _used(known: Known, request: Request, session: Session, *, goes_on: bool) -> Link:
    """What is `session` to a request that holds some of its content, or goes on with its head?"""
    if session.side and session.agent:
        return Link(session=session, side=True, agent=session.agent, why="continues a sub-agent")
    if session.side:  # a side call that is continued was none, or belongs to what it was taken from
        parent = known.sessions.get(session.parent)
        held = parent is not None and (bool(held_share(parent, request)) or is_told_whole(parent, request))
        if parent and held and _is_taken_up(known, request, parent):
            return Link(session=parent, why="a side call that goes on")
        asked = goes_on and any(e.message.role == "user" and not e.produced for e in session.head)
        if parent and not held and asked and is_spoken_to(request.messages):
            return Link(why="a side call that became a conversation", parent=parent.id)
        session = parent or replace(session, side=False)
    if is_side_of(known, session, request):
        return Link(session=session, side=True, why="its content, another use of it")
    return Link(session=session, why="content")


def _continued(known: Known, request: Request) -> Session | None:
    """The session whose head is the longest beginning of this request; of equals the one seen last."""
    found = chains(request.messages)
    for chain in reversed(found):
        holders = known.by_head.get(chain)
        alive = [known.sessions[sid] for sid in holders or () if known.sessions[sid].api == request.api]
        alive = [s for s in alive if s.answered or (chain == found[-1] and not _is_twin(known, s))]
        same = [s for s in alive if shows_system_of(s, request)]
        if same or alive:
            return max(same or alive, key=lambda s: (not s.side, s.last_seen_at))
    return None


def _continued_otherwise(known: Known, request: Request) -> Session | None:
    """The session that was asked just what this request begins with, and whose answer follows in another dress.

    Under its system prompt: a title that was asked for with the user's words may be a line of the real answer.
    """
    found = chains(request.messages)
    asked = {chain: at for at, chain in enumerate(found[:-1]) if request.messages[at + 1].role == "assistant"}
    for chain, at in sorted(asked.items(), key=lambda pair: -pair[1]):
        holders = known.by_asked.get(chain, ())
        shown = items_of(takewhile(lambda m: m.role == "assistant", request.messages[at + 1 :])) if holders else ()
        answer = list(shown)
        alive = [s for s in map(known.sessions.__getitem__, holders) if s.api == request.api and s.answered]
        same = [s for s in alive if shows_system_of(s, request) and says_same(_answer_of(s), answer)]
        if same:
            return max(same, key=lambda s: (not s.side, s.last_seen_at))
    return None


def _answer_of(session: Session) -> list[Item]:
    return [i for e in session.head[len(before_answer(session)) :] for i in e.message.items]


def _is_twin(known: Known, session: Session) -> bool:
    """A first request that still waits for its answer: the same words again are another conversation, not a retry."""
    return known.in_flight.get(session.id, 0) > 0 and not any(e.produced for e in session.head)


def _scored(known: Known, request: Request, weak: Sequence[str]) -> Session | None:
    """The session with the most evidence; that of a side call counts for its conversation, but for sub-agents."""
    scores: defaultdict[str, float] = defaultdict(float)
    times = Counter[bytes]()
    for i in items_of(request.messages):
        times[i.print] += 1
        if times[i.print] > _REPEATED:
            continue
        for value in i.ids:
            _credit(known, scores, known.by_id.get(value, ()), 5.0)
        made = [sid for sid in known.by_answer.get(i.print, ()) if i.print not in known.sessions[sid].opening]
        if made:
            weight = 3.0 if breadth(plain(i.text)) >= PROBE_CHARS else _SHORT_WEIGHT
            _credit(known, scores, made, weight * len(made) / len(known.by_answer[i.print]))
        users = known.by_user.get(i.print, ())
        _credit(known, scores, users if len(users) == 1 else (), 1.0)
    alive = [(score, known.sessions[sid]) for sid, score in scores.items() if known.sessions[sid].api == request.api]
    prints = {i.print for i in items_of(request.messages)}
    ranked = [(score + (s.family in weak), len(prints & s.opening), s.last_seen_at, s.id) for score, s in alive]
    best = max(ranked, default=(0.0, 0, 0.0, ""))  # of two that say the same, the one that began like this
    return known.sessions[best[3]] if best[0] >= 1.0 else None


def _is_scanty(known: Known, request: Request, session: Session) -> bool:
    """Did the session get fewer than half of the answers that the request shows?"""

    def holds(i: Item) -> bool:
        return session.id in known.by_answer.get(i.print, ()) or any(
            session.id in known.by_id.get(value, ()) for value in i.ids
        )

    shown = [i for i in items_of(request.messages) if i.role == "assistant" and i.kind in ("text", "call", "ref")]
    return 2 * sum(map(holds, shown)) < max(1, len(shown))


def _credit(known: Known, scores: dict[str, float], holders: Collection[str], weight: float) -> None:
    """Share `weight` among the sessions that hold a thing."""
    for sid in holders:
        session = known.sessions[sid]
        main = sid if session.agent else main_of(session)
        if main in known.sessions and not (known.sessions[main].side and not session.agent):
            scores[main] += weight / len(holders)


# --- texts within texts --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Read:
    """A request whose texts are looked through for those of sessions; made ready when first asked for."""

    request: Request

    @cached_property
    def texts(self) -> Sequence[str]:
        return read_of(self.request, system=True)

    @cached_property
    def whole(self) -> str | Whole:
        return whole_of("\n".join(self.texts))


def _by_text(known: Known, request: Request, weak: Sequence[str], now: float) -> Link | None:
    """No item of the request was seen before: texts within texts, then words."""
    texts = searched([i.text for i in items_of(request.messages, system=True) if i.kind == "text"])
    found = [known.sessions[sid] for sid in quoted(known, [*map(unescaped, texts)])[:CANDIDATES]]
    candidates = [session for session in found if session.api == request.api]
    if teller := teller_of(candidates, request, named=False):
        return Link(session=teller, why="its history in one text")
    if answered := _last_answered(known, request, now):
        return Link(session=answered, scanty=True, why="begins with its last answer")
    read = _Read(request)
    for session in candidates:
        if holder := _holds_texts(known, session, read, now):
            return holder
    recent = (s for s in known.sessions.values() if now - s.last_seen_at < _AT_ONCE_S and not s.side)
    if waiting := waits_for_result(recent, request):
        return Link(session=waiting, side=True, why="a result that it waits for")
    if spoken_of := by_words(known, request, weak, now):
        return Link(session=spoken_of, restart=True, scanty=True, why="the words of one session")
    return None


def _holds_texts(known: Known, session: Session, read: _Read, now: float) -> Link | None:
    """What is `session` to a request that holds texts which begin like some of its own? None: nothing."""
    request, said = read.request, known.said.get(session.id, {})
    bare = not (session.system or session.tools)
    if not bare and is_told_whole(session, request):
        return Link(session=session, why="its history in one text, and more")
    if use := script_use(known, session, request, named=False):
        side = use == "side"
        return Link(session=session, side=side, restart=not side, why="its summary or its lines, in one text")
    other = not shows_system_of(session, request) or request.tools != session.tools
    pasted = (other or bare) and is_pasted(said, read.texts, labelled=other)
    pasted = pasted or is_task_about(said, session, request) or is_result_to_shorten(said, session, request)
    told = [text for text, who in said.items() if who == "side" and len(text) >= SUMMARY_CHARS and text in read.whole]
    if told and (not waits_for_words(request) or any(is_own(known, session, text) for text in told)):
        side = pasted or _is_other_use(session, request, told)
        return Link(session=session, side=side, restart=not side, why="a summary that was produced for it")
    if now - session.last_seen_at < _AT_ONCE_S and is_retold(said, session, request):
        return Link(session=session, restart=True, why="its last answer told what was said")
    if pasted:
        return Link(session=session, side=True, why="its texts stand together in one message")
    if is_delegated(known, session, request):
        return Link(session=session, side=True, agent="delegated", why="its model wrote this prompt")
    return None


def _is_other_use(session: Session, request: Request, told: Sequence[str]) -> bool:
    """Were the session's tools taken away for a text with its summary, or other orders given?

    told: its summaries that stand in the request
    """
    if session.tools and not request.tools:
        return True
    if session.system:
        return not shows_system_of(session, request)
    orders = system_text(request)
    whole = whole_of(orders)
    return bool(orders) and not any(text in whole for text in told)


def _stepped(known: Known, request: Request) -> Link | None:
    """The session whose last answers, field by field, stand in a request in which only the user speaks: of several the
    one with most of them. Where two are as like, it is none's: they may be runs of one task."""
    if request.delta or any(m.role not in (*SYSTEM, "user") for m in request.messages):
        return None
    candidates = [known.sessions[sid] for sid in quoted(known, searched(texts_of(request)))[:CANDIDATES]]
    told = [(_steps_told(known, s, request), s) for s in candidates if s.api == request.api]
    turns = [each for each in told if _is_step(known, each[1], request)]
    found = turns or [each for each in told if each[0] > 1]
    best = [s for count, s in found if count == max(count for count, _ in found)]
    if len(best) != 1:
        return None
    return Link(session=best[0], side=not turns, why="its steps in one text")


def _is_step(known: Known, session: Session, request: Request) -> bool:
    said = known.said.get(session.id, {}).items()
    told = shows_steps(session, request) and _steps_told(known, session, request) > 0
    return told or is_again(session, request, said)


def _steps_told(known: Known, session: Session, request: Request) -> int:
    return told_steps(session.head, request, known.said.get(session.id, {}).items())


def _last_answered(known: Known, request: Request, now: float) -> Session | None:
    """The only session that got the answer with which the request begins, just now, when no more is left of it.

    A word or two: a window may leave no more. Under the same system prompt and tools nobody begins a chat with that.
    """
    said = spoken(request.messages)
    if len(said) != 2:
        return None
    holders = {sid for i in said[0].items for sid in known.by_answer.get(i.print, ())}
    if len(holders) != 1:
        return None
    s = known.sessions[holders.pop()]
    same = s.api == request.api and shows_system_of(s, request) and s.tools == request.tools and not s.side
    known_as = (s.system or s.tools) and s.turn > 1
    last = s.head[-1].message.print == said[0].print
    return s if same and known_as and last and now - s.last_seen_at < _AT_ONCE_S else None
