"""Snapshots: an index, and the other data of its scope, as one file that is mapped and usable at once.

The file is mapped, checked to the last byte, and its postings are searched where they lie; what is damaged, cut, of
another version or of another archive reads as None. mapped.py says how a mapped file can be replaced and removed.
"""

import json
import os
import secrets
import struct
import zlib
from collections.abc import Callable
from mmap import mmap
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from msgspec import Struct, field

from lantern_proxy import mapped
from lantern_proxy.bm25 import Index

_HEAD = struct.Struct("<8sIIII")  # magic, version, bytes of the JSON head, bytes of the columns, CRC-32 of both
_MAGIC, _VERSION, _ALIGN = b"LNTRSNAP", 4, 64
_ROW = 4 + 8 + 4
"""Bytes of a passage in the columns."""


class Snapshot(Struct, frozen=True):
    """Passages in order of id with their index. codes: (n,) number of each one's session in `sessions`; sizes: (n,)
    bytes of its index terms."""

    archive: str
    """Which archive it is of."""
    scope: str
    index: Index
    sessions: tuple[str, ...]
    codes: npt.NDArray[np.int32]
    positions: npt.NDArray[np.int64]
    sizes: npt.NDArray[np.int32]
    last_edit: int = 0
    """The last correction that it has."""
    ids: npt.NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    times: npt.NDArray[np.float64] = field(default_factory=lambda: np.zeros(0, np.float64))
    """Ids and times, (n,): read() takes them from the index."""


def write(path: Path, snapshot: Snapshot) -> bool:
    """Put a snapshot in place, whole or not at all, with mode 0600. False: its index cannot be kept. Raises OSError."""
    dumped = snapshot.index.dump()
    if dumped is None:
        return False
    told: dict[str, Any] = {"archive": snapshot.archive, "scope": snapshot.scope, "sessions": snapshot.sessions}
    told["last_edit"] = snapshot.last_edit
    head = json.dumps(told).encode()
    head += b" " * (-(_HEAD.size + len(head) + _ROW * len(snapshot.codes)) % _ALIGN)  # the index begins there
    columns = snapshot.codes.astype("<i4").tobytes() + snapshot.positions.astype("<i8").tobytes()
    columns += snapshot.sizes.astype("<i4").tobytes()
    crc = zlib.crc32(columns, zlib.crc32(head))
    new = path.with_name(f"{path.name}.{secrets.token_hex(4)}.new")
    try:
        with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            for part in (_HEAD.pack(_MAGIC, _VERSION, len(head), len(columns), crc), head, columns, dumped):
                file.write(part)
        os.replace(new, path)
    finally:
        new.unlink(missing_ok=True)
    return True


def read(path: Path, *, archive: str, scope: str) -> Snapshot | None:
    """The snapshot of this archive's scope, or None: there is none that can be used."""
    try:
        kept = mapped.open_file(path)
    except OSError:
        return None
    if kept is None:
        return None
    let_go = kept.let_go if isinstance(kept.data, mmap) else None
    found = unpack(kept.data, archive=archive, scope=scope, let_go=let_go)
    if found is None:
        kept.let_go()
    return found


def unpack(
    data: bytes | mmap, *, archive: str, scope: str, let_go: Callable[[], None] | None = None
) -> Snapshot | None:
    """A snapshot from the bytes of its file, or None.

    let_go: given, `data` stays as it is until the index of the snapshot calls this in its end; else it is copied
    """
    if len(data) < _HEAD.size:
        return None
    magic, version, n_head, n_columns, crc = _HEAD.unpack_from(data)
    start, middle, end = _HEAD.size, _HEAD.size + n_head, _HEAD.size + n_head + n_columns
    if magic != _MAGIC or version != _VERSION or end > len(data) or n_columns % _ROW:
        return None
    if zlib.crc32(memoryview(data)[start:end]) != crc:
        return None
    head = _head(data[start:middle])
    if head is None or (head["archive"], head["scope"]) != (archive, scope):
        return None
    n = n_columns // _ROW
    codes = np.frombuffer(data, "<i4", n, middle).astype(np.int32)
    positions = np.frombuffer(data, "<i8", n, middle + 4 * n).astype(np.int64)
    sizes = np.frombuffer(data, "<i4", n, middle + 12 * n).astype(np.int32)
    if n and (codes.min() < 0 or codes.max() >= len(head["sessions"])):
        return None
    index = _index(memoryview(data)[end:], n, let_go)
    if index is None:
        return None
    ids, times = index.documents()
    if (ids[1:] < ids[:-1]).any():  # a corrected one stands last
        order = np.argsort(ids)
        ids, times = ids[order], times[order]
    return Snapshot(
        archive, scope, index, tuple(head["sessions"]), codes, positions, sizes, head["last_edit"], ids, times
    )


def _head(data: bytes) -> dict[str, Any] | None:
    """The head of a snapshot, parsed; None where it lacks a member or has one of another kind."""
    try:
        head = json.loads(data)
    except (ValueError, RecursionError):
        return None
    sessions = head.get("sessions") if isinstance(head, dict) else None
    fits = isinstance(sessions, list) and all(isinstance(name, str) for name in sessions)
    fits = fits and type(head.get("last_edit")) is int and {"archive", "scope"} <= head.keys()
    return head if fits else None


def _index(dumped: memoryview, n: int, let_go: Callable[[], None] | None) -> Index | None:
    """The index of n documents, or None."""
    index = Index()
    try:
        if index.load(dumped, let_go=let_go) and len(index) == n:
            return index
    except MemoryError:
        pass
    index.close()
    return None
