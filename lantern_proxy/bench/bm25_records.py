"""What `lantern bench bm25` hands to each engine."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

K1, B = 0.9, 0.4

Tokens = npt.NDArray[np.int32]
Search = Callable[[Sequence[str], int], Any]


class Records(Protocol):
    """tokens[starts[i] : starts[i + 1]] are record i, as places in `words`."""

    @property
    def tokens(self) -> Tokens: ...

    @property
    def starts(self) -> npt.NDArray[np.int64]: ...

    @property
    def words(self) -> Sequence[str]: ...

    def __len__(self) -> int: ...

    def terms(self, i: int) -> list[str]: ...


@dataclass(frozen=True, slots=True)
class Synthetic:
    """Records held as one array; see Records."""

    tokens: Tokens
    starts: npt.NDArray[np.int64]
    words: Sequence[str]

    @classmethod
    def of(cls, texts: Iterable[Sequence[str]]) -> "tuple[Synthetic, dict[str, str]]":
        """Analysed texts as records, and the word that stands for each term: a plain one, since some engines would
        take a path apart."""
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
