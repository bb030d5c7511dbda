"""Which session does this request belong to?

A client names its session, or it does not; then content decides. Evidence, strongest first:

    explicit ids            name a family; within it the form of the request tells the conversation from side calls
    the head                the request continues, message by message, what the session showed last
    the place               an answer, however its client shows it, follows what one session alone was asked
    minted ids              tool call ids, output item ids: 5 each
    produced answers        text the upstream produced in that session: 3 (a word or two: 0.5), divided by the
                            sessions that hold it
    later user text         seen in one session only: 1; what stood in the session's first request: 0. Where
                            nothing of its model is shown, two of them, or the one that still waits for an answer
    a known summary         the answer of a side call stands in the request
    steps                   where only the user speaks, texts hold the last answers, field by field
    a script                the only text goes on with what was said, line by line, under the names of its speakers
    a claimed history       a new text stands where the history should be, and speaks in the words of one session

Nothing is ever linked across two APIs, and a `SessionIndex` holds one tenant only.
"""

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Literal

from msgspec.structs import replace

from lantern_proxy.history.branches import is_on_dropped_branch, starts_after
from lantern_proxy.history.forms import shows_system_of, system_text
from lantern_proxy.history.presentation import is_same_answer
from lantern_proxy.history.record import Session, goes_on
from lantern_proxy.history.summaries import side_summaries
from lantern_proxy.history.text import mostly_equal
from lantern_proxy.history.transcript import session_of_transcript
from lantern_proxy.session.by_content import (
    best_scored,
    continued_reformatted,
    continued_session,
    is_scanty,
    sole_session_asked,
)
from lantern_proxy.session.by_text import count_steps, is_step, link_by_steps, link_by_text
from lantern_proxy.session.by_words import RECENT_S, begins_anew, spoken_of
from lantern_proxy.session.contested import calls_lead_elsewhere, is_anothers_side_call, is_contested
from lantern_proxy.session.delegation import is_delegated, is_passed_on, is_taken_over
from lantern_proxy.session.examples import are_examples_behind
from lantern_proxy.session.index import CANDIDATES, PROBE_CHARS, SessionIndex, ids_named, main_of, side_of
from lantern_proxy.session.indexing import forget, remember
from lantern_proxy.session.instructions import is_summary_call, is_title_call
from lantern_proxy.session.link_result import BY_ID, DELEGATED, STORED, TAKEN_UP, Link
from lantern_proxy.session.request_text import user_replies_last
from lantern_proxy.session.retold_history import holds_whole_history, is_retold
from lantern_proxy.session.rivals import FIRST, is_other_persons_session, settle
from lantern_proxy.session.side_calls import held_count, held_share, holds_answer, is_side_of
from lantern_proxy.turn import Identity, Message, Request, plain

__all__ = ["RECENT_S", "Link", "SessionIndex", "forget", "link", "remember"]

WEAK_IDS = frozenset({"prompt_cache_key", "x-session-affinity", "x-affinity"})
"""Ids that may be shared by many conversations of a program, or change with each of its starts: a hint, never proof.
They only ask for the same cache or server."""
RUN_IDS = frozenset({"x-litellm-session-id"})
"""Ids that group the calls of a run, which may contain several conversations."""
STORED_IDS = frozenset({"previous_response_id", "previous_message_id", "conversation"})
"""Ids of a history that the upstream holds: a request that names one carries only what is new."""


def link(index: SessionIndex, request: Request, identity: Identity, now: float) -> Link:
    """The session that `request` belongs to, according to the strongest evidence."""
    ids = (*identity.ids, *request.ids)
    strong = [value for name, value in ids if name not in WEAK_IDS]
    weak = [value for name, value in ids if name in WEAK_IDS]
    found = _stored(index, request, ids) or _by_family(index, request, identity, strong)
    if found is None:
        found = _by_content(index, request, weak, now) or Link(why="nothing known", side=is_title_call(request))
    elif found.why == BY_ID and _begins_in_run(index, request, ids):
        found = Link(why="another conversation of its run")
    session = found.session
    if session and not found.side and _is_new_id(index, session, strong) and not _is_copy(index, session, request):
        found = Link(why="known content under a new id", parent=session.id)
    if parent := _passed_on_from(index, request, found, strong):
        found = Link(why="what its model wrote, passed on by its user", parent=parent)
    side = found.side or bool(identity.agent) or bool({"side", "compact"} & (identity.signals | request.signals))
    return replace(found, family=next(iter((*strong, *weak)), ""), side=side, agent=found.agent or identity.agent)


