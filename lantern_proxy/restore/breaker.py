"""What fails again and again is left alone for a while."""

from dataclasses import dataclass, field
from threading import Lock


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

    def record(self, ok: bool, now: float) -> None:
        with self._lock:
            self._failures = 0 if ok else self._failures + 1
            if self._failures >= self.limit:
                self._until, self._failures = now + self.rest_s, 0
