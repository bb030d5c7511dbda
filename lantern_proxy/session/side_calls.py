"""Side calls: a client's requests beside its conversation, such as titles, summaries, sub-agents.

Their form decides: another system prompt, no tools, the conversation's texts pasted into one message, a prompt that the
conversation's model wrote. Words only break ties, if a summarising call and a turn have the same form.
"""

from collections.abc import Iterable, Mapping
from itertools import islice, pairwise, takewhile

from lantern_proxy.history.branches import is_aside, on_branch
from lantern_proxy.history.containment import haystack_of
from lantern_proxy.history.forms import in_form, shows_system_of, system_text
from lantern_proxy.history.presentation import parts_of
from lantern_proxy.history.record import (
    Session,
    before_answer,
    goes_on,
    is_empty,
    items_of,
    last_answer,
    new_answer,
    prints_in,
    shown,
    shown_prints,
    spoken,
)
from lantern_proxy.history.summaries import is_long_text
from lantern_proxy.session.index import SessionIndex, side_of, side_since
from lantern_proxy.session.instructions import (
    asks_for_summary,
    asks_for_summary_of_head,
    is_summary_call,
    is_summary_of_rest,
)
from lantern_proxy.session.pasted import is_pasted, quotes_exchange
from lantern_proxy.session.request_text import (
    last_said,
    readable_texts_of,
    shows_beginning,
    texts_of,
    user_replies_last,
)
from lantern_proxy.session.transcript_use import use_of_transcript
from lantern_proxy.turn import SYSTEM, Item, Message, Request, plain

_TOLD = 6
"""How many messages at the end of a head are looked for in a transcript."""


def held_share(session: Session, request: Request) -> float:
    """Share of the session's head, 0 to 1, that the request holds as messages of its own."""
    if goes_on(session, request):
        return float(any(e.message.print and e.message.role not in SYSTEM for e in session.head))
    head = _head_of(session)
    return _count_held(head, request) / len(head) if head else 0.0


def held_count(session: Session, request: Request) -> int:
    """How many messages of the session's head the request has as messages of its own."""
    return _count_held(_head_of(session), request)


def _head_of(session: Session) -> list[Message]:
    """Comparable messages of the session's head, without system prompts."""
    return [m for m in spoken(shown(session)) if m.print]


def _count_held(head: Iterable[Message], request: Request) -> int:
    names = _names(request)
    return sum(any(_is_named(i, names) for i in m.items) for m in head)


def holds_answer(session: Session, request: Request) -> bool:
    """Does the request hold the last answer that the session got?"""
    last = last_answer(session)
    if last is not None and last.print and goes_on(session, request):
        return True
    names = _names(request)
    return last is not None and any(_is_named(i, names) for i in last.items if not is_empty(i))


def _names(request: Request) -> set[bytes | str]:
    """Fingerprints of the request's items, and the ids by which it refers to others."""
    items = list(items_of(request.messages))
    return {i.print for i in items}.union(*(i.ids for i in items if i.kind == "ref"))


def _last_exchanges(session: Session) -> list[tuple[str, str]]:
    """The last (user text, answer) pairs, canonical: a transcript within another text ends in them."""
    pairs = pairwise(spoken(shown(session))[-_TOLD:])
    return [(plain(a.text), plain(b.text)) for a, b in pairs if (a.role, b.role) == ("user", "assistant")]


def _is_named(i: Item, names: set[bytes | str]) -> bool:
    """Is an item there, by its ids, or without the thoughts that its client does not show?"""
    return i.print in names or not names.isdisjoint(i.ids) or any(print in names for print in shown_prints(i))


def is_side_of(index: SessionIndex, session: Session, request: Request) -> bool:
    """Does this request use the session's content for something other than continuing it?"""
    if is_aside(session, request):  # in a form that the next step of a turn may have as well
        return not (shows_system_of(session, request) and answers_calls(session, request))
    said = index.said.get(session.id, {})
    if session.imported and _is_no_turn_of(session, request):
        return True
    session = in_form(on_branch(session, request), request)
    if use := use_of_transcript(index, session, request, named=True):
        return use == "side"
    other = not shows_system_of(session, request)
    share = held_share(session, request)
    if not share:
        own = bool(session.system) or request.tools != session.tools or _says_nothing_new(request, said)
        read = readable_texts_of(request)
        pasted = is_pasted(said, read, labelled=other) or quotes_exchange(_last_exchanges(session), read)
        return pasted or (other and own and not _is_summed_up_in_system(index, session, request))
    if not other and _ends_in_summary(index, session, request):
        return False
    if not other:
        return is_summary_call(request, session, said) or (share < 1 and is_summary_of_rest(request, session, said))
    if not holds_answer(session, request) and share <= 0.5 and system_text(request):
        return not _is_summed_up_in_system(index, session, request)
    if answers_calls(session, request) or _is_handed_over(session, request):
        return False
    if request.tools != session.tools:
        return True
    if _goes_on_behind_summary(index, session, request):
        return False
    if is_summary_call(request, session, said) or _is_read_over(session, request):
        return True
    return asks_for_summary_of_head(session, request) and not _is_summed_up_in_system(index, session, request)


