"""The system prompts and tools a session was used with: clients have modes, and agents hand over to each other."""

import re
from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from lantern_proxy.history.record import Form, Session
from lantern_proxy.history.shared_prefix import remember_last
from lantern_proxy.history.summaries import is_called_summary
from lantern_proxy.history.text import breadth, mostly_equal, same_system, shared_front
from lantern_proxy.turn import SYSTEM, Message, Request, plain

_FORMS = 8
"""Most forms kept per session, the latest ones."""
_VARIED, _FRONT_BREADTH = 2, 20
"""If this many system prompts besides the last one share this much of their beginning with it, they are one prompt that
changes with every turn."""
_COMPARED_CHARS, _FIGURES = 1_000, re.compile(r"\d+")


def system_text(request: Request) -> str:
    """Canonical text of the system and developer messages that open the request."""
    return "\n".join([plain(m.text) for m in _opening(request)])


def _opening(request: Request) -> Sequence[Message]:
    messages, end = request.messages, 0
    while end < len(messages) and messages[end].role in SYSTEM:
        end += 1
    return messages[:end]


@remember_last
def shows_system_of(session: Session, request: Request) -> bool:
    """Does the request open with system messages that the session showed before, or with similar ones?"""
    known = {print for print, _ in session.system_keys}
    opening = _opening(request)
    if opening and all(m.print in known for m in opening):
        return True
    now = system_text(request)
    known_as = (session.system, *(f.system for f in session.forms if f.system))
    return any(same_system(system, now) for system in known_as) or _varies_as(session, now)


def _varies_as(session: Session, now: str) -> bool:
    """Does a prompt begin like all of the session's, each of which ends otherwise (a mood, a nonce, news)? Nearly every
    turn must have had another prompt; modes are excluded, since they recur."""
    others = [_without_figures(f.system) for f in session.forms if f.tools == session.tools]
    if len(others) < max(_VARIED, min(session.turn, _FORMS) - 1):
        return False
    last = _without_figures(session.system)
    front = last[: min(shared_front(last, system) for system in others)]
    return breadth(front) >= _FRONT_BREADTH and _without_figures(now).startswith(front)


def _without_figures(system: str) -> str:
    """The beginning of a prompt, with every number replaced, such as dates and times."""
    return _FIGURES.sub("0", system[:_COMPARED_CHARS])


def is_other_person(session: Session, request: Request) -> bool:
    """Did the client name another person? A group may share a conversation, so this counts only with little other
    evidence."""
    return bool(session.person and request.person) and session.person != request.person


def form_of(session: Session) -> Form:
    """The system prompt and tools of the session's last turn."""
    return Form(session.system, session.tools)


def has_form(form: Form, request: Request) -> bool:
    """Does the request have this form? Documents and summaries may follow its system prompt, or stand where there was
    none."""
    system = system_text(request)
    return form.tools == request.tools and (form.system in system or same_system(form.system, system))


def form_among(forms: Iterable[Form], request: Request) -> Form | None:
    """The first of `forms` that the request has; one without a system prompt only if the request has none, either."""
    return next((f for f in forms if has_form(f, request) and (f.system or not system_text(request))), None)


def in_form(session: Session, request: Request) -> Session:
    """The session in the form of `request`, if its turns had that form before or may have had it; else unchanged."""
    if session.imported and (request.tools or not session.tools):
        return replace(session, system=system_text(request), tools=request.tools)
    if not session.forms or has_form(form_of(session), request):
        return session
    form = form_among(session.forms, request)
    return replace(session, system=form.system, tools=form.tools) if form else session


def forms_with(session: Session, now: Form) -> tuple[Form, ...]:
    """Session.forms after the session takes the form `now`."""
    last = form_of(session)
    if session.imported or not session.keys or _is_same(last, now):
        return session.forms
    return (last, *(f for f in session.forms if not _is_same(last, f)))[:_FORMS]


def _is_same(a: Form, b: Form) -> bool:
    """Do both have the same tools and similar system prompts?"""
    return a.tools == b.tools and same_system(a.system, b.system)


def base_of(session: Session, request: Request) -> str:
    """The constant part of a request's system prompt, without summaries that were added later.

    The session's own prompt does not count if only its very first request had it: that may have been the call for a
    title.
    """
    now, is_first = system_text(request), session.side or session.imported or not session.keys
    if is_first or not now:
        return session.system if not is_first and (request.delta or session.turn > 1) else now
    return session.system if session.system in now else _dated(session.system, now)


def _dated(base: str, now: str) -> str:
    """The beginning of the prompt `now` that is `base` but for a time in it, if a summary follows; else all of it."""
    front, behind = now[: len(base)], now[len(base) :]
    return front if base and mostly_equal(base, front) and is_called_summary(behind) else now
