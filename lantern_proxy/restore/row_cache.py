"""Caches of a few numbers per passage, indexed by row, so that those of many passages are read in one numpy step."""

from array import array
from collections.abc import Callable, Sequence

import numpy as np

from lantern_proxy.rank import Floats, Ints
from lantern_proxy.signals.word_similarity import PieceLists, Pieces

Make = Callable[[list[int]], Sequence[Sequence[float]]]
"""Distinct rows -> the numbers of each."""

_UNKNOWN, _NONE = -1, 0
"""Special values of `_at`: the row is not cached; the index of the all-zero row, which row -1 has."""


class RowCache:
    """`width` numbers per passage of a scope, computed on first use."""

    def __init__(self, width: int, when_full: Callable[[], None] | None = None) -> None:
        """when_full: called when the cache is full; it must call `clear`, which is the default"""
        self._width, self._when_full = width, when_full or self.clear
        self.clear()

    def __len__(self) -> int:
        return self._count - 1

    def clear(self) -> None:
        """Drop everything; it is computed again on next use."""
        self._count = 1
        self._values = np.zeros((1, self._width))
        """(_count or more, width), one line per cached passage; the first is all zeros."""
        self._at = np.full(1, _NONE, np.int32)
        """(rows + 1,) row of the scope -> line of `_values`; the last is that of row -1."""

    def forget(self, row: int) -> None:
        """Drop one row."""
        if row < len(self._at) - 1:
            self._at[row] = _UNKNOWN

    def of(self, rows: Ints, make: Make, *, most: int) -> Floats:
        """(len(rows), width) the numbers of each row; zeros for a row of -1.

        make: computes the numbers of rows that are not cached
        most: most passages to cache; those of one call are always cached together
        """
        lacking = int(rows.max(initial=-1)) + 2 - len(self._at)
        if lacking > 0:
            new = np.full(lacking + len(self._at) // 4, _UNKNOWN, np.int32)
            self._at = np.concatenate((self._at[:-1], new, self._at[-1:]))
        at = self._at.take(rows)
        if at.min(initial=_NONE) == _UNKNOWN:
            missing = np.unique(rows[at == _UNKNOWN])
            if self._count > 1 and self._count + len(missing) > most + 1:
                self._when_full()
                return self.of(rows, make, most=most)
            self._add(missing, make(missing.tolist()))
            at = self._at.take(rows)
        return self._values.take(at, axis=0)

    def _add(self, rows: Ints, values: Sequence[Sequence[float]]) -> None:
        count = self._count + len(rows)
        if count > len(self._values):
            grown = np.zeros((count * 5 // 4, self._width))
            grown[: self._count] = self._values[: self._count]
            self._values = grown
        self._values[self._count : count] = values
        self._at[rows] = np.arange(self._count, count)
        self._count = count


class PieceCache(RowCache):
    """`lists` lists of word pieces per passage of a scope, computed on first use."""

    def __init__(self, lists: int) -> None:
        super().__init__(2 * lists)

    def clear(self) -> None:
        super().clear()
        self._pieces = array("H")

    def lists_of(
        self, rows: Ints, split: Callable[[list[int]], Sequence[Sequence[Pieces]]], *, most: int
    ) -> list[PieceLists]:  # fmt: skip
        """The lists of the passages at `rows`, each in the shape of `rows`; empty for a row of -1.

        split: computes the lists of rows that are not cached
        most:  as in `of`
        """

        def made(missing: list[int]) -> list[list[int]]:
            return [[number for one in own for number in self._appended(one)] for own in split(missing)]

        spans = self.of(rows.ravel(), made, most=most).T.astype(np.uint32, order="C").reshape(self._width, *rows.shape)
        return [PieceLists(self._pieces, *spans[n : n + 2]) for n in range(0, self._width, 2)]

    def _appended(self, pieces: Pieces) -> tuple[int, int]:
        """Append some pieces to `_pieces`; returns where they begin there, and how many there are."""
        start = len(self._pieces)
        self._pieces.frombytes(pieces)
        return start, len(self._pieces) - start
