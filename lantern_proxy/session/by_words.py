"""Claimed histories: a new text stands where the history should be, in the words of one session."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import islice

from lantern_proxy.analyze.specific import specifics
from lantern_proxy.history.containment import haystack_of
from lantern_proxy.history.forms import is_other_person, shows_system_of, system_text
from lantern_proxy.history.record import Session, items_of, spoken
from lantern_proxy.history.summaries import has_marker, is_called_summary, is_long_text, is_marked, side_summaries
from lantern_proxy.history.text import mostly_equal, shared_front, terms
from lantern_proxy.session.index import (
    CANDIDATES,
    PROBE_CHARS,
    SessionIndex,
    text_with_names,
    vocabulary,
    who_said,
    without_frame,
)
from lantern_proxy.session.request_text import texts_of
from lantern_proxy.turn import Request, plain

RECENT_S = 6 * 3600.0
"""How long a session stays a candidate when only words speak for it."""
_CLAIMED_CHARS = 20_000
"""Most characters of a claimed history that are examined."""
_MIN_SHARE, _MIN_TERMS, _CLEARLY = 0.4, 3, 3.0
"""A claimed history belongs to a session that has _MIN_SHARE of its terms, _MIN_TERMS of them that not all candidates
have, and _CLEARLY times as many of these as the runner-up."""

_MARK, _MARK_CHARS = re.compile(r"\d|[^\W\d_].*[/_.@]|[A-Z\u00c0-\u00de]"), 3
"""A word that names one thing ("48213377", "notes.txt", "Rosa"), and its least length."""
_NUMBERED = re.compile(r"(?<![A-Za-z])[A-Za-z]*+[0-9][A-Za-z0-9]+")
"""A number, or a name made of letters and a number, also where no white space separates it from other letters."""
_MARKS, _MIN_MARKS, _MANY_MARKS = 64, 2, 8
"""Most naming words that are compared; how many of them a claimed history must share with its session; and how many
that only one session named make it certain."""
_LINE_NAME = re.compile(r"^[^\w\n]*(\w[^\n:]{0,30}):\s", re.M)


def session_by_words(index: SessionIndex, request: Request, weak: Sequence[str], now: float) -> Session | None:
    """The session whose words a text uses that stands in place of the history; None unless one session clearly fits
    best."""
    claimed = _claimed(index, request)[:_CLAIMED_CHARS]
    if len(terms(claimed)) < 2 * _MIN_TERMS:
        return None
    fit = [s for s in _candidates(index, request, weak, now) if not _is_preamble(index, s, request, claimed)]
    if not fit:
        return None
    found = terms(without_frame(index, [s.id for s in fit], claimed))
    held = {s.id: found & vocabulary(index, s.id) for s in fit}
    common = set.intersection(*held.values()) if len(fit) > 1 else set()
    own = {sid: len(words - common) for sid, words in held.items()}
    best, *others = sorted(fit, key=lambda s: (own[s.id], s.last_seen_at), reverse=True)
    # in whatever language it speaks, who has its key and knows its many names goes on with it
    is_known = not others and best.family in weak and _named_all(index, best, others, claimed)
    if not is_known and len(held[best.id]) < max(_MIN_TERMS, _MIN_SHARE * len(found)):
        return None
    clear = not others or own[best.id] >= max(_MIN_TERMS, _CLEARLY * own[others[0].id])
    if not clear and not _same_talk(best, others[0]) and not _named_all(index, best, others, claimed):
        return None
    return best if _names_what_it_named(index, best, others, claimed) else None


def begins_anew(index: SessionIndex, sessions: Sequence[Session], request: Request) -> bool:
    """Is the only text of a request that shows none of `sessions` no summary of one of them either? It must not call
    itself a summary, hold anything said in them, or name the same things."""
    said = spoken(request.messages)
    text = plain(said[0].text) if len(said) == 1 and said[0].role == "user" else ""
    if not text or request.delta or is_called_summary(text):
        return False
    whole = haystack_of(text)
    if any(is_long_text(told) and told in whole for s in sessions for told in index.said.get(s.id, ())):
        return False
    own = without_frame(index, [s.id for s in sessions], text)
    return not any(_names_what_it_named(index, s, (), own) for s in sessions)


def spoken_of(index: SessionIndex, sessions: Sequence[Session], request: Request) -> Session | None:
    """The first of `sessions` whose summary a request holds, or whose names it uses alone; for requests that show no
    message of them."""
    text = "\n".join(texts_of(request, system=True))
    whole = haystack_of(text)
    for s in sessions:
        if any(told in whole for told in side_summaries(index.said.get(s.id, {}).items())):
            return s
    return next((s for s in sessions if _names_what_it_named(index, s, sessions, text)), None)


def is_told_of_several(index: SessionIndex, session: Session, request: Request, text: str) -> bool:
    """May a text also be about another recent conversation: does one name everything that the text names?"""
    now = next(reversed(index.sessions.values())).last_seen_at
    others = (s for s in _candidates(index, request, (), now) if not _same_talk(session, s))
    marks = marks_in(text)
    return any(all(mark in named for mark in marks) for named in (text_with_names(index, s.id) for s in others))


def _names_what_it_named(index: SessionIndex, session: Session, others: Sequence[Session], claimed: str) -> bool:
    """Does a claimed history name things (numbers, people, paths) that only this session named?

    Everybody who talks about one subject uses the same words and names the same product. A summary names little that
    was not in the conversation; documents and notes do.
    """
    marks = marks_in(claimed)
    apart = (other for other in others if not _same_talk(session, other))
    common = "\n".join([session.system, *(text_with_names(index, other.id) for other in apart)])
    telling = [mark for mark in marks if mark not in common]
    named = text_with_names(index, session.id)
    shared = sum(mark in named for mark in telling)
    return shared >= _MIN_MARKS and 2 * shared >= len(telling)


def _named_all(index: SessionIndex, session: Session, others: Iterable[Session], claimed: str) -> bool:
    """Does a claimed history name things that all are known to this session, many of them to no other? That decides
    between two sessions about one subject in the same words."""
    theirs = "\n".join([text_with_names(index, other.id) for other in others])
    marks, named = marks_in(claimed), text_with_names(index, session.id)
    return sum(mark not in theirs for mark in marks) >= _MANY_MARKS and all(mark in named for mark in marks)


def marks_in(text: str) -> list[str]:
    """The first words of a text that each name one thing."""
    terms_of = (word for term in specifics(text) for word in term.split())
    words = dict.fromkeys([*terms_of, *_NUMBERED.findall(text)])
    return [word for word in words if len(word) >= _MARK_CHARS and _MARK.search(word)][:_MARKS]


def _candidates(index: SessionIndex, request: Request, weak: Sequence[str], now: float) -> Sequence[Session]:
    """Recent conversations with the request's system prompt, or with none; only those that a weak id names, if there
    are any."""
    recent = (s for s in reversed(index.sessions.values()) if now - s.last_seen_at < RECENT_S and not s.side)
    talks = (s for s in recent if s.api == request.api and s.turn > 1)
    fit = [s for s in talks if (not s.system or shows_system_of(s, request)) and not is_other_person(s, request)]
    return ([s for s in fit if s.family in weak] or fit)[:CANDIDATES]


def _claimed(index: SessionIndex, request: Request) -> str:
    """The text that stands for a history: the only long text before the last one, a summary appended to a known system
    prompt, or a single text that a client marks as a summary. Empty if this is a new conversation, or one whose
    beginning was never seen."""
    if any(i.kind == "call" for i in items_of(request.messages)):
        return ""
    texts = [t for t in texts_of(request) if t]
    long = {t: {who for _, who in who_said(index, t)} for t in texts[:-1] if is_long_text(t)}
    new = [t for t, who in long.items() if not who]  # many may begin with a known one, and people show old answers
    if new and any(not who.isdisjoint(("assistant", "side")) for who in long.values()):
        return ""  # what a model answered stands for the history
    if len(new) == 1:
        return new[0]
    if len(texts) != 1:
        return ""
    told = texts[0] if has_marker(request) and not _is_transcript(request) else ""
    return _added(index, system_text(request)) or told


def _is_transcript(request: Request) -> bool:
    """Do two speakers alternate in the text? Then it shows a conversation and is no summary of one."""
    names = Counter(_LINE_NAME.findall("\n".join([m.text for m in spoken(request.messages)])[:_CLAIMED_CHARS]))
    return sum(count > 1 for count in names.values()) > 1


def _added(index: SessionIndex, system: str) -> str:
    """What follows a known system prompt, if it says that it is a summary. Documents, notes and a program's memory of
    its user stand there, too, in the words of those who said them."""
    if any(s.system == system for s in reversed(index.sessions.values())):
        return ""
    others = dict.fromkeys([s.system for s in reversed(index.sessions.values())])
    behind = [o for o in others if system.startswith(o)]
    behind += [o for o in islice(others, CANDIDATES) if mostly_equal(o, system[: len(o)])]
    added = system[len(max(behind, key=len, default=system)) :]
    return added if is_called_summary(added) else ""


def _is_preamble(index: SessionIndex, session: Session, request: Request, claimed: str) -> bool:
    """Does its client begin conversations like this? It does if they begin with as many texts; if nothing was lost and
    no summary marker follows what the texts share; or if the text is not marked as a summary and other sessions hold
    it, too.

    Examples: documents for a question, the state of a working directory, a greeting with a name.
    """
    begins = claimed[:PROBE_CHARS]
    front = max((shared_front(claimed, text) for text in index.said.get(session.id, ())), default=0)
    if not session.lost and front >= PROBE_CHARS and not is_marked(claimed[front:]):
        return True
    if index.by_start.get(begins, set()) - {session.id} and not is_called_summary(claimed):
        return True
    return len(texts_of(request)) in range(2, len(session.opening) + 1) and not is_marked(claimed)


def _same_talk(a: Session, b: Session) -> bool:
    """Do two sessions hold the same user texts, so that it does not matter which one is meant?"""
    asked, also = ([e.message.print for e in s.head if e.message.role == "user"] for s in (a, b))
    return asked == also