def _is_new_id(index: SessionIndex, session: Session, strong: Sequence[str]) -> bool:
    """Does the client send an explicit id that is neither the session's nor that of one of its answers?"""
    is_named = any(session.id == value or session.id in ids_named(index, value) for value in strong)
    return bool(strong and session.family) and not is_named


def _is_copy(index: SessionIndex, session: Session, request: Request) -> bool:
    """Does the client continue a copy of a conversation, from its summary on, under a new id? Whatever the original
    lost, the copy has lost as well."""
    if not session.lost or not goes_on(session, request):
        return False
    told = [*side_summaries(index.said.get(session.id, {}).items())]
    return any(text in plain(m.text) for m in request.messages[:FIRST] for text in told)


def _passed_on_from(index: SessionIndex, request: Request, found: Link, ids: Sequence[str]) -> str:
    """Id of the session whose model wrote the text that opens this request, if its user started another conversation
    with it; "" otherwise. Such a request looks like that of a sub-agent."""
    parent = index.sessions.get(main_of(found.session)) if found.session and found.agent == DELEGATED else None
    if parent is None:
        return ""
    is_parents = parent.family in ids or parent.id in ids
    id_of: Literal["", "parent", "own"] = "parent" if is_parents else "own" if ids and parent.family else ""
    return parent.id if is_passed_on(index, parent, request, id_of=id_of) else ""


def _stored(index: SessionIndex, request: Request, ids: Sequence[tuple[str, str]]) -> Link | None:
    """The session of a request that continues a response or conversation stored by the upstream. Such a request carries
    only what is new, so the id alone decides."""
    for name, value in ids:
        if name in STORED_IDS:
            for session in map(index.sessions.__getitem__, index.by_id.get(value, ())):
                if starts_after(session, value) or is_on_dropped_branch(session, value):
                    return Link(why="another conversation behind a stored answer", parent=session.id)
                return Link(session=session, why=STORED)
        family = index.by_family.get(value, ()) if name == "conversation" else ()
        if mains := [s for sid in family if (s := index.sessions[sid]).api == request.api and not s.side]:
            return Link(session=mains[-1], why=STORED)
    return None


# --- explicit ids --------------------------------------------------------------------------------------------------


def _by_family(index: SessionIndex, request: Request, identity: Identity, ids: Sequence[str]) -> Link | None:
    """Link by explicit ids, ours or the client's. The most specific id decides; the others only tell which session a
    sub-agent belongs to."""
    families = [
        [index.sessions[sid] for sid in (value, *ids_named(index, value)) if sid in index.sessions] for value in ids
    ]
    mains = [[s for s in family if s.api == request.api and not s.side] for family in families]
    if identity.agent:
        own = [s for family in families for s in family if s.agent == identity.agent]
        parent = next((family[-1].id for family in mains if family), "")
        return Link(session=own[-1] if own else None, side=True, why="agent id", parent=parent)
    return _in_family(index, request, mains[0]) if mains and mains[0] else None


def _in_family(index: SessionIndex, request: Request, mains: Sequence[Session]) -> Link:
    """What the request is to the conversations that share its id: the next turn of the likeliest one, unless its form
    says otherwise."""
    alike = [s for s in mains if shows_system_of(s, request)]
    session = _likeliest(index, alike or mains, request)
    if told := session_of_transcript(reversed(mains), request):
        return Link(session=told, why="its history in one text")
    if is_step(index, session, request):
        return Link(session=session, why="its steps in one text")
    if count_steps(index, session, request) > 1:
        return Link(session=session, side=True, why="its steps in one text, another use of them")
    if begun := _begun_beside(mains, session, request):
        return Link(session=begun, side=True, why="what was asked before it began, asked again")
    held = held_share(session, request)
    told_whole = not held and holds_whole_history(session, request)
    if told_whole and (session.system or session.tools):
        return Link(session=session, why="its history in one text, and more")
    if not held and is_retold(index.said.get(session.id, {}), session, request):
        return Link(session=session, restart=True, why="its last answer told what was said")
    if not held and is_delegated(index, session, request):
        return Link(session=session, side=True, agent=DELEGATED, why="its model wrote this prompt")
    if _is_taken_up(index, request, session):
        if (held or told_whole) and (not _is_stub(session) or holds_answer(session, request)):
            return Link(session=session, why=TAKEN_UP, restart=True)
        return Link(why="a side call that became a conversation", parent=session.id)
    if is_side_of(index, session, request):
        if _is_stub(session) and request.tools and not session.tools:
            return Link(why="the first with tools", parent=session.id)
        return Link(session=session, side=True, why="same id, another use of it")
    if _is_probe(session, request) and not (held or told_whole):
        return Link(why="behind a probe", parent=session.id)
    if held and _is_asked_otherwise(session, request):
        return Link(why="what a call under a prompt of its own asked", parent=session.id)
    return Link(session=session, why=BY_ID, restart=True)


