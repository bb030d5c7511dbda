"""Which worker a process is, if several serve one archive. Imports nothing heavy, since the parent process uses it."""

from msgspec import Struct

DRAINED = b"drained"
"""What a worker that is stopped writes to its parent once it has answered its clients."""


class WorkerPlace(Struct, frozen=True):
    """One of several workers."""

    number: int
    ports: tuple[int, ...]
    """The port on 127.0.0.1 where each worker listens for the others."""
    secret: str
    """The shared secret by which workers recognise each other."""
