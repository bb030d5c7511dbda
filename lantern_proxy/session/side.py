"""Side calls: a client's requests that are not its conversation, but a title, a summary, a sub-agent.

Their form decides: another system prompt, no tools, the conversation's texts pasted together into one message, a prompt
that the conversation's model wrote. Words only break ties, where a summarising call and a turn have the same form.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, islice, pairwise, takewhile
from typing import Literal

from lantern_proxy.history import (
    MARKER_CHARS,
    SUMMARY_CHARS,
    SUMMED_UP,
    Session,
    before_answer,
    goes_on,
    in_form,
    is_empty,
    items_of,
    shown,
    shows_system_of,
    spoken,
    system_text,
    told_aside,
)
from lantern_proxy.history.dress import parts_of, strings_of, unescaped
from lantern_proxy.history.former import is_aside
from lantern_proxy.history.text import terms
from lantern_proxy.history.whole import whole_of
from lantern_proxy.session.known import PROBE_CHARS, Known, side_of
from lantern_proxy.session.pasted import PROBE_TEXT_CHARS, is_pasted, is_told
from lantern_proxy.session.script import script_use
from lantern_proxy.turn import SYSTEM, Item, Message, Request, plain
from lantern_proxy.turn_memo import Memo

_SUMMARISE = re.compile(
    r"(?:summar|compact).{0,80}?(?:conversation|session|context)|(?:conversation|session|context).{0,80}?(?:summar|compact)",
    re.I | re.S,
)
"""A client's instruction: "Summarize the conversation", "The session is to be compacted"."""
_CHARS_PER_WORD = 1_500
"""A text that is an instruction to summarise says so at least once in so many characters; a pasted article does not."""
_WISH = re.compile(
    r"(?:summar|compact|condens).{0,80}?(?:conversation|session|context|chat|history|messages|discussion)"
    r"|(?:conversation|session|context|chat|history|messages|discussion).{0,80}?(?:summar|compact|condens)",
    re.I | re.S,
)
"""As _SUMMARISE, and in a person's words: "condense this chat", "your discussion in a summary"."""
_WISH_CHARS = 400
"""Where the tools of the conversation were taken away, are others, or may not be called, an instruction that opens with
the wish needs not repeat it."""
_NO_TOOLS = re.compile(
    r"\b(?:do not|don't|never|must not|without) (?:\w+ ){0,2}?(?:call|us)\w* (?:\w+ ){0,2}?tools?\b", re.I
)
"""That tools may not be called: "do not call any tools", "without using tools"."""
_SHORTEN = re.compile(
    r"(?:summar|compress|condens|shorten).{0,80}?\btool|\btool.{0,80}?(?:summar|compress|condens|shorten)", re.I | re.S
)
"""A task about one result: "summarize this tool output"."""
_BY_HAND_CHARS = 400
"""People who wish for a summary say so in fewer characters."""
_TITLE = re.compile(
    r"\btitle\b.{0,80}?\b(?:conversation|chat|session|thread)\b|\b(?:chat|thread)\b.{0,80}?\btitle\b", re.I | re.S
)
"""A task to name a conversation: "a title for this chat"."""
_TITLE_CHARS = 600
"""Such a task stands at the beginning of its prompt."""
_RETOLD_TEXTS, _RETOLD_CHARS = 3, 1_000
"""Texts of a user that an answer tells again, at least, and how much of each counts."""
_HEADING_WORDS = 2
"""What clients put in front of what they tell a model has no more: "Before:"."""
_NAMED_LINE = re.compile(r"^\W{0,3}\w[^\n:>\]]{0,30}[:>\]][*\s]*(\S.*)$", re.M)
"""What somebody says in a transcript: "Human: ..."."""
_TAG = re.compile(r"</?[\w:-]{1,40}>")
"""A client names so what it puts into a text; it wishes for nothing: "</SessionSummary>"."""
_TOLD = 6
"""Messages at the end of a head that are looked for in a transcript."""
_CALLED = 400
"""Names of tools that are looked for in a request."""


def held_share(session: Session, request: Request) -> float:
    """How much of the session's head, 0 to 1 by messages, stands in the request as messages of its own."""
    if goes_on(session, request):
        return float(any(e.message.print and e.message.role not in SYSTEM for e in session.head))
    head = _head_of(session)
    return _count_held(head, request) / len(head) if head else 0.0