def _likeliest(index: SessionIndex, mains: Sequence[Session], request: Request) -> Session:
    """The most likely conversation of one id: the one that the request continues, else the one it shows most messages
    of, else the one whose summary or names it holds, else the latest."""
    if len(mains) == 1:
        return mains[0]
    before = continued_session(index, request)
    if before and any(before.id == s.id for s in mains):
        return before
    last = mains[: -CANDIDATES - 1 : -1]
    best = max(last, key=lambda s: held_count(s, request))
    return best if held_count(best, request) else spoken_of(index, last, request) or best


def _begins_in_run(index: SessionIndex, request: Request, ids: Sequence[tuple[str, str]]) -> bool:
    """Does another conversation begin under the id of a run? If the run has only one conversation, of more than one
    turn, the request may also be that one after losing its turns; then the answer is no."""
    name, value = next((pair for pair in ids if pair[0] not in WEAK_IDS), ("", ""))
    family = [index.sessions[sid] for sid in index.by_family.get(value, ())]
    mains = [s for s in family if not s.side and s.api == request.api][-CANDIDATES:]
    if name not in RUN_IDS or not mains or (len(mains) == 1 and mains[0].turn > 1):
        return False
    last = mains[-1]
    same = request.tools == last.tools and shows_system_of(last, request)
    return same and not any(held_count(s, request) for s in mains) and begins_anew(index, mains, request)


def _is_stub(session: Session) -> bool:
    """Has the session had a single call? A title, a greeting or a probe may come before the conversation."""
    return session.turn <= 1 and len(session.head) <= 3


def _begun_beside(mains: Iterable[Session], call: Session, request: Request) -> Session | None:
    """The conversation with tools, or without a system prompt, that began after a single call without tools, if the
    request has the prompt of that call but does not continue it. Some clients ask for the topic of each message,
    starting with the first."""
    if request.tools or not _is_stub(call) or not shows_system_of(call, request) or holds_answer(call, request):
        return None
    others = (s for s in mains if s.parent == call.id and not call.tools)
    return next((s for s in others if s.tools or (call.system and not s.system)), None)


def _is_probe(call: Session, request: Request) -> bool:
    """Is the session a single short call without system prompt or tools, with which some clients check their access? A
    request under the same id with a system prompt is then a conversation of its own."""
    is_bare = not (call.system or call.tools or call.imported)
    is_short = all(len(plain(e.message.text)) < PROBE_CHARS for e in call.head if not e.produced)
    return _is_stub(call) and is_bare and is_short and bool(system_text(request)) and not request.delta


def _is_asked_otherwise(call: Session, request: Request) -> bool:
    """Is what a single call without tools asked under a system prompt asked again under none, and its answer not shown?
    A title may be asked for before the conversation begins, in whatever words."""
    is_bare = bool(call.system) and not system_text(request)
    return is_bare and _is_stub(call) and call.answered and not call.tools and not holds_answer(call, request)


def _is_taken_up(index: SessionIndex, request: Request, session: Session) -> bool:
    """Was a side call of `session` answered, and does the user now reply to that answer? Then it was no side call.

    A client that has the model write notes, and later a summary, sends the second request without its user saying more
    than in the first.
    """
    side = side_of(index, session)
    if side is None or not side.answered or len(side.head) < 2 or not user_replies_last(request.messages):
        return False
    if is_summary_call(request, session, index.said.get(session.id, {})):
        return False
    asked, answer = plain(side.head[-2].message.text), side.head[-1].message
    shown = [m for m in request.messages if m.print]
    return any(_is_same_answer(b, answer) and _is_same_but_a_part(asked, plain(a.text)) for a, b in pairwise(shown))


