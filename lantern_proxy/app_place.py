"""Which worker a process is, when several serve one archive. Imports nothing heavy: the parent process reads it."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class WorkerPlace:
    """One worker among its like."""

    number: int
    ports: tuple[int, ...]
    """Where each listens for the others, on 127.0.0.1."""
    secret: str
    """What they know each other by."""