def held_count(session: Session, request: Request) -> int:
    """How many messages of the session's head stand in the request as messages of its own."""
    return _count_held(_head_of(session), request)


def _head_of(session: Session) -> list[Message]:
    return [m for m in spoken(shown(session)) if m.print]


def _count_held(head: Iterable[Message], request: Request) -> int:
    names = _names(request)
    return sum(any(_is_named(i, names) for i in m.items) for m in head)


def holds_answer(session: Session, request: Request) -> bool:
    """Does the request hold the last answer that the session got?"""
    last = next((e.message for e in reversed(session.head) if e.produced), None)
    if last is not None and last.print and goes_on(session, request):
        return True
    names = _names(request)
    return last is not None and any(_is_named(i, names) for i in last.items if not is_empty(i))


def _names(request: Request) -> set[bytes | str]:
    """Fingerprints of the request's items, and the ids by which it refers to others."""
    items = list(items_of(request.messages))
    return {i.print for i in items}.union(*(i.ids for i in items if i.kind == "ref"))


def _last_exchanges(session: Session) -> list[tuple[str, str]]:
    """What a user said and what was answered, canonical, the last ones: a transcript in another text ends in them."""
    pairs = pairwise(spoken(shown(session))[-_TOLD:])
    return [(plain(a.text), plain(b.text)) for a, b in pairs if (a.role, b.role) == ("user", "assistant")]


def _is_named(i: Item, names: set[bytes | str]) -> bool:
    return i.print in names or not names.isdisjoint(i.ids)


def is_side_of(known: Known, session: Session, request: Request) -> bool:
    """Does this request use the session's content for something else than going on with it?"""
    if is_aside(session, request):
        return True
    session = in_form(session, request)
    said = known.said.get(session.id, {})
    if use := script_use(known, session, request, named=True):
        return use == "side"
    other = not shows_system_of(session, request)
    share = held_share(session, request)
    if not share:
        own = bool(session.system) or request.tools != session.tools or _says_nothing_new(request, said)
        read = read_of(request)
        pasted = is_pasted(said, read, labelled=other) or is_told(_last_exchanges(session), read)
        return pasted or (other and own and not _is_summed_up_in_system(known, session, request))
    if not other and _ends_in_summary(known, session, request):
        return False
    if not other:
        return _is_summary_call(request, session, said) or (share < 1 and _is_summary_of_rest(request, session, said))
    if not holds_answer(session, request) and share <= 0.5 and system_text(request):
        return not _is_summed_up_in_system(known, session, request)
    if _answers_calls(session, request):
        return False
    if request.tools != session.tools:
        return True
    if _goes_on_behind_summary(known, session, request):
        return False
    if _is_summary_call(request, session, said) or _is_read_over(session, request):
        return True
    return is_wished_of_head(session, request) and not _is_summed_up_in_system(known, session, request)


def _goes_on_behind_summary(known: Known, session: Session, request: Request) -> bool:
    """Does a user speak on behind the session's last answer, where its beginning is gone and a summary stands in a
    system prompt of another class?

    It may be the only text there, where the session had no system prompt.
    """
    said = spoken(request.messages)
    asked = plain(said[-1].text)
    is_new = is_spoken_to(said) and not _WISH.search(asked[:_WISH_CHARS])
    if not is_new or not holds_answer(session, request) or _shows_beginning(session, request):
        return False
    return not session.system or _is_summed_up_in_system(known, session, request)


def _is_read_over(session: Session, request: Request) -> bool:
    """Does a request end in an answer, and hold nothing that was not said before? Then something else is made of it
    under its system prompt, which is another one."""
    names = {i.print for e in session.head for i in e.message.items}
    said = spoken(request.messages)
    return said[-1].role == "assistant" and all(i.print in names for i in items_of(said))


