"""Text that a session's model wrote for others: tasks for sub-agents, and what its user continues elsewhere."""

from collections.abc import Iterable
from typing import Literal

from lantern_proxy.history.containment import haystack_of
from lantern_proxy.history.forms import shows_system_of
from lantern_proxy.history.presentation import strings_of
from lantern_proxy.history.record import Session, items_of, new_answer, spoken
from lantern_proxy.session.index import PROBE_CHARS, SessionIndex
from lantern_proxy.session.request_text import is_user_message, user_replies_last
from lantern_proxy.session.retold_history import speaks_of_half, user_texts_before_last
from lantern_proxy.turn import Request, plain


def is_delegated(index: SessionIndex, session: Session, request: Request) -> bool:
    """Is the first user text of this request a string that the session's model passed to a tool?

    If the user says more after it, under the session's system prompt, it is a summary: nobody speaks to a sub-agent.
    """
    texts = (plain(i.text) for i in items_of(request.messages) if i.role == "user" and i.kind == "text")
    said = [text for text in texts if text]  # a reminder may stand in front
    asked = said[0] if said else ""
    if len(said) > 1 and shows_system_of(session, request):
        return False
    if len(asked) < PROBE_CHARS:
        return False
    whole = haystack_of(asked)
    return any(argument in whole or asked in argument for argument in index.arguments.get(session.id, ()))


def is_passed_on(
    index: SessionIndex, parent: Session, request: Request, *, id_of: Literal["", "parent", "own"]
) -> bool:
    """Is a request whose first text the model of `parent` passed to a tool a conversation of its own, and no
    sub-agent's task?

    People pass on a plan or notes with words around them, under the system prompt and tools with which those were
    written, and reply to the answer. A sub-agent is addressed only by its client, whose model waits for it.
    """
    shows_form = request.tools == parent.tools and shows_system_of(parent, request)
    asked = [plain(m.text) for m in spoken(request.messages) if is_user_message(m)]
    passed = index.arguments.get(parent.id, ())
    if not asked or not (shows_form or id_of == "own"):
        return False
    if user_replies_last(request.messages):
        is_new = len(asked[-1]) < PROBE_CHARS or not _is_among(asked[-1], passed)
        return is_new and (id_of == "own" or len({*asked}) > 2 or not _waits_for(parent, asked[0]))
    is_dressed = not any(asked[0] in argument for argument in passed)
    return shows_form and (id_of == "own" or (is_dressed and not id_of))


def is_taken_over(index: SessionIndex, parent: Session, request: Request) -> bool:
    """Does a user continue a thread that the model of `parent` opened, where the model would continue it itself?

    What another agent says there was passed to a tool, too.
    """
    if request.tools != parent.tools or not shows_system_of(parent, request) or not user_replies_last(request.messages):
        return False
    first, *_, last = spoken(request.messages)
    before = user_texts_before_last(parent)
    if not speaks_of_half(plain(first.text), before):
        return False  # a task is one thing; what a model passes on to go on with speaks of all
    return not _is_among(plain(last.text), index.arguments.get(parent.id, ()))


def _is_among(said: str, passed: Iterable[str]) -> bool:
    """Does a text contain one of those passed to tools, or the other way round?"""
    return any(said in argument or argument in said for argument in passed)


def _waits_for(session: Session, asked: str) -> bool:
    """Did the session's last answer pass this text to a tool whose result is still missing?"""
    calls = (call for m in new_answer(session) for call in m.calls)
    passed = (plain(text) for call in calls for text in strings_of(call.text))
    return _is_among(asked, (text for text in passed if len(text) >= PROBE_CHARS))
