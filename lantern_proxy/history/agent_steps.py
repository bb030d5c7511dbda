"""A history that its client writes into one text, rewritten at every step of an agent, between fixed text.

    task, steps ("I opened the page. Next: the form." ...), the current observation     with every request

The model answers in JSON, in tags, in sections or by a call, and the text holds the fields of its answers. Such a
request is read as messages: those that the session already holds, and one with the new lines.
"""

import re
from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from lantern_proxy.history.containment import haystack_of
from lantern_proxy.history.embedded import new_message
from lantern_proxy.history.forms import shows_system_of
from lantern_proxy.history.presentation import strings_of
from lantern_proxy.history.record import Entry, Said, Session, before_answer, spoken
from lantern_proxy.history.summaries import SUMMARY_CHARS, side_summaries
from lantern_proxy.history.text import Backward
from lantern_proxy.turn import SYSTEM, Message, Request, plain

_FIELD_CHARS = 20
"""Shorter fields may stand in any text."""
_TASK_CHARS = 30
"""Consecutive characters of the first text that each step has to hold: its task, or the words around it."""
_FRONT_CHARS = 12
"""Characters with which the text has to begin each time: a name, a tag. What follows may change."""
_LEAST = 2
"""How many fields of an answer must stand in a text that shows it: a client may omit others."""

_MOST = 32
"""Most fields of an answer that are looked for."""
_MISSED = 8
"""After this many answers in a row that a text lacks, older ones are not looked for."""

_ELEMENT = re.compile(r"<(\w[\w-]*)>([^<]*)</\1>")
_RECORD = re.compile(r"\s*<(\w[\w-]*)>\s*(?:<(\w[\w-]*)>[^<]*</\2>\s*)+</\1>\s*\Z")
"""An answer in tags, no deeper than a list of fields, unlike pages and drawings."""
_HEADING = re.compile(r"\s*([\[<{=]{2}[^\w\n]{0,8})\w[\w -]{0,40}?([^\w\n]{0,8}[\]>}=]{2})\n")
"""The first heading of an answer in sections: a name between signs, on a line of its own. Headings, lists and bold
words for people look different."""


def fields_of(message: Message) -> list[str]:
    """The first long strings of an answer that has several, up to the length that is compared, since clients cut them.

    If only one of several sections is long (a thought, beside a tool's name and input), its halves count as two.
    """
    made = [i.text for i in message.items if i.kind == "call" or (i.kind == "text" and i.text.lstrip().startswith("{"))]
    records = [i.text for i in message.items if i.kind == "text" and _RECORD.match(i.text)]
    sections = [text for i in message.items if i.kind == "text" for text in _sections_of(i.text)]
    told = [text for each in made for text in strings_of(each)] + sections
    told += [text for each in records for _, text in _ELEMENT.findall(each)]
    if not told:
        return []
    fronts = [plain(text)[:SUMMARY_CHARS] for text in told]
    found = [*dict.fromkeys([text for text in fronts if len(text) >= _FIELD_CHARS])]
    if len(found) == 1 and len(sections) > _LEAST and len(found[0]) >= _LEAST * _FIELD_CHARS:
        middle = len(found[0]) // _LEAST
        found = [found[0][:middle], found[0][middle:]]
    return found[:_MOST] if len(found) >= _LEAST else []


def _sections_of(text: str) -> list[str]:
    """What stands below each heading of an answer in sections."""
    opening = _HEADING.match(text)
    if opening is None:
        return []
    before, behind = map(re.escape, opening.groups())
    return re.split(rf"^{before}\w[\w -]{{0,40}}{behind}$", text, flags=re.MULTILINE)[1:]


