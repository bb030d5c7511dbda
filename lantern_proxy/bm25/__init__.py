"""Exact BM25 over documents that come and go: the C index of native/, and its numpy twin.

    index.add(7, ["retry", "policy"], time=1_700_000_000)
    ids, scores = index.search(["retry"], 10)

Both compute the same float32 scores to the bit; the arithmetic and its order stand at the top of native/bm25.h. In
short, Lucene's BM25 (Robertson and Zaragoza 2009, section 3, without the constant factor k1 + 1): raw term counts, raw
lengths, idf = ln(1 + (N - df + 0.5) / (df + 0.5)), where N, df and the mean length are those of the documents that are
there now. The twin serves where no C compiler was at hand when Lantern was installed: `BUILT` is False then, and `WHY`
has the reason for `lantern doctor` (also when C serves without AVX2 or NEON; empty when all is well).
"""

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from threading import Lock
from typing import NoReturn, TypeVar, cast
from weakref import finalize

import numpy as np

from lantern_proxy import analyze
from lantern_proxy.bm25.native import DAMAGED, FOREIGN, FULL, TERMS, Native
from lantern_proxy.bm25.twin import ABSENT, EXISTS, Ids, Scores, Times, Twin
from lantern_proxy.bm25_kernel import BUILT, WHY, Kernel, best_kernel, kernels

__all__ = ["BUILT", "PARTITION_S", "WHY", "Index", "Kernel", "best_kernel", "kernels"]

PARTITION_S = 7 * 86_400
"""Length of the partitions that `newest` counts; they begin at multiples of it since 1970."""

