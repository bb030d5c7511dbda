"""A history embedded in other text: in a system prompt, or among documents and a question.

    Answer from the context.       the only message of the request, again with every turn
    Context: ...                   documents that change
    Chat history:
    User: ...
    Bot: ...
    Question: ...

Its answers are those of the session, one behind the other, and between them stands what its user asked.
"""

import json
import re
from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from lantern_proxy.history.presentation import decoded
from lantern_proxy.history.record import Entry, Session
from lantern_proxy.history.text import Backward, shared_front
from lantern_proxy.turn import SYSTEM, Message, Request, Role, item, message, plain
from lantern_proxy.turn_memo import Memo

GAP_CHARS = 60
"""Most characters between two lines of a history: the speaker's name."""
LEAST_CHARS = 20
"""Least number of known characters of a history."""
_LEAST_AROUND = 8
"""Least number of characters that a program adds around a user's text, and after it, if it writes everything into one
text."""
_MOST_FIELDS = 4
"""Most names or fields that are removed in front of a line."""
NAMED = re.compile(r"[^\W_]")
_TAG = re.compile(r"</?[\w-]{1,30}>")
SPEAKER = re.compile(r"\W*\w[^\n:>\]]{0,30}[:>\]]")
_DECODED_CHARS = 200_000
"""Most characters of a text that is decoded."""
_PIECES = re.compile(r'[\n"]')
_BORDERS = re.compile(r"^[\W_]++|(?<![\W_])[\W_]++$")
_RECORDS = re.compile(r"""\[\s*\{\s*["']\w+["']\s*:""")
_INDENT = re.compile(r"""\n[^\S\n]*+(?=["'{}\]])""")
_DIGIT = re.compile(r"\d")
_EMPTY_LINES = re.compile(r"\n\s*\n")  # as one set of signs: a group in it takes forty times as long


def from_system_prompt(session: Session, request: Request) -> Request | None:
    """`request` as if its history had come in messages, for requests with the history up to the last answer in the
    system prompt, and the user's next text as their only message.

    None if the prompt begins otherwise than the session's: then something else is made of the history. A summary may
    follow what it begins with.
    """
    text = squeezed("\n".join([m.text for m in request.messages if m.role in SYSTEM]))
    head = [e for e in session.head if e.message.role not in SYSTEM]
    if not text or not head or not head[-1].produced:
        return None
    end, start, backward = len(text), len(head), Backward(text)
    for e in reversed(head):
        line = text_of_entry(e)
        at = backward.rfind(line, end) if line else -1
        behind = text[at + len(line) : end]
        if at < 0 or (start < len(head) and not (len(behind) <= GAP_CHARS and NAMED.search(behind))):
            break
        end, start = at, start - 1
    front = text[:end].rpartition("\n")[0]
    shared, known = shared_front(session.system, plain(front)), min(len(front), len(session.system) or len(front))
    told = len(head) - start > 1 and len(text) - end >= LEAST_CHARS
    if not told or shared < max(known / 2, known - GAP_CHARS):
        return None
    said = (m for m in request.messages if m.role not in SYSTEM)
    return replace(request, messages=(new_message(front, "system"), *(e.message for e in head[start:]), *said))


def from_answers(session: Session, request: Request, text: str) -> Request | None:
    """`request` as if its history had come in messages, for requests whose only text (`text`, squeezed) holds it among
    documents or orders that may change.

    None if the client does not write everything into one text, or writes other words around this one's end than before:
    then something else is made of the history.
    """
    head = [e for e in session.head if e.message.role not in SYSTEM]
    if not head or not head[-1].produced:
        return None
    asked = readable(squeezed(next((e.message.text for e in reversed(head) if not e.produced), "")))
    start, end = _told(text, head)
    new = text[end:].strip()
    if start == len(head) or not new or not _is_framed_alike(new, text, asked):
        return None
    system = (m for m in request.messages if m.role in SYSTEM)
    return replace(request, messages=(*system, *(e.message for e in head[start:]), new_message(new)))