def _answers_calls(session: Session, request: Request) -> bool:
    """Do the results of all calls of the session's last answer end the request, and nothing else since?

    What a model called for comes back to it, under whatever orders: it may have handed the conversation over.
    """
    answer = session.head[len(before_answer(session)) :]
    called = [i.print for e in answer for i in e.message.calls]
    if not called:
        return False
    used = takewhile(lambda i: i.kind in ("call", "result"), reversed([*items_of(request.messages)]))
    last = [*islice(used, 2 * len(called))]
    results = sum(i.kind == "result" for i in last)
    return results == len(called) and called == [i.print for i in reversed(last) if i.kind == "call"]


def _is_summed_up_in_system(known: Known, session: Session, request: Request) -> bool:
    """Does an answer of the session, or of a side call of it, stand in the system prompt? Then it is a summary.

    A model may pass its summary to a tool.
    """
    system, said = system_text(request), known.said.get(session.id, {})
    told = [text for text, who in said.items() if who in ("side", "assistant")]
    told += known.arguments.get(session.id, ())
    whole = whole_of(system)
    return any(len(text) >= SUMMARY_CHARS and text in whole for text in told) and not is_pasted(said, [system])


def _says_nothing_new(request: Request, said: Mapping[str, str]) -> bool:
    """Does the user only say again what was said before, without an answer? A title is asked for like that."""
    texts = [text for text in texts_of(request) if text]
    if not texts or any(m.role == "assistant" for m in request.messages):
        return False
    before = whole_of("\n".join(text for text, who in said.items() if who == "user"))
    return all(text in before for text in texts)


def texts_of(request: Request, *, system: bool = False) -> list[str]:
    """Canonical texts of the request, calls and results left out."""
    return [plain(i.text) for i in items_of(request.messages, system=system) if i.kind == "text"]


def _messages_of(request: Request, *, system: bool = False) -> list[str]:
    """Canonical text of each message, its parts together, calls and results left out."""
    found = request.messages if system else spoken(request.messages)
    return [" ".join([plain(i.text) for i in m.items if i.kind == "text"]) for m in found]


def read_of(request: Request, *, system: bool = False) -> list[str]:
    """_messages_of(), and behind them what is written as JSON in them as it reads."""
    escaped = (i.text for i in items_of(request.messages, system=system) if i.kind == "text" and "\\" in i.text)
    return [*_messages_of(request, system=system), *map(unescaped, escaped)]


def is_task_about(said: Mapping[str, str], session: Session, request: Request) -> bool:
    """Does a request without the session's tools wish for a summary of its only turn, with what the user said in it?

    Of a longer session there are texts of two speakers in it; one of them alone may be pasted anywhere by hand.
    """
    if request.tools or not session.tools or session.turn > 1:
        return False
    texts = _messages_of(request)
    wished = _WISH.search(system_text(request)[:_WISH_CHARS]) or any(_WISH.search(text[:_WISH_CHARS]) for text in texts)
    long = [text[:PROBE_TEXT_CHARS] for text, who in said.items() if len(text) >= SUMMARY_CHARS and who == "user"]
    return bool(wished) and any(piece in text for text in map(whole_of, texts) for piece in long)


def is_task_about_line(said: Mapping[str, str], request: Request) -> bool:
    """Does a single text without tools wish for a summary, with a line behind a name that is all that a user said once?

    Who pastes one text by hand writes no name in front of it: clients sum up what goes one by one.
    """
    found = spoken(request.messages)
    if request.tools or len(found) != 1 or not _WISH.search(plain(found[0].text)[:_WISH_CHARS]):
        return False
    lines = (plain(line[1]) for i in found[0].items if i.kind == "text" for line in _NAMED_LINE.finditer(i.text))
    return any(len(line) >= SUMMARY_CHARS and said.get(line) == "user" for line in lines)


def is_result_to_shorten(said: Mapping[str, str], session: Session, request: Request) -> bool:
    """Does a request that wants results shorter hold one of the session?"""
    if not session.tools or not _wants_shorter(request):
        return False
    results = [text[:PROBE_TEXT_CHARS] for text, who in said.items() if len(text) >= SUMMARY_CHARS and who == "tool"]
    return any(result in text for text in map(whole_of, _messages_of(request)) for result in results)


