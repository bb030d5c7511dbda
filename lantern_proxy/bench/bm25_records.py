"""The records that `lantern bench bm25` passes to each engine."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt

K, K1, B = 100, 0.9, 0.4
COMMON = 0.04
"""Least share of the records that contain a common word."""
_SAMPLE = 20_000
"""Records in which words are counted."""

Search = Callable[[Sequence[str], int], Any]


@dataclass(frozen=True, slots=True)
class Records:
    """tokens[starts[i] : starts[i + 1]] are record i, as indices into `words`."""

    tokens: npt.NDArray[np.int32]
    starts: npt.NDArray[np.int64]
    words: Sequence[str]

    @classmethod
    def of(cls, texts: Iterable[Sequence[str]]) -> "tuple[Records, dict[str, str]]":
        """Analysed texts as records, and the word that replaces each term: a plain one, since some engines would split
        a path."""
        places: dict[str, int] = {}
        numbered = [[places.setdefault(term, len(places)) for term in text] for text in texts]
        words = [f"t{i:x}" for i in range(len(places))]
        tokens = np.fromiter(chain.from_iterable(numbered), np.int32)
        starts = np.cumsum([0, *map(len, numbered)])
        return cls(tokens, starts, words), dict(zip(places, words, strict=True))

    def __len__(self) -> int:
        return len(self.starts) - 1

    def terms(self, i: int) -> list[str]:
        words = self.words
        return [words[t] for t in self.tokens[self.starts[i] : self.starts[i + 1]].tolist()]

    def shares(self) -> npt.NDArray[np.float64]:
        """(words,) the share of records with each word, counted in the first 20,000 of them."""
        sample, n = min(len(self), _SAMPLE), len(self.words)
        rows = np.repeat(np.arange(sample), np.diff(self.starts[: sample + 1]))
        present = np.unique(rows * n + self.tokens[: self.starts[sample]])
        return np.bincount(present % n, minlength=n) / sample
