"""Linking by text within text: how is a session related to a request whose texts contain some of its own?

No item of such a request was seen before. Its client writes the history into one text, or step by step; it puts a
summary or the last answer in front; or it uses what was said for something else: a side call, an agent's task.
"""

from collections.abc import Mapping, Sequence
from functools import cached_property
from itertools import islice

from msgspec import Struct

from lantern_proxy.history.agent_steps import count_steps_in, is_repeated_step, shows_steps, shows_task
from lantern_proxy.history.containment import Haystack, haystack_of
from lantern_proxy.history.forms import is_other_person, shows_system_of, system_text
from lantern_proxy.history.presentation import unescaped
from lantern_proxy.history.record import Session, items_of, spoken
from lantern_proxy.history.summaries import side_summaries
from lantern_proxy.history.text import breadth
from lantern_proxy.history.transcript import session_of_transcript
from lantern_proxy.session.by_words import session_by_words
from lantern_proxy.session.delegation import is_delegated
from lantern_proxy.session.index import (
    CANDIDATES,
    PROBE_CHARS,
    SessionIndex,
    is_greeting,
    receivers_of,
    sayer_of,
    searchable,
    sessions_quoted,
    side_since,
)
from lantern_proxy.session.instructions import (
    asks_for_summary_of_head,
    is_result_to_shorten,
    is_task_about,
    is_task_about_line,
    is_task_about_quotes,
    is_task_behind_orders,
    waits_for_result,
)
from lantern_proxy.session.link_result import DELEGATED, PASTED, Link
from lantern_proxy.session.pasted import is_pasted
from lantern_proxy.session.request_text import readable_texts_of, texts_of
from lantern_proxy.session.retold_history import (
    answer_in,
    holds_end_of_history,
    holds_whole_history,
    is_retold,
    lines_in,
    non_assistant_text,
)
from lantern_proxy.session.side_calls import answers_calls
from lantern_proxy.session.transcript_use import is_own, use_of_transcript
from lantern_proxy.turn import SYSTEM, Request, plain

_QUOTED_CHARS = 8
"""Only texts of at least this length prove that a session is quoted: shorter ones stand in many others."""
_QUOTED = 16
"""Most quoted texts that are looked for in everything that was said."""
_AT_ONCE_S = 15 * 60.0
"""A client that requested a summary continues with it within this time. Later, a text with the session's last answer is
more likely one that people pass on."""


class _Read(Struct, frozen=True, dict=True):
    """A request whose texts are searched for those of sessions. Each form is computed when first needed."""

    request: Request

    @cached_property
    def texts(self) -> Sequence[str]:
        return readable_texts_of(self.request, system=True)

    @cached_property
    def whole(self) -> str | Haystack:
        return haystack_of("\n".join(self.texts))

    @cached_property
    def orders(self) -> str:
        """The system prompt. A user may have used the same one elsewhere, so it is no quotation."""
        return system_text(self.request)

    @cached_property
    def first(self) -> str | Haystack:
        """The first message that is no system prompt."""
        return haystack_of(plain(spoken(self.request.messages)[0].text))


def link_by_text(index: SessionIndex, request: Request, weak: Sequence[str], now: float) -> Link | None:
    """Link a request none of whose items was seen before: by texts within its texts, then by words."""
    texts = searchable([i.text for i in items_of(request.messages, system=True) if i.kind == "text"])
    alike = [index.sessions[sid] for sid in sessions_quoted(index, [*map(unescaped, texts)])[:CANDIDATES]]
    candidates = [session for session in alike if session.api == request.api and not session.side]
    if teller := session_of_transcript(candidates, request, index.said):
        return Link(session=teller, why="its history in one text")
    if answered := _last_answered(index, request, now):
        return Link(session=answered, scanty=True, why="begins with its last answer")
    if called := _at_work(index, request):
        return Link(session=called, scanty=True, why="its results, and those of its last calls")
    read, shared = _Read(request), None
    for session in candidates:
        found = _by_texts_of(index, session, read, now)
        if found and found.why != PASTED:
            return found
        if found and _quotes_own(index, session, read.whole, but=read.orders):
            return found
        shared = shared or found
    if shared:  # of phrases that were said in several
        return Link(side=True, why=PASTED)
    recent = (s for s in index.sessions.values() if now - s.last_seen_at < _AT_ONCE_S and not s.side)
    if waiting := waits_for_result(recent, request):
        return Link(session=waiting, side=True, why="a result that it waits for")
    if claimed := session_by_words(index, request, weak, now):
        return Link(session=claimed, restart=True, scanty=True, why="the words of one session")
    return None