def count_steps_in(head: Sequence[Entry], request: Request, said: Said) -> int:
    """How many answers of a head stand in the texts of a request, in order up to the last; 0 if the last does not.

    Clients that send results as messages send calls so, too, so they do not count. An answer in another format is not
    written into the text. One answer of several may be passed on for rework, unless a summary of the session stands
    there, too.
    """
    text = _text(request)
    if not text or any(i.kind == "result" for e in head for i in e.message.items):
        return 0
    end, count, missed, backward = len(text), 0, 0, Backward(text)
    answers = [fields for e in head if e.produced and (fields := fields_of(e.message))]
    for fields in reversed(answers):
        at = [place for field in fields if (place := backward.rfind(field, end)) >= 0]
        if len(at) >= _LEAST:
            end, count, missed = min(at), count + 1, 0
        elif not count:
            return 0
        else:
            missed += 1
        if missed > _MISSED:
            break
    return count if count > 1 or len(answers) == 1 or any(told in text for told in side_summaries(said)) else 0


def shows_steps(session: Session, request: Request) -> bool:
    """Is the request a step of the session, and no other use of its steps, under another system prompt or in another
    text?"""
    if not session.system or request.tools != session.tools or not shows_system_of(session, request):
        return False
    if not shows_task(session, request):
        return False
    front = session.title[:_FRONT_CHARS]
    counted = any(map(str.isdigit, front))  # a time, the number of the step
    return counted or any(plain(m.text).startswith(front) for m in spoken(request.messages))


def shows_task(session: Session, request: Request) -> bool:
    """Does the text hold part of what the session began with? A mere quotation of answers does not."""
    title, text = session.title, _text(request)
    places = range(0, max(1, len(title) - _TASK_CHARS + 1), _TASK_CHARS // 2)
    return any(title[at : at + _TASK_CHARS] in text for at in places)


def is_repeated_step(session: Session, request: Request, said: Said) -> bool:
    """Does the request hold only what its session was asked last, though an answer came?"""
    told = shows_steps(session, request) and count_steps_in(before_answer(session), request, said)
    return bool(told) and not _new_lines(session, request, said)


def steps_as_messages(session: Session, request: Request, said: Said) -> Request | None:
    """`request` as if its text had come in messages; None if it is no step of this session. Answers that the text lacks
    now are left out."""
    if not _text(request) or not shows_steps(session, request):
        return None
    system = [m for m in request.messages if m.role in SYSTEM]
    count = count_steps_in(session.head, request, said)
    if (not count or not session.answered) and is_repeated_step(session, request, said):
        asked = _shown_steps(before_answer(session), request)
        return replace(request, messages=(*system, *spoken(e.message for e in asked)))
    if not count:
        return None
    new = "\n".join(_new_lines(session, request, said))
    first, *notes = spoken(request.messages)
    head = spoken(e.message for e in _shown_steps(session.head, request))
    return replace(request, messages=(*system, *head, new_message(new or first.text), *notes))


def _shown_steps(head: Iterable[Entry], request: Request) -> list[Entry]:
    """A head without the answers that the request leaves out, and without what preceded each of those."""
    now = haystack_of(_text(request))
    found: list[Entry] = []
    step: list[Entry] = []
    for e in head:
        step.append(e)
        if e.produced and (fields := fields_of(e.message)):
            if sum(field in now for field in fields) >= _LEAST:
                found += step
            step = []
    return [*found, *step]


def _new_lines(session: Session, request: Request, said: Said) -> list[str]:
    """The lines of the request's first message that its user did not say before, without those that hold fields of
    answers."""
    held = haystack_of("\n".join(text for text, who in said if who == "user"))
    fields = [field for e in session.head if e.produced for field in fields_of(e.message)]
    first = spoken(request.messages)[0]
    lines = dict.fromkeys(line.strip() for line in first.text.splitlines())
    return [line for line in lines if plain(line) not in held and not any(field in plain(line) for field in fields)]


def _text(request: Request) -> str:
    """The user's texts, joined, if nobody else speaks in the request; else ""."""
    if request.delta or "assistant" in {m.role for m in request.messages}:
        return ""
    said = spoken(request.messages)
    if any(m.role != "user" or any(i.kind not in ("text", "media") for i in m.items) for m in said):
        return ""
    return "\n".join(plain(i.text) for m in said for i in m.items if i.kind == "text")