def waits_for_result(sessions: Iterable[Session], request: Request) -> Session | None:
    """The only session whose model called a tool that is named in a request which wants results shorter.

    Its client has a result shortened before anybody else sees it.
    """
    if not _wants_shorter(request):
        return None
    texts = " ".join(_messages_of(request))
    callers: dict[str, list[Session]] = {}
    for s in sessions:
        for name in {i.name for i in s.head[-1].message.calls if i.name} if s.answered and s.api == request.api else ():
            callers.setdefault(name, []).append(s)
    named = (name for name in islice(callers, _CALLED) if re.search(rf"\b{re.escape(name)}\b", texts))
    found = {s.id: s for name in named for s in callers[name]}
    return next(iter(found.values())) if len(found) == 1 else None


def _wants_shorter(request: Request) -> bool:
    """Does a system prompt ask for shorter results, where there are no tools?"""
    return not request.tools and bool(_SHORTEN.search(system_text(request)[:_WISH_CHARS]))


def is_delegated(known: Known, session: Session, request: Request) -> bool:
    """Is the first user text of this request a string that the session's model passed to a tool?

    With more said by the user behind it, under the system prompt of the session, it is a summary: nobody speaks to a
    sub-agent.
    """
    texts = (plain(i.text) for i in items_of(request.messages) if i.role == "user" and i.kind == "text")
    said = [text for text in texts if text]  # a reminder may stand in front
    asked = said[0] if said else ""
    if len(said) > 1 and shows_system_of(session, request):
        return False
    if len(asked) < PROBE_CHARS:
        return False
    whole = whole_of(asked)
    return any(argument in whole or asked in argument for argument in known.arguments.get(session.id, ()))


def is_passed_on(known: Known, parent: Session, request: Request, *, id_of: Literal["", "parent", "own"]) -> bool:
    """Is a request whose first text the model of `parent` passed to a tool a conversation of its own, no task?

    People pass on a plan or notes with words around them, under the system prompt and tools with which those were
    written, and speak to what comes of it. To a sub-agent nobody speaks but its client, whose model waits for it.
    """
    shows_form = request.tools == parent.tools and shows_system_of(parent, request)
    asked = [plain(m.text) for m in spoken(request.messages) if _is_said(m)]
    passed = known.arguments.get(parent.id, ())
    if not asked or not (shows_form or id_of == "own"):
        return False
    if is_spoken_to(request.messages):
        is_new = len(asked[-1]) < PROBE_CHARS or not _is_among(asked[-1], passed)
        return is_new and (id_of == "own" or len({*asked}) > 2 or not _waits_for(parent, asked[0]))
    is_dressed = not any(asked[0] in argument for argument in passed)
    return shows_form and (id_of == "own" or (is_dressed and not id_of))


def _is_among(said: str, passed: Iterable[str]) -> bool:
    return any(said in argument or argument in said for argument in passed)


def _waits_for(session: Session, asked: str) -> bool:
    """Did the session's last answer pass this to a tool, and is there no result yet?"""
    calls = (call for e in session.head[len(before_answer(session)) :] for call in e.message.calls)
    passed = (plain(text) for call in calls for text in strings_of(call.text))
    return _is_among(asked, (text for text in passed if len(text) >= PROBE_CHARS))


def is_taken_over(known: Known, parent: Session, request: Request) -> bool:
    """Does a user go on in a thread that the model of `parent` opened, where it would go on with it itself?

    What is said there by another agent was passed to a tool, too.
    """
    if request.tools != parent.tools or not shows_system_of(parent, request) or not is_spoken_to(request.messages):
        return False
    first, *_, last = spoken(request.messages)
    before = _said_before(parent)
    if not before or not _speaks_of_half(plain(first.text), before):
        return False  # a task is one thing; what a model passes on to go on with speaks of all
    return not _is_among(plain(last.text), known.arguments.get(parent.id, ()))


def is_retold(said: Mapping[str, str], session: Session, request: Request) -> bool:
    """Does a text of the user or the system hold the session's last answer, and does that stand before the message that
    asks, or open that message and speak of half of what the user said before?

    Then it was a summary, whatever it was asked for with. Any other answer speaks of what was said last, and who shows
    it to a model in a new conversation asks about it in the same message. A draft speaks of all, too: people say in
    front of it what it is.
    """
    if any(m.role not in ("user", "assistant") for m in spoken(request.messages)):
        return False
    if not shows_system_of(session, request):
        return False
    retold = _retold(session, request)
    before = _said_before(session) if retold else []
    if len(before) < _RETOLD_TEXTS:
        return False
    earlier = "\n".join([plain(m.text) for m in request.messages[:-1] if m.role != "assistant"])
    opens = _opens(said, plain(request.messages[-1].text), retold)
    told = any(text in earlier for text in retold) or (opens and _speaks_of_half("\n".join(retold), before))
    return told and not is_pasted(said, read_of(request, system=True))


