"""Terms, specific terms and counts of a text, in C: the same results as the Python references, many times as fast.

Implemented by native/analyze.c, specifics.c and facts.c, where these are built; the references are in this package,
analyze/specific.py, analyze/facts.py and signals/words.py.

Unicode data is that of this Python: it is passed to C from here. The stems are Snowball 3's; with a PyStemmer of
another version C stays off.
"""

import re
import sys
from array import array
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Any

import Stemmer

from lantern_proxy.analyze.letters import APOSTROPHE_SUFFIXES, ELIDED_WORDS, FOLDS, MARKS, PREFIXES, SUFFIXES

try:
    from lantern_proxy._bm25 import ffi, lib
except ImportError:
    _BUILT = False
else:
    _BUILT = hasattr(lib, "sentences_of")  # the newest function, which an older build lacks
    _new = ffi.new_allocator(should_clear_after_alloc=False)

_PROBES = {"dying": "die", "evening": "evening", "geologist": "geolog", "internal": "internal", "pasted": "paste"}
"""Words that tell the versions of Snowball apart."""
_CODE_POINTS = 0x20000
"""Only code points below this are supported; a text with others is left to the reference."""

stem_word = Stemmer.Stemmer("english", 0).stemWord  # its own cache takes a lock and is slower than an lru_cache
AVAILABLE = _BUILT and all(stem_word(word) == stem for word, stem in _PROBES.items())
"""False if the references are used for everything."""


def terms(text: str) -> list[str] | None:
    """The result of analyze.terms_in_python for `text`; None if only the reference supports it."""
    joined = lines(text)
    if joined is None:
        return None
    return joined.decode().split("\n") if joined else []


def lines(text: str) -> bytes | None:
    """The terms of `text` in UTF-8, one per line; b"" if there are none. None if only the reference supports it."""
    data = _utf8(text)
    if data is None:
        return None
    tables = unicode_tables_for(text, data)
    return _output_of(
        lambda room, out: lib.analyze_terms(tables, ffi.NULL, len(data), data, b"\n", room, out, ffi.NULL), data
    )


def terms_of_parts(parts: Sequence[str]) -> list[list[str]] | None:
    """The terms of each text, in a single call. None if not all of them are supported."""
    whole = _concatenated(parts)
    if whole is None:
        return None
    tables, sizes, data = whole
    joined = _output_of(
        lambda room, out: lib.analyze_parts(tables, len(sizes), sizes, data, room, out), data, len(sizes)
    )
    return None if joined is None else _split_terms(joined)


def specifics(text: str, words: Any) -> list[str] | None:
    """The result of specific.specifics_in_python for `text`; None if only the reference supports it."""
    data = _utf8(text)
    if data is None:
        return None
    tables = unicode_tables_for(text, data)
    joined = _output_of(lambda room, out: lib.specifics_of(tables, words, len(data), data, room, out), data)
    if joined is None:
        return None
    return [*dict.fromkeys(joined.decode().split("\0"))] if joined else []


def facts(parts: Sequence[str], stems: Any) -> list[tuple[int, int, int, int, int, int, list[str]]] | None:
    """For each text the numbers of facts.Facts, in its order, and its content words, some of them repeated.

    None if only facts.Stems.facts_in_python supports all of them. stems: a lexicon
    """
    whole = _concatenated(parts)
    if whole is None:
        return None
    tables, sizes, data = whole
    found = _new("facts[]", len(sizes))
    joined = _output_of(
        lambda room, out: lib.facts_of(tables, stems, len(sizes), sizes, data, found, room, out), data, len(sizes)
    )
    if joined is None:
        return None
    numbers = iter(ffi.unpack(ffi.cast("uint32_t *", found), 6 * len(sizes)) if sizes else ())
    return [*zip(*[numbers] * 6, _split_terms(joined), strict=True)]


