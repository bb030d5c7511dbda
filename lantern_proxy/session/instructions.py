"""What a request's instructions ask for: a summary, a title, a shorter result.

Words only break ties: they decide where a side call and a turn have the same form.
"""

import re
from collections.abc import Iterable, Mapping
from itertools import islice

from lantern_proxy.history.containment import Haystack, haystack_of
from lantern_proxy.history.forms import shows_system_of, system_text
from lantern_proxy.history.record import Session, items_of, prints_in, spoken
from lantern_proxy.history.summaries import MARKER_CHARS, is_called_summary, is_long_text, side_summaries
from lantern_proxy.history.text import behind_last, shared_front
from lantern_proxy.history.transcript import transcript_text
from lantern_proxy.session.index import PROBE_CHARS
from lantern_proxy.session.pasted import PROBE_TEXT_CHARS, is_pasted
from lantern_proxy.session.request_text import last_said, messages_of, shows_beginning, texts_of, untagged
from lantern_proxy.turn import SYSTEM, Request, plain
from lantern_proxy.turn_memo import Memo

_SUMMARISE = re.compile(
    r"(?:summar|compact).{0,80}?(?:conversation|session|context)|(?:conversation|session|context).{0,80}?(?:summar|compact)",
    re.I | re.S,
)
"""What an instruction of a client says: "Summarize the conversation", "The session is to be compacted"."""
_CHARS_PER_WORD = 1_500
"""A text that is an instruction to summarise says so at least once per this many characters; a pasted article does
not."""
_WISH = re.compile(
    r"(?:summar|compact|condens).{0,80}?(?:conversation|session|context|chat|history|messages|discussion)"
    r"|(?:conversation|session|context|chat|history|messages|discussion).{0,80}?(?:summar|compact|condens)",
    re.I | re.S,
)
"""What _SUMMARISE finds, and the same in a person's words: "condense this chat", "your discussion in a summary"."""
_WISH_CHARS = 400
"""Characters at the beginning of a text in which an instruction is looked for. One match is enough if the
conversation's tools were removed, replaced or forbidden; else it has to be repeated, see _CHARS_PER_WORD."""
_WISH_AFAR = re.compile(r"(?=.*\bconversation)(?=.*\bsummar)", re.I | re.S)
"""Mentions a conversation and a summary, however far apart: enough at the beginning of a long text if the
conversation's tools were removed, replaced or forbidden."""
_NO_TOOLS = re.compile(
    r"\b(?:do not|don't|never|must not|without) (?:\w+ ){0,2}?(?:call|us)\w* (?:\w+ ){0,2}?tools?\b", re.I
)
"""Forbids tool calls: "do not call any tools", "without using tools"."""
_NOTES = re.compile(
    r"\bnotes\b.{0,80}?(?:conversation|session|context)|(?:conversation|session|context).{0,80}?\bnotes\b", re.I | re.S
)
"""Asks for notes on a conversation, which means a summary if tools may not be called for it."""
_WISH_AT_WORK = re.compile(r"summar\w*\b.{0,40}?\bconversation\b", re.I | re.S)
"""Asks for a summary of the conversation. While the model is at work that is the client, and hardly ever a person."""
_SHORTEN = re.compile(
    r"(?:summar|compress|condens|shorten).{0,80}?\btool|\btool.{0,80}?(?:summar|compress|condens|shorten)", re.I | re.S
)
"""A task about one result: "summarize this tool output"."""
_BY_HAND_CHARS = 400
"""A shorter request for a summary may be a person's."""
_TITLE = re.compile(
    r"\btitle\b.{0,80}?\b(?:conversation|chat|session|thread)\b|\b(?:chat|thread)\b.{0,80}?\btitle\b", re.I | re.S
)
"""A task to name a conversation: "a title for this chat"."""
_TITLE_CHARS = 600
"""Characters at the beginning of a prompt in which such a task is looked for."""
_NAMED_LINE = re.compile(r"^\W{0,3}\w[^\n:>\]]{0,30}[:>\]][* \t]*(\S.*)$", re.M)
"""A line of a transcript, its text as a group: "Human: ...". A heading above a text is no name."""
_CUE = re.compile(r"(?:[^\w\n]*\w[^\n:>\]]{0,30}[:>\]])?\W*")
"""Nothing, or the name of what is to follow: "Summary:"."""
_CALLED = 400
"""Most tool names that are looked for in a request."""


