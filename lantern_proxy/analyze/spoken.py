"""What a person said in a message, without what their client wrote around it. Pure.

    spoken("Which gate?\\n<environment_details>\\ntime: 10:06\\n</environment_details>") -> "Which gate?"

Agents put the state of the workspace, reminders and the time into every message of their user. Read as a part of a
question it outweighs what is asked, and finds whatever else stood beside the same state.
"""

import re
from collections.abc import Iterator

_TAG = re.compile(r"(?:^|(?<=\n))[ \t]*<([A-Za-z][\w:.-]*)(?: [^<>\n]*)?>|</([A-Za-z][\w:.-]*)>(?=[ \t]*(?:\n|\Z))")
"""An element that stands in lines of its own: it opens where one begins, or closes where one ends."""
_SAID = re.compile(
    r"(?:.*(?:[_:.-]|(?<=[a-z])(?=[A-Z])))?(?:user|query|question|task|prompt|request|message|input|feedback)s?$", re.I
)
"""Names of elements in which clients put what their user said."""
_HEADING = re.compile(
    r"^(?:#{1,6} [^\n]*\b(?:request|question|query)\b[^\n]*|(?:[\w']+ )?(?:question|query)[ \t]*:)", re.M | re.I
)
"""What clients write above or before it: "## My request for ...", "User question: ..."."""
_TIME = r"(?:\d:\d\d|\d{4}-\d\d|\d/\d|\b(?:seconds?|minutes?|hours?|days?|weeks?) ago)"
_STAMP = re.compile(rf"\s*[\[(](?=[^\[\]()\n]*\d)[^\[\]()\n]*{_TIME}[^\[\]()\n]{{0,20}}[\])]:?[ \t]+(?=\S)")
_STAMP_CHARS = 64


def spoken(text: str) -> str:
    """`text` without the time in front of it, without elements in lines of their own, but for those that are named for
    what a user says (<user_query>), and from the heading on that is; all of it when nothing is left. In linear time."""
    kept, at = [], 0
    for name, start, opened, closed, end in _elements(text):
        kept += [text[at:start], text[opened:closed]] if _SAID.match(name) else [text[at:start]]
        at = end
    said = _worded("\n".join([*kept, text[at:]]).strip(), text)
    *_, heading = [None, *_HEADING.finditer(said)]
    if heading:
        said = _worded(said[heading.end() :], said)
    stamp = _STAMP.match(said[:_STAMP_CHARS])
    return said[stamp.end() :] if stamp else said


def _worded(text: str, otherwise: str) -> str:
    return text if any(map(str.isalnum, text)) else otherwise


def _elements(text: str) -> Iterator[tuple[str, int, int, int, int]]:
    """The outermost elements that are closed: name, start, start and end of the content, end."""
    tags = [*_TAG.finditer(text)] if "</" in text else []
    closings = {tag[2]: tag.start() for tag in tags if tag[2]}
    name, start, opened, depth = "", 0, 0, 0
    for tag in tags:
        if not depth and tag[1] and closings.get(tag[1], -1) > tag.start():
            name, start, opened, depth = tag[1], tag.start(), tag.end(), 1
        elif depth and tag[1] == name:
            depth += 1
        elif depth and tag[2] == name:
            depth -= 1
            if not depth or tag.start() == closings[name]:
                yield name, start, opened, tag.start(), tag.end()
                depth = 0
