"""Transcripts: a history that its client writes into one text, ending with what the user says last.

    Human: ...            the only message of the request, again with every turn
    AI: ...
    Human: ...
    AI:

Memories of prompt templates do so, and some programs write the history into their system prompt. Such a request is read
as messages: those that the session already holds, and one with the new lines.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from lantern_proxy.history.containment import Haystack
from lantern_proxy.history.embedded import (
    GAP_CHARS,
    LEAST_CHARS,
    NAMED,
    SPEAKER,
    from_answers,
    from_system_prompt,
    new_message,
    readable,
    squeezed,
    text_of_entry,
    unnamed,
)
from lantern_proxy.history.forms import shows_system_of
from lantern_proxy.history.record import Entry, Session, before_answer, spoken
from lantern_proxy.history.text import Backward, shared_front
from lantern_proxy.turn import SYSTEM, Request, item, message

_LEAST_LINE = 8
"""Least length of the first known line."""
_GREETING = 4
"""This many messages, including the new one and a system prompt, prove nothing: all chats of one program may begin
so."""
_MOST_READ = 1_000
"""Most searches of a text for known lines that are not in it."""
_STRETCH_CHARS = 4_096
"""Characters that are counted at once."""
_HEADING = re.compile(r"#{1,6}\s+\w[^\n]{0,30}(?=\n)")
_CUE = re.compile(r"\n[^\w\n/]*\w[^\n:>\]]{0,30}[:>\]][^\w\n]*$")
_LINE = re.compile(r"[^\n]+")
_SPEAKS = (":", ">", "]")
_SPOKEN = re.compile(r"^(#{1,6}[ ]+\w[^\n]{0,30}|[^\w\n]*\w[^\n:>\]]{0,30}[:>\]])\s*(\S[^\n<]*)", re.MULTILINE)
"""A speaker's name, and the first line of their text, without a following tag."""


def transcript_as_messages(session: Session, request: Request) -> Request | None:
    """`request` as if its text had come in messages; None if it is no transcript of this session.

    The new text must be under the user's last name, and an answer of the session must directly follow its question,
    with a name in between. A transcript made of chat messages has neither, and a task after a transcript has no such
    name.
    """
    return next(filter(None, (_as_messages(session, form) for form in _forms_of(request))), None)


def _forms_of(request: Request) -> Iterator[Request]:
    """How a request reads whose only text may be a transcript: with the JSON in its texts decoded, then as it is."""
    if not transcript_text(request):
        return
    if any(readable(m.text) != m.text for m in request.messages):
        yield replace(request, messages=tuple(new_message(readable(m.text), m.role) for m in request.messages))
    yield request


def _as_messages(session: Session, request: Request) -> Request | None:
    """transcript_as_messages() for one form of the request."""
    written = transcript_text(request)
    text = squeezed(written)
    if not text or request.tools != session.tools:
        return None
    if not shows_system_of(session, request):
        return from_system_prompt(session, request)
    found = from_system_prompt(session, request) or _by_lines(session, request, written, text)
    return found or from_answers(session, request, text)


def _by_lines(session: Session, request: Request, written: str, text: str) -> Request | None:
    """transcript_as_messages() for a text that ends in the user's text under their name.

    written: the only text of the request; text: the same, squeezed()
    """
    head = [e for e in session.head if e.message.role not in SYSTEM]
    lines = [text_of_entry(e) for e in head]
    if not all(lines) or all(e.produced for e in head):
        return None
    moved = [_moved(line, text) for line, e in zip(lines, head, strict=True) if not e.produced]
    tail = min(filter(None, moved), key=len, default="")
    text, lines = text.removesuffix(tail), [line.removesuffix(tail) for line in lines]
    first, last, end = _known(text, head, lines)
    if last - first < 2:
        return None
    told, new = head[first:last], text[end:].strip()
    users = [line for line, e in zip(lines[first:last], told, strict=True) if not e.produced]
    asked = new or ("" if told[-1].produced else users.pop())
    if not users or not _is_one_speaker(users[-1], asked):
        return None
    system = (m for m in request.messages if m.role in SYSTEM)
    anew = [new_message(_as_written(written, new, tail))] if new else []
    return replace(request, messages=(*system, *(e.message for e in told), *anew))


