"""Files that stay mapped while another process may replace or remove them.

Accessing a mapped page that is no longer in the file kills the process by a signal, and overwritten pages change under
their reader. So such a file is written under another name and then renamed, never changed; and whoever maps it holds a
shared lock meanwhile. `remove` marks a file that is still mapped and unlinks it; the last holder overwrites it when
letting go. Without such locks (Windows, some network file systems), files are read into memory instead.
"""

import contextlib
import mmap
import os
from io import FileIO
from pathlib import Path

from msgspec import Struct

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

_MARK = bytes(8)
"""The beginning of a file that is to be overwritten."""


class Mapped(Struct, frozen=True):
    data: mmap.mmap | bytes
    """Read only."""
    file: FileIO

    def let_go(self) -> None:
        """Release the file once nobody uses `data` any more; may be called twice. If it was removed meanwhile, the last
        holder overwrites it."""
        if self.file.closed or fcntl is None:  # already released, or read into memory
            return
        with contextlib.suppress(OSError), self.file as file:
            fcntl.flock(file, fcntl.LOCK_UN)  # before checking the mark: remove() marks before it tries to lock
            file.seek(0)
            if file.read(len(_MARK)) == _MARK and _is_unmapped(file):
                _overwrite(file)


def open_file(path: Path) -> Mapped | None:
    """Map a file into memory; None if it is missing, empty, or being removed. Raises OSError."""
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
    if not isinstance(data, mmap.mmap):  # Windows does not allow replacing an open file
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
    """Overwrite a file and delete it; if it is mapped, it is overwritten when that ends. Raises OSError."""
    with contextlib.suppress(FileNotFoundError):
        with path.open("r+b", buffering=0) as file:
            file.write(_MARK[: os.fstat(file.fileno()).st_size])  # whoever opens it now finds it damaged
            if _is_unmapped(file):
                _overwrite(file)
        path.unlink()


def _is_unmapped(file: FileIO) -> bool:
    """Does nobody else map this file? Then nobody can as long as it is open here."""
    if fcntl is None:
        return True
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks, where files are not mapped
        pass
    return True


def _overwrite(file: FileIO) -> None:
    """Fill a file with zeros, at the same length."""
    left = os.fstat(file.fileno()).st_size
    zeros = bytes(min(left, 1 << 20))
    file.seek(0)
    while left > 0:
        left -= file.write(zeros[: min(left, len(zeros))])
    os.fsync(file.fileno())
