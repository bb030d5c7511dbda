"""Requests that share only stock phrases with a conversation, such as bots say to everybody."""

import re
from collections.abc import Mapping, Sequence, Set

from lantern_proxy.history.presentation import strings_of, was_asked_with
from lantern_proxy.history.record import Session, before_answer, last_answer, last_asked, prints_in, spoken
from lantern_proxy.history.summaries import is_long_text, side_summaries
from lantern_proxy.history.text import breadth, mostly_equal, shared_front
from lantern_proxy.session.index import (
    PROBE_CHARS,
    SessionIndex,
    holders_of,
    holding_sessions,
    ids_of,
    is_greeting,
    numbers_of,
    receivers_of,
    sayer_of,
)
from lantern_proxy.session.overlap import end_of_shown, is_shown_in, prints_of, said_of, shown_and_asked
from lantern_proxy.session.request_text import is_user_message
from lantern_proxy.session.transcript_use import is_own
from lantern_proxy.turn import Item, Message, Request, plain

_WORD = re.compile(r"\w+")
_LOOKED_AT = 32
"""The last shown messages that are compared with all that was said: enough to tell whose they are."""
_ALIKE_CHARS = 6
"""Two mostly equal texts of at least PROBE_CHARS share this many characters at their fronts or backs."""
_CUT = re.compile(r"\s*[\[<(]?(?:\.{2,}|…)[\])>]?\s*(?:[\[<(][^\])>]*[\])>])?$")
"""What a client puts in place of the rest of a text: dots, perhaps with a note in brackets. A text that continues
otherwise is somebody else's."""


def shares_only_stock_phrases(index: SessionIndex, session: Session, request: Request) -> bool:
    """Does a request share only what bots say to many with this conversation?

    That is: one phrase, or less than it shows of others, or nothing that other conversations lack while it shows
    something this one lacks. An answer that several heard counts behind a question of this one only. Ids, calls, the
    conversation's last answer (unless another question precedes it) and its summary prove more.
    """
    shown = [m for m in spoken(request.messages[: end_of_shown(request.messages)]) if m.print]
    items, numbers = [i for m in shown for i in m.items], numbers_of(shown)
    if any(session.id in index.by_id.get(value, ()) for i in items for value in ids_of(i, numbers)):
        return False
    if any(i.kind != "text" and session.id in holders_of(index, holding_sessions(index, i.print)) for i in items):
        return False  # a call, a compaction item: nobody says those to all
    if len(shown) == 1 and is_greeting(index, items):
        return True
    last = last_answer(session)
    said, passed = index.said.get(session.id, {}), _passed_last(index, session)
    for at, m in enumerate(shown):
        if last and is_shown_in(last, m) and not (at and _is_to_another(index, session, _question_of(shown[:at]), m)):
            return False
        text = plain(m.text)
        is_made = said.get(text) == "side" and sayer_of(index, text)
        if is_made or any(each in text for each in passed):
            return False
    if not shown or _ends_like_last(session, request):
        return False
    first = plain(shown[0].text)
    if any(text in first and is_own(index, session, text) for text in side_summaries(said.items())):
        return False  # its summary, in parts perhaps
    prints = prints_in(session) | session.opening
    last_shown = shown[-_LOOKED_AT:]
    known = [_was_said(index, session, said, prints, m) for m in last_shown]
    held = [m for at, m in enumerate(last_shown) if known[at] and not _is_shared_reply(index, last_shown, known, at)]
    if len(held) < 2 or 2 * len(held) <= len(last_shown):
        return True
    return len(held) < len(last_shown) and not any(_is_said_here(index, session, m) for m in held)


def _is_shared_reply(index: SessionIndex, shown: Sequence[Message], known: Sequence[bool], at: int) -> bool:
    """Is message `at` an answer that several heard, to a question of its user that is not `known`?"""
    asked = at - 1
    is_reply = asked >= 0 and shown[at].role == "assistant" and shown[asked].role == "user" and not known[asked]
    return is_reply and len(holders_of(index, receivers_of(index, shown[at].items))) > 1


def _is_said_here(index: SessionIndex, session: Session, message: Message) -> bool:
    """Does a message hold a call, or a longer text that was said in this conversation only?"""

    def is_ones(i: Item) -> bool:
        text = plain(i.text)
        is_telling = breadth(text) >= PROBE_CHARS
        is_held = holders_of(index, holding_sessions(index, i.print)) <= {session.id}
        return is_telling and is_held and bool(sayer_of(index, text))

    return any(i.kind != "text" or is_ones(i) for i in message.items)


def _passed_last(index: SessionIndex, session: Session) -> list[str]:
    """Long texts that only this session's last answer passed to a tool: a model may write its summary so."""
    last = last_answer(session)
    passed = (plain(text) for call in (last.calls if last else ()) for text in strings_of(call.text))
    long = (text for text in passed if is_long_text(text))
    others = {text: index.by_start.get(text[:PROBE_CHARS], set()) - {session.id} for text in long}
    return [text for text, sids in others.items() if not any(text in index.arguments.get(sid, ()) for sid in sids)]


def _ends_like_last(session: Session, request: Request) -> bool:
    """Does a request end like the session's last one, or like what preceded that one's question, which is another
    now?"""
    shown, asked = shown_and_asked(request)
    before, last = said_of(e.message for e in before_answer(session)), end_of_shown(request.messages) - 1
    is_telling = len(shown) > 1 or breadth(plain(request.messages[last].text)) >= PROBE_CHARS
    if prints_of(before[-len(asked) :]) == prints_of(asked):
        return True
    return is_telling and prints_of(before[-len(shown) - 1 : -1]) == prints_of(shown)


def _question_of(before: Sequence[Message]) -> Message:
    """What an answer behind these messages answers: the user's last text, if there is one; calls and their results
    stand between."""
    return next((m for m in reversed(before) if is_user_message(m)), before[-1])


def _is_to_another(index: SessionIndex, session: Session, question: Message, answer: Message) -> bool:
    """Does the session's last answer stand behind a question other than its own: a short one that shares no word with
    it, or, if several heard this answer, one that was never asked here?"""
    asked = last_asked(session)
    then, now = plain(asked.text) if asked else "", plain(question.text)
    if was_asked_with(now, then) or mostly_equal(now, then):
        return False
    if then and question.role == "user" and not is_long_text(now) and _words(then).isdisjoint(_words(now)):
        return True  # what was spoken has no words
    is_shared = len(holders_of(index, receivers_of(index, answer.items))) > 1
    is_heard = any(session.id in holding_sessions(index, i.print) or i.print in session.opening for i in question.items)
    return is_shared and not is_heard


def _words(text: str) -> set[str]:
    return {*_WORD.findall(text.lower())}


def _was_said(
    index: SessionIndex, session: Session, said: Mapping[str, str], prints: Set[bytes], message: Message
) -> bool:
    """Was the message said in a session, perhaps reformatted, or as the beginning that a client kept of it?"""
    if any(i.print in prints or session.id in holding_sessions(index, i.print) for i in message.items):
        return True
    text = plain(message.text)
    if len(text) < PROBE_CHARS:
        return False
    front, back = text[:_ALIKE_CHARS], text[-_ALIKE_CHARS:]
    begun = {start for _, start in index.sought.within(text, index.by_start)}
    return any(
        (each[:PROBE_CHARS] in begun and each in text)
        or text in each
        or (each.startswith(text[:PROBE_CHARS]) and _CUT.match(text, shared_front(each, text)))
        or ((each.startswith(front) or each.endswith(back)) and mostly_equal(each, text))
        for each in said
        if len(each) >= PROBE_CHARS
    )
