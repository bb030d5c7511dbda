"""A folder in which one process works at a time, on systems with file locks (flock)."""

import contextlib
import importlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

fcntl: Any = importlib.import_module("fcntl") if os.name == "posix" else None


@contextlib.contextmanager
def exclusive(folder: Path) -> Iterator[None]:
    """Wait until no other caller is in `folder`, and keep others out. OSError if the folder does not exist."""
    if fcntl is None:
        yield
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