def counts(parts: Sequence[str], words: Any) -> list[tuple[int, ...]] | None:
    """For each text the numbers of facts.h's facts_counts, in their order. None if not all are supported. words: a
    lexicon"""
    whole = _concatenated(parts)
    if whole is None:
        return None
    tables, sizes, data = whole
    found = _new("facts_counts[]", len(sizes))
    if lib.facts_count(tables, words, len(sizes), sizes, data, found) < 0:
        return None
    numbers = ffi.unpack(ffi.cast("uint32_t *", found), _COUNTS * len(sizes)) if sizes else ()
    return [*zip(*[iter(numbers)] * _COUNTS, strict=True)]


_COUNTS = 8
"""Number of fields of a facts_counts."""


def sentences(text: str) -> list[tuple[int, int]] | None:
    """The result of analyze.sentences_in_python for `text`; None if only the reference supports it."""
    data = _utf8(text)
    if data is None:
        return None
    spans = _new("uint32_t[]", len(data) + 2)
    n = lib.sentences_of(unicode_tables_for(text, data), len(data), data, spans)
    if n < 0:
        return None
    numbers = iter(ffi.unpack(spans, 2 * n) if n else ())
    return [*zip(numbers, numbers, strict=True)]


def lexicon(flagged: Iterable[tuple[int | str, Iterable[str]]]) -> Any:
    """Words for C with their flags, which are numbers or names of C constants."""
    words_in_c = ffi.new("lexicon *")
    for flagged_as, words in flagged:
        flag = getattr(lib, flagged_as) if isinstance(flagged_as, str) else flagged_as
        for word in words:
            data = word.encode()
            if not lib.lexicon_add(words_in_c, len(data), data, flag):
                raise ValueError(f"{word!r} is too long for native/lexicon.c, or there are too many words")
    return words_in_c


def _concatenated(parts: Sequence[str]) -> tuple[Any, list[int], bytes] | None:
    """Texts concatenated for C: the Unicode tables that they need, the bytes of each, and all of them in UTF-8. None as
    in _utf8()."""
    text = "".join(parts)
    data = _utf8(text)
    if data is None:
        return None
    sizes = [*map(len, parts if len(data) == len(text) else map(str.encode, parts))]
    return unicode_tables_for(text, data), sizes, data


def _split_terms(joined: bytes) -> list[list[str]]:
    """The terms of each text in the output format of C: one per line, and a zero byte after each text."""
    return [each.split("\n") if each else [] for each in joined.decode().split("\0")[:-1]]


def _utf8(text: str) -> bytes | None:
    """The text in UTF-8; None if it contains half a surrogate pair, or C is not available."""
    try:
        return text.encode() if AVAILABLE else None
    except UnicodeEncodeError:
        return None


def _output_of(write: Callable[[int, Any], int], data: bytes, extra: int = 0) -> bytes | None:
    """The output of `write`, which is called again with a larger buffer if it needs one."""
    room = 3 * len(data) + 64 + extra
    while True:
        out = _new("char[]", room)
        size: int = write(room, out)
        if size >= 0:
            return bytes(ffi.buffer(out, size))
        if size != lib.ANALYZE_ROOM:
            return None
        room *= 6


def stem(word: str) -> str:
    """The stem of a word in lower case. For tests: PyStemmer is as fast for single calls."""
    letters = ffi.new("uint8_t[]", [min(ord(c), 0x80) for c in word])
    kept = bytes(ffi.buffer(letters, lib.analyze_stem(letters, len(word))))
    non_ascii = iter([c for c in word if c >= "\x80"])
    return "".join(chr(byte) if byte < 0x80 else next(non_ascii) for byte in kept)


def unicode_tables_for(text: str, data: bytes) -> Any:
    """The Unicode tables that a text needs. data: the text in UTF-8"""
    return unicode_tables(0x80 if len(data) == len(text) else _CODE_POINTS)


