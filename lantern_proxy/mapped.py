"""Files that stay mapped while another process may replace or remove them.

A mapped page that has left the file is a signal that kills the process, and one that is overwritten changes under its
reader. So a file of this kind is written under another name and put in place, never changed; and whoever maps it holds
a shared lock for as long. `remove` marks a file that is mapped somewhere and takes its name away; the last who lets go
of it overwrites it. Where there are no such locks (Windows, some network file systems),
files are read into memory instead.
"""

import contextlib
import mmap
import os
from dataclasses import dataclass
from io import FileIO
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

_MARK = bytes(8)
"""What a file of which nothing may be left begins with."""


@dataclass(frozen=True, slots=True)
class Mapped:
    data: mmap.mmap | bytes
    """Read only."""
    file: FileIO

    def let_go(self) -> None:
        """When nobody looks at `data` any more; twice is allowed. What was removed meanwhile is overwritten by the last
        of these."""
        if self.file.closed or fcntl is None:  # let go of before, or read into memory
            return
        with contextlib.suppress(OSError), self.file as file:
            fcntl.flock(file, fcntl.LOCK_UN)  # before it looks: remove() marks before it tries for the lock
            file.seek(0)
            if file.read(len(_MARK)) == _MARK and _alone(file):
                _overwrite(file)


def open_file(path: Path) -> Mapped | None:
    """Map a file into memory. None: it is not there, is empty, or is being removed. Raises OSError."""
    try:
        file = FileIO(os.open(path, os.O_RDWR | getattr(os, "O_BINARY", 0) | getattr(os, "O_CLOEXEC", 0)), "r+")
    except FileNotFoundError:
        return None
    try:
        data = _map(file)
    except ValueError:  # empty
        data = None
    except BaseException:
        file.close()
        raise
    if not isinstance(data, mmap.mmap):  # Windows lets nobody replace a file that is open
        file.close()
    return None if data is None else Mapped(data, file)


def _map(file: FileIO) -> mmap.mmap | bytes | None:
    if fcntl is None:
        return file.readall() or None
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return None
    except OSError:  # a file system without locks
        return file.readall() or None
    return mmap.mmap(file.fileno(), 0, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ)


def remove(path: Path) -> None:
    """Overwrite a file and take it away; where it is mapped, it is overwritten when that ends. Raises OSError."""
    with contextlib.suppress(FileNotFoundError):
        with path.open("r+b", buffering=0) as file:
            file.write(_MARK[: os.fstat(file.fileno()).st_size])  # whoever opens it now finds it damaged
            if _alone(file):
                _overwrite(file)
        path.unlink()


def _alone(file: FileIO) -> bool:
    """Has nobody mapped this file? Then nobody will as long as it is open here."""
    if fcntl is None:
        return True
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks: nobody maps it
        pass
    return True


def _overwrite(file: FileIO) -> None:
    """Zeros, at the same length."""
    left = os.fstat(file.fileno()).st_size
    zeros = bytes(min(left, 1 << 20))
    file.seek(0)
    while left > 0:
        left -= file.write(zeros[: min(left, len(zeros))])
    os.fsync(file.fileno())
