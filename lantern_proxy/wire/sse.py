"""Server-sent events (WHATWG HTML, section 9.2): the bytes of a whole stream -> its data payloads.

The stream itself passes through untouched. This reads the copy, and skips anything that is not valid.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from lantern_proxy.wire.json import as_object

_ENDS = rb"(?:message_stop|response\.(?:completed|failed|incomplete))"
_LAST = re.compile(
    rb"[\r\n](?:data: ?\[DONE\]|event: ?" + _ENDS + rb'|data: ?\{\s*"type":\s*"' + _ENDS + rb'")'
)  # after a line break, which cannot occur in a text of an answer: JSON escapes it
_LAST_BYTES = 64
"""How many bytes before a chunk are needed to find a mark that is split between two chunks."""
_BLANK = re.compile(rb"\r?\n\r?\n|\r\r")
_BLANK_BYTES = 3

FULL = b'"context_length_exceeded"'
"""How a stream of OpenAI's Responses says that the request is too long; in a text the quotes would be escaped."""
_BEGIN = re.compile(rb"(?:\xef\xbb\xbf)?[\r\n]*(?:data|event|id|retry)?:")


def payloads(stream: bytes) -> Iterator[bytes]:
    """The data of each event, in order: CR, LF or CRLF lines, `data:` lines joined by LF; other fields are skipped."""
    data: list[bytes] = []
    for line in stream.removeprefix(b"\xef\xbb\xbf").splitlines():
        if not line:
            if data:
                yield b"\n".join(data)
            data = []
        elif line.startswith(b"data:"):
            data.append(line[5:].removeprefix(b" "))
    if data:
        yield b"\n".join(data)


def objects(stream: bytes) -> list[dict[str, Any]]:
    """The JSON objects among the payloads."""
    found = (data for data in payloads(stream) if data.lstrip()[:1] == b"{")  # parsing anything else costs most
    return [each for data in found if (each := as_object(data)) is not None]


class _Pieces(list[str]):
    """A text that arrives in pieces."""


def add_piece(into: dict[str, Any], key: str, piece: str) -> None:
    """Append `piece` to the text at `key`. It is a string after `joined`: `+=` would copy all of it each time."""
    before = into.get(key)
    if not isinstance(before, _Pieces):
        before = into[key] = _Pieces([before] if isinstance(before, str) else [])
    before.append(piece)


def joined(merged: Mapping[str, Any]) -> dict[str, Any]:
    """`merged` with the pieces collected by add_piece joined into strings."""
    return {key: "".join(value) if isinstance(value, _Pieces) else value for key, value in merged.items()}


def is_stream(answer: bytes) -> bool:
    """Does an answer, whatever its content-type, begin as an event stream? No JSON does."""
    return _BEGIN.match(answer) is not None


class Ending:
    """Searches the chunks of a stream for the end of the event after which its client may stop reading.

    That event may be long: it may repeat the whole response.
    """

    def __init__(self) -> None:
        self._tail = b"\n"
        self.has_begun = False

    def is_in(self, chunk: bytes) -> bool:
        """Does the event end in `chunk`, the next bytes of the stream?"""
        seen = self._tail + chunk
        if not self.has_begun:
            mark = _LAST.search(seen)
            if mark is None:
                self._tail = seen[-_LAST_BYTES:]
                return False
            self.has_begun = True
            if mark[0].endswith(b"]"):  # nothing follows
                return True
            seen = seen[mark.end() :]
        self._tail = seen[-_BLANK_BYTES:]
        return _BLANK.search(seen) is not None
