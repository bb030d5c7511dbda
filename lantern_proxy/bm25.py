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
from array import array
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import count
from threading import Lock
from typing import Any, Literal, NoReturn

import numpy as np
import numpy.typing as npt

try:
    from lantern_proxy._bm25 import ffi, lib
except ImportError as error:
    BUILT = False
    WHY = f"the slower numpy twin serves, the C index is not there ({error}): install a C compiler, then Lantern again"
else:
    BUILT = True
    WHY = "" if lib.bm25_best_kernel() == lib.BM25_AVX2 else "this CPU has no AVX2; the scalar C kernel serves"
    _IDS, _FLOATS, _TERMS = map(ffi.typeof, ("int64_t[]", "float[]", "uint32_t[]"))

Kernel = Literal["avx2", "scalar", "numpy"]
Ids = npt.NDArray[np.int64]
Scores = npt.NDArray[np.float32]

PARTITION_S = 7 * 86_400
"""Length of the partitions that `newest` counts; they begin at multiples of it since 1970."""

_NO_MEMORY, _EXISTS, _ABSENT, _FULL = -1, -2, -3, -4  # the codes of bm25.h
_LEAST = np.finfo(np.float32).tiny  # FLT_MIN: the smallest score that counts as more than 0


class Index:
    """BM25 over `add`ed documents, for any number of threads. Owns C memory: close it, or use it in a `with` block.

    One lock covers each call. The C index gives up the GIL while it works, so other Python runs on meanwhile, and a
    search sees each append wholly or not at all. MemoryError leaves the index as it was.
    """

    def __init__(self, k1: float = 0.9, b: float = 0.4, kernel: Kernel | None = None) -> None:
        """k1: >= 0, how slowly repeats saturate. b: 0..1, how much length counts. kernel: None for the best."""
        if not 0 <= k1 < math.inf:
            raise ValueError(f"bm25: k1 is {k1}; use a finite number of 0 or more")
        if not 0 <= b <= 1:
            raise ValueError(f"bm25: b is {b}; use 0 to 1")
        self._kernel: Kernel = best_kernel() if kernel is None else kernel
        self._held: _Native | _Twin | None = _Twin(k1, b) if self._kernel == "numpy" else _Native(self._kernel, k1, b)
        self._lock = Lock()
        self._numbers: defaultdict[str, int] = defaultdict(count().__next__)
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
            engine, numbers = self._engine, self._numbers
            code = engine.add(doc_id, time, array("I", map(numbers.__getitem__, terms)))
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
            engine, numbers = self._engine, self._numbers
            code = engine.add_weights(doc_id, [numbers[term] for term in weights], narrow)
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
        with self._lock:
            engine, numbers = self._engine, self._numbers
            known = [numbers[term] for term in terms if term in numbers]
            return engine.search(known, k, allowed, self._bound(since, newest))

    def __len__(self) -> int:
        with self._lock:
            return len(self._engine)

    def __contains__(self, doc_id: object) -> bool:
        with self._lock:
            return isinstance(doc_id, (int, np.integer)) and self._engine.has(int(doc_id))

    def close(self) -> None:
        """Free the index. Closing twice is allowed, anything else afterwards is a ValueError."""
        with self._lock:
            if self._held is not None:
                self._held.close()
            self._held = None

    def __enter__(self) -> "Index":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def _engine(self) -> "_Native | _Twin":
        if self._held is None:
            raise ValueError("bm25: the index is closed; make a new one")
        return self._held

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
    if code == _EXISTS:
        raise ValueError(f"bm25: document {doc_id} is in the index already; remove it first")
    if code == _ABSENT:
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
    """The C index. Its caller locks."""

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

    def close(self) -> None:
        ffi.release(self._c)

    def add(self, doc_id: int, time: float, terms: "array[int]") -> int:
        return int(lib.bm25_add(self._c, doc_id, time, len(terms), ffi.from_buffer(_TERMS, terms)))

    def remove(self, doc_id: int) -> tuple[int, float]:
        time = ffi.new("double *")
        return lib.bm25_remove(self._c, doc_id, time), time[0]

    def add_weights(self, doc_id: int, terms: list[int], weights: Scores) -> int:
        return int(lib.bm25_add_weights(self._c, doc_id, len(terms), terms, ffi.from_buffer(_FLOATS, weights)))

    def search(self, terms: list[int], k: int, allow: Ids | None, since: float) -> tuple[Ids, Scores]:
        room = min(k, lib.bm25_count(self._c))
        ids, scores = np.empty(room, np.int64), np.empty(room, np.float32)
        n_allow, allowed = (0, ffi.NULL) if allow is None else (len(allow), ffi.from_buffer(_IDS, allow))
        found = lib.bm25_search(
            self._c, len(terms), terms, room, n_allow, allowed, since,
            ffi.from_buffer(_IDS, ids), ffi.from_buffer(_FLOATS, scores),
        )  # fmt: skip
        if found < 0:
            raise MemoryError(f"bm25: no memory to search {len(self)} documents")
        return ids[:found], scores[:found]

    def __len__(self) -> int:
        return int(lib.bm25_count(self._c))

    def has(self, doc_id: int) -> bool:
        return -(2**63) <= doc_id < 2**63 and bool(lib.bm25_has(self._c, doc_id))


