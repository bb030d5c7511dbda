"""What one restore may draw from: the passages of a session, project or tenant with an open BM25 index over them.

A scope is built from the archive on first use, in steps that end at the deadline, and kept up to date: newly archived
passages are left in a queue by the writer thread and taken in by the next restore.
"""

import math
import threading
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice

import numpy as np
import numpy.typing as npt

from lantern_proxy.analyze import terms
from lantern_proxy.archive import Archive
from lantern_proxy.bm25 import Index
from lantern_proxy.rank import Floats, Ints
from lantern_proxy.restore_lines import Anchor, Line, anchor, flat, lines
from lantern_proxy.turn import Passage

Vectors = npt.NDArray[np.float32]
Floats32 = npt.NDArray[np.float32]

STEP = 500
"""Passages read from the archive between two looks at the clock: about 10 ms."""
VECTORS_A_TIME = 10_000
"""Vectors read from the archive for one restore: about 20 ms, once."""
RICH = 8
MAX_WAITING = 5_000
"""A scope that nobody asks is closed when this many passages wait for it."""
MAX_PASSAGES, MAX_SCOPES = 50_000, 64
"""Most passages and scopes held open, of all tenants together; the least recently used are closed first."""


@dataclass(slots=True)
class Entry:
    """A passage as a scope holds it, with what is computed once."""

    passage: Passage
    """Without its terms, which are in the index."""
    flat: str
    anchor: Anchor
    richness: float
    """Specific terms for its length: which passages to look at first when there are many."""
    _lines: tuple[Line, ...] | None = None
    _words: frozenset[str] | None = None
    _tag_terms: frozenset[str] | None = None

    @property
    def lines(self) -> tuple[Line, ...]:
        if self._lines is None:
            self._lines = lines(self.passage)
        return self._lines

    @property
    def words(self) -> frozenset[str]:
        """Its index terms."""
        if self._words is None:
            self._words = frozenset(terms(self.passage.text))
        return self._words

    @property
    def tag_terms(self) -> frozenset[str]:
        """Index terms of its tags and tool names."""
        if self._tag_terms is None:
            self._tag_terms = frozenset(terms(" ".join((*self.passage.tags, *self.passage.tools))))
        return self._tag_terms


def richness(passage: Passage) -> float:
    """What users say counts most, what tools print least. Many specific terms prove no more than a few: tables and logs
    are full of terms that nobody asks for."""
    speaker = {"user": 1.0, "assistant": 0.4}.get(passage.speaker, 0.3)
    return float(speaker * (1 + min(len(passage.tags), RICH)) / (len(passage.text) + 40) ** 0.75)


@dataclass(frozen=True, slots=True)
class Key:
    """Which scope: a tenant's, its project's (None: all of the tenant) or a session's."""

    tenant: str
    project: str | None
    session: str | None
    unit: str = "passage"

    def covers(self, tenant: str, project: str, passage: Passage) -> bool:
        return (
            self.tenant == tenant
            and self.unit == passage.unit
            and (self.project is None or self.project == project)
            and (self.session is None or self.session == passage.session)
        )


