"""Which of many texts may begin inside another one? In C (native/starts.c) where it was built."""

import re
import sys
from collections.abc import Collection

try:
    from lantern_proxy._bm25 import ffi, lib
except ImportError:
    ffi = lib = None

CHARS = 20
"""Length of the beginning by which a text is found."""
_STARTS = re.compile(rf"(?<![^\W_])(?=(.{{{CHARS}}}))", re.S)
"""Matches at each position where a word, or anything else, begins."""
_UTF32 = f"utf-32-{'le' if sys.byteorder == 'little' else 'be'}"
_LOG_BITS_PER_START = 5
"""log2 of the filter's bits per beginning: it passes one in 32 of the positions where none begins."""
_LEAST_BITS = 10
_BATCH = 256


class Starts:
    """Beginnings to search for, CHARS each. One thread at a time."""

    def __init__(self, starts: Collection[str] = (), *, native: bool = True) -> None:
        self.capacity = 2 * len(starts) + 1_000
        """So many may be added: make another one then."""
        self._new = [*starts]
        self._set = None
        if native and lib is not None:
            log_bits = max(_LEAST_BITS, self.capacity.bit_length() + _LOG_BITS_PER_START)
            self._bits = ffi.new("uint8_t[]", 1 << (log_bits - 3))
            self._set = ffi.new("starts *", (CHARS, log_bits, self._bits))

    def add(self, start: str) -> None:
        self.capacity -= 1
        self._new.append(start)
        if len(self._new) >= _BATCH:
            self._flush()

    def within(self, text: str, among: Collection[str]) -> list[tuple[int, str]]:
        """(position, beginning) for each of `among`, all added before, that occurs in `text` without a word continuing;
        in order of position."""
        if self._set is None:
            return [(found.start(), found[1]) for found in _STARTS.finditer(text) if found[1] in among]
        self._flush()
        places_in_c = ffi.new("uint32_t[]", len(text))
        places = (
            ffi.unpack(places_in_c, lib.starts_find(self._set, len(text), *_encoded(text), places_in_c)) if text else ()
        )
        found = ((at, text[at : at + CHARS]) for at in places if not (at and text[at - 1].isalnum()))
        return [each for each in found if each[1] in among]

    def _flush(self) -> None:
        if self._set is not None and self._new:
            lib.starts_add(self._set, len(self._new), *_encoded("".join(self._new)))
        self._new = []


def _encoded(text: str) -> tuple[int, bytes]:
    """(bytes of a sign, all signs) as starts.h has them."""
    return (1, text.encode("ascii")) if text.isascii() else (4, text.encode(_UTF32, "surrogatepass"))
