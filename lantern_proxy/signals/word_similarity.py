"""Word similarity from a table: each word of a question is matched with its best counterpart in a passage. Pure.

It replaces late interaction (`late.py`) while there is no model. Each word piece has one vector regardless of its
context (static embeddings, as in Model2Vec), distilled once from MiniLM (scripts/alike_table.py). So "photo" finds
"picture" for the price of a few look-ups.
"""

import re
import unicodedata
from array import array
from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import chain

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from lantern_proxy.analyze import STOP_WORDS
from lantern_proxy.rank import Floats
from lantern_proxy.signals.late import BUILT, ISAS, kernels

if BUILT:
    from lantern_proxy._bm25 import ffi, lib

Floats32 = npt.NDArray[np.float32]
Counts = npt.NDArray[np.uint32]
Numbers = npt.NDArray[np.uint16]
"""(m,) numbers of word pieces in the table."""
Pieces = bytes
"""The word pieces of one text as Numbers, each once."""

DIM = 64
SCALE = 242.0
"""127 / (4.2 / sqrt(DIM)), as in `late.py`."""
MAX_WORD_CHARS = 100
"""Longest word."""
CACHED_WORDS = 16_384
"""How many words have their pieces cached, the most recent ones."""
_WORD = re.compile(r"[^\W_]+(?:['\u2019][^\W_]+)?")


class PieceLists(Struct, frozen=True):
    """Word pieces of several texts, in one array that may contain those of others, too."""

    pieces: "array[int]"
    """Of array type H. No view of it is kept, since it may grow."""
    starts: Counts
    counts: Counts
    """Where the pieces of each text begin, and how many there are; both of the same shape."""


class Table:
    """Word pieces and their vectors."""

    def __init__(self, pieces: Sequence[str], vectors: npt.NDArray[np.int8]) -> None:
        """pieces: (n,) as WordPiece writes them, "##ing" within a word; vectors: (n, DIM), of length 1 times SCALE"""
        self._numbers: Mapping[str, int] = {piece: n for n, piece in enumerate(pieces)}
        self._vectors = np.ascontiguousarray(vectors)
        self._scale = (1 / np.maximum(np.linalg.norm(vectors.astype(np.float32), axis=1), 1)).astype(np.float32)
        self._split = lru_cache(CACHED_WORDS)(self._split_uncached)
        self._of = lru_cache(CACHED_WORDS)(self._pieces_uncached)

    def pieces(self, text: str) -> Pieces:
        """The pieces of those words of `text` that count."""
        return array("H", set(chain.from_iterable(map(self._of, _normalised_words(text))))).tobytes()

    def asked(self, weights: Mapping[str, float]) -> tuple[Numbers, Floats, tuple[str, ...]]:
        """(m,) the pieces of a question's words, (m,) their weights, above 0, and (m,) the word of each piece.

        weights: word -> weight
        """
        found = [(piece, weight, word) for word, weight in weights.items() if weight > 0 for piece in self._split(word)]
        pieces, each, of = zip(*found, strict=True) if found else ((), (), ())
        return np.array(pieces, np.uint16), np.array(each, np.float64), of

    def best_matches(self, question: Numbers, texts: PieceLists, *, kernel: str = "") -> Floats:
        """(m, *shape of `texts`) highest cosine of each piece of the question with one of each text; 0 for an empty
        text.

        kernel: one of `late.kernels()`, by default the best. All give the same result
        """
        kernel = kernel or kernels()[-1]
        best = self._best_in_numpy if kernel == "numpy" else self._best_in_c
        found = best(question, texts, kernel).T.astype(np.float64, order="C")
        return found.reshape(len(question), *texts.counts.shape)

    def _best_in_c(self, question: Numbers, texts: PieceLists, kernel: str) -> Floats32:
        found = np.empty((texts.counts.size, len(question)), np.float32)
        vectors, scale = ffi.from_buffer("int8_t[]", self._vectors), ffi.from_buffer("float[]", self._scale)
        lib.late_by_lists(
            ISAS.index(kernel), ffi.new("late_table *", (vectors, scale)), len(question),
            ffi.from_buffer("uint16_t[]", question), len(found), ffi.from_buffer("uint16_t[]", texts.pieces),
            ffi.from_buffer("uint32_t[]", texts.starts), ffi.from_buffer("uint32_t[]", texts.counts),
            ffi.from_buffer("float[]", found),
        )  # fmt: skip
        return found

    def _best_in_numpy(self, question: Numbers, texts: PieceLists, _: str) -> Floats32:
        """The result of _best_in_c(), bit for bit: products of these integers, and their sums, are exact in float32."""
        counts = texts.counts.ravel()
        filled = np.flatnonzero(counts)
        found = np.zeros((len(counts), len(question)), np.float32)
        if len(filled):
            counts, first = counts[filled].astype(np.intp), texts.starts.ravel()[filled].astype(np.intp)
            starts = np.cumsum(counts) - counts
            of_each = np.repeat(first - starts, counts) + np.arange(counts.sum())
            each, at = np.unique(np.frombuffer(texts.pieces, np.uint16)[of_each], return_inverse=True)
            like = self._vectors[each].astype(np.float32) @ self._vectors[question].astype(np.float32).T
            like *= self._scale[each][:, None]
            found[filled] = np.maximum.reduceat(like[at], starts, axis=0)
        found *= self._scale[question]
        return found

    def _pieces_uncached(self, written: str) -> tuple[int, ...]:
        return tuple(chain.from_iterable(map(self._split, _without_stop_words(written))))

    def _split_uncached(self, word: str) -> tuple[int, ...]:
        """The pieces of a word, longest match first (WordPiece); () if the table cannot spell it."""
        found, start = list[int](), 0
        while start < len(word) <= MAX_WORD_CHARS:
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
    return [*dict.fromkeys(chain.from_iterable(map(_without_stop_words, _normalised_words(text))))]


def _normalised_words(text: str) -> list[str]:
    """The words of `text`, in lower case and without accents."""
    plain = text.lower()
    if not plain.isascii():
        plain = "".join(sign for sign in unicodedata.normalize("NFD", plain) if not unicodedata.combining(sign))
    found: list[str] = _WORD.findall(plain.replace("\u2019", "'"))
    return found


def _without_stop_words(written: str) -> list[str]:
    """The parts of a word around its apostrophe that are no stop words; empty if the whole word is one."""
    return [] if written in STOP_WORDS else [part for part in written.split("'") if part not in STOP_WORDS]
