"""A folder that one process at a time works in, where the system has file locks (flock)."""

import contextlib
import importlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

fcntl: Any = importlib.import_module("fcntl") if os.name == "posix" else None


@contextlib.contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Nobody else who asks for it is in `folder` meanwhile; waits for that. OSError where there is no such folder."""
    if fcntl is None:
        yield
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
