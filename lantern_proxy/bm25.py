"""Exact BM25 over documents that come and go: the C index of native/, and its numpy twin.

    index.add(7, ["retry", "policy"], time=1_700_000_000)
    ids, scores = index.search(["retry"], 10)

Both compute the same float32 scores to the bit; the arithmetic and its order stand at the top of native/bm25.h. In
short, Lucene's BM25 (Robertson and Zaragoza 2009, section 3, without the constant factor k1 + 1): raw term counts, raw
lengths, idf = ln(1 + (N - df + 0.5) / (df + 0.5)), where N, df and the mean length are those of the documents that are
there now. The twin serves where no C compiler was at hand when Lantern was installed: `BUILT` is False then, and `WHY`
has the reason for `lantern doctor` (also when C serves without AVX2; empty when all is well).
"""

import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from threading import Lock
from typing import Any, Literal, NoReturn

import numpy as np

from lantern_proxy.bm25_twin import ABSENT, EXISTS, Ids, Scores, Twin

try:
    from lantern_proxy._bm25 import ffi, lib
except ImportError as error:
    BUILT = False
    WHY = f"the slower numpy twin serves, the C index is not there ({error}): install a C compiler, then Lantern again"
else:
    BUILT = True
    WHY = "" if lib.bm25_best_kernel() == lib.BM25_AVX2 else "this CPU has no AVX2; the scalar C kernel serves"
    _IDS, _FLOATS = map(ffi.typeof, ("int64_t[]", "float[]"))

Kernel = Literal["avx2", "scalar", "numpy"]

PARTITION_S = 7 * 86_400
"""Length of the partitions that `newest` counts; they begin at multiples of it since 1970."""

_FULL, _TERMS = -4, -5  # codes of bm25.h
_PATHS = {"auto": 0, "all": 1, "bounds": 2}


