"""The system prompts and tools a session was used with: clients have modes, and agents hand over to each other."""

import re
from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from lantern_proxy.history.record import Form, Session
from lantern_proxy.history.shared_prefix import remember_last
from lantern_proxy.history.text import breadth, same_system, shared_front
from lantern_proxy.turn import SYSTEM, Message, Request, plain

_FORMS = 8
"""Most forms that are kept of a session, the last ones."""
_VARIED, _FRONT_BREADTH = 2, 20
"""If so many system prompts besides the last one share so much of their beginning with it, they are one prompt that
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
    """Does the request open with system messages that the session showed before, or with ones of their class?"""
    known = {print for print, _ in session.system_keys}
    opening = _opening(request)
    if opening and all(m.print in known for m in opening):
        return True
    now = system_text(request)
    known_as = (session.system, *(f.system for f in session.forms if f.system))
    return any(same_system(system, now) for system in known_as) or _varies_as(session, now)


def _varies_as(session: Session, now: str) -> bool:
    """Does a prompt begin as all of the session's do, each of which goes on otherwise: a mood, a nonce, what is new?
    Modes, which come again, do not: nearly each turn had another prompt."""
    others = [_without_figures(f.system) for f in session.forms if f.tools == session.tools]
    if len(others) < max(_VARIED, min(session.turn, _FORMS) - 1):
        return False
    last = _without_figures(session.system)
    front = last[: min(shared_front(last, system) for system in others)]
    return breadth(front) >= _FRONT_BREADTH and _without_figures(now).startswith(front)


def _without_figures(system: str) -> str:
    """The beginning of a prompt, whatever date or time is in it."""
    return _FIGURES.sub("0", system[:_COMPARED_CHARS])


def is_other_person(session: Session, request: Request) -> bool:
    """Did its client name somebody else? A group may share a conversation, so this counts where little else does."""
    return bool(session.person and request.person) and session.person != request.person


def form_of(session: Session) -> Form:
    """What the session's last turn was asked for with."""
    return Form(session.system, session.tools)


def has_form(form: Form, request: Request) -> bool:
    """Documents and summaries may stand behind a system prompt, or where there was none."""
    system = system_text(request)
    return form.tools == request.tools and (form.system in system or same_system(form.system, system))


def form_among(forms: Iterable[Form], request: Request) -> Form | None:
    """The first of `forms` that the request has; one without a system prompt only where the request has none."""
    return next((f for f in forms if has_form(f, request) and (f.system or not system_text(request))), None)


def in_form(session: Session, request: Request) -> Session:
    """The session in the form of `request`, where turns of it had that before or may have had it; else itself."""
    if session.imported and (request.tools or not session.tools):
        return replace(session, system=system_text(request), tools=request.tools)
    if not session.forms or has_form(form_of(session), request):
        return session
    form = form_among(session.forms, request)
    return replace(session, system=form.system, tools=form.tools) if form else session


def forms_with(session: Session, now: Form) -> tuple[Form, ...]:
    """Session.forms once the session has the form `now`."""
    last = form_of(session)
    if session.imported or not session.keys or _is_same(last, now):
        return session.forms
    return (last, *(f for f in session.forms if not _is_same(last, f)))[:_FORMS]


def _is_same(a: Form, b: Form) -> bool:
    """Do both have the same tools, and system prompts of one class?"""
    return a.tools == b.tools and same_system(a.system, b.system)


def base_of(session: Session, request: Request) -> str:
    """The part of a request's system prompt that stays, without summaries that were put beside it later.

    What the session has as its prompt does not count where only its very first request had it: that may have been the
    call for a title.
    """
    now, is_first = system_text(request), session.side or session.imported or not session.keys
    stays = session.system in now if now else request.delta or session.turn > 1
    return session.system if not is_first and stays else now
