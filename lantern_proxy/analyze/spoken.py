"""The words of the person in a user message, without what their client added around or instead of them. Pure.

    spoken("Which gate?\\n<environment_details>\\ntime: 10:06\\n</environment_details>") -> "Which gate?"

Agents add the state of the workspace, reminders and the time to every message of their user. Taken as part of a
question this would outweigh what is asked, and match anything said in the same state. Agents that call tools in plain
text also send their results as user messages.
"""

import re
from collections.abc import Iterator
from typing import Literal

import msgspec

_TAG = re.compile(r"(?:^|(?<=\n))[ \t]*<([A-Za-z][\w:.-]*)(?: [^<>\n]*)?>|</([A-Za-z][\w:.-]*)>(?=[ \t]*(?:\n|\Z))")
"""An element on lines of its own: its opening tag begins a line, or its closing tag ends one."""
_USER_ELEMENT = re.compile(
    r"(?!.*(?:assistant|command|commit|error|function|system|tool))"
    r"(?:.*(?:[_:.-]|(?<=[a-z])(?=[A-Z])))?(?:user|query|question|task|prompt|request|message|input|feedback)s?$",
    re.I,
)
"""Names of elements in which clients put what their user said, as opposed to <command-message>."""
_TOOL_ELEMENT = re.compile(
    r"(?:.*(?:[_:.-]|(?<=[a-z])(?=[A-Z])))?(?:tool|function|command|observation|result|response|output|stdout|stderr)s?$",
    re.I,
)
"""Names of elements in which clients put the result of a tool."""
_RESULT = re.compile(
    r"\s*(?:\[[\w.-]+(?: for [^\n]{0,500})?\] |(?:tool|function|command|execution) )?"
    r"(?:result|response|output)s?\b[^\n:]{0,80}:[ \t]*\n|\s*observation:",
    re.I,
)
"""The line above a tool result: "Observation:", "[read_file for 'a.txt'] Result:"."""
_HEADING = re.compile(
    r"^(?:#{1,6} [^\n]*\b(?:request|question|query)\b[^\n]*|(?:[\w']+ )?(?:question|query)[ \t]*:)", re.M | re.I
)
"""Headings that clients write above or before the user's words: "## My request for ...", "User question: ..."."""
_TIME = r"(?:\d:\d\d|\d{4}-\d\d|\d/\d|\b(?:seconds?|minutes?|hours?|days?|weeks?) ago)"
STAMP = rf"[\[(](?=[^\[\]()\n]{{0,64}}\d)[^\[\]()\n]{{0,64}}{_TIME}[^\[\]()\n]{{0,20}}[\])]:?[ \t]+(?=\S)"
"""A time in brackets, in front of a message: "[5 minutes ago] "."""
_STAMP, _STAMP_CHARS = re.compile(rf"\s*{STAMP}"), 64
_STAMP_FIRST = re.compile(rf"\A{STAMP}")

Voice = Literal["user", "client", "tool"]
Span = tuple[int, int, Voice]
"""Start, end, author."""


def spoken(text: str) -> str:
    """What the user says in a message, without a time in front; empty for a tool result. Linear time.

    That is the text in elements or JSON fields named for it, else the user's `parts` from a heading named for it on,
    else everything.
    """
    named = [text[opened:closed] for name, _, opened, closed, _ in _elements(text) if _USER_ELEMENT.match(name)]
    words = "\n".join(named or _fields(text)).strip()
    if not has_words(words):
        spans = parts(text)
        rest = "\n".join(text[start:end] for start, end, voice in spans if voice == "user").strip()
        words = rest if has_words(rest) else "" if any(voice == "tool" for _, _, voice in spans) else text
    *_, below = [0, *(heading.end() for heading in _HEADING.finditer(words))]
    words = words[below:] if has_words(words[below:]) else words
    stamp = _STAMP.match(words[:_STAMP_CHARS])
    return words[stamp.end() :] if stamp else words


def without_stamp(text: str) -> str:
    """A message without the time in brackets that a client writes in front of it."""
    return _STAMP_FIRST.sub("", text, count=1)


def _fields(text: str) -> list[str]:
    """Texts in the fields of a JSON object that are named for what a user says."""
    if not text.startswith("{") or not text.rstrip().endswith("}"):
        return []
    try:
        read = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return []
    return [each for name, each in read.items() if isinstance(each, str) and _USER_ELEMENT.match(name)]


def parts(text: str) -> list[Span]:
    """A user's `text` as spans in order, none of them empty. Linear time.

    Elements on lines of their own are the client's; elements named for a tool, and everything below the line that
    announces a tool's result, are a tool's. Of an element named for what a user says (<user_query>) only the tags are
    removed. If a client puts its user's words into an element with another name, none count as the user's.
    """
    if _RESULT.match(text):
        return [(0, len(text), "tool")]
    spans, at = list[Span](), 0
    for name, start, opened, closed, end in _elements(text):
        if _USER_ELEMENT.match(name):
            spans += [(at, start, "user"), (opened, closed, "user")]
        else:
            spans += [(at, start, "user"), (start, end, "tool" if _TOOL_ELEMENT.match(name) else "client")]
        at = end
    return [(a, b, voice) for a, b, voice in [*spans, (at, len(text), "user")] if a < b]


def has_words(text: str) -> bool:
    """Does it contain more than symbols and white space?"""
    return any(map(str.isalnum, text))


def _elements(text: str) -> Iterator[tuple[str, int, int, int, int]]:
    """The outermost closed elements: name, start, start and end of the content, end."""
    closings = {tag[2]: tag.start() for tag in _TAG.finditer(text) if tag[2]} if "</" in text else {}
    name, start, opened, depth = "", 0, 0, 0
    for tag in _TAG.finditer(text) if closings else ():
        if not depth and tag[1] and closings.get(tag[1], -1) > tag.start():
            name, start, opened, depth = tag[1], tag.start(), tag.end(), 1
        elif depth and tag[1] == name:
            depth += 1
        elif depth and tag[2] == name:
            depth -= 1
            if not depth or tag.start() == closings[name]:
                yield name, start, opened, tag.start(), tag.end()
                depth = 0