def _opens(said: Mapping[str, str], text: str, told: Sequence[str]) -> bool:
    """Is there nothing in front of what is told in a text but tags, a heading, words around a summary, what was said
    before?"""
    front = text[: min((at for each in told if (at := text.find(each)) >= 0), default=0)]
    bare = _TAG.sub("", front).strip()
    return bare in said or len(bare.split()) <= _HEADING_WORDS or bool(SUMMED_UP.search(front[:MARKER_CHARS]))


def _said_before(session: Session) -> list[str]:
    """What a head's user said, but for the last of it."""
    return [e.message.text for e in session.head if _is_said(e.message)][:-1]


def _is_said(message: Message) -> bool:
    """Is it a user's own, with no results of tools in it?"""
    return message.role == "user" and not any(i.kind == "result" for i in message.items)


def _retold(session: Session, request: Request) -> list[str]:
    """Long texts of the session's last answer that stand in what the user or the system says.

    One that is passed to a tool, which is offered for that alone, has the next question behind it: nobody speaks to a
    sub-agent.
    """
    if not session.answered or not session.head:
        return []
    last = session.head[-1].message
    texts = (i for i in items_of(request.messages, system=True) if i.kind == "text" and i.role != "assistant")
    whole = "\n".join([plain(i.text) for i in texts])
    found: list[str] = []
    if request.tools >= session.tools:  # it may have been asked for without tools
        found += [text for i in last.items if i.kind == "text" and (text := plain(i.text)) in whole]
    if request.tools <= session.tools:
        passed = (plain(text) for i in last.calls for text in strings_of(i.text))
        found += [text for text in passed if text in whole and not whole.endswith(text)]
    return [text for text in found if len(text) >= SUMMARY_CHARS]


def _speaks_of_half(text: str, before: Sequence[str]) -> bool:
    """Has each second of the texts said before a term of `text` that most of them have not?"""
    said = [terms(each[:_RETOLD_CHARS]) for each in before]
    often = {term for term, count in Counter(chain.from_iterable(said)).items() if 2 * count > len(said)}
    own = terms(text) - often
    return 2 * sum(not own.isdisjoint(each) for each in said) >= len(said)


def summed_up_since(known: Known, session: Session) -> list[str]:
    """Long texts of the answer that a side call of `session` got after all that was said in it."""
    side = side_of(known, session)
    if side is None or not side.answered or side.last_seen_at <= session.last_seen_at:
        return []
    made = items_of(e.message for e in side.head if e.produced)
    told = (plain(text) for i in made if i.kind in ("text", "call") for text in parts_of(i.text))
    return [text for text in told if len(text) >= SUMMARY_CHARS]


def _ends_in_summary(known: Known, session: Session, request: Request) -> bool:
    """Does the last thing said hold a summary that was made just now, where the last answer of the session is gone?

    It stands for the turn that was at work. One to be brought up to date comes with what was said since.
    """
    if not session.answered or holds_answer(session, request) or request.tools != session.tools:
        return False
    last = next(m for m in reversed(request.messages) if m.role not in SYSTEM)
    return last.role == "user" and any(text in plain(last.text) for text in summed_up_since(known, session))


def is_told_whole(session: Session, request: Request) -> bool:
    """Is the first text of the request the session's history put together, every answer and result to the last, and
    does a user speak behind it, under the session's system prompt and with its tools?

    A side call quotes a history under orders of its own, or says what is to be done with it.
    """
    said = spoken(request.messages)
    head = [m for m in spoken(shown(session)) if m.print]
    if len(said) < 2 or len(head) < 2:
        return False
    if request.tools != session.tools or not shows_system_of(session, request):
        return False
    text, end = plain(said[0].text), 0
    for line in (plain(m.text) for at, m in enumerate(head, start=1) if m.role != "user" or at == len(head)):
        at = text.find(line, end)
        if at < 0:
            return False
        end = at + len(line)
    asked = plain(said[-1].text)[:_WISH_CHARS]
    return len(text) - end <= PROBE_CHARS and not _WISH.search(asked) and not _TITLE.search(asked)


