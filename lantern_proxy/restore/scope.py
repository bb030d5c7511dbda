"""What one restore may draw from: the passages of a session, project or tenant, with an open BM25 index over them.

A scope is built from the archive on first use, in steps that stop at the deadline; the rest is done in the background.
Each use adds what the archive has received since, from any process. Passages are read on demand. The index of a large
scope is saved beside the archive (restore/snapshots.py), so that a restart finds it.
"""

import math
import threading
import time
from array import array
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import filterfalse, islice
from typing import Literal

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from lantern_proxy.analyze import terms
from lantern_proxy.archive import Archive, TenantArchive
from lantern_proxy.archive.scope import Outline
from lantern_proxy.bm25 import Index
from lantern_proxy.bm25.file import Snapshot
from lantern_proxy.rank import Floats, Ints
from lantern_proxy.restore import snapshots, superseded
from lantern_proxy.restore.passages import MOST_PREPARED, STEP, Passages
from lantern_proxy.restore.richest import Richest
from lantern_proxy.restore.row_cache import RowCache
from lantern_proxy.signals.late import DIM, Tokens
from lantern_proxy.turn import CLIENT

Vectors = npt.NDArray[np.float32]
Floats32 = npt.NDArray[np.float32]

VECTORS_A_TIME = 10_000
"""Vectors loaded from the archive in one restore: about 20 ms, once."""
IDFS = 50_000
"""Most terms whose idf a scope caches."""
SHORT_BYTES = 350
"""Bytes of index terms, some 60 words. A message up to this size takes over scores from its neighbours in full; the
longer it is beyond that, the less it takes over."""


class Key(Struct, frozen=True):
    """Identifies a scope: a whole tenant, one of its projects, or one session."""

    tenant: str
    project: str | None
    """None: all projects of the tenant."""
    session: str | None
    """None: all sessions of the project."""
    unit: str = "passage"
    """Passage.unit of its passages."""


class Rarities(dict[str, float]):
    """Index term -> its idf among n passages, scaled to (0, 1]; computed on first access."""

    def __init__(self, index: Index, n: int) -> None:
        super().__init__()
        self._index, self._n, self._rarest = index, n, math.log(1 + (n + 0.5) / 0.5)

    def __missing__(self, term: str) -> float:
        n = self._n
        found = self[term] = math.log(1 + (n + 0.5) / (self._index.df(term) + 0.5)) / self._rarest if n else 1.0
        return found