class Scope:
    """Hold `lock` while using it. Owns C memory: close it."""

    def __init__(self, key: Key) -> None:
        self.key = key
        self.lock = threading.Lock()
        self.entries: list[Entry] = []
        self.index = Index()
        self.frequency: Counter[str] = Counter()
        self.waiting: deque[Passage] = deque()
        self.complete = False
        self.closed = False
        self._rows: dict[int, int] = {}
        self._places: Ints = np.zeros(0, np.int64)
        self._vectors: Vectors = np.zeros((0, 0), np.float32)
        self._unembedded: dict[int, None] = {}
        self._last_id = 0

    def __len__(self) -> int:
        return len(self.entries)

    def catch_up(self, archive: Archive, deadline: float) -> bool:
        """Take in what the archive has; False when the deadline came first (the next call goes on from there)."""
        while not self.complete:
            found = self._read(archive)
            self._add(found)
            self.complete = len(found) < STEP
            if not self.complete and time.monotonic() > deadline:
                return False
        while self.waiting:
            self._add([self.waiting.popleft()])
        return True

    def _read(self, archive: Archive) -> Sequence[Passage]:
        own, key = archive.of(self.key.tenant), self.key
        return list(
            own.passages(session=key.session, project=key.project, unit=key.unit, after_id=self._last_id, limit=STEP)
        )

    def _add(self, found: Iterable[Passage]) -> None:
        for passage in found:
            if passage.id in self._rows:
                continue
            indexed = passage.terms or tuple(terms(passage.text))
            self.index.add(passage.id, indexed, passage.created_at)
            self.frequency.update(set(indexed))
            self._rows[passage.id] = len(self.entries)
            self._unembedded[passage.id] = None
            whole = flat(passage.text)
            self.entries.append(Entry(replace(passage, terms=()), whole, anchor(whole), richness(passage)))
            self._last_id = max(self._last_id, passage.id)

    @property
    def places(self) -> Ints:
        """(n,) message number of each entry: consecutive within a session, a gap of 10 between sessions."""
        if len(self._places) != len(self.entries):
            order = sorted(
                range(len(self.entries)),
                key=lambda i: (self.entries[i].passage.session, self.entries[i].passage.position),
            )
            self._places = np.zeros(len(order), np.int64)
            number, last = 0, ("", -1)
            for i in order:
                passage = self.entries[i].passage
                if (passage.session, passage.position) != last:
                    number += 1 if passage.session == last[0] else 10
                    last = (passage.session, passage.position)
                self._places[i] = number
        return self._places

    def cosines(self, archive: Archive, vector: Floats32) -> Floats | None:
        """(n,) cosine of each entry with `vector`, (dim,); the lowest where there is none. None: no vectors."""
        self._load_vectors(archive, len(vector))
        missing = np.fromiter((self._rows[i] for i in self._unembedded), np.int64, len(self._unembedded))
        if len(missing) == len(self.entries):
            return None
        scores = (self._vectors[: len(self.entries)] @ vector).astype(np.float64)
        if len(missing):
            there = np.ones(len(scores), bool)
            there[missing] = False
            scores[missing] = scores[there].min()
        return scores

    def _load_vectors(self, archive: Archive, dim: int) -> None:
        """Read the vectors that have come since the last time."""
        if self._vectors.shape[1] != dim:
            self._vectors = np.zeros((0, dim), np.float32)
            self._unembedded = dict.fromkeys(self._rows)
        if len(self._vectors) < len(self.entries):
            grown = np.zeros((max(64, len(self.entries) * 5 // 4), dim), np.float32)
            grown[: len(self._vectors)] = self._vectors
            self._vectors = grown
        if not self._unembedded:
            return
        wanted = list(islice(self._unembedded, VECTORS_A_TIME))
        for passage_id, vector in archive.of(self.key.tenant).vectors(wanted).items():
            self._vectors[self._rows[passage_id]] = vector
            del self._unembedded[passage_id]

    def row(self, passage_id: int) -> int | None:
        """Place of a passage in `entries`, None when this scope does not hold it."""
        return self._rows.get(passage_id)

    def scatter(self, pairs: Iterable[tuple[int, float]], missing: float = 0.0) -> Floats:
        """(n,) scores from (passage id, score); entries without one get `missing`."""
        scores = np.full(len(self.entries), missing)
        for passage_id, score in pairs:
            row = self._rows.get(int(passage_id))
            if row is not None:
                scores[row] = score
        return scores

    def lexical(self, query: Sequence[str]) -> Floats:
        """(n,) BM25 scores."""
        ids, scores = self.index.search(query, len(self.entries))
        return self.scatter(zip(ids.tolist(), scores.tolist(), strict=True))

    def idf(self, term: str) -> float:
        """How rare an index term is here, in (0, 1]: 1 for a term of one passage or none."""
        n = len(self.entries)
        return (
            math.log(1 + (n + 0.5) / (self.frequency.get(term, 0) + 0.5)) / math.log(1 + (n + 0.5) / 0.5) if n else 1.0
        )

    def release(self) -> None:
        """End a use: close the index when the scope was dropped meanwhile, and unlock."""
        if self.closed:
            self.index.close()
        self.lock.release()


@dataclass(slots=True)
class Scopes:
    """The open scopes, least recently used first. Thread-safe."""

    _open: OrderedDict[Key, Scope] = field(default_factory=OrderedDict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def use(self, key: Key, timeout_s: float) -> Scope | None:
        """The scope of `key`, locked: release() it. None when it was not free in time."""
        while True:
            scope = self._get(key)
            if not scope.lock.acquire(timeout=timeout_s):
                return None
            if not scope.closed:
                return scope
            scope.release()

    def _get(self, key: Key) -> Scope:
        with self._lock:
            scope = self._open.get(key)
            if scope is None:
                scope = self._open[key] = Scope(key)
            self._open.move_to_end(key)
            self._shrink(keep=key)
            return scope

    def learn(self, tenant: str, project: str, passages: Sequence[Passage]) -> None:
        """Queue newly archived passages for the open scopes that cover them. Never waits for a running restore."""
        with self._lock:
            for key, scope in list(self._open.items()):
                scope.waiting.extend(p for p in passages if key.covers(tenant, project, p))
                if len(scope.waiting) > MAX_WAITING:
                    self._drop(key)

    def forget(self, key: Key) -> None:
        with self._lock:
            if key in self._open:
                self._drop(key)

    def close(self) -> None:
        with self._lock:
            for key in list(self._open):
                self._drop(key)

    def _shrink(self, keep: Key) -> None:
        while len(self._open) > 1 and (
            len(self._open) > MAX_SCOPES or sum(map(len, self._open.values())) > MAX_PASSAGES
        ):
            oldest = next(iter(self._open))
            if oldest == keep:
                return
            self._drop(oldest)

    def _drop(self, key: Key) -> None:
        """Close a scope, unless a restore is using it: then that one closes it when it is done."""
        scope = self._open.pop(key)
        scope.closed = True
        if scope.lock.acquire(blocking=False):
            scope.index.close()
            scope.lock.release()