_ALWAYS, _isfinite = -math.inf, math.isfinite
_AT_ONCE = 1 << 14
T = TypeVar("T")


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
        self._engine: Native | Twin = Twin(k1, b) if self._kernel == "numpy" else Native(self._kernel, k1, b)
        self._lock = Lock()
        self._acquire, self._release = self._lock.acquire, self._lock.release  # half as long as `with`
        self._partitions: Counter[float] = Counter()
        """When partitions begin -> how many documents each has."""
        self._start: float = 0
        """Of one of them."""
        self._size_bytes = 0

    @property
    def kernel(self) -> Kernel:
        return self._kernel

    def add(self, doc_id: int, terms: Sequence[str], time: float = 0) -> None:
        """Append a document; the next search finds it. ValueError when it is there already, TypeError or OverflowError
        when its id is no whole number of 64 bits.

        terms: in any order, repeats kept: they are the counts and the length. May be empty, and then counts in N.
        time:  Unix seconds, for `since` and `newest`
        """
        if type(terms) is not list:
            _refuse_string(terms)
        if not _isfinite(time):
            raise ValueError(f"bm25: time of document {doc_id} is {time}; use Unix seconds")
        code = self._append(self._engine.add, doc_id, time, terms)
        if code:
            _refuse(code, doc_id)

    def add_text(self, doc_id: int, text: str, time: float = 0) -> None:
        """add() of the terms of `text` (analyze.terms), which go from C to C where they can."""
        code = self._append(self._engine.add_text, doc_id, time, text) if _isfinite(time) else FOREIGN
        if code == FOREIGN:
            self.add(doc_id, analyze.terms(text), time)
        elif code:
            _refuse(code, doc_id)

    def _append(self, engine_add: Callable[[int, float, T], int], doc_id: int, time: float, what: T) -> int:
        """The engine's code: 0 when the document is in."""
        self._acquire()
        try:
            code = engine_add(doc_id, time, what)
            if not code:
                self._count(time)
            return code
        except (TypeError, OverflowError):
            _refuse_id(doc_id)
            raise
        finally:
            self._release()

    def _count(self, time: float) -> None:
        if not self._start <= time < self._start + PARTITION_S:  # a division takes longer
            self._start = _start_of(time)
        self._partitions[self._start] += 1

    def add_lines(self, doc_ids: Sequence[int], times: Sequence[float], lines: Sequence[bytes]) -> None:
        """add() of many: `lines` are the terms of each document in UTF-8, one a line, as the archive keeps them.

        Those before one that is refused (ValueError, MemoryError) stay.
        """
        ids, at = np.asarray(doc_ids, np.int64), np.asarray(times, np.float64)
        if not len(ids) == len(at) == len(lines) or not np.isfinite(at).all():
            raise ValueError(f"bm25: {len(ids)} ids, {len(at)} times (finite ones), {len(lines)} documents; must agree")
        with self._lock:
            done = 0
            while done < len(ids):
                added, code = self._engine.add_lines(ids[done:], at[done:], lines[done:])
                self._partitions.update(_partitions_of(at[done : done + added]))
                done += added
                if code == TERMS:
                    code = self._engine.add(int(ids[done]), float(at[done]), _terms_of(lines[done]))
                    self._partitions[_start_of(float(at[done]))] += code == 0
                    done += code == 0
                if code:
                    _refuse(code, int(ids[done]))

    def df(self, term: str) -> int:
        """How many documents that are there hold `term`."""
        return self._engine.df(term)

    def documents(self) -> tuple[Ids, Times]:
        """Ids and times of the documents that are there, (n,) each, in order of arrival."""
        with self._lock:
            return self._engine.documents()

    def dump(self) -> bytes | None:
        """A snapshot for load(); None when this index cannot make one (the numpy twin, or one that holds weights)."""
        with self._lock:
            return self._engine.dump()

    def load(self, snapshot: bytes | memoryview, let_go: Callable[[], None] | None = None) -> bool:
        """Fill this empty index with what dump() gave. False: it is damaged, or of another version; nothing changed.

        let_go: given, `snapshot` stays as it is (a mapped file) until the index calls this, when it is closed and the
        last search has ended; it is then searched where it lies, if it begins at a multiple of 64 bytes. Not called
        when this returns False or raises.
        """
        with self._lock:
            engine = self._engine
            code = engine.load(snapshot, let_go is not None)
            if code in (DAMAGED, FOREIGN):
                return False
            if code == EXISTS:
                raise ValueError("bm25: the index is not empty; load a snapshot into a new one")
            if code:
                raise MemoryError("bm25: no memory for a snapshot")
            if let_go is not None:
                finalize(engine, let_go)
            self._partitions.update(_partitions_of(engine.documents()[1]))
        return True

    def remove(self, doc_id: int) -> None:
        """Take a document out, statistics included. ValueError when it is not there. Its id may be added again."""
        _refuse_id(doc_id)
        with self._lock:
            code, time = self._engine.remove(doc_id)
            if code:
                _refuse(code, doc_id)
            partition = _start_of(time)
            self._partitions[partition] -= 1
            if not self._partitions[partition]:
                del self._partitions[partition]

    def add_weights(self, doc_id: int, weights: Mapping[str, float]) -> None:
        """Append learned-sparse postings (SPLADE and the like) to a document that is there; ValueError when it is not.

        A query that holds a term n times adds n * weight (float32) to the score. N, df and lengths do not change.
        A second call for the same term adds a further weight.
        """
        _refuse_id(doc_id)
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
        if type(terms) is not list:
            _refuse_string(terms)
        if k < 0:
            raise ValueError(f"bm25: k is {k}; use 0 or more")
        if allow is None and since is None and newest is None:
            return self._engine.search(terms, k, None, _ALWAYS)
        allowed = None if allow is None else _ids_of(allow)
        bound = _ALWAYS if since is None and newest is None else self._bound(since, newest)
        return self._engine.search(terms, k, allowed, bound)

    def scores(self, terms: Sequence[str]) -> Scores:
        """(len(self),) float32: the score of every document that is there, in order of arrival; 0 without a term.

        Cheaper than `search` for all of them: nothing is sorted, and no id looked up.
        """
        _refuse_string(terms)
        return self._engine.scores(terms)

    def __len__(self) -> int:
        return len(self._engine)

    def __contains__(self, doc_id: object) -> bool:
        engine = self._engine
        return isinstance(doc_id, (int, np.integer)) and engine.has(int(doc_id))

    @property
    def size_bytes(self) -> int:
        """What the index holds in memory; while it is being changed or written down, what was found the last time: that
        may take seconds, and nobody is to wait. 0 for the numpy twin, which does not count."""
        if self._acquire(blocking=False):
            try:
                self._size_bytes = self._engine.size_bytes()
            finally:
                self._release()
        return self._size_bytes

    def close(self) -> None:
        """Let go of the index: it is freed when the searches that run have ended. Closing twice is allowed, anything
        else afterwards is a ValueError."""
        with self._lock:
            self._engine = cast(Native, _Closed())

    def __enter__(self) -> "Index":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

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
        return max(bound, float(partitions[-1])) if partitions else bound


