"""A circuit breaker: something that fails several times in a row is not used for a while."""

from collections.abc import Hashable
from threading import Lock

from msgspec import Struct, field

_REMEMBERED = 1_024
"""Breakers are kept for so many of the last failures."""


class Breaker(Struct):
    """Disables a channel after `limit` failures in a row, for `rest_s` seconds. Thread-safe."""

    limit: int = 3
    rest_s: float = 30.0
    _failures: int = 0
    _until: float = 0.0
    _lock: Lock = field(default_factory=Lock)

    def open(self, now: float) -> bool:
        """Is the channel disabled? now: time.monotonic()"""
        with self._lock:
            return now < self._until

    def record(self, ok: bool, now: float) -> bool:
        """Record a success or failure; True if this disables the channel."""
        with self._lock:
            self._failures = 0 if ok else self._failures + 1
            if self._failures >= self.limit:
                self._until, self._failures = now + self.rest_s, 0
                return True
        return False


class Breakers:
    """One breaker per key, for things that fail independently, such as scopes. Thread-safe."""

    def __init__(self) -> None:
        self._failing: dict[Hashable, Breaker] = {}
        self._lock = Lock()

    def open(self, key: Hashable, now: float) -> bool:
        """Is it disabled? now: time.monotonic()"""
        with self._lock:
            breaker = self._failing.get(key)
        return breaker is not None and breaker.open(now)

    def record(self, key: Hashable, ok: bool, now: float) -> bool:
        """Record a success or failure; True if this disables the key."""
        with self._lock:
            breaker = self._failing.pop(key, None)
            if ok:
                return False
            breaker = self._failing[key] = breaker or Breaker()
            if len(self._failing) > _REMEMBERED:
                self._failing.pop(next(iter(self._failing)))
        return breaker.record(False, now)