def session_of_transcript(
    sessions: Iterable[Session], request: Request, said: Mapping[str, Iterable[str]] | None = None
) -> Session | None:
    """The session that the transcript belongs to: of several the best fit, then one whose last lines are there, then
    the one that held least.

    said: session id -> what was said in it, as far as it is remembered; None: an id names the session

    Without an id, the session's end must be there, or more messages than many chats begin with. If the session holds
    more than the request shows, both must, and no other session may fit as well, so that nobody gets what was said to
    somebody else in the same words. None as well if others of `sessions` hold every distinctive line, or if the
    speakers said other things before.
    """
    sessions = [*sessions]
    return next(filter(None, (_told_by(sessions, form, said) for form in _forms_of(request))), None)


def _told_by(sessions: Sequence[Session], request: Request, said: Mapping[str, Iterable[str]] | None) -> Session | None:
    """session_of_transcript() for one form of the request."""
    text = squeezed(transcript_text(request))
    read = ((s, lines) for s in sessions if (lines := _as_messages(s, request)))
    told = [_Told(s, lines, _shows_end(s, lines), text) for s, lines in read]
    if said is not None:
        told = [each for each in told if each.shows_end or each.length > _GREETING]
        told = [each for each in told if not _is_preceded(each, said.get(each.session.id, ()), request)]
    best = max(told, key=lambda each: (*each.fit, each.shows_end, -len(each.session.keys)), default=None)
    if best is None or said is None:
        return best and best.session
    if _is_said_elsewhere(best, sessions, said, request):
        return None
    rivals = [each for each in told if each.fit == best.fit]
    is_one = _is_one_line(best.lines) or best.lines.messages[-1] is request.messages[-1]
    is_one = is_one or _is_written_behind(best.session, best.lines)
    alone = len(rivals) == 1 and best.shows_end and best.length > _GREETING and is_one
    return best.session if alone or not any(_hides(each.session, each.lines) for each in rivals) else None


def _is_said_elsewhere(
    told: "_Told", others: Iterable[Session], said: Mapping[str, Iterable[str]], request: Request
) -> bool:
    """If a text shows only part of its session, or shows it in another form: was each of its known lines, up to the
    last of them, also heard or said in one of `others`? Bots say the same to many, and their users nod."""
    session, text, known = told.session, _text_of(request), _known_of(told.session, told.lines)
    if _shows_all(session, told.lines) and all(each in text for each in known):
        return False
    backward = Backward(text)
    ends = (at + len(each) for each in known if each and (at := backward.rfind(each, len(text))) >= 0)
    before = text[: max(ends, default=0)]
    lines = [unnamed(line) for each in known for line in each.splitlines() if line in before]
    held = (text for s in others if s is not session for text in (*said.get(s.id, ()), *map(text_of_entry, s.head)))
    whole = Haystack("\n".join(held), _MOST_READ)
    return all(line in whole for line in lines)


def _shows_all(session: Session, lines: Request) -> bool:
    """Does a transcript hold everything that a session ever held? lines: the transcript, read as the session's"""
    read = {id(m) for m in lines.messages}
    shown = {e.key for e in session.head if id(e.message) in read}
    return shown >= session.keys - {key for _, key in session.system_keys}


def _is_preceded(told: "_Told", said: Iterable[str], request: Request) -> bool:
    """Do the speakers of the known lines say something before them that was never said in the session? Then others
    speak, who came to the same phrases. A summary there has another name, and documents have none."""
    text, known = _text_of(request), _known_of(told.session, told.lines)
    backward = Backward(text)
    end = next((at for each in reversed(known) if each and (at := backward.rfind(each, len(text))) >= 0), 0)
    spoken = [(m[1].strip(), m[2].strip()) for m in _SPOKEN.finditer(text, 0, end)]
    own = {line.strip() for each in known for line in (*each.splitlines(), *(m[2] for m in _SPOKEN.finditer(each)))}
    names = {name for name, line in spoken if line in own}
    held = Haystack("\n".join([told.session.system, *said, *map(text_of_entry, told.session.head)]), _MOST_READ)
    return any(name in names and len(line) >= _LEAST_LINE and line not in held for name, line in spoken)


