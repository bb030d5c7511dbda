"""Conversations that a request fits equally well, and which of them it continues.

Bots say the same to many, and their users answer with a word. If two conversations fit, Lantern does not guess, since
one person must not get what was said to another.
"""

from collections.abc import Collection, Iterable, Sequence, Set
from itertools import islice

from lantern_proxy.history.forms import is_other_person, shows_system_of, system_text
from lantern_proxy.history.presentation import shown_as
from lantern_proxy.history.record import Session, items_of
from lantern_proxy.history.summaries import is_long_text, side_summaries
from lantern_proxy.history.text import breadth
from lantern_proxy.session.index import (
    CANDIDATES,
    PROBE_CHARS,
    SessionIndex,
    holders_of,
    holding_sessions,
    ids_of,
    numbers_of,
    receivers_of,
    sessions_quoted,
    side_of,
    who_said,
)
from lantern_proxy.session.overlap import (
    ENDS,
    end_of_shown,
    fit_of,
    in_common,
    is_end,
    prints_of,
    said_in,
    said_of,
    shared_end,
    shown_and_asked,
)
from lantern_proxy.session.side_calls import summaries_since
from lantern_proxy.session.transcript_use import is_own
from lantern_proxy.turn import Message, Request, plain

FIRST = 8
"""How many messages at the beginning of a request are searched for a summary."""


def rivals_of(index: SessionIndex, session: Session, others: Collection[Session], request: Request) -> list[Session]:
    """Sessions that end with what a request shows, or that hold everything distinctive (more than a word or two) that
    `session` holds of it. The user's last text does not count, since it may be new to each of them."""
    telling = _telling(index, request.messages[: end_of_shown(request.messages)])
    own = {name for name, holders in telling.items() if session.id in holders}
    shown, asked = shown_and_asked(request)
    found = [
        s
        for s in others
        if s is not session
        and not s.side
        and (ends_in(index, s, shown, asked) or all(s.id in telling[name] or name in s.opening for name in own))
    ]
    ending = _ending_alike(index, session, request, seen={s.id for s in others})
    return [*found, *(s for s in ending if not is_other_person(s, request))]


def settle(index: SessionIndex, session: Session, request: Request, weak: Collection[str]) -> Session | None:
    """The session that continues with a request: `session`, whose whole head the request begins with, or another one
    that ends in what is shown, since some clients show only a part. None: it may be either.

    weak: ids that may stand for many conversations, or change; they decide between sessions that say the same
    """
    end = end_of_shown(request.messages)
    if session.side or not end:
        return session
    rivals = _ending_alike(index, session, request)
    is_others = session.lost and is_other_persons_session(session, request)
    return decide(index, [session, *rivals], request, weak) if rivals or is_others else session


def _ending_alike(
    index: SessionIndex, session: Session, request: Request, seen: Set[str] = frozenset()
) -> list[Session]:
    """Other sessions, not `seen`, that got the last answer of a request and end with what it shows."""
    end = end_of_shown(request.messages)
    last = request.messages[end - 1].items if end else ()
    got = receivers_of(index, last)
    others = [s for s in map(index.sessions.__getitem__, got - seen - {session.id}) if s.api == session.api]
    shown, asked = shown_and_asked(request) if others else ([], [])
    return [s for s in others if ends_in(index, s, shown, asked)]


def decide(
    index: SessionIndex, rivals: Sequence[Session], request: Request, weak: Collection[str] = ()
) -> Session | None:
    """The one session that has a weak id, most of the request's ids, ends with what is shown or began like it, and has
    its system prompt. None if several do, or if all belong to other people."""
    own = [s for s in rivals if not is_other_person(s, request)]
    left = [s for s in own if s.family in weak] or own
    shown_ids = ids_in(request)
    ids = {s.id: held_ids(index, s, shown_ids) for s in left}
    left = [s for s in left if ids[s.id] == max(ids.values())]
    shown, asked = shown_and_asked(request)
    fits = {s.id: fit_of(s, *without_summary(index, s, shown, asked)) for s in left}
    best = [s for s in left if fits[s.id] == ENDS]
    if best and any(_is_beginning(shown, s) for s in left if s not in best):
        return None  # its user may be back there
    summed_up = [s for s in best if is_summed_up(index, s, request)]
    if not any(s.lost for s in best):  # none of their clients ever showed a part
        best = [s for s in best if _is_beginning(shown, s)] or best
    ranks = {s.id: (in_common(asked, said_in(s.head)), fits[s.id]) for s in left}
    best = summed_up or best or [s for s in left if ranks[s.id] == max(ranks.values())]
    best = under_prompt(index, best, request)
    same = len({s.keys for s in best}) == 1  # of one, and of those that say the same
    return best[0] if best and (same or not shown) else None


def under_prompt(index: SessionIndex, sessions: Sequence[Session], request: Request) -> list[Session]:
    """The sessions with exactly the request's system prompt; with them those whose prompt may vary (it may tell the
    time, or hold documents, and be somebody else's now), and those of which the prompt holds a summary. All sessions if
    none has that prompt. If the client names people, only exact matches."""
    system = system_text(request)
    same = [s for s in sessions if s.system == system]
    if not same or (request.person and all(s.person == request.person for s in same)):
        return same or [*sessions]
    varied = (s for s in reversed(index.sessions.values()) if len(s.system_keys) > 1)
    varies = any(shows_system_of(s, request) for s in islice(varied, CANDIDATES))

    def may_have(s: Session) -> bool:
        extends = s.system in system or system in s.system
        of_class = (varies or extends) and shows_system_of(s, request)
        return s.system == system or len(s.system_keys) > 1 or of_class or _holds_summary(index, s, system)

    return [*filter(may_have, sessions)]


