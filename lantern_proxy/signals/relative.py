"""Scores relative to others: to the best one, by rank, to neighbours, within a session. Pure.

native/relative.c computes them where it is built: ranks of some rows need no full sort. Its numpy twin is here.
"""

from functools import lru_cache

import numpy as np
from msgspec import Struct

from lantern_proxy.rank import Floats, Ints, by_place, smooth

try:
    from lantern_proxy._bm25 import ffi, lib
except ImportError:
    BUILT = False
else:
    BUILT = hasattr(lib, "relative_columns")  # an older build lacks it

COLUMNS = (
    "", "_z", "_rank", "_near", "_near_rank", "_2before", "_before", "_after", "_2after", "_session",
    "_session_sum", "_session_rank",
)  # fmt: skip
"""Names of the columns, in the order of relative.h; ranks are log(1 + places behind the best)."""
_Z, _RANKS = 1, [2, 4, 11]
_PAD = 2


class Positions(Struct, frozen=True):
    """The positions of passages, and the ones to describe."""

    places: Ints
    """(n,) message number of each passage, as rank.smooth() takes it; n > 0."""
    sessions: Ints
    """(n,) number of each passage's session, from 0."""
    rows: Ints
    """(m,) the passages to describe; no repeats."""


def columns(scores: Floats, positions: Positions, *, native: bool = BUILT) -> Floats:
    """(s, COLUMNS, m) for s signals, the scores of m passages relative to the others.

    scores: (s, n) >= 0; native: use C, which gives the same result bit for bit
    """
    found = _in_c(scores, positions) if native else _in_numpy(scores, positions)
    n = scores.shape[1]
    less = scores - (np.add.reduce(scores, axis=1) / n)[:, None]
    spread = np.sqrt(np.add.reduce(less * less, axis=1) / n)
    found[:, _Z] = less.take(positions.rows, axis=1) / np.where(spread > 0, spread, 1.0)[:, None]
    found[:, _RANKS] = _logs(n).take(found[:, _RANKS].astype(np.intp))
    return found


@lru_cache(maxsize=1)
def _logs(n: int) -> Floats:
    """(n,) log(1 + rank)."""
    made: Floats = np.log1p(np.arange(n, dtype=np.float64))
    return made


def log_ranks(scores: Floats) -> Floats:
    """(n,) log(1 + rank), where the best has rank 0; ties in order of position."""
    found: Floats = np.log1p(_ranks(scores))
    return found


def _in_c(scores: Floats, positions: Positions) -> Floats:
    """columns() without _Z, and with ranks instead of their logarithms."""
    places, rows = positions.places - int(positions.places.min()), positions.rows
    found = np.empty((len(scores), len(COLUMNS), len(rows)))
    shape = len(places), int(places.max()) + 1, int(positions.sessions.max()) + 1
    given = (ffi.from_buffer("int64_t[]", each) for each in (places, positions.sessions, rows))
    place, session, asked = given
    to = ffi.new("relative_to *", (*shape, place, session, len(rows), asked))
    flat = np.ascontiguousarray(scores)
    if not lib.relative_columns(to, len(flat), ffi.from_buffer("double[]", flat), ffi.from_buffer("double[]", found)):
        raise MemoryError(f"no memory to compare {len(places)} passages")
    return found


def _in_numpy(scores: Floats, positions: Positions) -> Floats:
    return np.array([_one_in_numpy(each, positions) for each in scores])


def _one_in_numpy(scores: Floats, positions: Positions) -> Floats:
    rows, own = positions.rows, positions.sessions[positions.rows]
    best, at = by_place(scores, positions.places, _PAD)
    flowed, top = smooth(scores, positions.places), float(scores.max()) or 1.0
    session = np.zeros(int(positions.sessions.max()) + 1)
    np.maximum.at(session, positions.sessions, scores)
    sums: Floats = np.bincount(positions.sessions, scores).astype(np.float64)
    found = (
        scores[rows] / top,
        np.zeros(len(rows)),
        _ranks(scores)[rows],
        flowed[rows] / (float(flowed.max()) or 1.0),
        _ranks(flowed)[rows],
        *(best[at[rows] + by] / top for by in (-2, -1, 1, 2)),
        session[own] / top,
        sums[own] / (float(sums.max()) or 1.0),
        _ranks(sums)[own],
    )
    return np.array(found)


def _ranks(scores: Floats) -> Floats:
    """(n,) rank of each score; the best has rank 0."""
    ranks = np.empty(len(scores))
    ranks[np.argsort(-scores, kind="stable")] = np.arange(len(scores))
    return ranks