class Index:
    """BM25 over `add`ed documents, for any number of threads. Owns C memory: close it, or use it in a `with` block.

    Those that change it take turns. Searches wait for nobody and give up the GIL while they work; each sees the
    documents that were there when it began (one that is removed meanwhile may be missing), and every document wholly or
    not at all. MemoryError leaves the index as it was.
    """

    def __init__(self, k1: float = 0.9, b: float = 0.4, kernel: Kernel | None = None) -> None:
        """k1: >= 0, how slowly repeats saturate. b: 0..1, how much length counts. kernel: None for the best."""
        if not 0 <= k1 < math.inf:
            raise ValueError(f"bm25: k1 is {k1}; use a finite number of 0 or more")
        if not 0 <= b <= 1:
            raise ValueError(f"bm25: b is {b}; use 0 to 1")
        self._kernel: Kernel = best_kernel() if kernel is None else kernel
        self._held: _Native | Twin | None = Twin(k1, b) if self._kernel == "numpy" else _Native(self._kernel, k1, b)
        self._lock = Lock()
        self._partitions: Counter[int] = Counter()

    @property
    def kernel(self) -> Kernel:
        return self._kernel

    def add(self, doc_id: int, terms: Sequence[str], time: float = 0) -> None:
        """Append a document; the next search finds it. ValueError when it is there already.

        terms: in any order, repeats kept: they are the counts and the length. May be empty, and then counts in N.
        time:  Unix seconds, for `since` and `newest`
        """
        _refuse_string(terms)
        if not math.isfinite(time):
            raise ValueError(f"bm25: time of document {doc_id} is {time}; use Unix seconds")
        with self._lock:
            code = self._engine.add(doc_id, time, terms)
            if code:
                _refuse(code, doc_id)
            self._partitions[int(time // PARTITION_S)] += 1

    def remove(self, doc_id: int) -> None:
        """Take a document out, statistics included. ValueError when it is not there. Its id may be added again."""
        with self._lock:
            code, time = self._engine.remove(doc_id)
            if code:
                _refuse(code, doc_id)
            partition = int(time // PARTITION_S)
            self._partitions[partition] -= 1
            if not self._partitions[partition]:
                del self._partitions[partition]

    def add_weights(self, doc_id: int, weights: Mapping[str, float]) -> None:
        """Append learned-sparse postings (SPLADE and the like) to a document that is there; ValueError when it is not.

        A query that holds a term n times adds n * weight (float32) to the score. N, df and lengths do not change.
        A second call for the same term adds a further weight.
        """
        weights = dict(weights)  # C relies on it that no term comes twice
        values = np.array(list(weights.values()), np.float64)
        with np.errstate(over="ignore"):
            narrow = values.astype(np.float32)
        for term, value in zip(weights, narrow, strict=True):
            if not math.isfinite(value):
                raise ValueError(f"bm25: weight of {term!r} in document {doc_id} is {weights[term]}, no finite float32")
        with self._lock:
            code = self._engine.add_weights(doc_id, list(weights), narrow)
            if code:
                _refuse(code, doc_id)

    def search(
        self,
        terms: Sequence[str],
        k: int,
        allow: Iterable[int] | Ids | None = None,
        since: float | None = None,
        newest: int | None = None,
    ) -> tuple[Ids, Scores]:
        """The k best documents with a score above 0: ids (n,) int64 and scores (n,) float32, n <= k, best first.

        Ties go to the larger id. A term that stands twice counts twice.
        allow:  ids that may be returned; the statistics stay those of the whole index
        since:  Unix seconds; only documents with time >= since, exactly
        newest: recency mode, lossy by design: only the N newest 7-day partitions that hold a document
        """
        _refuse_string(terms)
        if k < 0:
            raise ValueError(f"bm25: k is {k}; use 0 or more")
        allowed = None if allow is None else _ids_of(allow)
        bound = -math.inf if since is None and newest is None else self._bound(since, newest)
        return self._engine.search(terms, k, allowed, bound)

    def __len__(self) -> int:
        return len(self._engine)

    def __contains__(self, doc_id: object) -> bool:
        engine = self._engine
        return isinstance(doc_id, (int, np.integer)) and engine.has(int(doc_id))

    @property
    def size_bytes(self) -> int:
        """What the index holds in memory; 0 for the numpy twin, which does not count."""
        with self._lock:
            return self._engine.size_bytes()

    def close(self) -> None:
        """Let go of the index: it is freed when the searches that run have ended. Closing twice is allowed, anything
        else afterwards is a ValueError."""
        with self._lock:
            self._held = None

    def __enter__(self) -> "Index":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def _engine(self) -> "_Native | Twin":
        held = self._held
        if held is None:
            raise ValueError("bm25: the index is closed; make a new one")
        return held

    def _bound(self, since: float | None, newest: int | None) -> float:
        """The earliest time that both filters let through."""
        if since is not None and math.isnan(since):
            raise ValueError("bm25: since is nan; use Unix seconds")
        bound = -math.inf if since is None else float(since)
        if newest is None:
            return bound
        if newest < 1:
            raise ValueError(f"bm25: newest is {newest}; use 1 or more 7-day partitions, or None for all")
        partitions = sorted(self._partitions, reverse=True)[:newest]
        return max(bound, float(partitions[-1] * PARTITION_S)) if partitions else bound


def best_kernel() -> Kernel:
    """What Index() will use on this machine."""
    if not BUILT:
        return "numpy"
    return "avx2" if lib.bm25_best_kernel() == lib.BM25_AVX2 else "scalar"


def _refuse_string(terms: object) -> None:
    if isinstance(terms, (str, bytes)):
        raise TypeError(f"bm25: terms is the string {terms[:40]!r}; give a list of terms")


def _refuse(code: int, doc_id: int) -> NoReturn:
    """Raise what a code of bm25.h means."""
    if code == EXISTS:
        raise ValueError(f"bm25: document {doc_id} is in the index already; remove it first")
    if code == ABSENT:
        raise ValueError(f"bm25: document {doc_id} is not in the index; add it first")
    if code == _FULL:
        raise ValueError(f"bm25: no room for document {doc_id}: an index holds 4,294,967,294; use a second one")
    raise MemoryError(f"bm25: no memory for document {doc_id}")


def _ids_of(allow: Iterable[int] | Ids) -> Ids:
    """`allow` as contiguous int64; TypeError for a mask or floats, which would be misread."""
    if not isinstance(allow, np.ndarray):
        return np.fromiter(allow, np.int64, len(allow) if isinstance(allow, Collection) else -1)
    if allow.dtype.kind not in "iu":
        raise TypeError(f"bm25: allow has dtype {allow.dtype}; give document ids as integers")
    return np.ascontiguousarray(allow.ravel(), np.int64)


class _Native:
    """The C index. One thread at a time changes it; its caller sees to that."""

    def __init__(self, kernel: Kernel, k1: float, b: float) -> None:
        kernels = {"scalar": 0, "avx2": 1}
        if kernel not in kernels:
            raise ValueError(f"bm25: kernel is {kernel!r}; use avx2, scalar, numpy, or None for the best there is")
        if not BUILT or (kernel == "avx2" and best_kernel() != "avx2"):
            raise ValueError(f"bm25: no kernel {kernel!r} here: {WHY}; use kernel=None for the best there is")
        made = lib.bm25_new(kernels[kernel], k1, b)
        if made == ffi.NULL:
            raise MemoryError("bm25: no memory for a new index")
        self._c: Any = ffi.gc(made, lib.bm25_free)

    def add(self, doc_id: int, time: float, terms: Sequence[str]) -> int:
        text = _joined(terms)
        code = int(lib.bm25_add(self._c, doc_id, time, len(terms), len(text), text))
        if code == _TERMS:
            text = _escaped(terms)
            code = int(lib.bm25_add(self._c, doc_id, time, len(terms), len(text), text))
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
        room = k if k <= 1000 else min(k, len(self) + 1000)  # others may add meanwhile
        found, ids, scores = self._search(_joined(terms), len(terms), room, allow, since)
        if found == _TERMS:
            found, ids, scores = self._search(_escaped(terms), len(terms), room, allow, since)
        if found == room:
            return (ids, scores) if room == k else self.search(terms, k, allow, since)
        if found < 0:
            raise MemoryError(f"bm25: no memory to search {len(self)} documents")
        return ids[:found], scores[:found]

    def _search(self, text: bytes, n: int, k: int, allow: Ids | None, since: float) -> tuple[int, Ids, Scores]:
        ids, scores = np.empty(k, np.int64), np.empty(k, np.float32)
        n_allow, allowed = (0, ffi.NULL) if allow is None else (len(allow), ffi.from_buffer(_IDS, allow))
        into = ffi.from_buffer(_IDS, ids), ffi.from_buffer(_FLOATS, scores)
        return lib.bm25_search(self._c, n, len(text), text, k, n_allow, allowed, since, *into), ids, scores

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
