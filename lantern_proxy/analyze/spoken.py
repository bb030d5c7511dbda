"""What a person wrote in a user message, without what their client put around it or in its place. Pure.

    spoken("Which gate?\\n<environment_details>\\ntime: 10:06\\n</environment_details>") -> "Which gate?"

Agents put the state of the workspace, reminders and the time into every message of their user. Read as a part of a
question it outweighs what is asked, and finds whatever else stood beside the same state. Agents that call tools in
plain text give their results as messages of the user, too.
"""

import re
from collections.abc import Iterator
from typing import Literal

import msgspec

_TAG = re.compile(r"(?:^|(?<=\n))[ \t]*<([A-Za-z][\w:.-]*)(?: [^<>\n]*)?>|</([A-Za-z][\w:.-]*)>(?=[ \t]*(?:\n|\Z))")
"""An element that stands in lines of its own: it opens where one begins, or closes where one ends."""
_SAID = re.compile(
    r"(?!.*(?:assistant|command|commit|error|function|system|tool))"
    r"(?:.*(?:[_:.-]|(?<=[a-z])(?=[A-Z])))?(?:user|query|question|task|prompt|request|message|input|feedback)s?$",
    re.I,
)
"""Names of elements in which clients put what their user said, and not what they tell of another: <command-message>."""
_GIVEN = re.compile(
    r"(?:.*(?:[_:.-]|(?<=[a-z])(?=[A-Z])))?(?:tool|function|command|observation|result|response|output|stdout|stderr)s?$",
    re.I,
)
"""Names of elements in which clients give the result of a tool."""
_RESULT = re.compile(
    r"\s*(?:\[[\w.-]+(?: for [^\n]{0,500})?\] |(?:tool|function|command|execution) )?"
    r"(?:result|response|output)s?\b[^\n:]{0,80}:[ \t]*\n|\s*observation:",
    re.I,
)
"""The line above one: "Observation:", "[read_file for 'a.txt'] Result:"."""
_HEADING = re.compile(
    r"^(?:#{1,6} [^\n]*\b(?:request|question|query)\b[^\n]*|(?:[\w']+ )?(?:question|query)[ \t]*:)", re.M | re.I
)
"""What clients write above or before it: "## My request for ...", "User question: ..."."""
_TIME = r"(?:\d:\d\d|\d{4}-\d\d|\d/\d|\b(?:seconds?|minutes?|hours?|days?|weeks?) ago)"
STAMP = rf"[\[(](?=[^\[\]()\n]{{0,64}}\d)[^\[\]()\n]{{0,64}}{_TIME}[^\[\]()\n]{{0,20}}[\])]:?[ \t]+(?=\S)"
"""A time in brackets, in front of what somebody says: "[5 minutes ago] "."""
_STAMP, _STAMP_CHARS = re.compile(rf"\s*{STAMP}"), 64

Voice = Literal["user", "client", "tool"]
Span = tuple[int, int, Voice]
"""Start, end, whose words."""


def spoken(text: str) -> str:
    """What the user says in a message, without the time in front; empty for the result of a tool. In linear time.

    That is what stands in elements or fields of JSON that are named for it, else `parts` of their own from the heading
    on that is named for it, else all.
    """
    named = [text[opened:closed] for name, _, opened, closed, _ in _elements(text) if _SAID.match(name)]
    said = "\n".join(named or _fields(text)).strip()
    if not is_worded(said):
        spans = parts(text)
        own = "\n".join(text[start:end] for start, end, voice in spans if voice == "user").strip()
        said = own if is_worded(own) else "" if any(voice == "tool" for _, _, voice in spans) else text
    *_, below = [0, *(heading.end() for heading in _HEADING.finditer(said))]
    said = said[below:] if is_worded(said[below:]) else said
    stamp = _STAMP.match(said[:_STAMP_CHARS])
    return said[stamp.end() :] if stamp else said


def _fields(text: str) -> list[str]:
    """Texts in the fields of a JSON object that are named for what a user says."""
    if not text.startswith("{") or not text.rstrip().endswith("}"):
        return []
    try:
        read = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return []
    return [each for name, each in read.items() if isinstance(each, str) and _SAID.match(name)]


def parts(text: str) -> list[Span]:
    """A user's `text` as spans in order, none of them empty. In linear time.

    The client's are elements in lines of their own, a tool's those that are named for one, and all below the line that
    announces its result. Of an element that is named for what a user says (<user_query>) only the tags are left out. A
    client that puts its users' words into an element of another name leaves none of their own.
    """
    if _RESULT.match(text):
        return [(0, len(text), "tool")]
    spans, at = list[Span](), 0
    for name, start, opened, closed, end in _elements(text):
        if _SAID.match(name):
            spans += [(at, start, "user"), (opened, closed, "user")]
        else:
            spans += [(at, start, "user"), (start, end, "tool" if _GIVEN.match(name) else "client")]
        at = end
    return [(a, b, voice) for a, b, voice in [*spans, (at, len(text), "user")] if a < b]


def is_worded(text: str) -> bool:
    """Is there more in it than signs and white space?"""
    return any(map(str.isalnum, text))


def _elements(text: str) -> Iterator[tuple[str, int, int, int, int]]:
    """The outermost elements that are closed: name, start, start and end of the content, end."""
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