def _told(text: str, head: Sequence[Entry]) -> tuple[int, int]:
    """(index in `head` of the first message that stands in `text`, where the last one ends there): from that message
    on, all of the head stands in it."""
    first, end, at, backward = len(head), 0, len(text), Backward(text)
    for n in range(len(head) - 1, 0, -2):
        asked, answer = text_of_entry(head[n - 1]), text_of_entry(head[n])
        found = backward.rfind(answer, at) if len(answer) >= _LEAST_AROUND else -1
        behind = at - found - len(answer)
        if found < 0 or head[n - 1].produced or not head[n].produced:
            break
        if asked.startswith(text[: found + len(answer)]):
            break  # it stood there before it was given as an answer: a greeting, with which all begin
        if end and behind > len(text_of_entry(head[first])) + 2 * GAP_CHARS:
            break
        if not _asks(text[max(0, found - len(asked) - 2 * GAP_CHARS) : found], asked):
            first = n if end else first  # a window may begin with an answer
            break
        first, end, at = n - 1, end or found + len(answer), found
    return first, end


def _is_framed_alike(new: str, text: str, asked: str) -> bool:
    """Does a text end as the one before it (`asked`), or does what follows its history (`new`) begin with a name or
    words that stood there, whatever their number?"""
    if shared_front(text[::-1], asked[::-1]) >= _LEAST_AROUND:
        return True
    before, bare = _DIGIT.sub("0", asked), _BORDERS.sub("", new)
    fronts = [_DIGIT.sub("0", each[:_LEAST_AROUND]) for each in (new, bare)]
    if any(len(each) == _LEAST_AROUND and NAMED.search(each) and each in before for each in fronts):
        return True
    named = SPEAKER.match(bare)
    return named is not None and any(line.startswith(named[0].strip()) for line in asked.splitlines())


def _asks(text: str, asked: str) -> bool:
    """Does `text` end in a line of `asked`, apart from names, and had the client added more text around that line, or a
    name in front of it, when it was asked?"""
    said = next((line for line in map(unnamed, reversed(text.splitlines())) if line), "")
    if said and said in asked:
        return len(asked) - len(said) >= _LEAST_AROUND
    lines = [line for line in _without_fields(asked) if len(line) >= _LEAST_AROUND]
    return any(line in text[-len(line) - GAP_CHARS :] for line in lines)


def _without_fields(text: str) -> Iterator[str]:
    """What is left of each line of a text, or of what stands between quotation marks in it, without the first name or
    field, the second, and so on; the line itself if there is more than it."""
    for rest in _PIECES.split(text):
        if len(rest) <= len(text) - _LEAST_AROUND:
            yield _BORDERS.sub("", rest)
        for _ in range(_MOST_FIELDS):
            named = SPEAKER.match(rest)
            if named is None:
                break
            rest = rest[named.end() :]
            yield _BORDERS.sub("", rest)


def unnamed(line: str) -> str:
    """A line without the speaker's name; empty if nothing else is left."""
    bare = _TAG.sub("", line)
    named = SPEAKER.match(bare)
    return "" if bare.startswith("#") else (bare[named.end() :] if named else bare).strip()


def _readable(text: str) -> str:
    is_listed = len(text) <= _DECODED_CHARS and _RECORDS.search(text)
    return decoded(_INDENT.sub(" ", text)) if is_listed else text


readable = Memo(_readable, most_bytes=4 << 20, bytes_of=lambda text: 2 * len(text)).__getitem__
"""A text with the strings of JSON in it decoded, without its line breaks, if it holds a list of records: some clients
write messages so."""


def squeezed(text: str) -> str:
    """`text` without empty lines: templates leave one where there is no history yet."""
    return _EMPTY_LINES.sub("\n", text).strip()


def text_of_entry(e: Entry) -> str:
    """The text of a message; empty if it holds anything else."""
    shown = [i for i in e.message.items if i.kind != "reasoning"]
    return squeezed("\n".join([i.text for i in shown])) if all(i.kind == "text" for i in shown) else ""


def new_message(text: str, role: Role = "user") -> Message:
    """A message that holds a text found within another one."""
    raw = json.dumps({"role": role, "content": text}, ensure_ascii=False).encode("utf-8", "surrogatepass")
    return message(role, [item(role, "text", text)], raw)
