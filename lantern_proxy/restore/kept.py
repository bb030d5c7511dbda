"""Numbers of passages, a few of each, kept by row: those of many passages are had in one step."""

from array import array
from collections.abc import Callable, Sequence

import numpy as np

from lantern_proxy.rank import Floats, Ints
from lantern_proxy.signals.alike import Lists, Pieces

Make = Callable[[list[int]], Sequence[Sequence[float]]]
"""Rows, each once -> the numbers of each."""

_UNKNOWN, _NONE = -1, 0
"""Places of what is not kept, and of a row of -1."""


class Kept:
    """`width` numbers of each passage of a scope, made when they are first asked for."""

    def __init__(self, width: int, when_full: Callable[[], None] | None = None) -> None:
        """when_full: makes room, by default `clear`; it calls that"""
        self._width, self._when_full = width, when_full or self.clear
        self.clear()

    def __len__(self) -> int:
        return self._count - 1

    def clear(self) -> None:
        """Make all of them anew."""
        self._count = 1
        self._values = np.zeros((1, self._width))
        """(_count or more, width), zeros first."""
        self._at = np.full(1, _NONE, np.int32)
        """(rows + 1,) where those of each row are among them; the last is that of a row of -1."""

    def forget(self, row: int) -> None:
        """Make those of this row anew."""
        if row < len(self._at) - 1:
            self._at[row] = _UNKNOWN

    def of(self, rows: Ints, make: Make, *, most: int) -> Floats:
        """(len(rows), width); zeros for a row of -1. most: they stay of so many, or of all asked for at once"""
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


class KeptPieces(Kept):
    """Word pieces of each passage of a scope, as `lists` lists."""

    def __init__(self, lists: int) -> None:
        super().__init__(2 * lists)

    def clear(self) -> None:
        super().clear()
        self._pieces = array("H")

    def lists_of(
        self, rows: Ints, split: Callable[[list[int]], Sequence[Sequence[Pieces]]], *, most: int
    ) -> list[Lists]:  # fmt: skip
        """Each list of the passages at `rows`, in the shape of these; empty for a row of -1. most: as `of` has it"""

        def made(missing: list[int]) -> list[list[int]]:
            return [[number for one in own for number in self._appended(one)] for own in split(missing)]

        spans = self.of(rows.ravel(), made, most=most).T.astype(np.uint32, order="C").reshape(self._width, *rows.shape)
        return [Lists(self._pieces, *spans[n : n + 2]) for n in range(0, self._width, 2)]

    def _appended(self, pieces: Pieces) -> tuple[int, int]:
        """Where they begin, and how many they are."""
        start = len(self._pieces)
        self._pieces.frombytes(pieces)
        return start, len(self._pieces) - start