class _Postings:
    """One term's postings of the twin: slots, and counts or weights, in order of arrival."""

    __slots__ = ("slots", "values")

    def __init__(self) -> None:
        self.slots, self.values = array("q"), array("f")

    def push(self, slot: int, value: float) -> None:
        self.slots.append(slot)
        self.values.append(value)

    def views(self) -> tuple[Ids, Scores]:
        """Without a copy: drop them before the next push."""
        return np.asarray(self.slots), np.asarray(self.values)


class _Twin:
    """The C index in numpy, line for line where the results depend on it. Its caller locks."""

    def __init__(self, k1: float, b: float) -> None:
        self._k1, self._b = k1, b
        self._ids, self._times, self._lengths, self._live = array("q"), array("d"), array("f"), array("b")
        self._slots: dict[int, int] = {}
        self._total_length = 0
        self._counts: defaultdict[int, _Postings] = defaultdict(_Postings)
        self._weights: defaultdict[int, _Postings] = defaultdict(_Postings)

    def close(self) -> None:
        self.__init__(self._k1, self._b)  # type: ignore[misc]

    def add(self, doc_id: int, time: float, terms: "array[int]") -> int:
        if doc_id in self._slots:
            return _EXISTS
        self._ids.append(doc_id)  # refuses what is no int64, before anything has changed
        slot = self._slots[doc_id] = len(self._live)
        self._times.append(time)
        self._lengths.append(len(terms))
        self._live.append(1)
        self._total_length += int(self._lengths[slot])
        for term, times in Counter(terms).items():
            self._counts[term].push(slot, times)
        return 0

    def remove(self, doc_id: int) -> tuple[int, float]:
        slot = self._slots.pop(doc_id, None)
        if slot is None:
            return _ABSENT, 0.0
        time = self._times[slot]
        self._live[slot] = 0
        self._total_length -= int(self._lengths[slot])
        if len(self._live) - len(self) > 64 + len(self) // 8:
            self._sweep()
        return 0, time

    def _sweep(self) -> None:
        """Forget removed documents for good."""
        live = np.array(self._live, bool)
        renamed = np.cumsum(live) - 1
        for postings in (*self._counts.values(), *self._weights.values()):
            slots, values = postings.views()
            kept = live[slots]
            postings.slots = array("q", renamed[slots[kept]].tobytes())
            postings.values = array("f", values[kept].tobytes())
        self._ids = array("q", np.asarray(self._ids)[live].tobytes())
        self._times = array("d", np.asarray(self._times)[live].tobytes())
        self._lengths = array("f", np.asarray(self._lengths)[live].tobytes())
        self._live = array("b", [1] * len(self._ids))
        self._slots = {doc_id: slot for slot, doc_id in enumerate(self._ids)}

    def add_weights(self, doc_id: int, terms: list[int], weights: Scores) -> int:
        slot = self._slots.get(doc_id)
        if slot is None:
            return _ABSENT
        for term, weight in zip(terms, weights, strict=True):
            self._weights[term].push(slot, float(weight))
        return 0

    def search(self, terms: list[int], k: int, allow: Ids | None, since: float) -> tuple[Ids, Scores]:
        ids, times, live = np.asarray(self._ids), np.asarray(self._times), np.asarray(self._live).astype(bool)
        scores = self._score(terms, live)
        kept = live & (times >= since)
        if allow is not None:
            kept &= np.isin(ids, allow)
        found = np.flatnonzero(kept & (scores >= _LEAST))
        if k == 0:
            return ids[:0].copy(), scores[:0]
        if len(found) > k:
            found = found[scores[found] >= np.partition(scores[found], -k)[-k]]
        best = found[np.lexsort((ids[found], scores[found]))[::-1][:k]]
        return ids[best], scores[best]

    def _score(self, terms: list[int], live: npt.NDArray[np.bool_]) -> Scores:
        """(slots,) The arithmetic of bm25.h, in its order."""
        scores, lengths = np.zeros(len(live), np.float32), np.asarray(self._lengths)
        a = np.float32(self._k1 * (1 - self._b))
        mean = self._total_length / len(self) if self._total_length else math.inf
        c = np.float32(self._k1 * self._b / mean)
        for term, times in Counter(terms).items():
            if term in self._counts:
                slots, tf = self._counts[term].views()
                df = int(np.count_nonzero(live[slots]))
                if df:
                    gain = np.float32(times * math.log(1 + (len(self) - df + 0.5) / (df + 0.5)))
                    scores[slots] += gain * tf / (tf + (a + c * lengths[slots]))
            if term in self._weights:
                slots, weights = self._weights[term].views()
                np.add.at(scores, slots, np.float32(times) * weights)
        return scores

    def __len__(self) -> int:
        return len(self._slots)

    def has(self, doc_id: int) -> bool:
        return doc_id in self._slots