class _Closed:
    """In the place of an engine: looking for one on each call would take a tenth of a search."""

    def __getattr__(self, name: str) -> NoReturn:
        raise ValueError("bm25: the index is closed; make a new one")

    def __len__(self) -> int:
        return self.closed


def _refuse_id(doc_id: object) -> None:
    """Raise for what is no whole number of 64 bits."""
    if not isinstance(doc_id, (int, np.integer)):
        raise TypeError(f"bm25: doc_id is {doc_id!r:.40}; give a whole number")
    if not -(2**63) <= doc_id < 2**63:
        raise OverflowError(f"bm25: doc_id is {doc_id}; give one of 64 bits, -2**63 to 2**63 - 1")


def _refuse_string(terms: object) -> None:
    if isinstance(terms, (str, bytes)):
        raise TypeError(f"bm25: terms is the string {terms[:40]!r}; give a list of terms")


def _refuse(code: int, doc_id: int) -> NoReturn:
    """Raise what a code of bm25.h means."""
    if code == EXISTS:
        raise ValueError(f"bm25: document {doc_id} is in the index already; remove it first")
    if code == ABSENT:
        raise ValueError(f"bm25: document {doc_id} is not in the index; add it first")
    if code == FULL:
        raise ValueError(f"bm25: no room for document {doc_id}: an index holds 4,294,967,294; use a second one")
    raise MemoryError(f"bm25: no memory for document {doc_id}")


def _ids_of(allow: Iterable[int] | Ids) -> Ids:
    """`allow` as contiguous int64; TypeError for a mask or floats, which would be misread."""
    if not isinstance(allow, np.ndarray):
        return np.fromiter(allow, np.int64, len(allow) if isinstance(allow, Collection) else -1)
    if allow.dtype.kind not in "iu":
        raise TypeError(f"bm25: allow has dtype {allow.dtype}; give document ids as integers")
    return np.ascontiguousarray(allow.ravel(), np.int64)


def _terms_of(lines: bytes) -> list[str]:
    return lines.decode("utf-8", "surrogatepass").split("\n") if lines else []


def _start_of(time: float) -> float:
    return time // PARTITION_S * PARTITION_S


def _partitions_of(times: Times) -> dict[float, int]:
    """When a partition begins -> how many of these documents are of it."""
    found: Counter[float] = Counter()
    for first in range(0, len(times), _AT_ONCE):  # what fits the caches
        some = times[first : first + _AT_ONCE]
        of = np.floor(some / PARTITION_S)
        if np.abs(some).max() < 2**50:
            of -= some < of * PARTITION_S  # rounded up: now it is what `//` gives, in a tenth of the time
        else:
            of = some // PARTITION_S
        borders = np.flatnonzero(of[1:] != of[:-1]) + 1  # mostly they are in order of time
        starts = np.concatenate(([0], borders))
        for partition, n in zip(of[starts].tolist(), np.diff(starts, append=len(of)).tolist(), strict=True):
            found[partition * PARTITION_S] += n
    return found
