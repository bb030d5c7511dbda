"""The C index of native/ as Python calls it: buffers, return codes, and what is looked up once."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from lantern_proxy.analyze import native
from lantern_proxy.bm25.twin import Ids, Scores, Times
from lantern_proxy.bm25_kernel import BUILT, C_KERNELS, Kernel, kernels

if BUILT:
    from lantern_proxy._bm25 import ffi, lib

    _IDS, _FLOATS, _TIMES = map(ffi.typeof, ("int64_t[]", "float[]", "double[]"))
    _SIZES, _BYTES = map(ffi.typeof, ("size_t[]", "uint8_t[]"))
    # Looked up once: a search is microseconds, and each of these would be a tenth of one.
    _search, _from_buffer, _NULL = lib.bm25_search, ffi.from_buffer, ffi.NULL
    _add, _add_text, _ASCII = lib.bm25_add, lib.bm25_add_text, native.unicode_tables(0x80)

FULL, TERMS, FOREIGN, DAMAGED = -4, -5, -6, -7  # codes of bm25.h and bm25_fill.h
_KEPT = 1000
"""Results up to this many are found in arrays that are kept."""
_PATHS = {"auto": 0, "all": 1, "bounds": 2}


class _Results:
    """Where C puts the results of a search for `room`. Kept for the next search: to copy them takes half as long as two
    new arrays and their addresses."""

    __slots__ = ("ids", "into", "room", "scores")

    def __init__(self, room: int) -> None:
        self.room = room
        self.ids, self.scores = np.empty(room, np.int64), np.empty(room, np.float32)
        self.into = _from_buffer(_IDS, self.ids), _from_buffer(_FLOATS, self.scores)


class Native:
    """The C index, with the methods of twin.Twin. One thread at a time changes it; its caller sees to that."""

    def __init__(self, kernel: Kernel, k1: float, b: float) -> None:
        if kernel not in C_KERNELS:
            raise ValueError(
                f"bm25: kernel is {kernel!r}; use avx512, avx2, neon, scalar, numpy, or None for the best there is"
            )
        if kernel not in kernels():
            raise ValueError(
                f"bm25: no kernel {kernel!r} here; use {', '.join(kernels())}, or None for the best there is"
            )
        made = lib.bm25_new(C_KERNELS.index(kernel), k1, b)
        if made == ffi.NULL:
            raise MemoryError("bm25: no memory for a new index")
        self._c: Any = ffi.gc(made, lib.bm25_free)
        self._spare: list[_Results] = []

    def add(self, doc_id: int, time: float, terms: Sequence[str]) -> int:
        text = _joined(terms)
        code = _add(self._c, doc_id, time, len(terms), len(text), text)
        if code == TERMS:
            text = _escaped(terms)
            code = _add(self._c, doc_id, time, len(terms), len(text), text)
        return code  # type: ignore[no-any-return]

    def add_text(self, doc_id: int, time: float, text: str) -> int:
        try:
            data = text.encode()
        except UnicodeEncodeError:
            return FOREIGN
        if text.isascii():
            return _add_text(self._c, _ASCII, doc_id, time, len(data), data)  # type: ignore[no-any-return]
        return int(_add_text(self._c, native.unicode_tables_for(text, data), doc_id, time, len(data), data))

    if not native.AVAILABLE:

        def add_text(self, doc_id: int, time: float, text: str) -> int:
            return FOREIGN

    def add_lines(self, ids: Ids, times: Times, lines: Sequence[bytes]) -> tuple[int, int]:
        """How many were added, and why not the next."""
        ends = np.cumsum(np.fromiter(map(len, lines), np.uintp, len(lines)))
        code = ffi.new("int *")
        arrays = ffi.from_buffer(_IDS, ids), ffi.from_buffer(_TIMES, times), ffi.from_buffer(_SIZES, ends)
        added = lib.bm25_add_lines(self._c, len(ids), *arrays, b"".join(lines), code)
        return int(added), int(code[0])

    def df(self, term: str) -> int:
        text = term.encode("utf-8", "surrogatepass").replace(b"\0", b"\xff")  # as _escaped
        found = int(lib.bm25_df(self._c, len(text), text))
        if found < 0:
            raise MemoryError("bm25: no memory to look for a term")
        return found

    def documents(self) -> tuple[Ids, Times]:
        ids, times = np.empty(len(self), np.int64), np.empty(len(self), np.float64)
        lib.bm25_documents(self._c, len(ids), ffi.from_buffer(_IDS, ids), ffi.from_buffer(_TIMES, times))
        return ids, times

    def dump(self) -> bytes | None:
        made = ffi.new("uint8_t **")
        size = lib.bm25_dump(self._c, made)
        if size == TERMS:
            return None
        if size < 0:
            raise MemoryError(f"bm25: no memory for a snapshot of {len(self)} documents")
        try:
            return bytes(ffi.buffer(made[0], size))
        finally:
            lib.bm25_free_snapshot(made[0])

    def load(self, snapshot: bytes | memoryview, stays: bool) -> int:
        code = int(lib.bm25_load(self._c, len(snapshot), ffi.from_buffer(_BYTES, snapshot), stays))
        if stays and not code:
            self._image = snapshot  # behind _c, so that it outlives it
        return code

    def remove(self, doc_id: int) -> tuple[int, float]:
        time = ffi.new("double *")
        return lib.bm25_remove(self._c, doc_id, time), time[0]

    def add_weights(self, doc_id: int, terms: list[str], weights: Scores) -> int:
        text = _escaped(terms)
        return int(
            lib.bm25_add_weights(self._c, doc_id, len(terms), len(text), text, ffi.from_buffer(_FLOATS, weights))
        )

    def search(self, terms: Sequence[str], k: int, allow: Ids | None, since: float) -> tuple[Ids, Scores]:
        room = k if k <= _KEPT else min(k, len(self) + 1000)  # others may add meanwhile
        try:
            text = "\0".join(terms).encode()
        except UnicodeEncodeError:  # half a surrogate pair
            text = _escaped(terms)
        n_allow, allowed = (0, _NULL) if allow is None else (len(allow), _from_buffer(_IDS, allow))
        spare = self._spare  # taken out while it is in use: another thread takes the next
        held = spare.pop() if spare else _Results(room)
        if held.room != room:
            held = _Results(room)
        into_ids, into_scores = held.into
        found = _search(self._c, len(terms), len(text), text, room, n_allow, allowed, since, into_ids, into_scores)
        if found == k <= _KEPT:  # mostly
            copies = held.ids.copy(), held.scores.copy()
            spare.append(held)
            return copies
        if found == TERMS:
            text = _escaped(terms)
            found = _search(self._c, len(terms), len(text), text, room, n_allow, allowed, since, into_ids, into_scores)
        if found < 0:
            raise MemoryError(f"bm25: no memory to search {len(self)} documents")
        if found == room < k:
            return self.search(terms, k, allow, since)
        results = (held.ids, held.scores) if found == room else (held.ids[:found], held.scores[:found])
        if room > _KEPT:
            return results
        copies = results[0].copy(), results[1].copy()
        spare.append(held)  # not before: another thread would write there
        return copies

    def scores(self, terms: Sequence[str]) -> Scores:
        text, room = _joined(terms), len(self)
        while True:
            scores = np.empty(room, np.float32)
            into = ffi.from_buffer(_FLOATS, scores)
            found = int(lib.bm25_scores(self._c, len(terms), len(text), text, room, into))
            if found == TERMS:
                text = _escaped(terms)
            elif found < 0:
                raise MemoryError(f"bm25: no memory to score {room} documents")
            elif found > room:  # others came meanwhile
                room = found
            else:
                return scores[:found]

    def __len__(self) -> int:
        return int(lib.bm25_count(self._c))

    def has(self, doc_id: int) -> bool:
        return -(2**63) <= doc_id < 2**63 and bool(lib.bm25_has(self._c, doc_id))

    def size_bytes(self) -> int:
        return int(lib.bm25_size_bytes(self._c))

    def choose(self, path: str) -> None:
        """Which way searches go, for tests: "auto", "all" (every score) or "bounds" (upper bounds first)."""
        lib.bm25_choose(self._c, _PATHS[path])


def _joined(terms: Sequence[str]) -> bytes:
    """The terms as C takes them, unless one holds a zero byte: then C says so, and _escaped is the way."""
    try:
        return "\0".join(terms).encode()
    except UnicodeEncodeError:  # half a surrogate pair
        return _escaped(terms)


def _escaped(terms: Sequence[str]) -> bytes:
    """The same for any terms. No UTF-8 has a byte 0xFF, so terms that differ stay different."""
    return b"\0".join(term.encode("utf-8", "surrogatepass").replace(b"\0", b"\xff") for term in terms)