def _holds_summary(index: SessionIndex, session: Session, text: str) -> bool:
    """Does a text hold an answer of a side call of this session, or of several others? In the latter case it tells
    nothing about whose it is."""
    if side_of(index, session) is not None and _is_told(index, session.id, text):
        return True
    tells_several = index.tell_several.get(text)
    if tells_several is None:  # the same for each of hundreds that end alike
        tells_several = sum(_is_told(index, sid, text) for sid in sessions_quoted(index, [text])) > 1
        index.tell_several[text] = tells_several
    return tells_several


def _is_told(index: SessionIndex, sid: str, text: str) -> bool:
    return any(told in text for told in side_summaries(index.said.get(sid, {}).items()))


def without_summary(
    index: SessionIndex, session: Session, shown: list[Message], asked: list[Message]
) -> tuple[list[Message], list[Message]]:
    """`shown` and `asked` without a summary of the session at their beginning, where clients put it."""
    front = 0
    while (
        front < len(shown)
        and all(e.message.print != shown[front].print for e in session.head)
        and _holds_summary(index, session, plain(shown[front].text))
    ):
        front += 1
    return shown[front:], asked[front:]


def ids_in(request: Request) -> list[str]:
    """The keys of a request's items in by_id."""
    numbers = numbers_of(request.messages)
    return [value for i in items_of(request.messages) for value in ids_of(i, numbers)]


def held_ids(index: SessionIndex, session: Session, ids: Iterable[str]) -> int:
    """How many of the request's ids were seen in a session. ids: from ids_in()"""
    return sum(session.id in index.by_id.get(value, ()) for value in ids)


def _is_beginning(shown: list[Message], session: Session) -> bool:
    """Is what is shown the beginning of a conversation, or all of it, though its last question came with more?"""
    if session.lost:
        return False
    is_all = shared_end(session, shown) == len(shown) == sum(1 for _ in said_in(session.head))
    return is_all or in_common(said_in(session.head), shown) == len(shown)


def ends_in(index: SessionIndex, session: Session, shown: list[Message], asked: list[Message]) -> bool:
    """Does a session end with all that a request shows, apart from a summary of it? A short phrase alone does not
    count. See shown_and_asked()."""
    if session.side or not shown or not may_end(session, shown, asked):
        return False
    shown, asked = without_summary(index, session, shown, asked)
    is_telling = len(shown) > 1 or any(breadth(plain(m.text)) >= PROBE_CHARS for m in shown)
    return is_telling and is_end(session, shown, asked)


def may_end(session: Session, shown: list[Message], asked: list[Message]) -> bool:
    """A quick check for ends_in() by the last messages: many sessions got the same answer once."""
    if next((m.print for m in said_in(reversed(session.head))), None) == shown[-1].print:
        return True
    before = (e for e in reversed(session.head) if not e.produced)
    return next((m.print for m in said_in(before)), None) == asked[-1].print


def candidates(index: SessionIndex, sids: Iterable[str], request: Request) -> list[Session]:
    """The sessions among `sids` that the request may belong to: same API, no side session, not another person's."""
    found = map(index.sessions.__getitem__, sids)
    return [s for s in found if s.api == request.api and not s.side and not is_other_person(s, request)]


def is_other_persons_session(session: Session, request: Request) -> bool:
    """Did its client name another person, one who did not just join the conversation? Someone who joined would show all
    of it."""
    if not is_other_person(session, request):
        return False
    shown, _ = shown_and_asked(request)
    head = said_of(e.message for e in session.head)
    return session.lost or not shown or prints_of(head) != prints_of(shown)


def is_summed_up(index: SessionIndex, session: Session, request: Request) -> bool:
    """Does the request begin with the summary in which a conversation ended, or which a side call made of it since?"""
    made = [text for text in summaries_since(index, session) if not _is_nobodys(index, text)]
    if session.answered and not made:
        texts = (text for i in session.head[-1].message.items if i.kind == "text" for text in shown_as(i.text))
        made = [text for text in map(plain, texts) if is_long_text(text)]
    told = [plain(m.text) for m in request.messages[:FIRST] if m.role != "assistant"] if made else []
    return any(text in each for text in made for each in told)


def is_made_for(index: SessionIndex, session: Session, text: str, request: Request) -> bool:
    """Did the model of this session, and of no other, write the text?"""
    made = index.said.get(session.id, {}).get(text) in ("assistant", "side")
    return made and is_long_text(text) and is_own(index, session, text, of=request)


def _is_nobodys(index: SessionIndex, text: str) -> bool:
    """Did a side call whose conversation is unknown get this text, too?"""
    mains = (index.sessions.get(sid) for sid, _ in who_said(index, text))
    return any(s is not None and s.side for s in mains)


def _telling(index: SessionIndex, messages: Sequence[Message]) -> dict[bytes | str, Collection[str]]:
    """Distinctive texts and ids of messages -> the conversations that hold them, themselves or in side calls."""
    found: dict[bytes | str, Collection[str]] = {}
    numbers = numbers_of(messages)
    for i in items_of(messages):
        found |= {value: holders_of(index, index.by_id[value]) for value in ids_of(i, numbers) if value in index.by_id}
        holders = holding_sessions(index, i.print)
        if holders and breadth(plain(i.text)) >= PROBE_CHARS:
            found[i.print] = holders_of(index, holders)
    return found