@lru_cache(maxsize=2)
def unicode_tables(n: int) -> Any:
    """analyze.h's tables for the first n code points. Takes 5 ms for 0x20000, so ASCII texts do without."""
    points = array("I", range(n)).tobytes().decode(f"utf-32-{sys.byteorder[0]}e", "surrogatepass")
    lower = _lower_cases(points)
    classes = _character_classes(points)
    classes[ord("_")] |= lib.ANALYZE_WORD
    wide = bytes(kind | lib.ANALYZE_WIDE for kind in range(256))
    for first, last in _WIDE:
        classes[first : last + 1] = classes[first : last + 1].translate(wide)
    for point in lower:
        classes[point] |= lib.ANALYZE_UPPER
    for mark in MARKS:
        if ord(mark) < n:
            classes[ord(mark)] |= lib.ANALYZE_MARK
    for point in (*_SIGMAS, *(upper for upper, plain in lower.items() if upper >= 0x80 > plain)):
        if point < n:
            classes[point] = lib.ANALYZE_OTHER
    tables = (
        ffi.new("uint8_t[]", bytes(classes)),
        ffi.new("uint32_t[]", list(lower)),
        ffi.new("uint32_t[]", list(lower.values())),
        ffi.new("uint32_t[]", sorted(FOLDS)),
        ffi.new("uint32_t[]", [ord(c) for _, letters in sorted(FOLDS.items()) for c in letters.ljust(2, "\0")]),
        lexicon(_AFFIXES),
    )
    unicode = ffi.new("analyze_unicode *", (n, tables[0], len(lower), *tables[1:3], len(FOLDS), *tables[3:]))
    _table_memory.append(tables)
    return unicode


def _character_classes(points: str) -> bytearray:
    """For each code point a byte with the results of str.isalpha(), isalnum(), isspace() and isdecimal(). Uniform runs
    are filled at once; one by one would take ten times as long."""
    classes = bytearray(len(points))
    alpha, word, digit = lib.ANALYZE_ALPHA, lib.ANALYZE_WORD, lib.ANALYZE_DIGIT
    for run in _WORDS.finditer(points):
        start, text = run.start(), run.group()
        if text.isalpha():
            classes[start : run.end()] = bytes((alpha | word,)) * len(text)
            continue
        for at, c in enumerate(text, start):
            classes[at] = alpha * c.isalpha() | word * c.isalnum() | digit * c.isdecimal()
    for run in _SPACES.finditer(points):
        classes[run.start()] |= lib.ANALYZE_SPACE
    return classes


_WORDS, _SPACES = re.compile(r"\w+"), re.compile(r"\s")
"""Classes of str.isalnum() and "_", and of str.isspace()."""


def _lower_cases(points: str) -> dict[int, int]:
    """Code points with a different lower case, ascending -> that. Those of _SIGMAS count as having none."""
    plain = "".join(" " if ord(c) in _SIGMAS else c for c in points[:0x400]) + points[0x400:]
    low = plain.lower()
    found: dict[int, int] = {}
    for first in range(0, len(plain), _BLOCK):
        before, after = plain[first : first + _BLOCK], low[first : first + _BLOCK]
        if before != after:
            both = enumerate(zip(before, after, strict=True), first)
            found |= {at: ord(small) for at, (each, small) in both if each != small}
    return found


_BLOCK = 64
"""Code points compared with their lower case at once: most blocks have no difference."""
_AFFIXES = (
    ("ANALYZE_ENDING", SUFFIXES), ("ANALYZE_BEGINNING", PREFIXES),
    ("ANALYZE_ELIDED", ELIDED_WORDS), ("ANALYZE_ATTACHED", APOSTROPHE_SUFFIXES),
)  # fmt: skip
_WIDE = ((0xE00, 0xEFF), (0x1000, 0x109F), (0x1780, 0x17FF), (0x3040, 0x30FF), (0x3400, 0x9FFF), (0xAC00, 0xD7AF))
_SIGMAS = (0x130, 0x3A3)
"""A dotted capital I, whose lower case is two characters, and the sigma, whose lower case depends on its position."""
_table_memory: list[Any] = []
"""C memory of the tables, never freed: if two threads make the same tables at once, either one's may stay in the
cache."""