def is_spoken_to(messages: Sequence[Message]) -> bool:
    """Does a user speak last, after an answer? Sub-agents and titles are not spoken to again."""
    said = spoken(messages)
    if not said or not _is_said(said[-1]):
        return False
    return any(m.role == "assistant" for m in said)


def _is_summary_call(request: Request, session: Session, said: Mapping[str, str]) -> bool:
    """An instruction to summarise the conversation, long or without the tools that it had, as the last thing said."""
    asked = _asked_last(request)
    if not asked:
        return False
    is_long = len(asked) >= _BY_HAND_CHARS
    dropped = bool(session.tools) and not request.tools
    others = bool(session.tools) and not request.tools & session.tools  # a form for the summary, perhaps
    if is_long and _WISH.search(asked[:_WISH_CHARS]) and (others or _NO_TOOLS.search(asked)):
        return True
    other = not shows_system_of(session, request)
    if other and not request.tools:
        asked = f"{system_text(request)} {asked}"
    return (is_long or dropped or other) and _says_often(asked) and _says_often(_unquoted(asked, said))


def _says_often(text: str) -> bool:
    """Does `text` say to summarise, as often as one that is an instruction to do so?"""
    return 0 < len(text) <= _times_asked(text) * _CHARS_PER_WORD


def _unquoted(text: str, said: Mapping[str, str]) -> str:
    """`text` without tags and without what side calls of its session answered: neither wishes for anything."""
    for each in told_aside(said.items()):
        text = text.replace(each, " ")
    return _TAG.sub(" ", text).strip()


def _asked_last(request: Request) -> str:
    """The last text of a user who speaks last."""
    last = next((m for m in reversed(request.messages) if m.role not in SYSTEM), None)
    texts = [plain(i.text) for i in last.items if i.kind == "text"] if last and last.role == "user" else []
    return next(filter(None, reversed(texts)), "")


def is_wished_of_head(session: Session, request: Request) -> bool:
    """Does a system prompt wish for a summary, over messages of the head alone? All of them were answered before."""
    names = {i.print for e in session.head for i in e.message.items}
    old = session.answered and all(i.print in names for i in items_of(request.messages))
    return old and _says_often(system_text(request))


def _is_summary_of_rest(request: Request, session: Session, said: Mapping[str, str]) -> bool:
    """Is the last thing said a short wish for a summary, in a request that lacks the beginning of the head?

    It is a person's where a window has moved before. A wish behind a summary that was made for the session never is:
    people do not see it.
    """
    now = spoken(request.messages)
    if _shows_beginning(session, request):
        return False
    text = plain(now[-1].text) if now[-1].role == "user" else ""
    told = [each for each in told_aside(said.items()) if each in text]
    wish = _TAG.sub(" ", text.rpartition(max(told, key=len))[2]) if told else text
    return (bool(told) or not session.lost) and len(wish) < _BY_HAND_CHARS and bool(_WISH.search(wish))


def _shows_beginning(session: Session, request: Request) -> bool:
    before = [e for e in session.head if e.message.print and e.message.role not in SYSTEM]
    answered = next((n for n, e in enumerate(before, start=1) if e.produced), 1)
    first = {e.message.print for e in before[:answered]}  # a time may stand in what was asked, but not in its answer
    return any(m.print in first for m in spoken(request.messages))


def _count_asked(text: str) -> int:
    return len(_SUMMARISE.findall(text))


_times_asked = Memo(_count_asked, most_bytes=2 << 20, bytes_of=len).__getitem__
"""How often a text says to summarise. Remembered: it stays the last one while an agent works on it."""


def is_title_call(request: Request) -> bool:
    """A first request that asks for the title of a conversation: no tools, few messages, and words that say so.

    It may come before the conversation itself, so there is nothing else to know it by.
    """
    if request.tools or len(request.messages) > 4:
        return False
    return bool(_TITLE.search("\n".join([system_text(request), *texts_of(request)[:1]])[:_TITLE_CHARS]))
