"""The terms of a text by native/analyze.c, where it was built and gives what the reference in analyze.py gives.

Unicode is that of this Python: C gets what the code points are from here. The stems are Snowball 3's; with a PyStemmer
of another version C stays off.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import Stemmer

try:
    from lantern_proxy._bm25 import ffi, lib
except ImportError:
    _BUILT = False
else:
    _BUILT = hasattr(lib, "analyze_parts")  # the newest of its functions: one that was built before has not all
    _new = ffi.new_allocator(should_clear_after_alloc=False)

_TELLING = {"dying": "die", "evening": "evening", "geologist": "geolog", "internal": "internal", "pasted": "paste"}
"""Words that the versions of Snowball stem differently."""
_KNOWN = 0x20000
"""Code points below this are looked up; a text with others is left to the reference."""

_stem = Stemmer.Stemmer("english", 0).stemWord
SERVES = _BUILT and all(_stem(word) == stem for word, stem in _TELLING.items())
"""False: the reference serves everything."""


def terms(text: str) -> list[str] | None:
    """What analyze.terms_in_python gives for `text`, or None: only that one can do it."""
    joined = lines(text)
    if joined is None:
        return None
    return joined.decode().split("\n") if joined else []


def lines(text: str) -> bytes | None:
    """The terms of `text` in UTF-8, one a line; b"" when there are none. None as above."""
    data = _utf8(text)
    if data is None:
        return None
    tables = unicode_of(text, data)
    return _written(
        lambda room, out: lib.analyze_terms(tables, ffi.NULL, len(data), data, b"\n", room, out, ffi.NULL), data
    )


def terms_of_parts(parts: Sequence[str]) -> list[list[str]] | None:
    """The terms of each of some texts, for the price of one call. None: only the reference can do all of them."""
    text = "".join(parts)
    data = _utf8(text)
    if data is None:
        return None
    tables, sizes = unicode_of(text, data), [*map(len, parts if len(data) == len(text) else map(str.encode, parts))]
    joined = _written(lambda room, out: lib.analyze_parts(tables, len(sizes), sizes, data, room, out), data, len(sizes))
    if joined is None:
        return None
    return [each.split("\n") if each else [] for each in joined.decode().split("\0")[:-1]]


def _utf8(text: str) -> bytes | None:
    """None: it has half a surrogate pair, or C does not serve."""
    try:
        return text.encode() if SERVES else None
    except UnicodeEncodeError:
        return None


def _written(write: Callable[[int, Any], int], data: bytes, more: int = 0) -> bytes | None:
    """What `write` writes into the room that it gets; it is called again while that was too little."""
    room = 3 * len(data) + 64 + more
    while True:
        out = _new("char[]", room)
        size: int = write(room, out)
        if size >= 0:
            return bytes(ffi.buffer(out, size))
        if size != lib.ANALYZE_ROOM:
            return None
        room *= 6


def stem(word: str) -> str:
    """The stem of a word in lower case. For tests: PyStemmer's, one call at a time, is as good."""
    letters = ffi.new("uint8_t[]", [min(ord(c), 0x80) for c in word])
    kept = bytes(ffi.buffer(letters, lib.analyze_stem(letters, len(word))))
    others = iter([c for c in word if c >= "\x80"])
    return "".join(chr(byte) if byte < 0x80 else next(others) for byte in kept)


def unicode_of(text: str, data: bytes) -> Any:
    """The tables that a text needs. data: the text in UTF-8"""
    return unicode(0x80 if len(data) == len(text) else _KNOWN)


@lru_cache(maxsize=2)
def unicode(n: int) -> Any:
    """analyze.h's tables for the first n code points. Takes 20 ms for 0x20000, so ASCII texts do without."""
    points = "".join(map(chr, range(n)))
    lower = _lowered(points)
    flags = {lib.ANALYZE_ALPHA: str.isalpha, lib.ANALYZE_WORD: str.isalnum, lib.ANALYZE_SPACE: str.isspace}
    kinds = _flagged(points, flags | {lib.ANALYZE_DIGIT: str.isdecimal})
    kinds[ord("_")] |= lib.ANALYZE_WORD
    for first, last in _WIDE:
        for point in range(first, min(last + 1, n)):
            kinds[point] |= lib.ANALYZE_WIDE
    for point in lower:
        kinds[point] |= lib.ANALYZE_UPPER
    for point in (*_SIGMAS, *(upper for upper, plain in lower.items() if upper >= 0x80 > plain)):
        if point < n:
            kinds[point] = lib.ANALYZE_OTHER
    tables = (
        ffi.new("uint8_t[]", bytes(kinds)),
        ffi.new("uint32_t[]", list(lower)),
        ffi.new("uint32_t[]", list(lower.values())),
    )
    made = ffi.new("analyze_unicode *", (n, tables[0], len(lower), *tables[1:]))
    _kept[n] = tables
    return made


def _flagged(points: str, flags: dict[int, Callable[[str], bool]]) -> bytearray:
    """A byte for each code point: the flags whose test it passes. All at once, as one number."""
    kinds = 0
    for flag, has in flags.items():
        kinds |= int.from_bytes(bytes(map(has, points)), "little") * flag
    return bytearray(kinds.to_bytes(len(points), "little"))


def _lowered(points: str) -> dict[int, int]:
    """The code points that have another lower case, ascending -> that. Those of _SIGMAS count as having none."""
    plain = "".join(" " if ord(c) in _SIGMAS else c for c in points[:0x400]) + points[0x400:]
    both = zip(plain, plain.lower(), strict=True)
    return {at: ord(after) for at, (before, after) in enumerate(both) if before != after}


_WIDE = ((0x3040, 0x30FF), (0x3400, 0x9FFF), (0xAC00, 0xD7AF))
_SIGMAS = (0x130, 0x3A3)
"""A dotted capital I, whose lower case is two characters, and the sigma, whose lower case depends on its place."""
_kept: dict[int, Any] = {}
"""C memory that the tables point into."""