def _is_no_turn_of(session: Session, request: Request) -> bool:
    """Is the request a side call of an imported session, of which the form of requests is unknown?

    It is if it ends in an answer and holds nothing new, or if it shows nothing of the session and is too short to hold
    a summary.
    """
    if held_share(session, request):
        return _is_read_over(session, request)
    return all(not is_long_text(plain(m.text)) for m in spoken(request.messages))


def _goes_on_behind_summary(index: SessionIndex, session: Session, request: Request) -> bool:
    """Does a user continue after the session's last answer, with the beginning gone and a summary in a system prompt of
    another kind?

    If the session had no system prompt, that summary may be all of it.
    """
    said = spoken(request.messages)
    asked = plain(said[-1].text)
    is_new = user_replies_last(said) and not asks_for_summary(asked)
    if not is_new or not holds_answer(session, request) or shows_beginning(session, request):
        return False
    return not session.system or _is_summed_up_in_system(index, session, request)


def _is_read_over(session: Session, request: Request) -> bool:
    """Does a request under another system prompt end in an answer and hold nothing new? Then the prompt asks for
    something made of the conversation."""
    names, said = prints_in(session), spoken(request.messages)
    return said[-1].role == "assistant" and all(i.print in names for i in items_of(said))


def answers_calls(session: Session, request: Request) -> int:
    """With how many results the request ends, if they are those of all calls of the session's last answer, and of no
    other call; else 0.

    The results belong to the session whatever the system prompt: the model may have handed the conversation over.
    """
    called = [i.print for m in new_answer(session) for i in m.calls]
    if not called:
        return 0
    used = takewhile(lambda i: i.kind in ("call", "result"), reversed([*items_of(request.messages)]))
    last = [*islice(used, 2 * len(called))]
    results = sum(i.kind == "result" for i in last)
    return results if called == [i.print for i in reversed(last) if i.kind == "call"] and results == len(called) else 0


def _is_handed_over(session: Session, request: Request) -> bool:
    """Is a question for which the model called a tool asked again, with tools, behind all texts of the session and none
    of its calls? The model handed the conversation over, and its client leaves out what tools said."""
    texts = [i for i in items_of(e.message for e in before_answer(session)) if i.kind == "text"]
    is_waiting = any(m.calls for m in new_answer(session))
    is_talk = any(i.role == "assistant" for i in texts) and texts[-1].role == "user"
    return is_waiting and is_talk and bool(request.tools) and _prints(texts) == _prints(items_of(request.messages))


def _prints(items: Iterable[Item]) -> list[bytes]:
    return [i.print for i in items]


def _is_summed_up_in_system(index: SessionIndex, session: Session, request: Request) -> bool:
    """Does the system prompt hold an answer of the session or of its side calls? Then it holds a summary.

    A model may also pass its summary to a tool.
    """
    system, said = system_text(request), index.said.get(session.id, {})
    told = [text for text, who in said.items() if who in ("side", "assistant")]
    told += index.arguments.get(session.id, ())
    whole = haystack_of(system)
    is_told = any(is_long_text(text) and text in whole for text in told)
    return is_told and not is_pasted(said, [system]) and not _is_of_last_side_call(index, session, system)


def _is_of_last_side_call(index: SessionIndex, session: Session, system: str) -> bool:
    """Is a system prompt, word for word, that of the session's last side call? What that asked for is asked for again,
    though the prompt may hold an earlier summary, too."""
    side = side_of(index, session)
    return side is not None and bool(system) and side.system == system


def _says_nothing_new(request: Request, said: Mapping[str, str]) -> bool:
    """Does the user only repeat what was said before, with no answer shown? Clients ask for titles like that."""
    texts = [text for text in texts_of(request) if text]
    if not texts or any(m.role == "assistant" for m in request.messages):
        return False
    before = haystack_of("\n".join(text for text, who in said.items() if who == "user"))
    return all(text in before for text in texts)


def summaries_since(index: SessionIndex, session: Session) -> list[str]:
    """Long texts that a side call of `session` was answered with after the session's last message."""
    side = side_since(index, session)
    made = items_of(e.message for e in side.head if e.produced) if side is not None else ()
    told = (plain(text) for i in made if i.kind in ("text", "call") for text in parts_of(i.text))
    return [text for text in told if is_long_text(text)]


def _ends_in_summary(index: SessionIndex, session: Session, request: Request) -> bool:
    """Does the last message hold a summary that was made just now, in place of the session's last answer?

    Such a summary stands for the current turn. One that is to be updated comes with what was said since.
    """
    if not session.answered or holds_answer(session, request) or request.tools != session.tools:
        return False
    last = last_said(request)
    if last is None or last.role != "user":
        return False
    return any(text in plain(last.text) for text in summaries_since(index, session))