def _by_texts_of(index: SessionIndex, session: Session, read: _Read, now: float) -> Link | None:
    """What is `session` to a request that holds texts which begin like some of its own? None: nothing.

    The first match counts, from the largest part of a session that a text can hold to the smallest: its whole history,
    only its summary or lines, a summary beside other things, its last answer, pasted texts, a prompt that its model
    wrote.
    """
    request, said = read.request, index.said.get(session.id, {})
    at_once = now - session.last_seen_at < _AT_ONCE_S
    if not _is_bare(session) and holds_whole_history(session, request) and _quotes_own(index, session, read.first):
        return Link(session=session, why="its history in one text, and more")
    if holds_end_of_history(session, request) and _quotes_own(index, session, read.first):
        return Link(session=session, why="the end of its history in one text")
    if use := use_of_transcript(index, session, request, named=False):
        side = use == "side"
        return Link(session=session, side=side, restart=not side, why="its summary or its lines, in one text")
    used = _is_used(session, read, said, at_once=at_once)
    told = [t for t in side_summaries(said.items()) if t in read.whole and is_own(index, session, t, of=request)]
    if told:
        side = used or _is_other_use(session, request, told)
        return Link(session=session, side=side, restart=not side, why="a summary that was produced for it")
    if at_once and _is_noted(index, session, request):
        return Link(session=session, restart=True, why="notes that were made for it")
    if at_once and is_retold(said, session, request) and _is_answer_own(index, session, request):
        return Link(session=session, restart=True, why="its last answer told what was said")
    if used:
        return Link(session=session, side=True, why=PASTED)
    if is_delegated(index, session, request):
        return Link(session=session, side=True, agent=DELEGATED, why="its model wrote this prompt")
    return None


def _is_bare(session: Session) -> bool:
    return not (session.system or session.tools)


def _is_used(session: Session, read: _Read, said: Mapping[str, str], *, at_once: bool) -> bool:
    """Is what was said used for something else: is it pasted, or does the request ask for a summary of it, or for a
    shorter version?

    said: canonical text -> who said it in the session
    """
    request = read.request
    other = not shows_system_of(session, request) or request.tools != session.tools
    return (
        ((other or _is_bare(session)) and is_pasted(said, read.texts, labelled=other))
        or is_task_about(said, session, request)
        or is_task_behind_orders(said, session, request)
        or is_task_about_quotes(said, session, request)
        or is_result_to_shorten(said, session, request)
        or (other and at_once and asks_for_summary_of_head(session, request))
        or (other and is_task_about_line(said, request))
    )


def _quotes_own(index: SessionIndex, session: Session, whole: str | Haystack, *, but: str = "") -> bool:
    """Does a text, apart from `but`, hold something that was said in this session only? No other session may hold it
    even within a longer text: some clients write their whole history into one."""
    long = (text for text in index.said.get(session.id, ()) if len(text) >= _QUOTED_CHARS and text != but)
    once = (text for text in long if text in whole and sayer_of(index, text))
    return any(_are_own(index, session, [text]) for text in islice(once, _QUOTED))


def _is_answer_own(index: SessionIndex, session: Session, request: Request) -> bool:
    """Are the texts of the last answer, or those of its lines that stand alone, known from no other session? A bot may
    say the same to everybody."""
    if not all(is_own(index, session, text, of=request) for text in answer_in(session, non_assistant_text(request))):
        return False
    return _are_own(index, session, lines_in(session.head[-1].message, session, request))


def _are_own(index: SessionIndex, session: Session, lines: Sequence[str]) -> bool:
    """Does no other session hold one of these lines?"""
    others = (said for sid, said in index.said.items() if sid != session.id)
    return not any(line in text for said in others for text in said for line in lines)


