"""Few-shot examples: exchanges that a client picks from its whole past because they resemble the question.

Each of its requests stands alone, though what it shows was once said. No conversation shows its exchanges in another
order, or as many of others in front of its own.
"""

from collections import Counter
from collections.abc import Iterable, Set
from itertools import pairwise

from lantern_proxy.history.record import Session, prints_in, spoken
from lantern_proxy.session.index import SessionIndex, main_of
from lantern_proxy.turn import Message, Request

Exchange = tuple[bytes, bytes]
"""Fingerprints of a user's text and of the answer to it."""


def are_examples(index: SessionIndex, session: Session, request: Request) -> bool:
    """Did a client pick the exchanges that the request shows, though `session` had some of them?"""
    shown = [each for each in _exchanges(request.messages) if each[1] in index.by_answer]
    return len(shown) > 1 and (_are_shuffled(session, shown) or _are_of_others(index, session, shown))


def are_examples_behind(index: SessionIndex, session: Session, request: Request) -> bool:
    """Does a request that begins as `session` continue with as many exchanges of other sessions, which never showed its
    own?"""
    if len(request.messages) < len(session.head) + 3:  # an exchange and a question; most requests have less
        return False
    own = _had(session)
    behind = [each for each in _exchanges(request.messages) if each not in own]
    got = [_mains(index, answer) for _, answer in behind]
    others = {main: had for main in set[str]().union(*got) if own.isdisjoint(had := _had(index.sessions[main]))}
    theirs = (
        bool(mains) and all(each in others.get(main, ()) for main in mains)
        for each, mains in zip(behind, got, strict=True)
    )
    return 0 < len(own) <= sum(theirs)  # what left a session has its beginning, so that is none of the others


def _mains(index: SessionIndex, answer: bytes) -> Set[str]:
    """The conversations in memory that got an answer."""
    return index.sessions.keys() & {main_of(index.sessions[sid]) for sid in index.by_answer.get(answer, ())}


def _had(session: Session) -> Set[Exchange]:
    return {*_exchanges(e.message for e in session.head)}


def _exchanges(messages: Iterable[Message]) -> list[Exchange]:
    pairs = pairwise(spoken(messages))
    answered = ((a, b) for a, b in pairs if (a.role, b.role) == ("user", "assistant") and len(b.items) == 1)
    return [(asked.print, answer.items[0].print) for asked, answer in answered]


def _are_shuffled(session: Session, shown: list[Exchange]) -> bool:
    """Do the exchanges come in another order than in the session, and is the last one not the session's last? Some
    clients put exchanges similar to the question in front of the latest ones."""
    held = _exchanges(e.message for e in session.head)
    if held and shown[-1] == held[-1]:
        return False
    times = Counter(held) + Counter(shown)
    places = {each: at for at, each in enumerate(held) if times[each] == 2}
    return any(a > b for a, b in pairwise(places[each] for each in shown if each in places))


def _are_of_others(index: SessionIndex, session: Session, shown: list[Exchange]) -> bool:
    """Do at least as many exchanges that the session does not show stand in front of its last answer?"""
    held = prints_in(session) | session.opening
    main = main_of(session)
    got = [{main_of(index.sessions[sid]) for sid in index.by_answer[answer]} for _, answer in shown]
    own = [at for at, (_, answer) in enumerate(shown) if main in got[at] and answer not in session.opening]
    others = [at for at, (_, answer) in enumerate(shown) if answer not in held]
    return bool(own) and len(own) <= sum(at < own[-1] for at in others)
