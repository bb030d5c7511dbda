"""The BM25 index in numpy, for installations without a C compiler: the same results to the bit. Used through `bm25`."""

import math
from array import array
from collections import Counter, defaultdict
from collections.abc import Sequence
from itertools import count
from threading import Lock

import numpy as np
import numpy.typing as npt

Ids = npt.NDArray[np.int64]
Scores = npt.NDArray[np.float32]
Times = npt.NDArray[np.float64]

EXISTS, ABSENT = -2, -3  # codes of bm25.h
_TERMS, _FOREIGN = -5, -6
_LEAST = np.finfo(np.float32).tiny  # FLT_MIN: the smallest score that counts as more than 0


class _Postings:
    """One term's postings of the twin: slots, and counts or weights, in order of arrival."""

    __slots__ = ("slots", "values")

    def __init__(self) -> None:
        self.slots, self.values = array("q"), array("f")

    def push(self, slot: int, value: float) -> None:
        self.slots.append(slot)
        self.values.append(value)

    def views(self) -> tuple[Ids, Scores]:
        """The columns as arrays that share their memory: drop them before the next push."""
        return np.asarray(self.slots), np.asarray(self.values)


class Twin:
    """The C index in numpy, line for line where the results depend on it. Searches and changes take turns."""

    def __init__(self, k1: float, b: float) -> None:
        self._lock = Lock()
        self._numbers: defaultdict[str, int] = defaultdict(count().__next__)
        self._k1, self._b = k1, b
        self._ids, self._times, self._lengths, self._live = array("q"), array("d"), array("f"), array("b")
        self._slots: dict[int, int] = {}
        self._total_length = 0
        self._counts: defaultdict[int, _Postings] = defaultdict(_Postings)
        self._weights: defaultdict[int, _Postings] = defaultdict(_Postings)

    def add(self, doc_id: int, time: float, terms: Sequence[str]) -> int:
        with self._lock:
            return self._add(doc_id, time, [self._numbers[term] for term in terms])

    def _add(self, doc_id: int, time: float, terms: list[int]) -> int:
        if doc_id in self._slots:
            return EXISTS
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
        with self._lock:
            return self._remove(doc_id)

    def _remove(self, doc_id: int) -> tuple[int, float]:
        slot = self._slots.pop(doc_id, None)
        if slot is None:
            return ABSENT, 0.0
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

    def add_weights(self, doc_id: int, terms: list[str], weights: Scores) -> int:
        with self._lock:
            slot = self._slots.get(doc_id)
            if slot is None:
                return ABSENT
            for term, weight in zip(terms, weights, strict=True):
                self._weights[self._numbers[term]].push(slot, float(weight))
            return 0

    def search(self, terms: Sequence[str], k: int, allow: Ids | None, since: float) -> tuple[Ids, Scores]:
        with self._lock:
            return self._search([self._numbers[term] for term in terms if term in self._numbers], k, allow, since)

    def _search(self, terms: list[int], k: int, allow: Ids | None, since: float) -> tuple[Ids, Scores]:
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

    def scores(self, terms: Sequence[str]) -> Scores:
        with self._lock:
            live = np.asarray(self._live).astype(bool)
            scores = self._score([self._numbers[term] for term in terms if term in self._numbers], live)
            kept: Scores = scores[live]
            return kept

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

    def size_bytes(self) -> int:
        return 0

    # what the C index does faster is left to add()

    def add_text(self, doc_id: int, time: float, text: str) -> int:
        return _FOREIGN

    def add_lines(self, ids: Ids, times: Times, lines: Sequence[bytes]) -> tuple[int, int]:
        return 0, _TERMS

    def df(self, term: str) -> int:
        with self._lock:
            postings = self._counts.get(self._numbers[term]) if term in self._numbers else None
            return 0 if postings is None else int(np.count_nonzero(np.asarray(self._live)[postings.views()[0]]))

    def documents(self) -> tuple[Ids, Times]:
        with self._lock:
            live = np.asarray(self._live).astype(bool)
            return np.asarray(self._ids)[live], np.asarray(self._times)[live]

    def dump(self) -> None:
        return None

    def load(self, snapshot: bytes | memoryview, stays: bool) -> int:
        return _FOREIGN
