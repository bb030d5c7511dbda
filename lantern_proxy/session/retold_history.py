"""A history retold in other words, or as one text, by a client that continues the session."""

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import chain

from lantern_proxy import analyze
from lantern_proxy.analyze.spoken import without_stamp
from lantern_proxy.history.embedded import GAP_CHARS, readable
from lantern_proxy.history.forms import has_form, shows_system_of
from lantern_proxy.history.presentation import shown_as, strings_of
from lantern_proxy.history.record import Session, items_of, shown, spoken
from lantern_proxy.history.summaries import is_called_summary, is_long_text
from lantern_proxy.history.text import terms
from lantern_proxy.session.index import PROBE_CHARS
from lantern_proxy.session.instructions import asks_for_summary, asks_for_title
from lantern_proxy.session.pasted import is_pasted
from lantern_proxy.session.request_text import is_user_message, readable_texts_of, shows_beginning, untagged
from lantern_proxy.turn import Message, Request, plain

_RETOLD_TEXTS, _RETOLD_CHARS = 3, 1_000
"""Least number of user texts that an answer must retell, and how much of each counts."""
_HEADING_WORDS = 2
"""Most words of a heading that clients put in front of such a text: "Before:"."""


def is_retold(said: Mapping[str, str], session: Session, request: Request) -> bool:
    """Did a client make a summary of the session's last answer: does a text of the user or the system hold it, in front
    of the message that asks, or at the beginning of that message while speaking of half of what the user said before?

    Any other answer speaks of what was said last, and people who show it to a model in a new conversation ask about it
    in the same message. A draft may speak of everything, too, but people say in front of it what it is.
    """
    if any(m.role not in ("user", "assistant") for m in spoken(request.messages)):
        return False
    if not shows_system_of(session, request):
        return False
    retold = _retold(session, request)
    if retold and _is_form_for_it(session, request):
        return not is_pasted(said, readable_texts_of(request, system=True), apart=True)
    before = user_texts_before_last(session) if retold else []
    if len(before) < _RETOLD_TEXTS:
        return False
    earlier = "\n".join([plain(m.text) for m in request.messages[:-1] if m.role != "assistant"])
    opens = _opens(said, session, plain(request.messages[-1].text), retold)
    told = any(text in earlier for text in retold) or (
        opens and speaks_of_half("\n".join(retold), before, least=_RETOLD_TEXTS)
    )
    return told and not is_pasted(said, readable_texts_of(request, system=True), apart=True)


def _is_form_for_it(session: Session, request: Request) -> bool:
    """Did the last answer call a tool that was offered for it alone, and does the request have the system prompt and
    tools from before?

    Then what was passed to that tool is meant for the continuation, even if users only nodded and it retells nothing
    they said.
    """
    called = {call.name for call in session.head[-1].message.calls}
    if not called or not session.forms:
        return False
    before = session.forms[0]
    return called.isdisjoint(before.tools) and has_form(before, request)


def holds_whole_history(session: Session, request: Request) -> bool:
    """Is the first text of the request the session's whole history in one piece, with every answer and result, followed
    by a user's message, under the session's system prompt and with its tools?

    A side call quotes a history under a prompt of its own, or says what to do with it.
    """
    said, head = spoken(request.messages), _printed(session)
    if len(head) < 2 or not _may_hold_history(session, request) or said[0].role == "assistant":
        return False
    text, called, end = plain(said[0].text), 0, 0
    for m in (m for n, m in enumerate(head, start=1) if m.role != "user" or n == len(head)):
        line, is_result = plain(m.text), m.role == "tool"
        at = text.find(line, called if is_result else end)  # what was called for at once comes in any order
        if at < 0:
            return False
        end = max(end, at + len(line))
        called = called if is_result else end
    return len(text) - end <= PROBE_CHARS


def holds_end_of_history(session: Session, request: Request) -> bool:
    """Does the first text of the request end in the session's last messages, from its last exchange backwards, followed
    by a user's message, under the session's system prompt and with its tools? Its client writes what it keeps of a
    history into one text."""
    said, head = spoken(request.messages), _printed(session)
    if not session.answered or [m.role for m in head[-2:]] != ["user", "assistant"]:
        return False
    if not _may_hold_history(session, request) or said[-1].role != "user":
        return False
    exchange = [plain(m.text) for m in head[-2:]]
    return any(_ends_in(plain(text), exchange) for text in {said[0].text, readable(said[0].text)})


def _printed(session: Session) -> list[Message]:
    """The messages of a head that say something, without the system's."""
    return [m for m in spoken(shown(session)) if m.print]