def asks_for_summary(text: str) -> bool:
    """Does a text open with a request for a summary?"""
    return bool(_WISH.search(text[:_WISH_CHARS]))


def asks_for_title(text: str) -> bool:
    """Does a text open with the task to name a conversation?"""
    return bool(_TITLE.search(text[:_TITLE_CHARS]))


def is_task_about(said: Mapping[str, str], session: Session, request: Request) -> bool:
    """Does a request without the session's tools ask for a summary of its only turn, and hold the user's text?

    For longer sessions texts of two speakers are required elsewhere (is_pasted); a text of one speaker may be pasted by
    hand.
    """
    if request.tools or not session.tools or session.turn > 1:
        return False
    texts = messages_of(request)
    wished = any(map(asks_for_summary, (system_text(request), *texts)))
    long = [text[:PROBE_TEXT_CHARS] for text, who in said.items() if is_long_text(text) and who == "user"]
    return wished and any(piece in text for text in map(haystack_of, texts) for piece in long)


def is_task_about_line(said: Mapping[str, str], request: Request) -> bool:
    """Does the first text ask for a summary of a labelled line that is exactly one text of the session?

    People who paste a text write no name in front of it; clients that sum up dropped messages one by one do.
    """
    first = (m for m in spoken(request.messages)[:1] if asks_for_summary(plain(m.text)))
    lines = (plain(line[1]) for i in items_of(first) for line in _NAMED_LINE.finditer(i.text))
    return any(is_long_text(line) and said.get(line) in ("user", "assistant") for line in lines)


def is_task_behind_orders(said: Mapping[str, str], session: Session, request: Request) -> bool:
    """Do orders appended to the session's system prompt ask for a summary of the only text, which holds words of both
    speakers? An agent that sums up for itself keeps its own prompt and tools.

    Appended text that quotes the session is a summary, not an order.
    """
    now, found = system_text(request), spoken(request.messages)
    orders = now[len(session.system) :].strip() if session.system and now.startswith(session.system) else ""
    if len(found) != 1 or not asks_for_summary(orders):
        return False
    whole = haystack_of(orders)
    tells = any(is_long_text(text) and text[:PROBE_TEXT_CHARS] in whole for text in said)
    return not tells and is_pasted(said, messages_of(request))


def is_task_about_quotes(said: Mapping[str, str], session: Session, request: Request) -> bool:
    """Does the only text of a request, under the session's tools, ask in any language for a summary of words of both
    speakers: behind them, or in front of them with nothing new behind them?

    A text that calls itself a summary in front of them and says more is one.
    """
    text = plain(transcript_text(request))
    if request.tools != session.tools or not any(map(is_called_summary, (text, text[-MARKER_CHARS:]))):
        return False
    whole = Haystack(text)
    pieces = ((each, each[:PROBE_TEXT_CHARS]) for each in said if len(each) >= PROBE_CHARS)
    places = ((each, next(whole.places(piece), -1)) for each, piece in pieces if piece in whole)
    found = [(at, at + shared_front(each, text[at : at + len(each)])) for each, at in places if at >= 0]
    if not found or not is_pasted(said, [text]):
        return False
    front, behind = untagged(text[: min(found)[0]]), untagged(text[max(end for _, end in found) :])
    if not _CUE.fullmatch(behind):
        return is_called_summary(behind[-MARKER_CHARS:]) and not is_called_summary(front)
    return session.answered and is_called_summary(front)


def is_result_to_shorten(said: Mapping[str, str], session: Session, request: Request) -> bool:
    """Does a request for shorter results hold a result of the session?"""
    if not session.tools or not _wants_shorter(request):
        return False
    results = [text[:PROBE_TEXT_CHARS] for text, who in said.items() if is_long_text(text) and who == "tool"]
    return any(result in text for text in map(haystack_of, messages_of(request)) for result in results)


def waits_for_result(sessions: Iterable[Session], request: Request) -> Session | None:
    """The only session whose model called a tool that is named in a request for shorter results; None if there is not
    exactly one.

    Its client has a result shortened before its model sees it.
    """
    if not _wants_shorter(request):
        return None
    texts = " ".join(messages_of(request))
    callers: dict[str, list[Session]] = {}
    for s in sessions:
        for name in {i.name for i in s.head[-1].message.calls if i.name} if s.answered and s.api == request.api else ():
            callers.setdefault(name, []).append(s)
    named = (name for name in islice(callers, _CALLED) if re.search(rf"\b{re.escape(name)}\b", texts))
    found = {s.id: s for name in named for s in callers[name]}
    return next(iter(found.values())) if len(found) == 1 else None