def _text_of(request: Request) -> str:
    return squeezed("\n".join([m.text for m in request.messages]))


def _known_of(session: Session, lines: Request) -> list[str]:
    """The session's texts that stand in a transcript. lines: the transcript, read as the session's"""
    read = {id(m) for m in lines.messages}
    return [text_of_entry(e) for e in session.head if id(e.message) in read and e.message.role not in SYSTEM]


class _Told(NamedTuple):
    """A transcript, read as that of a session."""

    session: Session
    lines: Request
    shows_end: bool
    text: str
    """The transcript itself, squeezed()."""

    @property
    def length(self) -> int:
        return len(self.lines.messages)

    @property
    def fit(self) -> tuple[int, bool, int]:
        """How well it fits, larger is better: how late the question stands, whether everything the session held is
        there, and how many lines are known."""
        at = Backward(self.text).rfind(squeezed(self.lines.messages[-1].text), len(self.text))
        return at, not _hides(self.session, self.lines), self.length


def _shows_end(session: Session, lines: Request) -> bool:
    """Is the session's last answer there, or, if sent again, the text that waited for it?"""
    asked = before_answer(session)[-1:]
    return any(m is session.head[-1].message for m in lines.messages) or any(
        e.message is lines.messages[-1] for e in asked
    )


def _hides(session: Session, lines: Request) -> bool:
    """Did the session hold more before the messages that are there?"""
    first = next((m for m in lines.messages if m.role not in SYSTEM), None)
    opened = next((e.message for e in session.head if e.message.role not in SYSTEM), None)
    return session.lost or first is not opened


def _is_one_line(lines: Request) -> bool:
    """Is only the text of one speaker new?"""
    named = SPEAKER.match(lines.messages[-1].text) or _HEADING.match(lines.messages[-1].text)
    return named is not None and f"\n{named[0].strip()}" not in lines.messages[-1].text


def _is_written_behind(session: Session, lines: Request) -> bool:
    """Does the new text begin with what the client wrote after the history last time, such as orders or documents?"""
    written = squeezed(lines.messages[-1].text)[:LEAST_CHARS]
    asked = next((text_of_entry(e) for e in reversed(session.head) if not e.produced), "")
    return len(written) == LEAST_CHARS and written in asked


def transcript_text(request: Request) -> str:
    """The only message of a request, apart from its system prompt; empty if it has more, or if there is more than text
    in it."""
    only = None
    for m in () if request.delta else request.messages:
        if m.role not in SYSTEM:
            if only is not None:
                return ""
            only = m
    is_text = only is not None and only.role == "user" and all(i.kind == "text" for i in only.items)
    return only.text if only and is_text else ""


def with_transcript_as_user_text(request: Request) -> Request:
    """`request` with its last text as the user's, if only the system speaks and that text is a transcript, which ends
    in the next speaker's name after another speaker's text."""
    last = request.messages[-1] if request.messages and not request.delta else None
    if last is None or last.role not in SYSTEM or spoken(request.messages) or not last_line_of(last.text):
        return request
    told = message("user", [item("user", "text", i.text) for i in last.items], last.raw)
    return replace(request, messages=(*request.messages[:-1], told))


def last_line_of(text: str) -> str:
    """The user's last line, with their name, in a text that ends in the next speaker's name; else ""."""
    cue = _CUE.search(text.rstrip()[-2 * GAP_CHARS :])
    if cue is None:
        return ""
    said = text.rstrip().removesuffix(cue[0])
    at = next((m.start() for m in reversed([*_LINE.finditer(said)]) if SPEAKER.match(m[0])), None)
    return "" if at is None else said[at:].strip()


