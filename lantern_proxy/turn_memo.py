"""A cache, bounded in bytes, of results for recent texts: clients resend their whole history every time.

plain = Memo(canonical, most_bytes=8 << 20, bytes_of=lambda text: 2 * len(text)).__getitem__
plain("hello  world") == "hello world"
"""

from collections import OrderedDict
from collections.abc import Callable
from typing import Any, TypeVar

_K = TypeVar("_K")
_V = TypeVar("_V")

_LARGEST = 8
"""A value that would take more than one in so many bytes of the cache is kept separately, so that it does not evict
everything else."""
_LARGE = 4
"""How many such values are kept."""
_PLACE_BYTES = 120
"""Overhead of a key in an OrderedDict."""

_all: "list[Memo[Any, Any]]" = []


class Memo(OrderedDict[_K, _V]):
    """`memo[key]` is make(key), computed once as long as it is cached; the oldest entry is evicted first.

    A memo lives as long as the process: create it once, beside the function. Thread-safe.

    most_bytes: about how much everything may take
    bytes_of:   key -> about how much the key and its value take
    """

    def __init__(self, make: Callable[[_K], _V], *, most_bytes: int, bytes_of: Callable[[_K], int]) -> None:
        super().__init__()
        self._make: Callable[[_K], _V] = make
        self._bytes_of: Callable[[_K], int] = bytes_of
        self._most = most_bytes
        self.held_bytes = 0
        self._large: list[tuple[_K, _V]] = []
        _all.append(self)

    def __missing__(self, key: _K) -> _V:
        size = self._bytes_of(key) + _PLACE_BYTES
        if size * _LARGEST > self._most:
            return self._large_one(key)
        value = self._make(key)
        if key not in self:  # nothing here calls Python code, so no other thread can interfere
            self[key] = value
            self.held_bytes += size
        while self.held_bytes > self._most:
            try:
                oldest, _ = self.popitem(last=False)
            except KeyError:  # another thread has emptied it
                self.held_bytes = 0
            else:
                freed = self._bytes_of(oldest) + _PLACE_BYTES  # computed first: other threads may change the cache
                self.held_bytes -= freed
        return value

    def _large_one(self, key: _K) -> _V:
        for known, value in self._large:
            if known == key:
                return value
        value = self._make(key)
        self._large = [*self._large[1 - _LARGE :], (key, value)]
        return value

    def forget(self) -> None:
        self.clear()
        self._large = []
        self.held_bytes = 0


def forget_all() -> None:
    """Empty all caches."""
    for memo in _all:
        memo.forget()
