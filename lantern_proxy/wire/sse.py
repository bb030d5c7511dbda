"""Server-sent events (WHATWG HTML, section 9.2): bytes of a whole stream -> its data payloads.

The stream itself passes through untouched; this reads the copy that was kept, so it must forgive whatever stands in it.
"""

from collections.abc import Iterator

_TERMINAL = (b"[DONE]", b'"type":"message_stop"', b'"type": "message_stop"', b"event: message_stop", b"event:message_stop",
             b'"type":"response.completed"', b'"type": "response.completed"', b'"type":"response.failed"',
             b'"type": "response.failed"', b'"type":"response.incomplete"', b'"type": "response.incomplete"')  # fmt: skip


def payloads(stream: bytes) -> Iterator[bytes]:
    """The data of each event, in order: CR, LF or CRLF lines, `data:` lines joined by LF; comments and names left out."""
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


def is_terminal(chunk: bytes) -> bool:
    """Does `chunk` carry the event after which a client may count its answer as complete?"""
    return any(mark in chunk for mark in _TERMINAL)