def with_last_line_apart(request: Request) -> Request:
    """`request` as if the user's last line had come in a message of its own, after the rest of the text."""
    text = transcript_text(request)
    line = last_line_of(text)
    front = text[: text.rfind(line)].strip() if line else ""
    system = (m for m in request.messages if m.role in SYSTEM)
    return replace(request, messages=(*system, new_message(front), new_message(line))) if front else request


def ending(text: str, squeezed: str) -> str:
    """The end of a text of which `squeezed` was made."""
    return text[_before(text, len(text), _count(squeezed)) :].strip()


def beginning(text: str, squeezed: str) -> str:
    """The beginning of a text of which `squeezed` was made."""
    return text[: _before(text, len(text), _count(text) - _count(squeezed))].strip()


def _as_written(text: str, squeezed: str, tail: str) -> str:
    """The part of a text of which `squeezed` was made; only `tail` may follow it."""
    end = _before(text, len(text), _count(tail))
    return text[_before(text, end, _count(squeezed)) : end].strip()


def _before(text: str, end: int, count: int) -> int:
    """The index such that `count` characters other than white space stand between it and `end`."""
    while end > _STRETCH_CHARS and count > (some := _count(text[end - _STRETCH_CHARS : end])):
        count, end = count - some, end - _STRETCH_CHARS
    while count and end:
        end -= 1
        count -= not text[end].isspace()
    return end


def _count(text: str) -> int:
    return len("".join(text.split()))


def _moved(line: str, text: str) -> str:
    """The last lines of a prompt, which follow the history: the common end of an earlier text and this one."""
    start = len(line) - shared_front(line[::-1], text[: -len(line) - 1 : -1])
    at = max(start, shared_front(line, text))
    found = line.rfind("\n", start, at + 1)
    found = found if found >= 0 else line.find("\n", at)
    return line[found:] if found >= 0 else ""


def _known(text: str, head: Sequence[Entry], lines: Sequence[str]) -> tuple[int, int, int]:
    """(first, last + 1) of the messages that follow each other in `text`, and where they end there."""
    whole = Haystack(text, _MOST_READ)
    first = next((n for n, line in enumerate(lines) if _is_begun(whole, head[n], line, is_first=n == 0)), None)
    if first is None:
        return 0, 0, 0
    start = text.find(lines[first])
    end = start + len(lines[first])
    last, chars = first + 1, len(lines[first])
    first -= first > 0 and head[first - 1].produced and _is_before(text, start, lines[first - 1])
    while last < len(lines):
        line = lines[last]
        at = text.find(line, end, end + GAP_CHARS + len(line))
        if not _follows(text, end, at, line, produced=head[last].produced):
            break
        end, last, chars = at + len(line), last + 1, chars + len(line)
    return (first, last, end) if chars >= LEAST_CHARS else (0, 0, 0)


def _is_begun(whole: Haystack, e: Entry, line: str, *, is_first: bool) -> bool:
    """Is this line the first known one of a text?"""
    if is_first and line and whole.text.startswith(line):
        return True
    return not e.produced and len(line) >= _LEAST_LINE and bool(SPEAKER.match(line)) and line in whole


def _is_before(text: str, end: int, line: str) -> bool:
    """Does an answer directly precede `end`, after a name? A window may begin with it."""
    at = text.rfind(line, max(0, end - GAP_CHARS - len(line)), end)
    return at >= 0 and bool(line) and not text[at + len(line) : end].strip() and text[:at].rstrip().endswith(_SPEAKS)


def _follows(text: str, end: int, at: int, line: str, *, produced: bool) -> bool:
    """Does a line continue where the previous one ended? A user's line includes the name that the transcript wrote."""
    if at < 0 or not line:
        return False
    if not produced:
        return not text[end:at].strip()
    while end and text[end - 1].isspace():
        end -= 1
    return text[end - 1 : end] in _SPEAKS or bool(NAMED.search(text, end, at))


def _is_one_speaker(before: str, now: str) -> bool:
    """Does a line of `before` start with the name with which `now` begins?"""
    named = SPEAKER.match(now)
    return named is not None and any(line.strip().startswith(named[0].strip()) for line in before.splitlines())
