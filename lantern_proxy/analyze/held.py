"""Does a text contain others, as whole words? Many are looked up at once; in C (native/held.c) where it was built."""

from collections.abc import Sequence
from itertools import compress

try:
    from lantern_proxy._bm25 import ffi, lib
except ImportError:
    ffi = lib = None

_UNKNOWN = -2
"""HELD_UNKNOWN of held.h."""
_MOST_OCCURRENCES = 1_000
"""Number of occurrences that are checked: a part that is within a longer word at all of them counts as not
contained."""


class Held:
    """A text to be searched for others. Without C each search reads all of it. Thread-safe."""

    def __init__(self, text: str, *, native: bool = True) -> None:
        self._data = _utf8(text)
        made = lib.held_new(len(self._data), self._data) if native and lib is not None else None
        self._words = ffi.gc(made, lib.held_free) if made else None

    def holds(self, parts: Sequence[str]) -> list[bool]:
        """For each of `parts`: does the text contain it without a word continuing at its start or end?"""
        data = [part.encode("utf-8", "surrogatepass") for part in parts]
        return [at != -1 and self._is_whole(part, at) for part, at in zip(data, self._places(data), strict=True)]

    def held(self, parts: Sequence[str]) -> set[str]:
        """Those of `parts` that the text contains."""
        return set(compress(parts, self.holds(parts)))

    def _places(self, parts: Sequence[bytes]) -> Sequence[int]:
        """Where each of `parts` first occurs, possibly within a word; -1: nowhere, -2: not searched for."""
        if self._words is None:
            return [_UNKNOWN] * len(parts)
        found = ffi.new("int64_t[]", len(parts))
        lib.held_find(self._words, len(parts), [*map(len, parts)], b"".join(parts), found)
        return ffi.unpack(found, len(parts)) if parts else ()

    def _is_whole(self, part: bytes, at: int) -> bool:
        at = self._data.find(part) if at == _UNKNOWN else at
        for _ in range(_MOST_OCCURRENCES):
            if at < 0 or not (_is_within_word(self._data, at) or _is_within_word(self._data, at + len(part))):
                return at >= 0
            at = self._data.find(part, at + 1)
        return False


def _utf8(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _is_within_word(data: bytes, at: int) -> bool:
    """Are there letters or digits on both sides of byte `at`?"""
    if at == 0 or at == len(data):
        return False
    left, right = data[at - 1 : at], data[at : at + 1]
    if left < b"\x80" and right < b"\x80":
        return left.isalnum() and right.isalnum()
    before, after = data[max(0, at - 4) : at], data[at : at + 4]
    # "replace": half a surrogate pair is no letter, nor is what stands beyond it
    return before.decode("utf-8", "replace")[-1:].isalnum() and after.decode("utf-8", "replace")[:1].isalnum()