class Scope:
    """An open scope: its passages and their indexes. Hold `lock` while using it. Owns C memory: close it."""

    def __init__(self, key: Key) -> None:
        self.key = key
        self.lock = threading.Lock()
        self.passages = Passages()
        self.index = Index()
        self.closed = False
        self.used_at = 0.0
        """time.monotonic() value of the last use."""
        self.opening = False
        """True while a background thread is building it."""
        self.preparing: threading.Thread | None = None
        """The background thread that runs Passages.prepare_ahead(), if any."""
        self.kept = 0
        """Number of passages in the saved snapshot."""
        self._sessions: dict[str, int] = {}
        self._codes, self._positions, self._times = array("i"), array("q"), array("d")
        self._sizes = array("i")
        """Bytes of each passage's index terms when it was added."""
        self._places: Ints = np.zeros(0, np.int64)
        self._numbers: Ints = np.zeros(0, np.int64)
        self._openness: Floats = np.zeros(0)
        self._mean_openness = 1.0
        self._progress: Floats = np.zeros((3, 0))
        self._order: tuple[Ints, Ints] = np.zeros(0, np.int64), np.zeros(0, np.int64)
        self._firsts: Ints = np.full(1, -1)
        """The first row at each place; -1 if there is none, as at both ends."""
        self._arrived: Ints | None = None
        """Rows in the order of the index, where a corrected passage comes last."""
        self._richest = Richest()
        self._idf = Rarities(self.index, 0)
        self._idf_of = 0
        """Number of passages for which `_idf` was computed."""
        self._weighed = RowCache(3)
        """Cache of weighed(); cleared with `_idf`."""
        self._vectors: Vectors = np.zeros((0, 0), np.float32)
        self._embedded = bytearray()
        """1 for each row whose vector is loaded."""
        self._seen = -1
        """The newest passage of the whole archive when this scope was last complete; -1 before the first use."""
        self._last_edit = 0

    def __len__(self) -> int:
        return len(self.passages)

    def catch_up(self, archive: Archive, deadline: float) -> bool:
        """Add what is new in the archive; False if the deadline came first (the next call continues from there)."""
        own = self.passages.own = archive.of(self.key.tenant)
        newest = archive.newest_passage()
        if self._seen < 0 and not self._begin(archive, deadline):
            return False
        while self._seen < newest:
            key, last = self.key, self.passages.ids[-1] if len(self) else 0
            found = own.outline(key.session, key.project, key.unit, last, STEP)
            self._add(found)
            if len(found) < STEP:
                self._seen = newest
            elif time.monotonic() > deadline:
                return False
        self._follow_edits(own)
        return True

    def step(self, archive: Archive) -> bool:
        """Add the snapshot, or the next STEP passages, without a deadline; True when the scope is complete."""
        if self._seen < 0 and not self._begin(archive, math.inf):
            return False
        return self.catch_up(archive, -math.inf)

    def _begin(self, archive: Archive, deadline: float) -> bool:
        """Load the snapshot, if there is one; False if there is one but too little time to read it."""
        edits = archive.of(self.key.tenant).edited(0)
        found = snapshots.read(archive, self.key, deadline)
        if found == snapshots.LATER:
            return False
        self._seen, self._last_edit = 0, edits[-1][0] if edits else 0
        if isinstance(found, Snapshot):
            empty, self.index = self.index, found.index
            empty.close()
            self.kept, self._last_edit = len(found.ids), found.last_edit
            self.passages.ids, self._times = array("q", found.ids.tobytes()), array("d", found.times.tobytes())
            self._sessions = {session: code for code, session in enumerate(found.sessions)}
            self._codes, self._positions = array("i", found.codes.tobytes()), array("q", found.positions.tobytes())
            self._sizes = array("i", found.sizes.tobytes())
            self._embedded = bytearray(len(found.ids))
        return True

    def _follow_edits(self, own: TenantArchive) -> None:
        """Apply corrections that this or another process made."""
        edits = own.edited(self._last_edit)
        for passage in own.passages_by_id({id_ for _, id_ in edits if id_ in self.index}).values():
            self.index.remove(passage.id)
            self.index.add(passage.id, passage.terms or tuple(terms(passage.text)), passage.created_at)
            row = self.row(passage.id)
            if row is not None:
                self._embedded[row] = 0
                self.passages.forget(row)
        if edits:
            self._last_edit, self._arrived = edits[-1][0], None
            self._richest, self._idf_of = Richest(), 0

    def _add(self, found: Outline) -> None:
        """Append new passages to the columns and the index."""
        lines_of = found.lines if all(found.lines) else self._analyzed(found)
        self.index.add_lines(found.ids, found.times, lines_of)
        sessions = self._sessions
        self._codes.extend([sessions.setdefault(session, len(sessions)) for session in found.sessions])
        self._positions.extend(found.positions)
        self._sizes.extend(map(len, lines_of))
        self._times.extend(found.times)
        self.passages.ids.extend(found.ids)
        self._embedded.extend(bytes(len(found.ids)))
        self._arrived = None

    def _analyzed(self, found: Outline) -> list[bytes]:
        """found.lines, computed from the text of passages for which the archive has none."""
        bare = [id_ for id_, lines_of in zip(found.ids, found.lines, strict=True) if not lines_of]
        passages = self.passages.own.plain_passages(bare) if self.passages.own else {}
        made = {i: "\n".join(terms(p.text)).encode("utf-8", "surrogatepass") for i, p in passages.items()}
        return [held or made.get(id_, b"") for id_, held in zip(found.ids, found.lines, strict=True)]

    def snapshot(self, archive: Archive) -> Snapshot:
        """This scope as a snapshot to be written: copies of its columns, and the index itself."""
        return Snapshot(
            snapshots.stamp_of(archive),
            snapshots.name_of(self.key),
            self.index,
            tuple(self._sessions),
            np.array(self._codes, np.int32),
            np.array(self._positions, np.int64),
            np.array(self._sizes, np.int32),
            self._last_edit,
            np.array(self.passages.ids, np.int64),
        )

    @property
    def places(self) -> Ints:
        """(n,) message number of each passage: consecutive within a session, with a gap of 10 between sessions."""
        if len(self._places) != len(self.passages):
            codes, positions = np.array(self._codes), np.array(self._positions)
            order = np.lexsort((positions, codes))
            steps = np.where(np.diff(codes[order]) != 0, 10, (np.diff(positions[order]) != 0).astype(np.int64))
            self._places = np.empty(len(order), np.int64)
            self._places[order] = np.concatenate(([10], 10 + np.cumsum(steps)))
        return self._places

    @property
    def openness(self) -> Floats:
        """(n,) how much of its neighbours' scores a passage takes over, 0..1: all if its whole message has at most
        SHORT_BYTES, and less the longer the message is."""
        if len(self._openness) != len(self.passages):
            sizes = np.bincount(self.places, np.array(self._sizes))
            self._openness = np.minimum(1.0, SHORT_BYTES / np.maximum(1.0, sizes[self.places]))
            self._mean_openness = float(self._openness.mean())
        return self._openness

    @property
    def mean_openness(self) -> float:
        """Mean of `openness`, smaller the longer the scope's messages are; 1 if there are no passages."""
        return self._mean_openness if len(self.openness) else 1.0

    @property
    def session_numbers(self) -> Ints:
        """(n,) number of each passage's session, from 0."""
        if len(self._numbers) != len(self.passages):
            self._numbers = np.array(self._codes, np.int64)
        return self._numbers

    @property
    def progress(self) -> Floats:
        """(3, n) how far into its session each passage stands: log(1 + number of earlier messages in the session), the
        fraction of the session before it, and the fraction of the whole scope before it."""
        if self._progress.shape[1] != len(self.passages):
            sessions, places = self.session_numbers, self.places
            first = np.full(len(self._sessions), np.iinfo(np.int64).max)
            last = np.zeros(len(first), np.int64)
            np.minimum.at(first, sessions, places)
            np.maximum.at(last, sessions, places)
            place, least = places - first[sessions], int(places.min())
            shares = place / np.maximum(1, last - first)[sessions], (places - least) / max(1, int(places.max()) - least)
            self._progress = np.array([np.log1p(place), *shares])
        return self._progress

    def neighbours(self, rows: Ints, by: Ints | int) -> Ints:
        """The first passage of the message `by` messages after that of each of `rows`; -1 if there is none. `rows` and
        `by` are broadcast against each other."""
        self._in_order()
        return self._firsts.take(self.places[rows] + by, mode="clip")

    def at(self, place: int) -> list[int]:
        """Rows of the message at a place, see `places`; ascending."""
        order, ordered = self._in_order()
        first, last = ordered.searchsorted((place, place + 1))
        rows: list[int] = order[first:last].tolist()
        return rows

    def said_at(self, place: int) -> list[int]:
        """Rows of the message at a place, without what its client wrote around its user's words; ascending."""
        return [*filterfalse(self._is_of_client, self.at(place))]

    def said_before(self, row: int) -> int | None:
        """The row before `row` in its session, without what clients write around their users' words; None if there is
        none. Rows of other sessions may be between them."""
        return next(filterfalse(self._is_of_client, self.beside(row, -1)), None)

    def said_after(self, row: int) -> int | None:
        """The same after `row`."""
        return next(filterfalse(self._is_of_client, self.beside(row, 1)), None)

    def previous(self, rows: Iterable[int]) -> list[int]:
        """The row right before each of `rows` in its session, if there is one."""
        return [before for row in rows for before in islice(self.beside(row, -1), 1)]

    def beside(self, row: int, by: Literal[-1, 1]) -> Iterator[int]:
        """The rows of the session of `row` before it, nearest first, or after it."""
        order, ordered = self._in_order()
        first, last = ordered.searchsorted((self.places[row], self.places[row] + 1)).tolist()
        at = first + int(order[first:last].searchsorted(row)) + by
        while 0 <= at < len(order) and self._codes[order[at]] == self._codes[row]:
            yield int(order[at])
            at += by

    def _is_of_client(self, row: int) -> bool:
        return self.passages[row].passage.speaker == CLIENT

    def _in_order(self) -> tuple[Ints, Ints]:
        """(n,) rows sorted by place, and (n,) their places."""
        places = self.places
        if len(self._order[0]) != len(places):
            order = np.argsort(places, kind="stable")
            self._order = order, places[order]
            self._firsts = np.full(int(places.max(initial=-1)) + 2, -1)
            self._firsts[places[order[::-1]]] = order[::-1]
        return self._order

    def tokens(self, archive: Archive, rows: Sequence[int], recipe: str) -> list[Tokens]:
        """The token vectors of each of the passages at `rows`; shape (0, DIM) for a passage without any."""
        ids = [self.passages.ids[row] for row in rows]
        found = archive.of(self.key.tenant).tokens(ids, recipe, DIM)
        nothing = np.zeros((0, DIM), np.int8)
        return [found.get(id_, nothing) for id_ in ids]

    def ages(self, now: float) -> Floats:
        """(n,) seconds since each passage was written."""
        return now - np.array(self._times, np.float64)

    def read_for_loss(self, rows: Sequence[int]) -> int:
        """Read the passages at `rows` and compute what a loss block needs of them; returns their number of characters.
        Hold the lock."""
        self.passages.read(rows)
        some = self.passages.of(rows)
        for read in some:
            for i in read.stating:
                superseded.precompute(read.lines[i].flat)
        return sum(len(read.flat) for read in some)

    def cosines(self, archive: Archive, vector: Floats32) -> Floats | None:
        """(n,) cosine of each passage with `vector`, (dim,); passages without a vector get the mean. None if no passage
        has a vector."""
        self._load_vectors(archive, len(vector))
        there = self._has_vector()
        if not there.any():
            return None
        scores = (self._vectors[: len(self.passages)] @ vector).astype(np.float64)
        if not there.all():
            scores[~there] = scores[there].mean()  # a missing vector is no evidence against a passage
        return scores

    def unembedded(self, rows: Ints) -> npt.NDArray[np.bool_]:
        """(len(rows),) which of these passages have no vector yet."""
        missing: npt.NDArray[np.bool_] = ~self._has_vector()[rows]
        return missing

    def _has_vector(self) -> npt.NDArray[np.bool_]:
        """(n,) which passages have a vector here; a copy."""
        return np.array(self._embedded, np.bool_)

    def _load_vectors(self, archive: Archive, dim: int) -> None:
        """Load vectors that were computed since the last call."""
        if self._vectors.shape[1] != dim:
            self._vectors = np.zeros((0, dim), np.float32)
            self._embedded = bytearray(len(self.passages))
        if len(self._vectors) < len(self.passages):
            grown = np.zeros((max(64, len(self.passages) * 5 // 4), dim), np.float32)
            grown[: len(self._vectors)] = self._vectors
            self._vectors = grown
        if 0 not in self._embedded:
            return
        wanted = {self.passages.ids[row]: row for row in np.flatnonzero(~self._has_vector())[:VECTORS_A_TIME].tolist()}
        found = archive.of(self.key.tenant).vectors([*wanted])
        if found:
            rows = [wanted[id_] for id_ in found]
            self._vectors[rows] = np.stack(list(found.values()))
            for row in rows:
                self._embedded[row] = 1

    def _rows_of(self, ids: Ints) -> Ints:
        """The rows of those `ids` that are in this scope."""
        held = np.array(self.passages.ids, np.int64)
        rows = np.searchsorted(held, ids)
        there = rows < len(held)
        there[there] = held[rows[there]] == ids[there]
        found: Ints = rows[there]
        return found

    def rows(self, passage_ids: Sequence[int]) -> list[int]:
        """The rows of those passages that are in this scope, in the order of `passage_ids`."""
        rows: list[int] = self._rows_of(np.array(passage_ids, np.int64)).tolist()
        return rows

    def row(self, passage_id: int) -> int | None:
        """The row of a passage; None if it is not in this scope."""
        return next(iter(self.rows([passage_id])), None)

    def lexical(self, query: Sequence[str]) -> Floats:
        """(n,) BM25 score of each passage for the index terms `query`."""
        if self._arrived is None:
            self._arrived = self._rows_of(self.index.documents()[0])
        scores = np.zeros(len(self.passages))
        scores[self._arrived] = self.index.scores(query)
        return scores

    def idf(self, term: str) -> float:
        """The rarity of an index term in this scope, in (0, 1]: about 1 for a term that at most one passage has."""
        return self.rarities[term]

    @property
    def rarities(self) -> "Rarities":
        """Index term -> `idf`, for many lookups. Valid until passages are added. Hold the lock."""
        if len(self) != self._idf_of or len(self._idf) >= IDFS:
            self._idf, self._idf_of = Rarities(self.index, len(self)), len(self)
            self._weighed.clear()
        return self._idf

    def weighed(self, rows: Ints) -> Floats:
        """(len(rows), 3) sum of the idf of each passage's index terms, the largest idf, and the number of terms; zeros
        for a row of -1."""
        idf = self.rarities.__getitem__

        def made(missing: list[int]) -> list[tuple[float, float, int]]:
            each = ([*map(idf, read.words)] for read in self.passages.of(missing))
            return [(math.fsum(own), max(own, default=0.0), len(own)) for own in each]  # fsum: independent of the order

        return self._weighed.of(rows, made, most=MOST_PREPARED)

    def richest(self, deadline: float) -> Ints:
        """(n,) all rows, those with most specific terms for their length first. Hold the lock."""
        own, key = self.passages.own, self.key
        if own is None:
            return np.arange(len(self))
        return self._richest.order(own, (key.session, key.project, key.unit), self.passages.ids, deadline)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold `lock`; wait for it first."""
        self.lock.acquire()
        try:
            yield
        finally:
            self.release()

    def release(self) -> None:
        """Unlock the scope, and close its index if the scope was dropped meanwhile."""
        if self.closed:
            self.index.close()
        self.lock.release()