def _is_same_answer(shown: Message, answer: Message) -> bool:
    """Is the shown message this answer: in the same words, as a reference to what the upstream stores, or without its
    reasoning?"""
    ids = {value for i in answer.items for value in i.ids}
    is_named = shown.print == answer.print or any(value in ids for i in shown.items for value in i.ids)
    return is_named or (shown.role == "assistant" and is_same_answer(answer.items, shown.items))


def _is_same_but_a_part(before: str, after: str) -> bool:
    """Are two texts equal but for an addition or a change in the middle? Clients remove what they had appended to their
    last text, and write times into others."""
    same = before.startswith(after) or after.startswith(before) or mostly_equal(before, after)
    return bool(before and after) and same


# --- content -------------------------------------------------------------------------------------------------------


def _by_content(index: SessionIndex, request: Request, weak: Sequence[str], now: float) -> Link | None:
    """Link by content alone; None if another conversation fits as well."""
    found = _by_head_or_evidence(index, request, weak, now)
    if found is None or (found.session and not found.side and is_contested(index, found.session, request, weak)):
        return None
    if found.session and found.side and not found.agent and is_anothers_side_call(index, found.session, request):
        return Link(side=True, why="another use of several", by_content=True)
    return replace(found, by_content=True)


def _by_head_or_evidence(index: SessionIndex, request: Request, weak: Sequence[str], now: float) -> Link | None:
    """Link to the session whose head the request continues, else to the one that the evidence points to."""
    before = continued_session(index, request) or continued_reformatted(index, request)
    if before and are_examples_behind(index, before, request):
        return None
    is_elsewhere = before is not None and calls_lead_elsewhere(index, before, request)
    before = None if is_elsewhere else before
    asked = None if before or is_elsewhere else sole_session_asked(index, request)
    if (begun := before or asked) and (session := settle(index, begun, request, weak)):
        used = _used(index, request, session, goes_on=session is begun)
        # of the archive's sessions one may have been asked the same
        return replace(used, scanty=True) if asked else used
    found = _by_evidence(index, request, weak, now)
    return None if found and found.session and is_other_persons_session(found.session, request) else found


def _by_evidence(index: SessionIndex, request: Request, weak: Sequence[str], now: float) -> Link | None:
    """Link by agent steps, by scored evidence, or by texts within texts."""
    if told := link_by_steps(index, request):
        return told
    session, is_sure = best_scored(index, request, weak)
    told = None if is_sure else link_by_text(index, request, weak, now)
    if session is None or (told and told.restart and not told.scanty):
        return told
    return replace(_used(index, request, session, goes_on=False), scanty=is_scanty(index, request, session))


def _used(index: SessionIndex, request: Request, session: Session, *, goes_on: bool) -> Link:
    """What is `session` to a request that holds some of its content? goes_on: the request continues its head"""
    if session.side and session.agent:
        parent = index.sessions.get(session.parent)
        if parent and session.agent == DELEGATED and is_taken_over(index, parent, request):
            return Link(session=parent, restart=True, why="a thread that its model opened, and its user took over")
        return Link(session=session, side=True, agent=session.agent, why="continues a sub-agent")
    if session.side:  # a side call that is continued was none, or belongs to what it was taken from
        parent = index.sessions.get(session.parent)
        held = parent is not None and (bool(held_share(parent, request)) or holds_whole_history(parent, request))
        if parent and held and _is_taken_up(index, request, parent):
            return Link(session=parent, why=TAKEN_UP)
        asked = goes_on and any(e.message.role == "user" and not e.produced for e in session.head)
        if parent and not held and asked and user_replies_last(request.messages):
            return Link(why="a side call that became a conversation", parent=parent.id)
        session = parent or replace(session, side=False)
    if held_share(session, request) and _is_taken_up(index, request, session):
        return Link(session=session, why=TAKEN_UP)
    if is_side_of(index, session, request):
        return Link(session=session, side=True, why="its content, another use of it")
    return Link(session=session, why="content")
