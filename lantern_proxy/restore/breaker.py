"""A circuit breaker: what fails several times in a row is left alone for a while."""

from collections.abc import Hashable
from dataclasses import dataclass, field
from threading import Lock

_REMEMBERED = 1_024
"""Of so many that failed last it is remembered."""


@dataclass(slots=True)
class Breaker:
    """Keeps a sick channel off: after `limit` failures in a row, for `rest_s` seconds. Thread-safe."""

    limit: int = 3
    rest_s: float = 30.0
    _failures: int = 0
    _until: float = 0.0
    _lock: Lock = field(default_factory=Lock)

    def open(self, now: float) -> bool:
        """Is the channel off? now: time.monotonic()"""
        with self._lock:
            return now < self._until

    def record(self, ok: bool, now: float) -> bool:
        """Note how it went; is the channel turned off by this?"""
        with self._lock:
            self._failures = 0 if ok else self._failures + 1
            if self._failures >= self.limit:
                self._until, self._failures = now + self.rest_s, 0
                return True
        return False


class Breakers:
    """A breaker for each of many that fail by themselves, as the texts of a session do. Thread-safe."""

    def __init__(self) -> None:
        self._failing: dict[Hashable, Breaker] = {}
        self._lock = Lock()

    def open(self, key: Hashable, now: float) -> bool:
        """Is it off? now: time.monotonic()"""
        with self._lock:
            breaker = self._failing.get(key)
        return breaker is not None and breaker.open(now)

    def record(self, key: Hashable, ok: bool, now: float) -> bool:
        """Note how it went; is it turned off by this?"""
        with self._lock:
            breaker = self._failing.pop(key, None)
            if ok:
                return False
            breaker = self._failing[key] = breaker or Breaker()
            if len(self._failing) > _REMEMBERED:
                self._failing.pop(next(iter(self._failing)))
        return breaker.record(False, now)
