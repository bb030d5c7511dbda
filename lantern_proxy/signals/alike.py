"""Words that mean alike, from a table: every word of a question looks for its best match in a passage. Pure.

What late interaction (`late.py`) is with a model, for when there is none: each piece of a word has one vector, whatever
stands around it (static embeddings, as of Model2Vec), distilled once from MiniLM (scripts/alike_table.py). "photo" so
finds "picture" for the price of a few look-ups.
"""

import re
import unicodedata
from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import chain

import numpy as np
import numpy.typing as npt

from lantern_proxy.analyze import STOP_WORDS
from lantern_proxy.rank import Floats

Pieces = npt.NDArray[np.uint16]
"""(m,) numbers of word pieces in the table, each once."""

DIM = 64
SCALE = 242.0
"""127 / (4.2 / sqrt(DIM)), as in `late.py`."""
MOST_CHARS = 100
"""Of a word; what is longer is none."""
SPLIT = 16_384
"""Words whose pieces are kept, those seen last."""
_WORD = re.compile(r"[^\W_]+(?:['\u2019][^\W_]+)?")


class Table:
    """Word pieces and their vectors."""

    def __init__(self, pieces: Sequence[str], vectors: npt.NDArray[np.int8]) -> None:
        """pieces: (n,) as WordPiece writes them, "##ing" within a word; vectors: (n, DIM), of length 1 times SCALE"""
        self._numbers: Mapping[str, int] = {piece: n for n, piece in enumerate(pieces)}
        self._vectors = vectors
        self._split = lru_cache(SPLIT)(self._split_anew)

    def pieces(self, text: str) -> Pieces:
        """Those of the words of `text` that count."""
        found = set(chain.from_iterable(map(self._split, words(text))))
        return np.fromiter(found, np.uint16, len(found))

    def asked(self, weights: Mapping[str, float]) -> tuple[Pieces, Floats, tuple[str, ...]]:
        """Of a question's words (m,) the pieces, their weights, above 0, and the words that they belong to.

        weights: word -> weight
        """
        found = [(piece, weight, word) for word, weight in weights.items() if weight > 0 for piece in self._split(word)]
        pieces, each, of = zip(*found, strict=True) if found else ((), (), ())
        return np.array(pieces, np.uint16), np.array(each, np.float64), of

    def best_matches(self, asked: Pieces, passages: Sequence[Pieces]) -> Floats:
        """(m, p) largest cosine of each piece asked for with one of the passage; 0 for a passage without pieces."""
        counts = np.fromiter(map(len, passages), np.int64, len(passages))
        found = np.zeros((len(passages), len(asked)))
        if not counts.any():
            return found.T
        held = np.concatenate(passages).astype(np.int64)
        there = np.zeros(len(self._vectors), bool)
        there[held] = True
        cosines = units(self._vectors[np.flatnonzero(there)]) @ units(self._vectors[asked]).T
        starts = np.concatenate([[0], np.cumsum(counts[counts > 0])[:-1]])
        found[counts > 0] = np.maximum.reduceat(cosines[(np.cumsum(there) - 1)[held]], starts, axis=0)
        return found.T

    def _split_anew(self, word: str) -> tuple[int, ...]:
        """The longest piece first, then the longest of the rest (WordPiece); () for what the table cannot spell."""
        found, start = list[int](), 0
        while start < len(word) <= MOST_CHARS:
            for end in range(len(word), start, -1):
                number = self._numbers.get(f"##{word[start:end]}" if start else word[:end])
                if number is not None:
                    break
            else:
                return ()
            found.append(number)
            start = end
        return tuple(found)


def units(packed: npt.NDArray[np.int8]) -> npt.NDArray[np.float32]:
    """(n, d) as rows of length 1."""
    found = packed.astype(np.float32)
    made: npt.NDArray[np.float32] = found / np.maximum(np.linalg.norm(found, axis=1, keepdims=True), 1.0)
    return made


def words(text: str) -> list[str]:
    """The words of `text` that count, in lower case and without accents; each once."""
    plain = text.lower()
    if not plain.isascii():
        plain = "".join(sign for sign in unicodedata.normalize("NFD", plain) if not unicodedata.combining(sign))
    whole = (word.replace("\u2019", "'") for word in dict.fromkeys(_WORD.findall(plain)))
    parts = (word.split("'") for word in whole if word not in STOP_WORDS)
    return [word for word in dict.fromkeys(chain.from_iterable(parts)) if word not in STOP_WORDS]