def _wants_shorter(request: Request) -> bool:
    """Does the system prompt of a request without tools ask for shorter results?"""
    return not request.tools and bool(_SHORTEN.search(system_text(request)[:_WISH_CHARS]))


def is_summary_call(request: Request, session: Session, said: Mapping[str, str]) -> bool:
    """Is the last thing said an instruction to summarise the conversation, one that is long, or comes without the
    session's tools or under another system prompt?"""
    asked = _asked_last(request)
    if not asked:
        return False
    is_long = len(asked) >= _BY_HAND_CHARS
    dropped = bool(session.tools) and not request.tools
    others = bool(session.tools) and not request.tools & session.tools  # a form for the summary, perhaps
    if is_long and asks_for_summary(asked) and (others or _NO_TOOLS.search(asked)):
        return True
    if is_long and dropped and _WISH_AFAR.match(asked[:_WISH_CHARS]):
        return True
    if _is_said_at_work(session, request, asked):
        return True
    other = not shows_system_of(session, request)
    if other and not request.tools:
        asked = f"{system_text(request)} {asked}"
    return (is_long or dropped or other) and _says_often(asked) and _says_often(_unquoted(asked, said))


def _is_said_at_work(session: Session, request: Request, asked: str) -> bool:
    """Does a message of its own ask for a summary, or for notes without tool calls, after a message that still waits
    for an answer (a result, or a question)? For notes that message may be new: people may put an article in front of
    their question, but no such orders."""
    said = [m for m in request.messages if m.role not in SYSTEM]
    waits = said[-2] if len(said) > 1 else None
    if waits is None or waits.role == "assistant":
        return False
    if len(asked) >= _BY_HAND_CHARS and _NOTES.search(asked[:_WISH_CHARS]) and _NO_TOOLS.search(asked):
        return True
    refused = not session.answered and bool(session.head) and session.head[-1].message.print == waits.print
    at_work = refused or any(i.kind == "result" for i in waits.items)
    return at_work and bool(_WISH_AT_WORK.search(asked[:_WISH_CHARS]))


def is_summary_of_rest(request: Request, session: Session, said: Mapping[str, str]) -> bool:
    """Is the last thing said a short request for a summary, in a request that lacks the beginning of the head?

    If a window moved before, a person may ask so. After a summary that was made for the session nobody does: people do
    not see that summary.
    """
    now = spoken(request.messages)
    if shows_beginning(session, request):
        return False
    text = plain(now[-1].text) if now[-1].role == "user" else ""
    told = [each for each in side_summaries(said.items()) if each in text]
    wish = untagged(behind_last(max(told, key=len), text)) if told else text
    return (bool(told) or not session.lost) and len(wish) < _BY_HAND_CHARS and bool(_WISH.search(wish))


def asks_for_summary_of_head(session: Session, request: Request) -> bool:
    """Does a system prompt ask for a summary, over messages that are all in the session's head?"""
    names = prints_in(session)
    return all(i.print in names for i in items_of(request.messages)) and _says_often(system_text(request))


def _says_often(text: str) -> bool:
    """Does `text` mention summarising as often as an instruction to summarise does?"""
    return 0 < len(text) <= _times_asked(text) * _CHARS_PER_WORD


def _unquoted(text: str, said: Mapping[str, str]) -> str:
    """`text` without tags and without answers of its session's side calls, since neither asks for anything."""
    for each in side_summaries(said.items()):
        text = text.replace(each, " ")
    return untagged(text)


def _asked_last(request: Request) -> str:
    """The last text of the last message, if that is a user's."""
    last = last_said(request)
    texts = [plain(i.text) for i in last.items if i.kind == "text"] if last and last.role == "user" else []
    return next(filter(None, reversed(texts)), "")


def _count_asked(text: str) -> int:
    return len(_SUMMARISE.findall(text))


_times_asked = Memo(_count_asked, most_bytes=2 << 20, bytes_of=len).__getitem__
"""How often a text mentions summarising. Cached: it stays the last text while an agent works on it."""


def is_title_call(request: Request) -> bool:
    """Does a first request ask for the title of a conversation: without tools, in few messages, in words that say so?

    It may come before the conversation itself, so nothing else identifies it.
    """
    if request.tools or len(request.messages) > 4:
        return False
    return asks_for_title("\n".join([system_text(request), *texts_of(request)[:1]]))
