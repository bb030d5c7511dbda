"""The terms of a text by native/analyze.c, where it was built and gives what the reference in analyze.py gives.

Unicode is that of this Python: C gets what the code points are from here. The stems are Snowball 3's; with a PyStemmer
of another version C stays off.
"""

import re
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import Stemmer

try:
    from lantern_proxy._bm25 import ffi, lib
except ImportError:
    _BUILT = False
else:
    _BUILT = True
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
    if not SERVES:
        return None
    try:
        data = text.encode()
    except UnicodeEncodeError:  # half a surrogate pair
        return None
    tables, room = unicode_of(text, data), 3 * len(data) + 64
    while True:
        out = _new("char[]", room)
        size = lib.analyze_terms(tables, ffi.NULL, len(data), data, b"\n", room, out, ffi.NULL)
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
    kinds = np.fromiter(map(str.isalpha, points), bool, n) * np.uint8(lib.ANALYZE_ALPHA)
    for flag, pattern in ((lib.ANALYZE_WORD, r"\w+"), (lib.ANALYZE_SPACE, r"\s+"), (lib.ANALYZE_DIGIT, r"\d+")):
        for run in re.finditer(pattern, points):
            kinds[run.start() : run.end()] |= flag
    for first, last in _WIDE:
        kinds[first : last + 1] |= lib.ANALYZE_WIDE
    upper, lower = _lowered(points)
    foreign = [c for c in (*_SIGMAS, *upper[(upper >= 0x80) & (lower < 0x80)].tolist()) if c < n]
    kinds[upper] |= lib.ANALYZE_UPPER
    kinds[foreign] = lib.ANALYZE_OTHER
    tables = (
        ffi.new("uint8_t[]", kinds.tobytes()),
        ffi.new("uint32_t[]", upper.tolist()),
        ffi.new("uint32_t[]", lower.tolist()),
    )
    made = ffi.new("analyze_unicode *", (n, tables[0], len(upper), *tables[1:]))
    _kept[n] = tables
    return made


def _lowered(points: str) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.uint32]]:
    """The code points that have another lower case, ascending, and that. Those of _SIGMAS count as having none."""
    plain = "".join(" " if ord(c) in _SIGMAS else c for c in points[:0x400]) + points[0x400:]
    before, after = (np.frombuffer(t.encode("utf-32-le", "surrogatepass"), np.uint32) for t in (plain, plain.lower()))
    upper = np.flatnonzero(before != after).astype(np.uint32)
    return upper, after[upper]


_WIDE = ((0x3040, 0x30FF), (0x3400, 0x9FFF), (0xAC00, 0xD7AF))
_SIGMAS = (0x130, 0x3A3)
"""A dotted capital I, whose lower case is two characters, and the sigma, whose lower case depends on its place."""
_kept: dict[int, Any] = {}
"""C memory that the tables point into."""