def _is_noted(index: SessionIndex, session: Session, request: Request) -> bool:
    """Does a request with the session's system prompt and tools hold, line by line, what a side call answered after the
    session's last turn? Its client puts that into notes, in place of the messages that they stand for."""
    side = side_since(index, session)
    if side is None or not (shows_system_of(session, request) and request.tools >= session.tools):
        return False
    lines = lines_in(side.head[-1].message, session, request)
    return bool(lines) and _are_own(index, session, lines)


def _is_other_use(session: Session, request: Request, told: Sequence[str]) -> bool:
    """Were the session's tools removed, or its system prompt changed, for a text with its summary?

    told: summaries of the session that stand in the request
    """
    if session.tools and not request.tools:
        return True
    if session.system:
        return not shows_system_of(session, request)
    orders = system_text(request)
    whole = haystack_of(orders)
    return bool(orders) and not any(text in whole for text in told)


def link_by_steps(index: SessionIndex, request: Request) -> Link | None:
    """Link a request in which only the user speaks to the session whose last answers it holds, field by field: to the
    one with most of them. None if two are equal, since they may be runs of one task."""
    if any(m.role not in (*SYSTEM, "user") for m in request.messages):
        return None
    candidates = [index.sessions[sid] for sid in sessions_quoted(index, searchable(texts_of(request)))[:CANDIDATES]]
    told = [(count_steps(index, s, request), s) for s in candidates if s.api == request.api]
    turns = [(count, s) for count, s in told if is_step(index, s, request)]
    found = turns or [(count, s) for count, s in told if count > 1 and _is_about(s, count, request)]
    most = max((count for count, _ in found), default=0)
    best = [s for count, s in found if count == most]
    if len(best) != 1:
        return None
    return Link(session=best[0], side=not turns, why="its steps in one text")


def _is_about(session: Session, count: int, request: Request) -> bool:
    """May a request with this many answers of a session be a side call of it? Whoever quotes a few of them asks for
    something else, unless the session's task stands there, too."""
    return 2 * count >= sum(e.produced for e in session.head) or shows_task(session, request)


def is_step(index: SessionIndex, session: Session, request: Request) -> bool:
    """Is the request the session's next step, or its last one again?"""
    said = index.said.get(session.id, {}).items()
    told = shows_steps(session, request) and count_steps(index, session, request) > 0
    return told or is_repeated_step(session, request, said)


def count_steps(index: SessionIndex, session: Session, request: Request) -> int:
    """How many of the session's last answers stand in the request, field by field."""
    return count_steps_in(session.head, request, index.said.get(session.id, {}).items())


def _last_answered(index: SessionIndex, request: Request, now: float) -> Session | None:
    """The only session that just got the answer with which the request begins, if nothing else of it is left.

    The answer may be a word or two, since a window may leave no more. Nobody begins a chat with an answer under the
    same system prompt and tools.
    """
    said = spoken(request.messages)
    if len(said) != 2:
        return None
    got = receivers_of(index, said[0].items)
    if len(got) != 1 or is_greeting(index, said[0].items):
        return None
    s = index.sessions[got.pop()]
    same = s.api == request.api and shows_system_of(s, request) and s.tools == request.tools and not s.side
    known_as = not _is_bare(s) and s.turn > 1 and not is_other_person(s, request)
    last = bool(s.head) and s.head[-1].message.print == said[0].print
    return s if same and known_as and last and now - s.last_seen_at < _AT_ONCE_S else None


def _at_work(index: SessionIndex, request: Request) -> Session | None:
    """The only session whose last calls the request answers, if it also shows a result that was told in this session
    alone.

    Some clients give their calls new ids with each request, and a window may leave nothing else.
    """
    told = [plain(i.text) for i in items_of(request.messages) if i.kind == "result"]
    waiting = [(s, count) for s in index.sessions.values() if told and (count := answers_calls(s, request))]
    if len(waiting) != 1:
        return None
    s, count = waiting[0]
    known_as = s.api == request.api and not s.side and shows_system_of(s, request) and not is_other_person(s, request)
    own = (text for text in told[:-count] if breadth(text) >= PROBE_CHARS)
    return s if known_as and any(sayer_of(index, text) == s.id for text in own) else None
