"""Our own blocks in what a client sends back: found, and cut out of a text or of raw JSON bytes."""

import json
import re
from collections.abc import Iterator

BLOCK_OPEN, BLOCK_CLOSE = "<restored_context", "</restored_context>"
_NO_SPACE = re.compile(r"\S|\Z")


def strip_block(text: str) -> str:
    """`text` without any block that Lantern restored into it (clients may send one back)."""
    return "\n".join(between_blocks(text)).strip("\n") if BLOCK_OPEN in text else text


def between_blocks(text: str) -> Iterator[str]:
    r"""The parts of a text outside \s*<restored_context\b[^>]*>.*?</restored_context>\s*. In linear time, since a tag
    that is opened repeatedly and never closed must not block the proxy."""
    at = start = 0
    while (start := text.find(BLOCK_OPEN, start)) >= 0:
        behind = start + len(BLOCK_OPEN)
        if text[behind : behind + 1].isalnum() or text[behind : behind + 1] == "_":
            start = behind
            continue
        opened = text.find(">", behind)
        end = text.find(BLOCK_CLOSE, opened + 1) if opened >= 0 else -1
        if end < 0:
            break
        yield text[at:start].rstrip()
        found = _NO_SPACE.search(text, end + len(BLOCK_CLOSE))
        at = start = found.start() if found else len(text)
    yield text[at:]


def without_blocks(raw: bytes) -> bytes:
    """The JSON text `raw` with our own blocks cut out of its strings.

    A block is cut only if it opens and closes within one string.
    """
    kept, start = [], 0
    for at, end in _blocks(raw):
        kept.append(raw[start:at])
        start = end
    return b"".join([*kept, raw[start:]]) if kept else raw


def blocks_in(raw: bytes) -> list[str]:
    """Our own blocks in the strings of the JSON text `raw`, delimited as by without_blocks()."""
    return [str(json.loads(b'"%b"' % raw[at:end])) for at, end in _blocks(raw)]


def _blocks(raw: bytes) -> Iterator[tuple[int, int]]:
    marker, close, start = BLOCK_OPEN.encode(), BLOCK_CLOSE.encode(), 0
    while (at := raw.find(marker, start)) >= 0:
        start = raw.find(close, at) + len(close)
        if start < len(close) or _leaves_string(raw[at:start]):
            return
        yield at, start


def _leaves_string(piece: bytes) -> bool:
    """Does `piece` contain an unescaped quote?"""
    return piece.replace(b"\\\\", b"").replace(b'\\"', b"").find(b'"') >= 0
