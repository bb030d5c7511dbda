"""The bytes of the archive's file and of its write-ahead log, read without SQLite."""

import contextlib
import json
import threading
from collections.abc import Iterator, Sequence
from io import FileIO
from pathlib import Path
from unicodedata import normalize

from lantern_proxy.locked import fcntl

PLAIN = b"SQLite format 3\0"


def is_plain(path: Path) -> bool:
    """Does the file begin like a SQLite file? An encrypted one does not."""
    with contextlib.suppress(OSError), _bytes_of(path) as file:
        return file.read(len(PLAIN)) == PLAIN
    return False


def has_no_log(path: Path) -> bool:
    """Does the header of a plain file say that it has no write-ahead log (file format, section 1.3)? Raises OSError."""
    with _bytes_of(path) as file:
        head = file.read(20)
    return head.startswith(PLAIN) and head[18:] == b"\1\1"


def occurrences(path: Path, text: str) -> int:
    """How often the raw bytes of the archive and its log contain `text`, in either normal form, plain or escaped as in
    JSON."""
    forms = {text, normalize("NFC", text), normalize("NFD", text)}
    spellings = forms.union(*({json.dumps(form)[1:-1], json.dumps(form, ensure_ascii=False)[1:-1]} for form in forms))
    wanted = [spelling.encode("utf-8", "surrogatepass") for spelling in spellings]
    with _bytes_of(path) as file:
        found = _count(file, wanted)
    with contextlib.suppress(FileNotFoundError), FileIO(f"{path.resolve()}-wal") as log:
        found += _count(log, wanted)
    return found


def _count(file: FileIO, wanted: Sequence[bytes]) -> int:
    overlap = max(map(len, wanted)) - 1
    found, tail = 0, b""
    while piece := file.read(1 << 22):
        data = tail + piece
        found += sum(data.count(each) for each in wanted)
        tail = data[-overlap:] if overlap else b""
        found -= sum(tail.count(each) for each in wanted)
    return found + sum(tail.count(each) for each in wanted)


_left_open: dict[tuple[int, int], FileIO] = {}
_reading_bytes = threading.Lock()


@contextlib.contextmanager
def _bytes_of(path: Path) -> Iterator[FileIO]:
    """The archive's file, from its start. It is never closed: that would release all locks that this process holds on
    it (POSIX), and SQLite may have it open."""
    if fcntl is None:
        with FileIO(path) as file:
            yield file
        return
    with _reading_bytes:
        facts = path.stat()
        file = _left_open.get((facts.st_dev, facts.st_ino)) or FileIO(path)
        _left_open[facts.st_dev, facts.st_ino] = file
        file.seek(0)
        yield file