def _may_hold_history(session: Session, request: Request) -> bool:
    """May the first of several messages hold the session's history: does the request have the session's system prompt
    and tools, and ask for no summary or title?"""
    said = spoken(request.messages)
    if len(said) < 2 or request.tools != session.tools or not shows_system_of(session, request):
        return False
    asked = plain(said[-1].text)
    return not asks_for_summary(asked) and not asks_for_title(asked)


def _ends_in(text: str, lines: Sequence[str]) -> bool:
    """Do these lines stand at the end of a text, one behind the other, apart from names?"""
    end = len(text)
    for line in reversed(lines):
        at = text.rfind(line, 0, end)
        if not line or at < 0 or end - at - len(line) > GAP_CHARS:
            return False
        end = at
    return True


def _opens(said: Mapping[str, str], session: Session, text: str, told: Sequence[str]) -> bool:
    """Does the retold text open `text`? Only a time, tags, a heading, words around a summary, an earlier text, or the
    beginning of the session's first text may precede it, since some clients put their orders in front of the first
    text."""
    return any(_is_opening(said, session, each, told) for each in (text, without_stamp(text)))


def _is_opening(said: Mapping[str, str], session: Session, text: str, told: Sequence[str]) -> bool:
    front = text[: min((at for each in told if (at := text.find(each)) >= 0), default=0)]
    bare = untagged(front)
    begun = bool(front) and any(plain(m.text).startswith(front) for m in spoken(shown(session))[:1])
    is_heading = len(bare.split()) <= _HEADING_WORDS or is_called_summary(front)
    return bare in said or begun or is_heading


def user_texts_before_last(session: Session) -> list[str]:
    """The user texts of a head, except the last."""
    return [e.message.text for e in session.head if is_user_message(e.message)][:-1]


def non_assistant_text(request: Request) -> str:
    """What the user and the system say in a request."""
    texts = (i for i in items_of(request.messages, system=True) if i.kind == "text" and i.role != "assistant")
    return "\n".join([plain(i.text) for i in texts])


def answer_in(session: Session, whole: str) -> list[str]:
    """The texts of a session's last answer, without their reasoning if `whole` holds only the rest."""
    texts = (i.text for i in session.head[-1].message.items if i.kind == "text")
    shown = ([plain(each) for each in shown_as(text)] for text in texts)
    return [next((each for each in forms if each in whole), forms[0]) for forms in shown]


def lines_in(answer: Message, session: Session, request: Request) -> list[str]:
    """The long lines of an answer, if the user and system texts of a request hold all of them and the request shows
    what `session` began with; else []. Models write only the changes to notes, and clients merge them there."""
    if not shows_beginning(session, request):
        return []
    lines = [plain(line) for i in answer.items if i.kind == "text" for line in i.text.splitlines()]
    long, whole = [line for line in lines if is_long_text(line)], non_assistant_text(request)
    return long if all(line in whole for line in long) else []


def _retold(session: Session, request: Request) -> list[str]:
    """Long texts of the session's last answer that stand in user or system texts.

    A text passed to a tool that was offered for it alone is followed by the next question; nobody speaks to a
    sub-agent.
    """
    if not session.answered or not session.head:
        return []
    whole, found = non_assistant_text(request), list[str]()
    if request.tools >= session.tools:  # it may have been asked for without tools
        found += [text for text in answer_in(session, whole) if text in whole] or lines_in(
            session.head[-1].message, session, request
        )
    if request.tools <= session.tools or _is_form_for_it(session, request):
        passed = (plain(text) for i in session.head[-1].message.calls for text in strings_of(i.text))
        found += [text for text in passed if text in whole and not whole.endswith(text)]
    return [text for text in found if is_long_text(text)]


def speaks_of_half(text: str, before: Sequence[str], *, least: int = 1) -> bool:
    """Does `text` mention half of the texts said before (at least `least` of them), each by a term that most of them
    lack?

    Texts that were repeated or have no terms, such as "Go on.", do not count.
    """
    once = (_terms(each[:_RETOLD_CHARS]) for each, times in Counter(before).items() if times == 1)
    said = [found for found in once if found]
    often = {term for term, count in Counter(chain.from_iterable(said)).items() if 2 * count > len(said)}
    own = _terms(text) - often
    return len(said) >= least and 2 * sum(not own.isdisjoint(each) for each in said) >= len(said)


def _terms(text: str) -> set[str]:
    """The terms of a text, also without articles and endings, which are parts of the word in Arabic."""
    found = terms(text)
    return found.union(analyze.terms(" ".join(found)))
